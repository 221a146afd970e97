"""Acts that are asked for once: an intent before, an outcome after, so that the same form or key again does nothing again.

Each has a file of its own in the store's folder, named by the sum of its nonce: the wish, durable before anything is done, then
what became of it. Whoever does it holds the file's lock; others with the same nonce wait, also those of another page on the
same store. An intent without an outcome is of a page that was killed at it, and is not done again: nobody knows what became
of it. What was refused changed nothing, and leaves nothing.
"""

import contextlib
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from outlast.dashboard.documents import Done, Wish
from outlast.errors import RunRefused, StoreError
from outlast.runs import attempts
from outlast.store import durable

FOLDER = "pressed"
KEPT_MAX = 5_000
KEPT_S = 7 * 86_400.0
REFUSED_MAX = 1_000
NONCE_CHARS_MAX = 200
WAIT_S = 60.0
_SWEEP_EVERY = 64
_LOOK_EVERY_S = 0.02
_ROOM_BYTES = 4 << 10  # for the outcome: a disk that is full after the act must not take it away
_READ_BYTES_MAX = 1 << 20


class OnceOnly:
    """Outcomes by the nonce of what asked for them, in a folder of the store: the newest 5,000 of a week."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER
        self._mutex = threading.Lock()
        self._not_kept: dict[str, Done] = {}  # to be shown: what was refused, or could not be written down
        self._until_sweep = 0

    def once(self, nonce: str, act: Callable[[], Done], wish: Wish) -> Done:
        """The outcome of the first call with this nonce; others wait for it.

        Raises RunRefused where the first was another wish, and StoreError where nothing can be written: then nothing was done.
        An act that broke down, which no bad input does, is of unknown outcome.
        """
        if not 0 < len(nonce) <= NONCE_CHARS_MAX:
            return act()
        path = self._path(nonce)
        with contextlib.ExitStack() as stack:
            try:
                self._sweep()
                self._make_folder()
                fd = stack.enter_context(_alone(path, WAIT_S))
                asked, done = _read(fd)
                if asked is not None:
                    return self._again(nonce, asked, done, wish)
                at = _intend(fd, wish)
                durable.sync_folder(self._folder)
            except OSError as error:
                raise StoreError(
                    f"what is asked cannot be put on record, so it was not done: {error.strerror or error}",
                    hint=f"see that {self._folder} can be written, then ask again",
                ) from error
            return self._act(nonce, path, fd, at, act)

    def done(self, nonce: str) -> Done | None:
        """The outcome that is known; None while it is under way, or where there is none."""
        with self._mutex:
            shown = self._not_kept.get(nonce)
        if shown is not None or not 0 < len(nonce) <= NONCE_CHARS_MAX:
            return shown
        try:
            fd = os.open(self._path(nonce), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            asked, done = _read(fd)
        except OSError:
            return None
        finally:
            os.close(fd)
        return done or (_unknown(asked) if asked is not None else None)

    def _make_folder(self) -> None:
        """Only ever inside the store: one that was deleted under this process is not made again in part."""
        try:
            self._folder.mkdir(mode=0o700)
        except FileExistsError:
            return
        durable.sync_folder(self._folder.parent)

    def _path(self, nonce: str) -> Path:
        return self._folder / f"{hashlib.sha256(nonce.encode('utf-8', 'replace')).hexdigest()}.jsonl"

    def _again(self, nonce: str, asked: Wish, done: Done | None, wish: Wish) -> Done:
        if asked != wish:
            raise RunRefused(
                "the same was sent before, with something else in it",
                hint=f"it asked to {asked.act} run {asked.run}; load the page again, or take another key, and ask again",
            )
        with self._mutex:
            shown = self._not_kept.get(nonce)
        return done or shown or _unknown(asked)

    def _act(self, nonce: str, path: Path, fd: int, at: int, act: Callable[[], Done]) -> Done:
        """Do it, and write down what became of it. What is done is done, so no error of writing is told."""
        done = act()
        kept = done.ok or done.changed
        try:
            if kept:
                _conclude(fd, at, done)
            else:
                path.unlink()
        except OSError:
            kept = False
        with self._mutex:
            self._not_kept.pop(nonce, None)
            if not kept:
                self._not_kept[nonce] = done
            while len(self._not_kept) > REFUSED_MAX:
                del self._not_kept[next(iter(self._not_kept))]
        return done

    def _sweep(self) -> None:
        """Let go of what is old, or too much; of none that is under way."""
        with self._mutex:
            self._until_sweep -= 1
            if self._until_sweep > 0:
                return
            self._until_sweep = _SWEEP_EVERY
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
        found.sort(reverse=True)
        since = time.time() - KEPT_S
        kept = [each for each in found[:KEPT_MAX] if each[0] >= since]
        for _, path in found[len(kept) :]:
            with contextlib.suppress(OSError, RunRefused), _alone(Path(path), 0.0):
                os.unlink(path)


@contextlib.contextmanager
def _alone(path: Path, wait_s: float) -> Iterator[int]:
    """The file of a nonce, made if it is not there, ours until the end. Raises RunRefused where it stays somebody else's.

    Whoever takes its name away holds it: who waited for it meanwhile begins anew.
    """
    until_s = time.monotonic() + wait_s
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            while not _locked(fd):
                if time.monotonic() >= until_s:
                    raise RunRefused("the same is under way", hint="look at the run in a moment")
                time.sleep(_LOOK_EVERY_S)
            if os.fstat(fd).st_nlink:
                yield fd
                return
        finally:
            os.close(fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(fd: int) -> tuple[Wish | None, Done | None]:
    """What was asked, and what became of it. What is torn was never begun, or is of unknown outcome."""
    lines = os.pread(fd, _READ_BYTES_MAX, 0).split(b"\n")
    asked: Wish | None = None
    if len(lines) > 1:
        with contextlib.suppress(msgspec.MsgspecError):
            asked = msgspec.json.decode(lines[0], type=Wish)
    if asked is None or len(lines) < 3:
        return asked, None
    try:
        return asked, msgspec.json.decode(lines[1], type=Done)
    except msgspec.MsgspecError:
        return asked, None


def _intend(fd: int, wish: Wish) -> int:
    """Write down what is about to be done, durably, with room for its outcome, which begins there."""
    line = msgspec.json.encode(wish) + b"\n"
    os.ftruncate(fd, 0)
    try:
        _write(fd, line, 0)
        os.posix_fallocate(fd, len(line), _ROOM_BYTES + len(line))
        os.fsync(fd)
    except OSError:  # nothing was begun
        os.ftruncate(fd, 0)
        raise
    return len(line)


def _conclude(fd: int, at: int, done: Done) -> None:
    line = msgspec.json.encode(done) + b"\n"
    _write(fd, line, at)
    os.ftruncate(fd, at + len(line))
    os.fsync(fd)


def _write(fd: int, data: bytes, at: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written:], at + written)


def _unknown(asked: Wish) -> Done:
    """It was begun, and whoever did it was killed at it, or broke down."""
    return Done(
        wish=asked, at=attempts.now(), by="", ok=False, changed=False,
        says=f"This was begun before ({asked.act}), and its outcome is not known; it is not done again.",
        hint="look at the run, then ask anew", link=asked.run,
    )  # fmt: skip
