"""Reads git objects through one long-lived `git cat-file`, and verifies each against its name."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self, TypeVar

from outlast.errors import SaveDamaged, SaveFailed
from outlast.workspace.git import command
from outlast.workspace.git.objects import SHA1, SHA256
from outlast.workspace.timing import Timing

if TYPE_CHECKING:
    from hashlib import _Hash

T = TypeVar("T")

CHUNK_BYTES = 1 << 20
STARTS_MAX = 2
NAMES_SENT_MAX = 500  # 32 kB of names: a pipe takes 64 kB
_MESSAGE_BYTES_MAX = 2000
_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# Objects as they are: without replacements, and not fetched from a partial clone's remote.
_VARIABLES = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}


class _Died(Exception):
    """The child ended in the middle of an answer."""


class _Child:
    """A `git cat-file` with a mode, started at the first question."""

    def __init__(self, git_dir: Path, env: Mapping[str, str], mode: str) -> None:
        self._git_dir = git_dir
        self._env = {**env, **_VARIABLES}
        self._mode = mode
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None

    def ask(self, oid: str) -> tuple[str, int] | None:
        """Kind and size, or None if there is no such object. With `--batch` the content follows."""
        self.send([oid])
        return self.answer(oid)

    def send(self, oids: Sequence[str]) -> None:
        """Ask for several; the answers come in this order. At most as many as the pipe takes without blocking."""
        assert len(oids) <= NAMES_SENT_MAX, "with more, we and the child could wait for each other"
        process = self._process or self._start()
        assert process.stdin is not None, "stdin is a pipe"
        try:
            process.stdin.write("".join(f"{oid}\n" for oid in oids).encode())
            process.stdin.flush()
        except BrokenPipeError:
            raise _Died from None

    def answer(self, oid: str) -> tuple[str, int] | None:
        """The next answer, which is about this object."""
        assert self._process is not None, "something was asked"
        assert self._process.stdout is not None, "stdout is a pipe"
        words = self._process.stdout.readline().split()
        if len(words) == 2 and words[1] == b"missing":
            return None
        if len(words) != 3 or words[0] != oid.encode():
            raise _Died
        return words[1].decode(), int(words[2])

    def take(self, size: int) -> bytes:
        """The next bytes of the content."""
        assert self._process is not None, "something was asked"
        assert self._process.stdout is not None, "stdout is a pipe"
        data = self._process.stdout.read(size)
        if len(data) != size:
            raise _Died
        return data

    def _start(self) -> subprocess.Popen[bytes]:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `stop`; a pipe could fill up
        try:
            self._process = command.start(
                ["git", *command.WORDS, f"--git-dir={self._git_dir}", "cat-file", self._mode],
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                start_new_session=True,  # keeps a Ctrl-C in the terminal from it
            )
        except SaveFailed:
            self.stop()
            raise
        except OSError as error:
            self.stop()
            raise SaveFailed(f"cannot start git: {error.strerror}", hint="install git") from error
        return self._process

    def stop(self) -> str:
        """Stop it; return the last line of its stderr."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            try:
                process.wait(Timing.current().git_close_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return self._last_words()

    def _last_words(self) -> str:
        if self._complaints is None:
            return ""
        with self._complaints as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MESSAGE_BYTES_MAX))
            lines = file.read().decode(errors="replace").strip().splitlines()
        self._complaints = None
        return lines[-1] if lines else ""


class ObjectReader:
    """Reads objects of one repository. For one thread. Starts nothing before the first question."""

    def __init__(self, git_dir: Path, env: Mapping[str, str]) -> None:
        self._contents = _Child(git_dir, env, "--batch")
        self._headers = _Child(git_dir, env, "--batch-check")

    def read(self, oid: str) -> tuple[str, bytes]:
        """Kind and content. Raises SaveDamaged if the object is missing, broken or does not match its name."""

        def once() -> tuple[str, bytes] | None:
            found = self._contents.ask(oid)
            if found is None:
                return None
            return found[0], self._contents.take(found[1] + 1)[:-1]

        kind, data = _there(oid, _persist(self._contents, oid, once))
        _verify(oid, _new_hash(oid, kind, len(data), data).hexdigest())
        return kind, data

    def read_many(self, oids: Sequence[str]) -> dict[str, bytes]:
        """The contents of those that exist, pipelined: it does not wait for one answer before the next question."""
        found: dict[str, bytes] = {}
        for start in range(0, len(oids), NAMES_SENT_MAX):
            some = [oid for oid in oids[start : start + NAMES_SENT_MAX] if _OID.fullmatch(oid)]
            try:
                self._contents.send(some)
                for oid in some:
                    kind_and_size = self._contents.answer(oid)
                    if kind_and_size is not None:
                        data = self._contents.take(kind_and_size[1] + 1)[:-1]
                        _verify(oid, _new_hash(oid, kind_and_size[0], len(data), data).hexdigest())
                        found[oid] = data
            except _Died:
                self._contents.stop()  # the caller asks for the others one by one, and gets the error
            except BaseException:
                self._contents.stop()
                raise
        return found

    def copy_to(self, oid: str, fd: int) -> int:
        """Write an object's content to a descriptor, in chunks; return its size. Raises as `read` does, maybe halfway."""
        done = 0

        def once() -> tuple[str, int] | None:
            nonlocal done
            found = self._contents.ask(oid)
            if found is None:
                return None
            seen, content = 0, _new_hash(oid, *found)
            while seen < found[1]:
                chunk = self._contents.take(min(CHUNK_BYTES, found[1] - seen))
                content.update(chunk)
                repeated = max(0, done - seen)  # a second child repeats what the first one gave
                fresh = memoryview(chunk)[repeated:]
                seen += len(chunk)
                while fresh:
                    count = os.write(fd, fresh)
                    done, fresh = done + count, fresh[count:]
            self._contents.take(1)
            return content.hexdigest(), seen

        named, size = _there(oid, _persist(self._contents, oid, once))
        _verify(oid, named)
        return size

    def size(self, oid: str) -> int:
        """The size of the content. Raises SaveDamaged if the object is missing."""
        return _there(oid, _persist(self._headers, oid, lambda: self._headers.ask(oid)))[1]

    def has(self, oid: str) -> bool:
        """Whether the object exists, without reading it."""
        return _persist(self._headers, oid, lambda: self._headers.ask(oid)) is not None

    def lacking(self, oids: Sequence[str]) -> list[str]:
        """The objects that do not exist. Pipelined; reads no contents."""
        found: list[str] = []
        for start in range(0, len(oids), NAMES_SENT_MAX):
            some = oids[start : start + NAMES_SENT_MAX]
            try:
                self._headers.send(some)
                found += [oid for oid in some if self._headers.answer(oid) is None]
            except _Died:
                self._headers.stop()
                raise SaveDamaged("cannot look for objects: git died") from None
            except BaseException:
                self._headers.stop()
                raise
        return found

    def close(self) -> None:
        """Stop the children; asking again starts new ones."""
        self._contents.stop()
        self._headers.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _persist(child: _Child, oid: str, once: Callable[[], T]) -> T:
    """Call `once`, and a second time if the child dies. After any other failure the stream's position is unknown."""
    if not _OID.fullmatch(oid):
        raise SaveDamaged(f"not an object's name: {oid!r:.80}")
    message = ""
    for _ in range(STARTS_MAX):
        try:
            return once()
        except _Died:
            message = child.stop()
        except BaseException:
            child.stop()
            raise
    raise SaveDamaged(f"cannot read object {oid}: {message or 'git died'}")


def _there(oid: str, found: T | None) -> T:
    if found is None:
        raise SaveDamaged(f"object {oid} is missing")
    return found


def _new_hash(oid: str, kind: str, size: int, data: bytes = b"") -> _Hash:
    algo = SHA1 if len(oid) == SHA1.hex_length else SHA256
    content = algo.new(f"{kind} {size}\0".encode())
    content.update(data)
    return content


def _verify(oid: str, named: str) -> None:
    if named != oid:
        raise SaveDamaged(f"the content of object {oid} has the hash {named}")
