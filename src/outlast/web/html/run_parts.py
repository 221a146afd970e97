"""The common parts of a run's pages: its heading, recorded values in a readable form, and folded long texts."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest

import msgspec

from outlast import decoders
from outlast.core.statuses import CLOSED, Refusal, after
from outlast.dashboard.documents import ActName, Row
from outlast.inspect.show import Effect, act_words as act_words
from outlast.web.html import formats, layout, next_step
from outlast.web.html.html import NOTHING, Safe, join, tag
from outlast.web.html.icons import icon
from outlast.web.html.layout import Tab, Tone, View

INLINE_CHARS = 240
FOLDED_CHARS = 4_000
RESULT_CHARS = 1_000
LINES_INLINE = 4
CALLS_SHOWN = 8
SETTLES = ("--happened", "--did-not", "--give-up")

EFFECT_TONES: dict[str, tuple[str, str, Tone]] = {
    "confirmed": ("done", "happened", "good"),
    "failed": ("failed", "did not happen", "mute"),
    "in_doubt": ("in_doubt", "in doubt", "bad"),
    "given_up": ("cancelled", "given up", "mute"),
    "open": ("running", "under way", "go"),
}
_NAMES: dict[Tab, str] = {
    "run": "", "beats": "Beats", "effects": "Effects", "saves": "Saves", "budget": "Budget", "context": "Context",
    "output": "Output", "journal": "Journal",
}  # fmt: skip
ACT_WORDS: dict[ActName, tuple[str, str]] = {
    "approve": ("done", "Approve"),
    "answer": ("info", "Answer"),
    "reject": ("failed", "Reject"),
    "resume": ("running", "Resume"),
    "pause": ("paused", "Pause"),
    "budget": ("budget", "Add budget"),
    "cancel": ("cancelled", "Cancel"),
    "settle": ("in_doubt", "Settle"),
    "fork": ("child", "Fork"),
    "restore": ("save", "Restore to a new folder"),
}


def page(
    view: View,
    row: Row,
    current: Tab,
    *parts: object,
    live: bool = True,
    name: str = "",
    below: Iterable[str] = (),
) -> Safe:
    """A page of a run: its heading, the way to the other pages, and its content. `below`: children that it shows too."""
    word = name or _NAMES[current]
    crumbs = [("Runs", "/")]
    if row.parent:
        crumbs.append((f"root run {row.root}", layout.run_url(row.root)))
    if current != "run":
        crumbs.append((row.task, layout.run_url(row.run)))
    return layout.page(
        view, f"{row.task}: {word.lower()}" if word else row.task, _heading(row, word), layout.tabs(view, row, current),
        parts, live=live, crumbs=crumbs, runs=[row.run, *below], styles=["run.css"],
    )  # fmt: skip


def _heading(row: Row, word: str) -> Safe:
    again = f" #{row.generation}" if row.generation > 1 else ""
    title = tag(
        "h1", clipped(f"{row.task}{again}", 160), tag("span", f" · {word}", class_="sub") if word else None
    )
    of = "" if row.plan_total is None else f" of {row.plan_total:,}"
    state = (
        layout.badge(row), layout.cause(row.cause) if row.cause not in (None, "done") else None, layout.quiet(row),
        tag("span", f"beat {row.beats:,}{of}", class_="dim n"),
        tag("span", formats.plural(row.attempts, "attempt"), class_="dim n"),
    )  # fmt: skip
    goal = tag("p", clipped(row.goal, 300), class_="goal-line") if row.goal else None
    return tag("header", title, tag("p", state, class_="state", id="run-state"), goal, class_="run-head")


# -- acts ----------------------------------------------------------------------------------------------------------


def acts(row: Row) -> list[ActName]:
    """The acts that a run allows now, always in the same order. For a child, its root is paused, resumed or paid for."""
    status = row.status
    allowed: list[ActName] = []
    if not row.parent:
        if status not in ("running", "paused", *CLOSED) and not isinstance(after(status, "pause"), Refusal):
            allowed.append("pause")
        if status == "running":
            allowed.append("pause")
        if not isinstance(after(status, "resume"), Refusal) and status != "in_doubt":
            allowed.append("resume")
        if status not in CLOSED:
            allowed += ["budget", "cancel"] if _is_limited(row) else ["cancel"]
        if row.beats and not isinstance(after(status, "fork"), Refusal):
            allowed.append("fork")
    if row.last_save:
        allowed.append("restore")
    if row.act is not None and row.act not in (
        *allowed,
        "settle",
        "approve",
        "answer",
    ):  # those have a panel of their own
        allowed.append(row.act)
    order = list(ACT_WORDS)
    return sorted(allowed, key=order.index)


def _is_limited(row: Row) -> bool:
    """Whether it has a limit that could be raised; a moment is set, not added to."""
    return any(meter.limit is not None and meter.unit != "until" for meter in row.meters)


def act_buttons(view: View, row: Row) -> Safe:
    """Links to the pages that ask; none where nothing may be changed here.

    Each has its place: what cannot be done now and can be in a moment keeps it, so that no other comes under a thumb.
    """
    if view.read_only:
        return NOTHING
    allowed = acts(row)
    either = () if row.parent or row.status in CLOSED else ("resume", "pause")
    shown = [
        _act_button(row, act) if act in allowed else _not_now(act)
        for act in ACT_WORDS
        if act in (*either, *allowed)
    ]
    return tag("div", shown, class_="acts", role="group", aria_label="What you can do") if shown else NOTHING


def _act_button(row: Row, act: ActName) -> Safe:
    """A button for an act; the act that helps has its fields filled in."""
    sign, word = ACT_WORDS[act]
    if act != row.act:
        return layout.button(word, layout.run_url(row.run, "do", act), sign=sign)
    link = next_step.link(row.run, act, row.command)
    return layout.button(next_step.word(row), link, primary=True, sign=sign)


def _not_now(act: ActName) -> Safe:
    sign, word = ACT_WORDS[act]
    return tag("a", icon(sign), word, class_="button", role="link", aria_disabled="true")


def what_to_do(row: Row) -> Safe:
    """About effects in doubt: whether a person must look, or may."""
    advice = "The next attempt finds out by itself. If you know already whether it happened, say so here."
    if row.what == "needs you":
        advice = "Look outside whether it happened (the remote, the ticket, the mailbox), then say so. Nothing is repeated before that."
    return tag("p", advice, class_="dim")


def settle_links(view: View, run: str, effect: str) -> Safe:
    """The three things that a person may have found out, each as a button and as a command."""
    typed = [tag("p", layout.ours(view, f"outlast settle {run} {effect} {option}")) for option in SETTLES]
    if view.read_only:
        return tag("div", tag("p", "This page is read only. Type one of these:", class_="dim"), typed)
    choices = (
        ("happened", "It happened", "done"),
        ("did_not", "It did not", "failed"),
        ("give_up", "Give up", "cancelled"),
    )
    links = [
        layout.button(word, layout.run_url(run, "do", "settle", effect=effect, finding=finding), sign=sign)
        for finding, word, sign in choices
    ]
    return join((
        tag("div", links, class_="acts", role="group", aria_label=f"Settle effect {effect}"),
        tag("details", tag("summary", "the same as commands"), typed, class_="fold", id=f"settle-{run}-{effect}"),
    ))  # fmt: skip


# -- recorded values ---------------------------------------------------------------------------------------------------


def plain(raw: msgspec.Raw) -> str:
    """A recorded value: nothing for null, a text without its quotes, else its JSON."""
    data = bytes(raw)
    if data in (b"null", b""):
        return ""
    if data[:1] == b'"':
        try:
            return decoders.decode(data, str)
        except msgspec.MsgspecError:
            pass
    return data.decode(errors="replace")


def pretty(raw: msgspec.Raw) -> str:
    """JSON on several lines."""
    try:
        return msgspec.json.format(bytes(raw), indent=2).decode(errors="replace")
    except msgspec.MsgspecError:
        return bytes(raw).decode(errors="replace")


def value(raw: msgspec.Raw, *, id_: str, name: str = "value") -> Safe:
    """A recorded value on a page: short ones as they are, long ones folded."""
    return long_text(plain(raw), id_=id_, name=name, most=RESULT_CHARS)


def result(raw: msgspec.Raw, *, id_: str) -> Safe:
    """The result of a beat: of an agent's turn its words and calls, else the value."""
    try:
        turn = decoders.decode(raw, _Turn | None)
    except msgspec.MsgspecError:
        return value(raw, id_=id_, name="result")
    if turn is None:
        return NOTHING
    if turn.exit_code is not None:
        step = f"step {formats.clip(turn.step, 120)}: " if turn.step else ""
        return tag("span", f"{step}exit code {turn.exit_code}")
    calls = [tag("code", formats.clip(call, 80)) for call in turn.calls[:CALLS_SHOWN]]
    if len(turn.calls) > CALLS_SHOWN:
        calls.append(tag("span", f"and {len(turn.calls) - CALLS_SHOWN:,} more", class_="dim"))
    return join(
        (
            long_text(turn.answer, id_=id_, name="answer", most=RESULT_CHARS),
            tag("div", calls, class_="calls") if calls else None,
        )
    )


class _Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a supervised agent's beat, or of a supervised command's."""

    calls: tuple[str, ...] = ()
    answer: str = msgspec.field(default="", name="said")
    step: str = ""
    exit_code: int | None = None


def long_text(
    text: str, *, id_: str, name: str, inline: int = INLINE_CHARS, most: int = FOLDED_CHARS
) -> Safe:
    """A text as it is, or its beginning with all of it (up to a limit) behind a fold."""
    if not text:
        return NOTHING
    if len(text) <= inline and text.count("\n") < LINES_INLINE:
        return tag("span", text, class_="text")
    cut = (
        tag("p", f"cut here: {len(text) - most:,} more characters", class_="dim")
        if len(text) > most
        else None
    )
    return tag(
        "details",
        tag("summary", tag("span", formats.clip(text, inline), class_="text"), tag("span", f" whole {name}", class_="more")),
        tag("pre", text[:most], tabindex="0"), cut, id=id_, class_="fold",
    )  # fmt: skip


def clipped(text: str, most: int) -> Safe:
    """The beginning of a text, by itself: what is written from right to left does not reach out of it."""
    return tag("span", formats.clip(text, most))


def effect_badge(effect: Effect) -> Safe:
    """The state of an effect, by sign and word."""
    return layout.labelled(*EFFECT_TONES[effect.state])


def table(
    head: Sequence[str], rows: Sequence[Sequence[object]], *, caption: str, numbers: Iterable[int] = (),
    ids: Sequence[str] = (),
) -> Safe:  # fmt: skip
    """A table; on a phone each row is a card, with the column's name beside each value. The first column names the row.

    `ids` name the rows of one that grows, so that each stays itself.
    """
    right = dict.fromkeys(numbers, "n")
    heads = [tag("th", name, scope="col", class_=right.get(index)) for index, name in enumerate(head)]
    return tag(
        "table", tag("caption", caption, class_="unseen"), tag("thead", tag("tr", heads)),
        tag("tbody", [_table_row(head, row, right, id_) for row, id_ in zip_longest(rows, ids)]), class_="table stack",
    )  # fmt: skip


def _table_row(head: Sequence[str], row: Sequence[object], right: Mapping[int, str], id_: str | None) -> Safe:
    first, *rest = row
    cells = [
        tag("td", tag("div", each), data_l=head[at], class_=right.get(at))
        for at, each in enumerate(rest, start=1)
    ]
    return tag("tr", tag("th", first, scope="row", class_=right.get(0)), cells, id=id_)


def wide(of: Safe, name: str) -> Safe:
    """A table that may be wider than the page: it is moved by itself, also with the keys."""
    return tag("div", of, class_="wide-table", tabindex="0", role="region", aria_label=name)


def second(view: View, at: datetime) -> Safe:
    """A moment to the second by the reader's clock: where one thing comes right after another."""
    clock = formats.clock(at, view.zone, view.now, to_the_second=True)
    return tag("time", clock, datetime=formats.machine(at), title=formats.exact(at, view.zone))


def nothing() -> Safe:
    """A cell without a value."""
    return tag("span", "–", class_="dim none")


def lines(*parts: object) -> Safe:
    """Each on a line of its own, as far as there is something."""
    return join([tag("div", part) for part in parts if part not in (None, "", False)])
