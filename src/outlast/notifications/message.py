"""What a person reads of a notice on any channel: title, line, the buttons with their links, or the command to type."""

from dataclasses import dataclass
from datetime import datetime

from outlast.errors import UsageError
from outlast.notifications import links
from outlast.notifications.links import Links
from outlast.notifications.notice import LINE_CHARS_MAX, SUMMARY, TEST, Notice, clean

ACTIONS_MAX = 3  # as many buttons as ntfy shows
SUMMED_MAX = 8
_URGENT, _HIGH, _USUAL, _LOW = 5, 4, 3, 2
_PRIORITIES = {"needs a person": _HIGH, "failed": _HIGH, "quarantined": _HIGH, "parked": _LOW, SUMMARY: _HIGH}
_TAGS = {
    "needs a person": "raising_hand", "failed": "x", "quarantined": "warning", "parked": "hourglass", "budget": "moneybag",
    "done": "white_check_mark", SUMMARY: "bell", TEST: "test_tube",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Button:
    """A word and where it leads. Opening it shows the act; a press there does it."""

    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Message:
    """One notice, or several as one, ready to be sent. `click` is empty where nobody elsewhere reaches the page."""

    title: str
    text: str
    priority: int
    tag: str
    command: str
    click: str
    buttons: tuple[Button, ...]
    document: "Document"

    @property
    def body(self) -> str:
        """The text, with the command where no link helps."""
        return self.text if self.click or not self.command else f"{self.text}\n{self.command}"


class Document(Notice, frozen=True, kw_only=True):
    """What a command and a webhook get as JSON: the notice, where it leads, and those that it sums up."""

    link: str | None = None
    notices: tuple[Notice, ...] = ()


def of(notice: Notice, page: str, made: Links | None, now: datetime) -> Message:
    """The message of one notice. `page` is where the page is reached from elsewhere; empty where it is not.

    Without `made` nothing in it acts: its link leads to the run.
    """
    buttons = _buttons(notice, page, made, now) if page and made is not None else ()
    click = buttons[0].url if buttons else _of_run(page, notice.run)
    named = "outlast" if notice.what == TEST else f"outlast: {clean(notice.task, 60)}"
    return Message(
        title=named, text=notice.line, priority=_URGENT if notice.is_urgent else _PRIORITIES.get(notice.what, _USUAL),
        tag=_TAGS.get(notice.what, "bell"), command=notice.command, click=click, buttons=buttons,
        document=_document(notice, click or None),
    )  # fmt: skip


def summary(notices: tuple[Notice, ...], page: str, now: datetime) -> Message:
    """Several notices as one: those that need a person first, then the newest. It has no button: a person chooses first."""
    ordered = sorted(notices, key=lambda each: (not each.is_urgent, -each.at.timestamp()))
    needing = sum(each.is_urgent for each in ordered)
    head = f"{len(ordered)} notices of the quiet hours" + (f", {needing} need you" if needing else "")
    left = len(ordered) - SUMMED_MAX
    lines = [head, *(each.line for each in ordered[:SUMMED_MAX]), *([f"and {left} more"] if left > 0 else [])]
    first = ordered[0]
    whole = Notice(
        what=SUMMARY, why=head, run="", task="", project="", goal="", status="", cause=None, standing="", needs=first.needs,
        beats=0, workspace=None, last_save=None, at=now, line=clean(head, LINE_CHARS_MAX), command="outlast ls",
    )  # fmt: skip
    return Message(
        title="outlast", text="\n".join(lines), priority=_PRIORITIES[SUMMARY] if needing else _USUAL, tag=_TAGS[SUMMARY],
        command=whole.command, click=f"{page}/" if page else "", buttons=(),
        document=_document(whole, f"{page}/" if page else None, tuple(ordered)),
    )  # fmt: skip


def _document(notice: Notice, link: str | None, notices: tuple[Notice, ...] = ()) -> Document:
    fields = {name: getattr(notice, name) for name in Notice.__struct_fields__}
    return Document(**fields, link=link, notices=notices)


def _of_run(page: str, run: str) -> str:
    return f"{page}/runs/{run}" if page and run else f"{page}/" if page else ""


def _buttons(notice: Notice, page: str, made: Links, now: datetime) -> tuple[Button, ...]:
    """A link for each act, which also names the others: its page has all of them as buttons."""
    acts = [act for act in notice.acts[:ACTIONS_MAX] if act.until is None or act.until > now]
    try:
        tokens = [made.token(act.act, notice.run, act.subject, now, act.until) for act in acts]
    except (OSError, UsageError):
        return ()  # without its secret nothing is signed: the page of the run helps too
    found = []
    for at, act in enumerate(acts):
        others = "&".join(f"{links.OTHER}={token}" for other, token in enumerate(tokens) if other != at)
        found.append(Button(act.label, f"{page}/{links.PATH}/{tokens[at]}{f'?{others}' if others else ''}"))
    return tuple(found)
