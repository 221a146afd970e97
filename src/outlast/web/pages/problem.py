"""The page for an error: the error in one line, and what to do next."""

from outlast.web.html import layout
from outlast.web.html.html import Safe, tag
from outlast.web.html.icons import icon
from outlast.web.html.layout import View


def render(view: View, status: int, title: str, hint: str) -> Safe:
    """A page for a problem. It is not live: load it again to look again."""
    sign = icon("needs-you", class_="t-bad toned") if status >= 500 else None
    return layout.page(
        view,
        title,
        tag(
            "div", tag("h1", sign, title), tag("p", hint, class_="hint-line") if hint else None,
            tag(
                "div", layout.button("All runs", "/", primary=True), tag("a", "Try again", href=_same(view), class_="button"),
                class_="actions",
            ),
            tag("p", f"HTTP {status}", class_="dim"), class_="ask panel problem",
        ),
        live=False,
    )  # fmt: skip


def _same(view: View) -> str:
    """The very page again, unless its address is no plain path."""
    plain = view.path.startswith("/") and not view.path.startswith(("//", "/\\"))
    return layout.url(view.path, view.query) if plain else "/"
