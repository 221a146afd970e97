"""Actions: announced beforehand, done once, recorded with who did it. The same functions as the commands, real runs."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from outlast import Run
from outlast.dashboard.actions import perform
from outlast.dashboard.documents import ActName, Done, Wish
from outlast.store.protocol import RunFilter
from outlast.supervisor.guardian import lock
from tests.dashboard.dashboard import BY, KEY, Dashboard, beats, interrupted
from tests.supervisor.supervised_command import Night
from tests.support import inprocess, sweeps
from tests.support.inprocess import at_point, attempt
from tests.support.processes import kill_at_once

# -- a living run -----------------------------------------------------------------------------------------------------


def test_a_living_run_is_paused_resumed_and_cancelled_each_once_and_by_name(
    dashboard: Dashboard, night: Night
) -> None:
    night.start_agent()
    night.ready(1)
    watcher = lock.of(dashboard.store.local, dashboard.summary().run)
    assert watcher is not None
    said = dashboard.foresee("pause")
    assert said.says[0].startswith("Its command is stopped at once, in the middle of what it does")
    assert said.says[2] == f"1 supervisor, pid {watcher.supervisor}, stays until then."
    assert said.command == f"outlast pause {dashboard.summary().run}"
    assert dashboard.foresee("resume").refused.endswith("is running")
    first, second = dashboard.do("pause"), dashboard.do("pause")
    assert (first.ok, first.changed, first.by) == (True, True, BY)
    assert (second.ok, second.changed) == (True, False)
    dashboard.comes_to("paused")
    assert dashboard.asked() == [("pause", BY)]

    said = dashboard.foresee("resume")
    assert not said.refused
    assert "goes on at beat 1 with `" in said.says[0]
    assert str(night.work) in said.says[0]
    assert said.command == f"outlast resume {dashboard.summary().run} --detach"
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: dashboard.do("resume"), range(4)))
    assert [done.ok for done in outcomes] == [True] * 4, outcomes
    assert sum(done.changed for done in outcomes) == 1, outcomes
    night.ready(2)
    assert dashboard.attempts() == 2
    assert dashboard.asked() == [("pause", BY), ("resume", BY)]
    assert dashboard.do("resume").changed is False

    assert dashboard.do("cancel").ok
    dashboard.comes_to("cancelled")
    again = dashboard.do("cancel")
    assert (again.ok, again.changed, again.says[-10:]) == (True, False, "d already.")
    assert dashboard.asked()[-1] == ("cancel", BY)
    assert dashboard.refused("resume")[0].endswith("is cancelled")


def test_a_run_that_was_killed_goes_on_in_the_background(dashboard: Dashboard, night: Night) -> None:
    process = night.start_agent()
    pids = night.ready(1)
    watcher = lock.of(dashboard.store.local, dashboard.summary().run)
    assert watcher is not None
    kill_at_once([watcher.guardian, watcher.supervisor, *pids])
    process.wait()
    dashboard.comes_to("interrupted")
    done = dashboard.do("resume")
    assert (done.ok, done.changed) == (True, True)
    assert "goes on from beat 1" in done.says
    night.ready(2)
    night.let_go()
    dashboard.comes_to("done")
    assert dashboard.asked() == [("resume", BY)]


def test_a_command_that_ends_at_once_is_started_once_by_all_who_press_together(
    dashboard: Dashboard, night: Night
) -> None:
    words = ("sh", "-c", "echo started >> ../starts; exit 1")
    night.start("--task", "t", "--restarts", "1", "--", *words).wait()
    assert dashboard.status() == "failed"
    before, barrier = (night.folder / "starts").read_text(), threading.Barrier(4)

    def press(_: int) -> Done:
        barrier.wait()
        return dashboard.do("resume")

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(press, range(4)))
    assert [done.ok for done in outcomes] == [True] * 4, outcomes
    assert sum(done.changed for done in outcomes) == 1, outcomes
    assert (night.folder / "starts").read_text() == before * 2
    assert dashboard.asked() == [("resume", BY)]


def test_a_start_that_cannot_be_is_refused_before_anything_changes(
    dashboard: Dashboard, night: Night
) -> None:
    night.start_agent()
    night.ready(1)
    dashboard.do("pause")
    dashboard.comes_to("paused")
    night.work.rename(night.folder / "elsewhere")
    (night.work).write_text("a file is in the way")
    before = dashboard.asked()
    done = dashboard.do("resume")
    assert (done.ok, done.changed, dashboard.status(), dashboard.asked()) == (False, False, "paused", before)
    assert str(night.work) in done.says


# -- a resting run ----------------------------------------------------------------------------------------------------


def test_a_program_of_somebodys_own_may_be_started_again_and_nothing_is_started(
    dashboard: Dashboard, start: Callable[..., Run]
) -> None:
    interrupted(start)
    assert dashboard.do("pause").says.endswith("is paused now.")
    said = dashboard.foresee("pause")
    assert (said.says, said.refused) == ((said.says[0],), "")
    assert said.says[0].endswith("is paused already: nothing changes.")
    assert dashboard.do("pause").changed is False
    assert "start it yourself, and the run goes on" in dashboard.foresee("resume").says[1]
    done = dashboard.do("resume")
    assert (done.ok, done.changed) == (True, True)
    assert "start its program, and it goes on at beat 3" in done.says
    assert dashboard.do("resume").changed is False
    assert dashboard.status() == "interrupted"
    assert dashboard.asked() == [("pause", BY), ("resume", BY)]
    assert dashboard.attempts() == 1
    assert dashboard.do("cancel").changed
    assert dashboard.refused("pause")[0].endswith("is cancelled")


def test_two_people_who_add_budget_do_not_add_twice(dashboard: Dashboard, start: Callable[..., Run]) -> None:
    interrupted(start, budget=["400k", "usd=12"])
    said = dashboard.foresee("budget", amounts="+200k")
    assert "becomes 600,000 tokens, $12.00; it was 400,000 tokens, $12.00." in said.says[0]
    assert said.wish.limit_was == "400,000 tokens, $12.00"
    barrier = threading.Barrier(4)

    def press(_: int) -> Done:
        barrier.wait()
        return perform.do(dashboard.store, said.wish, BY)

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(press, range(4)))
    assert sum(done.ok for done in outcomes) == 1, outcomes
    assert {done.says for done in outcomes if not done.ok} == {
        "the budget is 600,000 tokens, $12.00 by now, and was 400,000 tokens, $12.00"
    }
    assert dashboard.asked() == [("more", BY)]
    budget = dashboard.summary().state.budget
    assert budget is not None
    assert (budget.tokens, budget.cost_microusd) == (600_000, 12_000_000)
    assert (
        dashboard.refused("budget", amounts="+1k", limit_was=said.wish.limit_was)[1]
        == "look at it and ask again"
    )
    assert dashboard.do("budget", amounts="usd=+2.50 +1k").ok
    assert "601,000 tokens, $14.50" in dashboard.foresee("budget", amounts="+1").says[0]


def test_what_a_living_run_was_asked_for_counts_before_it_is_taken_in(
    dashboard: Dashboard, start: Callable[..., Run]
) -> None:
    with start(budget="400k") as run:
        for beat in run.beats():
            if beat.number == 1:
                said = dashboard.foresee("budget", amounts="+200k")
                assert "applies it at its next beat or act" in said.says[-1]
                assert perform.do(dashboard.store, said.wish, BY).ok
                assert perform.do(dashboard.store, said.wish, "bob").ok is False
                assert dashboard.foresee("budget", amounts="+1k").wish.limit_was == "600,000 tokens"
                beat.done()
            else:
                beat.finish()
                beat.done()
    assert dashboard.asked() == [("more", BY)]
    assert dashboard.summary().state.budget is not None


@pytest.mark.parametrize(
    "amounts",
    ["nonsense", "-5", "+-5", "0", "+0", "9" * 60, "usd=+9e99", "1e3", "tokens", "+1k +2k", "time=+2h", "£5", "until=+1h", ","],
)  # fmt: skip
def test_amounts_that_make_no_sense_are_refused(
    dashboard: Dashboard, start: Callable[..., Run], amounts: str
) -> None:
    interrupted(start, budget=["400k"])
    dashboard.refused("budget", amounts=amounts)


def test_what_is_left_open_is_filled_in_or_asked_for(dashboard: Dashboard, start: Callable[..., Run]) -> None:
    interrupted(start, budget=["400k"])
    said = dashboard.foresee("budget")
    assert (said.wish.amounts, said.takes, said.lacks) == ("+200k", ("amounts",), ())
    said = dashboard.foresee("settle")
    assert (said.lacks, said.command, said.refused) == (("effect", "finding"), "", "")
    assert dashboard.foresee("fork").takes == ("beat", "task", "folder", "amounts")
    for act in ("budget", "settle", "fork", "restore"):
        done = dashboard.do(act)  # type: ignore[arg-type]
        assert (done.ok, bool(done.hint)) == (False, True), done
    assert dashboard.asked() == []


# -- settle -----------------------------------------------------------------------------------------------------------


def in_doubt(start: Callable[..., Run]) -> None:
    def body(run: Run) -> None:
        for beat in run.beats():
            beat.act("git push", lambda: 1)

    assert not attempt(start(), body, at_point("act.performed"))


def test_an_effect_is_settled_once_and_who_did_it_is_told(
    dashboard: Dashboard, start: Callable[..., Run]
) -> None:
    in_doubt(start)
    assert dashboard.foresee("settle", finding="happened").wish.effect == "1.1"
    fields = {"effect": "1.1", "finding": "happened", "result": '{"url": "https://x"}'}
    said = dashboard.foresee("settle", **fields)
    assert said.says[0].startswith("Effect 1.1 is: git push")
    assert said.says[1] == "Effect 1.1, git push, is recorded as: it happened, by your word."
    assert '{"url":"https://x"}' in said.says[2]
    done = dashboard.do("settle", **fields)
    assert (done.ok, done.changed) == (True, True)
    again = dashboard.do("settle", **fields)
    assert (again.ok, again.changed) == (True, False)
    assert again.says == f"Effect 1.1 happened already, as {BY} said."
    assert dashboard.foresee("settle", **fields).says[0].endswith("nothing changes.")
    says, _ = dashboard.refused("settle", effect="1.1", finding="did_not")
    assert f"settled already as 'confirmed' by {BY}" in says
    [event] = dashboard.events("effect_settled")
    assert (event.by, event.finding) == (BY, "happened")


@pytest.mark.parametrize(
    ("text", "value"), [("pushed it", "pushed it"), ("12", 12), ("", None), ('"a"', "a")]
)
def test_a_plain_text_is_a_result_too(
    dashboard: Dashboard, start: Callable[..., Run], text: str, value: object
) -> None:
    in_doubt(start)
    assert dashboard.do("settle", effect="1.1", finding="happened", result=text).ok
    [event] = dashboard.events("effect_settled")
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
    dashboard: Dashboard, start: Callable[..., Run], fields: dict[str, Any]
) -> None:
    in_doubt(start)
    dashboard.refused("settle", **fields)


def test_of_two_words_on_an_effect_of_a_living_run_the_first_holds(
    dashboard: Dashboard, start: Callable[..., Run]
) -> None:
    in_doubt(start)
    with start() as run:
        first = dashboard.do("settle", effect="1.1", finding="happened", result="mine")
        assert (first.ok, first.changed) == (True, True)
        assert first.says.endswith("the running process applies it at its next beat or act.")
        again = dashboard.do("settle", effect="1.1", finding="happened", result="mine")
        assert (again.ok, again.changed) == (True, False)
        other = perform.do(dashboard.store, dashboard.wish("settle", effect="1.1", finding="did_not"), "bob")
        assert other.says == f"{BY} said already that effect 1.1 happened"
        for beat in run.beats():
            assert beat.act("git push", lambda: 1) == "mine"
            beat.finish()
            beat.done()
    [event] = dashboard.events("effect_settled")
    assert (event.by, event.finding) == (BY, "happened")


# -- whatever comes ---------------------------------------------------------------------------------------------------


def test_a_run_that_is_not_there_is_said_so(dashboard: Dashboard) -> None:
    for run in ("", "%", "*", "nosuchrun234", "../..", "a\0b", "x" * 100_000, "\ud800", "a b"):
        wish = Wish(act="pause", run=run)
        done, foreseen = perform.do(dashboard.store, wish, BY), perform.foresee(dashboard.store, wish)
        assert (done.ok, done.says) == (False, foreseen.refused)
        assert done.says.startswith("no such run")
        assert done.hint == "`outlast ls --all` lists all runs"
        assert len(done.says) < 100


@hypothesis.settings(
    max_examples=sweeps.examples(60), suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(data=st.data())
def test_no_text_breaks_an_act(dashboard: Dashboard, data: st.DataObject) -> None:
    if not dashboard.store.list(RunFilter()):
        with pytest.raises(RuntimeError, match="broke down"):
            attempt(inprocess.starter(dashboard.store.local.folder)(budget=["400k"]), beats)
    act: ActName = data.draw(st.sampled_from(("resume", "budget", "settle", "fork", "restore")))
    texts = st.text(max_size=30) | st.sampled_from(
        ("+1k", "1.1", "~/x", "/x", "null", "until=+1h", "=", "+", "usd=+1")
    )
    fields = {
        name: data.draw(texts) for name in ("amounts", "limit_was", "effect", "result", "save", "folder")
    }
    wish = dashboard.wish(act, **fields, finding="happened", beat=data.draw(st.integers(-(2**70), 2**70)))
    for text in (
        perform.do(dashboard.store, wish, data.draw(st.text(max_size=300))).says,
        perform.foresee(dashboard.store, wish).title,
    ):
        assert text
        assert text.isprintable()


def test_who_asks_is_one_bounded_line(dashboard: Dashboard, start: Callable[..., Run]) -> None:
    interrupted(start)
    done = perform.do(dashboard.store, dashboard.wish("pause"), "mallory\nvia\x1b[2J ui" + "x" * 10_000)
    assert done.by.isprintable()
    assert len(done.by) == 200
    assert dashboard.asked() == [("pause", done.by)]


def test_a_secret_in_the_command_of_a_run_is_not_shown(dashboard: Dashboard, night: Night) -> None:
    process = night.start("--task", "t", "--restarts", "1", "--", "sh", "-c", f"exit 1 # {KEY}")
    process.wait()
    said = dashboard.foresee("resume")
    assert "[masked:Anthropic key]" in said.says[0]
    assert KEY not in str(said)
