"""Saves lie in a vault outside of the user's repository: whole in itself, private, and found again."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from outlast.errors import SaveFailed, UsageError
from outlast.operations.gc import vaults
from outlast.store.local import Local
from outlast.workspace import saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.compact import prune, repack
from outlast.workspace.compact.repack import consolidate
from outlast.workspace.git import packs, rooms
from outlast.workspace.git.packs import read_pack_index
from outlast.workspace.restore import recreate, restore
from outlast.workspace.types import Save
from outlast.workspace.vault import bring_in, identity
from tests.support import environment
from tests.workspace.workspace import BASE, RUN, Workspace, placed, same

DIRTY = "echo 1 >> a.txt; git add a.txt; echo 2 >> a.txt; echo n > new; rm sub/b.txt"
GONE = {
    "rm -rf .git": "rm -rf .git",
    "and git init": "rm -rf .git; git init -q -b main",
    "gc after a rebase and a deleted branch": """
        git checkout -q --orphan other2; git rm -rqf --cached .; git clean -qfdx; echo z > z; git add z; git commit -qm z
        git branch -D main other; git reflog expire --expire=now --all; git gc -q --prune=now""",
    "all objects removed": "rm -rf .git/objects/*",
}


def vault(place: Workspace) -> Path:
    return place.saver.repo().vault


def all_there(place: Workspace, save: Save) -> None:
    """Git finds nothing missing of a save in the vault alone."""
    for commit in (save.commit, f"{save.commit}^2", f"{save.commit}^2^2"):
        place.vault_git("rev-list", "--objects", "--quiet", commit)
    place.fsck()


# -- whole in itself -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
@pytest.mark.parametrize("how", GONE)
def test_whatever_becomes_of_the_repository_every_save_is_whole(
    how: str, packed: bool, tmp_path: Path
) -> None:
    with placed(tmp_path, BASE + ("git gc -q\n" if packed else "") + DIRTY) as place:
        made = [(place.save("beat"), place.files())]
        for number in range(3):
            place.sh(
                f"echo {number} > c; git commit -qam {number}; echo s{number} > s; git add s; echo u{number} > u"
            )
            made.append((place.save("beat"), place.files()))
        place.sh(GONE[how])
        place.anew()
        chain = [held.commit for held in saves.chain(place.saver.repo(), place.saver.vault_reader(), "r1")]
        assert chain == [save.commit for save, _ in reversed(made)]
        for save, files in made:
            all_there(place, save)
            for path, (_, _, data) in files.items():
                if b"link" not in path:
                    assert place.content(save, os.fsdecode(path)) == data


def test_a_pack_is_linked_and_takes_no_room(place: Workspace) -> None:
    place.sh("git gc -q")
    place.save()
    (theirs,) = (place.folder / ".git/objects/pack").glob("*.pack")
    linked = place.saver.repo().packs / theirs.name
    assert linked.stat().st_ino == theirs.stat().st_ino
    assert not linked.with_suffix(".keep").exists()


def test_where_packs_cannot_be_linked_what_is_needed_is_copied(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        environment.skip_or_fail("needs a second file system")
    state = other / f"outlast-test-{os.getpid()}"
    place = Workspace(tmp_path / "w", state)
    try:
        place.sh(
            BASE
            + "git checkout -q other; echo big > big; git add big; git commit -qm big; git checkout -q main; git gc -q\n"
            + DIRTY
        )
        first = place.save("beat")
        place.sh("echo later > later; git add -A; git commit -qm later; git repack -adq")
        second = place.save("beat")
        held = place.git_in(vault(place), "cat-file", "-e", "HEAD:big")
        shutil.rmtree(place.folder / ".git")
        place.anew()
        for save in (first, second):
            all_there(place, save)
        assert held.returncode, "a branch that no save needs is not copied"
        place.restore(second, force=True)
        assert b"later" in place.sh("git log --format=%s")
    finally:
        place.close()
        shutil.rmtree(state, ignore_errors=True)


ODD = {
    "a shallow clone": "git clone -q --depth 1 file://$PWD ../s; rm -rf .git; mv ../s/.git .git",
    "alternates": "git clone -q --shared . ../s; mv .git ../real; mv ../s/.git .git; echo $(realpath ../real)/objects > .git/objects/info/alternates",
    "packed alternates": "git gc -q; git clone -q --shared . ../s; mv .git ../real; mv ../s/.git .git; echo $(realpath ../real)/objects > .git/objects/info/alternates",
    "a partial clone": "git config uploadpack.allowFilter true; git clone -q --filter=blob:none file://$PWD ../s; rm -rf .git; mv ../s/.git .git; git reset -q",
    "replaced objects": "git replace HEAD $(git commit-tree -m r HEAD^{tree})",
    "a damaged loose object": "o=$(git hash-object -w --stdin <<< lost); chmod u+w .git/objects/${o:0:2}/${o:2}; : > .git/objects/${o:0:2}/${o:2}",
    "many loose objects": "mkdir many; for i in $(seq 400); do echo $i > many/$i; done; git add many",
    "many loose objects and a damaged one": "mkdir many; for i in $(seq 400); do echo $i > many/$i; done; git add many; o=$(git hash-object -w --stdin <<< lost); chmod u+w .git/objects/${o:0:2}/${o:2}; head -c 9 /dev/zero > .git/objects/${o:0:2}/${o:2}",
    "a big loose object": "head -c 9000000 /dev/urandom > big; git add big",
    "a loose object of big content": "head -c 9000000 /dev/zero > big; git add big",
    "big loose objects and a damaged one": "head -c 9000000 /dev/urandom > big; git add big; head -c 9000000 /dev/urandom > lost; o=$(git hash-object -w lost); rm lost; o=.git/objects/${o:0:2}/${o:2}; chmod u+w $o; truncate -s 8900000 $o",
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_the_vault_is_whole_of(name: str, place: Workspace) -> None:
    place.sh(ODD[name] + "\n" + DIRTY)
    files = place.files()
    save = place.save()
    shutil.rmtree(place.folder / ".git")
    shutil.rmtree(place.folder.parent / "real", ignore_errors=True)
    place.anew()
    place.fsck()
    place.restore(save, force=True)
    assert place.files() == files
    place.sh("git log --oneline; git status")


def test_many_loose_objects_come_into_the_pack_of_the_first_save(place: Workspace) -> None:
    place.sh("mkdir many; for i in $(seq 400); do echo $i > many/$i; done; git add many; git commit -qm many")
    place.save("beat")
    (ours,) = place.saver.repo().packs.glob("*.idx")
    assert set(place.sh("git rev-list --objects --all --no-object-names").decode().split()) < set(
        read_pack_index(ours)
    )


def test_a_save_names_what_a_partial_clone_lacks(place: Workspace) -> None:
    old = place.sh("git rev-parse HEAD:c").decode().strip()
    place.sh("echo other > c; git commit -qam three")
    assert not place.save().warning
    place.close()
    shutil.rmtree(place.state)
    place.sh(ODD["a partial clone"])
    place.anew()
    save = place.save("beat")
    assert f"lack 1 object of its history ({old[:12]})" in save.warning
    assert place.held(save).meta.warning == save.warning
    place.write("c", b"more\n")
    assert not place.save("beat").warning


def test_what_is_brought_in_is_not_looked_at_again(place: Workspace) -> None:
    place.save("beat")
    first = bring_in.load(vault(place))
    assert first.seen
    packs = len(list(place.saver.repo().packs.glob("*.pack")))
    place.write("a.txt", b"changed\n")
    place.save("beat")
    assert bring_in.load(vault(place)) == first
    assert len(list(place.saver.repo().packs.glob("*.pack"))) == packs + 1


def test_a_vault_that_is_gone_is_said_and_nobody_goes_on_as_if_it_were_there(place: Workspace) -> None:
    place.save("beat")
    shutil.rmtree(vault(place))
    for _ in range(2):
        with pytest.raises(SaveFailed, match="is gone, and all its saves with it"):
            place.save("beat")
    place.anew()
    assert not place.held(place.save("beat")).previous


def test_what_the_user_repacked_takes_no_room_twice(place: Workspace) -> None:
    for number in range(4):
        place.write(f"f{number}", os.urandom(100_000))
        place.sh(f"git add -A; git commit -qm {number}; git gc -q --prune=now")
        place.save("beat")
    consolidate(place.saver.repo(), grace_s=0.0)
    brought = repack.brought_packs(place.saver.repo().packs)
    assert [told.st_nlink for told in brought.values()] == [2]
    place.fsck()


def test_a_pack_that_another_is_about_to_publish_is_not_taken_for_dead(place: Workspace) -> None:
    """Two worktrees share a vault: one consolidates, or begins a save, while the other brings something in."""
    place.save("beat")
    there = place.saver.repo()
    with rooms.room(there.vault) as room:
        half = there.packs / f"pack-{'0' * 40}"
        for suffix, data in ((".keep", packs.CONSOLIDATED), (".pack", b"PACK")):
            half.with_suffix(suffix).write_bytes(data)
        consolidate(there)
        packs.sweep(there.packs)
        assert room.is_dir()
        assert half.with_suffix(".pack").exists()
    packs.sweep(there.packs)
    assert not half.with_suffix(".pack").exists()
    assert not half.with_suffix(".keep").exists()


# -- whose it is -----------------------------------------------------------------------------------------------------------


def test_a_repository_that_moved_finds_its_vault_and_a_copy_gets_its_own(
    place: Workspace, tmp_path: Path
) -> None:
    place.save("beat")
    first = vault(place)
    shutil.copytree(place.folder, tmp_path / "copy", symlinks=True)
    place.folder.rename(tmp_path / "moved")
    moved = Workspace(tmp_path / "moved", tmp_path / "state")
    copied = Workspace(tmp_path / "copy", tmp_path / "state")
    assert vault(moved) == first
    assert vault(copied) != first
    assert moved.held(moved.save("beat")).previous
    for each in (moved, copied):
        each.close()


def move_to_other_disk(place: Workspace, to: Path) -> Workspace:
    """As `mv` does it to another file system: every file is another one."""
    place.close()
    shutil.copytree(place.folder, to, symlinks=True)
    shutil.rmtree(place.folder)
    return Workspace(to, place.state)


def test_a_repository_that_moved_to_another_file_system_finds_its_vault(
    place: Workspace, tmp_path: Path
) -> None:
    place.sh("git worktree add -q ../linked other")
    linked = Workspace(tmp_path / "linked", place.state)
    linked.save("beat", run="r2")
    save = place.save("beat")
    first = vault(place)
    moved = move_to_other_disk(place, tmp_path / "moved")
    assert vault(moved) == first
    assert moved.held(moved.save("beat")).previous == save.commit
    moved.sh("git worktree repair ../linked")
    linked.anew()
    assert vault(linked) == first
    moved.close()
    linked.close()


def test_a_vault_that_another_may_claim_is_not_taken_by_a_clone(place: Workspace, tmp_path: Path) -> None:
    place.save("beat")
    place.sh("git clone -q . ../second; git clone -q . ../third; git clone -q . ../fourth")
    second = Workspace(tmp_path / "second", place.state)
    second.save("beat")
    first, theirs = vault(place), vault(second)
    assert first != theirs
    shutil.rmtree(place.folder / ".git")
    third = Workspace(tmp_path / "third", place.state)
    assert vault(third) not in (first, theirs), "the folder whose .git is gone may get it back"
    third.close()
    for each in (place, second, third):
        each.close()
        shutil.rmtree(each.folder)
    fourth = Workspace(tmp_path / "fourth", place.state)
    assert vault(fourth) not in (first, theirs), "it could be any of them"
    fourth.close()


def test_a_repository_made_anew_in_its_place_keeps_its_vault_unless_it_names_objects_otherwise(
    place: Workspace,
) -> None:
    place.save("beat")
    first = vault(place)
    place.sh("rm -rf .git; git init -q -b main; git add -A; git commit -qm again")
    assert place.held(place.save("beat")).previous
    assert vault(place) == first
    place.sh("rm -rf .git; git init -q --object-format=sha256; git add -A; git commit -qm again")
    place.save("beat")
    assert vault(place) != first


def test_worktrees_share_a_vault_and_a_folder_keeps_its_own_when_it_becomes_a_repository(
    tmp_path: Path,
) -> None:
    with placed(tmp_path, "echo x > x") as place:
        plain = place.save("beat")
        first = vault(place)
        place.sh("git init -q -b main; git add -A; git commit -qm x; git worktree add -q ../linked")
        linked = Workspace(tmp_path / "linked", tmp_path / "state")
        assert vault(place) == vault(linked) == first
        assert place.held(place.save("beat")).previous == plain.commit
        place.restore(plain)
        assert place.sh("git log --format=%s") == b"x\n"
        linked.close()


def test_a_moment_in_which_git_does_not_know_the_repository_hides_no_save(place: Workspace) -> None:
    made = [place.save("beat")]
    for script in (
        "git config core.bare true",
        "git config core.bare false",
        "mv .git/HEAD .git/H",
        "mv .git/H .git/HEAD",
    ):
        place.sh(script)
        place.write("a.txt", script.encode())
        made.append(place.save("beat"))
    chain = [held.commit for held in saves.chain(place.saver.repo(), place.saver.reader(), "r1")]
    assert chain == [save.commit for save in reversed(made)]
    place.restore(made[1], force=True)
    assert (place.folder / "a.txt").read_bytes() == b"git config core.bare true"


# -- private ------------------------------------------------------------------------------------------------------------------


def test_another_user_reads_nothing(place: Workspace) -> None:
    environment.need_root()
    place.sh("umask 022; git gc -q; echo secret words > diary.txt; chmod 600 diary.txt")
    place.folder.parent.chmod(0o755)
    place.save()
    for path in (vault(place), vault(place).parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", f"--git-dir={vault(place)}", "log", "--all"],
        user=environment.NOBODY,
        capture_output=True,
    )
    assert done.returncode
    assert b"outlast" not in done.stdout


def test_a_mirror_gets_none_of_it(place: Workspace, tmp_path: Path) -> None:
    place.sh(DIRTY + "\ngit init -q --bare ../mirror.git; git remote add m ../mirror.git")
    place.save()
    place.sh("git push -q --mirror m")
    listed = place.sh("git --git-dir=../mirror.git for-each-ref --format='%(refname)'").split()
    assert listed == [b"refs/heads/main", b"refs/heads/other"]
    assert place.sh("git log --all --oneline").count(b"\n") == 2


# -- brought back -----------------------------------------------------------------------------------------------------------------


def test_with_the_repository_gone_a_restore_brings_it_back(place: Workspace) -> None:
    place.sh(
        """git remote add origin https://user:token@example.org/r.git; git config branch.main.remote origin; git config alias.x '!touch ran'
        git config filter.f.smudge 'touch ran'; git config core.hooksPath /tmp/h; git config user.name "a \\"b\\" \\\\ c"; git tag v1; echo '*.x' >> .git/info/exclude
        printf '#!/bin/sh\\ntouch ran\\n' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout\n"""
        + DIRTY
    )
    before, refs = place.picture(), place.sh("git for-each-ref")
    name = place.sh("git config user.name")
    save = place.save()
    for script in ("rm -rf .git", "rm -rf .git a.txt sub; echo other > a.txt", "find . -mindepth 1 -delete"):
        place.sh(script)
        place.restore(save)
        same(before, place.picture(), script)
        assert place.sh("git for-each-ref") == refs
        assert place.sh("git config user.name") == name
        assert place.sh("git config remote.origin.url") == b"https://example.org/r.git\n"
        for key in ("alias.x", "filter.f.smudge", "core.hooksPath"):
            assert place.sh(f"git config {key}", ok=False) == b""
        assert not (place.folder / ".git/hooks").exists()
        place.sh("git fsck --full --strict")
        place.anew()


def test_a_killed_return_of_a_repository_ends_right(place: Workspace) -> None:
    place.sh(DIRTY)
    before, save = place.picture(), place.save()
    shutil.rmtree(place.folder / ".git")
    (place.folder / ".git").mkdir()
    (place.folder / ".git" / "outlast-restoring").write_bytes(b"outlast restores\n")
    place.restore(save)
    same(before, place.picture())


# -- saves of before ----------------------------------------------------------------------------------------------------------------


def as_before(place: Workspace) -> None:
    """Put the saves where they were before there were vaults: into the user's repository."""
    there = vault(place)
    place.sh(f"git fetch -q {there} 'refs/outlast/*:refs/outlast/*'")
    place.close()
    shutil.rmtree(place.state / "vaults")
    place.anew()


def test_saves_of_before_are_read_and_gone_on_from(place: Workspace) -> None:
    place.sh(DIRTY)
    before, first = place.picture(), place.save("beat")
    as_before(place)
    place.empty()
    place.restore(first)
    same(before, place.picture())
    place.write("a.txt", b"more\n")
    place.save("beat")
    chain = [held.commit for held in saves.chain(place.saver.repo(), place.saver.reader(), "r1")]
    assert chain[-1] == first.commit
    shutil.rmtree(place.folder / ".git")
    place.anew()
    all_there(place, first)


def test_who_saves_at_once_in_two_worktrees_gets_one_vault(place: Workspace, tmp_path: Path) -> None:
    place.sh("git worktree add -q ../linked other")
    savers = [Saver(folder, Local(tmp_path / "state")) for folder in (place.folder, tmp_path / "linked")]
    vaults = {saver.repo().vault for saver in savers}
    assert len(vaults) == 1
    assert len(list(identity.all_vaults(tmp_path / "state/vaults"))) == 1
    for saver in savers:
        saver.close()


def test_saves_of_before_are_moved_and_the_repository_keeps_what_it_needs(place: Workspace) -> None:
    place.sh(DIRTY)
    first = place.save("beat")
    as_before(place)
    theirs = place.sh("git rev-list --objects --branches")
    place.saver.repo()
    (moved,) = vaults.move_saves(Local(place.state), {RUN})
    assert (moved.refs, moved.failed) == (1, "")
    assert place.sh("git for-each-ref refs/outlast") == b""
    assert place.sh("git rev-list --objects --all") == theirs
    place.sh("git fsck --full --strict; git gc -q --prune=now")
    assert vaults.move_saves(Local(place.state), {RUN}) == ()
    all_there(place, first)


def test_saves_of_before_of_another_stores_runs_stay_for_its_vault(place: Workspace, tmp_path: Path) -> None:
    ours = place.save("beat")
    place.write("new", b"theirs\n")
    theirs = place.save("beat", run="r2")
    as_before(place)
    place.saver.repo()
    for _ in range(2):
        (moved,) = vaults.move_saves(Local(place.state), {RUN})
        assert moved.left == 1
    assert place.sh("git for-each-ref --format='%(refname)' refs/outlast") == b"refs/outlast/r2/beat\n"
    place.sh("git gc -q --prune=now")
    other = Workspace(place.folder, tmp_path / "other")
    assert [held.commit for held in saves.chain(other.saver.repo(), other.saver.reader(), "r2")] == [
        theirs.commit
    ]
    all_there(place, ours)
    all_there(other, theirs)
    other.close()


def test_two_stores_have_two_vaults_and_neither_takes_anything_from_the_other(
    place: Workspace, tmp_path: Path
) -> None:
    """Both have links to the same packs: no vault may think that it alone needs one, nor remove what the other has."""
    place.sh("git gc -q")
    other = Workspace(place.folder, tmp_path / "other")
    made = []
    for number in range(3):
        for each, run in ((place, RUN), (other, "r2")):
            each.write("c", os.urandom(50_000))
            each.sh(f"git commit -qam {number}; git gc -q")
            made.append((each, each.save("beat", run=run), each.picture()))
    assert vault(place) != vault(other)
    place.sh("rm -rf .git")
    for each in (place, other):
        each.anew()
        each.save("beat", run="last")
        consolidate(each.saver.repo(), grace_s=0.0)
        prune.rewrite_packs(each.saver.repo(), young_s=0.0)
    for each, save, _ in made:
        all_there(each, save)
    for each, save, picture in made[-2:]:
        place.sh("rm -rf .git")
        each.anew()
        each.restore(save, force=True)
        same(picture, each.picture())
    place.close()
    shutil.rmtree(place.state)
    all_there(other, made[-1][1])
    other.close()


def test_a_vault_whose_repository_is_gone_is_listed_restored_or_removed(
    place: Workspace, tmp_path: Path
) -> None:
    place.sh(DIRTY)
    before, save = place.files(), place.save("beat")
    local, shown = Local(place.state), vault(place)
    assert [each.gone for each in vaults.listed(local)] == [False]
    with pytest.raises(UsageError, match="is still there"):
        vaults.remove(local, shown.stem)
    place.close()
    shutil.rmtree(place.folder)
    assert [each.gone for each in vaults.listed(local)] == [True]
    saver = Saver(place.folder, local)
    saver.lend(recreate.find_lost(place.folder, saver.private, with_repository=True).place)
    held = saves.read(saver.reader(), save.commit, saver.repo().algo)
    restore.materialise(saver, held, tmp_path / "back")
    assert Workspace(tmp_path / "back", place.state).files() == before
    saver.close()
    assert vaults.remove(local, shown.stem, dry_run=True).gone
    vaults.remove(local, shown.stem)
    assert not shown.exists()
    assert vaults.listed(local) == ()
