"""One schedule: time, two hosts, a server, a world, and the invariants that are looked at as it goes."""

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.store.protocol_model.attempt import ModelAttempt
from tests.store.protocol_model.faults import strike
from tests.store.protocol_model.host import ModelHost
from tests.store.protocol_model.rules import CALM, DRIFT, HORIZON, LOST, OUTAGE, Rules
from tests.store.protocol_model.server import Server
from tests.store.protocol_model.world import World


class Sim:
    def __init__(self, seed: int, rules: Rules, mode: str, verbose: bool = False) -> None:
        self.rules, self.mode, self.verbose = rules, mode, verbose
        self.rng = random.Random(f"delays {seed}")
        self.now, self.queue, self.order = 0.0, [], itertools.count()
        self.trace: list[str] = []
        self.found: list[str] = []
        self.server = Server(self)
        self.world = World(self)
        self.hosts = [ModelHost(self, name, 1 + self.rng.uniform(-DRIFT, DRIFT)) for name in "AB"]
        self.epochs: dict[int, ModelAttempt] = {}
        self.accepted = 1  # the timeline that a person, or a synchronous standby, vouches for
        self.placements = itertools.count(1)
        self.outages: list[tuple[float, float, str]] = []
        self.over = False
        self.armed: dict[tuple[str, str], tuple[str, float]] = {}
        self.chase = False  # an engine places the run elsewhere as soon as an armed freeze strikes
        self.act_len = 0.0

    def at(self, t: float, do: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (t, next(self.order), do))

    def say(self, text: str) -> None:
        self.trace.append(f"{self.now:8.2f}  {text}")
        if self.verbose:
            print(self.trace[-1])

    def violated(self, which: str, text: str) -> None:
        self.say(f"!! {which}: {text}")
        self.found.append(f"{which}: {text}")

    def spawn(self, who: Any, steps: Iterator[Any]) -> None:
        """Run a generator. It yields seconds of its own clock, or (future, seconds). Its owner may be dead or stopped."""

        def go(value: Any = None) -> None:
            if who is not None and who.is_dead:
                return
            if who is not None and who.is_stopped:
                who.thawed.append(lambda: go(value))
                return
            try:
                wanted = steps.send(value)
            except StopIteration:
                return
            future, seconds = wanted if isinstance(wanted, tuple) else (None, wanted)
            state = {"over": False}

            def wake(result: Any) -> None:
                if not state["over"]:
                    state["over"] = True
                    go(result)

            if future is not None:
                if future.done:
                    self.at(self.now, lambda: wake(future.value))
                    return
                future.waiting.append(lambda: self.at(self.now, lambda: wake(future.value)))
            rate = who.clock.rate if who is not None else 1.0
            self.at(self.now + max(seconds, 0.0005) / rate, lambda: wake(LOST))

        self.at(self.now, go)

    def run(self, until: float) -> None:
        while self.queue and self.queue[0][0] <= until:
            self.now, _, do = heapq.heappop(self.queue)
            do()

    def check_healthy(self, epoch: int) -> None:
        """I6: nobody who runs, and could not reach the server for at most OUTAGE, is robbed; nor for the server's own outages."""
        victim = self.epochs.get(epoch)
        if victim is None or victim.is_dead or victim.is_stopped or victim.lost or victim.released:
            return
        since = self.now - 60
        if victim.born > self.now - 45 or any(t > since for t in victim.host.stops):
            return
        away = sum(
            min(b, self.now) - max(a, since)
            for a, b, who in self.outages
            if who == victim.host.name and b > since
        )
        if away <= OUTAGE:
            self.violated("I6", f"{victim} is robbed by silence after {away:.1f} s of outage")


def play(
    seed: int, rules: Rules, mode: str, faults: list[tuple[float, str, int, float]], verbose: bool = False
) -> Sim:
    ModelAttempt.ids = itertools.count(1)
    sim = Sim(seed, rules, mode, verbose)
    for t, name, host, span in faults:
        sim.at(t, lambda name=name, host=host, span=span: strike(sim, name, sim.hosts[host], span))
    sim.run(HORIZON)
    if not sim.over and sim.mode == "sync":
        sim.run(HORIZON + CALM)
        if not sim.over and not sim.found:
            before = len(sim.server.state.events)
            sim.run(HORIZON + CALM + 60)
            ended = sim.server.state.events and sim.server.state.events[-1][1].startswith("done")
            if not sim.over and not ended and len(sim.server.state.events) == before:
                sim.violated("I7", "nobody goes on")
    if mode == "sync":
        gone = [data for _, data in sim.world.acked if data not in sim.server.state.bytes]
        if gone:
            sim.violated("I3", f"acknowledged and gone: {gone[:3]}")
    return sim
