"""What stands between an agent and the world: its hooks' command, the shims on its PATH, and what is outward at all."""

import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from outlast import settings
from outlast.agents.outward import probes, rules, shims
from outlast.agents.outward.classify import VARIABLES, Outward, ReadBack, classify, classify_argv
from outlast.agents.outward.rules import Rules
from outlast.core.secrets import mask
from outlast.errors import DidNotHappen, UsageError
from outlast.probes import CannotTell, Happened
from outlast.supervisor.agent.calls.record import CallRecord, OutwardCall
from outlast.supervisor.client import copy
from outlast.supervisor.launch import background
from outlast.supervisor.socket.wire import Shim

OWN_CLASSES = "outward.toml"
FACTS_AT_ONCE = 8
SHIMS = "shims"  # in the folder of a run's agent
Finding = Happened | DidNotHappen | CannotTell


# Agents let a call pass when a hook ends with anything but 0 and 2, and a shell whose file is gone may end with 127.
_GUARDED = (
    'test -r "$0" && . "$0"; echo "outlast did not put this call on record: its hook is gone, which was $0.'
    ' Nothing was done. Work on without it, or stop." >&2; exit 2'
)  # no variable of its own: Gemini puts what the environment has in their place


def hook_words(client: Path, socket: str, mark: str, agent: str) -> tuple[str, ...]:
    """The command that an agent's hooks run. `client` is the run's own copy of what it needs."""
    own = settings.user_folder() / OWN_CLASSES
    classes = (str(own),) if own.exists() else ()
    script, python = str(client / copy.HOOK), copy.interpreter()
    return ("/bin/sh", "-c", _GUARDED, script, python, socket, mark, agent, *classes)


def with_shims(
    folder: Path, client: Path, environment: Mapping[str, str], known: Rules, socket: str, mark: str
) -> dict[str, str]:
    """A PATH whose first folder holds shims for the programs on it that can reach outside, and `outlast` itself.

    And a BASH_ENV: a login shell that is no person's (`bash -lc`) sets a PATH of its own, and reads that file after it.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    path = environment.get("PATH", os.defpath)
    places = [place for place in path.split(os.pathsep) if place and Path(place) != folder]
    python, script = copy.interpreter(), str(client / copy.SHIM)
    own = settings.user_folder() / OWN_CLASSES
    given = (socket, mark, str(own) if own.exists() else "")
    for program in shims.shimmed_programs(known):
        real = _find(program, places)
        if real:
            text = shims.shim_script(program, real, python, script, known, folder=str(folder), given=given)
            _write(folder / program, text)
    _write(folder / "outlast", f'#!/bin/sh\nexec {shlex.join(background.ourselves())} "$@"\n')
    bash_env = folder.with_name("bash_env")
    if environment.get("BASH_ENV") != str(bash_env):
        _write(bash_env, _bash_env(str(folder), environment.get("BASH_ENV", "")))
    return {"PATH": os.pathsep.join([str(folder), *places]), "BASH_ENV": str(bash_env)}


def _bash_env(folder: str, theirs: str) -> str:
    """What bash reads first in a script: the user's own such file, and the shims in front again where they are gone."""
    quoted = re.sub(r'(["\\])', r"\\\1", theirs)  # bash expands variables in that name, as here
    source = f'[ ! -r "{quoted}" ] || . "{quoted}"\n' if theirs else ""
    place = shlex.quote(folder)
    return f"{source}case :$PATH: in *:{place}:*) ;; *) PATH={place}:$PATH ;; esac\n"


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


def own_classes() -> tuple[Mapping[str, object], ...]:
    """The user's own outward classes: the `[[outward]]` tables of their file. Raises UsageError where it cannot be read."""
    path = settings.user_folder() / OWN_CLASSES
    try:
        return tuple(rules.tables(str(path)))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", hint=f"mend it, or move it away: {path}"
        ) from error


class OutwardCalls:
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

    def of_tool(self, tool: str, given: object, cwd: str) -> tuple[OutwardCall, ...]:
        """What a call of an agent's tool does outside."""
        return tuple(map(_kept, classify(tool, given, cwd, environment=self._environment, known=self.known)))

    def of_shim(self, shim: Shim) -> tuple[OutwardCall, ...]:
        """The same of a program that a shim stands before, with the variables that it would run with."""
        here = {name: value for name, value in self._environment.items() if name not in VARIABLES}
        here |= {name: value for name, value in shim.variables.items() if name in VARIABLES}
        found = classify_argv(shim.words, shim.cwd, environment=here, known=self.known, fed=shim.fed)
        return tuple(map(_kept, found))

    def with_facts(self, told: CallRecord) -> CallRecord:
        """With what a probe needs to know of the world before the call."""
        if len(told.outward) < 2:
            outward = tuple(map(self._with_facts, told.outward))
        else:  # side by side: whoever asks does not wait longer for many than for one
            with ThreadPoolExecutor(min(len(told.outward), FACTS_AT_ONCE)) as pool:
                outward = tuple(pool.map(self._with_facts, told.outward[:FACTS_AT_ONCE]))
        return msgspec.structs.replace(told, outward=(*outward, *told.outward[len(outward) :]))

    def _with_facts(self, each: OutwardCall) -> OutwardCall:
        return msgspec.structs.replace(each, facts=probes.facts(_outward(each), self._environment))

    def look(self, outside: OutwardCall) -> Finding:
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


def _outward(outside: OutwardCall) -> Outward:
    """As the catalogue of probes takes it."""
    probe = outside.probe
    read_back = ReadBack(str(probe["name"]), dict(probe["params"])) if probe else None
    return Outward(outside.kind, outside.signature, outside.words, outside.cwd, read_back)


def _kept(found: Outward) -> OutwardCall:
    """What is put on record of it: no secret that stood in its words."""
    words = tuple(str(mask(word)[0]) for word in found.words)
    probe = {} if found.probe is None else {"name": found.probe.name, "params": _plain(found.probe.params)}
    return OutwardCall(
        str(found.kind), str(found.signature), words, str(found.cwd), probe,
        sure=found.sure, content=found.content, another=found.another,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """The same without the classifier's own kinds of text, which cannot be written."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
