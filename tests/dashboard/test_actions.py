"""Acts: said beforehand, done once, recorded with who did it; the same functions as the commands. Real runs and git."""

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from outlast import Run
from outlast.dashboard.actions import perform
from outlast.dashboard.documents import ActName, Done, Foreseen, Wish
from outlast.inspect import find
from outlast.store import open_store
from outlast.store.protocol import Store, Summary, Where
from outlast.supervisor.guardian import lock
from tests.supervisor.supervised_command import Night, kill_at_once
from tests.support import inprocess
from tests.support.environment import Isolated
from tests.support.inprocess import at_point, attempt
from tests.support.processes import wait_for

BY = "alice via ui"
KEY = "sk-ant-api03-" + "a1B2" * 24


class Board:
    """A store, and acts on its newest run of a task."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def summary(self, of: str = "t") -> Summary:
        return self.store.list(Where(task=of))[0]

    def status(self, of: str = "t") -> str:
        summary = self.summary(of)
        return find.shown_status(self.store, summary.state, summary.root)

    def comes_to(self, status: str, of: str = "t") -> None:
        wait_for(lambda: self.status(of) == status or None, what=f"{of} to be {status}")

    def wish(self, act: ActName, of: str = "t", **fields: Any) -> Wish:
        return Wish(act=act, run=self.summary(of).run, **fields)

    def foresee(self, act: ActName, of: str = "t", **fields: Any) -> Foreseen:
        """What would happen; nothing does, which is looked at."""
        before = [self.summary(of), self.store.inbox.pending(self.summary(of).run)]
        foreseen = perform.foresee(self.store, self.wish(act, of, **fields))
        assert [self.summary(of), self.store.inbox.pending(self.summary(of).run)] == before
        for text in (foreseen.title, *foreseen.says, foreseen.command, foreseen.refused, foreseen.hint):
            assert text.isprintable()
        return foreseen

    def do(self, act: ActName, of: str = "t", **fields: Any) -> Done:
        return perform.do(self.store, self.wish(act, of, **fields), BY)

    def refused(self, act: ActName, of: str = "t", **fields: Any) -> tuple[str, str]:
        """Said beforehand, and not done: one line each, with a hint, and nothing changed."""
        before = self.summary(of)
        foreseen, done = self.foresee(act, of, **fields), self.do(act, of, **fields)
        assert self.summary(of) == before
        assert (done.ok, done.changed, done.by) == (False, False, BY)
        assert foreseen.refused == done.says
        for text in (done.says, done.hint, foreseen.hint):
            assert text
            assert text.isprintable()
            assert len(text) < 700
        return done.says, done.hint

    def events(self, tag: str, run: str = "") -> list[Any]:
        run = run or self.summary().run
        return [item.event for item in self.store.read(run, after=0, tags=(tag,)).events]

    def asked(self, run: str = "") -> list[tuple[str, str]]:
        """What was asked of a run, and by whom."""
        return [(event.what, event.by) for event in self.events("requested", run)]

    def attempts(self) -> int:
        return self.summary().state.attempts


@pytest.fixture
def board(state: Isolated) -> Iterator[Board]:
    store = open_store(state.state_home / "outlast")
    yield Board(store)
    store.close()


def beats(run: Run, count: int = 2) -> None:
    """A run of `count` beats that is cut off in the next one."""
    for beat in run.beats():
        if beat.number > count:
            raise RuntimeError("the agent broke down")
        beat.act("post", dict)
        beat.done("x")


def interrupted(start: Callable[..., Run], **terms: Any) -> None:
    with pytest.raises(RuntimeError, match="broke down"):
        attempt(start(**terms), beats)


def pasted(foreseen: Foreseen, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command of the page, as a shell takes it."""
    words = shlex.split(foreseen.command)
    assert words[0] == "outlast"
    return subprocess.run(
        [sys.executable, "-P", "-m", "outlast", *words[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


# -- a living run ------------------------------------------------------------------------------------------------------


def test_a_living_run_is_paused_resumed_and_cancelled_each_once_and_by_name(
    board: Board, night: Night
) -> None:
    night.start_agent()
    night.ready(1)
    watcher = lock.of(board.store.local, board.summary().run)
    assert watcher is not None
    said = board.foresee("pause")
    assert said.says[0].startswith("Its command is stopped at once, in the middle of what it does")
    assert said.says[2] == f"1 supervisor, pid {watcher.supervisor}, stays until then."
    assert said.command == f"outlast pause {board.summary().run}"
    assert board.foresee("resume").refused.endswith("is running")
    first, second = board.do("pause"), board.do("pause")
    assert (first.ok, first.changed, first.by) == (True, True, BY)
    assert (second.ok, second.changed) == (True, False)
    board.comes_to("paused")
    assert board.asked() == [("pause", BY)]

    said = board.foresee("resume")
    assert not said.refused
    assert "goes on at beat 1 with `" in said.says[0]
    assert str(night.work) in said.says[0]
    assert said.command == f"outlast resume {board.summary().run} --detach"
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: board.do("resume"), range(4)))
    assert [done.ok for done in outcomes] == [True] * 4, outcomes
    assert sum(done.changed for done in outcomes) == 1, outcomes
    night.ready(2)
    assert board.attempts() == 2
    assert board.asked() == [("pause", BY), ("resume", BY)]
    assert board.do("resume").changed is False

    assert board.do("cancel").ok
    board.comes_to("cancelled")
    again = board.do("cancel")
    assert (again.ok, again.changed, again.says[-10:]) == (True, False, "d already.")
    assert board.asked()[-1] == ("cancel", BY)
    assert board.refused("resume")[0].endswith("is cancelled")


def test_a_run_that_was_killed_goes_on_in_the_background(board: Board, night: Night) -> None:
    process = night.start_agent()
    pids = night.ready(1)
    watcher = lock.of(board.store.local, board.summary().run)
    assert watcher is not None
    kill_at_once([watcher.guardian, watcher.supervisor, *pids])
    process.wait()
    board.comes_to("interrupted")
    done = board.do("resume")
    assert (done.ok, done.changed) == (True, True)
    assert "goes on from beat 1" in done.says
    night.ready(2)
    night.let_go()
    board.comes_to("done")
    assert board.asked() == [("resume", BY)]


def test_a_command_that_ends_at_once_is_started_once_by_all_who_press_together(
    board: Board, night: Night
) -> None:
    words = ("sh", "-c", "echo started >> ../starts; exit 1")
    night.start("--task", "t", "--restarts", "1", "--", *words).wait()
    assert board.status() == "failed"
    before, barrier = (night.folder / "starts").read_text(), threading.Barrier(4)

    def press(_: int) -> Done:
        barrier.wait()
        return board.do("resume")

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(press, range(4)))
    assert [done.ok for done in outcomes] == [True] * 4, outcomes
    assert sum(done.changed for done in outcomes) == 1, outcomes
    assert (night.folder / "starts").read_text() == before * 2
    assert board.asked() == [("resume", BY)]


def test_a_start_that_cannot_be_is_refused_before_anything_changes(board: Board, night: Night) -> None:
    night.start_agent()
    night.ready(1)
    board.do("pause")
    board.comes_to("paused")
    night.work.rename(night.folder / "elsewhere")
    (night.work).write_text("a file is in the way")
    before = board.asked()
    done = board.do("resume")
    assert (done.ok, done.changed, board.status(), board.asked()) == (False, False, "paused", before)
    assert str(night.work) in done.says


# -- a resting run -----------------------------------------------------------------------------------------------------


def test_a_program_of_somebodys_own_may_be_started_again_and_nothing_is_started(
    board: Board, start: Callable[..., Run]
) -> None:
    interrupted(start)
    assert board.do("pause").says.endswith("is paused now.")
    said = board.foresee("pause")
    assert (said.says, said.refused) == ((said.says[0],), "")
    assert said.says[0].endswith("is paused already: nothing changes.")
    assert board.do("pause").changed is False
    assert "start that, and it goes on" in board.foresee("resume").says[1]
    done = board.do("resume")
    assert (done.ok, done.changed) == (True, True)
    assert "start its program, and it goes on at beat 3" in done.says
    assert board.do("resume").changed is False
    assert board.status() == "interrupted"
    assert board.asked() == [("pause", BY), ("resume", BY)]
    assert board.attempts() == 1
    assert board.do("cancel").changed
    assert board.refused("pause")[0].endswith("is cancelled")


def test_two_people_who_add_budget_do_not_add_twice(board: Board, start: Callable[..., Run]) -> None:
    interrupted(start, budget=["400k", "usd=12"])
    said = board.foresee("budget", amounts="+200k")
    assert "becomes 600,000 tokens, $12.00; it was 400,000 tokens, $12.00." in said.says[0]
    assert said.wish.limit_was == "400,000 tokens, $12.00"
    barrier = threading.Barrier(4)

    def press(_: int) -> Done:
        barrier.wait()
        return perform.do(board.store, said.wish, BY)

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(press, range(4)))
    assert sum(done.ok for done in outcomes) == 1, outcomes
    assert {done.says for done in outcomes if not done.ok} == {
        "the budget is 600,000 tokens, $12.00 by now, and was 400,000 tokens, $12.00"
    }
    assert board.asked() == [("more", BY)]
    budget = board.summary().state.budget
    assert budget is not None
    assert (budget.tokens, budget.cost_microusd) == (600_000, 12_000_000)
    assert (
        board.refused("budget", amounts="+1k", limit_was=said.wish.limit_was)[1] == "look at it and ask again"
    )
    assert board.do("budget", amounts="usd=+2.50 +1k").ok
    assert "601,000 tokens, $14.50" in board.foresee("budget", amounts="+1").says[0]


def test_what_a_living_run_was_asked_for_counts_before_it_is_taken_in(
    board: Board, start: Callable[..., Run]
) -> None:
    with start(budget="400k") as run:
        for beat in run.beats():
            if beat.number == 1:
                said = board.foresee("budget", amounts="+200k")
                assert "takes it in at its next beat or act" in said.says[-1]
                assert perform.do(board.store, said.wish, BY).ok
                assert perform.do(board.store, said.wish, "bob").ok is False
                assert board.foresee("budget", amounts="+1k").wish.limit_was == "600,000 tokens"
                beat.done()
            else:
                beat.finish()
                beat.done()
    assert board.asked() == [("more", BY)]
    assert board.summary().state.budget is not None


@pytest.mark.parametrize(
    "amounts",
    ["nonsense", "-5", "+-5", "0", "+0", "9" * 60, "usd=+9e99", "1e3", "tokens", "+1k +2k", "time=+2h", "£5", "until=+1h", ","],
)  # fmt: skip
def test_amounts_that_make_no_sense_are_refused(
    board: Board, start: Callable[..., Run], amounts: str
) -> None:
    interrupted(start, budget=["400k"])
    board.refused("budget", amounts=amounts)


def test_what_is_left_open_is_filled_in_or_asked_for(board: Board, start: Callable[..., Run]) -> None:
    interrupted(start, budget=["400k"])
    said = board.foresee("budget")
    assert (said.wish.amounts, said.takes, said.lacks) == ("+200k", ("amounts",), ())
    said = board.foresee("settle")
    assert (said.lacks, said.command, said.refused) == (("effect", "finding"), "", "")
    assert board.foresee("fork").takes == ("beat", "task", "folder", "amounts")
    for act in ("budget", "settle", "fork", "restore"):
        done = board.do(act)  # type: ignore[arg-type]
        assert (done.ok, bool(done.hint)) == (False, True), done
    assert board.asked() == []


# -- settle ------------------------------------------------------------------------------------------------------------


def in_doubt(start: Callable[..., Run]) -> None:
    def body(run: Run) -> None:
        for beat in run.beats():
            beat.act("git push", lambda: 1)

    assert not attempt(start(), body, at_point("act.performed"))


def test_an_effect_is_settled_once_and_who_did_it_is_told(board: Board, start: Callable[..., Run]) -> None:
    in_doubt(start)
    assert board.foresee("settle", finding="happened").wish.effect == "1.1"
    fields = {"effect": "1.1", "finding": "happened", "result": '{"url": "https://x"}'}
    said = board.foresee("settle", **fields)
    assert said.says[0].startswith("Effect 1.1 is: git push")
    assert said.says[1] == "Effect 1.1, git push, is recorded as: it happened, by your word."
    assert '{"url":"https://x"}' in said.says[2]
    done = board.do("settle", **fields)
    assert (done.ok, done.changed) == (True, True)
    again = board.do("settle", **fields)
    assert (again.ok, again.changed) == (True, False)
    assert again.says == f"Effect 1.1 happened already, as {BY} said."
    assert board.foresee("settle", **fields).says[0].endswith("nothing changes.")
    says, _ = board.refused("settle", effect="1.1", finding="did_not")
    assert f"settled already as 'confirmed' by {BY}" in says
    [event] = board.events("effect_settled")
    assert (event.by, event.finding) == (BY, "happened")


@pytest.mark.parametrize(
    ("text", "value"), [("pushed it", "pushed it"), ("12", 12), ("", None), ('"a"', "a")]
)
def test_a_plain_text_is_a_result_too(
    board: Board, start: Callable[..., Run], text: str, value: object
) -> None:
    in_doubt(start)
    assert board.do("settle", effect="1.1", finding="happened", result=text).ok
    [event] = board.events("effect_settled")
    assert json.loads(bytes(event.result.v)) == value


@pytest.mark.parametrize(
    "fields",
    [
        {"effect": "1.1", "finding": "happened", "result": '{"url": '},
        {"effect": "1.1", "finding": "happened", "result": "[" * 100_000},
        {"effect": "1.1", "finding": "happened", "result": "x" * (1 << 20)},
        {"effect": "1.1", "finding": "did_not", "result": "12"},
        {"effect": "9.9", "finding": "happened"},
        {"effect": "1.1\n", "finding": "happened"},
        {"effect": "\ud800", "finding": "happened"},
        {"effect": "x" * 10_000, "finding": "happened"},
    ],
)
def test_a_word_on_an_effect_that_makes_no_sense_is_refused(
    board: Board, start: Callable[..., Run], fields: dict[str, Any]
) -> None:
    in_doubt(start)
    board.refused("settle", **fields)


def test_of_two_words_on_an_effect_of_a_living_run_the_first_holds(
    board: Board, start: Callable[..., Run]
) -> None:
    in_doubt(start)
    with start() as run:
        first = board.do("settle", effect="1.1", finding="happened", result="mine")
        assert (first.ok, first.changed) == (True, True)
        assert first.says.endswith("its holder takes it in at its next beat or act.")
        again = board.do("settle", effect="1.1", finding="happened", result="mine")
        assert (again.ok, again.changed) == (True, False)
        other = perform.do(board.store, board.wish("settle", effect="1.1", finding="did_not"), "bob")
        assert other.says == f"{BY} said already that effect 1.1 happened"
        for beat in run.beats():
            assert beat.act("git push", lambda: 1) == "mine"
            beat.finish()
            beat.done()
    [event] = board.events("effect_settled")
    assert (event.by, event.finding) == (BY, "happened")


# -- fork --------------------------------------------------------------------------------------------------------------


def test_a_fork_says_what_may_be_done_again_and_its_journal_who_made_it(
    board: Board, start: Callable[..., Run]
) -> None:
    interrupted(start)
    said = board.foresee("fork", beat=1)
    source = board.summary().run
    assert f"Run {source} did 1 later effect, which the fork may do again:" in said.says
    assert "2.1 post: confirmed" in said.says
    assert said.wish.task == "t-fork-1"
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: board.do("fork", beat=1), range(4)))
    assert [done.ok for done in outcomes] == [True] * 4
    assert sum(done.changed for done in outcomes) == 1
    assert {done.link for done in outcomes} == {board.summary("t-fork-1").run}
    assert board.asked(board.summary("t-fork-1").run) == [("fork", BY)]
    assert board.asked() == []
    assert attempt(start("t-fork-1"), lambda run: [beat.finish() or beat.done() for beat in run.beats()])
    assert board.status("t-fork-1") == "done"
    again = perform.do(board.store, said.wish, BY)  # with its name it is found also after it was started
    assert (again.ok, again.changed, again.link) == (True, False, outcomes[0].link)
    assert "The fork is there already" in board.foresee("fork", beat=1, task="t-fork-1").says[0]


def test_a_forks_budget_is_moved_and_never_copied(board: Board, start: Callable[..., Run]) -> None:
    interrupted(start, budget=["beats=10"])
    said = board.foresee("fork", beat=1)
    assert (said.wish.amounts, said.refused) == ("beats=4", ""), "half of what is left is offered"
    assert "has a budget of beats" in board.do("fork", beat=1).says, "and moved only if somebody says so"
    assert board.do("fork", beat=1, amounts="beats=3").ok
    assert board.asked() == [("less", BY), ("forked", BY)]
    limits = [board.summary(task).state.budget for task in ("t", "t-fork-1")]
    assert [limit.beats for limit in limits if limit is not None] == [7, 4]


@pytest.mark.parametrize(
    "fields",
    [{"beat": -1}, {"beat": 3}, {"beat": 10**18}, {"beat": 1, "task": "t"}, {"beat": 1, "task": "a\nb"},
     {"beat": 1, "task": "x" * 10_000}, {"beat": 1, "amounts": "1k,1k"}, {"beat": 1, "folder": "relative"}],
)  # fmt: skip
def test_a_fork_that_makes_no_sense_is_refused(
    board: Board, start: Callable[..., Run], fields: dict[str, Any]
) -> None:
    interrupted(start)
    board.refused("fork", **fields)
    assert len(board.store.list(Where())) == 1


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path: Path, state: Isolated) -> Path:
    """A repository with a file that the run of `worked` changes at each beat."""
    folder = tmp_path / "work"
    folder.mkdir()
    script = "git init -q -b main && echo one > a.txt && git add -A && git commit -qm one"
    subprocess.run(["sh", "-c", script], cwd=folder, env=state.environ(), check=True)
    return folder


def worked(start: Callable[..., Run], work: Path) -> None:
    def body(run: Run) -> None:
        for beat in run.beats():
            if beat.number > 2:
                raise RuntimeError("the agent broke down")
            (work / "a.txt").write_text(f"beat {beat.number}\n")
            (work / ".env").write_text(f"KEY={KEY}\n")
            beat.done()

    with pytest.raises(RuntimeError, match="broke down"):
        attempt(start(workspace=work), body)


def test_a_save_is_brought_back_into_a_new_folder_and_that_is_recorded(
    board: Board, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    worked(start, work)
    before = subprocess.run(
        ["git", "status", "--porcelain"], cwd=work, capture_output=True, check=True
    ).stdout
    run = board.summary().run
    said = board.foresee("restore", save=f"{run}@1", folder=str(tmp_path / "new"))
    assert len(said.wish.save) == 40
    assert f"are written into {tmp_path}/new." in said.says[0]
    assert not (tmp_path / "new").exists()
    done = perform.do(board.store, said.wish, BY)
    assert (done.ok, done.changed, done.link) == (True, True, run), done
    assert (tmp_path / "new/a.txt").read_text() == "beat 1\n"
    assert not (tmp_path / "new/.env").exists()
    assert (work / "a.txt").read_text() == "beat 2\n"
    after = subprocess.run(["git", "status", "--porcelain"], cwd=work, capture_output=True, check=True).stdout
    assert after == before
    [event] = board.events("requested")
    assert (event.what, event.by, event.id) == ("restore", BY, 0)
    assert json.loads(bytes(event.args.v)) == {"save": said.wish.save, "to": str(tmp_path / "new")}
    assert (
        "is there and not empty" in board.refused("restore", save=said.wish.save, folder=said.wish.folder)[0]
    )
    assert board.status() == "interrupted"
    assert (
        "restore"
        in subprocess.run(
            [sys.executable, "-m", "outlast", "log", run], capture_output=True, text=True, check=True
        ).stdout
    )
    assert attempt(start(workspace=work), lambda run: [beat.finish() or beat.done() for beat in run.beats()])
    suggested = board.foresee("restore")  # the newest save, beside the workspace; also of a run that is done
    assert suggested.wish.folder == f"{work}-{suggested.wish.save[:7]}"
    assert perform.do(board.store, suggested.wish, BY).ok
    assert board.asked() == [("restore", BY), ("restore", BY)]
    assert board.status() == "done"


def test_a_restore_beside_a_living_run_is_recorded_by_its_holder(
    board: Board, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    with start(workspace=work) as run:
        for beat in run.beats():
            if beat.number == 1:
                done = board.do("restore", save=board.summary().state.last_save, folder=str(tmp_path / "new"))
                assert done.ok, done
                assert done.says.endswith("its holder records that at its next beat or act.")
                beat.done()
            else:
                beat.finish()
                beat.done()
    assert board.asked() == [("restore", BY)]
    assert (board.status(), board.attempts()) == ("done", 1)
    assert (tmp_path / "new/a.txt").read_text() == "one\n"


def test_a_run_that_died_is_not_buried_by_a_restore(
    board: Board, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    assert not attempt(start(workspace=work), lambda run: beats(run), at_point("beat.begun"))
    open_attempt = board.summary().state.attempt
    assert open_attempt is not None
    assert board.do("restore", save=board.summary().state.last_save, folder=str(tmp_path / "new")).ok
    assert board.summary().state.attempt == open_attempt
    assert board.asked() == [("restore", BY)]


def test_a_fork_with_files_of_its_own_is_made_once(
    board: Board, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    worked(start, work)
    said = board.foresee("fork", beat=1, folder=str(tmp_path / "forked"))
    assert f"Its files, as they were then, are written into {tmp_path}/forked." in said.says
    for changed in (True, False):
        done = board.do("fork", beat=1, folder=str(tmp_path / "forked"))
        assert (done.ok, done.changed) == (True, changed), done
    assert (tmp_path / "forked/a.txt").read_text() == "beat 1\n"
    fork = board.summary("t-fork-1")
    assert (fork.run, fork.state.workspace) == (done.link, str(tmp_path / "forked"))
    assert board.asked(fork.run) == [("fork", BY)]
    board.refused("fork", beat=2, folder=str(tmp_path / "forked"))


def test_a_fork_of_a_command_is_resumed_in_a_folder_of_its_own(board: Board, night: Night) -> None:
    night.start_agent()
    night.ready(1)
    board.do("cancel")
    board.comes_to("cancelled")
    before = (night.work / "work.txt").read_text()
    forked = board.do("fork", beat=0, folder=str(night.folder / "forked"))
    assert (forked.ok, forked.hint) == (True, f"`outlast resume {forked.link}` starts it"), forked
    assert f" in {night.folder}/forked; it has no limit." in board.foresee("resume", "t-fork-1").says[0]
    resumed = board.do("resume", "t-fork-1")
    assert (resumed.ok, resumed.changed) == (True, True), resumed
    night.ready(2)
    night.let_go()
    board.comes_to("done", "t-fork-1")
    assert (night.folder / "forked/work.txt").read_text() == "attempt 2\n"
    assert (night.work / "work.txt").read_text() == before


HOSTILE_FOLDERS = (
    "relative", "", " ", "/", "..", "/etc/x/../..", "{tmp}/x/../y", "{tmp}/a\nb", "{tmp}/a\x1b[2Jb", "{tmp}/a\0b",
    "{tmp}/" + "x" * 300, "/" + "y" * 10_000, "{tmp}/link/new", "{tmp}/dangling", "{tree}/.git/new",
    "{tree}/.GIT", "{tmp}/bare.git/new", "{tree}/inside", "{tree}", "{tmp}/nowhere/new", "{store}/new", "{store}",
    "{tmp}/file", "{tmp}/file/new", "/proc/new", "~root/new", "~x", "/{tmp}/new", "{tmp}/\u202egnp", "\ud800", "-rf", "C:\\x",
    "{tmp}/full",
)  # fmt: skip


def test_a_folder_that_is_no_new_one_is_refused_and_nothing_is_written(
    board: Board, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    worked(start, work)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "real/there")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "bare.git")], check=True)
    save, run = board.summary().state.last_save, board.summary().run
    (board.store.local.run_folder(run)).mkdir(exist_ok=True)
    before = listed(tmp_path)
    for given in HOSTILE_FOLDERS:
        folder = given.replace("{tmp}", str(tmp_path)).replace("{store}", str(board.store.local.folder))
        folder = folder.replace("{tree}", str(work))
        done = board.do("restore", save=save, folder=folder)
        assert (done.ok, done.changed) == (False, False), (given, done)
        assert done.says.isprintable(), given
        assert done.hint.isprintable(), given
        assert done.hint, given
        foreseen = board.foresee("restore", save=save, folder=folder)
        assert not given.strip() or foreseen.refused == done.says
        if given.strip():
            assert not board.do("fork", beat=1, folder=folder).ok, given
    assert listed(tmp_path) == before
    assert board.asked() == []
    assert len(board.store.list(Where())) == 1
    assert str(tmp_path / "real/new") in board.do("restore", save=save, folder=f"{tmp_path}/link/new").hint


def listed(folder: Path) -> list[str]:
    """Everything in a folder, but git's and the run's own locks."""
    return sorted(str(path) for path in folder.rglob("*") if ".git/" not in str(path))


NO_SAVES = ("", "zzzz", "HEAD", "main", "--all", "0" * 40, "@1", "x@1", "a" * 90, "\0", "refs/heads/main")


def test_what_is_no_save_of_the_run_is_not_restored(
    board: Board, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    worked(start, work)
    for save in NO_SAVES:
        done = board.do("restore", save=save, folder=str(tmp_path / "new"))
        assert (done.ok, bool(done.hint), (tmp_path / "new").exists()) == (False, True, False), done


def test_the_commands_do_the_same(
    board: Board, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    worked(start, work)
    for act, fields in (
        ("pause", {}), ("resume", {"amounts": "beats=9"}), ("budget", {"amounts": "beats=+2"}),
        ("fork", {"beat": 1, "folder": f"{tmp_path}/a fork", "task": "o'fork", "amounts": "beats=1"}),
        ("restore", {"folder": f"{tmp_path}/it's new"}), ("cancel", {}),
    ):  # fmt: skip
        said = board.foresee(act, **fields)  # type: ignore[arg-type]
        assert not said.refused, said
        answer = pasted(said, tmp_path)
        assert answer.returncode == 0, (said.command, answer.stderr)
    assert [what for what, _ in board.asked()] == [
        "pause",
        "resume",
        "budget",
        "more",
        "less",
        "forked",
        "cancel",
    ]
    assert (tmp_path / "a fork/a.txt").read_text() == "beat 1\n"
    assert (tmp_path / "it's new/a.txt").read_text() == "beat 2\n"
    assert board.summary("o'fork").state.workspace == f"{tmp_path}/a fork"


# -- whatever comes ----------------------------------------------------------------------------------------------------


def test_a_run_that_is_not_there_is_said_so(board: Board) -> None:
    for run in ("", "%", "*", "nosuchrun234", "../..", "a\0b", "x" * 100_000, "\ud800", "a b"):
        wish = Wish(act="pause", run=run)
        done, foreseen = perform.do(board.store, wish, BY), perform.foresee(board.store, wish)
        assert (done.ok, done.says) == (False, foreseen.refused)
        assert done.says.startswith("no run is called")
        assert done.hint == "see `outlast ls --all`"
        assert len(done.says) < 100


@hypothesis.settings(max_examples=60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(data=st.data())
def test_no_text_breaks_an_act(board: Board, data: st.DataObject) -> None:
    if not board.store.list(Where()):
        with pytest.raises(RuntimeError, match="broke down"):
            attempt(inprocess.starter(board.store.local.folder)(budget=["400k"]), beats)
    act: ActName = data.draw(st.sampled_from(("resume", "budget", "settle", "fork", "restore")))
    texts = st.text(max_size=30) | st.sampled_from(
        ("+1k", "1.1", "~/x", "/x", "null", "until=+1h", "=", "+", "usd=+1")
    )
    fields = {
        name: data.draw(texts) for name in ("amounts", "limit_was", "effect", "result", "save", "folder")
    }
    wish = board.wish(act, **fields, finding="happened", beat=data.draw(st.integers(-(2**70), 2**70)))
    for text in (
        perform.do(board.store, wish, data.draw(st.text(max_size=300))).says,
        perform.foresee(board.store, wish).title,
    ):
        assert text
        assert text.isprintable()


def test_who_asks_is_one_bounded_line(board: Board, start: Callable[..., Run]) -> None:
    interrupted(start)
    done = perform.do(board.store, board.wish("pause"), "mallory\nvia\x1b[2J ui" + "x" * 10_000)
    assert done.by.isprintable()
    assert len(done.by) == 200
    assert board.asked() == [("pause", done.by)]


def test_a_secret_in_the_command_of_a_run_is_not_shown(board: Board, night: Night) -> None:
    process = night.start("--task", "t", "--restarts", "1", "--", "sh", "-c", f"exit 1 # {KEY}")
    process.wait()
    said = board.foresee("resume")
    assert "[masked:Anthropic key]" in said.says[0]
    assert KEY not in str(said)
