"""The sums that a ledger is made of, taken event by event: rates, rows, and even steps in time. All of it has a limit."""

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from outlast.core import budget as budgets
from outlast.core import events as ev
from outlast.core import state as st
from outlast.core.values import Allowance, Usage, Window, clip
from outlast.runs.show import Spent, spent_of
from outlast.runs.terms import in_words

STEPS = 60  # in time
KEPT_MAX = 200  # warnings, changes, saves and attempts, the last ones of each
TOOLS_MAX = 200
OTHERS = "(others)"
NO_CALL = "(no call)"
_MS = timedelta(milliseconds=1)
_FIELDS = {unit: field for field, unit in budgets.UNITS.items()}

Kind = Literal["call", "decision", "none"]


class Told(msgspec.Struct, frozen=True):
    """A warning, the word to wrap up, or another limit: when, at which beat, and why."""

    at: datetime
    beat: int
    level: str
    text: str


class Saved(msgspec.Struct, frozen=True):
    """A save outside a beat's end, and what it was made for."""

    at: datetime
    beat: int
    kind: str
    commit: str
    reason: str


class BeatRow(msgspec.Struct, frozen=True):
    """What one beat cost, with what was cut off in earlier attempts of it."""

    beat: int
    step: str
    at: datetime
    calls: int
    spent: Spent


class ToolRow(msgspec.Struct, frozen=True):
    """What goes back to one tool. `share`: a beat's cost was split over its calls by their number, so this is a part of it."""

    name: str
    kind: Kind
    calls: int
    tokens: int
    cost_microusd: int
    share: bool


class Attempted(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt cost. `ended_at` is null where it is open, or recorded no end."""

    attempt: int
    started_at: datetime
    ended_at: datetime | None
    cause: ev.Cause | None
    evidence: str
    beats: int
    spent: Spent


class _Attempt(msgspec.Struct):
    number: int
    started_at: datetime
    beats: int = 0
    spent: Usage = Usage()


class _Tool(msgspec.Struct, frozen=True):
    tool: str


class Sums:
    """Everything that is summed up in one pass. Times before the first step count in it, later ones in the last."""

    def __init__(self, since: datetime, until: datetime, hour: datetime, *, last: int) -> None:
        self._since, self._step = since, max(_MS, (until - since) / STEPS)
        self._hour = hour
        self._recent = Usage()
        self._recent_beats = 0
        self._done = 0
        self._open = Usage()  # of the beat in flight, so far
        self._unsplit = Usage()  # of that, what was not given to a tool yet
        self._calls: list[str] = []
        self._calls_of_beat = 0
        self._tools: dict[tuple[Kind, str], list[int]] = {}
        self._attempt: _Attempt | None = None
        self._attempts = 0
        self._steps = [Usage() for _ in range(STEPS)]
        self._beats_in = [0] * STEPS
        self._windows: list[Window | None] = [None] * STEPS
        self._budget = Allowance()
        self._limits: list[Allowance | None] = [None] * STEPS
        self.warnings: deque[Told] = deque(maxlen=KEPT_MAX)
        self.changes: deque[Told] = deque(maxlen=KEPT_MAX)
        self.saves: deque[Saved] = deque(maxlen=KEPT_MAX)
        self.saves_total = 0
        self.beats: deque[BeatRow] = deque(maxlen=last)
        self._rows: deque[Attempted] = deque(maxlen=KEPT_MAX)

    def take(self, event: ev.AnyEvent) -> None:
        """The next event of the journal."""
        match event:
            case ev.BeatDone():
                self._beat_done(event)
            case ev.Decided(usage=usage) if usage is not None:
                self._spend(usage, event.at)
                self._tool("decision", clip(event.name, st.LABEL_BYTES_MAX), 1, usage)
            case ev.EffectIntended(attempt=1):
                self._calls.append(_name(event))
                self._calls_of_beat += 1
                if (
                    len(self._calls) > TOOLS_MAX
                ):  # a beat of very many calls: their names need not all be known
                    self._calls[TOOLS_MAX:] = [OTHERS]
            case ev.SpendSettled():
                self._spend(event.usage, event.at)
                self._unsplit = self._unsplit.plus(event.usage)
            case ev.AttemptStarted():
                self._end_attempt(None)
                self._attempts += 1
                self._attempt = _Attempt(self._attempts, event.at)
            case ev.AttemptEnded():
                self._attempt_ended(event)
            case ev.SaveMade():
                self.saves_total += 1
                reason = clip(event.reason, st.EVIDENCE_BYTES_MAX)
                self.saves.append(Saved(event.at, event.beat, event.kind, event.commit, reason))
            case ev.Warned() if event.level.startswith(("budget", st.WRAP_UP)):
                self.warnings.append(Told(event.at, self._done, event.level, event.text))
            case ev.RunOpened() | ev.ContractAmended() if event.budget is not None:
                self._limit(event.at, event.budget, event.by if isinstance(event, ev.ContractAmended) else "")
            case ev.Requested(what="budget"):
                self._limit(event.at, _allowance(event), event.by)
            case ev.Requested(what="more"):
                self._limit(event.at, self._budget.plus(_allowance(event) or Allowance()), event.by)
            case _:
                pass

    # -- what is spent -------------------------------------------------------------------------------------------

    def _spend(self, usage: Usage, at: datetime) -> None:
        self._open = self._open.plus(msgspec.structs.replace(usage, time_ms=0))
        place = self._place(at)
        self._steps[place] = self._steps[place].plus(msgspec.structs.replace(usage, time_ms=0))
        if at >= self._hour:
            self._recent = self._recent.plus(msgspec.structs.replace(usage, time_ms=0))
        if usage.time_ms:
            self.lives(at, usage.time_ms)
        if self._attempt is not None:
            self._attempt.spent = self._attempt.spent.plus(usage)

    def lives(self, until: datetime, lived_ms: int) -> None:
        """An agent lived for so long up to a moment: spread evenly over the steps, and over the last hour."""
        begun = until - lived_ms * _MS
        self._recent = self._recent.plus(Usage(time_ms=max(0, int((until - max(begun, self._hour)) / _MS))))
        first, last = self._place(begun), self._place(until)
        for place in range(first, last + 1):
            start, end = self._since + place * self._step, self._since + (place + 1) * self._step
            inside = min(end, until) - max(start, begun) if first != last else until - begun
            self._steps[place] = self._steps[place].plus(Usage(time_ms=max(0, int(inside / _MS))))

    def _beat_done(self, event: ev.BeatDone) -> None:
        if event.spent is not None:
            self._spend(event.spent, event.at)
            self._unsplit = self._unsplit.plus(event.spent)
        self._split()
        row = BeatRow(
            event.beat, clip(event.step, st.LABEL_BYTES_MAX), event.at, self._calls_of_beat,
            spent_of(self._open, 1),
        )  # fmt: skip
        self.beats.append(row)
        self._open, self._calls_of_beat, self._done = Usage(), 0, event.beat
        place = self._place(event.at)
        self._beats_in[place] += 1
        self._recent_beats += event.at >= self._hour
        self._windows[place] = event.window or self._windows[place]
        if self._attempt is not None:
            self._attempt.beats += 1

    def _attempt_ended(self, event: ev.AttemptEnded) -> None:
        if event.spent is not None:
            self._spend(event.spent, event.at)
            self._unsplit = self._unsplit.plus(event.spent)
        self._split()
        self._end_attempt(event)

    def _end_attempt(self, end: ev.AttemptEnded | None) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        self._rows.append(
            Attempted(
                attempt=attempt.number, started_at=attempt.started_at, ended_at=None if end is None else end.at,
                cause=None if end is None else end.cause,
                evidence="" if end is None else clip(end.evidence, st.EVIDENCE_BYTES_MAX), beats=attempt.beats,
                spent=spent_of(attempt.spent, attempt.beats),
            )
        )  # fmt: skip

    def attempts_done(self, lived_ms: int) -> list[Attempted]:
        """The attempts; one that is open has lived for so long."""
        if self._attempt is not None and lived_ms:
            self._attempt.spent = self._attempt.spent.plus(Usage(time_ms=lived_ms))
        self._end_attempt(None)
        return list(self._rows)

    # -- tools ---------------------------------------------------------------------------------------------------

    def _split(self) -> None:
        """Give what the calls so far have cost to their tools, in even parts; nothing is lost in dividing."""
        usage, calls = self._unsplit, self._calls
        self._unsplit, self._calls = Usage(), []
        if not calls:
            if usage.tokens or usage.cost_microusd:
                self._tool("none", NO_CALL, 1, usage)
            return
        for at, name in enumerate(calls):
            tokens, cost = (
                whole // len(calls) + (at < whole % len(calls))
                for whole in (usage.tokens, usage.cost_microusd)
            )
            self._tool("call", name, 1, Usage(input=tokens, cost_microusd=cost))

    def _tool(self, kind: Kind, name: str, calls: int, usage: Usage) -> None:
        if (kind, name) not in self._tools and len(self._tools) >= TOOLS_MAX:
            name = OTHERS
        row = self._tools.setdefault((kind, name), [0, 0, 0])
        for place, amount in enumerate((calls, usage.tokens, usage.cost_microusd)):
            row[place] += amount

    def tools(self) -> list[ToolRow]:
        """What each tool cost, the dearest first."""
        rows = [
            ToolRow(name, kind, calls, tokens, cost, kind == "call")
            for (kind, name), (calls, tokens, cost) in self._tools.items()
        ]
        return sorted(rows, key=lambda row: (-row.tokens, -row.cost_microusd, row.name))

    # -- over time -----------------------------------------------------------------------------------------------

    def _place(self, at: datetime) -> int:
        return min(STEPS - 1, max(0, int((at - self._since) / self._step)))

    def _limit(self, at: datetime, budget: Allowance | None, by: str) -> None:
        self._budget = self._limits[self._place(at)] = budget or Allowance()
        text = f"{in_words(budget or Allowance())}{f' by {by}' if by else ''}"
        self.changes.append(Told(at, self._done, "limit", text))

    def per_hour(self, unit: budgets.Unit, spent: int, lived_ms: int) -> tuple[int | None, int]:
        """What is spent in an hour: of an agent's life, and what was in the last hour of the clock."""
        recent = {
            "tokens": self._recent.tokens,
            "usd": self._recent.cost_microusd,
            "time": self._recent.time_ms // 1000,
            "beats": self._recent_beats,
        }[unit]
        return (None if unit == "time" or not lived_ms else spent * 3_600_000 // lived_ms), recent

    def series(self, unit: budgets.Unit) -> Iterator[tuple[datetime, int, int | None]]:
        """For the end of each step: what was spent, and the limit then."""
        total, beats, gauge, limits = Usage(), 0, 0, Allowance()
        for place in range(STEPS):
            total = total.plus(self._steps[place])
            beats += self._beats_in[place]
            window = self._windows[place]
            gauge = gauge if window is None else round(window.used_pct * 100)
            limits = self._limits[place] or limits
            spent = {
                "tokens": total.tokens, "usd": total.cost_microusd, "time": total.time_ms // 1000, "beats": beats,
                "window": gauge,
            }[unit]  # fmt: skip
            limit = getattr(limits, _FIELDS[unit])
            scale = 100 if unit == "window" else 1
            yield self._since + (place + 1) * self._step, spent, None if limit is None else limit * scale


def _name(event: ev.EffectIntended) -> str:
    """The tool of an agent's call, else the name of the act."""
    if event.args.blob:
        return clip(event.name, st.LABEL_BYTES_MAX)
    try:
        return clip(msgspec.json.decode(event.args.v, type=_Tool).tool, st.LABEL_BYTES_MAX)
    except msgspec.MsgspecError:
        return clip(event.name, st.LABEL_BYTES_MAX)


def _allowance(event: ev.Requested) -> Allowance | None:
    try:
        return msgspec.json.decode(event.args.v, type=Allowance | None)
    except msgspec.MsgspecError:
        return None
