"""A restore saves first, deletes only what is saved, refuses rather than guesses, and ends right however often killed."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.errors import SaveFailed, WorkspaceMoved, WorkspaceRefused
from outlast.workspace.restore import restore
from tests.support import inprocess
from tests.support.environment import ROOT, TIMEOUT_S
from tests.support.sweeps import Sweep
from tests.workspace.workspace import Workspace, same, wrapper

POINTS_MAX = 60


def test_what_was_there_is_saved_before_and_can_be_had_back(place: Workspace) -> None:
    saved = place.save()
    place.sh("echo 1 >> a.txt; git add a.txt; echo 2 >> a.txt; echo n > new; rm c")
    picture = place.picture()
    before = place.restore(saved).before
    assert before is not None
    assert before.kind == "pre-restore"
    assert before.ref.startswith("refs/outlast/r1/pre-restore/")
    assert not (place.folder / "new").exists()
    place.restore(before)
    same(picture, place.picture())


def test_only_what_is_saved_is_deleted(place: Workspace) -> None:
    saved = place.save()
    place.sh(
        "mkdir -p build new/deep empty; echo o > build/o; echo i > new/deep/x.ign; echo k > new/deep/k; echo t > t; echo i > sub/y.ign; rm .gitignore"
    )
    place.restore(saved)
    names = {path.decode() for path in place.files()}
    assert {"build/o", "new/deep/x.ign", "sub/y.ign"} <= names
    assert not {"new/deep/k", "t"} & names
    assert (place.folder / "empty").is_dir()


def test_a_dry_run_changes_nothing_and_tells_all(place: Workspace) -> None:
    saved = place.save()
    place.sh("echo x > a.txt; echo n > new; rm c")
    picture, refs = place.picture(), place.sh("git for-each-ref")
    told = place.restore(saved, dry_run=True)
    assert (sorted(told.written), told.deleted) == (["a.txt", "c"], ("new",))
    same(picture, place.picture())
    assert place.sh("git for-each-ref") == refs


def test_a_branch_that_moved_on_is_moved_back_only_by_force_and_its_commits_are_kept(
    place: Workspace,
) -> None:
    saved, picture = place.save(), place.picture()
    place.sh("echo on > on; git add on; git commit -qm on")
    tip = place.sh("git rev-parse HEAD").decode().strip()
    moved = place.picture()
    with pytest.raises(WorkspaceMoved):
        place.restore(saved)
    same(moved, place.picture())
    place.restore(saved, force=True)
    same(picture, place.picture())
    place.sh("git reflog expire --expire=now --all; git gc -q --prune=now")
    assert place.vault_git("cat-file", "-t", tip) == b"commit\n"
    assert tip.encode() in place.vault_git("for-each-ref", "refs/outlast")
    next(place.state.glob("workspaces/*/memo")).unlink()
    place.anew()
    assert place.held(place.save()).previous, "the ref that keeps the branch is not taken for a save"


def test_a_branch_that_is_checked_out_elsewhere_is_left_alone(place: Workspace) -> None:
    saved = place.save()
    place.sh("git checkout -q other; git worktree add -q ../linked main")
    picture = place.picture()
    with pytest.raises(WorkspaceMoved, match="another worktree"):
        place.restore(saved, force=True)
    same(picture, place.picture())


def test_a_stale_lock_of_the_index_refuses_before_anything_is_touched(place: Workspace) -> None:
    saved = place.save()
    place.sh("echo x >> a.txt; touch .git/index.lock")
    files = place.files()
    with pytest.raises(WorkspaceRefused, match=r"index\.lock") as refused:
        place.restore(saved)
    assert place.files() == files
    assert refused.value.hint.endswith("; then do this again"), "a run that rewinds meets it too"
    (remove,) = re.findall("`(.*)`", refused.value.hint)
    place.sh(f"cd /; {remove}")
    place.restore(saved)


@pytest.mark.parametrize("path", ["c", "new"])
def test_a_file_that_changes_between_save_and_write_is_refused_by_name_and_untouched(
    path: str, place: Workspace
) -> None:
    place.write("zz", b"1")
    saved = place.save()
    place.write("a.txt", b"first")
    place.write("c", b"second")
    place.write("new", b"third")
    place.write("zz", b"2")

    def change(_: str) -> None:
        place.write(path, b"somebody else's")

    with (
        inprocess.armed(inprocess.at_point("save.ref_written", act=change)),
        pytest.raises(SaveFailed, match=f"^{path} is"),
    ):
        place.restore(saved)
    assert (place.folder / path).read_bytes() == b"somebody else's"
    assert (place.folder / "a.txt").read_bytes() == b"first", "refused before anything was touched"
    place.restore(saved)


@pytest.mark.parametrize(
    "between", ["echo f > d", "rm -rf d; ln -s nowhere d", "mkdir d; echo 3 > d/k", "true"]
)
@pytest.mark.parametrize("remembered", [True, False])
def test_files_below_a_link_to_itself_are_gone_and_come_back(
    remembered: bool, between: str, place: Workspace
) -> None:
    place.sh("mkdir d; echo 1 > d/f; echo 2 > d/g; git add d/f")
    saved, picture = place.save(), place.picture()
    place.sh(f"rm -rf d; {between}")
    place.save()
    if not remembered:
        place.anew()
    place.sh("rm -rf d; ln -s d d")
    looped = place.save()
    assert looped.left_out == ()
    place.restore(saved)
    same(picture, place.picture(), "after the restore")
    place.restore(looped)
    assert os.readlink(place.folder / "d") == "d"


@pytest.mark.parametrize("when", ["before", "save.ref_written", "restore.deleted", "restore.written"])
def test_a_link_in_the_place_of_a_folder_leads_nobody_outside(
    when: str, place: Workspace, tmp_path: Path
) -> None:
    place.sh("mkdir -p d/e; echo 1 > d/e/f; echo 2 > d/g; git init -q d/nest; echo n > d/nest/n")
    saved = place.save()
    outside = tmp_path / "outside"
    for name in ("e/f", "e/h", "g", "nest/n"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_bytes(b"outside")
    shutil.copy(place.folder / "d/g", outside / "g")
    there = sorted((str(path), path.read_bytes() if path.is_file() else b"") for path in outside.rglob("*"))
    place.sh("echo x > d/e/f; echo y > d/e/h; echo z > a1; rm a.txt; rm d/g")

    def swap(_: str) -> None:
        if not (place.folder / "d").is_symlink():
            shutil.move(place.folder / "d", tmp_path / "moved")
            (place.folder / "d").symlink_to(outside)

    if when == "before":
        swap("")
        place.restore(saved)
        assert not (place.folder / "d").is_symlink()
        assert (place.folder / "d/e/f").read_bytes() == b"1\n"
    else:
        with inprocess.armed(inprocess.at_point(when, act=swap)), contextlib.suppress(SaveFailed):
            place.restore(saved)
    assert (
        sorted((str(path), path.read_bytes() if path.is_file() else b"") for path in outside.rglob("*"))
        == there
    )


def test_an_ignored_link_in_the_way_is_saved_and_replaced(place: Workspace, tmp_path: Path) -> None:
    place.write("d/f", b"1")
    saved = place.save()
    (tmp_path / "outside").mkdir()
    place.sh("rm -r d; ln -s ../outside d; echo /d >> .git/info/exclude")
    before = place.restore(saved).before
    assert before is not None
    assert place.content(before, "d") == b"../outside"
    assert (place.folder / "d/f").read_bytes() == b"1"
    assert list((tmp_path / "outside").iterdir()) == []


def test_an_ignored_folder_in_the_way_is_refused_also_when_it_is_only_asked_what_would_be_done(
    place: Workspace,
) -> None:
    place.write("d", b"1")
    saved = place.save()
    place.sh("rm d; mkdir d; echo x > d/x; echo /d >> .git/info/exclude; echo more >> a.txt")
    for dry_run in (True, False):
        with pytest.raises(SaveFailed, match=r"^d is in the way"):
            place.restore(saved, dry_run=dry_run)
    assert (place.folder / "d/x").read_bytes() == b"x\n"
    assert (place.folder / "a.txt").read_bytes().endswith(b"more\n"), "refused before anything was touched"


def test_a_restore_never_cleans_resets_or_stashes(
    place: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = place.save()
    place.sh("echo x >> a.txt; git add a.txt; git checkout -q other; echo n > n; rm -r sub")
    wrapper(tmp_path, monkeypatch, f'printf "%s " "$@" >> {tmp_path}/log; echo >> {tmp_path}/log')
    place.restore(saved)
    restore.materialise(place.saver, place.held(saved), tmp_path / "to")
    monkeypatch.undo()
    words = set((tmp_path / "log").read_text().split())
    assert words & {"diff-files", "ls-files"}
    assert not words & {"clean", "reset", "stash", "checkout", "restore", "switch", "read-tree", "rm", "gc", "prune", "push", "fetch"} - {"read-tree"}  # fmt: skip


def test_a_folder_that_was_removed_is_restored_to_again_and_what_was_committed_there_is_kept(
    place: Workspace, tmp_path: Path
) -> None:
    saved, to = place.save(), tmp_path / "to"
    restore.materialise(place.saver, place.held(saved), to)
    place.sh(
        f"git -C {to} commit -q --allow-empty -m there; git -C {to} rev-parse HEAD > {tmp_path}/oid; rm -r {to}"
    )
    restore.materialise(place.saver, place.held(saved), to)
    assert (to / "a.txt").read_bytes() == (place.folder / "a.txt").read_bytes()
    committed = (tmp_path / "oid").read_text().strip()
    assert committed.encode() in place.vault_git("for-each-ref", "--format=%(objectname)", "refs/outlast")


# -- killed while restoring --------------------------------------------------------------------------------------------

RESTORING = """
import os, signal, sys
from pathlib import Path
from outlast import faults
from outlast.workspace.restore import restore as restoring
from outlast.workspace import saves
from outlast.store.local import Local
from outlast.workspace.capture.saver import Saver
from outlast.workspace.types import Purpose
nth, how = int(sys.argv[2]), sys.argv[3]
def act(name):
    print(name, flush=True)
    if how == "interrupt":
        raise KeyboardInterrupt
    os.kill(os.getpid(), signal.SIGKILL)
saver = Saver(Path("w"), Local(Path("state").absolute()))
held = saves.read(saver.reader(), sys.argv[1], saver.repo().algo)
met = 0
def hook(name):
    global met
    if name.startswith("restore."):
        met += 1
        if met == nth:
            act(name)
faults.arm(hook)
purpose = Purpose(kind="pre-restore", run="r1")
restoring.restore(saver, held, purpose, restoring.Options(force=True, with_secrets=True))
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["kill", "interrupt"])
def test_killed_at_any_point_of_a_restore_the_next_one_ends_right(
    how: str, place: Workspace, tmp_path: Path, sweep: Sweep
) -> None:
    place.sh(
        "echo 1 >> a.txt; git add a.txt; echo 2 >> a.txt; echo u > u; git init -q nest; echo n > nest/n; echo s > .env; rm c"
    )
    picture = place.picture()
    saved = place.save()
    met = set()
    for nth in sweep:
        place.sh(
            "git commit -qm over; git checkout -qf other; echo w > a.txt; rm -rf u nest .env; mkdir u; echo x > u/x; echo y > y; git add y"
        )
        wrecked = place.files()
        place.close()
        done = subprocess.run(
            [sys.executable, "-c", RESTORING, saved.commit, str(nth), how], cwd=tmp_path, capture_output=True,
            timeout=TIMEOUT_S, check=False, env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
        met.add(done.stdout.strip())
        died = done.returncode != 0
        if died:
            assert done.returncode in (-signal.SIGKILL, 1, -signal.SIGINT), done.stderr
            newest = _newest_before(place)
            assert {path.encode() for path in ("a.txt", "y", "u/x")} <= set(wrecked)
            assert place.content(newest, "y") == b"y\n", "what was there is saved before anything is touched"
            place.anew()
            place.restore(saved, force=True, with_secrets=True)
        same(picture, place.picture(), f"{how} at {done.stdout!r}, the {nth}th")
        assert not (place.folder / ".git/index.lock").exists()
        assert not list(place.folder.rglob(".outlast-*"))
        sweep.met(died)
    if sweep.whole:
        assert {b"restore.deleted", b"restore.written", b"restore.head", b"restore.index"} <= met


def _newest_before(place: Workspace) -> str:
    refs = place.vault_git(
        "for-each-ref",
        "--sort=-committerdate",
        "--format=%(refname) %(objectname)",
        "refs/outlast/r1/pre-restore",
    )
    tips = [line.split()[1].decode() for line in refs.splitlines()]
    held = [place.held(tip) for tip in tips]
    return max(held, key=lambda one: one.meta.number).commit
