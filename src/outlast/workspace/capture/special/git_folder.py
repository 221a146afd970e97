"""What a save holds of the git folder of a nested repository or submodule: see `nested_repos` for where those are."""

import contextlib
import os
import stat
from pathlib import Path

from outlast.errors import SaveFailed
from outlast.store.durable import read_plain
from outlast.workspace import repo, rules
from outlast.workspace.capture import stat_cache
from outlast.workspace.capture.files import TRIES, Findings, files_below
from outlast.workspace.capture.special import modules, nested_repos
from outlast.workspace.git import command, objects
from outlast.workspace.git.packs import Moving, PackWriter, Unreadable
from outlast.workspace.git.trees import Read, TreeEditor
from outlast.workspace.repo import Repo
from outlast.workspace.types import NestedRepo, text
from outlast.workspace.vault import record


class GitFolder:
    """Saves the git folder of a nested repository."""

    def __init__(
        self, place: Repo, memory: stat_cache.Memo, pack: PackWriter, findings: Findings, read: Read
    ) -> None:
        self._place, self._root, self._read_object = place, place.folder, read
        self._memory, self._pack, self._findings = memory, pack, findings
        self._noted: bytes | None = None  # what the module at hand needs, if it was just found out

    def take(self, prefix: bytes, editor: TreeEditor) -> NestedRepo | None:
        """Its files as a tree. For a submodule, whose git folder is elsewhere: the pointer, HEAD and index."""
        place = self._root / os.fsdecode(prefix) / ".git"
        try:
            file_stat = place.lstat()
        except OSError:
            return None
        if stat.S_ISDIR(file_stat.st_mode):
            return self._whole(prefix, place, editor)
        return self._pointer(prefix, place, editor)

    def _whole(self, prefix: bytes, place: Path, editor: TreeEditor) -> NestedRepo:
        root = os.fsencode(place)
        names = [name[1:] for name in files_below(root, b"", nested_repos.is_passing)]
        size = 0
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(root + b"/" + name).st_size
        shown = text(prefix.rstrip(b"/"))
        if size > nested_repos.HISTORY_BYTES_MAX:
            self._findings.leave(prefix + b".git/", "history of a repository inside", size)
            return NestedRepo(shown)
        self._take(prefix + b".git/", root + b"/", names, editor)
        return NestedRepo(shown, tree="git")

    def _pointer(self, prefix: bytes, place: Path, editor: TreeEditor) -> NestedRepo | None:
        try:
            pointer = read_plain(place)
        except OSError as error:  # a link to a git folder, or unreadable
            self._findings.leave(prefix + b".git/", error.strerror or "unreadable")
            return None
        real = nested_repos.pointed_git_dir(place.parent, pointer)
        top, key = nested_repos.place_of_prefix(prefix), prefix + b".git/"
        before = self._state(key, editor)
        self._take(key, os.fsencode(real) + b"/", nested_repos.files_of_module(real), editor)
        words = ["rev-parse", "--verify", "-q", "HEAD"]
        tip = command.run(words, git_dir=real, ok=(0, 1, 128)) if real.is_dir() else b""
        editor.put(top + b"/tip", objects.FILE, self._pack.add("blob", tip))
        held, self._noted = modules.holds_objects(self._place, real), None
        if self._state(key, editor) != before or editor.get(top + b"/lacking") is not None:
            for name in (b"/pack", b"/lacking", modules.NEEDS):
                editor.remove(top + name)
            take = self._take_needs if held else self._take_unpushed
            take(prefix, real, tip.decode().strip(), editor)
        if held:
            self._take_record(top, real, editor)
            self._name_module(prefix, real, editor)
        editor.put(
            nested_repos.place_of_prefix(prefix) + b"/gitfile", objects.FILE, self._pack.add("blob", pointer)
        )
        return NestedRepo(text(prefix.rstrip(b"/")), tree="git", gitfile=True)

    def _state(self, key: bytes, editor: TreeEditor) -> object:
        """What a module's own objects depend on, as of the last save."""
        known = self._memory.areas.get(key, stat_cache.Area()).entries
        oids = [known[name].oid if name in known else "" for name in nested_repos.MODULE_FILES]
        return oids, editor.get(nested_repos.place_of_prefix(key.removesuffix(b".git/")) + b"/tip")

    def _take_unpushed(self, prefix: bytes, real: Path, tip: str, editor: TreeEditor) -> None:
        """Save objects of HEAD and index that no known remote has: the module's own gc might remove them."""
        place = nested_repos.place_of_prefix(prefix) + b"/pack"
        if not tip or (real / "commondir").exists():  # another repository has a linked worktree's commits
            return
        try:
            oids = nested_repos.unpushed(real, tip)
            words = ["cat-file", "--batch-check=%(objectsize:disk)", "--buffer"]
            size = sum(map(int, command.run(words, git_dir=real, stdin=oids).split())) if oids else 0
            why = "history of a repository inside" if size > nested_repos.HISTORY_BYTES_MAX else ""
            if oids and not why:
                words = ["pack-objects", "--stdout", "-q", "--threads=1"]
                data = command.run(words, git_dir=real, stdin=oids)
                editor.put(place, objects.FILE, self._pack.add("blob", data))
        except (SaveFailed, ValueError):
            why, size = "objects that cannot be read", 0
        if why:
            self._lack(prefix, why, size, editor)

    def _lack(self, prefix: bytes, why: str, size: int, editor: TreeEditor) -> None:
        self._findings.leave(prefix + b".git/objects/", why, size)
        # Remember it, so that the next save, which looks only at what changed, lists it as well.
        lacking = nested_repos.place_of_prefix(prefix) + b"/lacking"
        editor.put(lacking, objects.FILE, self._pack.add("blob", why.encode()))

    def _take_needs(self, prefix: bytes, real: Path, tip: str, editor: TreeEditor) -> None:
        """Note what the vault is to hold of a submodule's repository."""
        try:
            noted = modules.needs(real, tip)
        except (SaveFailed, OSError, ValueError):
            self._lack(prefix, "objects that cannot be read", 0, editor)
            return
        place = nested_repos.place_of_prefix(prefix) + modules.NEEDS
        editor.put(place, objects.FILE, self._pack.add("blob", noted))
        self._noted = noted

    def _name_module(self, prefix: bytes, real: Path, editor: TreeEditor) -> None:
        entry = editor.get(nested_repos.place_of_prefix(prefix) + modules.NEEDS)
        if entry is not None:
            noted = self._noted if self._noted is not None else self._read_object(entry.oid)
            assert self._findings.modules is not None, "everything is looked at"
            self._findings.modules.append(modules.module(text(prefix.rstrip(b"/")), real, noted))

    def _take_record(self, top: bytes, real: Path, editor: TreeEditor) -> None:
        """Settings and refs of a submodule's repository, so that it can come back."""
        inner = Repo(self._root, real, real, self._place.algo, self._place.vault)
        editor.remove(top + modules.RECORD)
        try:
            files = record.files_of(inner, repo.head(inner).branch)
        except SaveFailed:
            return
        for name, data in files.items():
            editor.put(top + modules.RECORD + b"/" + name, objects.FILE, self._pack.add("blob", data))

    def _take(self, key: bytes, root: bytes, names: list[bytes], editor: TreeEditor) -> None:
        """Read what changed of these files into the tree under this repository's name."""
        area = self._memory.areas.setdefault(key, stat_cache.Area())
        top = nested_repos.place_of_prefix(key.removesuffix(b".git/"))
        for name in [name for name in area.entries if name not in set(names)]:
            del area.entries[name]
            editor.remove(top + b"/files/" + name)
        for name in names:
            if rules.may_hold_credentials(name) and self._withhold(key, root, name, editor):
                area.entries.pop(name, None)
                continue
            known = self._read(key, root, name, area)
            if known is not None:
                area.entries[name] = known
                editor.put(top + b"/files/" + name, known.mode, known.oid)

    def _withhold(self, key: bytes, root: bytes, name: bytes, editor: TreeEditor) -> bool:
        """Store a file with credentials separately, as a secret. The save has it without them, so that git can work."""
        try:
            file_stat = os.lstat(root + name)
            if not stat.S_ISREG(file_stat.st_mode) or file_stat.st_size > nested_repos.SETTINGS_BYTES_MAX:
                return False
            with open(root + name, "rb") as file:
                data = file.read(nested_repos.SETTINGS_BYTES_MAX)
        except OSError:
            return False  # the error is reported when it is read
        harmless = rules.without_credentials(name, data)
        if harmless == data:
            return False
        self._findings.secrets[key + name] = file_stat
        place = nested_repos.place_of_prefix(key.removesuffix(b".git/")) + b"/files/" + name
        if harmless:
            editor.put(place, objects.FILE, self._pack.add("blob", harmless))
        else:
            editor.remove(place)
        return True

    def _read(
        self, key: bytes, root: bytes, name: bytes, area: stat_cache.Area
    ) -> stat_cache.KnownFile | None:
        """A file as it is now; None if it is gone, or if it cannot be read, which is then listed."""
        for _ in range(TRIES):
            try:
                file_stat, at = os.lstat(root + name), stat_cache.moment()
                known = area.entries.get(name)
                if known is not None and known.fits(file_stat):
                    return known
                if stat.S_ISLNK(file_stat.st_mode):
                    oid = self._pack.add("blob", os.readlink(root + name))
                elif stat.S_ISREG(file_stat.st_mode):
                    oid = self._pack.add_file(root + name, expect=file_stat)
                else:
                    self._findings.leave(key + name, "no regular file")
                    return None
                return self._findings.ages.known_file(file_stat, oid, at, in_base=False, before=known)
            except Moving:
                continue
            except FileNotFoundError:
                return None  # git itself removed it meanwhile
            except Unreadable as error:
                self._findings.leave(key + name, str(error))
                return None
            except OSError as error:
                self._findings.leave(key + name, error.strerror or "unreadable")
                return None
        self._findings.leave(key + name, "moving")
        return None
