"""Real agents whose calls wait for a person: by the external witness none before the approval, exactly one after, never two."""

import shlex

import pytest

from outlast.core import questions
from outlast.operations import requests
from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Call, History, Script, Step, bash
from tests.support.commands import ARGV
from tests.support.processes import wait_for

pytestmark = pytest.mark.slow
WAITS = ("--approve", "http")
# Those that put a call aside by HTTP, are told by hooks, and are told by the prompt alone; all others do as one of them.
FEW = [
    pytest.param((name, version), id=name)
    for name, version in (("claude", "2.1.325"), ("codex", None), ("gemini", None))
]
DEFERS = [pytest.param(("claude", version), id=f"claude-{version}") for version in ("2.1.325", "2.1.197")]


def comment(world: AgentWorld) -> Call:
    return world.posting("comment", body="hello")


def told(history: History) -> str:
    """Everything that its model was told: by people, and as results of its calls."""
    return "\n".join([*(turn.text for turn in history.turns), *(result.text for result in history.results)])


def obeys(call: Call, *first: Call) -> Script:
    """A model that makes a call, ends when it waits, and makes it again when it hears that somebody approved it, or that it did
    not happen. `first`: what else it asks for in its first response."""

    def says(history: History, plays: int) -> Step:
        if not history.responses:
            return Step("Now.", (call, *first))
        heard = history.last_text
        is_asked = "make this call now" in heard or "did not happen" in heard
        return Step("Once more.", (call,)) if is_asked else Step("Done.")

    return Script(says)


def open_ids(under: Under) -> list[str]:
    store, run = under.world.store, under.shown()["run"]
    return [each.id for each in questions.open_among(requests.summary_of(store, run).state.questions)]


def answers(under: Under, word: str, *more: str) -> list[str]:
    """A person answers everything that is open: the ids."""
    found = open_ids(under)
    for each in found:
        done = under.call(word, "t", each, "--no-start", *more)
        assert done.returncode == 0, done.stderr
    return found


def made(under: Under) -> list[str]:
    return [act.name for act in under.world.performed()]


def waits(under: Under, *flags: str) -> None:
    """It runs to its end, and rests until somebody answers; nothing was done."""
    done = under.run(*flags)
    assert done.returncode == 3, done.stderr
    assert under.shown()["status"] == "parked"
    assert len(open_ids(under)) == 1


def ends(under: Under) -> None:
    done = under.run()
    assert done.returncode == 0, done.stderr
    assert under.shown()["status"] == "done"


# --- answered ---------------------------------------------------------------------------------------------------------


def test_a_call_waits_and_is_made_once_when_it_is_approved(under: Under) -> None:
    under.world.model.script = obeys(comment(under.world))
    waits(under, *WAITS)
    assert made(under) == []
    assert answers(under, "approve") == ["a1"]
    ends(under)
    assert made(under) == ["comment"]
    assert open_ids(under) == []


@pytest.mark.parametrize(
    "under", [("claude", "2.1.325"), ("codex", None)], indirect=True, ids=["claude", "codex"]
)
def test_the_approval_itself_lets_the_run_go_on(under: Under) -> None:
    """One command, and nothing else is typed."""
    under.world.model.script = obeys(comment(under.world))
    waits(under, *WAITS)
    approved = under.call("approve", "t")
    assert approved.returncode == 0, approved.stderr
    wait_for(lambda: under.shown()["status"] == "done", what="the end", limit_s=90)
    assert made(under) == ["comment"]


@pytest.mark.parametrize("under", FEW, indirect=True)
def test_rejected_the_model_is_told_why(under: Under) -> None:
    under.world.model.script = obeys(comment(under.world))
    waits(under, *WAITS)
    answers(under, "reject", "--why", "not on a Friday")
    ends(under)
    assert made(under) == []
    assert "not on a Friday" in told(under.world.model.requests()[-1].history)


@pytest.mark.parametrize("under", DEFERS, indirect=True)
def test_where_the_agent_can_put_a_call_aside_waiting_costs_no_answer_of_the_model(under: Under) -> None:
    """It is resumed without a prompt, asks about the same call again, and its model hears the result."""
    model = under.world.model
    model.script = obeys(comment(under.world))
    waits(under, *WAITS)
    before = len(model.requests())
    answers(under, "approve")
    ends(under)
    assert made(under) == ["comment"]
    assert len(model.requests()) == before + 1
    assert "make this call now" not in told(model.requests()[-1].history)


@pytest.mark.parametrize("under", DEFERS, indirect=True)
def test_two_calls_of_one_response_wait_apart_and_each_is_made_once(under: Under) -> None:
    """One of them is put aside, for its session remembers a single one; the other is denied with words."""
    world = under.world
    world.model.script = obeys(comment(world), world.posting("second"), bash("echo here > here.txt"))
    done = under.run(*WAITS)
    assert done.returncode == 3, done.stderr
    assert (world.work / "here.txt").exists(), "what needs no approval is done meanwhile"
    assert answers(under, "approve") == ["a1", "a2"]

    def says(history: History, plays: int) -> Step:
        is_open = "approved it" in told(history) or "waits for a person" in told(history)
        return (
            Step("And this.", (world.posting("second"),))
            if is_open and "second" not in made(under)
            else Step("Done.")
        )

    world.model.script = Script(says)
    ends(under)
    assert sorted(made(under)) == ["comment", "second"]


# --- killed -----------------------------------------------------------------------------------------------------------


def test_killed_while_a_call_waits_it_goes_on_waiting(under: Under) -> None:
    """Killed at work on something else, before it had ended."""
    world = under.world
    held = bash("touch begun; sleep 300")

    def says(history: History, plays: int) -> Step:
        if not history.responses:
            return Step("Now.", (comment(world), held))
        if "make this call now" in history.last_text:
            return Step("Once more.", (comment(world),))
        is_killed = (world.work / "begun").exists()
        return Step("Done.") if is_killed else Step("Something else.", (held,))

    world.model.script = Script(says)
    process = under.start(*WAITS)
    wait_for((world.work / "begun").exists, what="its other work", limit_s=90)
    assert open_ids(under) == ["a1"]
    under.kill_all(process)
    waits(under)
    assert made(under) == []
    answers(under, "approve")
    ends(under)
    assert made(under) == ["comment"]


def test_killed_just_after_the_approval_it_is_made_once(under: Under) -> None:
    """Killed when its next attempt has begun, and again a moment later."""
    world = under.world
    world.model.script = obeys(comment(world))
    waits(under, *WAITS)
    answers(under, "approve")
    for number in (2, 3):
        process = under.start()
        wait_for(
            lambda number=number: len(under.shown()["attempts"]) >= number, what="the attempt", limit_s=60
        )
        under.kill_all(process)
        assert len(made(under)) <= 1
    code = under.run().returncode
    if code == 3 and under.shown()["status"] == "in_doubt":  # killed in the call itself, after all
        settle(under)
        code = under.run().returncode
    if code == 3:
        answers(under, "approve")
        code = under.run().returncode
    assert code == 0
    assert made(under) == ["comment"]


@pytest.mark.parametrize("under", FEW, indirect=True)
def test_killed_while_it_is_answered_it_is_made_once(under: Under) -> None:
    """The answer lies in the inbox of an agent at work, which is killed with it."""
    world = under.world
    held = bash("touch begun; sleep 300")
    world.model.script = Script([Step("Now.", (comment(world), held)), Step("Else.", (held,)), Step("Done.")])
    process = under.start(*WAITS)
    wait_for((world.work / "begun").exists, what="its other work", limit_s=90)
    answers(under, "approve")
    under.kill_all(process)
    assert made(under) == []
    world.model.script = obeys(comment(world))
    ends(under)
    assert made(under) == ["comment"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_in_the_approved_call_it_is_not_made_again_on_the_same_approval(
    under: Under, when: str
) -> None:
    """It is in doubt, as any call: what did not happen is asked about again, what did is not done again."""
    world = under.world
    post = comment(world).input["command"]
    call = bash(f"[ -e begun ] || {{ touch begun; [ {when} = after ] || sleep 300; }}; {post}")
    world.model.script = obeys(call)
    waits(under, *WAITS)
    answers(under, "approve")
    if when == "after":
        world.inside(lambda: world.witness.fault("late_reply"))
    process = under.start()
    at_it = world.performed if when == "after" else (world.work / "begun").exists
    wait_for(lambda: bool(at_it()), what="the approved call", limit_s=90)
    under.kill_all(process)
    done = under.run()
    assert done.returncode == 3, done.stderr
    assert under.shown()["status"] == "in_doubt"
    assert len(made(under)) == (when == "after")
    settle(under)
    if when == "before":
        waits(under)
        assert made(under) == []
        answers(under, "approve")
    ends(under)
    assert made(under) == ["comment"]


def settle(under: Under) -> None:
    """A person looks at the world and says what they found."""
    doubts = [each for each in under.effects() if each["state"] in ("intended", "in_doubt")]
    word = "--happened" if made(under) else "--did-not"
    assert doubts
    for doubt in doubts:  # a shell's call, and the program below it that it was cut off in
        assert under.call("settle", "t", doubt["id"], word).returncode == 0


# --- from inside ------------------------------------------------------------------------------------------------------

MARKS = (
    "OUTLAST_RUN",
    "OUTLAST_TASK",
    "OUTLAST_ATTEMPT",
    "OUTLAST_CALL",
    "OUTLAST_SOCKET",
    "OUTLAST_PROGRAMS",
)
UNMARKED = " ".join(["env", *(f"-u {name}" for name in MARKS)])


@pytest.mark.parametrize(
    "how",
    ["", UNMARKED, f"setsid -f {UNMARKED}"],
    ids=["plain", "without its marks", "in a session of its own"],
)
@pytest.mark.parametrize(
    "under", [("claude", "2.1.325"), ("codex", None)], indirect=True, ids=["claude", "codex"]
)
def test_an_agent_cannot_approve_its_own_call(under: Under, how: str) -> None:
    world = under.world
    said = world.folder / "said"
    typed = f"{how} sh -c {shlex.quote(f'{shlex.join(ARGV)} approve t a1 > {said} 2>&1; echo $? >> {said}')}"
    until = (
        f"i=0; while [ $i -lt 300 ] && ! tail -n 1 {said} | grep -qx '[0-9]*'; do i=$((i+1)); sleep 0.1; done"
    )
    world.model.script = Script([Step("Now.", (comment(world), bash(f"{typed}; {until}"))), Step("Done.")])
    waits(under, *WAITS)
    assert "only a person outside of every run answers" in said.read_text()
    assert open_ids(under) == ["a1"]
    assert made(under) == []


# --- its own questions ------------------------------------------------------------------------------------------------

OPTIONS = [{"label": "v1", "description": "the old one"}, {"label": "v2", "description": "the new one"}]
ASKS = {
    "codex": Call("request_user_input", {"questions": [{"id": "api", "header": "API", "question": "Which API?", "options": OPTIONS}]}),
    "kimi-code": Call("AskUserQuestion", {"questions": [{"question": "Which API?", "header": "API", "options": OPTIONS}]}),
    "kimi-cli": Call("AskUserQuestion", {"questions": [{"question": "Which API?", "header": "API", "options": OPTIONS}]}),
}  # fmt: skip


@pytest.mark.parametrize("under", [(name, None) for name in ASKS], indirect=True, ids=list(ASKS))
def test_what_an_agent_asks_where_nobody_is_a_person_answers(under: Under) -> None:
    model = under.world.model
    model.script = Script([Step("I ask.", (ASKS[under.name],)), Step("Done.")])
    waits(under)
    done = under.call("answer", "t", "v2", "--no-start")
    assert done.returncode == 0, done.stderr
    ends(under)
    assert "Their answer: v2" in told(model.requests()[-1].history)
