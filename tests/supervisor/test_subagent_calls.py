"""A call of a sub-agent ended, and the call that the sub-agent worked for was cut off: the agent that goes on knows nothing of it.

Each call is its hook with a recorded input, in a session of Claude Code that goes on; or of a CLI whose hooks name no sub-agent.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from outlast.agents.events import BatchEnd, Response
from outlast.agents.opencode.transcript import JOURNAL_FILE
from outlast.core import events as ev
from outlast.settings import TIMING
from outlast.supervisor.agent.calls import subagents
from outlast.supervisor.agent.calls.record import SHIM, CallRecord, OutwardCall
from tests.supervisor.hook_driver import (
    LOCAL,
    POST,
    SIGNATURE,
    AttemptDies,
    Minded,
    after,
    before,
    is_denied,
    minded,
    write_session,
)

OTHER = POST.replace("comment", "other")
AGAIN = "outlast did not repeat this call"
LAUNCHED = "Async agent launched successfully. agentId: a1"


def of(data: bytes, lane: str, **more: Any) -> bytes:
    return json.dumps(json.loads(data) | ({"agent_id": lane} if lane else {}) | more).encode()


def delegates(there: Minded, call: str) -> None:
    """The agent begins a sub-agent with this call."""
    given = {"prompt": "do it", "description": "a part"}
    assert there.allows(of(before(there.agent, LOCAL, call), "", tool_name="Agent", tool_input=given))


def is_told(there: Minded, call: str, result: str = "done") -> None:
    """The agent gets the result of such a call."""
    told = json.loads(after(there.agent, LOCAL, call))
    answer = {name: result for name in ("tool_response", "tool_output") if name in told}
    there.ask(of(after(there.agent, LOCAL, call), "", tool_name="Agent", **answer))


def posts(there: Minded, call: str, lane: str = "a1", command: str = POST) -> None:
    assert there.allows(of(before(there.agent, command, call), lane)), command
    there.ask(of(after(there.agent, command, call), lane))


def begun(there: Minded) -> None:
    """Its session comes to be, and goes on in every attempt."""
    known = there.run.state.session
    there.start()
    if known is None:
        write_session(there)
    there.take(Response("msg_1"))


def answer(there: Minded, call: str, lane: str = "", command: str = POST) -> str:
    """Why a call is denied; empty where it is not."""
    code, out = there.ask(of(before(there.agent, command, call), lane))
    return out.decode() if is_denied(code, out) else ""


def cut_off(folder: Path, *, ended: bool = False, failed: bool = False) -> None:
    """A sub-agent posted, and its agent was killed before or after it was told of that."""
    with minded(folder) as there:
        begun(there)
        delegates(there, "agent_1")
        posts(there, "post_1")
        if ended:
            is_told(there, "agent_1")
        if failed:
            told = of(after("claude", LOCAL, "agent_1"), "", tool_name="Agent", error="Request interrupted")
            there.ask(json.dumps(json.loads(told) | {"hook_event_name": "PostToolUseFailure"}).encode())
        raise AttemptDies


@pytest.mark.parametrize("lane", ["", "a2"], ids=["agent", "another sub-agent"])
def test_what_it_did_is_answered_once_and_not_made_again(tmp_path: Path, lane: str) -> None:
    cut_off(tmp_path)
    with minded(tmp_path) as there:
        begun(there)
        assert AGAIN in answer(there, "post_2", lane)
        assert answer(there, "post_3", lane) == "", "its model insists"
        raise AttemptDies


@pytest.mark.parametrize("command", [LOCAL, POST])
def test_a_call_is_on_record_after_the_one_around_it_also_where_that_waits_for_its_outcome(
    tmp_path: Path, command: str
) -> None:
    with minded(tmp_path) as there:
        begun(there)
        there.attempt.calls.defers = True
        delegates(there, "agent_1")
        posts(there, "below_1", command=command)
        is_told(there, "agent_1")
        posts(there, "last", lane="", command=OTHER)  # whatever waited is durable with it
        assert [intent.key for intent in there.intents()] == ["agent_1", "below_1", "last"]


@pytest.mark.parametrize("dear", ["a sub-agent worked", "it took long", ""])
def test_a_call_that_is_dear_to_do_again_is_on_record_when_its_agent_is_told(
    tmp_path: Path, dear: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        TIMING, f"supervisor.outcome_s=600,supervisor.long_call_s={0 if dear == 'it took long' else 600}"
    )
    with minded(tmp_path) as there:
        begun(there)
        delegates(there, "agent_1")
        if dear == "a sub-agent worked":
            posts(there, "below_1", command=LOCAL)
        is_told(there, "agent_1")
        journal = there.run.journal
        read = journal.store.read(journal.run, after=0).events
        durable = [each.event for each in read if isinstance(each.event, ev.EffectConfirmed)]
        assert bool(durable) == bool(dear)


def test_the_agent_that_goes_on_is_told_what_it_did(tmp_path: Path) -> None:
    cut_off(tmp_path)
    with minded(tmp_path) as there:
        prompt = there.start().command[-1]
        assert "(post_1): " in prompt, prompt
        raise AttemptDies


def test_it_is_told_also_where_the_result_stands_in_a_transcript_beside_that_of_its_agent(
    tmp_path: Path,
) -> None:
    """opencode's plugin writes one journal for all sessions; a resumed session reads none of it."""
    session = {"session_id": "ses_main"}
    main = {"hook_event_name": "SessionStart", **session}
    task = {**session, "tool_name": "task", "tool_call_id": "agent_1", "tool_input": {"prompt": "do it"}}
    post = {"session_id": "ses_a1", "lane": "ses_a1", "tool_name": "bash", "tool_call_id": "post_1"}
    post |= {"tool_input": {"command": POST}}
    with minded(tmp_path, "opencode") as there:
        there.start()
        for told in (
            main,
            {"hook_event_name": "PreToolUse", **task},
            {"hook_event_name": "PreToolUse", **post},
        ):
            assert there.allows(json.dumps(told).encode())
        there.ask(
            json.dumps(
                {"hook_event_name": "PostToolUse", **post, "tool_output": "said", "exit_code": 0}
            ).encode()
        )
        state = {
            "status": "completed",
            "input": post["tool_input"],
            "output": "said",
            "metadata": {"exit": 0},
        }
        part = {"type": "tool", "tool": "bash", "callID": "post_1", "state": state}
        lines = (
            {"type": "session", "sessionID": "ses_main"},
            {"type": "tool_use", "lane": "ses_a1", "part": part},
        )
        written = "".join(f"{json.dumps(line)}\n" for line in lines)
        (tmp_path / "place/agent" / JOURNAL_FILE).write_text(written)
        there.attempt.look()
        raise AttemptDies
    with minded(tmp_path, "opencode") as there:
        prompt = there.start().command[-1]
        assert "(post_1): said" in prompt, prompt
        assert not there.allows(
            json.dumps({"hook_event_name": "PreToolUse", **post, "tool_call_id": "post_2"}).encode()
        )
        raise AttemptDies


def test_what_it_did_is_known_once_the_agent_was_told_how_it_ended(tmp_path: Path) -> None:
    cut_off(tmp_path, ended=True)
    with minded(tmp_path) as there:
        begun(there)
        assert answer(there, "post_2") == ""
        raise AttemptDies


def test_a_failure_of_the_call_that_began_it_tells_nothing_of_what_it_did(tmp_path: Path) -> None:
    """A CLI that is stopped calls its calls failed."""
    cut_off(tmp_path, failed=True)
    with minded(tmp_path) as there:
        begun(there)
        assert AGAIN in answer(there, "post_2")
        raise AttemptDies


def test_of_two_at_once_what_the_one_did_is_not_known_by_the_end_of_the_other(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        begun(there)
        delegates(there, "agent_1")
        delegates(there, "agent_2")
        posts(there, "post_1", "a2")
        is_told(there, "agent_1")
        raise AttemptDies
    with minded(tmp_path) as there:
        begun(there)
        assert AGAIN in answer(there, "post_2")
        raise AttemptDies


@pytest.mark.parametrize("is_beside_another", [False, True])
def test_what_one_that_runs_apart_did_is_not_known(tmp_path: Path, is_beside_another: bool) -> None:
    with minded(tmp_path) as there:
        begun(there)
        delegates(there, "agent_1")
        is_told(there, "agent_1", LAUNCHED)
        there.take(BatchEnd())
        if is_beside_another:
            delegates(there, "agent_2")
        posts(there, "post_1")
        if is_beside_another:
            is_told(there, "agent_2")
        raise AttemptDies
    with minded(tmp_path) as there:
        begun(there)
        assert AGAIN in answer(there, "post_2")
        raise AttemptDies


def test_an_answer_that_a_sub_agent_got_and_did_not_pass_on_is_given_again(tmp_path: Path) -> None:
    cut_off(tmp_path)
    with minded(tmp_path) as there:
        begun(there)
        delegates(there, "agent_2")
        assert AGAIN in answer(there, "post_2", "a2")
        raise AttemptDies
    with minded(tmp_path) as there:
        begun(there)
        delegates(there, "agent_3")
        assert AGAIN in answer(there, "post_3", "a3")
        raise AttemptDies


def test_a_program_below_a_sub_agents_script_is_known_no_more_than_its_calls(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        begun(there)
        delegates(there, "agent_1")
        assert there.allows(of(before("claude", "sh deploy.sh", "script_1"), "a1"))
        calls, key = there.attempt.calls, f"{SHIM}1"
        posted = (OutwardCall("http", SIGNATURE),)
        calls.intend(key, CallRecord("curl", ["curl"], outward=posted, below=calls.enclosing()))
        calls.program_ended(key, 0, posted)
        there.ask(of(after("claude", "sh deploy.sh", "script_1"), "a1"))
        raise AttemptDies
    with minded(tmp_path) as there:
        begun(there)
        assert AGAIN in answer(there, "post_2")
        raise AttemptDies


def test_where_hooks_name_no_sub_agent_a_call_beside_one_that_was_cut_off_is_not_known(
    tmp_path: Path,
) -> None:
    with minded(tmp_path, "kimi-code") as there:
        posts(there, "post_1", "", OTHER)
        delegates(there, "agent_1")
        posts(there, "post_2", "")
        raise AttemptDies
    with minded(tmp_path, "kimi-code") as there:
        journal = there.run.journal
        [first, second] = [
            f"{event.beat}.{event.n}"
            for event in journal.events("effect_intended")
            if isinstance(event, ev.EffectIntended) and event.policy == "tell"
        ]
        assert subagents.unheard(journal, {}) == {second}
        assert subagents.unheard(journal, {"post_2": ""}) == set(), "its transcript says that it is its own"
        assert subagents.unheard(journal, {"post_1": "agent-1"}) == {first, second}, "one that runs apart"
        raise AttemptDies
