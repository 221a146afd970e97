"""From what happened to a run to a notice of it, and onto its way: sent by a process of its own (`notifications.delivery`)."""

import contextlib
import os
import re
from datetime import UTC, datetime

from outlast.core import questions as qs, state as st, verdict
from outlast.core.secrets import mask
from outlast.errors import OutlastError
from outlast.inspect import find, show, standing
from outlast.notifications import delivery, outbox
from outlast.notifications.channels import selection
from outlast.notifications.notice import KINDS as KINDS, LINE_CHARS_MAX, Notice, NoticeAct, clean, line_of
from outlast.processes import proc, reap
from outlast.settings import Settings
from outlast.store.protocol import RunFilter, Store

_GOAL_CHARS_MAX = 500
_WHY_CHARS_MAX = 1_000
_NAME = re.compile(r"[:(\s]")  # behind the name of an act come its arguments
QUESTION_CHARS_MAX = 120
_RESTS = ("parked", "paused", "failed", "quarantined", "interrupted")


def send(settings: Settings, what: str, why: str, state: st.RunState, store: Store) -> None:
    """Tell the person of this once, on every channel that is set. Nothing of it is waited for, and nothing is raised."""
    if not selection.of(settings):
        return
    with contextlib.suppress(OSError):
        if outbox.add(store.local, of(what, why, state, store)):
            delivery.start(store.local, within_run=is_within_run())


def is_within_run() -> bool:
    """Whether this process was started inside of a run: by the mark in its environment, or in that of a process above it."""
    return any(proc.environ_value(each.pid, reap.MARK) for each in proc.lineage(os.getpid()))


def of(what: str, why: str, state: st.RunState, store: Store) -> Notice:
    """The notice of a run as it is now. The words of its agent in it are masked and short."""
    at = datetime.now(UTC)
    found = verdict.of(state, state.status, at)
    name, waits = _name(state, store), _waits(what, state)
    why = _asks(waits[0]) if waits else why
    return Notice(
        what=what, why=clean(why, _WHY_CHARS_MAX), run=state.run, task=mask(state.task)[0], project=state.project,
        goal=clean(state.title, _GOAL_CHARS_MAX), status=state.status, cause=show.cause_of(state), standing=found.word,
        needs=found.need, beats=state.beats, workspace=state.workspace or None, last_save=state.last_save or None, at=at,
        line=_line(what, why, state), command=_command(what, state, store, name, at), acts=_acts(what, state, store),
        # Each level of a budget and each question has a notice of its own.
        about=why if what == "budget" else ",".join(each.id for each in waits),
    )  # fmt: skip


def _command(what: str, state: st.RunState, store: Store, name: str, at: datetime) -> str:
    """What to type, on any terminal of this machine. Where several runs have the task's name, the run's id stands for it."""
    if what in ("done", "budget"):
        return f"outlast show {name}"
    with contextlib.suppress(OutlastError):
        step = standing.of(state, state.status, at, find.children_in(store)).next
        if step.startswith("outlast "):
            return step.replace(state.run, name, 1)
    return f"outlast show {name}"


def _name(state: st.RunState, store: Store) -> str:
    """The shortest name that means this run alone, wherever it is typed. A task with a secret in it is not named."""
    if mask(state.task)[0] != state.task:
        return state.run
    with contextlib.suppress(OutlastError):
        same = store.list(RunFilter(task=state.task, parent=""), limit=2)
        if len(same) == 1 and state.task.isascii() and state.task.replace("-", "").replace("_", "").isalnum():
            return state.task
    return state.run


def _waits(what: str, state: st.RunState) -> qs.Questions:
    """The questions that a notice is about, oldest first."""
    return qs.waited_for(state.questions, state.waits) if what == "needs a person" else ()


def _line(what: str, why: str, state: st.RunState) -> str:
    """What is needed, on which run. Of a call that waits its class and target are named, not the command."""
    waits = _waits(what, state)
    if not waits:
        return line_of(state.task, what, why)
    more = f" (and {len(waits) - 1} more)" if len(waits) > 1 else ""
    return clean(f"{clean(state.task, 60)} {_asks(waits[0])}{more}", LINE_CHARS_MAX)


def _asks(question: qs.Question) -> str:
    """What a question asks for: of a call its class and target, of an act its name, never the arguments."""
    if question.kind == "approval":
        call = " ".join(filter(None, (question.kind_of_call, question.target)))
        return (
            f"waits for your approval of {clean(call or _NAME.split(question.text)[0], QUESTION_CHARS_MAX)}"
        )
    choices = f" [{', '.join(question.choices)}]" if question.choices else ""
    return f"asks: {clean(question.text, QUESTION_CHARS_MAX)}{clean(choices, QUESTION_CHARS_MAX)}"


def _acts(what: str, state: st.RunState, store: Store) -> tuple[NoticeAct, ...]:
    """The acts that help, for the buttons of the notice: about its first question, its only doubt, or a resume."""
    for first in _waits(what, state)[:1]:
        words = (
            (("approve", "Approve"), ("reject", "Reject"))
            if first.kind == "approval"
            else (("answer", "Answer"),)
        )
        return tuple(
            NoticeAct(act=act, subject=first.id, label=label, until=first.deadline) for act, label in words
        )
    with contextlib.suppress(OutlastError):
        doubts = verdict.to_settle(find.children_in(store), state)
        if doubts:
            run, effect = doubts[0]
            settle = NoticeAct(act="settle", subject=effect.id, label="Say what happened")
            return (settle,) if len(doubts) == 1 and run == state.run else ()
    if what == "done" or state.status not in _RESTS:
        return ()
    return (NoticeAct(act="resume", subject=str(state.attempts), label="Resume"),)
