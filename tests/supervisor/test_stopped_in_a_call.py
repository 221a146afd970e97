"""An agent that exits with 0 in a call, or before its last word, was stopped: that is no end of its task."""

from pathlib import Path

import pytest

from outlast.agents.events import Response, Text, ToolEnd
from tests.supervisor.hook_driver import HOOKS, LOCAL, AttemptDies, after, before, minded

each_agent = pytest.mark.parametrize("agent", HOOKS)
LAST_WORD = "All is done."


@each_agent
def test_an_exit_with_0_in_an_open_call_is_not_done(agent: str, tmp_path: Path) -> None:
    with minded(tmp_path, agent) as there:
        there.start()
        assert there.allows(before(agent, LOCAL))
        assert there.attempt.judge(0, b"").ending != "done"
        raise AttemptDies


@each_agent
def test_an_exit_with_0_in_an_open_call_is_not_done_whatever_its_model_said_of_it(
    agent: str, tmp_path: Path
) -> None:
    """A transcript may tell the words before a call later than a hook tells the call."""
    with minded(tmp_path, agent) as there:
        there.start()
        assert there.allows(before(agent, LOCAL))
        there.take(Response("msg_1"))
        there.take(Text("Now I run it."))
        assert there.attempt.judge(0, b"Now I run it.").ending != "done"
        raise AttemptDies


@each_agent
def test_an_exit_with_0_after_a_call_and_before_a_last_word_is_not_done(agent: str, tmp_path: Path) -> None:
    with minded(tmp_path, agent) as there:
        there.start()
        assert there.allows(before(agent, LOCAL))
        there.ask(after(agent, LOCAL))
        assert there.attempt.judge(0, b"").ending != "done"
        raise AttemptDies


@each_agent
def test_an_exit_with_0_after_a_last_word_is_done(agent: str, tmp_path: Path) -> None:
    with minded(tmp_path, agent) as there:
        there.start()
        assert there.allows(before(agent, LOCAL))
        there.ask(after(agent, LOCAL))
        there.take(Response("msg_2"))
        there.take(Text(LAST_WORD))
        assert there.attempt.judge(0, LAST_WORD.encode()).ending == "done"
        raise AttemptDies


# Gemini's hooks name no id: a call of it is known by its input.
@pytest.mark.parametrize("agent", [agent for agent in HOOKS if agent != "gemini"])
def test_a_hook_that_tells_of_a_result_after_the_answer_to_it_does_not_take_the_last_word_back(
    agent: str, tmp_path: Path
) -> None:
    """kimi-cli does not wait for its hook: the transcript may tell of the result, and of all after it, before."""
    with minded(tmp_path, agent) as there:
        there.start()
        assert there.allows(before(agent, LOCAL))
        there.take(ToolEnd("call_1", True, "fine"))
        there.attempt.responses.written("call_1")
        there.take(Response("msg_2"))
        there.take(Text(LAST_WORD))
        there.ask(after(agent, LOCAL))
        assert there.attempt.judge(0, LAST_WORD.encode()).ending == "done"
        raise AttemptDies
