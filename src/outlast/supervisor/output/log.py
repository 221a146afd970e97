"""Write the log of an attempt: the command's output made harmless, in lines with time and stream, within a limit."""

import os
from collections import deque
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from outlast.store import durable
from outlast.supervisor.launch import launch
from outlast.supervisor.output.sanitize import Cleaner, Stream, stamp
from outlast.supervisor.timing import Timing

OURS: Final = "---"  # in the place of the stream: a line of outlast's own
PART_BYTES = 4 << 20
LAST_PARTS = 4  # with the first one: 20 MiB, the first 4 and the last 12 to 16
QUEUE_BYTES = 12 << 20


class Log:
    """The log of one attempt. An error never stops the relay: it is kept in `failed`, and nothing more is written.

    `attempt-3.log` is the beginning; `attempt-3.000004194304.log` is a later part, named by its offset in the whole, so
    that a gap between two parts shows. `log_reader` reads it back.
    """

    def __init__(
        self,
        folder: Path,
        attempt: int,
        begun: datetime,
        *,
        part_bytes: int = PART_BYTES,
        queue_bytes: int = QUEUE_BYTES,
        timing: Timing | None = None,
    ) -> None:
        # after that the beginning of a line is shown
        self.partial_age = timedelta(seconds=(timing or Timing.current()).partial_line_s)
        self.folder, self.attempt = folder, attempt
        self.failed = ""
        self.taken = 0
        self._part_bytes, self._queue_bytes = part_bytes, queue_bytes
        self._queue: deque[tuple[Stream, bytes, datetime]] = deque()
        self._queued = self._dropped = 0
        known = launch.known_secrets()
        self._cleaners: dict[Stream, Cleaner] = {"out": Cleaner("out", known), "err": Cleaner("err", known)}
        self._last: deque[Path] = deque()
        self._fd = -1
        self._size = self._part_size = self._removed = 0
        self._open()
        self.note(f"attempt {attempt}, begun {begun.astimezone():%Y-%m-%d %H:%M:%S %z}", begun)

    @property
    def path(self) -> Path:
        """The file of its first part."""
        return part_path(self.folder, self.attempt, 0)

    # -- taking ----------------------------------------------------------------------------------------------------

    def put(self, stream: Stream, data: bytes, at: datetime) -> None:
        """Take some output. After the first part it only waits here, and `work` writes it; too much of it is dropped."""
        self.taken += len(data)
        if self.failed:
            return
        self._queue.append((stream, data, at))
        self._queued += len(data)
        while self._queue and self._size < self._part_bytes:
            self.work()
        while self._queued > self._queue_bytes:
            _, lost, _ = self._queue.popleft()
            self._queued -= len(lost)
            self._dropped += len(lost)

    def note(self, text: str, at: datetime) -> None:
        """Write a line of outlast's own, after all output taken before."""
        while self._queue:
            self.work()
        self._write(f"{stamp(at)} {OURS}| {text}\n")

    @property
    def waits(self) -> bool:
        """Whether output waits to be written."""
        return bool(self._queue)

    @property
    def partial_since(self) -> datetime | None:
        """Since when the log has held back the beginning of a line; None if it has none."""
        return min((each.since for each in self._cleaners.values() if each.since), default=None)

    def work(self) -> None:
        """Write one piece of the output that waits."""
        if not self._queue:
            return
        stream, data, at = self._queue.popleft()
        self._queued -= len(data)
        if self._dropped:
            self._flush(at, all_of_it=True)
            text = f"{self._dropped:,} bytes of output came too fast and are not in this log"
            self._dropped = 0
            self._write(f"{stamp(at)} {OURS}| {text}\n")
        self._write(self._cleaners[stream].take(data, at))

    def show_partial(self, now: datetime) -> None:
        """Write the beginning of lines that have waited long for their end."""
        for cleaner in self._cleaners.values():
            if cleaner.since is not None and now - cleaner.since >= self.partial_age:
                self._write(cleaner.flush(now, all_of_it=False))

    def close(self, at: datetime) -> None:
        """Write all that waits, and make it durable."""
        while self._queue:
            self.work()
        self._flush(at, all_of_it=True)
        removed = f"; {self._removed:,} bytes of this log were not kept" if self._removed else ""
        self.note(f"end of {self.taken:,} bytes of output{removed}", at)
        try:
            for path in (self.path, *list(self._last)[:-1]):
                _sync(path)
            if self._fd >= 0:
                os.fsync(self._fd)
            durable.sync_folder(self.folder)
        except OSError as error:
            self._fail(error)
        self._close()

    def _flush(self, at: datetime, *, all_of_it: bool) -> None:
        for cleaner in self._cleaners.values():
            self._write(cleaner.flush(at, all_of_it=all_of_it))

    # -- parts -----------------------------------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        if not text or self.failed:
            return
        view = memoryview(text.encode("utf-8", "backslashreplace"))
        if self._part_size and self._part_size + len(view) > self._part_bytes:
            self._rotate()
        try:
            while view:
                written = os.write(self._fd, view)
                self._size, self._part_size = self._size + written, self._part_size + written
                view = view[written:]
        except OSError as error:
            self._fail(error)

    def _rotate(self) -> None:
        """Begin a part; of the later ones only the last stay."""
        self._close()
        self._part_size = 0
        self._open()
        try:
            while len(self._last) > LAST_PARTS:
                oldest = self._last.popleft()
                size = oldest.stat().st_size
                oldest.unlink()
                self._removed += size
        except OSError as error:
            self._fail(error)

    def _open(self) -> None:
        path = part_path(self.folder, self.attempt, self._size)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            durable.make_folder(self.folder)
            self._fd = os.open(path, flags, 0o600)
        except OSError as error:
            self._fail(error)
        if path != self.path:
            self._last.append(path)

    def _fail(self, error: OSError) -> None:
        self.failed = self.failed or f"{error.strerror}: {self.path}"
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def part_path(folder: Path, attempt: int, start: int) -> Path:
    """The file of a part that begins so many bytes into the log."""
    return folder / (f"attempt-{attempt}.{start:012d}.log" if start else f"attempt-{attempt}.log")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
