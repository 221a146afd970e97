"""opencode, against recorded lines, tables and the real program."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from outlast.agents.common import versions
from outlast.agents.events import BatchEnd, Response, Session, Text, ToolEnd, ToolStart, UsageReport
from outlast.agents.opencode.agent import AGENT
from outlast.agents.opencode.cli import CONTENT
from outlast.agents.opencode.transcript import JOURNAL_FILE
from outlast.agents.values import Answer, Hook
from outlast.core import values
from outlast.errors import UsageError
from tests.agents import checks
from tests.agents.agent_alone import Launched, bash
from tests.agents.agent_world import AgentWorld
from tests.agents.checks import RAW, ask, launched, lines, mark
from tests.agents.script import Script, Step

ME = AGENT
SESSION = "ses_e2204cad2ffeLyow2M0RGj23tk"
ON = {"session": mark("opencode", "ses_1"), "prompt": "on"}


@pytest.mark.parametrize(
    ("line", "program", "is_it"),
    [
        ("opencode run x", "/usr/bin/opencode", True),
        ("opencode", "/usr/bin/opencode", True),
        ("opencode /some/project", "/usr/bin/opencode", True),
        ("npx opencode-ai@1.18.33 run x", "/usr/bin/npx", True),
        ("bunx opencode-ai run x", "/usr/bin/bunx", True),
        ("oc run x", "/x/node_modules/opencode-linux-x64/bin/opencode", True),
        ("opencode serve", "/usr/bin/opencode", False),
        ("opencode auth login", "/usr/bin/opencode", False),
        ("opencode run --attach http://x y", "/usr/bin/opencode", False),
        ("opencode --version", "/usr/bin/opencode", False),
        ("npx opencode-ai-tools", "/usr/bin/npx", False),
        ("opencoder run x", "/usr/bin/opencoder", False),
    ],
)
def test_it_is_known_by_its_command_and_nothing_else_is(line: str, program: str, is_it: bool) -> None:
    assert ME.cli.detect(line.split(), program) is is_it


@pytest.mark.parametrize(
    ("line", "more", "command", "session"),
    [
        ("opencode run --auto do it", {}, "opencode run --auto do it", ""),
        ("opencode run -s ses_1 do it", {}, "opencode run -s ses_1 do it", "ses_1"),
        ("opencode run -s ses_1 --fork do it", {}, "opencode run -s ses_1 --fork do it", ""),
        ("opencode run --auto -m a/b do it", ON, "opencode run --auto -m a/b --session ses_1 -- on", "ses_1"),
        ("opencode run -c --auto -- do it", ON, "opencode run --auto --session ses_1 -- on", "ses_1"),
        ("opencode run --command c -f a.txt -- do", ON, "opencode run --session ses_1 -- on", "ses_1"),
        ("opencode --auto run x", {"prompt": "all"}, "opencode run --auto -- all", ""),
        ("opencode run --format json --auto x", {"session": mark("opencode", "ses_1"), "interactive": True},
         "opencode --session ses_1", "ses_1"),
        ("opencode /p", {"session": mark("opencode", "ses_1"), "prompt": "on", "interactive": True},
         "opencode /p --session ses_1 --prompt=on", "ses_1"),
    ],
)  # fmt: skip
def test_how_it_is_started_and_resumed(
    line: str, more: dict[str, object], command: str, session: str, tmp_path: Path
) -> None:
    launch = launched(ME, ask(line, tmp_path, **more))
    assert list(launch.command) == command.split()
    assert launch.environment == {}
    assert launch.session == session


def test_what_it_is_told_and_which_versions_are_carried(tmp_path: Path) -> None:
    assert ME.cli.read(["opencode", "run", "say", "it"]).prompt == "say it"
    assert ME.cli.read(["opencode", "--prompt", "say it"]).prompt == "say it"
    assert ME.cli.read(["opencode", "run", "x"]).headless
    assert not ME.cli.read(["opencode"]).headless
    assert versions.problem(ME.release, "1.18.33") == versions.untested(ME.release, "1.18.33") == ""
    assert "too old" in versions.problem(ME.release, "0.9.0")
    assert "--pure" in ME.cli.hooks_off(ask("opencode run --pure x", tmp_path))
    assert ME.cli.hooks_off(ask("opencode run x", tmp_path)) == ""
    assert not ME.release.caps.mends


def test_our_plugin_comes_with_the_users_settings(tmp_path: Path) -> None:
    theirs = {"HOME": "/h", CONTENT: '{"model": "m", /* mine */ "plugin": ["theirs"],}'}
    launch = launched(ME, ask("opencode run x", tmp_path, environment=theirs, hook=("a b", '"')))
    config = json.loads(launch.environment[CONTENT])
    assert config["model"] == "m"
    assert config["plugin"] == ["theirs", f"file://{tmp_path.resolve()}/opencode-plugin.js"]
    source = (tmp_path / "opencode-plugin.js").read_text()
    assert 'const command = ["a b", "\\""]' in source
    assert f'const journal = "{tmp_path}/{JOURNAL_FILE}"' in source
    with pytest.raises(UsageError):
        ME.cli.launch(ask("opencode run x", tmp_path, environment={CONTENT: "["}, hook=("h",)))


def test_a_fresh_session_has_a_journal_of_its_own(tmp_path: Path) -> None:
    journal = tmp_path / JOURNAL_FILE
    journal.write_text("of a session before\n")
    going_on = ask("opencode run x", tmp_path, session=mark("opencode"), prompt="on")
    assert AGENT.cli.launch(msgspec.structs.replace(going_on, hook=("h",), folder=tmp_path)) is not None
    assert journal.exists()
    assert (
        AGENT.cli.launch(msgspec.structs.replace(going_on, hook=("h",), folder=tmp_path, session=None))
        is not None
    )
    assert not journal.exists()
    assert (tmp_path / f"before-{JOURNAL_FILE}").read_text() == "of a session before\n"


def test_a_journal_tells_exactly_what_happened() -> None:
    told = [event for line in lines("opencode-1.18.33-run.jsonl") for event in ME.transcript.parse(line)]
    call, step = "call_a314a22d646b4823b5db", "msg_1ddfb412f001VcbJV0QQcyo449"
    given = RAW(b'{"filePath":"/home/user/project/hello.txt","content":"hello\\n"}')
    assert told[:6] == [
        Response(step),
        Text("I will write a file."),
        ToolStart(call, "write", given),
        ToolEnd(call, True, "Wrote file successfully."),
        UsageReport(values.Usage(7662, 33, 22, 0), "response", "prt_1ddfb4ef1001wLyb3YMr3uAuUG"),
        BatchEnd(),
    ]
    assert (
        sum(event.values.tokens for event in told if isinstance(event, UsageReport))
        == 7717 + 7802 + 7883 + 7970
    )
    lane = {"type": "text", "lane": "ses_2", "part": {"type": "text", "text": "hi"}}
    assert list(ME.transcript.parse(json.dumps(lane).encode())) == [Text("hi", "ses_2")]
    costly = {"type": "step_finish", "part": {"id": "p", "tokens": {"input": 1}, "cost": 0.0125}}
    (usage, _) = ME.transcript.parse(json.dumps(costly).encode())
    assert isinstance(usage, UsageReport)
    assert usage.values.cost_microusd == 12_500


def test_usage_across_a_kill_and_a_resume_counts_each_step_once() -> None:
    rows = [*lines("opencode-1.18.33-killed.jsonl"), *lines("opencode-1.18.33-resumed.jsonl")]
    used = [event for line in rows for event in ME.transcript.parse(line) if isinstance(event, UsageReport)]
    assert [event.values.tokens for event in used] == [7717, 7802, 7984]


def test_hooks_and_answers() -> None:
    before = {
        "hook_event_name": "PreToolUse",
        "tool_call_id": "c",
        "tool_name": "bash",
        "tool_input": {},
        "lane": "l",
    }
    assert ME.cli.hook(json.dumps(before).encode()) == Hook("pre", (ToolStart("c", "bash", RAW(b"{}"), "l"),))
    after = {"hook_event_name": "PostToolUse", "tool_call_id": "c", "tool_output": "out"}
    assert ME.cli.hook(json.dumps(after).encode()) == Hook("post", (ToolEnd("c", True, "out"),))
    begun = {"hook_event_name": "SessionStart", "session_id": SESSION}
    assert ME.cli.hook(json.dumps(begun).encode()) == Hook("other", (Session(SESSION),))
    assert ME.cli.answer(b"", Answer()) == (b"", 0)
    assert ME.cli.answer(b"", Answer(True, "look")) == (b"look", 0)
    assert ME.cli.answer(b"", Answer(False, "no")) == (b"no", 2)


def test_endings() -> None:
    assert checks.wrong_endings(AGENT) == []
    assert ME.transcript.ending(0, b"", b"\n".join(lines("opencode-1.18.33-run.jsonl"))).ending == "done"
    error = b'{"type":"error","error":{"name":"%s","data":{"message":"m","statusCode":%d}}}'
    assert ME.transcript.ending(0, b"", error % (b"MessageAbortedError", 0)).ending == "crashed"
    assert ME.transcript.ending(0, b"", error % (b"ContextOverflowError", 400)).ending == "context"
    assert ME.transcript.ending(0, b"", error % (b"ProviderAuthError", 0)).ending == "auth"
    assert ME.transcript.ending(1, error % (b"APIError", 429), b"").ending == "rate_limit"
    assert ME.transcript.ending(1, b"Session not found", b"").ending == "crashed"


test_no_input_makes_it_fail = checks.hostile(AGENT, "opencode-1.18.33-run.jsonl")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AgentWorld]:
    with AgentWorld(tmp_path / "world", Script([])) as made:
        yield made


def test_killed_in_a_call_it_resumes_and_says_itself_that_the_call_was_cut(world: AgentWorld) -> None:
    agent = checks.killed_in_a_call(world, "opencode")
    assert len(agent.cuts()) == 1
    code, said = agent.resume("go on")
    assert code == 0, said
    told = checks.results(world)
    assert ["interrupted" in text for text in told] == [False, True], told
    assert (world.work / "marks").read_text() == "one\n"
    used = {event.key: event.model for event in agent.events() if isinstance(event, UsageReport)}
    assert [*used.values()] == ["fake-model"] * 2  # the step that was killed never said what it cost


def test_a_denied_call_is_not_made(world: AgentWorld) -> None:
    checks.denies(world, "opencode")


@pytest.mark.parametrize("hook", [("/no/such/program",), ("/bin/sh", "-c", "kill -9 $$")])
def test_when_nobody_can_be_asked_a_call_is_not_made(world: AgentWorld, hook: tuple[str, ...]) -> None:
    world.model.script = Script([Step("One.", (bash("echo one >> marks"),)), Step("Done.")])
    agent = Launched(world, "opencode")
    code, said = agent.run(agent.ask(hook=hook))
    assert code == 0, said
    assert not (world.work / "marks").exists()
    (told,) = checks.results(world)
    assert "not done" in told
