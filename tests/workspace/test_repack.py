"""Packs written anew without what nothing reaches: nothing is kept twice, and killed at any point nothing is lost."""

import os
import time
from pathlib import Path

import pytest

from outlast import faults
from outlast.workspace.compact import prune
from outlast.workspace.compact.repack import consolidate, remove
from tests.support.inprocess import Killed
from tests.workspace.workspace import Workspace

BLOB_BYTES = 100_000


def age(place: Workspace) -> None:
    """As if all packs were written an hour ago."""
    for path in packs(place):
        os.utime(path, (time.time() - 3600,) * 2)


def packs(place: Workspace) -> list[Path]:
    return sorted(place.saver.repo().packs.glob("*.pack"))


def save_blob(place: Workspace, name: str, run: str, *, anew: bool = True) -> str:
    """A save of one more file that cannot be compressed; by a run that knows nothing of what is saved."""
    if anew:
        place.write(name, os.urandom(BLOB_BYTES))
    for memo in place.state.glob("workspaces/*/memo"):
        memo.unlink()
    place.anew()
    return place.save("beat", run=run).commit


def forget(place: Workspace, run: str) -> None:
    place.vault_git("update-ref", "-d", f"refs/outlast/{run}/beat")


def test_what_a_pack_that_stays_has_is_not_kept_twice(place: Workspace) -> None:
    save_blob(place, "first", "over")
    (place.folder / "more").write_bytes(os.urandom(1000))
    kept = save_blob(place, "first", "open", anew=False)
    forget(place, "over")
    age(place)
    prune.rewrite_packs(place.saver.repo())
    assert sum(path.stat().st_size for path in packs(place)) < 1.5 * BLOB_BYTES
    place.fsck()
    assert place.content(kept, "first") == (place.folder / "first").read_bytes()


def test_packs_that_repeat_each_other_become_one(place: Workspace) -> None:
    commits = [save_blob(place, "first", "one"), save_blob(place, "first", "two", anew=False)]
    age(place)
    before = sum(path.stat().st_size for path in packs(place))
    assert before > 2 * BLOB_BYTES
    assert prune.rewrite_packs(place.saver.repo()) > BLOB_BYTES
    place.fsck()
    place.anew()
    for commit in commits:
        assert place.content(commit, "first") == (place.folder / "first").read_bytes()
    age(place)
    assert prune.rewrite_packs(place.saver.repo()) == 0


@pytest.mark.parametrize("again", ["consolidate", "shed"])
def test_killed_in_the_middle_it_loses_nothing_that_a_consolidated_pack_stood_for(
    place: Workspace, again: str
) -> None:
    """A pack that was consolidated is removed soon: what it has does not count as kept elsewhere."""
    save_blob(place, "kept", "open")
    place.write("later", os.urandom(BLOB_BYTES))
    known = packs(place)
    kept = place.save("beat", run="open").commit
    (own,) = set(packs(place)) - set(known)
    save_blob(place, "over", "over")
    assert consolidate(place.saver.repo(), packs_max=1)
    remove(own.parent, own.stem)  # who removes what was consolidated was killed after the first
    forget(place, "over")
    age(place)

    def kill(name: str) -> None:
        if name == "gc.packed":
            raise Killed

    faults.arm(kill)
    try:
        with pytest.raises(Killed):
            prune.rewrite_packs(place.saver.repo())
    finally:
        faults.arm(None)
    age(place)
    if again == "shed":
        prune.rewrite_packs(place.saver.repo())
    for _ in range(3):
        consolidate(place.saver.repo(), packs_max=1, grace_s=0.0)
        age(place)
    place.fsck()
    place.anew()
    for name in ("kept", "later"):
        assert place.content(kept, name) == (place.folder / name).read_bytes()
