"""Budgets: their parsing, their rest, and when a run must wrap up. Money is integer micro-dollars.

The journal is the ledger: `spent` is what events recorded, `reserved` what the next beat may cost. Reads no clock."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from outlast import decoders
from outlast.core.state import BEAT, GATEWAY, RunState
from outlast.core.text import did_you_mean
from outlast.core.values import Allowance, Usage
from outlast.errors import BadSetting

RESERVE_PCT = 10
ENDING_BEATS = (
    4  # an ending takes so many: the agent sees the warning a call or two later, commits, says goodbye
)
LAST_MINUTES = timedelta(minutes=5)  # the longest ending before `until`
FIRST_TOKENS = 30_000  # an upper bound for the first response of an agent without history
HINTED_TURNS = 20  # for so many turns of an agent more budget is suggested
NO_PRICE = "a model it uses has no price"  # how the evidence begins when money cannot be counted
_SCALE = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_TIME = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FIELDS = {
    "tokens": "tokens", "usd": "cost_microusd", "time": "time_s", "beats": "beats", "window": "window_pct"
}  # fmt: skip
_SMALLEST = {
    "tokens": "tokens",
    "usd": "millionths of a dollar",
    "time": "seconds",
    "beats": "beats",
    "window": "percent",
}
AMOUNT_MAX = 10**15
TIME_MAX_S = 100 * 366 * 86_400
UNITS = {field: unit for unit, field in _FIELDS.items()}
_NUMBER = r"([0-9]{1,18}(?:\.[0-9]{1,18})?)"
_LIKE = "like 400k, usd=12, time=8h, beats=500 or window=80%"

Unit = Literal["tokens", "usd", "time", "beats", "window", "until"]


class Left(msgspec.Struct, frozen=True):
    """The spending that a run has left, per unit; None without a limit.

    `wraps_up`: only the reserve is left, so commit, write down the state of the work, and stop. `warning` says it in words.
    """

    tokens: int | None = None
    cost_microusd: int | None = None
    beats: int | None = None
    time_s: int | None = None
    window_pct: float | None = None
    wraps_up: bool = False
    warning: str = ""


class Live(msgspec.Struct, frozen=True):
    """Facts that no event has yet: the wall clock, and how long the current attempt has lived."""

    at: datetime
    lived_ms: int = 0


class Line(msgspec.Struct, frozen=True):
    """One unit of a budget. Amounts are whole numbers of the unit: tokens, micro-dollars, seconds, beats, hundredths of a %."""

    unit: Unit
    limit: int
    spent: int
    reserved: int = 0
    ending_reserve: int = 0  # for the run's own ending

    @property
    def left(self) -> int:
        return max(0, self.limit - self.spent)

    @property
    def share(self) -> float:
        return self.spent / self.limit

    @property
    def is_reached(self) -> bool:
        return self.spent >= self.limit

    @property
    def wraps_up(self) -> bool:
        """Whether one more beat like the last ones would eat into the reserve; for gauges, whether the reserve is reached."""
        if self.unit in ("time", "window", "until") and self.ending_reserve:
            return self.spent >= self.limit - self.ending_reserve
        return self.spent + self.reserved > self.limit - self.ending_reserve

    def words(self) -> str:
        """Spent and limit, for a person."""
        match self.unit:
            case "tokens" | "beats":
                return f"{self.spent:,} of {self.limit:,} {self.unit}"
            case "usd":
                return f"${self.spent / 1e6:.2f} of ${self.limit / 1e6:.2f}"
            case "time":
                return f"{_clock(self.spent)} of {_clock(self.limit)}"
            case "window":
                return f"{self.spent / 100:.0f} % of the subscription's window, of at most {self.limit / 100:.0f} %"
            case "until":
                return f"{_clock(self.left)} before its time is over"

    def rest(self) -> str:
        """The rest, in words for a person."""
        match self.unit:
            case "tokens" | "beats":
                return f"{self.left:,} of {self.limit:,} {self.unit} left"
            case "usd":
                return f"${self.left / 1e6:.2f} of ${self.limit / 1e6:.2f} left"
            case "time":
                return f"{_clock(self.left)} of {_clock(self.limit)} left"
            case "window" | "until":
                return self.words()


# -- reading -------------------------------------------------------------------------------------------------------


def parse(given: object) -> Allowance | None:
    """An allowance from `400_000`, "400k", "usd=12", ["400k", "time=8h"] or {"tokens": …}."""
    if given is None:
        return None
    if isinstance(given, Allowance):
        return _writable(given)
    if isinstance(given, Mapping):
        given = [f"{unit}={amount}" for unit, amount in given.items()]
    if isinstance(given, int | str):
        given = [given]
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise BadSetting(f"not a budget: {given!r:.60}", hint=_LIKE)
    limits: dict[str, int] = {}
    for item in given:
        unit, given_unit, amount = str(item).rpartition("=")
        unit = unit.strip().lower() if given_unit else "tokens"
        if unit not in _FIELDS:
            raise BadSetting(
                f"no such unit of a budget: {unit:.40}",
                hint=did_you_mean(unit, _FIELDS) or f"give one of {', '.join(_FIELDS)}",
            )
        if _FIELDS[unit] in limits:
            raise BadSetting(f"the budget names {unit} twice", hint="give each unit once")
        limits[_FIELDS[unit]] = _amount(unit, amount.strip().lower().replace("_", ""), str(item))
    return msgspec.structs.replace(Allowance(), **limits) if limits else None


def reserve(text: str) -> int:
    """The share of a budget reserved for the run's own ending, from "10%" or "10"."""
    matched = re.fullmatch(r"([0-9]{1,3})\s*%?", text.strip())
    if not matched or int(matched[1]) >= 100:
        problem = f"must be 0 to 99 %, got {matched[1]}" if matched else f"{text!r:.40} cannot be read"
        raise BadSetting(f"reserve {problem}", hint="a share of the budget, like 10%")
    return int(matched[1])


def _writable(allowance: Allowance) -> Allowance:
    """Check an allowance that somebody built by hand: one that cannot be read back must never be written."""
    for amount in (getattr(allowance, field) for field in UNITS):
        if amount is not None and (type(amount) is not int or amount <= 0):
            raise BadSetting(
                f"not a budget: {allowance!r:.120}", hint="give whole numbers above zero, or None"
            )
    share = allowance.reserve_pct
    if share is not None and (type(share) is not int or not 0 <= share < 100):
        raise BadSetting(f"reserve must be 0 to 99 %, got {share!r:.40}", hint="like reserve_pct=10")
    return allowance


def _amount(unit: str, text: str, item: str) -> int:
    suffixes = {"time": "smhd", "window": "%", "tokens": "kmg", "beats": "kmg", "usd": ""}[unit]
    matched = re.fullmatch(rf"{_NUMBER}([{suffixes}]?)" if suffixes else rf"\$?{_NUMBER}()", text)
    if not matched:
        raise BadSetting(f"budget {item!r:.60} cannot be read", hint=_LIKE)
    number, suffix = matched[1], matched[2]
    scale = 1_000_000 if unit == "usd" else _TIME[suffix or "s"] if unit == "time" else _SCALE.get(suffix, 1)
    value = _scaled(number, scale)
    if value is None:
        raise BadSetting(f"budget {item!r:.60} must be a whole number of {_SMALLEST[unit]}", hint=_LIKE)
    if value > (TIME_MAX_S if unit == "time" else AMOUNT_MAX):
        raise BadSetting(f"budget {item!r:.60} is too large", hint=_LIKE)
    if value <= 0 or (unit == "window" and value > 100):
        raise BadSetting(
            f"budget {item!r:.60} must be above zero{' and at most 100 %' if unit == 'window' else ''}",
            hint=_LIKE,
        )
    return value


def _scaled(number: str, scale: int) -> int | None:
    """The amount in its smallest unit, or None if that is not a whole number."""
    whole, _, fraction = number.partition(".")
    part, rest = divmod(int(fraction) * scale, 10 ** len(fraction)) if fraction else (0, 0)
    return None if rest else int(whole) * scale + part


def usage_of(given: object) -> Usage:
    """Usage from a Usage, a number of tokens, or a mapping with its field names; never below zero."""
    if isinstance(given, bool) or given is None:
        return Usage()
    hint = "give outlast.Usage(input=…, output=…) with whole numbers"
    if isinstance(given, Usage):
        given = msgspec.structs.asdict(given)
    try:
        usage = Usage(output=given) if isinstance(given, int) else decoders.convert(given, Usage)
    except msgspec.ValidationError as error:
        raise BadSetting(f"usage cannot be read: {error}", hint=hint) from error
    amounts = (
        usage.input,
        usage.output,
        usage.cache_read,
        usage.cache_write,
        usage.cost_microusd,
        usage.time_ms,
    )
    if min(amounts) < 0:
        raise BadSetting(f"usage is below zero: {usage}", hint=hint)
    return usage


# -- where it stands -----------------------------------------------------------------------------------------------


def lines(state: RunState, live: Live | None = None) -> tuple[Line, ...]:
    """Every limit of the budget with what is spent of it. Limits in time are included only if `live` has the clock."""
    budget = state.budget
    if budget is None:
        return ()
    share = RESERVE_PCT if budget.reserve_pct is None else budget.reserve_pct
    own, calls = (dict(state.reserved).get(key, Usage()) for key in (BEAT, GATEWAY))
    spent = state.spent.plus(state.spent_inside)
    for key, other in state.reserved:
        spent = spent if key in (BEAT, GATEWAY) else spent.plus(other)
    found: list[Line] = []
    if budget.tokens is not None:
        set_aside = _reserve_of(budget.tokens, share, own.tokens)
        found.append(Line("tokens", budget.tokens, spent.tokens, max(own.tokens, calls.tokens), set_aside))
    if (limit := budget.cost_microusd) is not None:
        set_aside = _reserve_of(limit, share, own.cost_microusd)
        reserved = max(own.cost_microusd, calls.cost_microusd)
        found.append(Line("usd", limit, spent.cost_microusd, reserved, set_aside))
    if budget.beats is not None:
        set_aside = min(budget.beats - 1, -(-budget.beats * share // 100))
        found.append(Line("beats", budget.beats, state.beats, 1, set_aside))
    if live is not None and (limit := budget.time_s) is not None:
        lived_s = (spent.time_ms + live.lived_ms) // 1000
        found.append(Line("time", limit, lived_s, 0, limit * share // 100))
    if budget.window_pct is not None and state.window is not None:
        limit, used = budget.window_pct * 100, round(state.window.used_pct * 100)
        if live is None or state.window.resets_at is None or live.at < state.window.resets_at:
            found.append(Line("window", limit, min(used, 10_000), 0, limit * share // 100))
    if live is not None and budget.until is not None:
        found.append(_until(budget.until, state.until_since or live.at, live.at, share))
    return tuple(found)


def _reserve_of(limit: int, share: int, beat: int) -> int:
    """The reserve for the ending: the share that was asked for, but at least the beats that an ending takes."""
    return max(limit * share // 100, min(ENDING_BEATS * beat, limit // 2) if share else 0)


def _until(until: datetime, since: datetime, now: datetime, share: int) -> Line:
    whole_s = max(1, int((until - since).total_seconds()))
    spent_s = min(whole_s, max(0, whole_s - int((until - now).total_seconds())))
    return Line("until", whole_s, spent_s, 0, min(whole_s * share // 100, int(LAST_MINUTES.total_seconds())))


def left(budget: Allowance | None, state: RunState, live: Live | None = None) -> Left:
    """The rest of a budget per unit, and whether only the reserve is left."""
    if budget is None:
        return Left()
    known = lines(msgspec.structs.replace(state, budget=budget), live)
    rest = {line.unit: line.left for line in known}
    window = rest.get("window")
    return Left(
        tokens=rest.get("tokens"),
        cost_microusd=rest.get("usd"),
        beats=rest.get("beats"),
        time_s=rest.get("time"),
        window_pct=None if window is None else window / 100,
        wraps_up=any(line.wraps_up for line in known),
        warning=next((f"{line.words()} spent" for line in known if line.wraps_up), ""),
    )


def limit_reached(state: RunState, live: Live | None = None) -> str:
    """Which limit is used up, in words; empty while none is."""
    for line in lines(state, live):
        if line.is_reached and line.unit == "until":
            return "the run's time is over"
        if line.is_reached:
            return f"{line.words()} {'done' if line.unit == 'beats' else 'spent'}"
    return ""


def is_spent(state: RunState, live: Live | None = None) -> bool:
    """Whether a run stopped by its budget still has none: a limit is used up, or the run wrapped up since it got more."""
    return state.wrap_beat is not None or bool(limit_reached(state, live))


def wraps_up(state: RunState, live: Live | None = None) -> str:
    """The first unit of which only the reserve is left, in words; empty if there is none."""
    return next((line.words() for line in lines(state, live) if line.wraps_up), "")


def is_only_money(budget: Allowance) -> bool:
    """Whether money is the run's only limit."""
    others = (budget.tokens, budget.time_s, budget.beats, budget.window_pct, budget.until)
    return budget.cost_microusd is not None and all(limit is None for limit in others)


class DueWarning(msgspec.Struct, frozen=True):
    """A warning that is due. It is recorded under `level`, so that it is given once."""

    level: str
    text: str


def due_warnings(state: RunState, warn_at: Sequence[int], live: Live | None = None) -> list[DueWarning]:
    """The warnings that are due and not given yet: per unit the highest level crossed, or else the forecast."""
    found = [_crossing(state, line, sorted(warn_at)) for line in lines(state, live)]
    return [each for each in found if each is not None and each.level not in state.warned]


def _crossing(state: RunState, line: Line, warn_at: Sequence[int]) -> DueWarning | None:
    of = f"{line.unit} {line.limit}"
    due = [pct for pct in warn_at if line.spent * 100 >= pct * line.limit]
    if due:
        text = f"{line.share:.0%} of the budget is spent: {line.words()}"
        return DueWarning(f"budget {due[-1]}% of {of}", text)
    if forecast(state, line) > line.limit:
        at = f"beat {state.beats:,} of {state.plan_total:,}"
        return DueWarning(
            f"budget forecast of {of}", f"at this rate the budget does not last: {line.words()} at {at}"
        )
    return None


def forecast(state: RunState, line: Line) -> int:
    """The cost of the whole plan at the rate so far; 0 if there is no rate yet."""
    done, total = state.beats, state.plan_total
    if total is None or not 3 <= done < total or line.unit in ("beats", "window", "until"):
        return 0
    return line.spent * total // done


# -- what is set aside -----------------------------------------------------------------------------------------------


def next_reserved(before: Usage, spent: Usage) -> Usage:
    """The most the next beat may cost: as the dearest of the last beats, which fade gradually."""

    def dearest(old: int, new: int) -> int:
        return max(new, old * 7 // 8)

    return Usage(
        dearest(before.input, spent.input),
        dearest(before.output, spent.output),
        dearest(before.cache_read, spent.cache_read),
        dearest(before.cache_write, spent.cache_write),
        dearest(before.cost_microusd, spent.cost_microusd),
    )


def first_reserved(budget: Allowance) -> Usage:
    """The most an agent's first beat may cost: a twentieth of the budget, within a usual beat's cost."""
    tokens = min(FIRST_TOKENS, (budget.tokens or 0) // 20)
    return Usage(input=tokens, cost_microusd=(budget.cost_microusd or 0) // 20)


def charge_for_killed(state: RunState) -> Usage:
    """The charge for an attempt that was killed without warning, the larger of two: the amount set aside for its beat less
    what is recorded of it, or the amount set aside for calls in flight through a gateway."""
    attempt = state.attempt
    if attempt is None:
        return Usage()
    beat, calls = (dict(state.reserved).get(key, Usage()) for key in (BEAT, GATEWAY))
    beat = beat.minus(state.open_spent.minus(attempt.owed))
    cost = max(beat.cost_microusd, calls.cost_microusd)
    charge = calls if calls.tokens > beat.tokens else beat
    if not charge.tokens and not cost:
        return Usage()
    return msgspec.structs.replace(charge, cost_microusd=cost, estimated=True)


# -- more of it ------------------------------------------------------------------------------------------------------


def with_more(budget: Allowance | None, more: Allowance) -> Allowance:
    """The budget with more on top; a unit without a limit stays without one."""
    return more if budget is None else budget.plus(more)


def increase_hint(state: RunState, live: Live | None = None) -> str:
    """The options that let a run with a spent budget go on: half as much again of all that ran out, and at least what
    its next turns will take.
    """
    short = [line for line in lines(state, live) if line.is_reached or line.wraps_up]
    options = [
        "--until +8h" if line.unit == "until" else f"--budget {half_of(line, state)}" for line in short
    ]
    return " ".join(options) or "--budget +200k"


def half_of(line: Line, state: RunState | None = None) -> str:
    """Half as much again of a limit, as one types it; for a window what `_more_window` says, for a moment 8 hours from now.

    It is more where more than that was spent above the limit: there is always some left afterwards. With the head of the run
    it also lasts for the turns that its plan still has, or for `HINTED_TURNS`, if they cost what the turns so far did.
    """
    half, over = max(1, line.limit // 2), line.spent - line.limit
    if state is not None and state.beats and line.unit in ("tokens", "usd"):
        ahead = (
            HINTED_TURNS if state.plan_total is None else min(HINTED_TURNS, state.plan_total - state.beats)
        )
        half = max(half, ahead * line.spent // state.beats + line.ending_reserve)
    if half <= over:
        half += over

    def rounded(step: int) -> int:
        return half // step if half // step * step > over else half // step + 1

    match line.unit:
        case "tokens":
            return f"+{f'{rounded(1000)}k' if half >= 10_000 else half}"
        case "usd":
            return f"usd=+{-(-half // 10_000) / 100:.2f}"
        case "time":
            return f"time=+{f'{rounded(60)}m' if half >= 600 else f'{half}s'}"
        case "beats":
            return f"beats=+{half}"
        case "window":
            return _more_window(line)
        case "until":
            return "until=+8h"


def _more_window(line: Line) -> str:
    """All of the window; where so much is used that this would stop the run again, enough that it never does.

    A window is never used by more than 100 %, so a limit whose part before the reserve is above that is never reached.
    """
    reserve_pct = line.ending_reserve * 100 // line.limit
    if line.spent < 10_000 - 100 * reserve_pct:
        return "window=100%"
    return f"window=+{min(100, 10_000 // (100 - reserve_pct) + 1 - line.limit // 100)}%"


def limit_above(line: Line) -> str:
    """A limit that leaves something of what was spent, as one types it."""
    match line.unit:
        case "tokens" | "beats":
            return f"{line.unit}={line.spent + line.spent // 2 + 1}"
        case "usd":
            return f"usd={-(-(line.spent + line.spent // 2 + 1) // 10_000) / 100:.2f}"
        case "time":
            return f"time={line.spent + line.spent // 2 + 60}s"
        case "window":
            return "window=100%"
        case "until":
            return half_of(line)


def same_limits(one: Allowance | None, other: Allowance | None) -> bool:
    """Whether two budgets are the same to a contract. It ignores `until`, which each start sets again."""
    if one is None or other is None:
        return one is other
    return msgspec.structs.replace(one, until=None) == msgspec.structs.replace(other, until=None)


def with_until(recorded: Allowance | None, given: Allowance | None) -> Allowance | None:
    """The recorded budget with the `until` of this start, or without one if this start gives none."""
    if recorded is None or given is None or given.until is None:
        return None
    return msgspec.structs.replace(recorded, until=given.until)


def _clock(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min" if minutes else f"{seconds} s"
