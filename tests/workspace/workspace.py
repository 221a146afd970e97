"""A workspace in a test: a folder, a state folder, the saver between them, and a picture of all that a save promises."""

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outlast.core.events import SaveKind
from outlast.store.local import Local
from outlast.workspace import repo, rules, saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.restore import restore as workspace_restore
from outlast.workspace.types import Purpose, Save
from tests.support import environment
from tests.support.environment import TIMEOUT_S

RUN = "r1"
# Commits of two copies are the same, whenever they are made.
DATES = {
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
    "GIT_EDITOR": "true",
}
BASE = r"""
git init -q -b main; seq 100 > a.txt; mkdir -p sub/deep; seq 50 > sub/b.txt; echo d > sub/deep/d; ln -s a.txt link
printf '#!/bin/sh\n' > run.sh; chmod +x run.sh; printf '*.ign\nbuild/\n' > .gitignore
git add -A; git commit -qm one; git branch other; seq 3 > c; git add c; git commit -qm two
"""

Picture = dict[str, object]


@dataclass
class Workspace:
    """One workspace. `sh` runs there, `picture` is what must come back."""

    folder: Path
    state: Path
    limits: rules.Limits | None = None
    shadow: bool = False
    _savers: list[Saver] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    # -- outlast ---------------------------------------------------------------------------------------------------

    @property
    def saver(self) -> Saver:
        if not self._savers:
            self._savers.append(Saver(self.folder, Local(self.state), limits=self.limits, shadow=self.shadow))
        return self._savers[0]

    def anew(self) -> None:
        """As another process would find it: nothing is remembered but what is on the disk."""
        self.close()
        self._savers.clear()

    def close(self) -> None:
        for saver in self._savers:
            saver.close()

    def save(self, kind: SaveKind = "emergency", run: str = RUN, **more: object) -> Save:
        made = self.saver.capture(Purpose(kind=kind, run=run, task="t", reason="a test", **more))  # type: ignore[arg-type]
        assert made is not None
        return made

    def save_if_dirty(self) -> Save | None:
        return self.saver.capture(Purpose(kind="final", run=RUN, if_dirty=True))

    def held(self, save: Save | str) -> saves.SaveContents:
        commit = save if isinstance(save, str) else save.commit
        return saves.read(self.saver.reader(), commit, self.saver.repo().algo)

    def restore(self, save: Save | str, **options: bool) -> workspace_restore.RestoreReport:
        purpose = Purpose(kind="pre-restore", run=RUN, task="t", reason="restore")
        return workspace_restore.restore(
            self.saver, self.held(save), purpose, workspace_restore.Options(**options)
        )

    def content(self, save: Save | str, path: str) -> bytes | None:
        """A file of a save, as plain git reads it."""
        commit = save if isinstance(save, str) else save.commit
        done = self.git_in(self.saver.repo().vault, "cat-file", "blob", f"{commit}:{path}")
        return done.stdout if done.returncode == 0 else None

    # -- git and files ---------------------------------------------------------------------------------------------

    def sh(self, script: str, *, ok: bool = True, cwd: Path | None = None, **variables: str) -> bytes:
        """Run a script of bash that stops at the first failure; with `ok=False` one that goes on."""
        done = subprocess.run(
            ["bash", "-ec" if ok else "-c", script], cwd=cwd or self.folder, capture_output=True, timeout=TIMEOUT_S,
            env=os.environ | DATES | variables, check=False,
        )  # fmt: skip
        if ok:
            assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout

    def git_in(self, git_dir: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["git", f"--git-dir={git_dir}", *words], capture_output=True, timeout=TIMEOUT_S, check=False
        )

    def vault_git(self, *words: str) -> bytes:
        """What git says of the vault."""
        done = self.git_in(self.saver.repo().vault, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, path: str | bytes, data: bytes) -> None:
        target = os.fsencode(self.folder) + b"/" + os.fsencode(path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(data)

    def git_dirs(self) -> list[Path]:
        """The folders of the repositories here: the workspace itself and those inside."""
        found = []
        for folder, folders, names in os.walk(self.folder):
            if ".git" in folders or ".git" in names:
                found.append(Path(folder))
            folders[:] = [name for name in folders if name != ".git"]
        return found

    def files(self) -> dict[bytes, tuple[str, bool, bytes]]:
        """Every file with its kind, whether it is executable, and its content."""
        root = os.fsencode(self.folder)
        found = {}
        for folder, folders, names in os.walk(root):
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in [*names, *links]:
                path = os.path.join(folder, name)
                told = os.lstat(path)
                if name == b".git":
                    continue
                if stat.S_ISLNK(told.st_mode):
                    found[path[len(root) + 1 :]] = ("link", False, os.readlink(path))
                elif stat.S_ISREG(told.st_mode):
                    with open(path, "rb") as file:
                        found[path[len(root) + 1 :]] = ("file", bool(told.st_mode & 0o100), file.read())
            folders[:] = [name for name in folders if name != b".git"]
        return found

    def picture(self) -> Picture:
        """All that a round trip must bring back. Taking it changes nothing."""
        told: Picture = {"files": self.files()}
        for folder in self.git_dirs():
            name = os.path.relpath(folder, self.folder)
            for words in (
                "status --porcelain=v2 -z --branch --untracked-files=all",
                "ls-files -s -v -z",
                "rev-parse HEAD",
                "symbolic-ref -q HEAD",
            ):
                told[f"{name}: {words}"] = self.sh(
                    f"git {words}", ok=False, cwd=folder, GIT_OPTIONAL_LOCKS="0"
                )
        place = self.saver.repo()
        told["progress"] = {} if place.shadow else repo.in_progress(place)
        return told

    def empty(self) -> None:
        """Delete everything but the git folder."""
        for path in self.folder.iterdir():
            if path.name != ".git":
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def fsck(self) -> None:
        done = self.git_in(
            self.saver.repo().vault, "fsck", "--full", "--strict", "--no-dangling", "--no-progress"
        )
        assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def placed(folder: Path, script: str = BASE) -> Iterator[Workspace]:
    place = Workspace(folder / "w", folder / "state")
    try:
        place.sh(script)
        yield place
    finally:
        place.close()


def same(before: Picture, after: Picture, what: str = "") -> None:
    """Both pictures are equal; what is not is said."""
    wrong = {
        key: (before.get(key), after.get(key))
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    }
    if "files" in wrong:
        old, new = before["files"], after["files"]
        assert isinstance(old, dict)
        assert isinstance(new, dict)
        wrong["files"] = ({path: (old.get(path), new.get(path)) for path in old.keys() | new.keys() if old.get(path) != new.get(path)}, None)  # fmt: skip
    assert not wrong, (what, wrong)


def wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Every git that is started from now on runs this first."""
    real = environment.need_tool("git")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(f'#!/bin/bash\n{script}\nexec {real} "$@"\n')
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
