"""The journal of a run, newest first: every event in words, and as it is on disk behind a fold."""

from outlast.dashboard.documents import Entry, JournalPage, Row
from outlast.web.html import formats, layout, run_parts
from outlast.web.html.html import Safe, join, tag
from outlast.web.html.layout import View

JSON_CHARS_MAX = 3_000
TEXT_CHARS_MAX = 240


def render(view: View, row: Row, given: JournalPage) -> Safe:
    """Events by their numbers."""
    if not given.events:
        body: object = layout.empty("No events here")
    else:
        body = tag("ol", [_entry(view, each) for each in given.events], class_="journal")
    line = layout.ours(view, f"outlast log {row.run} --follow")
    panel = layout.panel(
        "Journal, newest first", line, body, id_="journal", aside=formats.plural(given.total, "event")
    )
    return run_parts.page(view, row, "journal", panel, layout.pager(view, given.before))


def _entry(view: View, entry: Entry) -> Safe:
    text = run_parts.pretty(entry.event)
    cut = len(text) - JSON_CHARS_MAX
    more = tag("p", f"cut here: {cut:,} more characters", class_="dim") if cut > 0 else None
    head = join((
        tag("span", f"{entry.seq:,}", class_="n"), " ", run_parts.second(view, entry.at), " ",
        tag("span", formats.spell(entry.tag), class_="tag"), " ", tag("span", formats.clip(entry.text, TEXT_CHARS_MAX), class_="text"),
    ))  # fmt: skip
    return tag(
        "li",
        tag(
            "details",
            tag("summary", head),
            tag("pre", text[:JSON_CHARS_MAX], tabindex="0"),
            more,
            id=f"e{entry.seq}",
        ),
        id=f"event-{entry.seq}",
    )
