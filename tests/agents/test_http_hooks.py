"""Claude Code's hooks by HTTP, with the real program: whatever its server does, only an answer lets a call pass."""

import contextlib
import itertools
import json
import os
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.agents.claude import provider
from outlast.agents.claude.agent import agent as claude
from outlast.agents.claude.cli import FILE_TOOLS
from outlast.agents.values import AgentCommand, Ask, HttpHook
from outlast.supervisor.agent.hook_input import OURS
from outlast.supervisor.socket.delivery import Delivery
from outlast.supervisor.socket.http_hooks import HttpHooks
from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld, need
from tests.agents.hook_log import HookLog, run
from tests.agents.script import Call, Script, Step, bash, write
from tests.support.environment import need_root
from tests.support.processes import kill_group, wait_for

pytestmark = pytest.mark.slow
ME = claude()
SKIP = "--dangerously-skip-permissions"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
ANSWERS: dict[str, bytes | None] = {
    "nobody": None,
    "hangs": b"",
    "closes": b"",
    "cut short": OK + b"900\r\n\r\n{",
    "garbage": b"\x00\xff garbage\r\n\r\n",
    "no JSON": OK + b"5\r\n\r\nhello",
    "500": b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n{}",
    "403": b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\n{}",
    "elsewhere": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 2\r\n\r\n{}",
}


@contextlib.contextmanager
def serving(how: str, connections: list[socket.socket] | None = None) -> Iterator[tuple[str, list[bytes]]]:
    """A server that treats hooks before a call like this, and any other hook well. Its address, and what it was sent.

    `connections` gets those that were made.
    """
    listening, told = socket.create_server(("127.0.0.1", 0)), list[bytes]()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/outlast-hook"
    ends = threading.Event()

    def serve(there: socket.socket) -> None:
        with there, contextlib.suppress(OSError):
            data = b""
            while chunk := there.recv(1 << 16):
                data += chunk
                head, found, body = data.partition(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                if not found or len(body) < size:
                    continue
                told.append(data)
                answer, data = ANSWERS.get(how), b""
                if b'"PreToolUse"' not in body or answer is None:
                    there.sendall(OK + b"2\r\n\r\n{}")
                    continue
                there.sendall(answer)
                if how in ("hangs", "cut short"):
                    ends.wait(60)
                return

    def accept() -> None:
        for _ in itertools.count():
            try:
                there, _ = listening.accept()
            except OSError:
                return
            if connections is not None:
                connections.append(there)
            threading.Thread(target=serve, args=(there,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    if how == "nobody":
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
    try:
        yield address, told
    finally:
        ends.set()
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def asked(world: AgentWorld, version: str, address: str, *words: str, **more: str) -> Ask:
    tool = need("claude", version)
    folder = world.folder / "private"
    folder.mkdir(exist_ok=True)
    log = HookLog(world.folder)
    return Ask(
        words=(*tool.command, "-p", "do it", SKIP, *words), environment=world.environment(tool) | more, cwd=world.work,
        folder=folder, hook=log.command, by_http=HttpHook(address, "X-Outlast-Secret", "a-secret"),
    )  # fmt: skip


def launched(ask: Ask) -> AgentCommand:
    command = ME.cli.launch(ask)
    assert command is not None
    return command


@pytest.fixture
def script(world: AgentWorld) -> None:
    calls = (
        bash("touch made"),
        write("written.txt", "x"),
        Call("Read", {"file_path": str(world.work / "written.txt")}),
    )
    world.model.script = Script([Step("One.", calls), Step("Done.")])


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize("how", ANSWERS)
def test_only_an_answer_lets_a_call_pass(
    world: AgentWorld, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_TIMING", "agents.http_hook_s=2")
    with contextlib.ExitStack() as stack:
        address, _ = world.inside(lambda: stack.enter_context(serving(how)))
        ask = asked(world, "2.1.325", address)
        command = launched(ask)
        assert command.by_http
        done = run(world, command.command, ask)
        assert done.returncode == 0, done.stderr
    assert not (world.work / "made").exists()
    assert (world.work / "written.txt").exists(), "no hook runs before what touches only files"
    told = json.dumps(world.model.requests()[-1].body)
    assert "blocking because onFailure" in told
    path = ME.transcript.find(command.session, ask)
    assert path is not None
    ends = [event for line in path.read_bytes().splitlines() for event in ME.transcript.parse(line)]
    denied = [event for event in ends if getattr(event, "ok", True) is False]
    assert [bool(OURS.search(getattr(event, "output", ""))) for event in denied] == [True]


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize("proxy", [False, True])
def test_hooks_of_a_session_come_on_one_connection_also_where_a_proxy_is_set(
    world: AgentWorld, proxy: bool
) -> None:
    nowhere = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"} if proxy else {}
    made: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        address, told = world.inside(lambda: stack.enter_context(serving("well", made)))
        ask = asked(world, "2.1.325", address, **nowhere)
        command = launched(ask)
        ask = Ask(
            words=ask.words,
            environment=dict(ask.environment) | command.environment,
            cwd=ask.cwd,
            folder=ask.folder,
        )
        done = run(world, command.command, ask)
        assert done.returncode == 0, done.stderr
    assert (world.work / "made").exists()
    bodies = [json.loads(each.partition(b"\r\n\r\n")[2]) for each in told]
    before = [each["tool_name"] for each in bodies if each["hook_event_name"] == "PreToolUse"]
    assert before == ["Bash"]
    assert len(made) == 1
    assert all(b"X-Outlast-Secret: a-secret" in each for each in told)
    assert "a-secret" not in " ".join(command.command), "every user can read a command line"
    settings = Path(command.command[command.command.index("--settings") + 1])
    assert stat.S_IMODE(os.stat(settings).st_mode) == 0o600
    assert (world.folder / "hooks.log").exists() is False, "no process was started for a hook"


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize(
    ("version", "theirs"),
    [
        ("2.1.197", {}),
        ("2.1.325", {"allowedHttpHookUrls": []}),
        ("2.1.325", {"allowedHttpHookUrls": ["http://127.0.0.1:*"]}),
        ("2.1.325", {"env": {"HTTP_PROXY": "http://127.0.0.1:9"}}),
        ("2.1.325", {"sandbox": {"enabled": True}}),
    ],
)
def test_where_hooks_by_http_may_not_reach_us_the_command_hook_stays(
    world: AgentWorld, version: str, theirs: dict[str, object]
) -> None:
    settings = world.home / ".claude/settings.json"
    settings.parent.mkdir(exist_ok=True)
    known = json.loads(settings.read_text()) if settings.exists() else {}
    settings.write_text(json.dumps(known | theirs))
    with contextlib.ExitStack() as stack:
        address, told = world.inside(lambda: stack.enter_context(serving("well")))
        ask = asked(world, version, address)
        command = launched(ask)
        assert not command.by_http
        if "env" in theirs:  # the scripted model is behind that proxy as well
            return
        assert run(world, command.command, ask).returncode == 0
    assert told == []
    names = [json.loads(each).get("tool_name") for each in HookLog(world.folder).inputs()]
    assert {"Bash", "Write", "Read"} <= set(names)


def test_a_tool_that_nobody_knows_has_a_hook() -> None:
    import re

    from outlast.agents.claude.cli import other_than

    for name in ("Bash", "mcp__x__Read", "ReadMcpResource", "WebFetch", "Agent", "read", "Writes", "New", ""):
        assert re.search(other_than(FILE_TOOLS), name), name
    for name in FILE_TOOLS:
        assert not re.search(other_than(FILE_TOOLS), name), name


@pytest.mark.parametrize("agent", ["claude"])
def test_no_process_is_started_for_a_hook(world: AgentWorld, agent: str) -> None:
    """And the secret of the run is in nobody's command line."""
    held = bash("touch held; while [ -e held ]; do sleep 0.05; done")
    world.model.script = Script([Step("One.", (held,)), Step("Done.")])
    under = Under(world, agent)
    process = under.start()
    flag = world.work / "held"
    wait_for(flag.exists, what="the call", limit_s=60)
    settings = [json.loads(path.read_text()) for path in world.home.rglob("claude-settings.json")]
    secrets = {
        hook["headers"]["X-Outlast-Secret"]
        for each in settings
        for hook in each["hooks"]["PreToolUse"][0]["hooks"]
    }
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _is_there(path)]
    assert len(secrets) == 1
    assert not any(secret.encode() in line for secret in secrets for line in lines)
    flag.unlink()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said.decode()


def _is_there(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


MANAGED = {
    "no address": {"allowedHttpHookUrls": []},
    "another address": {"allowedHttpHookUrls": ["https://hooks.example.org/*"]},
    "their own hooks": {"allowManagedHooksOnly": True},
    "plugins": {"strictPluginOnlyCustomization": ["hooks"]},
    "none": {"disableAllHooks": True},
}
# Puts a folder over /etc, for this process and those below it.
OVERLAID = (
    'mount -t tmpfs none "$1" && mkdir "$1/over" "$1/work" && cp -R "$2" "$1/over/claude-code" && '
    'mount -t overlay none -o "lowerdir=/etc,upperdir=$1/over,workdir=$1/work" /etc && shift 2 && exec "$@"'
)


@pytest.mark.parametrize(
    ("what", "where"),
    [
        ("no address", "managed-settings.json"),
        *((what, "managed-settings.d/10-hooks.json") for what in MANAGED),
    ],
)
def test_under_managed_settings_the_command_hook_stays_or_it_is_said_that_there_is_none(
    world: AgentWorld, what: str, where: str
) -> None:
    need_root()
    managed, over = world.folder / "managed", world.folder / "over"
    (managed / where).parent.mkdir(parents=True)
    over.mkdir()
    (managed / where).write_text(json.dumps(MANAGED[what]))
    world.model.script = Script([Step("One.", (bash("touch made"),)), Step("Done.")])
    under = Under(world, "claude", "2.1.325")
    words = under.outlast("run", "--task", "t", "--", *under.words())
    overlaid = ["unshare", "--mount", "sh", "-c", OVERLAID, "sh", str(over), str(managed), *words]
    process = world.begin(overlaid, env=under.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said.decode()
    assert (world.work / "made").exists(), "a hook that may not reach us denies"
    assert (b"calls are seen by shims and afterwards only" in said) == ("address" not in what), said.decode()
    settings = [json.loads(path.read_text()) for path in world.home.rglob("claude-settings.json")]
    assert [each["hooks"]["PreToolUse"][0]["hooks"][0]["type"] for each in settings] == ["command"]


def test_what_an_organisation_said_last_counts_as_managed(tmp_path: Path) -> None:
    folder = tmp_path / ".claude"
    folder.mkdir()
    environment = {"HOME": str(tmp_path)}
    for given, forbids in (
        ({}, (False, False)),
        ({"allowedHttpHookUrls": []}, (True, False)),
        ({"strictPluginOnlyCustomization": ["skills"]}, (False, False)),
        ({"strictPluginOnlyCustomization": False}, (False, False)),
        ({"strictPluginOnlyCustomization": "what is this"}, (False, True)),
        ({"allowManagedHooksOnly": True}, (False, True)),
    ):
        (folder / provider.FETCHED).write_text(json.dumps(given))
        login = provider.ClaudeLogin((), environment, tmp_path)
        assert (provider.forbids_http(login), bool(provider.forbids_hooks(login))) == forbids, given
    (folder / provider.FETCHED).unlink()
    (folder / "settings.json").write_text('{"allowManagedHooksOnly": true}')
    assert not provider.forbids_hooks(provider.ClaudeLogin((), environment, tmp_path)), (
        "it is no user's to say"
    )


def test_of_managed_settings_all_files_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "MANAGED", tmp_path / "managed-settings.json")
    more = tmp_path / "managed-settings.d"
    more.mkdir()
    (tmp_path / "managed-settings.json").write_text(
        '{"allowManagedHooksOnly": true, "env": {"A": "1", "B": "1"}}'
    )
    (more / "20.json").write_text('{"env": {"A": "3"}}')
    (more / "10.json").write_text(
        '{"allowManagedHooksOnly": false, "allowedHttpHookUrls": [], "env": {"A": "2"}}'
    )
    (more / ".hidden.json").write_text('{"disableAllHooks": true}')
    (more / "30.txt").write_text('{"disableAllHooks": true}')
    login = provider.ClaudeLogin((), {"HOME": str(tmp_path)}, tmp_path)
    assert provider.forbids_http(login)
    assert not provider.forbids_hooks(login)
    assert {name: login.environment[name] for name in "AB"} == {"A": "3", "B": "1"}


STARTED_BY_NODE = """
const child = require("child_process").spawn("sleep", ["600"], {stdio: "inherit"});
require("fs").writeFileSync("started", String(child.pid));
"""


def test_an_agent_that_node_starts_has_its_port_too(tmp_path: Path) -> None:
    """As Claude Code's npm package does."""
    node = need("kimi-code").environment["PATH"].split(":")[0] + "/node"
    hooks = HttpHooks(Unasked())
    process = subprocess.Popen(
        [node, "-e", STARTED_BY_NODE], cwd=tmp_path, pass_fds=(hooks.fileno(),), start_new_session=True
    )
    try:
        wait_for(
            lambda: (tmp_path / "started").exists() and (tmp_path / "started").read_text(),
            what="a child of node",
        )
        held = f"socket:[{os.fstat(hooks.fileno()).st_ino}]"
        places = Path(f"/proc/{(tmp_path / 'started').read_text()}/fd").iterdir()
        assert held in [os.readlink(place) for place in places]
    finally:
        kill_group(process)
        hooks.close()


class Unasked:
    """Is asked nothing."""

    def hook(self, data: bytes, delivery: Delivery) -> tuple[bytes, int]:
        raise AssertionError("nobody asks")

    def look_at_answers(self) -> None: ...
    def try_to_note_begun(self) -> None: ...
