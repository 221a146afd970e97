"""Relay a command's output: byte for byte to our own stdout and stderr, and into the log of the attempt."""

import contextlib
import errno
import fcntl
import os
import select
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from outlast.supervisor.launch import background
from outlast.supervisor.output.log import Log
from outlast.supervisor.output.sanitize import Stream
from outlast.supervisor.output.status_line import StatusLine
from outlast.supervisor.timing import Timing

READ_BYTES = 1 << 18
TAIL_BYTES = 64 << 10
PIPE_BYTES = 1 << 20
POSTED_MAX = 32  # lines of ours that wait for the end of a line of the command
_NEWLINE = 0x0A
_NAMES: dict[Stream, str] = {"out": "stdout", "err": "stderr"}


class Sink:
    """Where a stream goes to. Writing never waits."""

    def __init__(self, fd: int) -> None:
        mode = os.fstat(fd).st_mode
        self._socket: socket.socket | None = None
        self._waits = False
        self.fd = -1
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(fd))
            self.fd = self._socket.fileno()
        elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            self.fd = _opened_anew(fd)
            self._waits = (
                self.fd < 0
            )  # not ours to open, as after `sudo`: asked before each write, in small pieces
        if self.fd < 0:
            self.fd = os.dup(fd)

    def write(self, data: memoryview) -> int:
        """How much was taken; 0 when there is no room now. Raises OSError: EPIPE when the reader is gone."""
        try:
            if self._socket is not None:
                return self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            if self._waits and not _is_ready(self.fd):
                return 0
            return os.write(self.fd, data[: select.PIPE_BUF] if self._waits else data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Let go of our own descriptor."""
        if self._socket is not None:
            self._socket.close()
        elif self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


def _opened_anew(fd: int) -> int:
    """The same pipe or terminal with a file description of our own; -1 if it may not be opened."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return -1


def _is_ready(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(0))


def _is_one_place(stdout: int | None, stderr: int | None) -> bool:
    """Whether both streams go to the same file, pipe or terminal, where their lines stand one below the other."""
    if stdout is None or stderr is None:
        return False
    one, other = os.fstat(stdout), os.fstat(stderr)
    return (one.st_dev, one.st_ino, one.st_rdev) == (other.st_dev, other.st_ino, other.st_rdev)


class _Way:
    """One stream: the agent's pipe, the reader that it goes to, and the bytes that were read and not yet passed on."""

    def __init__(self, name: Stream, source: int, sink: int | None) -> None:
        os.set_blocking(source, False)  # the reading end is ours alone
        with contextlib.suppress(
            OSError
        ):  # so that the agent goes on while we write the log; not there for sockets
            fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.name: Stream = name
        self.source = source
        self.sink = Sink(sink) if sink is not None else None
        self.is_terminal = sink is not None and os.isatty(sink)
        self.pending = memoryview(b"")
        self.is_ours = False  # whether what is pending is a line of outlast
        self.at_start = True  # whether the reader has whole lines so far

    @property
    def is_open(self) -> bool:
        return self.source >= 0 or bool(self.pending)

    @property
    def is_between_lines(self) -> bool:
        """Whether a line of outlast would stand between whole lines of the command."""
        return self.at_start and not self.pending

    def wanted(self) -> tuple[int, int] | None:
        """The event to wait for: room to write what was read, else more to read."""
        if self.pending and self.sink is not None:
            return self.sink.fd, select.POLLOUT
        return (self.source, select.POLLIN) if self.source >= 0 else None

    def read(self) -> bytes:
        """Read the bytes that are there, perhaps none. Closes the pipe at its end."""
        try:
            data = os.read(self.source, READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            self.hang_up()
        return data

    def push(self) -> None:
        """Hand on as many bytes as the reader takes now."""
        if self.sink is None:
            self.pending = memoryview(b"")
        while self.pending and self.sink is not None:
            written = self.sink.write(self.pending)
            if not written:
                return
            self.at_start = self.pending[written - 1] == _NEWLINE
            self.pending = self.pending[written:]
        self.is_ours = False

    def drop_ours(self) -> None:
        """Do not wait for a reader who does not take a line of outlast."""
        if self.is_ours:
            self.pending, self.is_ours = memoryview(b""), False

    def hang_up(self) -> None:
        """Close the agent's pipe: it gets a SIGPIPE if it writes on."""
        if self.source >= 0:
            os.close(self.source)
            self.source = -1

    def close(self) -> None:
        self.hang_up()
        self.pending = memoryview(b"")
        if self.sink is not None:
            self.sink.close()


class Relay:
    """Copies both streams of a command. It owns the reading ends that it is given, and the log.

    One loop, no thread. A slow reader holds back the command and nobody else; a reader that goes away closes the command's
    pipe. Other programs share the file descriptions of stdout and stderr, so these are never switched to O_NONBLOCK: pipes
    and terminals are opened again, sockets are asked per call, and a file does not block.
    """

    def __init__(
        self,
        stdout: int,
        stderr: int,
        log: Log,
        *,
        to: tuple[int | None, int | None] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        line: StatusLine | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        if to is None:  # where nobody watches, the log has it
            to = (None, None) if background.is_apart() else (1, 2)
        self._ways = (_Way("out", stdout, to[0]), _Way("err", stderr, to[1]))
        self._log, self._now = log, now
        self._line = line if line is not None and line.is_on else None
        self._tail = b""
        self.closed: dict[Stream, str] = {}  # streams that nobody takes any more, and why
        self._read_at_s = self._log_from_s = 0.0
        self._closed = False
        self._posted: deque[bytes] = deque(maxlen=POSTED_MAX)
        self._post_lock = threading.Lock()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._beside = [self._ways[1], *([self._ways[0]] if _is_one_place(*to) else [])]

    # -- the loop --------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether anything may still come, or waits to be handed on."""
        return any(way.is_open for way in self._ways)

    @property
    def is_behind(self) -> bool:
        """Whether a reader of ours has not taken all yet."""
        return any(way.pending for way in self._ways)

    def wanted(self) -> list[tuple[int, int]]:
        """Descriptors and poll events at which `step` has something to do; they change with every step."""
        return [wanted for way in self._ways if (wanted := way.wanted()) is not None]

    def wait_s(self) -> float | None:
        """After how long `step` has something to do for the log, whatever comes; None for never."""
        if self._log.failed:
            return None
        if self._log.waits:
            return max(0.0, self._log_from_s - time.monotonic())
        since = self._log.partial_since
        return (
            max(0.0, (since + self._log.partial_age - self._now()).total_seconds())
            if since is not None
            else None
        )

    def step(self, timeout_s: float | None = 0.0) -> bool:
        """Wait at most `timeout_s` (None: for ever) for something to relay, and relay some of it. False when all has ended."""
        poll = select.poll()
        for fd, events in self.wanted():
            poll.register(fd, events)
        waits_s = [each for each in (timeout_s, self.wait_s()) if each is not None]
        ready = dict(poll.poll(min(waits_s) * 1000 if waits_s else None))
        for way in self._ways:
            wanted = way.wanted()
            if wanted is not None and wanted[0] in ready:
                self._move(way)
        self._write_log()
        return self.is_open

    def run(self, ended: int) -> None:
        """Relay until all has ended, or until the descriptor `ended` can be read: a pidfd, or the end of a pipe."""
        while self.is_open:
            poll = select.poll()
            for fd, events in (*self.wanted(), (ended, select.POLLIN), (self._bell, select.POLLIN)):
                poll.register(fd, events)
            waits_s = [self.wait_s(), self._line.wait_s() if self._line is not None else None]
            wait_s = min((each for each in waits_s if each is not None), default=None)
            ready = {fd for fd, _ in poll.poll(None if wait_s is None else wait_s * 1000)}
            if ended in ready:
                return
            if self._bell in ready:
                os.eventfd_read(self._bell)
            self.step(0.0)
            self.show_posted()
            if self._line is not None and not self.is_behind:
                self._line.draw()

    def drain(self, limit_s: float, *, reader_limit_s: float | None = None) -> bool:
        """Relay the rest after the command has ended. Returns whether that was all.

        Waits up to `limit_s` for a surviving process that holds a pipe, and up to `reader_limit_s` for a slow reader of our
        output; None: for ever, as the command would without us.
        """
        began_s = time.monotonic()
        self._ways[1].drop_ours()
        while self.is_open:
            passed_s = time.monotonic() - began_s
            slow = any(way.pending for way in self._ways)
            left_s = limit_s - passed_s
            if slow:
                left_s = 1.0 if reader_limit_s is None else reader_limit_s - passed_s
            if left_s <= 0:
                return False
            self.step(left_s)
        return True

    def close(self) -> None:
        """Close the pipes, and make the log durable. Output that was not passed on by now is lost."""
        with self._post_lock:
            if self._closed:
                return
            self._closed = True
            os.close(self._bell)
        for way in self._ways:
            way.close()
        self._log.close(self._now())

    def tail(self, n_bytes: int) -> bytes:
        """The last output of both streams, in the order in which it came; at most 64 KiB of it."""
        assert n_bytes <= TAIL_BYTES, f"no more than {TAIL_BYTES:,} bytes are kept"
        return self._tail[-n_bytes:] if n_bytes > 0 else b""

    # -- lines of outlast ------------------------------------------------------------------------------------------

    def post(self, line: bytes) -> bool:
        """Show a line of outlast on standard error, between whole lines of the command there; returns at once.

        One that the command leaves no room for is lost where newer ones wait too. False: nothing is relayed any more.
        """
        with self._post_lock:
            if self._closed or self._ways[1].sink is None:
                return False
            self._posted.append(line)
            os.eventfd_write(self._bell, 1)
            return True

    @property
    def is_in_a_line(self) -> bool:
        """Whether the command's last line was not ended where outlast writes."""
        return not all(way.at_start for way in self._beside)

    def show_posted(self) -> None:
        """Show the lines that wait, as far as there is room for them now."""
        err = self._ways[1]
        while self._posted and all(way.is_between_lines for way in self._beside):
            err.pending, err.is_ours = memoryview(self._posted.popleft()), True
            try:
                self._push(err)
            except OSError:  # its reader is gone: the command finds that out by itself
                err.drop_ours()

    # -- one stream ------------------------------------------------------------------------------------------------

    def _move(self, way: _Way) -> None:
        try:
            self._push(way)
            if not way.pending and way.source >= 0:
                data = way.read()
                if data:
                    self._take(way.name, data)
                    way.pending = memoryview(data)
                    self._push(way)
        except OSError as error:
            if way.is_ours:
                way.drop_ours()
            else:
                self._break(way, error)

    def _push(self, way: _Way) -> None:
        line = self._line if way.is_terminal else None
        if line is not None and way.pending:
            line.wipe()
            line.passed(way.pending)
        way.push()

    def _take(self, name: Stream, data: bytes) -> None:
        self._tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self._tail + data)[-TAIL_BYTES:]
        self._read_at_s = time.monotonic()
        self._log.put(name, data, self._now())

    def _break(self, way: _Way, error: OSError) -> None:
        """Close the agent's pipe, because nobody reads our output: its next write fails, as it would without us."""
        why = (
            "its reader went away" if error.errno == errno.EPIPE else error.strerror or "it cannot be written"
        )
        self.closed[way.name] = why
        way.pending = memoryview(b"")
        way.hang_up()
        self._log.note(f"{_NAMES[way.name]} was closed: {why}", self._now())

    def _write_log(self) -> None:
        """A piece of what waits, and the beginnings of lines. While output streams, it takes half of the time at most."""
        began_s = time.monotonic()
        if self._log.waits and began_s >= self._log_from_s:
            self._log.work()
            ended_s = time.monotonic()
            streams = ended_s - self._read_at_s < self._timing.streaming_s
            self._log_from_s = ended_s + (ended_s - began_s if streams else 0.0)
        if self._log.partial_since is not None:
            self._log.show_partial(self._now())
