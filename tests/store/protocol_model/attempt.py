"""An attempt in the model: it claims, renews, acts, saves and appends, and settles what it finds in doubt."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.store.protocol_model.clock import Future
from tests.store.protocol_model.faults import freeze, strike
from tests.store.protocol_model.rules import EFFECTS, LOST, Violation, Want

if TYPE_CHECKING:
    from tests.store.protocol_model.host import ModelHost


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
