"""Apart: what nobody watches keeps our own words and nothing else, and says what to type next."""

import shlex
import subprocess
import sys
from pathlib import Path

from outlast.supervisor.launch import background
from tests.supervisor.supervised_command import Night, outlast
from tests.support import commands
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

KEY = "sk-ant-api03-" + "a1B2" * 24
OWN = "hunter2-of-the-database"


def said(night: Night, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return commands.run(
        outlast(*words), cwd=night.work, env=night.environ() | more, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def loud(night: Night) -> list[str]:
    """A command that prints two secrets, something that steers a terminal, and much; and fails."""
    path = night.folder / "loud.py"
    path.write_text(
        f"import sys\nfor out in (sys.stdout, sys.stderr):\n    print('\\033]0;x\\007', {KEY!r}, {OWN!r}, file=out)\n"
        "    out.write('x' * 99 + '\\n')\n"
        "print('y' * 3_000_000)\nsys.exit(1)\n"
    )
    return [sys.executable, str(path)]


def kept(night: Night) -> list[Path]:
    return [path for path in (night.isolated.state_home / "outlast/runs").rglob("*") if path.is_file()]


def has_failed(night: Night) -> bool:
    return bool(night.ask("show", "t")["status"] == "failed")


def test_what_a_detached_command_prints_is_in_its_log_alone_masked_and_harmless(night: Night) -> None:
    folder = night.isolated.config_home / "outlast"
    folder.mkdir()
    (folder / "env").write_text(f"DB_PASSWORD='{OWN}'\nSHORT=x\n")
    (folder / "env").chmod(0o600)
    assert (
        said(night, "run", "--task", "t", "--restarts", "1", "--detach", "--", *loud(night)).returncode == 0
    )
    wait_for(lambda: has_failed(night) or None, what="its end")
    assert said(night, "resume", "t", "--detach").returncode == 0
    wait_for(lambda: len(night.attempts()) >= 4 or None, what="its second end")
    wait_for(lambda: has_failed(night) or None, what="its second end")
    for path in kept(night):
        data = path.read_bytes()
        assert KEY.encode() not in data, path
        assert OWN.encode() not in data, path
        assert b"\x1b" not in data, path
    [words] = [path for path in kept(night) if path.name == "supervisor.log"]
    assert b"exited with 1" in words.read_bytes()
    assert words.stat().st_size < 4_000
    assert not [path for path in kept(night) if path.name.startswith("detached-")]
    shown = said(night, "output", "t").stdout
    assert "[masked:DB_PASSWORD]" in shown
    assert "xxxx" in shown


def test_words_that_became_many_are_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "supervisor.log"
    log.write_bytes(b"x" * (background.LOG_BYTES_MAX + 1))
    background.spawn(["true"], log).wait()
    assert log.stat().st_size == 0
    assert background.earlier(log).stat().st_size == background.LOG_BYTES_MAX + 1


def test_what_it_says_to_type_next_leads_to_the_same_store(night: Night) -> None:
    store = str(night.folder / "an other")
    agent = [sys.executable, "-P", str(night.folder / "agent.py"), str(night.folder)]
    started = said(night, "--store", store, "run", "--task", "t", "--detach", "--", *agent)
    night.ready(1)
    typed = f"outlast --store {shlex.quote(store)} "
    assert f"{typed}output t -f" in started.stdout
    assert f"{typed}kill t" in started.stdout
    killed = said(night, "--store", store, "kill", "t")
    assert f"`{typed}saves t`" in killed.stdout
    assert f"`{typed}resume t`" in killed.stderr
    resumed = said(night, "--store", store, "resume", "t", "--detach")
    night.ready(2)
    look, stop = resumed.stdout.splitlines()
    assert look.startswith(f"{typed}output ")
    words = shlex.split(stop)
    assert words[:3] == ["outlast", "--store", store]
    assert said(night, *words[1:]).returncode == 0
