"""Decides which untracked file is a secret: by its name, or by what it holds; and what a save says of it.

Every save, preview and restore asks here. Where secrets are stored: `secrets`."""

import contextlib
import os
from collections.abc import Sequence

from outlast.workspace import rules, secret_texts
from outlast.workspace.git.packs import Look, Refused

_CHUNK = 1 << 18


class KeyFound(Refused):
    """The file that is being read holds a key."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class SecretFiles:
    """The rules of one workspace. A `place` is a path in it; nobody asks about tracked files."""

    def __init__(self, not_secret: Sequence[str] = ()) -> None:
        self._not_secret = tuple(not_secret)

    def has_secret_name(self, place: bytes) -> bool:
        """Whether a file of this name is a secret, whatever it holds."""
        return rules.is_secret_name(place) and not self._is_declared(place)

    def look_at(self, place: bytes) -> Look | None:
        """What looks at a file's chunks while they are read, and raises KeyFound; None if nothing does."""
        if self._is_declared(place):
            return None
        search = secret_texts.KeySearch()

        def look(chunk: bytes, last: bool) -> None:
            kind = search.feed(chunk, last=last)
            if kind:
                raise KeyFound(kind)

        return look

    def kind_of(self, path: bytes, place: bytes, bytes_max: int = secret_texts.LOOKED_AT_BYTES) -> str | None:
        """The kind of secret that the file at this path is, empty if its name says so; None if it is none.

        Reads so much of it: this is for the files that a save does not read.
        """
        if self._is_declared(place):
            return None
        return "" if rules.is_secret_name(place) else _key_in(path, bytes_max) or None

    def _is_declared(self, place: bytes) -> bool:
        """Whether a person says that this file is no secret."""
        return any(rules.is_named(place, pattern) for pattern in self._not_secret)


def _key_in(path: bytes, bytes_max: int) -> str:
    """The kind of key at the beginning of a file; empty if there is none, or if it cannot be read."""
    search = secret_texts.KeySearch()
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            left = bytes_max
            while left and (chunk := file.read(min(left, _CHUNK))):
                left -= len(chunk)
                kind = search.feed(chunk, last=False)
                if kind:
                    return kind
            return search.feed(b"", last=True)
    return ""
