"""A run's own pages: where it stands, what happened when, its beats, journal, output, context and budget."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from outlast import decoders, settings
from outlast.core import context as contexts, events as ev, state as st
from outlast.core.values import shorten
from outlast.dashboard import documents
from outlast.dashboard.actions import forms
from outlast.dashboard.overview import log_times
from outlast.dashboard.overview.index import Index
from outlast.dashboard.run import effects as run_effects, request_words
from outlast.dashboard.run.effects import effects as effects, summary_of
from outlast.dashboard.saves import cache
from outlast.errors import OutlastError
from outlast.inspect import find, ledger, show, words as inspect_words
from outlast.inspect.runs_inside import RunInside
from outlast.runs import reader
from outlast.store.protocol import Store, Summary
from outlast.supervisor.control import takeover
from outlast.supervisor.guardian import lock
from outlast.supervisor.output import log_reader

LAST_BEATS = 20
CURVE_POINTS = 120
ATTEMPTS_MAX = MOMENTS_MAX = 200
SAVES_MAX = 50
CHILDREN_MAX = 200
STEPS_AROUND = 40
BEATS_MAX = 500
JOURNAL_MAX = 1_000
OUTPUT_BYTES_MAX = 4 << 20
TEXT_CHARS_MAX = 300
_BOUNDS = show.Bounds(
    attempts=ATTEMPTS_MAX, saves=SAVES_MAX, children=CHILDREN_MAX, steps=STEPS_AROUND, value_bytes=show.LISTED_MAX_BYTES
)  # fmt: skip
_MAY_WAIT = ("interrupted", "in_doubt")
_MOMENTS = (
    "save_made", "warned", "parked", "woken", "requested", "effect_in_doubt", "effect_settled", "contract_amended",
    "finished",
)  # fmt: skip


# -- the first page ------------------------------------------------------------------------------------------------


def page(store: Store, index: Index, run: str) -> documents.RunPage:
    """A run's first page. Raises UnknownRun.

    Every page costs the same number of queries however long the run is. The budget is summed up from the whole journal once, and
    then goes on from there.
    """
    row = index.row(run)
    known = {row.run: row for row in index.rows()}
    summary = summary_of(store, run)
    shown = show.glance(
        store,
        summary,
        last=LAST_BEATS,
        bounds=_BOUNDS,
        statuses={run: row.status for run, row in known.items()},
        effects=[each.effect for each in run_effects.unsettled(store, summary)],
    )
    return documents.RunPage(
        row=row,
        shown=msgspec.structs.replace(
            shown,
            children=_children(shown, known),
            inside=_inside(shown, known),
            pending=tuple(map(request_words.pending, store.inbox.pending(summary.root))),
        ),
        timeline=_timeline(store, summary, shown.status, shown.attempts),
        waits=_waits(store, summary, shown.status),
        agent_line=_agent_line(store, summary),
    )


def _children(shown: show.Shown, known: Mapping[str, documents.Row]) -> tuple[show.Child, ...]:
    """The children with how each one stands, as the list of runs shows it."""
    return tuple(
        msgspec.structs.replace(child, standing=known[child.run].standing) if child.run in known else child
        for child in shown.children
    )


def _inside(shown: show.Shown, known: Mapping[str, documents.Row]) -> tuple[RunInside, ...]:
    """The runs that this run started, each with its present standing."""
    return tuple(
        msgspec.structs.replace(each, standing=known[each.run].standing) if each.run in known else each
        for each in shown.inside
    )


def _waits(store: Store, summary: Summary, status: st.Status) -> str:
    """Whether a supervisor is about to start it again."""
    watcher = lock.of(store.local, summary.run) if status in _MAY_WAIT else None
    if watcher is None or not watcher.supervisor:
        return ""
    return f"for its next attempt: its supervisor, pid {watcher.supervisor}, starts it again"


def _agent_line(store: Store, summary: Summary) -> str:
    """The line to type to go on in the agent's session without outlast; empty if there is no session."""
    try:
        bare = takeover.bare(store, summary)
    except (OutlastError, OSError, msgspec.MsgspecError):
        return ""
    return bare.line if bare is not None else ""


# -- what happened when --------------------------------------------------------------------------------------------


def timeline(store: Store, run: str) -> documents.Timeline:
    """The course of a run, in bounded parts. Raises UnknownRun."""
    summary = summary_of(store, run)
    status = find.shown_status(store, summary.state, summary.root)
    attempts = show.attempts(store, summary.state, status, last=ATTEMPTS_MAX)
    return _timeline(store, summary, status, tuple(attempts))


def _timeline(
    store: Store, summary: Summary, status: st.Status, attempts: tuple[show.AttemptShown, ...]
) -> documents.Timeline:
    state, now = summary.state, datetime.now(UTC)
    counted = store.event_counts(summary.run)
    recorded = store.read(summary.run, after=0, tags=_MOMENTS, limit=MOMENTS_MAX, newest=True).events
    curve = store.beat_end_sample(summary.run, CURVE_POINTS)
    return documents.Timeline(
        since=state.created_at or now,
        until=now if status == "running" else state.updated_at or now,
        beats=tuple(
            documents.Progress(at=each.event.at, beat=each.event.beat)
            for each in curve
            if isinstance(each.event, ev.BeatDone)
        ),
        attempts=attempts,
        attempts_total=state.attempts,
        moments=tuple(_moment(each.seq, each.event) for each in recorded),
        moments_total=sum(counted.get(tag, 0) for tag in _MOMENTS),
    )


def _moment(seq: int, event: ev.AnyEvent) -> documents.Moment:
    """A place on the timeline, in words."""
    kind_and_text: tuple[str, str]
    match event:
        case ev.SaveMade():
            kind_and_text = "save", _joined(f"{event.kind} save", event.reason)
        case ev.Warned():
            kind_and_text = (
                "wrap-up" if event.level.startswith(st.WRAP_UP) else "warning",
                _joined(event.level, event.text),
            )
        case ev.Parked():
            until = f" until {event.until:%Y-%m-%d %H:%M} UTC" if event.until is not None else ""
            kind_and_text = "parked", _joined(f"{event.cause}{until}", event.evidence)
        case ev.Woken():
            kind_and_text = "woken", "it may start again"
        case ev.Requested():
            kind_and_text = "asked", request_words.words(event)
        case ev.EffectInDoubt():
            kind_and_text = "doubt", _joined(f"effect {event.beat}.{event.n}", event.evidence)
        case ev.EffectSettled():
            words = event.finding.replace("_", " ")
            kind_and_text = "settled", _joined(f"effect {event.beat}.{event.n}: {words}", event.evidence)
        case ev.ContractAmended():
            kind_and_text = "amended", "the contract or the budget was changed"
        case _:
            kind_and_text = "done", "done, its checks passed"
    kind, text = kind_and_text
    return documents.Moment(
        at=event.at,
        seq=seq,
        kind=decoders.convert(kind, documents.MomentKind),
        text=shorten(text, TEXT_CHARS_MAX),
        by=getattr(event, "by", ""),
        save=event.commit if isinstance(event, ev.SaveMade) else "",
    )


def _joined(what: str, more: str) -> str:
    return f"{what}: {more}" if more else what


# -- beats and journal ---------------------------------------------------------------------------------------------


def beats(store: Store, run: str, before: int | None = None, size: int = 100) -> documents.Beats:
    """Completed beats, newest first, from below the sequence number `before`. Raises UnknownRun."""
    summary, size = summary_of(store, run), max(1, min(size, BEATS_MAX))
    ends = store.beat_ends(run, before=before or 0, limit=size + 1)
    found = ends[:size]
    return documents.Beats(
        run=run,
        total=summary.state.beats,
        beats=tuple(
            show.completed(store, each.event, show.LISTED_MAX_BYTES, is_masked=show.masks(summary.state))
            for each in found
            if isinstance(each.event, ev.BeatDone)
        ),
        before=found[-1].seq if len(ends) > size else None,
    )


def journal(store: Store, run: str, before: int | None = None, size: int = 200) -> documents.JournalPage:
    """Events, newest first, from below the sequence number `before`. Raises UnknownRun."""
    summary, size = summary_of(store, run), max(1, min(size, JOURNAL_MAX))
    end = min(summary.state.seq + 1, before) if before else summary.state.seq + 1
    start = max(0, end - 1 - size)
    recorded = store.read(run, after=start, limit=size, before=end).events
    return documents.JournalPage(
        run=run,
        total=summary.state.seq,
        events=tuple(
            documents.Entry(
                n=each.n, seq=each.seq, at=each.event.at, tag=ev.tag_of(each.event), text=inspect_words.words(each.event),
                event=inspect_words.data(each.event, masks=show.masks(summary.state)),
            )
            for each in reversed(recorded)
        ),
        before=start + 1 if start else None,
    )  # fmt: skip


# -- output, context, budget ---------------------------------------------------------------------------------------


def output(
    store: Store, run: str, attempt: int | None = None, bytes_max: int = 128 << 10
) -> documents.Output:
    """The end of what the agent wrote in an attempt, the newest unless one is named. Raises UnknownRun."""
    summary = summary_of(store, run)
    folder = store.local.run_folder(summary.run)
    there = tuple(log_reader.attempts(folder))
    number = attempt if attempt is not None else max(there, default=0)
    problem = ""
    if not there and summary.root != run:
        problem = f"it is a part of run {summary.root}, among whose output is what it wrote"
    elif not there:
        problem = forms.led(
            store,
            f"this run has no recorded output: only commands started with outlast run have one. See `outlast log {run}`",
        )
    elif number not in there:
        known = ", ".join(map(str, there[-8:]))
        problem = f"attempt {number} has no output on record; there are {known}"
    if problem:
        return documents.Output(run=run, attempt=number, attempts=there, lines=(), cut=0, problem=problem)
    lines, cut = log_reader.tail(folder, number, max(1, min(bytes_max, OUTPUT_BYTES_MAX)))
    parsed = [log_reader.parsed(line) for line in lines]
    moments = log_times.moments([line.at for line in parsed], log_reader.span(folder, number))
    return documents.Output(
        run=run,
        attempt=number,
        attempts=there,
        lines=tuple(
            documents.OutputLine(
                at=line.at, stream=line.stream, text=line.text, continues=line.continues, moment=moment
            )
            for line, moment in zip(parsed, moments, strict=True)
        ),
        cut=cut,
    )


def context(store: Store, run: str) -> documents.Context:
    """The context that the next attempt will read. Raises UnknownRun."""
    summary = summary_of(store, run)
    with cache.patience(summary):
        text = reader.next_context(store, summary, _around(summary), settings.load()["context_tokens_max"])
    return documents.Context(run=run, tokens=contexts.tokens(text), text=text)


def _around(summary: Summary) -> Path:
    """Where a program of this project works most likely."""
    project = Path(summary.project)
    return project.parent if project.name == ".git" else project


def budget(store: Store, run: str) -> ledger.Ledger:
    """Where the run's budget went. Raises UnknownRun."""
    summary = summary_of(store, run)
    warn_at = settings.percentages(settings.load()["warn_at"])
    with cache.sums(store, run) as sums:
        found = ledger.of(store, summary, ledger.now(), warn_at=warn_at, sums=sums)
    if summary.root == run:
        return found
    status = find.shown_status(store, summary.state, summary.root)
    return msgspec.structs.replace(found, status=status)
