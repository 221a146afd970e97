"""How an attempt ends, how the next begins, and who is refused."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Run, faults
from outlast.core import events as ev
from outlast.runs.opening import admission
from outlast.runs.run import run_engine
from outlast.store.protocol import RunFilter
from tests.support import inprocess, processes
from tests.support.inprocess import armed, at_point, attempt, command, head_of, journal_of, tags

Start = Callable[..., Run]


class Boom(Exception):
    """The body's own error."""


def ended(store: Path) -> ev.AttemptEnded:
    return [event for event in journal_of(store) if isinstance(event, ev.AttemptEnded)][-1]


# -- leaving -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "cause", "evidence"),
    [
        (Boom("of mine"), "interrupted", "crash", "Boom: of mine"),
        (SystemExit(3), "interrupted", "operator", "SystemExit: 3"),
        (KeyboardInterrupt(), "interrupted", "signal", "SIGINT"),
        (OSError(28, "No space left on device"), "interrupted", "disk", "No space left"),
        (outlast.BudgetReached("enough"), "interrupted", "budget", "enough"),
    ],
    ids=["exception", "exit", "interrupt", "disk full", "budget"],
)
def test_an_error_comes_through_unchanged_and_leaves_the_run_resumable(
    start: Start, store: Path, error: BaseException, status: str, cause: str, evidence: str
) -> None:
    with pytest.raises(type(error)) as raised, start() as run:
        run.plan(["a", "b"])
        for beat in run.beats():
            beat.decide("d", int, beat.number)
            raise error
    assert raised.value is error
    assert raised.value.__cause__ is None
    end = ended(store)
    assert (end.status, end.cause) == (status, cause)
    assert evidence in end.evidence
    head = head_of(store)
    assert (head.status, head.cause, head.beats, head.attempt) == (status, cause, 0, None)
    replayed: list[Any] = []
    with start() as again:
        for beat in again.beats():
            beat.number == 1 and replayed.append(beat.decide("d", lambda: "asked again"))
            beat.done()
    assert replayed == [1]
    assert again.is_done
    assert run_engine(again).state.attempts == 2


def test_break_and_return_leave_the_beat_open_and_the_run_resumable(start: Start, store: Path) -> None:
    def work() -> str:
        with start() as run:
            run.plan(["a", "b"])
            for beat in run.beats():
                beat.decide("d", lambda: "first")
                return beat.step
        return ""

    assert work() == "a"
    head = head_of(store)
    assert (head.status, head.cause, head.open_beat is not None) == ("interrupted", "operator", True)
    with start() as run:
        for beat in run.beats():
            assert beat.step == "a"
            assert beat.decide("d", lambda: "second") == "first"
            break


def test_an_error_inside_the_body_is_not_replaced_by_one_of_the_store(start: Start, store: Path) -> None:
    """The lease was lost meanwhile: the program still sees its own error first."""
    with pytest.raises(BaseException) as raised, start() as run:
        for _beat in run.beats():
            with inprocess.reading(store) as other:
                other._db.writer.execute("UPDATE runs SET epoch = epoch + 1")
            raise Boom
    assert isinstance(raised.value, Boom)


@pytest.mark.parametrize("point", ["store.before_commit", "store.after_commit"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_ctrl_c_in_the_middle_of_a_commit_comes_through_and_leaves_the_run_resumable(
    start: Start, store: Path, point: str, nth: int
) -> None:
    def interrupt(_name: str) -> None:
        raise KeyboardInterrupt

    def work() -> None:
        with start() as run:
            run.plan(["a", "b"])
            with armed(at_point(point, nth, interrupt)):
                for beat in run.beats():
                    beat.decide("d", lambda: 1)
                    beat.done()

    with pytest.raises(KeyboardInterrupt):
        work()
    with start() as run:
        for beat in run.beats():
            beat.done()
    assert run.is_done


def test_the_same_run_object_may_be_entered_again_and_replays_the_open_beat(start: Start) -> None:
    done: list[int] = []
    run = start()
    for number in range(2):
        try:
            with run:
                run.plan(["a", "b"])
                for beat in run.beats():
                    beat.act("post", lambda: done.append(1))
                    if number == 0:
                        raise Boom
                    break
        except Boom:
            pass
    assert len(done) == 1


def test_a_run_already_open_is_not_opened_twice(start: Start) -> None:
    with start() as run, pytest.raises(outlast.UsageError):
        run.__enter__()


# -- finishing ---------------------------------------------------------------------------------------------------


def test_finish_outside_a_beat_ends_the_run_at_once(start: Start, store: Path) -> None:
    with start() as run:
        run.plan(["a", "b"])
        for beat in run.beats():
            beat.done()
            break
        run.finish({"answer": 42})
        assert run.is_done
        assert list(run.beats()) == []
        assert run.result == {"answer": 42}
    assert (head_of(store).status, head_of(store).cause) == ("done", "done")


def test_the_result_can_be_read_after_the_block(start: Start) -> None:
    with start() as run:
        run.finish("r")
    assert run.result == "r"


@pytest.mark.parametrize("point", ["beat.done", "checks.before", "checks.passed"])
def test_a_result_staged_in_the_last_beat_survives_a_kill_before_the_run_is_finished(
    start: Start, point: str
) -> None:
    def body(run: Run) -> None:
        for beat in run.beats():
            beat.finish("the result")
            beat.done()

    assert not attempt(start(), body, at_point(point))
    assert attempt(start(), body)
    with start() as run:
        assert run.result == "the result"


def test_a_done_run_is_entered_without_beats_and_again_starts_a_new_one(start: Start, store: Path) -> None:
    for expected in (1, 0, 0):
        with start() as run:
            run.plan(["a"])
            met = 0
            for beat in run.beats():
                met += 1
                beat.done()
        assert (met, run.is_done) == (expected, True)
    first = run.id
    with start(again=True) as run:
        assert run.id != first
        for beat in run.beats():
            beat.finish()
            beat.done()
    with start() as run:
        assert run.is_done
        assert run.id != first


def test_again_goes_on_with_a_run_that_is_not_done(start: Start) -> None:
    with start() as run:
        first = run.id
    with start(again=True) as run:
        assert run.id == first


def test_in_a_done_run_nothing_can_be_written(start: Start, store: Path) -> None:
    with start() as run:
        run.finish()
    before = tags(store)
    with start() as run:
        run.plan(["x"])
        run.finish("other")
        with pytest.raises(outlast.OutlastError):
            run.remember("n", "https://example.invalid/n")
    assert tags(store) == before


# -- checks and invariants ---------------------------------------------------------------------------------------


def test_a_failing_check_keeps_the_run_from_being_done_until_it_passes(start: Start, store: Path) -> None:
    for _ in range(2):
        with (
            pytest.raises(outlast.ChecksFailed, match="nothing yet"),
            start(done=["true", "test -f proof || { echo nothing yet; exit 3; }"]) as run,
        ):
            run.plan(["a"])
            for beat in run.beats():
                beat.done()
    head = head_of(store)
    assert (head.status, head.cause, head.beats) == ("interrupted", "checks", 1)
    with start() as run:
        assert "nothing yet" in run.context()
        Path("proof").touch()
    assert run.is_done
    finished = [event for event in journal_of(store) if isinstance(event, ev.Finished)]
    assert [check.exit_code for check in finished[0].checks] == [0, 0]


def test_a_check_that_takes_too_long_fails_and_takes_its_children_with_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_CHECK_TIMEOUT_S", "0.2")
    with (
        pytest.raises(outlast.ChecksFailed, match="failed with 124"),
        start(done=["sleep 1000 & echo $! > pid; wait"]) as run,
    ):
        run.finish()
    pid = int(Path("pid").read_text())
    processes.wait_for(lambda: not processes.alive(pid), what="the check's child to be gone")


def test_a_failing_invariant_keeps_the_beat_open(start: Start, store: Path) -> None:
    contract: dict[str, Any] = {"invariants": "test ! -e broken"}
    with pytest.raises(outlast.InvariantFailed), start(**contract) as run:
        run.plan(["a", "b"])
        for beat in run.beats():
            if beat.step == "b":
                Path("broken").touch()
            beat.done()
    head = head_of(store)
    assert (head.status, head.cause, head.beats) == ("interrupted", "invariant", 1)
    Path("broken").unlink()
    with start(**contract) as run:
        for beat in run.beats():
            assert beat.step == "b"
            beat.done()
    assert run.is_done


# -- the contract ------------------------------------------------------------------------------------------------

CONTRACT: dict[str, Any] = {"goal": "g", "done": ["true"], "invariants": ["true"], "budget": "400k"}


@pytest.mark.parametrize(
    "change",
    [{"goal": "h"}, {"done": ["false"]}, {"done": []}, {"invariants": ["exit 0"]}, {"budget": "500k"}],
)
def test_another_contract_is_refused_unless_it_is_amended(
    start: Start, store: Path, change: dict[str, Any]
) -> None:
    with start(**CONTRACT):
        pass
    before = tags(store)
    with pytest.raises(outlast.ContractChanged, match="another"), start(**CONTRACT | change):
        pass
    assert tags(store) == before
    with start(**CONTRACT | change, amend=True) as run:
        given = CONTRACT | change
        assert (run.contract.goal, list(run.contract.checks)) == (given["goal"], given["done"])
    assert tags(store).count("contract_amended") == 1
    with start(**CONTRACT | change):
        pass
    assert tags(store).count("contract_amended") == 1
    try:
        with start(**CONTRACT):
            assert "budget" in change, "only a program that still names its first budget is let in"
    except outlast.ContractChanged:
        pass
    assert tags(store).count("contract_amended") == 1, "nothing goes back to the first contract unasked"


def test_what_is_not_said_is_as_recorded(start: Start) -> None:
    with start(**CONTRACT):
        pass
    with start() as run:
        assert run.contract.goal == "g"
        assert run.budget.tokens == 400_000


# -- who is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "hint"), [("pause", "outlast resume"), ("cancel", "again"), ("handoff", "take-back")]
)
def test_a_run_that_was_stopped_by_somebody_is_refused_with_the_hint(
    start: Start, store: Path, what: str, hint: str
) -> None:
    with start():
        pass
    command(store, what)
    before = tags(store)
    with pytest.raises(outlast.RunRefused) as raised, start():
        pass
    assert hint in raised.value.hint
    assert tags(store) == before
    with inprocess.reading(store) as opened:
        assert not opened.holder_lives(head_of(store).run)


def test_a_paused_run_goes_on_after_resume(start: Start, store: Path) -> None:
    with start():
        pass
    command(store, "pause")
    command(store, "resume")
    with start() as run:
        assert run.status == "running"


def test_a_live_holder_is_named_and_left_alone(start: Start) -> None:
    with start() as run:
        with pytest.raises(outlast.RunHeld, match=f"held by pid {os.getpid()} on"), start():
            pass
        for beat in run.beats():
            beat.finish()
            beat.done()
    assert run.is_done


def test_a_dead_attempt_is_recorded_as_lost_by_the_next(start: Start, store: Path) -> None:
    assert not attempt(start(), lambda run: inprocess.die("here"))
    with start():
        pass
    ends = [event for event in journal_of(store) if isinstance(event, ev.AttemptEnded)]
    assert (ends[0].cause, ends[0].status) == ("crash", "interrupted")
    assert f"pid {os.getpid()}" in ends[0].evidence


def test_two_projects_with_one_task_do_not_see_each_other(start: Start) -> None:
    with start(project="p"), start(project="q") as other:
        other.finish()
    with start(project="p") as run:
        assert not run.is_done


def test_all_worktrees_of_a_clone_are_one_project(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path / "clone"), *arguments], check=True, capture_output=True)

    (tmp_path / "clone" / "deep").mkdir(parents=True)
    git("init")
    git("-c", "user.name=t", "-c", "user.email=t@example.invalid", "commit", "--allow-empty", "-m", "x")
    git("worktree", "add", str(tmp_path / "tree"))
    projects = set()
    for folder in ("clone", "clone/deep", "tree"):
        monkeypatch.chdir(tmp_path / folder)
        projects.add(run_engine(outlast.run("t")).terms.project)
    assert projects == {str((tmp_path / "clone" / ".git").resolve())}


def test_a_workspace_that_is_not_there_is_refused(start: Start, tmp_path: Path) -> None:
    with pytest.raises(outlast.UsageError, match="not a folder"), start(workspace=tmp_path / "nowhere"):
        pass


# -- forks -------------------------------------------------------------------------------------------------------

FORKING = """
import os, sys, outlast
with outlast.run("t", store=sys.argv[1], project="p") as run:
    run.plan(["a", "b"])
    for beat in run.beats():
        pid = os.fork()
        if pid == 0:
            codes = []
            for late in (lambda: beat.decide("d", lambda: 1), lambda: beat.act("x", lambda: 1), beat.done):
                try:
                    late()
                except outlast.StoreRefused:
                    codes.append(1)
                except BaseException as error:
                    print(repr(error), file=sys.stderr)
            os._exit(0 if codes == [1, 1, 1] else 9)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        beat.done()
print("end")
"""


def test_a_forked_child_cannot_write_its_parents_run_and_does_not_harm_it(store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKING, store],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
    assert head_of(store).status == "done"


def test_a_run_that_is_open_and_is_opened_again_goes_on(start: Start, store: Path) -> None:
    with start() as run:
        for beat in run.beats():
            with pytest.raises(outlast.UsageError, match="already open"):
                run.__enter__()
            beat.done(1)
            break
        assert run_engine(run).state.beats == 1


OUTLIVING = """
import os, sys, time, outlast
run = outlast.run("t", store=sys.argv[1], project="p")
run.__enter__()
there, mine = os.pipe()
if os.fork() == 0:
    os.write(mine, b"x")
    sys.stdin.read()       # outlives its parent, holding whatever it inherited
    os._exit(0)
os.read(there, 1)          # until it runs: what it inherited is let go of by then
os.kill(os.getpid(), 9)
"""


def test_a_forked_child_that_outlives_its_parent_does_not_keep_the_run_held(
    start: Start, store: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", OUTLIVING, store], stdin=subprocess.PIPE) as process:
        assert process.wait(30) == -9
        with start() as run:
            assert run_engine(run).state.attempts == 2
        assert process.stdin is not None


def test_of_two_that_want_a_new_run_of_a_done_task_at_once_one_makes_it(start: Start, store: Any) -> None:
    """Both saw the old one done; both must end up with the same new one, which only one can hold."""
    with start() as run:
        run.finish()
    first, second = start(again=True), start(again=True)
    with inprocess.reading(store) as opened:
        done = inprocess.newest(opened, "t")
        made = opened.create(admission.opened(run_engine(first).terms, None), after=done)
        assert opened.create(admission.opened(run_engine(second).terms, None), after=done) == made
        assert len(opened.list(RunFilter(task="t"))) == 2


def test_an_interrupt_before_the_commit_leaves_nothing_behind_that_commits_later(
    start: Start, store: Any
) -> None:
    """Ctrl-C while another thread commits: what was handed over is withdrawn, and the end is recorded in its place."""
    with pytest.raises(KeyboardInterrupt), start() as run:
        for beat in run.beats():
            beat.decide("d", lambda: 1)

            def interrupt(name: str) -> None:
                if name == "store.before_commit":
                    faults.arm(None)
                    raise KeyboardInterrupt

            faults.arm(interrupt)
            beat.done()
    assert tags(store)[-2:] == ["decided", "attempt_ended"]
    assert head_of(store).cause == "signal"
    with start() as run:
        for beat in run.beats():
            assert beat.decide("d", lambda: 2) == 1
            beat.finish()
            beat.done()
    assert run.is_done
