"""What a run waits for a person to answer, as every surface shows it, and the whole of one question."""

from datetime import datetime

import msgspec

from outlast.core import events as ev, questions as qs, statuses
from outlast.core.secrets import mask, mask_json
from outlast.core.state import RunState
from outlast.core.values import NOTHING
from outlast.runs import reader
from outlast.store.protocol import Store, Summary

_ASIDE = ("description", "timeout")  # of a shell's command: words about it, and how long it may take


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
    """The open questions of a run, oldest first; none where it does not go on here."""
    if not state.questions or state.status in statuses.CLOSED:
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
    event = _question_event(store, summary, question)
    return mask(event.text)[0] if event is not None else ""


def whole_call(store: Store, summary: Summary, question: str) -> str:
    """All that a call would be given, masked, as JSON; empty where the question's text says all of it."""
    event = _question_event(store, summary, question)
    if event is None or event.subject == NOTHING:
        return ""
    content: object
    match reader.value_of(store, event.subject):
        case {"tool": str(), "input": given, **rest}:  # of an agent
            is_whole = _says_all(event.text, given)
            content = {"input": given} | ({"cwd": rest["cwd"]} if rest.get("cwd") else {})
        case given:
            is_whole = True
            content = given
    if is_whole and not event.text.endswith("…"):
        return ""
    return mask_json(msgspec.json.encode(content))[0].decode()


def _says_all(text: str, given: object) -> bool:
    """Whether the words of a call have everything that is in it, but for what it says about itself."""
    if isinstance(given, dict):
        return all(_says_all(text, each) for name, each in given.items() if name not in _ASIDE)
    if isinstance(given, list):
        return all(_says_all(text, each) for each in given)
    return msgspec.json.encode(given).decode() in text or str(given) in text


def _question_event(store: Store, summary: Summary, question: str) -> ev.QuestionAsked | None:
    after = 0
    while page := store.read(summary.run, after=after, tags=("question_asked",)).events:
        for item in page:
            if isinstance(item.event, ev.QuestionAsked) and item.event.id == question:
                return item.event
        after = page[-1].seq
    return None
