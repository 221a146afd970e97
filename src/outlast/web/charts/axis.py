"""Time from left to right in percent, so that a drawing fits every width, and the marks on it. No colours, no pages."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import Literal

from outlast.web.html import formats
from outlast.web.html.html import Safe, tag

DEAD_SHARE_MAX = 0.35  # of the width: longer dead time is drawn shorter, else the work could not be seen
TICKS_APART_PCT = 11.0
TICKS_APART_NARROW_PCT = 25.0
TICKS_MAX = 400
PLACES = 42  # marks nearer than this share of the width stand together as one
TITLE_LINES_MAX = 6
TITLE_CHARS_MAX = 200
_LETTER_PX = 6.6
LABEL_GAP_PX = 6.0
_NARROW_PX, _WIDE_PX = 270.0, 860.0
_BREAK_PX = 660.0  # the narrowest drawing that still shows what has no room on a phone
_SECONDS = (
    1, 5, 15, 30, 60, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000,
)  # fmt: skip

Tone = Literal["good", "bad", "warn", "calm"]
Span = tuple[datetime, datetime]

# Our own, in a box of 12 around the middle; those of `_FILLED` are filled, the others drawn as lines.
SHAPES = {
    "check": "M-4.5 0L-1.5 3.2L4.5-3.5",
    "cross": "M-4-4L4 4M4-4L-4 4",
    "stop": "M-3.8-3.8h7.6v7.6h-7.6z",
    "limit": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0M-2.2 0h4.4",
    "wait": "M-3.5-4.5h7L-3.5 4.5h7z",
    "warning": "M0-4.8L5.2 4.2H-5.2zM0-1.6v2.2M0 2.6v.2",
    "doubt": "M-2.6-2.4a2.6 2.6 0 1 1 3.4 2.4q-.8.3-.8 1.6M0 4.4v.3",
    "save": "M0-5L5 0L0 5L-5 0z",
    "flag": "M-3.2 5V-4.6H4.4L2.4-1.8L4.4 1H-3.2",
    "play": "M-3.2-4.6L4.8 0L-3.2 4.6z",
    "asked": "M-5-4.2h10v6.4H0L-3 5V2.2h-2z",
    "pen": "M-4.6 4.6L-3.6 1L2.2-4.8L4.8-2.2L-1 3.6z",
    "dot": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
}
_FILLED = frozenset({"stop", "save", "play", "dot"})


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a moment: its shape, tone and word, and its text."""

    at: datetime
    shape: str
    tone: Tone
    word: str
    text: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A label below the axis. `wide`: there is no room for it on a phone."""

    pct: float
    time: str
    date: str
    wide: bool


@dataclass(slots=True)
class Axis:
    """Where a moment lies, from 0 to 100 percent. `dead`: spans in which nothing ran, in order, drawn shorter if long."""

    since: datetime
    until: datetime
    dead: Sequence[Span] = ()
    _moments: list[datetime] = field(default_factory=list)
    _places: list[float] = field(default_factory=list)
    shortened: bool = False

    def __post_init__(self) -> None:
        if self.until <= self.since:
            self.until = self.since + timedelta(seconds=1)
        dead = [(a, b) for a, b in self.dead if self.since <= a < b <= self.until]
        whole = (self.until - self.since).total_seconds()
        asleep = sum((b - a).total_seconds() for a, b in dead)
        self.shortened = DEAD_SHARE_MAX * whole < asleep < whole
        shrink = DEAD_SHARE_MAX / asleep if self.shortened else 1 / whole
        stretch = (1 - DEAD_SHARE_MAX) / (whole - asleep) if self.shortened else 1 / whole
        at, place = self.since, 0.0
        self._moments, self._places = [at], [place]
        for begins, ends in dead:
            for moment, rate in ((begins, stretch), (ends, shrink)):
                place += max(0.0, (moment - at).total_seconds()) * rate * 100
                at = moment
                self._moments.append(at)
                self._places.append(place)
        self._moments.append(self.until)
        self._places.append(100.0)

    def pct(self, moment: datetime) -> float:
        """The place of a moment."""
        moment = min(self.until, max(self.since, moment))
        index = min(len(self._moments) - 1, bisect_right(self._moments, moment))
        before, after = self._moments[index - 1], self._moments[index]
        share = (moment - before) / (after - before) if after > before else 1.0
        return self._places[index - 1] + (self._places[index] - self._places[index - 1]) * share

    def alive(self) -> Iterator[Span]:
        """The spans between the dead ones, or all of it where time is even."""
        if not self.shortened:
            yield self.since, self.until
            return
        for index in range(0, len(self._moments), 2):
            begins, ends = self._moments[index : index + 2]
            if ends > begins:
                yield begins, ends

    def ticks(self, zone: tzinfo) -> list[Tick]:
        """Round times of the reader's zone, none too near to another."""
        alive = list(self.alive())
        lived = sum((b - a).total_seconds() for a, b in alive)
        room = lived * TICKS_APART_PCT / (100 * (1 - DEAD_SHARE_MAX if self.shortened else 1))
        step_s = next((each for each in _SECONDS if each >= room), _SECONDS[-1])
        found: list[Tick] = []
        last, last_narrow, date = -100.0, -100.0, ""
        taken = taken_narrow = -100.0  # up to where the labels so far reach
        moments = [moment for span in alive for moment in _round(span, step_s, zone)] or [self.since]
        days = self.since.astimezone(zone).date() != self.until.astimezone(zone).date()
        for moment in moments[:TICKS_MAX]:
            pct = self.pct(moment)
            if pct - last < TICKS_APART_PCT * 0.9:
                continue
            local = moment.astimezone(zone)
            day = f"{local.day} {local:%b}"
            time = day if step_s >= 86_400 else f"{local:%H:%M:%S}" if step_s < 60 else f"{local:%H:%M}"
            named = day if days and step_s < 86_400 and day != date else ""
            letters = max(len(time), len(named))
            left, right = _reach(pct, letters, _BREAK_PX)
            if left < taken:
                continue
            left_narrow, right_narrow = _reach(pct, letters, _NARROW_PX)
            wide = pct - last_narrow < TICKS_APART_NARROW_PCT or left_narrow < taken_narrow
            found.append(Tick(pct, time, named, wide))
            last, taken, date = pct, right, day
            if not wide:
                last_narrow, taken_narrow = pct, right_narrow
        return found


def _round(span: Span, step_s: int, zone: tzinfo) -> Iterator[datetime]:
    """Moments that are round by the reader's clock."""
    begins, ends = span
    local = begins.astimezone(zone)
    offset_s = (local.utcoffset() or timedelta()).total_seconds()
    first_s = -(-(begins.timestamp() + offset_s) // step_s) * step_s - offset_s
    for count in range(TICKS_MAX):
        try:
            moment = datetime.fromtimestamp(first_s + count * step_s, tz=begins.tzinfo)
        except (OverflowError, ValueError):  # past the end of the calendar
            return
        if moment > ends:
            return
        yield moment


# -- pieces of a drawing -------------------------------------------------------------------------------------------------


def at(pct: float) -> str:
    """A place as an attribute."""
    return f"{pct:.2f}%"


def shapes(used: Iterable[str]) -> Safe:
    """The shapes that a drawing uses, to be named by `mark`."""
    return tag("defs", [tag("path", id=f"s-{name}", d=SHAPES[name]) for name in sorted(set(used))])


def look(shape: str, tone: str) -> str:
    """The classes of a shape."""
    return f"d-mark {'d-solid' if shape in _FILLED else 'd-line'} d-{tone}"


def mark(shape: str, tone: Tone, x: str, y: float, title: str) -> Safe:
    """A shape with its meaning, for those who point at it."""
    inside = tag("title", title) if title else None
    return tag("use", inside, href=f"#s-{shape}", x=x, y=f"{y:g}", class_=look(shape, tone))


def key(shape: str, tone: Tone, word: str) -> Safe:
    """A line of the key: the shape and its word."""
    drawn = tag(
        "svg", tag("path", d=SHAPES[shape], class_=look(shape, tone)), viewBox="-7 -7 14 14", width="14",
        height="14", aria_hidden="true", focusable="false",
    )  # fmt: skip
    return tag("li", drawn, " ", word)


def lane(axis: Axis, marks: Iterable[Mark], y: float, rank: Sequence[str]) -> list[Safe]:
    """Marks on one line. Those that would lie on each other are one, the gravest by `rank`, with their number."""
    near: dict[int, list[Mark]] = {}
    for each in marks:
        near.setdefault(round(axis.pct(each.at) * PLACES / 100), []).append(each)
    drawn: list[Safe] = []
    for group in near.values():
        gravest = min(group, key=lambda each: rank.index(each.shape) if each.shape in rank else len(rank))
        most = TITLE_CHARS_MAX if len(group) == 1 else TITLE_CHARS_MAX // 2
        lines = [formats.clip(each.text, most) for each in group[-TITLE_LINES_MAX:]]
        if len(group) > TITLE_LINES_MAX:
            lines.insert(0, f"{len(group):,}, the last of them:")
        place = axis.pct(gravest.at)
        drawn.append(mark(gravest.shape, gravest.tone, at(place), y, "\n".join(lines)))
        if len(group) > 1:
            drawn.append(
                tag(
                    "text",
                    f"{len(group):,}",
                    x=at(place),
                    dx="7",
                    y=f"{y - 3:g}",
                    class_="d-count",
                    aria_hidden="true",
                )
            )
    return drawn


def _reach(pct: float, letters: int, width_px: float) -> tuple[float, float]:
    """From where to where a label lies in a drawing of this width, with a little room beside it."""
    needs = (letters * _LETTER_PX + LABEL_GAP_PX) * 100 / width_px
    match anchor(pct):
        case "start":
            return pct, pct + needs
        case "end":
            return pct - needs, pct
        case _:
            return pct - needs / 2, pct + needs / 2


def anchor(pct: float) -> str:
    """The anchor that keeps a label inside the drawing."""
    return "start" if pct < 6 else "end" if pct > 94 else "middle"


def scale(axis: Axis, zone: tzinfo, y: float, top: float) -> list[Safe]:
    """The axis of time with its labels, and a faint line upwards at each."""
    drawn = [tag("line", x1="0", x2="100%", y1=f"{y:g}", y2=f"{y:g}", class_="d-axis")]
    for tick in axis.ticks(zone):
        wide = " d-wide" if tick.wide else ""
        place = {"x": at(tick.pct), "text_anchor": anchor(tick.pct)}
        drawn.append(
            tag(
                "line",
                x1=at(tick.pct),
                x2=at(tick.pct),
                y1=f"{top:g}",
                y2=f"{y + 4:g}",
                class_=f"d-grid{wide}",
            )
        )
        drawn.append(tag("text", tick.time, y=f"{y + 17:g}", class_=f"d-tick{wide}", **place))
        if tick.date:
            drawn.append(tag("text", tick.date, y=f"{y + 30:g}", class_=f"d-tick{wide}", **place))
    return drawn


def room(word: str, share_pct: float) -> str:
    """Whether a word fits into a share of the width: always, on a wide page only, or not at all (empty)."""
    needs = (len(word) * _LETTER_PX + 10) * 100
    return (
        "d-label"
        if needs <= share_pct * _NARROW_PX
        else "d-label d-wide"
        if needs <= share_pct * _WIDE_PX
        else ""
    )
