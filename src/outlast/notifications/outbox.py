"""Notices on their way: a file for each in the state folder, and a mark beside the run, so that a cause is told once.

A file's first line is the notice, each further line what was begun or happened on a channel. Its lock says who sends it."""

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from outlast import decoders
from outlast.core.secrets import mask
from outlast.notifications.notice import Notice
from outlast.store import durable
from outlast.store.local import Local

TRIES_MAX = 3
TAKEN_MAX = 200  # at once: each has a descriptor
_BYTES_MAX = 1 << 20
_SUFFIX = ".jsonl"

Did = Literal["begun", "sent", "failed", "held"]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a notice on a channel. `again`: it failed, surely did not arrive, and is tried again."""

    channel: str
    did: Did
    at: datetime
    words: str = ""
    again: bool = False


def add(local: Local, notice: Notice) -> bool:
    """Put a notice on its way, unless one with its cause was before. Durable when it returns. Raises OSError.

    The notice and its mark cannot come apart: whoever is killed in between leaves the notice, which counts as the mark.
    """
    mark = _mark(local, notice)
    if mark.exists():
        return False
    for folder in (
        local.notices,
        mark.parent,
    ):  # the mark's place before the notice: who sends it makes the mark too
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = local.notices / f"{notice.run}-{_cause(notice)}{_SUFFIX}"
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # nobody sends it before it is known to be the first
        os.write(fd, msgspec.json.encode(notice) + b"\n")
        os.fsync(fd)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        if not _set(mark):
            path.unlink()  # another process was first, and has sent it meanwhile
            return False
        durable.sync_folder(local.notices)
        return True
    finally:
        temporary.unlink(missing_ok=True)
        os.close(fd)


def _set(mark: Path) -> bool:
    """Whether this call made the mark."""
    try:
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True


def _mark(local: Local, notice: Notice) -> Path:
    return local.run_folder(notice.run) / f"noticed-{_cause(notice)}"


def _cause(notice: Notice) -> str:
    """The digest of kind and cause. Those of earlier versions count too."""
    return hashlib.blake2b(f"{notice.what} {notice.cause}{notice.about}".encode(), digest_size=6).hexdigest()


class Sending:
    """A notice that this process alone sends, until it lets go."""

    def __init__(self, path: Path, fd: int, notice: Notice, steps: list[Step], mark: Path) -> None:
        self.notice, self.steps = notice, steps
        self._path, self._fd, self._mark = path, fd, mark

    @property
    def held(self) -> bool:
        """Whether it waited for the end of the quiet hours."""
        return any(step.did == "held" for step in self.steps)

    def last(self, channel: str) -> Step | None:
        """The last that happened on a channel."""
        return next((step for step in reversed(self.steps) if step.channel == channel), None)

    def wants(self, channel: str) -> bool:
        """Whether it is still to be sent there. What was begun and has no outcome may have arrived: it is not."""
        last = self.last(channel)
        if last is None:
            return True
        tries = sum(step.channel == channel and step.did == "begun" for step in self.steps)
        return last.did == "failed" and last.again and tries < TRIES_MAX

    def record(self, step: Step) -> None:
        """Put a step on record, durable when it returns. Raises OSError."""
        words, _ = mask(step.words)
        step = msgspec.structs.replace(step, words=words)
        os.write(self._fd, msgspec.json.encode(step) + b"\n")
        os.fsync(self._fd)
        self.steps.append(step)

    def close(self) -> None:
        """All of it is done. The mark stays, where the run is still there."""
        with contextlib.suppress(OSError):
            if self._mark.parent.is_dir():
                _set(self._mark)
            self._path.unlink(missing_ok=True)

    def leave(self) -> None:
        """Let go of it."""
        os.close(self._fd)


def waiting(local: Local) -> int:
    """How many notices are on their way or held."""
    return len(_paths(local))


@contextlib.contextmanager
def taken(local: Local, waits: Callable[[Sending], bool]) -> Iterator[list[Sending]]:
    """The notices that nobody else is sending and that do not wait, oldest first, so many at most. What cannot be read is put away."""
    found: list[Sending] = []
    try:
        for path in _paths(local):
            each = _take(local, path)
            if each is not None:
                found.append(each)
                if waits(each):
                    found.pop().leave()
            if len(found) == TAKEN_MAX:
                break
        yield sorted(found, key=lambda each: each.notice.at)
    finally:
        for each in found:
            each.leave()


def _paths(local: Local) -> list[Path]:
    try:
        return [
            path
            for path in local.notices.iterdir()
            if path.suffix == _SUFFIX and not path.name.startswith(".")
        ]
    except OSError:
        return []


def _take(local: Local, path: Path) -> Sending | None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(fd).st_nlink:  # it was sent between our two looks
            raise BlockingIOError
        first, *rest = os.pread(fd, _BYTES_MAX, 0).split(b"\n")
        notice = decoders.decode(first, Notice)
        if rest and rest[-1]:
            os.write(fd, b"\n")  # a torn line: what was begun is on record before it
    except (OSError, msgspec.MsgspecError) as error:
        os.close(fd)
        if not isinstance(error, OSError):
            path.unlink(missing_ok=True)
        return None
    steps = []
    for line in rest:
        with contextlib.suppress(msgspec.MsgspecError):
            steps.append(decoders.decode(line, Step))
    return Sending(path, fd, notice, steps, _mark(local, notice))
