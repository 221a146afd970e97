"""An agent's output: the end of an attempt's log, with the time and the stream of each line."""

import re

from outlast.dashboard.documents import Output, OutputLine, Row
from outlast.web.html import formats, layout, run_parts
from outlast.web.html.html import Safe, tag
from outlast.web.html.layout import View

LINES_MAX = 2_000
ATTEMPTS_SHOWN = 12
CLOCK_CHARS = 8  # hours, minutes and seconds
_STREAMS = {"err": "err", "out": "out", "---": "outlast"}
_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,40}[A-Za-z]")


def render(view: View, row: Row, given: Output) -> Safe:
    """The newest lines are at the end, where the box stands when it is opened."""
    if given.problem:
        body: object = layout.notice("warn", given.problem)
    elif not given.lines:
        body = layout.empty("No line was written", "What the agent prints comes here while it runs.")
    else:
        body = _box(view, given)
    clock_note = None
    if any(line.at and line.moment is None for line in given.lines):
        clock_note = tag("p", "Times are by the clock of the machine that it ran on.", class_="dim")
    parts = (_attempts(row, given), layout.ours(view, f"outlast output {row.run} -f"), clock_note, body)
    aside = f"attempt {given.attempt}" if given.attempts else None
    return run_parts.page(view, row, "output", layout.panel("Output", parts, id_="output", aside=aside))


def _attempts(row: Row, given: Output) -> Safe | None:
    if len(given.attempts) < 2:
        return None
    newest = sorted(given.attempts, reverse=True)
    shown = newest[:ATTEMPTS_SHOWN]
    if given.attempt not in shown:
        shown.append(given.attempt)
    links = [
        tag("a", f"attempt {each}", href=layout.run_url(row.run, "output", attempt=each), class_="button small",
            aria_current="page" if each == given.attempt else None)
        for each in shown
    ]  # fmt: skip
    older = [each for each in newest if each not in shown]
    more = None
    if older:
        rest = [tag("a", each, href=layout.run_url(row.run, "output", attempt=each)) for each in older[:200]]
        more = tag(
            "details",
            tag("summary", f"{len(older):,} older"),
            tag("p", [(link, " ") for link in rest]),
            id="older",
            class_="fold",
        )
    return tag("nav", links, more, aria_label="Attempts", class_="acts choices")


def _box(view: View, given: Output) -> Safe:
    lines = given.lines[-LINES_MAX:]
    hidden = len(given.lines) - len(lines)
    before = []
    if given.cut:
        before.append(f"{formats.size(given.cut)} before this")
    if hidden:
        before.append(f"{formats.plural(hidden, 'line')} before this")
    first = tag("li", f"({' and '.join(before)} are not shown here)", class_="ours") if before else None
    listed = tag("ol", first, [_line(view, each) for each in lines], class_="log")
    return tag(
        "div",
        listed,
        class_="tail",
        tabindex="0",
        role="region",
        aria_label=f"Output of attempt {given.attempt}",
    )


def _line(view: View, line: OutputLine) -> Safe:
    """A line; colours of a terminal are left out, everything else that is odd is shown."""
    text = _COLOURS.sub("", line.text)
    stream = _STREAMS.get(line.stream, line.stream)
    kind = {"err": "err", "outlast": "ours"}.get(stream)
    at = line.at if line.moment is None else f"{line.moment.astimezone(view.zone):%H:%M:%S}"
    at = "" if line.continues else at[:CLOCK_CHARS]
    word = "" if line.continues or stream == "out" else stream
    return tag(
        "li",
        tag("span", at, class_="t"),
        tag("span", word, class_="s"),
        tag("span", text, class_="x"),
        class_=kind,
    )
