"""Bars over days and hours, and bars side by side, as drawings that need no script. The same numbers stand in a table below them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from outlast.dashboard.documents import Series
from outlast.web.html.html import NOTHING, Safe, join, tag

COLOURS = 9
GRID_LINES = 4
_LEFT, _TOP, _BELOW = 54, 8, 22
_LETTER = 6.6  # how wide a letter of a label is

Amount = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class _Size:
    """A drawing for a wide page, or one for a phone: so that letters are as large on both."""

    width: int
    height: int
    class_: str


_SIZES = (_Size(1040, 250, "chart chart-wide"), _Size(340, 210, "chart chart-narrow"))


def stacked(
    title: str, description: str, steps: Sequence[str], series: Sequence[Series], amount: Amount
) -> Safe:
    """One bar for each step (a day, an hour), of one piece for each series, with its axis and what the colours mean."""
    drawn = [_drawn(size, title, description, steps, series, amount) for size in _SIZES]
    return join((drawn, legend(series, amount) if len(series) > 1 else None))


def _drawn(
    size: _Size, title: str, description: str, steps: Sequence[str], series: Sequence[Series], amount: Amount
) -> Safe:
    sums = [sum(each.values[at] for each in series) for at in range(len(steps))]
    top = round_top(max(sums, default=0))
    return tag(
        "svg", tag("title", title), tag("desc", description), _grid(size, top, amount),
        tag("g", _bars(size, steps, series, sums, top, amount), class_="bars"), _steps(size, steps),
        viewBox=f"0 0 {size.width} {size.height}", class_=size.class_, role="img",
    )  # fmt: skip


def _bars(
    size: _Size, steps: Sequence[str], series: Sequence[Series], sums: Sequence[int], top: int, amount: Amount
) -> Iterator[Safe]:
    """Each step is a group whose tooltip tells its numbers."""
    bottom, high = size.height - _BELOW, size.height - _BELOW - _TOP
    apart = (size.width - _LEFT) / max(1, len(steps))
    wide = max(1.0, min(44.0, apart * 0.72))
    for at, step in enumerate(steps):
        if not sums[at]:
            continue
        x, y = _LEFT + apart * at + (apart - wide) / 2, float(bottom)
        pieces = [tag("title", _tooltip(step, series, at, sums[at], amount))]
        for number, each in enumerate(series):
            tall = high * each.values[at] / top
            if tall <= 0:
                continue
            y -= tall
            gap = 1.0 if tall > 3 and len(series) > 1 else 0.0
            pieces.append(
                tag("rect", x=f"{x:.1f}", y=f"{y:.1f}", width=f"{wide:.1f}", height=f"{max(0.5, tall - gap):.1f}", class_=colour(number))
            )  # fmt: skip
        yield tag("g", pieces)


def _tooltip(step: str, series: Sequence[Series], at: int, total: int, amount: Amount) -> str:
    lines = [f"{each.name}: {amount(each.values[at])}" for each in series if each.values[at]]
    return "\n".join([f"{step}: {amount(total)}", *(lines if len(series) > 1 else [])])


def _grid(size: _Size, top: int, amount: Amount) -> Iterator[Safe]:
    bottom, high = size.height - _BELOW, size.height - _BELOW - _TOP
    shown = set()
    for line in range(GRID_LINES + 1):
        value = top * line // GRID_LINES
        if value in shown:
            continue
        shown.add(value)
        y = bottom - high * value / top
        yield tag(
            "line",
            x1=_LEFT,
            x2=size.width,
            y1=f"{y:.1f}",
            y2=f"{y:.1f}",
            class_="gridline" if line else "axis",
        )
        yield tag("text", amount(value), x=_LEFT - 8, y=f"{y + 4:.1f}", text_anchor="end")


def _steps(size: _Size, steps: Sequence[str]) -> Iterator[Safe]:
    """The labels below the bars: always the last one, and as many others as there is room for."""
    apart = (size.width - _LEFT) / max(1, len(steps))
    wide = _LETTER * max(map(len, steps), default=1)
    free = float(size.width)
    for at in range(len(steps) - 1, -1, -1):
        x = min(size.width - wide / 2, max(_LEFT, _LEFT + apart * (at + 0.5)))
        if x + wide / 2 <= free:
            free = x - wide / 2 - _LETTER
            yield tag("text", steps[at], x=f"{x:.1f}", y=size.height - 6, text_anchor="middle")


def round_top(value: int) -> int:
    """The next round number above: the axis ends there."""
    if value <= GRID_LINES:
        return GRID_LINES
    scale = int("1" + "0" * (len(str(value)) - 1))
    for tenths in (10, 12, 16, 20, 24, 30, 40, 50, 60, 80, 100):
        if tenths * scale >= value * 10:
            return tenths * scale // 10
    return 10 * scale


def colour(number: int) -> str:
    """The class of the colour of a series; those beyond the last share it."""
    return f"s{min(number, COLOURS - 1) + 1}"


def legend(series: Sequence[Series], amount: Amount) -> Safe:
    """The meaning of the colours, with the sums."""
    items = [
        tag(
            "li", tag("svg", tag("rect", width=10, height=10, class_=colour(number)), viewBox="0 0 10 10", aria_hidden="true"),
            tag("span", each.name), tag("span", amount(sum(each.values)), class_="n"),
        )
        for number, each in enumerate(series)
    ]  # fmt: skip
    return tag("ul", items, class_="legend")


def numbers(steps: Sequence[str], series: Sequence[Series], amount: Amount, *, first: str) -> Safe:
    """The chart's numbers as a table, newest first, without the steps in which nothing happened."""
    rows = [
        tag("tr", tag("th", steps[at], scope="row"), [tag("td", amount(each.values[at]), class_="n") for each in series])
        for at in range(len(steps) - 1, -1, -1)
        if any(each.values[at] for each in series)
    ]  # fmt: skip
    if not rows:
        return NOTHING
    head = tag(
        "tr",
        tag("th", first, scope="col"),
        [tag("th", each.name, scope="col", class_="n") for each in series],
    )
    table = tag("table", tag("thead", head), tag("tbody", rows), class_="table")
    box = tag("div", table, class_="numbers scroll", tabindex="0", role="region", aria_label="The numbers")
    return tag("details", tag("summary", "The same as a table"), box)


def side_by_side(title: str, counts: Iterable[tuple[object, str, int]]) -> Safe:
    """A bar for each of these (name, colour class, count), the longest as wide as there is room."""
    listed = list(counts)
    most = max((count for _, _, count in listed), default=0)
    rows = [
        tag(
            "li", tag("span", name, class_="side-name"),
            tag(
                "svg", tag("rect", width=f"{100 * count / most:.1f}", height=6, class_=class_), viewBox="0 0 100 6",
                preserveAspectRatio="none", class_="bar", aria_hidden="true",
            ),
            tag("span", f"{count:,}", class_="n"),
        )
        for name, class_, count in listed
    ]  # fmt: skip
    return tag("ul", rows, class_="side", aria_label=title) if rows else NOTHING
