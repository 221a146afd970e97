"""A room for objects that are in no repository yet: git sees them beside those of a repository, its vault and the run's."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from outlast import settings
from outlast.workspace.git import command
from outlast.workspace.git.git_dir import make_git_dir, quoted
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.repo import Repo

# Of the user's variables those that say who commits, and by which settings.
_USERS = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_CONFIG_")


class Room:
    """Runs the user's git, with the user's settings, filters and merge drivers, and puts every new object into the room."""

    def __init__(self, folder: Path, place: Repo, seen: Sequence[Path]) -> None:
        self.folder, self.place = folder, place
        self.git_dir = folder / "objects.git"
        make_git_dir(self.git_dir, place.algo.name)
        lines = [quoted(each) + b"\n" for each in dict.fromkeys((*place.object_folders, *seen))]
        (self.git_dir / "objects/info/alternates").write_bytes(b"".join(lines))
        self._reader: ObjectReader | None = None

    def reader(self) -> ObjectReader:
        """Reads every object that the room sees."""
        if self._reader is None:
            self._reader = ObjectReader(self.git_dir, command.environment())
        return self._reader

    def close(self) -> None:
        """Let go of the process that reads."""
        if self._reader is not None:
            self._reader.close()

    def running(
        self,
        *words: str,
        ok: tuple[int, ...] = (0,),
        stdin: bytes | None = None,
        index: Path | None = None,
        files: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> command.Running:
        """A git that works on the user's repository, with another index or other files if they are given."""
        users = {name: value for name, value in settings.inherited().items() if name.startswith(_USERS)}
        known = {**users, "GIT_OBJECT_DIRECTORY": str(self.git_dir / "objects")}
        if index is not None:
            known["GIT_INDEX_FILE"] = str(index)
        tree = files or self.place.folder
        return command.Running(
            words, git_dir=self.place.git_dir, work_tree=tree, cwd=tree, variables=known, stdin=stdin, ok=ok,
            options=("-c", "core.safecrlf=false"), pass_fds=pass_fds,
        )  # fmt: skip

    def git(
        self,
        *words: str,
        ok: tuple[int, ...] = (0,),
        stdin: bytes | None = None,
        index: Path | None = None,
        files: Path | None = None,
    ) -> bytes:
        """The output of such a git."""
        return self.running(*words, ok=ok, stdin=stdin, index=index, files=files).result()

    def tree_of(self, commit: str) -> str:
        """The tree of a commit; of none, the empty one."""
        words = ("rev-parse", "--verify", f"{commit}^{{tree}}")
        if not commit:
            return self.git("hash-object", "-t", "tree", "-w", "--stdin", stdin=b"").decode().strip()
        return self.git(*words).decode().strip()

    def hidden(self, name: str) -> Path:
        """A path for a file of the room's own."""
        return self.folder / name


@contextlib.contextmanager
def room(place: Repo, seen: Sequence[Path]) -> Iterator[Room]:
    """A room that is there for a block, for its maker alone."""
    with tempfile.TemporaryDirectory(prefix="outlast-result-") as name:
        made = Room(Path(os.path.realpath(name)), place, seen)
        try:
            yield made
        finally:
            made.close()
