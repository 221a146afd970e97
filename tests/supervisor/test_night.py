"""The night: everything on a host dies at one instant, and one command has all of it go on. And who is left asleep."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from outlast.core import events as ev, verdict
from outlast.core.values import Contract
from outlast.operations import requests
from outlast.processes import reap
from outlast.runs.engine.steps import Append
from outlast.store import open_store
from outlast.store.local import Local
from outlast.supervisor.control import wake
from outlast.supervisor.guardian import lock
from outlast.supervisor.person import Person
from tests.supervisor.host import STEPS, Host
from tests.support import commands
from tests.support.environment import TIMEOUT_S, need_root
from tests.support.processes import alive, stop, wait_for

FIRST_BEAT_LIMIT_S = 30.0
# Where each of the four is when all die: in a step before and after the payment, at its very end, and inside the payment.
HOLDS = {"one": "2", "two": "pay", "three": "5", "four": "6"}


def test_four_commands_killed_at_one_instant_all_go_on_and_nothing_happens_twice(host: Host) -> None:
    for task, hold in HOLDS.items():
        host.start(task, *host.script(task, hold=hold))
    for task, hold in HOLDS.items():
        host.at_hold(task, hold)
    beats = {task: host.summary(task).state.beats for task in HOLDS}
    dead = host.kill_everything()
    assert len(dead) >= 4 * 4, "guardian, supervisor, script and step of each"
    host.let_go()
    at = datetime.now(UTC)
    answer = host("resume", "--all")
    assert answer.code == 0, answer.out + answer.err
    for task in HOLDS:
        host.comes_to(task, "done")
    assert host.witness.counts().duplicates == 0
    assert {name for _, name, _ in host.witness.counts().by_identity} == {f"pay-{task}" for task in HOLDS}
    for task in HOLDS:
        assert set(host.notes(task)) == {str(number) for number in range(1, STEPS + 1)}
        assert sum(host.notes(task).values()) - STEPS <= 1, "at most the beat in flight is done again"
        first = next(event for event in host.events(task) if isinstance(event, ev.BeatDone) and event.at > at)
        assert first.beat == beats[task] + 1, "no beat that was done is lost"
        assert (first.at - at).total_seconds() < FIRST_BEAT_LIMIT_S


def test_what_is_woken_counts_as_the_same_attempts_before_and_after(host: Host) -> None:
    """Waking is nobody's wish: the attempts without progress go on counting, or a run would crash every night for ever."""
    host.start("t", "bash", "-c", "exit 1", OUTLAST_RESTART_WAIT_S="600")
    wait_for(lambda: host.has_ended("t") or None, what="the first attempt's end")
    host.kill_everything()
    assert host("resume", "--all", OUTLAST_RESTART_WAIT_S="0").code == 0
    host.comes_to("t", "failed")
    assert host.summary("t").state.cause == "quarantine"
    assert host.summary("t").state.past.attempts == 3


def test_a_command_that_dies_inside_an_effect_that_can_be_looked_up_goes_on_without_a_person(
    host: Host,
) -> None:
    process = host.start("t", *host.script("t", hold="pay"))
    host.at_hold("t", "pay")
    for proc in reap.find(host.summary("t").run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(proc.pid, signal.SIGKILL)
    host.let_go()
    assert process.wait(TIMEOUT_S) == 0, host.said("t")
    assert host.witness.counts().by_identity == {("probed", "pay-t", "pay-t"): 1}


def test_one_hung_up_inside_an_effect_that_can_be_looked_up_is_woken(host: Host) -> None:
    process = host.start("t", *host.script("t", hold="pay"))
    host.at_hold("t", "pay")
    process.send_signal(signal.SIGHUP)
    ends(process, 128 + signal.SIGHUP)
    host.let_go()
    assert host("resume", "--all").code == 0
    host.comes_to("t", "done")
    assert host.witness.counts().by_identity == {("probed", "pay-t", "pay-t"): 1}


# -- who is woken, and who is not ----------------------------------------------------------------------------------

SLEEP = ("bash", "-c", 'touch "../$OUTLAST_TASK.up"; exec sleep 1000')
PAY = ("bash", "-c", "outlast effect pay -- bash -c 'touch \"../$OUTLAST_TASK.up\"; exec sleep 1000'")


def is_up(host: Host, task: str) -> None:
    wait_for(lambda: (host.folder / f"{task}.up").exists() or None, what=f"{task}: {host.said(task)}")


def ends(process: subprocess.Popen[bytes], code: int) -> None:
    assert process.wait(TIMEOUT_S) == code


def test_only_those_dead_without_anybodys_wish_are_woken(host: Host) -> None:
    """Each row of the table that a process can be brought to here; the others are tables in tests/core/test_verdict.py."""
    running = {
        task: host.start(task, *SLEEP)
        for task in ("hung up", "ctrl-c", "killed by hand", "paused", "cancelled")
    }
    ends_itself = {
        "quarantined": host.start("quarantined", "false"),
        "failed": host.start("failed", "true", options=("--done", "false", "--rounds", "0")),
        "budget": host.start("budget", *_two_steps(), options=("--budget", "beats=1")),
    }
    for task in running:
        is_up(host, task)
    running["hung up"].send_signal(signal.SIGHUP)
    running["ctrl-c"].send_signal(signal.SIGINT)
    ends(running["hung up"], 128 + signal.SIGHUP)
    ends(running["ctrl-c"], 128 + signal.SIGINT)
    for command, task in (("kill", "killed by hand"), ("pause", "paused"), ("cancel", "cancelled")):
        assert host(command, task).code == 0
        running[task].wait(TIMEOUT_S)
    for task, code in (("quarantined", 3), ("failed", 1), ("budget", 4)):
        ends(ends_itself[task], code)
    host.start("sigkill", *SLEEP)
    host.start("in doubt", *PAY)
    waits = host.start("waits", "false", OUTLAST_RESTART_WAIT_S="600")
    for task in ("sigkill", "in doubt"):
        is_up(host, task)
    wait_for(lambda: host.has_ended("waits") or None, what="a supervisor that waits")
    host.kill_everything(spare="waits")
    found = {
        each["task"]: (each["wake"], each["why"])
        for each in host("resume", "--all", "--dry-run", "--json").json
    }
    assert found.pop("waits")[1].startswith("its supervisor (pid ")
    assert found == {
        "hung up": (True, "died: signal"),
        "sigkill": (True, "its attempt died without a word"),
        "ctrl-c": (False, "stopped: signal"),
        "killed by hand": (False, "stopped: operator"),
        "paused": (False, "paused"),
        "quarantined": (False, "quarantined"),
        "failed": (False, "failed"),
        "budget": (False, "stopped: budget"),
        "in doubt": (False, "in doubt: settle it first"),
    }
    assert waits.poll() is None
    epochs = {task: host.summary(task).epoch for task in found}
    answer = host("resume", "--all", "--json")
    assert answer.code == 0, answer.err
    assert {each["task"] for each in answer.json if each["started"]} == {"hung up", "sigkill"}
    woken = {task for task, epoch in epochs.items() if host.summary(task).epoch > epoch}
    assert woken == {"hung up", "sigkill"}
    assert host.status("hung up") == host.status("sigkill") == "running"
    assert host("resume", "--all").code == 0, "again: they run, and nothing is to be done"


def _two_steps() -> tuple[str, ...]:
    return ("bash", "-c", "outlast step one -- true && outlast step two -- true")


def test_what_is_woken_stands_on_its_own_also_when_an_agent_woke_it(host: Host) -> None:
    """It leads a session, holds no terminal or pipe of ours, and carries no mark of the attempt that called for it."""
    host.start("t", *SLEEP)
    is_up(host, "t")
    host.kill_everything()
    marks = {
        "OUTLAST_RUN": "other",
        "OUTLAST_ATTEMPT": "other.1",
        "OUTLAST_SOCKET": "/none",
        "OUTLAST_TASK": "other",
    }
    assert host("resume", "--all", **marks).code == 0
    run = host.summary("t").run  # claimed; its guardian is told of that, and takes its lock a moment later
    watcher = wait_for(lambda: lock.of(Local(host.root), run), what="its guardian")
    assert os.getsid(watcher.guardian) == watcher.guardian
    assert b"other" not in Path(f"/proc/{watcher.guardian}/environ").read_bytes()
    assert os.readlink(f"/proc/{watcher.guardian}/fd/0") == os.devnull
    assert os.readlink(f"/proc/{watcher.guardian}/fd/1").endswith("/supervisor.log")


def test_what_somebody_paused_meanwhile_is_not_started_by_a_waking(host: Host) -> None:
    host.start("t", *SLEEP)
    is_up(host, "t")
    host.kill_everything()
    assert host("pause", "t", cwd=host.folder / "t").code == 0
    answer = host("resume", "t", "--woken", cwd=host.folder / "t")
    assert (answer.code, host.status("t")) == (2, "paused")
    assert "is paused" in answer.err


def test_a_shutdown_is_nobodys_wish(host: Host) -> None:
    """A signal from outside of the pid namespace is what init's SIGTERM is inside of it: of pid 0."""
    need_root()
    host.start("t", *SLEEP, within=("unshare", "--pid", "--fork", "--mount-proc"))
    is_up(host, "t")
    guardian = only_child(host.started[0].pid)
    os.kill(guardian, signal.SIGTERM)
    host.started[0].wait(TIMEOUT_S)
    state = host.summary("t").state
    assert (state.cause, state.wanted) == ("host", False)
    assert host("resume", "--all", "--dry-run", "--json").json[0]["wake"]


def only_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def test_parked_past_its_reset_is_woken_and_before_it_is_not(host: Host) -> None:
    for task in ("past", "later", "for ever"):
        host.start(task, *SLEEP)
    for task in ("past", "later", "for ever"):
        is_up(host, task)
    host.kill_everything()
    now = datetime.now(UTC)
    for task, until in (("past", now), ("later", now + timedelta(hours=1)), ("for ever", None)):
        with requests.claimed(host.store, host.summary(task).run) as journal:
            requests.bury(journal)
            host.store.append(journal.batch(Append((ev.Parked(at=now, until=until),))))
    answer = host("resume", "--all", "--json")
    assert {each["task"] for each in answer.json if each["started"]} == {"past"}
    assert host.status("past") == "running"
    assert (host.status("later"), host.status("for ever")) == ("parked", "parked")


def test_asked_to_pause_just_before_it_died_it_is_left_asleep(host: Host) -> None:
    host.start("t", *SLEEP)
    is_up(host, "t")
    supervisor = lock.of(Local(host.root), host.summary("t").run)
    assert supervisor is not None
    stop(supervisor.supervisor)
    assert host("pause", "t", cwd=host.folder / "t").code == 0
    host.kill_everything()
    answer = host("resume", "--all", "--json")
    assert [(each["started"], each["why"]) for each in answer.json] == [(None, "asked to pause by tester")]


def test_a_program_of_ones_own_is_listed_and_left_to_be_started(host: Host) -> None:
    program = "import outlast, os, signal\nwith outlast.run('own') as run:\n    os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run(
        [sys.executable, "-c", program], cwd=host.repository("own"), env=host.environ(), check=False
    )
    answer = host("resume", "--all", "--json")
    assert answer.code == 0
    assert [(each["wake"], each["why"]) for each in answer.json] == [(False, verdict.START_ITS_PROGRAM)]
    one = host("resume", "own", cwd=host.folder / "own")
    assert (one.code, "start its program, and it goes on at beat 1" in one.err) == (0, True), one.err


def test_one_that_was_killed_before_its_first_attempt_is_listed_with_what_to_do(host: Host) -> None:
    """Killed at the point `store.created`: nobody knows its command."""
    project = str(host.repository("t") / ".git")
    opened = ev.RunOpened(
        at=datetime.now(UTC), run="runkilledsoon", task="t", project=project, contract=Contract()
    )
    host.store.create(opened)
    answer = host("resume", "--all")
    assert answer.code == 0
    [line] = answer.out.splitlines()
    assert line.startswith("not woken")
    assert line.endswith("type its command again, or start its program")
    one = host("resume", "t", cwd=host.folder / "t")
    assert (one.code, "start its program, and it goes on at beat 1" in one.err) == (0, True), one.err
    ends(host.start("t", "true"), 0)
    assert host.status("t") == "done"
    assert host.summary("t").run == "runkilledsoon"


def test_one_that_cannot_start_does_not_keep_the_others_from_it(host: Host) -> None:
    program = host.folder / "agent"
    program.write_text("#!/bin/sh\ntouch ../gone.up\nexec sleep 1000\n")
    program.chmod(0o755)
    host.start("gone", str(program))
    host.start("here", *SLEEP)
    for task in ("gone", "here"):
        is_up(host, task)
    host.kill_everything()
    program.unlink()
    answer = host("resume", "--all", "--jobs", "1", "--json")
    assert answer.code == 1
    found = {each["task"]: each for each in answer.json}
    assert (found["gone"]["started"], found["here"]["started"]) == (False, True)
    assert str(program) in found["gone"]["why"]
    assert host.status("here") == "running"
    state = host.summary("gone").state
    assert (state.status, state.cause) == ("parked", "program_missing"), "parked, not quarantined"


def test_with_one_job_the_next_is_started_when_the_one_before_is_at_work(host: Host) -> None:
    tasks = ["one", "two", "three"]
    for task in tasks:
        host.start(task, *SLEEP)
        is_up(host, task)
    host.kill_everything()
    for task in tasks:
        (host.folder / f"{task}.up").unlink()
    assert host("resume", "--all", "--jobs", "1").code == 0
    for before, after in itertools.pairwise(tasks):
        up_at = (host.folder / f"{before}.up").stat().st_mtime
        started = [event for event in host.events(after) if isinstance(event, ev.AttemptStarted)][-1]
        assert started.at.timestamp() > up_at - 0.1, f"{after} was not started beside {before}"


# -- one by name -----------------------------------------------------------------------------------------------------


def test_resume_by_name_goes_on_in_the_foreground_and_takes_a_failed_one_up_again(host: Host) -> None:
    ends(host.start("t", "bash", "-c", "test -e ../mended"), 3)
    assert host.status("t") == "failed"
    (host.folder / "mended").touch()
    answer = host("resume", "t", cwd=host.folder / "t")
    assert (answer.code, host.status("t")) == (0, "done"), answer.err


def test_resume_with_detach_goes_on_behind_and_says_the_next_two_commands(host: Host) -> None:
    ends(host.start("t", "bash", "-c", "test -e ../mended && exec sleep 1000"), 3)
    (host.folder / "mended").touch()
    answer = host("resume", "t", "--detach", cwd=host.folder / "t")
    run = host.summary("t").run
    assert (answer.code, answer.out.splitlines()) == (0, [f"outlast output {run} -f", f"outlast kill {run}"])
    host.comes_to("t", "running")


def test_resume_is_refused_while_a_supervisor_waits_to_start_it_again(host: Host) -> None:
    host.start("t", "false", OUTLAST_RESTART_WAIT_S="600", options=("--share",))
    wait_for(lambda: host.has_ended("t") or None, what="a supervisor that waits")
    answer = host("resume", "t", cwd=host.folder / "t")
    assert answer.code == 2
    assert "already supervises run" in answer.err
    assert host.started[0].poll() is None


def test_resume_while_the_guardian_of_the_dead_attempt_works_waits_for_it(host: Host) -> None:
    """The agent does not go by SIGTERM, so its guardian needs all its grace; the next attempt begins after that."""
    agent = (
        "trap '' TERM; echo $$ > ../pid; touch ../$OUTLAST_TASK.up; while [ ! -e ../go ]; do sleep 0.02; done"
    )
    host.start("t", "bash", "-c", agent)
    is_up(host, "t")
    old = int((host.folder / "pid").read_text())
    watcher = lock.of(Local(host.root), host.summary("t").run)
    assert watcher is not None
    os.kill(watcher.supervisor, signal.SIGKILL)
    wait_for(lambda: not alive(watcher.supervisor) or None, what="the supervisor's end")
    (host.folder / "t.up").unlink()
    with commands.start(
        [sys.executable, "-P", "-m", "outlast", "resume", "t"], cwd=host.folder / "t", env=host.environ(),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as again:  # fmt: skip
        is_up(host, "t")
        assert not alive(old)
        assert not alive(watcher.guardian)
        host.let_go()
        ends(again, 0)


def test_a_run_that_another_resume_starts_meanwhile_is_being_run_and_no_failure(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.start("t", *host.script("t", hold="2"))
    host.at_hold("t", "2")
    host.kill_everything()
    for name, value in host.environ().items():
        monkeypatch.setenv(name, value)
    with contextlib.closing(open_store(str(host.root))) as store:
        asleep = wake.sleepers(store)
        assert [each.wake for each in asleep] == [True], asleep
        assert host("resume", "--all").code == 0, "the other one is faster"
        host.at_hold("t", "2")
        [found] = wake.wake(store, asleep, 1, Person(lambda _: None))
    assert (found.started, found.why) == (True, "another process goes on with it")
    host.let_go()
    host.comes_to("t", "done")
