import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.core import statuses
from outlast.core.values import MemoryRef
from outlast.dashboard import documents
from outlast.dashboard.overview.index import Index
from outlast.dashboard.run import pages
from outlast.inspect import ledger, show
from outlast.operations.saves.diff import FileChange
from outlast.operations.saves.listing import Point
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.web.html import layout, run_parts
from outlast.web.pages import budget, context, diff, effects, journal, output, run, saves
from outlast.workspace.types import LeftOut
from tests.support import nights
from tests.web import sample_documents
from tests.web.sample_documents import (
    NOW,
    NULL,
    SPENT,
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
WORD = "w" * 10_000
HOSTILE = f"<script>alert(1)</script></pre>]]>\u202eevil\u202c\x00\x1b[31mred\x1b[0m \U0001f419 javascript:alert(2) {WORD}"


# -- real journals -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = open_store(nights.night(tmp_path_factory.mktemp("night"), seed=7))
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
    name = nights.long(tmp_path, 10_000)
    store = open_store(tmp_path)
    try:
        for kind, page in pages_of(store, Index(store), name):
            checked(page)
            assert len(page.encode()) <= PAGE_MAX, kind
    finally:
        store.close()


# -- the first page ------------------------------------------------------------------------------------------------------


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
    assert "It is stuck: nothing was heard of it for 3 h." in words
    assert "outlast pause r1" in words
    assert 'class="notice t-warn"' in page
    assert '<a href="/runs/r1/output">its output</a>' in page
    idle = run.render(
        view(), sample_documents.page(row=msgspec.structs.replace(stuck, quiet="idle", quiet_s=420))
    )
    assert "Nothing was heard of it for 7 min" in checked(idle).words
    assert 'class="notice t-go"' in idle


def test_what_nobody_starts_again_is_said_to_be_so() -> None:
    assert "Nobody starts it again by itself" in run.render(
        view(), sample_documents.page(row=row(stranded=True))
    )
    own = checked(run.render(view(), sample_documents.page(row=row(stranded=True, own_program=True)))).words
    assert "somebody's own program: start that again" in own
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
        run.render(still, given), effects.render(still, row(), found), saves.render(still, row(), _saves()),
        diff.render(still, row(), _diff()), budget.render(still, row(), sample_documents.books()),
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


# -- effects -------------------------------------------------------------------------------------------------------------


def test_an_effect_of_a_child_is_settled_in_the_child() -> None:
    look = documents.Look(at=ago(10), by="probe", finding="cannot_tell", evidence="503 from the far side")
    found = documents.Effects(
        run="r1", total=2, before=None,
        effects=(
            documents.EffectShown(run="r9", effect=effect(), looks=(look,)),
            documents.EffectShown(run="r1", effect=effect(id="3.1", state="confirmed", result=raw({"id": "po_2"}), settled_by="ada"), looks=()),
        ),
    )  # fmt: skip
    page = effects.render(view(), row(), found)
    words = checked(page).words
    assert 'href="/runs/r9/do/settle?effect=4.1&amp;finding=happened"' in page
    assert "/runs/r1/do/settle" not in page
    assert "cannot tell by probe" in words
    assert "503 from the far side" in words
    assert "happened" in words
    assert "settled by ada" in words
    assert "po_2" in words


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([["origin"], {"force": True}], "push origin force=true"),
        ({"tool": "Bash", "input": {"command": "git push"}}, "push Bash git push"),
        ({"version": "2.4.0"}, "push version=2.4.0"),
        (None, "push"),
        ("x", "push x"),
    ],
)  # fmt: skip
def test_an_act_reads_as_its_name_and_what_it_was_called_with(args: object, told: str) -> None:
    assert run_parts.act_words(effect(name="push", args=raw(args))) == told


# -- saves and what changed ----------------------------------------------------------------------------------------------


def _saves(**changes: object) -> documents.Saves:
    point = Point(
        commit="9c1e4d2aa01", at=ago(9), kind="emergency", run="r1", task="1411", beat=3, reason="signal: SIGTERM from ada",
        changed=4, left_out=(LeftOut("core.dump", "too large", 5 << 30),), ref="refs/outlast/r1/e", folder="/srv/code/shop",
    )  # fmt: skip
    base = documents.Saves(run="r1", total=1, saves=(documents.SaveRow(point=point, restore="outlast restore 9c1e4d2aa01 --to ../n"),), page=1, pages=1)  # fmt: skip
    return msgspec.structs.replace(base, **changes)  # type: ignore[arg-type]


def test_a_save_tells_why_what_and_how_it_comes_back() -> None:
    page = saves.render(view(), row(), _saves(pages=3, page=2))
    words = checked(page).words
    for told in (
        "emergency",
        "signal: SIGTERM from ada",
        "4 files changed",
        "1 file left out",
        "core.dump",
        "5.0 GB",
        "--to ../n",
    ):
        assert told in words, told
    for link in (
        "do/restore?save=9c1e4d2aa01",
        "saves/9c1e4d2aa01?against=before",
        "saves/9c1e4d2aa01?against=head",
        "saves?page=3",
    ):
        assert f'href="/runs/r1/{link}"' in page, link


def test_saves_that_cannot_be_read_say_why() -> None:
    page = saves.render(
        view(), row(), _saves(total=0, saves=(), problem="the folder is gone: `outlast doctor`")
    )
    assert "the folder is gone: `outlast doctor`" in checked(page).words


def _diff(**changes: object) -> documents.Diff:
    lines = (
        documents.Line(kind="hunk", old=None, new=None, text="@@ -1,2 +1,2 @@"),
        documents.Line(kind="context", old=1, new=1, text="same"),
        documents.Line(kind="deleted", old=2, new=None, text="old <b>"),
        documents.Line(kind="added", old=None, new=2, text=HOSTILE),
    )
    files = (
        documents.FilePatch(file=FileChange("a <i>.py", "changed", 1, 1), lines=lines, cut=True),
        documents.FilePatch(file=FileChange("logo.png", "added"), lines=(), cut=False),
        documents.FilePatch(file=FileChange("empty", "added", 0, 0), lines=(), cut=False),
    )
    base = documents.Diff(
        run="r1", save="9c1e4d2aa01", against="before", other="77aa", at=ago(9), kind="emergency", reason="signal",
        files_total=9, lines_added=1, lines_deleted=1, files=files, cut=True, restore="outlast restore 9c1e4d2aa01 --to n",
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)  # type: ignore[arg-type]


def test_a_changed_line_has_its_number_and_its_sign() -> None:
    page = diff.render(view(), row(), _diff())
    checked(page)
    assert (
        '<tr class="deleted"><td>2</td><td></td><td><span aria-label="deleted" role="img">−</span></td><td>old &lt;b&gt;</td>'
        in page
    )
    assert '<td>2</td><td><span aria-label="added" role="img">+</span></td>' in page
    assert 'href="#f1"' in page
    assert 'id="f1"' in page


def test_what_is_no_text_and_what_is_cut_is_said() -> None:
    words = checked(diff.render(view(), row(), _diff())).words
    assert "It is no text" in words
    assert "The rest of this file is not shown" in words
    assert "6 more files differ" in words
    assert "No line differs" in words


def test_one_switches_between_the_save_before_and_head() -> None:
    page = diff.render(view(), row(), _diff(against="head"))
    assert 'against=head" class="button" aria-current="page"' in page
    assert 'against=before" class="button">' in page
    nothing = checked(diff.render(view(), row(), _diff(files=(), files_total=0, cut=False))).words
    assert "Nothing differs from the save before" in nothing


# -- budget, context, output, journal --------------------------------------------------------------------------------------


def test_the_budget_is_told_by_unit_beat_tool_and_attempt() -> None:
    words = checked(budget.render(view(), row(), sample_documents.books())).words
    for told in (
        "55k (55 %)",
        "100k",
        "45k",
        "140k, above the limit",
        "45 min",
        "told to wrap up",
        "write tests",
        "Bash",
        "SIGTERM",
        "100k tokens by ada",
    ):
        assert told in words, told


def test_a_cell_of_a_table_is_one_thing_beside_its_label_on_a_phone() -> None:
    page = budget.render(view(), row(), sample_documents.books())
    cells = re.findall(r"<td data-l=[^>]*>(.*?)</td>", page, re.DOTALL)
    assert len(cells) > 20
    assert [cell for cell in cells if not re.fullmatch(r"<div>.*</div>", cell, re.DOTALL)] == []
    assert any("</a> " in cell for cell in cells), "a link and the reason beside it"


@pytest.mark.parametrize(
    ("spent", "told"),
    [
        (msgspec.structs.replace(SPENT, cost_microusd=0, subscription=True), "subscription"),
        (msgspec.structs.replace(SPENT, cost_microusd=0, unpriced=True), "unknown price"),
    ],
)  # fmt: skip
def test_what_was_not_paid_is_not_called_no_dollars(spent: show.Spent, told: str) -> None:
    unit = ledger.Unit(
        unit="usd", limit=None, spent=0, left=None, reserved=0, kept=0, used_pct=None, wraps_up=False, per_hour=None,
        per_hour_now=None, forecast=None, lasts_s=None,
    )  # fmt: skip
    base = sample_documents.books()
    books = sample_documents.books(
        units=(unit,), spent=spent, by_tool=(msgspec.structs.replace(base.by_tool[0], cost_microusd=0),),
        by_beat=(msgspec.structs.replace(base.by_beat[0], spent=spent),),
        by_attempt=(msgspec.structs.replace(base.by_attempt[0], spent=spent),),
    )  # fmt: skip
    words = checked(budget.render(view(), row(), books)).words
    assert words.count(told) == 4
    assert "$" not in words


def test_a_budget_that_is_spent_says_what_to_type() -> None:
    books = sample_documents.books(
        cause="budget", evidence="100,000 of 100,000 tokens", more="--budget +100k"
    )
    page = budget.render(view(), row(cause="budget"), books)
    assert "outlast resume r1 --budget +100k" in checked(page).words
    assert 'href="/runs/r1/do/budget" class="button primary"' in page


def test_the_context_is_shown_word_for_word() -> None:
    text = "# Task\n\n  <b>indented</b>\t& so on\n" + "x" * 50_000
    page = context.render(view(), row(), documents.Context(run="r1", tokens=12_345, text=text))
    read = checked(page)
    assert text in "".join(read.text)
    assert "12,345 tokens" in read.words


def _line(text: str, stream: str = "out", *, continues: bool = False) -> documents.OutputLine:
    return documents.OutputLine(at="03:10:02.123", stream=stream, text=text, continues=continues)


def test_output_names_the_stream_leaves_out_colours_and_shows_the_rest() -> None:
    lines = (
        _line("\x1b[1;32mok\x1b[0m done"),
        _line(f"bad {HOSTILE}", "err"),
        _line("more", "err", continues=True),
        _line("ended", "---"),
    )
    given = documents.Output(run="r1", attempt=2, attempts=(1, 2), lines=lines, cut=4_096)
    page = output.render(view(), row(), given)
    read = checked(page)
    assert '<span class="x">ok done</span>' in page
    assert "err" in read.words
    assert "outlast" in read.words
    assert "\x1b" not in page
    assert "4.0 KB before this" in read.words
    assert 'href="/runs/r1/output?attempt=1"' in page
    assert "03:10:02" in read.words


def test_very_much_output_is_bounded() -> None:
    given = documents.Output(
        run="r1", attempt=400, attempts=tuple(range(1, 401)), lines=(_line("x"),) * 60_000, cut=0
    )
    page = output.render(view(), row(), given)
    assert "58,000 lines before this" in checked(page).words
    assert len(page) < 250_000


def test_an_event_is_folded_over_its_json() -> None:
    entry = documents.Entry(
        n=9,
        seq=4,
        at=ago(3),
        tag="beat_done",
        text=HOSTILE[:200],
        event=raw({"t": "beat_done", "result": HOSTILE}),
    )
    page = journal.render(
        view("/runs/r1/journal"), row(), documents.JournalPage(run="r1", total=4, events=(entry,), before=4)
    )
    words = checked(page).words
    assert "beat done" in words
    assert '"t": "beat_done"' in words
    assert "more characters" in words
    assert 'href="/runs/r1/journal?before=4"' in page
    assert 'datetime="2026-11-16T03:17:00Z"' in page
    assert ">04:17:00<" in page


def test_times_are_those_of_the_readers_zone() -> None:
    parked = sample_documents.page(row=row(status="parked", parked_until=NOW + timedelta(hours=2)))
    assert ">06:20<" in run.render(view(), parked)


def test_output_has_the_readers_clock_where_its_own_is_known() -> None:
    known = msgspec.structs.replace(_line("known"), moment=datetime(2026, 11, 16, 3, 10, 2, tzinfo=UTC))
    given = documents.Output(run="r1", attempt=1, attempts=(1,), lines=(known,), cut=0)
    told = checked(output.render(view(), row(), given)).words
    assert "04:10:02" in told
    assert "clock of the machine" not in told
    given = msgspec.structs.replace(given, lines=(known, _line("not known")))
    told = checked(output.render(view(), row(), given)).words
    assert "04:10:02" in told
    assert "03:10:02" in told
    assert "clock of the machine" in told


def test_a_time_within_a_sentence_is_the_readers() -> None:
    said = layout.timed(
        view(), "3 files (beat, made 2026-11-16 02:59 UTC after beat 3), not 2026-99-16 02:59 UTC <b>"
    )
    assert (
        sample_documents.Read(said).words
        == "3 files (beat, made 03:59 after beat 3), not 2026-99-16 02:59 UTC <b>"
    )
    assert 'datetime="2026-11-16T02:59:00Z"' in said
