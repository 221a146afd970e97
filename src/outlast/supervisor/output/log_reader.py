"""Read the log of an attempt back, also while it is written, across dropped and cut-off parts and into the next attempts."""

import os
import re
import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from outlast.supervisor.output.log import OURS, part_path
from outlast.supervisor.timing import Timing

READ_BYTES = 1 << 20
LINE_BYTES_MAX = 1 << 20  # what we write is shorter; a file that somebody else wrote is cut into pieces
_NAME = re.compile(r"attempt-([0-9]{1,9})(?:\.([0-9]{12}))?\.log")
_LINE = re.compile(r"([0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]) (out|err|---)([|+]) (.*)", re.DOTALL)


_BEGUN = re.compile(r"attempt [0-9]{1,9}, begun ([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} [+-][0-9]{4})")
HEAD_BYTES = 200


class Span(msgspec.Struct, frozen=True):
    """When a log was begun, in its writer's time zone, and when it was written last; None if unknown."""

    begun: datetime | None = None
    written: datetime | None = None


class Line(msgspec.Struct, frozen=True):
    """A line of a log, taken apart. `continues` says that it goes on with the last line of its stream."""

    at: str
    stream: str
    text: str
    continues: bool = False


def parsed(line: str) -> Line:
    """A line of the log in its parts; a line that no log of ours has is a text without time and stream."""
    found = _LINE.fullmatch(line)
    if found is None:
        return Line("", OURS, line)
    return Line(found[1], found[2], found[4], found[3] == "+")


def attempts(folder: Path) -> list[int]:
    """The attempts of a run that have a log, oldest first."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted({int(found[1]) for name in names if (found := _NAME.fullmatch(name))})


def read_log(
    path: Path, *, follow: bool, stop: Callable[[], bool], timing: Timing | None = None
) -> Generator[str, None, None]:
    """The lines of the log that begins in this file; with `follow` also future lines, of the next attempts too.

    It ends when all is read; with `follow`, when `stop` was true before the last look.
    """
    found = _NAME.fullmatch(path.name)
    assert found is not None, f"{path.name} is the name of a log"
    reading = _Reading(path.parent, int(found[1]))
    poll_s = (timing or Timing.current()).log_poll_s
    while True:
        last_look = not follow or stop()
        # before the lines: nothing is added to them after that
        following = reading.later() if follow else None
        yield from reading.lines()
        if following is not None:
            yield from reading.rest()
            reading.go_to(following)
        elif last_look:
            yield from reading.rest()
            return
        else:
            time.sleep(poll_s)


def tail(folder: Path, attempt: int, bytes_max: int) -> tuple[list[str], int]:
    """The last whole lines of an attempt's log across its parts, and how many bytes before them are left out."""
    parts = sorted({0, *_starts(folder, attempt)})
    found, cut = b"", 0
    for start in reversed(parts):
        data, before = _end_of(part_path(folder, attempt, start), bytes_max - len(found))
        found, cut = data + found, cut + before
    if cut:
        beginning, _, rest = found.partition(b"\n")
        found, cut = rest, cut + len(beginning) + 1
    lines = found.decode(errors="backslashreplace").split("\n")
    return lines if lines[-1] else lines[:-1], cut


def span(folder: Path, attempt: int) -> Span:
    """When the log of an attempt was begun and written last."""
    begun = written = None
    for start in sorted({0, *_starts(folder, attempt)}):
        try:
            fd = os.open(
                part_path(folder, attempt, start), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except OSError:
            continue
        try:
            written = datetime.fromtimestamp(os.fstat(fd).st_mtime, UTC)
            head = (
                os.pread(fd, HEAD_BYTES, 0).partition(b"\n")[0].decode(errors="replace") if not start else ""
            )
        finally:
            os.close(fd)
        line = parsed(head)
        found = _BEGUN.fullmatch(line.text) if line.stream == OURS else None
        begun = _moment(found[1]) if found else begun
    return Span(begun, written)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        return None


def _end_of(path: Path, bytes_max: int) -> tuple[bytes, int]:
    """The end of a file, and how much is before it; nothing of one that is not there any more."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b"", 0
    try:
        size = os.fstat(fd).st_size
        begin = max(0, size - max(0, bytes_max))
        return os.pread(fd, size - begin, begin) if begin < size else b"", begin
    finally:
        os.close(fd)


def _starts(folder: Path, attempt: int) -> list[int]:
    """Where the later parts of a log begin."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (_NAME.fullmatch(name) for name in names)
    return [int(each[2]) for each in found if each and int(each[1]) == attempt and each[2]]


class _Reading:
    """How far one reader is: in which attempt, in which part of its log, and where in that."""

    def __init__(self, folder: Path, attempt: int) -> None:
        self._folder, self._attempt = folder, attempt
        self._start = self._at = 0
        self._file: int = -1
        self._held = b""

    def __del__(self) -> None:
        self._close()

    def lines(self) -> Iterator[str]:
        """The lines that are there now and were not read before."""
        while True:
            yield from self._part()
            starts = _starts(self._folder, self._attempt)
            following = min((start for start in starts if start > self._start), default=None)
            if following is None:
                return
            yield from self._part()  # what came before the writer went on to the next one
            yield from self._go_on(following)

    def later(self) -> int | None:
        """The next attempt that has a log, if any."""
        return min((each for each in attempts(self._folder) if each > self._attempt), default=None)

    def go_to(self, attempt: int) -> None:
        """Read the log of another attempt."""
        self._close()
        self._attempt, self._start, self._at = attempt, 0, 0

    def rest(self) -> Iterator[str]:
        """The beginning of a line whose writer was killed."""
        if self._held:
            yield self._held.decode(errors="backslashreplace")
            self._held = b""

    def _go_on(self, start: int) -> Iterator[str]:
        yield from self.rest()
        missing = start - self._start - self._at
        if missing > 0:
            yield f"{missing:,} bytes of this log were not kept"
        self._close()
        self._start, self._at = start, 0

    def _part(self) -> Iterator[str]:
        """The whole lines of one part from where we are; from its beginning again if it was cut off."""
        if self._file < 0:
            try:
                path = part_path(self._folder, self._attempt, self._start)
                self._file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                return
        if os.fstat(self._file).st_size < self._at:
            self._at, self._held = 0, b""
        while data := os.pread(self._file, READ_BYTES, self._at):
            self._at += len(data)
            *whole, self._held = (self._held + data).split(b"\n")
            yield from (line.decode(errors="backslashreplace") for line in whole)
            if len(self._held) > LINE_BYTES_MAX:
                yield from self.rest()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
