"""A repository that git itself made and judges."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from outlast.workspace.git.objects import Algo, algo_named
from tests.support.environment import TIMEOUT_S

GIT_QUIET = ["-c", "advice.detachedHead=false", "-c", "gc.auto=0"]


@dataclass(frozen=True, slots=True)
class GitRepo:
    folder: Path
    algo: Algo

    @property
    def git_dir(self) -> Path:
        return self.folder / ".git"

    @property
    def packs(self) -> Path:
        return self.git_dir / "objects" / "pack"

    def git(self, *words: str | bytes | Path, stdin: bytes = b"") -> bytes:
        """What git printed; a test fails with git's own words."""
        done = self.try_git(*words, stdin=stdin)
        assert done.returncode == 0, (words, done.stderr.decode(errors="replace"))
        return done.stdout

    def try_git(self, *words: str | bytes | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = ["git", *GIT_QUIET, "-C", self.folder, *words]
        return subprocess.run(command, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)

    def fsck(self) -> None:
        """Git finds nothing to complain of in any object, reachable or not."""
        done = self.try_git("fsck", "--strict", "--full", "--no-dangling", "--unreachable", "--no-progress")
        said = [line for line in done.stderr.splitlines() if not line.startswith(b"notice: ")]
        assert (done.returncode, said) == (0, [])

    def verify_packs(self) -> None:
        for pack in self.packs.glob("*.pack"):
            self.git("index-pack", "--verify", pack)
            self.git("verify-pack", "-v", pack)


def make_repo(folder: Path, form: str = "sha1") -> GitRepo:
    subprocess.run(
        ["git", "init", "-q", f"--object-format={form}", folder],
        check=True,
        timeout=TIMEOUT_S,
        capture_output=True,
    )
    return GitRepo(folder, algo_named(form))
