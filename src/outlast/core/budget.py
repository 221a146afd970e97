"""Budgets as people write them, and what is left of them. Money is integer micro-dollars."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from outlast.core.state import RunState
from outlast.core.values import Allowance, Usage
from outlast.errors import BadSetting

_SCALE = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_TIME = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FIELDS = {
    "tokens": "tokens", "usd": "cost_microusd", "time": "time_s", "beats": "beats", "window": "window_pct"
}  # fmt: skip
_NUMBER = r"([0-9]{1,18}(?:\.[0-9]{1,18})?)"
_LIKE = "like 400k, usd=12, beats=500"


class Left(msgspec.Struct, frozen=True):
    """What a run may still spend, per unit; None where there is no limit."""

    tokens: int | None = None
    cost_microusd: int | None = None
    beats: int | None = None


def parse(given: object) -> Allowance | None:
    """An allowance from `400_000`, "400k", "usd=12", ["400k", "time=8h"] or {"tokens": …}."""
    if given is None:
        return None
    if isinstance(given, Allowance):
        return _kept(given)
    if isinstance(given, Mapping):
        given = [f"{unit}={amount}" for unit, amount in given.items()]
    if isinstance(given, int | str):
        given = [given]
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise BadSetting(f"{given!r:.60} is no budget", hint=_LIKE)
    limits: dict[str, int] = {}
    for item in given:
        unit, given_unit, amount = str(item).rpartition("=")
        unit = unit.strip().lower() if given_unit else "tokens"
        if unit not in _FIELDS:
            raise BadSetting(f"unknown budget unit {unit!r}", hint=f"one of {', '.join(_FIELDS)}")
        if _FIELDS[unit] in limits:
            raise BadSetting(f"the budget names {unit} twice", hint="give each unit once")
        limits[_FIELDS[unit]] = _amount(unit, amount.strip().lower().replace("_", ""), str(item))
    return Allowance(**limits)


def _kept(allowance: Allowance) -> Allowance:
    """An allowance that somebody made by hand; one that could not be read back must never be written."""
    for amount in msgspec.structs.astuple(allowance):
        if amount is not None and (type(amount) is not int or amount <= 0):
            raise BadSetting(
                f"{allowance!r:.120} is no budget", hint="give whole numbers above zero, or None"
            )
    return allowance


def _amount(unit: str, text: str, item: str) -> int:
    suffixes = {"time": "smhd", "window": "%", "tokens": "kmg", "beats": "kmg", "usd": ""}[unit]
    matched = re.fullmatch(rf"\$?{_NUMBER}([{suffixes}]?)" if suffixes else rf"\$?{_NUMBER}()", text)
    if not matched:
        raise BadSetting(f"budget {item!r:.60} cannot be read", hint=_LIKE)
    number, suffix = matched[1], matched[2]
    scale = 1_000_000 if unit == "usd" else _TIME[suffix or "s"] if unit == "time" else _SCALE.get(suffix, 1)
    value = _scaled(number, scale)
    if value <= 0 or (unit == "window" and value > 100):
        raise BadSetting(
            f"budget {item!r:.60} must be above zero{' and at most 100 %' if unit == 'window' else ''}",
            hint=_LIKE,
        )
    return value


def _scaled(number: str, scale: int) -> int:
    whole, _, fraction = number.partition(".")
    return int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)


def usage_of(given: object) -> Usage:
    """Usage from a Usage, a number of tokens, or a mapping with its field names; never below zero."""
    if isinstance(given, bool) or given is None:
        return Usage()
    hint = "give outlast.Usage(input=…, output=…) with whole numbers"
    if isinstance(given, Usage):
        given = msgspec.structs.asdict(given)
    try:
        usage = Usage(output=given) if isinstance(given, int) else msgspec.convert(given, Usage)
    except msgspec.ValidationError as error:
        raise BadSetting(f"usage cannot be read: {error}", hint=hint) from error
    if min(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.cost_microusd) < 0:
        raise BadSetting(f"usage is below zero: {usage}", hint=hint)
    return usage


def left(budget: Allowance | None, state: RunState) -> Left:
    """What remains after everything spent and reserved."""
    if budget is None:
        return Left()
    spent = state.spent
    for _, reserved in state.reserved:
        spent = spent.plus(reserved)
    return Left(
        tokens=None if budget.tokens is None else max(0, budget.tokens - spent.tokens),
        cost_microusd=(
            None if budget.cost_microusd is None else max(0, budget.cost_microusd - spent.cost_microusd)
        ),
        beats=None if budget.beats is None else max(0, budget.beats - state.beats),
    )


def reached(state: RunState) -> str:
    """Which limit is used up, in words; empty while there is something left."""
    rest = left(state.budget, state)
    budget = state.budget or Allowance()
    if rest.tokens == 0:
        return f"{state.spent.tokens:,} of {budget.tokens:,} tokens spent"
    if rest.cost_microusd == 0:
        return f"${state.spent.cost_microusd / 1e6:.2f} of ${(budget.cost_microusd or 0) / 1e6:.2f} spent"
    if rest.beats == 0:
        return f"{state.beats:,} of {budget.beats:,} beats done"
    return ""


def added(budget: Allowance | None, more: Allowance) -> Allowance:
    """The budget with more on top; a unit without a limit stays without one."""
    if budget is None:
        return more
    pairs = {name: (getattr(budget, name), getattr(more, name)) for name in Allowance.__struct_fields__}
    return Allowance(**{name: None if a is None else a + (b or 0) for name, (a, b) in pairs.items()})
