"""Worktrees for the workspace benchmark: how they are made, how they change, and the ways to save them.

Every way works on a copy of its own, so that none finds what another left."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import zlib
from pathlib import Path

BEATS = "bench"
FILES_PER_FOLDER = 40
FOLDERS_PER_FOLDER = 10
WORDS = 500
QUIET = ("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "user.name=b", "-c", "user.email=b@b")


def git(folder: Path, *words: str) -> bytes:
    done = subprocess.run(["git", *QUIET, *words], cwd=folder, check=True, capture_output=True)
    return done.stdout


def make(folder: Path, files: int) -> None:
    """A committed repository of so many small files, its objects in one pack and its index not racy."""
    rng = random.Random(files)
    words = [f"{rng.getrandbits(40):x}" for _ in range(WORDS)]
    for number in range(files):
        place = folder / home_of(number)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(" ".join(rng.choices(words, k=rng.randrange(20, 300))) + "\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")
    git(folder, "repack", "-adq")
    git(folder, "prune-packed")


def home_of(number: int) -> str:
    folder = number // FILES_PER_FOLDER
    return f"d{folder // FOLDERS_PER_FOLDER:03d}/s{folder % FOLDERS_PER_FOLDER}/f{number}.py"


def copy(source: Path, to: Path) -> None:
    """A copy whose index knows the new files: a fresh worktree must not pay for that."""
    subprocess.run(["cp", "-a", str(source), str(to)], check=True)
    git(to, "update-index", "-q", "--refresh")


def change(folder: Path, files: int, count: int, mark: str) -> list[Path]:
    """Half edits, half new files, all over the tree; the same in every copy for the same mark."""
    rng = random.Random(f"{files} {mark}")
    edited = edit(folder, files, count // 2, mark)
    made = [folder / home_of(rng.randrange(files)) for _ in range(count - count // 2)]
    made = [path.with_name(f"new-{mark}-{number}.py") for number, path in enumerate(made)]
    for path in made:
        path.write_text(f"made {mark} {path.name}\n" * 20)
    return edited + made


def edit(folder: Path, files: int, count: int, mark: str) -> list[Path]:
    """Add a line to so many files."""
    rng = random.Random(f"{files} {mark} edits")
    edited = [folder / home_of(number) for number in rng.sample(range(files), count)]
    for path in edited:
        with path.open("a") as file:
            file.write(f"edited {mark}\n")
    return edited


class Way:
    """One way to save a worktree. `save` is timed; `tidy` comes after it, untimed, and resets for the next round."""

    label = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ready(self) -> None:
        """Once, before the first round."""

    def save(self, changed: list[Path]) -> None:
        raise NotImplementedError

    def tidy(self) -> None:
        """After each round."""

    def close(self) -> None:
        """At the end."""


class Floor(Way):
    """What every way must do: a walk in C that stats every file, the bytes of what changed, the index, four syncs."""

    label = "floor: find -newer, sha1, zlib-1, index read, 4 fsyncs"

    def ready(self) -> None:
        self._place = self.folder.with_name(self.folder.name + "-floor")
        self._place.mkdir()
        (self._place / "then").touch()

    def save(self, changed: list[Path]) -> None:
        then = str(self._place / "then")
        words = ["find", ".", "-name", ".git", "-prune", "-o", "-newer", then, "-printf", ""]
        subprocess.run(words, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        (self.folder / ".git" / "index").read_bytes()
        packed = bytearray()
        for path in changed:
            data = path.read_bytes()
            hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest()
            packed += zlib.compress(data, 1)
        for name, data in (("pack", bytes(packed)), ("idx", b"x" * 28 * len(changed)), ("ref", b"x" * 41)):
            write_durable(self._place / name, data)
        sync(self._place)


class Commit(Way):
    label = "git add -A && git commit --no-verify (not durable)"

    def save(self, changed: list[Path]) -> None:
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "--no-verify", "--allow-empty", "-qm", "save")

    def tidy(self) -> None:
        shutil.rmtree(self.folder / ".git" / "logs", ignore_errors=True)


class Stash(Way):
    label = "git stash create (no untracked files, not durable)"

    def save(self, changed: list[Path]) -> None:
        git(self.folder, "stash", "create")

    def tidy(self) -> None:
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "--no-verify", "--allow-empty", "-qm", "save")


class Scanning(Way):
    label = "outlast, looking at everything"
    watches = False

    def ready(self) -> None:
        from outlast.store.local import Local
        from outlast.workspace.capture.saver import Saver

        self.saver = Saver(self.folder, Local(self.folder.with_name(self.folder.name + "-state")))
        if self.watches:
            self.saver.watch()
        self.save([])

    def save(self, changed: list[Path]) -> None:
        from outlast.workspace.types import Purpose

        save = self.saver.capture(Purpose(kind="beat", run=BEATS))
        assert save is not None, "a beat's save is always made"
        assert save.taken == len(changed), f"{save.taken} files saved of {len(changed)}"
        self.hinted = save.hinted

    def tidy(self) -> None:
        self.saver.tend()

    def close(self) -> None:
        self.saver.close()


class Hinted(Scanning):
    label = "outlast, with hints"
    watches = True

    def ready(self) -> None:
        super().ready()
        self.save([])


def write_durable(path: Path, data: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())


def sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


WAYS: dict[str, type[Way]] = {
    "floor": Floor, "scan": Scanning, "hinted": Hinted, "commit": Commit, "stash": Stash,
}  # fmt: skip
