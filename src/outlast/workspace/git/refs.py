"""Refs that are durable when written, and the names of branches. No reflog, no hook.

`git_dir` is the common folder of a repository's worktrees. See `write_ref` for the locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import time
from collections.abc import Container, Iterator
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

from outlast import faults
from outlast.errors import SaveDamaged, SaveFailed
from outlast.store import locks
from outlast.store.durable import read_plain, sync_folder
from outlast.workspace import nowhere
from outlast.workspace.git import command
from outlast.workspace.timing import Timing

SYMREF_HOPS_MAX = 5
BRANCH_BYTES_MAX = 100

_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_BAD_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^/|/$|\.$|(?:^|/)\.|\.lock(?:/|$)")


class _Any(Enum):
    ANY = "any"


ANY: Final = _Any.ANY
"""For `old`: replace whatever value the ref has."""

_durable: dict[Path, tuple[int, int]] = {}  # folders whose names this process made durable

Old = str | None | Literal[_Any.ANY]


# --- reading ---


def read_ref(git_dir: Path, ref: str) -> str | None:
    """The oid a ref leads to, or None. Raises SaveDamaged if its file holds something else.

    An empty file counts as no ref, for git as for us: a power cut leaves one for a branch that was just made.
    """
    for _ in range(SYMREF_HOPS_MAX):
        if _is_reftable(git_dir):
            return _git_list(git_dir, ref).get(ref)
        text = _read_loose(git_dir, ref)
        if text is None:
            return _read_packed(git_dir).get(ref)
        if not text:
            return None
        if not text.startswith("ref: "):
            return _checked(git_dir, ref, text)
        ref = text.removeprefix("ref: ").strip()
    raise SaveDamaged(f"the ref {ref} in {git_dir} leads in a circle")


def is_head(oid: str, branch: str) -> bool:
    """Whether this can be HEAD: a commit or none yet, on a branch or detached."""
    named = not branch or (branch.startswith("refs/") and not _BAD_REF.search(branch))
    return named and (not oid or _OID.fullmatch(oid) is not None)


def list_refs(git_dir: Path, prefix: str) -> dict[str, str]:
    """Every ref with this prefix, by name. Damaged and symbolic ones are left out; `read_ref` says why."""
    if _is_reftable(git_dir):
        return {name: oid for name, oid in _git_list(git_dir, "").items() if name.startswith(prefix)}
    found = {name: oid for name, oid in _read_packed(git_dir).items() if name.startswith(prefix)}
    for name in _loose_names(git_dir, prefix):
        text = _read_loose(git_dir, name)
        if text is not None and _OID.fullmatch(text):
            found[name] = text
        elif text is not None:
            found.pop(name, None)
    return dict(sorted(found.items()))


def _loose_names(git_dir: Path, prefix: str) -> Iterator[str]:
    todo = [prefix.rpartition("/")[0] or "refs"]
    while todo:
        folder = todo.pop()
        try:
            entries = list(os.scandir(git_dir / folder))
        except OSError as error:
            if nowhere.is_nowhere(error):
                continue
            raise
        for entry in entries:
            name = f"{folder}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                todo.append(name)
            elif name.startswith(prefix) and not name.endswith(".lock"):
                yield name


def _read_loose(git_dir: Path, ref: str) -> str | None:
    try:
        return read_plain(git_dir / ref).decode("utf-8", "surrogateescape").strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise SaveFailed(f"cannot read the ref {ref} in {git_dir}: {error.strerror}") from error


def _read_packed(git_dir: Path) -> dict[str, str]:
    """The refs in `packed-refs`. Its other lines are comments and peeled tags."""
    try:
        lines = read_plain(git_dir / "packed-refs").split(b"\n")
    except FileNotFoundError:
        return {}
    pairs = (os.fsdecode(line).split(" ", 1) for line in lines if line[:1] not in (b"", b"#", b"^"))
    return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}


def _checked(git_dir: Path, ref: str, text: str) -> str:
    if not _OID.fullmatch(text):
        raise SaveDamaged(f"the ref {ref} in {git_dir} holds {text[:80]!r}")
    return text


# --- writing ---


def write_ref(git_dir: Path, ref: str, oid: str, *, old: Old) -> None:
    """Point a ref at a commit; durable when it returns. `old` is the value it must have now; None: it must not exist.

    Locks the ref as git does, by `<ref>.lock`. Ours is a symbolic link that names its owner, created atomically, so that
    the lock of a killed owner is recognised and taken over. Raises SaveFailed, with the ref unchanged, if it has another
    value or somebody holds its lock.
    """
    _check_name(ref)
    assert _OID.fullmatch(oid), f"not an oid: {oid!r}"
    if _is_reftable(git_dir):
        _git_write(git_dir, ref, oid, old)
        return
    with _translated(git_dir, ref), _locked(git_dir, ref):
        value = git_dir / f"{ref}.outlast.lock"  # only the lock's holder writes it, and git does not see it
        _write_durable(value, f"{oid}\n".encode())
        try:
            _compare(git_dir, ref, old)
            faults.point("save.before_ref")
            _rename(value, git_dir / ref)
        except BaseException:
            value.unlink(missing_ok=True)
            raise
        _sync_upwards(git_dir, ref)
        faults.point("save.ref_written")


def delete_ref(git_dir: Path, ref: str, old: Old) -> None:
    """Delete a ref, and the folders that become empty. `old` as in `write_ref`; with ANY a missing ref is fine."""
    _check_name(ref)
    if _is_reftable(git_dir) or ref in _read_packed(git_dir):
        _git_delete(git_dir, ref, old)
        return
    with _translated(git_dir, ref), _locked(git_dir, ref):
        _compare(git_dir, ref, old)
        (git_dir / ref).unlink(missing_ok=True)
        _sync_upwards(git_dir, ref)
    for folder in list((git_dir / ref).parents)[: ref.count("/") - 2]:
        try:
            folder.rmdir()
        except OSError:
            break  # not empty


def _check_name(ref: str) -> None:
    assert ref.startswith("refs/"), f"not a ref's name: {ref!r}"
    assert not _BAD_REF.search(ref), f"not a ref's name: {ref!r}"


def _compare(git_dir: Path, ref: str, old: Old) -> None:
    loose = _read_loose(git_dir, ref)
    packed = _read_packed(git_dir) if loose is None else {}
    if loose is None:
        _refuse_conflict(ref, packed)
    now = (loose or None) if loose is not None else packed.get(ref)
    if old is not ANY and now != old:
        raise SaveFailed(f"the ref {ref} in {git_dir} is {now or 'missing'}, expected {old or 'none'}")


def _refuse_conflict(ref: str, packed: dict[str, str]) -> None:
    """A ref cannot be both a file and a folder; git checks this for packed refs as well."""
    parts = ref.split("/")
    above = {"/".join(parts[:length]) for length in range(1, len(parts))}
    for name in packed:
        if name in above or name.startswith(f"{ref}/"):
            raise SaveFailed(f"cannot write the ref {ref} beside {name}")


def _write_durable(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        os.write(fd, data)
        os.fsync(fd)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def _rename(value: Path, place: Path) -> None:
    try:
        os.rename(value, place)
    except IsADirectoryError:
        for folder, _, _ in os.walk(place, topdown=False):  # git leaves empty folders where refs were
            os.rmdir(folder)
        os.rename(value, place)


def _sync_upwards(git_dir: Path, ref: str) -> None:
    """Sync the ref's folder, and once in a process those above it, new or not: a killed creator may not have done it."""
    folders = list((git_dir / ref).parents)[: ref.count("/") + 1]
    sync_folder(folders[0])
    for folder, above in pairwise(folders):
        folder_stat = folder.stat()
        if _durable.get(folder) != (folder_stat.st_dev, folder_stat.st_ino):
            sync_folder(above)
            _durable[folder] = folder_stat.st_dev, folder_stat.st_ino


@contextlib.contextmanager
def _translated(git_dir: Path, ref: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SaveFailed(f"cannot write the ref {ref} in {git_dir}: {error.strerror}") from error


# --- locks ---


@contextlib.contextmanager
def _locked(git_dir: Path, ref: str) -> Iterator[None]:
    lock = git_dir / f"{ref}.lock"
    timing = Timing.current()
    deadline = time.monotonic() + timing.ref_lock_wait_s
    while not _try_lock(lock):
        if time.monotonic() > deadline:
            raise SaveFailed(
                f"the ref {ref} in {git_dir} is locked by {_owner(lock) or 'another program'}",
                hint=f"if no git works there, remove {lock}",
            )
        time.sleep(timing.ref_lock_poll_s)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _try_lock(lock: Path) -> bool:
    try:
        if not lock.parent.is_dir():
            for folder in (
                lock.parent,
                *lock.parent.parents,
            ):  # of the same name and inode as one that was removed
                _durable.pop(folder, None)
            lock.parent.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:
        return False  # git removes empty folders, and just removed one of these
    except FileExistsError:
        if os.path.lexists(lock.parent):
            raise  # a file where a folder must be
        return False
    try:
        os.symlink(_myself(), lock)
    except FileNotFoundError:
        return False
    except FileExistsError:
        return _break_if_stale(lock) and _try_lock(lock)
    return True


def _myself() -> str:
    me = locks.myself()
    return f"outlast:{me.host}:{me.boot_id}:{me.pid_ns}:{me.pid}:{me.start_ticks}"


def _owner(lock: Path) -> str:
    """What a lock of ours says; empty for a lock of another program, or none."""
    try:
        text = os.readlink(lock)
    except OSError:
        return ""
    return text if text.startswith("outlast:") else ""


def _is_stale(owner: str) -> bool:
    """Whether the owner of a lock of ours is certainly dead: from another boot of this host, or gone."""
    try:
        host, boot, *space, pid, ticks = owner.split(":")[1:]
        started = int(ticks)
    except ValueError:
        return False
    me = locks.myself()
    if host != me.host:
        return False
    return boot != me.boot_id or (":".join(space) == me.pid_ns and locks.start_ticks(int(pid)) != started)


def _break_if_stale(lock: Path) -> bool:
    """Remove a dead owner's lock. One process at a time: a second one would remove the first one's new lock."""
    if not _is_stale(_owner(lock)):
        return False
    fd = os.open(lock.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        if not _is_stale(_owner(lock)):
            return False
        lock.with_suffix(".outlast.lock").unlink(missing_ok=True)
        lock.unlink(missing_ok=True)
        return True
    finally:
        os.close(fd)


def sweep_locks(git_dir: Path, prefix: str = "refs/outlast/") -> int:
    """Remove locks that killed writers left under a folder of refs, and new values without a lock; return how many."""
    removed = 0
    for folder, _, names in os.walk(git_dir / prefix):
        for name in names:
            if name.endswith(".outlast.lock"):
                removed += _remove_lone(Path(folder, name.removesuffix(".outlast.lock")))
            elif name.endswith(".lock"):
                removed += _break_if_stale(Path(folder, name))
    return removed


def _remove_lone(place: Path) -> bool:
    """Remove a value whose lock is gone: only the value is flushed, so a power cut may leave it alone."""
    lock, value = (place.with_name(f"{place.name}{end}") for end in (".lock", ".outlast.lock"))
    if os.path.lexists(lock) and not _break_if_stale(lock):
        return False
    if not _try_lock(lock):
        return False  # a process is writing here now
    try:
        value.unlink(missing_ok=True)
    finally:
        lock.unlink(missing_ok=True)
    return True


# --- repositories with reftables ---


def _is_reftable(git_dir: Path) -> bool:
    return os.path.exists(git_dir / "reftable")


def _git_list(git_dir: Path, pattern: str) -> dict[str, str]:
    words = ["for-each-ref", "--format=%(objectname) %(refname)", *([pattern] if pattern else [])]
    lines = os.fsdecode(command.run(words, git_dir=git_dir)).splitlines()
    return {name: oid for oid, _, name in (line.partition(" ") for line in lines)}


def _git_write(git_dir: Path, ref: str, oid: str, old: Old) -> None:
    """Git's own transaction, which is not durable by itself."""
    before = [] if old is ANY else [old or "0" * len(oid)]
    faults.point("save.before_ref")
    command.run(
        ["-c", "core.logAllRefUpdates=false", "update-ref", "--no-deref", ref, oid, *before], git_dir=git_dir
    )
    syncfs(git_dir)
    faults.point("save.ref_written")


def _git_delete(git_dir: Path, ref: str, old: Old) -> None:
    before = [] if old is ANY or old is None else [old]
    if old is None and read_ref(git_dir, ref) is not None:
        raise SaveFailed(f"the ref {ref} in {git_dir} exists, expected none")
    command.run(["update-ref", "--no-deref", "-d", ref, *before], git_dir=git_dir)
    syncfs(git_dir)


def syncfs(place: int | Path) -> None:
    """Flush everything on the file system of a descriptor or path."""
    import ctypes  # takes 5 ms, and most commands do not need it

    fd = place if isinstance(place, int) else os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if call is None:
            os.sync()
        elif call(fd):
            code = ctypes.get_errno()
            if code != errno.ENOSYS:
                raise OSError(code, os.strerror(code), str(place))
            os.sync()
    finally:
        if not isinstance(place, int):
            os.close(fd)


# --- names of branches ---


def task_branch(task: str, taken: Container[str]) -> str:
    """The branch of a task: `outlast/<task>`, or `outlast-<task>` if a branch called `outlast` exists.

    What git forbids in a name, and every slash, is percent-encoded, so that no two tasks share a branch and none is
    the folder of another. A long name is cut and ends with a digest.
    """
    name = _shortened("".join(_encoded_parts(task)), task) or "%"
    return f"outlast-{name}" if "outlast" in taken else f"outlast/{name}"


def _encoded_parts(task: str) -> Iterator[str]:
    end = len(task) - len(".lock") if task.endswith(".lock") else len(task) - 1
    before = "."  # so that a leading dot counts as the second of two
    for at, char in enumerate(task):
        bad = not char.isprintable() or char in ' ~^:?*[\\%/"'
        bad = bad or (char == "." and (before == "." or at == end)) or (char == "{" and before == "@")
        yield _percent(char) if bad else char
        before = char


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def _shortened(name: str, task: str) -> str:
    if len(name.encode()) <= BRANCH_BYTES_MAX:
        return name
    digest = hashlib.sha256(task.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    room = BRANCH_BYTES_MAX - len(digest) - 1
    cut = name.encode()[:room].decode(errors="ignore")
    return f"{re.sub('%[0-9A-F]?$', '', cut)}-{digest}"
