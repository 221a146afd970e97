"""`outlast` with some words: a process of its own in `--all`, a fork of a warm process in a sample."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import warm
from tests.support.environment import TIMEOUT_S

ARGV = (sys.executable, "-P", "-m", "outlast")
# What a fork of the warm process does as well; whoever asks for more gets a new process.
FORKED = {"cwd", "env", "stdin", "stdout", "stderr", "text", "start_new_session"}
# These look for themselves among the processes, by command line and variables, or start others that do.
SEEN = {"run", "open", "resume", "ui", "watch", "kill", "step", "effect"}
STARTED_ANEW = {"service", "chaos", "demo"} | (set() if warm.can_disguise() else SEEN)

forks: warm.Warm | None = None  # set for the whole session by tests/conftest.py


@dataclass(frozen=True)
class Answer:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line that says what is wrong; there is a hint below it, and nothing else anywhere."""
        lines = self.err.splitlines()
        assert len(lines) == 2, self.err
        assert lines[0].startswith("error: "), self.err
        assert lines[1].startswith("hint: "), self.err
        assert self.out == ""
        return lines[0].removeprefix("error: ")

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


def start(argv: Sequence[str], **how: Any) -> "subprocess.Popen[Any]":
    """What `subprocess.Popen` does: of `outlast` with a folder and variables of its own, quicker in a sample."""
    words = list(argv)
    if (
        forks is not None and tuple(words[: len(ARGV)]) == ARGV and not STARTED_ANEW & set(words)
        and {"cwd", "env"} <= set(how) <= FORKED and warm.fits(how["env"])
    ):  # fmt: skip
        return forks.start(words[len(ARGV) :], **how)
    return subprocess.Popen(words, **how)


def run(
    argv: Sequence[str],
    *,
    timeout: float = TIMEOUT_S,
    check: bool = False,
    capture_output: bool = True,
    **how: Any,
) -> "subprocess.CompletedProcess[Any]":
    """What `subprocess.run` does, with its output captured."""
    assert capture_output, "what nobody reads is told to go elsewhere by `start`"
    with start(argv, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
        done = subprocess.CompletedProcess(list(argv), process.wait(), out, err)
    if check:
        done.check_returncode()
    return done


def outlast(
    words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float = TIMEOUT_S
) -> "subprocess.CompletedProcess[str]":
    """One command to its end, with nothing to read."""
    return run([*ARGV, *words], cwd=cwd, env=env, stdin=subprocess.DEVNULL, text=True, timeout=timeout_s)


def answer_to(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], limit_s: float = TIMEOUT_S
) -> Answer:
    """Any command to its end, with nothing to read, and what it said."""
    done = run(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, text=True, timeout=limit_s)
    return Answer(done.returncode, done.stdout, done.stderr)


def ask(
    words: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], limit_s: float = TIMEOUT_S
) -> Answer:
    """`outlast` with these words."""
    return answer_to([*ARGV, *map(str, words)], cwd=cwd, env=env, limit_s=limit_s)
