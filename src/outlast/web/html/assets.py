"""The files that a page loads: few, ours, read once. A link to one carries the sum of its bytes, so it may be kept for ever."""

import functools
import hashlib
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "static"
TYPES = {
    "style.css": "text/css; charset=utf-8",
    "run.css": "text/css; charset=utf-8",
    "early.js": "text/javascript; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@functools.cache
def read(name: str) -> bytes:
    """The bytes of one of the files; KeyError for every other name."""
    return (FOLDER / _known(name)).read_bytes()


@functools.cache
def version(name: str) -> str:
    """A word that changes with the file."""
    return hashlib.sha256(read(name)).hexdigest()[:12]


def link(name: str) -> str:
    """Where a page finds it."""
    return f"/static/{name}?v={version(name)}"


def _known(name: str) -> str:
    if name not in TYPES:
        raise KeyError(name)
    return name
