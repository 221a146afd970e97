"""What a run asks a person: approvals and questions, as its head holds them, and the rules about them. Pure.

An answer counts for one call only: an approval is used up by the intent that names it, an answer by the decision that does."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from outlast.core import events as ev
from outlast.core.values import clip

QUESTIONS_MAX = 16  # of one run: the open ones, and those whose answer nobody has used yet
CHOICES_MAX = 16
TEXT_BYTES_MAX, CHOICES_BYTES_MAX, TARGET_BYTES_MAX, REPLY_BYTES_MAX = 400, 400, 200, 400
ID_BYTES_MAX = 120
_LETTERS: dict[ev.QuestionKind, str] = {"approval": "a", "question": "q"}


class Question(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One question in a run's head, shortened: the journal has all of it. `answer` is empty while it is open."""

    id: str
    kind: ev.QuestionKind
    text: str
    since: datetime
    choices: tuple[str, ...] = ()
    digest: str = ""
    kind_of_call: str = ""
    target: str = ""
    beat: int = 0
    n: int = 0
    deadline: datetime | None = None
    answer: ev.Answer | None = None
    reply: str = ""
    by: str = ""

    @property
    def is_open(self) -> bool:
        """Whether nobody has answered it."""
        return self.answer is None

    @property
    def effect(self) -> str:
        """The id of the effect that it is about; empty if it has none."""
        return f"{self.beat}.{self.n}" if self.n else ""

    def is_overdue(self, now: datetime) -> bool:
        """Whether its deadline passed without an answer."""
        return self.is_open and self.deadline is not None and self.deadline <= now


Questions = tuple[Question, ...]


# -- the fold ----------------------------------------------------------------------------------------------------------


def next_id(kind: ev.QuestionKind, total: int) -> str:
    """The id of the next question of a run that has asked `total` so far: short, for people type it."""
    return f"{_LETTERS[kind]}{total + 1}"


def with_question(questions: Questions, event: ev.QuestionAsked) -> Questions:
    """With one more question. The oldest answers that nobody used make room: their calls ask again."""
    question = Question(
        id=clip(event.id, ID_BYTES_MAX), kind=event.kind, text=clip(event.text, TEXT_BYTES_MAX), since=event.at,
        choices=_clipped(event.choices), digest=clip(event.digest, ID_BYTES_MAX),
        kind_of_call=clip(event.kind_of_call, ID_BYTES_MAX), target=clip(event.target, TARGET_BYTES_MAX),
        beat=event.beat, n=event.n, deadline=event.deadline,
    )  # fmt: skip
    others = [each for each in questions if each.id != question.id]
    while len(others) >= QUESTIONS_MAX:
        others.remove(next((each for each in others if not each.is_open), others[0]))
    return (*others, question)


def after_answered(questions: Questions, event: ev.QuestionAnswered) -> Questions:
    """With an answer. Only the first answer counts; a withdrawn question is gone."""
    changed = []
    for each in questions:
        if each.id != event.id or not each.is_open:
            changed.append(each)
        elif event.answer != "withdrawn":
            reply, by = clip(event.text, REPLY_BYTES_MAX), clip(event.by, ID_BYTES_MAX)
            changed.append(msgspec.structs.replace(each, answer=event.answer, reply=reply, by=by))
    return tuple(changed)


def after_use(questions: Questions, wanted: str) -> Questions:
    """Without the question whose answer was used: it counts no second time."""
    return tuple(each for each in questions if each.id != wanted) if wanted else questions


def after_beat(questions: Questions, beat: int) -> Questions:
    """Without the questions of a beat that has ended: nothing can use their answers any more."""
    return tuple(each for each in questions if not 0 < each.beat <= beat) if questions else questions


def without_expired(questions: Questions) -> Questions:
    """Without the questions that nobody answered in time: their calls ask again. What a person rejected stays rejected."""
    return tuple(each for each in questions if each.answer != "expired") if questions else questions


def in_words(event: ev.QuestionAnswered) -> str:
    """An answer as the evidence of how a run stands."""
    by = f" by {event.by}" if event.by else ""
    return clip(f"{event.id} {event.answer}{by}" + (f": {event.text}" if event.text else ""), REPLY_BYTES_MAX)


def _clipped(choices: Iterable[str]) -> tuple[str, ...]:
    """The choices that fit into a head."""
    found: list[str] = []
    room = CHOICES_BYTES_MAX
    for choice in choices:
        room -= len(choice.encode()) + 3
        if room < 0 or len(found) == CHOICES_MAX:
            break
        found.append(choice)
    return tuple(found)


# -- the rules ---------------------------------------------------------------------------------------------------------


def open_among(questions: Questions) -> Questions:
    """The questions that nobody has answered, oldest first."""
    return tuple(each for each in questions if each.is_open)


def of_call(questions: Questions, kind: ev.QuestionKind, digest: str) -> Question | None:
    """The newest question about exactly this call, open or answered and not used yet."""
    return next((each for each in reversed(questions) if (each.kind, each.digest) == (kind, digest)), None)


def usable(questions: Questions, digest: str) -> Question | None:
    """The approval that lets exactly this call pass now, or None."""
    found = of_call(questions, "approval", digest)
    return found if found is not None and found.answer == "approved" else None


def waited_for(questions: Questions, waits: Iterable[str]) -> Questions:
    """Those of the questions that a run was parked for that are still open."""
    wanted = set(waits)
    return tuple(each for each in questions if each.id in wanted and each.is_open)


def first_deadline(questions: Iterable[Question]) -> datetime | None:
    """When the first of these questions counts as rejected; None if none of them has a deadline."""
    return min((each.deadline for each in questions if each.deadline is not None), default=None)


def overdue(questions: Questions, now: datetime) -> list[ev.QuestionAnswered]:
    """The events for the questions whose deadline has passed: nobody answered in time."""
    return [
        ev.QuestionAnswered(at=now, id=each.id, answer="expired", text=_nobody(each))
        for each in questions
        if each.is_overdue(now)
    ]


def _nobody(question: Question) -> str:
    assert question.deadline is not None, "only a question with a deadline expires"
    return f"nobody answered within {length(int((question.deadline - question.since).total_seconds()))}"


def length(seconds: int) -> str:
    """A length of time as settings have it: `8h`, `90s`."""
    for unit, word in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds // unit}{word}"
    return f"{seconds}s"


# -- which calls ask ---------------------------------------------------------------------------------------------------


class Approvals(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls wait for a person: by the class of the call, and by patterns of its target."""

    kinds: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    within_s: int = 0

    def __bool__(self) -> bool:
        return bool(self.kinds or self.targets)

    def wants(self, kind: str, target: str) -> bool:
        """Whether a call of this class to this target waits for an approval."""
        from fnmatch import fnmatchcase

        if EVERY in self.kinds or kind in self.kinds:
            return True
        return any(fnmatchcase(target, pattern) for pattern in self.targets)


EVERY = "all"  # in place of a class: every outward call
