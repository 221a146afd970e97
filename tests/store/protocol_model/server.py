"""PostgreSQL in the model: statements with row locks and snapshots, a WAL and a standby."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.store.protocol_model.clock import Future
from tests.store.protocol_model.rules import LOST, Want

if TYPE_CHECKING:
    from tests.store.protocol_model.simulation import Sim


class State:
    def __init__(self) -> None:
        self.epoch, self.turn, self.placement, self.session, self.host, self.held = 0, 0, 0, "", "", False
        self.proven = 0  # every epoch up to this one is known to act no more
        self.beats: dict[str, int] = {}
        self.renewed: dict[str, float] = {}
        self.events: list[tuple[int, str, str]] = []  # epoch, bytes, save it names
        self.timeline = 1

    @property
    def bytes(self) -> set[str]:
        return {each[1] for each in self.events}

    def copy(self) -> State:
        other = State()
        other.__dict__.update(self.__dict__)
        other.beats, other.renewed, other.events = dict(self.beats), dict(self.renewed), list(self.events)
        return other


class Server:
    is_stopped = False

    def __init__(self, sim: Sim) -> None:
        self.sim, self.state, self.standby = sim, State(), State()
        self.wal: list[Callable[[State], None]] = []
        self.replicated = 0
        self.visible = 0
        self.up, self.life, self.stalled, self.linked = True, 0, 0.0, True
        self.step = 0.0  # of its wall clock
        self.failed_over = -1e9
        self.locks: dict[str, list[Any]] = {}
        self.waits: list[tuple[int, Future]] = []
        sim.spawn(None, self._ship())

    def clock(self) -> float:
        return self.sim.now + self.step

    def _ship(self) -> Iterator[Any]:
        while True:
            yield self.sim.rng.choice([0.05, 0.5, 2.0] if self.sim.mode == "async" else [0.01, 0.02])
            while (
                self.linked and self.up and self.sim.now >= self.stalled and self.replicated < len(self.wal)
            ):
                self.wal[self.replicated](self.standby)
                self.replicated += 1
            for at, future in list(self.waits):
                if self.replicated >= at:
                    self.waits.remove((at, future))
                    future.set("ok")

    def lock(self, row: str, mode: str) -> Iterator[Any]:
        while any("x" in (mode, other) for other in self.locks.get(row, [])):
            yield 0.003
        self.locks.setdefault(row, []).append(mode)

    def unlock(self, row: str, mode: str) -> None:
        self.locks[row].remove(mode)

    def commit(self, change: Callable[[State], None]) -> Iterator[Any]:
        """Flush, wait for the standby where it is synchronous, then be visible."""
        yield self.sim.rng.choice([0.001, 0.005, 0.05])
        self.wal.append(change)
        at = len(self.wal)
        if self.sim.mode == "sync":
            done = Future()
            self.waits.append((at, done))
            while (yield (done, 1000.0)) == LOST:
                pass
        while self.visible < at:
            self.wal[self.visible](self.state)
            self.visible += 1

    def call(self, steps: Iterator[Any], answer: Callable[[Any], None]) -> None:
        """Execute a statement for a client. A crash of the server ends it without an answer."""
        life = self.life

        def run() -> Iterator[Any]:
            try:
                wanted = next(steps)
                while True:
                    got = yield wanted
                    while self.sim.now < self.stalled:
                        yield self.stalled - self.sim.now
                    if self.life != life:
                        answer(LOST)
                        return
                    wanted = steps.send(got)
            except StopIteration as stop:
                answer(stop.value)

        if not self.up:
            answer(LOST)
            return
        self.sim.spawn(None, run())

    def crash(self, down: float, *, failover: bool) -> None:
        self.life += 1
        self.up, self.locks, self.waits = False, {}, []
        if failover:
            lost = len(self.wal) - self.replicated
            self.wal, self.state = self.wal[: self.replicated], self.standby.copy()
            self.visible = len(self.wal)
            self.sim.say(f"postgres: failover, {lost} commits lost")
            self.failed_over = self.sim.now
            self.state.timeline += 1
            self.standby.timeline += 1
            if self.sim.mode == "sync":
                self.sim.accepted = self.state.timeline
        else:
            while self.visible < len(self.wal):  # what waited for the standby is there, unacknowledged
                self.wal[self.visible](self.state)
                self.visible += 1
            self.sim.say("postgres: killed, restarts")
        self.sim.at(self.sim.now + down, lambda: setattr(self, "up", True))

    # statements

    def holds(self, epoch: int, session: str) -> bool:
        """The fence. An epoch's number can be given twice, when a primary is lost that had given it and not shipped it."""
        return self.state.epoch == epoch and (
            self.state.session == session or not self.sim.rules.fence_session
        )

    def append(self, epoch: int, session: str, turn: int, after: int, data: str, names: str) -> Iterator[Any]:
        rules = self.sim.rules
        if rules.for_share:
            yield from self.lock("lease", "s")
        yield 0.0005
        state = self.state
        ok = (
            self.holds(epoch, session)
            and (state.turn == turn or not rules.turn)
            and len(state.events) == after
        )
        if not rules.for_share:
            yield self.sim.rng.choice([0.001, 0.01, 0.3])
            ok = ok and len(self.state.events) == after  # the primary key still holds
        if not ok:
            why = ("refused", self.holds(epoch, session) and len(state.events) >= after)
        else:
            if names and rules.ship == "before" and self.sim.world.place.get(names) != data:
                self.sim.violated(
                    "I4", f"event {data} names {names}, which holds {self.sim.world.place.get(names)}"
                )

            def change(to: State) -> None:
                if not rules.for_share and to.epoch != epoch:
                    self.sim.violated(
                        "I5", f"an event of epoch {epoch} lands after epoch {to.epoch} was committed"
                    )
                to.events.append((epoch, data, names))

            yield from self.commit(
                change
                if rules.for_share
                else lambda to: change(to) if to is self.state else to.events.append((epoch, data, names))
            )
            why = ("ok", after + 1)
        if rules.for_share:
            self.unlock("lease", "s")
        return why

    def door(self, epoch: int, session: str, turn: int, new: int | None) -> Iterator[Any]:
        """Written: `turn = turn + 1 WHERE turn = $mine`. Fixed: `turn = $new WHERE turn < $new`, a number of its own for each try."""
        yield from self.lock("lease", "x")
        yield 0.0005
        if not self.holds(epoch, session) or (
            self.state.turn != turn if new is None else self.state.turn >= new
        ):
            self.unlock("lease", "x")
            return ("refused", self.holds(epoch, session))
        new = new or self.state.turn + 1
        yield from self.commit(lambda to: setattr(to, "turn", new))
        self.unlock("lease", "x")
        return ("ok", new)

    def renew(self, session: str) -> Iterator[Any]:
        rules = self.sim.rules
        seen = (
            self.state.epoch if self.state.session == session and self.state.held else 0
        )  # by the statement's snapshot
        yield from self.lock("session " + session, "x")
        yield 0.0005
        if rules.lock_session:  # two statements: the second one has a snapshot of its own
            seen = self.state.epoch if self.state.session == session and self.state.held else 0
        at = self.clock()

        def change(to: State) -> None:
            to.beats[session] = to.beats.get(session, 0) + 1
            to.renewed[session] = at

        yield from self.commit(change)
        self.unlock("session " + session, "x")
        return ("ok", seen)

    def claim(self, want: Want, session: str, host: str) -> Iterator[Any]:
        rules, state = self.sim.rules, self.state
        timeline = state.timeline
        if rules.rewind_stops and timeline != self.sim.accepted:
            return ("rewound", 0)
        silent = "session " + want.session
        seen_beats = state.beats.get(want.session)  # by the statement's snapshot
        if want.kind == "silent" and rules.lock_session:
            yield from self.lock(silent, "x")
            seen_beats = self.state.beats.get(want.session)
        yield from self.lock("lease", "x")
        yield 0.0005
        state = self.state
        if want.kind == "silent":
            still = seen_beats == want.beats if rules.judge == "watch" else True
            ok = state.epoch == want.epoch and state.held and still
        elif want.kind == "dead":
            ok = state.epoch == want.epoch
        elif want.kind == "placed":
            ok = want.number > state.placement
        else:
            ok = state.epoch == want.epoch and not state.held
        if ok:
            new = state.epoch + 1
            proven = want.kind in ("dead", "free")
            if want.kind == "dead" and state.host != host:
                self.sim.violated(
                    "I8",
                    f"host {host} takes epoch {state.epoch} of host {state.host} for dead, by its own lock",
                )
            if want.kind == "silent":
                self.sim.check_healthy(state.epoch)

            def change(to: State) -> None:
                to.proven = new - 1 if proven and to.proven >= new - 2 else to.proven
                to.epoch, to.turn, to.session, to.host, to.held = new, 0, session, host, True
                to.placement = max(to.placement, want.number)
                to.beats.setdefault(session, 0)

            victim = self.sim.epochs.get(state.epoch)
            yield from self.commit(change)
            self.sim.say(f"postgres: epoch {new} to host {host} ({want.kind})")
            if (
                want.kind == "silent"
                and victim is not None
                and not (
                    victim.is_dead
                    or victim.suspended
                    or victim.released
                    or victim.is_stopped
                    or victim.froze_long
                )
                and victim.time() < victim.deadline
            ):
                self.sim.violated(
                    "I0",
                    f"{victim} may act by its lease for {victim.deadline - victim.time():.1f} s after epoch {new} by silence",
                )
        self.unlock("lease", "x")
        if want.kind == "silent" and rules.lock_session:
            self.unlock(silent, "x")
        return ("ok", (new, self.state.proven, proven)) if ok else ("refused", 0)

    def release(self, epoch: int, session: str) -> Iterator[Any]:
        yield from self.lock("lease", "x")
        yield 0.0005
        if self.holds(epoch, session):
            yield from self.commit(lambda to: setattr(to, "held", False))
        self.unlock("lease", "x")
        return ("ok", 0)

    def prove(self, epoch: int, upto: int) -> Iterator[Any]:
        yield from self.lock("lease", "x")
        yield 0.0005
        if self.state.epoch == epoch:
            yield from self.commit(lambda to: setattr(to, "proven", max(to.proven, upto)))
        self.unlock("lease", "x")
        return ("ok", 0)

    def read(self) -> Iterator[Any]:
        yield 0.0005
        return ("ok", (self.state.copy(), self.clock()))
