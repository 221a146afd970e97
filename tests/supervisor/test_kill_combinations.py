"""Guardian, supervisor and agent, killed in every combination: nothing runs on, nothing is lost, the next start goes on."""

import itertools
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.supervisor.supervised_command import Night, supervisor_of
from tests.support.environment import TIMEOUT_S
from tests.support.processes import alive, gone, kill_at_once, wait_for

PARTS = ("guardian", "supervisor", "agent")
SUBSETS = [subset for size in (1, 2, 3) for subset in itertools.combinations(PARTS, size)]


def parts_of(night: Night, process: subprocess.Popen[bytes]) -> dict[str, int]:
    agent, grandchild = night.ready(1)
    return {
        "guardian": process.pid,
        "supervisor": supervisor_of(process.pid),
        "agent": agent,
        "grandchild": grandchild,
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize("subset", SUBSETS, ids="+".join)
def test_killed_in_any_combination_the_next_start_goes_on(night: Night, subset: tuple[str, ...]) -> None:
    process = night.start_agent()
    pids = parts_of(night, process)
    kill_at_once([pids[part] for part in subset])
    survives = "supervisor" not in subset
    if survives and "agent" in subset:
        night.ready(2)  # the supervisor records, saves, and starts it again
    if not survives:
        again = night.start_agent()
        night.ready(2)
        gone([pids["agent"], pids["grandchild"], pids["supervisor"]])
    night.let_go()
    if not survives:
        assert again.wait(TIMEOUT_S) == 0, again.stderr.read() if again.stderr else b""
    wait_for(lambda: night.ask("show", "t")["status"] == "done" or None, what="the run's end")
    assert night.outlived() == ""
    if subset != ("guardian",):
        assert any(text == "attempt 1\n" for text in night.saved()), (
            "what the first attempt left is in a save"
        )


def test_killed_with_its_process_group_the_next_start_goes_on(night: Night) -> None:
    process = night.start_agent()
    pids = parts_of(night, process)
    os.killpg(pids["supervisor"], signal.SIGKILL)
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGKILL
    assert not alive(pids["agent"])
    assert not alive(pids["grandchild"])
    night.let_go()
    assert night.start_agent().wait(TIMEOUT_S) == 0
    assert night.outlived() == ""


def test_the_guardian_of_a_dead_supervisor_stops_the_agent_and_saves_before_it_leaves(night: Night) -> None:
    process = night.start_agent()
    pids = parts_of(night, process)
    os.kill(pids["supervisor"], signal.SIGKILL)
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGKILL
    assert not alive(pids["agent"])
    assert not alive(pids["grandchild"])
    assert night.saved() == ["attempt 1\n"], "saved, although nobody started it again"


def test_a_start_while_the_guardian_still_works_waits_for_it(night: Night) -> None:
    process = night.start_agent()
    pids = parts_of(night, process)
    os.kill(pids["supervisor"], signal.SIGSTOP)
    os.kill(pids["guardian"], signal.SIGSTOP)
    os.kill(pids["supervisor"], signal.SIGKILL)
    again = night.start_agent()
    held = night.isolated.state_home / "outlast/runs"
    wait_for(lambda: list(held.glob("*/guardian.lock")) or None, what="the lock")
    os.kill(pids["guardian"], signal.SIGCONT)
    night.ready(2)
    assert not alive(pids["guardian"]), "the guardian had ended before the next attempt began"
    night.let_go()
    assert again.wait(TIMEOUT_S) == 0
    assert night.outlived() == ""
    assert "attempt 1\n" in night.saved()


def test_a_guardian_that_does_not_come_to_an_end_is_killed_and_its_work_done(night: Night) -> None:
    process = night.start_agent()
    pids = parts_of(night, process)
    os.kill(pids["guardian"], signal.SIGSTOP)
    os.kill(pids["supervisor"], signal.SIGKILL)
    night.timing = "supervisor.guardian_wait_s=0.5"
    again = night.start_agent()
    night.ready(2)
    assert process.wait(TIMEOUT_S) == -signal.SIGKILL
    night.let_go()
    assert again.wait(TIMEOUT_S) == 0
    assert night.outlived() == ""
    assert "attempt 1\n" in night.saved()


UNMARKED = "env -i sh -c 'echo $$ >> {pids}; trap \"\" TERM; while :; do sleep 0.05; done' & while [ ! -s {pids} ]; do sleep 0.01; done"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["ends", "is killed", "is stopped"])
def test_what_carries_no_mark_does_not_run_on_either(night: Night, how: str) -> None:
    night.timing = "supervisor.left_grace_s=0.3,supervisor.stop_grace_s=0.3,supervisor.guardian_grace_s=0.3"
    pids = night.folder / "unmarked"
    words = UNMARKED.format(pids=pids) + ("" if how == "ends" else "; sleep 600")
    process = night.start("--task", "t", "--restarts", "1", "--", "sh", "-c", words)
    [pid] = wait_for(
        lambda: [int(word) for word in pids.read_text().split()] if pids.exists() else None, what="a child"
    )
    if how == "is killed":
        os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    elif how == "is stopped":
        os.kill(process.pid, signal.SIGTERM)
    process.wait(TIMEOUT_S)
    assert not alive(pid)
