"""At a real terminal, in tmux: the command owns it, and it comes back as it was, whatever happened."""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.night import Night, outlast
from tests.support.environment import need_tool
from tests.support.processes import wait_for

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


class Screen:
    """A shell in a terminal of its own."""

    def __init__(self, night: Night) -> None:
        self._tmux = [need_tool("tmux"), "-S", str(night.folder / "tmux"), "-f", "/dev/null"]
        self.night = night
        environ = night.environ() | {"PS1": "ready> ", "TERM": "xterm-256color", "HISTFILE": "/dev/null"}
        self._run(
            "new-session", "-d", "-x", "120", "-y", "40", "-c", str(night.work), "bash", "--norc", "--noprofile", env=environ,
        )  # fmt: skip
        self.see("ready>")

    def _run(self, *words: str, env: dict[str, str] | None = None) -> str:
        return subprocess.run(
            [*self._tmux, *words], env=env, capture_output=True, text=True, check=True
        ).stdout

    def keys(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def type(self, line: str) -> None:
        self._run("send-keys", "-l", line)
        self.keys("Enter")

    def text(self) -> str:
        return self._run("capture-pane", "-p", "-J")

    def see(self, text: str, times: int = 1) -> None:
        wait_for(
            lambda: self.text().count(text) >= times or None, what=f"{text!r} on the screen:\n{self.text()}"
        )

    def modes(self) -> str:
        """What the terminal is set to, as its shell sees it."""
        path = self.night.folder / "modes"
        path.unlink(missing_ok=True)
        self.type(f"stty -g > {path}.new; mv {path}.new {path}")
        return wait_for(lambda: path.read_text() if path.exists() else None, what="the modes")

    def resize(self, columns: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", "40")

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)


@pytest.fixture
def screen(night: Night) -> Iterator[Screen]:
    made = Screen(night)
    try:
        yield made
    finally:
        made.close()


def run_line(*words: str) -> str:
    return shlex.join(outlast("run", *words)) + "; echo code=$?"


def test_an_interactive_command_owns_the_terminal(screen: Screen) -> None:
    before = screen.modes()
    screen.type(run_line("--task", "t", "--", "cat"))
    screen.see("-- cat")
    screen.type("hello there")
    screen.see("hello there", times=2)
    screen.keys("C-d")
    screen.see("code=0")
    assert screen.modes() == before


def test_ctrl_c_ends_it_as_without_us_and_nothing_starts_it_again(screen: Screen) -> None:
    before = screen.modes()
    screen.type(run_line("--task", "t", "--", "cat"))
    screen.type("hello")
    screen.see("hello", times=2)
    screen.keys("C-c")
    screen.see("code=130")
    assert screen.modes() == before
    assert screen.night.ask("show", "t")["status"] == "interrupted"


def test_ctrl_z_gives_the_shell_back_and_fg_goes_on(screen: Screen) -> None:
    before = screen.modes()
    screen.type(run_line("--task", "t", "--", "cat"))
    screen.type("hello")
    screen.see("hello", times=2)
    screen.keys("C-z")
    screen.see("Stopped")
    assert screen.modes() == before
    screen.type("fg > /dev/null")
    screen.type("back again")
    screen.see("back again", times=2)
    screen.keys("C-d")
    wait_for(lambda: screen.night.ask("show", "t")["status"] == "done" or None, what="the end")
    assert screen.modes() == before


@pytest.mark.parametrize("killed", ["agent", "supervisor"])
def test_a_killed_full_screen_agent_leaves_the_terminal_as_it_was(screen: Screen, killed: str) -> None:
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


def test_it_learns_of_a_new_size(screen: Screen) -> None:
    script = "import os, signal; signal.signal(signal.SIGWINCH, lambda *_: print(os.get_terminal_size(0))); print('w' + 'aits'); input()"
    screen.type(run_line("--task", "t", "--", need_tool("python3"), "-uc", script))
    screen.see("waits")
    screen.resize(77)
    screen.see("columns=77, lines=40")
    screen.keys("Enter")
    screen.see("code=0")


def test_a_headless_command_at_a_terminal_is_saved_and_stopped_by_ctrl_c(screen: Screen) -> None:
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


def test_a_headless_command_stops_and_goes_on_with_its_job(screen: Screen) -> None:
    script = "echo $$ > pid; echo star''ted; while [ ! -e go ]; do sleep 0.01; done"
    screen.type(run_line("--task", "t", "--headless", "--", "sh", "-c", script))
    screen.see("started")
    pid = int((screen.night.work / "pid").read_text())
    screen.keys("C-z")
    screen.see("Stopped")
    wait_for(lambda: _state(pid) == "T" or None, what="a stopped agent")
    screen.type("fg > /dev/null")
    wait_for(lambda: _state(pid) != "T" or None, what="an agent that goes on")
    (screen.night.work / "go").touch()
    wait_for(lambda: screen.night.ask("show", "t")["status"] == "done" or None, what="the end")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
