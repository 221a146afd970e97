"""Asking a person from inside a run: the question on record, the wait for its answer, the use of that.

The rules are in `core/questions.py`; the agents' calls ask in `supervisor/agent`, with the same events."""

import shlex
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from outlast import faults
from outlast.core import events as ev, questions as qs, state as st
from outlast.core.secrets import mask
from outlast.core.values import NOTHING, Payload, digest, shorten
from outlast.errors import NotAnswered, NotApproved, UsageError, WaitsForPerson
from outlast.runs.engine.steps import Append, Steps
from outlast.store.protocol import Request

TEXT_CHARS_MAX = 4_000
REPLY_CHARS_MAX = 4_000
CHOICE_CHARS_MAX = 100


class AnswerArgs(msgspec.Struct, frozen=True):
    """A person's answer to a question, as a request brings it."""

    question: str
    answer: ev.Answer
    text: str = ""


class Inquiry(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a person. `digest` binds the answer to one call; `beat` is 0 where the answer outlives its beat."""

    kind: ev.QuestionKind
    text: str
    digest: str
    choices: tuple[str, ...] = ()
    subject: Payload = NOTHING
    beat: int = 0
    within_s: int = 0  # 0: for ever


def of_act(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], key: str, arguments: str, subject: Payload, beat: int, within_s: int
) -> Inquiry:  # fmt: skip
    """The question about exactly this act: its key and the digest of its `arguments` bind the answer to it."""
    bound = digest(msgspec.json.encode((name, key, arguments)))
    text = mask(shorten(_call_words(name, args, kwargs), TEXT_CHARS_MAX))[0]
    return Inquiry(kind="approval", text=text, digest=bound, subject=subject, beat=beat, within_s=within_s)


def _call_words(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A call as a person reads it: `pay(10, to="ada")`, or the command line of a script's effect."""
    if (
        len(args) == 1
        and not kwargs
        and isinstance(args[0], list)
        and all(isinstance(each, str) for each in args[0])
    ):
        return f"{name}: {shlex.join(args[0])}"
    values = [msgspec.json.encode(each).decode() for each in args]
    values += [f"{word}={msgspec.json.encode(each).decode()}" for word, each in kwargs.items()]
    return f"{name}({', '.join(values)})"


class Asker(Protocol):
    """The part of a journal that a question needs."""

    @property
    def run(self) -> str: ...
    @property
    def state(self) -> st.RunState: ...
    def now(self) -> datetime: ...
    def in_beat(self, event: ev.AnyEvent) -> Append: ...
    def events(self, *tags: str, after: int = 0) -> Iterable[ev.AnyEvent]: ...
    def take_requests(self, *, if_rung: bool = False) -> Steps: ...


def approval(port: Asker, ask: Inquiry) -> Steps:
    """The id of the approval that this call may use now, for the intent that uses it up.

    Raises WaitsForPerson while nobody has answered, with the question on record; NotApproved where a person said no, or
    nobody answered in time.
    """
    found = yield from _answered(port, ask)
    if found.answer == "approved":
        return found.id
    reason = _reply_to(port, found)
    raise NotApproved(
        f"{ask.text} was not approved: {reason}", reason=reason, by=found.by,
        hint=f"see `outlast show {port.run}`; nothing was performed",
    )  # fmt: skip


def reply(port: Asker, ask: Inquiry) -> Steps:
    """The id of an answered question, and the answer. Raises WaitsForPerson, NotAnswered."""
    found = yield from _answered(port, ask)
    text = _reply_to(port, found)
    if found.answer == "answered":
        return found.id, text
    raise NotAnswered(f"{ask.text!r} was not answered: {text}", reason=text, by=found.by)


def _answered(port: Asker, ask: Inquiry) -> Steps:
    """The question about exactly this call, answered; else it is put on record, and WaitsForPerson raised."""
    yield from port.take_requests()
    found = qs.of_call(port.state.questions, ask.kind, ask.digest)
    if found is not None and found.is_overdue(port.now()):
        yield Append(tuple(qs.overdue((found,), port.now())))
        found = qs.of_call(port.state.questions, ask.kind, ask.digest)
    if found is None:
        event = event_of(port.state, ask, port.now())
        faults.point("ask.before")
        yield port.in_beat(event)
        faults.point("ask.recorded")
        found = qs.of_call(port.state.questions, ask.kind, ask.digest)
        assert found is not None, "a question on record is found again by its digest"
    if found.is_open:
        raise waits(port.run, (found,))
    return found


def event_of(
    state: st.RunState, ask: Inquiry, now: datetime, *, kind_of_call: str = "", target: str = ""
) -> ev.QuestionAsked:
    """The event that asks. Raises UsageError where too much is open already."""
    if len(qs.open_among(state.questions)) >= qs.QUESTIONS_MAX:
        raise UsageError(
            f"run {state.run} waits for {qs.QUESTIONS_MAX} answers already",
            hint=f"`outlast show {state.run}` lists them: answer some first",
        )
    deadline = now + timedelta(seconds=ask.within_s) if ask.within_s else None
    return ev.QuestionAsked(
        at=now, id=qs.next_id(ask.kind, state.questions_total), kind=ask.kind, text=shorten(ask.text, TEXT_CHARS_MAX),
        choices=ask.choices, subject=ask.subject, digest=ask.digest, kind_of_call=kind_of_call, target=target,
        beat=ask.beat, deadline=deadline,
    )  # fmt: skip


def waits(run: str, found: qs.Questions) -> WaitsForPerson:
    """The error for questions that nobody has answered."""
    first = found[0]
    if first.kind == "approval":
        hint = f"`outlast approve {run} {first.id}`, or `outlast reject {run} {first.id}`"
    else:
        hint = f"`outlast answer {run} --id {first.id}` shows its choices, and takes the answer behind it"
    what = "; ".join(f"{each.id} {shorten(each.text, 200)}" for each in found)
    return WaitsForPerson(
        f"run {run} waits for a person: {what}",
        questions=tuple(each.id for each in found),
        what=what,
        hint=hint,
    )


def answered(state: st.RunState, args: AnswerArgs, by: str, now: datetime) -> list[ev.AnyEvent]:
    """The event that answers a question, or none if it is not open any more: the first answer counts, also an expiry's."""
    found = next((each for each in state.questions if each.id == args.question and each.is_open), None)
    if found is None:
        return []
    if found.is_overdue(now):
        return [*qs.overdue((found,), now)]
    return [ev.QuestionAnswered(at=now, id=found.id, answer=args.answer, text=args.text, by=by)]


def waiting_answers(requests: Iterable[Request]) -> list[Request]:
    """The answers among the requests in a run's inbox."""
    return [each for each in requests if each.what == ANSWER]


ANSWER = "answer"  # the request that brings one


def _reply_to(port: Asker, found: qs.Question) -> str:
    """The whole text of an answer: the head has its beginning."""
    if not found.reply.endswith("…"):
        return found.reply or ("no reason given" if found.answer != "answered" else "")
    return next(
        (
            event.text
            for event in port.events("question_answered")
            if isinstance(event, ev.QuestionAnswered) and event.id == found.id
        ),
        found.reply,
    )


def check_question(text: Any, choices: Any) -> tuple[str, ...]:
    """The choices of a question. Raises UsageError for what nobody could read or choose."""
    if not isinstance(text, str) or not text.strip() or len(text) > TEXT_CHARS_MAX:
        raise UsageError(
            f"a question must be a text of 1 to {TEXT_CHARS_MAX:,} characters, got {text!r:.60}",
            hint='like ask("which API?", choices=["v1", "v2"])',
        )
    found = tuple(choices)
    if isinstance(choices, str) or not all(
        isinstance(each, str) and len(each.strip()) > 0 and len(each) <= CHOICE_CHARS_MAX and each.isprintable()
        for each in found
    ):
        raise UsageError(
            f"choices must be a list of short texts, got {choices!r:.60}",
            hint=f"each 1 to {CHOICE_CHARS_MAX} characters on one line, like choices=['v1', 'v2']",
        )
    room = sum(len(each.encode()) + 3 for each in found)
    if len(set(found)) < len(found) or len(found) > qs.CHOICES_MAX or room > qs.CHOICES_BYTES_MAX:
        raise UsageError(
            f"a question has at most {qs.CHOICES_MAX} different choices, of {qs.CHOICES_BYTES_MAX} bytes together",
            hint="put the details into the question",
        )
    return found
