"""The run's own copy of the code its hooks and shims run, so that upgrading outlast does not break a live agent.

This module decides what a copy contains and which Python runs it; `agent/calls/outward.py` uses it."""

import contextlib
import functools
import hashlib
import importlib.util
import marshal
import os
import shutil
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from outlast.errors import OutlastError
from outlast.store import durable

# Below the folder of outlast, with its layout: these find each other by their places. They import no library.
HELD = (
    "supervisor/client/hook.sh",
    "supervisor/client/hook.py",
    "supervisor/client/shim.py",
    "agents/outward/*.py",
    "agents/outward/*.toml",
    "agents/outward/shell/*.py",
    "agents/outward/targets/*.py",
)
HOOK = "supervisor/client/hook.sh"
SHIM = "supervisor/client/shim.py"
_CHECKED_HASH = (
    0b11  # Python's flags of byte code that counts only beside the source it was made from (PEP 552)
)
Seen = dict[str, tuple[int, int, int, int]]  # by a file's name: what the file system says of it
DAMAGED = "hooks"  # the level of the warning that this copy is damaged; the number of the attempt follows


def interpreter() -> str:
    """The Python below the virtual environment that we run in: it stays when the environment is removed.

    Hooks and shims need no library, so they need no environment.
    """
    below: str = getattr(sys, "_base_executable", "")
    return below if os.path.isabs(below) and os.access(below, os.X_OK) else sys.executable


def place(folder: Path) -> Path:
    """The copy below `folder`, whole when this returns. Its name says its content, so that none is written over.

    Only the attempt that holds the run calls this, and the processes of earlier attempts are stopped by then. So whatever
    else is there is removed: copies of another outlast, and what a kill left half-made. The copy is not flushed to the
    disk: what a power cut takes from it no living agent needs, and the next attempt looks.
    """
    held = contents()
    copy = folder / _name(held)
    is_whole = not _damage(copy, held, {})
    if not is_whole and copy.exists():  # damaged: only a power cut or a person does that
        with contextlib.suppress(OSError):
            copy.rename(folder / f".{copy.name}.damaged.{os.getpid()}")
    for other in folder.glob("*"):
        if other != copy:
            shutil.rmtree(other, ignore_errors=True)
    if not is_whole:
        _make(copy, held)
    return copy


def _make(copy: Path, held: Mapping[str, bytes]) -> None:
    """Make the whole copy or nothing. Only its owner may enter its folders."""
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = copy.with_name(f".{copy.name}.{os.getpid()}")
    try:
        for folder in sorted({new / parent for name in held for parent in Path(name).parents}):
            folder.mkdir(mode=0o700)
        for name, data in held.items():
            with open(new / name, "wb", opener=durable.opener) as file:
                file.write(data)
        new.rename(copy)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def remove(folder: Path) -> None:
    """Remove every copy below `folder`: the run is over, and no agent of it lives."""
    shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def contents() -> Mapping[str, bytes]:
    """The files by their names. Read once: later attempts of this supervisor have the same, whatever is installed then.

    Byte code is among them. Hooks and shims write none: Python takes what a full disk or a power cut left of such a file
    for whole, and then they would fail at every call.

    Raises OutlastError if they are gone: an agent without hooks is not started.
    """
    package = Path(__file__).parents[2]
    paths = sorted(path for each in HELD for path in package.glob(each))
    try:
        found = {str(path.relative_to(package)): path.read_bytes() for path in paths}
    except OSError as error:
        raise _gone(error.filename) from error
    for each in HELD:
        if not any(fnmatchcase(name, each) for name in found):
            raise _gone(package / each)
    return found | dict(_compiled(name, data) for name, data in found.items() if name.endswith(".py"))


def _compiled(name: str, source: bytes) -> tuple[str, bytes]:
    """The byte code of a file, and the place where its folder's Python looks for it, whatever we were started with."""
    code = marshal.dumps(compile(source, name, "exec", dont_inherit=True, optimize=0))
    head = importlib.util.MAGIC_NUMBER + _CHECKED_HASH.to_bytes(4, "little")
    path = Path(name)
    place = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
    return str(place), head + importlib.util.source_hash(source) + code


def _gone(path: object) -> OutlastError:
    return OutlastError(
        f"outlast is being removed or replaced: {path} is gone",
        hint="start the run again when outlast is installed",
    )


def _name(held: Mapping[str, bytes]) -> str:
    hasher = hashlib.blake2b(digest_size=8)
    for name, data in held.items():
        hasher.update(f"{name}\0{len(data)}\0".encode() + data)
    return hasher.hexdigest()


def damage(folder: Path, seen: Seen | None = None) -> str:
    """The damage of the copy that this process placed below `folder`; empty if it is whole.

    `seen`: what earlier looks found whole, to be given again: a file is read anew when the file system says that it changed.
    """
    return _damage(folder / _own_name(), contents(), {} if seen is None else seen)


@functools.cache
def _own_name() -> str:
    return _name(contents())


def _damage(copy: Path, held: Mapping[str, bytes], seen: Seen) -> str:
    for name, data in held.items():
        try:
            found = os.stat(f"{copy}/{name}")
            state = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if seen.get(name) == state:
                continue
            if (copy / name).read_bytes() != data:
                return f"{copy / name} was changed"
            seen[name] = state
        except OSError as error:
            return f"{copy / name} cannot be read ({error.strerror})"
    return ""
