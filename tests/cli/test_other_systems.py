"""Off Linux a command that needs it says so in one line, and what works there; the others are not kept from working."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environment import isolate

# The child believes that it runs there; everything else of the system is this one's.
ELSEWHERE = "import sys; sys.platform = {name!r}; sys.argv[0] = 'outlast'; from outlast.cli.start import main; sys.exit(main())"


def typed(tmp_path: Path, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    program = ELSEWHERE.format(name=name)
    return subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, env={**os.environ, **isolate(tmp_path).variables},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["darwin", "freebsd14", "win32"])
@pytest.mark.parametrize(
    "words", [("run", "--", "true"), ("ui",), ("shell-init",), ("open", "t"), ("service", "status")]
)
def test_it_says_in_one_line_what_needs_linux_and_what_works_here(
    tmp_path: Path, name: str, words: tuple[str, ...]
) -> None:
    done = typed(tmp_path, name, *words)
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert error == f"error: `outlast {words[0]}` needs Linux, and this is {name}"
    for works in ("Python API", "save", "watch", "demo", "ls", "top"):
        assert works in hint


@pytest.mark.parametrize("words", [("ls",), ("--version",), ("run", "--help"), ("doctor",)])
def test_what_needs_no_linux_is_not_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = typed(tmp_path, "darwin", *words)
    assert "needs Linux, and" not in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 3)
