"""A signal reaches the process that was meant, or nobody."""

import dataclasses
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from outlast.processes import reap, signals
from outlast.processes.proc import look
from outlast.store.locks import boottime_s
from tests.processes.attempts import looked
from tests.support.environment import need_root, skip_or_fail
from tests.support.processes import alive, running, wait_for

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
TRIES_MAX = 300


def _reuse(pid: int) -> "subprocess.Popen[bytes]":
    """A new process with this pid: the kernel gives out the one after the last, unless somebody else was faster."""
    for _ in range(TRIES_MAX):
        LAST_PID.write_text(str(pid - 1))
        process = subprocess.Popen(["sleep", "600"])
        if process.pid == pid:
            return process
        process.kill()
        process.wait()
    return skip_or_fail(f"pid {pid} could not be had again in {TRIES_MAX} tries")


def test_a_process_that_got_the_pid_of_another_is_never_hit() -> None:
    need_root()
    if not LAST_PID.exists():
        skip_or_fail("needs ns_last_pid")
    first = subprocess.Popen(["sleep", "600"])
    old = looked(first.pid)
    first.kill()
    first.wait()
    wait_for(lambda: boottime_s() * os.sysconf("SC_CLK_TCK") > old.start_ticks + 2, what="the next tick")
    second = _reuse(first.pid)
    try:
        assert looked(second.pid).identity != old.identity
        assert signals.send(old, signal.SIGKILL) == "gone"
        assert signals._send_by_pid(old, signal.SIGKILL) == "gone"
        assert not signals.is_running(old)
        assert signals.wait_gone([old], 600) == []
        assert reap.stop(lambda: [old], grace_s=600).killed == ()
        assert alive(second.pid)
        assert signals.send(looked(second.pid), signal.SIGKILL) == "sent"
        assert second.wait() == -signal.SIGKILL
    finally:
        second.kill()
        second.wait()


def test_the_start_is_compared_also_where_there_is_no_pidfd() -> None:
    with running(["sleep", "600"]) as process:
        other = dataclasses.replace(looked(process.pid), start_ticks=looked(process.pid).start_ticks - 1)
        for way in (signals.send, signals._send_by_pid):
            assert way(other, signal.SIGKILL) == "gone"
            assert way(looked(process.pid), 0) == "sent"
        assert alive(process.pid)


def test_waiting_ends_with_the_process_and_not_with_the_limit() -> None:
    with running(["sleep", "600"]) as process, running(["sleep", "600"]) as other:
        procs = [looked(process.pid), looked(other.pid)]
        met: list[int] = []

        def on_wait() -> None:
            met.append(1)
            process.kill()
            other.kill()

        before = time.monotonic()
        assert signals.wait_gone(procs, 600, on_wait) == []
        assert time.monotonic() - before < 30
        assert met


def test_waiting_in_vain_ends_with_the_limit() -> None:
    with running(["sleep", "600"]) as process:
        proc = looked(process.pid)
        assert signals.wait_gone([proc], 0.05) == [proc]


def test_without_descriptors_left_processes_are_still_signalled_and_awaited() -> None:
    with running(["sleep", "600"]) as process:
        proc = looked(process.pid)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        fds = [os.open("/dev/null", os.O_RDONLY)]
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        while fds[-1] <= highest + 2:  # whatever others have open: all numbers below are taken then
            fds.append(os.dup(fds[0]))
        resource.setrlimit(resource.RLIMIT_NOFILE, (fds[-1] + 1, hard))
        try:
            for fd in fds[-2:]:  # /proc itself is read with two descriptors, one after the other
                os.close(fd)
            del fds[-2:]
            assert signals.send(proc, signal.SIGKILL) == "sent"
            assert signals.wait_gone([proc], 30) == []
        finally:
            for fd in fds:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert process.wait() == -signal.SIGKILL


def test_a_process_is_not_called_gone_when_nobody_can_look() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            look(os.getpid())
        with pytest.raises(OSError, match="Too many open files"):
            reap.find("r")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
