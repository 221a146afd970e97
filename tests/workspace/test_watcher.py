import contextlib
import ctypes
import itertools
import mmap
import os
import random
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from outlast.workspace.watch import inotify, watcher as watch_watcher
from outlast.workspace.watch.watcher import Hints, Watcher
from tests.conftest import Nobody
from tests.support.environment import TIMEOUT_S, need_root, need_tool, skip_or_fail
from tests.support.processes import python_command, wait_for

Snapshot = dict[bytes, tuple[object, ...]]


def nothing(folders: list[bytes]) -> set[bytes]:
    return set()


def named(*names: bytes) -> watch_watcher.Skip:
    return lambda folders: {folder for folder in folders if os.path.basename(folder) in names}


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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def snapshot(root: Path) -> Snapshot:
    """Content and mode of every file, target of every symlink, every folder."""
    found: Snapshot = {}
    base = os.fsencode(root)
    for here, folders, files in os.walk(base):
        for name in (*folders, *files):
            place = os.path.join(here, name)
            status = os.lstat(place)
            kind = stat.S_IFMT(status.st_mode)
            if kind == stat.S_IFLNK:
                value: tuple[object, ...] = (kind, os.readlink(place))
            elif kind == stat.S_IFDIR:
                value = (kind,)
            else:
                value = (kind, stat.S_IMODE(status.st_mode), Path(os.fsdecode(place)).read_bytes())
            found[os.path.relpath(place, base)] = value
    return found


def differences(before: Snapshot, after: Snapshot) -> set[bytes]:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def uncovered(changed: set[bytes], hinted: frozenset[bytes]) -> set[bytes]:
    """The changes that no hint leads to: neither their own path nor a folder above."""

    def is_covered(path: bytes) -> bool:
        parts = path.split(b"/")
        return any(b"/".join(parts[:length]) in hinted for length in range(1, len(parts) + 1))

    return {path for path in changed if not is_covered(path)}


def assert_every_folder_is_watched(root: Path, watcher: Watcher) -> None:
    watcher.take()
    probes = [Path(here) / "probe" for here, _, _ in os.walk(root)]
    for probe in probes:
        probe.write_bytes(b"")
    hints = watcher.take()
    assert not hints.scan, hints.why
    assert {os.fsencode(probe.relative_to(root)) for probe in probes} - hints.paths == set()
    assert watcher.watches == len(probes), "and nothing else is"


# --- random trees -------------------------------------------------------------------------------------------

NAMES = "abc"
PLACES = [Path(*parts) for depth in (1, 2, 3) for parts in itertools.product(NAMES, repeat=depth)]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def _tree(path: Path) -> None:
    path.mkdir(parents=True)
    for name in NAMES:
        (path / name).mkdir()
        (path / name / "file").write_text("at once")


def _append(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"more")


def _overwrite_in_place(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(os.urandom(4))


def _file_to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "a").write_text("was a file")


def _folder_to_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("was a folder")


OPERATIONS: dict[str, Callable[[Path, Path], object]] = {
    "write": lambda one, other: one.write_bytes(os.urandom(4)),
    "append": lambda one, other: _append(one),
    "overwrite": lambda one, other: _overwrite_in_place(one),
    "truncate": lambda one, other: os.truncate(one, 0),
    "chmod": lambda one, other: one.chmod(one.stat().st_mode ^ 0o010),
    "mkdir": lambda one, other: one.mkdir(parents=True),
    "tree": lambda one, other: _tree(one),
    "rename": lambda one, other: one.rename(other),
    "exchange": _exchange,
    "there and back": lambda one, other: (one.rename(other), other.rename(one)),
    "link": lambda one, other: os.link(one, other),
    "symlink": lambda one, other: one.symlink_to(other.name),
    "symlink to folder": lambda one, other: one.symlink_to("/usr/include"),
    "remove": lambda one, other: _remove(one),
    "file to folder": lambda one, other: _file_to_folder(one),
    "folder to file": lambda one, other: _folder_to_file(one),
}


def operate(root: Path, outside: Path, name: str, one: Path, other: Path) -> None:
    """Most random operations are impossible, and some fail halfway; both are fine."""
    with contextlib.suppress(OSError, shutil.Error):
        if name == "out":
            (root / one).rename(outside / f"{len(os.listdir(outside))}")
        elif name == "in":
            (outside / min(os.listdir(outside), default="none")).rename(root / one)
        elif name == "link" and (root / one).stat().st_nlink > 1:
            pass  # writes through a second name raise no event for the first: a documented limit
        else:
            OPERATIONS[name](root / one, root / other)


def forget_links(root: Path) -> None:
    """Break hard links, so that every file has one name when the next random write comes."""
    for here, _, files in os.walk(root):
        for name in files:
            path = Path(here) / name
            if not path.is_symlink() and path.stat().st_nlink > 1:
                content = path.read_bytes()
                path.unlink()
                path.write_bytes(content)


operation = st.tuples(
    st.sampled_from([*sorted(OPERATIONS), "out", "in"]), st.sampled_from(PLACES), st.sampled_from(PLACES)
)


@settings(max_examples=150)
@given(st.lists(st.lists(operation, max_size=8), max_size=8))
def test_whatever_changed_before_a_take_is_covered_by_its_hints(
    rounds: list[list[tuple[str, Path, Path]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, outside = Path(folder) / "root", Path(folder) / "outside"
        root.mkdir()
        outside.mkdir()
        with watching_of(root) as watcher:
            before = snapshot(root)
            for operations in rounds:
                for name, one, other in operations:
                    operate(root, outside, name, one, other)
                    if name == "link":
                        forget_links(root)
                hints = watcher.take()
                after = snapshot(root)
                assert not hints.scan, hints.why
                assert uncovered(differences(before, after), hints.paths) == set()
                before = after
            assert_every_folder_is_watched(root, watcher)


def test_while_others_write_no_change_is_lost_and_every_folder_stays_watched(
    tmp_path: Path, rng: random.Random, seed: int
) -> None:
    for nth in range(12):
        root, outside = tmp_path / f"root{nth}", tmp_path / f"outside{nth}"
        root.mkdir()
        outside.mkdir()
        names = [*sorted(OPERATIONS.keys() - {"link"}), "out", "in", "tree", "rename", "rename"]
        plan = [(rng.choice(names), rng.choice(PLACES), rng.choice(PLACES)) for _ in range(400)]

        def write(plan=plan, root=root, outside=outside) -> None:  # type: ignore[no-untyped-def]
            for name, one, other in plan:
                operate(root, outside, name, one, other)

        with watching_of(root) as watcher:
            before = snapshot(root)
            writer = threading.Thread(target=write)
            writer.start()
            hinted: set[bytes] = set()
            while writer.is_alive():
                hints = watcher.take()
                assert not hints.scan, hints.why
                hinted |= hints.paths
                writer.join(rng.choice([0, 0.001, 0.02]))
            hinted |= watcher.take().paths
            missed = uncovered(differences(before, snapshot(root)), frozenset(hinted))
            assert missed == set(), f"seed {seed}, round {nth}"
            assert_every_folder_is_watched(root, watcher)


def test_what_moves_while_it_is_looked_at_is_neither_lost_nor_left_unwatched(
    tmp_path: Path, rng: random.Random, seed: int
) -> None:
    """`skip` is asked between reading an event and watching its folder: there the tree changes again."""
    names = [*sorted(OPERATIONS.keys() - {"link"}), "out", "in", "tree", "mkdir", "rename", "there and back"]

    for nth in range(60):
        root, outside = tmp_path / f"root{nth}", tmp_path / f"outside{nth}"
        root.mkdir()
        outside.mkdir()
        plan = [(rng.choice(names), rng.choice(PLACES), rng.choice(PLACES)) for _ in range(120)]
        steps = iter(plan)

        def skip(folders: list[bytes], root=root, outside=outside, steps=steps) -> set[bytes]:  # type: ignore[no-untyped-def]
            for name, one, other in itertools.islice(steps, 2):
                operate(root, outside, name, one, other)
            return set()

        with watching_of(root, skip) as watcher:
            hinted: set[bytes] = set()
            for name, one, other in steps:
                operate(root, outside, name, one, other)
                hints = watcher.take()
                assert not hints.scan, hints.why
                hinted |= hints.paths
            hinted |= watcher.take().paths
            missed = uncovered(differences({}, snapshot(root)), frozenset(hinted))
            assert missed == set(), f"seed {seed}, round {nth}"
            assert_every_folder_is_watched(root, watcher)


def test_a_folder_made_while_its_parent_was_elsewhere_is_watched(root: Path) -> None:
    (root / "a").mkdir()

    moves = iter([root / "b"])

    def skip(folders: list[bytes]) -> set[bytes]:
        if folders == [b"a/new"]:
            for other in moves:
                (root / "a").rename(other)
        return set()

    with watching_of(root, skip) as watcher:
        (root / "a/new").mkdir()
        wait_for(lambda: (root / "b").exists(), what="the thread to ask about the new folder")
        (root / "b").rename(root / "a")
        assert_every_folder_is_watched(root, watcher)


def test_a_symlink_in_a_moved_folders_place_does_not_lead_to_a_folder_we_know(root: Path) -> None:
    """The trace of seed 1267653931: `a/c`, looked at late, was `c/c`, which then was unwatched with `a`."""
    for name in ("a/c", "c/c"):
        (root / name).mkdir(parents=True)
    with watching_of(root) as watcher:
        (root / "a/c").rmdir()
        (root / "a").rename(root / "b")
        (root / "a").symlink_to("c")
        watcher.take()
        (root / "c/c/file").write_text("")
        assert watcher.take().paths == {b"c/c/file"}
        assert_every_folder_is_watched(root, watcher)


def test_a_folder_that_takes_the_place_of_the_one_above_it_is_watched(root: Path) -> None:
    (root / "a/b/c").mkdir(parents=True)
    with watching_of(root) as watcher:
        (root / "a/b").rename(root / "t")
        (root / "a").rmdir()
        (root / "t").rename(root / "a")
        assert_every_folder_is_watched(root, watcher)


# --- what is hinted -----------------------------------------------------------------------------------------


def test_the_first_take_says_scan_and_a_quiet_one_says_nothing(root: Path) -> None:
    with contextlib.closing(Watcher(root, skip=nothing)) as watcher:
        first = watcher.take()
        assert (first.scan, first.repository, first.why) == (True, True, "nothing was watched before")
        assert watcher.take() == Hints()


def test_a_file_that_is_still_being_written_is_hinted_at_each_take(root: Path) -> None:
    with watching_of(root) as watcher, open(root / "log", "wb", buffering=0) as file:
        for _ in range(3):
            file.write(b"line\n")
            assert watcher.take().paths == {b"log"}
        assert watcher.take() == Hints()


def test_names_that_are_no_text_are_hinted_as_they_are(root: Path) -> None:
    name = b"\xff\xfe new\nline"
    with watching_of(root) as watcher:
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).mkdir()
        Path(os.fsdecode(os.fsencode(root) + b"/" + name + b"/x")).write_text("")
        assert uncovered({name + b"/x"}, watcher.take().paths) == set()


def test_a_symlinked_folder_is_not_followed(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "deep").mkdir(parents=True)
    (root / "before").symlink_to(elsewhere)
    with watching_of(root) as watcher:
        (root / "after").symlink_to(elsewhere)
        assert watcher.take().paths == {b"after"}
        (elsewhere / "deep/file").write_text("")
        (elsewhere / "file").write_text("")
        assert watcher.take() == Hints()
        assert watcher.watches == 1


def test_a_mapped_write_is_hinted_only_when_the_mapping_ends(root: Path) -> None:
    """The documented limit, so that a kernel which changes it is noticed."""
    (root / "mapped").write_bytes(b"old!")
    with watching_of(root) as watcher:
        with open(root / "mapped", "r+b") as file:
            mapping = mmap.mmap(file.fileno(), 4)
        mapping[:] = b"new!"
        mapping.flush()
        assert (root / "mapped").read_bytes() == b"new!"
        assert watcher.take() == Hints()
        mapping.close()
        assert watcher.take().paths == {b"mapped"}


def test_a_write_through_another_hard_link_is_hinted_under_that_name_only(root: Path) -> None:
    """The documented limit."""
    (root / "one").write_text("")
    os.link(root / "one", root / "two")
    with watching_of(root) as watcher:
        _append(root / "one")
        assert watcher.take().paths == {b"one"}


def test_ignored_folders_are_not_watched_until_the_rules_change(root: Path) -> None:
    ignored = {b"node_modules"}
    (root / "node_modules/deep").mkdir(parents=True)
    (root / "sub/node_modules").mkdir(parents=True)

    def skip(folders: list[bytes]) -> set[bytes]:
        return {folder for folder in folders if os.path.basename(folder) in ignored}

    with watching_of(root, skip) as watcher:
        assert watcher.watches == 2
        (root / "node_modules/deep/file").write_text("")
        assert watcher.take() == Hints()
        ignored.clear()
        (root / "sub/.gitignore").write_text("")
        assert watcher.take().paths >= {b"sub"}
        (root / "sub/node_modules/file").write_text("")
        assert watcher.take().paths == {b"sub/node_modules/file"}
        (root / ".gitignore").write_text("")
        hints = watcher.take()
        assert (hints.scan, hints.why) == (True, "the ignore rules changed")
        ignored.add(b"deep")
        watcher.refresh()
        assert watcher.take().scan
        assert watcher.watches == 4
        (root / "node_modules/file").write_text("")
        assert watcher.take().paths == {b"node_modules/file"}


def test_a_new_ignored_folder_costs_no_watch(root: Path) -> None:
    with watching_of(root, named(b"target")) as watcher:
        (root / "target/debug/deps").mkdir(parents=True)
        watcher.take()
        assert watcher.watches == 1


def test_more_paths_than_the_limit_become_one_scan(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_watcher, "PATHS_MAX", 100)
    with watching_of(root) as watcher:
        for number in range(101):
            (root / str(number)).write_text("")
        hints = watcher.take()
        assert (hints.paths, hints.scan, hints.why) == (frozenset(), True, "more than 100 paths changed")
        (root / "7").write_text("x")
        assert watcher.take() == Hints(frozenset({b"7"}))


UNREADABLE = """
import os
from pathlib import Path
from outlast.workspace.watch.watcher import Watcher
root = Path("w"); (root / "closed/sub").mkdir(parents=True); (root / "closed").chmod(0o300)
watcher = Watcher(root, skip=lambda folders: set())
watcher.take()
(root / "closed/file").write_text("")
assert watcher.take().paths == {b"closed"} == watcher.take().paths
(root / "closed").chmod(0o700)
assert watcher.take().paths == {b"closed"}
(root / "closed/sub/file").write_text("")
assert watcher.take().paths == {b"closed/sub/file"}
watcher.close()
"""


def test_a_folder_that_may_not_be_read_is_hinted_at_every_take(as_nobody: Nobody) -> None:
    done = as_nobody.run(python_command(UNREADABLE))
    assert (done.returncode, done.stderr) == (0, "")


# --- repositories -------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, timeout=TIMEOUT_S)


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    (folder / "file").write_text("content")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


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


# --- when it cannot be watched ------------------------------------------------------------------------------


def assert_failed(watcher: Watcher, why: str) -> None:
    for _ in range(2):
        hints = watcher.take()
        assert (hints.scan, hints.repository, hints.paths) == (True, True, frozenset())
        assert why in hints.why
    assert why in watcher.failed
    assert watcher.watches == 0
    watcher.close()


def test_a_removed_root_fails(root: Path) -> None:
    watcher = Watcher(root, skip=nothing)
    root.rmdir()
    assert_failed(watcher, "No such file")


def test_a_root_that_was_replaced_fails(root: Path) -> None:
    watcher = Watcher(root, skip=nothing)
    root.rename(root.with_name("old"))
    root.mkdir()
    assert_failed(watcher, "another folder than before")


def test_a_folder_above_that_moves_fails(root: Path) -> None:
    (root / "inner").mkdir()
    watcher = Watcher(root / "inner", skip=nothing)
    root.rename(root.with_name("old"))
    assert_failed(watcher, "No such file")


def test_the_thread_alone_notices_that_the_root_is_gone(root: Path) -> None:
    watcher = Watcher(root, skip=nothing)
    root.rmdir()
    wait_for(lambda: watcher.failed, what="the watcher to notice")
    assert watcher.watches == 0
    watcher.close()


def test_it_says_that_it_failed_only_when_nothing_is_watched_any_more(root: Path) -> None:
    watcher = Watcher(root, skip=nothing)
    assert watcher._folders is not None
    queue = watcher._folders.queue
    with inotify.account()._lock:  # the thread waits for it after it closed the queue
        root.rmdir()
        wait_for(lambda: queue.fd < 0, what="the thread to close the queue")
        assert (watcher.failed, watcher.watches) == ("", 1)
    wait_for(lambda: watcher.failed, what="the watcher to say so")
    assert watcher.watches == 0
    watcher.close()


def test_a_missing_root_fails_and_does_not_raise(root: Path) -> None:
    assert_failed(Watcher(root / "none", skip=nothing), "No such file")


@pytest.mark.parametrize("how", ["removed", "moved", "made"])
def test_a_git_dir_that_is_not_what_it_was_fails(root: Path, how: str) -> None:
    if how == "made":
        watcher = Watcher(root, skip=nothing)
        repository(root)
    else:
        repository(root)
        watcher = Watcher(root, skip=nothing, git_dirs=[root / ".git"])
        shutil.rmtree(root / ".git") if how == "removed" else (root / ".git").rename(root.with_name("away"))
    wait_for(lambda: watcher.failed, what="the watcher to notice")
    assert_failed(watcher, ".git")


def test_a_skip_that_raises_is_a_failure_and_not_an_exception(root: Path) -> None:
    def skip(folders: list[bytes]) -> set[bytes]:
        raise KeyError("no git")

    watcher = Watcher(root, skip=skip)
    (root / "new").mkdir()
    assert_failed(watcher, "the watcher broke: KeyError('no git')")


def test_the_limit_holds_over_all_watchers_of_the_process(root: Path) -> None:
    for name in ("one/a", "one/b", "two/a", "two/b"):
        (root / name).mkdir(parents=True)
    used = inotify.account().used
    with watching_of(root / "one", limit=used + 5) as one:
        two = Watcher(root / "two", skip=nothing, limit=used + 5)
        assert_failed(two, f"needs more watches than the {used + 5} we may have")
        assert inotify.account().used == used + 3
        (root / "one/c").mkdir()
        (root / "one/c/d").mkdir()
        assert one.take().paths >= {b"c"}
        (root / "one/e").mkdir()
        assert_failed(one, "needs more watches")
        assert inotify.account().used == used


def test_without_a_limit_a_quarter_of_the_users_watches_is_ours() -> None:
    allowed = int(Path("/proc/sys/fs/inotify/max_user_watches").read_text())
    assert inotify.quarter() == allowed // 4


NO_WATCHES = """
import sys
from pathlib import Path
from outlast.workspace.watch.watcher import Watcher
root = Path(sys.argv[1])
for number in range(30):
    (root / str(number)).mkdir()
Path("/proc/sys/user/max_inotify_watches").write_text("20")
watcher = Watcher(root, skip=lambda folders: set())
assert watcher.watches == 0 and watcher.take().scan
print(watcher.take().why)
"""


def test_watches_that_the_kernel_refuses_are_a_failure(root: Path) -> None:
    """In a user namespace of its own, whose limit is nobody else's."""
    inside = [need_tool("unshare"), "--user", "--map-root-user"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False, timeout=TIMEOUT_S).returncode:
        skip_or_fail("needs user namespaces")
    done = subprocess.run(
        [*inside, *python_command(NO_WATCHES, str(root))],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stderr, done.stdout) == (
        "",
        "the user has no inotify watch left (fs.inotify.max_user_watches)\n",
    )


NO_INSTANCES = """
import errno, os
from pathlib import Path
from outlast.workspace.watch.inotify import Inotify
from outlast.workspace.watch.watcher import Watcher
Path("w").mkdir()
held = []
try:
    while len(held) < 100_000:
        held.append(Inotify())
except OSError as error:
    assert error.errno == errno.EMFILE
watcher = Watcher(Path("w"), skip=lambda folders: set())
print(watcher.failed, watcher.take().scan)
watcher.close()
"""


def test_instances_that_the_kernel_refuses_are_a_failure(as_nobody: Nobody) -> None:
    done = as_nobody.run(python_command(NO_INSTANCES))
    assert (done.stderr, done.stdout) == ("", "no inotify instance: Too many open files True\n")


def test_an_overflowing_queue_is_one_scan_and_the_watches_are_made_good(root: Path) -> None:
    """The watcher's thread is held where it asks about ignored folders."""
    held, go = threading.Event(), threading.Event()

    def skip(folders: list[bytes]) -> set[bytes]:
        if folders == [b"hold"]:
            held.set()
            go.wait(TIMEOUT_S)
        return set()

    (root / "old/gone").mkdir(parents=True)
    events_max = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with watching_of(root, skip) as watcher:
        (root / "hold").mkdir()
        assert held.wait(TIMEOUT_S)
        for number in range(events_max // 2 + 10):  # two events each, and no two alike in a row
            os.close(os.open(root / f"{number % 2}", os.O_CREAT | os.O_WRONLY))
            os.chmod(root / f"{number % 2}", 0o600)
        (root / "unseen/deep").mkdir(parents=True)
        shutil.rmtree(root / "old/gone")
        (root / "old").rename(root / "hold/old")
        assert watcher.take().why == "the watcher was busy for 2 s"
        go.set()
        assert watcher.take() == Hints(
            repository=True, scan=True, why="more events than the kernel's queue holds"
        )
        assert_every_folder_is_watched(root, watcher)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs", "fuse", "fuseblk", "virtiofs"])
def test_file_systems_that_others_write_to_are_not_watched(kind: str) -> None:
    assert watch_watcher._is_unseen(kind)


MOUNTS = """
import os, subprocess, sys
from pathlib import Path
from outlast.workspace.watch.watcher import Watcher
base = Path(sys.argv[1])

def mount(*words): subprocess.run(["mount", *map(str, words)], check=True)
def watch(root, *ignored): return Watcher(root, skip=lambda folders: set(ignored) & set(folders))

# The names of this mount namespace alone.
for name in ("lower/sub", "upper", "work", "merged", "root/real", "root/bound", "root/memory"):
    (base / name).mkdir(parents=True)
(base / "lower/sub/file").write_text("old")
mount("-t", "overlay", "-o", f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work", "none", base / "merged")
overlay = watch(base / "merged")
overlay.take()
with open(base / "merged/sub/file", "r+b") as file:
    file.write(b"new")
assert overlay.take().paths == {b"sub/file"}
(base / "merged/sub/new").write_text("")
assert overlay.take().paths == {b"sub/new"}
overlay.close()

mount("-t", "tmpfs", "none", base / "root/memory")
memory = watch(base / "root")
memory.take()
(base / "root/memory/file").write_text("")
assert memory.take().paths == {b"memory/file"}
subprocess.run(["umount", str(base / "root/memory")], check=True)
assert "was unmounted" in memory.take().why
memory.close()

mount("--bind", base / "root/real", base / "root/bound")
twice = watch(base / "root")
assert "bound is a mount of" in twice.failed, twice.failed
ignored = watch(base / "root", b"bound")
assert not ignored.failed
ignored.close()
"""


@pytest.mark.root
def test_mounts_inside_are_watched_where_that_works_and_refused_where_not(real_disk: Path) -> None:
    need_root()
    done = subprocess.run(
        [need_tool("unshare"), "--mount", *python_command(MOUNTS, str(real_disk))],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- its own life -------------------------------------------------------------------------------------------


def test_close_ends_the_thread_and_leaves_nothing_open(root: Path) -> None:
    descriptors, threads = len(os.listdir("/dev/fd")), threading.active_count()
    watcher = Watcher(root, skip=nothing)
    assert threading.active_count() == threads + 1
    watcher.close()
    watcher.close()
    assert (len(os.listdir("/dev/fd")), threading.active_count()) == (descriptors, threads)
    assert watcher.take() == Hints(repository=True, scan=True, why="the watcher is closed")


FORK = """
import os, sys
from pathlib import Path
from outlast.workspace.watch import inotify
from outlast.workspace.watch.watcher import Watcher
root = Path(sys.argv[1])
watcher = Watcher(root, skip=lambda folders: set())
watcher.take()
with watcher._lock:  # as if the thread had held it at the fork
    child = os.fork()
    if child == 0:
        assert watcher.take().scan and "forked" in watcher.take().why
        watcher.refresh()
        watcher.close()
        assert inotify.account().used == 0
        own = Watcher(root, skip=lambda folders: set())
        assert not own.failed and own.take().scan
        own.close()
        os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
(root / "file").write_text("")
assert watcher.take().paths == {b"file"}
watcher.close()
"""


def test_a_forked_child_is_told_to_scan_and_harms_nobody(root: Path) -> None:
    command = python_command(FORK, str(root))
    done = subprocess.run(
        [command[0], "-W", "ignore::DeprecationWarning", *command[1:]],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_take_opens_creates_and_leaves_nothing_in_the_workspace(root: Path) -> None:
    with watching_of(root) as watcher:
        before = os.stat(root)
        watcher.take()
        assert os.stat(root).st_mtime_ns == before.st_mtime_ns
        assert os.listdir(root) == []
