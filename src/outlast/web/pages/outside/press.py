"""The page of a link in a notice: what is needed, on which run, and its buttons, to be pressed with a thumb."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from outlast.dashboard.documents import Done, Foreseen
from outlast.web.html import formats, layout
from outlast.web.html.html import Safe, field_text, tag
from outlast.web.html.icons import icon
from outlast.web.html.layout import View, run_url
from outlast.web.pages import acts


@dataclass(frozen=True, slots=True)
class Pressed:
    """One act: what it would do, where its form goes, and the view whose form token is bound to it."""

    foreseen: Foreseen
    action: str
    view: View
    choices: tuple[str, ...] = ()  # of an answer


def ask(view: View, buttons: Sequence[Pressed], refused: Done | None) -> Safe:
    """What waits, and a button for each act. Nothing has happened yet; `refused` is what became of an earlier press."""
    foreseen, others = buttons[0].foreseen, [_without(each, buttons[0].foreseen.says) for each in buttons[1:]]
    return layout.page(
        view, foreseen.title,
        tag(
            "div", tag("h1", foreseen.title),
            layout.notice("bad", refused.says) if refused is not None else None,
            [_act(each) for each in (buttons[0], *others)], _elsewhere(foreseen.wish.run), class_="ask",
        ),
        live=False,
    )  # fmt: skip


def done(view: View, outcome: Done) -> Safe:
    """What became of the press. Opening the link again does nothing."""
    title, tone, sign = acts.outcome_words(outcome)
    return layout.page(
        view, title,
        tag(
            "div", tag("h1", icon(sign, class_=f"t-{tone} toned"), title), tag("p", outcome.says, class_="outcome"),
            tag("p", outcome.hint, class_="dim") if outcome.hint else None,
            layout.facts((("Asked by", outcome.by), ("At", layout.when(view, outcome.at)))),
            _elsewhere(outcome.wish.run), class_="ask panel",
        ),
        live=False,
    )  # fmt: skip


def _without(each: Pressed, says: tuple[str, ...]) -> Pressed:
    """An act without the sentences that stand above it already."""
    own = tuple(sentence for sentence in each.foreseen.says if sentence not in says)
    return replace(each, foreseen=msgspec.structs.replace(each.foreseen, says=own))


def _elsewhere(run: str) -> Safe:
    """The run itself, which asks for the token of the page."""
    return tag("p", tag("a", "Look at the run", href=run_url(run)), class_="dim")


def _act(each: Pressed) -> Safe:
    """What one act would do, and its form."""
    foreseen = each.foreseen
    if foreseen.refused:
        words = tag("p", foreseen.refused, class_="outcome")
        hint = tag("p", foreseen.hint, class_="dim") if foreseen.hint else None
        return tag("section", tag("h2", foreseen.title), words, hint, class_="panel")
    says = [tag("li", icon("right"), tag("span", layout.timed(each.view, line))) for line in foreseen.says]
    if each.view.read_only:
        pressing: Safe = tag("p", "This page is read only: use the command.", class_="dim")
    else:
        parts = [_text(each), tag("div", list(_buttons(each)), class_="actions")]
        pressing = tag(
            "form", layout.csrf(each.view), parts, method="post", action=each.action, class_="form"
        )
    return tag("section", tag("ul", says, class_="says") if says else None, pressing, class_="panel press")


def _text(each: Pressed) -> Safe | None:
    """The field for an answer, unless its choices are buttons; for a reason, which may be empty."""
    act = each.foreseen.wish.act
    if act not in ("answer", "reject") or each.choices:
        return None
    label = "Your answer" if act == "answer" else "Why (the agent is told)"
    id_ = f"w-{act}"
    field = tag("textarea", field_text(""), id=id_, name="text", rows=2, required=act == "answer")
    return tag("div", tag("label", label, for_=id_), field, class_="row")


def _buttons(each: Pressed) -> Iterator[Safe]:
    """One button, or one for each thing that a person may choose."""
    foreseen = each.foreseen
    for choice in each.choices:
        yield tag("button", formats.clip(choice, 80), name="text", value=choice, class_="button primary")
    if each.choices:
        return
    if "finding" in foreseen.lacks:
        for value, label, _ in acts.FINDINGS:
            yield tag("button", label, name="finding", value=value, class_="button")
        return
    act = foreseen.wish.act
    yield tag("button", acts.BUTTONS[act], class_="button danger" if act in acts.ENDS else "button primary")
