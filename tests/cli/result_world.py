"""A repository, the worktree of a task in it, and a run that worked there: what `apply`, `undo` and `rm` are tried on."""

import hashlib
import os
import random
import shutil
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import outlast
from outlast.supervisor.worktree import make
from tests.cli.command_line import Cli
from tests.support.environment import TIMEOUT_S
from tests.support.vaults import vault_of

TASK = "1411"
_NAMES = (
    "a",
    "b",
    "c.txt",
    "d.txt",
    "below/e",
    "below/f.txt",
    "below/deep/g",
    "below/deep",
    "new",
    "below/new.txt",
)


@dataclass
class ResultWorld:
    """The repository is the command line's folder; `tree` is the worktree."""

    cli: Cli
    tree: Path = field(init=False)

    def __post_init__(self) -> None:
        self.tree = self.cli.folder.parent / f"{self.cli.folder.name}.outlast" / TASK
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "me")
        self.git("config", "user.email", "me@example.org")

    def git(self, *words: str | Path, folder: Path | None = None, stdin: bytes = b"") -> str:
        done = self.try_git(*words, folder=folder, stdin=stdin)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout.decode(errors="surrogateescape")

    def try_git(
        self, *words: str | Path, folder: Path | None = None, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["git", *words], cwd=folder or self.cli.folder, env=self.cli.environ, input=stdin, capture_output=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip

    def commit(self, text: str = "work", folder: Path | None = None) -> str:
        self.git("add", "-A", folder=folder)
        self.git("commit", "-q", "--allow-empty", "-m", text, folder=folder)
        return self.git("rev-parse", "HEAD", folder=folder).strip()

    def begin(self, **files: str) -> None:
        """A first commit with these files, and the worktree."""
        for name, text in files.items():
            self.write(self.cli.folder, name, text)
        self.commit("first")
        made = make.make(self.cli.folder, TASK)
        assert made.folder == self.tree

    @staticmethod
    def write(folder: Path, name: str, text: str) -> None:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())

    def finish(self, folder: Path | None = None, task: str = TASK, *, done: bool = True) -> str:
        """A run in a folder, by default the worktree, that did one beat; its id."""
        with outlast.run(
            task, workspace=folder or self.tree, project=str(self.cli.folder / ".git"), files="keep"
        ) as run:
            run.plan(["only"] if done else ["one", "two"])
            for beat in run.beats():
                if beat.number == 2:
                    break
                beat.done(beat.number)
        return run.id

    # -- what must be as it was ----------------------------------------------------------------------------------

    def files(self, folder: Path | None = None) -> dict[str, tuple[int, str]]:
        """Every file and link of a worktree, with its permissions and content."""
        root = folder or self.cli.folder
        found = {}
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root)
            if name.parts[0] == ".git" or (path.is_dir() and not path.is_symlink()):
                continue
            mode = path.lstat().st_mode
            data = os.readlink(path).encode() if stat.S_ISLNK(mode) else path.read_bytes()
            found[str(name)] = (mode, hashlib.sha256(data).hexdigest())
        return found

    def git_state(self, folder: Path | None = None) -> tuple[str, ...]:
        """HEAD, branches, what is staged, and what is in progress."""
        where = folder or self.cli.folder
        own = Path(self.git("rev-parse", "--absolute-git-dir", folder=where).strip())
        progress = [name for name in ("MERGE_HEAD", "MERGE_MSG", "index.lock") if (own / name).exists()]
        return (
            (own / "HEAD").read_text(), self.git("for-each-ref", folder=where), self.git("ls-files", "-s", folder=where),
            self.git("status", "--porcelain", folder=where), repr(progress),
        )  # fmt: skip

    def all_state(self, folder: Path | None = None) -> tuple[object, ...]:
        return self.files(folder), self.git_state(folder)

    def saves(self) -> list[str]:
        """The refs of the vault."""
        words = (
            "--git-dir",
            str(vault_of(self.cli.folder)),
            "for-each-ref",
            "--format=%(refname)",
            "refs/outlast",
        )
        return self.git(*words).split()


def random_change(world: ResultWorld, folder: Path, rng: random.Random) -> None:
    """Change, add, delete, rename, link or chmod a file, or put a file, a folder and a link in each other's place."""
    name = rng.choice(_NAMES)
    place = folder / name
    what = rng.randrange(8)
    if any((folder / each).is_file() or (folder / each).is_symlink() for each in _above(name)):
        return
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    if place.is_symlink() or place.is_file():
        if what == 0:
            place.unlink()
        elif what == 7:
            place.unlink()
            world.write(folder, f"{name}/inside", "in a folder\n")
        elif what == 1 and not place.is_symlink():
            place.chmod(0o755 if not place.stat().st_mode & 0o100 else 0o644)
        elif what == 2 and not (folder / f"{name}.moved").exists():
            place.rename(folder / f"{name}.moved")
        elif place.is_symlink():
            place.unlink()
            place.symlink_to(f"to-{rng.randrange(3)}")
        else:
            lines = place.read_text().splitlines() or [""]
            lines[rng.randrange(len(lines))] = f"changed {rng.randrange(4)}"
            place.write_text("\n".join(lines) + "\n")
    elif what == 0:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(f"to-{rng.randrange(3)}")
    else:
        world.write(folder, name, "".join(f"{line} {name}\n" for line in range(rng.choice([1, 9, 30]))))


def _above(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]
