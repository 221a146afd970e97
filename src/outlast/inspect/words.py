"""An event of a journal in words, for `outlast log` and the page."""

import msgspec

from outlast.core import events as ev
from outlast.core.text import short

WORDS_CHARS_MAX = 200
_COURSE = ("t", "at")


def words(event: ev.AnyEvent) -> str:
    """What the event says besides its kind and time, on one safe line; long ones are cut."""
    fields = msgspec.json.decode(ev.encode(event), type=dict[str, msgspec.Raw])
    told = [f"{name}={_plain(value)}" for name, value in fields.items() if name not in _COURSE]
    return short(" ".join(told), WORDS_CHARS_MAX)


def _plain(raw: msgspec.Raw) -> str:
    """A value as JSON; a text without its quotes, an inline payload as its content."""
    value = msgspec.json.decode(raw)
    if isinstance(value, dict) and set(value) == {"v"}:
        value = value["v"]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
