"""Claude Code itself, both pinned versions, started and resumed as its parts say, with a scripted model."""

import json
import re
import signal
import subprocess

import msgspec
import pytest

from outlast.agents.claude.agent import agent as claude
from outlast.agents.events import Final, Session, ToolEnd, ToolStart
from outlast.agents.values import Answer, Ask, Cut
from outlast.core.values import SessionMark
from tests.agents.agent_world import AgentWorld, need
from tests.agents.hook_log import HookLog, run, slow_in_second
from tests.agents.script import Script, Step, bash
from tests.support.processes import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", ["2.1.325", "2.1.197"])]
ME = claude()
SKIP = "--dangerously-skip-permissions"


@pytest.fixture(autouse=True)
def script(world: AgentWorld) -> None:
    world.model.script = slow_in_second()


def quick(world: AgentWorld) -> None:
    world.model.script = Script([Step("One.", (bash("echo one; exit 3"), bash("echo two"))), Step("Done.")])


def asked(world: AgentWorld, version: str, *words: str, log: HookLog | None = None, **more: object) -> Ask:
    tool = need("claude", version)
    folder = world.folder / "private"
    folder.mkdir(exist_ok=True)
    given = {"environment": world.environment(tool), "cwd": world.work, "folder": folder, **more}
    return Ask(words=(*tool.command, *words), hook=log.command if log else (), **given)  # type: ignore[arg-type]


def plain(output: bytes) -> list[str]:
    """What is printed but for what differs between any two runs: ids, times, and what is counted from them."""
    text = re.sub(
        r"[0-9a-f]{8}-[0-9a-f-]{27}|(?:toolu|msg|req)_\w+|[0-9]{4}-[0-9-]+T[0-9:.]+Z|\d+\.sock",
        "ID",
        output.decode(),
    )
    text = re.sub(
        r'"(?:\w*ms|\w*tokens|\w*Tokens|\w*[cC]ost\w*|request_id)":(?:[0-9.e-]+|"[^"]*")', "N", text
    )
    return text.splitlines()


@pytest.mark.parametrize("shape", ["text", "json", "stream-json"])
def test_its_output_is_that_of_the_bare_program(world: AgentWorld, version: str, shape: str) -> None:
    quick(world)
    log = HookLog(world.folder)
    words = ("-p", "do it", "--output-format", shape, "--verbose", SKIP)
    bare = asked(world, version, *words)
    ask = asked(world, version, *words, log=log)
    launch = ME.cli.launch(ask)
    assert launch is not None
    first, second = run(world, bare.words, bare), run(world, launch.command, ask)
    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    assert plain(second.stdout) == plain(first.stdout)
    assert second.stderr == first.stderr
    seen = [plain(json.dumps(request.body["messages"]).encode()) for request in world.model.requests()]
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]  # nor does its model hear of us
    events = [event for data in log.inputs() for event in ME.cli.hook(data).events]
    assert Session(launch.session, str(ME.transcript.find(launch.session, ask))) in events
    assert {event.ok for event in events if isinstance(event, ToolEnd)} == {False, True}
    transcript = ME.transcript.find(launch.session, ask)
    assert transcript is not None
    final = ME.transcript.ending(0, second.stdout, transcript.read_bytes())
    assert msgspec.structs.replace(final, bill=()) == Final("done", "Done.")
    assert bool(final.bill) == (shape != "text"), "what it cost is in its result line"


@pytest.mark.parametrize("how", ["killed", "torn", "lost", "interrupted"])
def test_a_resumed_model_reads_exactly_the_truth_about_the_call_that_was_cut(
    world: AgentWorld, version: str, how: str
) -> None:
    log = HookLog(world.folder)
    ask = asked(world, version, "-p", "do it", SKIP, log=log)
    launch = ME.cli.launch(ask)
    assert launch is not None
    with subprocess.Popen(
        world.namespaced(launch.command), cwd=ask.cwd, env=dict(ask.environment), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as agent:  # fmt: skip
        wait_for((world.work / "started").exists, what="the slow call")
        agent.send_signal(signal.SIGINT if how == "interrupted" else signal.SIGKILL)
    starts, ends = log.calls(ME)
    (cut,) = [
        Cut(call.id, call.name, call.input, f"TRUTH {call.id}") for call in starts if call.id not in ends
    ]
    path = ME.transcript.find(launch.session, ask)
    assert path is not None
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(index for index, line in enumerate(lines) if cut.id.encode() in line and b'"tool_use"' in line)
    if how == "torn":
        lines[at:] = [lines[at][:200]]
    elif how == "lost":
        del lines[next(index for index, line in enumerate(lines) if b'"Two."' in line) :]
    path.write_bytes(ME.transcript.mend(b"".join(lines), [cut]))
    before = len(world.model.requests())
    again = ME.cli.launch(
        asked(
            world,
            version,
            *ask.words[1:],
            log=log,
            session=SessionMark("claude", launch.session),
            prompt="-go on",
        )
    )
    assert again is not None
    done = run(world, again.command, ask)
    assert done.returncode == 0, done.stderr
    body = json.dumps(world.model.requests()[before].body)
    results = re.findall(r'\{"type": "tool_result", [^{}]*\}|\{"tool_use_id": [^{}]*\}', body)
    assert [result for result in results if cut.id in result and f'"TRUTH {cut.id}"' in result], results
    assert "NOT written" not in body
    assert "-go on" in body


def test_a_denied_call_does_not_happen_and_its_model_reads_why(world: AgentWorld, version: str) -> None:
    world.model.script = Script([Step("One.", (bash("touch happened"),)), Step("Done.")])
    log = HookLog(
        world.folder,
        "PreToolUse",
        *ME.cli.answer(b'{"hook_event_name":"PreToolUse"}', Answer(False, "because")),
    )
    theirs = {
        "hooks": {
            "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "touch theirs"}]}]
        }
    }
    ask = asked(world, version, "-p", "do it", SKIP, "--settings", json.dumps(theirs), log=log)
    launch = ME.cli.launch(ask)
    assert launch is not None
    assert run(world, launch.command, ask).returncode == 0
    assert not (world.work / "happened").exists()
    assert (world.work / "theirs").exists()  # the user's own hook ran as well
    assert "because" in json.dumps(world.model.requests()[-1].body)


def test_a_batch_that_is_stopped_after_its_last_call_ends_the_agent(world: AgentWorld, version: str) -> None:
    quick(world)
    stop = ME.cli.answer(b'{"hook_event_name":"PostToolBatch"}', Answer(False, "enough"))
    log = HookLog(world.folder, "PostToolBatch", *stop)
    ask = asked(world, version, "-p", "do it", SKIP, log=log)
    launch = ME.cli.launch(ask)
    assert launch is not None
    done = run(world, launch.command, ask)
    path = ME.transcript.find(launch.session, ask)
    assert path is not None
    assert ME.transcript.ending(done.returncode, done.stdout, path.read_bytes()).ending == "hook_stopped"
    starts, ends = log.calls(ME)
    assert {call.id for call in starts} == ends
    told = [event for line in path.read_bytes().splitlines() for event in ME.transcript.parse(line)]
    assert {event.id for event in told if isinstance(event, ToolStart)} == ends
