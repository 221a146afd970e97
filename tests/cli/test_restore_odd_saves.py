"""A restore from a workspace whose `.git` is a link works; one of a save that was forged is refused in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environment import Isolated
from tests.support.vaults import seeing, vault_of


class Repository:
    """A repository with an untracked secret and one save of it."""

    def __init__(self, folder: Path, state: Isolated) -> None:
        self._folder, self._env = folder, state.environ()
        folder.mkdir()
        self.git("init", "-q")
        (folder / "file").write_text("x")
        self.git("add", "file")
        self.git("commit", "-q", "-m", "mine")
        (folder / ".env").write_text("KEY=sk-1234567890abcdef\n")

    def git(self, *words: str, given: str | None = None) -> str:
        return subprocess.run(
            ["git", *self._where(), *words],
            cwd=self._folder,
            env=self._env,
            input=given,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    def _where(self) -> list[str]:
        """In the vault once there is one: that is where saves can be forged."""
        return [f"--git-dir={vault_of(self._folder)}"] if seeing(self._folder) else []

    def outlast(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "outlast", *words], cwd=self._folder, env=self._env, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    def save(self) -> str:
        assert self.outlast("save").returncode == 0
        return self.git("for-each-ref", "--format=%(objectname)", "refs/outlast").splitlines()[0]

    def forged(self, save: str, secret: str) -> str:
        """The same save, with another name for its secret."""
        index = self._parents(save)[-1]
        meta = self._parents(index)[-1]
        told = json.loads(self.git("show", f"{meta}:meta.json"))
        told["secrets"][0]["path"] = secret
        blob = self.git("hash-object", "-w", "--stdin", given=json.dumps(told))
        entries = [
            line for line in self.git("ls-tree", meta).splitlines() if not line.endswith("\tmeta.json")
        ]
        tree = self.git("mktree", given="\n".join([*entries, f"100644 blob {blob}\tmeta.json"]) + "\n")
        meta = self._like(meta, tree, self._parents(meta))
        index = self._like(index, f"{index}^{{tree}}", [*self._parents(index)[:-1], meta])
        forged = self._like(save, f"{save}^{{tree}}", [*self._parents(save)[:-1], index])
        self.git("update-ref", "refs/outlast/hand/manual/20300101T000000Z", forged)
        return forged

    def _parents(self, commit: str) -> list[str]:
        return self.git("log", "-1", "--format=%P", commit).split()

    def _like(self, commit: str, tree: str, parents: list[str]) -> str:
        words = [word for parent in parents for word in ("-p", parent)]
        message = self.git("log", "-1", "--format=%B", commit)
        return self.git("commit-tree", self.git("rev-parse", tree), *words, "-m", message)


def test_a_workspace_whose_git_folder_is_a_link_is_restored_to_another_folder(
    state: Isolated, tmp_path: Path
) -> None:
    there = Repository(tmp_path / "work", state)
    (tmp_path / "work/.git").rename(tmp_path / "gitdir")
    (tmp_path / "work/.git").symlink_to("../gitdir")
    (tmp_path / "work/new").write_text("new")
    done = there.outlast("restore", there.save(), "--to", "../out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/new").read_text() == "new"


@pytest.mark.parametrize("secret", ["../evil", "/evil", "a/../../evil", "sub/./evil", "", "a//evil"])
@pytest.mark.parametrize("how", [("--force",), ("--to", "../out")], ids=["here", "to"])
def test_a_forged_secret_outside_of_the_folder_is_refused_and_nothing_is_written(
    state: Isolated, tmp_path: Path, how: tuple[str, ...], secret: str
) -> None:
    there = Repository(tmp_path / "work", state)
    forged = there.forged(there.save(), secret)
    before = sorted(tmp_path.rglob("*evil*"))
    done = there.outlast("restore", forged, *how, "--with-secrets")
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("error: a save is damaged")
    assert sorted(tmp_path.rglob("*evil*")) == before == []
    assert not (tmp_path / "out").exists()
    assert there.outlast("saves").returncode in (0, 1), "the others are listed"
