"""What a trial of a real agent showed, and whether that is good: by the witness, the model's own log and the files.

Of outlast it asks only what it claims."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.agents.agent_under_outlast import Under
from tests.agents.trial_plan import INPUT_TOKENS, Plan

NAME = re.compile(r"x\d+n\d+e")
ESTIMATED = ("aider", "mini-swe-agent")  # their tokens are a guess, or not told


@dataclass
class Outcome:
    """What a trial showed. It is good when nothing failed."""

    plan: Plan
    failures: list[str] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    starts: int = 0
    settled: int = 0
    repeated: int = 0  # batches of which something was done again
    sessions: int = 0
    acts: int = 0
    took_s: float = 0.0
    wanted: int = 0  # effects that its model was to have once each
    twice: int = 0
    lost: int = 0
    stuck: int = 0  # it came to no rest, or asked for a person where there was nothing to decide
    told: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Evidence:
    """What the world, the model's log and the files tell, and what outlast claims."""

    performed: Sequence[str]  # the witness's own log: an identity for each act
    effects: Sequence[dict[str, Any]]  # on record
    ran: Sequence[str]  # local calls
    written: frozenset[str]
    spent: int  # input tokens that outlast counts
    begun: int  # responses that were begun
    whole: int  # and those that arrived whole


def evidence(plan: Plan, under: Under) -> Evidence:
    """After the last start."""
    world = under.world
    log = world.folder / "ran.log"
    spent = under.shown()["budget"]["spent"]
    paid = world.model.paid()
    return Evidence(
        performed=[act.identity for act in world.performed()],
        effects=under.effects(),
        # A shell that is killed between a name and its newline leaves two on a line.
        ran=NAME.findall(log.read_text()) if log.exists() else (),
        written=frozenset(path.stem for path in world.work.glob("*.txt")),
        spent=spent["input"] + (spent["cache_read"] if plan.agent != "claude" else 0),
        begun=len(paid),
        whole=sum(request.ended == "sent" for request in paid),
    )


def judge(plan: Plan, found: Evidence, out: Outcome) -> None:
    """Write down what is wrong."""
    _judge_acts(plan, found, out)
    _judge_beats(plan, found, out)
    _judge_usage(plan, found, out)


def _judge_acts(plan: Plan, found: Evidence, out: Outcome) -> None:
    failed, acts = out.failures, Counter(found.performed)
    wanted = [name for name, task in plan.tasks.items() if task.outward]
    again = {name: times for name, times in acts.items() if times > 1}
    out.acts, out.wanted, out.twice = sum(acts.values()), len(wanted), len(again)
    out.lost = sum(not acts[name] for name in wanted)
    failed += [f"done {times} times: {name}" for name, times in again.items()]
    for name in wanted:
        of_it = [effect for effect in found.effects if name in named(effect, plan)]
        said = [effect for effect in of_it if effect["state"] == "confirmed" and _went_well(effect)]
        if said and not acts[name]:
            failed.append(f"lost: {name} is confirmed as {said[0]['id']} and never happened")
        elif not acts[name]:
            states = [(effect["id"], effect["state"], effect["settled_by"]) for effect in of_it]
            failed.append(f"never done: {name}; on record: {states}")
        if any(effect["state"] == "in_doubt" for effect in of_it):
            failed.append(f"done, and in doubt: {name}")


def _judge_beats(plan: Plan, found: Evidence, out: Outcome) -> None:
    """Of local work, only the batch in flight of each kill may have been done again."""
    ran = Counter(found.ran)
    for batch in plan.batches:
        local = [task.name for task in batch if task.kind == "local"]
        out.repeated += max((ran[name] for name in local), default=1) - 1
        out.failures += [f"never ran: {name}" for name in local if not ran[name]]
        for task in batch:
            if task.kind == "write" and task.name not in found.written:
                out.failures.append(f"never written: {task.name}")
    if out.repeated > len(out.kills) and not plan.forgets:
        out.failures.append(f"{out.repeated} batches again after {len(out.kills)} kills")


def _judge_usage(plan: Plan, found: Evidence, out: Outcome) -> None:
    if plan.other or plan.agent in ESTIMATED:
        return  # two ways to count, or a guess
    if found.spent > INPUT_TOKENS * found.begun:
        out.failures.append(
            f"{found.spent} tokens counted, {found.begun} responses of {INPUT_TOKENS} were given"
        )
    if found.spent < INPUT_TOKENS * (found.whole - 2 * len(out.kills)):
        out.failures.append(
            f"{found.spent} tokens counted, of {found.whole} whole responses of {INPUT_TOKENS}"
        )
    out.told.append(f"usage: {found.spent} counted, {found.begun} begun, {found.whole} whole")


def named(effect: dict[str, Any], plan: Plan) -> list[str]:
    """The tasks that an effect is about: by its name, or by all that is on record of it."""
    by_name = [name for name in plan.tasks if name in effect["name"]]
    return by_name or [name for name in plan.tasks if name in json.dumps(effect)]


def _went_well(effect: dict[str, Any]) -> bool:
    result = effect["result"]
    if result is None:
        return True  # somebody found that it happened
    return not isinstance(result, dict) or (
        bool(result.get("ok", True)) and "done-" in str(result.get("output", "done-"))
    )
