"""Processes are started, stopped, continued and killed, and what /proc says of them is believed."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import processes

COUNTS = """
import sys, itertools
for n in itertools.count():
    print(n, flush=True)
"""


def test_a_stopped_process_does_nothing_until_it_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "output"

    def size() -> int:
        return output.stat().st_size

    with processes.running(processes.python_command(COUNTS), output=output) as process:
        processes.wait_for(size, what="some output")
        processes.stop(process.pid)
        stopped_at = size()
        assert processes.state(process.pid) == "T"
        assert size() == stopped_at
        processes.go_on(process.pid)
        processes.wait_for(lambda: size() > stopped_at, what="more output")
        assert processes.kill(process) == -signal.SIGKILL
        assert not processes.alive(process.pid)


STARTS_IN_VFORK = """
import os, sys
while True:
    opens = (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)
    os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ, file_actions=[opens]), 0)
"""


def test_a_group_stops_although_a_child_has_not_executed_its_program_yet(tmp_path: Path) -> None:
    """Its parent waits for that in the kernel and cannot stop before; the fifo holds the child there."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with processes.running(processes.python_command(STARTS_IN_VFORK, str(fifo))) as process:
        for _ in range(20):
            processes.wait_for(lambda: processes.state(process.pid) == "D", what="the child")
            with ThreadPoolExecutor() as pool:
                stopping = pool.submit(processes.stop_group, process.pid)
                fd = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)  # now the child can go on
                assert stopping.result(processes.LIMIT_S)
            os.close(fd)
            assert processes.state(process.pid) == "T"
            os.killpg(process.pid, signal.SIGCONT)
        assert processes.kill(process) == -signal.SIGKILL
    assert not processes.stop_group(process.pid), "it has ended"


def test_the_whole_group_is_gone_at_the_end_of_the_block(tmp_path: Path) -> None:
    parent = (
        "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', sys.argv[1]]).pid, flush=True)"
    )
    output = tmp_path / "output"
    child = "import signal; signal.pause()"
    with processes.running(processes.python_command(parent, child), output=output) as process:
        pid = int(processes.wait_for(output.read_text, what="the child's pid"))
        process.wait(processes.LIMIT_S)
        assert processes.alive(pid)
    processes.wait_for(lambda: not processes.alive(pid), what="the child's end")


def test_waiting_in_vain_says_for_what() -> None:
    with pytest.raises(TimeoutError, match="for the moon"):
        processes.wait_for(lambda: None, limit_s=0.01, what="the moon")
