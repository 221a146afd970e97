"""The journal of a run, newest first: every event in words, and as it is on disk behind a fold."""

from outlast.board.docs import Entry, JournalPage, Row
from outlast.web import frame, showing, words
from outlast.web.frame import View
from outlast.web.html import Safe, join, tag

JSON_CHARS_MAX = 3_000
TEXT_CHARS_MAX = 240


def render(view: View, row: Row, given: JournalPage) -> Safe:
    """Events by their numbers."""
    if not given.events:
        body: object = frame.empty("No events here")
    else:
        body = tag("ol", [_entry(view, each) for each in given.events], class_="journal")
    line = frame.ours(view, f"outlast log {row.run} --follow")
    panel = frame.panel(
        "Journal, newest first", line, body, id_="journal", aside=words.plural(given.total, "event")
    )
    return showing.page(view, row, "journal", panel, frame.pager(view, given.before))


def _entry(view: View, entry: Entry) -> Safe:
    told = showing.pretty(entry.event)
    cut = len(told) - JSON_CHARS_MAX
    more = tag("p", f"cut here: {cut:,} more characters", class_="dim") if cut > 0 else None
    head = join((
        tag("span", f"{entry.seq:,}", class_="n"), " ", showing.second(view, entry.at), " ",
        tag("span", words.spell(entry.tag), class_="tag"), " ", tag("span", words.clip(entry.text, TEXT_CHARS_MAX), class_="text"),
    ))  # fmt: skip
    return tag(
        "li",
        tag(
            "details",
            tag("summary", head),
            tag("pre", told[:JSON_CHARS_MAX], tabindex="0"),
            more,
            id=f"e{entry.seq}",
        ),
        id=f"event-{entry.seq}",
    )
