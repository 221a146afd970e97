"""A world for a real agent CLI: a home with its settings, a repository, a scripted model and the external witness.

`AgentWorld.command` gives the command and environment that run it headless and bare. Nothing here starts outlast.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from outlast.chaos.witness.client import Witness
from tests.agents import tools
from tests.agents.cli_arguments import ARGUMENTS, PREASSIGNED
from tests.agents.cli_settings import SETTINGS
from tests.agents.model import Model
from tests.agents.namespace import Namespace
from tests.agents.script import Call, Script, bash
from tests.agents.tools import Tool
from tests.support.environment import isolate, skip_or_fail
from tests.support.place import Place
from tests.support.processes import kill_group

T = TypeVar("T")

# Kept from the caller's environment; everything else (keys, proxies, an agent's own variables) stays outside.
KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "TERM", "TMPDIR", "USER", "LOGNAME", "SHELL")


@dataclass(frozen=True, slots=True)
class Started:
    """How to start an agent: the command (in the namespace where there is one) and its whole environment."""

    argv: list[str]
    env: dict[str, str]
    session: str | None  # the agent's own session id, where the caller chooses it


def need(name: str, version: str | None = None) -> Tool:
    """The CLI, or a visible skip (in CI a failure)."""
    found = tools.find(name, version)
    if found is None:
        wanted = tools.recipe(name, version)
        skip_or_fail(f"needs {wanted.name} {wanted.version}: ./dev test-agents fetches it")
    return found


class AgentWorld(Place):
    """A repository, a model and a network around one or several agents. All of it is there once this is made."""

    def __init__(self, folder: Path, script: Script, *, own_network: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder, isolate(folder))
        self._work = folder / "work"
        self.network = Namespace() if own_network else None
        if self.network is not None:
            self.at_end.callback(self.network.close)
        listen = None if self.network is None else self.network.listen
        self.model = self.at_end.enter_context(Model(script, folder / "model.log", listen=listen))
        assert self.witness.url, (
            "it runs before anybody asks from inside the network, where nobody can start it"
        )
        self.repository()

    @property
    def home(self) -> Path:
        return self.isolated.home

    @property
    def work(self) -> Path:
        return self._work

    def elsewhere(self, folder: Path, work: Path) -> Self:
        """The same model, network and witness, with another home and another folder to work in."""
        other = copy.copy(self)
        other.witness = self.witness  # one for both
        folder.mkdir()
        other.isolated, other.opened, other._work = isolate(folder), None, work
        other.__dict__.pop("home_processes", None)
        self.at_end.callback(other.end_processes)
        return other

    def start_witness(self, log: Path) -> Witness:
        return self.inside(lambda: Witness.start(log))

    # -- the network -------------------------------------------------------------------------------------------

    def inside(self, function: Callable[[], T]) -> T:
        """Call it where the model and the witness can be reached."""
        return function() if self.network is None else self.network.call(function)

    def namespaced(self, argv: Sequence[str | Path]) -> list[str]:
        """The command, started where the model and the witness can be reached; the process id is its own."""
        words = [str(word) for word in argv]
        return words if self.network is None else self.network.namespaced(words)

    # -- the outside world -------------------------------------------------------------------------------------

    def posting(self, name: str, *, body: object = None, flags: str = "", then: str = "") -> Call:
        """A call of the agent's shell that does something to the world; its identity is the name alone, so that
        other flags or words in the body are still the same thing done twice."""
        data = json.dumps({"body": body})
        url = f"{self.witness.url}/act/blind/{name}"
        command = f"curl -sS {flags} -X POST -H 'Witness-Id: {name}' -d '{data}' {url}"
        return bash(f"{command}; {then}" if then else command)

    # -- agents ------------------------------------------------------------------------------------------------

    def environment(self, tool: Tool) -> dict[str, str]:
        """A whole environment for that CLI: this home, its switches, and nothing of the caller's but PATH and such."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        # opencode believes PWD before it asks where it is.
        place = {"PWD": str(self.work)}
        return {**kept, **tool.environment, **self.isolated.variables, **place, **SETTINGS[tool.name](self)}

    def command(
        self,
        name: str,
        prompt: str,
        *,
        version: str | None = None,
        session: str | None = None,
        more: Sequence[str] = (),
        namespaced: bool = True,
    ) -> Started:
        """Run it headless and bare, with its settings in place. `session` resumes that session of the agent."""
        tool = need(name, version)
        env = self.environment(tool)
        fresh = str(uuid.uuid4()) if tool.name in PREASSIGNED else None
        words = [*tool.command, *ARGUMENTS[tool.name](prompt, fresh, session, list(more))]
        argv = self.namespaced(words) if namespaced else words
        return Started(argv, env, session or fresh)

    def session_of(self, started: Started, output: str) -> str:
        """The agent's own session id: the one we chose, the one it has said, or (Kimi Code) what its index says."""
        said = re.search(r'"(?:thread_id|sessionID|session_id)":"([^"]+)"', output)
        found = started.session or (said[1] if said else None)
        index = self.home / ".kimi-code/session_index.jsonl"
        if found is None and index.exists():
            found = json.loads(index.read_text().splitlines()[-1])["sessionId"]
        assert found is not None, f"no session id in {output!r}"
        return found

    @contextlib.contextmanager
    def running(self, started: Started, output: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Start it in the repository, in a session of its own; at the end of the block it and its group are killed."""
        with open(output, "wb") as sink:
            process = self.begin(started.argv, env=started.env, stdout=sink, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            kill_group(process)

    def run(self, started: Started) -> subprocess.CompletedProcess[str]:
        """Run it to its end in the repository."""
        return self.finish(started.argv, env=started.env, text=True)
