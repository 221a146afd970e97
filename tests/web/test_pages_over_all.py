"""Emergency saves, charts, acts, problems and the token: made-up documents in, pages that keep all rules out."""

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from outlast.dashboard.documents import (
    ActName,
    Charts,
    Count,
    Done,
    Emergencies,
    Emergency,
    Foreseen,
    Series,
    Spending,
    Wish,
)
from outlast.web.charts import bars as charts_bars
from outlast.web.pages import acts, charts, emergency, problem
from outlast.web.pages.outside import login
from tests.web.sample_documents import NOW, Read, ago, checked, row, view

HOSTILE = f"<script>alert(1)</script>\u202eevil\x00\x1b[31m' \" {'w' * 5_000}"


# -- emergency saves ---------------------------------------------------------------------------------------------------


def save(**changes: Any) -> Emergency:
    base = Emergency(
        n=9, at=ago(30), run="r1", task="1411", project="p", project_name="shop", kind="emergency", cause="signal",
        reason="", evidence="signal 15 from pid 812 (systemd)", beat=13, commit="9c1e4d2aa", files=42, left_out=2,
        picked_up=None, picked_up_at=None, status="interrupted", act="resume",
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def saves(*found: Emergency, **changes: Any) -> Emergencies:
    causes = (Count(name="signal", runs=3), Count(name="budget", runs=1))
    base = Emergencies(total=len(found), causes=causes if found else (), saves=found, before=None)
    return msgspec.structs.replace(base, **changes)


def test_a_save_tells_when_which_why_how_much_and_whether_it_was_picked_up() -> None:
    read = checked(emergency.render(view("/saves"), saves(save())))
    for said in (
        "03:50",
        "1411",
        "signal 15 from pid 812 (systemd)",
        "42 files changed since the save before, 2 left out",
        "beat 13",
        "not yet",
    ):
        assert said in read.words
    assert {"/runs/r1/saves/9c1e4d2aa", "/runs/r1/do/resume", "/saves?cause=budget"} <= set(read.links)
    picked = checked(emergency.render(view("/saves"), saves(save(picked_up=4, picked_up_at=ago(5)))))
    assert "by attempt 4" in picked.words
    assert "not yet" not in picked.words
    same = checked(emergency.render(view("/saves"), saves(save(files=0, left_out=0)))).words
    assert "all files, none changed since the save before" in same, "it has saved no less"
    assert "files not counted" in checked(emergency.render(view("/saves"), saves(save(files=None)))).words


@pytest.mark.parametrize(
    ("status", "act", "link"),
    [
        ("in_doubt", "settle", "/runs/r1/effects"),
        ("in_doubt", "resume", "/runs/r1/do/resume"),
        ("parked", "resume", "/runs/r1/do/resume"),
        ("interrupted", None, ""),
        ("running", None, ""),
        ("done", None, ""),
    ],
)
def test_what_was_not_picked_up_leads_to_what_helps(status: Any, act: Any, link: str) -> None:
    given = saves(save(status=status, act=act, command=f"outlast {act} r1"))
    links = checked(emergency.render(view("/saves"), given)).links
    helping = [each for each in links if each in ("/runs/r1/effects", "/runs/r1/do/resume")]
    assert helping == ([link] if link else [])
    read_only = checked(emergency.render(view("/saves", read_only=True), given)).links
    assert "/runs/r1/do/resume" not in read_only


def test_older_saves_are_a_link_away_and_keep_the_cause() -> None:
    page = emergency.render(view("/saves", cause="signal", before="90"), saves(save(), before=50))
    assert {"/saves?cause=signal&before=50", "/saves?cause=signal"} <= set(checked(page).links)


def test_without_saves_it_says_so() -> None:
    assert "No emergency saves." in checked(emergency.render(view("/saves"), saves())).words
    chosen = checked(emergency.render(view("/saves", cause="oom"), saves()))
    assert "There are no such saves." in chosen.words


# -- charts --------------------------------------------------------------------------------------------------------------


def made_charts(**changes: Any) -> Charts:
    spending = [
        Spending(
            by=by,
            tokens=(Series(name=f"{by} a", values=(1_000, 0, 3_000)), Series(name="", values=(500, 0, 0))),
            cost_microusd=(Series(name=f"{by} a", values=(1_500_000, 0, 2_000_000)),),
        )
        for by in charts.GRAINS
    ]
    base = Charts(
        at=NOW, zone="Europe/Berlin", counted_pct=100, days=("2026-11-14", "2026-11-15", "2026-11-16"),
        spending=tuple(spending), saves_by_cause=(Series(name="program_missing", values=(0, 2, 0)),),
        hours=("2026-11-16T02", "2026-11-16T03"), beats_per_hour=(7, 12),
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def test_the_numbers_of_a_chart_stand_in_a_table_too() -> None:
    read = checked(charts.render(view("/charts"), made_charts()))
    for said in ("agent a", "not known", "program missing", "14 Nov", "16 Nov 03:00", "3k", "Beats an hour"):
        assert said in read.words
    assert "Still counting" not in read.words


def test_what_is_shown_is_chosen_by_links() -> None:
    read = checked(charts.render(view("/charts", by="model", unit="usd"), made_charts()))
    assert "model a" in read.words
    assert "$3.50" in read.words
    assert "/charts?by=project&unit=usd#spending" in read.links
    nonsense = checked(charts.render(view("/charts", by="<x>", unit="y"), made_charts()))
    assert "agent a" in nonsense.words


def test_while_the_past_is_counted_it_says_how_far_it_is() -> None:
    assert (
        "Still counting: 40 %" in checked(charts.render(view("/charts"), made_charts(counted_pct=40))).words
    )


def test_charts_of_nothing_say_so() -> None:
    nothing = made_charts(spending=(), saves_by_cause=(), beats_per_hour=(0, 0))
    read = checked(charts.render(view("/charts"), nothing))
    for said in ("No tokens on record", "No emergency saves in these days", "No beats in these hours"):
        assert said in read.words
    checked(charts.render(view("/charts"), made_charts(days=(), hours=(), spending=(), saves_by_cause=(), beats_per_hour=())))  # fmt: skip


@given(st.integers(0, 10**15))
def test_the_axis_ends_above_the_highest_bar_and_not_far(value: int) -> None:
    top = charts_bars.round_top(value)
    assert max(value, 1) <= top <= max(charts_bars.GRID_LINES, value * 2)


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=5, max_size=5), min_size=1, max_size=12))
def test_bars_stay_inside_their_drawing(values: list[list[int]]) -> None:
    series = [Series(name=f"s{number}", values=tuple(each)) for number, each in enumerate(values)]
    drawn = charts_bars.stacked("t", "d", [f"{day} Nov" for day in range(5)], series, str)
    bars = Bars(f"<i>{drawn}</i>")
    assert all(y >= 0 and y + height <= bars.bottom + 1 for y, height in bars.found), bars.found
    assert bool(bars.found) == any(map(any, values))


class Bars(Read):
    """Where the bars of a drawing stand."""

    bottom = 250.0

    def __init__(self, page: str) -> None:
        self.found: list[tuple[float, float]] = []
        super().__init__(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "rect" and given.get("y"):
            self.found.append((float(given["y"] or 0), float(given["height"] or 0)))
        super().handle_starttag(tag, attrs)


# -- acts ----------------------------------------------------------------------------------------------------------------


def foreseen(act: ActName, **changes: Any) -> Foreseen:
    wish = Wish(act=act, run="r1")
    base = Foreseen(
        wish=wish, title=f"{act} run r1", says=("It goes on at beat 4.",), command=f"outlast {act} r1"
    )
    return msgspec.structs.replace(base, **changes)


class Forms(Read):
    """The forms of a page: how each is sent, where to, and what it carries."""

    def __init__(self, page: str) -> None:
        self.sent: list[tuple[str, str, dict[str, str]]] = []
        super().__init__(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.sent.append((given.get("method", ""), given.get("action", ""), {}))
        if tag in ("input", "textarea") and self.sent and given.get("name"):
            self.sent[-1][2][given["name"]] = given.get("value", "")
        super().handle_starttag(tag, attrs)

    def by(self, method: str) -> list[tuple[str, dict[str, str]]]:
        return [(action, fields) for how, action, fields in self.sent if how == method]


def asked(found: Foreseen, *, read_only: bool = False) -> Forms:
    page = acts.ask(view("/runs/r1/do/x", read_only=read_only), row(), found, "n1")
    checked(page)
    return Forms(page)


def test_an_act_is_asked_with_all_that_is_known_and_one_button() -> None:
    wish = Wish(act="budget", run="r1", amounts="+200k", limit_was="400k tokens", beat=0)
    forms = asked(foreseen("budget", wish=wish, takes=("amounts",)))
    assert forms.by("post") == [
        ("/runs/r1/do/budget", {"csrf": "c", "nonce": "n1", "amounts": "+200k", "limit_was": "400k tokens", "beat": "0"})
    ]  # fmt: skip
    (_, again) = forms.by("get")[0]
    assert again == {"amounts": "+200k", "beat": "0"}, "asked anew, the limit is looked up anew"
    assert "It goes on at beat 4." in forms.words
    assert "outlast budget r1" in forms.words


def test_what_is_lacking_is_asked_for_before_anything_can_be_done() -> None:
    wish = Wish(act="settle", run="r1", effect="4.1")
    lacking = foreseen(
        "settle", wish=wish, takes=("effect", "finding", "result"), lacks=("finding",), command=""
    )
    forms = asked(lacking)
    assert forms.by("post") == []
    assert [(action, sorted(fields)) for action, fields in forms.by("get")] == [
        ("/runs/r1/do/settle", ["effect", "finding", "result"])
    ]
    assert "It did not happen" in forms.words


def test_what_is_refused_has_a_reason_a_hint_and_no_button() -> None:
    refused = foreseen("pause", says=(), command="", refused="run r1 is done", hint="see `outlast show r1`")
    forms = asked(refused)
    assert forms.by("post") == forms.by("get") == []
    assert "run r1 is done" in forms.words
    assert "see `outlast show r1`" in forms.words
    wrong = asked(
        msgspec.structs.replace(refused, takes=("folder",), wish=Wish(act="restore", run="r1", folder="x"))
    )
    assert wrong.by("post") == []
    assert wrong.by("get") == [("/runs/r1/do/restore", {"folder": "x"})], "what was wrong can be put right"


@pytest.mark.parametrize("act", ["pause", "resume", "cancel", "budget", "settle", "fork", "restore"])
def test_read_only_there_is_nothing_to_press(act: ActName) -> None:
    assert asked(foreseen(act), read_only=True).by("post") == []
    assert len(asked(foreseen(act)).by("post")) == 1


def test_a_recorded_result_is_not_forgotten() -> None:
    wish = Wish(act="settle", run="r1", effect="4.1", finding="happened")
    takes = ("effect", "finding", "result")
    page = acts.ask(view(), row(), foreseen("settle", wish=wish, takes=takes), "n")
    assert '<details class="panel" id="otherwise" open>' in page


def test_the_outcome_says_what_became_of_it_and_by_whom() -> None:
    wish = Wish(act="settle", run="r1", effect="4.1", finding="did_not", limit_was="x")
    outcome = Done(
        wish=wish, at=NOW, by="ada via ui", ok=True, changed=True, says="It is recorded.", hint="", link="r2"
    )
    read = checked(acts.done(view(), row(), outcome))
    assert "Done" in read.words
    assert "ada via ui" in read.words
    assert "/runs/r2" in read.links
    same = checked(acts.done(view(), None, msgspec.structs.replace(outcome, changed=False)))
    assert "Nothing changed" in same.words
    failed = checked(acts.done(view(), None, msgspec.structs.replace(outcome, ok=False, link="")))
    assert "It was not done" in failed.words
    assert "/runs/r1/do/settle?effect=4.1&finding=did_not" in failed.links


@pytest.mark.parametrize(
    ("act", "then", "first", "words"),
    [
        ("settle", "resume", "/runs/r1/do/resume", "Resume it"),
        ("settle", "settle", "/runs/r1/effects", "Settle the next one"),
        ("budget", "resume", "/runs/r1/do/resume", "Resume it"),
        ("pause", "resume", "/runs/r1/do/resume", "Resume it"),
        ("fork", "resume", "/runs/r1", "To the new run"),
        ("cancel", None, "/runs/r1", "To the run"),
    ],
)
def test_the_next_step_is_the_button_that_stands_out(
    act: ActName, then: ActName | None, first: str, words: str
) -> None:
    outcome = Done(
        wish=Wish(act=act, run="r1"), at=NOW, by="ada", ok=True, changed=True, says="So.", hint="", link="r1",
        next=then, next_run="r1" if then else "",
    )  # fmt: skip
    page = acts.done(view(), row(), outcome)
    assert re.findall(r'<a href="([^"]*)" class="button primary">([^<]*)</a>', page) == [(first, words)]
    links = checked(page).links
    assert "/runs/r1" in links
    assert ("/runs/r1/do/resume" in links) == (then == "resume")
    assert "/runs/r1/do/resume" not in checked(acts.done(view(read_only=True), row(), outcome)).links


def test_where_files_were_written_can_be_pasted() -> None:
    outcome = Done(
        wish=Wish(act="restore", run="r1"), at=NOW, by="ada", ok=True, changed=True, says="So.", hint="", link="r1",
        folder="/srv/it's here",
    )  # fmt: skip
    assert "cd '/srv/it'\"'\"'s here'" in checked(acts.done(view(), row(), outcome)).words


# -- all of them ---------------------------------------------------------------------------------------------------------


def test_hostile_texts_stay_texts_on_every_page() -> None:
    wish = Wish(
        act="settle", run="r1", effect=HOSTILE, result=HOSTILE, task=HOSTILE, folder=HOSTILE, amounts=HOSTILE
    )
    takes = ("effect", "finding", "result", "task", "folder", "amounts")
    ready = foreseen("settle", wish=wish, title=HOSTILE, says=(HOSTILE,), command=HOSTILE, takes=takes)
    named = Series(name=HOSTILE, values=(1, 2, 3))
    outcome = Done(
        wish=wish, at=NOW, by=HOSTILE, ok=False, changed=False, says=HOSTILE, hint=HOSTILE, link=""
    )
    hostile_save = save(task=HOSTILE, project_name=HOSTILE, evidence=HOSTILE, reason=HOSTILE)
    for page in (
        emergency.render(view("/saves"), saves(hostile_save)),
        charts.render(view("/charts"), made_charts(saves_by_cause=(named,), zone=HOSTILE)),
        acts.ask(view(), row(task=HOSTILE), ready, "n"),
        acts.ask(view(), row(), msgspec.structs.replace(ready, refused=HOSTILE, hint=HOSTILE), "n"),
        acts.done(view(), row(task=HOSTILE), outcome),
        problem.render(view(f"/{HOSTILE}"), 404, HOSTILE, HOSTILE),
        login.render(view("/login", next=HOSTILE), HOSTILE),
    ):
        assert "alert(1)" in checked(page).words


def test_a_problem_says_what_to_do_next() -> None:
    read = checked(problem.render(view("/runs/x"), 404, "no such run x", "`outlast ls --all` lists all"))
    assert "no such run x" in read.words
    assert "`outlast ls --all` lists all" in read.words
    assert "/runs/x" in read.links
    assert "/" in checked(problem.render(view("//evil.example/x"), 404, "no", "")).links


def test_the_token_is_asked_for_and_goes_on_to_where_one_wanted() -> None:
    (form,) = Forms(login.render(view("/login", next="/charts"), "")).by("post")
    assert form == ("/login", {"csrf": "c", "next": "/charts", "token": ""})


def test_who_may_not_look_is_told_nothing_of_the_store() -> None:
    told = checked(login.render(replace(view("/login"), store_name="", outlast="outlast"), "")).words
    assert "store" not in told
    assert "as of event" not in told
    assert "as of event 7" in checked(problem.render(view(), 404, "no", "")).words
