"""The sums of a ledger, taken event by event: rates, rows, and even steps in time. All of it has a limit.

`Sums` has no clock, so it can be kept and continued with later events; `Stretch` reads it for a stretch of time."""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Literal

import msgspec

from outlast import decoders
from outlast.core import budget as budgets, events as ev, state as st
from outlast.core.values import Allowance, Usage, Window, clip
from outlast.inspect.show import Spent, spent_of
from outlast.runs.opening.terms import in_words

STEPS = 60  # in time
ENTRIES_MAX = 200  # the last warnings, changes, saves and attempts, each
TOOLS_MAX = 200
RATE_AFTER = timedelta(
    minutes=1
)  # of a shorter life no rate is told: a few seconds say nothing about an hour
OTHERS = "(others)"
NO_CALL = "(no call)"
MARKS_MAX = 20_000  # an even number; with more marks of what was spent when, two become one
_MS, _US = timedelta(milliseconds=1), timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS = {unit: field for field, unit in budgets.UNITS.items()}

Kind = Literal["call", "decision", "none"]
Mark = tuple[
    int, int, int, int, int
]  # when, in microseconds; tokens, micro-dollars, milliseconds lived until then, beats
NEEDED = (
    "run_opened", "contract_amended", "beat_done", "decided", "effect_intended", "attempt_started", "attempt_ended",
    "save_made", "spend_settled", "warned", "requested",
)  # fmt: skip


class Notice(msgspec.Struct, frozen=True):
    """A warning, the request to wrap up, or a new limit: when, at which beat, and why."""

    at: datetime
    beat: int
    level: str
    text: str


class Saved(msgspec.Struct, frozen=True):
    """A save outside a beat's end, and its reason."""

    at: datetime
    beat: int
    kind: str
    commit: str
    reason: str


class BeatRow(msgspec.Struct, frozen=True):
    """The cost of one beat, including its interrupted attempts."""

    beat: int
    step: str
    at: datetime
    calls: int
    spent: Spent


class ToolRow(msgspec.Struct, frozen=True):
    """The cost of one tool. `share`: a beat's cost was split evenly over its calls, so this is a part of it."""

    name: str
    kind: Kind
    calls: int
    tokens: int
    cost_microusd: int
    share: bool


class AttemptCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of one attempt. `ended_at` is null if it is open, or recorded no end."""

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
    """Everything that one pass sums up. `seq` and `n` are the place of the last event."""

    def __init__(self, *, last: int) -> None:
        self.seq = self.n = 0
        self._done = 0
        self._open = Usage()  # the beat in flight, so far
        self._unsplit = Usage()  # the part of it that no tool has yet
        self._calls: list[str] = []
        self._calls_of_beat = 0
        self._tools: dict[tuple[Kind, str], list[int]] = {}
        self._attempt: _Attempt | None = None
        self._attempts = 0
        self._budget = Allowance()
        self.marks: list[Mark] = []
        self.windows: list[tuple[int, Window]] = []
        self.limits: list[tuple[int, Allowance]] = []
        self.warnings: deque[Notice] = deque(maxlen=ENTRIES_MAX)
        self.changes: deque[Notice] = deque(maxlen=ENTRIES_MAX)
        self.saves: deque[Saved] = deque(maxlen=ENTRIES_MAX)
        self.saves_total = 0
        self._beats: deque[tuple[ev.BeatDone, int, Usage]] = deque(maxlen=last)
        self._rows: deque[AttemptCost] = deque(maxlen=ENTRIES_MAX)

    def take(self, event: ev.AnyEvent) -> None:
        """Add the next event of the journal."""
        match event:
            case ev.BeatDone():
                self._beat_done(event)
            case ev.Decided(usage=usage) if usage is not None:
                self._spend(usage, event.at)
                self._tool(
                    "decision", clip(event.name, st.LABEL_BYTES_MAX), usage.tokens, usage.cost_microusd
                )
            case ev.EffectIntended(attempt=1):
                self._calls.append(_name(event))
                self._calls_of_beat += 1
                if (
                    len(self._calls) > TOOLS_MAX
                ):  # a beat with very many calls: not all of their names are needed
                    self._calls[TOOLS_MAX:] = [OTHERS]
            case ev.SpendSettled() if event.source != ev.INSIDE:
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
                self.warnings.append(Notice(event.at, self._done, event.level, event.text))
            case ev.RunOpened() | ev.ContractAmended() if event.budget is not None:
                self._limit(event.at, event.budget, event.by if isinstance(event, ev.ContractAmended) else "")
            case ev.Requested(what="budget"):
                self._limit(event.at, _allowance(event), event.by)
            case ev.Requested(what="more"):
                self._limit(event.at, self._budget.plus(_allowance(event) or Allowance()), event.by)
            case ev.Requested(what="less"):
                self._limit(event.at, self._budget.minus(_allowance(event) or Allowance()), event.by)
            case _:
                pass

    # -- what is spent -------------------------------------------------------------------------------------------

    def _spend(self, usage: Usage, at: datetime, beats: int = 0) -> None:
        self._open = self._open.plus(usage)
        self._mark(at, usage, beats)
        if self._attempt is not None:
            self._attempt.spent = self._attempt.spent.plus(usage)

    def _mark(self, at: datetime, usage: Usage, beats: int) -> None:
        self.marks.append((_micros(at), usage.tokens, usage.cost_microusd, usage.time_ms, beats))
        if len(self.marks) > MARKS_MAX:
            pairs = zip(self.marks[:-1:2], self.marks[1::2], strict=True)
            paired = [(b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4]) for a, b in pairs]
            self.marks = [*paired, self.marks[-1]]

    def _beat_done(self, event: ev.BeatDone) -> None:
        spent = event.spent
        if spent is not None:
            self._spend(spent, event.at, 1)
            self._unsplit = self._unsplit.plus(spent)
        else:
            self._mark(event.at, Usage(), 1)
        self._split()
        self._beats.append((event, self._calls_of_beat, self._open))
        self._open, self._calls_of_beat, self._done = Usage(), 0, event.beat
        if event.window is not None:
            self.windows.append((_micros(event.at), event.window))
            if len(self.windows) > MARKS_MAX:
                self.windows = self.windows[::2]  # the last one stays
        if self._attempt is not None:
            self._attempt.beats += 1

    def beats(self) -> list[BeatRow]:
        """The cost of the last beats. Their duration belongs to the attempt."""
        return [
            BeatRow(done.beat, clip(done.step, st.LABEL_BYTES_MAX), done.at, calls,
                    spent_of(msgspec.structs.replace(spent, time_ms=0), 1))
            for done, calls, spent in self._beats
        ]  # fmt: skip

    def _attempt_ended(self, event: ev.AttemptEnded) -> None:
        if event.spent is not None:
            self._spend(event.spent, event.at)
            self._unsplit = self._unsplit.plus(event.spent)
        self._split()
        self._end_attempt(event)

    def _end_attempt(self, end: ev.AttemptEnded | None) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._rows.append(_attempted(attempt, end, attempt.spent))

    def attempts(self, lived_ms: int) -> list[AttemptCost]:
        """The attempts; the open one has lived for so long."""
        if self._attempt is None:
            return list(self._rows)
        spent = self._attempt.spent.plus(Usage(time_ms=lived_ms))
        return [*self._rows, _attempted(self._attempt, None, spent)][-ENTRIES_MAX:]

    # -- tools ---------------------------------------------------------------------------------------------------

    def _split(self) -> None:
        """Divide what the calls so far have cost evenly over their tools, without loss by rounding."""
        tokens, cost, calls = self._unsplit.tokens, self._unsplit.cost_microusd, self._calls
        self._unsplit, self._calls = Usage(), []
        if not calls:
            if tokens or cost:
                self._tool("none", NO_CALL, tokens, cost)
            return
        each, more = divmod(tokens, len(calls))
        paid, rest = divmod(cost, len(calls))
        for at, name in enumerate(calls):
            self._tool("call", name, each + (at < more), paid + (at < rest))

    def _tool(self, kind: Kind, name: str, tokens: int, cost: int) -> None:
        """Add one more call of a tool, and its cost."""
        row = self._tools.get((kind, name))
        if row is None:
            name = name if len(self._tools) < TOOLS_MAX else OTHERS
            row = self._tools.setdefault((kind, name), [0, 0, 0])
        row[0] += 1
        row[1] += tokens
        row[2] += cost

    def tools(self) -> list[ToolRow]:
        """The cost of each tool, the dearest first."""
        rows = [
            ToolRow(name, kind, calls, tokens, cost, kind == "call")
            for (kind, name), (calls, tokens, cost) in self._tools.items()
        ]
        return sorted(rows, key=lambda row: (-row.tokens, -row.cost_microusd, row.name))

    # -- limits --------------------------------------------------------------------------------------------------

    def _limit(self, at: datetime, budget: Allowance | None, by: str) -> None:
        self._budget = budget or Allowance()
        self.limits.append((_micros(at), self._budget))
        if len(self.limits) > MARKS_MAX:
            self.limits = self.limits[::2]
        text = f"{in_words(budget or Allowance())}{f' by {by}' if by else ''}"
        self.changes.append(Notice(at, self._done, "limit", text))


class Stretch:
    """Sums over a stretch of time. Times before the first step count in it, later ones in the last.

    `hour` is when the last hour began, and `lived_ms` how long the open attempt has lived until the end.
    """

    def __init__(
        self, sums: Sums, since: datetime, until: datetime, hour: datetime, lived_ms: int = 0
    ) -> None:
        self._sums, self._start, self._hour = sums, since, _micros(hour)
        self._since, self._step = _micros(since), max(1_000, (_micros(until) - _micros(since)) / STEPS)
        self._marks = [*sums.marks, *([(_micros(until), 0, 0, lived_ms, 0)] if lived_ms else [])]

    def _place(self, at: float) -> int:
        return min(STEPS - 1, max(0, int((at - self._since) / self._step)))

    def per_hour(self, unit: budgets.Unit, spent: int, lived_ms: int) -> tuple[int | None, int]:
        """The rate per hour of an agent's life, once that has lasted a minute, and what was spent in the last hour of the clock."""
        hour = self._hour
        recent = [mark for mark in self._marks if mark[0] >= hour]
        if unit == "time":
            parts = (at - max(at - lived * 1_000, hour) for at, _, _, lived, _ in recent)
            return None, sum(parts) // 1_000_000
        column = {"tokens": 1, "usd": 2, "beats": 4}[unit]
        rate = spent * 3_600_000 // lived_ms if lived_ms >= RATE_AFTER / _MS else None
        return rate, sum(mark[column] for mark in recent)

    def series(self, unit: budgets.Unit) -> Iterator[tuple[datetime, int, int | None]]:
        """For the end of each step: what was spent, and the limit then."""
        amounts = self._gauge() if unit == "window" else self._steps(unit)
        held: list[Allowance | None] = [None] * STEPS
        for at, limit in self._sums.limits:
            held[self._place(at)] = limit
        limits, scale = Allowance(), 100 if unit == "window" else 1
        for place, spent in enumerate(amounts):
            limits = held[place] or limits
            limit = getattr(limits, _FIELDS[unit])
            end = self._start + (place + 1) * self._step * _US
            yield end, spent, None if limit is None else limit * scale

    def _gauge(self) -> list[int]:
        """The last known state of the window, by step."""
        known: list[int | None] = [None] * STEPS
        for at, window in self._sums.windows:
            known[self._place(at)] = round(window.used_pct * 100)
        shown, last = [], 0
        for each in known:
            last = last if each is None else each
            shown.append(last)
        return shown

    def _steps(self, unit: budgets.Unit) -> list[int]:
        """The spending up to the end of each step."""
        inside = [0] * STEPS
        if unit == "time":
            for at, _, _, lived_ms, _ in self._marks:
                self._spread(inside, at, lived_ms * 1_000)
            return [total // 1_000_000 for total in accumulate(inside)]
        column = {"tokens": 1, "usd": 2, "beats": 4}[unit]
        since, step, last = self._since, self._step, STEPS - 1
        for mark in self._marks:
            place = int((mark[0] - since) / step)
            inside[0 if place < 0 else min(place, last)] += mark[column]
        return list(accumulate(inside))

    def _spread(self, inside: list[int], until: int, lived: int) -> None:
        """Spread an agent's life up to a moment evenly over the steps, without loss by rounding."""
        begun = until - lived
        first, last = self._place(begun), self._place(until)
        spread = 0
        for place in range(first, last):
            end = int(self._since + (place + 1) * self._step) - begun
            part = min(lived, max(spread, end)) - spread
            inside[place] += part
            spread += part
        inside[last] += lived - spread


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // _US


def _attempted(attempt: _Attempt, end: ev.AttemptEnded | None, spent: Usage) -> AttemptCost:
    return AttemptCost(
        attempt=attempt.number, started_at=attempt.started_at, ended_at=None if end is None else end.at,
        cause=None if end is None else end.cause,
        evidence="" if end is None else clip(end.evidence, st.EVIDENCE_BYTES_MAX), beats=attempt.beats,
        spent=spent_of(spent, attempt.beats),
    )  # fmt: skip


def _name(event: ev.EffectIntended) -> str:
    """The tool of an agent's call, else the name of the act."""
    if event.args.blob:
        return clip(event.name, st.LABEL_BYTES_MAX)
    try:
        return clip(decoders.decode(event.args.v, _Tool).tool, st.LABEL_BYTES_MAX)
    except msgspec.MsgspecError:
        return clip(event.name, st.LABEL_BYTES_MAX)


def _allowance(event: ev.Requested) -> Allowance | None:
    try:
        return decoders.decode(event.args.v, Allowance | None)
    except msgspec.MsgspecError:
        return None
