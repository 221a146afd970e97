"""The text that the next attempt will read, word for word."""

from outlast.dashboard.documents import Context, Row
from outlast.web.html import layout, run_parts
from outlast.web.html.html import Safe, tag
from outlast.web.html.icons import icon
from outlast.web.html.layout import View

CHARS_MAX = 600_000


def render(view: View, row: Row, given: Context) -> Safe:
    """The text exactly, with how much of a model's window it takes."""
    if not given.text:
        body: object = layout.empty("There is nothing to tell yet")
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
        text = tag("code", given.text[:CHARS_MAX])
        body = (
            tag("p", "The text that the next attempt will read, word for word.", class_="dim"),
            tag("div", copy, tag("pre", text, tabindex="0", role="region", aria_label="Context"), class_="whole"),
            more,
        )  # fmt: skip
    aside = f"about {given.tokens:,} tokens, {len(given.text):,} characters"
    return run_parts.page(
        view,
        row,
        "context",
        layout.panel("What the next attempt will read", body, id_="context", aside=aside),
    )
