"""Limits of an account, read from answers: which wall was met, when it falls, and how full a window is."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from outlast.core.values import Window
from outlast.gateway.answers import Fault
from outlast.gateway.heads import Fields
from outlast.gateway.values import Wall

RESET_MAX = timedelta(days=62)  # a limit that resets later than any known one was misread
WINDOWS_MAX = 8
_SPAN = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?(?:(\d{1,9}(?:\.\d{1,9})?)(s|ms))?")
_RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d{1,7}(?:\.\d{1,9})?)s"')
_PERIOD = re.compile(rb"PerDay|per_day", re.IGNORECASE)
# Codes of a quota that only time or money mends; all other 429s are a pace that was too fast.
_USAGE = (
    "usage_limit",
    "insufficient_quota",
    "quota_exceeded",
    "billing",
    "usage_not_included",
    "out_of_credits",
)
_RATE = ("rate_limit", "resource_exhausted", "too_many_requests")


def wall(status: int, fields: Fields, fault: Fault | None, now: datetime) -> Wall | None:
    """The wall that an answer stands for, or None. `fault` is the error in its body or in the middle of its stream."""
    codes = " ".join(fault.codes).lower() if fault else ""
    words = fault.message if fault and fault.message else f"status {status}"
    rejected = fields.first(b"anthropic-ratelimit-unified-status").lower() == b"rejected"
    used_up = (
        rejected
        or any(code in codes for code in _USAGE)
        or bool(fault and _PERIOD.search(fault.details))
        or "usage limit" in words.lower()
    )
    if status == 429 or status == 402 or (fault and (used_up or any(code in codes for code in _RATE))):
        kind = "usage_limit" if used_up or status == 402 else "rate_limit"
        resets_at = _sane(_resets(fields, fault, now), now)
        return Wall("usage_limit" if kind == "usage_limit" else "rate_limit", resets_at, words)
    return None


def _resets(fields: Fields, fault: Fault | None, now: datetime) -> Iterable[datetime | None]:
    """Every place where an answer may name a reset, the most exact first."""
    yield _epoch(fields.first(b"anthropic-ratelimit-unified-reset"))
    if fault is not None:
        yield _moment(fault.resets_at)
        yield _after(fault.resets_in_s, now)
    for name in (b"primary", b"secondary"):
        if _number(fields.first(b"x-codex-%s-used-percent" % name)) >= 100:
            yield _window_reset(fields, name, now)
    yield _retry_after(fields.first(b"retry-after"), now)
    milliseconds = fields.first(b"retry-after-ms")
    if milliseconds:
        yield _after(_number(milliseconds) / 1000, now)
    if fault is not None and (found := _RETRY_DELAY.search(fault.details)):
        yield _after(float(found[1]), now)
    for kind in (b"tokens", b"requests"):
        if _number(fields.first(b"x-ratelimit-remaining-" + kind) or b"1") == 0:
            yield _span(fields.first(b"x-ratelimit-reset-" + kind), now)
        if _number(fields.first(b"anthropic-ratelimit-%s-remaining" % kind) or b"1") == 0:
            yield _iso(fields.first(b"anthropic-ratelimit-%s-reset" % kind))


def _sane(found: Iterable[datetime | None], now: datetime) -> datetime | None:
    """The first that can be true."""
    for moment in found:
        if moment is not None and now - timedelta(days=1) <= moment <= now + RESET_MAX:
            return moment
    return None


def windows(fields: Fields, now: datetime) -> tuple[Window, ...]:
    """How full a subscription's windows are, where the headers say so (Claude and Codex with a login)."""
    found = []
    for line in fields.lines:
        if line.name.startswith(b"anthropic-ratelimit-unified-") and line.name.endswith(b"-utilization"):
            stem = line.name.removesuffix(b"-utilization")
            reset = _epoch(fields.first(stem + b"-reset"))
            name = stem.removeprefix(b"anthropic-ratelimit-unified-")
            found.append(_window(name, _number(line.value) * 100, reset, now))
        elif line.name in (b"x-codex-primary-used-percent", b"x-codex-secondary-used-percent"):
            name = line.name.split(b"-")[2]
            found.append(_window(name, _number(line.value), _window_reset(fields, name, now), now))
    return tuple(found[:WINDOWS_MAX])


def _window(name: bytes, used_pct: float, resets_at: datetime | None, now: datetime) -> Window:
    named = name.decode("ascii", "replace")[:40]
    return Window(round(min(max(used_pct, 0.0), 1000.0), 2), _sane([resets_at], now), named)


def _window_reset(fields: Fields, name: bytes, now: datetime) -> datetime | None:
    moment = fields.first(b"x-codex-%s-reset-at" % name)
    after = fields.first(b"x-codex-%s-reset-after-seconds" % name)
    return _epoch(moment) if moment else _after(_number(after), now) if after else None


# --- times in all their spellings -----------------------------------------------------------------------------


def _number(text: bytes) -> float:
    try:
        found = float(text.decode("ascii")) if 0 < len(text) <= 40 else 0.0
    except ValueError:
        return 0.0
    return found if abs(found) < 1e15 else 0.0  # also: no infinity, and nothing that is not a number


def _epoch(text: bytes) -> datetime | None:
    return _moment(_number(text)) if text else None


def _moment(epoch: float | None) -> datetime | None:
    try:
        return datetime.fromtimestamp(epoch, UTC) if epoch else None
    except (ValueError, OverflowError, OSError):
        return None


def _after(seconds: float | None, now: datetime) -> datetime | None:
    try:
        return now + timedelta(seconds=seconds) if seconds is not None and seconds >= 0 else None
    except (ValueError, OverflowError):
        return None


def _retry_after(text: bytes, now: datetime) -> datetime | None:
    """Seconds, or a date."""
    if not text:
        return None
    if text[:1].isdigit():
        return _after(_number(text), now)
    try:
        found = parsedate_to_datetime(text.decode("ascii"))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _span(text: bytes, now: datetime) -> datetime | None:
    """A duration in OpenAI's form: 1s, 6m0s, 1h2m, 250ms."""
    found = _SPAN.fullmatch(text.decode("ascii", "replace"))
    if not text or found is None:
        return None
    days, hours, minutes = (int(part or 0) for part in found.groups()[:3])
    seconds = float(found[4] or 0) / (1000 if found[5] == "ms" else 1)
    return _after(seconds + 60 * (minutes + 60 * (hours + 24 * days)), now)


def _iso(text: bytes) -> datetime | None:
    try:
        found = datetime.fromisoformat(text.decode("ascii"))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
