"""The faults of a schedule, and how each strikes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.store.protocol_model.rules import HORIZON, Want

if TYPE_CHECKING:
    from tests.store.protocol_model.attempt import ModelAttempt
    from tests.store.protocol_model.host import ModelHost
    from tests.store.protocol_model.simulation import Sim


KINDS = {
    "net": ["cut", "cut", "cut_req", "cut_rep", "slow"], "kill": ["kill", "reboot"], "pg": ["restart", "stall", "replcut", "failover", "step"],
    "engine": ["place"], "lid": ["sleep@intended", "place"], "short": ["blink"], "freeze": ["sigstop", "sigstop_both", "vm", "sleep", "sleep@intended", "vm@intended", "sigstop@intended", "sigstop@looked"],
}  # fmt: skip


def faults_of(seed: int, kinds: list[str]) -> list[tuple[float, str, int, float]]:
    rng = random.Random(f"faults {seed}")
    names = [name for kind in kinds for name in KINDS[kind]]
    count = rng.choice([1, 2, 3, 4, 6, 8])
    spans = {"cut": [0.3, 3, 8, 14, 20, 40], "slow": [5, 20], "stall": [1, 8, 20, 35], "replcut": [1, 10, 40], "restart": [0.4, 3, 10],
             "failover": [0.5, 4, 12], "reboot": [5, 30], "blink": [0.2, 0.7], "sigstop": [1, 5, 45], "sigstop_both": [1.2, 5, 60],
             "vm": [1.2, 5, 12, 60], "sleep": [1.2, 5, 12, 60]}  # fmt: skip
    found = []
    first = rng.uniform(2, HORIZON * 0.5)
    width = rng.choice([5.0, 15.0, 40.0, HORIZON * 0.6])  # near each other, or all over
    for _ in range(count):
        name = rng.choice(names)
        found.append(
            (
                round(first + rng.uniform(0, width), 3),
                name,
                rng.randrange(2),
                rng.choice(spans.get(name.split("_r")[0].split("@")[0], [1.0])) * rng.uniform(0.8, 1.2),
            )
        )
    if "engine" in kinds and rng.random() < 0.4:
        found.append((round(first + rng.uniform(0, width), 3), "place", rng.randrange(2), 1.0))
    story, here = rng.random(), rng.randrange(2)
    if {"net", "engine", "kill"} <= set(
        kinds
    ) and story < 0.12:  # cut off in an act, placed elsewhere, which dies at once
        at = rng.uniform(5, 60)
        found += [
            (at, "cut", here, 50.0),
            (at + 0.4, "place", 1 - here, 1.0),
            (at + rng.uniform(0.7, 4), "kill", 1 - here, 1.0),
        ]
    elif "net" in kinds and story < 0.24:  # answers come late, then none
        at = rng.uniform(5, 60)
        found += [(at, "slow", here, 25.0), (at + rng.uniform(8, 24), "cut", here, 60.0)]
    elif {"net", "engine"} <= set(kinds) and story < 0.3:  # the answer to a claim is lost for long
        at = rng.uniform(5, 60)
        found += [(at, "cut_rep", here, 34.0), (at + rng.uniform(0.5, 4), "place", here, 1.0)]
    elif {"pg", "engine"} <= set(kinds) and story < 0.36:  # a claim that is seen and was not shipped
        at = rng.uniform(5, 60)
        found += [
            (at, "replcut", 0, 30.0),
            (at + 0.5, "place", here, 1.0),
            (at + rng.uniform(1.5, 3), "restart", 0, 1.0),
            (at + rng.uniform(5, 9), "failover", 0, 1.0),
        ]
    if "pg" in kinds and rng.random() < 0.2:
        at = first + rng.uniform(0, width)
        found += [(at, "replcut", 0, 12.0), (round(at + rng.uniform(1, 11), 3), "failover", 0, 2.0)]
    return sorted(found)


def strike(sim: Sim, name: str, host: ModelHost, span: float) -> None:
    now, attempt, server = sim.now, host.flock, sim.server
    sim.say(
        f"-- {name} {host if name not in ('restart', 'stall', 'replcut', 'failover', 'step') else 'postgres'} {span:.1f} s"
    )
    if name.startswith("cut"):
        for direction in ("req", "rep") if name == "cut" else (name[4:],):
            host.cut[direction] = max(host.cut[direction], now + span)
        sim.outages.append((now, now + span, host.name))
    elif "@" in name:
        sim.armed[host.name, name.split("@")[1]] = (name.split("@")[0], span)
        sim.chase = True
    elif name == "slow":
        host.slow = now + span
        sim.outages.append((now, now + span + 8, host.name))
    elif name == "kill" and attempt is not None:
        attempt.die("kill -9")
    elif name == "reboot":
        if attempt is not None:
            attempt.die("host lost")
        host.boots += 1
        host.is_dead = True

        def up() -> None:
            host.is_dead = False
            host.thawed.clear()
            sim.spawn(host, host._agent(host.boots))

        sim.at(now + span, up)
    elif name == "restart":
        server.crash(span, failover=False)
        sim.outages.append((now, now + span, "pg"))
    elif name == "failover":
        server.crash(span, failover=True)
        sim.outages.append((now, now + span, "pg"))
    elif name == "stall":
        server.stalled = max(server.stalled, now + span)
        sim.outages.append((now, now + span, "pg"))
    elif name == "replcut":
        server.linked = False
        sim.outages.append((now, now + span, "pg" if sim.mode == "sync" else "replica"))
        sim.at(now + span, lambda: setattr(server, "linked", True))
    elif name == "step":
        server.step += 60 * (1 if span > 1 else -1)
    elif name == "place":
        host.start(Want("placed", number=next(sim.placements)))
    elif name in ("blink", "sigstop", "sigstop_both", "vm", "sleep"):
        freeze(sim, name, host, attempt, span)


def freeze(sim: Sim, name: str, host: ModelHost, attempt: ModelAttempt | None, span: float) -> None:
    now = sim.now
    if name in ("vm", "sleep"):
        if host.is_stopped or host.is_dead:
            return
        host.is_stopped = True
        host.clock.stop(now, name)
        host.stops.append(now)
        if attempt is not None:
            attempt.stops.append((now, now + span))
            attempt.froze_long |= span > 1.0

        def thaw() -> None:
            host.is_stopped = False
            host.clock.go(sim.now)
            waiting = [*host.thawed, *(attempt.thawed if attempt is not None else [])]
            host.thawed.clear()
            if attempt is not None:
                attempt.thawed.clear()
            for go in waiting:
                sim.at(sim.now, go)

        sim.at(now + span, thaw)
    elif attempt is not None and not attempt.sup_stopped:
        attempt.sup_stopped, attempt.guard_stopped = True, name == "sigstop_both"
        attempt.stops.append((now, now + span))
        attempt.froze_long |= name == "sigstop_both" or span > 1.0
        host.stops.append(now)

        def cont() -> None:
            attempt.sup_stopped = attempt.guard_stopped = False
            waiting, attempt.thawed = attempt.thawed, []
            for go in waiting:
                sim.at(sim.now, go)

        sim.at(now + span, cont)
