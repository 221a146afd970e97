"""`outlast kill`: saved, stopped, wanted; of one that works, waits, hangs, is dead, or is somebody's own program."""

import os
import signal
import subprocess
import sys

from outlast.core import events as ev
from outlast.processes import proc
from outlast.store.local import Local
from outlast.supervisor.control import kill as control_kill
from outlast.supervisor.guardian import lock
from outlast.supervisor.guardian.lock import Watcher
from outlast.supervisor.person import Person
from outlast.supervisor.timing import Timing
from tests.supervisor.host import Host
from tests.support import commands
from tests.support.environment import TIMEOUT_S
from tests.support.processes import alive, stop, wait_for
from tests.support.vaults import shown

# Nobody is given time: -15 s is what the processes' own killing and the margin would add.
AT_ONCE = Timing(kill_request_s=0.0, frozen_s=-15.0, guardian_grace_s=0.0)
AGENT = "echo dirty > work.txt; setsid sleep 1000 & echo $$ $! > ../pids; touch ../up; wait"


def is_up(host: Host) -> tuple[Watcher, list[int]]:
    """Guardian and supervisor, and the agent with what left its session."""
    wait_for(lambda: (host.folder / "up").exists() or None, what=host.said("t"))
    watcher = lock.of(Local(host.root), host.summary("t").run)
    assert watcher is not None
    return watcher, [int(word) for word in (host.folder / "pids").read_text().split()]


def kill(host: Host, *more: str) -> dict[str, object]:
    answer = host("kill", "t", "--json", *more, cwd=host.folder / "t")
    assert answer.code == 0, answer.err
    found: dict[str, object] = answer.json
    return found


def last_end(host: Host) -> ev.AttemptEnded:
    return [event for event in host.events("t") if isinstance(event, ev.AttemptEnded)][-1]


def would_wake(host: Host) -> bool:
    return any(each["wake"] for each in host("resume", "--all", "--dry-run", "--json").json)


def test_a_kill_saves_stops_everything_and_is_on_record_as_wanted(host: Host) -> None:
    process = host.start("t", "bash", "-c", AGENT)
    watcher, pids = is_up(host)
    killed = kill(host)
    assert killed["how"] == "asked"
    assert not any(alive(pid) for pid in (*pids, watcher.supervisor, watcher.guardian))
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    end = last_end(host)
    assert (end.status, end.cause, end.wanted) == ("interrupted", "operator", True)
    saved = saved_work(host, killed["last_save"])
    assert saved == b"dirty\n"
    assert not would_wake(host)


def test_a_kill_says_what_was_saved_and_how_to_go_on_and_the_second_does_nothing(host: Host) -> None:
    host.start("t", "bash", "-c", AGENT)
    is_up(host)
    answer = host("kill", "t", cwd=host.folder / "t")
    save = host.summary("t").state.last_save
    assert answer.out.splitlines()[1] == f"saved as {save[:12]}; `outlast saves t` lists it"
    assert answer.err.splitlines()[-1] == "`outlast resume t` lets it go on"
    seq = host.summary("t").state.seq
    again = host("kill", "t", cwd=host.folder / "t")
    assert again.code == 0
    assert "is not running: it is stopped" in again.out
    assert host.summary("t").state.seq == seq


def test_two_kills_at_once_are_one(host: Host) -> None:
    host.start("t", "bash", "-c", AGENT)
    is_up(host)
    words = [sys.executable, "-P", "-m", "outlast", "kill", "t", "--json"]
    both = [
        commands.start(words, cwd=host.folder / "t", env=host.environ(), stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    assert [process.wait(TIMEOUT_S) for process in both] == [0, 0]
    ends = [event for event in host.events("t") if isinstance(event, ev.AttemptEnded)]
    assert len(ends) == 1
    asked = [event for event in host.events("t") if isinstance(event, ev.Requested)]
    assert {event.what for event in asked} == {"kill"}


def test_one_that_waits_to_start_again_is_stopped_too(host: Host) -> None:
    """Between two attempts nobody holds the run, but its supervisor would take it up again."""
    process = host.start("t", "false", OUTLAST_RESTART_WAIT_S="600")
    wait_for(lambda: host.has_ended("t") or None, what="the first attempt's end")
    watcher = lock.of(Local(host.root), host.summary("t").run)
    assert watcher is not None
    assert kill(host)["how"] == "signalled"
    assert not alive(watcher.supervisor)
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    assert not would_wake(host)


def test_one_that_hangs_is_killed_with_all_of_it(host: Host) -> None:
    process = host.start("t", "bash", "-c", AGENT)
    watcher, pids = is_up(host)
    stop(watcher.supervisor)
    killed = control_kill.kill(host.store, host.summary("t").run, Person(print), timing=AT_ONCE)
    assert killed.how == "killed"
    assert not any(alive(pid) for pid in (*pids, watcher.supervisor))
    process.wait(TIMEOUT_S)
    assert (host.summary("t").state.cause, host.status("t")) == ("operator", "interrupted")
    assert saved_work(host, killed.last_save) == b"dirty\n"
    assert not would_wake(host)


def saved_work(host: Host, save: object) -> bytes:
    return shown(host.folder / "t", f"{save}:work.txt")


def test_one_whose_supervisor_was_stopped_is_saved_all_the_same(host: Host) -> None:
    process = host.start("t", "bash", "-c", AGENT)
    watcher, pids = is_up(host)
    before = host.summary("t").state.last_save
    stop(watcher.supervisor)
    refused = host("resume", "t", cwd=host.repository("t"))
    assert refused.code == 2
    assert f"where it hangs or is stopped, `outlast kill {host.summary('t').run}`" in refused.err
    killed = kill(host)
    assert killed["last_save"] not in (None, before)
    assert saved_work(host, killed["last_save"]) == b"dirty\n"
    assert not any(alive(pid) for pid in (*pids, watcher.supervisor))
    process.wait(TIMEOUT_S)


def test_a_guardian_that_saves_is_waited_for_and_its_save_is_named(host: Host) -> None:
    """The supervisor cannot be let go on: it is dead, and its guardian at work."""
    host.timing = "supervisor.guardian_grace_s=1"
    host.start("t", "bash", "-c", f"trap '' TERM; {AGENT}; while :; do sleep 0.05; done")
    watcher, _ = is_up(host)
    os.kill(watcher.supervisor, signal.SIGKILL)
    wait_for(lambda: not alive(watcher.supervisor) or None, what="its end")
    killed = kill(host)
    assert saved_work(host, killed["last_save"]) == b"dirty\n"
    assert not would_wake(host)


def test_a_job_that_was_stopped_goes_on_to_be_killed(host: Host) -> None:
    process = host.start("t", "bash", "-c", AGENT)
    watcher, pids = is_up(host)
    os.kill(watcher.guardian, signal.SIGTSTP)
    wait_for(lambda: is_stopped(watcher.guardian) or None, what="a stopped job")
    killed = control_kill.kill(
        host.store, host.summary("t").run, Person(print), timing=Timing(frozen_s=TIMEOUT_S)
    )
    assert killed.how == "asked", "its guardian, which was stopped, has ended too"
    assert not any(alive(pid) for pid in (*pids, watcher.supervisor))
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM


def is_stopped(pid: int) -> bool:
    there = proc.look(pid)
    return there is not None and there.state == "T"


def test_where_nothing_new_is_saved_that_is_said(host: Host) -> None:
    host.start("t", "bash", "-c", "echo $$ > ../pids; touch ../up; exec sleep 1000")
    is_up(host)
    answer = host("kill", "t", cwd=host.folder / "t")
    assert "saved as" not in answer.out
    assert "nothing new was saved" in answer.err


def test_one_whose_guardian_is_dead_is_stopped_all_the_same(host: Host) -> None:
    process = host.start("t", "bash", "-c", AGENT)
    watcher, pids = is_up(host)
    os.kill(watcher.guardian, signal.SIGKILL)
    process.wait(TIMEOUT_S)
    assert kill(host)["how"] == "asked"
    wait_for(
        lambda: not any(alive(pid) for pid in (*pids, watcher.supervisor)) or None, what="all to be gone"
    )


def test_one_that_died_by_itself_is_not_woken_after_a_kill(host: Host) -> None:
    host.start("t", "bash", "-c", AGENT)
    is_up(host)
    host.kill_everything()
    assert would_wake(host)
    assert kill(host)["how"] == "not_running"
    assert not would_wake(host)


def test_a_killed_run_goes_on_when_it_is_resumed(host: Host) -> None:
    host.start("t", *host.script("t", hold="2"))
    host.at_hold("t", "2")
    kill(host)
    host.let_go()
    answer = host("resume", "t", cwd=host.folder / "t")
    assert (answer.code, host.status("t")) == (0, "done"), answer.err
    assert host.notes("t") == {str(number): 2 if number == 2 else 1 for number in range(1, 7)}
    assert host.witness.counts().duplicates == 0


OWN = """
import outlast, sys, time
from pathlib import Path
def act(n):
    Path("../up").touch()
    while not Path("../go").exists():
        time.sleep(0.01)
with outlast.run("t") as run:
    for beat in run.beats():
        beat.act("wait", act, beat.number)
        beat.done()
"""


def test_a_program_of_ones_own_is_asked_and_never_shot(host: Host) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWN], cwd=host.repository("t"), env=host.environ(), stderr=subprocess.PIPE
    ) as program:
        wait_for(lambda: (host.folder / "up").exists() or None, what="the act")
        killed = control_kill.kill(
            host.store, host.summary("t").run, Person(print), timing=Timing(kill_request_s=0.2)
        )
        assert (killed.how, program.poll()) == ("waits", None)
        host.let_go()
        _, said = program.communicate(timeout=TIMEOUT_S)
    assert b"RunKilled" in said
    assert last_end(host).cause == "operator"
