"""Doing what a page or the API asks for: the plan of the act, applied. An error becomes an outcome."""

from outlast.core.text import short
from outlast.dashboard.actions import forms, wishes
from outlast.dashboard.actions.once import OnceOnly
from outlast.dashboard.actions.preview import foresee
from outlast.dashboard.documents import Done, Wish
from outlast.dashboard.timing import Timing
from outlast.errors import OutlastError
from outlast.runs import attempts
from outlast.store.protocol import Store

__all__ = ["OnceOnly", "do", "foresee"]


def do(store: Store, wish: Wish, by: str) -> Done:
    """Do it, and say what became of it; done, or asked of the run's holder, when it returns. Nothing is raised for bad input.

    Which fields of a wish an act takes:

    pause, cancel   none
    resume          `amounts`, as `resume --budget` takes them, and `until=TIME`; `limit_was`
    budget          `amounts` to be put on top: `+200k`, `usd=+2 beats=+10`; `limit_was`, the allowance they were chosen for
    settle          `effect`, `finding`, `result` (JSON, or a plain text)
    fork            `beat`; `task`; `folder`, a new one for its files; `amounts`, moved to it where the source has a budget
    restore         `save`, `folder` (a new one)
    approve         `question`, its id; empty for the only one
    reject          `question`; `text`, the reason
    answer          `question`; `text`, the answer
    """
    by = forms.who(by)
    try:
        summary = forms.run_of(store, forms.checked(wish))
        lack = wishes.lacking(store, summary, wish)
        if lack is not None:
            raise lack.refusal
        with wishes.planned(store, summary, wish, wait=True, git_s=Timing.current().written_within_s) as plan:
            outcome = plan.apply(by)
    except (OutlastError, OSError) as error:
        says, hint = forms.error_lines(error)
        return Done(
            wish=wish, at=attempts.now(), by=by, ok=False, changed=False, says=_shown(store, says), link=wish.run,
            hint=_shown(store, hint or f"see `outlast show {short(wish.run, 40)}`"),
        )  # fmt: skip
    link = outcome.link or wish.run
    return Done(
        wish=wish, at=attempts.now(), by=by, ok=outcome.ok, changed=outcome.changed, says=_shown(store, outcome.says),
        hint=_shown(store, outcome.hint), link=link, next=outcome.next, next_run=link if outcome.next else "",
        folder=outcome.folder,
    )  # fmt: skip


def _shown(store: Store, text: str) -> str:
    """A sentence whose commands can be pasted."""
    return forms.led(store, forms.line(text))
