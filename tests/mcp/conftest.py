"""Fixtures: `around`, a run under way whose command waits, and clients of `outlast mcp` in it."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.client import RawClient
from tests.supervisor.supervised_command import Night, supervisor_of
from tests.support.environment import isolate
from tests.support.processes import wait_for

DUMP = """
import json, os, sys, time
found = {name: value for name, value in os.environ.items() if name in ("OUTLAST_RUN", "OUTLAST_ATTEMPT", "OUTLAST_SOCKET")}
open(sys.argv[1] + "/new", "w").write(json.dumps(found))
os.rename(sys.argv[1] + "/new", sys.argv[1] + "/inside")
while not os.path.exists(sys.argv[1] + "/go"):
    time.sleep(0.02)
"""


@dataclass
class Around:
    """A run under way, and the variables that its command has."""

    night: Night
    process: "subprocess.Popen[bytes]"
    inside: dict[str, str]

    @property
    def run(self) -> str:
        return self.inside["OUTLAST_RUN"]

    @property
    def supervisor(self) -> int:
        return supervisor_of(self.process.pid)

    def environ(self, **more: str) -> dict[str, str]:
        return self.night.environ() | self.inside | more

    @contextlib.contextmanager
    def client(self, **more: str) -> Iterator[RawClient]:
        with RawClient.start(self.environ(**more), self.night.work) as client:
            yield client

    @contextlib.contextmanager
    def apart(self) -> Iterator[RawClient]:
        """A client whose environment does not say whose it is, so that a stop of the run does not take it along."""
        program = (
            "import json, os, sys; os.environ.update(json.loads(sys.stdin.buffer.raw.readline()));"
            "from outlast.cli.main import main; sys.exit(main(['mcp']))"
        )
        command = [sys.executable, "-P", "-c", program]
        with RawClient.start(self.night.environ(), self.night.work, command) as client:
            client.send(self.inside)
            yield client

    def events(self, tag: str) -> list[dict[str, Any]]:
        return [each["event"] for each in self.night.ask("log", "t") if each["event"]["t"] == tag]

    def end(self) -> int:
        """Let its command end well."""
        (self.night.folder / "go").touch()
        return self.process.wait(60)


@pytest.fixture
def around(tmp_path: Path) -> Iterator[Around]:
    with Night(tmp_path, isolate(tmp_path)) as night:
        (tmp_path / "dump.py").write_text(DUMP)
        process, inside = begun(night)
        yield Around(night, process, inside)


def begun(night: Night) -> "tuple[subprocess.Popen[bytes], dict[str, str]]":
    """The run, started or started again; and the variables that its command has."""
    found = night.folder / "inside"
    found.unlink(missing_ok=True)
    command = ("python3", str(night.folder / "dump.py"), str(night.folder))
    process = night.start("--task", "t", "--budget", "beats=500", "--", *command)
    wait_for(found.exists, what="the command")
    return process, json.loads(found.read_text())
