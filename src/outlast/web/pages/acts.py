"""Before an act: its preview. After it: its outcome and author. Pressed twice, it is done once."""

import shlex
from collections.abc import Iterator

import msgspec

from outlast.dashboard.documents import ActName, Done, Foreseen, Row, Wish
from outlast.web.html import formats, layout
from outlast.web.html.html import Safe, field_text, tag
from outlast.web.html.icons import icon
from outlast.web.html.layout import View, run_url

BUTTONS: dict[ActName, str] = {
    "pause": "Pause it", "resume": "Resume it", "cancel": "Cancel it for good", "budget": "Add this budget",
    "settle": "Record this", "fork": "Fork it", "restore": "Restore it there",
    "approve": "Approve it", "reject": "Reject it", "answer": "Send this answer",
}  # fmt: skip
_NEXT: dict[ActName, str] = {
    "resume": "Resume it", "settle": "Settle the next one", "approve": "Approve the next one", "answer": "Answer the next one",
}  # fmt: skip
ENDS: frozenset[ActName] = frozenset({"cancel", "reject"})
_FIELDS = tuple(field.name for field in msgspec.structs.fields(Wish) if field.name not in ("act", "run"))
_LABELS = {
    "amounts": ("Budget to add", "like +200k, usd=+5, time=+2h, beats=+20; several with a space between"),
    "effect": ("Effect", "its number, like 14.1; the page of effects has them"),
    "result": ("Its result", "what the agent gets, as JSON or plain text; only if it happened"),
    "beat": ("After beat", "the new run goes on from there; empty: from where it is"),
    "task": ("Task of the new run", "empty: a name is made"),
    "save": ("Save", "its commit"),
    "text": ("Your answer", "the agent reads it as it stands"),
    "folder": ("New folder", "its whole path; it must not exist yet, or be empty"),
}
_FORKED = ("Budget moved to it", "out of what is left here, like tokens=50k or usd=2")
FINDINGS = (
    ("happened", "It happened", "It is not done again; the agent gets the result."),
    ("did_not", "It did not happen", "The next attempt does it."),
    ("give_up", "Give up", "It is not done again, and the run goes on without it."),
)
_REASON = ("Reason", "the agent is told; it may be empty")
_LONG = frozenset({"result", "text"})


def ask(view: View, row: Row, foreseen: Foreseen, nonce: str) -> Safe:
    """The preview of the act, with the one button that does it; or its fields, while some are missing or wrong."""
    wish = foreseen.wish
    if foreseen.refused:
        parts = _refused(view, foreseen)
    elif foreseen.lacks:
        parts = _lacking(view, foreseen)
    else:
        parts = _ready(view, foreseen, nonce)
    head = (tag("h1", foreseen.title), tag("p", layout.badge(row), layout.quiet(row), class_="state-line"))
    return layout.page(
        view, foreseen.title, tag("div", head, parts, class_="ask"), live=False, crumbs=_crumbs(wish.run, row),
    )  # fmt: skip


def done(view: View, row: Row | None, outcome: Done) -> Safe:
    """The outcome of an act. Loading the page again does nothing."""
    title, tone, sign = outcome_words(outcome)
    folder = layout.command(f"cd {shlex.quote(outcome.folder)}") if outcome.folder else None
    return layout.page(
        view,
        title,
        tag(
            "div",
            tag("h1", icon(sign, class_=f"t-{tone} toned"), title),
            tag("p", outcome.says, class_="outcome"),
            tag("p", outcome.hint, class_="dim") if outcome.hint else None,
            layout.facts((
                ("Asked by", outcome.by), ("At", layout.when(view, outcome.at)), ("Run", outcome.wish.run), ("Folder", folder),
            )),
            tag("div", _onwards(view, outcome), tag("a", "All runs", href="/"), class_="actions"),
            class_="ask panel",
        ),
        live=False, crumbs=_crumbs(outcome.wish.run, row),
    )  # fmt: skip


def _onwards(view: View, outcome: Done) -> Iterator[Safe]:
    """The step that comes next, as the button that stands out; then the run. A new run is looked at first."""
    link, made = outcome.link or outcome.wish.run, outcome.wish.act == "fork" and outcome.ok
    steps = []
    if outcome.next is not None and not view.read_only:
        steps.append((_NEXT.get(outcome.next, outcome.next), _next_url(outcome)))
    steps.insert(1 if steps and not made else 0, ("To the new run" if made else "To the run", run_url(link)))
    if not outcome.ok and not view.read_only:
        steps.append(("Ask again", _address(outcome.wish)))
    for at, (word, href) in enumerate(steps):
        yield layout.button(word, href, primary=not at)


def _next_url(outcome: Done) -> str:
    """Where the next act is asked for. A doubt is looked at first, with all that is known of it."""
    if outcome.next == "settle":
        return run_url(outcome.next_run, "effects")
    return run_url(outcome.next_run, "do", outcome.next or "")


def outcome_words(outcome: Done) -> tuple[str, layout.Tone, str]:
    if not outcome.ok:
        return "It was not done", "bad", "failed"
    return ("Done", "good", "done") if outcome.changed else ("Nothing changed", "mute", "info")


def _crumbs(run: str, row: Row | None) -> list[tuple[str, str]]:
    return [("Runs", "/"), (row.task if row else run, run_url(run))]


# -- the three ways to ask -----------------------------------------------------------------------------------------------


def _refused(view: View, foreseen: Foreseen) -> Iterator[Safe]:
    hint = tag("p", foreseen.hint, class_="dim") if foreseen.hint else None
    yield layout.notice("bad", tag("p", tag("strong", foreseen.refused)), hint)
    if foreseen.takes and not view.read_only:
        yield tag(
            "section", tag("h2", "Ask for something else"), _fields(foreseen, primary=True), class_="panel"
        )
    else:
        yield tag("div", _back(foreseen.wish), class_="actions")


def _lacking(view: View, foreseen: Foreseen) -> Iterator[Safe]:
    yield _says(view, foreseen)
    yield tag("section", tag("h2", "Please fill in first"), _fields(foreseen, primary=True), class_="panel")


def _ready(view: View, foreseen: Foreseen, nonce: str) -> Iterator[Safe]:
    yield tag(
        "section",
        tag("h2", "What will happen"),
        _says(view, foreseen),
        _press(view, foreseen, nonce),
        class_="panel",
    )
    if foreseen.takes:
        yield _otherwise(foreseen)
    if foreseen.command:
        yield tag(
            "div",
            tag("p", "The same as a command:", class_="dim"),
            layout.command(foreseen.command),
            class_="same",
        )


def _otherwise(foreseen: Foreseen) -> Safe:
    """The fields, folded. What happened may have a result, which is easily forgotten."""
    wish = foreseen.wish
    filled = any(getattr(wish, name) not in ("", None) for name in foreseen.takes)
    is_without = wish.finding == "happened" and not wish.result
    word = "Say what came of it" if is_without else "Ask for something else" if filled else "Say more of it"
    fields = _fields(foreseen, primary=False)
    return tag("details", tag("summary", word), fields, class_="panel", id="otherwise", open=is_without)


def _says(view: View, foreseen: Foreseen) -> Safe:
    return tag(
        "ul",
        [tag("li", icon("right"), tag("span", layout.timed(view, sentence))) for sentence in foreseen.says],
        class_="says",
    )


def _press(view: View, foreseen: Foreseen, nonce: str) -> Safe:
    wish = foreseen.wish
    if view.read_only:
        return tag(
            "div",
            tag("p", "This page is read only: use the command.", class_="dim"),
            _back(wish),
            class_="actions",
        )
    hidden = [tag("input", type="hidden", name=name, value=value) for name, value in _given(wish)]
    look = "button danger" if wish.act in ENDS else "button primary"
    return tag(
        "form", layout.csrf(view), tag("input", type="hidden", name="nonce", value=nonce), hidden,
        tag("div", tag("button", BUTTONS[wish.act], class_=look), _back(wish), class_="actions"),
        method="post", action=run_url(wish.run, "do", wish.act), id="press",
    )  # fmt: skip


def _back(wish: Wish) -> Safe:
    return tag("a", "Leave it as it is", href=run_url(wish.run), class_="button")


def _given(wish: Wish) -> list[tuple[str, object]]:
    """The fields of the request, by name."""
    named = [(name, getattr(wish, name)) for name in _FIELDS]
    return [(name, value) for name, value in named if value not in ("", None)]


def _address(wish: Wish) -> str:
    return run_url(
        wish.run, "do", wish.act, **{name: value for name, value in _given(wish) if name != "limit_was"}
    )


# -- fields --------------------------------------------------------------------------------------------------------------


def _fields(foreseen: Foreseen, *, primary: bool) -> Safe:
    """A plain form that asks again with other fields, and does nothing."""
    wish = foreseen.wish
    rows = [
        _findings(wish) if name == "finding" else _field(wish, name, required=name in foreseen.lacks)
        for name in foreseen.takes
    ]
    hidden = [
        tag("input", type="hidden", name=name, value=value)
        for name, value in _given(wish)
        if name not in (*foreseen.takes, "limit_was")
    ]
    button = tag("button", "See what it will do", class_="button primary" if primary else "button")
    return tag(
        "form",
        hidden,
        rows,
        tag("div", button, _back(wish) if primary else None, class_="actions"),
        method="get",
        action=run_url(wish.run, "do", wish.act),
        class_="form",
    )


def _field(wish: Wish, name: str, *, required: bool) -> Safe:
    label, hint = _LABELS.get(name, (formats.spell(name).capitalize(), ""))
    if wish.act == "fork" and name == "amounts":
        label, hint = _FORKED
    if wish.act == "reject" and name == "text":
        label, hint = _REASON
    given = getattr(wish, name)
    value = "" if given is None else str(given)
    id_ = f"w-{name}"
    about = {
        "id": id_,
        "name": name,
        "required": required,
        "aria_describedby": f"{id_}-hint" if hint else None,
    }
    if name in _LONG:
        field = tag("textarea", field_text(value), rows=4, spellcheck="false", **about)
    else:
        numeric = "numeric" if name == "beat" else None
        field = tag(
            "input",
            type="text",
            value=value,
            autocomplete="off",
            spellcheck="false",
            inputmode=numeric,
            **about,
        )
    hint_line = tag("span", hint, class_="hint", id=f"{id_}-hint") if hint else None
    return tag("div", tag("label", label, for_=id_), field, hint_line, class_="row")


def _findings(wish: Wish) -> Safe:
    choices = [
        tag(
            "label",
            tag("input", type="radio", name="finding", value=value, checked=wish.finding == value, required=True),
            tag("span", tag("strong", label), tag("span", explanation, class_="hint")), class_="choice",
        )
        for value, label, explanation in FINDINGS
    ]  # fmt: skip
    return tag("fieldset", tag("legend", "What did you find?"), choices)
