"""A guarded command whose calls wait for a person: it ends with words and rests, and each call is made once when approved."""

from collections import Counter

import pytest

from outlast.core import events as ev, questions
from outlast.operations import requests
from outlast.runs.engine.questions import AnswerArgs
from tests.supervisor.guarded_loop import ITEMS, GuardedLoop
from tests.supervisor.host import Host
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

WAITS = ("--guard", "--approve", "http")


def answered(loop: GuardedLoop, answer: ev.Answer, text: str = "") -> list[str]:
    """A person answers everything that is open: the ids."""
    host = loop.host
    found = [each.id for each in questions.open_among(host.head().questions)]
    for each in found:
        requests.answer(
            host.store, host.head().run, AnswerArgs(question=each, answer=answer, text=text), by="ada"
        )
    return found


def test_it_does_not_hang_but_rests_until_somebody_answers_and_each_call_is_made_once(host: Host) -> None:
    loop = GuardedLoop(host)
    for number, item in enumerate(ITEMS, 1):
        assert loop.run(*WAITS) == 3, loop.said
        assert item not in loop.posted()
        assert host.head().status == "parked"
        assert f"waits for a person's approval (a{number})" in loop.said
        assert answered(loop, "approved") == [f"a{number}"]
    assert loop.run() == 0, loop.said
    assert loop.posted() == Counter(ITEMS)
    assert loop.pushed() == Counter(ITEMS)
    assert [intent.approved for intent in _intents(host) if intent.approved] == ["a1", "a2", "a3"]


def test_rejected_its_program_is_refused_with_the_reason_and_the_command_fails(host: Host) -> None:
    loop = GuardedLoop(host)
    assert loop.run(*WAITS) == 3, loop.said
    answered(loop, "rejected", "not on a Friday")
    assert loop.run() == 1, loop.said
    assert host.head().attempts == 2, "what would be refused at every start is not tried again and again"
    assert "not on a Friday" in loop.said
    assert not loop.posted()
    assert not questions.open_among(host.head().questions)


def test_a_command_that_tries_the_same_call_for_ever_is_ended(host: Host) -> None:
    loop = GuardedLoop(host)
    loop.posts_by("true;")
    text = loop.script.read_text()
    loop.script.write_text(
        text.replace(f"said=$(true; {loop.post})", f"until said=$({loop.post}); do :; done")
    )
    assert loop.run(*WAITS) == 3, loop.said
    assert host.head().status == "parked"
    answered(loop, "approved")
    assert loop.run() == 3, loop.said
    assert loop.posted() == Counter(ITEMS[:1])


def test_answered_while_it_works_it_goes_on_by_itself_when_it_ends(host: Host) -> None:
    """One command is typed, and one answer given."""
    loop = GuardedLoop(host)
    waits = f"touch {loop.folder}/begun; while [ ! -e {loop.folder}/go ]; do sleep 0.05; done"
    loop.script.write_text(f"item=a; {loop.post} || {{ {waits}; }}\n")
    process = loop.start(*WAITS)
    wait_for((loop.folder / "begun").exists, what=f"its other work: {loop.said}")
    assert answered(loop, "approved") == ["a1"]
    (loop.folder / "go").touch()
    assert process.wait(TIMEOUT_S) == 0, loop.said
    assert loop.posted() == Counter(["a"])
    assert host.head().attempts == 2


@pytest.mark.parametrize("instant", ["before post a", "after post a"])
def test_killed_in_the_approved_call_it_is_not_made_again_on_the_same_approval(
    host: Host, instant: str
) -> None:
    loop = GuardedLoop(host)
    assert loop.run(*WAITS) == 3, loop.said
    answered(loop, "approved")
    loop.killed(instant, "everything")
    assert loop.run() == 3, loop.said
    assert "outlast holds this call" in loop.said
    loop.settled_by_a_person()
    assert loop.run() == 3, loop.said
    again = "a2"  # what did not happen is asked about again, and what did is done: the next item asks
    assert answered(loop, "approved") == [again]
    for _ in ITEMS:
        if loop.run() == 0:
            break
        answered(loop, "approved")
    assert loop.posted() == Counter(ITEMS), loop.said


def _intents(host: Host) -> list[ev.EffectIntended]:
    return [event for event in host.events("t") if isinstance(event, ev.EffectIntended)]
