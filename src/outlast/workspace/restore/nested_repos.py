"""Restores the git folders of nested repositories. Each file is written only if the pre-restore save has its state.

What cannot be restored without loss is left as it is, and listed."""

import os
import stat
import tempfile
from pathlib import Path

from outlast.errors import SaveFailed
from outlast.workspace import repo, saves
from outlast.workspace.capture.special import damage, modules, nested_repos
from outlast.workspace.git import command, objects, trees
from outlast.workspace.git.objects import Entry
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.restore.worktree import Change, Worktree
from outlast.workspace.types import NestedRepo, raw, text
from outlast.workspace.vault.give_back import give

_NEEDED = (b"refs/heads", b"refs/tags", b"objects/info", b"objects/pack")  # git needs them even empty

Files = dict[bytes, Entry]


class NestedRepoRestore:
    """The git folders in a save. `there` is the pre-restore save; None if nothing was there."""

    def __init__(
        self, folder: Path, worktree: Worktree, reader: ObjectReader, algo: objects.Algo,
        held: saves.SaveContents, there: saves.SaveContents | None = None, vault: Path | None = None,
    ) -> None:  # fmt: skip
        self._vault = vault
        self._folder, self._worktree, self._reader, self._algo = folder, worktree, reader, algo
        self._held, self._there = held, there
        self._tree = self._tree_of(held)
        self._tree_now = self._tree_of(there)
        self._left = {raw(left.path) for left in there.meta.left_out} if there else set()
        self._now = {inside.path: inside for inside in there.meta.inside} if there else {}
        self._apart = {raw(secret.path) for secret in held.meta.secrets}
        self._apart_now = {raw(secret.path): secret.oid for secret in there.meta.secrets} if there else {}
        self._bare: list[tuple[bytes, Entry]] = []
        self._whole: list[bytes] = []
        self._pointers: list[tuple[bytes, bytes]] = []
        self._modules: list[tuple[Worktree, list[Change]]] = []
        self.left_alone: list[str] = []

    def _tree_of(self, held: saves.SaveContents | None) -> trees.TreeEditor:
        entry = held.entries.get(b"inside") if held else None
        return trees.TreeEditor(
            entry.oid if entry else None, lambda oid: self._reader.read(oid)[1], self._algo
        )

    def plan(self, *, pointers: bool = True) -> list[Change]:
        """Changes below the workspace. Raises SaveFailed, with nothing touched, if a module's files are in the way.

        With `pointers=False`, for another place, repositories whose git folder is elsewhere are left alone.
        """
        changes: list[Change] = []
        for inside in self._held.meta.inside:
            if inside.tree and not inside.gitfile:
                changes += self._changes(inside)
            elif inside.tree and pointers:
                self._plan_module(inside)
        return changes

    def finish(self) -> None:
        """After the changes: make the folders git needs, the pointers to git folders elsewhere, and HEAD and index there.

        Also write settings without their credentials, if those were stored separately and nobody put them back.
        """
        for inside in self._held.meta.inside:
            self._worktree.make_folder(raw(inside.path))
        for place in self._whole:
            _make_needed(self._worktree, place + b"/")
        for path, entry in self._bare:
            if self._worktree.lstat(path) is None:
                self._worktree.put(path, 0o644, self._reader.read(entry.oid)[1])
        for place, pointer in self._pointers:
            self._worktree.put(place, 0o644, pointer)
        for module, changes in self._modules:
            module.apply(changes)
            if module.lstat(b"commondir") is None:  # a linked worktree has no refs of its own
                _make_needed(module, b"")

    def _leave(self, place: bytes) -> None:
        self.left_alone.append(text(place))

    def _files(self, tree: trees.TreeEditor, inside: NestedRepo) -> Files:
        top = nested_repos.place_in_tree(inside.path) + b"/files"
        return {path.removeprefix(top + b"/"): entry for path, entry in tree.walk(top)}

    # -- git folders in their own place ------------------------------------------------------------------------------

    def _changes(self, inside: NestedRepo) -> list[Change]:
        place = raw(inside.path) + b"/.git"
        place_stat = self._worktree.lstat(place)
        if place + b"/" in self._left or (place_stat is not None and not stat.S_ISDIR(place_stat.st_mode)):
            self._leave(place + b"/")  # no save has what is there, or another git folder is in use by now
            return []
        self._whole.append(place)
        known = self._now.get(inside.path)
        now = self._files(self._tree_now, inside) if known and known.tree and not known.gitfile else {}
        now |= self._apart_files(place)
        wanted = self._files(self._tree, inside)
        for name in [name for name in wanted if place + b"/" + name in self._apart]:
            self._bare.append((place + b"/" + name, wanted.pop(name)))
        return [(place + b"/" + name, old, new) for name, old, new in self._differing(now, wanted, place)]

    def _apart_files(self, place: bytes) -> Files:
        """Files with credentials that the pre-restore save stored separately, as they are now."""
        found: Files = {}
        for path, oid in self._apart_now.items():
            if path.startswith(place + b"/") and self._worktree.digest(path, objects.SHA1) == oid:
                entry = self._worktree.entry(path)
                if entry is not None:
                    found[path.removeprefix(place + b"/")] = entry
        return found

    def _differing(self, now: Files, wanted: Files, place: bytes) -> list[Change]:
        """HEAD comes last: without it git does not see a repository."""
        packed = self._packed(wanted)
        going = [
            name for name in now if name not in wanted and (nested_repos.is_progress(name) or name in packed)
        ]
        changes: list[Change] = [(name, now[name], None) for name in going]
        for name in sorted(wanted, key=lambda name: (name == b"HEAD", name)):
            if name.startswith(b"objects/"):
                if self._worktree.lstat(place + b"/" + name) is None:
                    changes.append((name, None, wanted[name]))
            elif now.get(name) != wanted[name] or place + b"/" + name in self._left:
                changes.append((name, now.get(name), wanted[name]))
        return changes

    def _packed(self, wanted: Files) -> set[bytes]:
        """Refs that the save has in one file: a later file of their own would hide them."""
        entry = wanted.get(b"packed-refs")
        lines = self._reader.read(entry.oid)[1].splitlines() if entry else []
        return {line.partition(b" ")[2] for line in lines if line[:1] not in b"#^"}

    # -- git folders elsewhere ---------------------------------------------------------------------------------------

    def _plan_module(self, inside: NestedRepo) -> None:
        top, place = nested_repos.place_in_tree(inside.path), raw(inside.path) + b"/.git"
        gitfile = self._tree.get(top + b"/gitfile")
        assert gitfile is not None, "a pointer was saved as one"
        pointer = self._reader.read(gitfile.oid)[1]
        real = nested_repos.pointed_git_dir(self._folder / os.fsdecode(raw(inside.path)), pointer)
        is_there = self._worktree.lstat(place) is not None
        if not real.is_dir() or (is_there and self._worktree.digest(place, self._algo) != gitfile.oid):
            self._leave(place)
            return
        module = Worktree(real, self._reader, self._algo)
        changes = self._module_changes(inside, module, real, is_there=is_there)
        if changes is None:
            self._leave(place + b"/")
        else:
            module.check(changes)
            self._modules.append((module, changes))
        if not is_there:
            self._pointers.append((place, pointer))

    def _module_changes(
        self, inside: NestedRepo, module: Worktree, real: Path, *, is_there: bool
    ) -> list[Change] | None:
        """What differs in a module's git folder; None if it lacks objects that the saved state names."""
        found = self._files(self._tree, inside)
        wanted = {name: entry for name, entry in found.items() if nested_repos.is_module_file(name)}
        now = self._files(self._tree_now, inside) if inside.path in self._now else {}
        if not is_there:  # without the module's files, its HEAD and index are not worth a refusal
            now = {name: entry for name in wanted if (entry := module.entry(name)) is not None}
        tip = self._tree.get(nested_repos.place_in_tree(inside.path) + b"/tip")
        if (
            tip is not None
            and b"HEAD" in wanted
            and self._reader.read(tip.oid)[1]
            and self._branch_moved(real, wanted[b"HEAD"], tip)
        ):
            wanted[b"HEAD"] = tip
        changes: list[Change] = [
            (name, now[name], None) for name in now if name not in wanted and nested_repos.is_progress(name)
        ]
        place = raw(inside.path) + b"/.git/"
        changes += [
            (name, now.get(name), wanted[name])
            for name in sorted(wanted)
            if now.get(name) != wanted[name] or place + name in self._left
        ]
        has = self._has_objects(inside, real, wanted)
        return changes if has or not changes else None

    def _branch_moved(self, real: Path, head: Entry, tip: Entry) -> bool:
        """Module branches are never moved: if one has moved on, HEAD is detached at its old commit."""
        content = self._reader.read(head.oid)[1].strip()
        if not content.startswith(b"ref: "):
            return False
        words = ["rev-parse", "--verify", "-q", os.fsdecode(content.removeprefix(b"ref: "))]
        return (
            command.run(words, git_dir=real, work_tree=real, ok=(0, 1, 128)) != self._reader.read(tip.oid)[1]
        )

    def _has_objects(self, inside: NestedRepo, real: Path, wanted: Files) -> bool:
        """Whether a module's git folder has all that HEAD and index will name, perhaps after adding the save's objects."""
        if self._finds_objects(real, wanted):
            return True
        needs = self._tree.get(nested_repos.place_in_tree(inside.path) + modules.NEEDS)
        if needs is not None and self._vault is not None:
            noted = modules.module(inside.path, real, self._reader.read(needs.oid)[1])
            (real / "objects" / "pack").mkdir(parents=True, exist_ok=True)
            give(self._vault, real, list(noted.needs))
            return self._finds_objects(real, wanted)
        pack = self._tree.get(nested_repos.place_in_tree(inside.path) + b"/pack")
        if pack is None:
            return False
        command.run(
            ["index-pack", "--stdin"], git_dir=real, work_tree=real, stdin=self._reader.read(pack.oid)[1]
        )
        return self._finds_objects(real, wanted)

    def _finds_objects(self, real: Path, wanted: Files) -> bool:
        """Ask as if the git folder were its own worktree: the one in its settings may not exist yet."""
        place = repo.Repo(self._folder, real, real, self._algo, real)
        variables = {"GIT_WORK_TREE": str(real)}
        head = self._reader.read(wanted[b"HEAD"].oid)[1].strip() if b"HEAD" in wanted else b"ref: "
        tips = [] if head.startswith(b"ref: ") else [head.decode(errors="replace")]
        if tips and not damage.is_whole(place, tips, None, variables):
            return False
        if b"index" not in wanted:
            return True
        with tempfile.NamedTemporaryFile() as file:
            file.write(self._reader.read(wanted[b"index"].oid)[1])
            file.flush()
            return _names_only_readable(real, variables | {"GIT_INDEX_FILE": file.name})


def _names_only_readable(git_dir: Path, variables: dict[str, str]) -> bool:
    try:
        listed = command.names(command.run(["ls-files", "-s", "-z"], git_dir=git_dir, variables=variables))
        oids = b"".join([line.split()[1] + b"\n" for line in listed if not line.startswith(b"160000 ")])
        words = ["cat-file", "--batch-check", "--buffer"]
        output = command.run(words, git_dir=git_dir, variables=variables, stdin=oids)
    except SaveFailed:
        return False
    return not any(line.endswith(b" missing") for line in output.splitlines())


def _make_needed(worktree: Worktree, place: bytes) -> None:
    """Not if a link replaces the folder: then somebody keeps them elsewhere."""
    for name in _NEEDED:
        place_stat = worktree.lstat(place + name.partition(b"/")[0])
        if place_stat is None or stat.S_ISDIR(place_stat.st_mode):
            worktree.make_folder(place + name)
