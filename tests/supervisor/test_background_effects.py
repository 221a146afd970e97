"""What a call left in the background and reaches outside: it is not over while its processes live, and never lost in silence.

The agent is a stand-in with hooks of its own; the witness says what was done.
"""

import shutil
import time

import pytest

from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted, held
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

# The parent of the call's shell is the agent. What is left behind goes on a moment after that has ended.
AFTER_THE_AGENT = "while kill -0 $agent 2>/dev/null; do sleep 0.05; done; sleep 1"
FORMS = {
    "subshell": "( {first}; {post} ) >/dev/null 2>&1 &",
    "nohup": "nohup sh -c '{first}; {post}' >/dev/null 2>&1 &",
    "setsid": "setsid sh -c '{first}; {post}' >/dev/null 2>&1 &",
}
each_form = pytest.mark.parametrize("form", FORMS)
AT_ONCE_S = 8.0  # less than anything is waited for


@pytest.fixture
def agent(host: Host) -> Scripted:
    return Scripted(host)


def left_behind(agent: Scripted, form: str, first: str) -> str:
    """A call that returns at once; `first` goes before what it does to the world."""
    text = FORMS[form].format(first=first, post=agent.posting("bg"))
    return f"agent=$PPID; export agent; {text}"


@each_form
def test_what_reaches_outside_in_the_background_is_waited_for_when_the_agent_ends(
    agent: Scripted, form: str
) -> None:
    agent.says(left_behind(agent, form, AFTER_THE_AGENT))
    code = agent.run()
    assert agent.performed() == ["bg"], agent.host.said("t")
    assert code == 0


@pytest.mark.parametrize("has_shim", [True, False], ids=["by name", "by path"])
def test_what_reaches_outside_in_the_background_and_never_ends_is_named_as_in_doubt(
    agent: Scripted, has_shim: bool
) -> None:
    """After a limit, which this test makes short."""
    agent.host.timing = "supervisor.background_s=1"
    text = left_behind(agent, "subshell", "sleep 1000")
    agent.says(text if has_shim else text.replace("curl", str(shutil.which("curl"))))
    code = agent.run()
    assert agent.performed() == []
    assert code == 3, agent.host.said("t")
    assert [effect["state"] for effect in agent.effects()] == ["in_doubt"]


@each_form
def test_killed_while_it_waits_in_the_background_it_is_in_doubt(agent: Scripted, form: str) -> None:
    agent.says(left_behind(agent, form, "sleep 1000"), held("begun"))
    agent.killed_at("begun")
    code = agent.run()
    assert agent.performed() == []
    assert code == 3, agent.host.said("t")
    assert [effect["state"] for effect in agent.effects()] == ["in_doubt"]


def test_what_reached_outside_in_the_background_before_the_agent_ended_is_done_and_done_once(
    agent: Scripted,
) -> None:
    posted = f"( {agent.posting('bg')}; touch posted ) >/dev/null 2>&1 &"
    agent.says(posted, "until [ -e posted ]; do sleep 0.05; done")
    assert agent.run() == 0, agent.host.said("t")
    assert agent.performed() == ["bg"]


def test_two_alike_in_the_background_are_both_done_and_neither_is_in_doubt(agent: Scripted) -> None:
    agent.says(*[left_behind(agent, "subshell", AFTER_THE_AGENT)] * 2)
    assert agent.run() == 0, agent.host.said("t")
    assert agent.performed() == ["bg", "bg"]
    assert [effect["state"] for effect in agent.effects()] == ["confirmed", "confirmed"]


def test_it_is_waited_for_also_where_only_the_transcript_tells_that_its_call_returned(
    agent: Scripted,
) -> None:
    """And the agent ends at once, before anybody has read that."""
    text = agent.program.read_text()
    event = "def hook(self, event: str, **told: object) -> str:\n"
    silent = '        if event in ("PostToolUse", "PostToolBatch", "Stop"):\n            return ""\n'
    assert event in text
    agent.program.write_text(text.replace(event, f"{event}{silent}"))
    agent.says(left_behind(agent, "subshell", AFTER_THE_AGENT))
    assert agent.run() == 0, agent.host.said("t")
    assert agent.performed() == ["bg"]


def until(mark: str) -> str:
    return f"until [ -e {mark} ]; do sleep 0.05; done"


GONE = "while kill -0 $(cat job) 2>/dev/null; do sleep 0.05; done"  # what a call named in this file has ended


def test_of_two_alike_in_the_background_the_later_one_may_end_before_the_first_begins(
    agent: Scripted,
) -> None:
    first = f"( {until('go')}; {agent.posting('bg')} ) >/dev/null 2>&1 &"
    later = f"( {until('second')}; {agent.posting('bg')} ) >/dev/null 2>&1 & echo $! > job"
    agent.says(first, later, f"touch second; {GONE}")
    process = agent.start()
    waits = "for what its calls left running"
    wait_for(lambda: waits in agent.host.said("t") or process.poll() is not None, what="the agent's end")
    (agent.work / "go").touch()
    assert process.wait(TIMEOUT_S) == 0, agent.host.said("t")
    assert agent.performed() == ["bg", "bg"]
    assert [effect["state"] for effect in agent.effects()] == ["confirmed", "confirmed"]


def test_what_one_call_left_does_not_stand_for_another_call_that_was_killed_before_it_began(
    agent: Scripted,
) -> None:
    twice = f"for n in 1 2; do {agent.posting('bg')}; touch did$n; {until('on')}; done"
    agent.says(
        f"( {twice} ) >/dev/null 2>&1 &",
        until("did1"),
        f"( {until('never')}; {agent.posting('bg')} ) >/dev/null 2>&1 & echo $! > job",
        f"touch on; {until('did2')}; kill -9 $(cat job); {GONE}",
    )
    assert agent.run() == 3, agent.host.said("t")
    assert agent.performed() == ["bg", "bg"]
    states = {effect["id"]: effect["state"] for effect in agent.effects()}
    assert states.pop("3.1") == "in_doubt", states
    assert set(states.values()) == {"confirmed"}, states


def test_a_server_that_stays_here_and_is_left_running_delays_nothing(agent: Scripted) -> None:
    agent.says(
        "( echo up > up; exec sleep 1000 ) >/dev/null 2>&1 &",
        "until [ -e up ]; do sleep 0.05; done",
        "date +%s.%N > ended",
    )
    assert agent.run() == 0, agent.host.said("t")
    assert time.time() - float((agent.work / "ended").read_text()) < AT_ONCE_S


# It waits for a file that nobody writes, in the subshell itself, so that one process is all that there is to kill.
WAITING = "mkfifo gate; ( read nothing < gate; {post} ) >/dev/null 2>&1 & "


@pytest.mark.parametrize("later", [False, True], ids=["in the same call", "after it returned"])
def test_killed_in_the_background_before_it_began_it_is_in_doubt(agent: Scripted, later: bool) -> None:
    """As Codex does, which stops the process group of a command that has ended; or the kernel, for memory."""
    started = WAITING.format(post=agent.posting("bg"))
    agent.says(
        *([started + "echo $! > job", "kill -9 $(cat job)", "echo on"] if later else [started + "kill -9 $!"])
    )
    code = agent.run()
    assert agent.performed() == []
    assert code == 3, agent.host.said("t")
    assert [effect["state"] for effect in agent.effects()] == ["in_doubt"]


def test_a_branch_that_is_not_taken_is_no_doubt(agent: Scripted) -> None:
    agent.says(f"[ ! -e absent ] || {agent.posting('no')}")
    assert agent.run() == 0, agent.host.said("t")
    assert agent.performed() == []
