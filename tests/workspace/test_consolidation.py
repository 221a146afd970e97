"""Many small packs become one: disk stays bounded, every save stays whole, readers never fail, kills leave both."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from outlast import faults
from outlast.workspace import saves
from outlast.workspace.compact.repack import consolidate, packing_lock
from outlast.workspace.git.packs import KEEP_TEXT, sweep
from outlast.workspace.types import Save
from tests.support.environment import TIMEOUT_S
from tests.workspace.workspace import RUN, Workspace

SAVES = 300


def beats(place: Workspace, count: int, start: int = 0) -> list[Save]:
    made = []
    for number in range(start, start + count):
        place.write("a.txt", b"".join(b"line %d\n" % line for line in range(200)) + b"beat %d\n" % number)
        place.write(f"new/{number % 7}", b"%d\n" % number)
        made.append(place.save("beat"))
    return made


def size_of(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def check(place: Workspace, made: list[Save]) -> None:
    """Git finds nothing wrong, every save is in the chain, and each tree is whole."""
    place.fsck()
    git_dir = place.saver.repo().vault
    chain = [held.commit for held in saves.chain(place.saver.repo(), place.saver.reader(), RUN)]
    assert [save.commit for save in reversed(made)] == chain[: len(made)]
    for save in (made[0], made[len(made) // 2], made[-1]):
        done = place.git_in(git_dir, "archive", "--format=tar", save.commit)
        assert done.returncode == 0, done.stderr


def packs_of(place: Workspace) -> set[str]:
    return {path.stem for path in place.saver.repo().packs.glob("*.idx")}


def test_disk_stays_bounded_and_every_save_comes_back(place: Workspace) -> None:
    place.sh("git gc -q")
    theirs = packs_of(place)
    packs = place.saver.repo().packs
    made: list[Save] = []
    most = 0
    for start in range(0, SAVES, 25):
        made += beats(place, 25, start)
        consolidate(place.saver.repo(), grace_s=0.0)
        most = max(most, size_of(packs))
    consolidate(place.saver.repo(), packs_max=1, grace_s=0.0)
    consolidate(place.saver.repo(), grace_s=0.0)
    assert theirs <= packs_of(place), "packs of others are not touched"
    assert len(packs_of(place)) <= 60
    assert most < 2_000_000, "300 saves of 16 kB each would be 5 MB"
    check(place, made)
    for save, number in ((made[0], 0), (made[150], 150), (made[-1], SAVES - 1)):
        place.restore(save, force=True)
        assert (place.folder / "a.txt").read_bytes().endswith(b"beat %d\n" % number)
    assert sorted(path.name for path in packs.iterdir() if "tmp" in path.name) == []


def test_old_packs_stay_a_while_for_those_who_read_them(place: Workspace) -> None:
    beats(place, 5)
    before = packs_of(place)
    assert consolidate(place.saver.repo(), packs_max=2)
    (new,) = packs_of(place) - before
    assert packs_of(place) == before | {new}
    assert not consolidate(place.saver.repo(), packs_max=2), "what is replaced is not packed again"
    assert packs_of(place) == before | {new}
    assert not consolidate(place.saver.repo(), packs_max=2, grace_s=0.0)
    assert packs_of(place) == {new}


def test_only_our_packs_are_taken(place: Workspace) -> None:
    made = beats(place, 5)
    place.sh("git gc -q; echo x > x; git add x; git commit -qm x; git repack -q")
    made += beats(place, 1, 5)
    packs = place.saver.repo().packs
    ours = {path.stem for path in packs.glob("*.keep") if path.read_bytes() == KEEP_TEXT}
    theirs = packs_of(place) - ours
    consolidate(place.saver.repo(), packs_max=1, grace_s=0.0)
    consolidate(place.saver.repo(), packs_max=1, grace_s=0.0)
    assert theirs < packs_of(place)
    assert len(packs_of(place)) == len(theirs) + 1
    check(place, made)


def test_what_a_multi_pack_index_names_is_not_removed(place: Workspace) -> None:
    made = beats(place, 5)
    place.vault_git("multi-pack-index", "write")
    before = packs_of(place)
    consolidate(place.saver.repo(), packs_max=1, grace_s=0.0)
    consolidate(place.saver.repo(), packs_max=1, grace_s=0.0)
    assert before < packs_of(place)
    place.vault_git("multi-pack-index", "verify")
    check(place, made)


def test_one_consolidates_at_a_time(place: Workspace) -> None:
    beats(place, 5)
    with packing_lock(place.saver.repo().packs):
        assert not consolidate(place.saver.repo(), packs_max=1)
    assert consolidate(place.saver.repo(), packs_max=1)


def test_readers_never_fail_meanwhile(place: Workspace) -> None:
    made = beats(place, 20)
    git_dir = place.saver.repo().vault
    stop, failed = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            for words in (
                ["log", "-p", "--format=%H", made[-1].ref],
                ["cat-file", "-p", f"{made[3].commit}:a.txt"],
            ):
                done = place.git_in(git_dir, *words)
                if done.returncode or done.stderr:
                    failed.append((words, done.returncode, done.stderr))

    words = ["git", f"--git-dir={git_dir}", "cat-file", "--batch"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as staying:
        assert staying.stdin is not None
        assert staying.stdout is not None
        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for start in range(20, 140, 12):
                made += beats(place, 12, start)
                consolidate(place.saver.repo(), packs_max=5, grace_s=0.0)
                for save in (made[0], made[-1]):
                    staying.stdin.write(save.commit.encode() + b"\n")
                    staying.stdin.flush()
                    head = staying.stdout.readline().split()
                    assert head[1] == b"commit", head
                    staying.stdout.read(int(head[2]) + 1)
        finally:
            stop.set()
            for thread in threads:
                thread.join(TIMEOUT_S)
            staying.stdin.close()
    assert failed == []
    check(place, made)


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("point", ["consolidate.packed", "consolidate.removed"])
def test_killed_at_a_crash_point_the_next_call_goes_on(place: Workspace, point: str) -> None:
    made = beats(place, 8)

    def die(name: str) -> None:
        if name == point:
            raise _Killed

    if point == "consolidate.removed":
        consolidate(place.saver.repo(), packs_max=1, grace_s=0.0)
    faults.arm(die)
    try:
        with pytest.raises(_Killed):
            consolidate(place.saver.repo(), packs_max=1, grace_s=0.0)
    finally:
        faults.arm(None)
    check(place, made)
    place.anew()
    made += beats(place, 1, 8)
    sweep(place.saver.repo().packs)
    for _ in range(2):
        consolidate(place.saver.repo(), packs_max=1, grace_s=0.0)
    check(place, made)
    left = [path for path in place.saver.repo().packs.iterdir() if path.stem not in packs_of(place)]
    assert left == []


CHILD = """
import sys
from pathlib import Path
from outlast.store.local import Local
from outlast.workspace.capture.saver import Saver
from outlast.workspace.compact.repack import consolidate, packing_lock
saver = Saver(Path(sys.argv[1]), Local(Path(sys.argv[2])))
print("ready", flush=True)
while True:
    consolidate(saver.repo(), packs_max=1, grace_s=0.0)
"""


def test_killed_anywhere_nothing_is_lost_and_nothing_stays_behind(place: Workspace) -> None:
    made = beats(place, 10)
    for turn in range(8):
        words = [sys.executable, "-c", CHILD, str(place.folder), str(place.state)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            made += beats(place, 4, len(made))
            until = time.monotonic() + 0.013 * turn
            while time.monotonic() < until:
                pass
            child.kill()
        place.fsck()
    place.anew()
    made += beats(place, 1, len(made))
    for _ in range(2):
        consolidate(place.saver.repo(), packs_max=1, grace_s=0.0)
    check(place, made)
    common = place.saver.repo().vault
    assert [name for name in os.listdir(common) if name.startswith("outlast-consolidating")] == []
    left = [path for path in place.saver.repo().packs.iterdir() if path.stem not in packs_of(place)]
    assert left == []
