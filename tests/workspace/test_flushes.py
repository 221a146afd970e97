"""How often a save waits for the disk, counted by strace, and for what: its pack and index, their folder, its ref, that folder."""

import re
from pathlib import Path

import pytest

from tests.support import processes, strace
from tests.support.environment import skip_or_fail
from tests.workspace.gitrepo import make_repo

pytestmark = pytest.mark.strace

FEW, MANY = 2, 5
SAVES = """
import subprocess, sys
from pathlib import Path
from outlast.store.local import Local
from outlast.workspace.capture.saver import Saver
from outlast.workspace.types import Purpose
folder, state, rounds, kind = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
saver = Saver(folder, Local(state))
saver.watch()
beat = Purpose(kind="beat", run="r")
for number in range(rounds):
    if kind != "nothing":
        (folder / "file").write_text(f"{number}\\n")
    if kind == "HEAD":
        subprocess.run(["git", "-c", "gc.auto=0", "commit", "-qam", str(number)], cwd=folder, check=True)
    save = saver.capture(beat)
    assert save is not None and (save.hinted or not number), number
saver.close()
"""
ONE_SAVE = ["pack", "index", "packs", "ref", "refs"]


def flushes(folder: Path, rounds: int, kind: str) -> list[str]:
    repo = make_repo(folder / "work")
    (repo.folder / "file").write_text("first\n")
    repo.git("add", "file")
    repo.git("commit", "-qm", "first")
    command = processes.python_command(SAVES, str(repo.folder), str(folder / "state"), str(rounds), kind)
    trace = strace.Traced(command, folder, strace.SYNCS).run()
    assert trace.returncode == 0, trace.output
    return [what(call.name, *call.paths) for call in trace.calls]


def what(name: str, path: str) -> str:
    """What was flushed, by its name."""
    assert name == "fsync", f"{name} {path}"
    for pattern, word in (
        (r"objects/pack$", "packs"), (r"objects/pack/tmp_outlast_\w+$", "pack"), (r"objects/pack/tmp_outlast_\w+\.idx$", "index"),
        (r"refs/outlast/.*beat", "ref"), (r"refs/outlast/[^/]+$", "refs"),
    ):  # fmt: skip
        if re.search(pattern, path):
            return word
    return re.sub(r"[0-9a-f]{16}", "ID", path)


@pytest.mark.parametrize(
    ("kind", "each"),
    [("change", ONE_SAVE), ("HEAD", ONE_SAVE), ("nothing", [])],
)
def test_a_later_save_flushes_its_pack_and_ref_and_nothing_else(
    kind: str, each: list[str], tmp_path: Path
) -> None:
    if reason := strace.available():
        skip_or_fail(reason)
    few, many = flushes(tmp_path / "few", FEW, kind), flushes(tmp_path / "many", MANY, kind)
    assert many[len(few) :] == each * (MANY - FEW)
