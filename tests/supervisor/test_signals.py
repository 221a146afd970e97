"""Signals to a supervised command: save, stop with grace, reap, save again; and who sent them is on record."""

import json
import os
import signal
import sys
import time

import pytest

from tests.supervisor.supervised_command import Night, supervisor_of
from tests.support.environment import TIMEOUT_S
from tests.support.processes import alive, kill_at_once, wait_for

# Says which signal it got; ends then, or stays.
STUBBORN = """
import os, signal, sys, time
from pathlib import Path
place, stays = Path(sys.argv[1]), sys.argv[2] == "stays"
def got(number, _):
    (place / "got").write_text(signal.Signals(number).name)
    Path("last words.txt").write_text("written when asked to stop")
    if not stays:
        raise SystemExit(0)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, got)
Path("work.txt").write_text("dirty\\n")
(place / "new").write_text(str(os.getpid()))
(place / "new").rename(place / "ready")
while True:
    time.sleep(0.01)
"""


def start(night: Night, how: str = "ends") -> int:
    (night.folder / "stubborn.py").write_text(STUBBORN)
    process = night.start(
        "--task", "t", "--", sys.executable, "-P", str(night.folder / "stubborn.py"), str(night.folder), how
    )
    wait_for(lambda: (night.folder / "ready").exists() or None, what="the agent")
    return process.pid


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT], ids=lambda n: n.name
)
@pytest.mark.parametrize("to", ["guardian", "supervisor"])
def test_a_signal_saves_stops_and_names_its_sender(night: Night, number: signal.Signals, to: str) -> None:
    guardian = start(night)
    os.kill(guardian if to == "guardian" else supervisor_of(guardian), number)
    assert night.started[0].wait(TIMEOUT_S) == 128 + number
    assert (night.folder / "got").read_text() == "SIGTERM", "what the agent is asked with"
    [ended] = night.attempts()
    assert ended["evidence"].startswith(f"{number.name} from pid {os.getpid()} (")
    assert ended["cause"] == "signal"
    assert ended.get("wanted", False) == (number != signal.SIGHUP)
    saves = [save for save in night.ask("saves", "t") if save["kind"] == "emergency"]
    assert all(save["reason"].startswith(f"signal: {number.name}") for save in saves)
    held = [night.git("ls-tree", "--name-only", save["commit"]) for save in saves]
    assert any("last words.txt" in names for names in held), (
        "saved again, with what the agent wrote when asked to stop"
    )


def test_one_that_will_not_stop_is_killed_after_its_grace(night: Night) -> None:
    night.timing = "supervisor.stop_grace_s=1"
    guardian = start(night, "stays")
    began_s = time.monotonic()
    os.kill(guardian, signal.SIGTERM)
    assert night.started[0].wait(TIMEOUT_S) == 128 + signal.SIGTERM
    assert time.monotonic() - began_s > 1.0


def test_a_second_signal_hurries_and_a_third_changes_nothing(night: Night) -> None:
    night.timing = "supervisor.stop_grace_s=600"
    guardian = start(night, "stays")
    os.kill(guardian, signal.SIGTERM)
    wait_for(lambda: (night.folder / "got").exists() or None, what="the first signal")
    os.kill(guardian, signal.SIGINT)
    os.kill(guardian, signal.SIGINT)
    agent = int((night.folder / "ready").read_text())
    wait_for(
        lambda: not alive(agent) or None, what="the end of the agent, long before its grace of 600 s is over"
    )
    assert night.started[0].wait(TIMEOUT_S) == 128 + signal.SIGTERM
    [ended] = night.attempts()
    assert ended["evidence"].startswith("SIGTERM from")


def test_the_state_file_tells_of_the_interruption(night: Night) -> None:
    guardian = start(night)
    os.kill(guardian, signal.SIGTERM)
    night.started[0].wait(TIMEOUT_S)
    [path] = night.isolated.state_home.glob("outlast/runs/*/active_state.json")
    told = json.loads(path.read_text())
    assert told["cause"] == "signal"
    assert told["task_id"] == "t"
    assert told["workspace_path"] == str(night.work)
    assert told["branch_name"] == "main"
    assert told["last_save"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_stopped_supervisor_does_not_keep_a_signal_from_taking_hold(night: Night) -> None:
    night.timing = "supervisor.frozen_s=0.5,supervisor.guardian_look_s=0.1"
    guardian = start(night)
    supervisor = supervisor_of(guardian)
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(guardian, signal.SIGTERM)
    assert night.started[0].wait(TIMEOUT_S) == 128 + signal.SIGTERM
    assert not alive(supervisor)
    assert "dirty\n" in night.saved()
    [asleep] = night.ask("resume", "--all", "--dry-run")
    assert (asleep["wake"], asleep["why"].startswith("stopped: SIGTERM from ")) == (False, True)
    assert [each["started"] for each in night.ask("resume", "--all")] == [None], "a person had stopped it"


def test_what_a_person_had_stopped_goes_on_when_a_person_says_so_and_is_woken_from_then_on(
    night: Night,
) -> None:
    night.timing = "supervisor.frozen_s=0.5,supervisor.guardian_look_s=0.1"
    guardian = start(night)
    supervisor = supervisor_of(guardian)
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(guardian, signal.SIGTERM)
    night.started[0].wait(TIMEOUT_S)
    (night.folder / "ready").unlink()
    again = start(night)
    assert "which the stopped supervisor did not answer" in str(night.ask("log", "t"))
    kill_at_once([again, supervisor_of(again)], wait=True)
    night.started[1].wait(TIMEOUT_S)
    [asleep] = night.ask("resume", "--all", "--dry-run")
    assert asleep["wake"], asleep["why"]


def test_a_signal_ends_a_check_too(night: Night) -> None:
    check = f"touch {night.folder}/checking; exec sleep 600"
    process = night.start("--task", "t", "--done", check, "--", "true")
    wait_for(lambda: (night.folder / "checking").exists() or None, what="the check")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    [ended] = night.attempts()
    assert ended["evidence"].startswith("SIGTERM from")
