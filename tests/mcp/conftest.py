"""Fixtures: `around`, a run under way whose command waits, and clients of `outlast mcp` in it."""

import contextlib
import json
import subprocess
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
        words = (
            "--task",
            "t",
            "--budget",
            "beats=500",
            "--",
            "python3",
            str(tmp_path / "dump.py"),
            str(tmp_path),
        )
        process = night.start(*words)
        wait_for((tmp_path / "inside").exists, what="the command")
        yield Around(night, process, json.loads((tmp_path / "inside").read_text()))
