"""What a call brings to its target, as a text of named digests that are compared part by part. Standard library only.
Two contents are another as soon as one part of both is known and differs; the same only where every part is known of both.
"""

import hashlib
from collections.abc import Iterator
from typing import Final, Literal

UNKNOWN: Final = "?"
# Another value of these is no other act for sure: credentials, ids and dates of the one try, settings of the environment.
WEAK: Final = frozenset(["aside", "env"])
_MAIN: Final = frozenset(["body", "commits", "given", "title", "words"])
Comparison = Literal["same", "unclear", "another"]


def of(**parts: bytes | None) -> str:
    """The content that has these parts; None for one that nobody knows before the call runs."""
    digests = {name: UNKNOWN if data is None else digest(data) for name, data in parts.items()}
    return " ".join(f"{name}={digests[name]}" for name in sorted(digests))


def digest(*parts: bytes) -> str:
    """A short digest of these."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()[:32]


def packed(texts: Iterator[str] | list[str]) -> bytes:
    """Texts as the data of one part: no two lists of them have the same."""
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join(len(each).to_bytes(8, "big") + each for each in data)


def compare(first: str, again: str) -> Comparison:
    """Compare two contents part by part. A content that is empty, or in the form of an older journal, compares as `unclear`."""
    one, other = _parts(first), _parts(again)
    known = {name for name in one.keys() & other.keys() if UNKNOWN not in (one[name], other[name])}
    differ = {name for name in known if one[name] != other[name]}
    if differ - WEAK:
        return "another"
    return "same" if one and one.keys() == other.keys() == known and not differ else "unclear"


def is_whole(content: str) -> bool:
    """Whether all of it is known."""
    parts = _parts(content)
    return bool(parts) and UNKNOWN not in parts.values()


def can_differ(content: str) -> bool:
    """Whether the main parts are known: only then can another content be seen to differ."""
    known = [value for name, value in _parts(content).items() if name in _MAIN]
    return bool(known) and UNKNOWN not in known


def _parts(content: str) -> dict[str, str]:
    return {
        name: value for name, equals, value in (each.partition("=") for each in content.split(" ")) if equals
    }
