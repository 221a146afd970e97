"""The signals of a supervisor: those to itself, those that its guardian passes on, and stop and continue of the job."""

import os
import select
import signal
from typing import Protocol

import msgspec

from outlast.processes.signals import ReceivedSignal, Signals, sender
from outlast.supervisor.guardian.link import GuardianMessage, Link

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Signalled(msgspec.Struct, frozen=True):
    """Somebody wants the supervisor to stop. Not `wanted`: the host or a terminal ends, nobody meant this run."""

    number: int
    sender: str
    wanted: bool

    @property
    def evidence(self) -> str:
        return f"{signal.Signals(self.number).name} from {self.sender}"


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class StopSignals:
    """Create it before starting threads: it blocks the signals, so they are read from a descriptor instead of killing us."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._signals = Signals(HANDLED)
        self.got: list[Signalled] = []
        self._others: list[str] = []

    def wait(self, timeout_s: float, *more: HasFileno) -> None:
        """Wait for a signal or a message, until one of `more` can be read, or the time is over."""
        poll = select.poll()
        for there in (self._signals, *more, *(() if self.link.closed else (self.link,))):
            poll.register(there.fileno(), select.POLLIN)
        poll.poll(timeout_s * 1000)
        self.listen()

    def listen(self) -> None:
        """Read the signals and messages that have come."""
        for message in self.link.heard():
            if message.what == "signal":
                self.got.append(Signalled(message.number, message.sender, message.wanted))
            else:
                self._others.append(message.what)
        while (got := self._signals.read()) is not None:
            heard = Signalled(got.number, sender(got), not is_shutdown(got))
            self.got.append(heard)  # and the guardian should know, were we killed before we are done
            self.link.say(
                GuardianMessage(what="signal", number=heard.number, sender=heard.sender, wanted=heard.wanted)
            )

    def others(self) -> list[str]:
        """The other messages of the guardian since the last call."""
        others, self._others = self._others, []
        return others


def is_shutdown(got: ReceivedSignal) -> bool:
    """Whether a signal comes from a shutdown of the host or from a closed terminal: nobody meant this run."""
    if got.number == signal.SIGHUP:
        return True
    return got.number == signal.SIGTERM and (got.pid in (0, 1) or os.path.exists("/run/nologin"))
