"""The user's index in a save: its bytes, the tree of what is staged, and the stages of an unfinished merge."""

import os
import shutil
from pathlib import Path

from outlast.errors import SaveFailed
from outlast.workspace import repo
from outlast.workspace.capture import stat_cache
from outlast.workspace.capture.private_index import in_quarantine, start_write_tree, write_tree
from outlast.workspace.capture.quarantine import Quarantine
from outlast.workspace.capture.special import damage, submodules
from outlast.workspace.git import command, objects, refs
from outlast.workspace.git.packs import PackWriter
from outlast.workspace.git.trees import TreeEditor


class UserIndex:
    """Reads the index of one repository for one save of a run."""

    def __init__(self, place: repo.Repo, quarantine: Quarantine, run: str) -> None:
        self._repo, self._quarantine, self._run = place, quarantine, run

    def vouching(self) -> str | None:
        """The run's last save: everything it reaches was durable when it was made."""
        return refs.read_ref(self._repo.vault, f"refs/outlast/{self._run}/beat")

    def stamp(self) -> stat_cache.Stamp:
        """Changes when the index changes; None if there is no index."""
        return None if self._repo.shadow else stat_cache.stamp(self._repo.index)

    def take(self, memory: stat_cache.Memo, pack: PackWriter, head: str) -> bool:
        """Update what is remembered of the index; return whether it changed. `head` is HEAD's commit."""
        stamp = self.stamp()
        if stamp == memory.index_stamp and memory.index_tree:
            return False
        memory.index_oid, memory.stages, memory.links = "", "", []
        memory.unreadable = False
        if stamp is None:
            memory.index_stamp, memory.index_tree = None, pack.add("tree", b"")
            return True
        self._quarantine.place.mkdir(exist_ok=True)
        copy, memory.index_stamp = self._copied()
        try:
            self._read(memory, pack, copy)
        except SaveFailed:
            if damage.can_be_listed(self._repo, copy):
                raise
            memory.unreadable, memory.stages = True, ""
            memory.index_tree = self.tree_of(head) if head else pack.add("tree", b"")
        memory.index_oid = memory.index_oid or pack.add_file(os.fsencode(copy), expect=os.lstat(copy))
        return True

    def tree_of(self, commit: str) -> str:
        """The tree of a commit."""
        return objects.parse_commit(self._quarantine.read(commit)).tree

    def _copied(self) -> tuple[Path, stat_cache.Stamp]:
        """A copy of the user's index that nobody wrote to meanwhile."""
        copy = self._quarantine.place / "index-copy"
        for _ in range(3):
            stamp = self.stamp()
            shutil.copyfile(self._repo.index, copy)
            if self.stamp() == stamp:
                return copy, stamp
        raise SaveFailed(f"the index of {self._repo.folder} keeps changing", hint="save again")

    def _read(self, memory: stat_cache.Memo, pack: PackWriter, copy: Path) -> None:
        damage.check_index(self._repo, copy)
        if memory.lost:
            memory.links = submodules.links(self._repo, copy)
            memory.index_tree = self._tree_of_readable(memory, pack, copy)
            memory.unreadable = not damage.can_be_listed(self._repo, copy)
            return
        work = copy.with_name("index-to-write")
        shutil.copyfile(copy, work)
        writing = self._quarantine.started(
            start_write_tree(self._repo, work, self._quarantine.place, ok=(0, 128))
        )
        memory.index_oid = pack.add_file(os.fsencode(copy), expect=os.lstat(copy))  # while git works
        memory.links = submodules.links(self._repo, copy)
        memory.index_tree = writing.result().decode().strip()
        if not memory.index_tree:
            memory.index_tree = self._tree_of_merged(memory, pack, copy, work)
        self._quarantine.collect(pack)
        if not memory.commit and not self._is_whole(memory, copy):
            memory.lost, memory.stages = True, ""
            memory.index_tree = self._tree_of_readable(memory, pack, copy)

    def _is_whole(self, memory: stat_cache.Memo, copy: Path) -> bool:
        """Only a first save asks: objects made while the machine runs exist, flushed or not."""
        if memory.stages and not damage.names_only_readable(self._repo, copy):
            return False
        variables = in_quarantine(self._repo, self._quarantine.place)
        return damage.is_whole(self._repo, [memory.index_tree], self.vouching(), variables)

    def _tree_of_merged(self, memory: stat_cache.Memo, pack: PackWriter, copy: Path, work: Path) -> str:
        """During a merge: the tree of the merged paths, and the stages of the others in a tree of their own."""
        listed = command.names(
            command.run(
                ["ls-files", "-s", "-z"], git_dir=self._repo.git_dir, variables={"GIT_INDEX_FILE": str(copy)}
            )
        )
        staged = [line for line in listed if line.partition(b"\t")[0].split()[2] != b"0"]
        if not staged:
            raise SaveFailed(
                f"cannot write the index of {self._repo.folder} as a tree", hint="see `git fsck`"
            )
        stages = self._empty_tree()
        for line in staged:
            mode, oid, stage_path = line.split(b" ", 2)
            stage, _, path = stage_path.partition(b"\t")
            if mode != b"160000":
                stages.put(stage + b"/" + path, int(mode, 8), oid.decode())
        memory.stages = stages.write(pack.add)
        work.unlink()
        merged = [line for line in listed if line.partition(b"\t")[0].split()[2] == b"0"]
        command.run(
            ["update-index", "-z", "--index-info"],
            git_dir=self._repo.git_dir,
            variables={"GIT_INDEX_FILE": str(work)},
            stdin=command.listed(merged),
        )
        return write_tree(self._repo, work, self._quarantine.place)

    def _tree_of_readable(self, memory: stat_cache.Memo, pack: PackWriter, copy: Path) -> str:
        """After a power cut: the tree of what is left. We write it, because git takes an empty file for a tree it has."""
        merged, stages = self._empty_tree(), self._empty_tree()
        left = damage.readable(self._repo, copy)
        for stage, path, entry in left:
            if stage == b"0":
                merged.put(path, *entry)
            else:
                stages.put(stage + b"/" + path, *entry)
        if any(stage != b"0" for stage, _, _ in left):
            memory.stages = stages.write(pack.add)
        return merged.write(pack.add)

    def _empty_tree(self) -> TreeEditor:
        return TreeEditor(None, self._quarantine.read, self._repo.algo)
