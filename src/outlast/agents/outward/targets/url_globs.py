"""The addresses that one URL of curl's stands for: `{a,b}` and `[1-3]` in it make several requests of one."""

import re

GLOBBED_MAX = 16
_GLOB = re.compile(r"(?<![\\$])(?:\{([^{}]*)\}|\[(\d+|[a-z]|[A-Z])-(\d+|[a-z]|[A-Z])(?::(\d+))?\])")


def globbed(url: str) -> list[str]:
    """All that a URL stands for, in order. Of more than a few only the first, and the whole as it is written."""
    found = [url]
    while any(map(_GLOB.search, found)):
        found = [one for each in found for one in _opened(each)]
        if len(found) > GLOBBED_MAX:
            return [*found[:GLOBBED_MAX], url]
    return found


def _opened(url: str) -> list[str]:
    """The first glob of a URL, opened."""
    match = _GLOB.search(url)
    if match is None:
        return [url]
    values = match[1].split(",") if match[1] is not None else _range(match[2], match[3], int(match[4] or 1))
    if len(values) > GLOBBED_MAX:
        values = values[: GLOBBED_MAX + 1]
    return [url[: match.start()] + value + url[match.end() :] for value in values] or [
        url.replace(match[0], "")
    ]


def _range(first: str, last: str, step: int) -> list[str]:
    if first.isdigit() and last.isdigit():
        numbers = range(int(first), int(last) + 1, max(1, step))[: GLOBBED_MAX + 1]
        return [str(number).zfill(len(first) if first[0] == "0" else 1) for number in numbers]
    return [chr(code) for code in range(ord(first), ord(last) + 1, max(1, step))]
