"""The three streams of a command: the user's terminal itself, or pipes: input once, output relayed and logged."""

import contextlib
import errno
import os
import signal
import stat
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from outlast.processes.spawn import Spec
from outlast.processes.tty import Terminal
from outlast.store import durable
from outlast.supervisor.guardian.signals import StopSignals
from outlast.supervisor.output.log import Log
from outlast.supervisor.output.relay import TAIL_BYTES, Relay
from outlast.supervisor.output.status_line import StatusLine
from outlast.supervisor.person import Person
from outlast.supervisor.timing import Timing

SPOOL = "stdin"
WHOLE = "stdin.whole"  # there once all of it is kept
PROMPT_MAX_BYTES = 100_000  # one argument of a command has at most 128 KiB
PROMPT_FILE_MAX_BYTES = 16 << 20
SPOOL_MAX_BYTES = 256 << 20
_CHUNK = 1 << 16


class OnTerminal:
    """The user's own terminal, lent to an interactive command and taken back as it was."""

    stdin, stdout, stderr = 0, 1, 2
    closed = ""

    def __init__(self, terminal: Terminal, timing: Timing | None = None) -> None:
        self._terminal = terminal
        self.tick_s = (timing or Timing.current()).terminal_tick_s

    def spec(self, spec: Spec, *, again: bool = False) -> Spec:
        """In a group of its own, in the foreground."""
        return replace(spec, own_group=True, foreground_tty=0)

    def started(self) -> None:
        """It has the terminal."""

    def suspended(self) -> None:
        """The command was stopped with Ctrl-Z: the terminal is the shell's again."""
        self._terminal.take_back()

    def goes_on(self, group: int) -> None:
        """The shell brought the job back to the foreground."""
        self._terminal.give(group)
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGCONT)

    def finish(self, signals: StopSignals) -> bytes:
        """Modes and foreground as they were, whatever the command left. Nothing of it is logged."""
        self._terminal.take_back()
        return b""


class Streams:
    """Pipes to and from one command. Relaying is the work of a thread, so that the supervisor is never behind it."""

    def __init__(
        self,
        folder: Path,
        attempt: int,
        person: Person,
        line: StatusLine,
        *,
        keeps: bool = False,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self.tick_s = self._timing.piped_tick_s
        out, self.stdout = os.pipe2(os.O_CLOEXEC)
        err, self.stderr = os.pipe2(os.O_CLOEXEC)
        self._folder = folder
        self.stdin = _input(folder, person, keeps) if attempt == 1 else _nothing()
        self._is_first = attempt == 1
        self._line = line
        self.closed = ""  # why nobody takes what it prints any more
        self._relay = Relay(out, err, Log(folder, attempt, datetime.now(UTC)), line=line)
        self._end, self._stop = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._work, name="outlast-output", daemon=True)

    def spec(self, spec: Spec, *, again: bool = False) -> Spec:
        """The spec in a session of its own, which no terminal reaches. `again`: feed the input that was piped in at first."""
        if again and not self._is_first and (found := _whole(self._folder)) is not None:
            os.close(self.stdin)
            self.stdin = os.open(found, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        return replace(
            spec, new_session=True, stdin_fd=self.stdin, stdout_fd=self.stdout, stderr_fd=self.stderr
        )

    def started(self) -> None:
        """The command has its ends of the pipes: close ours, and begin to pass its output on."""
        for fd in (self.stdin, self.stdout, self.stderr):
            os.close(fd)
        self._thread.start()

    def _work(self) -> None:
        self._relay.run(self._end)

    def post(self, line: bytes) -> bool:
        """Show a line of outlast between those of the command; False when its output is over. As `Relay.post`."""
        return self._relay.post(line)

    def finish(self, signals: StopSignals) -> bytes:
        """Pass on the rest, and make the log durable. Returns the end of the command's output.

        Waits for a slow reader, as the command would without us, until a signal comes.
        """
        os.close(self._stop)
        if self._thread.is_alive():
            self._thread.join()
        self._line.wipe()
        while not self._relay.drain(self._timing.drain_s, reader_limit_s=self._timing.reader_s):
            signals.listen()
            if not self._relay.is_behind or signals.got:
                break
        self._relay.show_posted()
        self._line.goes_on_below = self._relay.is_in_a_line
        tail = self._relay.tail(TAIL_BYTES)
        self.closed = self._relay.closed.get("out", "")
        self._relay.close()
        os.close(self._end)
        return tail


def _nothing() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def _whole(folder: Path) -> Path | None:
    """The copy of standard input, if it is complete."""
    return folder / SPOOL if (folder / WHOLE).exists() else None


def piped(folder: Path) -> str:
    """The prompt from standard input, if it was text, cut to what one argument of a command can hold."""
    with contextlib.suppress(OSError), (folder / SPOOL).open("rb") as file:
        text = file.read(PROMPT_MAX_BYTES).decode(errors="replace").strip()
        return "" if text.startswith("{") else text.replace("\0", "")
    return ""


def _input(folder: Path, person: Person, keeps: bool) -> int:
    """The command's standard input: the user's pipe, copied beside the log as it comes, or a file, copied with `keeps`."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        mode = 0
    if stat.S_ISREG(mode):
        if keeps:
            _keep_file(folder)
        return os.dup(0)
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return _nothing()
    ours, to_command = os.pipe2(os.O_CLOEXEC)
    work = Feed(0, to_command, folder / SPOOL, person).work
    threading.Thread(target=work, name="outlast-stdin", daemon=True).start()
    return ours


def _keep_file(folder: Path) -> None:
    """Copy a file that is our standard input, from the current position: its owner may change it later."""
    with contextlib.suppress(OSError):
        data = os.pread(0, PROMPT_FILE_MAX_BYTES + 1, os.lseek(0, 0, os.SEEK_CUR))
        if len(data) <= PROMPT_FILE_MAX_BYTES:
            for name, content in ((SPOOL, data), (WHOLE, b"")):
                with open(folder / name, "wb", opener=durable.opener) as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())


class Feed:
    """Passes standard input on to a command, and keeps a copy. If it cannot keep the copy, it still passes the input on."""

    def __init__(self, source: int, to_command: int, spool: Path, person: Person) -> None:
        self._source, self._to_command, self._person = source, to_command, person
        self._spooled_bytes = 0
        self._whole = spool.with_name(WHOLE)
        try:
            self._spool = os.open(
                spool, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            self._give_up(error)

    def work(self) -> None:
        """Pass the input on until it ends or the command reads no more."""
        with contextlib.suppress(OSError):  # the command closed its end, or died: nobody wants the rest
            while chunk := os.read(self._source, _CHUNK):
                self._keep(chunk)
                _write(self._to_command, chunk)
            self._mark_whole()
        os.close(self._to_command)
        if self._spool >= 0:
            os.close(self._spool)

    def _mark_whole(self) -> None:
        """Mark the copy as whole, now that the input has ended: this is durable before the command sees the end."""
        if self._spool >= 0:
            os.fsync(self._spool)
            os.close(os.open(self._whole, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))

    def _keep(self, chunk: bytes) -> None:
        if self._spool < 0:
            return
        try:
            if self._spooled_bytes + len(chunk) > SPOOL_MAX_BYTES:
                raise OSError(errno.EFBIG, "it is long")
            _write(self._spool, chunk)
            self._spooled_bytes += len(chunk)
        except OSError as error:
            os.close(self._spool)
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._spool = -1
        why = error.strerror or str(error)
        self._person.say(
            f"standard input is kept up to {self._spooled_bytes:,} bytes: {why}; the command gets all of it"
        )


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
