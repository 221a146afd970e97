"""Lends the terminal to an interactive agent, and restores it exactly, whatever killed the agent."""

import contextlib
import os
import select
import signal
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from outlast.processes.timing import Timing

# Leaving the alternate screen also restores the saved cursor, so it is saved first: a program on the normal screen
# keeps its place. Then: attributes, cursor shown, its keys, mouse, focus, pasting, enhanced keyboards.
RESET = (
    b"\x1b7\x1b[?1049l\x1b[0m\x1b[?25h\x1b[?1l\x1b>"
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1004l\x1b[?2004l\x1b[<u\x1b[>4m"
)
_GONE = (OSError, termios.error)


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal's state: its modes, and the process group in its foreground (0: not our terminal)."""

    fd: int
    modes: list[Any]
    foreground: int

    @classmethod
    def of(cls, fd: int) -> "Terminal | None":
        """The current state of the descriptor's terminal; None if it is not a terminal."""
        try:
            modes = termios.tcgetattr(fd)
        except _GONE:
            return None
        return cls(fd, modes, _foreground(fd))

    def give(self, pgid: int) -> bool:
        """Put a process group in the foreground, as if it had the terminal alone; False if that is not possible."""
        try:
            with _from_the_background():
                os.tcsetpgrp(self.fd, pgid)
        except _GONE:
            return False
        return True

    def take_back(self) -> bool:
        """Restore foreground and modes. If a killed program left other modes, its screen is tidied too.

        Safe to call again at any time; False if the terminal has gone.
        """
        with _from_the_background():
            try:
                self._take_foreground()
                was_cut_off = termios.tcgetattr(self.fd) != self.modes
                termios.tcsetattr(self.fd, termios.TCSANOW, self.modes)
                if was_cut_off:
                    _write(self.fd, RESET)
            except _GONE:
                return False
        return True

    def _take_foreground(self) -> None:
        if not self.foreground:
            return
        try:
            os.tcsetpgrp(self.fd, self.foreground)
        except (ProcessLookupError, PermissionError):  # the earlier foreground group has ended
            os.tcsetpgrp(self.fd, os.getpgrp())


def _foreground(fd: int) -> int:
    try:
        return os.tcgetpgrp(fd)
    except OSError:
        return 0


@contextlib.contextmanager
def _from_the_background() -> Iterator[None]:
    """SIGTTOU stops a background group that touches its terminal, so block that signal meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _write(fd: int, data: bytes) -> None:
    """Write what the terminal takes at once, through a descriptor of our own: a stopped terminal must not block us, and
    the shared descriptor must stay blocking for others."""
    limit_s = Timing.current().terminal_write_s
    own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while data and select.select([], [own], [], limit_s)[1]:
            data = data[os.write(own, data) :]
    finally:
        os.close(own)
