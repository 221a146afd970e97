"""What a person changed while no attempt lived is theirs: secrets, ignored files, branches of a worktree that is gone."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

import outlast
from outlast.core import events as ev
from outlast.runs.run import run_engine
from tests.runs.test_files import BodyError, Start, commit, fail, git, saves, work, work_on
from tests.support import inprocess
from tests.support.inprocess import journal_of
from tests.workspace.test_guards import PRIVATE_KEY, is_anywhere

__all__ = ["work"]


def warned(store: Path, level: str) -> list[str]:
    found = [event for event in journal_of(store) if isinstance(event, ev.Warned)]
    return [event.text for event in found if event.level.startswith(level)]


# -- secrets -----------------------------------------------------------------------------------------------------------

THEIRS = {"rotated": "rotated\n", "deleted": None, "closed to others": "old\n"}


@pytest.mark.parametrize("how", THEIRS)
def test_a_secret_that_a_person_changed_between_two_attempts_is_kept_and_named(
    start: Start, store: Path, work: Path, how: str
) -> None:
    secret = work / ".env"
    secret.write_text("old\n")
    with pytest.raises(BodyError), start(workspace=work) as run:
        work_on(run, work, 1, fail)
    if how == "deleted":
        secret.unlink()
    elif how == "closed to others":
        secret.chmod(0o600)
    else:
        secret.write_text("rotated\n")
    with start(workspace=work):
        assert (secret.read_text() if secret.exists() else None) == THEIRS[how]
        assert how != "closed to others" or secret.stat().st_mode & 0o777 == 0o600
        assert (work / "a.txt").read_text() == "one\n1\n", "the rest is as at the save point"
    (text,) = warned(store, "kept")
    assert text.endswith(": .env")


@pytest.mark.parametrize("point", ["restore.deleted", "restore.written", "restore.index"])
def test_killed_while_it_rewinds_the_next_one_still_knows_whose_a_secret_is(
    start: Start, store: Path, work: Path, point: str
) -> None:
    (work / ".env").write_text("old\n")

    def half(beat: Any) -> None:
        for name in ("b", "c"):
            (work / name).write_text("half")
        git(work, "add", "b")
        fail(beat)

    with pytest.raises(BodyError), start(workspace=work) as run:
        work_on(run, work, 1, half)
    (work / ".env").write_text("rotated\n")
    with pytest.raises(inprocess.Killed), inprocess.armed(inprocess.at_point(point)), start(workspace=work):
        pass
    with start(workspace=work):
        assert (work / ".env").read_text() == "rotated\n"
        assert not (work / "b").exists()


def test_a_secret_that_the_agent_changed_in_the_beat_in_flight_goes_back_also_when_it_is_ignored_by_then(
    start: Start, store: Path, work: Path
) -> None:
    secret = work / ".env"
    secret.write_text("old\n")
    for ignored in (False, True):

        def half(beat: Any, ignored: bool = ignored) -> None:
            (work / ".gitignore").write_text(".env\n" if ignored else "")
            secret.write_text("half done\n")
            fail(beat)

        with pytest.raises(BodyError), start(workspace=work) as run:
            work_on(run, work, run_engine(run).state.beats, half)
        with start(workspace=work):
            assert secret.read_text() == "old\n"
            assert not (work / ".gitignore").exists()
    assert warned(store, "kept") == []
    assert not is_anywhere(work / ".git", b"half done")


def test_an_ignored_secret_that_a_person_changed_after_the_agent_ignored_it_is_kept(
    start: Start, store: Path, work: Path
) -> None:
    (work / ".env").write_text("old\n")

    def half(beat: Any) -> None:
        (work / ".gitignore").write_text(".env\n")
        fail(beat)

    with pytest.raises(BodyError), start(workspace=work) as run:
        work_on(run, work, 1, half)
    (work / ".env").write_text("rotated\n")
    with start(workspace=work):
        assert (work / ".env").read_text() == "rotated\n"
    (text,) = warned(store, "kept")
    assert ".env" in text


@pytest.mark.parametrize("becomes", ["ignored", "a key"])
def test_a_file_that_a_person_made_one_that_no_save_holds_is_not_deleted_by_the_rewind(
    start: Start, store: Path, work: Path, becomes: str
) -> None:
    (work / "notes").write_text("to be filled\n")
    with pytest.raises(BodyError), start(workspace=work) as run:
        work_on(run, work, 1, fail)
    theirs = (PRIVATE_KEY + b"hush-now") if becomes == "a key" else b"filled\n"
    (work / "notes").write_bytes(theirs)
    if becomes == "ignored":
        (work / ".gitignore").write_text("notes\n")
    with start(workspace=work):
        assert (work / "notes").read_bytes() == theirs
    (text,) = warned(store, "kept")
    assert "notes" in text
    assert not is_anywhere(work / ".git", b"hush-now")


KEY = """
import sys
import outlast
from pathlib import Path
work = Path(sys.argv[2])
with outlast.run("t", goal="g", store=sys.argv[1], project="p", workspace=work) as run:
    for beat in run.beats():
        (work / "deploy").write_text("to be filled")
        if beat.number == 2:
            (work / "deploy").write_text(sys.argv[3])
            (work / ".gitignore").write_text("deploy")
            raise SystemExit(7)
        beat.done()
"""


def test_a_key_that_the_agent_ignored_in_the_beat_in_flight_never_gets_into_the_repository(
    store: Path, work: Path
) -> None:
    key = PRIVATE_KEY.decode() + "hush-now"
    words = [sys.executable, "-c", KEY, str(store), str(work), key]
    assert subprocess.run(words, check=False, capture_output=True).returncode == 7
    with outlast.run("t", goal="g", store=store, project="p", workspace=work):
        assert (work / "deploy").read_text() == "to be filled"
    assert not is_anywhere(work / ".git", b"hush-now")


# -- died without a word -----------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
import outlast
from pathlib import Path
work = Path(sys.argv[2])
with outlast.run("t", goal="g", store=sys.argv[1], project="p", workspace=work) as run:
    for beat in run.beats():
        if beat.number == 2:
            (work / "half").write_text("x")
            os.kill(os.getpid(), signal.SIGKILL)
        beat.done()
"""


def kill_one(store: Path, work: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(store), str(work)], check=False)
    assert done.returncode == -signal.SIGKILL


def test_what_a_person_did_just_after_a_kill_is_named_with_the_save_that_holds_it(
    store: Path, work: Path
) -> None:
    kill_one(store, work)
    (work / "a.txt").write_text("a person's\n")
    theirs = commit(work, "by a person")
    (work / "a.txt").write_text("more of it\n")
    with outlast.run("t", goal="g", store=store, project="p", workspace=work):
        assert (work / "a.txt").read_text() == "one\n"
    (found,) = saves(store, "found")
    (text,) = warned(store, "unsure")
    assert found.commit[:12] in text
    assert theirs[:12] in text
    assert "a.txt" in text
    assert git(work, "show", f"{found.commit}:a.txt") == "more of it\n"
    assert git(work, "for-each-ref", "--contains", theirs, "refs/outlast/")


def test_long_after_a_kill_a_secret_that_was_changed_is_a_persons(store: Path, work: Path) -> None:
    (work / ".env").write_text("old\n")
    kill_one(store, work)
    with apsw.Connection(
        str(store / "outlast.db")
    ) as database:  # as if its lease had been renewed long before
        database.execute("UPDATE runs SET expires_s = expires_s - 100")
    (work / ".env").write_text("rotated\n")
    with outlast.run("t", goal="g", store=store, project="p", workspace=work):
        assert (work / ".env").read_text() == "rotated\n"
    (text,) = warned(store, "kept")
    assert ".env" in text


# -- a worktree that is gone -------------------------------------------------------------------------------------------


@pytest.fixture
def linked(work: Path) -> Path:
    folder = work.parent / "linked"
    git(work, "worktree", "add", "-q", "-b", "topic", str(folder))
    return folder


@pytest.mark.parametrize("mode", ["rewind", "keep"])
def test_a_branch_that_a_person_moved_while_its_worktree_was_gone_needs_a_word(
    start: Start, store: Path, work: Path, linked: Path, mode: str
) -> None:
    with pytest.raises(BodyError), start(workspace=linked, files=mode) as run:
        work_on(run, linked, 1, fail)
    git(work, "worktree", "remove", "--force", str(linked))
    git(work, "switch", "-q", "topic")
    (work / "theirs").write_text("a person's")
    theirs = commit(work, "by a person")
    git(work, "switch", "-q", "main")
    refs = git(work, "for-each-ref")
    with (
        pytest.raises(outlast.WorkspaceMoved, match="topic has moved on"),
        start(workspace=linked, files=mode),
    ):
        pass
    assert not linked.exists()
    assert git(work, "for-each-ref") == refs
    with start(workspace=linked, files=mode, moved=True):
        assert git(linked, "symbolic-ref", "HEAD").strip() == "refs/heads/topic"
    assert git(work, "for-each-ref", "--contains", theirs, "refs/outlast/")


def test_a_branch_that_the_agent_itself_moved_comes_back_with_its_worktree(
    start: Start, store: Path, work: Path, linked: Path
) -> None:
    before = git(work, "rev-parse", "topic")

    def half(beat: Any) -> None:
        commit(linked, "by the agent")
        fail(beat)

    with pytest.raises(BodyError), start(workspace=linked) as run:
        work_on(run, linked, 1, half)
    git(work, "worktree", "remove", "--force", str(linked))
    with start(workspace=linked):
        assert git(work, "rev-parse", "topic") == before
        assert (linked / "a.txt").read_text() == "one\n1\n"


@pytest.mark.parametrize("point", ["restore.folder", "restore.written"])
def test_killed_while_a_worktree_comes_back_a_branch_that_a_person_moved_then_needs_a_word_too(
    start: Start, store: Path, work: Path, linked: Path, point: str
) -> None:
    with pytest.raises(BodyError), start(workspace=linked) as run:
        work_on(run, linked, 1, fail)
    git(work, "worktree", "remove", "--force", str(linked))
    before = git(work, "rev-parse", "topic").strip()
    with pytest.raises(inprocess.Killed), inprocess.armed(inprocess.at_point(point)), start(workspace=linked):
        pass
    tree = git(work, "rev-parse", "topic^{tree}").strip()
    theirs = git(work, "commit-tree", "-p", before, "-m", "by a person", tree).strip()
    git(work, "update-ref", "refs/heads/topic", theirs)
    with pytest.raises(outlast.WorkspaceMoved), start(workspace=linked):
        pass
    assert git(work, "rev-parse", "topic").strip() == theirs
    git(work, "update-ref", "refs/heads/topic", before)
    with start(workspace=linked):
        assert (linked / "a.txt").read_text() == "one\n1\n"
