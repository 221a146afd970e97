"""kimi-cli, against recorded lines, tables and the real program."""

import json
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path

import pytest

from outlast.agents.common import versions
from outlast.agents.events import BatchEnd, Response, Retry, Text, ToolEnd, ToolStart, UsageReport
from outlast.agents.kimi.cli.agent import AGENT, agent as kimi_cli
from outlast.agents.kimi.cli.cli import HOOKED
from outlast.agents.kimi.cli.transcript import last_step
from outlast.agents.values import Answer, Cut
from outlast.core import values
from outlast.errors import UsageError
from tests.agents import checks
from tests.agents.agent_world import AgentWorld, need
from tests.agents.checks import RAW, UUID, ask, launched, lines, mark
from tests.agents.script import Script

ME = kimi_cli(fresh_id=lambda: UUID)
WIRE = "kimi-cli-1.51.0-wire.jsonl"


@pytest.mark.parametrize(
    ("line", "program", "is_it"),
    [
        ("kimi-cli --print -p x", "/usr/bin/kimi-cli", True),
        ("uvx kimi-cli@1.51.0 --print -p x", "/usr/bin/uvx", True),
        ("uvx --from kimi-cli==1.51.0 kimi --print -p x", "/usr/bin/uvx", True),
        ("uvx --python 3.13 kimi-cli", "/usr/bin/uvx", True),
        ("uv tool run kimi-cli", "/usr/bin/uv", True),
        ("pipx run kimi-cli", "/usr/bin/pipx", True),
        ("python3.13 -m kimi_cli --print", "/usr/bin/python3.13", True),
        ("kimi -p x", "/usr/bin/kimi", False),
        ("kimi-cli --version", "/usr/bin/kimi-cli", False),
        ("kimi-cli acp", "/usr/bin/kimi-cli", False),
        ("uvx ruff kimi-cli", "/usr/bin/uvx", False),
        ("python -m kimi", "/usr/bin/python", False),
    ],
)
def test_it_is_known_by_its_command_and_nothing_else_is(line: str, program: str, is_it: bool) -> None:
    assert ME.cli.detect(line.split(), program) is is_it


def test_a_program_called_kimi_is_this_one_when_python_runs_it(tmp_path: Path) -> None:
    script = tmp_path / "kimi"
    script.write_text("#!/home/me/tools/kimi-cli/bin/python3\nimport sys\n")
    assert ME.cli.detect(["kimi", "-p", "x"], str(script))


def test_the_empty_release_is_named_with_the_version_to_install() -> None:
    assert "kimi-cli==1.51.0" in versions.problem(ME.release, "1.52.0")
    assert "kimi-cli==1.51.0" in versions.problem(ME.release, "1.53")
    assert (
        versions.problem(ME.release, "1.51.0")
        == versions.untested(ME.release, "1.51.0")
        == versions.problem(ME.release, "")
        == ""
    )
    assert "too old" in versions.problem(ME.release, "0.9")


@pytest.mark.parametrize(
    ("line", "more", "command"),
    [
        ("kimi --print -p x", {}, f"kimi --print -p x --session {UUID}"),
        ("kimi --print -c x -r mine", {}, "kimi --print -c x -r mine"),
        ("kimi -C --print -p x", {}, "kimi -C --print -p x"),
        ("kimi --print -p x -S old", {"prompt": "all"}, f"kimi --print --session {UUID} --prompt=all"),
        ("kimi --quiet -p x", {"session": mark("kimi-cli"), "prompt": "-on"}, f"kimi --quiet --session {UUID} --prompt=-on"),
        ("kimi --print -C --output-format text -p x", {"session": mark("kimi-cli"), "interactive": True},
         f"kimi --session {UUID}"),
    ],
)  # fmt: skip
def test_how_it_is_started_and_resumed(
    line: str, more: dict[str, object], command: str, tmp_path: Path
) -> None:
    _session(tmp_path)
    assert list(launched(ME, ask(line, tmp_path, **more)).command) == command.split()


def _session(home: Path, name: str = UUID) -> Path:
    """A session as kimi-cli has it in its home, for this very folder."""
    folder = home / ".kimi/sessions" / md5(str(home).encode()).hexdigest() / name
    folder.mkdir(parents=True)
    (folder / "context.jsonl").write_text('{"role":"user","content":"do it"}\n')
    (folder / "wire.jsonl").write_bytes((checks.SAMPLES / WIRE).read_bytes())
    (home / ".kimi/kimi.json").write_text(json.dumps({"work_dirs": [{"path": str(home)}]}))
    return folder


def test_a_session_that_it_would_not_find_is_not_resumed(tmp_path: Path) -> None:
    # It would begin another of that name, and delete what there is of this one.
    asked = ask("kimi --print -p x", tmp_path, session=mark("kimi-cli"), prompt="on")
    assert ME.cli.launch(asked) is None
    folder = _session(tmp_path)
    assert ME.transcript.find(UUID, asked) == folder / "wire.jsonl"
    assert folder / "context.jsonl" in ME.transcript.beside(folder / "wire.jsonl").sidecars
    assert ME.cli.launch(asked) is not None
    whole = (folder / "context.jsonl").read_bytes()
    (folder / "context.jsonl").write_text('{"role":"assistant","content":"its beginning was taken away"}\n')
    assert ME.cli.launch(asked) is None
    (folder / "context.jsonl").write_bytes(whole)
    assert ME.cli.launch(asked) is not None
    (tmp_path / ".kimi/kimi.json").write_text("{}")
    assert ME.cli.launch(asked) is None


def test_our_hooks_come_with_the_users_settings(tmp_path: Path) -> None:
    (tmp_path / ".kimi").mkdir()
    hook = 'default_model = "k"\n[[hooks]]\nevent = "Stop"\ncommand = "mine"\n'
    (tmp_path / ".kimi/config.toml").write_text(hook)
    (tmp_path / "mine.json").write_text('{"default_model": "j"}')

    def config(line: str) -> dict[str, object]:
        words = launched(ME, ask(tuple(line.split("|")), tmp_path, hook=("a b",))).command
        assert words.count("--config-file") == 1
        assert "--config" not in words
        path = Path(words[words.index("--config-file") + 1])
        assert path.stat().st_mode & 0o777 == 0o600
        read: dict[str, object] = json.loads(path.read_text())
        assert [each["event"] for each in read["hooks"]][-len(HOOKED) :] == list(HOOKED)  # type: ignore[attr-defined]
        return read

    default = config("kimi|--print|-p|x")
    assert default["default_model"] == "k"
    assert default["hooks"][0] == {"event": "Stop", "command": "mine"}  # type: ignore[index]
    assert config("kimi|--config-file|mine.json|--print")["default_model"] == "j"
    assert config('kimi|--config|default_model = "t"|--print')["default_model"] == "t"
    assert config('kimi|--config|{"default_model": "s"}|--print')["default_model"] == "s"
    with pytest.raises(UsageError):
        ME.cli.launch(ask(("kimi", "--config", "{", "--print"), tmp_path, hook=("h",)))


def test_a_wire_file_tells_exactly_what_happened() -> None:
    told = [event for line in lines(WIRE) for event in ME.transcript.parse(line)]
    call = "call_1b610cb26e5d4819a490"
    given = RAW(b'{"path":"/home/user/project/hello.txt","content":"hello\\n"}')
    assert told[:6] == [
        Response("1794725504.221302"),
        Text("I will write a file."),
        ToolStart(call, "WriteFile", given),
        UsageReport(values.Usage(12268, 33, 22, 0), "response", "chatcmpl-d9bcdc7164864811a843"),
        ToolEnd(call, True, "File successfully overwritten. Current size: 6 bytes."),
        BatchEnd(),
    ]
    used = {event.key: event.values.input for event in told if isinstance(event, UsageReport)}
    assert sum(used.values()) == 12268 + 12366 + 12467 + 12476 + 12571
    started = [event.id for event in told if isinstance(event, ToolStart)]
    ended = [event.id for event in told if isinstance(event, ToolEnd)]
    assert [call for call in started if call not in ended] == ["call_cac47efca5964145b47b"]


def test_a_sub_agent_is_a_lane_and_a_retry_is_told() -> None:
    inner = {"type": "ContentPart", "payload": {"type": "text", "text": "hi"}}
    event = {"type": "SubagentEvent", "payload": {"agent_id": "a1", "event": inner}}
    assert list(ME.transcript.parse(json.dumps({"timestamp": 1.5, "message": event}).encode())) == [
        Text("hi", "a1")
    ]
    retry = {"n": 1, "next_attempt": 2, "error_type": "APIStatusError", "status_code": 429}
    line = {"timestamp": 1.5, "message": {"type": "StepRetry", "payload": retry}}
    assert list(ME.transcript.parse(json.dumps(line).encode())) == [Retry(1, "APIStatusError 429")]


def test_a_cut_call_gets_its_result_in_both_files(tmp_path: Path) -> None:
    folder = _session(tmp_path)
    rows = lines(WIRE)
    killed = b"\n".join(rows[:16]) + b"\n"
    cut = Cut("call_cac47efca5964145b47b", "Shell", RAW(b'{"command":"x"}'), "the truth")
    wire = ME.transcript.mend(killed, [cut])
    assert wire.startswith(killed)
    (line,) = wire[len(killed) :].splitlines()
    assert list(ME.transcript.parse(line)) == [ToolEnd(cut.id, True, "the truth")]
    assert ME.transcript.mend(wire, [cut]) == wire
    said, calls = last_step(wire)
    assert (said, [call.text for call in calls]) == ("Slow bash.", ["the truth"])
    (folder / "wire.jsonl").write_bytes(wire)
    launched(ME, ask("kimi --print -p x", tmp_path, session=mark("kimi-cli"), prompt="on"))
    context = (folder / "context.jsonl").read_bytes()
    messages = [json.loads(row) for row in context.splitlines()]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == cut.id
    assert messages[2]["content"] == "the truth"
    assert ME.transcript.mend(context, [cut]) == context


def test_answers() -> None:
    assert ME.cli.answer(b"{}", Answer()) == (b"", 0)
    assert b'"permissionDecision":"deny"' in ME.cli.answer(b"{}", Answer(False, "no"))[0]


def test_endings() -> None:
    assert checks.wrong_endings(AGENT) == []
    assert ME.transcript.ending(0, b"All done.", b"").ending == "done"
    farewell = ME.transcript.ending(
        0, b"kimi-cli is no longer maintained. Please use the new Kimi Code CLI.", b""
    )
    assert farewell.ending == "crashed"
    assert "1.51.0" in farewell.text
    assert ME.transcript.ending(1, b"Max number of steps reached: 3", b"").ending == "turns"
    assert ME.transcript.ending(75, b"", b"").ending == "network"
    assert ME.transcript.ending(-9, b"", b"").ending == "crashed"


test_no_input_makes_it_fail = checks.hostile(AGENT, WIRE, "kimi-cli-1.51.0-hooks.jsonl")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AgentWorld]:
    with AgentWorld(tmp_path / "world", Script([])) as made:
        yield made


def test_killed_in_a_call_it_resumes_with_the_truth_once(world: AgentWorld) -> None:
    checks.resumes_with_the_truth(world, "kimi-cli")


def test_a_denied_call_is_not_made(world: AgentWorld) -> None:
    checks.denies(world, "kimi-cli")


@pytest.mark.real_agent
def test_the_version_of_the_real_program_is_read_without_running_it() -> None:
    for version in ("1.51.0", "1.52.0"):
        assert versions.of(ME.release, need("kimi-cli", version).command[-1]) == version
