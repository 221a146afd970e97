"""`outlast demo` tells the truth, quickly, and leaves nothing behind."""

import re
import time
from pathlib import Path

import pytest

from tests.chaos.conftest import Run

DEMO_LIMIT_S = 120.0  # of a busy machine; by itself it takes some seconds


def test_the_demo_kills_resumes_and_counts_once_against_twice(run: Run) -> None:
    began = time.monotonic()
    done = run("demo")
    assert done.code == 0, done
    assert time.monotonic() - began < DEMO_LIMIT_S
    assert done.err == ""
    assert len(re.findall(r"\$ kill -9 \d+", done.out)) == 2
    assert re.search(r"comments +1 +2\n", done.out)
    assert re.search(r"pull requests +1 +1\n", done.out)
    assert re.search(r"model asked +3 +4\n", done.out)
    assert "not posted again" in done.out


def test_the_demo_leaves_nothing_behind(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder: Path = tmp_path_factory.mktemp("tmp")
    monkeypatch.setenv("TMPDIR", str(folder))
    assert run("demo").code == 0
    assert list(folder.iterdir()) == []


def test_a_story_that_does_not_come_out_is_not_told_as_if_it_did(run: Run) -> None:
    """Without recovery outlast would post twice: the agents are processes of their own, so break their module."""
    done = run("demo", before="from outlast.chaos.demo import demo; demo.COMMENT = 'letter'")
    assert done.code == 1, done
    assert done.err.startswith("error: ")
