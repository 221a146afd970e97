"""At a real terminal, in tmux: the command owns it, and it comes back as it was, whatever happened."""

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.supervised_command import Night, outlast
from tests.support import screens
from tests.support.environment import need_tool
from tests.support.processes import stands_still, wait_for

# Raw, on the alternate screen, without a cursor: what a full-screen agent leaves behind when it is killed.
RAW = """
import os, sys, time, tty
from pathlib import Path
tty.setraw(0)
os.write(1, b"\\x1b[?1049h\\x1b[?25l\\x1b[?2004hfull screen")
Path(sys.argv[1]).write_text(str(os.getpid()))
while True:
    time.sleep(0.01)
"""


class NightScreen(screens.Screen):
    """The terminal of a person at night."""

    def __init__(self, night: Night) -> None:
        self.night = night
        super().__init__(night.folder, night.work, night.environ())


@pytest.fixture
def screen(night: Night) -> Iterator[NightScreen]:
    made = NightScreen(night)
    try:
        yield made
    finally:
        made.close()


def run_line(*words: str) -> str:
    return shlex.join(outlast("run", *words)) + "; echo code=$?"


def start_cat(screen: NightScreen) -> int:
    """A `cat` that reads the terminal, and its pid. Before it stands there, what is typed is still the shell's."""
    pid = screen.night.folder / "cat.pid"
    script = f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec cat"
    screen.type(run_line("--task", "t", "--", "sh", "-c", script))
    return wait_for(lambda: int(pid.read_text()) if pid.exists() else None, what="cat")


def test_an_interactive_command_owns_the_terminal(screen: NightScreen) -> None:
    before = screen.modes()
    start_cat(screen)
    screen.type("hello there")
    screen.see("hello there", times=2)
    screen.keys("C-d")
    screen.see("code=0")
    assert screen.modes() == before


def test_ctrl_c_ends_it_as_without_us_and_nothing_starts_it_again(screen: NightScreen) -> None:
    before = screen.modes()
    start_cat(screen)
    screen.type("hello")
    screen.see("hello", times=2)
    screen.keys("C-c")
    screen.see("code=130")
    assert screen.modes() == before
    assert screen.night.ask("show", "t")["status"] == "interrupted"


def test_a_session_that_a_person_left_at_once_is_done_where_the_checks_pass(screen: NightScreen) -> None:
    claude = screen.night.folder / "claude"  # as one starts the real one, and leaves it without a word
    claude.write_text('#!/bin/sh\n[ "$1" != --version ] || echo "2.1.325 (Claude Code)"\n')
    claude.chmod(0o755)
    screen.type(run_line("--task", "t", "--done", "test -e ready", "--", str(claude)))
    screen.see("code=0")
    assert screen.night.ask("show", "t")["status"] == "interrupted"
    (screen.night.work / "ready").touch()
    screen.type(run_line("--task", "t", "--done", "test -e ready", "--", str(claude)))
    screen.see("code=0", times=2)
    assert screen.night.ask("show", "t")["status"] == "done"


def test_ctrl_z_gives_the_shell_back_and_fg_goes_on(screen: NightScreen) -> None:
    before = screen.modes()
    cat = start_cat(screen)
    screen.type("hello")
    screen.see("hello", times=2)
    screen.keys("C-z")
    screen.see("Stopped")
    assert screen.modes() == before
    screen.type("fg > /dev/null")
    wait_for(lambda: not stands_still(cat) or None, what="cat to go on")
    screen.type("back again")
    screen.see("back again", times=2)
    screen.keys("C-d")
    wait_for(lambda: screen.night.ask("show", "t")["status"] == "done" or None, what="the end")
    assert screen.modes() == before


@pytest.mark.parametrize("killed", ["agent", "supervisor"])
def test_a_killed_full_screen_agent_leaves_the_terminal_as_it_was(screen: NightScreen, killed: str) -> None:
    before, pid = screen.modes(), screen.night.folder / "raw.pid"
    (screen.night.folder / "raw.py").write_text(RAW)
    screen.type(
        run_line("--task", "t", "--", need_tool("python3"), str(screen.night.folder / "raw.py"), str(pid))
    )
    agent = wait_for(lambda: int(pid.read_text() or 0) if pid.exists() else None, what="the agent")
    screen.see("full screen")
    os.kill(agent if killed == "agent" else _parent(agent), signal.SIGKILL)
    screen.see("code=137")
    assert "full screen" not in screen.text(), "the alternate screen was left"
    assert screen.modes() == before


def test_it_learns_of_a_new_size(screen: NightScreen) -> None:
    script = "import os, signal; signal.signal(signal.SIGWINCH, lambda *_: print(os.get_terminal_size(0))); print('w' + 'aits'); input()"
    screen.type(run_line("--task", "t", "--", need_tool("python3"), "-uc", script))
    screen.see("waits")
    screen.resize(77)
    screen.see("columns=77, lines=40")
    screen.keys("Enter")
    screen.see("code=0")


def test_a_headless_command_at_a_terminal_is_saved_and_stopped_by_ctrl_c(screen: NightScreen) -> None:
    before = screen.modes()
    script = "echo dirty > work.txt; echo star''ted; sleep 1000"  # not as it is typed
    screen.type(run_line("--task", "t", "--headless", "--", "sh", "-c", script))
    screen.see("started")
    screen.keys("C-c")
    screen.see("code=130")
    assert screen.modes() == before
    assert "dirty\n" in screen.night.saved()
    [ended] = screen.night.attempts()
    assert ended["evidence"] == "SIGINT from the terminal (Ctrl-C)"


def test_a_headless_command_stops_and_goes_on_with_its_job(screen: NightScreen) -> None:
    script = "echo $$ > pid; echo star''ted; while [ ! -e go ]; do sleep 0.01; done"
    screen.type(run_line("--task", "t", "--headless", "--", "sh", "-c", script))
    screen.see("started")
    pid = int((screen.night.work / "pid").read_text())
    screen.keys("C-z")
    screen.see("Stopped")
    wait_for(lambda: stands_still(pid) or None, what="a stopped agent")
    screen.type("fg > /dev/null")
    wait_for(lambda: not stands_still(pid) or None, what="an agent that goes on")
    (screen.night.work / "go").touch()
    wait_for(lambda: screen.night.ask("show", "t")["status"] == "done" or None, what="the end")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_headless_command_has_a_status_line_that_gives_way_to_what_it_prints(screen: NightScreen) -> None:
    go = screen.night.folder / "go"
    script = f"echo one; while [ ! -e {go} ]; do sleep 0.05; done; printf 'tw'; echo o; echo three >&2"
    screen.type(run_line("--task", "t", "--headless", "--", "sh", "-c", script))
    screen.see("outlast: t  attempt 1  beat 0  0:00:0")
    go.touch()
    screen.see("code=0")
    lines = [line.rstrip() for line in screen.text().splitlines()]
    assert {"one", "two", "three", "outlast: done"} <= set(lines)
    assert not any("attempt 1" in line for line in lines)
