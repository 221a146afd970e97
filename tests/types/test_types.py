"""The API is typed: both checkers pass the right uses, and report the wrong ones line by line."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.environment import ROOT, TIMEOUT_S

HERE = Path(__file__).parent
WRONG = "  # error"

Checker = Callable[[Path, Path], dict[int, str]]


def mypy(file: Path, scratch: Path) -> dict[int, str]:
    """What `mypy --strict` reports, by line."""
    done = _checked(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", file], (0, 1)
    )
    found = re.findall(r"^[^:]+:(\d+): error: (.*)$", done, re.MULTILINE)
    assert bool(found) == bool(done), done
    return {int(line): words for line, words in found}


def pyright(file: Path, scratch: Path) -> dict[int, str]:
    """What pyright reports in strict mode, by line."""
    config = scratch / "pyrightconfig.json"
    config.write_text(
        json.dumps({"typeCheckingMode": "strict", "pythonVersion": "3.11", "include": [str(HERE)]})
    )
    program = [
        sys.executable,
        "-m",
        "basedpyright",
        "--pythonpath",
        sys.executable,
        "-p",
        config,
        "--outputjson",
        file,
    ]
    told = json.loads(_checked(program, (0, 1)))
    assert told["summary"]["filesAnalyzed"] == 1, told
    return {each["range"]["start"]["line"] + 1: each["message"] for each in told["generalDiagnostics"]}


def _checked(program: list[str | Path], codes: tuple[int, ...]) -> str:
    done = subprocess.run(
        program, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env={key: value for key, value in os.environ.items() if key != "MYPYPATH"},
    )  # fmt: skip
    assert done.returncode in codes, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("check", [mypy, pyright])
def test_right_uses_pass(check: Checker, tmp_path: Path) -> None:
    assert check(HERE / "right_uses.py", tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize("check", [mypy, pyright])
def test_each_wrong_use_is_an_error_and_nothing_else_is(check: Checker, tmp_path: Path) -> None:
    file = HERE / "wrong_uses.py"
    lines = enumerate(file.read_text().splitlines(), start=1)
    wrong = {number for number, line in lines if line.endswith(WRONG)}
    assert len(wrong) > 40
    assert set(check(file, tmp_path)) == wrong
