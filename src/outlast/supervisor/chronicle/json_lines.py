"""`--json-lines`: where the lines go, and writing them without ever waiting for whoever reads them."""

import contextlib
import fcntl
import os
import re
import select
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from outlast.core.secrets import mask
from outlast.errors import UsageError
from outlast.supervisor.chronicle.feed_events import FeedDropped, FeedEvent
from outlast.supervisor.output import sanitize
from outlast.supervisor.output.relay import Sink

LINE_BYTES_MAX = select.PIPE_BUF  # a pipe takes such a line whole or not at all
WAITING_LINES_MAX = 1_000
_TEXT_CHARS = (1_000, 300, 100, 30)  # how long each text may be, until the line fits
_IDS = ("event", "at", "run", "session", "save", "found_save")  # never masked or shortened
_STANDARD = 2
_HINT = "give a file, a FIFO or an open descriptor, as in `--json-lines 3 3>events.jsonl`"
_STEERING = re.compile("[\x7f-\x9f]")


def refuse_unusable(where: str) -> None:
    """Raise UsageError if `where` is no place for JSON lines. Nothing is made."""
    if where.isascii() and where.isdigit():
        _refuse_descriptor(int(where))
        return
    path = Path(where).expanduser()
    if path.is_dir() or "\0" in where:
        raise UsageError(f"--json-lines {where!r:.80} is a folder", hint=_HINT)
    if not path.parent.is_dir():
        raise UsageError(f"--json-lines: the folder {str(path.parent)!r:.80} is not there", hint=_HINT)


def _refuse_descriptor(fd: int) -> None:
    if fd <= _STANDARD:
        raise UsageError(f"--json-lines {fd}: descriptors 0 to 2 are the command's", hint=_HINT)
    try:
        inherited = not fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        is_open = inherited and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except (OSError, OverflowError):
        is_open = False
    if not is_open:  # ours are closed on exec: what is not inherited is not for anybody else's lines
        raise UsageError(f"--json-lines {fd}: that descriptor is not open for writing", hint=_HINT)


def _opened(where: str) -> int:
    """A descriptor of the place. A FIFO is opened for reading too: so nobody need read it, and none that leaves is an error."""
    if where.isascii() and where.isdigit():
        refuse_unusable(where)
        return int(where)
    refuse_unusable(where)
    path = Path(where).expanduser()
    try:
        is_fifo = stat.S_ISFIFO(path.stat().st_mode)
    except FileNotFoundError:
        is_fifo = False
    except OSError as error:
        raise UsageError(f"--json-lines {where!r:.80}: {error.strerror}", hint=_HINT) from error
    how = os.O_RDWR | os.O_NONBLOCK if is_fifo else os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        return os.open(path, how | os.O_CLOEXEC | os.O_NOCTTY, 0o600)
    except OSError as error:
        raise UsageError(f"--json-lines {where!r:.80}: {error.strerror}", hint=_HINT) from error


class JsonFeed:
    """One place for JSON lines. `put` queues a line, `push` writes as many as are taken now; both return at once.

    Used by one thread. Where the reader does not read, the oldest lines are dropped, and a line says how many.
    """

    def __init__(self, where: str, known_secrets: Callable[[], dict[str, str]] = dict) -> None:
        fd = _opened(where)
        self._owned = fd if not where.isdigit() else -1
        self._sink: Sink | None = Sink(fd)
        self._secrets = known_secrets()
        self._waiting: deque[tuple[FeedEvent, bytes]] = deque()
        self._rest = memoryview(b"")  # of a line that was taken in part
        self._dropped = 0
        self.failure = ""  # why nothing is written any more
        self._mend_last_line(fd)

    def _mend_last_line(self, fd: int) -> None:
        """End a line that a kill or a full disk cut off, so that ours begins at the beginning of one."""
        with contextlib.suppress(OSError):
            file_stat = os.fstat(fd)
            if stat.S_ISREG(file_stat.st_mode) and file_stat.st_size and self._owned >= 0:
                with open(f"/proc/self/fd/{fd}", "rb") as file:
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        self._rest = memoryview(b"\n")

    @property
    def is_behind(self) -> bool:
        """Whether lines wait for their reader."""
        return self._sink is not None and bool(self._rest or self._waiting)

    def put(self, event: FeedEvent) -> None:
        """Queue one line."""
        if self._sink is None:
            return
        self._waiting.append((event, self._line(event)))
        while len(self._waiting) > WAITING_LINES_MAX:
            self._waiting.popleft()
            self._dropped += 1

    def push(self) -> None:
        """Write what is taken now. A reader that is gone, or a full disk, ends the feed and nothing else."""
        try:
            while self._sink is not None and (self._rest or self._next_line()):
                written = self._sink.write(self._rest)
                if not written:
                    return
                self._rest = self._rest[written:]
        except OSError as error:
            self.failure = error.strerror or str(error)
            self.close()

    def _next_line(self) -> bool:
        if not self._waiting:
            return False
        event, line = self._waiting[0]
        if self._dropped:
            gap = FeedDropped(
                at=event.at, run=event.run, task=event.task, attempt=event.attempt, seq=event.seq, count=self._dropped
            )  # fmt: skip
            self._dropped, line = 0, self._line(gap)
        else:
            self._waiting.popleft()
        self._rest = memoryview(line)
        return True

    def close(self) -> None:
        """Let go of the place."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None
        if self._owned >= 0:
            os.close(self._owned)
            self._owned = -1

    def _line(self, event: FeedEvent) -> bytes:
        """The event on one line that a pipe takes whole, without secrets: texts are shortened as far as that needs."""
        plain = self._masked(msgspec.to_builtins(event))
        line = b""
        for chars in _TEXT_CHARS:
            text = msgspec.json.encode(_shortened(plain, chars)).decode()
            line = _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode() + b"\n"
            if len(line) <= LINE_BYTES_MAX:
                break
        return line

    def _masked(self, value: Any) -> Any:
        match value:
            case str() if value:
                return sanitize.hidden(mask(value)[0], self._secrets)
            case dict():
                return {name: each if name in _IDS else self._masked(each) for name, each in value.items()}
            case list() | tuple():
                return [self._masked(each) for each in value]
            case _:
                return value


def _shortened(value: Any, chars: int) -> Any:
    match value:
        case str() if len(value) > chars:
            return value[: chars - 1] + "…"
        case dict():
            return {name: each if name in _IDS else _shortened(each, chars) for name, each in value.items()}
        case list():
            return [_shortened(each, chars) for each in value]
        case _:
            return value
