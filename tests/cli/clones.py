"""Two hosts with a clone and a store each, between which runs are carried."""

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.cli.command_line import Cli
from tests.support.commands import Answer
from tests.support.environment import TIMEOUT_S, Isolated
from tests.support.vaults import git_words, seeing

AGENT = """
import subprocess
import sys
from pathlib import Path
import outlast

task, folder, until, moved = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "moved"
with outlast.run(task, workspace=folder, moved=moved) as run:
    run.plan(["one", "two", "three", "four"])
    for beat in run.beats():
        if beat.number > until:
            if sys.argv[5]:
                subprocess.run(["git", "-C", folder, "commit", "-qam", sys.argv[5]], check=True)
            (folder / "unfinished").write_text("half a beat")
            break
        (folder / f"made{beat.number}").write_text(f"by beat {beat.number}")
        (folder / "changed").write_text(f"in beat {beat.number}")
        beat.done(beat.number)
print(run.status)
"""


@dataclass(frozen=True)
class Clone:
    """A store with a folder to stand in, as on a machine of its own."""

    cli: Cli

    @property
    def folder(self) -> Path:
        return self.cli.folder

    def at(self, folder: Path) -> "Clone":
        folder.mkdir(parents=True, exist_ok=True)
        return Clone(replace(self.cli, folder=folder))

    def with_store_of(self, home: Path) -> "Clone":
        (home / ".config").mkdir(parents=True)
        return Clone(replace(self.cli, isolated=Isolated.at(home)))

    def git(self, *words: str | Path, folder: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *git_words(folder or self.folder, words), *words],
            env=self.cli.environ | {"GIT_OPTIONAL_LOCKS": "0"} | seeing(folder or self.folder),
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def start(
        self,
        *,
        task: str = "1411",
        folder: Path | None = None,
        until: int = 9,
        moved: bool = False,
        commit: str = "",
    ) -> Answer:
        """One attempt of the agent, in a process of its own."""
        words = [task, str(folder or self.folder), str(until), "moved" if moved else "", commit]
        return self.cli.program(sys.executable, "-c", AGENT, *words)

    def worked(self, until: int = 2, **more: Any) -> None:
        answer = self.start(until=until, **more)
        assert (answer.code, answer.out) == (0, "interrupted\n"), answer.err

    def finished(self, **more: Any) -> None:
        answer = self.start(**more)
        assert (answer.code, answer.out) == (0, "done\n"), answer.err

    def refs(self, folder: Path | None = None) -> dict[str, str]:
        listed = self.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/outlast", folder=folder)
        return dict(line.split(" ") for line in listed.splitlines())

    def untouched(self) -> tuple[str, ...]:
        """All that an import into a repository must leave as it is."""
        index = self.folder / ".git/index"
        own = [line for line in self.git("for-each-ref").splitlines() if "refs/outlast/" not in line]
        return (
            *own, self.git("symbolic-ref", "HEAD"), self.git("status", "--porcelain"), index.read_bytes().hex(),
            *sorted(path.name for path in (self.folder / ".git").iterdir()), self.git("stash", "list"),
        )  # fmt: skip

    def names(self, folder: Path | None = None) -> list[str]:
        return sorted(path.name for path in (folder or self.folder).iterdir() if path.name != ".git")

    def read(self, name: str, folder: Path | None = None) -> str:
        return ((folder or self.folder) / name).read_text()


def run_of(host: Clone, task: str = "1411") -> str:
    run = host.cli.show(task)["run"]
    assert isinstance(run, str)
    return run
