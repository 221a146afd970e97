"""`outlast top`: printed, and in a real terminal with runs that change while somebody looks."""

import itertools
import os
import re
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from outlast.cli.terminal import columns
from outlast.core import events as ev
from outlast.core.values import NOTHING, Allowance, Contract, Parent, SessionMark, Usage
from outlast.dashboard.documents import Meter, Overview, Row
from outlast.inspect.show import Spent
from outlast.store import open_store
from outlast.store.protocol import Batch, Lease, RunFilter, Store
from tests.cli.command_line import Cli
from tests.support import processes
from tests.support.processes import wait_for
from tests.support.screens import Screen

AT = datetime(2026, 11, 15, 22, 0, tzinfo=UTC)
_numbers = itertools.count()
HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\nevil\u202e\u009b31m 漢字\u0301"


@pytest.fixture
def store(cli: Cli) -> Iterator[Store]:
    opened = open_store(cli.root)
    yield opened
    opened.close()


def put(
    store: Store, task: str, *events: ev.AnyEvent, goal: str = "mend it", budget: Allowance | None = None,
    agent: str = "claude", project: str = "/src/app/.git", parent: Parent | None = None,
) -> str:  # fmt: skip
    run = f"run{next(_numbers):09}"
    opened = ev.RunOpened(
        at=AT, run=run, task=task, project=project, contract=Contract(goal), budget=budget, parent=parent
    )
    known = ev.SessionKnown(at=AT, session=SessionMark(agent, "s", model="opus"))
    return store.create(opened, [known, *events])


def failed(evidence: str = "2 of 3 checks failed") -> ev.AttemptEnded:
    return ev.AttemptEnded(at=AT, epoch=1, status="failed", cause="checks", evidence=evidence)


def stopped(cause: ev.Cause = "signal") -> ev.AttemptEnded:
    return ev.AttemptEnded(at=AT, epoch=1, status="interrupted", cause=cause, evidence="SIGTERM from pid 1")


def begun() -> ev.AttemptStarted:
    return ev.AttemptStarted(at=datetime.now(UTC), epoch=1, host="h", pid=1, boot_id="b")


def beat(number: int, at: datetime | None = None) -> ev.BeatDone:
    return ev.BeatDone(
        at=at or datetime.now(UTC),
        beat=number,
        step=f"step {number}",
        cursor=(number,),
        spent=Usage(input=250),
    )


def write(store: Store, lease: Lease, *events: ev.AnyEvent) -> None:
    store.append(Batch(lease, lease.run, store.list(RunFilter(runs=(lease.run,)))[0].state.seq, events))


# -- once ----------------------------------------------------------------------------------------------------------------


def test_where_nothing_was_ever_run_it_says_so_and_that_is_no_error(cli: Cli) -> None:
    answer = cli.ok("top", "--once")
    assert (answer.out, answer.err) == ("", "no runs yet; `outlast run -- COMMAND` starts one\n")
    empty = cli.ok("top", "--once", "--json").json
    assert (empty["total"], empty["rows"], empty["pages"]) == (0, [], 1)
    assert not cli.root.exists(), "looking makes no store"
    assert "no store" in cli("top", "--once", "--store", "elsewhere").complaint


def test_it_prints_what_needs_a_person_first_with_what_to_type(cli: Cli, store: Store) -> None:
    put(store, "fine", ev.Finished(at=AT))
    put(store, "1412", begun(), stopped())
    run = put(store, "1411", beat(1, AT), beat(2, AT), beat(3, AT), failed(), budget=Allowance(tokens=1_000))
    answer = cli("top", "--once")
    assert answer.code == 3
    lines = answer.out.splitlines()
    assert (
        lines[0]
        == "1 run needs you, 1 more has stopped and will not restart by itself; 1 stopped, 1 done; 750 tokens"
    )
    assert lines[1].split() == [
        "STATUS", "TASK", "AGENT", "BEATS", "BUDGET", "ACTIVE", "ATTEMPTS", "SAVE", "WHY",
    ]  # fmt: skip
    assert [line for line in lines if not line.startswith(" ") and ";" not in line and line[0] not in "!~"] == [
        "needs you", "stopped", "done",
    ]  # fmt: skip
    row = lines[3]
    assert row.startswith("! failed")
    assert "app:1411" in row
    assert "claude/opus" in row
    assert re.search(r"\S{10} 75%", row), "a bar with its share"
    assert row.endswith(f"checks: 2 of 3 checks failed   outlast resume {run}")
    assert lines[5].startswith("~ died"), "stopped, and nobody starts it again"
    assert lines[5].endswith("signal: SIGTERM from pid 1   start its program again")
    assert cli("top", "--once", "--project", "elsewhere").code == 0
    assert cli("top").out.splitlines()[1:] == lines[1:], "without a terminal it prints"


def test_all_is_well_is_exit_code_0_and_a_project_can_be_asked_for(cli: Cli, store: Store) -> None:
    put(store, "mine", ev.Finished(at=AT))
    put(store, "theirs", failed(), project="/src/theirs/.git")
    assert cli("top", "--once").code == 3
    answer = cli.ok("top", "--once", "--project", "/src/app/.git")
    assert "theirs" not in answer.out
    assert answer.out.startswith("All is well; 1 done\n"), "the sentence is about what was asked for"


def test_the_document_is_the_overview(cli: Cli, store: Store) -> None:
    run = put(store, "1411", failed(HOSTILE), goal=HOSTILE)
    put(store, "child", parent=Parent(run, 1, run))
    answer = cli("top", "--once", "--json")
    assert answer.code == 3
    overview = msgspec.json.decode(answer.out, type=Overview)
    assert (overview.number, overview.total, overview.found) == (store.last_number(), 2, 2)
    assert [row.task for row in overview.rows] == ["1411", "child"]
    assert not set("\x1b\x07\x9b") & set(answer.out)


def test_nothing_that_an_agent_wrote_steers_the_terminal(cli: Cli, store: Store) -> None:
    put(
        store,
        HOSTILE,
        failed(HOSTILE),
        goal=HOSTILE,
        agent=HOSTILE,
        project=f"/{HOSTILE}",
    )
    answer = cli("top", "--once")
    assert len(answer.out.splitlines()) == 4
    assert all(char.isprintable() for char in answer.out.replace("\n", ""))


def test_of_very_many_runs_it_prints_the_first_and_counts_the_rest(cli: Cli, store: Store) -> None:
    for number in range(103):
        put(store, f"t{number}", ev.Finished(at=AT))
    answer = cli.ok("top", "--once")
    assert len(answer.out.splitlines()) == 103
    assert answer.err == "3 more: `outlast top --once --page 2`\n"
    second = cli.ok("top", "--once", "--page", "2")
    assert (len(second.out.splitlines()), second.err) == (6, "")
    assert "app:t0 " in second.out
    assert [row["task"] for row in cli.ok("top", "--json", "--page", "2").json["rows"]] == [
        f"t{number}" for number in reversed(range(103))
    ], "the last page there is"
    for words in (("--page", "0"), ("--page", "x")):
        assert cli("top", "--once", *words).code == 2


# -- columns -------------------------------------------------------------------------------------------------------------


@given(st.text(), st.integers(0, 60))
def test_a_text_takes_exactly_the_columns_it_is_given(text: str, room: int) -> None:
    fitted = columns.fit(text, room)
    assert columns.width(fitted) == room
    if columns.width(text) <= room:
        assert fitted.startswith(text)


@given(st.text(), st.integers(2, 30))
def test_a_text_on_several_lines_is_all_there_and_no_line_is_too_wide(text: str, room: int) -> None:
    lines = columns.wrapped(text, room)
    assert "".join(lines) == text
    assert all(columns.width(line) <= room for line in lines)


def test_a_text_is_cut_between_words() -> None:
    assert columns.wrapped("outlast settle run1 --happened", 20) == ["outlast settle run1 ", "--happened"]
    assert columns.wrapped("  aaaaaaa", 5) == ["  aaa", "aaaa"]


@given(st.integers(0, 300))
def test_a_line_is_never_wider_than_the_terminal(room: int) -> None:
    widths = columns.chosen(room)
    made = columns.line(columns.cells(a_row(), AT, blocks=False), widths)
    assert columns.width(made) <= max(room, columns._TASK_MIN)
    assert "TASK" in widths


def a_row(**fields: object) -> Row:
    nothing = Spent(0, 0, 0, 0, 0, 0, False, 0)
    known: dict[str, object] = {
        "run": "r", "task": "漢字", "project": "/p", "project_name": "p", "generation": 1, "parent": "", "root": "r",
        "what": "running", "status": "running", "cause": None, "why": "", "command": None, "act": None, "goal": "g",
        "agent": "a", "model": "m", "stage": "", "step": "", "beats": 1, "plan_total": 4, "attempts": 1, "in_doubt": 0,
        "spent": nothing, "meters": (), "last_save": None, "lives": True, "active_at": AT, "quiet": "", "quiet_s": 0,
        "parked_until": None, "created_at": AT, "updated_at": AT, "children": 0,
    }  # fmt: skip
    return Row(**{**known, **fields})  # type: ignore[arg-type]


def a_meter(used_pct: float | None, forecast: int | None = None, *, wraps_up: bool = False) -> Meter:
    limit = None if used_pct is None else 1_000
    spent = 2_500_000 if used_pct is None else int(10 * used_pct)
    return Meter(
        unit="tokens",
        limit=limit,
        spent=spent,
        left=None,
        used_pct=used_pct,
        forecast=forecast,
        wraps_up=wraps_up,
    )


def test_words_say_what_colours_would() -> None:
    assert columns.status(a_row(what="needs you", status="in_doubt")) == "! in doubt"
    now = AT + timedelta(minutes=25)
    assert columns.active(a_row(quiet="stuck"), now) == "stuck 25 min"
    assert columns.active(a_row(), now) == "25 min ago"
    assert columns.budget(a_row(meters=(a_meter(71.0),)), blocks=False) == "#######... 71%"
    assert columns.budget(a_row(meters=(a_meter(71.0, 1_400),)), blocks=True) == "███████░░░ 71%!"
    assert columns.budget(a_row(meters=(a_meter(95.0, wraps_up=True),)), blocks=False) == "########## 95%!"
    assert columns.budget(a_row(meters=(a_meter(250.0),)), blocks=False) == "########## 250%"
    assert columns.budget(a_row(meters=(a_meter(None),)), blocks=False) == "2.5M tokens"
    assert columns.line(
        columns.cells(a_row(what="needs you"), AT, blocks=False), columns.chosen(18)
    ).startswith("! p:")


# -- live ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def screen(cli: Cli, tmp_path: Path) -> Iterator[Screen]:
    folder = tmp_path / "terminal"
    folder.mkdir()
    made = Screen(folder, cli.folder, cli.environ | {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"})
    yield made
    made.close()


TOP = f"{sys.executable} -m outlast top"


def see_not(screen: Screen, text: str) -> None:
    wait_for(lambda: text not in screen.text(), what=f"{text!r} to go:\n{screen.text()}")


def test_it_follows_a_run_that_works_and_dies_and_the_marked_run_stays_marked(
    cli: Cli, store: Store, screen: Screen
) -> None:
    run = put(store, "1411", begun(), budget=Allowance(tokens=1_000))
    for number in range(3):
        put(store, f"other{number}", failed())
    lease = store.claim(run)
    modes = screen.modes()
    screen.type(TOP)
    screen.see("3 runs need you; 1 running")
    screen.keys("End")
    screen.see(">   running")
    write(store, lease, beat(1))
    screen.see("25%")
    write(store, lease, beat(2))
    screen.see("50%")
    screen.keys("Enter")
    screen.see("beat 2  step 2")
    write(store, lease, beat(3))
    screen.see("beat 3  step 3")
    store.release(lease)
    screen.see("ran before the last boot")
    screen.keys("q")
    screen.see("> ~ rebooted")
    screen.see("3 runs need you, 1 more has stopped and will not restart by itself")
    screen.see("start its program again")
    fresh = put(store, "newcomer", failed())
    screen.see("4 runs need you")
    screen.see("app:newcomer")
    screen.see("> ~ rebooted")
    store.forget(fresh)
    screen.see("3 runs need you")
    screen.keys("q")
    screen.see("ready>", 2)
    assert screen.modes() == modes, "the terminal is as it was"


def test_searching_filtering_and_sorting_by_keys(store: Store, screen: Screen) -> None:
    put(store, "1411", failed(), goal="mend the parser")
    put(store, "1412", stopped(), goal="write the PARSER's page")
    put(store, "1413", ev.Finished(at=AT), goal="something else")
    screen.type(TOP)
    screen.see("3 of 3")
    screen.keys("/")
    screen.see("search: _")
    screen.keys("-l", "parser")
    screen.see("2 of 3")
    see_not(screen, "1413")
    screen.keys("-l", " page")
    screen.see("1 of 3")
    screen.keys("Enter", "Escape")
    screen.see("3 of 3")
    screen.keys("f")
    screen.see("only: needs you   1 of 3")
    screen.keys("f", "f", "f", "f", "s")
    screen.see("order: activity   3 of 3")
    screen.keys("?")
    screen.see("search as you type")
    screen.keys("q", "/")
    screen.keys("-l", "zzz")
    screen.see("no run matches")
    screen.keys("C-u")
    screen.see("3 of 3")
    screen.keys("C-c")
    screen.see("ready>", 2)


def test_it_goes_through_more_runs_than_it_reads_at_once(store: Store, screen: Screen) -> None:
    for number in range(620):
        put(store, f"t{number}", ev.Finished(at=AT))
    screen.type(TOP)
    screen.see("620 of 620")
    screen.see("app:t619")
    screen.keys("End")
    screen.see("app:t0 ")
    screen.keys("PPage", "PPage")
    screen.see("app:t64 ")
    for _ in range(3):
        screen.keys("k")
    screen.keys("Home")
    screen.see(">   done           app:t619")
    screen.keys("q")
    screen.see("ready>", 2)


@pytest.mark.parametrize("size", [(20, 5), (2, 1), (40, 7), (300, 60)])
def test_terminals_of_any_size_while_it_is_shown(store: Store, screen: Screen, size: tuple[int, int]) -> None:
    put(store, HOSTILE, failed(HOSTILE), goal="漢字" * 200)
    for number in range(30):
        put(store, f"t{number}", stopped())
    screen.type(TOP)
    screen.see("31 of 31")
    screen.resize(*size)
    if size[0] >= 20:
        screen.see("1 run needs you")
        wait_for(lambda: all(columns.width(line) <= size[0] for line in screen.text().splitlines()))
    screen.keys("Down", "PageDown", "Enter", "PageDown", "q", "?", "q", "/", "x", "Escape")
    screen.resize(120)
    screen.see("31 of 31")
    screen.keys("q")
    screen.see("ready>")


def test_on_a_small_terminal_neither_the_clock_nor_what_to_type_is_cut(
    cli: Cli, store: Store, screen: Screen
) -> None:
    doubt = ev.EffectIntended(
        at=AT, beat=1, n=1, name="push " * 30, key="k", policy="ask", args=NOTHING, occurrence=1
    )
    run = put(store, "1411", begun(), doubt, stopped("crash"))
    put(store, "1412", begun(), stopped(), goal="mend " * 50)
    screen.resize(80, 24)
    screen.type(f"clear; {TOP} --store {cli.root}")
    screen.see("2 of 2")
    first = screen.text().splitlines()[0]
    assert re.search(r"  \d\d:\d\d:\d\d$", first), first
    assert first.startswith("1 run needs you, 1 more has stopped and will not restart by itself")
    command = f"outlast --store {cli.root} settle {run} 1.1"
    below = screen.text().splitlines()[-5:-1]
    assert re.sub(r"\s+", "", command) in re.sub(r"\s+", "", "".join(below)), below
    screen.keys("?")
    screen.see("q back")
    assert "only the" in screen.text(), "cut between words"
    screen.keys("q", "q")
    screen.see("ready>")


def test_of_one_that_is_stuck_it_says_where_to_look(store: Store, screen: Screen) -> None:
    run = put(store, "1411", ev.AttemptStarted(at=AT, epoch=1, host="h", pid=1, boot_id="b"))
    lease = store.claim(run)
    screen.type(TOP)
    screen.see("1 run is stuck; 1 running, 1 stuck")
    screen.see(f"outlast output {run}")
    screen.see("running: it lives and has done nothing for long")
    screen.keys("q")
    screen.see("ready>", 2)
    store.release(lease)


def test_it_rests_and_goes_on_and_leaves_the_terminal_as_it_was_when_ended(
    store: Store, screen: Screen
) -> None:
    run = put(store, "1411", failed())
    modes = screen.modes()
    screen.type(TOP)
    screen.see("1 run needs you")
    screen.keys("C-z")
    screen.see("Stopped")
    put(store, "1412", failed())
    screen.type("fg")
    screen.see("2 runs need you")
    screen.keys("C-z")
    screen.see("Stopped", 2)
    screen.type("kill -TERM %1; fg; echo ended $?")
    screen.see("ended 143")
    assert screen.modes() == modes
    screen.type(f"TERM=dumb {TOP}; echo code $?")
    screen.see("code 3")
    screen.see(f"outlast resume {run}")


def test_without_colour_there_is_none_and_with_it_the_words_are_the_same(
    store: Store, screen: Screen
) -> None:
    put(store, "1411", failed())
    texts = []
    for before in ("NO_COLOR=1 ", ""):
        screen.type(f"clear; {before}{TOP}")
        screen.see("1 of 1")
        texts.append(screen._run("capture-pane", "-p", "-e"))
        screen.keys("q")
        screen.see("ready>")
    assert "\x1b[31m" not in texts[0]
    assert "\x1b[31m" in texts[1] or "\x1b[1;31m" in texts[1] or ";31" in texts[1]
    plain = [re.sub(r"\x1b\[[0-9;]*m|\d\d:\d\d:\d\d|\d+ (h|d|min)", "", text) for text in texts]
    assert plain[0] == plain[1]


AGENT = """
import sys
import outlast
with outlast.run("1500", goal="work on and on") as run:
    for beat in run.beats():
        beat.done(beat.number)
        print(beat.number, flush=True)
        sys.stdin.readline()
"""


def test_a_real_process_that_is_killed_is_seen_to_be_dead(cli: Cli, screen: Screen) -> None:
    with cli.started(sys.executable, "-c", AGENT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        screen.type(TOP)
        screen.see("1 running")
        os.kill(process.pid, signal.SIGKILL)
        screen.see("1 run has stopped and will not restart by itself")
    assert processes.alive(process.pid) is False
    screen.keys("q")
    screen.see("ready>", 2)
