"""The repositories of submodules, and of worktrees, come back with the repository around them."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.errors import WorkspaceRefused
from outlast.workspace.compact import chain, prune
from outlast.workspace.compact.repack import consolidate
from outlast.workspace.git import command
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.restore import restore
from tests.support import environment
from tests.workspace.test_vault import all_there
from tests.workspace.workspace import BASE, RUN, Workspace, placed, same

ADD = "git -c protocol.file.allow=always submodule --quiet add"
MODULE = f"""
git init -q -b main ../m; (cd ../m; for i in 1 2 3; do echo $i > m; echo $i > k; git add -A; git commit -qm m$i; done)
{ADD} "$(cd ../m; pwd)" sub/mod; git commit -qm module
"""
STATES = {
    "clean": "",
    "packed": "git -C sub/mod gc -q --prune=now",
    "dirty and staged": "cd sub/mod; echo s > s; git add s; echo d >> m; rm k; echo u > u",
    "committed, on a branch": "cd sub/mod; git checkout -q -b side; echo n > n; git add n; git commit -qm n; git tag t; echo x >> n",
    "in mid-merge": """cd sub/mod; git checkout -q -b side HEAD~1; echo x > m; git commit -qam x; git checkout -q main
        git merge side || true; test -f "$(git rev-parse --git-dir)/MERGE_HEAD" """,
    "unborn": "cd sub/mod; git checkout -q --orphan fresh; git rm -rqf --cached .; echo f > f; git add f",
    "shallow": f"""git submodule -q deinit -f sub/mod; git rm -qf sub/mod; rm -rf .git/modules; git commit -qm away
        {ADD} --depth 1 "file://$(cd ../m; pwd)" sub/mod; git commit -qm shallow""",
    "in a submodule": f"""git init -q -b main ../deep; (cd ../deep; echo deep > deep; git add deep; git commit -qm deep)
        cd sub/mod; {ADD} "$(cd ../../../deep; pwd)" in; git commit -qm deep; echo more >> in/deep; cd ../..; git add sub/mod""",
}  # fmt: skip
LOST = {
    "its .git": "rm -rf .git",
    "all": "find . -mindepth 1 -delete",
    "the submodule's repository": "rm -rf .git/modules",
    "the submodule's objects": "find .git/modules -path '*/objects/*' -type f -delete",
    "the origin too": "rm -rf .git ../m ../deep",
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    with placed(tmp_path, BASE + MODULE) as made:
        yield made


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("state", STATES)
def test_a_submodules_repository_comes_back(state: str, lost: str, place: Workspace) -> None:
    place.sh(STATES[state])
    before, save = place.picture(), place.save("beat")
    all_there(place, save)
    place.sh(LOST[lost])
    place.anew()
    report = place.restore(save)
    same(before, place.picture(), lost)
    assert not report.left_alone
    if (state, lost) == ("unborn", "the submodule's objects"):
        return  # of its branches, which are still there, nobody saved the objects
    place.sh(
        "git submodule foreach -q --recursive 'git fsck --full --strict --no-dangling && git log --oneline --all >&2'"
    )
    place.fsck()


def test_submodules_are_whole_in_a_vault_to_which_nothing_can_be_linked(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        environment.skip_or_fail("needs a second file system")
    place = Workspace(tmp_path / "w", other / f"outlast-test-{os.getpid()}")
    try:
        place.sh(BASE + MODULE + "git -C sub/mod gc -q; git gc -q; echo s > sub/mod/s; git -C sub/mod add s")
        before, save = place.picture(), place.save("beat")
        place.sh("find . -mindepth 1 -delete")
        place.anew()
        all_there(place, save)
        place.restore(save)
        same(before, place.picture())
    finally:
        place.close()
        shutil.rmtree(place.state, ignore_errors=True)


def test_no_hook_or_program_of_a_submodule_comes_back(place: Workspace) -> None:
    place.sh(
        "cd sub/mod; d=$(git rev-parse --git-dir); printf '#!/bin/sh\\ntouch ran\\n' > $d/hooks/post-checkout; chmod +x $d/hooks/*"
        "; git config core.fsmonitor 'touch ran'; git config user.name me; git config remote.origin.url https://u:token@example.org/m"
    )
    save = place.save()
    place.sh("rm -rf .git")
    place.anew()
    place.restore(save)
    where = place.folder / ".git/modules/sub/mod"
    assert not (where / "hooks").exists()
    assert place.sh("git -C sub/mod config user.name") == b"me\n"
    assert place.sh("git -C sub/mod config core.fsmonitor", ok=False) == b""
    assert b"token" not in (where / "config").read_bytes()


def test_a_submodule_that_did_not_change_costs_a_save_no_objects(place: Workspace) -> None:
    first = place.held(place.save("beat"))
    place.write("a.txt", b"changed\n")
    second = place.held(place.save("beat"))
    assert first.meta.modules
    assert second.meta.modules == first.meta.modules


def test_gc_and_thinning_keep_what_submodules_need(place: Workspace) -> None:
    place.sh("cd sub/mod; git checkout -q -b own; echo own > own; git add own; git commit -qm own")
    before, save = place.picture(), place.save("beat")
    place.sh("rm -rf .git")
    place.anew()
    place.save("beat")
    repo = place.saver.repo()
    prune.rewrite_packs(repo, young_s=0)
    consolidate(repo, grace_s=0.0)
    with ObjectReader(repo.vault, command.environment()) as reader:
        done = chain.thin(repo, reader, RUN, [place.held(save)], anchor=True)
    prune.rewrite_packs(repo, young_s=0)
    place.anew()
    all_there(place, save) if save.commit in done.rewritten.values() else place.fsck()
    place.restore(done.rewritten[save.commit], force=True)
    same(before, place.picture())


def test_a_submodule_that_a_save_cannot_have_whole_is_named(place: Workspace) -> None:
    place.sh(
        "cd sub/mod; echo s > s; git add s; o=$(git rev-parse :s); rm -f $(git rev-parse --git-dir)/objects/${o:0:2}/${o:2}"
    )
    save = place.save()
    assert ("sub/mod/.git/objects/", "objects that cannot be read") in {
        (left.path, left.why) for left in save.left_out
    }
    all_there(place, save)


def test_what_a_submodule_has_is_not_counted_as_bytes_of_saves(place: Workspace) -> None:
    place.sh("cd sub/mod; head -c 1000000 /dev/urandom > big; git add big; git commit -qm big; git gc -q")
    save = place.save("beat")
    assert prune.reached_bytes(place.saver.repo(), [save.commit]) < 100_000


def test_a_save_does_not_say_where_a_submodules_repository_goes(place: Workspace, tmp_path: Path) -> None:
    save = place.save("beat")
    place.sh("rm -rf .git/modules; mkdir ../elsewhere; ln -s ../../elsewhere .git/modules")
    assert place.restore(save).left_alone == ("sub/mod/.git",)
    assert list((tmp_path / "elsewhere").iterdir()) == []


# -- worktrees -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[tuple[Workspace, Workspace]]:
    """A repository and a linked worktree of it, both saved."""
    with placed(
        tmp_path, BASE + "git worktree add -q ../linked other; git worktree add -q ../third -b third"
    ) as main:
        main.sh("echo s > s; git add s; echo u > u")
        worktree = Workspace(tmp_path / "linked", tmp_path / "state")
        worktree.sh("echo l > l; git add l; git commit -qm l; echo m > m; git add m; echo x >> a.txt")
        yield main, worktree
        worktree.close()


LOST_LINKS = {
    "its .git file": "rm .git",
    "its entry": "rm -rf ../w/.git/worktrees/linked",
    "both": "rm -rf .git ../w/.git/worktrees/linked",
    "the repository": "rm -rf ../w/.git",
    "the folder and the repository": "rm -rf ../w/.git; find . -mindepth 1 -delete",
}


@pytest.mark.parametrize("lost", LOST_LINKS)
def test_a_worktree_is_tied_to_its_repository_again(lost: str, linked: tuple[Workspace, Workspace]) -> None:
    main, worktree = linked
    pictures = main.picture(), worktree.picture()
    of_main, save = main.save("beat", run="r2"), worktree.save("beat")
    vault = main.saver.repo().vault
    worktree.sh(LOST_LINKS[lost])
    worktree.anew()
    worktree.restore(save, force=True)
    same(pictures[1], worktree.picture())
    assert (worktree.folder / ".git").is_file()
    assert b"linked" in main.sh("git worktree list")
    main.anew()
    main.restore(of_main, force=True)
    same(pictures[0], main.picture())
    assert main.saver.repo().vault == worktree.saver.repo().vault == vault
    worktree.sh("git fsck --full --strict --no-dangling")


def test_the_repository_comes_back_first_and_then_its_worktree(linked: tuple[Workspace, Workspace]) -> None:
    main, worktree = linked
    pictures = main.picture(), worktree.picture()
    of_main, save = main.save("beat", run="r2"), worktree.save("beat")
    main.sh("rm -rf .git")
    for place, back, picture in ((main, of_main, pictures[0]), (worktree, save, pictures[1])):
        place.anew()
        place.restore(back, force=True)
        same(picture, place.picture())


def test_a_worktree_whose_repository_was_in_a_folder_that_is_gone_is_refused(
    linked: tuple[Workspace, Workspace], tmp_path: Path
) -> None:
    main, worktree = linked
    save = worktree.save("beat")
    shutil.rmtree(main.folder)
    worktree.anew()
    with pytest.raises(WorkspaceRefused, match="is gone"):
        worktree.restore(save)
    held = worktree.held(save)
    restore.materialise(worktree.saver, held, tmp_path / "back")
    assert Workspace(tmp_path / "back", worktree.state).files() == worktree.files()


# -- into a new folder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", ["rm -rf .git", "find . -mindepth 1 -delete"])
def test_a_new_folder_is_a_repository_also_when_that_of_the_save_is_gone(
    gone: str, place: Workspace, tmp_path: Path
) -> None:
    place.sh("echo s > s; git add s; echo u > u; git remote add o https://example.org/r")
    save = place.save("beat")
    restore.materialise(place.saver, place.held(save), tmp_path / "there")
    there = Workspace(tmp_path / "there", tmp_path / "other")
    before, refs = there.picture(), place.sh("git for-each-ref")
    place.sh(gone)
    place.anew()
    restore.materialise(place.saver, place.held(save), tmp_path / "back")
    back = Workspace(tmp_path / "back", tmp_path / "other")
    same(before, back.picture())
    assert back.sh("git for-each-ref") == refs
    assert back.sh("git config remote.o.url") == b"https://example.org/r\n"
    back.sh("git fsck --full --strict --no-dangling")
    for each in (there, back):
        each.close()
