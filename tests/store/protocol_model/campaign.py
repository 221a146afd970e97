"""Many schedules: which invariants break, and the least faults that break one."""

import itertools
from collections import Counter
from typing import Any

from tests.store.protocol_model.attempt import ModelAttempt
from tests.store.protocol_model.faults import faults_of
from tests.store.protocol_model.rules import FAULTS, MODES, MUTANTS, Rules
from tests.store.protocol_model.simulation import Sim, play


def kind_of(found: str) -> str:
    return found.split(":")[0]


def broken(name: str, seed: int) -> set[str]:
    """The invariants that a mutant breaks in a schedule, but for those that nobody can keep."""
    struck = ["lid"] if name == "monotonic" else FAULTS
    mode = MODES[seed % len(MODES)]
    found = {
        kind_of(each) for each in play(seed, Rules(**MUTANTS[name]), mode, faults_of(seed, struck)).found
    }
    return {each for each in found if "window" not in each and (name == "monotonic" or "frozen" not in each)}


def shrink(seed: int, rules: Rules, mode: str, faults: list[Any], which: str) -> list[Any]:
    again = True
    while again:
        again = False
        for i in range(len(faults)):
            fewer = faults[:i] + faults[i + 1 :]
            if any(kind_of(each) == which for each in play(seed, rules, mode, fewer).found):
                faults, again = fewer, True
                break
    return faults


def campaign(
    rules: Rules, seeds: range, kinds: list[str], modes: list[str], show: int, stop_at: int = 0
) -> Counter[str]:
    found: Counter[str] = Counter()
    shown: Counter[str] = Counter()
    for seed in seeds:
        mode = modes[seed % len(modes)]
        faults = faults_of(seed, kinds)
        sim = play(seed, rules, mode, faults)
        for which in {kind_of(each) for each in sim.found}:
            found[which] += 1
            if shown[which] < show:
                shown[which] += 1
                least = shrink(seed, rules, mode, faults, which)
                small = play(seed, rules, mode, least)
                print(f"\n== {which}, seed {seed}, {mode}, {len(least)} of {len(faults)} faults")
                print("\n".join(small.trace[-45:]))
        found["schedules"] += 1
        found["finished"] += sim.over
        if stop_at and sum(v for k, v in found.items() if k not in ("schedules", "finished")) >= stop_at:
            break
    return found


def freezes(rules: Rules, seeds: range) -> None:
    """Which stops break I1 or I2, and from which length on, when an engine places the run elsewhere at that moment."""
    for point, kind in itertools.product(
        ("intended", "looked", "acting"), ("sigstop", "sigstop_both", "vm", "sleep")
    ):
        least: dict[str, float] = {}
        for span in (0.5, 0.9, 1.1, 1.5, 2.5, 3.5, 4.5, 6.5, 8.5, 12, 20, 30, 45, 60, 90):
            for seed in seeds:
                ModelAttempt.ids = itertools.count(1)
                sim = Sim(seed, rules, "sync")
                sim.chase, sim.act_len = True, (2.0, 4.0, 25.0, 70.0)[seed % 4] if point == "acting" else 0.3
                for host in "AB":
                    sim.armed[host, point] = (kind, span)
                sim.run(170)
                for each in sim.found:
                    which = kind_of(each).split()[0]
                    least.setdefault(which, span)
        told = (
            ", ".join(f"{which} from {span:g} s" for which, span in sorted(least.items()))
            or "nothing up to 90 s"
        )
        print(f"{point:9} {kind:13} {told}", flush=True)
