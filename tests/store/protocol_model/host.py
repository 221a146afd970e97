"""A host in the model: its clock, its line to the server, and the agent that takes runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.store.protocol_model.attempt import ModelAttempt
from tests.store.protocol_model.clock import Clock, Future
from tests.store.protocol_model.rules import LOST, Want

if TYPE_CHECKING:
    from tests.store.protocol_model.simulation import Sim


class ModelHost:
    def __init__(self, sim: Sim, name: str, rate: float) -> None:
        self.sim, self.name, self.clock = sim, name, Clock(rate)
        self.is_dead = self.is_stopped = False
        self.thawed: list[Callable[[], None]] = []
        self.stops: list[float] = []
        self.cut = {"req": 0.0, "rep": 0.0}
        self.slow = 0.0
        self.flock: ModelAttempt | None = None
        self.file_epoch = 0  # what the lock file holds
        self.marks = 0
        self.boots = 0
        self.bell = Future()
        sim.spawn(self, self._agent(0))

    def __str__(self) -> str:
        return self.name

    def time(self) -> float:
        return self.clock.read(self.sim.now)

    def rpc(self, make: Callable[[], Iterator[Any]], life: int = -1) -> Iterator[Any]:
        """One round trip. LOST: no answer within `give_up`, or the connection broke; the statement may come later yet."""
        sim, future = self.sim, Future()

        def hop(direction: str) -> float:
            delay = sim.rng.choice([0.0005, 0.002, 0.02, 0.2]) + (
                sim.rng.uniform(0, sim.rules.give_up + 1) if sim.now < self.slow else 0
            )
            if sim.now + delay < self.cut[direction]:
                return self.cut[direction] - sim.now + delay if sim.rng.random() < 0.6 else -1.0
            return delay

        def answer(value: Any) -> None:
            delay = hop("rep")
            if delay >= 0:
                sim.at(sim.now + delay, lambda: future.set(value))

        delay = hop("req")
        if delay >= 0:
            sim.at(
                sim.now + delay,
                lambda: (
                    answer(LOST) if life not in (-1, sim.server.life) else sim.server.call(make(), answer)
                ),
            )
        return (yield (future, sim.rules.give_up))

    def _agent(self, boot: int) -> Iterator[Any]:
        """Watches sessions, finds dead holders of its own, takes what is free."""
        sim, rules = self.sim, self.sim.rules
        seen: tuple[str, int | None] = ("", None)
        since = last = 0.0
        while boot == self.boots and not sim.over:
            answer = yield from self.rpc(sim.server.read)
            now = self.time()
            if answer == LOST:
                seen = ("", None)
                yield 0.5
                continue
            state, server_clock = answer[1]
            beats = (state.session, state.beats.get(state.session))
            if beats != seen or (rules.watch_gap and now - last > 2 * rules.poll):
                seen, since = beats, now
            last = now
            if state.events and state.events[-1][1].startswith("done"):
                yield rules.poll
                continue
            if self.flock is not None and self.flock.is_dead:
                self.flock = None
            free = self.flock is None
            dead = self.file_epoch if rules.dead_by_file else state.epoch
            if (
                free
                and state.held
                and dead == state.epoch
                and (state.host == self.name or not rules.dead_by_file)
            ):
                self.start(Want("dead", epoch=dead))
            elif free and not state.held:
                self.start(Want("free", epoch=state.epoch))
            elif (state.held and free and rules.judge == "watch" and now - since >= rules.ttl) or (
                state.held
                and free
                and rules.judge == "server"
                and server_clock - state.renewed.get(state.session, 1e9) >= rules.ttl
            ):
                self.start(Want("silent", state.epoch, state.session, seen[1]))
            self.bell = Future()
            yield (self.bell, rules.poll if state.held else 1.0)

    def start(self, want: Want) -> None:
        if self.is_dead or self.is_stopped:
            return
        if self.flock is not None and not self.flock.is_dead:
            if want.kind != "placed":
                return
            self.flock.die("killed for a placement on its own host")
        self.flock = ModelAttempt(self, want)
