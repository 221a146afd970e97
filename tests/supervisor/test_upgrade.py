"""outlast is removed or replaced while a run is alive: the run works on, and nothing happens outside that is not on record."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from outlast.agents.events import ToolEnd
from outlast.agents.outward import shims
from outlast.core import events as ev
from outlast.supervisor.agent import hook_input
from outlast.supervisor.agent.calls import outward
from outlast.supervisor.client import copy as client_copy, hook as client_hook, shim
from outlast.supervisor.guardian import lock
from tests.supervisor.hook_driver import LOCAL, MARK, POST, SIGNATURE, AttemptDies, after, before, minded
from tests.supervisor.host import Host
from tests.supervisor.installed import Installed
from tests.supervisor.scripted_agent import Scripted
from tests.supervisor.test_notify import keep, notices
from tests.support.environment import TIMEOUT_S, need_root, need_tool
from tests.support.processes import wait_for
from tests.support.source import PACKAGE, Source, python_files

CHANGES = [Installed.remove_package, Installed.replace_package, Installed.remove]
HOLD = "touch ready; until [ -e go ]; do sleep 0.02; done"
DIES_ONCE = "[ -e died ] || { touch died; kill -9 $PPID; }"

each_change = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)


class Upgraded:
    """The stand-in for Claude Code under an outlast that is changed when its agent holds."""

    def __init__(self, host: Host) -> None:
        self.scripted, self.host = Scripted(host), host
        self.installed = Installed(host.folder / "installed")

    def start(self, *options: str, command: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
        """Until the agent holds, or the command that is given instead."""
        command = command or [str(self.scripted.program), "-p", "do it"]
        return self.begin(*self._run(command, options))

    def run(self) -> int:
        """To its end."""
        return self._started(*self._run([str(self.scripted.program), "-p", "do it"])).wait(TIMEOUT_S)

    def _run(self, command: Sequence[str], options: Sequence[str] = ()) -> list[str]:
        return [*self._outlast, "run", "--task", "t", *options, "--", *command]

    def begin(self, *words: str) -> "subprocess.Popen[bytes]":
        """Until it holds."""
        process, ready = self._started(*words), self.scripted.work / "ready"
        wait_for(lambda: ready.exists() or process.poll() is not None, what="the agent")
        assert ready.exists(), self.host.said("t")
        return process

    def resume(self) -> int:
        """To its end, with what is installed now."""
        return self._started(*self._outlast, "resume", "t").wait(TIMEOUT_S)

    @property
    def _outlast(self) -> list[str]:
        return [str(self.installed.python), "-P", "-m", "outlast"]

    def _started(self, *words: str) -> "subprocess.Popen[bytes]":
        path = f"{self.installed.folder / 'bin'}:{os.environ['PATH']}"
        environ = self.host.environ(PATH=path, PYTHONPATH="")  # nothing but what is installed
        with open(self.host.folder / "t.said", "ab") as said:
            process = subprocess.Popen(
                words, cwd=self.scripted.work, env=environ, start_new_session=True, stdin=subprocess.DEVNULL,
                stdout=said, stderr=said,
            )  # fmt: skip
        self.host.started.append(process)
        return process

    def go_on(self) -> None:
        (self.scripted.work / "go").touch()

    def loop(self, shell: str) -> str:
        """A command that runs a script with two posts in a loop, which only shims can see."""
        path = self.scripted.work / f"loop.{shell}"
        posts = self.scripted.posting(f"{shell}-$n")
        path.write_text(f"for n in 1 2; do {posts}; done\n")
        return f"{shell} ./{path.name}"

    def paying(self) -> list[str]:
        """A script that pays once, after it was held."""
        path = self.host.folder / "paying.sh"
        pay = "outlast effect pay -- sh -c 'echo paid >> ledger'"
        path.write_text(f"set -eu\noutlast step one -- true\n{HOLD}\n{pay}\n")
        return ["sh", str(path)]

    def paid(self) -> list[str]:
        path = self.scripted.work / "ledger"
        return path.read_text().split() if path.exists() else []

    def assert_all_recorded(self, names: list[str]) -> None:
        """The world has seen each of them once, and each is on record with its outcome."""
        assert self.scripted.performed() == names, self.host.said("t")
        events = self.host.events("t")
        intents = [
            event for event in events if isinstance(event, ev.EffectIntended) and event.policy == "tell"
        ]
        confirmed = {(event.beat, event.n) for event in events if isinstance(event, ev.EffectConfirmed)}
        assert len(intents) == len(names), intents
        assert {(intent.beat, intent.n) for intent in intents} <= confirmed


@pytest.fixture
def upgraded(host: Host) -> Upgraded:
    return Upgraded(host)


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
    shown = subprocess.run(
        ["git", "show", f"{first}:mine.txt"], cwd=agent.work, capture_output=True, check=False
    )
    assert shown.stdout == b"mine\n", saves


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
        assert _hooked(words, before("claude", POST)).returncode == 0
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
        assert _hooked(words).returncode == 0
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
    "store/sqlite/place.py": "the store is open by then; `health` is for a command of its own",
    "supervisor/attempt/attempt.py": "before the command is started, and `_load_rest` itself",
    "supervisor/budget/check.py": "before the run is claimed",
    "supervisor/client/script.py": "as soon as the command is started",
    "supervisor/client/hook.py": "from the run's own copy",
    "supervisor/client/shim.py": "from the run's own copy",
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


# --- the copy itself --------------------------------------------------------------------------------------------------

# The state folder on a small disk of its own: a first run makes the store, then this much is left.
FULL = """
mount -t tmpfs -o size=6m none "$1" && "$2" -m outlast run --task x -- true || exit 99
head -c "$3" /dev/zero > "$1/spare"; cat /dev/zero > "$1/fill" 2> /dev/null; rm "$1/spare"
"$2" -m outlast run --task t -- "$4" -p x; code=$?
find "$1" -path '*/client/*' > "$5"
rm "$1/fill"
"$2" -m outlast run --task t -- "$4" -p x && exit $code
"""


@pytest.mark.parametrize("left_kib", [120, 180])
def test_a_disk_with_no_room_for_the_copy_starts_no_agent_and_keeps_nothing_of_it(
    host: Host, left_kib: int
) -> None:
    need_root()
    agent, left = Scripted(host), host.folder / "left"
    agent.says(agent.posting("one"))
    place = str(host.isolated.state_home)
    words = [place, sys.executable, str(left_kib << 10), str(agent.program), str(left)]
    done = subprocess.run(
        [need_tool("unshare"), "--mount", "sh", "-c", FULL, "sh", *words],
        cwd=agent.work, env=host.environ(), capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    said = done.stderr.decode()
    assert done.returncode == 3, said
    assert re.search("is full(: nothing is begun)?; make room, then start again", said), said
    assert "unexpected" not in said
    assert left.read_text() == ""
    assert agent.performed() == ["one"], "when there was room"


def test_an_attempt_removes_what_a_kill_left_half_made_and_the_copies_of_another_outlast(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "client"
    copy = client_copy.place(folder)
    for name in (f".{copy.name}.1", f".{copy.name}.damaged.1", "0123456789abcdef"):
        (folder / name / "supervisor").mkdir(parents=True)
    (copy / client_copy.SHIM).write_text("")
    assert client_copy.place(folder) == copy
    assert list(folder.iterdir()) == [copy]
    assert (copy / client_copy.SHIM).read_bytes() == client_copy.contents()[client_copy.SHIM]


def test_the_copy_is_its_owners_alone(tmp_path: Path) -> None:
    before_mask = os.umask(0)
    try:
        copy = client_copy.place(tmp_path / "client")
    finally:
        os.umask(before_mask)
    modes = {path: path.stat().st_mode & 0o777 for path in (copy.parent, copy, *copy.rglob("*"))}
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}


@pytest.mark.parametrize("ends", ["done", "cancelled"])
def test_a_run_that_is_over_holds_no_copy(upgraded: Upgraded, ends: str) -> None:
    upgraded.scripted.says(HOLD)
    process, folder = upgraded.start(), upgraded.host.root / "runs"
    assert list(folder.glob("*/client/*"))
    if ends == "done":
        upgraded.go_on()
    else:
        assert upgraded.host("cancel", "t", cwd=upgraded.scripted.work).code == 0
    process.wait(TIMEOUT_S)
    assert upgraded.host.status("t") == ends, upgraded.host.said("t")
    assert not list(folder.glob("*/client"))


# --- a hook denies where what it runs is gone, whichever shell is /bin/sh ---------------------------------------------


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh"])
@pytest.mark.parametrize("gone", ["copy", "client", "python"])
def test_a_hook_without_its_files_denies_in_one_line(tmp_path: Path, shell: str, gone: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    (tmp_path / "sh").symlink_to(
        shutil.which(shell) or ""
    )  # named `sh`, each of them is as strict as it can be
    copy = client_copy.place(tmp_path / "client")
    words = list(outward.hook_words(copy, str(tmp_path / "nobody"), MARK, "claude"))
    words[0] = str(tmp_path / "sh")
    assert _hooked(words).returncode == 0, "it is a local call, and its hook is whole"
    if gone == "python":
        words[words.index(client_copy.interpreter())] = str(tmp_path / "python")
    elif gone == "client":
        (copy / client_copy.HOOK).with_suffix(".py").unlink()
        shutil.rmtree((copy / client_copy.HOOK).with_name("__pycache__"), ignore_errors=True)
    else:
        shutil.rmtree(copy)
    done = _hooked(words)
    assert done.returncode == client_hook.DENIED
    [line] = done.stderr.decode().splitlines()[-1:]
    assert hook_input.OURS.search(line), "the supervisor knows these words: such a call was not made"


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh"])
@pytest.mark.parametrize("gone", ["client", "python"])
def test_a_shim_without_its_files_runs_nothing_that_may_reach_outside(
    tmp_path: Path, shell: str, gone: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    real = tmp_path / "curl"
    real.write_text(f"#!/bin/sh\necho done >> {tmp_path}/witness\n")
    real.chmod(0o755)
    needed = {"python": client_copy.interpreter(), "client": __file__} | {gone: str(tmp_path / "gone")}
    script = tmp_path / "shim"
    script.write_text(shims.shim_script("curl", str(real), needed["python"], needed["client"]))
    done = subprocess.run([shell, script, "-d", "x", "http://host.test"], capture_output=True, check=False)
    assert done.returncode == shim.REFUSED
    assert (
        done.stderr.decode()
        == f"outlast: `curl` was not run: it is not on record, for {tmp_path}/gone is gone\n"
    )
    assert not (tmp_path / "witness").exists()
    assert subprocess.run([shell, script, "http://host.test"], check=False).returncode == 0, "it only reads"
    assert (tmp_path / "witness").exists()


@pytest.mark.parametrize("left", [0.0, 0.5, 0.9, "all but its last line"])
def test_a_shim_whose_client_was_cut_off_runs_nothing_that_may_reach_outside(
    tmp_path: Path, left: float | str
) -> None:
    """Run as a program, an emptied file would exit with 0: the call would count as made."""
    client = client_copy.place(tmp_path / "client") / client_copy.SHIM
    whole = client.read_text()
    lines = whole.splitlines(keepends=True)
    kept = lines[:-1] if isinstance(left, str) else lines[: int(len(lines) * left)]
    client.write_text("".join(kept))
    script = tmp_path / "shim"
    words = [client_copy.interpreter(), str(client)]
    script.write_text(shims.shim_script("curl", "/bin/true", *words, given=("/nobody", MARK, "")))
    done = _hooked(["sh", str(script), "-d", "x", "http://host.test"])
    assert done.returncode == shim.REFUSED
    assert (
        done.stderr.decode() == f"outlast: `curl` was not run: it is not on record, for {client} is damaged\n"
    )
    client.write_text(whole)
    done = _hooked(["sh", str(script), "-d", "x", "http://host.test"])
    assert b"no supervisor listens on /nobody" in done.stderr


def test_a_shim_whose_classes_were_cut_off_asks_the_supervisor(tmp_path: Path) -> None:
    """A rule that is missing would let the call pass as one that stays here."""
    copy = client_copy.place(tmp_path / "client")
    classes = copy / "agents/outward/classes.toml"
    whole = classes.read_text()
    classes.write_text(whole[: whole.rindex("[[outward]]", 0, whole.index('"curl"'))])
    script = tmp_path / "shim"
    words = [client_copy.interpreter(), str(copy / client_copy.SHIM)]
    script.write_text(shims.shim_script("curl", "/bin/true", *words, given=("/nobody", MARK, "")))
    done = _hooked(["sh", str(script), "-d", "x", "http://host.test"])
    assert done.returncode == shim.REFUSED
    assert b"no supervisor listens on /nobody" in done.stderr


def _hooked(words: list[str], data: bytes = before("claude", LOCAL)) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(words, input=data, capture_output=True, timeout=TIMEOUT_S, check=False)


# --- the copy itself is damaged while its agent lives -----------------------------------------------------------------


def _copied(folder: Path, name: str) -> Path:
    [path] = folder.glob(f"**/client/*/{name}")
    return path


def test_a_person_is_told_once_what_to_do_when_hooks_have_lost_what_they_run(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        there.start()
        shutil.rmtree(_copied(tmp_path / "store", client_copy.HOOK).parents[2])
        for call in ("call_1", "call_2"):
            assert there.allows(before("claude", POST, call))
            there.take(
                ToolEnd(
                    call,
                    False,
                    "outlast did not put this call on record: its hook is gone. Nothing was done.",
                )
            )
        [said] = [line for line in there.said if "denied" in line]
        run = there.run.id
        assert f"`outlast pause {run}`, then `outlast resume {run}`" in said
        [warned] = [event for event in there.run.journal.events("warned") if isinstance(event, ev.Warned)]
        assert warned.text == said
        raise AttemptDies


def test_a_copied_file_that_was_changed_is_noticed_at_the_end_of_the_beat(host: Host) -> None:
    place, agent = keep(host), Scripted(host)
    changed = f"{host.root}/runs/*/client/*/agents/outward/alone.py"
    agent.says(f"for file in {changed}; do sed -i '1a # more' $file; done", HOLD)
    process = agent.start()
    wait_for(lambda: (agent.work / "ready").exists() or None, what=f"the agent: {host.said('t')}")
    shown = host("show", "t", cwd=agent.work).out
    [line] = [line for line in shown.splitlines() if line.strip().startswith("denied ")]
    run = host.summary("t").run
    assert "alone.py was changed" in line
    assert f"`outlast pause {run}`, then `outlast resume {run}`" in line
    assert "alone.py was changed" in host("log", "t", cwd=agent.work).out
    (told,) = notices(place, 1)
    assert told["what"] == "needs a person"
    assert "alone.py was changed" in told["why"]
    (agent.work / "go").touch()
    assert process.wait(TIMEOUT_S) == 0, host.said("t")
    assert "denied " not in host("show", "t", cwd=agent.work).out
