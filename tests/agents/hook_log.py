"""What the tests with real programs share: a hook that writes down what it is told, and says what it is to say."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from outlast.agents import KnownAgent
from outlast.agents.events import ToolEnd, ToolStart
from outlast.agents.values import Ask
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script, Step, bash

SCRIPT = """
import json, sys
log, event, reply, code = sys.argv[1:]
data = sys.stdin.buffer.read()
with open(log, "ab") as file:
    file.write(data.replace(b"\\n", b" ") + b"\\n")
if json.loads(data)["hook_event_name"] == event:
    sys.stdout.write(reply)
    sys.exit(int(code))
"""


class HookLog:
    """A hook for the whole run; `event` is answered, all others are let be."""

    def __init__(self, folder: Path, event: str = "", reply: bytes = b"", code: int = 0) -> None:
        script = folder / "hook.py"
        script.write_text(SCRIPT)
        self.path = folder / "hooks.log"
        self.command = (sys.executable, "-I", str(script), str(self.path), event, reply.decode(), str(code))

    def inputs(self) -> list[bytes]:
        return self.path.read_bytes().splitlines() if self.path.exists() else []

    def calls(self, known: KnownAgent) -> tuple[list[ToolStart], set[str]]:
        """The calls that were begun, and the ids of those that ended."""
        events = [event for data in self.inputs() for event in known.cli.hook(data).events]
        ends = {event.id for event in events if isinstance(event, ToolEnd)}
        return [event for event in events if isinstance(event, ToolStart)], ends


def slow_in_second() -> Script:
    """Two responses; the second one's last call lasts, and says when it has begun."""
    calls = (bash("echo quick"), bash("touch started; sleep 30"))
    return Script([Step("One.", (bash("echo one"),)), Step("Two.", calls), Step("Done.")])


def run(world: AgentWorld, words: Sequence[str], ask: Ask) -> subprocess.CompletedProcess[bytes]:
    """A command as a `Cli` gives it, to its end."""
    return world.finish(world.namespaced(words), cwd=ask.cwd, env=dict(ask.environment))
