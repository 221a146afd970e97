"""Signals are read one by one with their sender. Each test's reader is a process of its own with one thread."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outlast.processes.proc import user_name
from tests.support.environment import need_root, need_tool
from tests.support.processes import running, wait_for

READER = """
import fcntl, os, select, signal, sys, termios
from pathlib import Path
from outlast.processes import signals as senders

if "tty" in sys.argv:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signals = senders.Signals([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
assert signals.read() is None
if "itself" in sys.argv:
    os.kill(os.getpid(), signal.SIGUSR1)
Path("ready").write_text("yes")
said = open("said", "a")
while True:
    if "late" in sys.argv:
        while not os.path.exists("read"):
            pass
    select.select([signals], [], [])
    got = signals.read()
    Path("got").touch()
    while "slow" in sys.argv and not os.path.exists("gone"):
        pass
    print(signal.Signals(got.number).name, got.uid, got.at.tzinfo, senders.sender(got), file=said, flush=True)
"""
SENDER = "import os, signal, sys; os.kill(int(sys.argv[1]), int(sys.argv[2])); signal.pause()"


@contextmanager
def reading(folder: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    with running([sys.executable, "-c", READER, *words], cwd=folder) as process:
        wait_for((folder / "ready").exists, what="the reader")
        yield process


def lines_of(folder: Path, count: int = 1) -> list[str]:
    """What the reader said, once it has said so many lines."""

    def lines() -> list[str]:
        said = (folder / "said").read_text() if (folder / "said").exists() else ""
        return said.splitlines() if said.count("\n") >= count else []

    return wait_for(lines, what=f"{count} signals")


def test_the_sender_is_named_with_user_and_command(tmp_path: Path) -> None:
    with (
        reading(tmp_path) as reader,
        running([sys.executable, "-c", SENDER, str(reader.pid), "15"]) as sender,
    ):
        user = user_name(os.geteuid())
        line = lines_of(tmp_path)[0]
        assert line.startswith(
            f"SIGTERM {os.geteuid()} UTC pid {sender.pid} ({user}: {sys.executable} -c import os"
        )


def test_a_sender_that_is_gone_is_still_told_by_pid_and_user(tmp_path: Path) -> None:
    with reading(tmp_path, "late") as reader:
        sender = subprocess.Popen([need_tool("env"), "kill", "-TERM", str(reader.pid)])
        sender.wait()
        (tmp_path / "read").touch()
        line = lines_of(tmp_path)[0]
        assert line == f"SIGTERM {os.geteuid()} UTC pid {sender.pid} ({user_name(os.geteuid())}), gone"


def test_the_sender_is_looked_up_when_the_signal_is_read_and_not_when_it_is_told(tmp_path: Path) -> None:
    with reading(tmp_path, "slow") as reader:
        with running([sys.executable, "-c", SENDER, str(reader.pid), "15"]) as sender:
            wait_for((tmp_path / "got").exists, what="the signal")
        (tmp_path / "gone").touch()
        assert f"pid {sender.pid} ({user_name(os.geteuid())}: {sys.executable}" in lines_of(tmp_path)[0]


def test_signals_that_come_between_two_reads_are_all_read(tmp_path: Path) -> None:
    with reading(tmp_path, "late") as reader:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            reader.send_signal(number)
        (tmp_path / "read").touch()
        lines = lines_of(tmp_path, 4)
        assert {line.split()[0] for line in lines} == {"SIGUSR1", "SIGTERM", "SIGINT", "SIGUSR2"}
        assert all(f"pid {os.getpid()} (" in line for line in lines)


def test_a_signal_to_oneself_is_from_itself(tmp_path: Path) -> None:
    with reading(tmp_path, "itself"):
        assert lines_of(tmp_path)[0].endswith(" itself")


def test_ctrl_c_comes_from_the_terminal(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, "tty"], cwd=tmp_path, stdin=slave, start_new_session=True
    )
    try:
        os.close(slave)
        wait_for((tmp_path / "ready").exists, what="the reader")
        os.write(master, b"\x03")
        assert lines_of(tmp_path)[0].endswith(" the terminal (Ctrl-C)")
        os.close(master)
        master = -1
        assert lines_of(tmp_path, 2)[1].endswith("the terminal (it was closed)")
    finally:
        reader.kill()
        reader.wait()
        if master >= 0:
            os.close(master)


def test_a_sender_outside_of_the_container_is_told_as_that(tmp_path: Path) -> None:
    need_root()
    inside = [need_tool("unshare"), "--pid", "--fork", "--kill-child", sys.executable, "-c", READER]
    with running(inside, cwd=tmp_path) as outer:
        wait_for((tmp_path / "ready").exists, what="the reader")
        pid = int(re.findall(r"\d+", Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text())[0])
        os.kill(pid, signal.SIGTERM)
        line = lines_of(tmp_path)[0]
        assert line.endswith("a process outside this container (root)")


def test_closing_gives_a_waiting_signal_its_usual_effect() -> None:
    script = """
import os, signal
from outlast.processes.signals import Signals
with Signals([signal.SIGTERM]):
    os.kill(os.getpid(), signal.SIGTERM)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert done.returncode == -signal.SIGTERM
