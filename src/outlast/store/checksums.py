"""The checksum at the end of a stored event, head or request: whether its bytes lie where they were written, unchanged.

What an older outlast wrote has none, and is `unchecked`."""

import zlib
from typing import Literal

Verdict = Literal["whole", "unchecked", "damaged"]

_END = b',"sum":"%08x"}'
_END_BYTES = len(_END % 0)
_DAMAGED_BITS_MAX = 16


def sealed(data: bytes, run: str, place: int) -> bytes:
    """A JSON object with its checksum as its last field. `place` is its number in the run: moved elsewhere, it is damaged."""
    return data[:-1] + _END % _sum(data, run, place)


def verdict(data: bytes, run: str, place: int) -> Verdict:
    """Whether a stored object is unchanged since it was written.

    A damaged checksum differs from a missing one: nearly all of its bits stand.
    """
    end = data[-_END_BYTES:]
    wanted = _END % _sum(data[:-_END_BYTES] + b"}", run, place)
    if end == wanted:
        return "whole"
    head, tail = wanted[:8], wanted[-2:]
    looks_sealed = end.startswith(head) and end.endswith(tail)
    return "damaged" if looks_sealed or _bits_apart(end, wanted) <= _DAMAGED_BITS_MAX else "unchecked"


def number(*parts: bytes) -> int:
    """The checksum of several values, for what is no JSON object."""
    found = 0
    for part in parts:
        found = zlib.crc32(part, zlib.crc32(len(part).to_bytes(8, "big"), found))
    return found


def _sum(data: bytes, run: str, place: int) -> int:
    return zlib.crc32(data, zlib.crc32(b"%s %d " % (run.encode(), place)))


def _bits_apart(one: bytes, other: bytes) -> int:
    if len(one) != len(other):
        return 8 * max(len(one), len(other))
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).bit_count()
