"""The outside world in the model: it counts what is done, and what is put away."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.store.protocol_model.rules import DRIFT, Rules

if TYPE_CHECKING:
    from tests.store.protocol_model.attempt import ModelAttempt
    from tests.store.protocol_model.simulation import Sim


class World:
    """Counts what is done, and what is put away."""

    def __init__(self, sim: Sim) -> None:
        self.sim, self.acts = sim, Counter()
        self.settled: list[tuple[float, int]] = []  # when a taker began to settle, and its epoch
        self.place: dict[str, str] = {}  # saves: name -> content
        self.acked: list[tuple[int, str]] = []  # what writers were told is in the journal: (seq, bytes)

    def begin(self, attempt: ModelAttempt, effect: int, sent: float, froze: float) -> None:
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

    def apply(self, attempt: ModelAttempt, effect: int) -> None:
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
