"""Reading a run together from head and journal: contract, plan body, results, and the parts of its context."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.core import (
    budget as budgets,
    context as contexts,
    events as ev,
    plan as plans,
    secrets,
    state as st,
)
from outlast.core.secrets import mask
from outlast.core.text import act_words
from outlast.core.values import Contract, MemoryRef, Payload, Usage, digest, shorten
from outlast.errors import StoreCorrupt
from outlast.runs import attempts
from outlast.runs.engine.beat import FILE_BYTES_MAX, file_behind
from outlast.runs.journal import Journal
from outlast.store.protocol import RunFilter, Store, Summary

EFFECTS_SHOWN_MAX = 40
ACT_CHARS_MAX = 300
MEMORY_READ_MAX = 128 << 20  # of all files that are remembered together
PLAN_BEFORE, PLAN_AFTER, PLAN_UNFOLD = 20, 40, 12
PlanLine = tuple[str, bool, bool]
EFFECT_TAGS = ("effect_intended", "effect_confirmed", "effect_failed", "effect_in_doubt", "effect_settled")


def head(store: Store, run: str) -> st.RunState:
    """The run's head, folded up to its last event."""
    history = store.read(run)
    state = st.fold(history.state, [item.event for item in history.events])
    while page := store.read(run, after=state.seq).events:
        state = st.fold(state, [item.event for item in page])
    return state


def opened(store: Store, state: st.RunState) -> ev.RunOpened:
    """The run's first event."""
    event = store.read(state.run, after=0, limit=1).events[0].event
    assert isinstance(event, ev.RunOpened), "a journal begins with its opening"
    return event


def contract(store: Store, state: st.RunState) -> Contract:
    """The contract in force."""
    event = store.read(state.run, after=state.contract_seq - 1, limit=1).events[0].event
    assert isinstance(event, ev.RunOpened | ev.ContractAmended), "the contract's place is known"
    return event.contract


def value_of(store: Store, payload: Payload) -> object:
    """A recorded value, wherever it is kept."""
    return msgspec.json.decode(store.blobs.get(payload.blob) if payload.blob else payload.v)


def plan_of(store: Store, state: st.RunState) -> tuple[plans.Step, ...]:
    """The plan's body: as set, with all extensions."""
    steps: tuple[plans.Step, ...] = ()
    after = 0
    while page := store.read(state.run, after=after, tags=("plan_set", "plan_extended", "beat_done")).events:
        for item in page:
            steps = _grown(store, steps, item.event)
        after = page[-1].seq
    return steps


def _grown(store: Store, steps: tuple[plans.Step, ...], event: ev.AnyEvent) -> tuple[plans.Step, ...]:
    match event:
        case ev.PlanSet():
            return decode_steps(store, event.steps)
        case ev.PlanExtended():
            return plans.extend(steps, decode_steps(store, event.steps), event.after)
        case ev.BeatDone():
            for item in event.extended:
                steps = plans.extend(steps, decode_steps(store, item.steps), item.after)
            return steps
        case _:
            return steps


def decode_steps(store: Store, payload: Payload) -> tuple[plans.Step, ...]:
    """Steps as they were recorded."""
    raw = store.blobs.get(payload.blob) if payload.blob else payload.v
    return decoders.decode(raw, tuple[plans.Step, ...])


def plan_body(journal: Journal) -> tuple[plans.Step, ...]:
    """The plan of an open run."""
    return plan_of(journal.store, journal.state)


def extend(
    journal: Journal, steps: tuple[plans.Step, ...], extensions: tuple[ev.Extension, ...]
) -> tuple[plans.Step, ...]:
    """The plan with a beat's extensions."""
    for item in extensions:
        steps = plans.extend(steps, decode_steps(journal.store, item.steps), item.after)
    return steps


def beats_done(store: Store, run: str, *, after: int = 0) -> Iterator[tuple[int, ev.BeatDone]]:
    """Every completed beat with its place in the journal, oldest first."""
    while page := store.read(run, after=after).events:
        for item in page:
            if isinstance(item.event, ev.BeatDone):
                yield item.seq, item.event
        after = page[-1].seq


def result(store: Store, state: st.RunState) -> object:
    """The result of a done run."""
    for item in store.read(state.run, after=0, tags=("finished",), limit=1).events:
        assert isinstance(item.event, ev.Finished), "read by its tag"
        return value_of(store, item.event.result)
    return None


def children(store: Store, state: st.RunState) -> list[st.RunState]:
    """The child runs of a run's open beat."""
    return [found.state for found in store.list(RunFilter(parent=state.run, parent_beat=state.beats + 1))]


def spent_below(store: Store, state: st.RunState) -> Usage:
    """The spending of the runs below an open beat; a done beat's own sum has them."""
    total = Usage()
    for child in children(store, state):
        total = total.plus(child.spent).plus(spent_below(store, child))
    return total


def in_doubt_below(store: Store, state: st.RunState) -> bool:
    """Whether an effect of a run below the open beat is in doubt."""
    return any(True for _ in doubts_below(store, state))


def doubts_below(store: Store, state: st.RunState) -> Iterator[tuple[st.RunState, st.OpenEffect]]:
    """The effects in doubt of the runs below the open beat, each with the run it belongs to."""
    for child in children(store, state):
        yield from ((child, effect) for effect in child.in_doubt)
        yield from doubts_below(store, child)


def context(
    journal: Journal, contract: Contract, steps: tuple[plans.Step, ...], folder: Path, tokens_max: int
) -> str:
    """The context of the next attempt, as text."""
    state = journal.state
    files, commits = _surroundings(journal)
    parts = contexts.Parts(
        contract=contract,
        run=state.run,
        task=state.task,
        beats=state.beats,
        plan=_plan_lines(steps, state),
        plan_total=state.plan_total,
        results=tuple(
            contexts.Result(item.beat, item.step, item.text, item.evidence) for item in state.recent
        ),
        effects_done=_effects_done(journal),
        effects_in_doubt=(
            *(_doubt_line(journal.store, state.run, effect) for effect in state.in_doubt),
            *(
                _doubt_line(journal.store, child.run, effect, child)
                for child, effect in doubts_below(journal.store, state)
            ),
        ),
        memory=_memory_lines(state.memory, folder),
        files=files,
        commits=commits,
        failing=(state_evidence(journal),) if _checks_failed(journal) else (),
        budget=_budget_line(state),
        stage=state.stage,
    )
    text = contexts.render(parts, tokens_max)
    # A program's context is for its own model. A command's is for another session, maybe of another provider.
    return secrets.mask(text)[0] if state.supervised or state.session is not None else text


def _surroundings(journal: Journal) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not journal.standing.save_point:
        return (), ()
    from outlast.runs import file_changes

    return file_changes.look(journal)


def _plan_lines(steps: tuple[plans.Step, ...], state: st.RunState) -> tuple[tuple[str, bool, bool], ...]:
    cursor = state.cursor or (() if state.beats else plans.first_leaf(steps) or ())
    return tuple(_level(steps, (), cursor, state.over))


def _level(steps: tuple[plans.Step, ...], path: ev.Path, cursor: ev.Path, over: bool) -> Iterator[PlanLine]:
    """The steps of one level around the cursor; far ones are counted, and only the open group is unfolded."""
    depth, indent = len(path), "  " * len(path)
    here = cursor[depth] if depth < len(cursor) and cursor[:depth] == path else 0
    first, last = max(0, here - PLAN_BEFORE), min(len(steps), here + PLAN_AFTER)
    if first:
        yield f"{indent}(… {first} before)", True, False
    for index in range(first, last):
        place, step = (*path, index), steps[index]
        done = over or place < cursor[: depth + 1]
        yield f"{indent}{step.name}", done, place == cursor
        if step.steps and (len(steps) <= PLAN_UNFOLD or place == cursor[: depth + 1]):
            yield from _level(step.steps, place, cursor, over)
    if last < len(steps):
        yield f"{indent}(… {len(steps) - last} after)", over, False


def _effects_done(journal: Journal) -> tuple[str, ...]:
    """The last effects that happened, with their outcome."""
    names: dict[tuple[int, int], str] = {}
    lines: dict[tuple[int, int], str] = {}  # one line each, also where a finding and an outcome tell of it
    agent_calls: set[tuple[int, int]] = set()  # calls of an agent that reach outside
    recent = journal.store.read(
        journal.run, after=0, tags=EFFECT_TAGS, limit=3 * EFFECTS_SHOWN_MAX, newest=True
    ).events
    for event in (item.event for item in recent):
        if isinstance(event, ev.EffectIntended):
            names[event.beat, event.n] = _act(event)
            agent_calls |= {(event.beat, event.n)} if event.policy == "tell" else set()
        elif isinstance(event, ev.EffectConfirmed) or (
            isinstance(event, ev.EffectSettled) and event.finding == "happened"
        ):
            known = event.beat, event.n
            if known in agent_calls and _failed(journal, event.result):
                continue
            outcome = (
                shorten(mask(bytes(event.result.v).decode(errors="replace"))[0], 160)
                if not event.result.blob
                else "(blob)"
            )
            lines[known] = f"{event.beat}.{event.n} {names.get(known, '?')}: {outcome}"
    return tuple(lines.values())[-EFFECTS_SHOWN_MAX:]


def _failed(journal: Journal, result: Payload) -> bool:
    """Whether a call of an agent ended without doing anything outside, by its result."""
    try:
        found = journal.value(result)
    except StoreCorrupt:
        return False
    return isinstance(found, dict) and found.get("ok") is False and not found.get("done")


def _act(intent: ev.EffectIntended) -> str:
    """An effect's act; the head has only its name."""
    if intent.args.blob:
        return intent.name
    return shorten(act_words(intent.name, bytes(intent.args.v)), ACT_CHARS_MAX)


def _doubt_line(store: Store, run: str, effect: st.OpenEffect, child: st.RunState | None = None) -> str:
    found = f"; {effect.evidence}" if effect.evidence else ""
    intents = [item.event for item in store.read(run, after=0, key=effect.key).events]
    act = next((_act(each) for each in reversed(intents) if isinstance(each, ev.EffectIntended)), effect.name)
    whose = f" of part {child.task} (run {child.run})" if child is not None else ""
    if effect.policy == "give_up":
        return f"{effect.id} {act}{whose}: cut off without an outcome{found}. Look at the files, and repeat what is missing."
    return (
        f"{effect.id} {act}{whose} (key {effect.key}): intended, no outcome{found}. Do not repeat it unasked."
    )


def _memory_lines(memory: tuple[MemoryRef, ...], folder: Path) -> tuple[str, ...]:
    """The remembered refs; of files, whether they have changed, as far as reading up to a limit can tell."""
    room, notes, lines = MEMORY_READ_MAX, dict[tuple[str, str], str](), []
    for ref in memory:
        if not ref.uri.startswith("file:"):
            lines.append(f"{ref.name}: {ref.uri}")
            continue
        known = ref.uri, ref.digest
        if known not in notes:
            notes[known], read = _compared(ref, folder, min(room, FILE_BYTES_MAX))
            room -= read
        lines.append(f"{ref.name}: {ref.uri} ({notes[known]})")
    return tuple(lines)


def _compared(ref: MemoryRef, folder: Path, bytes_max: int) -> tuple[str, int]:
    """Whether a remembered file changed, and how many bytes were read to know it."""
    try:
        data = file_behind(folder, ref.uri, bytes_max)
    except OSError:
        return "missing", 0
    if data is None:
        return "too large to check", 0
    return "unchanged" if digest(data) == ref.digest else "changed since", len(data)


def _checks_failed(journal: Journal) -> bool:
    ended = _last_end(journal)
    return ended is not None and ended.cause in ("checks", "invariant")


def state_evidence(journal: Journal) -> str:
    """Why the last attempt ended."""
    ended = _last_end(journal)
    return ended.evidence if ended else ""


def _last_end(journal: Journal) -> ev.AttemptEnded | None:
    for item in journal.store.read(
        journal.run, after=0, tags=("attempt_ended",), limit=1, newest=True
    ).events:
        assert isinstance(item.event, ev.AttemptEnded), "read by its tag"
        return item.event
    return None


def _budget_line(state: st.RunState) -> str:
    words = [line.rest() for line in budgets.lines(state)]
    if budgets.wraps_up(state):
        words.append("only the reserve is left: commit, write down how far you are, and stop")
    return "; ".join(words)


# -- The context of a run that nobody holds: what its next attempt will be told, for those who only look at it.


def next_context(store: Store, summary: Summary, here: Path, tokens_max: int) -> str:
    """The text that an attempt which began now would get. Memory refs of a run without a workspace are meant from `here`."""
    journal = Journal(store, attempts.NO_LEASE, head(store, summary.run))
    state = summary.state
    folder = Path(state.workspace) if state.workspace else here
    given, steps = contract(store, state), plan_of(store, state)
    return context(journal, given, steps, folder, tokens_max)
