"""The two drawings of a run: its course, and the rest of its budget."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from outlast.core.state import WRAP_UP, Status
from outlast.dashboard.documents import Moment, Timeline
from outlast.inspect.ledger import Ledger
from outlast.inspect.ledger_sums import Saved
from outlast.inspect.show import AttemptShown
from outlast.web.charts import axis as axes
from outlast.web.charts.axis import Axis, Mark, Span, Tone
from outlast.web.html import formats
from outlast.web.html.html import NOTHING, Safe, tag
from outlast.web.timing import Timing

CUTS_DRAWN_MAX = 60
KEY_MAX = 16
TITLED_PCT = 1.0  # what is narrower cannot be pointed at
# Of these ends the time that is recorded is that of the next attempt, which found them.
_FOUND_LATER = ("recorded no end", "ran before the last boot")
_SIGNAL = re.compile(r"\bSIG[A-Z]{2,8}\b")

# Cause of an end: its shape, tone and word.
_ENDS: dict[str, tuple[str, Tone, str]] = {
    "done": ("check", "good", "done"),
    "checks": ("warning", "warn", "checks failed"),
    "invariant": ("warning", "bad", "invariant broken"),
    "signal": ("stop", "warn", "signal"),
    "crash": ("cross", "bad", "crashed"),
    "oom": ("cross", "bad", "out of memory"),
    "quota": ("wait", "calm", "quota"),
    "auth": ("warning", "bad", "login refused"),
    "network": ("wait", "warn", "network"),
    "context": ("limit", "warn", "context full"),
    "budget": ("limit", "warn", "budget"),
    "stall": ("stop", "warn", "stalled"),
    "quarantine": ("stop", "bad", "quarantined"),
    "disk": ("limit", "bad", "disk full"),
    "operator": ("stop", "calm", "stopped"),
    "host": ("cross", "bad", "host went down"),
    "program_missing": ("cross", "bad", "program missing"),
    "handed_off": ("check", "calm", "handed off"),
    "person": ("wait", "calm", "waited for a person"),
}
_END_WORDS = {"paused": "paused", "cancelled": "cancelled"}

# Kind of a moment: its shape, tone and word.
_MOMENTS: dict[str, tuple[str, Tone, str]] = {
    "save": ("save", "calm", "save"),
    "warning": ("warning", "warn", "warning"),
    "wrap-up": ("flag", "warn", "told to wrap up"),
    "parked": ("wait", "calm", "parked"),
    "woken": ("play", "calm", "woken"),
    "asked": ("asked", "calm", "asked for"),
    "doubt": ("doubt", "bad", "in doubt"),
    "settled": ("check", "calm", "settled"),
    "done": ("check", "good", "done"),
    "amended": ("pen", "calm", "contract changed"),
}
_GRAVEST = (
    "doubt", "cross", "flag", "warning", "limit", "stop", "wait", "asked", "pen", "check", "play", "dot", "save",
)  # fmt: skip


# A drawing is an image with a name; the page shows the same as a list or a table too, so colour alone says nothing. Places on it
# are percents and the curves lie in stretched frames of their own, so letters and marks keep their size on a phone.


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """An attempt as it is drawn: its number, from when to when, and how it ended."""

    number: int
    since: datetime
    until: datetime
    shape: str
    tone: Tone
    word: str
    evidence: str


def moment_look(kind: str) -> tuple[str, Tone, str]:
    """Shape, tone and word of a moment."""
    return _MOMENTS.get(kind, ("dot", "calm", kind))


def moment_words(moment: Moment) -> tuple[str, str]:
    """The kind of a moment, its author and its text."""
    word = moment_look(moment.kind)[2]
    by = f" by {formats.clip(moment.by, 80)}" if moment.by else ""
    if moment.kind in ("save", "done"):  # their text begins with the word
        begins, _, rest = moment.text.partition(": ")
        return f"{begins or word}{by}", rest
    return f"{word}{by}", moment.text


def sign(shape: str, tone: str) -> Safe:
    """A shape by itself, beside the words that say the same."""
    drawn = tag("path", d=axes.SHAPES[shape], class_=axes.look(shape, tone))
    return tag("svg", drawn, viewBox="-7 -7 14 14", class_="d-sign", aria_hidden="true", focusable="false")


def ending(
    cause: str | None, evidence: str, *, status: str = "", lives: bool = False
) -> tuple[str, Tone, str]:
    """How an attempt ended, in a shape, a tone and a word or two."""
    if cause is None:
        return ("dot", "good", "runs") if lives else ("cross", "bad", "recorded no end")
    shape, tone, word = _ENDS.get(cause, ("stop", "calm", cause))
    signal = _SIGNAL.search(evidence)
    if cause in ("signal", "crash", "host") and signal is not None:
        return ("cross", "bad", "kill -9") if signal[0] == "SIGKILL" else (shape, tone, signal[0])
    if cause == "crash" and evidence.endswith(_FOUND_LATER[0]):
        return shape, tone, "killed without warning (no exit recorded)"
    if cause == "crash" and evidence.startswith(("EffectInDoubt", "UnreachedEffect")):
        return "doubt", "bad", "in doubt"
    return shape, tone, _END_WORDS.get(status, word) if cause == "operator" else word


def lived(timeline: Timeline, status: Status) -> list[AttemptSpan]:
    """The attempts in order. One that recorded no end is drawn to the last thing that it did."""
    found: list[AttemptSpan] = []
    first = timeline.attempts_total - len(timeline.attempts) + 1
    signs = sorted([each.at for each in timeline.beats] + [each.at for each in timeline.moments])
    for index, attempt in enumerate(timeline.attempts):
        is_last = index + 1 == len(timeline.attempts)
        lives = is_last and attempt.ended_at is None and status == "running"
        bound = timeline.until if is_last else timeline.attempts[index + 1].started_at
        shape, tone, word = ending(attempt.cause, attempt.evidence, status=attempt.status or "", lives=lives)
        until = bound if lives else _end(attempt, bound, signs)
        found.append(
            AttemptSpan(first + index, attempt.started_at, until, shape, tone, word, attempt.evidence)
        )
    return found


def lasted(each: AttemptSpan) -> str:
    """How long an attempt lived."""
    seconds = (each.until - each.since).total_seconds()
    return f"{seconds:.1f} s" if seconds < 10 else formats.span(seconds)


def _end(attempt: AttemptShown, bound: datetime, signs: Sequence[datetime]) -> datetime:
    if attempt.ended_at is not None and not attempt.evidence.endswith(_FOUND_LATER):
        return max(attempt.started_at, min(attempt.ended_at, bound))
    return max([attempt.started_at, *(at for at in signs if attempt.started_at <= at <= bound)])


def rests(spans: Sequence[Span], since: datetime, until: datetime, *, whole: bool) -> list[Span]:
    """The time in which no attempt lived. Not `whole`: what was before the first of them is not known."""
    found: list[Span] = []
    rested_s = Timing.current().rested_s
    at = since if whole or not spans else spans[0][0]
    for begins, ends in (*spans, (until, until)):
        if (begins - at).total_seconds() > rested_s:
            found.append((at, begins))
        at = max(at, ends)
    return found


# -- what happened when -------------------------------------------------------------------------------------------------

_NOTES_Y, _PLOT_TOP, _PLOT_H, _SAVES_Y, _BARS_Y, _BAR_H, _AXIS_Y = 12, 28, 96, 138, 152, 20, 182


def timeline(given: Timeline, status: Status, zone: tzinfo, plan_total: int | None) -> Safe:
    """Attempts with their ends, dead time, the curve of beats, and all that happened meanwhile."""
    attempts = lived(given, status)
    dead = rests(
        [(each.since, each.until) for each in attempts], given.since, given.until,
        whole=given.attempts_total == len(given.attempts),
    )  # fmt: skip
    axis = Axis(given.since, given.until, dead)
    notes = [_mark(each, zone) for each in given.moments if each.kind != "save"]
    saves = [_mark(each, zone) for each in given.moments if each.kind == "save"]
    used = [each.shape for each in (*notes, *saves)] + [each.shape for each in attempts]
    drawn = [
        tag("title", "Timeline"),
        tag("desc", _description(given, attempts, zone)),
        _patterns(),
        axes.shapes(used),
        _dead(axis, dead, _PLOT_TOP, _AXIS_Y - _PLOT_TOP, _BARS_Y + 14),
        axes.scale(axis, zone, _AXIS_Y, _PLOT_TOP),
        _curve(axis, given, plan_total),
        _bars(axis, attempts, zone, _BARS_Y),
        axes.lane(axis, saves, _SAVES_Y, _GRAVEST),
        axes.lane(axis, notes, _NOTES_Y, _GRAVEST),
    ]
    return tag(
        "figure",
        tag("svg", drawn, class_="drawing timeline", width="100%", height=f"{_AXIS_Y + 36}", role="img"),
        _key([*map(_look, notes), *map(_look, saves), *map(_look, attempts)], bool(dead), axis.shortened),
        class_="drawn",
    )


def _look(each: Mark | AttemptSpan) -> tuple[str, Tone, str]:
    return each.shape, each.tone, each.word


def _mark(moment: Moment, zone: tzinfo) -> Mark:
    shape, tone, word = moment_look(moment.kind)
    words = formats.clip(": ".join(part for part in moment_words(moment) if part), 160)
    return Mark(moment.at, shape, tone, word, f"{_clock(moment.at, zone)} {words}")


def _clock(at: datetime, zone: tzinfo) -> str:
    local = at.astimezone(zone)
    return f"{local.day} {local:%b %H:%M:%S}"


def _description(given: Timeline, attempts: Sequence[AttemptSpan], zone: tzinfo) -> str:
    """The drawing in a sentence, for those who cannot see it."""
    beats = given.beats[-1].beat if given.beats else 0
    ends = ", ".join(f"attempt {each.number} {each.word}" for each in attempts[-4:])
    return (
        f"From {_clock(given.since, zone)} to {_clock(given.until, zone)}: {beats:,} beats in "
        f"{given.attempts_total:,} attempts; {ends}. The same stands in the list below."
    )


def _patterns() -> Safe:
    lines = tag("path", d="M-2 2L2-2M0 8L8 0M6 10L10 6", class_="d-hatch")
    return tag(
        "defs", tag("pattern", lines, id="s-hatch", width="8", height="8", patternUnits="userSpaceOnUse")
    )


def _dead(axis: Axis, dead: Iterable[Span], y: float, height: float, label_y: float) -> list[Safe]:
    drawn: list[Safe] = []
    for begins, ends in dead:
        left, right = axis.pct(begins), axis.pct(ends)
        word = formats.span((ends - begins).total_seconds())
        title = tag("title", f"nothing ran for {word}") if right - left >= TITLED_PCT else None
        drawn.append(
            tag(
                "rect", title, x=axes.at(left), y=f"{y:g}", width=axes.at(right - left), height=f"{height:g}",
                fill="url(#s-hatch)", class_="d-dead",
            )
        )  # fmt: skip
        if fits := axes.room(word, right - left):
            place = {"x": axes.at((left + right) / 2), "y": f"{label_y:g}", "text_anchor": "middle"}
            drawn.append(tag("text", word, class_=f"{fits} d-halo", **place))
    return drawn


def _curve(axis: Axis, given: Timeline, plan_total: int | None) -> list[Safe]:
    """Beats over time, in steps: a beat counts when it is done. To the plan's length, where there is one."""
    last = given.beats[-1].beat if given.beats else 0
    top = max(last, plan_total or 0)
    base = _PLOT_TOP + _PLOT_H
    drawn = [tag("line", x1="0", x2="100%", y1=f"{base}", y2=f"{base}", class_="d-grid")]
    if not top:
        return [*drawn, tag("text", "no beat is done yet", x="0", y=f"{base - 6}", class_="d-tick d-halo")]
    points = [(axis.pct(each.at), each.beat) for each in given.beats]
    steps = "".join(f"H{10 * pct:.1f}V{_height(beat, top)}" for pct, beat in points)
    line = f"M0 100{steps}H{10 * axis.pct(given.until):.1f}"
    drawn.append(
        tag(
            "svg", tag("path", d=f"{line}V100z", class_="d-area"),
            tag("path", d=line, class_="d-curve", vector_effect="non-scaling-stroke"), width="100%", height=f"{_PLOT_H}",
            y=f"{_PLOT_TOP}", viewBox="0 0 1000 100", preserveAspectRatio="none",
        )
    )  # fmt: skip
    of = f" of {plan_total:,} planned" if plan_total else ""
    if plan_total:
        drawn.append(
            tag("line", x1="0", x2="100%", y1=f"{_PLOT_TOP + 0.5}", y2=f"{_PLOT_TOP + 0.5}", class_="d-goal")
        )
    drawn.append(
        tag(
            "text",
            f"{formats.plural(last, 'beat')}{of}",
            x="0",
            y=f"{_PLOT_TOP + 14}",
            class_="d-tick d-halo",
        )
    )
    return drawn


def _height(value: float, top: float) -> str:
    return f"{100 - 100 * min(1.0, max(0.0, value / top)):.1f}"


def _bars(axis: Axis, attempts: Sequence[AttemptSpan], zone: tzinfo, y: float) -> list[Safe]:
    """A bar for each attempt, with its number and word where they fit, and the shape of its end."""
    drawn: list[Safe] = []
    ends: list[Mark] = []
    for each in attempts:
        left, right = axis.pct(each.since), axis.pct(each.until)
        title = f"attempt {each.number}: {_clock(each.since, zone)}, {lasted(each)}, {each.word}"
        if each.evidence and len(attempts) <= CUTS_DRAWN_MAX:
            title = f"{title}: {formats.clip(each.evidence, 200)}"
        bar = tag(
            "rect", tag("title", title) if right - left >= TITLED_PCT else None, x=axes.at(left), y=f"{y:g}",
            width=axes.at(max(0.15, right - left)),
            height=f"{_BAR_H}", rx="3", class_=f"d-bar d-{each.tone}",
        )  # fmt: skip
        drawn.append(bar)
        if len(attempts) <= CUTS_DRAWN_MAX and each.number > 1:
            x = axes.at(left)
            drawn.append(tag("line", x1=x, x2=x, y1=f"{_PLOT_TOP}", y2=f"{y + _BAR_H:g}", class_="d-resume"))
        drawn += _bar_label(each, left, right - left, y)
        ends.append(Mark(each.until, each.shape, each.tone, each.word, title))
    return [*drawn, *axes.lane(axis, ends, y + _BAR_H / 2, _GRAVEST)]


def _bar_label(each: AttemptSpan, left: float, share: float, y: float) -> list[Safe]:
    """Number and word of an attempt, or its number alone, as far as there is room."""
    for label in (f"attempt {each.number}: {each.word}", f"{each.number}: {each.word}", str(each.number)):
        if fits := axes.room(label, share):
            return [tag("text", label, x=axes.at(left), dx="7", y=f"{y + 14:g}", class_=f"{fits} d-inside")]
    return []


def _key(shapes: Iterable[tuple[str, Tone, str]], dead: bool, shortened: bool) -> Safe:
    """The meaning of the shapes on a drawing."""
    known = sorted(set(shapes), key=lambda each: (each[0], each[2]))
    lines = [axes.key(shape, tone, word) for shape, tone, word in known[:KEY_MAX]]
    if dead:
        longer = ", drawn shorter than it was" if shortened else ""
        swatch = tag("rect", width="22", height="12", fill="url(#s-hatch)", class_="d-dead")
        drawn = tag("svg", swatch, width="22", height="12", aria_hidden="true", focusable="false")
        lines.append(tag("li", drawn, f" nothing ran{longer}"))
    return tag("figcaption", tag("ul", lines, class_="key")) if lines else NOTHING


# -- what is left of the budget ---------------------------------------------------------------------------------------------

_BURN_TOP, _BURN_H = 28, 170
_BURN_SAVES_Y, _BURN_BARS_Y, _BURN_AXIS_Y = 212, 226, 256


def burndown(ledger: Ledger, zone: tzinfo) -> Safe | None:
    """The rest over time, or the spending if there is no limit; None if there is nothing to draw."""
    points = ledger.chart.points
    limits = [point.limit for point in points if point.limit is not None]
    top = max(limits or [point.spent for point in points], default=0)
    if not top or not points:
        return None
    until = points[-1].at
    begun = [*(each.at for each in ledger.changes[:1]), *(each.started_at for each in ledger.by_attempt[:1])]
    since = min([points[0].at, *begun])
    attempts = _paid(ledger, until)
    dead = rests(
        [(each.since, each.until) for each in attempts], since, until, whole=len(attempts) == ledger.attempts
    )
    axis = Axis(since, until, dead)
    notes = [*_notes(ledger, zone)]
    saves = [Mark(each.at, "save", "calm", "save", _saved(each, zone)) for each in ledger.saves]
    falls = bool(limits)
    drawn = [
        tag("title", burndown_title(ledger)),
        tag("desc", _burndown_description(ledger, falls, top)),
        _patterns(),
        axes.shapes([each.shape for each in (*notes, *saves)] + [each.shape for each in attempts]),
        _dead(axis, dead, _BURN_TOP, _BURN_AXIS_Y - _BURN_TOP, _BURN_BARS_Y + 14),
        axes.scale(axis, zone, _BURN_AXIS_Y, _BURN_TOP),
        _fall(axis, ledger, top, falls=falls),
        _levels(ledger, top) if falls else None,
        _bars(axis, attempts, zone, _BURN_BARS_Y),
        axes.lane(axis, saves, _BURN_SAVES_Y, _GRAVEST),
        axes.lane(axis, notes, _NOTES_Y, _GRAVEST),
    ]
    return tag(
        "figure",
        tag("svg", drawn, class_="drawing burndown", width="100%", height=f"{_BURN_AXIS_Y + 36}", role="img"),
        _key([*map(_look, notes), *map(_look, saves), *map(_look, attempts)], bool(dead), axis.shortened),
        class_="drawn",
    )


def _saved(save: Saved, zone: tzinfo) -> str:
    return f"{_clock(save.at, zone)} {save.kind} save {save.commit[:7]}: {formats.clip(save.reason, 120)}"


def burndown_title(ledger: Ledger) -> str:
    """The title of the drawing."""
    falls = any(point.limit is not None for point in ledger.chart.points)
    word = "left" if falls else "done" if ledger.chart.unit == "beats" else "spent"
    return f"{unit_name(ledger.chart.unit)} {word} over time"


def unit_name(unit: str) -> str:
    """A unit at the head of a row."""
    names = {"usd": "Money", "until": "Clock", "window": "Subscription window", "time": "Time of agents"}
    return names.get(unit, unit.capitalize())


def _paid(ledger: Ledger, until: datetime) -> list[AttemptSpan]:
    """The attempts of a ledger. One without a recorded end is drawn for as long as it was charged."""
    found: list[AttemptSpan] = []
    rows = ledger.by_attempt
    for index, row in enumerate(rows):
        is_last = index + 1 == len(rows)
        lives = is_last and row.ended_at is None and ledger.status == "running"
        bound = until if is_last else rows[index + 1].started_at
        most = (bound - row.started_at) // timedelta(
            milliseconds=1
        )  # an agent may say that it lived for ever
        charged = row.started_at + timedelta(milliseconds=min(row.spent.time_ms, max(0, most)))
        known = None if row.evidence.endswith(_FOUND_LATER) else row.ended_at
        end = bound if lives else min(bound, known or charged)
        shape, tone, word = ending(row.cause, row.evidence, lives=lives)
        found.append(
            AttemptSpan(
                row.attempt, row.started_at, max(row.started_at, end), shape, tone, word, row.evidence
            )
        )
    return found


def _notes(ledger: Ledger, zone: tzinfo) -> Iterable[Mark]:
    for each in ledger.warnings:
        kind = "wrap-up" if each.level.startswith(WRAP_UP) else "warning"
        shape, tone, word = moment_look(kind)
        yield Mark(
            each.at, shape, tone, word, f"{_clock(each.at, zone)} {word}: {formats.clip(each.text, 160)}"
        )
    for each in ledger.changes[1:] if ledger.changes else ():
        yield Mark(
            each.at,
            "pen",
            "calm",
            "limit changed",
            f"{_clock(each.at, zone)} limit: {formats.clip(each.text, 160)}",
        )


def _burndown_description(ledger: Ledger, falls: bool, top: int) -> str:
    unit, last = ledger.chart.unit, ledger.chart.points[-1]
    value = max(0, (last.limit or 0) - last.spent) if falls else last.spent
    word = "left" if falls else "spent"
    return f"{formats.amount(unit, value)} {word} of at most {formats.amount(unit, top)}. The tables below have the numbers."


def _fall(axis: Axis, ledger: Ledger, top: int, *, falls: bool) -> list[Safe]:
    """The curve, with amounts at the top and in the middle."""
    points = ledger.chart.points
    values = [max(0, (point.limit or 0) - point.spent) if falls else point.spent for point in points]
    first = (points[0].limit or 0) if falls else 0
    places = [
        (0.0, first),
        *((axis.pct(point.at), value) for point, value in zip(points, values, strict=True)),
    ]
    line = "M" + "L".join(f"{10 * pct:.1f} {_height(value, top)}" for pct, value in places)
    drawn = []
    for share in (1.0, 0.5, 0.0):
        y = _BURN_TOP + _BURN_H * (1 - share) + (0.5 if share == 1.0 else 0)
        drawn.append(tag("line", x1="0", x2="100%", y1=f"{y:g}", y2=f"{y:g}", class_="d-grid"))
    drawn.append(
        tag(
            "svg", tag("path", d=f"{line}V100H0z", class_="d-area"),
            tag("path", d=line, class_="d-curve", vector_effect="non-scaling-stroke"), width="100%", height=f"{_BURN_H}",
            y=f"{_BURN_TOP}", viewBox="0 0 1000 100", preserveAspectRatio="none",
        )
    )  # fmt: skip
    unit = ledger.chart.unit
    for share in (1.0, 0.5):
        y = _BURN_TOP + _BURN_H * (1 - share) + 13
        place = {"x": "100%" if falls else "0", "text_anchor": "end" if falls else "start", "y": f"{y:g}"}
        drawn.append(tag("text", formats.amount(unit, round(top * share)), class_="d-tick d-halo", **place))
    return drawn


def _levels(ledger: Ledger, top: int) -> list[Safe]:
    """Where it is warned, and what is kept for its own ending, at the limit that holds now."""
    limit = next((point.limit for point in reversed(ledger.chart.points) if point.limit is not None), top)
    reserve = next((each.ending_reserve for each in ledger.units if each.unit == ledger.chart.unit), 0)
    levels = [
        (limit * (100 - pct) / 100, f"warning at {pct} %", "d-level")
        for pct in ledger.chart.warn_at
        if 0 < pct < 100
    ]
    if 0 < reserve < limit:
        levels.append((reserve, WRAP_UP, "d-level d-wraps"))
    drawn = []
    for left, word, look in levels:
        y = _BURN_TOP + _BURN_H * (1 - min(1.0, left / top))
        drawn.append(tag("line", x1="0", x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}", class_=look))
        place = {"x": "100%", "text_anchor": "end"} if word == WRAP_UP else {"x": "2"}
        drawn.append(tag("text", word, y=f"{y - 3:.1f}", class_="d-tick d-halo", **place))
    return drawn
