"""The first page of a run, and every page of a night: what is wrong, what helps, and nothing an agent wrote breaks it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.core import statuses
from outlast.core.values import MemoryRef
from outlast.dashboard import documents
from outlast.dashboard.overview.index import Index
from outlast.dashboard.run import pages
from outlast.inspect import show
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.web.html import run_parts
from outlast.web.pages import budget, context, diff, effects, journal, output, run, saves
from tests.support.journals.large_stores import long_run
from tests.support.journals.night import make_night
from tests.web import sample_documents
from tests.web.run_page_samples import HOSTILE, diff_document, saves_document
from tests.web.sample_documents import (
    NULL,
    ago,
    attempt,
    checked,
    effect,
    moment,
    raw,
    row,
    shown,
    timeline,
    view,
)

PAGE_MAX = 200_000

# -- real journals ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = open_store(make_night(tmp_path_factory.mktemp("night"), seed=7))
    yield store
    store.close()


def pages_of(store: Store, index: Index, name: str) -> Iterator[tuple[str, str]]:
    found = index.row(name)
    yield "run", run.render(view(), pages.page(store, index, name))
    yield "beats", run.beats(view(), found, pages.beats(store, name))
    yield "effects", effects.render(view(), found, pages.effects(store, name))
    yield "budget", budget.render(view(), found, pages.budget(store, name))
    yield "context", context.render(view(), found, pages.context(store, name))
    yield "output", output.render(view(), found, pages.output(store, name))
    yield "journal", journal.render(view(), found, pages.journal(store, name))


def test_every_page_of_every_run_of_a_night_keeps_the_rules(night: Store) -> None:
    index = Index(night)
    seen = 0
    for each in index.rows():
        for name, page in pages_of(night, index, each.run):
            read = checked(page)
            assert "alert(1)" not in page or "&lt;script&gt;" in page
            assert len(page.encode()) <= PAGE_MAX, (each.task, name)
            assert run_parts.formats.clip(each.task, 60) in read.words or "<" in each.task
            seen += 1
    assert seen >= 200


def test_a_run_of_ten_thousand_beats_has_a_small_page(tmp_path: Path) -> None:
    name = long_run(tmp_path, 10_000)
    store = open_store(tmp_path)
    try:
        for kind, page in pages_of(store, Index(store), name):
            checked(page)
            assert len(page.encode()) <= PAGE_MAX, kind
    finally:
        store.close()


# -- the first page ---------------------------------------------------------------------------------------------------


def worst() -> documents.RunPage:
    """As much of everything as a page may be given, all of it hostile."""
    step = show.PlanStep(HOSTILE, "to_do", tuple(show.PlanStep(HOSTILE, "to_do") for _ in range(40)))
    plan = (
        *(show.PlanStep(HOSTILE, "done") for _ in range(3_000)), show.PlanStep(HOSTILE, "next", (step,) * 100), *((step,) * 3_000),
    )  # fmt: skip
    given = shown(
        goal=HOSTILE * 20, checks=(HOSTILE,) * 200, invariants=(HOSTILE,) * 200, plan=plan, plan_total=9_000,
        completed=tuple(show.Completed(n, HOSTILE, raw(HOSTILE), raw({HOSTILE: HOSTILE}), ago(20)) for n in range(20)),
        effects=tuple(effect(id=f"4.{n}", name=HOSTILE, evidence=HOSTILE, args=raw([HOSTILE])) for n in range(32)),
        memory=tuple(MemoryRef(HOSTILE, HOSTILE) for _ in range(256)), workspace=HOSTILE[:4_000],
        children=tuple(show.Child(f"c{n}", HOSTILE, n, "done") for n in range(200)),
    )  # fmt: skip
    many = timeline(
        since=ago(2_000), attempts=tuple(attempt(2_000 - 9 * n, 1_995 - 9 * n, "crash", HOSTILE) for n in range(200)),
        attempts_total=900, moments=tuple(moment(1_000 - n, "warning", HOSTILE[:300], by=HOSTILE) for n in range(200)),
        moments_total=4_000, beats=tuple(documents.Progress(at=ago(1_000 - n), beat=n) for n in range(120)),
    )  # fmt: skip
    top = row(
        task=HOSTILE,
        goal=HOSTILE,
        why=HOSTILE,
        stage=HOSTILE,
        model=HOSTILE,
        in_doubt=40,
        status="in_doubt",
        what="needs you",
    )
    return documents.RunPage(row=top, shown=given, timeline=many, waits=HOSTILE, agent_line=HOSTILE[:2_000])


def test_the_worst_page_is_bounded_and_breaks_nothing() -> None:
    page = run.render(view(), worst())
    checked(page)
    assert len(page.encode()) <= 300_000  # all of it at once; what really occurs is held to less above
    assert "\x00" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "\\u202e" in page


def test_a_page_says_what_is_wrong_and_which_act_and_command_help() -> None:
    page = run.render(view(), sample_documents.page())
    words = checked(page).words
    assert "Stopped: signal: SIGTERM from ada" in words
    assert "outlast resume r1" in words
    assert '<a href="/runs/r1/do/resume" class="button primary">' in page


def test_a_budget_that_its_agent_asks_for_has_the_command_that_grants_it() -> None:
    asking = sample_documents.page(shown=shown(asks="--add 500"))
    words = checked(run.render(view(), asking)).words
    assert "asks for more budget" in words
    assert "outlast budget r1 --add 500" in words
    assert "more budget" not in checked(run.render(view(), sample_documents.page())).words


@pytest.mark.parametrize(
    ("minutes", "own", "said", "typed"),
    [
        (
            60,
            False,
            "It waits until 05:20 (in 1 h). After that the service starts it, or outlast resume --all.",
            True,
        ),
        (60, True, "It waits until 05:20 (in 1 h). Start its program then.", True),
        (-10, False, "Its time has come: it waited until 04:10. Resume it.", True),
        (-10, True, "Its time has come: it waited until 04:10. Start its program again.", False),
    ],
)
def test_who_wakes_what_is_parked_is_said_by_the_readers_clock(
    minutes: int, own: bool, said: str, typed: bool
) -> None:
    until = ago(-minutes)
    then = ": start its program then" if own else ""
    why = f"parked until {until:%Y-%m-%d %H:%M} UTC{then}: quota: resets 9am" if minutes > 0 else "parked"
    parked = row(
        status="parked", cause="quota", why=why, parked_until=until, own_program=own, stranded=minutes < 0
    )
    words = checked(run.render(view(), sample_documents.page(row=parked))).words
    assert said in words
    assert "UTC:" not in words
    assert ("Stopped: quota: resets 9am" in words) == (minutes > 0)
    assert ("outlast resume r1" in words) == typed


def test_of_one_that_is_stuck_it_is_said_what_helps() -> None:
    stuck = row(
        what="running",
        status="running",
        why="",
        command=None,
        act=None,
        lives=True,
        quiet="stuck",
        quiet_s=3 * 3600,
    )
    page = run.render(view(), sample_documents.page(row=stuck))
    words = checked(page).words
    assert "It is stuck: it wrote nothing for 3 h." in words
    assert "outlast pause r1" in words
    assert 'class="notice t-warn"' in page
    assert '<a href="/runs/r1/output">its output</a>' in page
    idle = run.render(
        view(), sample_documents.page(row=msgspec.structs.replace(stuck, quiet="idle", quiet_s=420))
    )
    assert "It wrote nothing for 7 min" in checked(idle).words
    assert 'class="notice t-go"' in idle


def test_what_nobody_starts_again_is_said_to_be_so() -> None:
    assert "nothing restarts it but outlast resume (the service does that at boot)" in run.render(
        view(), sample_documents.page(row=row(stranded=True))
    )
    own = checked(run.render(view(), sample_documents.page(row=row(stranded=True, own_program=True)))).words
    assert "did not start this program: start it again yourself" in own
    assert "outlast resume r1" not in own


def test_the_act_that_helps_has_what_it_needs_filled_in() -> None:
    page = run.render(
        view(), sample_documents.page(row=row(act="resume", command="outlast resume r1 --budget +200k"))
    )
    assert 'href="/runs/r1/do/resume?amounts=%2B200k" class="button primary"' in page
    assert "Add budget and resume" in page


def test_an_effect_in_doubt_stands_at_the_top_with_its_three_answers() -> None:
    given = sample_documents.page(
        row=row(status="in_doubt", what="needs you", act="settle", in_doubt=1),
        shown=shown(effects=(effect(),)),
    )
    page = run.render(view(), given)
    assert page.index("In doubt: 1 effect") < page.index(">Timeline<")
    for finding in ("happened", "did_not", "give_up"):
        assert f'href="/runs/r1/do/settle?effect=4.1&amp;finding={finding}"' in page
    assert "pay 3 eur=480" in page


@pytest.mark.parametrize("read_only", [True, False])
def test_each_answer_to_a_doubt_is_a_command_that_can_be_pasted(read_only: bool) -> None:
    stands = row(status="in_doubt", what="needs you", act="settle", in_doubt=1)
    seen = replace(view(read_only=read_only), outlast="outlast --store /srv/s")
    given = documents.Effects(
        run="r1", total=1, effects=(documents.EffectShown(run="r2", effect=effect(), looks=()),), before=None
    )
    for page, of in (
        (run.render(seen, sample_documents.page(row=stands, shown=shown(effects=(effect(),)))), "r1"),
        (effects.render(seen, stands, given), "r2"),
    ):
        words = checked(page).words
        for finding in ("--happened", "--did-not", "--give-up"):
            assert f"outlast --store /srv/s settle {of} 4.1 {finding}" in words
        assert "(--happened" not in words
        assert ("Type one of these:" in words) == read_only
        assert ("/do/settle" in page) != read_only


def test_nothing_is_added_where_there_is_no_limit() -> None:
    assert "budget" not in run_parts.acts(row(act=None, meters=()))
    meter = documents.Meter(
        unit="beats", limit=4, spent=1, left=3, used_pct=25.0, forecast=None, wraps_up=False
    )
    assert "budget" in run_parts.acts(row(act=None, meters=(meter,)))


def test_doubts_of_children_are_pointed_at() -> None:
    page = run.render(view(), sample_documents.page(row=row(in_doubt=2)))
    assert "2 more, of this run or its children" in checked(page).words


_COMMANDS: dict[documents.ActName, statuses.Command] = {
    "pause": "pause",
    "resume": "resume",
    "cancel": "cancel",
    "fork": "fork",
}


@pytest.mark.parametrize("status", statuses.STATUSES)
def test_no_act_is_offered_that_would_be_refused(status: str) -> None:
    offered = run_parts.acts(row(status=status, act=None))
    for act, command in _COMMANDS.items():
        refused = isinstance(statuses.after(status, command), statuses.Refusal)  # type: ignore[arg-type]
        assert not (refused and act in offered), act
    assert ("cancel" in offered) == (status not in statuses.CLOSED)


def test_what_helps_alone_stands_out() -> None:
    page = run.render(view(), sample_documents.page(row=row(act="budget", cause="budget")))
    assert page.count("button primary") == 1
    assert 'href="/runs/r1/do/budget" class="button primary"' in page


def test_no_act_takes_the_place_of_another_when_a_run_stops_or_goes_on() -> None:
    def places(**more: Any) -> list[str]:
        page = run.render(view(), sample_documents.page(row=row(**more)))
        bar = page.partition('aria-label="What you can do"')[2].partition("</div>")[0]
        assert page.index('aria-label="What you can do"') < page.index('id="needs"'), (
            "nothing of any height above it"
        )
        return re.findall(r"</svg>([^<]+)</a>", bar)

    lives = {
        "status": "running",
        "what": "running",
        "lives": True,
        "cause": None,
        "act": None,
        "why": "",
        "command": None,
    }
    running, stopped = places(**lives), places(act="resume", status="interrupted", cause="signal")
    assert running == stopped
    assert running[:2] == ["Resume", "Pause"]
    page = run.render(view(), sample_documents.page(row=row(**lives)))
    assert "/do/pause" in page
    assert "/do/resume" not in page


def test_nothing_can_be_done_on_a_page_that_is_only_read() -> None:
    still = view(read_only=True)
    given = sample_documents.page(row=row(in_doubt=1), shown=shown(effects=(effect(),)))
    found = documents.Effects(
        run="r1", total=1, effects=(documents.EffectShown(run="r1", effect=effect(), looks=()),), before=None
    )
    for page in (
        run.render(still, given), effects.render(still, row(), found), saves.render(still, row(), saves_document()),
        diff.render(still, row(), diff_document()), budget.render(still, row(), sample_documents.books()),
    ):  # fmt: skip
        assert "/do/" not in page
        assert "<form" not in page.replace('<form method="dialog">', "")


def test_a_child_is_not_paused_or_paid_for_but_its_root_is() -> None:
    child = row(parent="r0", root="r0", act=None)
    assert run_parts.acts(child) == ["restore"]
    page = run.render(view(), sample_documents.page(row=child))
    assert '<a href="/runs/r0">' in page


def test_steps_that_are_done_are_folded_and_the_next_one_is_marked_by_a_word() -> None:
    steps = [
        show.PlanStep("(… 1,200 before)", "done"),
        *(show.PlanStep(f"old {n}", "done") for n in range(50)),
    ]
    steps += [
        show.PlanStep("group", "next", (show.PlanStep("inner", "next"), show.PlanStep("then", "to_do")))
    ]
    steps += [
        *(show.PlanStep(f"new {n}", "to_do") for n in range(50)),
        show.PlanStep("(… 300 after)", "to_do"),
    ]
    page = run.render(view(), sample_documents.page(shown=shown(plan=tuple(steps), plan_total=1_602)))
    words = checked(page).words
    assert "1,250 parts done" in words
    assert "1,238 before these" in words
    assert "old 49" in words
    assert "old 37" not in words
    assert "next inner" in words
    assert 'aria-current="step"' in page
    assert "to do new 14" in words
    assert "new 15" not in words
    assert "and 335 more parts to do" in words
    lives = row(status="running", what="running", lives=True)
    given = sample_documents.page(row=lives, shown=shown(plan=tuple(steps), plan_total=1_602))
    assert "now inner" in checked(run.render(view(), given)).words


def test_what_happened_is_told_newest_first_and_folded_beyond_twenty() -> None:
    many = timeline(
        moments=tuple(
            moment(60 - n, "save", f"beat save: number {n}", seq=n, save="9c1e4d2aa") for n in range(50)
        )
    )
    page = run.render(view(), sample_documents.page(timeline=many))
    words = checked(page).words.partition("newest first")[2]
    assert (
        words.index("number 49")
        < words.index("number 48")
        < words.index("32 earlier")
        < words.index("number 0 ")
    )
    assert '<a href="/runs/r1/saves/9c1e4d2aa"' in page


def test_a_beat_of_an_agent_tells_what_it_said_and_called() -> None:
    said = raw({"calls": ["Bash git push", "Read a.py"], "said": "All tests pass now."})
    page = run.beats(
        view(),
        row(),
        documents.Beats(
            run="r1", total=1, beats=(show.Completed(3, "tests", said, NULL, ago(9)),), before=12
        ),
    )
    assert "All tests pass now. Bash git push Read a.py" in checked(page).words.replace(
        "pushRead", "push Read"
    ).replace("now.Bash", "now. Bash")
    assert 'href="/runs/r1?before=12"' in page
