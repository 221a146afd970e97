"""outlast is removed or replaced while a run is alive: the run works on, and nothing happens outside that is not on record."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast.core import events as ev
from outlast.supervisor.client import copy as client_copy, shim
from outlast.supervisor.guardian import lock
from tests.supervisor.hook_driver import MARK, POST, SIGNATURE, AttemptDies, after, before, hooked, minded
from tests.supervisor.installed import Installed
from tests.supervisor.upgraded import HOLD, Upgraded
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for
from tests.support.source import PACKAGE, Source, python_files
from tests.support.vaults import shown

CHANGES = [Installed.remove_package, Installed.replace_package, Installed.remove]
DIES_ONCE = "[ -e died ] || { touch died; kill -9 $PPID; }"

each_change = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)


@each_change
def test_a_live_agent_works_on_and_each_of_its_calls_is_on_record(
    upgraded: Upgraded, change: Callable[[Installed], None]
) -> None:
    agent = upgraded.scripted
    shells = [shell for shell in ("bash", "dash", "zsh") if shutil.which(shell)]
    loops = [upgraded.loop(shell) for shell in shells]
    agent.says(agent.posting("one"), HOLD, agent.posting("two"), "git status", *loops, agent.posting("last"))
    process = upgraded.start()
    change(upgraded.installed)
    upgraded.go_on()
    assert process.wait(TIMEOUT_S) == 0, upgraded.host.said("t")
    looped = [f"{shell}-{n}" for shell in shells for n in (1, 2)]
    upgraded.assert_all_recorded(["one", "two", *looped, "last"])
    assert upgraded.host.status("t") == "done"


@each_change
def test_a_live_supervisor_starts_its_agent_again(
    upgraded: Upgraded, change: Callable[[Installed], None]
) -> None:
    agent = upgraded.scripted
    agent.says(agent.posting("one"), HOLD, DIES_ONCE, agent.posting("two"), upgraded.loop("bash"))
    process = upgraded.start("--done", "test -e died")
    change(upgraded.installed)
    upgraded.go_on()
    assert process.wait(TIMEOUT_S) == 0, upgraded.host.said("t")
    upgraded.assert_all_recorded(["one", "two", "bash-1", "bash-2"])
    assert len([event for event in upgraded.host.events("t") if isinstance(event, ev.AttemptStarted)]) == 2


@each_change
def test_a_run_that_is_killed_after_it_goes_on_under_the_new_outlast(
    upgraded: Upgraded, change: Callable[[Installed], None]
) -> None:
    agent = upgraded.scripted
    hold = HOLD.replace("ready", "again").replace("go", "gone")
    agent.says(agent.posting("one"), HOLD, agent.posting("two"), hold, agent.posting("three"))
    process = upgraded.start()
    change(upgraded.installed)
    upgraded.go_on()
    wait_for(lambda: (agent.work / "again").exists() or None, what="the agent after the change")
    upgraded.host.kill_everything()
    process.wait(TIMEOUT_S)
    (agent.work / "gone").touch()
    assert agent.run() == 0, upgraded.host.said("t")
    upgraded.assert_all_recorded(["one", "two", "three"])


@each_change
def test_a_guardian_stops_the_agent_of_a_dead_supervisor_and_the_next_attempt_saves_its_files(
    upgraded: Upgraded, change: Callable[[Installed], None]
) -> None:
    """The guardian has the files saved by a process of what is installed: where that is gone, the next attempt does it."""
    agent, host = upgraded.scripted, upgraded.host
    agent.says(f"echo mine > mine.txt; {HOLD}", agent.posting("one"))
    process = upgraded.start()
    change(upgraded.installed)
    watcher = lock.of(host.store.local, host.summary("t").run)
    assert watcher is not None
    os.kill(watcher.supervisor, signal.SIGKILL)
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGKILL
    assert host.pids() == []
    upgraded.go_on()
    assert agent.run() == 0, host.said("t")
    upgraded.assert_all_recorded(["one"])
    saves = host("saves", "t", "--json", cwd=agent.work).json
    first = saves[-2]["commit"]  # the one after the beginning
    assert shown(agent.work, f"{first}:mine.txt") == b"mine\n", saves


@each_change
def test_the_last_words_of_an_agent_are_understood(
    upgraded: Upgraded, change: Callable[[Installed], None]
) -> None:
    """What limits sound like is read from a file of ours, when an agent has failed."""
    agent = upgraded.scripted
    agent.says(HOLD)
    source = agent.program.read_text()
    limited = "print('Claude AI usage limit reached|1999999999', flush=True); sys.exit(1)"
    agent.program.write_text(
        source.replace('    session.say({"type": "text"', f'    {limited}\n    session.say({{"type": "text"')
    )
    process = upgraded.start()
    change(upgraded.installed)
    upgraded.go_on()
    assert process.wait(TIMEOUT_S) == 5, upgraded.host.said("t")
    assert upgraded.host.status("t") == "parked"


# --- the command `outlast` in a script: a new client, an old supervisor -----------------------------------------------


def test_a_script_goes_on_with_the_command_of_a_new_version(upgraded: Upgraded) -> None:
    process = upgraded.start(command=upgraded.paying())
    upgraded.installed.upgrade()
    upgraded.go_on()
    assert process.wait(TIMEOUT_S) == 0, upgraded.host.said("t")
    assert upgraded.paid() == ["paid"]
    [intent] = [event for event in upgraded.host.events("t") if isinstance(event, ev.EffectIntended)]
    assert intent.name == "pay"


@pytest.mark.parametrize("gone", [False, True], ids=["newer_wire", "removed"])
def test_a_command_that_cannot_speak_to_the_supervisor_does_nothing(upgraded: Upgraded, gone: bool) -> None:
    process = upgraded.start("--restarts", "1", command=upgraded.paying())
    if gone:
        upgraded.installed.remove_package()
    else:
        upgraded.installed.upgrade(wire=2)
    upgraded.go_on()
    assert process.wait(TIMEOUT_S) != 0
    said = upgraded.host.said("t")
    assert upgraded.paid() == [], said
    assert not [event for event in upgraded.host.events("t") if isinstance(event, ev.EffectIntended)]
    if not gone:
        assert "error: one side of this run's socket is a newer outlast" in said
    upgraded.installed.upgrade(wire=2)
    assert upgraded.resume() == 0, upgraded.host.said("t")
    assert upgraded.paid() == ["paid"]


@pytest.mark.parametrize("change", [Installed.remove_package, Installed.upgrade], ids=["removed", "upgraded"])
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_keeper_of_a_script_lives_on(
    upgraded: Upgraded, shell: str, change: Callable[[Installed], None]
) -> None:
    """One that runs by itself: its keeper records its end with what it has loaded, and serves the new command."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    host, work = upgraded.host, upgraded.scripted.work
    pay = "outlast effect pay -- sh -c 'echo paid >> ledger'" if change is Installed.upgrade else ":"
    script = host.folder / "kept"
    begin = 'export OUTLAST_TASK=kept\neval "$(outlast shell-init)"'
    script.write_text(f"set -eu\n{begin}\noutlast step one -- true\n{HOLD}\n{pay}\n")
    process = upgraded.begin(shell, str(script))
    change(upgraded.installed)
    upgraded.go_on()
    assert process.wait(TIMEOUT_S) == 0, host.said("t")
    host.comes_to("kept", "done")
    assert upgraded.paid() == (["paid"] if change is Installed.upgrade else [])
    assert (work / "ready").exists()


@pytest.mark.parametrize("change", [Installed.remove_package, Installed.remove])
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_is_told_in_one_line_that_outlast_is_gone(
    upgraded: Upgraded, shell: str, change: Callable[[Installed], None]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    script = upgraded.host.folder / "kept"
    begin = 'export OUTLAST_TASK=kept\neval "$(outlast shell-init)"'
    script.write_text(f"set -eu\n{begin}\n{HOLD}\noutlast step two -- touch stepped\n")
    process = upgraded.begin(shell, str(script))
    said = upgraded.host.said("t")
    change(upgraded.installed)
    upgraded.go_on()
    assert process.wait(TIMEOUT_S) == shim.REFUSED
    told = upgraded.host.said("t").removeprefix(said)
    assert re.fullmatch(
        r"outlast: `outlast step` was not run, for outlast is not installed any more: \S+/outlast/__init__.py is gone\. "
        r"Install it, then start the script again\.\n",
        told,
    ), told
    assert not (upgraded.scripted.work / "stepped").exists()


def test_a_command_whose_modules_are_replaced_under_it_says_so_in_one_line(upgraded: Upgraded) -> None:
    (upgraded.installed.package / "cli" / "main.py").unlink()
    done = subprocess.run(
        [upgraded.installed.folder / "bin" / "outlast", "step", "a", "--", "true"], capture_output=True, text=True,
        env=upgraded.host.environ(PYTHONPATH=""), timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == shim.REFUSED
    [line] = done.stderr.splitlines()
    assert "install it again" in line


# --- what an agent of an earlier tree runs ------------------------------------------------------------------------------


def test_hooks_and_shims_that_name_the_clients_earlier_places_are_answered(tmp_path: Path) -> None:
    old = PACKAGE / "supervisor"
    real = tmp_path / "curl"
    real.write_text(f"#!/bin/sh\necho done >> {tmp_path}/witness\n")
    real.chmod(0o755)
    with minded(tmp_path) as there:
        told = [str(there.server.path), MARK]
        words = ["/bin/sh", str(old / "hook.sh"), sys.executable, *told, "claude"]
        assert hooked(words, before("claude", POST)).returncode == 0
        assert there.intended() == [(SIGNATURE, "tell")]
        assert there.ask(after("claude", POST))[0] == 0
        url = "http://host.test/x"
        words = [
            sys.executable,
            "-I",
            "-S",
            str(old / "shimming.py"),
            *told,
            "",
            "curl",
            str(real),
            "-fd",
            "x",
            url,
        ]
        assert hooked(words).returncode == 0
        assert there.intended()[1:] == [("POST host.test/x", "tell")]
        assert (tmp_path / "witness").read_text() == "done\n"
        raise AttemptDies


# Modules that a function loads, by file. Each is loaded before the command of an attempt is started, or not at all in a
# process that lives as long as a run does.
LATE = {
    "agents/registry.py": "the agent, by which the command is recognised, and with it `common.launch`",
    "core/text.py": "the masks, which the supervisor has loaded for what its command prints",
    "inspect/doctor.py": "a command of its own",
    "runs/beat.py": "for agents in Python, not under the supervisor",
    "runs/engine/claim.py": "at the claim, which comes first",
    "runs/reader.py": "loaded by `_load_rest` when the command has been started",
    "store/__init__.py": "the store is open by then",
    "store/credentials.py": "at the start of a command; later only for the address of a store that is open by then",
    "store/postgres/address.py": "its driver, when the store is opened, before the command is started",
    "store/postgres/place.py": "when the store is opened; `health` and `schema` are for commands of their own",
    "store/sqlite/place.py": "the store is open by then; `health` is for a command of its own",
    "supervisor/attempt/attempt.py": "before the command is started, and `_load_rest` itself",
    "supervisor/budget/check.py": "before the run is claimed",
    "supervisor/client/script.py": "as soon as the command is started",
    "supervisor/client/hook.py": "from the run's own copy",
    "supervisor/client/shim.py": "from the run's own copy",
    "supervisor/start.py": "the user's own classes, before the run is claimed",
    "supervisor/socket/script_calls.py": "the engine of a run, which is loaded",
    "agents/outward/rules.py": "a mistake in the user's own classes, which are read before the command is started",
    "agents/outward/alone.py": "from the run's own copy",
}
LIVES_LONG = (
    "agents",
    "core",
    "faults",
    "gateway",
    "inspect",
    "operations",
    "processes",
    "runs",
    "store",
    "supervisor",
    "workspace",
)


def test_what_lives_as_long_as_a_run_loads_nothing_of_ours_later() -> None:
    """Read from the source: a module that a function imports may be gone by then, or of another version."""
    found = {
        str(source.path.relative_to(PACKAGE))
        for source in python_files(PACKAGE)
        if source.place in LIVES_LONG
        for function in ast.walk(source.tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if _loads_ours(source, node)
    }
    assert found == set(LATE)


def _loads_ours(source: Source, node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith(("outlast", "alone"))
    if isinstance(node, ast.Import):
        return any(alias.name.startswith("outlast") for alias in node.names)
    return isinstance(node, ast.Call) and source.full_name(node.func) == "importlib.import_module"


def test_an_outlast_that_is_removed_while_it_starts_starts_no_agent(upgraded: Upgraded) -> None:
    """One whose hooks are gone would have none."""
    (upgraded.installed.package / client_copy.HOOK).unlink()
    upgraded.scripted.says(upgraded.scripted.posting("one"))
    assert upgraded.run() != 0
    assert "error: outlast is being removed or replaced" in upgraded.host.said("t")
    assert upgraded.scripted.performed() == []
    assert upgraded.scripted.responses() == 0
    assert upgraded.scripted.run() == 0, upgraded.host.said("t")
    upgraded.assert_all_recorded(["one"])
