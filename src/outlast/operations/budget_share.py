"""One budget split over many runs, kept as a pool per project on the store's shelf."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime

import msgspec

from outlast import decoders
from outlast.core import forecast, state as st
from outlast.core.forecast import Predictor, Range, Unit
from outlast.core.statuses import CLOSED, ENDED
from outlast.core.values import Allowance
from outlast.errors import StoreCorrupt, UsageError
from outlast.inspect import find
from outlast.inspect.forecast import agent_of, history, spent, task_of
from outlast.operations import requests
from outlast.store.protocol import Document, RunFilter, ShelfKind, Store, Summary

POOLS: ShelfKind = "pools"
_ANEW = "move it away and split it again: `outlast budget share --total 5M`"
# The least that a run with a share gets above what it spent.
FLOOR: dict[Unit, int] = {"tokens": 20_000, "time_s": 300}


class Pool(msgspec.Struct, frozen=True):
    """A budget for many: its total in one unit, and each run's limit from it.

    A closed run counts with its spending, any other with its limit. So the limits never add up to more than the total.
    """

    unit: Unit
    total: int
    limits: dict[str, int] = {}


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One run's part. `limit` includes its spending, and so does `p90`; `before` is its limit so far."""

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


def waiting(store: Store, project: str) -> list[Summary]:
    """The runs of a project that are neither over nor running, oldest first."""
    found = find.all_runs(store, RunFilter(project=project, parent="", open_only=True))
    return [each for each in found if _status(store, each) not in ("running", *ENDED)][::-1]


def _status(store: Store, summary: Summary) -> st.Status:
    return find.shown_status(store, summary.state, summary.root)


def pools(store: Store) -> dict[str, Pool]:
    """The pools of the store, by project."""
    try:
        return {name: decoders.decode(data, Pool) for name, data in store.shelf.every(POOLS)}
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"a pool of the store {store.url} cannot be read: {error}", hint=_ANEW) from error
    except StoreCorrupt as error:
        error.hint = _ANEW
        raise


def split(
    store: Store, project: str, total: tuple[Unit, int] | None, runs: Sequence[Summary], *, anew: bool = False
) -> Split:  # fmt: skip
    """The split of a total over these runs; changes nothing. Without a total, splits that of the project's pool.

    A new total begins a new pool if every run of the old one is over, or if it is asked for.
    """
    pool = pools(store).get(project)
    unit, amount = total or ((pool.unit, pool.total) if pool is not None else ("tokens", 0))
    if not amount:
        raise UsageError("there is no total to share", hint="give one: `outlast budget share --total 5M`")
    members = {} if pool is None or pool.unit != unit or anew else dict(pool.limits)
    heads = {
        each.run: each for run in members for each in store.list(RunFilter(run_prefix=run)) if each.run == run
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
    """The amounts that the pool's other runs, which get no share now, used, hold and gave back."""
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


def _shares(store: Store, runs: Sequence[Summary], unit: Unit, amount: int, *, taken: int) -> list[Share]:
    predictor = Predictor(history(store), datetime.now(UTC))
    priced = [_priced(store, predictor, each.state, unit) for each in runs]
    needs = [
        forecast.Need(spent(each.state, unit), bounds.p90) for each, bounds in zip(runs, priced, strict=True)
    ]
    if amount - taken < (least := forecast.smallest_total(needs, FLOOR[unit])):
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


def _priced(store: Store, predictor: Predictor, head: st.RunState, unit: Unit) -> Range:
    found = predictor.of(task_of(head, agent_of(store, head))).of(unit)
    first = Range(found.p50, found.p90)
    return forecast.reprice(first, spent=spent(head, unit), beats=head.beats, plan_total=head.plan_total)


def _limit(budget: Allowance | None, unit: Unit) -> int | None:
    return None if budget is None else budget.tokens if unit == "tokens" else budget.time_s


def apply(store: Store, pool: Document, made: Split) -> list[requests.Outcome]:
    """Give each run its limit, other units as they were, inside `sharing`. Killed half-way, the same again ends right.

    The pool is written first, and limits are lowered before others are raised: their sum is at no time above the total.
    """
    pool.put(msgspec.json.encode(made.pool))
    rising = sorted(made.shares, key=lambda share: share.before is None or share.limit > share.before)
    outcomes = []
    for share in rising:
        before = requests.summary_of(store, share.run).state.budget or Allowance()
        outcomes.append(
            requests.set_budget(store, share.run, msgspec.structs.replace(before, **{made.unit: share.limit}))
        )
    return outcomes


def sharing(store: Store, project: str) -> AbstractContextManager[Document]:
    """The pool of a project. Split and apply inside it: two people who share at once do so one after the other."""
    return store.shelf.hold(POOLS, project)
