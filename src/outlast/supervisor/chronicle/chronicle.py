"""Tells what a run does while it works: a line per beat to the person, JSON lines to a program. Nothing waits for either."""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from outlast.core import events as ev
from outlast.core.secrets import mask
from outlast.core.state import RunState
from outlast.core.text import safe
from outlast.supervisor.chronicle.feed_events import FeedEvent, FeedWaits, place_in
from outlast.supervisor.chronicle.json_lines import JsonFeed
from outlast.supervisor.chronicle.sentences import Reader, spent_words
from outlast.supervisor.launch import background, launch as supervisor_launch
from outlast.supervisor.output import sanitize
from outlast.supervisor.person import Person
from outlast.supervisor.timing import Timing

QUEUE_MAX = 20_000  # batches: far more than one that writes at all is behind
PREFIX = "outlast: "
COLUMNS = 160  # of a line where there is no terminal
LINES_AT_ONCE = 20  # on a terminal: a script with quick steps shows each
_ACT_CHARS_MIN = 20

_Item = tuple[tuple[ev.AnyEvent, ...], RunState] | FeedEvent | threading.Event | None


class Board(Protocol):
    """Shows lines between whole lines of the command. Never waits."""

    def post(self, line: bytes) -> bool:
        """Show the line when there is room for it. False if the command's output is over."""


class Pace:
    """How many lines may be shown: some at once, then one each so many seconds."""

    def __init__(self, burst: int, every_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._every_s, self._now_s = burst, every_s, now_s
        self._room, self._at_s = float(burst), now_s()

    def wait_s(self) -> float:
        """After how long there is room for a line."""
        now_s = self._now_s()
        more = (now_s - self._at_s) / self._every_s if self._every_s else float(self._burst)
        self._room, self._at_s = min(float(self._burst), self._room + more), now_s
        return max(0.0, (1.0 - self._room) * self._every_s)

    def take(self) -> None:
        """A line is shown."""
        self._room -= 1.0


class Chronicle:
    """Reads the events of one run in a thread of its own, as they become durable.

    A line that comes sooner than the pace allows waits for the next one to take its place: the newest is what counts.
    """

    def __init__(
        self, person: Person, feed: JsonFeed | None, *, has_agent: bool = False, timing: Timing | None = None
    ) -> None:
        timing = timing or Timing.current()
        self._timing, self._person, self._feed = timing, person, feed
        self._shows = not person.quiet and not background.is_apart()
        is_terminal = os.isatty(2)
        self._pace = (
            Pace(LINES_AT_ONCE, timing.beat_line_s) if is_terminal else Pace(1, timing.apart_beat_line_s)
        )
        self._has_agent = has_agent
        self._reader: Reader | None = None
        self._board: Board | None = None
        self._lent = False  # the command has the terminal, or has not started: nothing is shown
        self._next: tuple[str, RunState] | None = None  # the line that waits for its time, and the run then
        self._skipped = 0  # lines whose place it took
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._secrets: dict[str, str] | None = None
        self.is_on = self._shows or feed is not None

    # -- from the run's threads: none of these waits --------------------------------------------------------------

    def hear(self, events: tuple[ev.AnyEvent, ...], state: RunState) -> None:
        """Events of the run are durable; `state` is the head after them."""
        self._put((events, state))

    def tell(self, event: FeedEvent) -> None:
        """Something that no event of the journal tells."""
        if self._feed is not None:
            self._put(event)

    def waits(
        self, state: RunState, waits_for: str, why: str, *, seconds: float | None = None, next_: str = ""
    ) -> None:
        """The run waits for its next attempt, for a time or for a person."""
        now = datetime.now(UTC)
        place: dict[str, Any] = place_in(state, now)
        self.tell(FeedWaits(waits_for=waits_for, seconds=seconds, why=why, next=next_, **place))

    def begins(self, state: RunState, blob: Callable[[str], bytes]) -> None:
        """An attempt begins, from this head. No line is shown before it is told what it goes on from."""
        self._lent = True
        self._reader = Reader(blob, has_agent=self._has_agent)
        self._reader.begins(state)

    def show_on(self, board: Board | None) -> None:
        """Where lines are shown from now on; None: the command has the terminal, and nothing is."""
        self._board, self._lent = board, board is None

    def _put(self, item: _Item) -> None:
        if not self.is_on or self._queue.qsize() >= QUEUE_MAX:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="outlast-chronicle", daemon=True)
            self._thread.start()
        self._queue.put(item)

    def flush(self) -> None:
        """Wait, up to a limit, until everything so far is shown and written."""
        if self._thread is not None:
            done = threading.Event()
            self._queue.put(done)
            done.wait(self._timing.chronicle_flush_s)

    def close(self) -> None:
        """Write what the reader still takes, up to a limit, and end."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(self._timing.chronicle_flush_s)

    # -- in its own thread ----------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with contextlib.suppress(queue.Empty):
                item = self._queue.get(timeout=self._wait_s())
                if item is None:
                    break
                if isinstance(item, threading.Event):
                    self._show_next()
                    self._push()
                    item.set()
                else:
                    self._take(item)
            if self._next is not None and not self._pace.wait_s():
                self._show_next()
            self._push()
        self._show_next()
        until_s = time.monotonic() + self._timing.chronicle_flush_s
        while self._feed is not None and self._feed.is_behind and time.monotonic() < until_s:
            self._push()
            time.sleep(self._timing.feed_look_s)
        if self._feed is not None:
            self._feed.close()

    def _wait_s(self) -> float | None:
        """How long nothing is to be done, if nothing comes."""
        waits = [self._pace.wait_s()] if self._next is not None else []
        if self._feed is not None and self._feed.is_behind:
            waits.append(self._timing.feed_look_s)
        return min(waits) if waits else None

    def _take(self, item: "tuple[tuple[ev.AnyEvent, ...], RunState] | FeedEvent") -> None:
        if isinstance(item, FeedEvent):
            if self._feed is not None:
                self._feed.put(item)
            return
        events, state = item
        for event in events if self._reader is not None else ():
            assert self._reader is not None, "there is one"
            line, objects = self._reader.read(event, state)
            for each in objects if self._feed is not None else ():
                assert self._feed is not None, "there is one"
                # A start records the end of the attempt before it, where that could not.
                is_before = isinstance(event, ev.AttemptEnded) and isinstance(events[-1], ev.AttemptStarted)
                self._feed.put(msgspec.structs.replace(each, attempt=each.attempt - is_before))
            if line and self._shows and not self._lent:
                self._add(line, state)

    def _add(self, line: str, state: RunState) -> None:
        """Show it now, or when it is its time; until then a later one takes its place."""
        self._skipped += self._next is not None
        self._next = line, state
        if not self._pace.wait_s():
            self._show_next()

    def _show_next(self) -> None:
        if self._next is None:
            return
        (line, state), skipped = self._next, self._skipped
        self._next, self._skipped = None, 0
        self._pace.take()
        self._show(_fitted(self._safe(line), f"  (+{skipped} more)" if skipped else "", spent_words(state)))

    def _show(self, text: str) -> None:
        if self._lent:
            return
        board = self._board
        if board is None or not board.post(f"{PREFIX}{text}\n".encode(errors="backslashreplace")):
            self._person.say(text)

    def _safe(self, text: str) -> str:
        if self._secrets is None:
            self._secrets = supervisor_launch.known_secrets()
        return safe(sanitize.hidden(mask(text)[0], self._secrets))

    def _push(self) -> None:
        feed = self._feed
        if feed is None:
            return
        feed.push()
        if feed.failure:
            self._feed = None
            self._person.say(f"no more JSON lines are written: {feed.failure}; the run goes on")


def _fitted(act: str, skipped: str, spent: str) -> str:
    """A line in one row of the terminal: what does not fit is cut off what was done, not off what was spent."""
    columns = COLUMNS
    with contextlib.suppress(OSError):
        columns = os.get_terminal_size(2).columns or COLUMNS
    rest = skipped + (f"  {spent}" if spent else "")
    room = max(_ACT_CHARS_MIN, columns - len(PREFIX) - len(rest) - 1)
    return (act if len(act) <= room else act[: room - 1] + "…") + rest
