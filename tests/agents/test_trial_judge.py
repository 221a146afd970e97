"""The judge of a trial: whatever is wrong with a world turns it red, and it says what."""

from dataclasses import replace
from typing import Any

import pytest

from tests.agents.trial_judge import Evidence, Outcome, judge
from tests.agents.trial_plan import Kill, Plan, Task

PLAN = Plan(
    0, 0, "codex", None, ((Task("x0n0e", "post"), Task("x0n1e", "same")), (Task("x0n2e", "local"), Task("x0n3e", "write"))),
    (Kill("act", "x0n0e", 0.0, ("all",), 9),), "never", hasty=False, ways=("run",),
)  # fmt: skip


def effect(name: str, state: str = "confirmed", output: str = "") -> dict[str, Any]:
    result = {"ok": True, "output": output or f"done-{name}"} if state == "confirmed" else None
    return {"id": "1.1", "name": f"POST witness/{name}", "state": state, "settled_by": "", "result": result}


GOOD = Evidence(
    performed=["x0n0e", "x0n1e"],
    effects=[effect("x0n0e"), effect("x0n1e")],
    ran=["x0n2e"],
    written=frozenset({"x0n3e"}),
    spent=4000,
    begun=4,
    whole=4,
)


def judged(found: Evidence, plan: Plan = PLAN) -> Outcome:
    out = Outcome(plan, kills=["one"])
    judge(plan, found, out)
    return out


def test_where_all_was_done_once_it_finds_nothing() -> None:
    out = judged(GOOD)
    assert out.failures == []
    assert (out.wanted, out.acts, out.twice, out.lost) == (2, 2, 0, 0)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (replace(GOOD, performed=["x0n0e", "x0n1e", "x0n0e"]), "done 2 times: x0n0e"),
        (replace(GOOD, performed=["x0n1e"]), "lost: x0n0e is confirmed as 1.1 and never happened"),
        (replace(GOOD, performed=["x0n1e"], effects=[]), "never done: x0n0e; on record: []"),
        (replace(GOOD, effects=[effect("x0n0e", "in_doubt"), effect("x0n1e")]), "done, and in doubt: x0n0e"),
        (replace(GOOD, ran=[]), "never ran: x0n2e"),
        (replace(GOOD, ran=["x0n2e"] * 3), "2 batches again after 1 kills"),
        (replace(GOOD, written=frozenset()), "never written: x0n3e"),
        (replace(GOOD, spent=5000), "5000 tokens counted, 4 responses of 1000 were given"),
        (replace(GOOD, spent=1000), "1000 tokens counted, of 4 whole responses of 1000"),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_each_fault_turns_it_red(found: Evidence, said: str) -> None:
    assert judged(found).failures == [said]


def test_it_counts_what_was_done_twice_and_what_was_lost() -> None:
    out = judged(replace(GOOD, performed=["x0n1e", "x0n1e"]))
    assert (out.twice, out.lost) == (1, 1)


def test_one_that_goes_to_a_shared_address_is_known_by_what_it_says() -> None:
    shared = effect("same") | {"state": "in_doubt", "command": "curl -d x0n1e witness/same"}
    assert "done, and in doubt: x0n1e" in judged(replace(GOOD, effects=[effect("x0n0e"), shared])).failures


def test_a_session_that_knows_nothing_may_do_local_work_again() -> None:
    fresh = replace(PLAN, parts=("fresh",))
    assert judged(replace(GOOD, ran=["x0n2e"] * 3), fresh).failures == []
