"""The changes of a save, file by file, with line numbers on both sides: readable on a phone, without colour."""

from outlast.dashboard.documents import Against, Diff, FilePatch, Line, Row
from outlast.web.html import formats, layout, run_parts
from outlast.web.html.html import Safe, join, tag
from outlast.web.html.layout import View
from outlast.web.pages import saves

FILES_OPEN = 30
_SIGNS = {"added": "+", "deleted": "−", "context": "", "hunk": "", "note": ""}
_SPOKEN = {"added": "added", "deleted": "deleted"}
_CHANGES = {"added": "new", "deleted": "deleted", "changed": "changed", "kind": "another kind of file"}
_SIDES: dict[Against, str] = {"before": "the save before", "head": "HEAD"}


def render(view: View, row: Row, given: Diff) -> Safe:
    """A save against the one before, or against HEAD."""
    if not given.files:
        body: object = layout.empty(f"Nothing differs from {_SIDES[given.against]}")
    else:
        body = (
            _contents(given),
            _cut(given),
            [_file(at, each) for at, each in enumerate(given.files, start=1)],
        )
    return run_parts.page(
        view, row, "saves", _head(view, row, given), body, live=False, name=f"Save {given.save[:10]}"
    )  # fmt: skip


def _cut(given: Diff) -> Safe | None:
    """A note that there is more than a page can show, and where it is."""
    if not given.cut:
        return None
    more = given.files_total - len(given.files)
    note = (
        f"{formats.plural(more, 'more file differs', 'more files differ')} than are shown here. "
        if more
        else "Not all of it is shown here. "
    )
    line = layout.command(f"git diff {given.other[:12]} {given.save[:12]}") if given.other else None
    return layout.notice("warn", note, line)


def _head(view: View, row: Row, given: Diff) -> Safe:
    sides = [
        tag("a", f"against {word}", href=layout.run_url(row.run, "saves", given.save, against=side),
            class_="button", aria_current="page" if side == given.against else None)
        for side, word in _SIDES.items()
    ]  # fmt: skip
    restore = None
    if not view.read_only:
        link = layout.run_url(row.run, "do", "restore", save=given.save)
        restore = layout.button("Restore to a new folder", link, sign="save")
    other = f" ({given.other[:10]})" if given.other else ""
    title = join((
        _count(given), f" against {_SIDES[given.against]}", tag("span", other, class_="dim mono") if other else None
    ))  # fmt: skip
    return layout.panel(
        title,
        tag("p", saves.kind(given.kind), " ", layout.when(view, given.at), " ", run_parts.clipped(given.reason, 300)),
        tag("div", sides, restore, class_="acts"),
        tag("p", layout.command(given.restore)) if given.restore else None,
        id_="save",
    )  # fmt: skip


def _count(given: Diff) -> Safe:
    return join(
        (formats.plural(given.files_total, "file"), " ", _lines(given.lines_added, given.lines_deleted))
    )


def _lines(added: int, deleted: int) -> Safe:
    """Lines added and deleted; a 0 is left out."""
    more = (
        tag("span", f"+{added:,}", class_="plus", title=f"{formats.plural(added, 'line')} added")
        if added
        else None
    )
    less = (
        tag("span", f"−{deleted:,}", class_="minus", title=f"{formats.plural(deleted, 'line')} deleted")
        if deleted
        else None
    )
    return join((more, " " if added and deleted else None, less))


def _contents(given: Diff) -> Safe:
    lines = [
        tag("li", tag("a", _path(each), href=f"#f{at}"), " ", _sizes(each))
        for at, each in enumerate(given.files, start=1)
    ]
    return tag(
        "details", tag("summary", formats.plural(len(given.files), "file")), tag("ul", lines, class_="plain files"),
        id="files", class_="panel", open=len(given.files) <= FILES_OPEN,
    )  # fmt: skip


def _path(patch: FilePatch) -> Safe:
    return tag("span", formats.clip(patch.file.path, 400), class_="mono")


def _sizes(patch: FilePatch) -> Safe:
    file = patch.file
    word = tag("span", _CHANGES.get(file.change, file.change), class_="chip small")
    if file.lines_added is None or file.lines_deleted is None:
        return join((word, tag("span", " no text", class_="dim")))
    return join((word, " ", _lines(file.lines_added, file.lines_deleted)))


def _file(at: int, patch: FilePatch) -> Safe:
    name = formats.clip(patch.file.path, 120)
    cut = tag("p", "The rest of this file is not shown here.", class_="dim cut") if patch.cut else None
    if patch.lines:
        body: object = (
            tag(
                "table", tag("caption", f"Changed lines of {name}", class_="unseen"), _columns(),
                tag("tbody", [_line(line) for line in patch.lines]), class_="diff",
            ),
            cut,
        )  # fmt: skip
    elif patch.file.lines_added is None:
        body = tag("p", "This is not a text file, so its lines are not shown.", class_="dim cut")
    else:
        body = cut or tag(
            "p", "No line differs: the file is empty, or only its mode or kind changed.", class_="dim cut"
        )
    return tag(
        "section", tag("h2", _path(patch), " ", _sizes(patch), class_="file-name"), body, class_="panel file", id=f"f{at}"
    )  # fmt: skip


def _columns() -> Safe:
    names = ("Old line", "New line", "Change", "Text")
    widths = tag("colgroup", [tag("col", class_=name) for name in ("number", "number", "change", "line")])
    return join(
        (widths, tag("thead", tag("tr", [tag("th", name, scope="col") for name in names]), class_="unseen"))
    )


def _line(line: Line) -> Safe:
    if line.kind in ("hunk", "note"):
        return tag("tr", tag("td", line.text, colspan=4), class_=line.kind)
    spoken = _SPOKEN.get(line.kind)
    sign = tag("span", _SIGNS[line.kind], aria_label=spoken, role="img") if spoken else None
    return tag(
        "tr",
        tag("td", line.old),
        tag("td", line.new),
        tag("td", sign),
        tag("td", line.text),
        class_=line.kind,
    )
