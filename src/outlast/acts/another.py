"""Another: an agent or a person says that the calls held by an effect in doubt are different calls."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from outlast import decoders
from outlast.acts.plan import TAKEN_IN, WRITES, ActOutcome, root_of
from outlast.agents.outward import content
from outlast.core import events as ev
from outlast.errors import UsageError
from outlast.inspect import show
from outlast.operations import requests
from outlast.store.protocol import Store, Summary
from outlast.supervisor.agent.calls.history import ANOTHER, Named
from outlast.supervisor.agent.calls.identity import nearest
from outlast.supervisor.agent.calls.record import CallRecord


@dataclass(frozen=True, slots=True)
class AnotherPlan:
    """The act worked out: `held` calls may be made once it is on record. The effect stays in doubt."""

    store: Store
    run: Summary
    effect: str
    held: int
    sentences: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The words that do the same."""
        return ("settle", self.run.run, self.effect, "--another")

    def apply(self, by: str = "") -> ActOutcome:
        """Record it, or ask the run's holder to."""
        with requests.alone(self.store, self.run.run, WRITES):
            now = plan(self.store, self.run, self.effect)
            args = msgspec.json.encode(Named(self.effect))
            outcome = requests.ask(self.store, self.run.run, "settle", ANOTHER, args, by=by)
        says = f"{now.sentences[0]} {now.sentences[1]}"
        return ActOutcome(
            says=f"{says} {TAKEN_IN.capitalize()}." if outcome.in_inbox else says, link=self.run.run
        )


def plan(store: Store, summary: Summary, effect: str) -> AnotherPlan:
    """Work out which held calls would be other calls. Raises UsageError if the effect holds no call that outlast can tell apart."""
    root, _ = root_of(store, summary)
    requests.settling(store, summary.run, effect, "happened")
    look = f"look whether it happened, then `outlast settle {summary.run} {effect} --happened` or `--did-not`"
    first = next((record for known, record in _calls(store, root) if known == effect), None)
    if first is None or summary.run != root.run or all(each.another != "named" for each in first.outward):
        raise UsageError(
            f"`--another` does not apply to effect {effect}: its address takes one kind of act, so reworded calls count as the same",
            hint=look,
        )
    if not any(content.can_differ(each.content) for each in first.outward):
        raise UsageError(
            f"outlast did not record what effect {effect} sent, so it cannot tell another call from it",
            hint=look,
        )
    held = {
        each.content
        for _, record in _calls(store, root) if record.held == effect
        for each in record.outward if nearest(first.outward, [each])[0] == "named"
    }  # fmt: skip
    if not held:
        raise UsageError(
            f"effect {effect} holds no other call",
            hint="make the call first; if outlast holds it, use --another",
        )
    calls = "1 call that effect" if len(held) == 1 else f"{len(held):,} calls that effect"
    others = "is another one and may be made" if len(held) == 1 else "are other ones and may be made"
    sentences = (
        f"{calls} {effect} held {others}.",
        f"Effect {effect} is still in doubt, and the same call is still held.",
    )
    return AnotherPlan(store, root, effect, len(held), sentences)


def _calls(store: Store, run: Summary) -> Iterator[tuple[str, CallRecord]]:
    """The agent's calls that reach outside."""
    after = 0
    while page := store.read(run.run, after=after, tags=("effect_intended",)).events:
        for item in page:
            if isinstance(item.event, ev.EffectIntended) and item.event.policy == "tell":
                try:
                    record = decoders.decode(
                        show.raw(store, item.event.args, show.BLOB_SHOWN_MAX_BYTES), CallRecord
                    )
                except msgspec.MsgspecError:
                    continue
                yield f"{item.event.beat}.{item.event.n}", record
        after = page[-1].seq
