"""A notice: what a run wants a person to know. The documents that the outbox, a command and a webhook get are made of it."""

from datetime import datetime

import msgspec

from outlast.core.secrets import mask
from outlast.core.text import short

KINDS = ("needs a person", "done", "failed", "quarantined", "parked", "budget")
SUMMARY, TEST = "summary", "test"
URGENT_NEEDS = ("person", "budget")  # as `core.verdict` has it: nothing goes on before somebody decides
LINE_CHARS_MAX = 240
WHY_CHARS_MAX = 160


class NoticeAct(msgspec.Struct, frozen=True, kw_only=True):
    """An act that would help. `subject` is the question, effect or attempt it is about: a link does it for no other."""

    act: str
    subject: str
    label: str
    until: datetime | None = None  # it is of no use after that


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one run. `line` says in one line what is needed and on which run; `command` does it when typed.

    The words of an agent in it are masked and short. No command line, no content of a file, no link is in it.
    """

    what: str
    why: str
    run: str
    task: str
    project: str
    goal: str
    status: str
    cause: str | None
    standing: str
    needs: str
    beats: int
    workspace: str | None
    last_save: str | None
    at: datetime
    line: str = ""
    command: str = ""
    acts: tuple[NoticeAct, ...] = ()
    about: str = (
        ""  # what makes it another cause than one of the same kind: a question's id, the level of a warning
    )

    @property
    def is_urgent(self) -> bool:
        """Whether nothing goes on before a person decides."""
        return self.needs in URGENT_NEEDS and self.what not in ("done", "budget")


def line_of(task: str, what: str, why: str) -> str:
    """What is needed, on which run: one line, without secrets."""
    words = {"needs a person": "needs you", "budget": "budget"}.get(what, what)
    reason = clean(why, WHY_CHARS_MAX)
    return clean(f"{short(task, 60)} {words}{f': {reason}' if reason else ''}", LINE_CHARS_MAX)


def clean(text: object, chars_max: int) -> str:
    """A text of a run as it may leave this machine: on one line, short, what looks like a secret masked before it is cut."""
    return short(mask(str(text))[0], chars_max)
