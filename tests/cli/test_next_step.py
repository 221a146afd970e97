"""Every way to stand, with real parts: all surfaces name the same next step, and pasted it does what it says.

The command waits for a file, so a run can be brought to where it is wanted; what a machine or a provider does is put on record.
"""

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from outlast.core import events as ev
from outlast.core.verdict import NEEDS_SOMEBODY, Word
from outlast.operations import requests
from outlast.runs.engine.steps import Append
from tests.cli.test_hints import hinted
from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted
from tests.support.commands import Answer
from tests.support.environment import TIMEOUT_S, need_tool
from tests.support.processes import wait_for

HELD = "touch ../began; until [ -e ../go ]; do sleep 0.02; done"
OWN = "import outlast, sys\nwith outlast.run('t', done={done}) as run:\n    for beat in run.beats():\n        {body}"
PERSON = 3


def paste(host: Host, command: str) -> Answer:
    """What a person does with a command, in the folder of the task."""
    done = subprocess.run(
        [need_tool("bash"), "-c", command], cwd=host.repository("t"), env=host.environ(), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    return Answer(done.returncode, done.stdout, done.stderr)


# --- the ways to stand --------------------------------------------------------------------------------------------------


def began(host: Host, *options: str, words: tuple[str, ...] = ("sh", "-c", HELD), **more: str) -> Any:
    process = host.start("t", *words, options=options, **more)
    wait_for(lambda: (host.folder / "began").exists() or None, what=f"its command: {host.said('t')}")
    return process


def dead(host: Host) -> None:
    began(host)
    host.kill_everything()


def on_record(host: Host, *events: ev.AnyEvent) -> None:
    """A run that was killed, and what is found out about its end."""
    dead(host)
    with requests.claimed(host.store, host.summary("t").run) as journal:
        journal.store.append(journal.batch(Append(events)))


def ended(cause: ev.Cause, *, wanted: bool = False) -> ev.AnyEvent:
    return ev.AttemptEnded(
        at=datetime.now(UTC), epoch=1, status="interrupted", cause=cause, evidence="said so", wanted=wanted
    )


def parked(cause: ev.Cause, hours: int | None) -> ev.AnyEvent:
    now = datetime.now(UTC)
    until = None if hours is None else now + timedelta(hours=hours)
    return ev.Parked(at=now, cause=cause, until=until, evidence="a wall")


def restarting(host: Host) -> None:
    host.start("t", "sh", "-c", "touch ../began; exit 1", OUTLAST_RESTART_WAIT_S="900")
    wait_for(lambda: (host.events_if("t") and host.has_ended("t")) or None, what=f"its end: {host.said('t')}")


def waiting(host: Host) -> None:
    words = ("sh", "-c", "outlast effect deploy --approve -- true")
    assert host.start("t", *words, options=("--headless",)).wait(TIMEOUT_S) == PERSON, host.said("t")


def died(host: Host) -> None:
    restarting(host)
    host.kill_everything()


def signalled(host: Host) -> None:
    process = began(host)
    process.send_signal(signal.SIGTERM)
    process.wait(TIMEOUT_S)


def own(host: Host, body: str, done: str = "[]") -> None:
    program = host.folder / "own.py"
    program.write_text(OWN.format(body=body, done=done))
    started = [sys.executable, str(program)]
    subprocess.run(
        started,
        cwd=host.repository("t"),
        env=host.environ(),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def spent(host: Host) -> None:
    steps = "outlast step a -- true && outlast step b -- true && outlast step c -- true"
    assert host.start("t", "sh", "-c", steps, options=("--budget", "beats=1")).wait(TIMEOUT_S) == 4


def ready(host: Host) -> None:
    spent(host)
    assert host("budget", "t", "--add", "beats=9", cwd=host.repository("t")).code == 0


def stopped(host: Host) -> None:
    began(host)
    assert host("kill", "t", cwd=host.repository("t")).code == 0


def asked(*words: str) -> Callable[[Host], None]:
    def ask(host: Host) -> None:
        dead(host)
        assert host(*words, "t", cwd=host.repository("t")).code == 0

    return ask


def forked(host: Host) -> None:
    host.let_go()
    assert began(host).wait(TIMEOUT_S) == 0, host.said("t")
    assert host("fork", "t", "--at", "0", "--task", "u", "--yes", cwd=host.repository("t")).code == 0


def in_doubt(host: Host) -> None:
    agent = Scripted(host)
    agent.killed_in("comment")
    assert agent.run() == PERSON, host.said("t")


def failed(host: Host) -> None:
    host.let_go()
    assert (
        host.start("t", "sh", "-c", HELD, options=("--done", "test -e ../mended", "--rounds", "1")).wait(
            TIMEOUT_S
        )
        == 1
    )


def quarantined(host: Host) -> None:
    words = ("sh", "-c", "test -e ../go")
    assert host.start("t", *words, options=("--restarts", "1")).wait(TIMEOUT_S) == PERSON, host.said("t")


def done(host: Host) -> None:
    host.let_go()
    assert began(host).wait(TIMEOUT_S) == 0, host.said("t")


@dataclass(frozen=True)
class Way:
    """How a run comes to stand so; what its next step begins with, and how it stands when that was done."""

    make: Callable[[Host], object]
    next: str
    then: Word | None = "done"


RESUME, PROGRAM = "outlast resume RUN", "start its program"
WAYS: dict[Word, Way] = {
    "running": Way(began, "outlast output RUN -f"),
    "restarting": Way(restarting, "outlast output RUN -f", "restarting"),
    "not_started": Way(forked, RESUME),
    "ready": Way(ready, RESUME),
    "killed": Way(dead, RESUME),
    "rebooted": Way(lambda host: on_record(host, ended("host")), RESUME),
    "died": Way(died, RESUME, "quarantined"),
    "signalled": Way(signalled, RESUME),
    "stopped": Way(stopped, RESUME),
    "left": Way(lambda host: own(host, "beat.done() if beat.number < 2 else sys.exit()"), PROGRAM, None),
    "checks_failed": Way(lambda host: own(host, "beat.finish(); beat.done()", "['test -e ../go']"), PROGRAM),
    "out_of_budget": Way(spent, f"{RESUME} --budget beats=+1", "out_of_budget"),
    "stalled": Way(lambda host: on_record(host, ended("stall")), RESUME),
    "disk_full": Way(lambda host: on_record(host, ended("disk")), RESUME),
    "paused": Way(asked("pause"), RESUME),
    "parked": Way(lambda host: on_record(host, ended("quota"), parked("quota", 1)), RESUME),
    "due": Way(lambda host: on_record(host, ended("quota"), parked("quota", -1)), RESUME),
    "blocked": Way(lambda host: on_record(host, ended("auth"), parked("auth", None)), RESUME),
    "in_doubt": Way(in_doubt, "outlast settle RUN 1.1", "ready"),
    "unsettled": Way(lambda host: Scripted(host).killed_in("comment"), RESUME, "in_doubt"),
    "failed": Way(failed, RESUME),
    "quarantined": Way(quarantined, RESUME),
    "done": Way(done, ""),
    "cancelled": Way(asked("cancel"), "", "cancelled"),
    "waiting": Way(waiting, "outlast approve RUN a1"),
    "handed_off": Way(asked("handoff"), "outlast handoff RUN --take-back", "ready"),
}


def test_there_is_a_way_to_every_word() -> None:
    assert set(WAYS) == set(get_args(Word))


@pytest.mark.parametrize("word", WAYS)
def test_every_surface_names_one_next_step_and_pasted_it_does_what_it_says(host: Host, word: Word) -> None:
    way = WAYS[word]
    way.make(host)
    task = "u" if word == "not_started" else "t"
    run, here = host.summary(task).run, host.repository("t")
    step = way.next.replace("RUN", run)

    [listed] = [row for row in host("ls", "--json", cwd=here).json if row["run"] == run]
    shown = host("show", run, "--json", cwd=here).json
    report = host("report", "--json")
    top = host("top", "--once", "--json")
    [told] = [row for row in report.json["runs"] if row["run"] == run]
    [row] = [row for row in top.json["rows"] if row["run"] == run]
    assert [each["standing"] for each in (listed, shown, told, row)] == [word] * 4, host.said("t")
    assert len({each["needs"] for each in (listed, shown, told, row)}) == 1
    needs = shown["needs"]

    # Who counts what needs a person, counts it alike.
    person = needs in NEEDS_SOMEBODY
    doctor = host("doctor", cwd=here)
    assert [each["what"] == "needs you" for each in (told, row)] == [person, person]
    assert [each.code == PERSON for each in (report, top, doctor)] == [person] * 3, doctor.out

    # What any of them prints is the one step, or none.
    for printed in (told["command"], row["command"]):
        assert printed in (None, step) or (step in ("", PROGRAM) and printed == f"outlast resume {run}"), (
            printed
        )
    for text in (host("show", run, cwd=here).err, doctor.out):
        for command in hinted(text):
            if run in command and not command.startswith(
                ("outlast output", "outlast kill", "outlast effects")
            ):
                assert command in _choices(step), text

    if way.then is None or not step:
        return
    pasted(host, step)
    after = host("show", run, "--json", cwd=here).json["standing"]
    assert after == way.then, host.said("t")


def _choices(step: str) -> tuple[str, ...]:
    """The step as it is pasted: a person chooses what they found, or want."""
    if step.startswith("outlast approve "):
        return step, step.replace("approve", "reject")
    return (
        (f"{step} --happened", f"{step} --did-not", step) if step.startswith("outlast settle ") else (step,)
    )


def pasted(host: Host, step: str) -> None:
    """The obstacle is gone, and a person types the step."""
    (host.folder / "mended").touch()
    if not step.startswith("outlast output") or host.status("t") == "running":
        host.let_go()
    if step == PROGRAM:
        own(host, "beat.finish(); beat.done()", "['test -e ../go']")
        return
    command = _choices(step)[0]
    if command.endswith(" -f") and host.status("t") != "running":
        command = command.removesuffix(" -f")
    answer = paste(host, command)
    assert answer.code in ((0, 4) if "--budget" in command else (0, PERSON)), (command, answer.err)
    if command.endswith(" -f") or command.startswith("outlast approve "):
        host.comes_to("t", "done")
