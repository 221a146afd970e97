"""The real command line, each call a process of its own, with the output it had."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import Answer, answer_to
from tests.support.environment import Isolated

LIMIT_S = 400.0


Run = Callable[..., Answer]


@pytest.fixture
def run(state: Isolated, tmp_path: Path) -> Run:
    """`run("chaos", "eval", …)`; with `before=`, after these lines of Python in the same process."""

    def call(*words: str, before: str = "") -> Answer:
        program = f"{before}\nimport sys\nfrom outlast.cli.main import main\nsys.exit(main(sys.argv[1:]))"
        argv = [sys.executable, "-W", "error", "-c", program, *words]
        return answer_to(argv, cwd=tmp_path, env=state.environ(), limit_s=LIMIT_S)

    return call
