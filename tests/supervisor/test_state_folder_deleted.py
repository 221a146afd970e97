"""The state folder deleted under a live command: noticed, said, the command stopped, and nothing claimed that is lost."""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.supervisor.supervised_command import Night
from tests.support.environment import TIMEOUT_S
from tests.support.processes import gone, wait_for

NOTICED_S = 30.0  # on a busy machine; else it would never be noticed
GRACEFUL = """
import pathlib, signal, sys, time
place = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: ((place / "asked").write_text(str(time.monotonic())), sys.exit(0)))
(place / "up").touch()
while True:
    time.sleep(0.01)
"""


def delete(root: Path) -> None:
    shutil.rmtree(root)


def move_away(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))


@pytest.mark.parametrize("lose", [delete, move_away])
def test_a_state_folder_that_is_gone_stops_the_command_with_grace_and_is_said(
    night: Night, lose: Callable[[Path], None]
) -> None:
    program = [sys.executable, "-P", "-c", GRACEFUL, str(night.folder)]
    process = night.start("--task", "t", "--", *program)
    wait_for(lambda: (night.folder / "up").exists() or None, what="the command")
    (night.work / "work.txt").write_text("unsaved\n")
    lost_s = time.monotonic()
    lose(night.isolated.state_home / "outlast")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3, err
    assert float((night.folder / "asked").read_text()) - lost_s < NOTICED_S
    [first, last] = err.decode().splitlines()
    assert "was deleted or replaced" in first
    assert "restore it from a backup" in last
    assert not out
    assert (night.work / "work.txt").read_text() == "unsaved\n"


def test_a_command_that_ended_well_meanwhile_is_not_said_to_be_done(night: Night) -> None:
    root = night.isolated.state_home / "outlast"
    process = night.start("--task", "t", "--", "rm", "-rf", str(root))
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3
    assert b"was deleted or replaced" in err
    assert b"done" not in err


def test_nothing_of_the_attempt_runs_on_without_its_state_folder(night: Night) -> None:
    process = night.start_agent()
    pids = night.ready(1)
    shutil.rmtree(night.isolated.state_home / "outlast")
    assert process.wait(TIMEOUT_S) == 3
    gone(pids)
