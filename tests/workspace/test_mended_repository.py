"""What a power cut takes of the user's repository, made by hand, and what the next attempt brings back of it."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs

from outlast.store.local import Local
from outlast.workspace import saves
from outlast.workspace.capture.files import Deadline
from outlast.workspace.capture.save import SaveInProgress
from outlast.workspace.capture.saver import Saver
from outlast.workspace.restore import power_cut
from outlast.workspace.timing import Timing
from outlast.workspace.types import Purpose
from tests.support import processes
from tests.support.environment import TIMEOUT_S
from tests.workspace.gitrepo import GitRepo, make_repo

LONG_AGO_S = 1_000_000_000


def later() -> datetime:
    """After all that was written: so a cut shows it that took everything since."""
    return datetime.now(UTC) + timedelta(hours=1)


class Cut:
    """A repository with three commits and some staged work, of which there is a save."""

    def __init__(self, folder: Path) -> None:
        self.repo: GitRepo = make_repo(folder / "work")
        self.repo.git("symbolic-ref", "HEAD", "refs/heads/main")
        self.file = self.repo.folder / "file"
        self.commits = [self.commit(number) for number in range(3)]
        self.repo.git("branch", "other", "HEAD~1")
        self.file.write_text("staged\n" * 500)
        self.repo.git("add", "file")
        self.saver = Saver(self.repo.folder, Local(folder / "state"))
        self.save = self.saver.capture(Purpose(kind="beat", run="r"))

    def commit(self, number: int) -> str:
        self.file.write_text(f"{number}\n" * 500)
        self.repo.git("add", "file")
        self.repo.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", str(number))
        return self.head()

    def head(self) -> str:
        return self.repo.git("rev-parse", "HEAD").decode().strip()

    def loose(self, spared: set[Path]) -> list[Path]:
        return sorted({*self.repo.git_dir.glob("objects/??/*")} - spared)

    def mend(self, *, looked_at: datetime | None = None) -> str:
        """What was mended, once; `looked_at`: as if the save had looked then."""
        assert self.save is not None
        held = saves.read(self.saver.reader(), self.save.commit, self.saver.repo().algo)
        if looked_at is not None:
            held = structs.replace(held, meta=structs.replace(held.meta, looked_at=looked_at))
        said = power_cut.mend_repository(self.saver, held)
        if looked_at is None:
            assert power_cut.mend_repository(self.saver, held) == ""
        return said

    def whole(self) -> bool:
        """Git has all of it, without the vault."""
        self.repo.git("fsck", "--strict", "--no-reflogs")  # a reflog may still name what is lost
        self.repo.git("status")
        self.repo.git("write-tree")
        return True


@pytest.fixture
def cut(tmp_path: Path) -> Iterator[Cut]:
    made = Cut(tmp_path)
    yield made
    made.saver.close()


def test_a_repository_that_lost_nothing_is_not_touched(cut: Cut) -> None:
    before = {path: path.stat().st_mtime_ns for path in cut.repo.git_dir.rglob("*")}
    assert cut.mend() == ""
    assert {path: path.stat().st_mtime_ns for path in cut.repo.git_dir.rglob("*")} == before


@pytest.mark.parametrize("how", ["empty", "torn", "gone"])
def test_objects_of_commits_and_index_come_back_from_the_vault(cut: Cut, how: str) -> None:
    objects = cut.loose(set())
    assert len(objects) > 8
    for path in objects:
        path.chmod(0o644)
        data = path.read_bytes()
        path.unlink()
        if how != "gone":
            path.write_bytes(b"" if how == "empty" else data[: len(data) - 4])
    assert f"{len(objects)} objects" in cut.mend()
    assert cut.whole()
    assert cut.head() == cut.commits[-1]
    assert cut.repo.git("show", ":file") == b"staged\n" * 500


def test_an_empty_object_that_nobody_has_is_no_object_that_git_takes_for_one(cut: Cut) -> None:
    path = cut.repo.git_dir / "objects/3b/18e512dba79e4c8300dd08aeb37f8e728b8dad"  # of b"hello world\n"
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert cut.mend() == ""
    cut.file.write_text("hello world\n")
    cut.repo.git("add", "file")
    assert cut.repo.git("show", ":file") == b"hello world\n"


def test_a_commit_that_was_lost_before_any_save_had_it_is_left_for_the_one_of_the_save(cut: Cut) -> None:
    spared = {*cut.loose(set())}
    lost = cut.commit(3)
    cut.repo.git("branch", "-f", "other", "HEAD")
    for path in cut.loose(spared):
        path.chmod(0o644)
        path.write_bytes(b"")
    said = cut.mend()
    assert "refs/heads/main at" in said
    assert "refs/heads/other at" in said
    assert lost != cut.head() == cut.commits[-1]
    assert cut.repo.git("rev-parse", "other").decode().strip() == cut.commits[1]
    assert cut.whole()


@pytest.mark.parametrize("left", [b"", bytes(41)])
def test_an_empty_branch_is_where_the_save_has_it(cut: Cut, left: bytes) -> None:
    (cut.repo.git_dir / "refs/heads/main").write_bytes(left)
    assert "refs/heads/main at" in cut.mend()
    assert cut.head() == cut.commits[-1]


def test_packed_refs_that_are_empty_are_where_the_save_has_them(cut: Cut) -> None:
    cut.repo.git("pack-refs", "--all")
    (cut.repo.git_dir / "packed-refs").write_bytes(b"")
    said = cut.mend()
    assert "refs/heads/main at" in said
    assert "refs/heads/other at" in said
    assert cut.head() == cut.commits[-1]


def test_a_branch_that_somebody_removed_since_does_not_come_back(cut: Cut) -> None:
    cut.repo.git("branch", "-D", "other")
    assert cut.mend() == ""
    assert cut.repo.git("branch", "--list", "other") == b""


def test_a_branch_whose_move_was_lost_is_where_the_save_has_it_and_what_it_was_is_anchored(cut: Cut) -> None:
    now = cut.repo.git("commit-tree", "-m", "of nobody", "HEAD^{tree}", stdin=b"").decode().strip()
    branch = cut.repo.git_dir / "refs/heads/main"
    branch.write_text(f"{now}\n")
    assert f"refs/heads/main is back at {cut.commits[-1][:12]}, and was at {now[:12]}" in cut.mend(
        looked_at=later()
    )
    assert cut.head() == cut.commits[-1]
    vault = GitRepo(cut.saver.repo().vault, cut.repo.algo)
    assert now in vault.git("for-each-ref", "--format=%(objectname)", "refs/outlast/hand/moved").decode()


def test_a_branch_that_somebody_moved_since_stays_there(cut: Cut) -> None:
    cut.repo.git("reset", "-q", "--hard", cut.commits[1])
    assert cut.mend() == ""
    assert cut.head() == cut.commits[1]


@pytest.mark.parametrize("name", ["refs/heads/main", "HEAD"])
def test_what_came_from_a_backup_with_its_old_time_stays(cut: Cut, name: str) -> None:
    file = cut.repo.git_dir / name
    file.write_text("ref: refs/heads/other\n" if name == "HEAD" else f"{cut.commits[1]}\n")
    os.utime(file, (LONG_AGO_S, LONG_AGO_S))
    assert cut.mend() == ""
    assert cut.head() == cut.commits[1]


def test_a_commit_made_while_a_save_was_reading_stays(cut: Cut) -> None:
    cut.file.write_text("unsaved\n")
    saving = SaveInProgress(cut.saver, Purpose(kind="beat", run="r"), Deadline(None), None)
    newest = cut.commit(3)
    until_s = time.time() + 2 * Timing.current().file_tick_s
    processes.wait_for(lambda: time.time() > until_s or None, what="a slow save")
    cut.save = saving.make()
    assert cut.mend() == ""
    assert cut.head() == newest


def test_a_head_whose_move_was_lost_is_on_the_branch_of_the_save(cut: Cut) -> None:
    cut.repo.git("checkout", "-q", "-f", "other")
    assert cut.mend() == "", "a person did this"
    assert cut.head() == cut.commits[1]
    assert "HEAD is back at refs/heads/main, and was at refs/heads/other" in cut.mend(looked_at=later())
    assert cut.head() == cut.commits[-1]


def test_a_detached_head_whose_move_was_lost_is_anchored(cut: Cut) -> None:
    cut.repo.git("checkout", "-q", "-f", "--detach")
    now = cut.commit(3)
    assert f"HEAD is back at refs/heads/main, and was at {now[:12]}" in cut.mend(looked_at=later())
    vault = GitRepo(cut.saver.repo().vault, cut.repo.algo)
    assert now in vault.git("for-each-ref", "--format=%(objectname)", "refs/outlast/hand/moved").decode()


def test_a_history_that_a_person_began_anew_stays_away(cut: Cut) -> None:
    cut.repo.git("update-ref", "-d", "HEAD")
    assert cut.mend() == ""
    assert cut.mend(looked_at=later()) != "", "a cut took it"
    shutil.rmtree(cut.repo.git_dir)
    cut.repo.git("init", "-q", "-b", "main")
    assert cut.mend() == ""
    assert not cut.loose(set())


@pytest.mark.parametrize("lost", ["commit", "tree", "blob"])
@pytest.mark.parametrize("how", ["empty", "torn", "gone"])
def test_a_commit_that_is_lost_in_part_keeps_nothing_else_from_being_mended(
    cut: Cut, lost: str, how: str
) -> None:
    spared = {*cut.loose(set())}
    newest = cut.commit(3)
    for path in {*cut.loose(spared)}:
        if cut.repo.git("cat-file", "-t", path.parent.name + path.name).decode().strip() == lost:
            data = path.read_bytes()
            path.unlink()
            if how != "gone":
                path.write_bytes(b"" if how == "empty" else data[:-4])
    for path in spared:
        path.unlink()
    held = saves.read(cut.saver.reader(), cut.save.commit, cut.repo.algo) if cut.save else None
    assert held is not None
    said = power_cut.mend_repository(cut.saver, held)
    assert "came back from the vault" in said
    if lost == "blob":  # its other files are there: what is left of it is the user's
        assert cut.head() == newest
        assert "are gone for good" in said
    else:
        assert cut.head() == cut.commits[-1]
    for commit in cut.commits:
        assert cut.repo.git("ls-tree", "-r", commit)
        assert cut.repo.git("show", f"{commit}:file")


def test_a_branch_that_is_locked_keeps_nothing_else_from_being_mended_and_is_named(cut: Cut) -> None:
    cut.repo.git("checkout", "-q", "-f", "other")
    (cut.repo.git_dir / "refs/heads/main").write_bytes(b"")
    (cut.repo.git_dir / "refs/heads/main.lock").write_bytes(b"")
    for path in cut.loose(set()):
        path.unlink()
    assert cut.save is not None
    said = power_cut.mend_repository(
        cut.saver, saves.read(cut.saver.reader(), cut.save.commit, cut.repo.algo)
    )
    assert "refs/heads/main in" in said
    assert "is locked" in said
    assert "came back from the vault" in said
    assert cut.repo.git("show", f"{cut.commits[1]}:file")


def test_what_a_partial_clone_lacks_is_no_damage(cut: Cut, tmp_path: Path) -> None:
    cut.repo.git("config", "uploadpack.allowFilter", "true")
    (cut.repo.folder / "below").mkdir()
    (cut.repo.folder / "below" / "far").write_text("far\n")
    cut.repo.git("add", "-A")
    cut.commit(3)
    words = ["git", "clone", "-q", "--filter=blob:none", "--sparse", f"file://{cut.repo.folder}"]
    subprocess.run([*words, tmp_path / "clone"], check=True, timeout=TIMEOUT_S, capture_output=True)
    clone = GitRepo(tmp_path / "clone", cut.repo.algo)
    with contextlib.closing(Saver(clone.folder, Local(tmp_path / "state"))) as saver:
        save = saver.capture(Purpose(kind="beat", run="r"))
        assert save is not None
        (clone.folder / "file").write_text("staged since\n")
        clone.git("add", "file")
        assert power_cut.mend_repository(saver, saves.read(saver.reader(), save.commit, clone.algo)) == ""
    assert clone.git("show", ":file") == b"staged since\n"


def test_an_index_that_is_damaged_is_as_in_the_save(cut: Cut) -> None:
    index = cut.repo.git_dir / "index"
    for damage in (b"", bytes(200), index.read_bytes()[:-30]):
        index.write_bytes(damage)
        assert "the index was damaged" in cut.mend()
        assert cut.whole()
        assert cut.repo.git("show", ":file") == b"staged\n" * 500
