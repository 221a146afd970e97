"""A run's acts on the outside world, a page at a time: each effect from intent to outcome."""

import msgspec

from outlast.core import events as ev, state as st
from outlast.dashboard import documents
from outlast.errors import UnknownRun
from outlast.inspect import find, show
from outlast.runs import reader
from outlast.store.protocol import RecordedEvent, RunFilter, Store, Summary

SIZE_MAX = 500
DOUBTFUL_RUNS_MAX = 20
NEAR_EVENTS = 1_000  # of the end of a journal, where what is open was intended most likely
AHEAD_EVENTS = 2_000
PAGES_AHEAD_MAX = 50
Key = tuple[int, int]

_SETTLING = (ev.EffectInDoubt, ev.EffectSettled)


def summary_of(store: Store, run: str) -> Summary:
    """The run of this very id. Raises UnknownRun."""
    for found in store.list(RunFilter(runs=(run,)), limit=1):
        return found
    raise UnknownRun(run)


def effects(store: Store, run: str, before: int | None = None, size: int = 100) -> documents.Effects:
    """Effects in the order of their first intents, newest first; on the first page those nobody knows the outcome of on top.

    An outcome stands near its intent, so a page costs the same however long the run is. Effects of unknown outcome come from the
    head, and stand on top of the first page wherever in the journal they were intended.
    """
    summary, size = summary_of(store, run), max(1, min(size, SIZE_MAX))
    intents = store.read(
        run, after=0, tags=("effect_intended",), before=before or 0, limit=size + 1, newest=True
    ).events
    page = intents[-size:]
    found = _page(store, summary, page)
    top = [*unsettled(store, summary), *_below(store, summary)] if before is None else []
    there = {(each.run, each.effect.id) for each in top}
    rest = [each for each in found if (run, each.effect.id) not in there]
    more = page[0].seq if len(intents) > size else None
    return documents.Effects(run=run, total=summary.state.effects_total, effects=(*top, *rest), before=more)


class _Reading:
    """Effects while their events are read, with every look at them."""

    def __init__(self, wanted: set[Key]) -> None:
        self.wanted = wanted
        self.seen: dict[Key, show.EffectEvents] = {}
        self.looks: dict[Key, list[documents.Look]] = {}

    def take(self, events: list[RecordedEvent]) -> None:
        for item in events:
            event = item.event
            if (getattr(event, "beat", 0), getattr(event, "n", 0)) not in self.wanted:
                continue
            show.take(self.seen, event, item.seq)
            if isinstance(event, _SETTLING):
                self.looks.setdefault((event.beat, event.n), []).append(_look(event))

    def far(self) -> set[Key]:
        """Effects whose outcome may follow their beat's end, because the agent already went on."""
        return {
            key
            for key, seen in self.seen.items()
            if seen.record.state in ("intended", "in_doubt") and seen.record.intent.policy == "tell"
        }

    def shown(self, store: Store, run: str, key: Key, live_since: int | None) -> documents.EffectShown:
        effect = show.shown_effect(store, self.seen[key], live_since, show.LISTED_MAX_BYTES)
        return documents.EffectShown(run=run, effect=effect, looks=tuple(self.looks.get(key, ())))


def _look(event: ev.EffectInDoubt | ev.EffectSettled) -> documents.Look:
    if isinstance(event, ev.EffectSettled):
        return documents.Look(at=event.at, by=event.by, finding=event.finding, evidence=event.evidence)
    return documents.Look(at=event.at, by="", finding=None, evidence=event.evidence)


def _page(store: Store, summary: Summary, intents: list[RecordedEvent]) -> list[documents.EffectShown]:
    """The effects that were intended first by these events, newest first, read on until each has its outcome."""
    first = [
        (item.event.beat, item.event.n)
        for item in intents
        if isinstance(item.event, ev.EffectIntended) and item.event.attempt == 1
    ]
    if not first:
        return []
    reading, after = _Reading(set(first)), intents[0].seq - 1
    known = {(effect.beat, effect.n) for effect in summary.state.effects_open}
    for _ in range(PAGES_AHEAD_MAX):
        events = store.read(summary.run, after=after, tags=reader.EFFECT_TAGS, limit=AHEAD_EVENTS).events
        reading.take(events)
        if len(events) < AHEAD_EVENTS:
            break
        if getattr(events[-1].event, "beat", 0) > first[-1][0] and not reading.far() - known:
            break
        after = events[-1].seq
    live_since = show.lives_since(store, summary)
    return [reading.shown(store, summary.run, key, live_since) for key in reversed(first)]


def unsettled(store: Store, summary: Summary) -> list[documents.EffectShown]:
    """The effects of a run that are open or in doubt, the doubtful first."""
    heads = {(effect.beat, effect.n): effect for effect in summary.state.effects_open}
    if not heads:
        return []
    reading = _Reading(set(heads))
    reading.take(
        store.read(summary.run, after=0, tags=reader.EFFECT_TAGS, limit=NEAR_EVENTS, newest=True).events
    )
    live_since = show.lives_since(store, summary)
    found = [
        reading.shown(store, summary.run, key, live_since)
        if key in reading.seen
        else _by_head(summary.run, effect)
        for key, effect in heads.items()
    ]
    return sorted(found, key=lambda each: each.effect.state != "in_doubt")


def _by_head(run: str, effect: st.OpenEffect) -> documents.EffectShown:
    """An effect in doubt whose intent is no longer among the events read, by what the head has of it."""
    null = msgspec.Raw(b"null")
    shown = show.Effect(
        id=effect.id, key=effect.key, name=effect.name, state="in_doubt", policy=effect.policy, args=null,
        result=null, evidence=effect.evidence, intended_at=effect.at, settled_by="", attempts=1, beat=effect.beat,
    )  # fmt: skip
    looks = (
        (documents.Look(at=effect.at, by="", finding=None, evidence=effect.evidence),)
        if effect.evidence
        else ()
    )
    return documents.EffectShown(run=run, effect=shown, looks=looks)


def _below(store: Store, summary: Summary) -> list[documents.EffectShown]:
    """The effects in doubt in the runs of the beat in flight."""
    doubts = find.doubts(store, summary.state)
    runs = dict.fromkeys(run for run, _ in doubts if run != summary.run)
    found: list[documents.EffectShown] = []
    for run in tuple(runs)[:DOUBTFUL_RUNS_MAX]:
        found += [
            each for each in unsettled(store, summary_of(store, run)) if each.effect.state == "in_doubt"
        ]
    return found
