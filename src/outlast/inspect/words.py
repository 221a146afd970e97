"""An event of a journal in words, for `outlast log` and the page."""

import msgspec

from outlast import decoders
from outlast.core import events as ev, secrets, verdict
from outlast.core.text import short, without_class

WORDS_CHARS_MAX = 200
MASKED_CHARS_MAX = 4096  # so much is looked at: a secret is known by what stands around it
_COURSE = ("t", "at")


def words(event: ev.AnyEvent) -> str:
    """The event's fields besides kind and time, on one safe line; long ones are cut."""
    fields = decoders.decode(ev.encode(event), dict[str, msgspec.Raw])
    plain = {
        name: _plain(secrets.mask_json(bytes(value))[0])
        for name, value in fields.items()
        if name not in _COURSE
    }
    if isinstance(event, ev.AttemptEnded):
        plain["status"] = verdict.of_end(event).replace("_", " ")
    text = without_class(" ".join(f"{name}={value}" for name, value in plain.items()))
    return short(secrets.mask(short(text, MASKED_CHARS_MAX))[0], WORDS_CHARS_MAX)


def data(event: ev.AnyEvent, *, masks: bool) -> msgspec.Raw:
    """The event as JSON. `masks`: it is of a command, whose agent may have written keys; a program's values stay as they are."""
    encoded = ev.encode(event)
    return msgspec.Raw(secrets.mask_json(encoded)[0] if masks else encoded)


def _plain(raw: bytes) -> str:
    """A value as JSON; a text without its quotes, an inline payload as its content."""
    value = msgspec.json.decode(raw)
    if isinstance(value, dict) and set(value) == {"v"}:
        value = value["v"]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
