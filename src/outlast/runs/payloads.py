"""Which blobs an event names, so that an export carries them and a sweep spares them."""

from collections.abc import Iterator

import msgspec

from outlast.core.events import AnyEvent
from outlast.core.values import Payload


def blobs_in(event: AnyEvent) -> Iterator[Payload]:
    """The payloads of an event that live in blobs."""
    return (payload for payload in _payloads(event) if payload.blob)


def _payloads(value: object) -> Iterator[Payload]:
    if isinstance(value, Payload):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _payloads(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _payloads(item)
