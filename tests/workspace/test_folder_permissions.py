"""Folders that let in fewer than a new one would: they come back like that, with all that is in them."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from outlast.workspace.restore import recreate, restore
from outlast.workspace.types import Purpose
from tests.workspace.test_permissions import forget, known, made, masked, noted
from tests.workspace.workspace import BASE, RUN, Workspace, placed

# Each with each shell, or each way to look for changes: a sample does some of both.
pytestmark = pytest.mark.sampled(0.5)

__all__ = ["known", "made"]  # fixtures
PRIVATE = "mkdir -m 700 priv; mkdir -p priv/deep; chmod 750 priv/deep; echo n > priv/deep/n; mkdir -m 711 only; echo K > only/.env"  # fmt: skip


def folders(folder: Path) -> dict[str, int]:
    """The permission bits of every folder that lets in fewer than usual."""
    found = {}
    for here, names, _ in os.walk(folder):
        names[:] = [name for name in names if name != ".git"]
        bits = stat.S_IMODE(os.stat(here).st_mode)
        if bits != 0o755:
            found[os.path.relpath(here, folder)] = bits
    return found


def test_folders_come_back_as_they_were(known: Workspace) -> None:
    known.sh(PRIVATE)
    before = folders(known.folder)
    assert before == {"priv": 0o700, "priv/deep": 0o750, "only": 0o711}
    saved = known.save("beat")
    shutil.rmtree(known.folder / "priv")
    shutil.rmtree(known.folder / "only")
    known.restore(saved, with_secrets=True)
    assert folders(known.folder) == before


def test_folders_of_tracked_files_are_noted_by_the_first_save(made: Workspace) -> None:
    made.sh("chmod 700 sub; chmod 750 sub/deep")
    assert made.save_if_dirty() is None, "a folder alone is nothing to save"
    saved = made.save()
    shutil.rmtree(made.folder / "sub")
    made.restore(saved)
    assert folders(made.folder) == {"sub": 0o700, "sub/deep": 0o750}


def test_a_folder_that_is_as_usual_again_is_noted_no_more(known: Workspace) -> None:
    known.sh(PRIVATE + "; mkdir -m 700 gone; echo x > gone/x")
    first = known.save("beat")
    assert set(noted(known, first)) == {
        b"priv/.outlast-folder",
        b"priv/deep/.outlast-folder",
        b"only/.outlast-folder",
        b"gone/.outlast-folder",
    }
    known.sh("chmod 755 priv/deep; echo more > priv/deep/n; chmod 755 only; echo L > only/.env; rm -r gone")
    second = known.save("beat")
    assert set(noted(known, second)) == {b"priv/.outlast-folder"}
    known.restore(first)
    assert folders(known.folder) == {"priv": 0o700, "gone": 0o700}, "only what is made anew gets them"


def test_what_is_noted_is_looked_at_again_after_a_reboot(made: Workspace) -> None:
    made.sh(PRIVATE)
    made.save()
    made.sh("chmod 755 priv")
    forget(made)
    assert b"priv/.outlast-folder" not in noted(made, made.save())
    made.sh("chmod 700 priv")
    forget(made)
    assert noted(made, made.save())[b"priv/.outlast-folder"] == 0o700


@pytest.mark.parametrize("kind", ["worktree", "folder"])
def test_a_workspace_that_is_made_again_lets_in_whom_it_did(kind: str, tmp_path: Path) -> None:
    with masked(0o022), placed(tmp_path, BASE if kind == "worktree" else "true") as first:
        place = Workspace(tmp_path / "own", tmp_path / "state")
        if kind == "worktree":
            place.folder.rmdir()
            first.sh("git worktree add -q ../own")
        place.folder.chmod(0o700)
        place.write("file", b"precious")
        saved = place.save()
        restore.materialise(place.saver, place.held(saved), tmp_path / "to")
        assert folders(tmp_path / "to") == {".": 0o700}
        shutil.rmtree(place.folder)
        recreate.make_folder(place.saver, saved.commit)
        assert folders(place.folder) == {".": 0o700}
        place.anew()
        purpose = Purpose(kind="pre-restore", run=RUN)
        restore.restore(place.saver, place.held(saved), purpose, restore.Options())
        assert folders(place.folder) == {".": 0o700}
        assert (place.folder / "file").read_bytes() == b"precious"
        place.close()


def test_a_folder_nobody_may_write_to_is_made_so_that_it_can_be_filled(made: Workspace) -> None:
    made.sh("mkdir ro; echo x > ro/x; chmod 500 ro")
    saved = made.save()
    made.sh("chmod 700 ro; rm -r ro")
    made.restore(saved)
    assert folders(made.folder) == {"ro": 0o700}
