"""The live screen of `outlast top`: a list of runs that follows the store, used by keys, on terminals of any size."""

import contextlib
import curses
import locale
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import get_args

import msgspec

from outlast import settings
from outlast.cli.commands import show as commands_show
from outlast.cli.commands.top import headline
from outlast.cli.terminal import columns
from outlast.cli.terminal.columns import fit
from outlast.cli.terminal.messages import safe
from outlast.cli.timing import Timing
from outlast.dashboard.documents import Ask, Overview, Row, Sort
from outlast.dashboard.overview import verdict
from outlast.dashboard.overview.index import Index
from outlast.dashboard.report import KINDS, Kind, why_words
from outlast.dashboard.run import request_words
from outlast.errors import StoreBusy, UnknownRun
from outlast.inspect import show as showing
from outlast.store.protocol import RunFilter, Store
from outlast.supervisor.control import standing

PAGE_SIZE = 500
DETAIL_BEATS = 20
SEARCH_CHARS_MAX = 200
SORTS: tuple[Sort, ...] = get_args(Sort)
_FILTERS: tuple[Kind | None, ...] = (None, *KINDS)
_UP, _DOWN = (curses.KEY_UP, "k"), (curses.KEY_DOWN, "j")
_ENTER = ("\n", "\r", curses.KEY_ENTER)
_LEAVE = ("q", "\x1b", curses.KEY_LEFT, "h")
_ERASE = (curses.KEY_BACKSPACE, "\b", "\x7f")
_KEYS = "Enter details  / search  f filter  s sort  ? keys  q quit"
HELP = (
    "arrows, j k      up or down",
    "PgUp PgDn        a page up or down",
    "Home End, g G    to the first, to the last",
    "Enter            the run: where it stands, why it stopped, what it needs",
    "/                search as you type; Enter keeps it, Esc drops it",
    "f                filter: needs you, stopped, running, done; then all again",
    "s                sort by need, activity, start, cost, beats, task, project",
    "r                refresh now",
    "q, Esc           back, then quit; Ctrl-Z suspends",
    "",
    "idle: alive, but has done nothing for 5 minutes.   stuck: for 20.",
    "! before a status: it needs you.   ~: it stopped; only `outlast resume` restarts it (the service does that at boot).",
    "! after a budget: not enough for the plan, or only the reserve is left.",
    "This screen changes nothing. The last lines say what to type for the marked run.",
)

Key = str | int


def show(store: Store, index: Index, project: str) -> bool:
    """Show the screen until the person quits; False if this terminal cannot."""
    locale.setlocale(locale.LC_ALL, "")
    try:
        curses.setupterm()
    except curses.error:
        return False
    with _ended_by_signals(), contextlib.suppress(KeyboardInterrupt):
        curses.wrapper(lambda window: _Screen(window, store, index, project).stay())
    return True


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A signal ends the screen in the usual way, so the terminal is restored."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Screen:
    """The list, one run, or the keys. The marked run stays marked when the order changes."""

    def __init__(self, window: "curses.window", store: Store, index: Index, project: str) -> None:
        self._window, self._store, self._index = window, store, index
        self._ask, self._project = Ask(grouped=False, size=PAGE_SIZE), project
        self._pages: dict[int, Overview] = {}
        self._seen: object = None
        self._first = self._at = 0
        self._run = ""
        self._typing = False
        self._note = ""
        self._pane: Callable[[], list[str]] | None = None
        self._lines: list[str] = []
        self._scroll = 0
        self._encoding = locale.getpreferredencoding(False)
        self._blocks = self._encoding.lower().replace("-", "") == "utf8"
        self._styles = _styles()

    def stay(self) -> None:
        """Draw, wait for a key or a change, and repeat."""
        with contextlib.suppress(curses.error):
            curses.curs_set(0)
        timing = Timing.current()
        curses.set_escdelay(timing.escape_ms)
        self._window.timeout(timing.screen_tick_ms)
        while True:
            self._look()
            self._measure()
            self._draw()
            key = self._key()
            if key is not None and not self._take(key):
                return

    def _measure(self) -> None:
        """Follow the size of the terminal, even if the signal that tells curses was lost."""
        with contextlib.suppress(OSError, curses.error):
            columns_now, lines_now = os.get_terminal_size(sys.stdout.fileno())
            if (lines_now, columns_now) != self._window.getmaxyx() and lines_now > 0 and columns_now > 0:
                curses.resizeterm(lines_now, columns_now)
                self._window.clearok(True)  # what was drawn during the change is in the wrong place

    def _key(self) -> Key | None:
        try:
            return self._window.get_wch()
        except curses.error:
            return None

    # -- what there is -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read what was written since; forget the pages if something changed."""
        try:
            self._index.refresh()
            self._note = ""
        except StoreBusy as error:
            self._note = safe(error)
        seen = (self._index.number, self._index.version, self._ask, int(time.monotonic()))
        if seen != self._seen:
            self._seen = seen
            self._pages = {}
            if self._pane is None:
                self._follow()
            else:
                self._lines = self._pane()

    def _page(self, number: int) -> Overview:
        if number not in self._pages:
            ask = msgspec.structs.replace(self._ask, page=number)
            self._pages[number] = self._index.overview(ask, within=self._project)
        return self._pages[number]

    @property
    def _found(self) -> int:
        return self._page(1).found

    def _row(self, at: int) -> Row | None:
        """The row at a position of the whole list."""
        if not 0 <= at < self._found:
            return None
        rows = self._page(at // PAGE_SIZE + 1).rows
        return rows[at % PAGE_SIZE] if at % PAGE_SIZE < len(rows) else None

    def _follow(self) -> None:
        """Keep the marked run marked, if it is still near."""
        start = self._at // PAGE_SIZE * PAGE_SIZE
        near = (place for place in range(start, min(start + PAGE_SIZE, self._found)))
        if self._run:
            found = (
                place for place in near if (row := self._row(place)) is not None and row.run == self._run
            )
            self._at = next(found, self._at)
        self._mark(self._at)

    def _mark(self, at: int) -> None:
        self._at = max(0, min(at, self._found - 1))
        row = self._row(self._at)
        self._run = row.run if row is not None else ""

    # -- keys --------------------------------------------------------------------------------------------------------

    def _take(self, key: Key) -> bool:
        """Obey a key; False to quit."""
        if key == curses.KEY_RESIZE:
            curses.update_lines_cols()
            self._window.clearok(True)  # what was drawn during the change is in the wrong place
            return True
        if self._typing:
            self._type(key)
        elif self._pane is not None:
            self._read(key)
        elif key in ("q", "\x1b"):
            if not self._ask.q or key == "q":
                return False
            self._search("")
        else:
            self._choose(key)
        return True

    def _choose(self, key: Key) -> None:
        body = max(1, self._body())
        steps: dict[Key, int] = {
            curses.KEY_NPAGE: body, curses.KEY_PPAGE: -body, " ": body, curses.KEY_HOME: -self._found, "g": -self._found,
            curses.KEY_END: self._found, "G": self._found,
            **dict.fromkeys(_UP, -1), **dict.fromkeys(_DOWN, 1),
        }  # fmt: skip
        if key in steps:
            self._mark(self._at + steps[key])
        elif key in _ENTER and self._run:
            self._open(self._details)
        elif key == "?":
            self._open(lambda: list(HELP))
        elif key == "/":
            self._typing = True
        elif key == "f":
            now = self._ask.what[0] if self._ask.what else None
            following = _FILTERS[(_FILTERS.index(now) + 1) % len(_FILTERS)]
            self._change(what=() if following is None else (following,))
        elif key == "s":
            self._change(sort=SORTS[(SORTS.index(self._ask.sort) + 1) % len(SORTS)])
        elif key == "r":
            self._seen = None

    def _type(self, key: Key) -> None:
        """A key of the search, which is applied at once."""
        q = self._ask.q
        if key in _ENTER:
            self._typing = False
        elif key == "\x1b":
            self._typing = False
            self._search("")
        elif key in _ERASE:
            self._search(q[:-1])
        elif key == "\x15":  # Ctrl-U, as a shell has it
            self._search("")
        elif isinstance(key, str) and key.isprintable() and len(q) < SEARCH_CHARS_MAX:
            self._search(q + key)

    def _search(self, q: str) -> None:
        self._change(q=q)

    def _change(self, **changes: object) -> None:
        self._ask = msgspec.structs.replace(self._ask, **changes)
        self._first, self._at, self._run = 0, 0, ""

    def _read(self, key: Key) -> None:
        """A key while a run or the keys are shown."""
        page = max(1, self._window.getmaxyx()[0] - 2)
        if key in (*_LEAVE, *_ENTER, "?"):
            self._pane, self._seen = None, None
        elif key in _UP:
            self._scroll -= 1
        elif key in _DOWN:
            self._scroll += 1
        elif key in (curses.KEY_NPAGE, " "):
            self._scroll += page
        elif key == curses.KEY_PPAGE:
            self._scroll -= page
        elif key in (curses.KEY_HOME, "g"):
            self._scroll = 0
        elif key in (curses.KEY_END, "G"):
            self._scroll = 1 << 30

    def _open(self, pane: Callable[[], list[str]]) -> None:
        self._pane, self._lines, self._scroll = pane, pane(), 0

    # -- drawing -----------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        height, width = self._window.getmaxyx()
        self._window.erase()
        if height >= 1 and width >= 2:
            if self._pane is not None:
                self._draw_pane(height, width)
            else:
                self._draw_list(height, width)
        self._window.refresh()

    def _put(self, y: int, text: str, width: int, style: int = 0) -> None:
        """Draw a line, cut to the width. curses complains about the last cell of the terminal: ignore that."""
        text = columns.plain(fit(text, width), self._encoding)
        with contextlib.suppress(curses.error):
            self._window.addstr(y, 0, text, style)

    def _parts(self) -> tuple[int, int, int]:
        """How many lines are above the list, for the marked run below it, and for the keys; small terminals have none."""
        height = self._window.getmaxyx()[0]
        above = 1 + (height >= 6) + (height >= 8)
        below = 0 if height < 7 else 2 if height < 14 else 3 if height < 20 else 4
        return above, below, int(height >= 10)

    def _body(self) -> int:
        return max(0, self._window.getmaxyx()[0] - sum(self._parts()))

    def _draw_list(self, height: int, width: int) -> None:
        above, below, keys = self._parts()
        now = datetime.now(UTC)
        body = self._body()
        self._first = max(min(self._first, self._at), self._at - max(0, body - 1), 0)
        widths = columns.chosen(width - 2)
        title, clock = self._note or headline(self._page(1)), f"  {now.astimezone():%H:%M:%S}"
        self._put(
            0, f"{fit(title, width - len(clock))}{clock}" if width > 40 else title, width, curses.A_BOLD
        )
        if above >= 3:
            self._put(1, self._query_line(), width, self._styles["search"] if self._typing else 0)
        if above >= 2:
            titles = columns.line(columns.TITLES, widths)
            self._put(above - 1, f"  {titles}", width, curses.A_UNDERLINE)
        for place in range(self._first, self._first + body):
            row = self._row(place)
            if row is not None:
                self._draw_row(above + place - self._first, row, now, widths, width)
        if not self._found and body:
            self._put(above, "  no run matches" if self._page(1).total else "  no runs yet", width)
        for offset, text in enumerate(self._marked(width, below)):
            self._put(height - keys - below + offset, text, width)
        if keys:
            self._put(height - 1, _KEYS, width, curses.A_DIM)

    def _draw_row(self, y: int, row: Row, now: datetime, widths: dict[str, int], width: int) -> None:
        text = columns.line(columns.cells(row, now, blocks=self._blocks), widths)
        is_marked = row.run == self._run
        style = self._styles["stuck" if row.quiet else row.what] | (curses.A_REVERSE if is_marked else 0)
        self._put(y, f"{'>' if is_marked else ' '} {text}", width, style)

    def _query_line(self) -> str:
        """The search, filter and order in force."""
        ask = self._ask
        q = f"search: {safe(ask.q)}{'_' if self._typing else ''}" if ask.q or self._typing else ""
        only = f"only: {ask.what[0]}" if ask.what else ""
        found = f"{self._found:,} of {self._page(1).total:,}"
        return "   ".join(filter(None, (f"order: {ask.sort}", only, q, found)))

    def _marked(self, width: int, lines: int) -> list[str]:
        """Why the marked run stands where it stands, and what to type, which is cut last."""
        row = self._row(self._at)
        if row is None or not lines:
            return [""] * lines
        known = f"attempt {row.attempts}, save {columns.save(row)}"
        goal = f"{safe(row.run)}  {known}  {safe(row.goal)}"
        typed = columns.wrapped(columns.helps(row), width)[: lines - 1]
        why = columns.wrapped(_why(row), width)
        room = lines - len(typed) - (lines >= 3)
        if len(why) > room > 0:
            why = [*why[: room - 1], "".join(why[room - 1 :])]
        texts = [
            *([goal] if lines >= 3 else []),
            *why[:room],
            *(typed if any(typed) else [goal] * (lines < 3)),
        ]
        return [fit(text, width) for text in (*texts, *[""] * lines)][:lines]

    def _draw_pane(self, height: int, width: int) -> None:
        lines = [part for text in self._lines for part in columns.wrapped(text, width)]
        body = max(1, height - 1)
        self._scroll = max(0, min(self._scroll, len(lines) - body))
        for y, text in enumerate(lines[self._scroll : self._scroll + body]):
            self._put(y, text, width)
        if height > 1:
            rest = len(lines) - self._scroll - body
            self._put(height - 1, f"q back{f'   {rest} more lines' if rest > 0 else ''}", width, curses.A_DIM)

    def _details(self) -> list[str]:
        """The marked run as `outlast show` prints it, and what to type."""
        try:
            row = self._index.row(self._run)
            found = self._store.list(RunFilter(runs=(self._run,)), unreadable=True)
        except UnknownRun:
            found = []
        if not found:
            return [f"run {safe(self._run)} is gone"]
        if found[0].problem:
            return [f"run {safe(self._run)} {found[0].problem}"]
        shown = showing.glance(self._store, found[0], last=DETAIL_BEATS)
        lines = commands_show.lines(
            self._store, found[0], shown, standing.supervisor_of(self._store, self._run)
        )
        return [*lines, "", _why(row), columns.helps(row)]


def _why(row: Row) -> str:
    """The requests that wait for a run, and why it has its status; for a quiet run, what its silence may mean."""
    waiting = [safe(each) for each in request_words.pending_clauses(row.pending, row.asks)]
    reasons = "; ".join(filter(None, (*waiting, safe(why_words(row.why, row.status)), verdict.quiet(row))))
    return f"{row.what}: {reasons}" if reasons else row.what


def _styles() -> dict[str, int]:
    """The style of each heading. Words say the same, so it reads well without colour."""
    plain = {
        "needs you": curses.A_BOLD,
        "stopped": 0,
        "running": 0,
        "done": curses.A_DIM,
        "stuck": curses.A_BOLD,
    }
    plain["search"] = curses.A_BOLD
    if not curses.has_colors() or settings.variable("NO_COLOR"):
        return plain
    curses.use_default_colors()
    for pair, colour in enumerate((curses.COLOR_RED, curses.COLOR_YELLOW, curses.COLOR_GREEN), 1):
        curses.init_pair(pair, colour, -1)
    colours = {"needs you": 1, "stopped": 2, "running": 3, "stuck": 1}
    return {
        name: style | (curses.color_pair(colours[name]) if name in colours else 0)
        for name, style in plain.items()
    }
