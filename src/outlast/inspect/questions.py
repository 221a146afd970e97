"""What a run waits for a person to answer, as every surface shows it, and the whole of one question."""

from datetime import datetime

import msgspec

from outlast.core import events as ev, questions as qs
from outlast.core.secrets import mask
from outlast.core.state import RunState
from outlast.store.protocol import Store, Summary


class WaitsFor(msgspec.Struct, frozen=True, kw_only=True):
    """An open question. `text` is shortened and masked; `outlast approve RUN ID --dry-run` shows all of it."""

    id: str
    kind: ev.QuestionKind
    text: str
    choices: tuple[str, ...]
    since: datetime
    deadline: datetime | None
    call: str = ""  # the class of the call: push, publish, …
    target: str = ""
    command: str = ""  # that answers it


def waits_for(state: RunState) -> tuple[WaitsFor, ...]:
    """The open questions of a run, oldest first."""
    if not state.questions:
        return ()
    return tuple(
        WaitsFor(
            id=each.id, kind=each.kind, text=mask(each.text)[0], choices=each.choices, since=each.since,
            deadline=each.deadline, call=each.kind_of_call, target=mask(each.target)[0],
            command=answer_command(state.run, each),
        )
        for each in qs.open_among(state.questions)
    )  # fmt: skip


def answer_command(run: str, question: qs.Question) -> str:
    """How a question is answered; `outlast answer` without an answer shows the question and its choices."""
    if question.kind == "approval":
        return f"outlast approve {run} {question.id}"
    return f"outlast answer {run} --id {question.id}"


def whole_text(store: Store, summary: Summary, question: str) -> str:
    """The text of a question as its run asked it, masked."""
    after = 0
    while page := store.read(summary.run, after=after, tags=("question_asked",)).events:
        for item in page:
            if isinstance(item.event, ev.QuestionAsked) and item.event.id == question:
                return mask(item.event.text)[0]
        after = page[-1].seq
    return ""
