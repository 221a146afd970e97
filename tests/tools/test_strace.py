"""strace counts and breaks exactly the calls that were meant."""

import itertools
import signal
from pathlib import Path

import pytest

from tests.support import processes, strace
from tests.support.environment import skip_or_fail
from tests.support.strace import SYNCS, Drifted, Traced

pytestmark = pytest.mark.strace


@pytest.fixture(autouse=True)
def _needs_strace() -> None:
    reason = strace.available()
    if reason is not None:
        skip_or_fail(reason)


# Three appends with an fsync each, a rename, and a write elsewhere that must not count.
APPENDS = """
import os, sys
folder = sys.argv[1]
os.write(1, b"elsewhere")
fd = os.open(folder + "/new", os.O_CREAT | os.O_WRONLY)
for _ in range(3):
    os.write(fd, b"x")
    os.fsync(fd)
os.rename(folder + "/new", folder + "/old")
print("end")
"""
CALLS = ["write", "fsync"] * 3 + ["rename"]

THREADS = """
import os, sys, threading
def append(name):
    fd = os.open(sys.argv[1] + "/" + name, os.O_CREAT | os.O_WRONLY)
    for _ in range(5):
        os.write(fd, b"x")
        os.fdatasync(fd)
threads = [threading.Thread(target=append, args=(name,)) for name in "ab"]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def appends(folder: Path) -> Traced:
    folder.mkdir()
    return Traced(processes.python_command(APPENDS, str(folder)), folder)


@pytest.fixture
def dry(tmp_path: Path) -> strace.Trace:
    return appends(tmp_path / "dry").run()


def test_only_calls_under_the_folder_are_counted(dry: strace.Trace) -> None:
    assert [call.name for call in dry.calls] == CALLS
    assert dry.calls[0].paths == ("new",)
    assert dry.calls[-1].paths == ("new", "old")
    assert dry.count(*SYNCS) == 3
    assert dry.returncode == 0
    assert dry.output.endswith("end\n")


def test_killed_before_each_call_in_turn_until_a_run_meets_none(tmp_path: Path, dry: strace.Trace) -> None:
    sizes = []
    for nth in itertools.count(1):
        folder = tmp_path / str(nth)
        trial = appends(folder).kill_at(nth, dry)
        if trial.hit is None:
            break
        assert (trial.hit.nth, trial.hit.name) == (nth, CALLS[nth - 1])
        assert trial.returncode == -signal.SIGKILL
        sizes.append((folder / "new").stat().st_size)
    assert sizes == [0, 1, 1, 2, 2, 3, 3]  # the call at which it was killed was not done
    assert (folder / "old").stat().st_size == 3


def test_an_error_is_met_once_or_from_then_on(tmp_path: Path, dry: strace.Trace) -> None:
    once = appends(tmp_path / "once").fail_at(4, dry, "EIO")
    assert once.hit is not None
    assert once.hit.name == "fsync"
    assert "Input/output error" in once.output
    full = appends(tmp_path / "full").fail_at(3, dry, "ENOSPC", persistent=True)
    assert "No space left on device" in full.output
    assert (tmp_path / "full" / "new").stat().st_size == 1


def test_stopped_after_a_call_it_goes_on_when_told(tmp_path: Path, dry: strace.Trace) -> None:
    folder = tmp_path / "stopped"
    with appends(folder).stop_at(5, dry) as stopped:
        assert processes.state(stopped.pid) in ("T", "t")
        assert (folder / "new").stat().st_size == 3
        assert not (folder / "old").exists()
        stopped.go_on()
        assert stopped.wait().returncode == 0
    assert (folder / "old").exists()


def test_with_threads_the_first_to_get_there_is_hit_and_named(tmp_path: Path) -> None:
    def threads(folder: Path) -> Traced:
        folder.mkdir()
        return Traced(processes.python_command(THREADS, str(folder)), folder)

    dry = threads(tmp_path / "dry").run()
    assert dry.count("fdatasync") == 10
    trial = threads(tmp_path / "killed").kill_at(len(dry.calls), dry)
    assert trial.hit is not None
    assert trial.hit.when == dry.calls[-1].when == 5
    assert trial.returncode == -signal.SIGKILL


def test_a_program_that_does_other_calls_than_before_is_not_taken_for_survival(
    tmp_path: Path, dry: strace.Trace
) -> None:
    with pytest.raises(Drifted):
        Traced(processes.python_command("pass"), tmp_path).kill_at(1, dry)
