"""Calls that wait for a person: asked about once and on record before their agent hears of it, let through once when approved."""

import json
from pathlib import Path

import pytest

from outlast.agents.claude.transcript import dashed
from outlast.core import events as ev, questions
from outlast.errors import WaitsForPerson
from outlast.operations import requests
from outlast.runs.engine.questions import AnswerArgs
from outlast.runs.engine.steps import append
from outlast.supervisor.agent.approvals import REPEATS_MAX
from tests.supervisor.hook_driver import (
    HOOKS,
    LOCAL,
    POST,
    POST_FLAGS,
    POST_OTHERWISE,
    SIGNATURE,
    AttemptDies,
    Minded,
    after,
    before,
    is_denied,
    line,
    minded,
    response,
)
from tests.supervisor.test_shims import below

HTTP = ("http",)
PIPED = "make one | curl -sS -d @- http://127.0.0.1:9/comment"  # what it sends is known when it runs


def answer(there: Minded, answer: ev.Answer, text: str = "", question: str = "a1") -> None:
    """As a person's act records it in a run that rests."""
    event = ev.QuestionAnswered(at=there.run.journal.now(), id=question, answer=answer, text=text, by="ada")
    there.run.drive(append(event))


def words(there: Minded, data: bytes) -> str:
    """The reason with which a hook denies this call."""
    code, out = there.ask(data)
    assert is_denied(code, out)
    return out.decode()


def open_ids(there: Minded) -> list[str]:
    return [each.id for each in questions.open_among(there.run.state.questions)]


def uses(there: Minded) -> list[str]:
    """The approvals that intents used up."""
    return [intent.approved for intent in there.intents() if intent.approved]


# --- asked ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", HOOKS)
def test_a_call_whose_class_waits_is_denied_with_words_and_asked_about(tmp_path: Path, agent: str) -> None:
    with minded(tmp_path, agent, approve=HTTP) as there:
        said = words(there, before(agent, POST))
        assert "waits for a person" in said
        assert "(a1)" in said
        assert there.allows(before(agent, LOCAL, "call_2"))
        [asked] = list(there.run.journal.events("question_asked"))
        assert isinstance(asked, ev.QuestionAsked)
        assert (asked.id, asked.kind, asked.kind_of_call, asked.target) == (
            "a1",
            "approval",
            "http",
            SIGNATURE,
        )
        assert POST in asked.text
        raise AttemptDies


def test_the_question_is_durable_before_the_agent_hears_of_it(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        run, store = there.run.id, there.run.journal.store
        assert [
            item.event.id
            for item in store.read(run, after=0).events
            if isinstance(item.event, ev.QuestionAsked)
        ] == ["a1"]
        raise AttemptDies


def test_where_no_class_waits_every_call_passes(tmp_path: Path) -> None:
    with minded(tmp_path, approve=("push",)) as there:
        assert there.allows(before("claude", POST))
        assert open_ids(there) == []
        raise AttemptDies


@pytest.mark.parametrize(
    ("approve", "waits"),
    [
        ("mcp", True),
        ("all", True),
        ("mcp__github__*", True),
        ("mcp github create_*", True),
        ("mcp__gitlab__*", False),
        ("push", False),
    ],
)
def test_a_tool_of_a_server_waits_by_its_class_its_target_and_its_name(
    tmp_path: Path, approve: str, waits: bool
) -> None:
    told = json.loads(before("claude", "x")) | {
        "tool_name": "mcp__github__create_issue",
        "tool_input": {"title": "x"},
    }
    reads = json.loads(before("claude", "x", "call_2")) | {
        "tool_name": "mcp__github__list_issues",
        "tool_input": {},
    }
    with minded(tmp_path, approve=(approve,)) as there:
        assert there.allows(json.dumps(told).encode()) != waits
        assert there.allows(json.dumps(reads).encode()), "it reaches outside only to read"
        raise AttemptDies


def test_a_person_reads_every_field_of_a_servers_call(tmp_path: Path) -> None:
    """Not the one that says most of it of a shell's call: `path`."""
    given = {"path": "a.txt", "content": "all of it " * 50, "branch": "main"}
    told = json.loads(before("claude", "x")) | {"tool_name": "mcp__github__create_file", "tool_input": given}
    with minded(tmp_path, approve=("mcp",)) as there:
        words(there, json.dumps(told).encode())
        [asked] = list(there.run.journal.events("question_asked"))
        assert isinstance(asked, ev.QuestionAsked)
        assert json.dumps(given, separators=(",", ":")) in asked.text
        raise AttemptDies


@pytest.mark.parametrize(
    ("approve", "waits"), [("POST *:9/*", True), ("*/comment", True), ("*/comments", False)]
)
def test_a_call_waits_by_its_target(tmp_path: Path, approve: str, waits: bool) -> None:
    with minded(tmp_path, approve=(approve,)) as there:
        assert there.allows(before("claude", POST)) != waits
        raise AttemptDies


def test_the_same_call_again_waits_for_the_same_answer(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        assert "(a1)" in words(there, before("claude", POST, "call_2"))
        assert open_ids(there) == ["a1"]
        raise AttemptDies
    with minded(tmp_path, approve=HTTP) as there:
        assert "(a1)" in words(there, before("claude", POST, "call_3"))
        raise AttemptDies


def test_a_call_that_waits_and_is_made_again_and_again_ends_the_attempt(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        for number in range(REPEATS_MAX + 1):
            assert there.attempt.failure is None
            words(there, before("claude", POST, f"call_{number}"))
        assert isinstance(there.attempt.failure, WaitsForPerson)
        fates = [type(event).__name__ for event in there.run.journal.events() if hasattr(event, "n")]
        assert fates.count("EffectFailed") == len(there.intents()) == REPEATS_MAX + 1, "none was made"
        raise AttemptDies


def test_no_open_question_is_forgotten_when_no_more_fit(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        for number in range(questions.QUESTIONS_MAX + 1):
            said = words(there, before("claude", f"curl -d {number} http://127.0.0.1:9/x", f"call_{number}"))
        assert f"{questions.QUESTIONS_MAX} others wait" in said
        assert len(open_ids(there)) == questions.QUESTIONS_MAX
        raise AttemptDies


# --- approved ---------------------------------------------------------------------------------------------------------


def test_approved_the_call_passes_once_and_is_asked_about_again_later(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        raise AttemptDies
    with minded(tmp_path, approve=HTTP) as there:
        answer(there, "approved")
        assert there.allows(before("claude", POST, "call_2"))
        there.ask(after("claude", POST, "call_2"))
        assert uses(there) == ["a1"]
        assert "(a2)" in words(there, before("claude", POST, "call_3"))
        assert uses(there) == ["a1"]
        raise AttemptDies


def test_an_approval_that_comes_while_the_agent_works_lets_the_next_such_call_pass(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        store = there.run.journal.store
        requests.answer(store, there.run.id, AnswerArgs(question="a1", answer="approved"), by="ada")
        assert there.allows(before("claude", POST, "call_2"))
        assert uses(there) == ["a1"]
        raise AttemptDies


def test_the_agent_hears_of_an_answer_while_it_works(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        assert there.allows(before("claude", LOCAL, "call_2"))
        answer(there, "rejected", "not on a Friday")
        _, out = there.ask(after("claude", LOCAL, "call_2"))
        assert b"not on a Friday" in out
        there.allows(before("claude", LOCAL, "call_3"))
        assert b"Friday" not in there.ask(after("claude", LOCAL, "call_3"))[1]
        raise AttemptDies


def test_two_reports_of_one_approved_call_use_one_approval(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        answer(there, "approved")
        assert there.allows(before("claude", POST, "call_2"))
        assert there.allows(before("claude", POST, "call_2"))
        assert uses(there) == ["a1"]
        raise AttemptDies


@pytest.mark.parametrize(
    "other",
    [
        POST_OTHERWISE,
        POST.replace("comment", "other"),
        f"{POST} && curl -d x http://127.0.0.1:9/more",
        PIPED,
        f"{POST} && {POST}",
        f"for i in 1 2 3; do {POST}; done",
        f"post() {{ {POST}; }}; post; post",
        f"seq 3 | xargs -I{{}} {POST}",
        f"sh -c 'while true; do {POST}; done'",
    ],
)
def test_an_approval_covers_no_other_call(tmp_path: Path, other: str) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        answer(there, "approved")
        assert "(a2)" in words(there, before("claude", other, "call_2"))
        assert there.allows(before("claude", POST, "call_3"))
        raise AttemptDies


def test_an_approval_of_two_acts_covers_no_single_one_of_them(tmp_path: Path) -> None:
    both = f"{POST} && curl -d x http://127.0.0.1:9/more"
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", both))
        answer(there, "approved")
        assert "(a2)" in words(there, before("claude", POST, "call_2"))
        assert there.allows(before("claude", both, "call_3"))
        raise AttemptDies


def test_the_same_request_with_other_flags_is_the_same_call(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        answer(there, "approved")
        assert there.allows(before("claude", POST_FLAGS, "call_2"))
        raise AttemptDies


@pytest.mark.parametrize(("again", "passes"), [(PIPED, True), (PIPED.replace("one", "two"), False)])
def test_what_nobody_knows_before_it_runs_is_bound_by_every_word(
    tmp_path: Path, again: str, passes: bool
) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", PIPED))
        answer(there, "approved")
        assert there.allows(before("claude", again, "call_2")) == passes
        raise AttemptDies


def test_killed_in_the_approved_call_it_is_in_doubt_and_the_approval_is_used_up(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        answer(there, "approved")
        assert there.allows(before("claude", POST, "call_2"))
        raise AttemptDies
    with minded(tmp_path, approve=HTTP) as there:
        assert "outlast holds this call" in words(there, before("claude", POST, "call_3"))
        there.settle("did_not")
        assert "(a2)" in words(there, before("claude", POST, "call_4"))
        assert uses(there) == ["a1"]
        raise AttemptDies


# --- rejected, or not answered in time --------------------------------------------------------------------------------


def test_rejected_the_agent_is_told_why_and_the_same_call_is_not_asked_about_again(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        answer(there, "rejected", "not on a Friday")
        for number in (2, 3):
            said = words(there, before("claude", POST, f"call_{number}"))
            assert "rejected" in said
            assert "not on a Friday" in said
        assert open_ids(there) == []
        raise AttemptDies


def test_not_answered_in_time_it_counts_as_rejected_and_may_be_asked_about_again(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        answer(there, "expired", "nobody answered within 8h")
        assert "within 8h" in words(there, before("claude", POST, "call_2"))
        assert "(a2)" in words(there, before("claude", POST, "call_3"))
        raise AttemptDies


# --- the end of the attempt, and the next one --------------------------------------------------------------------------


def test_an_agent_that_ends_while_a_call_waits_is_not_done(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        with pytest.raises(WaitsForPerson) as caught:
            there.attempt.finish()
        assert caught.value.questions == ("a1",)
        raise AttemptDies


def test_an_agent_that_ends_without_having_heard_an_answer_goes_on(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        words(there, before("claude", POST))
        answer(there, "approved")
        with pytest.raises(WaitsForPerson) as caught:
            there.attempt.finish()
        assert caught.value.questions == ()
        raise AttemptDies


@pytest.mark.parametrize(
    ("how", "text", "told"),
    [
        ("approved", "", "make this call now, exactly as it was"),
        ("rejected", "not on a Friday", "not on a Friday"),
        ("expired", "nobody answered within 8h", "nobody answered within 8h"),
        ("", "", "still waits"),
    ],
)
def test_the_next_attempt_is_told_what_became_of_it(
    tmp_path: Path, how: ev.Answer, text: str, told: str
) -> None:
    with below(tmp_path, approve=HTTP) as here:
        words(here.there, before("claude", POST))
        raise AttemptDies
    with below(tmp_path, approve=HTTP) as here:
        if how:
            answer(here.there, how, text)
        said = here.told()
        assert told in said
        assert POST in said
        if how:
            here.there.attempt._approvals.finish()  # it has heard of it
        raise AttemptDies


# --- put aside --------------------------------------------------------------------------------------------------------


def decision(there: Minded, data: bytes) -> str:
    code, out = there.ask(data)
    assert code == 0
    return str(json.loads(out)["hookSpecificOutput"]["permissionDecision"]) if out else "allow"


def test_one_call_is_put_aside_and_all_others_that_wait_are_denied(tmp_path: Path) -> None:
    """Resumed, Claude Code asks about a single one."""
    of_subagent = json.loads(before("claude", f"{POST}/0", "call_0")) | {"agent_id": "sub"}
    with minded(tmp_path, approve=HTTP) as there:
        there.attempt._approvals.defers = True
        assert decision(there, json.dumps(of_subagent).encode()) == "deny"
        assert decision(there, before("claude", POST, "call_1")) == "defer"
        assert decision(there, before("claude", f"{POST}/2", "call_2")) == "deny"
        assert decision(there, before("claude", LOCAL, "call_3")) == "allow"
        assert open_ids(there) == ["a1", "a2", "a3"]
        raise AttemptDies


def test_a_call_that_was_put_aside_passes_when_its_session_asks_about_it_again(tmp_path: Path) -> None:
    with minded(tmp_path, approve=HTTP) as there:
        there.attempt._approvals.defers = True
        assert decision(there, before("claude", POST, "call_1")) == "defer"
        raise AttemptDies
    with minded(tmp_path, approve=HTTP) as there:
        there.attempt._approvals.defers = True
        assert decision(there, before("claude", POST, "call_1")) == "defer"
        raise AttemptDies
    with minded(tmp_path, approve=HTTP) as there:
        there.attempt._approvals.defers = True
        answer(there, "approved")
        assert decision(there, before("claude", POST, "call_1")) == "allow"
        there.ask(after("claude", POST, "call_1"))
        assert uses(there) == ["a1"]
        raise AttemptDies


def aside_in_session(folder: Path, *, beside: bytes = b"") -> tuple[str, Path]:
    """Claude Code put a call aside and ended: its session, and its transcript."""
    with minded(folder, approve=HTTP) as there:
        session = there.start().session
        path = there.home / ".claude/projects" / dashed(str(there.work)) / f"{session}.jsonl"
        path.parent.mkdir(parents=True)
        attachment = {"type": "hook_deferred_tool", "toolUseID": "call_1", "toolName": "Bash"}
        path.write_bytes(
            line(session, type="user", message={"role": "user", "content": "x"})
            + response(session, 1, POST)
            + line(session, type="attachment", parentUuid="u", attachment=attachment)
        )
        there.attempt._approvals.defers = True
        there.attempt.look()
        assert decision(there, before("claude", POST, "call_1")) == "defer"
        if beside:
            assert decision(there, beside) == "deny"
        with pytest.raises(WaitsForPerson):
            there.attempt.finish()
        raise AttemptDies
    return session, path


def test_the_session_that_put_a_call_aside_is_resumed_without_a_prompt_and_as_it_is(tmp_path: Path) -> None:
    session, path = aside_in_session(tmp_path)
    before = path.read_bytes()
    with minded(tmp_path, approve=HTTP) as there:
        answer(there, "approved")
        command = there.start("claude", "-p", "x").command
        assert command[:3] == ("claude", "--resume", session)
        assert command[-1] == "-p", "the user's own prompt is not given again"
        assert path.read_bytes() == before
        raise AttemptDies


@pytest.mark.parametrize("given", ["approved", "rejected"])
def test_resumed_without_a_prompt_an_agent_hears_what_else_was_answered(
    tmp_path: Path, given: ev.Answer
) -> None:
    """With the result of the call that it had put aside, and else in a next attempt. The other call was a sub-agent's."""
    of_subagent = json.loads(before("claude", POST_OTHERWISE, "call_2")) | {"agent_id": "a1"}
    aside_in_session(tmp_path, beside=json.dumps(of_subagent).encode())
    with minded(tmp_path, approve=HTTP) as there:
        answer(there, "approved")
        answer(there, given, question="a2")
        assert there.start("claude", "-p", "x").command[-1] == "-p"
        assert there.attempt.waits, "nobody has told it yet"
        assert decision(there, before("claude", POST, "call_1")) == "allow"
        assert there.attempt.waits
        _, out = there.ask(after("claude", POST, "call_1"))
        assert ("make this call now" if given == "approved" else "a person rejected it") in out.decode()
        assert "(a1)" not in out.decode()
        assert not there.attempt.waits
        raise AttemptDies


def test_a_call_that_was_let_through_since_is_told_of_and_not_asked_about_again(tmp_path: Path) -> None:
    _, path = aside_in_session(tmp_path)
    with minded(tmp_path, approve=HTTP) as there:
        answer(there, "approved")
        there.start("claude", "-p", "x")
        assert decision(there, before("claude", POST, "call_1")) == "allow"
        raise AttemptDies
    with minded(tmp_path, approve=HTTP) as there:
        words_of = there.start("claude", "-p", "x").command[-1]
        assert "it is not known whether it happened" in words_of
        assert b"hook_deferred_tool" not in path.read_bytes()
        assert b"it is not known whether it happened" in path.read_bytes()
        raise AttemptDies


def test_a_session_whose_hooks_are_off_is_told_and_asks_about_nothing(tmp_path: Path) -> None:
    """It would make the call without asking."""
    _, path = aside_in_session(tmp_path)
    with minded(tmp_path, approve=HTTP) as there:
        answer(there, "approved")
        assert "make this call now" in there.start("claude", "--bare", "-p", "x").command[-1]
        assert b"hook_deferred_tool" not in path.read_bytes()
        raise AttemptDies


# --- programs below ---------------------------------------------------------------------------------------------------


def test_a_program_below_a_script_waits_and_passes_once_when_approved(tmp_path: Path) -> None:
    with below(tmp_path, approve=HTTP) as here:
        assert here.there.allows(before("claude", "./post.sh"))
        refused = here.run(POST)
        assert refused.returncode == 125
        assert "waits for a person" in refused.stderr
        assert here.done == []
        raise AttemptDies
    with below(tmp_path, approve=HTTP) as here:
        answer(here.there, "approved")
        assert here.there.allows(before("claude", "./post.sh", "call_2"))
        assert here.run(POST).returncode == 0
        assert len(here.done) == 1
        assert here.run(POST).returncode == 125
        assert len(here.done) == 1
        raise AttemptDies


def test_the_programs_of_an_approved_call_need_no_approval_of_their_own(tmp_path: Path) -> None:
    with below(tmp_path, approve=HTTP) as here:
        words(here.there, before("claude", POST))
        answer(here.there, "approved")
        assert here.there.allows(before("claude", POST, "call_2"))
        assert here.run(POST).returncode == 0
        assert len(here.done) == 1
        assert open_ids(here.there) == []
        raise AttemptDies


# --- the agent's own questions ----------------------------------------------------------------------------------------

WHICH = {"questions": [{"question": "Which API?", "options": [{"label": "v1"}, {"label": "v2"}]}]}


def asking(agent: str, given: object, call: str = "call_1") -> bytes:
    told = json.loads(before(agent, "x", call))
    return json.dumps(told | {"tool_name": "AskUserQuestion", "tool_input": given}).encode()


@pytest.mark.parametrize("agent", ["kimi-code", "kimi-cli", "codex"])
def test_an_agent_that_asks_where_nobody_is_gets_a_persons_answer(tmp_path: Path, agent: str) -> None:
    with minded(tmp_path, agent) as there:
        assert "nobody has answered yet" in words(there, asking(agent, WHICH))
        [asked] = questions.open_among(there.run.state.questions)
        assert (asked.kind, asked.text, asked.choices) == ("question", "Which API?", ("v1", "v2"))
        with pytest.raises(WaitsForPerson):
            there.attempt.finish()
        raise AttemptDies
    with minded(tmp_path, agent) as there:
        answer(there, "answered", "v2", "q1")
        assert "Their answer: v2" in words(there, asking(agent, WHICH, "call_2"))
        there.attempt.finish()
        raise AttemptDies


def test_the_next_attempt_is_told_the_answer(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        words(here.there, asking("claude", {"questions": [*WHICH["questions"], {"question": "And when?"}]}))
        raise AttemptDies
    with below(tmp_path) as here:
        answer(here.there, "answered", "v2, and " + "now " * 200, "q1")
        said = here.told()
        assert "1. Which API? (v1, v2)" in said
        assert "now " * 200 in said
        raise AttemptDies


@pytest.mark.parametrize(
    "given",
    [
        None,
        {},
        {"questions": []},
        {"questions": [{"question": ""}]},
        {"questions": "x"},
        [1],
        {"questions": [{"question": 3}]},
    ],
)
def test_what_cannot_be_read_is_left_to_the_agents_own_program(tmp_path: Path, given: object) -> None:
    with minded(tmp_path) as there:
        assert there.allows(asking("claude", given))
        assert open_ids(there) == []
        raise AttemptDies


@pytest.mark.parametrize(
    "options",
    [["x" * 101], [f"{number}" for number in range(17)], ["a" * 90 + f"{number}" for number in range(9)]],
)
def test_more_choices_than_a_person_chooses_from_are_part_of_the_text(
    tmp_path: Path, options: list[str]
) -> None:
    with minded(tmp_path) as there:
        words(there, asking("claude", {"questions": [{"question": "Which?", "options": options}]}))
        [asked] = there.run.journal.events("question_asked")
        assert isinstance(asked, ev.QuestionAsked)
        assert asked.choices == ()
        assert options[-1] in asked.text
        raise AttemptDies
