"""`outlast` with some words, to its end: a process of its own in `--all`, a fork of a warm process in a sample."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support import warm
from tests.support.environment import TIMEOUT_S

# These look for themselves among the processes, by command line and environment, or start others that do.
STARTED_ANEW = {"run", "open", "resume", "ui", "watch", "kill", "step", "effect", "service", "chaos", "demo"}

forks: warm.Warm | None = None  # set for the whole session by tests/conftest.py


def outlast(
    words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float = TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """One command, with nothing to read."""
    if forks is not None and not STARTED_ANEW & set(words) and warm.fits(env):
        return forks.run(words, cwd=cwd, env=env, timeout=timeout_s)
    return subprocess.run(
        [sys.executable, "-P", "-m", "outlast", *words], cwd=cwd, env=env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
