"""Finds a program's version, by its path or package, else by asking it; and whether outlast carries that version.
Starts nothing itself: a caller that may start processes passes a `Runner`.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.agents.common import json_lines
from outlast.agents.release import Release
from outlast.agents.timing import Timing

LEVELS_MAX = 6
PACKAGE_MAX_BYTES = 1 << 20

_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?(?:[-+.][0-9A-Za-z.-]{1,40})?")
# words and a timeout in seconds → what it printed; may raise OSError
Runner = Callable[[Sequence[str], float], str]


class _Package(msgspec.Struct, frozen=True):
    name: str = ""
    version: str = ""


_package: "msgspec.json.Decoder[_Package]" = decoders.of_json(_Package)


def parts(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with, for comparing: `2.1.325-beta` → (2, 1, 325). Empty for no version."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9}){0,5}", version.strip().removeprefix("v"))
    return tuple(int(number) for number in found[0].split(".")) if found else ()


def real(program: str) -> str:
    """The file behind a path, through its links; the path itself if there is no file."""
    try:
        return os.path.realpath(program) if program else ""
    except (OSError, ValueError):
        return program


def by_package(program: str, packages: Sequence[str]) -> str:
    """The version that the program's package or path names, or nothing. Reads files, starts nothing."""
    if not program:
        return ""
    try:
        real = Path(program).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return ""
    if _VERSION.fullmatch(real.name):  # …/claude/versions/2.1.325
        return real.name
    for folder in list(real.parents)[:LEVELS_MAX]:
        found = _read(folder / "package.json")
        if found and any(found.name == name or found.name.startswith(name + "-") for name in packages):
            return found.version
    return ""


def _read(path: Path) -> _Package | None:
    try:
        with path.open("rb") as file:
            return json_lines.decode(file.read(PACKAGE_MAX_BYTES), _package)
    except (OSError, ValueError):
        return None


def by_distribution(program: str, name: str) -> str:
    """The version of the Python distribution that a console script in a virtual environment belongs to, or nothing."""
    wanted = re.compile(re.escape(name).replace(r"\-", "[-_]") + r"-(\d[^-/]*)\.dist-info", re.IGNORECASE)
    try:
        places = sorted(Path(program).parent.parent.glob("lib/python3*/site-packages/*.dist-info"))
        places += sorted(Path(program).resolve().parent.parent.glob("lib/python3*/site-packages/*.dist-info"))
    except (OSError, RuntimeError, ValueError):
        return ""
    return next((found[1] for place in places if (found := wanted.fullmatch(place.name))), "")


def by_answer(program: str, run: Runner) -> str:
    """The program's own answer to `--version`; nothing if it has none in time."""
    try:
        found = _VERSION.search(run([program, "--version"], Timing.current().version_s)[:4096])
    except (OSError, ValueError):
        return ""
    return found[0] if found else ""


def of(release: Release, program: str, run: Runner | None = None) -> str:
    """The version, by the program's package, its path, or its own answer; empty where none of them tells."""
    if release.distribution:
        found = by_distribution(program, release.distribution)
    else:
        found = by_package(program, release.packages)
    return found or (by_answer(program, run) if run is not None and release.answers_version else "")


def problem(release: Release, version: str) -> str:
    """Why this version cannot be carried, empty when it can."""
    found, title = parts(version), release.title or release.name
    if release.empty is not None and found >= release.empty.since:
        return f"{title} {version} {release.empty.why}"
    if not found or found >= release.oldest:
        return ""
    how = f"; {release.upgrade}" if release.upgrade else ""
    return f"{title} {version} is too old: outlast carries {_dotted(release.oldest)} and newer{how}"


def untested(release: Release, version: str) -> str:
    """The note on a carried version that nobody tried, or that cannot be read; empty for the others."""
    found, title = parts(version), release.title or release.name
    if not found:
        return f"the version of {title} cannot be read"
    if found[:2] <= release.newest:
        return ""
    return f"{title} {version} is newer than what outlast was tried with ({_dotted(release.newest)})"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
