"""Which call is the same one again, and when a doubt about the first one counts: in the next attempt, in the same attempt
and inside one call.

An agent's call is its hook with a recorded input, then its command in a real shell below real shims. The program is a
stand-in that notes each time that it is run: the witness.
"""

import contextlib
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.supervisor.client import shim
from outlast.supervisor.socket.connection import Connection
from outlast.supervisor.socket.delivery import Delivery
from outlast.supervisor.socket.server import ScriptGone
from outlast.supervisor.socket.wire import Output, Shim
from tests.supervisor.hook_driver import AttemptDies, before, is_denied, recorded
from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted
from tests.supervisor.test_shims import HELD, Below, below
from tests.support.environment import TIMEOUT_S

# One address for everything, as of GraphQL or a chat; on no host that anybody answers for.
SAME = "http://192.0.2.1/same"
FIRST = f"curl -fsS -d e2 {SAME}"
FIRST_OTHERWISE = f"curl -fsS --retry 2 --data e2 {SAME}"
OTHER = f"curl -fsS -d e9 {SAME}"
DIES = "dies"
# Notes what it was run with: the server has it. Then it is killed, once, with its shim or without.
DYING = f"""#!/bin/sh
echo curl "$@" >> {{programs}}/witness
[ ! -e {{programs}}/{DIES} ] || {{{{ whom=$(cat {{programs}}/{DIES}); rm {{programs}}/{DIES}; eval "kill -9 $whom"; }}}}
exit {{code}}
"""
PROGRAM, SHIM_TOO = "$$", "$PPID $$"


@contextlib.contextmanager
def attempt(folder: Path, *, dies: str = "", code: int = 0) -> Iterator[Below]:
    """One attempt of the same run each time. `dies`: whom the first program kills when it has reached the server."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "curl").write_text(DYING.format(programs=programs, code=code))
    (programs / "curl").chmod(0o755)
    if dies:
        (programs / DIES).write_text(dies)
    with below(folder) as here:
        yield here


def does(here: Below, command: str, call: str) -> "subprocess.CompletedProcess[str] | None":
    """A call of the agent: its shell's end, or None where its hook denied it."""
    if is_denied(*here.there.ask(before("claude", command, call))):
        return None
    return here.run(command)


def fails(here: Below, command: str, call: str, code: int) -> None:
    """The agent hears that its call failed."""
    told = recorded("claude", "PostToolUseFailure")
    told |= {"tool_use_id": call, "error": f"Exit code {code}"}
    told["tool_input"] |= {"command": command}
    here.there.ask(json.dumps(told).encode())


def bodies(here: Below) -> list[str]:
    """What reached the server, in this order."""
    return [word for line in here.done for word in line.split() if word in ("e2", "e9")]


def cut_off(folder: Path) -> None:
    """Everything dies when the first call has reached the server: nobody knows that it did."""
    with attempt(folder, dies=SHIM_TOO) as here:
        assert does(here, FIRST, "call_1") is not None
        raise AttemptDies


# --- in the next attempt: the same call is answered, another one is made ------------------------------------------------


def test_after_a_call_was_settled_as_happened_another_body_to_its_address_is_made(tmp_path: Path) -> None:
    cut_off(tmp_path)
    with attempt(tmp_path) as here:
        here.there.settle("happened")
        does(here, OTHER, "call_2")
        assert bodies(here) == ["e2", "e9"]
        raise AttemptDies


def test_another_body_made_first_does_not_use_up_the_answer_to_the_same_call(tmp_path: Path) -> None:
    cut_off(tmp_path)
    with attempt(tmp_path) as here:
        here.there.settle("happened")
        does(here, OTHER, "call_2")
        does(here, FIRST, "call_3")
        assert bodies(here) == ["e2", "e9"]
        raise AttemptDies


def test_below_a_script_another_body_to_the_address_of_a_settled_call_is_made(tmp_path: Path) -> None:
    cut_off(tmp_path)
    with attempt(tmp_path) as here:
        here.there.settle("happened")
        assert here.there.allows(before("claude", "./all.sh", "call_2"))
        assert here.run(OTHER).returncode == 0
        assert bodies(here) == ["e2", "e9"]
        raise AttemptDies


def test_the_answer_to_a_repetition_names_the_command_that_was_made_before(tmp_path: Path) -> None:
    cut_off(tmp_path)
    with attempt(tmp_path) as here:
        here.there.settle("happened")
        code, out = here.there.ask(before("claude", FIRST_OTHERWISE, "call_2"))
        assert is_denied(code, out)
        assert FIRST in out.decode()
        raise AttemptDies


def test_a_run_does_not_end_as_done_without_a_call_that_only_shares_an_address(host: Host) -> None:
    agent = Scripted(host)
    agent.killed_in("same")
    assert host("settle", "t", "1.1", "--happened", cwd=agent.work).code == 0
    other = agent.posting("same").replace("-d {}", """-d '{"body": "e9"}'""")
    agent.says(agent.posting("same"), other)
    assert agent.run() == 0, host.said("t")
    assert [act.body for act in host.witness.performances()] == [None, "e9"]


@pytest.mark.parametrize("again", [True, False], ids=["made again", "not made again"])
def test_a_run_that_is_done_names_a_call_that_did_not_happen_and_was_not_made_again(
    host: Host, again: bool
) -> None:
    """A person said that it did not happen, and its agent may have ended without it: that is its own decision, but not silent."""
    agent = Scripted(host)
    agent.says(f"[ -e ready ] || {{ touch ready; sleep 300; }}; {agent.posting('one')}")
    agent.killed_at("ready")
    assert host("settle", "t", "1.1", "--did-not", cwd=agent.work).code == 0
    agent.says("true", *([agent.posting("one")] if again else []))
    assert agent.run() == 0, host.said("t")
    assert agent.performed() == (["one"] if again else [])
    told = "outlast: done: the same call was not made again, though it did not happen: effect 1.1 'POST "
    assert (told in host.said("t")) == (not again)


@pytest.mark.parametrize("again", [FIRST, FIRST_OTHERWISE], ids=["verbatim", "other flags"])
def test_the_same_body_to_the_same_address_is_held_until_it_is_settled_and_then_answered(
    tmp_path: Path, again: str
) -> None:
    cut_off(tmp_path)
    with attempt(tmp_path) as here:
        _, out = here.there.ask(before("claude", again, "call_2"))
        assert HELD in out.decode()
        here.there.settle("happened")
        _, out = here.there.ask(before("claude", again, "call_3"))
        assert "happened before" in out.decode()
        assert bodies(here) == ["e2"]
        raise AttemptDies


# --- in the same attempt: a doubt is on record before the next call is judged -------------------------------------------

both = pytest.mark.parametrize("whom", [PROGRAM, SHIM_TOO], ids=["the program", "and its shim"])


@both
def test_a_call_whose_program_was_killed_is_held_when_the_agent_retries_it_at_once(
    tmp_path: Path, whom: str
) -> None:
    with attempt(tmp_path, dies=whom) as here:
        done = does(here, FIRST, "call_1")
        assert done is not None
        fails(here, FIRST, "call_1", 137)
        does(here, FIRST, "call_2")
        assert bodies(here) == ["e2"]
        raise AttemptDies


def test_a_call_whose_program_failed_by_itself_may_be_retried_at_once(tmp_path: Path) -> None:
    with attempt(tmp_path, code=7) as here:
        done = does(here, FIRST, "call_1")
        assert done is not None
        assert done.returncode == 7
        fails(here, FIRST, "call_1", 7)
        assert does(here, FIRST, "call_2") is not None
        assert bodies(here) == ["e2", "e2"]
        raise AttemptDies


# --- inside one call ----------------------------------------------------------------------------------------------------

TWICE = f"{FIRST} || {FIRST}"
UNTIL = f"n=0; until {FIRST} || [ $n -ge 3 ]; do n=$((n+1)); done"
retries = pytest.mark.parametrize("command", [TWICE, UNTIL], ids=["or", "until"])


@both
@retries
def test_inside_one_call_a_killed_program_is_not_run_again(tmp_path: Path, command: str, whom: str) -> None:
    with attempt(tmp_path, dies=whom) as here:
        assert does(here, command, "call_1") is not None
        assert bodies(here) == ["e2"]
        raise AttemptDies


ELSEWHERE = "http://192.0.2.1/fallback"


@both
def test_inside_one_call_what_goes_elsewhere_after_a_killed_program_is_made(
    tmp_path: Path, whom: str
) -> None:
    """It was not begun when the other one was killed: nothing of it is in doubt."""
    with attempt(tmp_path, dies=whom) as here:
        fallback = FIRST.replace(SAME, ELSEWHERE)
        assert does(here, f"{FIRST} || {fallback}", "call_1") is not None
        assert [line.split()[-1] for line in here.done] == [SAME, ELSEWHERE]
        raise AttemptDies


@both
def test_inside_one_call_another_body_to_the_address_of_a_killed_program_is_held(
    tmp_path: Path, whom: str
) -> None:
    with attempt(tmp_path, dies=whom) as here:
        done = does(here, f"{FIRST} || {OTHER}", "call_1")
        assert done is not None
        assert HELD in done.stderr
        assert bodies(here) == ["e2"]
        raise AttemptDies


def test_a_killed_program_is_a_doubt_on_record_before_its_call_has_ended(tmp_path: Path) -> None:
    with attempt(tmp_path, dies=PROGRAM) as here:
        assert does(here, FIRST, "call_1") is not None
        assert [state for _, state in here.states()] == ["in_doubt"]
        fails(here, FIRST, "call_1", 137)
        assert here.there.allows(before("claude", "ls", "call_2"))
        assert [state for _, state in here.states()] == ["in_doubt"], "on record once"
        doubts = list(here.there.run.journal.events("effect_in_doubt"))
        assert len(doubts) == 1
        raise AttemptDies


def test_a_shim_that_died_is_a_doubt_before_its_own_thread_has_heard_of_it(tmp_path: Path) -> None:
    with attempt(tmp_path) as here:
        hooks, asked = here.there.attempt.hooks, Shim(words=tuple(FIRST.split()), cwd=str(here.there.work))
        began, hears = threading.Event(), threading.Event()
        ours, theirs = socket.socketpair()

        def perform() -> Output:
            began.set()
            hears.wait(TIMEOUT_S)
            raise ScriptGone("its shim was killed")

        def dies() -> None:
            with contextlib.suppress(ScriptGone):
                hooks.shim(asked, perform, Delivery(Connection(ours), acknowledges=True))

        thread = threading.Thread(target=dies)
        thread.start()
        try:
            assert began.wait(TIMEOUT_S)
            theirs.close()
            assert HELD in hooks.shim(asked, lambda: Output(0)).reason
        finally:
            hears.set()
            thread.join(TIMEOUT_S)
            ours.close()
        assert len(list(here.there.run.journal.events("effect_in_doubt"))) == 1, "it is on record once"
        raise AttemptDies


def test_below_a_script_a_killed_program_is_not_run_again(tmp_path: Path) -> None:
    with attempt(tmp_path, dies=PROGRAM) as here:
        assert here.there.allows(before("claude", "./all.sh", "call_1"))
        assert here.run(TWICE).returncode == shim.REFUSED
        assert bodies(here) == ["e2"]
        raise AttemptDies


def test_inside_one_call_a_program_that_failed_by_itself_is_run_again(tmp_path: Path) -> None:
    with attempt(tmp_path, code=7) as here:
        assert does(here, TWICE, "call_1") is not None
        assert bodies(here) == ["e2", "e2"]
        raise AttemptDies
