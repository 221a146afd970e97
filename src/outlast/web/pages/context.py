"""What the next attempt will be told, word for word."""

from outlast.board.docs import Context, Row
from outlast.web import frame, showing
from outlast.web.frame import View
from outlast.web.html import Safe, tag
from outlast.web.icons import icon

CHARS_MAX = 600_000


def render(view: View, row: Row, given: Context) -> Safe:
    """The text exactly, with how much of a model's window it takes."""
    if not given.text:
        body: object = frame.empty("There is nothing to tell yet")
    else:
        copy = tag(
            "button", icon("copy"), "Copy", type="button", class_="button only-js", data_copy=True,
            aria_label="Copy the context",
        )  # fmt: skip
        cut = len(given.text) - CHARS_MAX
        more = (
            tag("p", f"{cut:,} more characters: ", tag("code", f"outlast context {row.run}"), class_="dim")
            if cut > 0
            else None
        )
        told = tag("code", given.text[:CHARS_MAX])
        body = (
            tag("p", "Word for word what a fresh attempt is told, as far as this run has come.", class_="dim"),
            tag("div", copy, tag("pre", told, tabindex="0", role="region", aria_label="Context"), class_="whole"),
            more,
        )  # fmt: skip
    aside = f"about {given.tokens:,} tokens, {len(given.text):,} characters"
    return showing.page(
        view,
        row,
        "context",
        frame.panel("What the next attempt will be told", body, id_="context", aside=aside),
    )
