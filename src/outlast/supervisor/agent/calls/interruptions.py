"""Calls that were cut off with their attempt: outlast finds out their outcome and reports it to the agent.

A model reads every text here as the result of its call: say only what is true and what to do about it."""

from collections.abc import Container, Sequence
from typing import Any

import msgspec

from outlast.agents.events import ToolStart
from outlast.agents.values import Cut
from outlast.core import events as ev
from outlast.core.replay import EffectRecord
from outlast.core.text import call_words
from outlast.core.values import shorten
from outlast.errors import DidNotHappen
from outlast.probes import CannotTell, Happened
from outlast.runs.engine import leftovers
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.supervisor.agent.calls.history import unheard
from outlast.supervisor.agent.calls.identity import SAME, nearest
from outlast.supervisor.agent.calls.outward import OutwardCalls
from outlast.supervisor.agent.calls.record import SHIM, CallRecord, call_record_of, has_result
from outlast.supervisor.agent.calls.repeats import UNSURE

RECORDED_CHARS_MAX = 30_000
WORDS_CHARS_MAX = 300


def settle(run: RunEngine, outward: OutwardCalls) -> None:
    """Find out about every call that has no outcome, and record the findings. Their processes have been stopped before; while
    one may still live, no call is found not to have happened."""
    for effect in run.state.effects_open:
        if effect.policy not in ("tell", "give_up") or effect.state not in ("intended", "in_doubt"):
            continue
        intent = _intent(run, effect.key)
        call = call_record_of(run.journal, intent) if intent is not None else None
        if call is None or call.asks:  # only a person can say whether it is another call
            continue
        age_s = run.journal.age_s(intent) if intent is not None else None
        left = (*run.supervision.left, *(leftovers.unseen(age_s) if call.outward else ()))
        found = _while_it_lives(_found(call, outward), left) if call.outward else _LOCAL
        finding, by, evidence = found
        event = ev.EffectSettled(
            at=run.journal.now(), beat=effect.beat, n=effect.n, finding=finding, by=by, evidence=shorten(evidence, 500)
        )  # fmt: skip
        run.drive(append(event))


def _while_it_lives(found: tuple[ev.Finding, str, str], left: Sequence[str]) -> tuple[ev.Finding, str, str]:
    """The finding, weakened to "cannot tell" while a process lives that may still do the call's work."""
    if found[0] != "did_not" or not left:
        return found
    return "cannot_tell", found[1], f"it may still be under way in {', '.join(left)}; {found[2]}"


_LOCAL: tuple[ev.Finding, str, str] = ("give_up", "policy", "cut off with its attempt; its files are saved")


def _found(call: CallRecord, outward: OutwardCalls) -> tuple[ev.Finding, str, str]:
    """The common finding of all probes of a call: it happened, or did not, only if every act did, or did not."""
    found: list[tuple[ev.Finding, str]] = []
    for each in call.outward:
        match outward.look(each):
            case Happened(result=result):
                found.append(("happened", f"{each.signature}: {result}" if result else each.signature))
            case DidNotHappen() as error:
                found.append(("did_not", f"{each.signature}: {error}"))
            case CannotTell(why=why):
                found.append(("cannot_tell", f"{each.signature}: {why}"))
    different = {finding for finding, _ in found}
    finding = different.pop() if len(different) == 1 else "cannot_tell"
    return finding, "probe", "; ".join(text for _, text in found)


def cuts(run: RunEngine, settle_words: str) -> list[Cut]:
    """The calls of the beat in flight, each with its recorded outcome or what outlast found out since."""
    known = [
        (record, call_record_of(run.journal, record.intent)) for record in run.journal.record.effects.values()
    ]
    calls = [(record, call) for record, call in known if call is not None and record.intent.own_key]
    found = []
    for record, call in calls:
        call_id = call.call or record.intent.key
        below = [(each, about) for each, about in calls if call_id in about.below]
        text = _truth(run, call, record, settle_words) + _below(below if not has_result(record) else [])
        found.append(Cut(call_id, call.tool, _raw(call.input), text, call.lane))
    return found


def _below(found: Sequence[tuple[EffectRecord, CallRecord]]) -> str:
    """The outward acts of programs below a call that was cut off."""
    texts = [
        f"{call.name} (effect {record.id}): {_STATES.get(record.state, 'it is not known whether it happened')}"
        for record, call in found
    ]
    return f" Below it a program reached outside: {'; '.join(texts)}." if texts else ""


_STATES = {
    "confirmed": "it happened, do not repeat it",
    "did_not": "it did not happen",
    "failed": "it was not let through",
}


def settled(run: RunEngine) -> list[str]:
    """Findings about calls of earlier beats, unless a later call was the same: by a person, by a probe, or by the call's own
    end when it ran in the background.

    The agent's last news may be that the outcome is unknown, or that the call still runs.
    """
    now = {record.id for record in run.journal.record.effects.values()}
    return [
        f"{call.name} (effect {effect}, {_words(call)}): {text}"
        for effect, (call, text) in _found_since(run).items()
        if effect not in now
    ]


def not_made(run: RunEngine) -> list[str]:
    """The calls that did not happen according to a finding, and that the agent did not make again."""
    found = _found_since(run).items()
    return [f"{effect} {call.name!r}" for effect, (call, text) in found if text == _FOUND["did_not"]]


def _found_since(run: RunEngine) -> dict[str, tuple[CallRecord, str]]:
    intents: dict[str, CallRecord] = {}
    found: dict[str, str] = {}
    ended = unheard(run.journal)
    for event in run.journal.events(*_OF_CALLS):
        match event:
            case ev.EffectIntended(policy="tell"):
                if (call := call_record_of(run.journal, event)) is not None:
                    found = {
                        effect: text for effect, text in found.items()
                        if nearest(intents[effect].outward, call.outward)[0] not in SAME
                    }  # fmt: skip
                    intents[f"{event.beat}.{event.n}"] = call
            case ev.EffectSettled() | ev.EffectInDoubt() | ev.EffectConfirmed():
                effect = f"{event.beat}.{event.n}"
                found.pop(effect, None)
                if text := _found_out(run, event, intents.get(effect), ended):
                    found[effect] = text
            case _:
                pass
    return {effect: (intents[effect], text) for effect, text in found.items()}


_OF_CALLS = ("effect_intended", "effect_settled", "effect_in_doubt", "effect_confirmed")


def _found_out(
    run: RunEngine,
    event: ev.EffectSettled | ev.EffectInDoubt | ev.EffectConfirmed,
    call: CallRecord | None,
    ended: Container[str],
) -> str:
    """The text for the agent about one more event of a call; empty if the agent got the result from its own program."""
    if call is None or isinstance(event, ev.EffectInDoubt):
        return ""
    if isinstance(event, ev.EffectSettled):
        return _FOUND.get(event.finding, "")
    if f"{event.beat}.{event.n}" not in ended:
        return ""
    result = run.journal.value(event.result)
    ok = result.get("ok") if isinstance(result, dict) else True
    if ok is False:
        return f"it failed: {shorten(recorded(result), WORDS_CHARS_MAX)}. Make the call again if it is still needed."
    return (
        _FOUND["happened"]
        if ok and all(each.sure for each in call.outward)
        else f"it ended. {UNSURE} Look before you repeat it."
    )


def _words(call: CallRecord) -> str:
    """Which call it was: several may have gone to one address."""
    return shorten(call_words(call.tool, call.input), WORDS_CHARS_MAX)


_FOUND = {
    "happened": "it happened. Do not repeat it.",
    "did_not": "it did not happen. Make the call again if it is still needed.",
}


def never_started(start: ToolStart) -> Cut:
    """The message about a call that the model requested, that no hook saw begin, and that does not reach outside."""
    text = "outlast: nothing tells that this call was started before the interruption. Make it again if it is needed."
    return Cut(start.id, start.name, start.input, text, start.lane)


def without_record(start: ToolStart) -> Cut:
    """The message about a call that the transcript alone tells of, and that does not reach outside: no record is made of it
    before it ends."""
    text = (
        "outlast: this call was cut off by the interruption, or was not started before it. It may have run in part; nothing of "
        "it runs any more. Your files are as it left them: look. Make it again if it is needed."
    )
    return Cut(start.id, start.name, start.input, text, start.lane)


def _truth(run: RunEngine, call: CallRecord, record: EffectRecord, settle_words: str) -> str:
    match record.state:
        case "confirmed" if record.intent.key.startswith(SHIM):
            if not has_result(record) or all(each.sure for each in call.outward):
                return f"outlast: it was done: {call.name}: {record.evidence or 'its program ended well'}. Do not repeat it."
            return f"outlast: {call.name}: {UNSURE[0].lower()}{UNSURE[1:]} Look before you repeat it."
        case "confirmed" if has_result(record):
            return recorded(run.journal.value(record.result))
        case "confirmed":
            return f"outlast: this call was cut off, but it did happen: {record.evidence or call.name}. Do not repeat it."
        case "did_not":
            why = f": {record.evidence}" if record.evidence else ""
            return f"outlast: this call was cut off before it did anything{why}. Make it again if it is still needed."
        case "failed":
            return f"outlast: this call was not let through: {record.evidence}"
        case "given_up" if not call.outward:
            return (
                "outlast: this call was cut off by the interruption before its result was recorded. It may have run in "
                "part; nothing of it runs any more. Your files are as it left them: look, and repeat what is missing."
            )
        case _:
            return (
                f"outlast: this call was cut off, and it is not known whether it happened ({record.evidence or call.name}). "
                f"Do not repeat it before you have looked. Then say what you found: `{settle_words} {record.id} --happened` "
                "or `--did-not`."
            )


def recorded(result: Any) -> str:
    """The text for an agent about a call whose result is on record."""
    output = result.get("output", "") if isinstance(result, dict) else result
    return shorten(str(output), RECORDED_CHARS_MAX) or "(no output)"


def missing(
    run: RunEngine, cuts: Sequence[Cut], ended: set[str], of_subagents: Container[str] = ()
) -> list[Cut]:
    """The calls whose result is missing in the transcript, or stands there although it is not known: an agent writes such a
    result when it is killed. Or it stands there for a sub-agent alone (`of_subagents`: effects)."""
    known = {
        record.intent.key
        for record in run.journal.record.effects.values()
        if (record.state == "failed" or has_result(record)) and record.id not in of_subagents
    }
    return [cut for cut in cuts if cut.id not in ended or cut.id not in known]


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _intent(run: RunEngine, key: str) -> ev.EffectIntended | None:
    for item in reversed(run.journal.store.read(run.id, after=0, key=key).events):
        if isinstance(item.event, ev.EffectIntended):
            return item.event
    return None
