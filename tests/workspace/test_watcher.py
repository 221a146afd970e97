"""What a watcher hints at: every change before a take, whatever the tree does; and its own life."""

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
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from outlast.workspace.watch import watcher as watch_watcher
from outlast.workspace.watch.watcher import Hints, Watcher
from tests.conftest import Nobody
from tests.support import sweeps
from tests.support.environment import TIMEOUT_S
from tests.support.processes import python_command, wait_for
from tests.workspace.watch_folder import assert_every_folder_is_watched, nothing, watching_of

Snapshot = dict[bytes, tuple[object, ...]]


def named(*names: bytes) -> watch_watcher.Skip:
    return lambda folders: {folder for folder in folders if os.path.basename(folder) in names}


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


# -- random trees -----------------------------------------------------------------------------------------------------


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


@settings(max_examples=sweeps.examples(150))
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


# -- what is hinted ---------------------------------------------------------------------------------------------------


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


# -- its own life -----------------------------------------------------------------------------------------------------


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
