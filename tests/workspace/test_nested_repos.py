"""Repositories inside: what no save holds is not overwritten, nothing is written through a link, and nothing lost in silence."""

import os
from pathlib import Path

import pytest

from outlast.errors import SaveFailed
from outlast.workspace.capture.special import nested_repos
from outlast.workspace.git import packs
from tests.workspace.workspace import Workspace, same

NEST = "git init -q -b main in; cd in; echo n > n; git add n; git commit -qm n"
MODULE = (
    "git init -q -b main ../m; (cd ../m; echo m > m; git add m; git commit -qm m); "
    "git -c protocol.file.allow=always submodule --quiet add ../m mod; git commit -qm sub"
)

# Its repository is not in the git folder of the one around it, so the vault does not hold it.
ELSEWHERE = f"{MODULE}; mv .git/modules/mod ../elsewhere; echo gitdir: ../../elsewhere > mod/.git; git config --file ../elsewhere/config core.worktree ../w/mod"


def test_a_history_too_big_for_the_save_before_is_left_as_it_is_and_named(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.sh(NEST)
    saved = place.save()
    place.sh("cd in; echo two > n; git commit -qam two; echo three > s; git add s")
    size = sum(path.stat().st_size for path in (place.folder / "in/.git").rglob("*") if path.is_file())
    monkeypatch.setattr(nested_repos, "HISTORY_BYTES_MAX", size - 1)
    told = "cd in; git rev-parse HEAD; git reflog; git ls-files -s"
    before = place.sh(told)
    restored = place.restore(saved)
    assert place.sh(told) == before
    assert "in/.git/" in restored.left_alone
    assert (place.folder / "in/n").read_bytes() == b"n\n"


def test_a_git_file_that_changed_since_the_save_before_is_in_the_way(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.sh(NEST)
    saved = place.save()
    place.sh("cd in; echo two > n; git commit -qam two")
    head = place.sh("cd in; git rev-parse HEAD")
    _refuse_to_read(monkeypatch, b"in/.git/refs/heads/main")
    with pytest.raises(SaveFailed, match=r"in/\.git/refs/heads/main is in the way"):
        place.restore(saved)
    assert place.sh("cd in; git rev-parse HEAD") == head
    assert (place.folder / "in/n").read_bytes() == b"two\n", "refused before anything was touched"


def test_links_in_a_git_folder_stay_links(place: Workspace, tmp_path: Path) -> None:
    place.sh(NEST)
    place.sh(
        "mv in/.git/config ../config; ln -s ../../../config in/.git/config; ln -s nowhere in/.git/dangling"
    )
    saved = place.save()
    place.restore(saved)
    place.sh("rm in/.git/dangling; ln -sf ../../../other in/.git/config")
    place.restore(saved)
    assert os.readlink(place.folder / "in/.git/config") == "../../../config"
    assert os.readlink(place.folder / "in/.git/dangling") == "nowhere"
    assert not (tmp_path / "config").is_symlink()


def test_a_link_in_a_git_folder_leads_nobody_outside(place: Workspace, tmp_path: Path) -> None:
    place.sh(NEST)
    saved = place.save()
    outside = tmp_path / "outside"
    place.sh(
        "cd in; echo two > n; git commit -qam two; mv .git/refs ../../outside; ln -s ../../../outside .git/refs"
    )
    main = (outside / "heads/main").read_bytes()
    with pytest.raises(SaveFailed, match=r"in/\.git/refs is in the way"):
        place.restore(saved)
    assert (outside / "heads/main").read_bytes() == main
    assert (place.folder / "in/n").read_bytes() == b"two\n", "refused before anything was touched"


@pytest.mark.parametrize("kind", ["nested", "module"])
def test_what_is_tracked_inside_is_saved_whatever_the_rules_say(kind: str, place: Workspace) -> None:
    place.sh(NEST.replace(" in;", " mod;") if kind == "nested" else MODULE)
    place.sh(
        "cd mod; echo '*.ign' > .gitignore; echo 1 > t.ign; echo 1 > .env; git add -f .; git commit -qm tracked"
    )
    place.save()
    place.sh("cd mod; echo 2 > t.ign; echo 2 > .env; echo no > u.ign")
    saved = place.save()
    assert place.content(saved, "mod/t.ign") == b"2\n"
    assert place.content(saved, "mod/.env") == b"2\n"
    assert place.content(saved, "mod/u.ign") is None


def _refuse_to_read(monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    real = packs.PackWriter.add_file

    def add_file(
        self: packs.PackWriter, path: bytes, *, expect: os.stat_result, look: packs.Look | None = None
    ) -> str:
        if path.endswith(end):
            raise packs.Unreadable(path, PermissionError(13, "Permission denied"))
        return real(self, path, expect=expect, look=look)

    monkeypatch.setattr(packs.PackWriter, "add_file", add_file)


def test_a_file_of_a_git_folder_that_cannot_be_read_is_named(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.sh(NEST)
    _refuse_to_read(monkeypatch, b"/config")
    left = {item.path: item.why for item in place.save().left_out}
    assert "Permission denied" in left["in/.git/config"]


def test_a_git_folder_behind_a_link_is_named(place: Workspace) -> None:
    place.sh(NEST)
    place.sh("mv in/.git ../real; ln -s ../../real in/.git")
    saved = place.save()
    assert "in/.git/" in {item.path for item in saved.left_out}
    assert place.content(saved, "in/n") == b"n\n"
    place.restore(saved)
    assert (place.folder / "in/.git").is_symlink()


def test_a_secret_that_cannot_be_read_is_not_said_to_be_kept(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write(".env", b"first")
    place.write(".env.more", b"more")
    place.save()
    place.write(".env", b"second")
    _refuse_to_read(monkeypatch, b"/.env")
    saved = place.save()
    left = {item.path: item.why for item in saved.left_out}
    assert "Permission denied" in left[".env"]
    assert left[".env.more"] == "secret, kept apart"
    assert [kept.path for kept in place.held(saved).meta.secrets] == [".env.more"]


UNPUSHED = "cd mod; git checkout -q --detach; echo own > m; git commit -qam own; echo staged > s; git add s"
COLLECT = "cd mod; git checkout -qf main; git reflog expire --expire=now --expire-unreachable=now --all; git gc -q --prune=now"


def test_a_module_whose_objects_are_gone_keeps_its_head_and_is_named(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.sh(ELSEWHERE)
    place.sh(UNPUSHED)
    monkeypatch.setattr(nested_repos, "HISTORY_BYTES_MAX", 0)
    place.save()
    saved = place.save()
    assert "mod/.git/objects/" in {left.path for left in saved.left_out}
    place.sh(COLLECT)
    restored = place.restore(saved)
    assert "mod/.git/" in restored.left_alone
    assert (place.folder / "mod/m").read_bytes() == b"own\n"
    assert b"mod" in place.sh("git status --porcelain")


def test_what_a_module_did_not_push_survives_its_gc(place: Workspace) -> None:
    place.sh(MODULE)
    place.sh(UNPUSHED)
    saved, picture = place.save(), place.picture()
    again = place.save()
    assert place.held(saved).entries[b"inside"] == place.held(again).entries[b"inside"]
    place.sh(COLLECT)
    place.sh("rm -rf mod")
    place.restore(saved)
    same(picture, place.picture())
    place.sh("git -C mod fsck")


def test_a_pointer_to_a_git_folder_that_is_gone_is_not_written(place: Workspace) -> None:
    place.sh(ELSEWHERE)
    saved = place.save()
    place.sh("git submodule --quiet deinit -f mod; rm -rf ../elsewhere")
    restored = place.restore(saved)
    assert "mod/.git" in restored.left_alone
    assert not os.path.lexists(place.folder / "mod/.git")
    place.sh("git status")


@pytest.mark.parametrize("kind", ["in", "mod"])
def test_a_merge_begun_inside_after_the_save_is_gone_after_a_restore(kind: str, place: Workspace) -> None:
    place.sh(NEST if kind == "in" else MODULE)
    file = "n" if kind == "in" else "m"
    place.sh(
        f"cd {kind}; git checkout -q -b side; echo side > {file}; git commit -qam side; git checkout -q main; echo x > {file}; git commit -qam x"
    )
    saved, picture = place.save(), place.picture()
    place.sh(f"cd {kind}; git merge side || true")
    assert b"UU" in place.sh(f"cd {kind}; git status --porcelain")
    merging = place.picture()
    before = place.restore(saved).before
    same(picture, place.picture())
    assert b"MERGE_HEAD" not in place.sh(f'ls "$(git -C {kind} rev-parse --absolute-git-dir)"')
    assert before is not None
    place.restore(before)
    same(merging, place.picture())


def test_a_ref_that_came_after_it_was_packed_does_not_hide_what_the_save_has(place: Workspace) -> None:
    place.sh(NEST + "; git pack-refs --all")
    saved, picture = place.save(), place.picture()
    place.sh("cd in; echo two > n; git commit -qam two")
    place.restore(saved)
    same(picture, place.picture())


def test_a_branch_of_a_module_that_moved_on_stays_and_head_is_detached(place: Workspace) -> None:
    place.sh(MODULE)
    saved = place.save()
    head = place.sh("git -C mod rev-parse HEAD")
    place.sh("cd mod; echo on > m; git commit -qam on")
    tip, moved = place.sh("git -C mod rev-parse main"), place.picture()
    before = place.restore(saved).before
    assert place.sh("git -C mod rev-parse HEAD main") == head + tip
    assert place.sh("git -C mod status --porcelain") == b""
    assert before is not None
    place.restore(before)
    same(moved, place.picture())


def test_a_pipe_in_the_place_of_a_saved_file_is_in_the_way(place: Workspace) -> None:
    saved = place.save()
    place.sh("rm a.txt; mkfifo a.txt; echo x > c")
    with pytest.raises(SaveFailed, match=r"^a\.txt is in the way"):
        place.restore(saved)
    assert (place.folder / "c").read_bytes() == b"x\n", "refused before anything was touched"


def test_permissions_of_a_file_that_is_replaced_stay(place: Workspace) -> None:
    place.sh("chmod 600 a.txt; chmod 700 run.sh")
    saved = place.save()
    place.sh("echo x > a.txt; echo y > run.sh; chmod 600 run.sh")
    place.restore(saved)
    assert (place.folder / "a.txt").stat().st_mode & 0o777 == 0o600
    assert (place.folder / "run.sh").stat().st_mode & 0o777 == 0o700


def test_a_link_to_a_folder_in_a_folder_that_is_to_go_is_seen_before_anything_is_touched(
    place: Workspace,
) -> None:
    place.write("d", b"a file")
    place.write("z", b"1")
    saved = place.save()
    place.sh("rm d; mkdir d; echo x > d/x; ln -s ../sub d/l.ign; echo 2 > z; echo new > aa")
    with pytest.raises(SaveFailed, match=r"^d"):
        place.restore(saved)
    assert (place.folder / "z").read_bytes() == b"2\n"
    assert (place.folder / "d/x").read_bytes() == b"x\n"
    assert (place.folder / "aa").exists()
