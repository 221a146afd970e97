"""A watcher and git: the repository's own changes are flagged, nested repositories are content."""

import shutil
from pathlib import Path

import pytest

from outlast.workspace.watch import watcher as watch_watcher
from outlast.workspace.watch.watcher import Hints
from tests.workspace.watch_folder import git, repository, watching_of


def test_changes_of_the_repository_are_flagged_and_are_no_paths(root: Path) -> None:
    repository(root)
    with watching_of(root, git_dirs=(root / ".git",)) as watcher:
        for words in (
            ["commit", "-q", "--allow-empty", "-m", "second"],
            ["branch", "deep/er/branch"],
            ["update-ref", "refs/heads/deep/er/branch", "HEAD~1"],
            ["tag", "v1"],
            ["checkout", "-q", "--detach"],
            ["branch", "-D", "deep/er/branch"],
            ["stash", "list"],
        ):
            git(root, *words)
            hints = watcher.take()
            assert hints == Hints(repository=words[0] != "stash"), words
        (root / "new").write_text("")
        git(root, "add", "new")
        assert watcher.take() == Hints(frozenset({b"new"}), repository=True)


def test_our_own_refs_are_no_change_of_the_repository(root: Path) -> None:
    repository(root)
    with watching_of(root, git_dirs=(root / ".git",)) as watcher:
        for beat in ("one", "two"):
            folder = root / ".git/refs/outlast/run" / beat
            folder.mkdir(parents=True)
            (folder / "beat").write_text("0" * 40)
            assert watcher.take() == Hints()


def test_the_private_ignore_rules_of_the_repository_are_rules(root: Path) -> None:
    repository(root)
    with watching_of(root, git_dirs=(root / ".git",)) as watcher:
        (root / ".git/info/exclude").write_text("*.o\n")
        assert watcher.take() == Hints(repository=True, scan=True, why="the ignore rules changed")


def test_a_linked_worktree_is_told_of_its_own_git_dir_and_the_common_one(root: Path, tmp_path: Path) -> None:
    repository(tmp_path / "main")
    git(tmp_path / "main", "worktree", "add", "-q", str(root / "tree"))
    common = tmp_path / "main/.git"
    with watching_of(root / "tree", git_dirs=(common / "worktrees/tree", common)) as watcher:
        (root / "tree/file").write_text("changed")
        git(root / "tree", "add", "file")
        assert watcher.take() == Hints(frozenset({b"file"}), repository=True)
        git(tmp_path / "main", "tag", "seen")
        assert watcher.take() == Hints(repository=True)


def test_a_bare_repository_inside_its_own_worktree_is_state_and_no_content(root: Path) -> None:
    git(root, "init", "-q", "--separate-git-dir", str(root / ".bare"))
    with watching_of(root, git_dirs=(root / ".bare",)) as watcher:
        (root / ".bare/HEAD").write_text("ref: refs/heads/other\n")
        assert watcher.take() == Hints(repository=True)


def test_more_ref_folders_than_are_watched_make_every_take_say_repository(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_watcher, "REF_FOLDERS_MAX", 5)
    repository(root)
    with watching_of(root, git_dirs=(root / ".git",)) as watcher:
        assert not watcher.take().repository
        for number in range(9):
            git(root, "branch", f"{number}/branch")
        assert watcher.take().repository
        assert watcher.take().repository


def test_a_nested_repository_is_content_and_its_state_hints_its_root(root: Path) -> None:
    repository(root / "deep/nested")
    nested = frozenset({b"deep/nested"})
    with watching_of(root) as watcher:
        (root / "deep/nested/file").write_text("changed")
        assert watcher.take().paths == {b"deep/nested/file"}
        git(root / "deep/nested", "commit", "-qam", "second")
        assert watcher.take() == Hints(nested)
        git(root / "deep/nested", "update-ref", "refs/heads/main", "HEAD~1")
        assert watcher.take() == Hints(nested)
        (root / "deep").rename(root / "moved")
        watcher.take()
        git(root / "moved/nested", "tag", "moved")
        assert watcher.take().paths == {b"moved/nested"}
        repository(root / "late")
        watcher.take()
        git(root / "late", "tag", "seen")
        assert watcher.take().paths == {b"late"}
        shutil.rmtree(root / "late/.git")
        assert watcher.take().paths == {b"late"}


def test_a_git_dir_elsewhere_is_watched_for_every_tree_that_names_it(root: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (root / name).mkdir()
    git(root / "one", "init", "-q", "--separate-git-dir", str(tmp_path / "store"))
    with watching_of(root) as watcher:
        shutil.copy(root / "one/.git", root / "two/.git")
        assert watcher.take().paths == {b"two"}
        (tmp_path / "store/HEAD").write_text("ref: refs/heads/other\n")
        assert watcher.take().paths == {b"one", b"two"}
        shutil.rmtree(root / "one")
        watcher.take()
        (tmp_path / "store/HEAD").write_text("ref: refs/heads/third\n")
        assert watcher.take().paths == {b"two"}


def test_a_nested_tree_of_the_workspaces_own_git_dir_does_not_hide_it(root: Path) -> None:
    repository(root)
    with watching_of(root, git_dirs=(root / ".git",)) as watcher:
        (root / "sub").mkdir()
        (root / "sub/.git").write_text("gitdir: ../.git\n")
        watcher.take()
        git(root, "tag", "seen")
        assert watcher.take() == Hints(frozenset({b"sub"}), repository=True)
        shutil.rmtree(root / "sub")
        watcher.take()
        git(root, "tag", "again")
        assert watcher.take().repository
