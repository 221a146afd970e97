"""Effects of calls that run on, by what is told of them, without the agent."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from outlast.agents.events import BatchEnd, Response, TaskEnd, ToolEnd
from outlast.supervisor.agent.calls import background, interruptions
from outlast.supervisor.agent.calls.open_call import OpenCall, covering
from outlast.supervisor.agent.calls.record import CallRecord, OutwardCall
from tests.supervisor.hook_driver import HOOKS, LOCAL, POST, SIGNATURE, AttemptDies, Minded, before, minded

POSTED = OutwardCall("http", SIGNATURE)  # as a shim tells it
LEFT = ToolEnd("call_1", True, "running", task="b1")


def left_running(there: Minded) -> None:
    there.take(Response("msg_1"))
    assert there.allows(before("claude", POST))
    there.take(LEFT)
    there.take(BatchEnd())
    there.attempt.responses.written("call_1")


def states(there: Minded) -> list[tuple[str, str]]:
    return [(effect.name, effect.state) for effect in there.run.state.effects_open]


def test_its_beat_ends_and_its_effect_stays_open_until_its_end_is_told(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        left_running(there)
        assert (there.run.state.beats, states(there)) == (1, [(SIGNATURE, "intended")])
        there.take(Response("msg_2"))
        there.take(LEFT)  # the transcript tells it once more
        there.take(TaskEnd("b9", True))
        assert states(there) == [(SIGNATURE, "intended")]
        there.take(TaskEnd("b1", True, "exit code 0"))
        assert states(there) == []
        raise AttemptDies


def test_one_that_failed_by_itself_is_no_success_and_counts_when_the_agent_goes_on(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        left_running(there)
        there.take(TaskEnd("b1", False, "exit code 7"))
        assert states(there) == [(SIGNATURE, "intended")]  # perhaps its agent's dying word
        there.take(Response("msg_2"))
        assert states(there) == []
        [ended] = there.run.journal.events("effect_confirmed")
        assert b'"ok":false' in bytes(ended.result.v)  # type: ignore[union-attr]
        raise AttemptDies


def test_when_the_agent_ends_first_it_is_in_doubt(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        left_running(there)
        there.attempt.calls.settle_rest()
        assert states(there) == [(SIGNATURE, "in_doubt")]
        raise AttemptDies


def asks_for_background(agent: str) -> bytes:
    """The hook's input of a call that its CLI runs in the background."""
    told = json.loads(before(agent, POST))
    told["tool_input"] |= {"is_background" if agent == "gemini" else "run_in_background": True}
    return json.dumps(told).encode()


@pytest.mark.parametrize("agent", [agent for agent in HOOKS if agent != "codex"])
def test_asked_to_run_in_the_background_no_words_of_its_result_tell_of_its_end(
    agent: str, tmp_path: Path
) -> None:
    """Whatever a release writes into its results: its hook may tell less than its transcript, or first."""
    with minded(tmp_path, agent) as there:
        there.start()
        there.take(Response("msg_1"))
        assert there.allows(asks_for_background(agent))
        [intent] = there.intents()
        there.take(ToolEnd(intent.key, True, "It is under way, in words that nobody knows."))
        there.take(Response("msg_2"))
        assert states(there) == [(SIGNATURE, "intended")]
        assert not there.attempt.calls.is_busy
        raise AttemptDies
    with minded(tmp_path, agent) as there:
        assert states(there) == [(SIGNATURE, "in_doubt")]
        raise AttemptDies


def test_its_task_may_be_named_by_a_later_report(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        there.take(Response("msg_1"))
        assert there.allows(asks_for_background("claude"))
        there.take(ToolEnd("call_1", True, "started"))
        there.take(TaskEnd("", True))
        there.take(LEFT)
        there.take(TaskEnd("b1", True, "exit code 0"))
        assert states(there) == []
        raise AttemptDies


def test_one_that_could_not_be_started_in_the_background_failed(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        there.take(Response("msg_1"))
        assert there.allows(asks_for_background("claude"))
        there.take(ToolEnd("call_1", False, "Too many background tasks are already running."))
        there.take(Response("msg_2"))
        assert states(there) == []
        [ended] = there.run.journal.events("effect_confirmed")
        assert b'"ok":false' in bytes(ended.result.v)  # type: ignore[union-attr]
        raise AttemptDies


def test_one_that_was_killed_is_in_doubt_whatever_its_agent_says_next(tmp_path: Path) -> None:
    """No shim saw what it did: nobody knows how far it came."""
    with minded(tmp_path) as there:
        left_running(there)
        there.take(TaskEnd("b1", False, "exit code 137", code=137))
        assert states(there) == [(SIGNATURE, "in_doubt")]
        there.take(Response("msg_2"))
        assert states(there) == [(SIGNATURE, "in_doubt")]
        assert not there.allows(before("claude", POST, "call_2"))
        raise AttemptDies


def test_killed_meanwhile_the_next_attempt_is_told(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        left_running(there)
        assert background.left(there.run)
        raise AttemptDies
    with minded(tmp_path) as there:
        assert states(there) == [(SIGNATURE, "in_doubt")]
        [cut] = there.attempt._start._left
        assert (cut.id, "ran in the background and was cut off" in cut.text) == ("call_1", True)
        raise AttemptDies


def test_a_program_below_it_that_ended_well_tells_that_it_happened(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        left_running(there)
        calls = there.attempt.calls
        assert calls.covers([POSTED]) == "call_1"
        calls.program_ended("call_1", 0, [POSTED])
        assert states(there) == []
        calls.settle_rest()
        assert not list(there.run.journal.events("effect_in_doubt"))
        raise AttemptDies


def test_a_context_tells_of_one_effect_once_and_of_a_cut_local_call_that_it_may_be_repeated(
    tmp_path: Path,
) -> None:
    with minded(tmp_path) as there:
        left_running(there)
        there.attempt.calls.covers([POSTED])
        there.attempt.calls.program_ended("call_1", 0, [POSTED])
        there.take(TaskEnd("b1", True, "exit code 0"))
        assert there.allows(before("claude", LOCAL, "call_2"))
        context = there.run.context()
        assert len([line for line in context.splitlines() if line.startswith("- 1.1 ")]) == 1
        [cut] = [line for line in context.splitlines() if "cut off" in line]
        assert "repeat what is missing" in cut
        assert "Do not repeat it unasked" not in context
        raise AttemptDies


def returned_meanwhile(there: Minded) -> None:
    """A call ended well, and a program that it began runs on: no task that its agent knows of."""
    there.take(Response("msg_1"))
    assert there.allows(before("claude", f"{POST} &"))
    assert there.attempt.calls.covers([POSTED]) == "call_1"
    there.take(ToolEnd("call_1", True, "exit code 0"))
    there.take(BatchEnd())
    there.attempt.responses.written("call_1")


def test_the_beat_of_a_call_whose_program_runs_on_ends_and_its_effect_stays_open_until_that_ends(
    tmp_path: Path,
) -> None:
    with minded(tmp_path) as there:
        returned_meanwhile(there)
        assert (there.run.state.beats, states(there)) == (1, [(SIGNATURE, "intended")])
        there.take(Response("msg_2"))
        assert states(there) == [(SIGNATURE, "intended")]
        there.attempt.calls.program_ended("call_1", 22, [POSTED])
        assert states(there) == [], "its agent was told that it ended well"
        raise AttemptDies


def test_an_attempt_killed_while_it_runs_leaves_it_in_doubt(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        returned_meanwhile(there)
        raise AttemptDies
    with minded(tmp_path) as there:
        assert states(there) == [(SIGNATURE, "in_doubt")]
        assert not there.allows(before("claude", POST, "call_2"))
        raise AttemptDies


# --- what became of it is told when the agent goes on: it may have been cut off before it heard of it -----------------


def went_on(there: Minded, number: int) -> None:
    """The agent makes one more call, which is a beat of its own."""
    call = f"call_{number}"
    there.take(Response(f"msg_{number}"))
    assert there.allows(before("claude", LOCAL, call))
    there.take(ToolEnd(call, True, "ok"))
    there.take(BatchEnd())
    there.attempt.responses.written(call)


def ended_by_its_program(there: Minded) -> None:
    there.attempt.calls.covers([POSTED])
    there.attempt.calls.program_ended("call_1", 0, [POSTED])


def ended_by_its_task(there: Minded) -> None:
    ended_by_its_program(there)
    there.take(TaskEnd("b1", True, "exit code 0"))


@pytest.mark.parametrize("ended", [ended_by_its_program, ended_by_its_task])
def test_one_that_happened_just_before_a_kill_is_told_and_not_made_again_unawares(
    tmp_path: Path, ended: Callable[[Minded], None]
) -> None:
    """Claude Code and Kimi Code say to their model that nobody knows whether what ran in the background was done."""
    with minded(tmp_path) as there:
        left_running(there)
        assert there.allows(before("claude", LOCAL, "call_2"))
        ended(there)
        raise AttemptDies
    with minded(tmp_path) as there:
        [said] = interruptions.settled(there.run)
        assert said.startswith(f"{SIGNATURE} (effect 1.1, ")
        assert any(
            words in said for words in ("it happened. Do not repeat it.", "Look before you repeat it.")
        )
        assert not there.allows(before("claude", POST, "call_3"))
        assert there.allows(before("claude", POST, "call_4")), "it insists"
        raise AttemptDies


def test_one_that_failed_in_the_background_just_before_a_kill_is_told(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        left_running(there)
        there.take(TaskEnd("b1", False, "exit code 7"))
        there.take(Response("msg_2"))
        raise AttemptDies
    with minded(tmp_path) as there:
        [said] = interruptions.settled(there.run)
        assert said.endswith("it failed: exit code 7. Make the call again if it is still needed.")
        raise AttemptDies


def test_one_whose_end_was_told_long_ago_is_not_told_again(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        left_running(there)
        ended_by_its_task(there)
        raise AttemptDies
    for number in (2, 3):
        with minded(tmp_path) as there:
            assert interruptions.settled(there.run)
            went_on(there, number)
            raise AttemptDies
    with minded(tmp_path) as there:
        assert interruptions.settled(there.run) == []
        raise AttemptDies


def test_a_doubt_is_told_until_the_agent_goes_on(tmp_path: Path) -> None:
    """An attempt that is killed while it resumes has told nobody."""
    with minded(tmp_path) as there:
        left_running(there)
        raise AttemptDies
    for _ in range(2):
        with minded(tmp_path) as there:
            [cut] = there.attempt._start._left
            assert "it is not known whether it happened" in cut.text
            raise AttemptDies
    with minded(tmp_path) as there:
        went_on(there, 2)
        raise AttemptDies
    with minded(tmp_path) as there:
        assert not there.attempt._start._left
        raise AttemptDies


def test_a_program_that_was_killed_in_the_background_is_told_too(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        left_running(there)
        there.attempt.calls.covers([POSTED])
        there.attempt.calls.program_killed("call_1")
        raise AttemptDies
    with minded(tmp_path) as there:
        [cut] = there.attempt._start._left
        assert "it is not known whether it happened" in cut.text
        raise AttemptDies


def test_of_two_alike_either_counts_where_nobody_knows_which_left_the_program() -> None:
    """A program that no process leads to. One call stands for one program."""
    record = CallRecord("Bash", {"command": "curl"}, "", "/", (POSTED,))
    alike = [structs.replace(OpenCall.of(key, key, 1, 1, record), background=True) for key in ("a", "b")]
    first = covering(alike, [POSTED])
    assert first is not None
    alike[alike.index(first)] = structs.replace(first, unseen=())
    second = covering(alike, [POSTED])
    assert second is not None
    assert second.key != first.key
    assert covering([structs.replace(each, unseen=()) for each in alike], [POSTED]) is None
