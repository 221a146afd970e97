"""What a trial of a real agent showed, and whether that is good: by the witness, the model's own log and the files.

Of outlast it asks only what it claims."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.agents.agent_under_outlast import Under
from tests.agents.trial_plan import INPUT_TOKENS, Plan


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
    told: list[str] = field(default_factory=list)


def judge(plan: Plan, under: Under, out: Outcome) -> None:
    """Write down what is wrong after the last start."""
    _judge_acts(plan, under, out)
    _judge_beats(plan, under, out)
    _judge_usage(plan, under, out)


def _judge_acts(plan: Plan, under: Under, out: Outcome) -> None:
    failed, effects = out.failures, under.effects()
    acts = Counter(act.name for act in under.world.performed())
    out.acts = sum(acts.values())
    failed += [f"done {times} times: {name}" for name, times in acts.items() if times > 1]
    for name, task in plan.tasks.items():
        if task.kind != "post":
            continue
        of_it = [effect for effect in effects if name in effect["name"]]
        said = [effect for effect in of_it if effect["state"] == "confirmed" and _went_well(effect)]
        if said and not acts[name]:
            failed.append(f"lost: {name} is confirmed as {said[0]['id']} and never happened")
        elif not acts[name]:
            states = [(effect["id"], effect["state"], effect["settled_by"]) for effect in of_it]
            failed.append(f"never done: {name}; on record: {states}")
        if any(effect["state"] == "in_doubt" for effect in of_it):
            failed.append(f"done, and in doubt: {name}")


def _judge_beats(plan: Plan, under: Under, out: Outcome) -> None:
    """Of local work, only the batch in flight of each kill may have been done again."""
    log = under.world.folder / "ran.log"
    ran = Counter(log.read_text().split() if log.exists() else ())
    for batch in plan.batches:
        times = [ran[task.name] for task in batch if task.kind == "local"]
        out.repeated += max(times, default=1) - 1 if times else 0
        out.failures += [
            f"never ran: {task.name}" for task in batch if task.kind == "local" and not ran[task.name]
        ]
        for task in batch:
            if task.kind == "write" and not (under.world.work / f"{task.name}.txt").exists():
                out.failures.append(f"never written: {task.name}")
    if out.repeated > len(out.kills):
        out.failures.append(f"{out.repeated} batches again after {len(out.kills)} kills")


def _judge_usage(plan: Plan, under: Under, out: Outcome) -> None:
    shown = under.shown()
    spent, paid = shown["budget"]["spent"], under.world.model.paid()
    counted = spent["input"] + (spent["cache_read"] if plan.agent != "claude" else 0)
    if counted > INPUT_TOKENS * len(paid):
        out.failures.append(f"{counted} tokens counted, {len(paid)} responses of {INPUT_TOKENS} were given")
    whole = [request for request in paid if request.ended == "sent"]
    if counted < INPUT_TOKENS * (len(whole) - 2 * len(out.kills)):
        out.failures.append(f"{counted} tokens counted, of {len(whole)} whole responses of {INPUT_TOKENS}")
    out.told.append(f"usage: {counted} counted, {len(paid)} begun, {len(whole)} whole")


def _went_well(effect: dict[str, Any]) -> bool:
    result = effect["result"]
    if result is None:
        return True  # somebody found that it happened
    return not isinstance(result, dict) or (
        bool(result.get("ok", True)) and "done-" in str(result.get("output", "done-"))
    )
