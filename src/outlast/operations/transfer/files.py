"""The files of a run that leaves for another store: its saves as a git bundle, and where they arrive."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from outlast import decoders, faults
from outlast.core import state as st
from outlast.core.values import scrub
from outlast.errors import SaveError, SaveFailed, UsageError, WorkspaceRefused
from outlast.operations.saves import find
from outlast.operations.saves.find import SHORT_CHARS
from outlast.operations.transfer import archive_file
from outlast.operations.transfer.archive_file import BUNDLE_MAX_BYTES, Bundle, Entry, Manifest
from outlast.runs import files_notes
from outlast.runs.opening import project
from outlast.store import durable
from outlast.store.local import Local
from outlast.store.protocol import Store
from outlast.workspace import bundles, repo, repo as workspace_repo, saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.git import command, refs
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.restore import restore
from outlast.workspace.restore.worktree import write_over
from outlast.workspace.types import Purpose, text
from outlast.workspace.vault import old_saves

# -- leaving -------------------------------------------------------------------------------------------------------


class Packed(NamedTuple):
    """The saves of a family in a file, and the untracked secrets of the newest that stay behind; or why there are none."""

    path: Path | None = None
    bundle: Bundle | None = None
    entry: Entry | None = None
    refs: int = 0
    secrets: tuple[str, ...] = ()
    why_not: str = ""


@contextlib.contextmanager
def packed(local: Local, head: st.RunState, family: Sequence[str], archive: Path) -> Iterator[Packed]:
    """The saves of a run and those below it, in a file beside the archive that is gone after the block.

    The archive is locked by its writer: what is found here was left by a killed export.

    On arrival they come into a repository that is there, as refs and nothing else, or into a new folder, as files. An import notes
    first what it is about to make, so that the same import, killed and started again, makes the same.
    """
    room = archive.with_name(f".{archive.name}.saves")
    shutil.rmtree(room, ignore_errors=True)
    try:
        yield _packed(local, head, family, room) if head.workspace else Packed()
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _packed(local: Local, head: st.RunState, family: Sequence[str], room: Path) -> Packed:
    try:
        place = _place(local, Path(os.path.realpath(head.workspace)))
        with ObjectReader(place.vault, command.environment()) as reader:
            _anchor(place, reader, head)
            names = [name for run in family for name in refs.list_refs(place.vault, f"refs/outlast/{run}/")]
            if not names:
                return Packed(why_not=f"no save of it is in the repository of {head.workspace}")
            newest = saves.newest(place, reader, head.run)
        room.mkdir(mode=0o700)
        path = (
            room / f"{os.urandom(6).hex()}.bundle"
        )  # a git that outlived a killed export may still write another
        header = bundles.make(place, names, path)
    except SaveError as error:
        return Packed(why_not=str(error))
    size = path.stat().st_size
    if size > BUNDLE_MAX_BYTES:
        return Packed(why_not=f"the saves take {size:,} bytes, and an export at most {BUNDLE_MAX_BYTES:,}")
    faults.point("export.bundled")
    secrets = tuple(each.path for each in newest.meta.secrets) if newest is not None else ()
    entry = Entry(size, archive_file.digest_of_file(path))
    return Packed(path, Bundle(header.form, place.shadow), entry, len(names), secrets)


def _place(local: Local, folder: Path) -> repo.Repo:
    """The repository that holds the saves of a folder, which may be gone."""
    if folder.is_dir():
        saver = find.open_saver(folder, local)
        try:
            return saver.repo()
        finally:
            saver.close()
    noted = repo.noted_place(local.private_of(folder))
    if noted is None:
        raise SaveFailed(f"it is not known where the saves of {folder} are")
    place = repo.of_lost(folder, local.private_of(folder), noted)
    old_saves.adopt(place, local.private_of(folder))
    return place


def _anchor(place: repo.Repo, reader: ObjectReader, head: st.RunState) -> None:
    """A fork that was never started has saves of its source only: give it a ref of its own, as its start would."""
    if not refs.list_refs(place.vault, f"refs/outlast/{head.run}/") and head.save_point:
        with contextlib.suppress(SaveError):
            meta = saves.read(reader, head.save_point, place.algo).meta
            ref = saves.ref_of(head.run, meta.kind, meta.at)
            refs.write_ref(place.vault, ref, head.save_point, old=None)


# -- notes ---------------------------------------------------------------------------------------------------------


class Note(msgspec.Struct, frozen=True):
    """What an import is about to make: the ids of its runs by those in the archive, and a folder, if that is new."""

    ids: dict[str, str]
    folder: str = ""


class Notes:
    """The note of one archive."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.note: Note | None = None
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            self.note = decoders.decode(path.read_bytes(), Note)

    def keep(self, note: Note) -> None:
        """Durable when it returns."""
        write_over(os.fsencode(self._path), msgspec.json.encode(note), 0o600)
        self.note = note
        faults.point("import.noted")

    def drop(self) -> None:
        """Forget the note: the import is complete."""
        self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def noted(local: Local, manifest: Manifest) -> Iterator[Notes]:
    """The note of an archive, for one import into this store at a time."""
    folder = local.importing
    durable.make_folder(folder)
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield Notes(folder / archive_file.digest_of(msgspec.json.encode(manifest)))
    finally:
        os.close(fd)


# -- arriving ------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """The workspace that a run gets; a new one is filled, one that is there keeps its files, branches and index."""

    folder: Path
    is_new: bool = False


class FilesBrought(msgspec.Struct, frozen=True, kw_only=True):
    """What came along of a run's files. `head_differs` where the repository is not where the run left its own."""

    workspace: str
    new: bool
    refs: int
    save: str = ""
    head: str = ""
    branch: str = ""
    head_differs: bool = False
    secrets: tuple[str, ...] = ()


def choose(
    local: Local, bundle: Bundle | None, run: str, given: Path | None, note: Note | None
) -> Target | None:
    """Where the files of a run go: the folder that was named, else the repository around the person, else a new folder.

    Raises UsageError, WorkspaceRefused for a folder that cannot be its workspace; nothing is changed.
    """
    if bundle is None:
        return _without_files(given)
    around = workspace_repo.workspace_around(Path.cwd())
    if given is not None:
        folder = Path(os.path.realpath(given))
    elif not bundle.shadow and os.path.lexists(around / ".git"):
        folder = around
    else:
        folder = local.imported(run)
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder", hint="name a clone, or a folder that does not exist yet"
        )
    under_way = note is not None and note.folder == text(folder)
    if under_way or not folder.is_dir() or not any(folder.iterdir()):
        return Target(folder, is_new=True)
    _refuse_other_kind(local, folder, bundle)
    return Target(folder)


def project_of(target: Target, bundle: Bundle | None) -> str:
    """The project that a start in this folder belongs to, also while its repository is still to be made."""
    if target.is_new and bundle is not None and not bundle.shadow:
        return scrub(str(target.folder / ".git"))
    return scrub(project.project_of(target.folder))


def _without_files(given: Path | None) -> Target | None:
    if given is None:
        return None
    if not given.is_dir():
        raise UsageError(
            f"{given} is not a folder, and the export has no files to make it from",
            hint="name the folder that the run is to work in",
        )
    return Target(Path(os.path.realpath(given)))


def _refuse_other_kind(local: Local, folder: Path, bundle: Bundle) -> None:
    """Saves of a repository go back into one only, and those of a plain folder into a plain folder."""
    is_repository = os.path.lexists(folder / ".git")
    if is_repository:
        saver = find.open_saver(folder, local)
        is_repository = not saver.repo().shadow
        saver.close()
    if is_repository == bundle.shadow:
        was, now = ("in no repository", "one") if bundle.shadow else ("in a repository", "none")
        raise WorkspaceRefused(
            f"the run worked {was}, and {folder} is {now}; nothing was changed",
            hint="name another folder with --workspace DIR; one that does not exist yet is made from the saves",
        )


def bring(
    store: Store, target: Target, bundle: Bundle, chunks: Iterable[bytes], ids: Mapping[str, str], head: st.RunState
) -> FilesBrought:  # fmt: skip
    """Bring the saves of an archive to where the run, whose head this is, will go on. Durable when it returns."""
    folder = target.folder
    if target.is_new:
        _make(folder, bundle)
    saver = find.open_saver(folder, store.local)
    try:
        place = saver.repo()
        if place.shadow != bundle.shadow:
            raise WorkspaceRefused(f"{folder} is not as it was a moment ago", hint="import again")
        taken = bundles.take_in(place, chunks, ids)
        held = _last(saver, head)
        if target.is_new and held is not None:
            _fill(saver, held, head)
        now = repo.head(place)
        differs = held is not None and now != repo.Head(held.meta.head, held.meta.branch)
    finally:
        saver.close()
    brought = FilesBrought(workspace=text(folder), new=target.is_new, refs=len(taken))
    if held is None:
        return brought
    return msgspec.structs.replace(
        brought, save=held.commit, head=held.meta.head, branch=held.meta.branch, head_differs=differs,
        secrets=tuple(each.path for each in held.meta.secrets),
    )  # fmt: skip


def _make(folder: Path, bundle: Bundle) -> None:
    """A new folder; where the run worked in a repository, with one of its own."""
    durable.make_folder(folder)
    if not bundle.shadow:
        words = ["init", "--quiet", "--template=", f"--object-format={bundle.form}", str(folder)]
        command.run(words, cwd=folder)


def _last(saver: Saver, head: st.RunState) -> saves.SaveContents | None:
    """The files as the run left them: the last save that its events name and that came along."""
    for commit in (head.last_save, head.save_point):
        with contextlib.suppress(SaveError):
            return saves.read(saver.reader(), commit, saver.repo().algo)
    return None


def _fill(saver: Saver, held: saves.SaveContents, head: st.RunState) -> None:
    """Files, branch, HEAD and index as they were; and for the next attempt, that this is how the last one left them."""
    purpose = Purpose(
        kind="pre-restore",
        run=head.run,
        task=head.task,
        reason=f"before importing {held.commit[:SHORT_CHARS]}",
    )
    restore.restore(saver, held, purpose, restore.Options(force=True))
    left = files_notes.Left(head.run, head.attempts, held.meta.head, held.meta.branch, held.tree)
    files_notes.note(saver.private, left)
