"""Columns of a terminal: texts measured by their shown width and cut with an ellipsis; the cells of a run's row."""

import unicodedata
from collections.abc import Sequence
from datetime import datetime

from outlast.cli.terminal import messages
from outlast.cli.terminal.messages import safe
from outlast.dashboard.documents import Meter, Row
from outlast.dashboard.report import why_words
from outlast.dashboard.run import request_words
from outlast.inspect.standing import words

BAR_CHARS = 10
_TOKENS = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


def width(text: str) -> int:
    """How many columns a text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, columns: int) -> str:
    """A text cut or padded to this many columns."""
    if columns <= 0:
        return ""
    if (shown := width(text)) <= columns:
        return text + " " * (columns - shown)
    chars, used = [], 0
    for char in text:
        if used + _width(char) > columns - 1:
            break
        chars.append(char)
        used += _width(char)
    return "".join(chars) + "…" + " " * (columns - 1 - used)


def wrapped(text: str, columns: int) -> list[str]:
    """A text wrapped between words; a word wider than a line is cut between characters."""
    lines, line, used = [], "", 0
    for char in text:
        if used + _width(char) > max(2, columns):
            head, space, tail = line.rpartition(" ")
            if char == " " or not head.strip():
                head, space, tail = line, "", ""
            lines.append(head + space)
            line, used = tail, width(tail)
        line += char
        used += _width(char)
    return [*lines, line]


def plain(text: str, encoding: str) -> str:
    """The text with characters replaced that the terminal cannot show."""
    return text.encode(encoding, "replace").decode(encoding)


# -- cells of a row ------------------------------------------------------------------------------------------------------


def task(row: Row) -> str:
    """Project and task; a child has an arrow before it."""
    return safe(f"{'↳ ' if row.parent else ''}{row.project_name}:{row.task}")


def status(row: Row) -> str:
    """How it stands, with `!` if it needs a person and `~` if it will not restart by itself."""
    mark = "!" if row.what == "needs you" else "~" if row.stranded else " "
    return f"{mark} {words(row.standing or row.status)}"


def agent(row: Row) -> str:
    return safe("/".join(filter(None, (row.agent, row.model))))


def beats(row: Row) -> str:
    return f"{row.beats}" if row.plan_total is None else f"{row.beats}/{row.plan_total}"


def budget(row: Row, *, blocks: bool) -> str:
    """The unit nearest to its limit as a bar, with `!` if the plan will need more; without a limit, what was spent."""
    if not row.meters:
        return ""
    meter = row.meters[0]
    if meter.used_pct is None:
        return amount(meter)
    full, rest = ("█", "░") if blocks else ("#", ".")
    filled = max(0, min(BAR_CHARS, round(meter.used_pct * BAR_CHARS / 100)))
    over = "!" if meter.wraps_up or (meter.forecast or 0) > (meter.limit or 0) else ""
    return f"{full * filled}{rest * (BAR_CHARS - filled)} {meter.used_pct:.0f}%{over}"


def amount(meter: Meter) -> str:
    """The spending, in few characters."""
    if meter.unit == "usd":
        return f"${meter.spent / 1e6:,.2f}"
    for size, letter in _TOKENS:
        if meter.spent >= size:
            return f"{meter.spent / size:.1f}{letter} {meter.unit}"
    return f"{meter.spent} {meter.unit}"


def active(row: Row, now: datetime) -> str:
    """How long ago the run did something; `idle` or `stuck` before it if that is long for a live run."""
    if row.active_at is None:
        return "-"
    passed = age(max(0, int((now - row.active_at).total_seconds())))
    return f"{row.quiet} {passed}" if row.quiet else f"{passed} ago"


def age(seconds: int) -> str:
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {word}"
    return f"{seconds} s"


def why(row: Row) -> str:
    """Requests to the run, and why it stands where it stands; else its step or goal."""
    reason = messages.local(why_words(row.why, row.status))
    waiting = request_words.pending_clauses(row.pending, row.asks)
    return safe("; ".join(filter(None, (*waiting, reason))) or row.step or row.goal)


def save(row: Row) -> str:
    return (row.last_save or "-")[:7]


def helps(row: Row) -> str:
    """The command to type or thing to do for a run; empty if there is none."""
    if row.quiet == "stuck":
        return _pasteable(f"outlast output {row.run}")
    if row.own_program and row.stranded:
        return "start its program again"
    return _pasteable(row.command) if row.command else ""


def _pasteable(command: str) -> str:
    return messages.pasteable(f"`{command}`").strip("`")


# -- columns that fit ----------------------------------------------------------------------------------------------------

COLUMNS = ("STATUS", "TASK", "AGENT", "BEATS", "BUDGET", "ACTIVE", "ATTEMPTS", "SAVE", "WHY")
TITLES = {name: f"  {name}" if name == "STATUS" else name for name in COLUMNS}
_FIXED = {"STATUS": 15, "AGENT": 16, "BEATS": 8, "BUDGET": 17, "ACTIVE": 12, "ATTEMPTS": 8, "SAVE": 7}
_ORDER = ("STATUS", "ACTIVE", "BEATS", "BUDGET", "AGENT")  # which one is dropped last
_MORE = ("ATTEMPTS", "SAVE")  # where there is room for them beside a WHY that can be read
_TASK_MIN, _TASK_MAX, _WHY_MIN, _WHY_GOOD = 10, 34, 12, 40
_GAP = 2


def chosen(columns: int) -> dict[str, int]:
    """The columns that fit the terminal, in order, with their widths."""
    widths = {"TASK": _TASK_MIN}
    left = columns - _TASK_MIN
    for name in _ORDER:
        if left >= _FIXED[name] + _GAP:
            widths[name] = _FIXED[name]
            left -= _FIXED[name] + _GAP
        else:
            break
    for name in _MORE:
        if left >= _FIXED[name] + _WHY_GOOD + 2 * _GAP:
            widths[name] = _FIXED[name]
            left -= _FIXED[name] + _GAP
    if left >= _WHY_MIN + _GAP:
        widths["WHY"] = _WHY_MIN
        left -= _WHY_MIN + _GAP
    more = min(left // 2, _TASK_MAX - _TASK_MIN) if "WHY" in widths else left
    widths["TASK"] = max(1, widths["TASK"] + more)
    if "WHY" in widths:
        widths["WHY"] += left - more
    return {name: widths[name] for name in COLUMNS if name in widths}


def cells(row: Row, now: datetime, *, blocks: bool) -> dict[str, str]:
    """The cells of a row, by column."""
    return {
        "STATUS": status(row), "TASK": task(row), "AGENT": agent(row), "BEATS": beats(row),
        "BUDGET": budget(row, blocks=blocks), "ACTIVE": active(row, now), "ATTEMPTS": f"{row.attempts}", "SAVE": save(row),
        "WHY": why(row),
    }  # fmt: skip


def line(texts: dict[str, str], widths: dict[str, int]) -> str:
    """One line of a table. Without room for the status, its mark is still shown."""
    if "STATUS" not in widths:
        texts = {**texts, "TASK": f"{texts['STATUS'][0]} {texts['TASK']}"}
    return (" " * _GAP).join(fit(texts[name], columns) for name, columns in widths.items())


def table(rows: Sequence[dict[str, str]]) -> list[str]:
    """Rows as aligned lines; the last column is not padded."""
    widths = {
        name: max(map(width, (TITLES[name], *(row[name] for row in rows))))
        for name in COLUMNS
        if name != "WHY"
    }
    return [
        f"{line(row, widths)}{' ' * _GAP}{row['WHY']}".rstrip() for row in (TITLES, *rows)
    ]  # fmt: skip
