"""HTML and SVG built from nested calls. Every text is escaped on its way in: an agent wrote most of it."""

import html
import re
from collections.abc import Iterable

_VOID = frozenset({"meta", "link", "input", "br", "hr", "img", "col"})
_OUTSIDE_ONLY = frozenset({"script", "style", "iframe", "object", "embed", "base"})
_LINKS = frozenset({"href", "src", "action", "formaction"})
# Controls, signs that are not seen, and signs that turn the line around. Tabs and line ends are layout.
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
    # Joiners belong to emoji and to many scripts, and to nothing that is written with ASCII.
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)
_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")


class Safe(str):
    """A piece of a page that is already escaped."""

    __slots__ = ()


NOTHING = Safe("")


def trusted(text: str) -> Safe:
    """A text of ours, taken as it is: never anything that came from a run."""
    return Safe(text)


def text(value: object) -> Safe:
    """A text as it is read, with what is invisible or turns the line around spelled out."""
    return Safe(_escaped(str(value)))


def visible(value: str) -> str:
    """Controls and signs that change the direction of writing are shown by their numbers: a page must not be faked with them."""
    if value.isascii() and value.isprintable():
        return value
    return _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", value)


def _escaped(value: str) -> str:
    return html.escape(visible(value), quote=True)


def join(parts: object) -> Safe:
    """Pieces after one another; None and False are nothing."""
    if isinstance(parts, Safe):
        return parts
    if parts is None or parts is False:
        return NOTHING
    if isinstance(parts, str | int | float):
        return text(parts)
    assert isinstance(parts, Iterable), f"a piece of a page, not {type(parts).__name__}"
    return Safe("".join([join(part) for part in parts]))


def tag(name: str, /, *inside: object, **attributes: object) -> Safe:
    """An element. `class_` is `class`, an underscore inside is a hyphen, True is an attribute without a value.

    `tag("td", "text", class_="n")` is a piece of a page; only what `tag`, `join` and `trusted` made is taken as it is. It cannot
    build what the page's policy would refuse anyway: scripts and styles inside a page, links that lead out of it.
    """
    attribute_text = "".join([_attribute(key, value) for key, value in attributes.items()])
    if name in _VOID:
        return Safe(f"<{name}{attribute_text}>")
    assert name not in _OUTSIDE_ONLY or (name == "script" and not inside), f"<{name}> has no place in a page"
    return Safe(f"<{name}{attribute_text}>{join(inside)}</{name}>")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    assert not name.startswith(("style", "on")), f"{name}= is refused by the page's policy"
    if value is True:
        return f" {name}"
    if name in _LINKS:
        assert _stays_here(str(value)), "a link leads to a place of this server"
    if name == "value":  # of a form: it is sent back, and must be what it was
        return f' value="{html.escape(_sendable(str(value)), quote=True)}"'
    return f' {name}="{_escaped(str(value))}"'


def field_text(value: str) -> Safe:
    """The text of a field of several lines, which a browser sends back unchanged."""
    return Safe("\n" + html.escape(_sendable(value), quote=True))  # a reader of HTML drops the first line end


def _sendable(value: str) -> str:
    """The value without characters that a page cannot contain, with every line end as one newline."""
    return _UNSENDABLE.sub("\ufffd", value.replace("\r\n", "\n").replace("\r", "\n"))


def _stays_here(link: str) -> bool:
    """A path, a query or a place on the page: no scheme, no other host."""
    return link[:1] in ("/", "?", "#") and link[:2] not in ("//", "/\\")
