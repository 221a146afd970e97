"""Git's patch as lines to show, file by file, and bounded: an agent wrote its content."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from outlast.dashboard.documents import FilePatch, Line
from outlast.operations.saves.diff import FileChange

FILE_LINES_MAX = 400
LINES_MAX = 4_000
LINE_CHARS_MAX = 2_000
BIG_LINES = 10_000  # of one file that differ: git would print little else
_SECTION = re.compile(rb"^diff --git ", re.MULTILINE)
_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@.*", re.DOTALL)
_MODES = (b"old mode ", b"new mode ", b"new file mode ", b"deleted file mode ")
_USUAL = b"100644"
_HEADER_LINES_MAX = 10


def wanted(files: Sequence[FileChange], among: Sequence[FileChange]) -> list[str]:
    """The files whose lines are worth asking git for: texts, of which not too much differs.

    A file in whose place there is a folder now would stand for all in it, too, when git is asked by its name.
    """
    folders = {path for file in among for path in _folders(file.path)}
    return [file.path for file in files if _is_small(file) and file.path not in folders]


def _is_small(file: FileChange) -> bool:
    if file.lines_added is None or file.lines_deleted is None:
        return False
    return file.lines_added + file.lines_deleted <= BIG_LINES


def _folders(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))


def patches(
    files: Iterable[FileChange], wanted: Collection[str], printed: bytes, *, whole: bool
) -> tuple[FilePatch, ...]:
    """The files with their lines: git printed those that are `wanted` in this order; `whole`: all of them, to the end."""
    pieces, left, made = _pieces(printed), LINES_MAX, []
    for file in files:
        if file.path not in wanted:
            made.append(FilePatch(file=file, lines=(), cut=file.lines_added is not None))
            continue
        count = 2 if file.change == "kind" else 1  # what became a link is printed as deleted, then as new
        mine, pieces = pieces[:count], pieces[count:]
        lines = [line for piece in mine for line in _lines(piece)]
        shown = lines[: min(FILE_LINES_MAX, left)]
        left -= len(shown)
        cut = len(shown) < len(lines) or (not whole and not pieces)
        made.append(FilePatch(file=file, lines=tuple(shown), cut=cut))
    return tuple(made)


def _pieces(printed: bytes) -> list[bytes]:
    """One piece for each file: inside one, no line begins as its first one does."""
    starts = [found.start() for found in _SECTION.finditer(printed)]
    return [printed[start:end] for start, end in pairwise([*starts, len(printed)])]


def _lines(piece: bytes) -> Iterator[Line]:
    """The lines of one file with their numbers on both sides; one more than are ever shown."""
    old = new = 0
    inside = False
    raw = piece.removesuffix(b"\n").split(b"\n", FILE_LINES_MAX + _HEADER_LINES_MAX)
    for line in raw[: FILE_LINES_MAX + _HEADER_LINES_MAX]:
        sign, rest = line[:1], line[1:]
        hunk = _HUNK.fullmatch(line) if sign == b"@" else None
        if hunk is not None:
            old, new, inside = int(hunk[1]), int(hunk[2]), True
            yield Line(kind="hunk", old=None, new=None, text=_text(line))
        elif not inside:
            if line.startswith(_MODES) and not line.endswith(_USUAL):
                yield Line(kind="note", old=None, new=None, text=_text(line))
        elif sign == b"+":
            yield Line(kind="added", old=None, new=new, text=_text(rest))
            new += 1
        elif sign == b"-":
            yield Line(kind="deleted", old=old, new=None, text=_text(rest))
            old += 1
        elif sign == b"\\":
            yield Line(kind="note", old=None, new=None, text=_text(rest.strip()))
        else:
            yield Line(kind="context", old=old, new=new, text=_text(rest))
            old, new = old + 1, new + 1


def _text(line: bytes) -> str:
    """A line as text; bytes that are not UTF-8 are escaped, and a very long line is cut."""
    text = line[: 4 * LINE_CHARS_MAX].decode("utf-8", "backslashreplace")
    return text if len(text) <= LINE_CHARS_MAX else text[: LINE_CHARS_MAX - 1] + "…"
