"""An index that a power cut left empty, or that is garbage: the files are saved and come back all the same."""

import pytest

from tests.workspace.workspace import Workspace

DAMAGES = {
    "empty": ": > .git/index",
    "zeros": "head -c 300 /dev/zero > .git/index",
    "garbage": "head -c 300 /dev/urandom > .git/index",
    "cut": "truncate -s 40 .git/index",
    "no shared index": "git update-index --split-index; rm .git/sharedindex.*",
}


def begun(place: Workspace) -> None:
    place.sh("echo one > a; mkdir d; echo log > d/x.log; echo '*.log' > .gitignore")
    place.sh("git add a .gitignore; git add -f d/x.log; git commit -qm first; echo staged > s; git add s")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
@pytest.mark.parametrize("watched", [False, True], ids=["looked", "watched"])
def test_after_a_good_save_files_are_saved_and_restored(place: Workspace, damage: str, watched: bool) -> None:
    begun(place)
    good = place.save()
    if watched:
        place.saver.watch()
        place.save()
    index = (place.folder / ".git/index").read_bytes()
    place.sh(f"echo two > a; {damage}")
    broken = (place.folder / ".git/index").read_bytes()
    save = place.save()
    assert save.warning.startswith("cannot read the index of ")
    assert place.held(save).meta.warning == save.warning
    assert place.content(save, "a") == b"two\n"
    assert place.content(save, "d/x.log") == b"log\n"
    assert (place.folder / ".git/index").read_bytes() == broken
    kept = place.held(save).entries[b"index"].oid
    assert place.saver.reader().read(kept)[1] == broken, "also what cannot be read is kept as it is"
    place.restore(good)
    assert (place.folder / ".git/index").read_bytes() == index
    assert (place.folder / "a").read_bytes() == b"one\n"
    assert not place.save().warning


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_first_save_is_made(place: Workspace, damage: str) -> None:
    begun(place)
    place.sh(damage)
    save = place.save_if_dirty()
    assert save is not None
    assert "cannot read the index" in save.warning
    assert place.content(save, "a") == b"one\n"
    assert place.content(save, "s") == b"staged\n"
    place.sh("rm a s")
    place.restore(save)
    assert (place.folder / "s").read_bytes() == b"staged\n"


def test_an_index_that_is_mended_is_read_again(place: Workspace) -> None:
    begun(place)
    place.save()
    index = place.folder / ".git/index"
    kept = index.read_bytes()
    index.write_bytes(b"")
    assert place.save().warning
    index.write_bytes(kept)
    after = place.save()
    assert not after.warning
    assert place.git_in(place.saver.repo().vault, "show", f"{after.commit}^2:s").stdout == b"staged\n"
