"""Calls of beats that are over whose outcome nobody knows: the resumed agent learns that.

They ran in the background when their attempt ended. `interruptions.settled` has what was found out about others."""

from collections.abc import Iterable

from outlast.agents.values import Cut
from outlast.core import events as ev
from outlast.core.state import OpenEffect
from outlast.core.values import NULL
from outlast.runs.engine.run import RunEngine
from outlast.supervisor.agent.calls.history import doubted
from outlast.supervisor.agent.calls.record import told_of


def left(run: RunEngine) -> list[OpenEffect]:
    """Those that ran on when the last attempt ended, for no other call is open in a beat that is done; and those whose agent
    may not know yet that they are in doubt, as when an attempt was killed before it could tell."""
    unheard = doubted(run.journal)
    return [
        effect
        for effect in run.state.effects_open
        if effect.policy == "tell"
        and effect.beat <= run.state.beats
        and (effect.state == "intended" or effect.id in unheard)
    ]


def cuts(run: RunEngine, were_left: Iterable[OpenEffect], settle: str) -> list[Cut]:
    """What to tell the agent of those whose outcome outlast did not find out."""
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
        told = told_of(run.journal, intent) if intent is not None else None
        if told is not None and effect.id in still:
            how = "ran in the background and was cut off" if effect.state == "intended" else "was cut off"
            text = (
                f"outlast: {told.name} {how}; it is not known whether it happened. Do not repeat "
                f"it before you have looked. Then say what you found: `{settle} {effect.id} --happened` or `--did-not`."
            )
            found.append(Cut(told.call or effect.key, told.tool, NULL, text, told.lane))
    return found
