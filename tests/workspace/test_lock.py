"""Two who would save one workspace: the second waits for the first, but not for ever."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from outlast.errors import SaveFailed
from outlast.settings import TIMING
from outlast.workspace.types import Purpose
from tests.workspace.workspace import Workspace

HOLDS = """
import sys
from pathlib import Path
from outlast.store.local import Local
from outlast.workspace.capture.saver import Saver
saver = Saver(Path(sys.argv[1]), Local(Path(sys.argv[2])))
with saver.lock():
    print("held", flush=True)
    sys.stdin.readline()
"""
PURPOSE = Purpose(kind="emergency", run="r1")


@pytest.fixture
def holder(place: Workspace) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of a save."""
    words = [sys.executable, "-P", "-c", HOLDS, str(place.folder), str(place.state)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_save_in_a_hurry_does_not_wait_behind_another_one(
    place: Workspace, holder: subprocess.Popen[str]
) -> None:
    began_s = time.monotonic()
    with pytest.raises(SaveFailed, match=rf"process {holder.pid} saves or restores it"):
        place.saver.capture(PURPOSE, deadline_s=0.3)
    assert 0.3 <= time.monotonic() - began_s < 60.0


def test_nobody_waits_for_ever_behind_one_that_was_stopped(
    place: Workspace, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMING, "workspace.stopped_wait_s=0.3")
    os.kill(holder.pid, signal.SIGSTOP)
    with pytest.raises(SaveFailed, match=rf"process {holder.pid} saves or restores it"):
        place.save()
    os.kill(holder.pid, signal.SIGKILL)
    assert place.save()


def test_a_save_is_made_once_the_other_one_ends(place: Workspace, holder: subprocess.Popen[str]) -> None:
    assert holder.stdin is not None
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert place.saver.capture(PURPOSE, deadline_s=60.0)
