"""The act that helps a run, on a page: its place, the words of its button, and why it is needed."""

import re
import shlex
from itertools import pairwise

from outlast.dashboard.documents import ActName, Row
from outlast.dashboard.report import why_words
from outlast.web.html.layout import run_url

ACTS: dict[ActName, str] = {
    "pause": "Pause", "resume": "Resume", "cancel": "Cancel", "budget": "Add budget", "settle": "Look and settle",
    "fork": "Fork", "restore": "Restore", "approve": "Approve", "reject": "Reject", "answer": "Answer",
}  # fmt: skip
# As `core.verdict` says it. A page says the same by the reader's clock.
_UNTIL = re.compile(
    r"parked until [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{5} UTC(?:: start its program then)?(?:: )?"
)


def link(run: str, act: ActName | None, command: str | None) -> str:
    """Where the act that helps is asked for. A doubt is looked at first, with all that is known of it."""
    if act == "settle":
        return run_url(run, "effects")
    if act in ("approve", "answer"):
        return run_url(run, "do", act, question=(command or "").rpartition(" ")[2])
    return run_url(run, "do", act or "", amounts=amounts(command))


def amounts(command: str | None) -> str:
    """The budget that a command gives, so that the form has it filled in."""
    try:
        typed = shlex.split(command or "")
    except ValueError:
        return ""
    given = {"--budget": "", "--until": "until="}
    return " ".join(f"{given[option]}{value}" for option, value in pairwise(typed) if option in given)


def word(row: Row) -> str:
    """The word on the button."""
    if row.act == "resume" and amounts(row.command):
        return "Add budget" if row.own_program else "Add budget and resume"
    return ACTS[row.act] if row.act is not None else ""


def typed(row: Row) -> str:
    """The command that does the same; none where a person has to choose first."""
    return row.command if row.command and row.act != "settle" else ""


def is_started_by_hand(row: Row) -> bool:
    """Whether nothing of ours would help: it may go on, and only its own program can do it."""
    return row.own_program and row.stranded


def why(row: Row) -> str:
    """Why a run is where it is, without times: those stand beside it, by the reader's own clock."""
    words = why_words(row.why, row.status)
    return _UNTIL.sub("", words, count=1) if row.parked_until is not None else words
