"""A run and its files: when a save is made, what an event names, and what an attempt finds when it arrives."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Run
from outlast.core import events as ev
from outlast.inspect import doctor
from outlast.operations import requests
from outlast.runs.run import run_engine
from outlast.store import locate
from tests.support import inprocess
from tests.support.inprocess import head_of, journal_of
from tests.support.vaults import git_words, seeing, vault_of

Start = Callable[..., Run]


class BodyError(Exception):
    """The body's own error."""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository with one commit."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "a")
    git(folder, "config", "user.email", "a@b")
    (folder / "a.txt").write_text("one\n")
    commit(folder, "one")
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *git_words(folder, words), *words],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | seeing(folder),
    ).stdout


def commit(folder: Path, message: str) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)
    return git(folder, "rev-parse", "HEAD").strip()


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def saves(store: Path, kind: str = "") -> list[ev.SaveMade]:
    made = [event for event in journal_of(store) if isinstance(event, ev.SaveMade)]
    return [event for event in made if not kind or event.kind == kind]


def work_on(run: Run, folder: Path, beats: int, then: Callable[[Any], None] | None = None) -> None:
    """Each beat adds its number to a file."""
    for beat in run.beats():
        with (folder / "a.txt").open("a") as file:
            file.write(f"{beat.number}\n")
        if beat.number > beats:
            assert then is not None
            then(beat)
        beat.done()


def fail(_: object) -> None:
    raise BodyError("no more")


# -- when --------------------------------------------------------------------------------------------------------


def test_each_beats_end_names_the_save_of_that_moment(start: Start, store: Path, work: Path) -> None:
    with start(workspace=work) as run:
        run.plan(["one", "two"])
        work_on(run, work, 2)
    named = [event.save for event in journal_of(store) if isinstance(event, ev.BeatDone)]
    texts = [git(work, "show", f"{save}:a.txt") for save in named]
    assert texts == ["one\n1\n", "one\n1\n2\n"]


def test_an_exception_with_a_dirty_tree_makes_an_emergency_save_and_says_where(
    start: Start, store: Path, work: Path
) -> None:
    with pytest.raises(BodyError) as raised, start(workspace=work) as run:
        work_on(run, work, 1, fail)
    [save] = saves(store, "emergency")
    message = git(work, "log", "-1", "--format=%B", save.commit)
    assert message.startswith("outlast: emergency save [task t] crash: BodyError: no more\n")
    assert "Outlast-Emergency: true" in message
    assert f"Outlast-Run: {run.id}" in message
    [note] = raised.value.__notes__
    assert f"`git --git-dir={vault_of(work)} show {save.commit[:12]}`" in note
    assert f"`outlast restore {save.commit[:12]} --workspace {work} --store {store}`" in note
    assert git(work, "show", f"{save.commit}:a.txt") == "one\n1\n2\n"


def test_a_spent_budget_makes_an_emergency_save(start: Start, store: Path, work: Path) -> None:
    with pytest.raises(outlast.BudgetReached), start(workspace=work, budget="beats=2") as run:
        work_on(run, work, 9)
    [save] = saves(store, "emergency")
    assert save.reason.startswith("budget: ")


def test_a_finished_run_with_a_dirty_tree_makes_a_final_save_and_a_clean_one_none(
    start: Start, store: Path, work: Path
) -> None:
    with start(workspace=work) as run:
        run.plan(["one"])
        work_on(run, work, 1)
    assert [save.kind for save in saves(store)] == ["beat", "final"]
    with start(workspace=work, again=True) as run:
        run.plan(["one"])
        for beat in run.beats():
            commit(work, "all of it")
            beat.done()
    assert [save.kind for save in saves(store)] == ["beat"]


def test_a_clean_tree_gets_no_emergency_and_no_found_save(start: Start, store: Path, work: Path) -> None:
    for _ in range(2):
        with pytest.raises(BodyError), start(workspace=work) as run:
            for beat in run.beats():
                fail(beat)
    assert [save.kind for save in saves(store)] == ["beat"]


def test_a_save_that_cannot_be_made_at_the_end_is_said_and_the_end_is_recorded(
    start: Start, store: Path, work: Path
) -> None:
    with pytest.raises(BodyError) as raised, start(workspace=work) as run:
        for _ in run.beats():
            (work / "a.txt").write_text("changed")
            shutil.rmtree(vault_of(work) / "objects" / "pack")
            (vault_of(work) / "objects" / "pack").write_text("in the way")
            fail(None)
    assert "could not save the files" in raised.value.__notes__[0]
    assert isinstance(journal_of(store)[-1], ev.AttemptEnded)
    assert (work / "a.txt").read_text() == "changed"


def test_a_branch_shows_the_saves_to_those_who_ask_for_it(
    start: Start, store: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_SAVE_BRANCH", "true")
    git(work, "branch", "outlast")
    with pytest.raises(BodyError), start("a b:c", workspace=work) as run:
        work_on(run, work, 0, fail)
    branches = git(work, "branch", "--format=%(refname:short)").split()
    assert [branch for branch in branches if branch.startswith("outlast-")]
    [branch] = [name for name in branches if name.startswith("outlast-")]
    assert git(work, "show", f"{branch}:a.txt") == "one\n1\n"
    assert (
        git(work, "rev-parse", "HEAD")
        == git(work, "rev-parse", "main")
        == git(work, "rev-parse", f"{branch}^")
    )


# -- arriving ----------------------------------------------------------------------------------------------------


def test_a_resumed_run_goes_back_to_its_save_point_and_keeps_what_was_found(
    start: Start, store: Path, work: Path
) -> None:
    def half_done(_: object) -> None:
        (work / "half").write_text("not done")
        fail(None)

    with pytest.raises(BodyError), start(workspace=work) as run:
        work_on(run, work, 2, half_done)
    with start(workspace=work) as run:
        assert (work / "a.txt").read_text() == "one\n1\n2\n"
        assert not (work / "half").exists()
        [found] = saves(store, "found")
        assert git(work, "show", f"{found.commit}:half") == "not done"
        assert git(work, "show", f"{found.commit}:a.txt") == "one\n1\n2\n3\n"


def test_with_files_kept_it_goes_on_from_what_is_there(start: Start, store: Path, work: Path) -> None:
    with pytest.raises(BodyError), start(workspace=work, files="keep") as run:
        work_on(run, work, 2, fail)
    with start(workspace=work, files="keep"):
        assert (work / "a.txt").read_text() == "one\n1\n2\n3\n"
    assert len(saves(store, "found")) == 1


def test_a_confirmed_effect_names_a_save_too_so_that_files_and_replay_agree(
    start: Start, store: Path, work: Path
) -> None:
    sent: list[str] = []
    with pytest.raises(BodyError), start(workspace=work) as run:
        for beat in run.beats():
            (work / "draft").write_text("as sent")
            beat.act("send", lambda: sent.append((work / "draft").read_text()))
            (work / "draft").write_text("scribbled over")
            fail(beat)
    with start(workspace=work) as run:
        assert (work / "draft").read_text() == "as sent"
        for beat in run.beats():
            beat.act("send", lambda: sent.append("again"))
            break
    assert sent == ["as sent"]


def test_commits_of_the_beat_in_flight_are_taken_back_with_it_and_kept(
    start: Start, store: Path, work: Path
) -> None:
    before = git(work, "rev-parse", "HEAD")
    made = ""
    with pytest.raises(BodyError), start(workspace=work) as run:
        for _ in run.beats():
            (work / "b").write_text("b")
            made = commit(work, "by the agent")
            fail(None)
    with start(workspace=work):
        assert git(work, "rev-parse", "HEAD") == before
        assert not (work / "b").exists()
    assert git(work, "for-each-ref", "--contains", made, "refs/outlast/")


@pytest.mark.parametrize("mode", ["rewind", "keep"])
def test_a_head_that_a_person_moved_needs_a_word(start: Start, store: Path, work: Path, mode: str) -> None:
    with pytest.raises(BodyError), start(workspace=work, files=mode) as run:
        work_on(run, work, 1, fail)
    git(work, "stash", "-q")
    git(work, "switch", "-q", "-c", "elsewhere")
    (work / "mine").write_text("a person's")
    theirs = commit(work, "by a person")
    with (
        pytest.raises(outlast.WorkspaceMoved, match=r"HEAD of .* was moved"),
        start(workspace=work, files=mode),
    ):
        pass
    assert git(work, "rev-parse", "HEAD").strip() == theirs
    assert (work / "mine").read_text() == "a person's"
    with start(workspace=work, files="keep", moved=True):
        assert (work / "mine").exists()


@pytest.mark.parametrize(("mode", "text"), [("rewind", "one\n1\n2\n"), ("keep", "one\n1\n2\n3\n")])
def test_a_workspace_that_is_gone_comes_back(
    start: Start, store: Path, work: Path, mode: str, text: str
) -> None:
    tree = work.parent / "linked"
    git(work, "worktree", "add", "-q", "-b", "topic", str(tree))
    with pytest.raises(BodyError), start(workspace=tree, files=mode) as run:
        work_on(run, tree, 2, fail)
    shutil.rmtree(tree)
    with start(workspace=tree, files=mode):
        assert (tree / "a.txt").read_text() == text, "as at the last beat, or as it was left"
        assert git(tree, "status", "--porcelain").split() == ["M", "a.txt"]


def test_refs_that_did_not_survive_a_power_cut_are_written_again(
    start: Start, store: Path, work: Path
) -> None:
    with pytest.raises(BodyError), start(workspace=work) as run:
        work_on(run, work, 2, fail)
    named = [save.commit for save in saves(store)]
    named += [event.save for event in journal_of(store) if isinstance(event, ev.BeatDone)]
    shutil.rmtree(
        vault_of(work) / "refs" / "outlast"
    )  # as after `git pack-refs`, and a cut before it was written
    with start(workspace=work, files="keep"):
        tips = git(work, "for-each-ref", "--format=%(objectname)", "refs/outlast/").split()
        reached = set(git(vault_of(work), "rev-list", *tips).split())
    assert reached.issuperset(named)


def test_a_folder_without_a_repository_is_saved_all_the_same(
    start: Start, store: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    with pytest.raises(BodyError), start(workspace=folder) as run:
        work_on(run, folder, 1, fail)
    (folder / "a.txt").unlink()
    with start(workspace=folder):
        assert (folder / "a.txt").read_text() == "one\n1\n"
    assert os.listdir(folder) == ["a.txt"]


def test_after_another_boot_files_full_of_zeros_come_back_and_are_named(
    start: Start, store: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "empty on purpose").write_text("")
    with pytest.raises(BodyError), start(workspace=work, files="keep") as run:
        for beat in run.beats():
            (work / "lost").write_text("content")
            (work / "zeros").write_text("content")
            beat.done()
            break
        fail(None)
    (work / "lost").write_text("")
    (work / "zeros").write_bytes(bytes(7))
    (work / "edited").write_text("by hand")
    monkeypatch.setattr("outlast.store.locks.boot_id", lambda: "another boot")
    with start(workspace=work, files="keep"):
        assert (work / "lost").read_text() == (work / "zeros").read_text() == "content"
        assert (work / "empty on purpose").read_text() == ""
        assert (work / "edited").read_text() == "by hand"
    [warned] = [event for event in journal_of(store) if isinstance(event, ev.Warned)]
    assert "lost" in warned.text
    assert "zeros" in warned.text


def test_after_another_boot_the_repository_gets_back_what_its_own_git_had_not_flushed(
    start: Start, store: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BodyError), start(workspace=work, files="keep") as run:
        for beat in run.beats():
            (work / "new").write_text("content")
            git(work, "add", "new")
            git(work, "commit", "-qm", "by the agent")
            beat.done()
            break
        fail(None)
    for path in (work / ".git/objects").glob("??/*"):
        path.chmod(0o644)
        path.write_bytes(b"")
    monkeypatch.setattr("outlast.store.locks.boot_id", lambda: "another boot")
    with start(workspace=work, files="keep"):
        assert git(work, "log", "-1", "--format=%s").strip() == "by the agent"
        git(work, "fsck", "--strict")
    [warned] = [event for event in journal_of(store) if isinstance(event, ev.Warned)]
    assert "came back from the vault" in warned.text


def test_after_another_boot_a_repository_without_its_head_is_known_again(
    start: Start, store: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = git(work, "symbolic-ref", "HEAD")
    with pytest.raises(BodyError), start(workspace=work, files="keep") as run:
        for beat in run.beats():
            beat.done()
            break
        fail(None)
    (work / ".git/HEAD").write_text("")
    monkeypatch.setattr("outlast.store.locks.boot_id", lambda: "another boot")
    with start(workspace=work, files="keep"):
        assert git(work, "symbolic-ref", "HEAD") == branch
    [warned] = [event for event in journal_of(store) if isinstance(event, ev.Warned)]
    assert "HEAD had no content" in warned.text


def test_what_a_damaged_index_names_is_saved_before_the_index_goes_back(
    start: Start, store: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BodyError), start(workspace=work, files="keep") as run:
        for beat in run.beats():
            beat.done()
            break
        fail(None)
    for name in ("lost", "staged"):
        (work / name).write_text(f"{name} by a person\n")
        git(work, "add", name)
    oid = git(work, "rev-parse", ":lost").strip()
    (work / "lost").unlink()
    (work / "staged").write_text("worked on\n")
    lost = work / ".git/objects" / oid[:2] / oid[2:]
    lost.chmod(0o644)
    lost.write_bytes(b"")
    monkeypatch.setattr("outlast.store.locks.boot_id", lambda: "another boot")
    with start(workspace=work, files="keep"):
        assert "staged" not in git(work, "ls-files")
    made = [event for event in journal_of(store) if isinstance(event, ev.SaveMade) and event.kind == "found"]
    assert git(vault_of(work), "show", f"{made[0].commit}^2:staged") == "staged by a person\n"


KILLED = """
import os, signal, sys
import outlast
from pathlib import Path
work = Path(sys.argv[2])
with outlast.run("t", goal="g", store=sys.argv[1], project="p", workspace=work) as run:
    for beat in run.beats():
        with (work / "a.txt").open("a") as file:
            file.write(f"{beat.number}\\n")
        if beat.number == 3:
            (work / "half").write_text("x")
            os.kill(os.getpid(), signal.SIGKILL)
        beat.done()
"""


def test_killed_in_the_middle_of_a_beat_it_goes_on_with_the_files_of_the_last_one(
    store: Path, work: Path
) -> None:
    words = [sys.executable, "-c", KILLED, str(store), str(work)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    with outlast.run("t", goal="g", store=store, project="p", workspace=work) as run:
        beat = next(iter(run.beats()))
        assert beat.number == 3
        assert (work / "a.txt").read_text() == "one\n1\n2\n"
        assert not (work / "half").exists()


def test_the_context_names_the_files_and_commits_since_the_start(
    start: Start, store: Path, work: Path
) -> None:
    with start(workspace=work) as run:
        for beat in run.beats():
            (work / "a.txt").write_text("edited")
            (work / "new").write_text("new")
            commit(work, "by the agent")
            (work / "late").write_text("late")
            beat.done()
            break
        text = run.context()
        assert "a.txt (edited, " in text
        assert "new (new, " in text
        assert "late (new, " in text
        assert "by the agent" in text
        assert text == run.context()


def test_what_a_person_changed_between_two_attempts_is_kept_and_named(
    start: Start, store: Path, work: Path
) -> None:
    with pytest.raises(BodyError), start(workspace=work) as run:
        work_on(run, work, 1, fail)
    (work / "hint.md").write_text("try this")
    with start(workspace=work):
        assert (work / "hint.md").read_text() == "try this"
        assert (work / "a.txt").read_text() == "one\n1\n"
    [warned] = [event for event in journal_of(store) if isinstance(event, ev.Warned)]
    assert "hint.md" in warned.text
    assert "a.txt" not in warned.text


def test_a_long_run_keeps_few_packs_and_every_beat_can_be_read(start: Start, store: Path, work: Path) -> None:
    with start(workspace=work) as run:
        for beat in run.beats():
            (work / "a.txt").write_text(f"{beat.number}\n")
            (work / f"new{beat.number % 7}").write_text(f"{beat.number}\n" * 50)
            beat.done()
            if beat.number == 130:
                break
    named = [event.save for event in journal_of(store) if isinstance(event, ev.BeatDone)]
    assert len(set(named)) == 130
    asked = "".join(f"{save}:a.txt\n" for save in named)
    told = subprocess.run(
        ["git", "cat-file", "--batch"],
        cwd=vault_of(work),
        input=asked,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert told[3::4] == [str(number) for number in range(1, 131)]
    assert "missing" not in git(vault_of(work), "fsck", "--no-dangling")


def test_doctor_says_that_saves_of_before_show_in_the_repository(
    start: Start, store: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    with pytest.raises(BodyError), start(workspace=work) as run:
        work_on(run, work, 1, fail)
    assert not [found for found in doctor.examine(locate(store)) if found.what == "saves"]
    git(work, "update-ref", "refs/old", "HEAD")
    (work / ".git" / "refs" / "old").rename(_folder(work / ".git" / "refs" / "outlast" / "r") / "beat")
    [found] = [found for found in doctor.examine(locate(store)) if found.what == "saves"]
    assert "push --mirror" in found.text


def test_saves_can_be_kept_out_of_the_repository(
    start: Start, store: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_SAVE_WHERE", "shadow")
    with pytest.raises(BodyError) as raised, start(workspace=work) as run:
        work_on(run, work, 1, fail)
    assert not (work / ".git" / "refs" / "outlast").exists()
    look = raised.value.__notes__[0].split("`")[1]
    assert "a.txt" in subprocess.run(look, shell=True, check=True, capture_output=True, text=True).stdout
    with start(workspace=work) as run:
        assert (work / "a.txt").read_text() == "one\n1\n"
        assert "a.txt (edited" in run.context()


def test_a_person_who_commits_between_two_attempts_is_asked_whatever_else_was_recorded(
    start: Start, store: Path, work: Path
) -> None:
    with pytest.raises(BodyError), start(workspace=work) as run:
        work_on(run, work, 1, fail)
    git(work, "config", "core.logAllRefUpdates", "false")
    theirs = commit(work, "by a person")
    with inprocess.reading(store) as opened:
        requests.pause(opened, run.id)
        requests.resume(opened, run.id)
    with pytest.raises(outlast.WorkspaceMoved), start(workspace=work):
        pass
    assert git(work, "rev-parse", "main").strip() == theirs


def test_what_the_agent_committed_before_a_clean_ending_is_not_taken_for_a_persons(
    start: Start, store: Path, work: Path
) -> None:
    def half(beat: Any) -> None:
        (work / "half").write_text("half")
        commit(work, "half")
        fail(beat)

    with pytest.raises(BodyError), start(workspace=work) as run:
        work_on(run, work, 1, half)
    (work / "theirs").write_text("a person's")
    with start(workspace=work):
        assert not (work / "half").exists()
        assert (work / "theirs").exists()


@pytest.mark.parametrize("point", ["restore.deleted", "restore.written", "restore.head", "restore.index"])
def test_killed_while_it_rewinds_the_next_one_still_knows_what_a_person_changed(
    start: Start, store: Path, work: Path, point: str
) -> None:
    def half(beat: Any) -> None:
        for name in ("b", "c"):
            (work / name).write_text("half")
        commit(work, "half")
        fail(beat)

    with pytest.raises(BodyError), start(workspace=work) as run:
        work_on(run, work, 2, half)
    (work / "a.txt").write_text("mended by a person\n")
    (work / "hint").write_text("a person's")
    with pytest.raises(inprocess.Killed), inprocess.armed(inprocess.at_point(point)), start(workspace=work):
        pass
    with start(workspace=work):
        assert (work / "a.txt").read_text() == "mended by a person\n"
        assert (work / "hint").read_text() == "a person's"
        assert not (work / "b").exists()


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_killed_while_a_lost_workspace_is_filled_the_next_one_fills_it(
    start: Start, store: Path, tmp_path: Path, nth: int
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    for number in range(4):
        (folder / f"f{number}").write_text(str(number))
    with pytest.raises(BodyError), start(workspace=folder, files="keep") as run:
        for _ in run.beats():
            fail(None)
    shutil.rmtree(folder)
    killed = inprocess.armed(inprocess.at_point("restore.written", nth))
    with pytest.raises(inprocess.Killed), killed, start(workspace=folder, files="keep"):
        pass
    with start(workspace=folder, files="keep"):
        assert sorted(os.listdir(folder)) == ["f0", "f1", "f2", "f3"]


@pytest.mark.parametrize("made", [True, False], ids=["git init", "rm -rf .git"])
def test_a_repository_that_came_or_went_makes_no_other_run(
    store: Path, tmp_path: Path, work: Path, made: bool
) -> None:
    folder = tmp_path / "plain" if made else work
    folder.mkdir(exist_ok=True)
    (folder / "a.txt").write_text("one\n")

    def start(**terms: Any) -> Run:
        return outlast.run("t", store=store, workspace=folder, **terms)

    with pytest.raises(BodyError), start() as first:
        for beat in first.beats():
            if beat.number == 2:
                fail(beat)
            beat.done()
    if made:
        git(folder, "init", "-q")
    else:
        shutil.rmtree(folder / ".git")
    if not made:
        with pytest.raises(outlast.WorkspaceMoved, match="was moved since"), start():
            pass
    with start(files="keep") as second:
        assert second.id == first.id
        assert run_engine(second).state.beats == 1
        next(iter(second.beats())).done()
    assert (folder / "a.txt").read_text() == "one\n"


def test_a_pause_with_a_dirty_tree_saves_the_files(start: Start, store: Path, work: Path) -> None:
    with pytest.raises(outlast.RunPaused), start(workspace=work) as run:
        for beat in run.beats():
            (work / "a.txt").write_text(f"{beat.number}")
            with inprocess.reading(store) as opened:
                requests.pause(opened, run.id)
            beat.done()
    [save] = saves(store, "emergency")
    assert "pause" in save.reason
    assert head_of(store).status == "paused"


def test_many_files_deleted_at_once_are_said_in_the_log(start: Start, store: Path, work: Path) -> None:
    for number in range(60):
        (work / f"f{number}").write_text("x")
    with start(workspace=work) as run:
        for beat in run.beats():
            for number in range(60):
                (work / f"f{number}").unlink()
            beat.done()
            break
    assert [event for event in journal_of(store) if isinstance(event, ev.Warned) and "deleted" in event.text]
