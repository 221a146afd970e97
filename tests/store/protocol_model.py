"""An executable specification of outlast on many hosts: one run, two hosts, an engine, PostgreSQL with a standby, faults.

    python -m tests.store.protocol_model --rules fixed --seed 7 --steps 1         one schedule, with its trace (-v)
    python -m tests.store.protocol_model --rules fixed --seed 0 --steps 2000      seeds 0..1999; prints violations by invariant
    python -m tests.store.protocol_model --rules written --seed 0 --steps 500     the first text of the protocol
    python -m tests.store.protocol_model --mutant no_for_share --steps 500        one rule broken; must be found (`--mutants`: all)
    python -m tests.store.protocol_model --races                                  exhaustive: claim x renewal x append in PostgreSQL
    python -m tests.store.protocol_model --numbers                                exhaustive/random: subscription numbers

A schedule is a seed: a list of faults and the delays of each message. `--shrink` drops faults while the violation stays.
Time is continuous; each host has a clock of its own (rate 1 +- DRIFT; a paused VM's clock stands, a sleeping laptop's goes
on). Processes are generators; the server executes statements with row locks, snapshots, a WAL and a standby.

Invariants: I0 a taker by silence and the holder never both hold | I1 no effect twice (policy probe) | I2 no act of an old epoch begins after a taker settles what is in doubt |
I3 acknowledged is there, or nobody acts | I4 what an event names is there | I5 a writer knows its own journal |
I6 a healthy holder keeps its lease through an outage <= OUTAGE | I7 some host goes on | I8 the local fast path takes only
from the dead. `frozen` after a name: somebody slept, see `Freeze`; `window`: an act
whose intent was acknowledged by an asynchronous primary less than `act_within` before it died: nobody can know.
"""

import argparse
import dataclasses
import heapq
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

DRIFT = 0.01
OUTAGE = 20.0
HORIZON = 150.0
CALM = 130.0
EFFECTS = 9
LOST = "lost"


@dataclasses.dataclass
class Rules:
    """The protocol as it should be. `WRITTEN` is the first text of the protocol, where it said something else or nothing."""

    ttl: float = 30.0
    renew: float = 5.0
    margin: float = 4.0
    act_within: float = 2.0
    quiet: float = 6.0
    kill_in: float = 10.0
    poll: float = 5.0
    give_up: float = 3.0  # a connection without an answer is broken
    for_share: bool = True  # the append holds the lease's row until it is committed
    turn: bool = True  # a lost answer: shut the door first, then look
    deadline_from: str = "sent"  # | reply
    judge: str = "watch"  # | server: by the server's clock
    ship: str = "before"  # | after the event that names it
    lock_session: bool = (
        True  # a claim by silence locks the session's row, then looks; a renewal looks at leases second
    )
    watch_gap: bool = True  # a look that came late begins the watch anew
    proof_stays: bool = True  # who was not proven dead stays so for every later taker
    release_waits: bool = True  # no release while an act is under way
    door_acked: bool = True  # nothing is done on what was only read
    rewind_stops: bool = True  # asynchronous: after a change of timeline nobody acts before a person said so
    claim_found: bool = True  # a claim whose answer was lost is looked up
    claim_sent: bool = True  # and its deadline counts from when the claim was sent: looking prolongs nothing
    claim_door: bool = True  # and it is confirmed by a door before anything is done on it
    fence_session: bool = True  # every fenced statement names epoch and session
    dead_by_file: bool = (
        True  # "dead" names the epoch that the lock file holds, not the one that the store tells
    )
    boottime: bool = True  # the 2 s are counted by a clock that counts sleep
    own_name: bool = True  # a save's name is never used for another content


# The protocol as it was first written, before it was attacked with this model.
WRITTEN: dict[str, Any] = {
    "renew": 10.0, "quiet": 3.0, "give_up": 7.5, "lock_session": False, "watch_gap": False, "proof_stays": False, "release_waits": False,
    "door_acked": False, "rewind_stops": False, "claim_found": False, "claim_door": False, "fence_session": False, "boottime": False, "own_name": False,
}  # fmt: skip
MUTANTS: dict[str, dict[str, Any]] = {
    "no_for_share": {"for_share": False},
    "deadline_from_reply": {"deadline_from": "reply", "give_up": 9.0, "poll": 1.0},
    "no_quiet": {"quiet": 0.0, "kill_in": -30.0},
    "server_clock": {"judge": "server"},
    "no_turn": {"turn": False},
    "ship_after_event": {"ship": "after"},
    "no_session_lock": {"lock_session": False},
    "proof_of_last_only": {"proof_stays": False},
    "release_at_once": {"release_waits": False},
    "door_read_only": {"door_acked": False},
    "rewind_goes_on": {"rewind_stops": False},
    "claim_forgotten": {"claim_found": False},
    "claim_prolonged": {"claim_sent": False},
    "claim_by_look": {"claim_door": False},
    # With a door for looked-up claims the session is a second bolt.
    "epoch_alone": {"fence_session": False, "claim_door": False},
    "dead_by_store": {"dead_by_file": False},
    "monotonic": {"boottime": False},
    "name_again": {"own_name": False},
}

# Schedules that find them, so that a test need not search.
FOUND_BY: dict[str, tuple[int, ...]] = {
    "no_for_share": (18, 26),
    "deadline_from_reply": (730, 1192),
    "no_quiet": (0, 11),
    "server_clock": (12, 18),
    "no_turn": (24, 38),
    "ship_after_event": (56, 204),
    "no_session_lock": (52, 238),
    "proof_of_last_only": (11, 116),
    "release_at_once": (10, 16),
    "door_read_only": (44, 52),
    "rewind_goes_on": (17, 89),
    "claim_forgotten": (8, 18),
    "claim_prolonged": (14, 131),
    "claim_by_look": (888, 2732),
    "epoch_alone": (564, 888),
    "dead_by_store": (0, 1),
    "monotonic": (6, 8),
    "name_again": (0, 2),
}
FAULTS = ["net", "kill", "pg", "engine", "short"]
MODES = ["sync", "async"]


def broken(name: str, seed: int) -> set[str]:
    """The invariants that a mutant breaks in a schedule, but for those that nobody can keep."""
    struck = ["lid"] if name == "monotonic" else FAULTS
    mode = MODES[seed % len(MODES)]
    found = {
        kind_of(each) for each in play(seed, Rules(**MUTANTS[name]), mode, faults_of(seed, struck)).found
    }
    return {each for each in found if "window" not in each and (name == "monotonic" or "frozen" not in each)}


class Violation(Exception):
    pass


# -- time, processes, clocks ----------------------------------------------------------------------------------------------


class Future:
    def __init__(self) -> None:
        self.value: Any = None
        self.done = False
        self.waiting: list[Callable[[], None]] = []

    def set(self, value: Any) -> None:
        if not self.done:
            self.done, self.value = True, value
            for wake in self.waiting:
                wake()


class Clock:
    """Seconds since boot as a host counts them. `stands`: a paused VM. `asleep`: a laptop; boottime goes on, monotonic not."""

    def __init__(self, rate: float) -> None:
        self.rate, self.stood, self.slept, self.since, self.kind = rate, 0.0, 0.0, None, ""

    def stop(self, now: float, kind: str) -> None:
        self.since, self.kind = now, kind

    def go(self, now: float) -> None:
        assert self.since is not None
        if self.kind == "vm":
            self.stood += now - self.since
        self.slept += now - self.since
        self.since = None

    def read(self, now: float, *, monotonic: bool = False) -> float:
        running = now - self.since if self.since is not None else 0.0
        away = self.slept + running if monotonic else self.stood + (running if self.kind == "vm" else 0.0)
        return (now - away) * self.rate


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


class World:
    """Counts what is done, and what is put away."""

    def __init__(self, sim: Sim) -> None:
        self.sim, self.acts = sim, Counter()
        self.settled: list[tuple[float, int]] = []  # when a taker began to settle, and its epoch
        self.place: dict[str, str] = {}  # saves: name -> content
        self.acked: list[tuple[int, str]] = []  # what writers were told is in the journal: (seq, bytes)

    def begin(self, attempt: "ModelAttempt", effect: int, sent: float, froze: float) -> None:
        sim, epoch = self.sim, attempt.epoch
        sim.say(f"{attempt} begins effect {effect}")
        late = [e for t, e in self.settled if e > epoch]
        if late:
            sim.violated(
                "I2" + (" frozen" if froze > Freeze.allowed(sim.rules) else ""),
                f"{attempt} begins effect {effect} after epoch {max(late)} settles; stopped for {froze:.2f} s since its last look",
            )
        lost = [bytes_ for seq, bytes_ in self.acked if bytes_ not in sim.server.state.bytes]
        if lost:
            window = (
                " window"
                if sim.now - sim.server.failed_over <= sim.rules.act_within / (1 - DRIFT) + 0.1
                else ""
            )
            sim.violated("I3" + window, f"{attempt} acts, and {lost[:3]} were acknowledged and are gone")

    def apply(self, attempt: "ModelAttempt", effect: int) -> None:
        self.acts[effect] += 1
        self.sim.say(f"world: effect {effect} happens ({attempt}), {self.acts[effect]} x")
        if self.acts[effect] > 1:
            frozen = " frozen" if any(a.froze_long for a in self.sim.epochs.values()) else ""
            self.sim.violated("I1" + frozen, f"effect {effect} happened {self.acts[effect]} times")


class Freeze:
    """How long somebody may be stopped between its last look at the clock and the call without being noticed too late."""

    @staticmethod
    def allowed(rules: Rules) -> float:
        return rules.quiet / (1 + DRIFT) - rules.act_within / (1 - DRIFT)


# -- PostgreSQL -----------------------------------------------------------------------------------------------------------


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

    def copy(self) -> "State":
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

    def claim(self, want: "Want", session: str, host: str) -> Iterator[Any]:
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


def check_healthy(self: Sim, epoch: int) -> None:
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


Sim.check_healthy = check_healthy  # type: ignore[attr-defined]


# -- hosts ----------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Want:
    kind: str  # free | dead | silent | placed
    epoch: int = 0
    session: str = ""
    beats: int | None = None
    number: int = 0


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


class ModelAttempt:
    """A supervisor with its guardian and its tree."""

    ids = itertools.count(1)

    def __init__(self, host: ModelHost, want: Want) -> None:
        self.sim, self.host, self.clock, self.want = host.sim, host, host.clock, want
        self.id = f"s{next(ModelAttempt.ids)}"
        self.epoch = self.turn = 0
        self.is_dead = self.sup_stopped = self.guard_stopped = self.lost = self.released = self.suspended = (
            False
        )
        self.thawed: list[Callable[[], None]] = []
        self.view: list[tuple[int, str, str]] = []
        self.deadline, self.born = 0.0, host.sim.now
        self.acting = 0
        self.stops: list[tuple[float, float]] = []
        self.froze_long = False
        self.saves = self.tried = 0
        self.life = host.sim.server.life
        self.sim.spawn(self, self._main())

    def __str__(self) -> str:
        return f"{self.host.name}/e{self.epoch}"

    @property
    def is_stopped(self) -> bool:
        return self.sup_stopped or self.host.is_stopped

    def time(self) -> float:
        return self.host.time()

    def act_time(self) -> float:
        return self.clock.read(self.sim.now, monotonic=not self.sim.rules.boottime)

    def die(self, why: str) -> None:
        if not self.is_dead:
            if self.epoch:
                self.sim.say(f"{self} dies: {why}")
            self.is_dead = True
        if self.host.flock is self:
            self.host.flock = None
            if self.epoch and not self.host.is_dead:
                self.host.bell.set("dead")

    def rpc(self, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """On this attempt's connection. After a lost one: reconnect, and ask which timeline this is."""
        answer = yield from self.host.rpc(make, self.life)
        if answer == LOST:
            self.life = self.sim.server.life
        elif self.sim.rules.rewind_stops and self.sim.server.state.timeline != self.sim.accepted:
            self.die("StoreRewound: another timeline, and no person has accepted it")
            yield 1.0
        return answer

    # claim, heartbeat, deadline

    def _main(self) -> Iterator[Any]:
        sim, rules, server = self.sim, self.sim.rules, self.sim.server
        sent = self.time()
        answer = yield from self.rpc(lambda: server.claim(self.want, self.id, self.host.name))
        tries = 0
        while answer == LOST and rules.claim_found and tries < 40:
            tries += 1
            yield 0.5
            if not rules.claim_sent:
                sent = self.time()
            found = yield from self.rpc(server.read)
            if found != LOST and found[1][0].session == self.id:
                if (
                    rules.claim_door
                ):  # what was only read may vanish with its primary: write before anything is done on it
                    self.tried += 1
                    door = yield from self.rpc(
                        lambda epoch=found[1][0].epoch, new=self.tried: server.door(epoch, self.id, 0, new)
                    )
                    if door == LOST or door[0] != "ok":
                        continue
                    self.turn = door[1]
                answer = ("ok", (found[1][0].epoch, found[1][0].proven, self.want.kind in ("dead", "free")))
            elif found != LOST and (found[1][0].epoch > self.want.epoch or tries > 20):
                answer = ("refused", 0)
        if (
            answer == LOST and not rules.claim_found
        ):  # it takes it for refused, and its session lives on in this process
            sim.spawn(self, self._heart(beat_only=True))
            if self.host.flock is self:
                self.host.flock = None
            return
        if answer == LOST or answer[0] != "ok":
            self.die("claim refused")
            return
        self.epoch, proven, is_dead = answer[1]
        claimed = self.time()
        self.deadline = sent + rules.ttl - rules.margin
        sim.epochs[self.epoch] = self
        self.host.file_epoch = self.epoch
        sim.spawn(self, self._heart())
        sim.spawn(self.host, self._guardian())
        try:
            yield from self._work(claimed, proven, is_dead)
        except Violation as stop:
            self.lost = True
            self.die(str(stop))

    def _heart(self, beat_only: bool = False) -> Iterator[Any]:
        sim, rules, server_life = self.sim, self.sim.rules, self.life
        while not self.released:
            yield (
                rules.renew
                if self.deadline - self.time() > 1.5 * rules.renew or beat_only
                else min(1.0, rules.renew)
            )
            sent = self.time()
            life = self.life
            answer = yield from self.rpc(lambda: sim.server.renew(self.id))
            if answer == LOST or beat_only:
                continue
            if self.life != life or server_life != self.life:
                server_life = self.life
                look = yield from self.rpc(sim.server.read)
                if look == LOST:
                    continue
                if len(look[1][0].events) < len(self.view):
                    self.lost = True
                    self.die("StoreRewound: the journal is shorter than mine")
                    return
            if answer[1] != self.epoch:
                self.lost = True
                self.die("told that it lost the run")
                return
            base = sent if rules.deadline_from == "sent" else self.time()
            self.deadline = max(self.deadline, base + rules.ttl - rules.margin)
            now_held = sim.epochs.get(sim.server.state.epoch)
            if (
                now_held is not None
                and now_held.epoch > self.epoch
                and now_held.want.kind == "silent"
                and self.time() < self.deadline
            ):
                sim.violated(
                    "I0" + " frozen" * self.froze_long,
                    f"{self} is told that it holds the run until {self.deadline - self.time():.1f} s from now; {now_held} took it by silence",
                )
            if self.suspended and self.time() < self.deadline:
                sim.say(f"{self} goes on")
                self.suspended = False

    def _guardian(self) -> Iterator[Any]:
        """Stops the tree at the deadline. It lives when the supervisor is stopped, unless it is stopped too."""
        while not self.is_dead and not self.released:
            yield 0.2
            if not self.guard_stopped and not self.suspended and self.time() > self.deadline:
                self.sim.say(f"{self} is suspended")
                self.suspended = True

    # writing

    def _append(self, data: str, names: str = "") -> Iterator[Any]:
        """Durable when it returns: when the last fenced and acknowledged statement was sent."""
        sim, rules, server = self.sim, self.sim.rules, self.sim.server
        data = data if "#" in data else f"{data}#{next(ModelAttempt.ids)}"
        while True:
            sent, after = self.act_time(), len(self.view)
            sending = (self.epoch, self.id, self.turn, after, data, names)
            answer = yield from self.rpc(lambda sending=sending: server.append(*sending))
            if answer != LOST:
                if answer[0] == "refused":
                    if answer[1]:
                        sim.violated("I5", f"{self} is refused at {after}, though the epoch is its own")
                    raise Violation("refused")
                break
            reached = ""
            while not reached:
                yield 0.3
                sent = self.act_time()
                if rules.turn:
                    self.tried += 1
                    new = self.tried if rules.door_acked else None
                    door = yield from self.rpc(
                        lambda turn=self.turn, new=new: server.door(self.epoch, self.id, turn, new)
                    )
                    if door != LOST and door[0] == "ok":
                        self.turn, reached = door[1], "acked"
                    elif door != LOST and not door[1]:
                        raise Violation("lost at the door")
                    elif rules.door_acked:
                        continue
                look = yield from self.rpc(server.read)
                if look == LOST:
                    reached = ""
                    continue
                state = look[1][0]
                if state.epoch != self.epoch or (rules.fence_session and state.session != self.id):
                    raise Violation("lost, by looking")
                if len(state.events) < after:
                    raise Violation("StoreRewound: the journal is shorter than mine")
                self.turn, reached = state.turn, reached or "read"
            if len(state.events) > after:
                if state.events[after][1] != data:
                    sim.violated("I5", f"{self} finds {state.events[after][1]} where it wrote {data}")
                    raise Violation("not mine")
                break
            data = data.split("#")[0] + f"#{next(ModelAttempt.ids)}"  # written anew: its time is another
            if names and rules.ship == "before":
                names = yield from self._ship(data)
        self.view.append((self.epoch, data, names))
        self.host.marks = max(self.host.marks, len(self.view))
        self.sim.world.acked.append((len(self.view), data))
        return sent

    def _ship(self, data: str) -> Iterator[Any]:
        """Put a save away; its answer may be lost. Put-if-absent: what is there under the name stays."""
        rules, place = self.sim.rules, self.sim.world.place
        if rules.own_name:
            self.saves += 1
            name = f"e{self.epoch}/{self.saves}-{data}"
        else:
            name = f"e{self.epoch}/{len(self.view)}"
        yield self.sim.rng.choice([0.01, 0.1, 0.5])
        place.setdefault(name, data)
        return name

    # working

    def _read(self) -> Iterator[Any]:
        while True:
            answer = yield from self.rpc(self.sim.server.read)
            if answer != LOST:
                state = answer[1][0]
                if state.epoch != self.epoch or (self.sim.rules.fence_session and state.session != self.id):
                    raise Violation("lost, by reading")
                if len(state.events) < self.host.marks:
                    raise Violation("StoreRewound: marks of this host are ahead")
                for _, _, names in state.events:
                    if names and self.sim.world.place.get(names) is None:
                        self.sim.violated("I4", f"{self} reads an event that names {names}, which is nowhere")
                self.view = list(state.events)
                return
            yield 0.3

    def _work(self, claimed: float, proven: int, is_dead: bool) -> Iterator[Any]:
        sim, rules = self.sim, self.sim.rules
        yield from self._read()
        quiet, counts = claimed + rules.quiet, claimed + max(rules.quiet, rules.ttl + rules.kill_in)
        if self.want.kind == "silent":
            counts = claimed + max(rules.quiet, rules.kill_in)
        for effect in range(EFFECTS if not self.view or not self.view[-1][1].startswith("done") else 0):
            done = {data.split("#")[0] for _, data, _ in self.view}
            if f"out{effect}" in done:
                continue
            mine = [(e, d) for e, d, _ in self.view if d.split("#")[0] == f"int{effect}"]
            nots = [d for _, d, _ in self.view if d.split("#")[0] == f"not{effect}"]
            if len(mine) > len(nots):
                performer = mine[-1][0]
                sure = performer <= proven if rules.proof_stays else is_dead
                if not sure:
                    yield max(0.0, quiet - self.time())
                sim.world.settled.append((sim.now, self.epoch))
                if not sim.world.acts[effect] and not sure:
                    yield max(0.0, counts - self.time())
                    if rules.proof_stays:
                        yield from self.rpc(lambda: sim.server.prove(self.epoch, self.epoch - 1))
                happened = sim.world.acts[effect] > 0
                yield sim.rng.choice([0.001, 0.1])
                if happened:
                    yield from self._append(f"out{effect}")
                    continue
                yield from self._append(f"not{effect}")
            yield sim.rng.choice([0.01, 0.3, 3.0, 9.0])  # the model thinks
            sent = yield from self._append(f"int{effect}#{next(ModelAttempt.ids)}")
            yield from self._point("intended")
            while True:  # guard
                while self.suspended:
                    yield 0.2
                if self.act_time() - sent <= rules.act_within:
                    break
                asked = self.act_time()
                answer = yield from self.rpc(sim.server.read)
                if answer != LOST and (
                    answer[1][0].epoch != self.epoch
                    or (rules.fence_session and answer[1][0].session != self.id)
                ):
                    raise Violation("lost, by asking")
                if answer != LOST and len(answer[1][0].events) < len(self.view):
                    raise Violation("StoreRewound: by asking")
                if answer != LOST:
                    sent = asked
            looked = sim.now
            yield from self._point("looked")
            yield sim.rng.choice([0.0001, 0.005])
            froze = sum(min(b, sim.now) - max(a, looked - 10) for a, b in self.stops if b > looked - 10)
            sim.world.begin(self, effect, sent, froze)
            ended = Future()
            self.acting += 1
            sim.spawn(self.host, self._tree(effect, ended))
            yield from self._point("acting")
            if sim.rng.random() < 0.15:  # it took too long: nobody waits for it any more, the attempt ends
                if rules.release_waits:
                    while (yield (ended, 5.0)) == LOST:
                        pass
                self.released = True
                sim.say(f"{self} releases, {self.acting} under way")
                while (yield from self.rpc(lambda: sim.server.release(self.epoch, self.id))) == LOST:
                    yield 0.3
                yield 0.01
                while self.acting:
                    yield 0.2
                self.die("released")
                return
            while (yield (ended, 5.0)) == LOST:
                pass
            yield from self._append(f"out{effect}")
            if effect % 3 == 2:
                data = f"beat{effect}#{next(ModelAttempt.ids)}"
                name = (
                    (yield from self._ship(data)) if rules.ship == "before" else f"e{self.epoch}/late{effect}"
                )
                if (
                    sim.rng.random() < 0.3 and rules.ship == "before"
                ):  # its answer was lost, the files changed, it is made again
                    data = f"beat{effect}#{next(ModelAttempt.ids)}"
                    name = yield from self._ship(data)
                yield from self._append(data, name)
                if rules.ship == "after":
                    yield sim.rng.choice([0.01, 0.5])
                    sim.world.place[name] = data
        if not self.view[-1][1].startswith("done"):
            yield from self._append("done")
        sim.over = True
        self.released = True
        while (yield from self.rpc(lambda: sim.server.release(self.epoch, self.id))) == LOST:
            yield 0.3
        self.die("done")

    def _point(self, name: str) -> Iterator[Any]:
        """Where a freeze that waits for it strikes: `intended` (acknowledged, clock not looked at yet), `looked`."""
        armed = self.sim.armed.pop((self.host.name, name), None)
        if armed is not None:
            self.sim.say(f"-- {armed[0]} {self.host} {armed[1]:.1f} s, {name}")
            freeze(self.sim, armed[0], self.host, self, armed[1])
            if self.sim.chase:
                other = self.sim.hosts[self.host is self.sim.hosts[0]]
                self.sim.at(
                    self.sim.now + self.sim.rng.uniform(0, 0.3), lambda: strike(self.sim, "place", other, 1.0)
                )
            yield 0.0005

    def _tree(self, effect: int, ended: Future) -> Iterator[Any]:
        """An act under way goes on without its supervisor, but not when it is suspended, killed, or its machine is gone."""
        left = self.sim.act_len or self.sim.rng.choice([0.01, 0.3, 2.0, 12.0])
        boot = self.host.boots
        while left > 0:
            step = min(left, 0.2)
            yield step
            if boot != self.host.boots or (self.is_dead and not self.sup_stopped):
                return
            left -= 0 if self.suspended else step
        self.sim.world.apply(self, effect)
        self.acting -= 1
        ended.set("ok")


# -- faults ---------------------------------------------------------------------------------------------------------------

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


def kind_of(found: str) -> str:
    return found.split(":")[0]


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


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--steps", type=int, default=300, help="how many schedules")
    words.add_argument("--rules", choices=["fixed", "written"], default="fixed")
    words.add_argument("--mutant", choices=sorted(MUTANTS))
    words.add_argument("--only", help="of `written`: a comma-separated list of the rules that are as written")
    words.add_argument("--mutants", action="store_true")
    words.add_argument("--faults", default="net,kill,pg,engine,short")
    words.add_argument("--mode", default="sync,async")
    words.add_argument("--show", type=int, default=0, help="of each kind, how many are shrunk and shown")
    words.add_argument("--freeze", action="store_true", help="measure which stops break I1 and I2")
    words.add_argument("--races", action="store_true")
    words.add_argument("--numbers", action="store_true")
    words.add_argument("-v", action="store_true")
    args = words.parse_args()
    kinds, modes = args.faults.split(","), args.mode.split(",")
    if args.races or args.numbers:
        from tests.store import protocol_races

        return protocol_races.races() if args.races else protocol_races.numbers()
    if args.mutants:
        missed = 0
        for name, change in MUTANTS.items():
            struck = ["lid"] if name == "monotonic" else kinds
            found = campaign(
                Rules(**change), range(args.seed, args.seed + args.steps), struck, modes, 0, stop_at=3
            )
            broken = {
                k: v
                for k, v in found.items()
                if k not in ("schedules", "finished")
                and "window" not in k
                and (name == "monotonic" or "frozen" not in k)
            }
            missed += not broken
            print(
                f"{name:20} {'found' if broken else 'NOT FOUND':9} {broken} in {found['schedules']} schedules",
                flush=True,
            )
        return 1 if missed else 0
    given = MUTANTS[args.mutant] if args.mutant else WRITTEN if args.rules == "written" else {}
    if args.only:
        given = {name: WRITTEN[name] for name in args.only.split(",")}
    rules = Rules(**given)
    if args.freeze:
        freezes(rules, range(args.seed, args.seed + args.steps))
        return 0
    if args.v:
        play(args.seed, rules, modes[args.seed % len(modes)], faults_of(args.seed, kinds), verbose=True)
        return 0
    found = campaign(rules, range(args.seed, args.seed + args.steps), kinds, modes, args.show)
    print(dict(found))
    return (
        1
        if any(k not in ("schedules", "finished") and "frozen" not in k and "window" not in k for k in found)
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
