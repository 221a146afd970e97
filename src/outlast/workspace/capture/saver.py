"""Makes saves of one folder: looks, reads what changed into one pack, writes three commits and a ref.

`save.py` has the steps of one save; here is what lasts from save to save."""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from outlast.errors import SaveFailed
from outlast.store import durable, locks
from outlast.store.local import Local
from outlast.workspace import leftovers, lock as workspace_lock, repo, rules
from outlast.workspace.capture import refresh_index, stat_cache
from outlast.workspace.capture.files import Deadline
from outlast.workspace.capture.hints import HintTracker, folders_of
from outlast.workspace.capture.private_index import PrivateIndex
from outlast.workspace.capture.save import SaveInProgress
from outlast.workspace.capture.special import secrets as special_secrets
from outlast.workspace.compact.repack import consolidate
from outlast.workspace.git import command, refs
from outlast.workspace.git.packs import sweep
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.git.trees import Cache
from outlast.workspace.repo import Progress, Repo
from outlast.workspace.types import Purpose, Save, SavePreview, text
from outlast.workspace.vault import old_saves
from outlast.workspace.watch.watcher import Watcher


class Saver:
    """Saves one folder, one save at a time: a lock in the private folder keeps others out.

    A save is three commits. W (the worktree) has HEAD and I as parents; I (the index) has HEAD and M; M (meta.json, the
    raw index, unmerged stages, the files of a merge or rebase in progress, nested repositories) has the previous save's
    W. So one ref reaches them all.
    """

    def __init__(
        self, folder: Path, local: Local, *, limits: rules.Limits | None = None, shadow: bool = False
    ) -> None:
        self.folder = Path(os.path.realpath(folder))
        if os.path.lexists(self.folder):
            repo.refuse(self.folder)
        self.private = local.private_of(self.folder)
        with _translated(self.folder):
            durable.make_folder(self.private)
            _note(self.private / "folder", os.fsencode(self.folder) + b"\n")
        self.limits = limits or rules.Limits()
        self._shadow = shadow
        self._repo: repo.Repo | None = None
        self._mark: object = None
        self._base: PrivateIndex | None = None
        self._reader: ObjectReader | None = None
        self._vault_reader: ObjectReader | None = None
        self.trees: Cache = {}
        self._memo: stat_cache.Memo | None = None
        self._memo_stamp: stat_cache.Stamp = None
        self._boot_id = locks.boot_id()
        self._progress: Progress | None = None
        self._watching = False
        self._hinting: HintTracker | None = None
        self._distrusted = ""
        self._unskipped: frozenset[bytes] = frozenset()
        self.room = (
            0,
            0,
        )  # how many untracked files and bytes can be added before a folder may be over budget
        self._swept = False

    # -- the parts -----------------------------------------------------------------------------------------------

    def repo(self) -> repo.Repo:
        """The repository for the saves, looked up again when the folder's `.git` appeared, vanished or changed."""
        mark = None if self._shadow else repo.git_stamp(self.folder)
        if self._repo is None or self._mark != mark:
            self._let_go()
            self._mark = mark
            self._repo = repo.find(self.folder, self.private, shadow=self._shadow)
            old_saves.adopt(self._repo, self.private)
            repo.note_place(self._repo, self.private)
        return self._repo

    def lend(self, place: Repo) -> None:
        """Read saves from this repository while the folder is gone. Nothing can be saved; `close` ends it."""
        self._let_go()
        self._mark, self._repo = None, place

    def reader(self) -> ObjectReader:
        """The reader of the objects of the vault, and of the repository's that were not brought in yet."""
        place = self.repo()  # first, because it drops the reader of another repository
        if self._reader is None:
            self._reader = ObjectReader(place.vault, command.environment(place.seeing()))
        return self._reader

    def vault_reader(self) -> ObjectReader:
        """The reader of the vault alone: what it has is ours for good."""
        place = self.repo()
        if self._vault_reader is None:
            self._vault_reader = ObjectReader(place.vault, command.environment())
        return self._vault_reader

    def place_stamp(self) -> str:
        """Which repository the workspace is in: another one in its place has another stamp."""
        place = self.repo()
        if place.shadow:
            return ""
        with contextlib.suppress(OSError):
            return f"{place.git_dir.stat().st_ino} {text(place.git_dir)}"
        return "gone"

    def base(self) -> PrivateIndex:
        """The private index."""
        place = self.repo()
        if self._base is None:
            self._base = PrivateIndex(place, self.private)
        return self._base

    def progress(self) -> Progress:
        """A merge, rebase or bisect in progress."""
        if self._progress is None:
            self._progress = Progress(self.repo())
        return self._progress

    def close(self) -> None:
        """Stop the processes and the watcher."""
        self._watching = False
        self._let_go()

    def _let_go(self) -> None:
        for reader in (self._reader, self._vault_reader):
            if reader is not None:
                reader.close()
        if self._hinting is not None:
            self._hinting.watcher.close()
        self._repo = self._base = self._reader = self._vault_reader = None
        self._memo = self._progress = self._hinting = None

    # -- watching ------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Watch the folder from now on, so that the saves of beats look only at what changed.

        If watching is impossible or proves unreliable, every save looks at everything.
        """
        self._watching = True
        self.hinting()

    def hinting(self) -> HintTracker | None:
        """The hints since the last save; None if nobody watches."""
        place, base = self.repo(), self.base()
        if not self._watching or self._distrusted:
            return None
        if self._hinting is None:
            self._unskipped = _above(base.tracked_and_ignored())
            git_dirs = [] if place.shadow else [place.git_dir, place.common_dir]
            watcher = Watcher(
                self.folder, skip=partial(self._skip, base), git_dirs=list(dict.fromkeys(git_dirs))
            )
            self._hinting = HintTracker(watcher)
        return self._hinting

    def _skip(self, base: PrivateIndex, folders: list[bytes]) -> set[bytes]:
        """Folders that need no watch: ignored ones without a tracked file. The watcher's thread calls this as well."""
        return base.ignored(folders) - self._unskipped

    def skips_wrongly(self, forced: list[bytes]) -> bool:
        """Whether an unwatched folder has tracked files by now."""
        return not _above(forced) <= self._unskipped

    def skip_less(self, forced: list[bytes]) -> None:
        """Watch the folders of these files as well."""
        self._unskipped |= _above(forced)
        if self._hinting is not None:
            self._hinting.watcher.refresh()

    def _distrust(self) -> None:
        """After a change without an event: use no more hints, for good."""
        if self._hinting is not None and self._hinting.distrusted:
            self._distrusted = self._hinting.distrusted
            self._hinting.watcher.close()
            self._hinting = None

    @contextlib.contextmanager
    def lock(self, deadline: Deadline | None = None) -> Iterator[None]:
        """Hold the workspace: one save or restore at a time. Raises SaveFailed if the other one does not end."""
        fd = os.open(self.private / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            workspace_lock.take(fd, self.folder, deadline)
            yield
        finally:
            os.close(fd)

    # -- saving --------------------------------------------------------------------------------------------------

    def capture(
        self,
        purpose: Purpose,
        *,
        deadline_s: float | None = None,
        also: frozenset[bytes] = frozenset(),
        apart: frozenset[bytes] = frozenset(),
    ) -> Save | None:
        """Make a save, durable when it returns; None if there is nothing to save.

        It includes the files `also` whatever the rules say, because a restore is about to overwrite them. Secrets among
        them, and everything in `apart`, are stored beside the repository.
        """
        deadline = Deadline(deadline_s)
        with _translated(self.folder), self.lock(deadline):
            self._check_vault()
            self._sweep()
            hinting = self.hinting()
            try:
                return SaveInProgress(self, purpose, deadline, hinting, also, apart).make()
            except BaseException:
                self._memo = None
                if hinting is not None:
                    hinting.forget("the last save failed")
                raise
            finally:
                self._distrust()

    def _check_vault(self) -> None:
        """Nobody is to believe that earlier saves are still there: a process that finds its vault gone saves no more."""
        vault = self.repo().vault
        if not (vault / "HEAD").exists():
            raise SaveFailed(
                f"the vault of {self.folder} is gone, and all its saves with it: {vault}",
                hint="put the state folder back from a backup; or start anew, with the files as they are",
            )

    def tend(self) -> None:
        """Make the next saves cheap and small. Call it between saves, from any thread: saves do not wait for it."""
        refresh_index.refresh(self)
        with self.lock():
            place = self.repo()
        consolidate(place)
        special_secrets.consolidate(self.private)

    def peek(self) -> SavePreview:
        """The tree of the current files, without saving it."""
        with _translated(self.folder), self.lock():
            self._sweep()
            try:
                return SaveInProgress(self, Purpose(kind="beat", run="peek"), Deadline(None), None).peek()
            finally:
                self._memo = None

    def _sweep(self) -> None:
        """Remove what a killed save left. The lock is held, so nobody is writing."""
        leftovers.sweep(self.folder, self.private)
        if self._swept:
            return
        sweep(self.repo().packs)
        refs.sweep_locks(self.repo().vault)
        for path in self.private.glob("quarantine-*"):
            shutil.rmtree(path, ignore_errors=True)
        self._swept = True

    def remembered(self) -> stat_cache.Memo | None:
        """The memo of the last save, if it is from this boot and the save's ref still has that value."""
        stamp = stat_cache.stamp(self._memo_file)
        if self._memo is None or stamp != self._memo_stamp:
            self._memo, self._memo_stamp = stat_cache.load(self._memo_file), stamp
        known = self._memo
        if not known.commit or known.boot_id != self._boot_id or not self.base().index_is_there:
            return None
        if known.place != self.place_stamp():
            return None
        return known if refs.read_ref(self.repo().vault, known.ref) == known.commit else None

    @property
    def _memo_file(self) -> Path:
        return self.private / "memo"

    def unremember(self) -> None:
        """Remove the memo before it becomes untrue: a save killed from here on leaves nothing wrong to rely on."""
        self._memo_file.unlink(missing_ok=True)

    def forget(self) -> None:
        """Drop what was just found out; what is stored stays valid."""
        self._memo = None

    def remember(self, known: stat_cache.Memo) -> None:
        """Store what this save found out for the next one."""
        known.boot_id = self._boot_id
        try:
            self._memo, self._memo_stamp = known, stat_cache.store(known, self._memo_file)
        except OSError:  # the save itself is made; the next one just looks at everything
            self._memo = None
            with contextlib.suppress(OSError):
                self.unremember()


def _note(path: Path, text: bytes) -> None:
    """Write a file unless it has this content: on a full disk, writing would empty it."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == text:
            return
    path.write_bytes(text)


@contextlib.contextmanager
def _translated(folder: Path) -> Iterator[None]:
    """Translate OSError to SaveFailed."""
    try:
        yield
    except OSError as error:
        where = f": {os.fsdecode(error.filename)}" if error.filename is not None else ""
        raise SaveFailed(f"cannot save {folder}: {error.strerror}{where}") from error


def _above(paths: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(folder for path in paths for folder in folders_of(path))
