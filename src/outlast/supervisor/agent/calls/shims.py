"""The folder of shims at the front of an agent's PATH: made at the agent's start, and updated when programs are installed.
The text of a shim is `agents/outward/shims.py`'s, what it runs is `supervisor/client/shim.py`.
"""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from outlast import settings
from outlast.agents.outward import shims
from outlast.agents.outward.rules import Rules
from outlast.store import durable
from outlast.supervisor.client import copy
from outlast.supervisor.launch import background
from outlast.supervisor.launch.environment import SHIMS as SHIMS

OWN_CLASSES = "outward.toml"
SHELL = "/bin/sh"
# Where a project keeps programs of its own: package managers and `activate` put these in front of the PATH.
PROJECT_FOLDERS = ("node_modules/.bin", ".venv/bin", "venv/bin", "env/bin", "vendor/bin", "bin")


class Shims:
    """Shims for the programs that can reach outside, for `sh`, and `outlast` itself.

    A program has a shim while it is installed, on the PATH or in the project: one for a program that is not there would tell
    `command -v` that it is. So `refresh` looks again before each call of the agent. A shim whose program is in no folder of
    the caller's PATH ends with 127, as a shell does.
    """

    def __init__(
        self, folder: Path, client: Path, environment: Mapping[str, str], known: Rules, socket: str, mark: str, project: Path
    ) -> None:  # fmt: skip
        self._folder, self._known = folder, known
        path = environment.get("PATH", os.defpath)
        self._places = [place for place in path.split(os.pathsep) if place and Path(place) != folder]
        self._searched = [*self._places, *(str(project / each) for each in PROJECT_FOLDERS)]
        self._given = (socket, mark, classes_for(client))
        self._python, self._script = copy.interpreter(), str(client / copy.SHIM)
        self._programs = frozenset(shims.shimmed_programs(known))
        self._made: set[str] = set()
        self._seen: dict[str, int] = {}  # when each folder was changed last

    def environment(self, theirs: Mapping[str, str]) -> dict[str, str]:
        """Make them all; the PATH that has them first, and a BASH_ENV.

        A login shell that is no person's (`bash -lc`) sets a PATH of its own, and reads that file after it.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self.refresh()
        _write(self._folder / "outlast", f'#!/bin/sh\nexec {shlex.join(background.ourselves())} "$@"\n')
        _write(self._folder / "sh", f'#!{SHELL}\n{_in_front(str(self._folder))}exec {SHELL} "$@"\n')
        bash_env = self._folder.with_name("bash_env")
        if theirs.get("BASH_ENV") != str(bash_env):
            _write(bash_env, _bash_env(str(self._folder), theirs.get("BASH_ENV", "")))
        return {"PATH": os.pathsep.join([str(self._folder), *self._places]), "BASH_ENV": str(bash_env)}

    def refresh(self) -> None:
        """Make shims for programs that were installed since the last call."""
        for place in self._searched:
            try:
                changed_ns = os.stat(place).st_mtime_ns
                if self._seen.get(place) == changed_ns:
                    continue
                names = self._programs.intersection(os.listdir(place)) - self._made
            except OSError:
                continue
            for name in sorted(names):
                if _is_program(os.path.join(place, name)):
                    self._make(name)
            self._seen[place] = changed_ns  # now: where there was no room for one, the next look makes it

    def _make(self, program: str) -> None:
        real = next((path for each in self._places if _is_program(path := os.path.join(each, program))), "")
        text = shims.shim_script(
            program, os.path.abspath(real) if real else "", self._python, self._script, self._known,
            folder=str(self._folder), given=self._given,
        )  # fmt: skip
        _write(self._folder / program, text)
        self._made.add(program)


def classes_for(client: Path) -> str:
    """The file of classes that hooks and shims read besides the shipped ones, empty for none.

    That is the user's own. Hooks and shims read no settings: where `loopback` is set, they read a copy that says so.
    """
    own = settings.user_folder() / OWN_CLASSES
    if not loopback_is_outward():
        return str(own) if own.exists() else ""
    copied = client.parents[1] / OWN_CLASSES
    classes = own.read_bytes() if own.exists() else b""
    durable.write_durably(copied, b'loopback = "outward"\n' + classes)
    return str(copied)


def loopback_is_outward() -> bool:
    """Whether the user says that this machine's own addresses lead elsewhere."""
    return bool(settings.load()["loopback"] == "outward")


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _in_front(folder: str) -> str:
    """Shell text that puts the shims first on the PATH, and there only."""
    place = shlex.quote(folder)
    return (
        f"case $PATH in {place} | {place}:*) ;; *)\n"
        f"    PATH=:$PATH:\n"
        f"    while case $PATH in *:{place}:*) ;; *) false ;; esac; do PATH=${{PATH%%:{place}:*}}:${{PATH#*:{place}:}}; done\n"
        f"    PATH={place}:${{PATH#:}} PATH=${{PATH%:}}\n"
        f"    export PATH ;;\n"
        f"esac\n"
    )


def _bash_env(folder: str, theirs: str) -> str:
    """The text of the file that bash reads first: it reads the user's own BASH_ENV, then puts the shims in front of the PATH
    again."""
    quoted = re.sub(r'(["\\])', r"\\\1", theirs)  # bash expands variables in that name, as here
    source = f'[ ! -r "{quoted}" ] || . "{quoted}"\n' if theirs else ""
    return source + _in_front(folder)


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a shell runs a script that is empty, and its agent would take that call for made."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    try:
        with open(new, "w", opener=_executable) as file:
            file.write(text)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _executable(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o700)
