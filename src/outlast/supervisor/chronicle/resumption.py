"""What an attempt goes on from: the attempt before, its session, what was cut off, and the files."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from outlast.agents.values import Cut
from outlast.core import events as ev
from outlast.core.state import RunState
from outlast.core.text import call_words, short
from outlast.runs.engine.run import RunEngine
from outlast.supervisor.chronicle.feed_events import FeedCall, FeedResumed, FeedStarted, place_in
from outlast.supervisor.chronicle.sentences import evidence_words
from outlast.supervisor.guardian import lock

NAMED_MAX = 3
_LOCAL = "give_up"
_DEATHS: dict[ev.Cause, str] = {"host": "the machine went down", "crash": "killed without warning"}


class Resumption(msgspec.Struct, frozen=True, kw_only=True):
    """What is known before the command is built."""

    cause: ev.Cause | None = None
    evidence: str = ""
    open_before: tuple[FeedCall, ...] = ()
    files: str = ""
    found_save: str = ""
    death: str = (
        ""  # of an attempt that recorded no end, in place of evidence that names its process and host
    )


def of(
    run: RunEngine, before: RunState, lost: ev.AttemptEnded | None, found: Sequence[ev.AnyEvent]
) -> Resumption:
    """From the head that was found, how the last attempt ended if it could not say so, and the events of the files."""
    saved = [each.commit for each in found if isinstance(each, ev.SaveMade) and each.kind == "found"]
    evidence = before.evidence
    if lost is not None:
        note = lock.noted(run.journal.store.local, run.id)
        evidence = note.why if note is not None else lost.evidence
    return Resumption(
        cause=lost.cause if lost is not None else before.cause,
        evidence=evidence,
        open_before=tuple(
            FeedCall(each.id, each.name) for each in before.effects_open if each.state == "intended"
        ),
        files={"rewind": "rewound"}.get(run.terms.files, "kept") if run.files is not None else "",
        found_save=saved[-1] if saved else "",
        death=_DEATHS.get(lost.cause, "") if lost is not None and evidence == lost.evidence else "",
    )


def begun(state: RunState, known: Resumption, agent: str, cuts: Sequence[Cut]) -> FeedStarted | FeedResumed:
    """The object of an attempt that is about to start its command. `cuts`: an agent's calls that were cut off."""
    place: dict[str, Any] = place_in(state, datetime.now(UTC))
    place |= {"beat": state.beats + 1, "agent": agent, "workspace": state.workspace, "pid": os.getpid()}
    if state.attempts == 1:
        return FeedStarted(**place)
    calls = tuple(FeedCall(each.id, call_words(each.name, _decoded(each.input))) for each in cuts)
    session = state.session
    return FeedResumed(
        session=session.session if session is not None and session.agent == agent else "", cause=known.cause,
        evidence=known.evidence, cut_off=calls if agent else known.open_before,
        in_doubt=tuple(FeedCall(each.id, each.name) for each in state.in_doubt if each.policy != _LOCAL),
        files=known.files, found_save=known.found_save, **place,
    )  # fmt: skip


def _decoded(data: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(data)
    except msgspec.MsgspecError:
        return None


def words(event: FeedStarted | FeedResumed, known: Resumption) -> str:
    """The same for a person, in one line; empty for a first attempt."""
    if isinstance(event, FeedStarted):
        return ""
    session = f" in session {event.session[:8]} of {event.agent}" if event.session else ""
    cut_off = {each.id for each in event.cut_off}
    in_doubt = [each for each in event.in_doubt if each.id not in cut_off]
    parts = [
        f"resumes {event.task}: attempt {event.attempt}, beat {event.beat}{session}",
        *([f"cut off: {_named(event.cut_off)}"] if event.cut_off else []),
        *([f"in doubt: {_named(in_doubt)}"] if in_doubt else []),
        *([_files(event)] if event.files else []),
        *([f"before: {why}"] if (why := known.death or evidence_words(event.evidence)) else []),
    ]
    return "; ".join(parts)


def _files(event: FeedResumed) -> str:
    if event.files == "rewound":
        found = f", as found in save {event.found_save[:12]}" if event.found_save else ""
        return f"files put back to the last beat{found}"
    return f"files kept, changes in save {event.found_save[:12]}" if event.found_save else "files kept"


def _named(calls: Sequence[FeedCall]) -> str:
    names = [short(each.what, 80) for each in calls[:NAMED_MAX]]
    more = len(calls) - NAMED_MAX
    return "; ".join([*names, *([f"{more} more"] if more > 0 else [])])
