"""What a run waits for a person to answer: the question, since when and until when, and a button for each answer."""

from collections.abc import Iterator

from outlast.dashboard.documents import Row
from outlast.inspect.questions import WaitsFor
from outlast.web.html import formats, layout
from outlast.web.html.html import Safe, tag
from outlast.web.html.layout import View, ago, run_url

TEXT_CHARS_MAX = 400
CHOICES_SHOWN = 6
CHOICE_CHARS_MAX = 40


def open_questions(view: View, row: Row) -> list[Safe]:
    """Each open question of a run with its buttons. A button leads to what it will do; a press there does it."""
    return [_question(view, row, each) for each in row.waits_for]


def _question(view: View, row: Row, each: WaitsFor) -> Safe:
    what = " ".join(filter(None, (each.call, each.target)))
    head = (tag("strong", formats.clip(what, 120)), ": ") if what else None
    until = (", until ", layout.when(view, each.deadline)) if each.deadline is not None else None
    return tag(
        "div",
        tag("p", head, formats.clip(each.text, TEXT_CHARS_MAX), class_="why"),
        tag("p", f"{each.id}, asked ", ago(view, each.since), until, class_="dim"),
        tag("div", _buttons(view, row, each), class_="actions"),
        class_="waits",
    )  # fmt: skip


def _buttons(view: View, row: Row, each: WaitsFor) -> Iterator[Safe]:
    """The likeliest answer first. On a page that is read only the command stands in their place."""
    if view.read_only:
        yield layout.ours(view, each.command)
        return
    of = tag("span", f": {each.id} of {formats.clip(row.task, 60)}", class_="unseen")
    if each.kind == "approval":
        yield layout.button(
            ("Approve", of), run_url(row.run, "do", "approve", question=each.id), primary=True
        )
    for at, choice in enumerate(each.choices[:CHOICES_SHOWN]):
        address = run_url(row.run, "do", "answer", question=each.id, text=choice)
        yield layout.button((formats.clip(choice, CHOICE_CHARS_MAX), of), address, primary=not at)
    if each.kind == "question" and not 0 < len(each.choices) <= CHOICES_SHOWN:
        yield layout.button(("Answer", of), run_url(row.run, "do", "answer", question=each.id), primary=True)
    yield layout.button(("Reject", of), run_url(row.run, "do", "reject", question=each.id))
