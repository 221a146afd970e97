"""One line at the bottom of the terminal that says how far the run is. It gives way to everything that is printed."""

import contextlib
import os
import threading
import time
from typing import Protocol

from outlast import settings
from outlast.supervisor.timing import Timing

_WIPE = b"\r\x1b[K"


class HasStatus(Protocol):
    """Whatever the line is about."""

    def status(self) -> str:
        """How far it is, as one line."""


class StatusLine:
    """Drawn by the thread that relays output; every thread may wipe it.

    It is drawn only where the cursor stands at the beginning of a line, and wiped before the next byte goes out, so the
    command's output stays as it is. Where standard error is no terminal, nothing is drawn.
    """

    def __init__(self, source: HasStatus, fd: int = 2, timing: Timing | None = None) -> None:
        self._every_s = (timing or Timing.current()).status_line_s
        self._source, self._fd = source, fd
        self._lock = threading.Lock()
        self._shown = ""
        self._at_start = True
        self._next_s = 0.0
        self.goes_on_below = (
            False  # the command has ended within a line, and what outlast says begins below it
        )
        self.is_on = os.isatty(fd) and settings.variable("TERM") not in ("", "dumb")

    def wipe(self) -> None:
        """Before something else is written to the terminal."""
        with self._lock:
            if self._shown:
                self._write(_WIPE)
                self._shown = ""
            if self.goes_on_below:
                self._write(b"\n")
                self.goes_on_below = False

    def passed(self, data: bytes | memoryview) -> None:
        """This went out to the terminal."""
        self._at_start = bytes(data[-1:]) == b"\n"

    def draw(self) -> None:
        """Draw it again if it is due and there is room for it."""
        if not self.is_on or not self._at_start or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + self._every_s
        text = self._fitted()
        with self._lock:
            if text and text != self._shown:
                self._write(_WIPE + b"\x1b[2m" + text.encode() + b"\x1b[0m")
                self._shown = text

    def wait_s(self) -> float:
        """After how long there may be something to draw."""
        return max(0.0, self._next_s - time.monotonic())

    def _fitted(self) -> str:
        """The text in one line of this terminal, without anything that could move the cursor."""
        with contextlib.suppress(OSError):
            columns = os.get_terminal_size(self._fd).columns
            return "".join(c for c in self._source.status() if c.isprintable())[: max(0, columns - 1)]
        return ""

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._fd, data)
