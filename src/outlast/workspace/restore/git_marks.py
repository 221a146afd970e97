"""After a power cut: the small files by which git knows a repository (HEAD, its settings, a worktree's pointers), when they are blank.

Without them git finds no repository, so this comes before any save is made or looked for in it."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from outlast.errors import SaveError
from outlast.store.durable import read_plain
from outlast.workspace import saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.capture.special.nested_repos import pointed_git_dir
from outlast.workspace.git import command, objects
from outlast.workspace.git.git_dir import git_dir_form
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.restore import recreate, revive
from outlast.workspace.restore.worktree import write_over
from outlast.workspace.types import raw, text
from outlast.workspace.vault import identity, record

_MARK_BYTES_MAX = 1 << 16
_HEAD, _POINTER, _BACK, _CONFIG = "HEAD", "commondir", "gitdir", "config"


class _Source(NamedTuple):
    """Where the save is, and what it noted."""

    held: saves.SaveContents
    common_dir: Path
    vault: Path
    algo: objects.Algo
    noted: dict[bytes, bytes]


def mend(saver: Saver, commit: str, boot_id: str) -> str:
    """Write blank ones again as a save from another boot has them; say which, empty if none is blank or none was saved."""
    blank = list(_blank(saver.folder))
    if not blank:
        return ""
    with contextlib.suppress(SaveError, OSError):
        source = _source(saver, commit)
        if source is None or source.held.meta.shadow or source.held.meta.boot_id == boot_id:
            return ""
        saves.check_names(source.held)
        with saver.lock():
            done = [*_mended(saver.folder, source)]
        saver.close()  # what it knew of the repository is from before
        if done:
            names = ", ".join(done)
            return f"after the reboot, in the repository of {saver.folder}: {names} had no content; back as in save {commit[:12]}"
    return ""


def _blank(folder: Path) -> Iterator[Path]:
    """The files of a repository at this folder, if it is one, that a cut left without their content."""
    marker = folder / ".git"
    if _is_blank(marker):
        yield marker
        return
    git_dir = _git_dir(folder)
    if git_dir is None:
        return
    for name in (_HEAD, _POINTER, _BACK):
        if _is_blank(git_dir / name):
            yield git_dir / name
    common = _common(git_dir)
    if common is not None and _is_blank(common / _CONFIG):
        yield common / _CONFIG


def _mended(folder: Path, source: _Source) -> Iterator[str]:
    """One after the other, because each shows where the next ones are."""
    marker, meta = folder / ".git", source.held.meta
    if _is_blank(marker):
        linked = _linked(source.common_dir, folder) if meta.linked else source.common_dir
        if linked is None:
            return
        yield _write(marker, b"gitdir: %b\n" % os.fsencode(linked))
    git_dir = _git_dir(folder)
    if git_dir is None or not git_dir.is_dir():
        return
    if _is_blank(git_dir / _POINTER):
        common = os.path.relpath(source.common_dir, git_dir)
        yield _write(git_dir / _POINTER, os.fsencode(common) + b"\n")
    if _is_blank(git_dir / _BACK):
        yield _write(git_dir / _BACK, os.fsencode(marker) + b"\n")
    if _is_blank(source.common_dir / _CONFIG):
        settings = revive.settings_of(
            source.noted, folder, source.common_dir, source.vault, source.algo, linked=meta.linked
        )
        yield _write(source.common_dir / _CONFIG, settings)
    if _is_blank(git_dir / _HEAD) and (meta.branch or meta.head):
        branch = raw(meta.branch)
        yield _write(git_dir / _HEAD, b"ref: %b\n" % branch if branch else f"{meta.head}\n".encode())


def _linked(common: Path, folder: Path) -> Path | None:
    """The git folder of the worktree here; where its pointer back is blank too, the only one whose pointer is."""
    blank = [note.parent for note in (common / "worktrees").glob(f"*/{_BACK}") if _is_blank(note)]
    return recreate.linked_worktree(common, folder) or (blank[0] if len(blank) == 1 else None)


def _write(path: Path, data: bytes) -> str:
    write_over(os.fsencode(path), data)
    return path.name


def _source(saver: Saver, commit: str) -> _Source | None:
    """The save, in whichever vault of this folder has it: what git says of the repository now leads nowhere."""
    shown = text(saver.folder)
    for vault, owner in identity.all_vaults(identity.vaults_of(saver.private)):
        if shown not in owner.folders or not owner.common_dir:
            continue
        algo = objects.algo_named(git_dir_form(vault))
        reader = ObjectReader(vault, command.environment())
        try:
            held = saves.read(reader, commit, algo)
            noted = revive.noted_in(held.entries.get(record.ENTRY), reader, algo)
            return _Source(held, Path(os.fsdecode(raw(owner.common_dir))), vault, algo, noted)
        except SaveError:
            continue  # of another repository that was here
        finally:
            reader.close()
    return None


def _git_dir(folder: Path) -> Path | None:
    marker = folder / ".git"
    if marker.is_dir():
        return marker.resolve()
    with contextlib.suppress(OSError):
        pointer = read_plain(marker)
        if pointer.startswith(b"gitdir: "):
            return pointed_git_dir(folder, pointer)
    return None


def _common(git_dir: Path) -> Path | None:
    """The git folder that all worktrees share; None where the pointer to it is blank."""
    pointer = git_dir / _POINTER
    if not os.path.lexists(pointer):
        return git_dir
    with contextlib.suppress(OSError):
        inner = os.fsdecode(read_plain(pointer)).strip("\0\n")
        return (git_dir / inner).resolve() if inner else None
    return None


def _is_blank(path: Path) -> bool:
    """Whether a file has no content, or only zeros."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_size <= _MARK_BYTES_MAX:
            return not read_plain(path).strip(b"\0")
    return False
