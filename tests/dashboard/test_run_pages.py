"""A run's first page and its timeline: whole, in bounded parts, and in the words of the commands."""

import re
import sys
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from outlast.core.plan import Step
from outlast.dashboard import documents as dashboard_documents
from outlast.dashboard.overview.index import Index
from outlast.dashboard.run import effects, pages as run_pages
from outlast.errors import UnknownRun
from outlast.inspect import show
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.supervisor.control import standing
from tests.dashboard.written_runs import BEGIN, put, scribe
from tests.supervisor.supervised_command import Night
from tests.support.environment import isolate
from tests.support.journals.held_runs import held
from tests.support.journals.night import make_night
from tests.support.journals.scribe import AgentCli, Scribe
from tests.support.processes import wait_for

CLAUDE = AgentCli("claude", "claude", "opus", 1_000)


# -- the first page ----------------------------------------------------------------------------------------------------


def test_every_page_of_every_kind_of_run_can_be_made(tmp_path: Path) -> None:
    root = make_night(tmp_path / "store")
    with held(root) as alive:
        index = Index(alive.store)
        for row in index.rows():
            page = run_pages.page(alive.store, index, row.run)
            assert (page.row.run, page.shown.status) == (row.run, row.status)
            documents: list[object] = [page, run_pages.timeline(alive.store, row.run)]
            documents += [
                ask(alive.store, row.run)
                for ask in (
                    run_pages.beats,
                    run_pages.effects,
                    run_pages.journal,
                    run_pages.output,
                    run_pages.context,
                    run_pages.budget,
                )
            ]
            for document in documents:
                assert msgspec.json.encode(document)


def test_a_page_says_the_same_as_show_where_nothing_is_left_out(tmp_path: Path) -> None:
    root = make_night(tmp_path / "store")
    with held(root) as alive:
        index = Index(alive.store)
        for row in index.rows():
            summary = effects.summary_of(alive.store, row.run)
            shown = standing.with_children(alive.store, show.full(alive.store, summary))
            page = run_pages.page(alive.store, index, row.run).shown
            for name in shown.__struct_fields__:
                if name not in ("completed", "effects", "saves", "plan"):
                    assert getattr(page, name) == getattr(shown, name), (row.task, name)
            assert page.completed == shown.completed[-run_pages.LAST_BEATS :]
            undecided = {each.id for each in shown.effects if each.state in ("open", "in_doubt")}
            assert {each.id for each in page.effects} <= undecided


def test_attempts_saves_children_and_steps_are_bounded(store: Store, rng: Random) -> None:
    root = scribe(rng, workspace="/srv/app")
    root.plan(tuple(Step(f"step {number}") for number in range(3_000)))
    for _ in range(500):
        root.start().beat("went on", seconds=10).stop("crash", "it died")
    root.start()
    children = [
        Scribe(rng, BEGIN, f"part {number}", root.project, "a part", parent=root.child_of())
        for number in range(300)
    ]
    run = put(store, root, *children)
    page = run_pages.page(store, Index(store), run)
    assert (len(page.shown.attempts), page.timeline.attempts_total) == (200, 501)
    assert page.shown.attempts == page.timeline.attempts
    assert page.shown.attempts[-1].started_at == root.begun
    assert (len(page.timeline.moments), page.timeline.moments_total) == (200, 500)
    assert len(page.shown.saves) == run_pages.SAVES_MAX
    assert len(page.shown.children) == run_pages.CHILDREN_MAX
    assert page.shown.children[-1].task == "part 299"
    assert page.shown.plan is not None
    names = [step.name for step in page.shown.plan]
    assert names[0] == "(… 460 before)"
    assert names[-1] == "(… 2,460 after)"
    assert [step.name for step in page.shown.plan if step.state == "next"] == ["step 500"]
    assert len(names) == 2 * run_pages.STEPS_AROUND + 2
    assert len(page.timeline.beats) <= run_pages.CURVE_POINTS
    assert (page.timeline.beats[0].beat, page.timeline.beats[-1].beat) == (1, 500)


def test_a_page_says_how_to_go_on_without_us_and_that_a_supervisor_waits(tmp_path: Path) -> None:
    with Night(tmp_path, isolate(tmp_path)) as night:
        (night.folder / "agent.py").write_text("raise SystemExit(1)")
        env = night.isolated.environ(OUTLAST_RESTART_WAIT_S="60")
        night.start(
            "--task", "t", "--", sys.executable, "-P", str(night.folder / "agent.py"), env=env
        )  # fmt: skip
        page = _page_when(night, lambda page: bool(page.waits))
        assert re.fullmatch(r"for its next attempt: its supervisor, pid [0-9]+, starts it again", page.waits)
        assert page.shown.status == "interrupted"
        assert page.agent_line == ""


def _page_when(night: Night, fits: Any) -> dashboard_documents.RunPage:
    root = night.isolated.state_home / "outlast"
    wait_for(lambda: (root / "outlast.db").exists() or None)

    def look() -> dashboard_documents.RunPage | None:
        store = open_store(root)
        try:
            index = Index(store)
            pages = [run_pages.page(store, index, row.run) for row in index.rows()]
        finally:
            store.close()
        return next((page for page in pages if fits(page)), None)

    return wait_for(look, what="a page that fits")


def test_the_line_of_an_agents_session_is_shown(store: Store, rng: Random, tmp_path: Path) -> None:
    run = put(store, scribe(rng, CLAUDE, workspace=str(tmp_path)).start().beat("did it"))
    line = run_pages.page(store, Index(store), run).agent_line
    assert line.startswith(f"cd {tmp_path} && claude ")
    assert f"{run}-session" in line


@pytest.mark.parametrize("name", ["nobody", "", "../../etc/passwd", "run' OR 1=1 --", "%"])
def test_a_run_that_there_is_not_is_unknown_to_every_page(store: Store, rng: Random, name: str) -> None:
    put(store, scribe(rng))
    asks = (
        run_pages.timeline,
        run_pages.beats,
        run_pages.effects,
        run_pages.journal,
        run_pages.output,
        run_pages.context,
        run_pages.budget,
    )
    for ask in asks:
        with pytest.raises(UnknownRun):
            ask(store, name)
    with pytest.raises(UnknownRun):
        run_pages.page(store, Index(store), name)


# -- what happened when ------------------------------------------------------------------------------------------------


def test_the_timeline_tells_of_everything_that_is_no_beat(store: Store, rng: Random) -> None:
    told = scribe(rng, workspace="/srv/app").start().beat("one").warn("budget 75", "75% is spent")
    told.warn("wrap-up", "only the reserve is left").ask("pause", "alice").wait(5)
    told.call("pay", "ask").doubt("no answer").wait(5).settle(
        "happened", "bob", "seen on the page", {"id": 7}
    )
    told.confirm({"id": 7}).stop("quota", "5 hours are used up")
    told.park(told.at + timedelta(hours=1), "quota", "resets at one").wake("alice").start().beat("two").done()
    timeline = run_pages.timeline(store, put(store, told))
    assert [(each.kind, each.by) for each in timeline.moments] == [
        ("warning", ""), ("wrap-up", ""), ("asked", "alice"), ("doubt", ""), ("settled", "bob"), ("save", ""),
        ("parked", ""), ("woken", "alice"), ("done", ""),
    ]  # fmt: skip
    words = {each.kind: each.text for each in timeline.moments}
    assert words["settled"] == "effect 2.1: happened: seen on the page"
    assert words["doubt"] == "effect 2.1: no answer"
    assert words["save"] == "emergency save: quota: 5 hours are used up"
    assert [each.save for each in timeline.moments if each.kind == "save"] != [""]
    assert [each.seq for each in timeline.moments] == sorted(each.seq for each in timeline.moments)
    assert [(each.cause, each.status) for each in timeline.attempts] == [
        ("quota", "interrupted"),
        ("done", "done"),
    ]
    assert (timeline.since, timeline.until) == (BEGIN, told.at)
    assert [each.beat for each in timeline.beats] == [1, 2]


def test_what_was_asked_for_is_told_in_words(store: Store, rng: Random) -> None:
    told = scribe(rng).start().beat("one")
    asked: list[tuple[str, object, str]] = [
        ("pause", None, "pause"),
        ("more", {"beats": 1}, "more budget, 1 beat on top"),
        ("more", {"tokens": 200_000, "cost_microusd": 2_500_000}, "more budget, 200,000 tokens, $2.50 on top"),
        ("budget", {"beats": 9}, "a budget of 9 beats"),
        ("budget", None, "no limit any more"),
        ("budget", {"beats": 9, "fork": {"run": "r2", "task": "t-fork-1", "beat": 1, "budget": {"beats": 3}}},
         "3 beats moved to the fork t-fork-1"),
        ("settle", {"effect": "2.1", "finding": "did_not"}, "effect 2.1 did not happen"),
        ("settle", {"effect": "2.1", "finding": "happened", "result": {"id": 7}, "run": "r3"},
         'effect 2.1 of run r3 happened, with {"id":7} as its result'),
        ("fork", {"run": "r1", "beat": 4}, "a fork of run r1 after beat 4"),
        ("forked", {"run": "r2"}, "a fork, which is run r2"),
        ("restore", {"save": "0123456789abcdef", "to": "/srv/x"}, "save 0123456789ab restored into /srv/x"),
        ("accept_rewind", None, "going on although the store was rewound"),
        ("more", "nonsense", 'more: "nonsense"'),
        ("juggle", {"balls": 3}, 'juggle: {"balls":3}'),
    ]  # fmt: skip
    for what, args, _ in asked:
        told.ask(what, "alice", args)
    moments = run_pages.timeline(store, put(store, told)).moments
    assert [each.text for each in moments if each.kind == "asked"] == [words for _, _, words in asked]


def test_an_attempt_that_died_without_a_word_is_shown_with_what_is_known(store: Store, rng: Random) -> None:
    run = put(store, scribe(rng).start().beat("one").stop("crash", "first").start().beat("two"))
    first, lost = run_pages.timeline(store, run).attempts
    assert (first.cause, first.evidence) == ("crash", "first")
    assert lost.ended_at is None
    assert lost.cause == "host"
    assert "ran before the last boot" in lost.evidence
