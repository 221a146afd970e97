"""Amounts, ages and times as people read them on a page. Pure; the reader's zone and the clock are arguments."""

import os
import re
from datetime import UTC, date, datetime, tzinfo
from zoneinfo import ZoneInfo

from outlast.dashboard.documents import Meter
from outlast.inspect import ledger
from outlast.inspect.show import Spent

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
_SCALES = ((10**9, "G"), (10**6, "M"), (10**3, "k"))
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CLIPPED = "…"


def spell(name: str | None) -> str:
    """`in_doubt` as people write it."""
    return (name or "").replace("_", " ")


def plural(count: int, one: str, many: str = "") -> str:
    """`1 run`, `12,000 runs`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def clip(text: str, most: int) -> str:
    """The beginning of a text on one line, with a sign that there is more of it."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1].rstrip()}{_CLIPPED}"


# -- amounts -------------------------------------------------------------------------------------------------------


def short(count: int) -> str:
    """A count in three digits: 950, 1.2k, 124k, 3.05M."""
    for scale, letter in _SCALES:
        if abs(count) >= 0.9995 * scale:  # what would be told as 1000 of the smaller one
            value = count / scale
            digits = f"{value:.{2 if abs(value) < 10 else 1}f}".rstrip("0").rstrip(".")
            return f"{digits if abs(value) < 100 else f'{value:.0f}'}{letter}"
    return str(count)


def dollars(microusd: int) -> str:
    """Money. Less than a cent is not shown as $0."""
    if 0 < microusd < 10_000:
        return "< $0.01"
    return f"${microusd / 1e6:,.2f}" if microusd < 1_000_000_000 else f"${microusd / 1e6:,.0f}"


def cost(spent: Spent) -> str:
    """The money in words: a subscription costs nothing extra, and an unknown price is not $0."""
    money = ledger.money(spent)
    if money == "paid" or spent.cost_microusd:
        about = "≈ " if spent.estimated else ""
        more = {"paid": "", "subscription": " and a subscription", "unknown price": " and an unknown price"}[
            money
        ]
        return f"{about}{dollars(spent.cost_microusd)}{more}"
    return money


def amount(unit: str, value: int | None) -> str:
    """An amount of a budget in its unit, short."""
    if value is None:
        return "–"
    match unit:
        case "usd":
            return dollars(value)
        case "time" | "until":
            return span(value)
        case "window":
            return f"{value / 100:.0f} %"
        case _:
            return short(value)


def of_limit(meter: Meter) -> str:
    """`124k of 400k tokens`; without a limit, `124k tokens`."""
    of = "" if meter.limit is None else f" of {amount(meter.unit, meter.limit)}"
    match meter.unit:
        case "usd":
            return f"{dollars(meter.spent)}{of}"
        case "time":
            return f"{span(meter.spent)}{of}"
        case "until":
            return f"{span(meter.left or 0)} before its time is over"
        case "window":
            return f"window {meter.spent / 100:.0f} %{of}"
        case _:
            return f"{short(meter.spent)}{of} {meter.unit}"


def share(meter: Meter) -> str:
    """`62 % of 400k tokens`: how much of a limit is used up; without a limit, how much was spent."""
    if meter.limit is None or meter.unit in ("until", "window"):
        return of_limit(meter)
    unit = "" if meter.unit in ("usd", "time") else f" {meter.unit}"
    return f"{percent(meter.used_pct)} of {amount(meter.unit, meter.limit)}{unit}"


def percent(share: float | None) -> str:
    """A share that is nearly all is not all, and one that is nearly nothing is not nothing."""
    if share is None:
        return "–"
    if 99 <= share < 100:
        return "99 %"
    return "< 1 %" if 0 < share < 1 else f"{share:.0f} %"


def size(count: int) -> str:
    """Bytes."""
    for scale, letters in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if count >= scale:
            return f"{count / scale:.1f} {letters}"
    return plural(count, "byte")


# -- times ---------------------------------------------------------------------------------------------------------


def span(seconds: float) -> str:
    """How long: `45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    whole = max(0, int(seconds))
    if whole < MINUTE_S:
        return f"{whole} s"
    if whole < HOUR_S:
        return f"{whole // MINUTE_S} min"
    if whole < DAY_S:
        return _two(whole // HOUR_S, "h", whole % HOUR_S // MINUTE_S, "min")
    return _two(whole // DAY_S, "d", whole % DAY_S // HOUR_S, "h")


def _two(large: int, word: str, small: int, small_word: str) -> str:
    return f"{large} {word} {small} {small_word}" if small and large < 10 else f"{large} {word}"


def age(at: datetime, now: datetime) -> str:
    """How long ago, or in how long. `app.js` says it the same way, so that it can tick."""
    seconds = (now - at).total_seconds()
    if abs(seconds) < 10:
        return "just now"
    span = about(abs(seconds))
    return f"{span} ago" if seconds > 0 else f"in {span}"


def about(seconds: float) -> str:
    """How long, in one unit."""
    whole = int(seconds)
    if whole < MINUTE_S:
        return f"{whole} s"
    if whole < HOUR_S:
        return f"{whole // MINUTE_S} min"
    if whole < 2 * DAY_S:
        return f"{whole // HOUR_S} h"
    return f"{whole // DAY_S} d"


def clock(at: datetime, zone: tzinfo, now: datetime, *, to_the_second: bool = False) -> str:
    """The time of day, with day and year if not today's; seconds only for today, or with `to_the_second`."""
    there, today = at.astimezone(zone), now.astimezone(zone)
    is_today = there.date() == today.date()
    is_exact = bool(there.second or there.microsecond)
    has_seconds = to_the_second or (is_today and is_exact and there <= today)
    time = f"{there:%H:%M:%S}" if has_seconds else f"{there:%H:%M}"
    if is_today:
        return time
    year = "" if there.year == today.year else f" {there.year}"
    return f"{day(there)}{year} {time}"


def day(of: date) -> str:
    """`14 Nov`."""
    return f"{of.day} {_MONTHS[of.month - 1]}"


def exact(at: datetime, zone: tzinfo) -> str:
    """The moment to the second, with its zone."""
    there = at.astimezone(zone)
    offset = f"{there:%z}"
    named = there.tzname() or ""
    zone_name = f" {named}" if named and not named.startswith(("+", "-")) else ""
    return f"{there:%Y-%m-%d %H:%M:%S}{zone_name} (UTC{offset[:3]}:{offset[3:5]})"


def machine(at: datetime) -> str:
    """For `<time datetime=…>`: in UTC, to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"


# -- The reader's zone of time: what their browser says, or else that of this machine.

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+\-]{0,31}(/[A-Za-z0-9_+\-]{1,31}){0,2}")
_LOCAL = "/etc/localtime"


def called(name: str) -> tuple[str, tzinfo] | None:
    """A zone by its IANA name; None if this machine knows no such zone."""
    if _NAME.fullmatch(name) is None:
        return None
    if name == "UTC":
        return name, UTC
    try:
        return name, ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def local() -> tuple[str, tzinfo]:
    """This machine's zone by its name, if known; else UTC or an offset from it."""
    now = datetime.now(UTC).astimezone()
    try:
        _, _, name = os.readlink(_LOCAL).partition("zoneinfo/")
    except OSError:
        name = ""
    found = called(name)
    if found is not None and now.astimezone(found[1]).utcoffset() == now.utcoffset():
        return found
    offset = now.utcoffset()
    hours, rest = divmod(int(offset.total_seconds()) if offset else 0, 3600)
    whole = (
        called(f"Etc/GMT{-hours:+d}") if hours and not rest else None
    )  # their signs are the other way round
    return whole or ("UTC", UTC)
