"""Our copy of an agent's own transcript, durable at each save point, and the way back from it."""

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from outlast.core.values import SessionMark
from outlast.operations.transfer import sessions
from outlast.store import durable

READ_MAX_BYTES = 256 << 20
BESIDE_MAX_BYTES = 64 << 20
LAST_BYTES = 256


class Mirror:
    """The copy of one session's transcript, in whole lines.

    A transcript that a kill left short, torn or gone is made whole from the copy. A transcript that is longer than the copy
    is kept: the beat in flight, or turns that a person made by hand. The file as it was found is kept beside the copy. The
    copy only grows, also when somebody removes the transcript under a live agent.
    """

    def __init__(self, folder: Path, agent: str, session: str) -> None:
        self.agent, self.session = agent, session
        self._copy = folder / sessions.name_of(agent, session)
        self._path: Path | None = None
        self._seen: tuple[int, int] = (0, 0)  # the file that is followed
        self._read = 0
        self._last = b""  # the end of what was read of it
        self._waits: list[bytes] = []
        self._unflushed = True  # the copy has lines that a power cut may take, perhaps of a killed attempt
        self._named = False  # the copy's name is durable
        self._again: Counter[bytes] = (
            Counter()
        )  # lines of the copy that a file written anew may hold once more
        self._beside: dict[
            Path, tuple[int, int]
        ] = {}  # files that a resume needs as well, as they were copied last
        self._begin(self.content())

    def _begin(self, content: bytes) -> None:
        self.length = len(content)
        self._hash = hashlib.blake2b(content, digest_size=16)

    @property
    def path(self) -> Path | None:
        return self._path

    @property
    def mark(self) -> SessionMark:
        """How far the copy has come."""
        path = str(self._path) if self._path is not None else ""
        return SessionMark(self.agent, self.session, path, self.length, self._hash.hexdigest())

    def content(self) -> bytes:
        """The copy's content, without a torn last line."""
        data = read_whole(self._copy)
        return data[: data.rfind(b"\n") + 1]

    # -- following -------------------------------------------------------------------------------------------------

    def follow(self, path: Path, start: int = 0) -> None:
        """From now on, read this file from there on; what lies before is in the copy already."""
        self._path, self._read, self._again = path, start, Counter()
        self._last = b"\n" if start else b""
        with contextlib.suppress(OSError):
            status = path.stat()
            self._seen = (status.st_dev, status.st_ino)
        if not start:
            self._replaced()

    def news(self) -> Iterator[bytes]:
        """The whole lines since the last look; each one counts as read when it is handed out.

        A replaced or shortened file is read from its beginning; lines that the copy has are left out.
        """
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                is_same = (status.st_dev, status.st_ino) == self._seen and status.st_size >= self._read
                if not is_same or not self._ends_as_read(file):
                    self._seen = (status.st_dev, status.st_ino)
                    self._replaced()
                file.seek(self._read)
                data = file.read(READ_MAX_BYTES)
        except OSError:
            return
        for line in data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]:
            self._read += len(line) + 1
            self._last = line[-LAST_BYTES:] + b"\n"
            if self._again[line] > 0:
                self._again[line] -= 1
                continue
            self._waits.append(line + b"\n")
            yield line

    def _ends_as_read(self, file: BinaryIO) -> bool:
        """Whether the bytes read last still stand where they stood: a file may shrink and grow again."""
        file.seek(max(self._read - len(self._last), 0))
        return file.read(len(self._last)) == self._last

    def _replaced(self) -> None:
        """The file was rewritten or replaced: read on where the copy ends, else add its lines to the copy."""
        known = self.content() + b"".join(self._waits)
        assert self._path is not None, "only a file that is followed can be replaced"
        goes_on = not known or read_whole(self._path).startswith(known)
        self._read, self._last = (len(known), b"\n" if known else b"") if goes_on else (0, b"")
        self._again = Counter() if goes_on else Counter(known.split(b"\n"))

    def copy(self) -> None:
        """Copy everything that was read, safe from a kill. No power cut is waited for: no save point needs these lines yet."""
        if self._waits:
            data = b"".join(self._waits)
            durable.append(self._copy, data, at=self.length)
            self._waits, self._unflushed = [], True
            self.length += len(data)
            self._hash.update(data)

    def keep(self) -> SessionMark:
        """Make everything that was read durable. Returns the new mark."""
        self.copy()
        if self._unflushed and self.length:
            durable.flush(self._copy)
            if not self._named:
                durable.sync_folder(self._copy.parent)
            self._unflushed, self._named = False, True
        return self.mark

    # -- the way back ----------------------------------------------------------------------------------------------

    def reconcile(self, path: Path, mark: SessionMark | None = None) -> tuple[bytes, str]:
        """The content that the transcript must have before its agent goes on, and a text about its damage.

        Empty content with a text: neither the transcript nor the copy matches the save point's mark.
        """
        ours, found = self.content(), read_whole(path)
        whole = found[: found.rfind(b"\n") + 1]
        if not ours or whole.startswith(ours):
            if mark is not None and not (len(whole) >= mark.length if ours else sessions.is_as(mark, whole)):
                return b"", "it is not what the save point says, and neither is our copy"
            torn = "its last line was torn" if len(whole) < len(found) else ""
            return whole, torn
        if mark is not None and not sessions.is_as(mark, ours):
            is_whole = sessions.is_as(mark, whole)
            return (whole, "") if is_whole else (b"", "the transcript and our copy are both damaged")
        if not found:
            return ours, "it was gone"
        if ours.startswith(whole):
            return ours, "it was shorter than our copy"
        return ours + _after(whole, ours), "it was changed"

    def rebuild(self, path: Path, data: bytes) -> None:
        """Bring the file and the copy to this content; the file as it was found stays beside them."""
        found = read_whole(path)
        if found != data:
            if found:
                stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
                durable.write_durably(self._copy.with_name(f"{self._copy.stem}-found-{stamp}.jsonl"), found)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            durable.write_durably(path, data)
        if self.content() != data:
            durable.write_durably(self._copy, data)
        self._begin(data)
        self._waits = []
        self.follow(path, len(data))

    # -- what else a resume needs ----------------------------------------------------------------------------------

    def keep_beside(self, paths: Iterable[Path]) -> None:
        """Copy these small files as they are, where they have changed."""
        for path in paths:
            with contextlib.suppress(OSError):
                status = path.stat()
                seen = (status.st_mtime_ns, status.st_size)
                if self._beside.get(path) != seen and status.st_size <= BESIDE_MAX_BYTES:
                    durable.write_durably(self._copy_of(path), path.read_bytes())
                    self._beside[path] = seen

    def restore_beside(self, paths: Iterable[Path]) -> None:
        """Restore those of these files that are gone."""
        for path in paths:
            copy = self._copy_of(path)
            if not path.exists() and copy.exists():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                durable.write_durably(path, copy.read_bytes())

    def _copy_of(self, path: Path) -> Path:
        return self._copy.with_name(sessions.name_of(self.agent, self.session, path.name))


def _after(found: bytes, ours: bytes) -> bytes:
    """The rest of a rewritten file after the last line of our copy; nothing if the file does not have that line."""
    last = ours[ours.rfind(b"\n", 0, -1) + 1 :]
    at = (b"\n" + found).rfind(b"\n" + last)
    return found[at + len(last) :] if at >= 0 else b""


def read_whole(path: Path) -> bytes:
    """A file's content up to a limit; nothing if there is no file."""
    try:
        with path.open("rb") as file:
            return file.read(READ_MAX_BYTES)
    except OSError:
        return b""
