"""The pipe beside a run's socket: a shell reports to its run without starting a program, and never waits."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from outlast import decoders
from outlast.supervisor.socket.wire import Note

_CHUNK = 1 << 16
_WAITING_MAX_BYTES = 1 << 20  # of a message that does not end
_WORDS_MIN = 3

Kind = Literal["interrupted", "went_on", "killed", "left"]


def path_of(socket: Path) -> Path:
    """The pipe that belongs to a socket."""
    return socket.with_name(f"{socket.name}.told")


class Pipe:
    """The reading end. It is also a writer, so that the pipe does not end when a shell exits.

    A message is words that end in NUL, with an empty word at its end: kind, pid, a text, and NAME=value for each name of
    the script. Every process that the shell starts holds the pipe open, so processes without a mark are found too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_fifo() or path.is_symlink():
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._rest = b""

    def fileno(self) -> int:
        return self._fd

    def notes(self) -> Iterator[Note]:
        """The messages since the last call. Malformed ones are skipped."""
        with contextlib.suppress(BlockingIOError):
            while self._fd >= 0 and (chunk := os.read(self._fd, _CHUNK)):
                self._rest = (self._rest + chunk)[-_WAITING_MAX_BYTES:]
        *messages, self._rest = self._rest.split(b"\0\0")
        for message in messages:
            words = [os.fsdecode(word) for word in message.split(b"\0")]
            if len(words) >= _WORDS_MIN:
                with contextlib.suppress(msgspec.ValidationError):
                    yield _note(words)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Close it. It stays where a process holds it open: by that the next attempt finds the process."""
        self.close()
        if not holders(self.path):
            self.path.unlink(missing_ok=True)


def _note(words: list[str]) -> Note:
    kind, pid, text, *named = words
    names = dict(word.split("=", 1) for word in named if "=" in word)
    return Note(kind=decoders.convert(kind, Kind), name=pid, text=text.removeprefix("="), names=names)


def holders(path: Path) -> list[int]:
    """The processes that hold the pipe open, except us: a script of an earlier attempt, and whatever it left."""
    real = os.fsencode(os.path.realpath(path))
    named = {real, real + b" (deleted)"}
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if pid != os.getpid() and _holds(pid, named)]


def _holds(pid: int, named: set[bytes]) -> bool:
    folder = f"/proc/{pid}/fd".encode()
    with contextlib.suppress(OSError):
        for fd in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.readlink(folder + b"/" + fd) in named:
                    return True
    return False
