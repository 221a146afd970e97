"""Permission bits come back exactly: of what a save looked at, however it looked, and however often a restore is killed."""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from outlast.workspace import saves
from outlast.workspace.capture import stat_cache
from outlast.workspace.capture.special import permissions
from outlast.workspace.restore import recreate, restore
from outlast.workspace.types import Meta, Purpose, Save
from tests.support import processes
from tests.support.environment import ROOT, TIMEOUT_S
from tests.support.sweeps import Sweep
from tests.workspace.test_restore import RESTORING
from tests.workspace.workspace import BASE, RUN, Workspace, placed

# Each with each shell, or each way to look for changes: a sample does some of both.
pytestmark = pytest.mark.sampled(0.25)

POINTS_MAX = 40
UNUSUAL = """
chmod 600 a.txt; chmod 400 c; chmod 700 run.sh; chmod 664 sub/b.txt; echo 1 > new; chmod 640 new
echo 2 > sub/tool; chmod 750 sub/tool; echo 3 > sub/usual; echo 4 > x.ign; git add -f x.ign; chmod 604 x.ign
"""
NOTED = {
    b"a.txt": 0o600, b"c": 0o400, b"run.sh": 0o700, b"sub/b.txt": 0o664, b"new": 0o640, b"sub/tool": 0o750, b"x.ign": 0o604,
}  # fmt: skip


@pytest.fixture(params=["sha1", "sha256"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    with masked(0o022), placed(tmp_path, f"export GIT_DEFAULT_HASH={request.param}\n{BASE}") as place:
        tick(place.folder)
        yield place


@pytest.fixture(params=["hinted", "scanning"])
def known(request: pytest.FixtureRequest, made: Workspace) -> Workspace:
    """A workspace of which a save is remembered, and whose next one is made from hints or from a look."""
    if request.param == "hinted":
        made.saver.watch()
    made.save("beat")
    assert made.save("beat").hinted is (request.param == "hinted")
    return made


def tick(folder: Path) -> None:
    """Wait for the next second: git compares whole ones, so a look misses a chmod in the second of the last change."""
    last_s = max(int(path.lstat().st_ctime) for path in folder.rglob("*"))
    processes.wait_for(lambda: time.time() >= last_s + 1, what="the next second")


@contextlib.contextmanager
def masked(umask: int) -> Iterator[None]:
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def bits(folder: Path) -> dict[bytes, int]:
    """The permission bits of every regular file."""
    names = [path for path in folder.rglob("*") if ".git" not in path.relative_to(folder).parts]
    told = {os.fsencode(path.relative_to(folder)): path.lstat().st_mode for path in names}
    return {path: mode & 0o777 for path, mode in told.items() if stat.S_ISREG(mode)}


def forget(place: Workspace) -> None:
    """As a save that was killed leaves it, or another boot: nothing is remembered."""
    for path in place.state.glob("workspaces/*/memo"):
        path.unlink()
    place.anew()


def noted(place: Workspace, save: Save | str) -> dict[bytes, int]:
    return permissions.recorded_bits(place.saver.reader(), place.held(save), place.saver.repo().algo)


def test_bits_come_back_with_files_that_were_deleted(known: Workspace) -> None:
    known.sh(UNUSUAL)
    saved, before = known.save("beat"), bits(known.folder)
    assert noted(known, saved) == NOTED
    known.empty()
    known.restore(saved)
    assert bits(known.folder) == before
    known.fsck()


def test_bits_come_back_to_files_that_were_changed_or_only_chmodded(known: Workspace) -> None:
    known.sh(UNUSUAL)
    saved, before = known.save("beat"), bits(known.folder)
    known.sh(
        "echo more >> a.txt; chmod 666 a.txt c new; chmod 755 run.sh; chmod 644 sub/b.txt; chmod 777 sub/tool"
    )
    wrecked = bits(known.folder)
    foreseen = known.restore(saved, dry_run=True)
    assert bits(known.folder) == wrecked
    told = known.restore(saved)
    assert bits(known.folder) == before
    assert (
        sorted(told.written)
        == sorted(foreseen.written)
        == ["a.txt", "c", "new", "run.sh", "sub/b.txt", "sub/tool"]
    )
    assert known.restore(saved).written == ()


def test_a_chmod_alone_makes_a_save_and_none_makes_none(known: Workspace) -> None:
    first = known.save("beat")
    known.sh("chmod 600 sub/deep/d")
    second = known.save("beat", if_changed=True)
    assert second.commit != first.commit
    assert second.hinted == first.hinted
    assert known.held(second).tree == known.held(first).tree
    assert known.save("beat").commit == second.commit
    known.sh("chmod 640 sub/deep/d")
    assert known.save_if_dirty() is not None, "no commit of the user's holds it"
    assert known.save_if_dirty() is None, "a save does"


def test_a_file_that_is_as_usual_again_is_so_again_after_each_restore(known: Workspace) -> None:
    known.sh("chmod 600 a.txt")
    private = known.save("beat")
    known.sh("chmod 644 a.txt")
    public = known.save("beat")
    for save, wanted in ((private, 0o600), (public, 0o644), (private, 0o600)):
        known.restore(save)
        assert bits(known.folder)[b"a.txt"] == wanted


STEPS = {
    "file to folder": "rm a.txt; mkdir a.txt; echo x > a.txt/x; chmod 600 a.txt/x",
    "folder to file": "rm -r a.txt; echo f > a.txt; chmod 640 a.txt",
    "file to link": "rm a.txt; ln -s c a.txt",
    "link to file": "rm a.txt; echo l > a.txt; chmod 660 a.txt",
    "folder gone": "rm -r sub",
    "folder back": "mkdir -p sub/deep; echo d > sub/deep/d; chmod 444 sub/deep/d",
    "renamed folder": "mv sub bus",
    "ignored from now on": "echo /new >> .git/info/exclude; echo /new >> .gitignore",
    "untracked": "echo 1 > plain; chmod 600 plain",
    "a secret by now": "printf -- '-----BEGIN PRIVATE KEY-----\\n' > plain",
    "a repository inside": "git init -q nest; echo n > nest/n; echo g > nest/g; chmod 600 nest/n nest/g",
    "no repository any more": "rm -rf nest/.git nest/g; chmod 640 nest/n; echo m > nest/m; chmod 400 nest/m",
}


def test_noted_is_what_is_saved_and_unusual_whatever_became_of_a_path(known: Workspace) -> None:
    known.sh(UNUSUAL)
    for name, script in STEPS.items():
        known.sh(script)
        saved = known.save("beat")
        there = bits(known.folder)
        listed = known.git_in(known.saver.repo().vault, "ls-tree", "-r", "-z", "--name-only", saved.commit)
        held = set(listed.stdout.split(b"\0"))
        told = noted(known, saved)
        assert told == {path: there[path] for path in told}, name
        unusual = {path for path, one in there.items() if one not in (0o644, 0o755)}
        assert unusual & held == set(told), name
        known.fsck()


def test_bits_come_back_in_a_new_folder_and_in_a_repository_inside(known: Workspace, tmp_path: Path) -> None:
    known.sh(UNUSUAL + "git init -q nest; echo n > nest/n; chmod 600 nest/n")
    saved, before = known.save("beat"), bits(known.folder)
    restore.materialise(known.saver, known.held(saved), tmp_path / "to")
    assert bits(tmp_path / "to") == before
    shutil.rmtree(known.folder / "nest")
    known.restore(saved)
    assert bits(known.folder) == before


def test_bits_come_back_with_a_workspace_that_is_gone(made: Workspace, tmp_path: Path) -> None:
    linked = Workspace(tmp_path / "linked", made.state)
    made.sh("git worktree add -q ../linked other")
    tick(linked.folder)
    try:
        linked.save("beat")
        linked.sh("chmod 600 a.txt; echo 1 > new; chmod 640 new")
        saved, before = linked.save("beat"), bits(linked.folder)
        shutil.rmtree(linked.folder)
        linked.anew()
        recreate.make_folder(linked.saver, saved.commit)
        linked.restore(saved, force=True)
        assert bits(linked.folder) == before
    finally:
        linked.close()


def test_bits_come_back_where_there_is_no_repository(tmp_path: Path) -> None:
    with masked(0o022), placed(tmp_path, "echo 1 > a; chmod 600 a; echo 2 > b") as place:
        saved = place.save("beat")
        assert noted(place, saved) == {b"a": 0o600}, "a first save reads everything here"
        place.empty()
        place.restore(saved)
        assert bits(place.folder) == {b"a": 0o600, b"b": 0o644}


def test_what_was_noted_outlives_all_that_is_remembered(made: Workspace) -> None:
    made.save("beat")
    made.sh("chmod 600 a.txt c; chmod 640 sub/b.txt")
    assert len(noted(made, made.save("beat"))) == 3
    made.sh("git add -A; chmod 400 c; rm sub/b.txt; git status")
    forget(made)
    assert noted(made, made.save("beat")) == {b"a.txt": 0o600, b"c": 0o400}


def test_files_come_back_no_wider_than_the_umask_of_either_time_allows(made: Workspace) -> None:
    with masked(0o077):
        made.sh("echo 1 > mine; echo 2 > tool; chmod u+x tool")
        saved = made.save("beat")
    assert b"mine" not in noted(made, saved)
    for umask, read in ((0o022, 0o600), (0o277, 0o400)):
        made.sh("rm -f mine tool")
        with masked(umask):
            made.restore(saved)
        assert bits(made.folder)[b"mine"] == read
    made.sh("echo 1 > yours; chmod 644 yours")
    forget(made)
    assert noted(made, made.save("beat"))[b"yours"] == 0o644, "by the umask that the notes began with"


def test_a_save_made_before_bits_were_noted_is_restored_as_it_was(made: Workspace) -> None:
    made.save("beat")
    made.sh("chmod 600 a.txt")
    held = made.held(made.save("beat"))
    data = msgspec.json.decode(msgspec.json.encode(held.meta))
    del data["umask"]
    entries = {name: entry for name, entry in held.entries.items() if name != b"modes"}
    meta = msgspec.json.decode(msgspec.json.encode(data), type=Meta)
    old = saves.SaveContents(held.commit, held.tree, held.index_tree, held.previous, meta, entries)
    made.sh("chmod 640 a.txt; rm c")
    purpose = Purpose(kind="pre-restore", run=RUN)
    with masked(0o027):
        restore.restore(made.saver, old, purpose, restore.Options())
    assert (bits(made.folder)[b"a.txt"], bits(made.folder)[b"c"]) == (0o640, 0o640)


def test_setgid_is_left_as_it_is(made: Workspace) -> None:
    made.save("beat")
    made.sh("chmod 600 a.txt")
    saved = made.save("beat")
    made.sh("chmod 2664 a.txt")
    made.restore(saved)
    assert stat.S_IMODE((made.folder / "a.txt").stat().st_mode) == 0o2600


def test_of_many_unusual_files_a_save_and_what_is_remembered_hold_no_list(made: Workspace) -> None:
    made.sh(
        "mkdir -p many/{0..9}; for i in {0..999}; do echo $i > many/$((i % 10))/$i; done; git add -A; git commit -qm many"
    )
    tick(made.folder)
    made.save("beat")
    made.sh("chmod -R go-r many")
    many = made.save("beat")
    assert len(noted(made, many)) == 1_000 + 11, "the files, and the folders they are in"
    meta = made.held(many).entries[b"meta.json"].oid
    assert len(made.saver.reader().read(meta)[1]) < 2_000
    made.saver.tend()
    made.sh("chmod 640 many/3/3")
    last = made.save("beat")
    assert noted(made, last) == noted(made, many) | {b"many/3/3": 0o640}
    said = made.git_in(
        made.saver.repo().vault, "diff", "--name-only", f"{many.commit}^2^2", f"{last.commit}^2^2"
    )
    assert said.stdout.split() == [b"meta.json", b"modes/many/3/3"]
    assert (
        stat_cache.load(next(made.state.glob("workspaces/*/memo"))).modes
        == made.held(last).entries[b"modes"].oid
    )


@pytest.mark.parametrize("how", ["kill", "interrupt"])
def test_killed_at_any_point_of_a_restore_no_file_is_wider_and_the_next_one_ends_right(
    how: str, made: Workspace, tmp_path: Path, sweep: Sweep
) -> None:
    made.save("beat")
    made.sh(UNUSUAL + "cp -p a.txt a2.txt")
    saved, before = made.save("beat"), bits(made.folder)
    contents = made.files()
    wrecks = ("rm a.txt new", "chmod 644 a2.txt c run.sh; chmod 600 sub/b.txt", "echo x >> sub/tool; chmod 777 sub/tool; echo y > y")  # fmt: skip
    met = []
    for nth in sweep:
        made.sh("; ".join(wrecks))
        made.close()
        done = subprocess.run(
            [sys.executable, "-c", RESTORING, saved.commit, str(nth), how], cwd=tmp_path, capture_output=True,
            timeout=TIMEOUT_S, check=False, env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
        met.append(done.stdout.strip())
        died = done.returncode != 0
        if died:
            assert done.returncode in (-signal.SIGKILL, 1, -signal.SIGINT), done.stderr
            now = bits(made.folder)
            assert {now.get(b"a.txt", 0o600), now.get(b"new", 0o640)} == {0o600, 0o640}, done.stdout
            made.anew()
            made.restore(saved)
        assert bits(made.folder) == before, f"{how} at {done.stdout!r}, the {nth}th"
        assert made.files() == contents
        sweep.met(died)
    assert not sweep.whole or met.count(b"restore.written") == 7, "three files written, four chmodded"


def test_a_tracked_key_that_was_private_before_the_first_save_stays_private(made: Workspace) -> None:
    made.sh("chmod 600 a.txt; git status; git update-index --refresh")
    tick(made.folder)
    saved = made.save()
    made.sh("rm a.txt")
    made.restore(saved)
    assert stat.S_IMODE((made.folder / "a.txt").stat().st_mode) == 0o600
