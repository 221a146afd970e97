"""Runs with saves in real repositories, for tests of the page's lists."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import outlast
from outlast.dashboard import documents
from outlast.dashboard.saves import saves as dashboard_saves
from outlast.store.protocol import Store
from tests.support.environment import TIMEOUT_S
from tests.support.vaults import git_words, seeing

HOSTILE = "<script>alert(1)</script>"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *git_words(folder, words), *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ | seeing(folder),
    )
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout.strip()


@dataclass
class Work:
    """A workspace with a run whose beats change files as they are told."""

    folder: Path
    store: Store

    def beats(self, *changes: Callable[[Path], object], task: str = "t", **terms: Any) -> str:
        """One beat for each change; the run's id. Left open after the last."""
        with outlast.run(task, workspace=self.folder, **terms) as run:
            for beat in run.beats():
                if beat.number > len(changes):
                    break
                changes[beat.number - 1](self.folder)
                beat.done(beat.number)
        return run.id

    def saves(self, run: str) -> list[documents.SaveRow]:
        return list(dashboard_saves.saves(self.store, run).saves)

    def diff(self, run: str, against: documents.Against = "before", nth: int = 0) -> documents.Diff:
        """The difference of the n-th newest save of a beat."""
        beats = [each.point for each in self.saves(run) if each.point.kind == "beat"]
        return dashboard_saves.diff(self.store, run, beats[nth].commit, against)


def writes(text: str, name: str = "file") -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)
