"""Codex itself, started and resumed as its parts say, with a scripted model."""

import json
import re
import signal
import subprocess

import pytest

from outlast.agents.codex.agent import agent as codex
from outlast.agents.events import Final, Session, ToolEnd, UsageReport
from outlast.agents.values import Answer, Ask, Cut
from outlast.core.values import SessionMark
from tests.agents.agent_world import AgentWorld, need
from tests.agents.hook_log import HookLog, run, slow_in_second
from tests.agents.script import Script, Step, bash
from tests.support.processes import wait_for

pytestmark = pytest.mark.slow
ME = codex()
SKIP = "--dangerously-bypass-approvals-and-sandbox"


@pytest.fixture(autouse=True)
def script(world: AgentWorld) -> None:
    world.model.script = slow_in_second()


def asked(world: AgentWorld, *words: str, log: HookLog | None = None, **more: object) -> Ask:
    tool = need("codex")
    given = {"environment": world.environment(tool), "cwd": world.work, "folder": world.folder, **more}
    return Ask(words=(*tool.command, *words), hook=log.command if log else (), **given)  # type: ignore[arg-type]


def plain(output: bytes) -> list[str]:
    """What is printed but for what differs between any two runs, in an order of its own: calls run side by side."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|item_\d+", "ID", output.decode())
    return sorted(re.sub(r'"\w*tokens":\d+|[\d,]+$', "N", text).splitlines())


@pytest.mark.parametrize("shape", [["--json"], []], ids=["json", "text"])
def test_its_output_is_that_of_the_bare_program(world: AgentWorld, shape: list[str]) -> None:
    world.model.script = Script([Step("One.", (bash("echo one; exit 3"), bash("echo two"))), Step("Done.")])
    log = HookLog(world.folder)
    bare = asked(world, "exec", *shape, SKIP, "do it")
    ask = asked(world, "exec", *shape, SKIP, "do it", log=log)
    launch = ME.cli.launch(ask)
    assert launch is not None
    first, second = run(world, bare.words, bare), run(world, launch.command, ask)
    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    assert plain(second.stdout) == plain(first.stdout)
    (session,) = {
        event for data in log.inputs() for event in ME.cli.hook(data).events if isinstance(event, Session)
    }
    path = ME.transcript.find(session.id, ask)
    assert path is not None
    assert str(path) == session.transcript
    told = [event for line in path.read_bytes().splitlines() for event in ME.transcript.parse(line)]
    ends = {event.output.split("Output:\n")[-1]: event.ok for event in told if isinstance(event, ToolEnd)}
    assert ends == {"one\n": False, "two\n": True}
    paid = [event for event in told if isinstance(event, UsageReport)]
    assert [event.values.output for event in paid] == [33, 33]
    assert ME.transcript.ending(0, second.stdout, path.read_bytes()) == Final("done", "Done.")


@pytest.mark.parametrize("how", ["killed", "torn", "lost", "interrupted"])
def test_a_resumed_model_reads_exactly_the_truth_about_the_call_that_was_cut(
    world: AgentWorld, how: str
) -> None:
    log = HookLog(world.folder)
    ask = asked(world, "exec", "--json", SKIP, "do it", log=log)
    launch = ME.cli.launch(ask)
    assert launch is not None
    with subprocess.Popen(
        world.namespaced(launch.command), cwd=ask.cwd, env=dict(ask.environment), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as agent:  # fmt: skip
        wait_for((world.work / "started").exists, what="the slow call")
        agent.send_signal(signal.SIGINT if how == "interrupted" else signal.SIGKILL)
    starts, _ = log.calls(ME)
    (call,) = [call for call in starts if b"started" in bytes(call.input)]
    cut = Cut(call.id, call.name, call.input, f"TRUTH {call.id}")
    session = next(
        event.id for data in log.inputs() for event in ME.cli.hook(data).events if isinstance(event, Session)
    )
    path = ME.transcript.find(session, ask)
    assert path is not None
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(index for index, line in enumerate(lines) if cut.id.encode() in line)
    if how == "torn":
        lines[at:] = [lines[at][:150]]
    elif how == "lost":
        del lines[next(index for index, line in enumerate(lines) if b'"Two."' in line) :]
    path.write_bytes(ME.transcript.mend(b"".join(lines), [cut]))
    before = len(world.model.requests())
    mark = SessionMark("codex", session)
    again = ME.cli.launch(asked(world, *ask.words[1:], log=log, session=mark, prompt="-go on"))
    assert again is not None
    done = run(world, again.command, ask)
    assert done.returncode == 0, done.stderr
    items = world.model.requests()[before].body["input"]
    outputs = [item["output"] for item in items if item.get("call_id") == cut.id and "output" in item]
    assert outputs == [cut.text]
    assert "-go on" in json.dumps(items[-1])


def test_hooks_that_nobody_trusted_do_not_run_because_of_ours(world: AgentWorld) -> None:
    world.model.script = Script([Step("One.", (bash("echo one"),)), Step("Done.")])
    log = HookLog(world.folder)
    ask = asked(world, "exec", "--json", SKIP, "do it", log=log)
    theirs = {"PreToolUse": [{"hooks": [{"type": "command", "command": "touch untrusted"}]}]}
    (world.home / ".codex/hooks.json").write_text(json.dumps({"hooks": theirs}))
    launch = ME.cli.launch(ask)
    assert launch is not None
    assert run(world, launch.command, ask).returncode == 0
    assert log.calls(ME)[0]
    assert not (world.work / "untrusted").exists()


def test_a_denied_call_does_not_happen_and_its_model_reads_why(world: AgentWorld) -> None:
    world.model.script = Script([Step("One.", (bash("touch happened"),)), Step("Done.")])
    denial = ME.cli.answer(b'{"hook_event_name":"PreToolUse"}', Answer(False, "because"))
    log = HookLog(world.folder, "PreToolUse", *denial)
    ask = asked(world, "exec", "--json", SKIP, "do it", log=log)
    launch = ME.cli.launch(ask)
    assert launch is not None
    assert run(world, launch.command, ask).returncode == 0
    assert not (world.work / "happened").exists()
    assert "because" in json.dumps(world.model.requests()[-1].body)


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
def test_words_for_the_model_reach_it(world: AgentWorld, event: str) -> None:
    world.model.script = Script([Step("One.", (bash("echo one"),)), Step("Done.")])
    told = ME.cli.answer(json.dumps({"hook_event_name": event}).encode(), Answer(True, "look here"))
    log = HookLog(world.folder, event, *told)
    ask = asked(world, "exec", "--json", SKIP, "do it", log=log)
    launch = ME.cli.launch(ask)
    assert launch is not None
    assert run(world, launch.command, ask).returncode == 0
    assert "look here" in json.dumps(world.model.requests()[-1].body)
