"""The effects of a run: intent, outcome, and the finding of each look. Those in doubt come first."""

import msgspec

from outlast.dashboard.documents import Effects, EffectShown, Look, Row
from outlast.inspect.show import Effect
from outlast.web.html import formats, layout, run_parts
from outlast.web.html.html import NOTHING, Safe, join, tag
from outlast.web.html.layout import View

LOOKS_SHOWN = 12
_FOUND = {
    "happened": ("done", "it happened"),
    "did_not": ("failed", "it did not happen"),
    "cannot_tell": ("in_doubt", "cannot tell"),
    "give_up": ("cancelled", "given up"),
}
_POLICIES = {
    "reissue": "asked again with the same key: the far side knows it",
    "probe": "a probe looks whether it happened",
    "ask": "a person says whether it happened",
    "give_up": "given up if its outcome stays unknown",
    "tell": "outlast tells the agent what it found",
}


def render(view: View, row: Row, given: Effects) -> Safe:
    """Effects, newest first; those that wait for an answer on top."""
    doubts = [each for each in given.effects if each.effect.state == "in_doubt"]
    others = [each for each in given.effects if each.effect.state != "in_doubt"]
    if not given.effects:
        explanation = "What a run does to the world outside (a push, a payment, a message) is on record here, before and after."
        return run_parts.page(
            view,
            row,
            "effects",
            layout.panel("Effects", layout.empty("No effects", explanation), id_="effects"),
        )
    top = NOTHING
    if doubts:
        title = f"In doubt: {formats.plural(len(doubts), 'effect')}"
        top = layout.panel(
            title, run_parts.what_to_do(row), [_card(view, row, each) for each in doubts], id_="doubts"
        )
    rest = [_card(view, row, each) for each in others] or [
        tag("p", "All effects shown here are in doubt.", class_="dim")
    ]
    return run_parts.page(
        view, row, "effects", top, layout.panel("Effects, newest first", rest, id_="effects", aside=formats.plural(given.total, "effect")),
        layout.pager(view, given.before),
    )  # fmt: skip


def _card(view: View, row: Row, shown: EffectShown) -> Safe:
    """An effect: its act and outcome, the rest behind a fold. An effect in doubt is shown whole."""
    effect = shown.effect
    in_doubt = effect.state == "in_doubt"
    name = f"{shown.run}-{effect.id}" if shown.run != row.run else effect.id
    child = None
    if shown.run != row.run:
        child = tag(
            "p", "of the child run ", tag("a", shown.run, href=layout.run_url(shown.run), class_="mono")
        )
    first: list[tuple[str, object]] = [
        (
            "Intended",
            join((layout.when(view, effect.intended_at), " (", layout.ago(view, effect.intended_at), ")")),
        ),
        ("Outcome", _outcome(shown, name)),
        ("Looked into", _looks(view, shown, name) if shown.looks else None),
    ]
    rest: list[tuple[str, object]] = [
        ("Policy", _policy(effect)),
        ("Tries", f"{effect.attempts:,}"),
        ("Key", tag("code", run_parts.clipped(effect.key, 120))),
        ("Called with", _called(shown)),
    ]
    act = formats.clip(run_parts.act_words(effect), 300)
    more = layout.facts(rest)
    if not in_doubt:
        more = tag(
            "details", tag("summary", "policy, key, arguments"), more, id=f"effect-{name}-more", class_="fold"
        )
    title = (
        tag("span", effect.id, class_="n"),
        run_parts.effect_badge(effect),
        tag("span", act, class_="act"),
    )
    return tag(
        "article", tag("h3", title), child, layout.facts(first), more,
        run_parts.settle_links(view, shown.run, effect.id) if in_doubt else None,
        class_="effect", id=f"effect-{name}",
    )  # fmt: skip


def _outcome(shown: EffectShown, name: str) -> Safe:
    effect = shown.effect
    by = (
        tag("span", f"settled by {formats.clip(effect.settled_by, 80)}. ", class_="dim")
        if effect.settled_by
        else None
    )
    result = run_parts.value(effect.result, id_=f"effect-{name}-result", name="result")
    evidence = run_parts.long_text(effect.evidence, id_=f"effect-{name}-why", name="evidence")
    if effect.state in ("in_doubt", "open"):
        word = "none yet, it is under way" if effect.state == "open" else "unknown"
        return join((tag("span", word), tag("div", evidence) if evidence else None))
    return join(
        (
            by,
            result or (None if evidence else tag("span", "no result", class_="dim")),
            tag("div", evidence) if evidence else None,
        )
    )


def _policy(effect: Effect) -> str:
    """The policy if its outcome stays unknown. Nobody is asked about an agent's call that reaches nothing outside."""
    if effect.policy == "give_up" and _is_local_call(effect):
        return "none: this call of the agent reaches nothing outside, and its files are saved"
    return f"{formats.spell(effect.policy)}: {_POLICIES.get(effect.policy, '')}"


def _is_local_call(effect: Effect) -> bool:
    try:
        args = msgspec.json.decode(effect.args)
    except msgspec.MsgspecError:
        return False
    return isinstance(args, dict) and "tool" in args and not args.get("outward")


def _called(shown: EffectShown) -> Safe | None:
    """Its arguments as they are on record."""
    text = run_parts.pretty(shown.effect.args)
    cut = len(text) - run_parts.FOLDED_CHARS
    more = tag("p", f"cut here: {cut:,} more characters", class_="dim") if cut > 0 else None
    return None if text == "null" else join((tag("pre", text[: run_parts.FOLDED_CHARS], class_="pre"), more))


def _looks(view: View, shown: EffectShown, name: str) -> Safe:
    lines = [
        _look(view, each, f"effect-{name}-look-{at}") for at, each in enumerate(shown.looks[-LOOKS_SHOWN:])
    ]
    hidden = len(shown.looks) - LOOKS_SHOWN
    before = tag("li", f"{hidden:,} before these", class_="dim") if hidden > 0 else None
    return tag("ol", before, lines, class_="looks")


def _look(view: View, look: Look, id_: str) -> Safe:
    sign, word = _FOUND.get(look.finding or "", ("in_doubt", "no outcome"))
    by = f" by {formats.clip(look.by, 80)}" if look.by else ""
    evidence = run_parts.long_text(look.evidence, id_=id_, name="evidence")
    return tag("li", layout.when(view, look.at), " ", layout.labelled(sign, f"{word}{by}"), " ", evidence)
