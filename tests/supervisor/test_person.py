"""A person in the loop of supervised scripts: real processes, and a file outside that says what was done."""

import json
import os
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from outlast.core import events as ev
from outlast.core.values import Allowance
from outlast.operations import requests
from outlast.processes import reap
from outlast.runs.engine.steps import Append
from tests.supervisor.host import Host
from tests.support import commands
from tests.support.environment import NOBODY, TIMEOUT_S, need_root
from tests.support.processes import wait_for

OUTLAST = shlex.join(commands.ARGV)
DEPLOY = "outlast effect deploy --approve -- sh -c 'echo deployed >> ../done'"


def script(host: Host, *lines: str, task: str = "t") -> list[str]:
    path = host.folder / f"{task}.sh"
    path.write_text("\n".join(["set -eu", *lines]) + "\n")
    return ["bash", str(path)]


def starts(host: Host, *lines: str, options: tuple[str, ...] = ()) -> int:
    """The exit code of `outlast run` of a script with these lines."""
    return host.start("t", *script(host, *lines), options=("--headless", *options)).wait(TIMEOUT_S)


def done(host: Host) -> list[str]:
    path = host.folder / "done"
    return path.read_text().split() if path.exists() else []


def person(host: Host, *words: str) -> str:
    answer = host(*words, "--project", str(host.repository("t")))
    assert answer.code == 0, answer.out + answer.err
    return answer.out + answer.err


def refused(host: Host, *words: str) -> str:
    answer = host(*words, "--project", str(host.repository("t")))
    assert answer.code == 2, (answer.code, answer.out, answer.err)
    return answer.err


def listed(host: Host) -> dict[str, Any]:
    found = json.loads(host("ls", "--all", "--json").out)
    row: dict[str, Any] = next(row for row in found if row["task"] == "t")
    return row


def test_a_script_waits_without_a_process_and_goes_on_when_it_is_approved(host: Host) -> None:
    assert starts(host, "outlast step one -- sh -c 'echo one >> ../notes'", DEPLOY) == 3, host.said("t")
    run = host.summary("t").run
    wait_for(lambda: not list(reap.find(run)) or None, what="no process is left")
    row = listed(host)
    assert (row["status"], row["standing"], row["needs"]) == ("parked", "waiting", "person")
    [waits] = row["waits_for"]
    assert (waits["id"], waits["kind"], waits["command"]) == ("a1", "approval", f"outlast approve {run} a1")
    assert "echo deployed" in waits["text"]
    assert starts(host, "true") == 3, "typed again it waits on, and costs no attempt"
    assert host.summary("t").state.attempts == 1
    assert done(host) == []

    script(host, "outlast step one -- sh -c 'echo one >> ../notes'", DEPLOY)
    person(host, *waits["command"].split()[1:])
    host.comes_to("t", "done")
    assert done(host) == ["deployed"]
    assert (host.folder / "notes").read_text() == "one\n"
    assert "is done" in refused(host, "approve", "t")


def test_recorded_without_a_start_it_goes_on_with_all_others(host: Host) -> None:
    assert starts(host, DEPLOY) == 3
    assert "lets it go on" in person(host, "approve", "t", "--no-start")
    assert host.status("t") == "interrupted"
    assert done(host) == []
    for again in (refused(host, "approve", "t"), refused(host, "reject", "t", "a1")):
        assert "a1 of run" in again
        assert "is approved already by" in again
        assert f"resume {host.summary('t').run}` lets it go on" in again
    assert host("resume", "--all").code == 0
    host.comes_to("t", "done")
    assert done(host) == ["deployed"]


def test_a_dry_run_shows_the_whole_call_and_changes_nothing(host: Host) -> None:
    assert starts(host, DEPLOY) == 3
    before = host.summary("t").state.seq
    assert "echo deployed >> ../done" in person(host, "approve", "t", "--dry-run")
    assert host.summary("t").state.seq == before


def test_a_rejected_effect_is_not_performed_and_the_script_goes_another_way(host: Host) -> None:
    lines = f"if {DEPLOY} 2> ../why; then false; else echo code $? >> ../why; fi"
    assert starts(host, lines) == 3
    person(host, "reject", "t", "--why", "not on a Friday")
    host.comes_to("t", "done")
    why = (host.folder / "why").read_text()
    assert "not on a Friday" in why
    assert why.endswith("code 125\n")
    assert done(host) == []


def test_the_answer_to_a_question_is_printed_and_replayed(host: Host) -> None:
    lines = ('api=$(outlast ask "which API?" --choice v1 --choice v2)', "echo $api >> ../done", DEPLOY)
    assert starts(host, *lines) == 3
    assert "which API?; one of v1, v2" in refused(host, "answer", "t")
    assert "none of its choices" in refused(host, "answer", "t", "v3")
    assert "is a question" in refused(host, "approve", "t", "q1")
    person(host, "answer", "t", "v2")
    wait_for(lambda: listed(host)["standing"] == "waiting" or None, what="it waits for its approval")
    person(host, "approve", "t")
    host.comes_to("t", "done")
    assert done(host) == ["v2", "v2", "deployed"], "the second attempt replayed the answer"


def test_nobody_in_time_counts_as_rejected_once_all_are_woken(host: Host) -> None:
    effect = DEPLOY.replace("--approve", "--approve-within 1s")
    assert starts(host, f"{effect} 2> ../why || echo refused >> ../done") == 3
    until = host.summary("t").state.parked_until
    assert until is not None
    wait_for(lambda: datetime.now(UTC) > until or None, what="the time is over")
    assert "was to be answered until" in refused(host, "approve", "t")
    assert host("resume", "--all").code == 0
    host.comes_to("t", "done")
    assert "nobody answered within 1s" in (host.folder / "why").read_text()
    assert done(host) == ["refused"]


def test_nobody_in_time_and_a_person_who_resumes_is_asked_again(host: Host) -> None:
    """Also where nothing had recorded yet that the time is over."""
    effect = DEPLOY.replace("--approve", "--approve-within 3s")
    assert starts(host, effect) == 3
    until = host.summary("t").state.parked_until
    assert until is not None
    wait_for(lambda: datetime.now(UTC) > until or None, what="the time is over")
    said = host("resume", "t", "--project", str(host.repository("t")))
    assert said.code == 3, said.err
    assert "Nobody answered a1 in time: it asks again" in said.err
    assert [each["id"] for each in listed(host)["waits_for"]] == ["a2"]
    person(host, "approve", "t")
    host.comes_to("t", "done")
    assert done(host) == ["deployed"]


@pytest.mark.parametrize(
    "how",
    [
        "{}",
        "env -u OUTLAST_RUN -u OUTLAST_ATTEMPT -u OUTLAST_SOCKET {}",
        "setsid env -i HOME=$HOME PATH=$PATH {}",
    ],
    ids=["as it is", "without its marks", "apart, without any environment"],
)
def test_what_a_run_started_answers_nobodys_questions(host: Host, how: str) -> None:
    """Neither its own nor those of another run."""
    assert starts(host, DEPLOY) == 3
    run = host.summary("t").run
    approve = how.format(f"{OUTLAST} approve {run} --store {shlex.quote(host.store.url)}")
    words = script(host, f"{approve} > ../tried 2>&1 || echo $? >> ../tried", task="other")
    assert host.start("other", *words, options=("--headless",)).wait(TIMEOUT_S) == 0, host.said("other")
    tried = (host.folder / "tried").read_text()
    assert "only a person outside of every run answers" in tried
    assert tried.endswith("2\n")
    assert listed(host)["standing"] == "waiting"


def test_what_a_run_of_another_store_started_answers_no_questions_here(host: Host, tmp_path: Path) -> None:
    """Its marks are gone, and so are its parents; this store knows nothing of the supervisor that is above it."""
    assert starts(host, DEPLOY) == 3
    run = host.summary("t").run
    approve = f"{OUTLAST} approve {run} --store {shlex.quote(host.store.url)}"
    tried = "until grep -q code ../tried; do sleep 0.05; done"
    apart = f"setsid -f env -i HOME=$HOME PATH=$PATH sh -c {shlex.quote(f'{approve} > ../tried 2>&1; echo code $? >> ../tried')}"
    words = script(host, "touch ../tried", apart, tried, task="other")
    other = host.start("other", *words, options=("--headless",), OUTLAST_STORE=str(tmp_path / "another"))
    assert other.wait(TIMEOUT_S) == 0, host.said("other")
    said = (host.folder / "tried").read_text()
    assert "only a person outside of every run answers" in said
    assert said.endswith("code 2\n")
    assert listed(host)["standing"] == "waiting"


def test_what_was_to_wait_at_the_first_start_waits_in_every_later_one(host: Host) -> None:
    """Typed again without the option, and with the file of the repository rewritten by an agent."""
    folder = host.repository("t")
    (folder / "outlast.toml").write_text('[approve]\nclasses = ["deploy"]\n')
    assert starts(host, DEPLOY, options=("--approve", "push,*prod*", "--approve-within", "2h")) == 3
    (folder / "outlast.toml").unlink()
    person(host, "approve", "t", "--no-start")
    assert starts(host, DEPLOY) == 0, host.said("t")
    launch = launch_of(host)
    assert (launch["approve_kinds"], launch["approve_targets"]) == (["push", "deploy"], ["*prod*"])
    assert launch["approve_within"] == "2h"


def test_what_is_asked_steers_no_terminal(host: Host) -> None:
    """Neither where the script is read, nor where a person looks."""
    assert starts(host, r"outlast ask $'which\e[31m API?\nIt is approved. \u202e'") == 3
    shown = person(host, "show", "t") + person(host, "ls") + refused(host, "answer", "t")
    for said in (host.said("t"), shown):
        assert r"which\x1b[31m API?\nIt is approved. \u202e" in said
        assert "\x1b" not in said
        assert "\u202e" not in said


def test_a_dry_run_shows_a_call_to_its_last_word(host: Host) -> None:
    """Nobody approves what they cannot see."""
    assert starts(host, f"outlast effect deploy --approve -- sh -c ': {'x' * 60_000}' || true") == 3
    assert "characters more are not shown" in person(host, "approve", "t", "--dry-run")
    person(host, "reject", "t")
    host.comes_to("t", "done")
    assert (
        starts(
            host, f"outlast effect deploy --approve -- sh -c ': {'x' * 9_000}; the end'", options=("--again",)
        )
        == 3
    )
    assert "the end" in person(host, "approve", "t", "--dry-run")


def test_a_long_question_is_shown_whole_and_the_hint_can_be_typed(host: Host) -> None:
    assert (
        starts(
            host,
            f"outlast ask 'which API {'or another ' * 40}at all?' --choice 'use v1' --choice v2 > ../done",
        )
        == 3
    )
    said = refused(host, "answer", "t")
    assert "at all?" in said
    run = host.summary("t").run
    assert f"answer {run} --id q1 'use v1'`" in said
    assert "q1 is the id of a question" in refused(host, "answer", "t", "q1")
    person(host, "answer", run, "--id", "q1", "use v1")
    host.comes_to("t", "done")
    assert done(host) == ["use", "v1"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (r"outlast ask $'\xff'", r"not valid UTF-8: \xff"),
        (r"outlast ask x --choice $'\xff'", r"not valid UTF-8: \xff"),
        (r"outlast effect $'\xff' -- true", r"not valid UTF-8: \xff"),
        (r"outlast effect e --approve -- echo $'\xff'", r"not valid UTF-8: \xff"),
        (r"outlast step $'\xff' -- true", r"not valid UTF-8: \xff"),
        (r"outlast stage $'\xff'", r"not valid UTF-8: \xff"),
        (r"outlast ask x --choice $'v\e1'", "choices must be a list of short texts"),
        (r"outlast ask x --choice $'v\n1'", "choices must be a list of short texts"),
    ],
)
def test_what_nobody_could_read_or_type_is_refused_in_one_line(host: Host, line: str, says: str) -> None:
    assert starts(host, f"{line} || echo refused > ../done") == 0, host.said("t")
    assert f"error: {says}" in host.said("t")
    assert done(host) == ["refused"]


def test_a_question_that_is_not_asked_ends_with_the_code_that_its_help_names(host: Host) -> None:
    """Which is none of an answered or rejected one."""
    code = "125 not asked"
    assert code in " ".join(host("ask", "--help").out.split())
    for line in ("outlast ask ''", "outlast ask x --within soon", "outlast ask x --choice a --choice a"):
        assert starts(host, f"{line} || echo $? >> ../done", options=("--again",)) == 0, host.said("t")
    assert done(host) == ["125"] * 3
    assert host("ask", "out of any run").code == 125


def test_a_cancelled_run_waits_for_nobody(host: Host) -> None:
    assert starts(host, DEPLOY) == 3
    person(host, "cancel", "t")
    assert listed(host)["waits_for"] == []
    shown = person(host, "show", "t")
    assert "a1" not in shown
    assert "until" not in shown
    assert "is cancelled" in refused(host, "approve", "t")


def test_no_line_behind_a_call_that_waits_is_run(host: Host) -> None:
    """Not even one for a call that fails, or of a script that shrugs off signals."""
    lines = ("trap : TERM", f"{DEPLOY} || echo went on >> ../done", "echo behind >> ../done")
    assert starts(host, *lines) == 3
    assert done(host) == []
    person(host, "approve", "t")
    host.comes_to("t", "done")
    assert done(host) == ["deployed", "behind"]


def launch_of(host: Host) -> dict[str, Any]:
    events = host.store.read(host.summary("t").run, after=0, tags=("attempt_started",)).events
    event = events[-1].event
    assert isinstance(event, ev.AttemptStarted)
    assert event.launch is not None
    return dict(json.loads(bytes(event.launch.v)))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--approve", "psh"), "no such class of calls: psh"),
        (("--approve-within", "soon"), "not an age: 'soon'"),
        (("--approve", " "), "--approve is empty"),
    ],
)
def test_a_class_that_no_call_has_is_refused_before_anything_starts(
    host: Host, words: tuple[str, ...], says: str
) -> None:
    assert starts(host, "touch ../began", options=words) == 2
    assert says in host.said("t")
    assert not (host.folder / "began").exists()
    assert not Path(host.root / "outlast.db").exists() or not host.runs("t")


def test_a_run_whose_time_is_over_says_so_when_it_is_answered_and_goes_on_with_more(host: Host) -> None:
    """As a push at two that somebody approves at eight, of a run until seven."""
    assert starts(host, DEPLOY, options=("--until", "+8h")) == 3, host.said("t")
    run, now = host.summary("t").run, datetime.now(UTC)
    opened = host.store.read(run, after=0).events[0].event
    assert isinstance(opened, ev.RunOpened)
    with requests.claimed(host.store, run) as journal:  # it waits until its time is over
        over = ev.ContractAmended(
            at=now, contract=opened.contract, budget=Allowance(until=now - timedelta(hours=1))
        )
        journal.store.append(journal.batch(Append((over,))))
    more = f"resume {run} --until +8h` lets it go on"
    assert more in person(host, "approve", "t", "--dry-run")
    said = person(host, "approve", "t")
    assert "a1 is approved; its time is over" in said
    assert more in said
    assert done(host) == []
    assert host("resume", run, "--until", "+8h").code == 0
    assert done(host) == ["deployed"]


def test_waiting_for_a_person_spends_no_time_of_a_budget(host: Host) -> None:
    assert starts(host, DEPLOY, options=("--budget", "time=30s")) == 3, host.said("t")
    spent_ms = host.summary("t").state.spent.time_ms
    rests = host.store.read(host.summary("t").run, after=0).events[-1].event.at
    wait_for(lambda: datetime.now(UTC) - rests > timedelta(seconds=2) or None, what="two seconds")
    person(host, "approve", "t", "--no-start")
    assert host.summary("t").state.spent.time_ms == spent_ms
    began = datetime.now(UTC)
    assert host("resume", "t", "--project", str(host.repository("t"))).code == 0
    lived = timedelta(milliseconds=host.summary("t").state.spent.time_ms - spent_ms)
    assert timedelta() < lived <= datetime.now(UTC) - began


@pytest.mark.root
def test_a_run_of_another_user_is_answered_and_not_started_as_root(host: Host) -> None:
    """Whoever runs an agent as another user, so that it can do less, must not start it as root by a word."""
    need_root()
    assert starts(host, DEPLOY) == 3
    run = host.summary("t").run
    folder = host.store.local.run_folder(run)
    owner = folder.stat().st_uid
    os.chown(folder, NOBODY, -1)
    assert "works as nobody and is not started by this" in person(host, "approve", "t", "--dry-run")
    said = person(host, "approve", "t")
    assert "a1 is approved; it works as nobody, so it was not started" in said
    assert "typed as nobody" in said
    assert host.summary("t").state.attempts == 1
    os.chown(folder, owner, -1)
    assert host("resume", run).code == 0
    assert done(host) == ["deployed"]


def test_approve_of_a_run_that_asks_a_question_names_the_command_that_answers_it(host: Host) -> None:
    assert starts(host, "outlast ask 'which API?'") == 3
    said = refused(host, "approve", "t")
    assert "does not wait for an approval; it waits for q1 which API?" in said
    assert f"answer {host.summary('t').run} --id q1" in said
