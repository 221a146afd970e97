"""Calls of finished beats whose outcome is unknown: the resumed agent is told of them.

They ran in the background when their attempt ended. `interruptions.settled` has what outlast found out about others."""

from collections.abc import Iterable

from outlast.agents.values import Cut
from outlast.core import events as ev
from outlast.core.state import OpenEffect
from outlast.core.values import NULL
from outlast.runs.engine.run import RunEngine
from outlast.supervisor.agent.calls.history import doubted
from outlast.supervisor.agent.calls.record import call_record_of


def left(run: RunEngine) -> list[OpenEffect]:
    """Calls that ran on when the last attempt ended (no other call is open in a finished beat), and calls in doubt whose agent
    may not know that yet, as when an attempt was killed before it could report them."""
    unheard = doubted(run.journal)
    return [
        effect
        for effect in run.state.effects_open
        if effect.policy == "tell"
        and effect.beat <= run.state.beats
        and (effect.state == "intended" or effect.id in unheard)
    ]


def cuts(run: RunEngine, were_left: Iterable[OpenEffect], settle: str) -> list[Cut]:
    """The messages for the agent about those calls that are still in doubt."""
    still = {effect.id for effect in run.state.in_doubt}
    found = []
    for effect in were_left:
        intent = next(
            (
                item.event
                for item in run.journal.store.read(run.id, after=0, key=effect.key).events
                if isinstance(item.event, ev.EffectIntended)
            ),
            None,
        )
        call = call_record_of(run.journal, intent) if intent is not None else None
        if call is not None and effect.id in still:
            how = "ran in the background and was cut off" if effect.state == "intended" else "was cut off"
            text = (
                f"outlast: {call.name} {how}; it is not known whether it happened. Do not repeat "
                f"it before you have looked. Then say what you found: `{settle} {effect.id} --happened` or `--did-not`."
            )
            found.append(Cut(call.call or effect.key, call.tool, NULL, text, call.lane))
    return found
