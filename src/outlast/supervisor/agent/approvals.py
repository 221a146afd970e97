"""What an agent's calls ask a person: the approval of one call, which lets it pass once, and the agent's own questions.

The rules are in `core/questions.py`, the person's acts in `acts/approve.py`."""

import re
import shlex
from collections.abc import Sequence

import msgspec

from outlast import decoders, faults
from outlast.agents import own_questions
from outlast.agents.events import ToolStart
from outlast.agents.own_questions import OwnQuestion
from outlast.core import events as ev, questions as qs
from outlast.core.questions import Approvals, Question
from outlast.core.secrets import mask
from outlast.core.text import call_words
from outlast.core.values import digest, shorten
from outlast.errors import UsageError, WaitsForPerson
from outlast.runs.engine.questions import TEXT_CHARS_MAX, Inquiry, check_question, event_of, waits
from outlast.runs.engine.steps import append
from outlast.supervisor.agent.calls.identity import likeness
from outlast.supervisor.agent.calls.record import CallRecord, OutwardCall
from outlast.supervisor.beat_in_flight import BeatInFlight

_ASIDE = ("description", "timeout")  # of a shell's command: words about it, and how long it may take
_REPEATS = re.compile(
    r"(?:^|[;&|({!\n'\"]|\b(?:do|then|else|time))\s*(?:for|while|until|select|repeat|function|watch)\s"
    r"|\(\s*\)\s*[{(]|\b(?:xargs|parallel|eval|trap|coproc)\s|-exec(?:dir)?\s"
)
REPEATS_MAX = 5  # of a call that waits: whoever makes it again and again does nothing else
_HOW: dict[ev.Answer, str] = {"rejected": "a person rejected it", "expired": "nobody answered in time, so it counts as rejected"}  # fmt: skip


class Ruling(msgspec.Struct, frozen=True):
    """What a person's answer, or its lack, means for a call. Without `words` it passes, and uses the approval of the `question`.

    `is_open`: nobody has answered yet."""

    question: str = ""
    words: str = ""
    is_open: bool = False


PASSES = Ruling()


class CallApprovals:
    """The approvals of the calls of one attempt. Users of this class hold the lock of the beat in flight."""

    def __init__(self, beats: BeatInFlight, wanted: Approvals, *, interactive: bool = False) -> None:
        self._run, self._wanted, self._interactive = beats.run, wanted, interactive
        self.defers = False  # whether the agent can put a call aside
        self.put_aside = ""  # the call that it has put aside: it ends then, and asks about that one call when it is resumed
        self._subjects: dict[str, CallRecord | None] = {}  # by question
        self._waiting: set[str] = set()  # in this attempt: its agent heard that they wait
        self._untold: set[str] = set()  # of earlier attempts, where this one began without a prompt
        self._heard: set[str] = set()  # the questions whose answers this attempt's agent has heard
        self.rejection = ""  # why the last call that was rejected was not made, in this attempt
        self._refused: dict[str, int] = {}  # how often its call was made again while a question was open

    # -- before a call ---------------------------------------------------------------------------------------------

    def judge(self, record: CallRecord) -> Ruling:
        """Whether a call may go. One that has to wait is asked about first: that is durable when this returns."""
        wanted = self._waiting_acts(record)
        if not wanted:
            return PASSES
        self._take_in()
        question = self._question(record, wanted)
        if question is None or (question.answer == "expired" and question.id in self._heard):
            question = self._ask(record, wanted)
            if question is None:
                return Ruling("", _FULL)
        elif question.is_open:
            self._refuse_repeating(question)
        if question.is_open:
            self._waiting.add(question.id)
            words = _WAITS_HERE if self._interactive else _WAITS
            return Ruling(question.id, words.format(id=question.id), is_open=True)
        self._heard.add(question.id)
        if question.answer == "approved":
            return Ruling(question.id)
        self.rejection = self._answer(question)
        return Ruling(question.id, f"outlast: this call was not made: {self.rejection}. {_DO_NOT}")

    def _waiting_acts(self, record: CallRecord) -> tuple[OutwardCall, ...]:
        """Which of a call's acts wait for a person: by class and target, or all where its tool is named."""
        wants = self._wanted
        if not wants:
            return ()
        if wants.wants("", record.tool):
            return record.outward
        return tuple(each for each in record.outward if wants.wants(each.kind, each.signature))

    def _take_in(self) -> None:
        """Answers that wait in the inbox count for the very next call, and so does a deadline that has passed."""
        if self._run.journal.lease.request_waits():
            self._run.drive(self._run.take_findings())
        self.expire()

    def expire(self) -> None:
        """Record that nobody answered in time."""
        events = qs.overdue(self._run.state.questions, self._run.journal.now())
        if events:
            self._run.drive(append(*events))

    def _question(self, record: CallRecord, wanted: Sequence[OutwardCall]) -> Question | None:
        """The newest question about this very call, open or answered and not used yet."""
        approvals = [each for each in self._run.state.questions if each.kind == "approval"]
        return next((each for each in reversed(approvals) if self._is_about(each, record, wanted)), None)

    def _is_about(self, question: Question, record: CallRecord, wanted: Sequence[OutwardCall]) -> bool:
        """Whether a question was asked about this very call: the same acts, no more and no fewer. Where an act's content is not
        known before it runs, or a call may make its acts more than once, every word of the call must be the same."""
        first = self._subject(question.id)
        if first is None:
            return False
        is_verbatim = _verbatim(first) == _verbatim(record)
        if not is_verbatim and (_may_repeat(first.input) or _may_repeat(record.input)):
            return False
        kinds = {"same", "unclear"} if is_verbatim else {"same"}
        left = list(self._waiting_acts(first))
        for each in wanted:  # one for one: what is approved once is made once
            found = next((act for act in left if likeness(act, each) in kinds), None)
            if found is None:
                return False
            left.remove(found)
        return not left

    def _subject(self, question: str) -> CallRecord | None:
        """The call that a question of this run was asked about; None for any other question."""
        if question not in self._subjects:
            journal = self._run.journal
            for event in journal.events("question_asked"):
                if isinstance(event, ev.QuestionAsked):
                    self._subjects[event.id] = _call_of(journal.value(event.subject))
        return self._subjects.get(question)

    def _ask(self, record: CallRecord, wanted: Sequence[OutwardCall]) -> Question | None:
        """Ask a person, durable when this returns. None where no more questions fit: none that is open is forgotten."""
        ask = Inquiry(
            kind="approval", text=in_words(record), digest=_digest(record, wanted),
            subject=self._run.journal.payload(msgspec.to_builtins(record)), within_s=self._wanted.within_s,
        )  # fmt: skip
        target = mask(", ".join(each.signature for each in wanted))[0]
        question = self._recorded(ask, wanted[0].kind, target)
        if question is not None:
            self._subjects[question.id] = record
        return question

    def _recorded(self, ask: Inquiry, kind_of_call: str, target: str) -> Question | None:
        run = self._run
        if len(qs.open_among(run.state.questions)) >= qs.QUESTIONS_MAX:
            return None
        event = event_of(run.state, ask, run.journal.now(), kind_of_call=kind_of_call, target=target)
        faults.point("ask.before")
        run.drive(append(event))
        faults.point("ask.recorded")
        return next(each for each in run.state.questions if each.id == event.id)

    def _refuse_repeating(self, question: Question) -> None:
        """Raise WaitsForPerson where the same call is made again and again: nothing else is done meanwhile."""
        self._refused[question.id] = self._refused.get(question.id, 0) + 1
        if self._refused[question.id] >= REPEATS_MAX:
            raise self._waits_for()

    def puts_aside(self, start: ToolStart) -> bool:
        """Whether the agent is to put this call aside, which waits: a single one of its own, for it remembers no more."""
        is_it = self.defers and not start.lane and self.put_aside in ("", start.id)
        self.put_aside = start.id if is_it else self.put_aside
        return is_it

    # -- its own questions -----------------------------------------------------------------------------------------

    def own_question(self, start: ToolStart, given: object) -> OwnQuestion | None:
        """The question in a call that asks the agent's user, where nobody is there to see it."""
        return None if self._interactive else own_questions.read(start.name, given)

    def ask(self, own: OwnQuestion) -> str:
        """The words with which a call that asks the user is answered: with a person's answer, or that it waits for that. The
        question is durable when this returns."""
        self._take_in()
        bound = digest(msgspec.json.encode(["own", own.text, own.choices]))
        question = qs.of_call(self._run.state.questions, "question", bound)
        if question is None or (question.answer == "expired" and question.id in self._heard):
            question = self._put(own, bound)
            if question is None:
                return _FULL
        elif question.is_open:
            self._refuse_repeating(question)
        self._note_heard(question)
        return f"outlast: nobody is at the terminal. {self._of_question(question)}"

    def _put(self, own: OwnQuestion, bound: str) -> Question | None:
        try:
            text, choices = own.text, check_question(own.text, own.choices)
        except UsageError:  # more than a person chooses from: they are part of the text
            text, choices = shorten("\n".join([own.text, *own.choices]), TEXT_CHARS_MAX), ()
        return self._recorded(
            Inquiry(kind="question", text=mask(text)[0], digest=bound, choices=choices), "", ""
        )

    # -- what the agent hears --------------------------------------------------------------------------------------

    def for_prompt(self) -> list[str]:
        """The lines of a first prompt about what waits for a person, and what a person has answered."""
        self.expire()
        lines = []
        for question in self._run.state.questions:
            if question.kind == "question":
                lines.append(self._of_question(question))
            elif self._subject(question.id) is not None:
                lines.append(f"{question.text} ({question.id}): {self._of_call(question)}")
            else:
                continue
            self._note_heard(question)
        return lines

    def tell_later(self) -> None:
        """The attempt begins without a prompt: what a prompt would say of answers, `news` says with the result of its first call."""
        self.expire()
        for question in self._run.state.questions:
            if question.kind == "question" or self._subject(question.id) is not None:
                self._untold.add(question.id)

    @property
    def _unheard(self) -> set[str]:
        return (self._waiting | self._untold) - self._heard

    def news(self) -> list[str]:
        """The words about what was answered since the agent heard that it waits. Each once."""
        found = []
        for question in self._run.state.questions:
            if question.id in self._unheard and not question.is_open:
                self._heard.add(question.id)
                is_call = question.kind == "approval"
                words = f"{question.text} ({question.id}): {self._of_call(question)}"
                found.append(f"outlast: {words if is_call else self._of_question(question)}")
        return found

    def _of_call(self, question: Question) -> str:
        if question.is_open:
            return "it still waits for a person's approval. It was not made; do not make it again before it is approved."
        if question.answer == "approved":
            reply = self._reply(question)
            words = f" They say: {reply}." if reply else ""
            return f"a person approved it.{words} It was not made yet: make this call now, exactly as it was. It passes once."
        return f"it was not made: {self._answer(question)}. {_DO_NOT}"

    def _of_question(self, question: Question) -> str:
        question_words = f"You asked a person {question.text!r} ({question.id})"
        if question.is_open:
            return (
                f"{question_words}: nobody has answered yet. Do not ask again. If there is work that does not need the answer, do that; else "
                "end your turn now: you are started again when there is one."
            )
        if question.answer == "answered":
            return f"{question_words}. Their answer: {self._reply(question)}"
        return f"{question_words}, and got no answer: {self._answer(question)}. Decide without it, or end and say what is left to do."

    def _answer(self, question: Question) -> str:
        """Why a question has no approval and no answer."""
        reply = self._reply(question)
        how = _HOW.get(question.answer or "rejected", "it was not approved")
        return f"{how} ({question.id}{': ' + reply if reply else ''})"

    def _reply(self, question: Question) -> str:
        """All that the person said: the head has its beginning."""
        for event in self._run.journal.events("question_answered"):
            if isinstance(event, ev.QuestionAnswered) and event.id == question.id:
                return event.text
        return question.reply

    def _note_heard(self, question: Question) -> None:
        if question.is_open:
            self._waiting.add(question.id)
        else:
            self._heard.add(question.id)

    # -- the end of the attempt ------------------------------------------------------------------------------------

    @property
    def has_waiting(self) -> bool:
        """Whether a call of this attempt was not let through because it waits."""
        return bool(self._waiting)

    @property
    def waits(self) -> bool:
        """Whether somebody has to answer, or the agent of this attempt has not heard an answer."""
        questions = self._run.state.questions
        answered = {each.id for each in questions if not each.is_open}
        return bool(qs.open_among(questions) or answered & self._unheard)

    def finish(self) -> None:
        """The agent or command ended. Raises WaitsForPerson while somebody has to answer, and where it has not heard an
        answer: it goes on then."""
        self._take_in()
        if self.waits:
            raise self._waits_for()

    def _waits_for(self) -> WaitsForPerson:
        waiting = qs.open_among(self._run.state.questions)
        if waiting:
            return waits(self._run.id, waiting)
        return WaitsForPerson("a person has answered meanwhile", questions=())


_WAITS = (
    "outlast: this call waits for a person's approval ({id}). It was not made. Do not make it again, and do not do the same in "
    "another way. If there is work that does not need it, do that; else end your turn now: when somebody has answered, you are "
    "started again and told."
)
_WAITS_HERE = (
    "outlast: this call waits for a person's approval ({id}: `outlast approve` in another terminal). It was not made. Make it "
    "again when it is approved, exactly as it was, and not before; do not do the same in another way."
)
_FULL = (
    f"outlast: this call needs a person, and {qs.QUESTIONS_MAX} others wait for one already. It was not made. End your turn now; "
    "make it when some of them are answered."
)
_DO_NOT = "Do not make it again, and do not do the same in another way: go on without it, or end and say what is left to do."


def in_words(record: CallRecord) -> str:
    """The call as a person reads it, without secrets."""
    if isinstance(record.input, list):
        words = shlex.join(map(str, record.input))
    elif any(each.kind == "mcp" for each in record.outward):  # no field of it says more than the others
        words = f"{record.tool} {msgspec.json.encode(record.input).decode()}"
    else:
        words = call_words(record.tool, record.input)
    return shorten(mask(words)[0], TEXT_CHARS_MAX)


def _digest(record: CallRecord, wanted: Sequence[OutwardCall]) -> str:
    """A digest of the acts that were asked about; two calls with one digest are the same."""
    acts = sorted((each.kind, each.signature, each.content) for each in wanted)
    return digest(msgspec.json.encode([acts, _verbatim(record)]))


def _verbatim(record: CallRecord) -> list[object]:
    """Every word of the call that matters, and where it is made."""
    given = record.input
    if isinstance(given, dict):
        given = {name: value for name, value in given.items() if name not in _ASIDE}
    return [record.tool, given, record.cwd]


def _may_repeat(given: object) -> bool:
    """Whether a shell's text has what makes a command of it run again: then its acts do not say how often they are made."""
    if isinstance(given, dict | list):
        return any(map(_may_repeat, given.values() if isinstance(given, dict) else given))
    return isinstance(given, str) and _REPEATS.search(given) is not None


def _call_of(subject: object) -> CallRecord | None:
    try:
        return decoders.convert(subject, CallRecord)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
