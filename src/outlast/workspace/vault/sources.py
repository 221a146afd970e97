"""The object folders of a user's repository: where they are, and what is in them. Reads only, and without git."""

import contextlib
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from outlast.store.durable import read_plain
from outlast.workspace.git.objects import Algo

DEPTH_MAX = 5  # as git
_HEX2 = re.compile(r"[0-9a-f]{2}")
_REST = re.compile(r"[0-9a-f]{38}(?:[0-9a-f]{24})?")
_PACK = re.compile(r"pack-[0-9a-f]+\.idx")


class Damaged(Exception):
    """A loose object that is not what its name says: empty after a power cut, for instance."""


class Big(Exception):
    """A loose object that takes more memory than its reader allows."""


def object_folders(common_dir: Path) -> list[Path]:
    """The object folder of a repository, and those that its alternates name, at any depth."""
    found: dict[str, Path] = {}
    todo = [(common_dir / "objects", 0)]
    while todo:
        folder, depth = todo.pop(0)
        real = os.path.realpath(folder)
        if real in found or not os.path.isdir(real) or depth > DEPTH_MAX:
            continue
        found[real] = Path(real)
        todo += [(each, depth + 1) for each in _alternates(Path(real))]
    return list(found.values())


def of_modules(common_dir: Path) -> list[Path]:
    """The git folders of submodules that lie in a repository's own, at any depth."""
    found: list[Path] = []
    for top in (common_dir / "modules", *common_dir.glob("worktrees/*/modules")):
        for folder, names, files in os.walk(top):
            if "HEAD" in files and "objects" in names:
                found.append(Path(folder))
                names[:] = [name for name in names if name == "modules"]
    return found


def _alternates(objects: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for line in read_plain(objects / "info" / "alternates").split(b"\n"):
            if line.strip() and not line.startswith(b"#"):
                yield objects / os.fsdecode(_unquoted(line))


def _unquoted(line: bytes) -> bytes:
    if not (line.startswith(b'"') and line.endswith(b'"') and len(line) > 1):
        return line
    return line[1:-1].decode("unicode_escape").encode("latin-1")


def loose_folders(objects: Path) -> dict[str, int]:
    """The folders of loose objects, and when each was last changed."""
    found = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(objects) as entries:
        for entry in entries:
            if _HEX2.fullmatch(entry.name) and entry.is_dir():
                with contextlib.suppress(FileNotFoundError):
                    found[entry.name] = os.stat(entry.path).st_mtime_ns
    return found


def loose_in(objects: Path, folder: str) -> list[str]:
    """The loose objects in one of these folders."""
    with contextlib.suppress(FileNotFoundError):
        return [folder + name for name in os.listdir(objects / folder) if _REST.fullmatch(name)]
    return []


def loose_path(objects: Path, oid: str) -> str:
    """Where a loose object is."""
    return f"{objects}/{oid[:2]}/{oid[2:]}"


def read_loose(objects: Path, oid: str, algo: Algo, *, bytes_max: int | None = None) -> tuple[str, bytes]:
    """Kind and content of a loose object. Raises Damaged where it is not what its name says, and Big above `bytes_max`."""
    packed = _read(loose_path(objects, oid), bytes_max)
    squeezed = zlib.decompressobj()
    try:
        whole = squeezed.decompress(packed, bytes_max or 0)
        if squeezed.unconsumed_tail:
            raise Big(oid)
    except zlib.error as error:
        raise Damaged(oid) from error
    if not squeezed.eof or algo.new(whole).hexdigest() != oid:
        raise Damaged(oid)
    header, _, data = whole.partition(b"\0")
    return header.split()[0].decode(), data


def _read(path: str, bytes_max: int | None) -> bytes:
    """A file's bytes, with as few calls as possible: there may be many thousands of files."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        file_stat = os.fstat(fd)
        if not stat.S_ISREG(file_stat.st_mode):
            raise Damaged(path)
        if bytes_max is not None and file_stat.st_size > bytes_max:
            raise Big(path)
        data = os.read(fd, file_stat.st_size + 1)
        while len(data) < file_stat.st_size and (more := os.read(fd, file_stat.st_size - len(data))):
            data += more
        return data
    finally:
        os.close(fd)


def packs_in(objects: Path) -> list[str]:
    """The names of the packs that git sees, without their endings."""
    with contextlib.suppress(FileNotFoundError):
        names = set(os.listdir(objects / "pack"))
        found = [name.removesuffix(".idx") for name in sorted(names) if _PACK.fullmatch(name)]
        return [name for name in found if f"{name}.pack" in names]
    return []


def pack_stamp(objects: Path) -> int:
    """Changes when a pack is added or removed."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(objects / "pack").st_mtime_ns
    return 0
