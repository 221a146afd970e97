"""Journals without secrets, for an export: payloads, blobs and the texts that people read."""

from collections.abc import Callable
from typing import Any

import msgspec

from outlast import decoders
from outlast.core import events as ev, secrets
from outlast.core.values import Contract, Payload
from outlast.operations.transfer.archive_file import digest_of

# Texts for people, and what the process was called with. Every other field of plain text is matched or found by.
TEXTS = (
    "evidence",
    "error",
    "text",
    "output",
    "uri",
    "command",
    "reason",
    "stage",
    "left_out",
    "by",
    "version",
)


class MaskedValue(msgspec.Struct, frozen=True):
    """One value that was masked: where it is, and what it looked like."""

    run: str
    seq: int
    event: str
    field: str
    kinds: tuple[str, ...]


class Masking:
    """Masks the events of one export, and remembers which blobs it changed.

    What a repeated beat is matched by stays as it is: names, keys, ids, digests of arguments, the contract.
    """

    def __init__(self, get: Callable[[str], bytes]) -> None:
        self._get = get
        self._blobs: dict[str, tuple[Payload, secrets.Names]] = {}
        self._before: dict[str, str] = {}  # by the digest of a masked blob: that of the blob it was made from
        self.found: list[MaskedValue] = []

    def journal(self, run: str, events: list[ev.AnyEvent]) -> list[ev.AnyEvent]:
        """A run's events, masked."""
        return [self._event(run, seq, event) for seq, event in enumerate(events, 1)]

    def blob(self, digest: str) -> bytes:
        """A blob that a masked event names, masked once more rather than kept in memory."""
        before = self._before.get(digest)
        return self._get(digest) if before is None else _mask_blob(self._get(before))[0]

    def _event(self, run: str, seq: int, event: ev.AnyEvent) -> ev.AnyEvent:
        changed: dict[str, Any] = {}
        for field in event.__struct_fields__:
            value, kinds = self._value(field, getattr(event, field))
            if kinds:
                changed[field] = value
                self.found.append(MaskedValue(run, seq, ev.tag_of(event), field, tuple(sorted(kinds))))
        return msgspec.structs.replace(event, **changed) if changed else event

    def _value(self, field: str, value: Any) -> tuple[Any, secrets.Names]:
        if isinstance(value, Payload):
            return self._payload(value)
        if isinstance(value, str):
            return secrets.mask(value) if field in TEXTS else (value, secrets.NONE)
        if isinstance(value, tuple):
            pairs = [self._value(field, item) for item in value]
            return tuple(item for item, _ in pairs), secrets.NONE.union(*(kinds for _, kinds in pairs))
        if isinstance(value, msgspec.Struct) and not isinstance(value, Contract):
            fields = {name: self._value(name, getattr(value, name)) for name in value.__struct_fields__}
            changed = {name: item for name, (item, kinds) in fields.items() if kinds}
            kinds = secrets.NONE.union(*(kinds for _, kinds in fields.values()))
            return (msgspec.structs.replace(value, **changed) if changed else value), kinds
        return value, secrets.NONE

    def _payload(self, payload: Payload) -> tuple[Payload, secrets.Names]:
        if not payload.blob:
            data, kinds = secrets.mask_json(bytes(payload.v))
            return (Payload(v=msgspec.Raw(data)) if kinds else payload), kinds
        if payload.blob not in self._blobs:
            data, kinds = _mask_blob(self._get(payload.blob))
            masked = Payload(blob=digest_of(data), size=len(data)) if kinds else payload
            if kinds:
                self._before[masked.blob] = payload.blob
            self._blobs[payload.blob] = masked, kinds
        return self._blobs[payload.blob]


def _mask_blob(data: bytes) -> tuple[bytes, secrets.Names]:
    """A blob is JSON or any text; bytes that are not text stay as they are."""
    try:
        decoders.decode(data, msgspec.Raw)
        return secrets.mask_json(data)
    except msgspec.DecodeError:
        pass
    try:
        text, kinds = secrets.mask(data.decode())
    except UnicodeDecodeError:
        return data, secrets.NONE
    return text.encode(), kinds
