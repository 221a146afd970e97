"""A repository with a store beside it, worked in and saved from the command line."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import outlast
from tests.cli.command_line import Cli
from tests.support.environment import TIMEOUT_S
from tests.support.vaults import git_words, seeing


@dataclass(frozen=True)
class Tree:
    """A worktree and the command line in it."""

    cli: Cli

    @property
    def folder(self) -> Path:
        return self.cli.folder

    def git(self, *words: str | Path, folder: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *git_words(folder or self.folder, words), *words],
            env=self.cli.environ | {"GIT_OPTIONAL_LOCKS": "0"} | seeing(folder or self.folder),  # `git status` would write the index
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def save(self, *words: str) -> str:
        commit = self.cli.ok("save", "--json", *words).json["commit"]
        assert isinstance(commit, str)
        return commit

    def state(self) -> tuple[str, ...]:
        """What saves must never touch, and what is there."""
        index = self.folder / ".git/index"
        return (
            self.git("rev-parse", "HEAD"), self.git("symbolic-ref", "HEAD"), self.git("branch", "--list"),
            self.git("stash", "list"), index.read_bytes().hex(), self.git("status", "--porcelain"),
        )  # fmt: skip


def work(
    tree: Tree, task: str = "1411", beats: int = 5, *, until: int | None = None, breaks_at: int = 4
) -> str:
    """A run whose every beat leaves a mark in the workspace; its id."""
    with outlast.run(task, workspace=tree.folder) as run:
        run.plan([f"step {number}" for number in range(1, beats + 1)])
        for beat in run.beats():
            if until is not None and beat.number > until:
                break
            tree.write(beat=f"{beat.number}\n", health="broken\n" if beat.number >= breaks_at else "fine\n")
            beat.done(beat.number)
    return run.id


def files(folder: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not name.startswith(".git") and not path.is_dir():
            data = os.readlink(path) if path.is_symlink() else path.read_text()
            found[name] = data, path.is_symlink(), bool(path.lstat().st_mode & 0o100)
    return found
