"""A terminal that was lent comes back as it was: foreground, modes and screen, also after SIGKILL."""

import json
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outlast.processes.tty import RESET, Terminal
from tests.support.environment import need_tool
from tests.support.processes import clean_environment, wait_for

# A program that makes the terminal its own and is cut off, or ends and leaves all as it was.
AGENT = """
import os, sys, termios, tty
before = termios.tcgetattr(0)
if "raw" in sys.argv:
    tty.setraw(0)
os.write(1, b"\\x1b[?1049h\\x1b[?25lGARBAGE" if "screen" in sys.argv else b"inline")
if "clean" in sys.argv:
    termios.tcsetattr(0, termios.TCSANOW, before)
    os._exit(0)
os.kill(os.getpid(), 9)
"""
# What the supervisor does: lend the terminal to an agent, wait for its end, take it back, tell what it found.
SHELL = """
import fcntl, json, os, select, signal, sys, termios
from pathlib import Path
from outlast.processes.spawn import Spec, start
from outlast.processes.tty import Terminal

where, agent, *words = sys.argv[1:]
os.chdir(where)
if "login" in words:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if "hangup" in words:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.write(1, b"before\\n")
terminal = Terminal.of(0)
child = start(Spec((sys.executable, "-c", agent, *words), where, dict(os.environ), own_group=True, foreground_tty=0))
lent = os.tcgetpgrp(0) in (child.pid, terminal.foreground)
select.select([child], [], [])
found = {"modes changed": termios.tcgetattr(0) != terminal.modes, "background": os.tcgetpgrp(0) != os.getpgrp()}
if "hangup" in words:
    Path("lent").touch()
    while os.path.exists("lent"):
        pass
if "stopped" in words:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    termios.tcflow(1, termios.TCOOFF)
found |= {"taken": terminal.take_back(), "again": terminal.take_back()}
if "stopped" in words:
    termios.tcflow(1, termios.TCOON)
if "hangup" not in words:
    found |= {"modes": termios.tcgetattr(0) == terminal.modes, "foreground": os.tcgetpgrp(0) == os.getpgrp()}
    found["given"] = terminal.give(os.getpgrp())
    os.write(1, b"after")
Path("told.new").write_text(json.dumps(found))
os.rename("told.new", "told")
signal.pause()
"""
TAKEN = {"taken": True, "again": True, "modes": True, "foreground": True, "given": True}


@contextmanager
def shell(folder: Path, *words: str) -> Iterator[int]:
    """The shell in a session of its own on a new terminal; the other end of that."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SHELL, str(folder), AGENT, "login", *words],
        env=clean_environment(),
        stdin=slave,
        stdout=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield master
    finally:
        process.kill()
        process.wait()
        os.close(master)


def told(folder: Path) -> dict[str, Any]:
    wait_for((folder / "told").exists, what="the shell to have its terminal back")
    found: dict[str, Any] = json.loads((folder / "told").read_text())
    return found


def shown(master: int) -> bytes:
    """All that was written to the terminal until now."""
    pieces = []
    while select.select([master], [], [], 0)[0]:
        pieces.append(os.read(master, 65536))
    return b"".join(pieces)


def test_after_a_kill_in_raw_mode_foreground_modes_and_screen_are_restored_once(tmp_path: Path) -> None:
    with shell(tmp_path, "raw", "screen") as master:
        assert told(tmp_path) == {"modes changed": True, "background": True, **TAKEN}
        assert shown(master) == b"before\r\n\x1b[?1049h\x1b[?25lGARBAGE" + RESET + b"after"


def test_a_program_that_ended_well_costs_no_reset(tmp_path: Path) -> None:
    with shell(tmp_path, "raw", "clean") as master:
        assert told(tmp_path) == {"modes changed": False, "background": True, **TAKEN}
        assert shown(master) == b"before\r\ninlineafter"


def test_a_terminal_that_has_gone_is_no_error(tmp_path: Path) -> None:
    with shell(tmp_path, "raw", "hangup") as master:
        wait_for((tmp_path / "lent").exists, what="the agent's end")
        os.dup2(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), master)
        (tmp_path / "lent").unlink()
        assert told(tmp_path) == {"modes changed": True, "background": True, "taken": False, "again": False}


def test_a_terminal_that_takes_no_output_does_not_hold_us_up(tmp_path: Path) -> None:
    with shell(tmp_path, "raw", "screen", "stopped"):
        assert told(tmp_path)["taken"]


def test_what_is_no_terminal_is_none() -> None:
    with open("/dev/null", "rb") as null:
        assert Terminal.of(null.fileno()) is None
    assert Terminal.of(987) is None


def test_a_terminal_that_is_not_ours_gets_its_modes_back() -> None:
    master, slave = pty.openpty()
    try:
        terminal = Terminal.of(slave)
        assert terminal is not None
        assert terminal.foreground == 0
        changed = termios.tcgetattr(slave)
        changed[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, changed)
        assert terminal.take_back()
        assert termios.tcgetattr(slave) == terminal.modes
        assert not terminal.give(os.getpgrp())
    finally:
        os.close(master)
        os.close(slave)


@contextmanager
def tmux(folder: Path, *words: str) -> Iterator[list[str]]:
    """The shell in a window of tmux, a real terminal with two screens; the words that tmux is asked with."""
    asks = [need_tool("tmux"), "-S", str(folder / "socket"), "-f", "/dev/null"]
    inside = [sys.executable, "-c", SHELL, str(folder), AGENT, *words]
    env = clean_environment({"TERM": "xterm"})
    subprocess.run(
        [*asks, "new-session", "-d", "-x", "80", "-y", "24", *inside], env=env, check=True, timeout=60
    )
    try:
        yield asks
    finally:
        subprocess.run([*asks, "kill-server"], check=False, timeout=60)


def on_screen(asks: list[str]) -> tuple[str, str]:
    """What a person sees, and whether the cursor is shown and the alternate screen is on."""
    text = subprocess.check_output([*asks, "capture-pane", "-p"], text=True, timeout=60)
    flags = subprocess.check_output(
        [*asks, "display", "-p", "#{cursor_flag} #{alternate_on}"], text=True, timeout=60
    )
    return text.rstrip(), flags.strip()


def test_in_a_real_terminal_the_normal_screen_comes_back(tmp_path: Path) -> None:
    with tmux(tmp_path, "raw", "screen") as asks:
        told(tmp_path)
        wait_for(lambda: "after" in on_screen(asks)[0], what="the last word")
        assert on_screen(asks) == ("before\nafter", "1 0")


def test_in_a_real_terminal_a_program_on_the_normal_screen_is_left_where_it_was(tmp_path: Path) -> None:
    with tmux(tmp_path, "raw") as asks:
        told(tmp_path)
        wait_for(lambda: "after" in on_screen(asks)[0], what="the last word")
        assert on_screen(asks) == ("before\ninlineafter", "1 0")
