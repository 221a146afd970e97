"""Where our journal and an agent's transcript differ about its calls: each may have lost what the other one has.

An external call that only the transcript has was never allowed by us, so it is in doubt."""

from collections import deque
from collections.abc import Container, Iterable, Mapping

import msgspec

from outlast.agents import Transcript
from outlast.agents.events import ToolAside, ToolStart
from outlast.agents.values import Cut
from outlast.core import events as ev
from outlast.runs.engine.run import RunEngine
from outlast.supervisor.agent.calls import interruptions
from outlast.supervisor.agent.calls.record import SHIM, CallRecord, call_record_of
from outlast.supervisor.agent.responses import Responses

LOST_MAX = 200
_TAGS = ("session_known", "effect_intended", "effect_confirmed")
_UNRECORDED = "outlast: there is no record of whether this call was made. "


def lost(run: RunEngine, session: str, seen: Container[str]) -> list[Cut]:
    """The latest calls of this session that ended and that its transcript lacks."""
    found: deque[Cut] = deque(maxlen=LOST_MAX)
    intents: dict[tuple[int, int], ev.EffectIntended] = {}
    now = ""
    for event in run.journal.events(*_TAGS):
        match event:
            case ev.SessionKnown():
                now = event.session.session
            case ev.EffectIntended() if now == session:
                intents[event.beat, event.n] = event
            case ev.EffectConfirmed():
                intent = intents.pop((event.beat, event.n), None)
                call = call_record_of(run.journal, intent) if intent is not None and intent.own_key else None
                if intent is not None and call is not None:
                    found += _unseen(run, intent, call, event, seen)
            case _:
                pass
    return list(found)


def _unseen(
    run: RunEngine,
    intent: ev.EffectIntended,
    call: CallRecord,
    event: ev.EffectConfirmed,
    seen: Container[str],
) -> list[Cut]:
    call_id = call.call or intent.key
    if call_id in seen or call_id.startswith(SHIM) or call.lane:
        return []
    text = interruptions.recorded(run.journal.value(event.result))
    return [Cut(call_id, call.tool, msgspec.Raw(msgspec.json.encode(call.input)), text)]


def apart(
    run: RunEngine, session: str, started: Mapping[str, ToolStart], seen: Container[str], *, is_whole: bool
) -> tuple[list[Cut], list[ToolStart]]:
    """Of the calls whose result the transcript lacks: those that ended according to our journal, and those that the journal
    does not have.

    An agent writes its transcript behind its calls: a call that ended a beat ago may have no result in it yet. No sub-agent
    goes on after it was cut off, so its transcript lacks that result for good: the journal's record of its call counts.
    """
    alone = {call: start for call, start in started.items() if call not in seen}
    if any(start.lane for start in alone.values()):
        recorded = _recorded(run)
        alone = {call: start for call, start in alone.items() if not start.lane or call not in recorded}
    ended = lost(run, session, seen) if alone or not is_whole else []
    missing = {each.id: each for each in ended if each.id in alone or not is_whole}
    return list(missing.values()), [start for call, start in alone.items() if call not in missing]


def _recorded(run: RunEngine) -> set[str]:
    """Every call of the run that was intended, by the agent's own id."""
    intents = [
        event for event in run.journal.events("effect_intended") if isinstance(event, ev.EffectIntended)
    ]
    known = [(intent, call_record_of(run.journal, intent)) for intent in intents if intent.own_key]
    return {call.call or intent.key for intent, call in known if call is not None}


def put_aside(run: RunEngine, transcript: Transcript, data: bytes, ended: Container[str]) -> list[Cut]:
    """The call that the session put aside because it waits for a person, if nothing became of it since; at most one.

    A call that was let through after that is no such call, whatever became of it.
    """
    lines = [line for line in data.splitlines() if b"defer" in line]
    found = [each.id for line in lines for each in transcript.parse(line) if isinstance(each, ToolAside)]
    if not found or found[-1] in ended:
        return []
    calls = [
        call
        for event in run.journal.events("effect_intended")
        if isinstance(event, ev.EffectIntended) and event.own_key
        if (call := call_record_of(run.journal, event)) is not None and (call.call or event.key) == found[-1]
    ]
    if not calls or not all(call.waits for call in calls):
        return []
    text = f"outlast: this call was not made: it waited for a person's approval ({calls[-1].waits})."
    return [Cut(found[-1], calls[-1].tool, msgspec.Raw(msgspec.json.encode(calls[-1].input)), text)]


def unrecorded(
    responses: Responses, calls: Iterable[tuple[ToolStart, CallRecord]], *, defers: bool
) -> tuple[set[str], list[Cut]]:
    """Record the outward calls that only the transcript has; return their ids, and the messages to the agent about the rest.

    `defers`: of a local call there is no record before it ends, so it may have been under way. It is recorded now.
    """
    put: set[str] = set()
    others: list[Cut] = []
    for start, call in calls:
        if call.outward:
            responses.found(start, call)
            put.add(start.id)
        else:
            if defers:
                responses.cut_off(start, call)
            others.append(
                interruptions.without_record(start) if defers else interruptions.never_started(start)
            )
    return put, others


def with_words(cuts: Iterable[Cut], put: Container[str]) -> list[Cut]:
    """The messages with a first sentence added to those about calls in `put`: nothing says whether they were made."""
    return [
        msgspec.structs.replace(each, text=_UNRECORDED + _sentence(each.text)) if each.id in put else each
        for each in cuts
    ]


def _sentence(text: str) -> str:
    words = text.removeprefix("outlast: ")
    return words[:1].upper() + words[1:]
