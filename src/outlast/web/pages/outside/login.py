"""Where a token is asked for: the page is open to more than this machine."""

from outlast.web.html import layout
from outlast.web.html.html import Safe, tag
from outlast.web.html.layout import View


def render(view: View, problem: str) -> Safe:
    """The form. `problem`: why the last token was not taken."""
    field = tag(
        "input", type="password", name="token", id="token", required=True, autocomplete="current-password",
        spellcheck="false", autofocus=True, aria_describedby="token-hint",
    )  # fmt: skip
    hint = (
        "`outlast ui` printed it with its address where it was started, or it is in the file given as ",
        tag("code", "--token-file"),
        ".",
    )
    form = tag(
        "form", layout.csrf(view), tag("input", type="hidden", name="next", value=view.query.get("next", "")),
        tag("div", tag("label", "Token", for_="token"), field, tag("span", hint, class_="hint", id="token-hint"), class_="row"),
        tag("div", tag("button", "Open", class_="button primary"), class_="actions"),
        method="post", action="/login", class_="form",
    )  # fmt: skip
    notice = layout.notice("bad", problem) if problem else None
    return layout.page(
        view,
        "Token needed",
        tag("div", tag("h1", "This page needs a token"), notice, form, class_="ask panel"),
        live=False,
    )
