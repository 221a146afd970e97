"""Watchers of a folder for tests, and which changes their hints cover."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from outlast.workspace.watch import inotify, watcher as watch_watcher
from outlast.workspace.watch.watcher import Watcher
from tests.support.environment import TIMEOUT_S


def nothing(folders: list[bytes]) -> set[bytes]:
    return set()


@contextlib.contextmanager
def watching_of(
    root: Path, skip: watch_watcher.Skip = nothing, git_dirs: tuple[Path, ...] = (), limit: int | None = None
) -> Iterator[Watcher]:
    """A watcher that works and whose first scan is done; closed at the end, with all it counted."""
    before = inotify.account().used
    watcher = Watcher(root, skip=skip, git_dirs=git_dirs, limit=limit)
    try:
        assert watcher.failed == ""
        assert watcher.take().scan
        yield watcher
    finally:
        watcher.close()
    assert inotify.account().used == before


def assert_every_folder_is_watched(root: Path, watcher: Watcher) -> None:
    watcher.take()
    probes = [Path(here) / "probe" for here, _, _ in os.walk(root)]
    for probe in probes:
        probe.write_bytes(b"")
    hints = watcher.take()
    assert not hints.scan, hints.why
    assert {os.fsencode(probe.relative_to(root)) for probe in probes} - hints.paths == set()
    assert watcher.watches == len(probes), "and nothing else is"


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, timeout=TIMEOUT_S)


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    (folder / "file").write_text("content")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder
