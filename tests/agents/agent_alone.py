"""A real agent CLI as outlast starts it, with a hook that logs what it is told and denies what a test names.

No supervisor: what is tried here is whether the real program does as its parts say.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from outlast.agents import KnownAgent, registry
from outlast.agents.events import AgentEvent, Session, ToolEnd, ToolStart
from outlast.agents.values import Ask, Cut, Hook
from outlast.core.values import SessionMark
from tests.agents.agent_world import AgentWorld, need
from tests.agents.cli_arguments import without_session
from tests.agents.script import Call, bash
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

HELD = "outlast: held until somebody has looked"
TRUTH = "outlast: this call was cut off and may have happened"
_HOOK = """\
import os, sys
from outlast.agents.values import Answer
from outlast.agents import registry
known, folder = registry.by_name(sys.argv[1]), sys.argv[2]
data = sys.stdin.buffer.read()
log = os.open(folder + "/hooks.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(log, data.replace(b"\\n", b" ") + b"\\n")
denied = open(folder + "/deny", "rb").read()
no = bool(denied) and denied in data and known.cli.hook(data).kind == "pre"
out, code = known.cli.answer(data, Answer(False, sys.argv[3]) if no else Answer())
sys.stdout.buffer.write(out)
sys.exit(code)
"""


class Launched:
    """One agent in a world, started as its `Cli` says."""

    def __init__(self, world: AgentWorld, name: str, version: str | None = None) -> None:
        need(name, version)
        known = registry.by_name(name)
        assert known is not None
        self.world, self.name, self.version = world, name, version
        self.known: KnownAgent = known
        self.folder = world.folder / "run"
        self.folder.mkdir(mode=0o700)
        (self.folder / "hook.py").write_text(_HOOK)
        self.deny("")
        self.session = ""

    def deny(self, words: str) -> None:
        """Deny each call whose hook input holds these words."""
        (self.folder / "deny").write_text(words)

    def ask(self, **more: Any) -> Ask:
        made = self.world.command(self.name, "do the task", version=self.version, namespaced=False)
        hook = (sys.executable, "-P", str(self.folder / "hook.py"), self.name, str(self.folder), HELD)
        return Ask(
            environment=made.env, cwd=self.world.work, folder=self.folder,
            **{"words": tuple(without_session(made.argv)), "hook": hook} | more,
        )  # fmt: skip

    def start(self, ask: Ask) -> subprocess.Popen[bytes]:
        launch = self.known.cli.launch(ask)
        assert launch is not None, "it can be started"
        self.session = launch.session or self.session
        return self.world.begin(
            self.world.namespaced(launch.command), env={**ask.environment, **launch.environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, ask: Ask) -> tuple[int, bytes]:
        with self.start(ask) as process:
            out, _ = process.communicate(timeout=TIMEOUT_S)
        self._learn()
        return process.returncode, out

    def resume(self, prompt: str) -> tuple[int, bytes]:
        return self.run(self.ask(session=SessionMark(self.name, self.session), prompt=prompt))

    def kill_in(self, process: subprocess.Popen[bytes], mark: Path) -> None:
        """Kill the agent with -9 once a call of it has made this file."""
        wait_for(lambda: mark.exists() or process.poll() is not None, what="the call", limit_s=60)
        assert mark.exists(), process.communicate()[0]
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_S)
        self._learn()

    def hooks(self) -> list[Hook]:
        path = self.folder / "hooks.jsonl"
        return [self.known.cli.hook(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def told(self) -> list[AgentEvent]:
        return [event for hook in self.hooks() for event in hook.events]

    def _learn(self) -> None:
        for event in self.told():
            if isinstance(event, Session):
                self.session = event.id

    def transcript(self) -> Path:
        path = self.known.transcript.find(self.session, self.ask())
        assert path is not None, f"no transcript of {self.session}"
        return path

    def events(self) -> list[AgentEvent]:
        return [
            event
            for line in self.transcript().read_bytes().splitlines()
            for event in self.known.transcript.parse(line)
        ]

    def cuts(self) -> list[Cut]:
        """The calls that the hooks saw begin and not end."""
        ended = {event.id for event in self.told() if isinstance(event, ToolEnd)}
        ended |= {event.id for event in self.events() if isinstance(event, ToolEnd)}
        return [
            Cut(event.id, event.name, event.input, TRUTH)
            for event in self.told()
            if isinstance(event, ToolStart) and event.id not in ended
        ]

    def mend(self, cuts: Sequence[Cut]) -> None:
        path = self.transcript()
        path.write_bytes(self.known.transcript.mend(path.read_bytes(), cuts))


def slow(world: AgentWorld, name: str = "mark") -> tuple[Call, Path, Path]:
    """A call that makes one file and ends when there is another."""
    mark, stop = world.folder / name, world.folder / f"{name}.stop"
    return bash(f"touch {mark}; until test -e {stop}; do sleep 0.1; done"), mark, stop


def decoded(raw: msgspec.Raw) -> Any:
    return json.loads(bytes(raw))
