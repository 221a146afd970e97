"""Fork: a new run that shares another's past up to a save point, and has keys of its own afterwards.

Its budget is moved, not copied. The move is one event on the source that also names the fork to be made; killed
between the two, the same command again finds that event and ends what it began. Killed later, it finds the fork itself,
as long as nobody has started it.
"""

from collections.abc import Sequence

import msgspec

from outlast import faults
from outlast.core import budget as budgets
from outlast.core import events as ev
from outlast.core import state as st
from outlast.core.replay import BeatRecord
from outlast.core.values import Allowance, ForkPoint
from outlast.errors import RunRefused, UsageError
from outlast.runs import acts, endings, find, gather, show
from outlast.runs.mail import BudgetArgs, Move
from outlast.runs.terms import new_id, task_name
from outlast.store.protocol import Summary, Where
from outlast.store.sqlite import SqliteStore

FORKS_MAX = 10_000

# What belongs to the source's own course and not to the work it has done.
_LEFT_OUT = (
    ev.RunOpened, ev.AttemptStarted, ev.AttemptEnded, ev.Requested, ev.Parked, ev.Woken, ev.Warned,
    ev.SpendReserved, ev.Finished, ev.SessionKnown,
)  # fmt: skip

_IN_BEAT = (
    ev.BeatBegun, ev.Decided, ev.EffectIntended, ev.EffectConfirmed, ev.EffectFailed, ev.EffectInDoubt,
    ev.EffectSettled,
)  # fmt: skip


class Forked(msgspec.Struct, frozen=True):
    """Arguments of the note that a fork exists."""

    run: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A fork worked out and not yet made. `again` lists effects of the source that the fork may do again."""

    source: str
    opened: ev.RunOpened
    events: tuple[ev.AnyEvent, ...]
    again: tuple[show.Effect, ...]
    move: BudgetArgs | None = None
    moved_already: bool = False
    exists: bool = False


def prepare(
    store: SqliteStore, source: Summary, *, at: int, task: str | None = None, budget: Allowance | None = None,
    workspace: str = "",
) -> Plan:  # fmt: skip
    """Work a fork out without writing anything; `workspace` is a folder of its own. Raises UsageError, RunRefused."""
    state = source.state
    acts.allow(state, find.shown_status(store, state, source.root), "fork")
    seq, events = past(store, state, at)
    limits = _limits(st.fold(st.RunState(), list(events)), budget)
    task = None if task is None else task_name(task)
    unfinished = _unfinished(store, source, at, task, budget)
    name = (
        unfinished.task if unfinished
        else task or _untouched(store, source, at, limits, 1 + len(events), workspace)
        or free_task(store, source.project, _stem(source))
    )  # fmt: skip
    exists = _existing(store, source, name, at)
    run = exists or (unfinished.run if unfinished else new_id())
    moves = state.budget is not None and (unfinished is not None or not exists)
    if state.budget is not None and moves and not unfinished:
        _require_left(state, state.budget, budget or Allowance())
    opened = msgspec.structs.replace(
        gather.opened(store, state), at=endings.now(), run=run, task=name, parent=None, budget=limits,
        fork=ForkPoint(source.run, at, seq), workspace=workspace or state.workspace,
    )  # fmt: skip
    return Plan(
        source=source.run, opened=opened, events=events, again=_again(store, source, at),
        move=_move(state.budget, Move(run, name, at, budget)) if moves and budget else None,
        moved_already=unfinished is not None, exists=exists is not None,
    )  # fmt: skip


def _again(store: SqliteStore, source: Summary, at: int) -> tuple[show.Effect, ...]:
    """What the source did after the save point, or may have done."""
    return tuple(each for each in show.effects(store, source) if each.beat > at and each.state != "failed")


def make(store: SqliteStore, plan: Plan) -> str:
    """Make the fork; its run id. Durable when it returns; killed anywhere, the same command again ends right."""
    run = plan.opened.run
    if not plan.exists:
        faults.point("fork.before")
        if plan.move is not None and not plan.moved_already:
            acts.ask(store, plan.source, "fork", "budget", msgspec.json.encode(plan.move))
        run = store.create(plan.opened, plan.events)
        if run != plan.opened.run:
            raise _taken(plan.opened.task)
    if plan.move is not None:
        acts.ask(store, plan.source, "fork", "forked", msgspec.json.encode(Forked(run)))
    return run


# -- the past ----------------------------------------------------------------------------------------------------------


def past(store: SqliteStore, state: st.RunState, at: int) -> tuple[int, tuple[ev.AnyEvent, ...]]:
    """The place of a save point, and the events up to it that a fork keeps. 0 is before the first beat."""
    if not 0 <= at <= state.beats:
        reach = f"0 to {state.beats}" if state.beats else "only 0"
        raise UsageError(
            f"run {state.run} has no beat {at} to fork at; it has {reach}",
            hint=f"see `outlast log {state.run}`; 0 is before the first beat",
        )
    events: list[ev.AnyEvent] = []
    after = 0
    while page := store.read(state.run, after=after).events:
        events += [item.event for item in page]
        length = save_point(events, at)
        if length is not None:
            return length, kept(events[:length])
        after = page[-1].seq
    return len(events), kept(events)


def save_point(events: Sequence[ev.AnyEvent], at: int) -> int | None:
    """How many events lead up to the end of a beat, or, for 0, to the beginning of the first."""
    for position, event in enumerate(events):
        if at == 0 and isinstance(event, ev.BeatBegun | ev.BeatDone):
            return position
        if at > 0 and isinstance(event, ev.BeatDone) and event.beat == at:
            return position + 1
    return None


def kept(events: Sequence[ev.AnyEvent]) -> tuple[ev.AnyEvent, ...]:
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
    """What a beat in flight has recorded for certain: its decisions, and its effects but those open or in doubt."""
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


def free_task(store: SqliteStore, project: str, stem: str) -> str:
    """`stem-1`, `stem-2`, … whichever no run of the project has yet."""
    for number in range(1, FORKS_MAX):
        name = f"{stem}-{number}"
        if not store.list(Where(project=project, task=name, parent=""), limit=1):
            return name
    raise UsageError(f"{FORKS_MAX:,} forks of one task are enough", hint="name it with --task")


def _stem(source: Summary) -> str:
    return f"{source.task}-fork"


def _untouched(
    store: SqliteStore, source: Summary, at: int, limits: Allowance | None, events: int, workspace: str
) -> str | None:
    """The task of a fork that the same command made before, perhaps killed right after it, and nobody has touched."""
    for number in range(1, FORKS_MAX):
        name = f"{_stem(source)}-{number}"
        found = store.list(Where(project=source.project, task=name, parent=""), limit=1)
        if not found:
            return None
        state = found[0].state
        same = state.fork is not None and (state.fork.run, state.fork.beat) == (source.run, at)
        same = same and state.workspace == (workspace or source.state.workspace)
        untouched = state.seq in (events, events + 1 if workspace else events)  # the save of its own folder
        if same and untouched and gather.opened(store, state).budget == limits:
            return name
    return None


def _existing(store: SqliteStore, source: Summary, task: str, at: int) -> str | None:
    """A fork made by the same command before; another run of that name is a refusal."""
    for found in store.list(Where(project=source.project, task=task_name(task), parent=""), limit=1):
        fork = found.state.fork
        if fork is None or (fork.run, fork.beat) != (source.run, at):
            raise _taken(task)
        return found.run
    return None


def _taken(task: str) -> UsageError:
    return UsageError(f"task {task!r} has a run already", hint="name the fork with --task")


# -- its budget --------------------------------------------------------------------------------------------------------

# What can be moved: amounts. A share of a window and a moment are the same for both.
_UNITS = {name: unit for name, unit in budgets.UNITS.items() if name != "window_pct"}


def _limits(head: st.RunState, given: Allowance | None) -> Allowance | None:
    """The limits with which the fork, having used what its head says, has exactly the given amounts left."""
    if given is None:
        return None
    spent = head.spent
    used = {
        "tokens": spent.tokens, "cost_microusd": spent.cost_microusd, "beats": head.beats, "time_s": spent.time_ms // 1000
    }  # fmt: skip
    amounts = {name: getattr(given, name) for name in _UNITS}
    return msgspec.structs.replace(
        given if head.budget is None else head.budget,
        **{name: None if amount is None else amount + used.get(name, 0) for name, amount in amounts.items()},
    )


def _require_left(source: st.RunState, limits: Allowance, given: Allowance) -> None:
    left = msgspec.structs.asdict(limits) | msgspec.structs.asdict(
        budgets.left(limits, source, budgets.Live(endings.now()))
    )
    for name, unit in _UNITS.items():
        limit, wanted = getattr(limits, name), getattr(given, name)
        if limit is not None and wanted is None:
            raise UsageError(
                f"run {source.run} has a budget of {unit}, and a fork's is moved from it",
                hint=f"say how much of what is left: --budget {_amount(name, left[name])} or less",
            )
        if limit is not None and wanted > left[name]:
            raise UsageError(
                f"run {source.run} has {_amount(name, left[name])} left; {_amount(name, wanted)} cannot be moved",
                hint="move less with --budget",
            )


def _amount(name: str, value: int) -> str:
    """An amount as `--budget` takes it."""
    if name == "cost_microusd":
        return f"usd={value // 1_000_000}.{value % 1_000_000:06}"
    return f"{_UNITS[name]}={value}"


def _move(limits: Allowance | None, move: Move) -> BudgetArgs:
    """The source's limits without what is moved."""
    pairs = {name: (getattr(limits, name), getattr(move.budget, name)) for name in _UNITS}
    less = {name: None if limit is None else limit - (part or 0) for name, (limit, part) in pairs.items()}
    return BudgetArgs(**(msgspec.structs.asdict(limits or Allowance()) | less), fork=move)


def _unfinished(
    store: SqliteStore, source: Summary, at: int, task: str | None, budget: Allowance | None
) -> Move | None:
    """What an earlier call of the same command began: its budget was moved, and nothing says that it was ended."""
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
        if not store.list(Where(run_prefix=move.run)):
            raise _cut_off(source, move)
    return None


def _note(moves: dict[str, Move], what: str, args: bytes) -> None:
    """Take one request into account. What cannot be read was not written by a fork."""
    try:
        if what == "budget":
            move = msgspec.json.decode(args, type=BudgetArgs | None)
            if move is not None and move.fork is not None:
                moves[move.fork.run] = move.fork
        elif what == "forked":
            moves.pop(msgspec.json.decode(args, type=Forked).run, None)
    except msgspec.MsgspecError:
        return


def _cut_off(source: Summary, move: Move) -> RunRefused:
    amounts = {name: getattr(move.budget, name) for name in _UNITS}
    parts = [f"--budget {_amount(name, value)}" for name, value in amounts.items() if value is not None]
    return RunRefused(
        f"an earlier fork of run {source.run} was cut off after its budget was moved",
        hint=f"end it first: `outlast fork {source.run} --at {move.beat} --task {move.task} {' '.join(parts)}`",
    )
