"""An agent whose commands a test writes down, under `outlast run` and beside the external witness; no real CLI, no model."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.supervisor import scripted_claude
from tests.supervisor.host import Host
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

# The witness under a name that is not this machine's: what goes to loopback may count as local.
NAMED = "witness.test"


class Scripted:
    """One task `t` of the stand-in for Claude Code, on a host with a witness."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.folder = host.folder / "scripted"
        self.folder.mkdir()
        source = Path(scripted_claude.__file__).read_text()
        self.program = self.folder / "claude"
        self.program.write_text(f"#!{sys.executable} -IS\n{source}")
        self.program.chmod(0o755)
        self.work = host.repository("t")

    def posting(self, name: str) -> str:
        """A command, without any quotes, that does something to the world; its identity is the name."""
        address = self.host.witness.url.removeprefix("http://")
        url = f"http://{NAMED}/act/blind/{name}"
        return f"curl -fsS --connect-to {NAMED}:80:{address} -H Witness-Id:{name} -d {{}} {url}"

    def performed(self) -> list[str]:
        """What was done to the world, by the witness's log, in this order."""
        return [act.name for act in self.host.witness.performances()]

    def says(self, *commands: str) -> None:
        """From now on its model makes these calls, one after the other."""
        (self.folder / "script").write_text(json.dumps(commands))

    def start(self, *options: str) -> "subprocess.Popen[bytes]":
        return self.host.start("t", str(self.program), "-p", "do it", options=options)

    def run(self, *options: str) -> int:
        """To its end."""
        return self.start(*options).wait(TIMEOUT_S)

    def killed_at(self, mark: str, *options: str) -> None:
        """Started, and everything of it killed at one instant when this file is there in the workspace."""
        process = self.start(*options)
        wait_for(lambda: (self.work / mark).exists() or None, what=f"{mark}: {self.host.said('t')}")
        self._kill(process)

    def killed_in(self, name: str, *options: str) -> None:
        """Its model posts this, and everything of it is killed when the world has it and its program has no answer."""
        self.host.witness.fault("late_reply")
        self.says(self.posting(name))
        process = self.start(*options)
        wait_for(lambda: self.performed() or None, what=f"{name}: {self.host.said('t')}")
        self._kill(process)

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        self.host.kill_everything()
        process.wait(TIMEOUT_S)

    def responses(self) -> int:
        """How often its model was asked."""
        asked = self.folder / "asked"
        return len(asked.read_text().splitlines()) if asked.exists() else 0

    def forget_sessions(self) -> None:
        """Its transcripts are gone, and our copies: no session can be gone on with."""
        shutil.rmtree(self.host.isolated.home / ".claude")
        copies = list(self.host.root.glob("runs/*/agent/*.jsonl"))
        assert copies, "there was a session"
        for path in copies:
            path.unlink()

    def effects(self) -> list[dict[str, Any]]:
        """Those that reach outside."""
        found = self.host("effects", "t", "--json", cwd=self.work).json
        effects = found["effects"] if isinstance(found, dict) else found
        return [effect for effect in effects if NAMED in effect["name"]]


def held(mark: str) -> str:
    """A local command that hangs when it is run for the first time."""
    return f"[ -e {mark} ] || {{ touch {mark}; exec sleep 1000; }}"
