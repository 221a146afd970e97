"""Says in whole sentences what an act will do to a run now, and which command does the same. Changes nothing."""

import msgspec

from outlast.acts.fork import ForkPlan
from outlast.core.text import short
from outlast.dashboard.actions import forms, wishes
from outlast.dashboard.actions.forms import line
from outlast.dashboard.documents import ActName, Foreseen, Wish
from outlast.errors import OutlastError
from outlast.store.protocol import Store

TITLES: dict[ActName, str] = {
    "pause": "Pause", "resume": "Resume", "cancel": "Cancel", "budget": "Add budget to", "settle": "Settle an effect of",
    "fork": "Fork", "restore": "Restore a save of", "approve": "Approve a call of", "reject": "Reject what waits in",
    "answer": "Answer",
}  # fmt: skip


def foresee(store: Store, wish: Wish) -> Foreseen:
    """The preview of an act, or the reason why it is refused. Writes nothing."""
    title, takes = f"{TITLES[wish.act]} run {short(wish.run, 40)}", wishes.TAKES[wish.act]

    def shown(text: str) -> str:
        return forms.led(store, line(text))

    try:
        summary = forms.run_of(store, forms.checked(wish))
        title = line(f"{TITLES[wish.act]} run {summary.run} of task {summary.task}")
        takes = wishes.takes(store, summary, wish.act)
        wish = wishes.suggested(store, summary, wish)
        lack = wishes.lacking(store, summary, wish)
        if lack is not None:
            says = tuple(map(shown, lack.sentences))
            return Foreseen(wish=wish, title=title, says=says, command="", takes=takes, lacks=lack.fields)
        with wishes.planned(store, summary, wish) as plan:
            if isinstance(plan, ForkPlan):
                wish = msgspec.structs.replace(wish, task=plan.task)
            says, command = tuple(map(shown, plan.sentences)), forms.command(store, *plan.command)
    except (OutlastError, OSError) as error:
        refused, hint = forms.error_lines(error)
        return Foreseen(
            wish=wish, title=title, says=(), command="", refused=shown(refused), hint=shown(hint), takes=takes
        )
    return Foreseen(wish=wish, title=title, says=says, takes=takes, command=command)
