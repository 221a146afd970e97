"""Talking to the person behind a run: a line on the terminal, a warning on record, a notification."""

from collections.abc import Callable
from typing import Protocol

from outlast.core import events as ev
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.supervisor import notify


class Wipes(Protocol):
    """A status line at the end of the terminal."""

    def wipe(self) -> None: ...


class Person:
    """The reader of what outlast says. `write` prints one line. `quiet`: they want to read only what needs them."""

    def __init__(self, write: Callable[[str], None], *, quiet: bool = False) -> None:
        self._write = write
        self.quiet = quiet
        self.line: Wipes | None = None  # wiped before each line
        self.last = ""  # what was said last

    def say(self, text: str, *, needed: bool = False) -> None:
        """One line on the terminal. `needed`: an error, or something that needs a person, said also to one who wants it quiet."""
        self.last = text
        if self.quiet and not needed:
            return
        if self.line is not None:
            self.line.wipe()
        self._write(text)

    def warn(self, run: RunEngine, level: str, text: str) -> None:
        """One line on the terminal, and on record under `level`."""
        self.say(text)
        run.drive(append(ev.Warned(at=run.journal.now(), level=level, text=text)))

    def tell(self, run: RunEngine, what: str, why: str = "", *, needed: bool = False) -> None:
        """One line on the terminal, and a notification where `what` is worth one."""
        self.say(f"{what}: {why}" if why else what, needed=needed)
        self.notify(run, what, why)

    def notify(self, run: RunEngine, what: str, why: str) -> None:
        """Send only the notification."""
        if what in notify.KINDS:
            notify.send(run.settings, what, why, run.state, run.journal.store)
