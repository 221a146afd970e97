"""Our copy of an agent's own transcript: whole lines only, made durable at each save point, and the way back from it.

A transcript that a kill left short, torn or gone is made whole from the copy; what is longer goes on in it, be it the
beat in flight or turns that a person made by hand. The file as it was found is kept beside the copy.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from outlast.core.values import SessionMark
from outlast.store import files

READ_MAX_BYTES = 256 << 20
_CHUNK = 1 << 20


class Mirror:
    """The copy of one session's transcript."""

    def __init__(self, folder: Path, agent: str, session: str) -> None:
        self.agent, self.session = agent, session
        self._copy = folder / f"{agent}-{_plain(session)}.jsonl"
        self._path: Path | None = None
        self._seen: tuple[int, int] = (0, 0)  # the file that is followed
        self._read = 0
        self._waits: list[bytes] = []
        self._begin(b"")

    def _begin(self, kept: bytes) -> None:
        self.length = len(kept)
        self._hash = hashlib.blake2b(kept, digest_size=16)

    @property
    def path(self) -> Path | None:
        return self._path

    @property
    def mark(self) -> SessionMark:
        """How far the copy has come."""
        path = str(self._path) if self._path is not None else ""
        return SessionMark(self.agent, self.session, path, self.length, self._hash.hexdigest())

    def kept(self) -> bytes:
        """What the copy holds, without a line that was cut off while it was written."""
        data = read_whole(self._copy)
        return data[: data.rfind(b"\n") + 1]

    # -- following -------------------------------------------------------------------------------------------------

    def follow(self, path: Path, start: int = 0) -> None:
        """From now on, read this file from there on; what lies before is in the copy already."""
        self._path, self._read, self._waits = path, start, []
        with contextlib.suppress(OSError):
            told = path.stat()
            self._seen = (told.st_dev, told.st_ino)

    def news(self) -> Iterator[bytes]:
        """The whole lines that were written since the last look; each is known when it is handed out, not before.

        A file that was replaced is read from its beginning.
        """
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                told = os.fstat(file.fileno())
                if (told.st_dev, told.st_ino) != self._seen or told.st_size < self._read:
                    self._replaced((told.st_dev, told.st_ino))
                file.seek(self._read)
                data = file.read(READ_MAX_BYTES)
        except OSError:
            return
        for line in data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]:
            self._read += len(line) + 1
            self._waits.append(line + b"\n")
            yield line

    def _replaced(self, seen: tuple[int, int]) -> None:
        """Nothing of a file that was written anew can be taken for known, unless it begins as our copy does."""
        began = self._seen != (0, 0)
        self._seen = seen
        if not began:
            return
        kept = self.kept() + b"".join(self._waits)
        assert self._path is not None, "only a file that is followed can be replaced"
        if kept and read_whole(self._path).startswith(kept):
            return
        self._read, self._waits = 0, []
        self._begin(b"")
        files.write_durably(self._copy, b"")

    def keep(self) -> SessionMark:
        """Make what was read durable; how far that is."""
        if self._waits:
            data = b"".join(self._waits)
            files.append_durably(self._copy, data, at=self.length)
            self._waits = []
            self.length += len(data)
            self._hash.update(data)
        return self.mark

    # -- the way back ----------------------------------------------------------------------------------------------

    def reconcile(self, path: Path) -> tuple[bytes, str]:
        """What the transcript should hold before its agent goes on, and what was wrong with it, in words."""
        ours, found = self.kept(), read_whole(path)
        whole = found[: found.rfind(b"\n") + 1]
        if not ours or whole.startswith(ours):
            torn = "its last line was torn" if len(whole) < len(found) else ""
            return whole, torn
        if not found:
            return ours, "it was gone"
        return ours, "it was shorter than our copy" if ours.startswith(whole) else "it was changed"

    def rebuild(self, path: Path, data: bytes) -> None:
        """Bring file and copy to this content; the file as it was is kept."""
        found = read_whole(path)
        if found != data:
            if found:
                stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
                files.write_durably(self._copy.with_name(f"{self._copy.stem}-found-{stamp}.jsonl"), found)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write_durably(path, data)
        if self.kept() != data:
            files.write_durably(self._copy, data)
        self._begin(data)
        self.follow(path, len(data))


def read_whole(path: Path) -> bytes:
    """A file's content, nothing where there is none; no more than is sensible of what grew without end."""
    try:
        with path.open("rb") as file:
            return file.read(READ_MAX_BYTES)
    except OSError:
        return b""


def _plain(session: str) -> str:
    """A session's name as part of a file name."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in session)[:100] or "_"
