"""Fork: a new run that shares another's past up to a save point, and has keys of its own afterwards."""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from outlast import decoders, faults, settings
from outlast.core import budget as budgets, events as ev, state as st
from outlast.core.replay import BeatRecord
from outlast.core.values import PAYLOAD_INLINE_MAX_BYTES, Allowance, ForkPoint, Payload, Usage
from outlast.errors import RunRefused, UsageError
from outlast.inspect import find, show
from outlast.operations import requests
from outlast.runs import attempts, reader
from outlast.runs.inbox import BudgetArgs, Move
from outlast.runs.opening.terms import in_words, new_id, task_name
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.workspace.types import raw, text

FORKS_MAX = 10_000
READ_EVENTS = 1_000  # at a time, of those that are only looked through

# What belongs to the source's own course and not to the work it has done.
_LEFT_OUT = (
    ev.RunOpened, ev.AttemptStarted, ev.AttemptEnded, ev.Requested, ev.Parked, ev.Woken, ev.Warned,
    ev.SpendReserved, ev.Finished, ev.SessionKnown,
    ev.QuestionAsked, ev.QuestionAnswered,  # what a person allowed once, they allowed one run
)  # fmt: skip

_IN_BEAT = (
    ev.BeatBegun, ev.Decided, ev.EffectIntended, ev.EffectConfirmed, ev.EffectFailed, ev.EffectInDoubt,
    ev.EffectSettled,
)  # fmt: skip


class Forked(msgspec.Struct, frozen=True):
    """Arguments of the note that a fork exists."""

    run: str


FORK = "fork"  # what its own journal says was asked for, and by whom


class ForkArgs(msgspec.Struct, frozen=True):
    """The run that was forked, and the beat after which the fork begins."""

    run: str
    beat: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A fork worked out and not yet made. `again` lists effects of the source that the fork may do again."""

    source: str
    opened: ev.RunOpened
    again: tuple[show.Effect, ...]
    move: Move | None = None
    moved_already: bool = False
    exists: bool = False
    launch: bytes = b""  # how its command is started in a folder of its own; empty: as the source's


def prepare(
    store: Store, source: Summary, *, at: int, task: str | None = None, budget: Allowance | None = None,
    workspace: str = "",
) -> Plan:  # fmt: skip
    """Work a fork out without writing anything; `workspace` is a folder of its own. Raises UsageError, RunRefused."""
    state = source.state
    requests.allow(state, find.shown_status(store, state, source.root), "fork")
    seq = place(store, state, at)
    limits = None if budget is None else _limits(at, _used(store, source.run, seq), budget)
    task = None if task is None else task_name(task)
    unfinished = _unfinished(store, source, at, task, budget)
    name = (
        unfinished.task if unfinished
        else task or _untouched(store, source, ForkPoint(source.run, at, seq), limits, workspace)
        or free_task(store, source.project, _stem(source))
    )  # fmt: skip
    exists = _existing(store, source, name, at)
    if exists is not None and unfinished is None:
        _require_same(store, exists, limits, workspace or state.workspace)
    run = exists or (unfinished.run if unfinished else new_id())
    moves = state.budget is not None and (unfinished is not None or not exists)
    if moves and not unfinished:
        _require_left(store, source, budget or Allowance())
    opened = msgspec.structs.replace(
        reader.opened(store, state), at=attempts.now(), run=run, task=name, parent=None, budget=limits,
        fork=ForkPoint(source.run, at, seq), workspace=workspace or state.workspace,
        origin=None if workspace else state.origin,
    )  # fmt: skip
    return Plan(
        source=source.run, opened=opened, again=_again(store, source, at, seq),
        move=Move(run, name, at, budget) if moves and budget else None,
        moved_already=unfinished is not None, exists=exists is not None, launch=_launch(store, opened, state.workspace),
    )  # fmt: skip


def _again(store: Store, source: Summary, at: int, seq: int) -> tuple[show.Effect, ...]:
    """The effects that the source did, or may have done, after the save point: their intents stand after it in the journal."""
    later = show.effects(store, source, after=seq)
    return tuple(each for each in later if each.beat > at and each.state != "failed")


def make(store: Store, plan: Plan, *, by: str = "") -> str:
    """Make the fork; its run id. Durable when it returns; killed anywhere, the same command again ends right.

    Its journal says after its past who asked for it.

    Its budget is moved, not copied. The move is one event on the source that also names the fork to be made: so much less, whatever
    the source has when that is taken in. One fork at a time asks for it, and only where that much is left after all that was asked
    for before. Killed between the two, the same command again finds that event and ends what it began. Killed later, it finds the
    fork itself, as long as nobody has started it.
    """
    if not plan.exists:
        faults.point("fork.before")
    with requests.alone(store, requests.root_of(store, plan.source).run, "forking"):
        run = _made_meanwhile(store, plan) or plan.opened.run
        if not plan.exists and run == plan.opened.run:
            _create(store, plan, by)
        if plan.move is not None and run == plan.opened.run:
            requests.ask(store, plan.source, "fork", "forked", msgspec.json.encode(Forked(run)), by=by)
    return run


def is_new(plan: Plan, run: str) -> bool:
    """Whether `make` made this fork now; else the same command had made it before."""
    return not plan.exists and run == plan.opened.run


def _made_meanwhile(store: Store, plan: Plan) -> str:
    """The id of the same fork if another process made it after this plan was worked out; else empty. Raises if the plan no longer fits."""
    opened, point = plan.opened, plan.opened.fork
    assert point is not None, "a fork knows where it is from"
    if plan.exists:
        return ""
    source = requests.summary_of(store, plan.source)
    found = _existing(store, source, opened.task, point.beat)
    if found is not None and found != opened.run:
        theirs = reader.opened(store, requests.summary_of(store, found).state)
        if (theirs.budget, theirs.workspace) != (opened.budget, opened.workspace):
            raise _taken(opened.task)
        return found
    given = plan.move.budget if plan.move is not None else None
    begun = _unfinished(store, source, point.beat, opened.task, given) if plan.move is not None else None
    if begun is not None and begun.run != opened.run:
        raise _cut_off(source, begun)
    return ""


def _create(store: Store, plan: Plan, by: str) -> None:
    """Take the fork's budget off its source first; then make the fork."""
    opened, move = plan.opened, plan.move
    if store.list(RunFilter(run_prefix=opened.run)):  # somebody else ended what was begun
        return
    if move is not None and not plan.moved_already:
        less = BudgetArgs(**{name: getattr(move.budget, name) for name in _UNITS}, fork=move)
        source = requests.summary_of(store, plan.source)
        requests.ask(
            store, plan.source, "fork", "less", msgspec.json.encode(less),
            lambda: _require_left(store, source, move.budget), by=by,
        )  # fmt: skip
    if plan.launch:
        opened = msgspec.structs.replace(opened, launch=_payload(store, plan.launch))
    assert opened.fork is not None, "a fork knows where it is from"
    run = store.create(opened, (*past(store, plan.source, opened.fork.seq), _fork_request(plan, by)))
    if run != opened.run:
        raise _taken(opened.task)


def _launch(store: Store, opened: ev.RunOpened, was: str) -> bytes:
    """How a command is started whose files are in a folder of their own: there, in the same place below it."""
    given = opened.launch
    if given is None or not was or was == opened.workspace:
        return b""
    data = store.blobs.get(given.blob) if given.blob else bytes(given.v)
    launch = decoders.decode(data, dict[str, msgspec.Raw])
    cwd = Path(os.fsdecode(raw(decoders.decode(launch["cwd"], str))))
    if not cwd.is_relative_to(was):
        return b""
    there = text(Path(opened.workspace, cwd.relative_to(was)))
    return msgspec.json.encode(launch | {"cwd": msgspec.Raw(msgspec.json.encode(there))})


def _payload(store: Store, data: bytes) -> Payload:
    if len(data) > PAYLOAD_INLINE_MAX_BYTES:
        return Payload(blob=store.blobs.put(data), size=len(data))
    return Payload(v=msgspec.Raw(data))


def _fork_request(plan: Plan, by: str) -> ev.Requested:
    point = plan.opened.fork
    assert point is not None, "a fork knows where it is from"
    args = Payload(v=msgspec.Raw(msgspec.json.encode(ForkArgs(point.run, point.beat))))
    return ev.Requested(at=attempts.now(), id=0, by=by or settings.user_name(), what=FORK, args=args)


def _says_who(store: Store, run: str) -> bool:
    """Whether a fork's journal says who asked for it; those made by an outlast before this one do not."""
    first = store.read(run, after=0, limit=1, tags=("requested",)).events
    return any(isinstance(item.event, ev.Requested) and item.event.what == FORK for item in first)


# -- the past ----------------------------------------------------------------------------------------------------------


def place(store: Store, state: st.RunState, at: int) -> int:
    """Where in the journal a save point stands: the end of a beat, or for 0, what is before the first one.

    A journal is long and its beats are in order, so it is looked for by halves.
    """
    if not 0 <= at <= state.beats:
        reach = f"0 to {state.beats}" if state.beats else "only 0"
        raise UsageError(
            f"run {state.run} has no beat {at} to fork at; it has {reach}",
            hint=f"see `outlast log {state.run}`; 0 is before the first beat",
        )
    if at == 0:
        first = store.read(state.run, after=0, limit=1, tags=("beat_begun",), ends=True).events
        return first[0].seq - 1 if first else state.seq
    low, middle, high = 0, state.seq, state.seq  # it stands behind the one, and not behind the other
    while low < high:
        found = store.beat_ends(state.run, before=middle + 1, limit=1)
        end = found[0].event if found else None
        beat = end.beat if isinstance(end, ev.BeatDone) else 0
        if beat == at:
            return found[0].seq
        low, high = (middle, high) if beat < at else (low, found[0].seq - 1)
        middle = (low + high + 1) // 2
    raise AssertionError(f"every beat of run {state.run} has an end, and beat {at} has none")


def past(store: Store, run: str, seq: int) -> tuple[ev.AnyEvent, ...]:
    """The events up to a save point that a fork keeps."""
    events: list[ev.AnyEvent] = []
    after = 0
    while page := store.read(run, after=after, before=seq + 1).events:
        events += work_among([item.event for item in page])
        after = page[-1].seq
    return tuple(events)


def save_point(events: Sequence[ev.AnyEvent], at: int) -> int | None:
    """How many events lead up to the end of a beat, or, for 0, to the beginning of the first."""
    for position, event in enumerate(events):
        if at == 0 and isinstance(event, ev.BeatBegun | ev.BeatDone):
            return position
        if at > 0 and isinstance(event, ev.BeatDone) and event.beat == at:
            return position + 1
    return None


def work_among(events: Sequence[ev.AnyEvent]) -> tuple[ev.AnyEvent, ...]:
    """The work among the events: plan, decisions, effects, ends of beats. The fork's budget is its own.

    So will its agent's session be: two runs must not write to one.
    """
    return tuple(_own(event) for event in events if not isinstance(event, _LEFT_OUT))


def _own(event: ev.AnyEvent) -> ev.AnyEvent:
    match event:
        case ev.ContractAmended():
            return msgspec.structs.replace(event, budget=None)
        case ev.BeatDone() if event.session is not None:
            return msgspec.structs.replace(event, session=None)
        case _:
            return event


def recorded(events: Sequence[ev.AnyEvent], beat: int) -> tuple[ev.AnyEvent, ...]:
    """The certain records of a beat in flight: its decisions, and its effects but those open or in doubt."""
    record = BeatRecord(beat)
    for event in events:
        record.take(event)
    doubtful = {effect.intent.n for effect in record.unsettled()}
    return tuple(
        event
        for event in events
        if isinstance(event, _IN_BEAT) and event.beat == beat and getattr(event, "n", 0) not in doubtful
    )


# -- its name ----------------------------------------------------------------------------------------------------------


def free_task(store: Store, project: str, stem: str) -> str:
    """`stem-1`, `stem-2`, … whichever no run of the project has yet."""
    for number in range(1, FORKS_MAX):
        name = f"{stem}-{number}"
        if not store.list(RunFilter(project=project, task=name, parent=""), limit=1):
            return name
    raise UsageError(f"task {stem} has {FORKS_MAX:,} forks already", hint="name it with --task")


def _stem(source: Summary) -> str:
    return f"{source.task}-fork"


def _untouched(
    store: Store, source: Summary, point: ForkPoint, limits: Allowance | None, workspace: str
) -> str | None:
    """The task of a fork that the same command made before, perhaps killed right after it, and nobody has touched."""
    for number in range(1, FORKS_MAX):
        name = f"{_stem(source)}-{number}"
        found = store.list(RunFilter(project=source.project, task=name, parent=""), limit=1)
        if not found:
            return None
        state = found[0].state
        same = state.fork is not None and (state.fork.run, state.fork.beat) == (point.run, point.beat)
        if not same or state.workspace != (workspace or source.state.workspace):
            continue
        made = 1 + len(past(store, source.run, point.seq)) + _says_who(store, found[0].run)
        untouched = state.seq in (made, made + 1 if workspace else made)  # the save of its own folder
        if untouched and reader.opened(store, state).budget == limits:
            return name
    return None


def _existing(store: Store, source: Summary, task: str, at: int) -> str | None:
    """A fork made by the same command before; another run of that name is a refusal."""
    for found in store.list(RunFilter(project=source.project, task=task_name(task), parent=""), limit=1):
        fork = found.state.fork
        if fork is None or (fork.run, fork.beat) != (source.run, at):
            raise _taken(task)
        return found.run
    return None


def _require_same(store: Store, run: str, limits: Allowance | None, workspace: str) -> None:
    """Refuse a fork of the same name that has another budget or folder than is asked for now: it would get neither."""
    theirs = reader.opened(store, requests.summary_of(store, run).state)
    for what, there, wanted in (
        ("the folder", theirs.workspace or "none", workspace or "none"),
        ("a budget of", _in_words(theirs.budget), _in_words(limits)),
    ):
        if there != wanted:
            raise UsageError(
                f"task {theirs.task} has a run already: that fork, run {run}, was made with {what} {there}, not {wanted}",
                hint="name another fork with --task, or ask for what it was made with",
            )


def _in_words(budget: Allowance | None) -> str:
    return "no limit" if budget is None else in_words(budget)


def _taken(task: str) -> UsageError:
    return UsageError(f"task {task} has a run already", hint="name the fork with --task")


# -- its budget --------------------------------------------------------------------------------------------------------

# What can be moved: amounts. A share of a window and a moment are the same for both.
_UNITS = {name: unit for name, unit in budgets.UNITS.items() if name != "window_pct"}
_FIELDS = {unit: name for name, unit in _UNITS.items()}


def _used(store: Store, run: str, seq: int) -> Usage:
    """The cost of the past that a fork keeps, as its head will have it."""
    used, after = Usage(), 0
    while page := store.read(
        run, after=after, before=seq + 1, tags=("decided", "spend_settled"), ends=True, limit=READ_EVENTS
    ).events:
        for item in page:
            match item.event:
                case ev.BeatDone(spent=Usage() as spent) | ev.Decided(usage=Usage() as spent):
                    used = used.plus(spent)
                case ev.SpendSettled(usage=spent, source=source) if source != ev.INSIDE:
                    used = used.plus(spent)
                case _:
                    pass
        after = page[-1].seq
    return used


def _limits(beats: int, spent: Usage, given: Allowance) -> Allowance:
    """The limits with which the fork, having used that much, has exactly the given amounts left."""
    used = {
        "tokens": spent.tokens, "cost_microusd": spent.cost_microusd, "beats": beats, "time_s": spent.time_ms // 1000
    }  # fmt: skip
    amounts = {name: getattr(given, name) for name in _UNITS}
    return msgspec.structs.replace(
        given,
        **{name: None if amount is None else amount + used.get(name, 0) for name, amount in amounts.items()},
    )


def _require_left(store: Store, source: Summary, given: Allowance) -> None:
    """Refuse to move budget that the source does not have, or will not have once it applies its earlier requests."""
    limits, left = _left(store, source)
    for name, unit in _UNITS.items():
        limit, wanted = getattr(limits, name), getattr(given, name)
        if limit is not None and not left[name]:
            raise RunRefused(
                f"run {source.run} has no {unit} left, and a fork takes its share from there",
                hint=f"add some first: `outlast budget {source.run} --add {_amount(name, max(1, limit // 2))}`",
            )
        if limit is not None and wanted is None:
            raise UsageError(
                f"run {source.run} has a budget of {unit}, and a fork takes its share from there",
                hint=f"say how much of what is left: `--budget {_amount(name, left[name])}` or less",
            )
        if limit is not None and wanted > left[name]:
            raise UsageError(
                f"run {source.run} has {_amount(name, left[name])} left; {_amount(name, wanted)} cannot be moved",
                hint=f"move `--budget {_amount(name, left[name])}` or less",
            )


def _left(store: Store, source: Summary) -> tuple[Allowance, dict[str, int]]:
    """The limits of a run, and the part that can be moved: not what a living run has set aside for its beat."""
    head = requests.standing(store, source.run).state
    status = find.shown_status(store, head, source.root)
    head = msgspec.structs.replace(head, spent=head.spent.plus(reader.spent_below(store, head)))
    now = attempts.now()
    lives = status == "running" and head.attempt is not None
    lived = now - head.attempt.started_at if head.attempt is not None and lives else timedelta(0)
    live = budgets.Live(now, max(0, int(lived / timedelta(milliseconds=1))))
    left = {  # never the whole limit: none is 0, and a 1 that stays there would be made of nothing
        _FIELDS[line.unit]: max(0, min(line.limit - 1, line.left - (line.reserved if lives else 0)))
        for line in budgets.lines(head, live)
        if line.unit in _FIELDS
    }
    return head.budget or Allowance(), left


def how(store: Store, source: Summary, at: int) -> str:
    """The command for a fork with files of its own: with its share of each limit, and more first if none is left."""
    if source.state.budget is None:
        return f"`outlast fork {source.run} --at {at} --to DIR`"
    _, left = _left(store, source)
    head = requests.standing(store, source.run).state
    head = msgspec.structs.replace(head, spent=head.spent.plus(reader.spent_below(store, head)))
    gone = [
        line
        for line in budgets.lines(head, budgets.Live(attempts.now()))
        if left.get(_FIELDS.get(line.unit, ""), 1) == 0
    ]
    shares = [f" --budget {_amount(name, max(1, value // 2))}" for name, value in left.items()]
    fork = f"`outlast fork {source.run} --at {at} --to DIR{''.join(shares)}`"
    adds = "".join(f" --add {budgets.half_of(line).replace('+', '')}" for line in gone)
    return f"`outlast budget {source.run}{adds}`, then {fork}" if gone else fork


def halves(store: Store, source: Summary) -> list[str]:
    """Half of what is left of each limit, as `--budget` takes it: a fork's share that leaves the source one."""
    if source.state.budget is None:
        return []
    _, left = _left(store, source)
    return [_amount(name, left[name] // 2) for name in _UNITS if left.get(name, 0) > 1]


def _amount(name: str, value: int) -> str:
    """An amount as `--budget` takes it."""
    if name == "cost_microusd":
        return f"usd={value // 1_000_000}.{value % 1_000_000:06}"
    return f"{_UNITS[name]}={value}"


def _unfinished(
    store: Store, source: Summary, at: int, task: str | None, budget: Allowance | None
) -> Move | None:
    """An unfinished fork of an earlier call of the same command: its budget was moved, and no event ends it."""
    moves: dict[str, Move] = {}
    after = 0
    while page := store.read(source.run, after=after, tags=("requested",)).events:
        for item in page:
            if isinstance(item.event, ev.Requested) and not item.event.args.blob:
                _note(moves, item.event.what, bytes(item.event.args.v))
        after = page[-1].seq
    for request in store.inbox.pending(source.root):
        _note(moves, request.what, request.args)
    for move in moves.values():
        if (move.beat, move.budget) == (at, budget) and task in (None, move.task):
            return move
        if not store.list(RunFilter(run_prefix=move.run)):
            raise _cut_off(source, move)
    return None


def _note(moves: dict[str, Move], what: str, args: bytes) -> None:
    """Take one request into account. What cannot be read was not written by a fork."""
    try:
        if what in ("less", "budget"):  # a fork of an outlast before this one set the rest anew
            move = decoders.decode(args, BudgetArgs | None)
            if move is not None and move.fork is not None:
                moves[move.fork.run] = move.fork
        elif what == "forked":
            moves.pop(decoders.decode(args, Forked).run, None)
    except msgspec.MsgspecError:
        return


def _cut_off(source: Summary, move: Move) -> RunRefused:
    amounts = {name: getattr(move.budget, name) for name in _UNITS}
    parts = [f"--budget {_amount(name, value)}" for name, value in amounts.items() if value is not None]
    return RunRefused(
        f"an earlier fork of run {source.run} was cut off after its budget was moved",
        hint=f"end it first: `outlast fork {source.run} --at {move.beat} --task {move.task} {' '.join(parts)}`",
    )
