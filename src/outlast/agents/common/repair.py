"""The common parts of mending transcripts of JSON lines: a torn end, and names for added lines."""

from collections.abc import Iterable
from uuid import NAMESPACE_OID, uuid5

import msgspec

from outlast.agents.common import json_lines


def whole(transcript: bytes) -> bytes:
    """The transcript up to its last whole line. A last line without an end counts when it is whole JSON."""
    if not transcript or transcript.endswith(b"\n"):
        return transcript
    start = transcript.rfind(b"\n") + 1
    return transcript[:start] if json_lines.record(transcript[start:]) is None else transcript + b"\n"


def append(transcript: bytes, records: Iterable[object]) -> bytes:
    """The transcript with these records behind it, a line each."""
    return whole(transcript) + b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def stable(*words: str) -> str:
    """An id for what is added: mending the same transcript twice gives the same bytes."""
    return str(uuid5(NAMESPACE_OID, "\0".join(("outlast", *words))))


def plain(value: msgspec.Raw) -> object:
    """A call's input as a value to write; an empty object where it is not JSON."""
    try:
        return msgspec.json.decode(value) if value else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return {}
