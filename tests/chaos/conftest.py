"""The real command line, each call a process of its own, with the output it had."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.environment import Isolated

LIMIT_S = 400.0


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


Run = Callable[..., Said]


@pytest.fixture
def run(state: Isolated, tmp_path: Path) -> Run:
    """`run("chaos", "eval", …)`; with `before=`, after these lines of Python in the same process."""

    def call(*words: str, before: str = "") -> Said:
        program = f"{before}\nimport sys\nfrom outlast.cli.main import main\nsys.exit(main(sys.argv[1:]))"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program, *words],
            cwd=tmp_path,
            env=state.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return call
