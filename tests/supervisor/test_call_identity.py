"""The one function that says which call is the same again, and whose memory a call is in; by tables."""

from datetime import UTC, datetime

import pytest

from outlast.agents.outward.content import of
from outlast.agents.outward.rules import Another
from outlast.core import events as ev
from outlast.core.values import SessionMark
from outlast.supervisor.agent.calls.history import Memories
from outlast.supervisor.agent.calls.identity import Likeness, is_part, likeness, nearest
from outlast.supervisor.agent.calls.record import OutwardCall

AT = datetime(2026, 11, 16, tzinfo=UTC)


def call(signature: str, content: str = "", another: Another = "named") -> OutwardCall:
    told = of(body=content.encode()) if content.isalpha() else content
    return OutwardCall("http", signature, content=told, another=another)


@pytest.mark.parametrize(
    ("first", "again", "another", "wanted"),
    [
        ("a", "a", "named", "same"),
        ("a", "a", "held", "same"),
        ("a", "a", "free", "same"),
        ("a", "b", "held", "reworded"),
        ("a", "b", "named", "named"),
        ("a", "b", "free", "free"),
        ("", "b", "named", "unclear"),
        ("a", "", "named", "unclear"),
        ("", "", "free", "unclear"),
        ("", "b", "held", "unclear"),
        (of(words=b"a", rest=None), of(words=b"a", rest=None), "held", "unclear"),
        (of(words=b"a", rest=None), of(words=b"b", rest=None), "held", "reworded"),
        (of(words=b"a", rest=None), of(words=b"b", rest=None), "named", "named"),
        (of(body=b"a", head=None), of(body=b"b", head=b""), "named", "named"),
        (of(body=b"a", head=None), of(body=b"a", head=b""), "named", "unclear"),
        (of(body=None, head=b"x"), of(body=b"a", head=b"y"), "named", "named"),
        (of(body=b"a", aside=b"x"), of(body=b"a", aside=b"y"), "named", "unclear"),
        (of(body=b"a", aside=b"x"), of(body=b"b", aside=b"y"), "named", "named"),
        (of(body=b"a"), of(title=b"a"), "held", "unclear"),
        ("0123456789abcdef0123456789abcdef", of(body=b"a"), "named", "unclear"),  # of an earlier outlast
        ("0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef", "held", "unclear"),
    ],
)
def test_verb_target_and_content_say_which_call_is_the_same(
    first: str, again: str, another: Another, wanted: Likeness
) -> None:
    assert likeness(call("POST x", first), call("POST x", again, another)) == wanted
    assert likeness(call("POST x", first), call("POST y", again, another)) == "unrelated"


def test_a_graphql_call_whose_mutations_cannot_be_read_may_be_any_of_them() -> None:
    assert likeness(call("POST x/graphql"), call("POST x/graphql add", "b")) == "unclear"
    assert likeness(call("POST x/graphql add", "a"), call("POST x/graphql", "b")) == "named"
    assert likeness(call("POST x/graphql add", "a"), call("POST x/graphql close", "b")) == "unrelated"
    assert likeness(call("POST x/graph"), call("POST x/graph add")) == "unrelated"


def test_a_call_that_does_several_things_is_judged_by_what_is_most_alike() -> None:
    before = [call("POST x", "a"), call("POST y", "b")]
    assert nearest(before, [call("POST x", "c"), call("POST y", "b")]) == ("same", before[1])
    assert nearest(before, [call("POST x", "c")]) == ("named", before[0])
    assert nearest(before, [call("POST z", "a")]) == ("unrelated", None)


def test_a_program_with_another_body_is_no_part_of_a_call() -> None:
    assert is_part(call("POST x", "a"), [call("POST x", "a")])
    assert is_part(call("POST x", "a"), [call("POST x")]), "the call's own text did not tell it"
    assert not is_part(call("POST x", "a"), [call("POST x", "b")])


def known(agent: str, session: str) -> ev.SessionKnown:
    return ev.SessionKnown(at=AT, session=SessionMark(agent, session))


START = ev.AttemptStarted(at=AT, epoch=1)


@pytest.mark.parametrize(
    ("events", "memories"),
    [
        ([START, known("claude", "s"), START, known("claude", "s")], [1, 1, 2, 1]),
        ([START, known("claude", "s"), START, known("claude", "t")], [1, 1, 2, 2]),
        ([START, START], [1, 2]),  # an agent without sessions
        ([START, known("claude", "s"), known("claude", "t"), START, known("claude", "t")], [1, 1, 1, 2, 1]),
        # what another agent spent is charged in the attempt of the next one, before that has a session
        ([START, known("claude", "s"), START, known("claude", "s"), known("codex", "c")], [1, 1, 2, 1, 3]),
    ],
)
def test_a_session_that_is_gone_on_with_is_one_memory_and_any_other_start_is_a_new_one(
    events: list[ev.AttemptStarted | ev.SessionKnown], memories: list[int]
) -> None:
    found = Memories()
    numbers = []
    for event in events:
        found.take(event)
        numbers.append(found.now)
    assert numbers == memories


def test_what_was_done_before_a_session_was_known_belongs_to_it() -> None:
    found = Memories()
    for event in (START, known("codex", "c"), START):
        found.take(event)
    early = found.now
    found.take(known("codex", "c"))
    assert found.of(early) == found.now == 1
