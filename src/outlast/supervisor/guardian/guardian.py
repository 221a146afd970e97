"""The process that a person starts: it passes signals on, and cleans up if the supervisor dies.

It stays small: one thread, few imports, and it never writes to the store."""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from outlast.core.text import safe
from outlast.processes import proc, spawn
from outlast.processes.signals import ReceivedSignal, Signals, sender
from outlast.processes.tty import Terminal
from outlast.store.local import Local
from outlast.supervisor.guardian import lock
from outlast.supervisor.guardian.link import GuardianMessage, Link, pair
from outlast.supervisor.guardian.signals import is_shutdown
from outlast.supervisor.timing import Timing

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
WATCHED = (*PASSED_ON, signal.SIGTSTP, signal.SIGCONT, signal.SIGCHLD, signal.SIGWINCH)
EXIT_LOST = 70


def guard(work: Callable[[Link], int]) -> int:
    """Run `work` in a child of ours and watch over it; its exit code, or 128 + the signal that killed it.

    Raises BadSetting, nothing done, where OUTLAST_TIMING makes no sense.
    """
    timing = Timing.current()
    spawn.become_subreaper()
    ours, theirs = pair()
    signals = Signals(WATCHED)
    pid = os.fork()
    if pid == 0:
        code = EXIT_LOST
        try:
            os.setpgid(0, 0)
            ours.close()
            signals.close()
            code = work(Link(theirs))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)
    theirs.close()
    return _Guardian(pid, Link(ours), signals, timing).watch()


class _Guardian:
    """Guards one supervisor, from its fork to its end.

    When the supervisor is killed, the guardian stops everything of the attempt, has a fresh process save the files, and
    leaves; the next start waits for the guardian's lock.
    """

    def __init__(self, supervisor: int, link: Link, signals: Signals, timing: Timing) -> None:
        self._timing = timing
        self._supervisor, self._link, self._signals = supervisor, link, signals
        self._charge: GuardianMessage | None = None  # the attempt under guard; None before the run is claimed
        self._lock: int | None = None
        self._deaf_s = 0.0
        self._first_signal: GuardianMessage | None = None  # the first signal that the supervisor got
        self._has_left_word = self._was_frozen = False
        self._terminal = Terminal.of(0)

    def watch(self) -> int:
        """Wait until the supervisor has ended, clean up if it was killed, and return the exit code."""
        poll = select.poll()
        poll.register(self._signals.fileno(), select.POLLIN)
        poll.register(self._link.fileno(), select.POLLIN)
        while True:
            for fd, _ in poll.poll(self._timing.guardian_look_s * 1000):
                if fd == self._link.fileno():
                    for message in self._link.heard():
                        self._hear(message)
                    if self._link.closed:
                        poll.unregister(fd)
                else:
                    while (got := self._signals.read()) is not None:
                        self._pass_on(got)
            self._look_at_deaf()
            status = self._ended()
            if status is not None:
                return self._after(status)

    def _hear(self, message: GuardianMessage) -> None:
        if message.what == "claimed":
            self._charge = message
            if self._lock is None:
                self._lock = lock.take(Local(Path(message.root)), message.run, self._supervisor)
            self._link.say(GuardianMessage(what="guarded"))
        elif message.what == "signal":
            self._note_signal(message)
        elif message.what == "stopped":
            self._stop_myself()

    def _pass_on(self, got: ReceivedSignal) -> None:
        if got.number == signal.SIGCHLD:
            return
        if got.number == signal.SIGTSTP:
            self._link.say(GuardianMessage(what="freeze"))
            self._stop_myself()
            return
        if got.number in (signal.SIGCONT, signal.SIGWINCH):
            self._link.say(GuardianMessage(what="continue" if got.number == signal.SIGCONT else "resized"))
            return
        who = sender(got)
        message = GuardianMessage(what="signal", number=got.number, sender=who, wanted=not is_shutdown(got))
        self._note_signal(message)
        self._link.say(message)
        self._deaf_s = self._deaf_s or lock.monotonic_s()

    def _note_signal(self, message: GuardianMessage) -> None:
        """Leave a durable note that somebody wants the attempt to stop: guardian and supervisor may both be killed before
        they have stopped it."""
        self._first_signal = self._first_signal or message
        if self._charge is not None and message.wanted and not self._has_left_word:
            self._has_left_word = True
            lock.leave(self._word(self._charge), self._charge)

    def _stop_myself(self) -> None:
        """Let the shell see a stopped job. The supervisor keeps the lease meanwhile."""
        os.kill(os.getpid(), signal.SIGSTOP)

    def _look_at_deaf(self) -> None:
        """Kill a supervisor that is frozen (SIGSTOP) and so does not react to a signal in time; the guardian then cleans up."""
        if self._deaf_s and lock.monotonic_s() - self._deaf_s > self._timing.frozen_s:
            there = proc.look(self._supervisor)
            if there is not None and there.state in "Tt":
                self._was_frozen = True
                if self._charge is not None:
                    lock.leave(self._word(self._charge), self._charge)  # before anybody can find it dead
                os.kill(self._supervisor, signal.SIGKILL)

    def _ended(self) -> int | None:
        """The supervisor's wait status; None while it runs. Also reaps orphans that became children of the guardian."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 0
            if pid == 0:
                return None
            if pid == self._supervisor:
                return status

    def _after(self, status: int) -> int:
        if os.WIFEXITED(status):
            if self._charge is not None and self._has_left_word:  # it put on record what it did
                lock.forget_note(Local(Path(self._charge.root)), self._charge.run)
            return os.WEXITSTATUS(status)
        number = os.WTERMSIG(status)
        if self._terminal is not None:
            self._terminal.take_back()
        if self._first_signal is not None:
            number = self._first_signal.number
        if self._charge is not None:
            word = self._word(self._charge, status)
            note = lock.clean_up(self._charge, spare={os.getpid()}, why=word.why, wanted=word.wanted)
            _tell(note, self._charge)
        return 128 + number

    def _word(self, charge: GuardianMessage, status: int = signal.SIGKILL) -> lock.GuardianNote:
        """The note for the next attempt: why the supervisor is dead, and whether a person wanted that. If so, nothing starts
        the run again by itself."""
        why = f"the supervisor was killed ({signal.Signals(os.WTERMSIG(status)).name}), sender unknown"
        if self._first_signal is not None:
            name = signal.Signals(self._first_signal.number).name
            fate = (
                "which the stopped supervisor did not answer"
                if self._was_frozen
                else "and the supervisor was killed"
            )
            why = f"{name} from {self._first_signal.sender}, {fate}"
        wanted = self._first_signal is not None and self._first_signal.wanted
        return lock.GuardianNote(charge.run, charge.epoch, why, wanted=wanted)


def _tell(note: lock.GuardianNote, charge: GuardianMessage) -> None:
    """The ending of an attempt whose supervisor cannot tell it. It waits for no reader."""
    saved = f", and its files are save {note.save[:12]}" if note.save else ""
    text = f"outlast: {note.why}; what it ran is stopped{saved}; `{charge.resume}` goes on\n"
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    with contextlib.suppress(OSError):
        if any(events & select.POLLOUT for _, events in poll.poll(0)):
            os.write(2, safe(text.rstrip("\n")).encode(errors="backslashreplace") + b"\n")
