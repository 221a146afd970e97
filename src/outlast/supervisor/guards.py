"""What stands between an agent and the world: its hooks' command, the shims on its PATH, and what is outward at all."""

import os
import shlex
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from outlast import settings
from outlast.agents.outward import probes, rules, shims
from outlast.agents.outward.classify import Outward, ReadBack, classify, classify_argv
from outlast.agents.outward.rules import Rules
from outlast.core.secrets import mask
from outlast.errors import DidNotHappen, UsageError
from outlast.probes import CannotTell, Happened
from outlast.supervisor import calls, detaching, hookclient, shimming

OWN_CLASSES = "outward.toml"
SHIMS = "shims"  # in the folder of a run's agent
Finding = Happened | DidNotHappen | CannotTell


def hook_words(socket: str, mark: str, agent: str) -> tuple[str, ...]:
    """The command that an agent's hooks run."""
    own = settings.user_folder() / OWN_CLASSES
    classes = (str(own),) if own.exists() else ()
    return (sys.executable, "-I", "-S", str(Path(hookclient.__file__)), socket, mark, agent, *classes)


def with_shims(folder: Path, path: str, known: Rules) -> str:
    """A PATH whose first folder holds shims for the programs on it that can reach outside, and `outlast` itself."""
    folder.mkdir(mode=0o700, exist_ok=True)
    places = [place for place in path.split(os.pathsep) if place and Path(place) != folder]
    for program in shims.shimmed_programs(known):
        real = _find(program, places)
        if real:
            text = shims.shim_script(program, real, sys.executable, str(Path(shimming.__file__)), known)
            _write(folder / program, text)
    _write(folder / "outlast", f'#!/bin/sh\nexec {shlex.join(detaching.ourselves())} "$@"\n')
    return os.pathsep.join([str(folder), *places])


def _find(program: str, places: Sequence[str]) -> str:
    for place in places:
        path = os.path.join(place, program)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    return ""


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(path, "w", opener=_executable) as file:
        file.write(text)


def _executable(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o700)


def own_classes() -> tuple[dict[str, Any], ...]:
    """The user's own outward classes: the `[[outward]]` tables of their file. Raises UsageError where it cannot be read."""
    path = settings.user_folder() / OWN_CLASSES
    try:
        tables = tomllib.loads(path.read_text()).get("outward", [])
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", hint=f"mend it, or move it away: {path}"
        ) from error
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{path} holds no [[outward]] tables", hint="docs/agents.md shows how they look")
    return tuple(tables)


class Outside:
    """Which calls reach outside, and what became of one that was cut off."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._since_s = time.monotonic()
        try:
            self.known = rules.load(own_classes())
        except ValueError as error:
            path = settings.user_folder() / OWN_CLASSES
            raise UsageError(
                f"{path}: {error}", hint="docs/agents.md shows how such a table looks"
            ) from error

    def of_tool(self, tool: str, given: object, cwd: str) -> tuple[calls.Outside, ...]:
        """What a call of an agent's tool does outside."""
        return tuple(map(_kept, classify(tool, given, cwd, environment=self._environment, known=self.known)))

    def of_words(self, words: Sequence[str], cwd: str) -> tuple[calls.Outside, ...]:
        """The same of a program's words."""
        return tuple(map(_kept, classify_argv(words, cwd, environment=self._environment, known=self.known)))

    def with_facts(self, told: calls.Told) -> calls.Told:
        """With what a probe needs to know of the world before the call."""
        outward = tuple(
            msgspec.structs.replace(each, facts=probes.facts(_outward(each), self._environment))
            for each in told.outward
        )
        return msgspec.structs.replace(told, outward=outward)

    def look(self, outside: calls.Outside) -> Finding:
        """Whether it happened, as far as that can be read back. Whoever did it is dead since this object was made.

        "It did not" counts only when the far side has had its time to finish what had reached it.
        """
        probe = probes.probe(_outward(outside), outside.facts, self._environment)
        if probe is None:
            return CannotTell("nothing can be read back of it")
        found: Finding = probe.look()
        wait_s = self._since_s + probe.settle_s - time.monotonic()
        if isinstance(found, DidNotHappen) and wait_s > 0:
            time.sleep(wait_s)
            found = probe.look()
        return found


def _outward(outside: calls.Outside) -> Outward:
    """As the catalogue of probes takes it."""
    probe = outside.probe
    read_back = ReadBack(str(probe["name"]), dict(probe["params"])) if probe else None
    return Outward(outside.kind, outside.signature, outside.words, outside.cwd, read_back)


def _kept(found: Outward) -> calls.Outside:
    """What is put on record of it: no secret that stood in its words."""
    words = tuple(str(mask(word)[0]) for word in found.words)
    probe = {} if found.probe is None else {"name": found.probe.name, "params": _plain(found.probe.params)}
    return calls.Outside(found.kind, str(found.signature), words, str(found.cwd), probe)


def _plain(value: Any) -> Any:
    """The same without the classifier's own kinds of text, which cannot be written."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
