"""Names why an agent ended, from its output: finds the matching pattern, and the time at which a limit resets.
The patterns are data, each with its source: `endings.toml`.
"""

import re
import tomllib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

import msgspec

from outlast import decoders
from outlast.agents.events import Ending, Final

TEXT_MAX_CHARS = 16_384  # of the end of a text: what an agent says last is why it ended
RESET_MAX = timedelta(days=62)  # a limit that resets later than any known one was misread
WORDS_MAX_CHARS = 500
FILE = "endings.toml"


class Pattern(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row: a text that an agent prints (`*`: any of them), and its meaning."""

    agent: str
    ending: Ending
    match: str
    source: str
    sample: bool  # whether a line that a real program printed is among the samples of our tests
    example: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ending: tuple[Pattern, ...]


@cache
def patterns() -> tuple[Pattern, ...]:
    """Every pattern, in the order in which they are tried."""
    source = resources.files("outlast.agents.common").joinpath(FILE).read_text(encoding="utf-8")
    return decoders.convert(tomllib.loads(source), _File).ending


@cache
def _compiled(agent: str) -> tuple[tuple[re.Pattern[str], Ending], ...]:
    rows = [row for row in patterns() if row.agent == agent] + [row for row in patterns() if row.agent == "*"]
    return tuple((re.compile(row.match, re.IGNORECASE), row.ending) for row in rows)


def match(agent: str, text: str, now: datetime) -> Final | None:
    """The ending that an agent's last words mean, or None. The agent's own patterns go before the common ones.

    Only for texts that are an error already: an agent may well *speak* of rate limits.
    """
    text = text[-TEXT_MAX_CHARS:]
    for pattern, ending in _compiled(agent):
        if pattern.search(text):
            limited = ending in ("usage_limit", "rate_limit")
            return Final(ending, short(text), reset_at(text, now) if limited else None)
    return None


def with_reset(final: Final, text: str, now: datetime) -> Final:
    """The same ending; a limit without a time of reset gets the one that another text names."""
    if final.ending not in ("usage_limit", "rate_limit") or final.reset_at is not None:
        return final
    return Final(final.ending, final.text, reset_at(text, now))


def short(text: str) -> str:
    """The last words, on one line and short enough to record."""
    words = " ".join(text.split())
    return words if len(words) <= WORDS_MAX_CHARS else "…" + words[1 - WORDS_MAX_CHARS :]


def last_words(tail: bytes) -> str:
    """The end of an output, as text."""
    return tail[-TEXT_MAX_CHARS:].decode("utf-8", "replace").strip()


def by_signal(exit_code: int) -> Final | None:
    """The ending of a process that a signal ended, its own or that of a shell around it; None for any other."""
    if 0 <= exit_code < 128:
        return None
    return Final("crashed", f"ended by signal {-exit_code if exit_code < 0 else exit_code - 128}")


def by_exit(exit_code: int, words: str, agent: str, now: datetime) -> Final:
    """The ending by exit code and last words, where nothing better is known."""
    if exit_code == 0:
        return Final("done", short(words))
    final = match(agent, words, now)
    return final or Final("crashed", short(words) or f"exit code {exit_code}")


def by_status(status: int, text: str, agent: str, now: datetime) -> Final:
    """The ending of an API's error: by its words, else by its HTTP status."""
    final = match(agent, text, now)
    if final is not None:
        return final
    ending: Ending = "crashed"
    if status in (401, 403):
        ending = "auth"
    elif status in (429, 529):
        ending = "rate_limit"
    elif status == 413:
        ending = "context"
    elif status >= 500 or status == 408:
        ending = "network"
    return Final(ending, short(text), reset_at(text, now) if ending == "rate_limit" else None)


# --- when a limit resets ------------------------------------------------------------------------------------

_EPOCH = re.compile(r"\|\s*(\d{10})(?:\d{3})?\b|resets?_at\W{1,4}(\d{10})\b", re.IGNORECASE)
_UNITS = (
    ("weeks", r"w(?:eeks?)?"),
    ("days", r"d(?:ays?)?"),
    ("hours", r"h(?:(?:ou)?rs?)?"),
    ("minutes", r"m(?:in(?:ute)?s?)?"),
    ("seconds", r"s(?:ec(?:ond)?s?)?"),
)
_AMOUNT = re.compile(
    r"(\d{1,6}(?:\.\d{1,6})?)\s{0,2}(?:" + "|".join(f"(?P<{n}>{u})" for n, u in _UNITS) + r")(?![a-z])",
    re.IGNORECASE,
)
_IN = re.compile(
    r"(?:(?:try|retry) again|resets?|retry(?:ing)?(?:[- ]after)?|available again|wait|please)\s{0,2}(?:in|for|after)?\s{0,2}:?\s{0,2}"
    r"(?P<amount>(?:about\s)?\d[\d.,a-z ]{0,60})",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"retry[-_ ]after(?:[-_ ]seconds)?\W{1,4}(\d{1,7})(?:\.\d+)?\s*(?:s\b|$|[\"',}\n])", re.IGNORECASE
)
_MONTH = r"jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_AT = re.compile(
    r"(?:resets?(?: at)?|try again at|again at|until|reset at)\s{1,2}(?:on\s)?"
    rf"(?:(?P<month>{_MONTH})[a-z]{{0,6}}\.?\s(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,?\s(?:(?P<year>\d{{4}}),?\s)?(?:at\s)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s?(?P<half>[ap]\.?m\.?)?"
    r"(?:\s{0,2}\((?P<zone>[A-Za-z][A-Za-z0-9_+/-]{0,60})\))?",
    re.IGNORECASE,
)
_ISO = re.compile(r"\b(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d))")
_MONTHS = tuple(_MONTH.split("|"))


def reset_at(text: str, now: datetime) -> datetime | None:
    """When the limit that a text speaks of resets, in UTC; None where it does not say, or says nonsense."""
    text = text[-TEXT_MAX_CHARS:]
    found = [moment for moment in _moments(text, now) if moment is not None]
    likely = [moment for moment in found if now - timedelta(days=1) <= moment <= now + RESET_MAX]
    # A moment that is past may be that of a line in a log; one to come is meant.
    return next((moment for moment in likely if moment > now), likely[0] if likely else None)


def epoch(seconds: int | None, now: datetime) -> datetime | None:
    """When a limit resets, from seconds since 1970; None where that is nonsense."""
    if not seconds or not 0 < seconds < 1 << 33:
        return None
    found = datetime.fromtimestamp(seconds, UTC)
    return found if now - timedelta(days=1) <= found <= now + RESET_MAX else None


def _moments(text: str, now: datetime) -> Iterable[datetime | None]:
    yield _epoch(text)
    yield _iso(text)
    yield _clock(text, now)
    yield _span(text, now)


def _epoch(text: str) -> datetime | None:
    found = _EPOCH.search(text)
    return datetime.fromtimestamp(int(found[1] or found[2]), UTC) if found else None


def _iso(text: str) -> datetime | None:
    found = _ISO.search(text)
    try:
        return datetime.fromisoformat(found[1]).astimezone(UTC) if found else None
    except (ValueError, OverflowError):
        return None


def _span(text: str, now: datetime) -> datetime | None:
    header = _HEADER.search(text)
    if header:
        return now + timedelta(seconds=int(header[1]))
    found = _IN.search(text)
    amounts = _AMOUNT.finditer(found["amount"]) if found else ()
    spans = [timedelta(**{amount.lastgroup or "seconds": float(amount[1])}) for amount in amounts]
    whole = sum(spans, timedelta())
    return now + whole if spans and whole <= RESET_MAX else None


def _clock(text: str, now: datetime) -> datetime | None:
    found = _AT.search(text)
    if not found or not (found["half"] or found["minute"]):
        return None  # "resets 3" could be anything
    try:
        here = now.astimezone(
            ZoneInfo(found["zone"]) if found["zone"] else None
        )  # else this machine's, as agents do
        moment = here.replace(hour=_hour(found), minute=int(found["minute"] or 0), second=0, microsecond=0)
        if not found["month"]:
            return (moment if moment > here else moment + timedelta(days=1)).astimezone(UTC)
        month = _MONTHS.index(found["month"].lower()) + 1
        moment = moment.replace(year=int(found["year"] or here.year), month=month, day=int(found["day"]))
        if not found["year"] and moment < here - timedelta(days=180):
            moment = moment.replace(year=here.year + 1)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError, OSError, KeyError):
        return None  # no such time, or no such zone


def _hour(found: re.Match[str]) -> int:
    hour, half = int(found["hour"]), (found["half"] or "").lower()
    if half and not 1 <= hour <= 12:
        raise ValueError("no clock shows that hour")
    return hour % 12 + 12 * half.startswith("p") if half else hour
