"""A death is named with its evidence: by real processes that exit, are killed, crash, or run out of memory."""

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.processes import cgroups
from outlast.processes.cause_of_death import Death, OomMark, of_error, of_status
from outlast.processes.programs import CannotStart, ProgramMissing
from tests.support import environment
from tests.support.processes import LIMIT_S, python_command, wait_for

LIMIT_BYTES = 50_000_000
EATS = """
import sys
sys.stdin.readline()
eaten = [b"x" * 1_000_000 for _ in range(400)]
"""


def died(command: str) -> int:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", command], os.environ)
    return os.waitpid(pid, 0)[1]


@pytest.mark.parametrize(
    ("command", "death"),
    [
        ("exit 0", Death("done", "exited with 0", exit_code=0)),
        ("exit 3", Death("crash", "exited with 3", exit_code=3)),
        (
            "sh -c 'kill -9 $$'; exit $?",
            Death(
                "crash", "exited with 137 (128 + SIGKILL: a child of it may have been killed)", exit_code=137
            ),
        ),
        ("exit 255", Death("crash", "exited with 255", exit_code=255)),
        ("kill -9 $$", Death("signal", "killed (SIGKILL), sender unknown", signal=9)),
        ("kill -15 $$", Death("signal", "killed (SIGTERM), sender unknown", signal=15)),
        ("ulimit -c 0; kill -SEGV $$", Death("crash", "crashed (SIGSEGV)", signal=11)),
        ("kill -40 $$", Death("signal", "killed (signal 40), sender unknown", signal=40)),
    ],
)
def test_a_status_is_told_in_words(command: str, death: Death) -> None:
    assert of_status(died(command)) == death


def test_a_core_dump_is_named() -> None:
    assert of_status(signal.SIGABRT | 0x80).evidence == "crashed (SIGABRT, core dumped)"


def test_a_sender_that_is_known_is_named() -> None:
    sent = {9: "pid 812 (alice: kill -9 99)"}
    assert of_status(died("kill -9 $$"), sent=sent) == Death(
        "signal", "killed (SIGKILL) by pid 812 (alice: kill -9 99)", signal=9
    )
    assert of_status(died("kill -15 $$"), sent=sent).evidence == "killed (SIGTERM), sender unknown"


def test_a_program_that_never_ran_has_a_cause_too() -> None:
    missing = ProgramMissing("agent: not found on PATH", path="agent", number=2)
    assert of_error(missing) == Death("program_missing", "agent: not found on PATH")
    assert of_error(CannotStart("no memory", path="agent", number=12)).cause == "crash"


@contextlib.contextmanager
def memory_group(limit_bytes: int | None) -> Iterator[Path]:
    """A group with a memory limit below our own; a visible skip where none can be made."""
    environment.need_root()
    place = cgroups.memory()
    if place is None:
        environment.skip_or_fail("needs a memory cgroup")
    folder = place.folder / f"outlast-test-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    try:
        limit = folder / ("memory.max" if place.version == 2 else "memory.limit_in_bytes")
        if not limit.exists():
            environment.skip_or_fail("needs a memory cgroup that can be limited")
        if limit_bytes is not None:
            limit.write_text(str(limit_bytes))
        yield folder
    finally:
        wait_for(lambda: not (folder / "cgroup.procs").read_text(), what="an empty group")
        folder.rmdir()


def eats_in(folder: Path) -> tuple[int, OomMark]:
    """A process that eats memory in a group until it is killed, and a mark taken before."""
    process = subprocess.Popen(python_command(EATS), stdin=subprocess.PIPE)
    (folder / "cgroup.procs").write_text(str(process.pid))
    mark = OomMark.take(process.pid)
    assert mark.kills_since() == 0
    process.communicate(b"\n", timeout=LIMIT_S)
    return -process.returncode, mark


def test_out_of_memory_is_told_from_a_kill_with_group_and_limit() -> None:
    with memory_group(LIMIT_BYTES) as folder:
        status, mark = eats_in(folder)
        assert status == signal.SIGKILL
        assert mark.kills_since() == 1
        name = "/" + str(folder.relative_to(cgroups.memory().mount))  # type: ignore[union-attr]
        told = f"killed by the kernel: out of memory in {name} (limit 49 MB)"
        assert of_status(status, oom=mark) == Death("oom", told, signal=9)
        assert of_status(status, oom=mark, sent={9: "us"}).cause == "signal"
        shell = of_status(137 << 8, oom=mark)
        assert shell == Death(
            "oom", f"exited with 137 (128 + SIGKILL: a child of it was {told})", exit_code=137
        )
        assert of_status(1 << 8, oom=mark) == Death(
            "crash", f"exited with 1; 1 of its group {told}", exit_code=1
        )
        assert of_status(signal.SIGTERM, oom=mark).evidence == "killed (SIGTERM), sender unknown"


def test_the_limit_that_is_named_is_the_one_that_was_hit() -> None:
    with memory_group(LIMIT_BYTES) as folder:
        inner = folder / "inner"
        inner.mkdir()
        if not (inner / "memory.limit_in_bytes").exists():
            (folder / "cgroup.subtree_control").write_text("+memory")
        try:
            limit = inner / "memory.limit_in_bytes"
            (limit if limit.exists() else inner / "memory.max").write_text(str(10 * LIMIT_BYTES))
            status, mark = eats_in(inner)
            told = of_status(status, oom=mark).evidence
            assert told.endswith(f"/{folder.name} (limit 49 MB)")
        finally:
            wait_for(lambda: not (inner / "cgroup.procs").read_text(), what="an empty group")
            inner.rmdir()


def test_what_ran_out_of_memory_below_counts_and_what_did_beside_does_not() -> None:
    with memory_group(None) as ours, memory_group(LIMIT_BYTES) as beside:
        below = ours / "below"
        below.mkdir()
        if not (below / "memory.limit_in_bytes").exists():
            (ours / "cgroup.subtree_control").write_text("+memory")
        process = subprocess.Popen(["sleep", "600"])
        try:
            (ours / "cgroup.procs").write_text(str(process.pid))
            mark = OomMark.take(process.pid)
            eats_in(beside)
            assert mark.kills_since() == 0
            limit = below / "memory.limit_in_bytes"
            (limit if limit.exists() else below / "memory.max").write_text(str(LIMIT_BYTES))
            eats_in(below)
            assert mark.kills_since() == 1
        finally:
            process.kill()
            process.wait()
            wait_for(lambda: not (below / "cgroup.procs").read_text(), what="an empty group")
            below.rmdir()


def test_a_kill_without_want_of_memory_stays_unknown() -> None:
    with memory_group(LIMIT_BYTES) as folder:
        process = subprocess.Popen(["sleep", "600"])
        (folder / "cgroup.procs").write_text(str(process.pid))
        mark = OomMark.take(process.pid)
        process.kill()
        process.wait()
        assert of_status(signal.SIGKILL, oom=mark).evidence == "killed (SIGKILL), sender unknown"


def test_a_mark_of_a_process_that_is_gone_sees_no_kill() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert OomMark.take(process.pid).kills_since() == 0
