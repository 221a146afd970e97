"""What a run will need, by the store's own history, and one budget split over many runs.

The history is read from the heads of runs, a page of them a query: title, length of the plan, project, agent, the files
that were remembered, and what was spent. Journals are not read.

A split is kept as a *pool*, in `pools.json` in the store's folder, one for each project: the total, and the limit that
each run was given. A done, cancelled or handed-off run counts with what it spent, so what it left goes back to those that
wait; a run that works or has failed counts with its limit, which it holds. So the limits never add up to more than the total.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from outlast.agents import registry
from outlast.core import forecast
from outlast.core import state as st
from outlast.core.forecast import Forecast, Measured, Past, Predictor, Range, Task, Unit
from outlast.core.statuses import CLOSED, ENDED
from outlast.core.values import Allowance, Contract
from outlast.errors import StoreCorrupt, UsageError
from outlast.runs import acts, find, gather
from outlast.store.files import make_folder, write_durably
from outlast.store.protocol import Summary, Where
from outlast.store.sqlite import SqliteStore

POOLS = "pools.json"
TOLD = "forecast.json"
FLOOR: dict[Unit, int] = {
    "tokens": 20_000,
    "time_s": 300,
}  # the least that a run with a share gets above what it spent


# -- history -----------------------------------------------------------------------------------------------------------


def history(store: SqliteStore, *, but: str = "") -> list[Past]:
    """What the newest runs of the store have cost, children left out: their roots count for them. One query."""
    newest = store.list(Where(parent=""), limit=forecast.HISTORY_MAX, unreadable=True)
    known = (each for each in newest if each.run != but and not each.problem)
    return [past for each in known if (past := _past(each)) is not None]


def _past(summary: Summary) -> Past | None:
    head = summary.state
    tokens, time_s = spent(head, "tokens"), spent(head, "time_s")
    if head.created_at is None or head.updated_at is None or not (tokens or time_s):
        return None
    return Past(
        run=summary.run, name=summary.task, task=task_of(head), started_at=head.created_at,
        ended_at=head.updated_at, tokens=tokens, time_s=time_s, finished=head.status == "done", touched=_touched(head),
    )  # fmt: skip


def task_of(head: st.RunState, agent: str = "") -> Task:
    """What a run is about, as far as its head tells."""
    known, model = (head.session.agent, head.session.model) if head.session is not None else (agent, "")
    return Task(goal=head.title, plan=head.plan_total, project=head.project, agent=known, model=model)


def _touched(head: st.RunState) -> tuple[str, ...]:
    uris = (ref.uri.partition("#")[0] for ref in head.memory)
    return tuple(uri.removeprefix("file:") for uri in uris if uri.startswith("file:"))


def spent(head: st.RunState, unit: Unit) -> int:
    """What a run has spent; of a second that has begun, the whole."""
    return head.spent.tokens if unit == "tokens" else -(-head.spent.time_ms // 1000)


# -- one run -----------------------------------------------------------------------------------------------------------


def suggest(
    store: SqliteStore | None, *, goal: str, plan: int | None = None, project: str = "", agent: str = "",
    model: str = "", files: Sequence[str] = (),
) -> Forecast:  # fmt: skip
    """What a run of this goal will need. Without a store, or with little in it, the default, which says so."""
    title = Contract(goal=goal).title  # of past runs, too, only this much is read
    task = Task(goal=title, plan=plan, project=project, agent=agent, model=model, files=tuple(files))
    return Predictor(history(store) if store is not None else [], datetime.now(UTC)).of(task)


def auto(
    store: SqliteStore | None, *, goal: str, plan: int | None = None, project: str = "", agent: str = "",
    model: str = "", files: Sequence[str] = (),
) -> tuple[Allowance, Forecast]:  # fmt: skip
    """The budget that `auto` means, and the prediction it comes from."""
    found = suggest(store, goal=goal, plan=plan, project=project, agent=agent, model=model, files=files)
    return allowance(found), found


def allowance(found: Forecast) -> Allowance:
    """p90 in round numbers; of time only where it was learnt, because a guess must not stop a run by the clock."""
    time_s = found.time_s.p90 if found.time_s.sure != "default" else None
    return Allowance(
        tokens=_rounded(found.tokens.p90), time_s=None if time_s is None else -(-time_s // 60) * 60
    )


def _rounded(amount: int) -> int:
    """Up to the next number of two digits and zeros."""
    scale: int = 10 ** max(0, len(str(amount)) - 2)
    return -(-amount // scale) * scale


def measure(store: SqliteStore) -> dict[Unit, Measured]:
    """How good the predictions would have been for the store's own runs, each made from what was over at its start."""
    known = history(store)
    return {unit: forecast.measure(known, unit) for unit in forecast.UNITS}


class Told(msgspec.Struct, frozen=True):
    """What was predicted for a run at first, as it is kept beside its logs."""

    tokens: Range
    time_s: Range


def remember(store: SqliteStore, run: str, found: Forecast) -> None:
    """Keep a run's first prediction, which every later one starts from."""
    folder = store.root / "runs" / run
    make_folder(folder)
    told = Told(*(Range(found.of(unit).p50, found.of(unit).p90) for unit in forecast.UNITS))
    write_durably(folder / TOLD, msgspec.json.encode(told))


def first_told(store: SqliteStore, head: st.RunState) -> Told:
    """A run's first prediction: the one that was kept, else one that is made now without the run itself, and kept.

    Who only reads the store leaves it to the next who does not.
    """
    with contextlib.suppress(OSError, msgspec.MsgspecError):  # lost or torn: it can be made again
        return msgspec.json.decode((store.root / "runs" / head.run / TOLD).read_bytes(), type=Told)
    found = Predictor(history(store, but=head.run), datetime.now(UTC)).of(task_of(head, _agent(store, head)))
    if not store.reading:
        with contextlib.suppress(
            OSError
        ):  # a full disk or one that cannot be written: made again the next time
            remember(store, head.run, found)
    return Told(*(Range(found.of(unit).p50, found.of(unit).p90) for unit in forecast.UNITS))


def repriced(told: Told, head: st.RunState) -> Told:
    """The prediction at the beat the run has reached. Pure and quick, so it can be asked at every one."""
    return Told(*(_repriced(told, head, unit) for unit in forecast.UNITS))


def _repriced(told: Told, head: st.RunState, unit: Unit) -> Range:
    first = told.tokens if unit == "tokens" else told.time_s
    return forecast.reprice(first, spent=spent(head, unit), beats=head.beats, plan_total=head.plan_total)


class _Launch(msgspec.Struct, frozen=True):
    argv: tuple[str, ...] = ()
    program: str = ""


def _agent(store: SqliteStore, head: st.RunState) -> str:
    """The agent of a run that has no session yet: by the command it is to start."""
    if head.session is not None or not head.supervised:
        return ""
    launch = gather.opened(store, head).launch
    if launch is None:
        return ""
    data = store.blobs.get(launch.blob) if launch.blob else launch.v
    command = msgspec.json.decode(data, type=_Launch)
    adapter = registry.recognise(command.argv, command.program)
    return adapter.name if adapter is not None else ""


# -- many runs ---------------------------------------------------------------------------------------------------------


class Pool(msgspec.Struct, frozen=True):
    """A budget for many: its total in one unit, and the limit that each run was given of it."""

    unit: Unit
    total: int
    limits: dict[str, int] = {}


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One run's part. `limit` includes what it has spent, and so does `p90`; `before` is its limit so far."""

    run: str
    task: str
    project: str
    status: st.Status
    spent: int
    p50: int
    p90: int
    before: int | None
    limit: int


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A total, split. `used`: by runs that are over. `held`: by those that work or have failed. They add up to the total."""

    unit: Unit
    total: int
    used: int
    held: int
    returned: int
    shares: tuple[Share, ...]
    pool: Pool


def waiting(store: SqliteStore, project: str) -> list[Summary]:
    """The runs of a project that are neither over nor running, oldest first."""
    found = find.every(store, Where(project=project, parent="", open_only=True))
    return [each for each in found if _status(store, each) not in ("running", *ENDED)][::-1]


def _status(store: SqliteStore, summary: Summary) -> st.Status:
    return find.shown_status(store, summary.state, summary.root)


def pools(store: SqliteStore) -> dict[str, Pool]:
    """The pools of the store, by project."""
    path = store.root / POOLS
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Pool])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(
            f"{path} cannot be read: {error}",
            hint="move it away and share anew: `outlast budget share --total 5M`",
        ) from error


def split(
    store: SqliteStore, project: str, total: tuple[Unit, int] | None, runs: Sequence[Summary], *, anew: bool = False
) -> Split:  # fmt: skip
    """How a total would be split over these runs; changes nothing. Without a total, that of the project's pool.

    A new total begins a new pool if every run of the old one is over, or if it is asked for.
    """
    kept = pools(store).get(project)
    unit, amount = total or ((kept.unit, kept.total) if kept is not None else ("tokens", 0))
    if not amount:
        raise UsageError("there is no total to share", hint="give one: `outlast budget share --total 5M`")
    members = {} if kept is None or kept.unit != unit or anew else dict(kept.limits)
    heads = {
        each.run: each for run in members for each in store.list(Where(run_prefix=run)) if each.run == run
    }
    if total is not None and all(run not in heads or _is_over(heads[run]) for run in members):
        members = {}
    chosen = {each.run: each for each in runs}
    used, held, returned = _taken(members, heads, chosen, unit)
    shares = _shares(store, list(chosen.values()), unit, amount, taken=used + held)
    limits = members | {share.run: share.limit for share in shares}
    return Split(
        unit=unit, total=amount, used=used, held=held, returned=returned, shares=tuple(shares),
        pool=Pool(unit, amount, limits),
    )  # fmt: skip


def _is_over(summary: Summary) -> bool:
    return summary.state.status in CLOSED


def _taken(
    members: Mapping[str, int], heads: Mapping[str, Summary], chosen: Mapping[str, Summary], unit: Unit
) -> tuple[int, int, int]:
    """What the runs that get no share now have used, what they hold, and what they gave back."""
    used = held = returned = 0
    for run, limit in members.items():
        if run in chosen:
            continue
        if run not in heads:  # forgotten by `outlast gc`: nobody knows any more what it spent, so all of it
            used += limit
        elif _is_over(heads[run]):
            cost = spent(heads[run].state, unit)
            used += cost
            returned += max(0, limit - cost)
        else:
            held += max(_limit(heads[run].state.budget, unit) or limit, spent(heads[run].state, unit))
    return used, held, returned


def _shares(
    store: SqliteStore, runs: Sequence[Summary], unit: Unit, amount: int, *, taken: int
) -> list[Share]:
    predictor = Predictor(history(store), datetime.now(UTC))
    priced = [_priced(store, predictor, each.state, unit) for each in runs]
    needs = [
        forecast.Need(spent(each.state, unit), bounds.p90) for each, bounds in zip(runs, priced, strict=True)
    ]
    if amount - taken < (least := forecast.least(needs, FLOOR[unit])):
        count = f"{len(runs)} runs need" if len(runs) > 1 else "the run needs"
        prefix = "" if unit == "tokens" else "time="
        raise UsageError(
            f"the total leaves {max(0, amount - taken):,}, and {count} {least:,} or more: what was spent, and"
            f" {FLOOR[unit]:,} each to go on with",
            hint=f"`outlast budget share --total {prefix}{taken + least}`, or name fewer runs",
        )
    limits = forecast.split(amount - taken, needs, FLOOR[unit])
    return [
        Share(
            run=each.run, task=each.task, project=each.project, status=_status(store, each), spent=need.spent,
            p50=bounds.p50, p90=bounds.p90, before=_limit(each.state.budget, unit), limit=limit,
        )
        for each, need, bounds, limit in zip(runs, needs, priced, limits, strict=True)
    ]  # fmt: skip


def _priced(store: SqliteStore, predictor: Predictor, head: st.RunState, unit: Unit) -> Range:
    found = predictor.of(task_of(head, _agent(store, head))).of(unit)
    first = Range(found.p50, found.p90)
    return forecast.reprice(first, spent=spent(head, unit), beats=head.beats, plan_total=head.plan_total)


def _limit(budget: Allowance | None, unit: Unit) -> int | None:
    return None if budget is None else budget.tokens if unit == "tokens" else budget.time_s


def apply(store: SqliteStore, project: str, made: Split) -> list[acts.Outcome]:
    """Give each run its limit, other units as they were, inside `sharing`. Killed half-way, the same again ends right.

    The pool is written first, and limits are lowered before others are raised: their sum is at no time above the total.
    """
    kept = pools(store) | {project: made.pool}
    write_durably(store.root / POOLS, msgspec.json.encode(kept))
    rising = sorted(made.shares, key=lambda share: share.before is None or share.limit > share.before)
    outcomes = []
    for share in rising:
        before = acts.summary_of(store, share.run).state.budget or Allowance()
        outcomes.append(
            acts.set_budget(store, share.run, msgspec.structs.replace(before, **{made.unit: share.limit}))
        )
    return outcomes


@contextlib.contextmanager
def sharing(store: SqliteStore) -> Iterator[None]:
    """Split and apply inside it: two people who share at once do so one after the other."""
    fd = os.open(store.root / f".{POOLS}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
