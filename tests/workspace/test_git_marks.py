"""HEAD, settings and pointers of a repository that a power cut left blank: git knows the repository again, as the save has it."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.store.local import Local
from outlast.workspace.capture.saver import Saver
from outlast.workspace.restore import git_marks
from outlast.workspace.types import Purpose
from tests.support.environment import TIMEOUT_S
from tests.workspace.gitrepo import GitRepo, make_repo

ANOTHER = "another boot"
KINDS = {
    "plain": ("HEAD",),
    "detached": ("HEAD",),
    "sha256": ("HEAD", "config"),
    "apart": (".git", "HEAD", "config"),
    "linked": (".git", "HEAD", "commondir", "gitdir"),
}  # fmt: skip


class BlankMarks:
    """A repository of a kind, of which there is a save."""

    def __init__(self, kind: str, room: Path) -> None:
        form = "sha256" if kind == "sha256" else "sha1"
        main = make_repo(room / "main", form)
        main.git("symbolic-ref", "HEAD", "refs/heads/work")
        main.git("config", "remote.origin.url", "https://example.org/a.git")
        (main.folder / "file").write_text("1\n")
        main.git("add", "-A")
        main.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "1")
        folder = main.folder
        if kind == "linked":
            folder = room / "linked"
            main.git("worktree", "add", "-q", "-b", "side", folder)
        elif kind == "apart":
            folder = room / "apart"
            words = ["git", "clone", "-q", f"--separate-git-dir={room / 'own'}", main.folder, folder]
            subprocess.run(words, check=True, timeout=TIMEOUT_S, capture_output=True)
        self.repo = GitRepo(folder, main.algo)
        if kind == "detached":
            self.repo.git("checkout", "-q", "--detach")
        self.saver = Saver(folder, Local(room / "state"))
        self.save = self.capture()
        git_dir = Path(self.repo.git("rev-parse", "--absolute-git-dir").decode().strip())
        common = (folder / self.repo.git("rev-parse", "--git-common-dir").decode().strip()).resolve()
        self.places = {
            ".git": folder / ".git", "HEAD": git_dir / "HEAD", "config": common / "config", "commondir": git_dir / "commondir",
            "gitdir": git_dir / "gitdir",
        }  # fmt: skip
        self.before = self.looks()

    def capture(self) -> str:
        save = self.saver.capture(Purpose(kind="beat", run="r"))
        assert save is not None
        return save.commit

    def looks(self) -> list[bytes]:
        """What a person sees of it: branch, commit, files, where it is from."""
        questions = (
            ("symbolic-ref", "-q", "HEAD"), ("rev-parse", "HEAD"), ("status", "--porcelain"), ("ls-files", "-s"), ("config", "remote.origin.url"),
        )  # fmt: skip
        return [self.repo.try_git(*words).stdout for words in questions]

    def mend(self, boot_id: str = ANOTHER) -> str:
        return git_marks.mend(self.saver, self.save, boot_id)


@pytest.fixture
def cut(kind: str, tmp_path: Path) -> Iterator[BlankMarks]:
    made = BlankMarks(kind, tmp_path)
    with contextlib.closing(made.saver):
        yield made


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_repository_whose_small_files_are_blank_is_known_again(
    cut: BlankMarks, kind: str, *, zeros: bool
) -> None:
    names = KINDS[kind]
    for lost in (*((name,) for name in names), names):
        for name in lost:
            path = cut.places[name]
            path.write_bytes(bytes(path.stat().st_size if zeros else 0))
        done = cut.mend()
        assert all(name in done for name in lost), done
        assert cut.looks() == cut.before
        assert cut.mend() == ""
        assert cut.saver.repo().shadow is False
        cut.save = cut.capture()


@pytest.mark.parametrize("kind", ["plain", "linked"])
def test_what_was_emptied_since_this_boot_or_is_not_blank_is_left_alone(cut: BlankMarks) -> None:
    from outlast.store import locks

    head = cut.places["HEAD"]
    assert cut.mend() == ""
    head.write_bytes(b"")
    assert cut.mend(locks.boot_id()) == ""
    assert head.read_bytes() == b""
    head.write_bytes(b"ref: refs/heads/another\n")
    assert cut.mend() == ""
    assert head.read_bytes() == b"ref: refs/heads/another\n"
