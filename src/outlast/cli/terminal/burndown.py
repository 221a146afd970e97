"""A small chart of a budget's rest over time, with its warning levels; without a limit, of the spending."""

from collections.abc import Iterator

from outlast.cli.commands.budget_suggest import clock as lasting
from outlast.cli.terminal.messages import clock
from outlast.inspect.ledger import Chart

ROWS = 8
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_LEVEL = "┄"


def drawn(chart: Chart, *, plain: bool = False) -> list[str]:
    """The chart as lines; with `plain` in ASCII."""
    limits = [point.limit for point in chart.points if point.limit is not None]
    top = max(limits or [point.spent for point in chart.points], default=0)
    if not top:
        return []
    falls = bool(limits)
    heights = [_height(point.spent, point.limit, top, falls=falls) for point in chart.points]
    marks = {_row(100 - pct): f"{pct} %" for pct in chart.warn_at if 0 < pct < 100} if falls else {}
    word = "left" if falls else "spent"
    lines = [f"{chart.unit} {word}, of {amount(chart.unit, top)}"]
    for row in reversed(range(ROWS)):
        cells = "".join(_cells(heights, row, row in marks, plain=plain)).rstrip()
        lines.append(
            f"{'|' if plain else '│'}{cells.ljust(len(heights)) if row in marks else cells}{_label(marks, row)}"
        )
    lines.append(f"{'+' if plain else '└'}{('-' if plain else '─') * len(heights)}")
    first, last = chart.points[0].at, chart.points[-1].at
    begun, ended = clock(first, last), clock(last)
    lines.append(f" {begun}{ended.rjust(max(1, len(heights) - len(begun)))}")
    return lines


def _height(spent: int, limit: int | None, top: int, *, falls: bool) -> int:
    """The height in eighths of a row; at least one if there is anything."""
    value = max(0, (limit or 0) - spent) if falls else spent
    eighths = value * ROWS * 8 // top
    return max(1, eighths) if value else 0


def _row(left_pct: int) -> int:
    return min(ROWS - 1, left_pct * ROWS // 100)


def _cells(heights: list[int], row: int, is_level: bool, *, plain: bool) -> Iterator[str]:
    level = "-" if plain else _LEVEL
    for height in heights:
        inside = min(8, max(0, height - row * 8))
        if plain:
            yield "#" if inside >= 4 or (inside and row == 0) else level if is_level else " "
        else:
            yield _EIGHTHS[inside] if inside else level if is_level else " "


def _label(marks: dict[int, str], row: int) -> str:
    return f" {marks[row]} spent" if row in marks else ""


def amount(unit: str, value: int | None) -> str:
    """An amount in its unit, as a person reads it."""
    if value is None:
        return "-"
    match unit:
        case "usd":
            return f"${value / 1e6:,.2f}"
        case "time" | "until":
            return lasting(value)
        case "window":
            return f"{value / 100:.0f} %"
        case _:
            return f"{value:,}"
