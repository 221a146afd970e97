"""Emergency saves of all runs: when, which, why, how much work, and whether an attempt went on from it."""

from collections.abc import Iterator

from outlast.core.statuses import CLOSED
from outlast.dashboard.documents import Emergencies, Emergency
from outlast.web.charts import bars as charts_bars
from outlast.web.html import formats, layout, next_step
from outlast.web.html.html import Safe, join, tag
from outlast.web.html.icons import icon
from outlast.web.html.layout import View, run_url, url

EVIDENCE_CHARS_MAX = 240
SHORT_CHARS = 7
_HEADS = ("When", "Run", "Why", "Work saved", "Picked up")


def render(view: View, found: Emergencies) -> Safe:
    """The page, newest first."""
    cause = view.query.get("cause", "")
    return layout.page(
        view, "Emergency saves", _head(found, cause), _causes(view, found, cause), _list(view, found, cause),
        layout.pager(view, found.before), place="saves",
    )  # fmt: skip


def _head(found: Emergencies, cause: str) -> Safe:
    lost = sum(1 for save in found.saves if save.picked_up is None)
    summary = f"{formats.plural(found.total, 'save')} made because something happened"
    if cause:
        summary = f"{formats.plural(found.total, 'save')}, cause: {formats.spell(cause)}"
    waits = f"; {lost:,} of those below not picked up yet" if lost else ""
    return tag(
        "div", tag("h1", "Emergency saves"), tag("p", f"{summary}{waits}", class_="dim"), class_="verdict"
    )


def _causes(view: View, found: Emergencies, cause: str) -> Safe | None:
    """How many there are of each cause; each leads to those of its kind."""
    if not found.causes:
        return None
    counted = sorted(found.causes, key=lambda count: -count.runs)
    bars = [(_cause_link(count.name, cause), "s1", count.runs) for count in counted]
    every = tag("a", "all causes", href=url(view.path)) if cause else None
    return layout.panel(
        "By cause", charts_bars.side_by_side("Saves by cause", bars), aside=every, id_="causes"
    )


def _cause_link(name: str, chosen: str) -> Safe:
    label = formats.spell(name) or "not known"
    return tag(
        "a",
        icon(name),
        label,
        href=url("/saves", {"cause": name}),
        aria_current="true" if name == chosen else None,
    )


def _list(view: View, found: Emergencies, cause: str) -> Safe:
    if not found.saves:
        return _none(view, cause)
    head = tag("tr", [tag("th", name, scope="col") for name in _HEADS])
    rows = [_row(view, save) for save in found.saves]
    return tag(
        "table", tag("caption", "Emergency saves, newest first", class_="unseen"), tag("thead", head), tag("tbody", rows),
        class_="table stack saves-all", id="saves",
    )  # fmt: skip


def _none(view: View, cause: str) -> Safe:
    if cause or "before" in view.query:
        return layout.empty("There are no such saves.", tag("a", "Show all", href=url(view.path)))
    return layout.empty(
        "No emergency saves.",
        "When an agent is stopped by a signal, a limit or a crash, outlast saves its files first and lists them here.",
    )


def _row(view: View, save: Emergency) -> Safe:
    return tag(
        "tr",
        tag("td", _when(view, save), data_l="When"),
        tag("td", _run(save), data_l="Run"),
        tag("td", _why(save), data_l="Why"),
        tag("td", _work(save), data_l="Work saved"),
        tag("td", _picked_up(view, save), data_l="Picked up"),
        id=f"s-{save.n}",
    )  # fmt: skip


def _when(view: View, save: Emergency) -> Safe:
    return tag("div", layout.when(view, save.at), tag("div", layout.ago(view, save.at), class_="dim"))


def _run(save: Emergency) -> Safe:
    name = tag("a", formats.clip(save.task, 60), href=run_url(save.run), class_="task", data_row=True)
    return tag("div", tag("div", name), tag("div", formats.clip(save.project_name, 40), class_="dim"))


def _why(save: Emergency) -> Safe:
    """The cause by sign and word, and its evidence."""
    known = formats.clip(save.evidence or save.reason, EVIDENCE_CHARS_MAX)
    cause = layout.cause(save.cause) if save.cause else tag("span", formats.spell(save.kind))
    return tag("div", tag("div", cause, class_="strong"), tag("div", known, class_="dim") if known else None)


def _work(save: Emergency) -> Safe:
    """The new work in a save. Every save holds all files, even if none differs from the save before."""
    files = "files not counted"
    if save.files is not None:
        changed = f"{formats.plural(save.files, 'file')} changed since the save before"
        files = changed if save.files else "all files, none changed since the save before"
    left_out = f", {save.left_out:,} left out" if save.left_out else ""
    under = (
        f"beat {save.beat:,} · ",
        tag(
            "a",
            tag("span", f"save of {formats.clip(save.task, 60)}: ", class_="unseen"),
            save.commit[:SHORT_CHARS],
            href=run_url(save.run, "saves", save.commit),
            class_="mono",
        ),
    )
    return tag("div", tag("div", files, left_out), tag("div", under, class_="dim"))


def _picked_up(view: View, save: Emergency) -> Safe:
    if save.picked_up is not None:
        by = layout.labelled("pick", f"by attempt {save.picked_up:,}", "good")
        return tag("div", by, tag("div", layout.when(view, save.picked_up_at), class_="dim"))
    return tag(
        "div",
        tag("div", layout.labelled("parked", "not yet", "warn")),
        tag("div", join(_goes_on(view, save))),
    )


def _goes_on(view: View, save: Emergency) -> Iterator[object]:
    if save.status in CLOSED:
        yield tag("span", formats.spell(save.status), class_="dim")
    elif save.status == "running" or view.read_only:
        yield layout.badge(save.status)
    elif save.act in ("settle", "resume"):
        label = "settle it first" if save.act == "settle" else "resume"
        named = tag("span", f": {formats.clip(save.task, 60)}", class_="unseen")
        yield tag("a", label, named, href=next_step.link(save.run, save.act, save.command))
    else:
        yield layout.badge(save.status)
