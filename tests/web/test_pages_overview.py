"""The overview says at a glance whether all is well; each choice on it is a link that asks for just that."""

from typing import Any, get_args
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
from hypothesis import given, strategies as st

from outlast.core.statuses import STATUSES
from outlast.dashboard.documents import Ask, Count, Meter, Overview, Row, Sort
from outlast.dashboard.report import KINDS
from outlast.web import query
from outlast.web.html import layout
from outlast.web.pages import filters, overview
from tests.web.sample_documents import NOW, SPENT, Read, checked, row, view

WHOLE_MAX = 150_000
WORD = "w" * 5_000
HOSTILE = f"<script>alert(1)</script>\u202eevil\x00\x1b[31m' \" {WORD}"


def board(*rows: Row, **changes: Any) -> Overview:
    needing = tuple(each for each in rows if each.what == "needs you")
    base = Overview(
        at=NOW, number=7, total=len(rows), found=len(rows), page=1, pages=1,
        whats=tuple(Count(name=kind, runs=sum(each.what == kind for each in rows)) for kind in KINDS),
        statuses=(Count(name="running", runs=1), Count(name="done", runs=2)),
        projects=(Count(name="/srv/code/shop/.git", label="shop", runs=len(rows)),), agents=(), spent=SPENT, rows=rows,
        needs=needing, needs_total=len(needing), stranded=len(left := tuple(each for each in rows if each.stranded)),
        stranded_rows=left, all_spent=SPENT,
        all_whats=tuple(Count(name=kind, runs=sum(each.what == kind for each in rows)) for kind in KINDS),
        idle=sum(each.quiet == "idle" for each in rows), stuck=sum(each.quiet == "stuck" for each in rows),
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def needing(**changes: Any) -> Row:
    given = {"run": "r2", "task": "218", "what": "needs you", "status": "interrupted", "cause": "budget"}
    return row(**given | changes)


def shown(board: Overview, ask: Ask | None = None, **of_view: Any) -> Read:
    return checked(overview.render(view("/", **of_view), ask or Ask(), board))


# -- the verdict -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([needing()], "1 run needs you"),
        ([needing(), needing(run="r3"), row()], "2 runs need you"),
        ([row(what="running", status="running")], "All is well"),
        ([row()], "All is well"),
        ([row(stranded=True)], "1 run has stopped and will not restart by itself"),
        (
            [row(stranded=True), row(run="r3", stranded=True)],
            "2 runs have stopped and will not restart by themselves",
        ),
        (
            [row(stranded=True), needing()],
            "1 run needs you, 1 more has stopped and will not restart by itself",
        ),
        ([row(what="running", quiet="stuck", quiet_s=1300)], "1 run is stuck"),
        ([], "No runs yet"),
    ],
)
def test_one_sentence_says_how_it_stands(rows: list[Row], said: str) -> None:
    page = overview.render(view("/"), Ask(), board(*rows))
    assert overview.verdict(board(*rows))[0] == said
    assert said in Read(page).words


@pytest.mark.parametrize(
    ("at_boot", "said"),
    [
        (1, "2 runs have stopped: 1 will restart only at the next boot, 1 will not restart by itself"),
        (2, "2 runs have stopped and will restart only at the next boot"),
    ],
)
def test_what_the_service_restarts_at_boot_is_not_said_to_stay(at_boot: int, said: str) -> None:
    rows = row(stranded=True), row(run="r3", stranded=True)
    assert overview.verdict(board(*rows, at_boot=at_boot))[0] == said


def test_what_needs_a_person_is_told_whatever_is_looked_for() -> None:
    read = shown(board(total=5, needs=(needing(),), needs_total=1), Ask(q="nothing fits"))
    assert "1 run needs you" in read.words
    assert "None of 5 runs matches." in read.words
    assert "n-r2" in read.ids


def test_a_card_has_the_button_and_the_command_that_help() -> None:
    command = "outlast resume r2 --budget +200k --budget usd=+5"
    read = shown(board(needing(act="resume", command=command)))
    assert "Add budget and resume" in read.words
    assert "/runs/r2/do/resume?amounts=%2B200k%20usd%3D%2B5" in read.links
    assert command in read.words
    assert "/runs/r2/effects" in shown(board(needing(act="settle"))).links, "a doubt is looked at first"
    unclosed = shown(board(needing(act="resume", command="outlast resume 'r2")))
    assert "/runs/r2/do/resume" in unclosed.links


def test_what_nobody_starts_again_has_a_card_after_what_needs_a_person() -> None:
    page = overview.render(view("/"), Ask(), board(row(stranded=True), needing(run="r9", act="resume")))
    assert page.index('id="n-r9"') < page.index('id="n-r1"')
    read = checked(page)
    assert "/runs/r1/do/resume" in read.links
    assert "outlast resume r1" in read.words
    many = [row(run=f"s{number}", stranded=True) for number in range(9)]
    words = shown(board(*many, needing())).words
    assert f"and {9 + 1 - overview.CARDS_MAX} more that have stopped" in words


def test_a_program_of_somebodys_own_is_theirs_to_start() -> None:
    read = shown(board(row(stranded=True, own_program=True)))
    assert "Start its program again: it goes on at beat 4." in read.words
    assert not [link for link in read.links if "/do/" in link]
    assert "outlast resume" not in read.words
    more = shown(board(needing(own_program=True, command="outlast resume r2 --until +8h")))
    assert "/runs/r2/do/resume?amounts=until%3D%2B8h" in more.links
    assert "Then start its program again." in more.words


def test_who_is_stuck_is_a_click_away_and_counts_are_of_all_runs() -> None:
    quiet = row(what="running", quiet="stuck", quiet_s=1300)
    few = board(
        quiet,
        msgspec.structs.replace(quiet, run="r2"),
        row(run="r3"),
        whats=(),
        spent=msgspec.structs.replace(SPENT, tokens=5),
    )
    read = shown(few, Ask(project="shop"))
    assert "2 running · 2 stuck · 1 stopped · 1.2k tokens" in read.words
    assert "3 runs fit of 3: 5 tokens" in read.words, "what fits has its own sum"
    assert "/?q=stuck#runs" in read.links
    assert "runs fit" not in shown(few).words


def test_a_command_that_cannot_be_pasted_is_not_shown() -> None:
    settle = needing(act="settle", command="outlast settle r2 1.1")
    for read_only in (False, True):
        assert "--happened" not in shown(board(settle), read_only=read_only).words
    assert "outlast effects r2" in shown(board(settle), read_only=True).words


def test_read_only_there_are_commands_and_no_acts() -> None:
    read = shown(board(needing(act="resume", command="outlast resume r2")), read_only=True)
    assert not [link for link in read.links if "/do/" in link]
    assert "outlast resume r2" in read.words


def test_more_than_fit_are_counted() -> None:
    rows = [needing(run=f"r{number}") for number in range(12)]
    read = shown(board(*rows, needs_total=40))
    assert f"and {40 - overview.CARDS_MAX} more that need you" in read.words


# -- the table ---------------------------------------------------------------------------------------------------------


def test_children_stand_under_their_root_and_projects_together() -> None:
    page = overview.render(
        view("/"), Ask(),
        board(
            row(run="a"), row(run="b", parent="a", root="a"), row(run="c", parent="b", root="a"),
            row(run="d", project="/srv/docs", project_name="docs"),
        ),
    )  # fmt: skip
    assert page.index('id="r-a"') < page.index('id="r-b"') < page.index('id="r-c"') < page.index('id="r-d"')
    assert page.count('scope="rowgroup"') == 2
    assert (page.count('class="d1"'), page.count('class="d2"')) == (1, 1)


def test_a_quiet_agent_stands_out_by_a_word() -> None:
    idle = row(what="running", status="running", lives=True, quiet="idle", quiet_s=420)
    assert "idle 7 min" in shown(board(idle)).words


def test_a_bar_says_in_words_what_it_shows() -> None:
    meter = Meter(
        unit="tokens",
        limit=400_000,
        spent=248_000,
        left=152_000,
        used_pct=62.0,
        forecast=430_000,
        wraps_up=True,
    )
    words = shown(board(row(meters=(meter,)))).words
    assert "62 % of 400k tokens" in words
    assert "on reserve, forecast 108 %" in words
    assert layout.meter_words(meter) == "248k of 400k tokens, on reserve, forecast 108 %"
    spent = msgspec.structs.replace(meter, used_pct=100.0)
    assert "reserve" not in layout.meter_words(spent), "what is spent has no reserve left"
    close = msgspec.structs.replace(meter, used_pct=75.5, forecast=301_988, wraps_up=False)
    assert layout.meter_words(close).endswith("forecast 76 %"), (
        "a forecast is not below what is used: 75.497 %"
    )
    nearly = msgspec.structs.replace(meter, used_pct=99.9, forecast=None, wraps_up=False)
    assert layout.meter_words(msgspec.structs.replace(nearly, limit=None)) == "248k tokens"
    assert "99 % of 400k tokens" in shown(board(row(meters=(nearly,)))).words, "nearly all is not all"


def test_a_hundred_runs_are_a_light_page() -> None:
    rows = [needing(run=f"1411abcdef{number:02}", meters=(_meter(),)) for number in range(100)]
    assert len(overview.render(view("/"), Ask(), board(*rows)).encode()) <= WHOLE_MAX


def _meter() -> Meter:
    return Meter(
        unit="tokens", limit=400_000, spent=1, left=1, used_pct=62.0, forecast=430_000, wraps_up=False
    )


def test_hostile_and_endless_names_neither_break_nor_bloat_the_page() -> None:
    texts = ("task", "project", "project_name", "why", "command", "goal", "agent", "model", "stage", "step")
    hostile = dict.fromkeys(texts, HOSTILE)
    rows = [needing(**hostile, run=f"r{number}", act="resume") for number in range(100)]
    named = (Count(name=HOSTILE, label=HOSTILE, runs=3), Count(name="x", runs=1))
    ask = Ask(q=HOSTILE, project=HOSTILE, agent=HOSTILE)
    page = overview.render(view("/"), ask, board(*rows, projects=named, agents=named))
    read = checked(page)
    assert "\\u202eevil" in read.words
    assert "alert(1)" in read.words
    short = overview.render(view("/"), Ask(), board(*rows))
    assert len(short.encode()) <= 2 * WHOLE_MAX


# -- what is asked -----------------------------------------------------------------------------------------------------

ASKED = st.builds(
    Ask,
    q=st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20),
    what=st.lists(st.sampled_from(KINDS), unique=True).map(tuple),
    status=st.lists(st.sampled_from(STATUSES), unique=True).map(tuple),
    project=st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20),
    agent=st.sampled_from(["", "claude", "a&b=c#d"]),
    sort=st.sampled_from(get_args(Sort)),
    up=st.booleans(),
    grouped=st.booleans(),
    page=st.integers(1, 1_000_000),
)


@given(ASKED)
def test_a_link_asks_for_just_what_it_was_made_of(ask: Ask) -> None:
    link = filters.link(ask, page=ask.page)
    asked = query.read(query.OVERVIEW, parse_qsl(urlsplit(link).query, keep_blank_values=True))
    assert query.ask(asked) == ask


def test_a_chip_adds_itself_and_takes_itself_away() -> None:
    ask = Ask(q="x", status=("done",), page=3)
    links = shown(board(row()), ask).links
    assert "/?q=x&what=running&status=done#filters" in links
    assert "/?q=x&status=done&status=running#filters" in links
    assert "/?q=x#filters" in links, "the chosen one leads to the list without it"


def test_further_pages_keep_what_was_asked() -> None:
    read = shown(board(row(), page=2, pages=3), Ask(what=("done",), page=2))
    assert {"/?what=done#runs", "/?what=done&page=3#runs"} <= set(read.links)
