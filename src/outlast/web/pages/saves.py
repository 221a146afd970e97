"""The saves of a run, newest first: why each was made, what is in it, how it comes back."""

from outlast.dashboard.documents import Row, SaveRow, Saves
from outlast.web.html import formats, layout, run_parts
from outlast.web.html.html import Safe, tag
from outlast.web.html.layout import View

LEFT_OUT_SHOWN = 40
_KINDS: dict[str, tuple[str, str, layout.Tone]] = {
    "beat": ("done", "beat's end", "mute"),
    "emergency": ("needs-you", "emergency", "warn"),
    "found": ("search", "found after a crash", "warn"),
    "final": ("done", "final", "good"),
    "pre-restore": ("pick", "before a restore", "mute"),
    "manual": ("operator", "by hand", "mute"),
    "watch": ("save", "while watching", "mute"),
}


def render(view: View, row: Row, given: Saves) -> Safe:
    """Saves with their commands."""
    if given.problem:
        body: object = layout.notice("warn", tag("strong", "The saves cannot be read here. "), given.problem)
    elif not given.saves:
        note = "A save is made at a beat's end where files changed, and whenever something stops the run."
        body = layout.empty("No saves yet", note)
    else:
        body = (
            tag("ol", [_save(view, row, each) for each in given.saves], class_="saves"),
            _pages(row, given),
            layout.notice("mute", tag("strong", "There are more. "), given.more) if given.more else None,
        )
    aside = formats.plural(given.total, "save") if given.total else None
    return run_parts.page(
        view, row, "saves", layout.panel("Saves, newest first", body, id_="saves", aside=aside)
    )


def _pages(row: Row, given: Saves) -> Safe:
    links = {page: layout.run_url(row.run, "saves", page=page) for page in (given.page - 1, given.page + 1)}
    return layout.pages(given.page, given.pages, links)


def kind(name: str) -> Safe:
    """The purpose of a save, by sign and word."""
    return layout.labelled(*_KINDS.get(name, ("save", name, "mute")))


def _save(view: View, row: Row, save: SaveRow) -> Safe:
    point = save.point
    changed = (
        formats.plural(point.changed or 0, "file changed", "files changed")
        if point.changed
        else "nothing changed"
    )
    if point.changed is None:
        changed = "not known how many files changed"
    reason = "" if point.reason == f"beat {point.beat}" else point.reason
    links = [
        tag(
            "a",
            "what changed since the save before",
            href=layout.run_url(row.run, "saves", point.commit, against="before"),
        ),
        tag("a", "against HEAD", href=layout.run_url(row.run, "saves", point.commit, against="head")),
    ]
    if not view.read_only:
        links.append(
            tag(
                "a",
                "restore to a new folder",
                href=layout.run_url(row.run, "do", "restore", save=point.commit),
            )
        )
    return tag(
        "li",
        tag("h3", tag("span", point.commit[:10], class_="mono"), " ", kind(point.kind)),
        tag("p", layout.when(view, point.at), " (", layout.ago(view, point.at), f") · beat {point.beat:,} · {changed}", class_="dim"),
        tag("p", run_parts.long_text(reason, id_=f"save-{point.commit}-why", name="reason")) if reason else None,
        tag("p", layout.labelled("needs-you", formats.clip(point.warning, 300), "warn")) if point.warning else None,
        _left_out(save),
        tag("p", layout.command(save.restore)) if save.restore else None,
        tag("p", [tag("span", each) for each in links], class_="links"),
        id=f"save-{point.commit}",
    )  # fmt: skip


def _left_out(save: SaveRow) -> Safe | None:
    left = save.point.left_out
    if not left:
        return None
    lines = [
        tag("li", tag("code", run_parts.clipped(each.path, 200)), f" {formats.clip(each.why, 120)}",
            f", {formats.size(each.size)}" if each.size else None)
        for each in left[:LEFT_OUT_SHOWN]
    ]  # fmt: skip
    more = (
        tag("li", f"… and {len(left) - LEFT_OUT_SHOWN:,} more", class_="dim")
        if len(left) > LEFT_OUT_SHOWN
        else None
    )
    summary = tag("summary", formats.plural(len(left), "file"), " left out: a restore never deletes them")
    return tag(
        "details",
        summary,
        tag("ul", lines, more, class_="plain"),
        id=f"save-{save.point.commit}-left",
        class_="fold",
    )
