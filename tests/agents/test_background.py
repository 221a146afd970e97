"""A call that returned while what it does goes on in the background: no outcome is on record before its end is told."""

import json
import re

import pytest

from outlast.agents import registry
from outlast.agents.events import TaskEnd, ToolEnd
from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Call, History, Script, Step, bash
from tests.support.environment import ROOT
from tests.support.processes import wait_for


def in_background(world: AgentWorld, name: str, first: str, flags: str = "") -> Call:
    command = f"{first}; {world.posting('bg', flags=flags).input['command']}"
    match name:
        case "claude":
            return Call("Bash", {"command": command, "run_in_background": True, "description": "it"})
        case "kimi-code":
            return Call("Bash", {"command": command, "run_in_background": True, "description": "it"})
        case "kimi-cli":
            return Call("Shell", {"command": command, "run_in_background": True, "description": "it"})
        case "codex":
            return Call("exec_command", {"cmd": command, "yield_time_ms": 300})
        case _:
            return Call("run_shell_command", {"command": command, "is_background": True})


SAMPLES = ROOT / "tests/agents/samples"
CAMPAIGN = pytest.mark.campaign
KIMI = pytest.param(("kimi-code", None), marks=CAMPAIGN, id="kimi-code")
KIMI_CLI = pytest.param(("kimi-cli", "1.51.0"), marks=CAMPAIGN, id="kimi-cli")
GEMINI = pytest.param(("gemini", None), marks=CAMPAIGN, id="gemini")
CLAUDE, CODEX = ("claude", "2.1.325"), ("codex", None)


def of_bg(under: Under) -> list[str]:
    return [effect["state"] for effect in under.effects() if "/act/blind/bg" in effect["name"]]


@pytest.mark.parametrize(
    "under", [CLAUDE, CODEX, KIMI, KIMI_CLI, GEMINI], indirect=True, ids=lambda agent: agent[0]
)
def test_killed_before_it_reached_outside_it_is_in_doubt_and_the_agent_is_told(under: Under) -> None:
    world, seen = under.world, []
    here = Step("First.", (in_background(world, under.name, "sleep 300"),))
    world.model.script = Script([here, Step("Meanwhile.", (bash("touch begun; sleep 300"),))])
    process = under.start()
    wait_for((world.work / "begun").exists, what="the second call", limit_s=60)
    wait_for(lambda: under.shown()["beats"] >= 1, what="the end of the first beat", limit_s=60)
    under.kill_all(process)
    assert of_bg(under) == ["in_doubt"]

    def goes_on(history: History, plays: int) -> Step:
        seen.append("\n".join(turn.text for turn in history.turns))
        return Step("I leave it.")

    world.model.script = Script(goes_on)
    done = under.run()
    assert done.returncode == 3, done.stderr
    assert of_bg(under) == ["in_doubt"]
    assert "ran in the background and was cut off; it is not known whether it happened" in seen[-1]
    assert world.performed() == []


@pytest.mark.parametrize("under", [CLAUDE, KIMI, KIMI_CLI], indirect=True, ids=lambda agent: agent[0])
def test_killed_when_it_had_happened_the_agent_is_told_that_it_did(under: Under) -> None:
    """Both tell their model that nobody knows whether what ran in the background was completed."""
    world, seen = under.world, []
    here = Step("First.", (in_background(world, under.name, "sleep 1", "-f"),))
    world.model.script = Script([here, Step("Meanwhile.", (bash("touch begun; sleep 300"),))])
    process = under.start()
    wait_for((world.work / "begun").exists, what="the second call", limit_s=60)
    wait_for(lambda: of_bg(under) == ["confirmed"], what="its outcome", limit_s=60)
    under.kill_all(process)

    def goes_on(history: History, plays: int) -> Step:
        seen.append("\n".join(turn.text for turn in history.turns))
        return Step("I leave it.")

    world.model.script = Script(goes_on)
    done = under.run()
    assert done.returncode == 0, done.stderr
    assert re.search(r"/act/blind/bg \(effect 1\.1, .*: it happened\. Do not repeat it\.", seen[-1]), seen[-1]


@pytest.mark.parametrize(
    "under",
    [CLAUDE, pytest.param(CODEX, marks=CAMPAIGN, id="codex"), KIMI, KIMI_CLI],
    indirect=True,
    ids=lambda agent: agent[0],
)
def test_when_its_end_is_told_it_is_confirmed(under: Under) -> None:
    world = under.world

    def says(history: History, plays: int) -> Step:
        if not history.responses:
            return Step("First.", (in_background(world, under.name, "sleep 1"),))
        if history.responses == 1:
            waits = bash("until [ -e done ]; do sleep 0.05; done")
            if under.name == "codex":
                session = int(history.results[-1].text.partition("session ID ")[2].split()[0])
                waits = Call("write_stdin", {"session_id": session, "chars": "", "yield_time_ms": 20_000})
            return Step("I wait.", (waits,))
        return Step("Next.", (bash("echo next"),)) if history.responses == 2 else Step("Done.")

    world.model.script = Script(says)
    process = under.start()
    wait_for(lambda: bool(world.performed()), what="what it does outside", limit_s=60)
    wait_for(lambda: of_bg(under) == ["confirmed"], what="its outcome", limit_s=30)
    (world.work / "done").touch()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert of_bg(under) == ["confirmed"]
    assert len(world.performed()) == 1


@pytest.mark.parametrize("under", [CODEX], indirect=True, ids=["codex"])
def test_left_by_the_shell_it_is_waited_for_and_the_agent_is_not_started_again(under: Under) -> None:
    """Codex does not tell how its command ended; its model has gone on, so that is no dying word."""
    world = under.world
    posting = world.posting("bg").input["command"].replace("'", "'\"'\"'")
    left = bash(f"setsid sh -c 'sleep 2; {posting}' >/dev/null 2>&1 & echo started")
    world.model.script = Script([Step("First.", (left,)), Step("Done.")])
    done = under.run()
    assert done.returncode == 0, done.stderr
    assert [act.name for act in world.performed()] == ["bg"]
    assert len(world.model.paid()) == 2, done.stderr
    assert of_bg(under) == ["confirmed"]


# --- how it is read -------------------------------------------------------------------------------------------------

LEFT = {
    "claude": '{"type":"user","toolUseResult":{"stdout":"","backgroundTaskId":"bwk71"},"sessionId":"s","message":{"role":"user","content":'
    '[{"tool_use_id":"c1","type":"tool_result","content":"Command running in background with ID: bwk71.","is_error":false}]}}',
    "codex": '{"timestamp":"2026-11-15T21:15:17.396Z","ordinal":13,"type":"response_item","payload":{"type":"function_call_output",'
    '"call_id":"c1","output":"Chunk ID: 838b73\\nWall time: 0.3013 seconds\\nProcess running with session ID 70468\\nOutput:\\n"}}',
    "kimi-code": '{"type":"context.append_loop_event","agentId":"main","event":{"type":"tool.result","toolCallId":"c1","result":'
    '{"output":"task_id: bash-bufp\\npid: 5961\\ndescription: d\\nstatus: running\\nautomatic_notification: true"}},"time":1}',
    "kimi-cli": '{"timestamp": 1.5, "message": {"type": "ToolResult", "payload": {"tool_call_id": "c1", "return_value": {"is_error": '
    'false, "output": "task_id: bash-m657\\nkind: bash\\nstatus: starting\\ndescription: d\\n", "message": "Started."}}}}',
    "gemini": '{"id":"m","type":"gemini","content":"","toolCalls":[{"id":"x","name":"run_shell_command","args":{"command":"x"},"result":'
    '[{"functionResponse":{"response":{"output":"<untrusted_context>\\nCommand moved to background (PID: 6521). Output '
    'hidden.\\n</untrusted_context>"}}}],"status":"success"}]}',
}  # fmt: skip
NAMED = {
    "claude": "bwk71",
    "codex": "70468",
    "kimi-code": "bash-bufp",
    "kimi-cli": "bash-m657",
    "gemini": "6521",
}
ENDED = {
    "claude": ['{"type":"queue-operation","operation":"enqueue","content":"<task-notification>\\n<task-id>bwk71</task-id>\\n<tool-use-id>'
               'c1</tool-use-id>\\n<status>STATUS</status>\\n<summary>Background command (exit code CODE)</summary>\\n</task-notification>"}'],
    "codex": ['{"type":"response_item","payload":{"type":"function_call","name":"write_stdin","arguments":"{\\"session_id\\":70468}",'
              '"call_id":"c2"}}',
              '{"type":"response_item","payload":{"type":"function_call_output","call_id":"c2","output":"Chunk ID: 5aa8ff\\nWall time: '
              '1.5 seconds\\nProcess exited with code CODE\\nOutput:\\n"}}'],
    "kimi-code": ['{"type":"task.terminated","agentId":"main","info":{"taskId":"bash-bufp","status":"STATUS","exitCode":CODE},"time":2}'],
    "kimi-cli": ['{"timestamp": 2.5, "message": {"type": "Notification", "payload": {"id": "n", "category": "task", "type": "task.STATUS", '
                 '"payload": {"task_id": "bash-m657", "status": "STATUS", "exit_code": CODE}}}}'],
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_a_result_leaves_running_is_named(name: str) -> None:
    kind = registry.by_name(name)
    assert kind is not None
    [end] = [event for event in kind.transcript.parse(LEFT[name].encode()) if isinstance(event, ToolEnd)]
    assert end.task == NAMED[name]


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("failed", 7)])
@pytest.mark.parametrize("name", ENDED)
def test_its_end_is_told_by_its_name(name: str, status: str, code: int) -> None:
    kind = registry.by_name(name)
    assert kind is not None
    lines = [line.replace("STATUS", status).replace("CODE", str(code)).encode() for line in ENDED[name]]
    [end] = [event for line in lines for event in kind.transcript.parse(line) if isinstance(event, TaskEnd)]
    assert (end.task, end.ok) == (NAMED[name], code == 0)


def test_that_it_was_killed_is_no_end_of_its_own() -> None:
    kind = registry.by_name("claude")
    assert kind is not None
    line = ENDED["claude"][0].replace("STATUS", "killed")
    assert list(kind.transcript.parse(line.encode())) == []


def test_claudes_hook_names_it_too() -> None:
    kind = registry.by_name("claude")
    assert kind is not None
    told = {
        "hook_event_name": "PostToolUse",
        "tool_use_id": "c1",
        "tool_name": "Bash",
        "tool_input": {"command": "x"},
    }
    hook = kind.cli.hook(
        json.dumps({**told, "tool_response": {"stdout": "", "backgroundTaskId": "b1"}}).encode()
    )
    assert [event.task for event in hook.events if isinstance(event, ToolEnd)] == ["b1"]


def kimi_hook(agent: str, output: str) -> list[str]:
    kind = registry.by_name(agent)
    assert kind is not None
    told = {
        "hook_event_name": "PostToolUse",
        "tool_call_id": "c1",
        "tool_name": "Bash",
        "tool_output": output,
    }
    hook = kind.cli.hook(json.dumps(told).encode())
    return [event.task for event in hook.events if isinstance(event, ToolEnd)]


def test_kimi_clis_hook_names_it_too() -> None:
    """It has the text of a Python object, not the words of the result."""
    told = [json.loads(line) for line in (SAMPLES / "kimi-cli-1.51.0-hooks.jsonl").read_bytes().splitlines()]
    [left] = [
        each
        for each in told
        if each["hook_event_name"] == "PostToolUse" and each["tool_input"].get("run_in_background")
    ]
    assert kimi_hook("kimi-cli", left["tool_output"]) == ["bash-x84zsv3x"]


@pytest.mark.parametrize("status", ["running", "failed", "completed"])
@pytest.mark.parametrize("description", ["d", "two\nlines: of it", "x" * 5_000])
def test_kimis_task_is_named_whatever_its_description_and_its_status(description: str, status: str) -> None:
    words = f"task_id: bash-b\npid: 5\ndescription: {description}\nstatus: {status}\n"[:2_000]
    assert kimi_hook("kimi-code", words) == ["bash-b"]
    words = f"task_id: bash-b\nkind: bash\nstatus: {status}\ndescription: {description}\n"
    returned = f"is_error=False output={words!r} message='Background task started.' display=[]"[:2_000]
    assert kimi_hook("kimi-cli", returned) == ["bash-b"]


@pytest.mark.parametrize(("code", "wanted"), [(7, 7), (137, 137), (-9, 137)])
@pytest.mark.parametrize("name", ENDED)
def test_its_end_tells_its_exit_code_and_a_signal_as_a_shell_does(name: str, code: int, wanted: int) -> None:
    kind = registry.by_name(name)
    assert kind is not None
    told = wanted if name == "claude" else code
    lines = [line.replace("STATUS", "failed").replace("CODE", str(told)).encode() for line in ENDED[name]]
    [end] = [event for line in lines for event in kind.transcript.parse(line) if isinstance(event, TaskEnd)]
    assert (end.ok, end.code) == (False, wanted)


def test_words_of_a_command_that_only_look_like_it_do_not_count_elsewhere() -> None:
    kind = registry.by_name("codex")
    assert kind is not None
    line = LEFT["codex"].replace("Process running", "Process exited with code 0\\nOutput:\\nProcess running")
    [end] = [event for event in kind.transcript.parse(line.encode()) if isinstance(event, ToolEnd)]
    assert end.task == ""
