"""A clean tree with clean submodules has nothing to save; anything in one of them is saved."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workspace.workspace import BASE, Workspace, placed

MODULE = """
git init -q -b main ../module; (cd ../module; seq 9 > file; mkdir in; echo in > in/it; git add -A; git commit -qm one)
git -c protocol.file.allow=always submodule add -q "$(cd ../module; pwd)" sub/module; git commit -qm module
"""
DIRTY = {
    "changed": "echo two > sub/module/file",
    "deleted": "rm sub/module/file",
    "untracked": "echo new > sub/module/new",
    "staged and taken back": "cd sub/module; echo two > file; git add file; seq 9 > file",
    "another commit": "cd sub/module; git commit -q --allow-empty -m two",
    "under way": "cd sub/module; git rev-parse HEAD > $(git rev-parse --git-dir)/MERGE_HEAD",
    "outside": "echo two > a.txt",
    "gone": "rm -r sub/module",
    "another repository": "git init -q other; echo x > other/x",
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    with placed(tmp_path, BASE + MODULE) as made:
        yield made


def test_a_clean_submodule_needs_no_save(place: Workspace) -> None:
    assert place.save_if_dirty() is None
    place.save()
    assert place.save_if_dirty() is None
    place.sh("git submodule -q deinit sub/module")
    assert place.save_if_dirty() is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("script", DIRTY.values(), ids=list(DIRTY))
def test_anything_in_a_submodule_is_saved(place: Workspace, script: str) -> None:
    place.sh(script)
    assert place.save_if_dirty() is not None


def test_an_empty_folder_of_a_submodule_comes_back_without_a_list_of_submodules(place: Workspace) -> None:
    place.sh(
        "git submodule -q deinit sub/module; git rm -q --cached .gitmodules; rm .gitmodules; git commit -qm bare"
    )
    assert place.save_if_dirty() is None
    save = place.save()
    status = place.sh("git status --porcelain")
    place.sh("rmdir sub/module; echo two > a.txt")
    place.restore(save)
    assert (place.folder / "sub/module").is_dir()
    assert place.sh("git status --porcelain") == status == b""
