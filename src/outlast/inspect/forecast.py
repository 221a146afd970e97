"""Forecasts of what a run will need, from the store's own history.

The history comes from the heads of runs, one query per page of them. Journals are not read."""

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from outlast import decoders
from outlast.agents import registry
from outlast.core import forecast, state as st
from outlast.core.forecast import Accuracy, Forecast, PastRun, Predictor, Range, Task, Unit
from outlast.core.values import Allowance, Contract
from outlast.runs import reader
from outlast.store.durable import make_folder, write_durably
from outlast.store.protocol import RunFilter, Store, Summary

FILE = "forecast.json"


# -- history -----------------------------------------------------------------------------------------------------------


def history(store: Store, *, but: str = "") -> list[PastRun]:
    """The cost of the newest runs of the store, in one query. Leaves children out: their roots include them."""
    newest = store.list(RunFilter(parent=""), limit=forecast.HISTORY_MAX, unreadable=True)
    known = (each for each in newest if each.run != but and not each.problem)
    return [past for each in known if (past := _past(each)) is not None]


def _past(summary: Summary) -> PastRun | None:
    head = summary.state
    tokens, time_s = spent(head, "tokens"), spent(head, "time_s")
    if head.created_at is None or head.updated_at is None or not (tokens or time_s):
        return None
    return PastRun(
        run=summary.run, name=summary.task, task=task_of(head), started_at=head.created_at,
        ended_at=head.updated_at, tokens=tokens, time_s=time_s, finished=head.status == "done", touched=_touched(head),
    )  # fmt: skip


def task_of(head: st.RunState, agent: str = "") -> Task:
    """A run's task, as far as its head has it."""
    known, model = (head.session.agent, head.session.model) if head.session is not None else (agent, "")
    return Task(goal=head.title, plan=head.plan_total, project=head.project, agent=known, model=model)


def _touched(head: st.RunState) -> tuple[str, ...]:
    uris = (ref.uri.partition("#")[0] for ref in head.memory)
    return tuple(uri.removeprefix("file:") for uri in uris if uri.startswith("file:"))


def spent(head: st.RunState, unit: Unit) -> int:
    """A run's spending; a second that has begun counts as whole."""
    return head.spent.tokens if unit == "tokens" else -(-head.spent.time_ms // 1000)


# -- one run -----------------------------------------------------------------------------------------------------------


def suggest(
    store: Store | None, *, goal: str, plan: int | None = None, project: str = "", agent: str = "",
    model: str = "", files: Sequence[str] = (),
) -> Forecast:  # fmt: skip
    """The need of a run with this goal. Without a store, or with little in it, the default, marked as such."""
    title = Contract(goal=goal).title  # past runs have only this much of their goal
    task = Task(goal=title, plan=plan, project=project, agent=agent, model=model, files=tuple(files))
    return Predictor(history(store) if store is not None else [], datetime.now(UTC)).of(task)


def auto(
    store: Store | None, *, goal: str, plan: int | None = None, project: str = "", agent: str = "",
    model: str = "", files: Sequence[str] = (),
) -> tuple[Allowance, Forecast]:  # fmt: skip
    """The budget that `auto` means, and the prediction behind it."""
    found = suggest(store, goal=goal, plan=plan, project=project, agent=agent, model=model, files=files)
    return allowance(found), found


def allowance(found: Forecast) -> Allowance:
    """p90 in round numbers. Time only if it was learnt from runs alike: a guess must not stop a run by the clock."""
    time_s = found.time_s.p90 if found.time_s.sure not in ("default", "guess") else None
    return Allowance(
        tokens=_rounded(found.tokens.p90), time_s=None if time_s is None else -(-time_s // 60) * 60
    )


def _rounded(amount: int) -> int:
    """Rounded up to two digits and zeros."""
    scale: int = 10 ** max(0, len(str(amount)) - 2)
    return -(-amount // scale) * scale


def measure(store: Store) -> dict[Unit, Accuracy]:
    """How good the predictions for the store's own runs would have been, each made from what was over at its start."""
    known = history(store)
    return {unit: forecast.measure(known, unit) for unit in forecast.UNITS}


class FirstForecast(msgspec.Struct, frozen=True):
    """The first prediction for a run, as stored beside its logs."""

    tokens: Range
    time_s: Range


def remember(store: Store, run: str, found: Forecast) -> None:
    """Store a run's first prediction, from which every later one starts."""
    folder = store.local.run_folder(run)
    make_folder(folder)
    first = FirstForecast(*(Range(found.of(unit).p50, found.of(unit).p90) for unit in forecast.UNITS))
    write_durably(folder / FILE, msgspec.json.encode(first))


def first_forecast(store: Store, head: st.RunState) -> FirstForecast:
    """A run's first prediction: the stored one, else one that is made now without the run itself, and stored.

    With a store open for reading, storing is left to the next process that writes.
    """
    with contextlib.suppress(OSError, msgspec.MsgspecError):  # lost or torn: it can be made again
        return decoders.decode((store.local.run_folder(head.run) / FILE).read_bytes(), FirstForecast)
    found = Predictor(history(store, but=head.run), datetime.now(UTC)).of(
        task_of(head, agent_of(store, head))
    )
    if not store.reading:
        with contextlib.suppress(OSError):  # a full or read-only disk: it is made again next time
            remember(store, head.run, found)
    return FirstForecast(*(Range(found.of(unit).p50, found.of(unit).p90) for unit in forecast.UNITS))


def repriced(first: FirstForecast, head: st.RunState) -> FirstForecast:
    """The prediction at the run's current beat. Pure and quick, so every beat can ask."""
    return FirstForecast(*(_repriced(first, head, unit) for unit in forecast.UNITS))


def _repriced(first: FirstForecast, head: st.RunState, unit: Unit) -> Range:
    known = first.tokens if unit == "tokens" else first.time_s
    return forecast.reprice(known, spent=spent(head, unit), beats=head.beats, plan_total=head.plan_total)


class _Launch(msgspec.Struct, frozen=True):
    argv: tuple[str, ...] = ()
    program: str = ""


def agent_of(store: Store, head: st.RunState) -> str:
    """The agent of a run without a session yet, by the command it starts."""
    if head.session is not None or not head.supervised:
        return ""
    launch = reader.opened(store, head).launch
    if launch is None:
        return ""
    data = store.blobs.get(launch.blob) if launch.blob else launch.v
    command = decoders.decode(data, _Launch)
    agent = registry.recognise(command.argv, command.program)
    return agent.name if agent is not None else ""
