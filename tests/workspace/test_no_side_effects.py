"""A save moves nothing of the user's, and is made however the repository, its configuration or the environment look."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.workspace.types import Purpose
from tests.support import environment
from tests.workspace.workspace import BASE, Workspace, placed, same

HOOKS = """applypatch-msg commit-msg fsmonitor-watchman post-applypatch post-checkout post-commit post-index-change post-merge
post-receive post-rewrite post-update pre-applypatch pre-auto-gc pre-commit pre-merge-commit pre-push pre-rebase pre-receive
prepare-commit-msg push-to-checkout reference-transaction sendemail-validate update""".split()
DIRTY = "echo 1 >> a.txt; git add a.txt; echo 2 >> a.txt; echo n > new; rm sub/b.txt; git stash store -m s $(git stash create)"
SAVES = 70


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    with placed(tmp_path, BASE + DIRTY) as made:
        yield made


def everything(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Every file under a folder with its inode, mode, time and bytes."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file() and not path.is_symlink():
            told = path.stat()
            # Git itself touches an object or a shared index that it meets again, lest gc take it away.
            touched = name.startswith(("objects/", "sharedindex."))
            found[name] = (told.st_ino, told.st_mode, 0 if touched else told.st_mtime_ns, path.read_bytes())
    return found


def unmoved(place: Workspace, git_dir: Path | None = None) -> None:
    """A save leaves every file of the git folder as it is, and adds none; twice."""
    git_dir = git_dir or place.folder / ".git"
    before, seen = everything(git_dir), place.picture()
    place.save()
    place.write("newer", b"changed\n")
    place.save("beat")
    place.save_if_dirty()
    (place.folder / "newer").unlink()
    after = everything(git_dir)
    assert after == before, {
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    }
    same(seen, place.picture())


def test_a_save_writes_nothing_into_the_git_folder(place: Workspace) -> None:
    unmoved(place)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "script",
    [
        "git merge other; git checkout -q other; echo o >> a.txt; git commit -qam o; git checkout -q main; echo m >> a.txt; git commit -qam m; git merge other || true",
        "git update-index --split-index; git add new",
        "git config core.splitIndex true; git add new",
        "git config core.untrackedCache true; git config core.preloadIndex true; git config index.threads 4; git status",
        "git config feature.manyFiles true; git add new",
        "git sparse-checkout set --cone --sparse-index sub",
        "git config core.autocrlf true; printf 'a\\r\\n' > new; git add new; git commit -qm n; rm .git/ORIG_HEAD || true",
        "git config gc.auto 1; git config maintenance.auto true",
        "git config core.sharedRepository group; git config core.logAllRefUpdates always",
        "git checkout -q --detach; git pack-refs --all",
    ],
    ids=["merge", "split", "splitting", "untracked cache", "many files", "sparse index", "autocrlf", "gc", "shared", "packed refs"],
)  # fmt: skip
def test_a_save_changes_no_file_whatever_the_repository_is_set_to(script: str, tmp_path: Path) -> None:
    with placed(tmp_path, BASE + "echo n > new\n" + script) as place:
        unmoved(place)


def test_no_hook_runs_and_no_failing_hook_stops_a_save(place: Workspace, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    hooks = tmp_path / "hooks"
    for folder in (place.folder / ".git/hooks", hooks):
        folder.mkdir(exist_ok=True)
        for name in HOOKS:
            (folder / name).write_text(f"#!/bin/sh\necho {name} >> {marker}\nexit 1\n")
            (folder / name).chmod(0o755)
    saved = place.save()
    place.sh(f"git config core.hooksPath {hooks}")
    place.anew()
    place.empty()
    place.save()
    place.restore(saved)
    assert not marker.exists(), marker.read_text()


def test_seventy_saves_do_not_wake_the_garbage_collector(place: Workspace) -> None:
    for number in range(SAVES):
        place.write("new", b"%d\n" % number)
        place.save("beat")
    packs = sorted((place.folder / ".git/objects/pack").glob("*.pack"))
    loose = sorted(place.folder.glob(".git/objects/??/*"))
    place.sh("git gc --auto")
    assert sorted((place.folder / ".git/objects/pack").glob("*.pack")) == packs
    assert sorted(place.folder.glob(".git/objects/??/*")) == loose


def test_every_save_of_a_chain_survives_gc_with_prune_now(place: Workspace) -> None:
    made = []
    for number in range(5):
        place.write("new", b"%d\n" % number)
        place.sh(
            f"echo {number} > staged; git add staged; git commit -qm {number}; echo s{number} > staged; git add staged"
        )
        made.append((place.save("beat"), place.picture()))
    place.sh("git reset -q --hard HEAD~4; git reflog expire --expire=now --all; git gc -q --prune=now")
    place.fsck()
    for saved, picture in reversed(made):
        place.restore(saved, force=True)
        same(picture, place.picture())


# -- however it looks --------------------------------------------------------------------------------------------------

SETTINGS = {
    "a stale index.lock": "touch .git/index.lock",
    "signing with a broken program": "git config commit.gpgSign true; git config gpg.program /bin/false; git config tag.gpgSign true",
    "a program for fsmonitor": "printf '#!/bin/sh\\ntouch ../ran; exit 1\\n' > ../fsmonitor; chmod +x ../fsmonitor; git config core.fsmonitor $PWD/../fsmonitor",
    "a pager, an editor and an alias": "git config core.pager false; git config core.editor false; git config alias.ls-files '!touch ../ran'",
    "read-only files": "chmod 0400 a.txt new; chmod 0555 sub",
    "another owner whom git trusts": "chown -R 12345:12345 .; git config --global --add safe.directory $PWD",
    "worktree configuration": "git config extensions.worktreeConfig true; git config --worktree core.sparseCheckout false",
    "a strict hash check": "git config core.checkStat minimal; git config core.trustctime false; git config core.fileMode false",
    "a shallow clone": "git clone -q --depth 1 file://$PWD ../s; rm -rf .git; mv ../s/.git .git",
    "alternates": "git clone -q --shared . ../s; mv .git ../real; mv ../s/.git .git; echo $(realpath ../real)/objects > .git/objects/info/alternates",
    "a git folder elsewhere": "git init -q --separate-git-dir ../elsewhere",
    "replaced objects": "git replace HEAD $(git commit-tree -m r HEAD^{tree})",
    "an ignore file of its own": "echo '*.never' > ../ignored; git config core.excludesFile $PWD/../ignored; echo x > x.ever",
    "quotes and colours": "git config core.quotePath true; git config color.ui always; git config status.short true; git config diff.noprefix true",
    "submodules that are ignored": "git config diff.ignoreSubmodules all; git config submodule.recurse true",
    "a diff program": "git config diff.external 'touch ../ran; false'",
    "packed and tidy": "git gc -q",
    "a long path": "d=$(printf 'd%.0s' {1..200}); for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do mkdir $d; cd $d; done; echo deep > deep",
    "rerere": "git config rerere.enabled true; mkdir -p .git/rr-cache",
}  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_save_is_made_and_restored_with(name: str, place: Workspace, tmp_path: Path) -> None:
    place.sh(SETTINGS[name])
    before = place.picture()
    git_dir = Path(os.fsdecode(place.sh("git -c safe.directory='*' rev-parse --absolute-git-dir").strip()))
    (tmp_path / "ran").unlink(missing_ok=True)
    moved = everything(git_dir)
    saved = place.save()
    assert everything(git_dir) == moved
    assert not (tmp_path / "ran").exists()
    same(before, place.picture())
    (git_dir / "index.lock").unlink(missing_ok=True)
    place.empty()
    place.anew()
    place.restore(saved)
    after = place.picture()
    if name == "read-only files":
        assert after["files"] == before["files"]
    else:
        same(before, after)


def test_a_save_needs_no_identity_and_no_home(
    place: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "home"
    empty.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(empty))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    saved = place.save()
    place.empty()
    place.restore(saved)
    assert (place.folder / "new").read_bytes() == b"n\n"


def test_the_ignore_file_that_counts_is_the_one_git_would_use(place: Workspace, tmp_path: Path) -> None:
    place.sh(
        f"echo '*.log' > {tmp_path}/global; echo '*.tmp' > {tmp_path}/local; echo 1 > x.log; echo 2 > x.tmp; echo '*.here' >> .git/info/exclude; echo 3 > x.here"
    )
    place.sh(f"git config --global core.excludesFile {tmp_path}/global")
    try:
        saved = place.save()
        assert [place.content(saved, name) for name in ("x.log", "x.tmp", "x.here")] == [None, b"2\n", None]
        place.sh(f"git config core.excludesFile {tmp_path}/local")
        saved = place.save()
        assert [place.content(saved, name) for name in ("x.log", "x.tmp", "x.here")] == [b"1\n", None, None]
    finally:
        place.sh("git config --global --unset core.excludesFile")


def test_variables_that_lead_git_elsewhere_lead_nobody(
    place: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = place.picture()
    other = tmp_path / "other"
    place.sh(f"git init -q {other}; cd {other}; echo o > o; git add o; git commit -qm o")
    there = everything(other)
    variables = {
        "GIT_DIR": f"{other}/.git", "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": f"{other}/.git/index",
        "GIT_OBJECT_DIRECTORY": f"{other}/.git/objects", "GIT_COMMON_DIR": f"{other}/.git", "GIT_NAMESPACE": "n",
        "GIT_CEILING_DIRECTORIES": "/", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.bare", "GIT_CONFIG_VALUE_0": "true",
        "GIT_CONFIG_PARAMETERS": "'core.bare=true'", "GIT_LITERAL_PATHSPECS": "1", "GIT_QUARANTINE_PATH": str(other),
        "GIT_EXTERNAL_DIFF": "false", "GIT_TRACE": f"{tmp_path}/trace", "GIT_ALTERNATE_OBJECT_DIRECTORIES": "/nowhere",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    saved = place.save()
    place.empty()
    place.restore(saved)
    for name in variables:
        monkeypatch.delenv(name)
    same(before, place.picture())
    assert everything(other) == there
    assert not (tmp_path / "trace").exists()


def test_filters_are_not_run_neither_slow_nor_failing_ones(place: Workspace, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    place.sh(
        f"""printf '#!/bin/sh\\necho "$1" >> {marker}\\nexit 1\\n' > ../filter; chmod +x ../filter
        git config filter.bad.clean "$PWD/../filter clean"; git config filter.bad.smudge "$PWD/../filter smudge"; git config filter.bad.required true
        git config filter.proc.process "$PWD/../filter process"; git config filter.proc.required true
        printf '*.bad filter=bad\\n*.proc filter=proc\\n' > .gitattributes; git add .gitattributes; git commit -qm attributes
        echo 1 > x.bad; echo 2 > y.proc; git update-index --add --cacheinfo 100644,$(git hash-object -w --no-filters x.bad),z.bad; cp x.bad z.bad"""
    )
    files = place.files()
    marker.unlink(missing_ok=True)
    saved = place.save()
    assert place.save_if_dirty() is not None
    place.empty()
    place.restore(saved)
    assert not marker.exists(), marker.read_text()
    assert place.files() == files


# -- places that are no ordinary repository ------------------------------------------------------------------------------


def test_a_linked_worktree_is_saved_by_itself(place: Workspace, tmp_path: Path) -> None:
    place.sh(
        "git worktree add -q ../linked other; cd ../linked; echo l >> a.txt; git add a.txt; echo m >> a.txt; echo u > u"
    )
    linked = Workspace(tmp_path / "linked", tmp_path / "state")
    main, before = place.picture(), linked.picture()
    private = tmp_path / "w/.git/worktrees/linked"
    moved = everything(private)
    first, second = linked.save(), place.save()
    assert everything(private) == moved
    linked.empty()
    place.empty()
    linked.sh("git reset -q --hard; git gc -q --prune=now")
    linked.restore(first)
    same(before, linked.picture())
    place.restore(second)
    same(main, place.picture())
    same(before, linked.picture())
    linked.close()


def test_an_empty_repository_and_one_without_commits(tmp_path: Path) -> None:
    with placed(tmp_path, "git init -q -b main") as place:
        empty = place.save()
        assert place.save_if_dirty() is None
        place.sh("echo x > x; echo y > y; git add x; echo z >> x")
        before = place.picture()
        full = place.save()
        place.restore(empty)
        assert place.files() == {}
        place.restore(full)
        same(before, place.picture())
        place.sh("git add -A; git commit -qm first")
        place.restore(full, force=True)
        same(before, place.picture())


def test_a_folder_that_is_no_repository(tmp_path: Path) -> None:
    with placed(
        tmp_path, "mkdir d; echo x > d/x; ln -s d l; echo '*.ign' > .gitignore; echo i > i.ign; chmod +x d/x"
    ) as place:
        before = place.picture()
        saved = place.save()
        assert not (place.folder / ".git").exists()
        assert place.save_if_dirty() is None
        place.sh("rm -rf d l .gitignore; echo n > n; echo d > d")
        second = place.save()
        place.restore(saved)
        assert (place.folder / "i.ign").exists()
        same(before, place.picture())
        place.anew()
        place.restore(second)
        assert (place.folder / "d").read_bytes() == b"d\n"
        assert sorted(tmp_path.iterdir()) == [tmp_path / "state", tmp_path / "w"]


GARBAGE = {
    "text": "rm -rf .git; echo garbage > .git",
    "an empty folder": "rm -rf .git; mkdir .git",
    "a pointer to nowhere": "rm -rf .git; echo 'gitdir: /nowhere' > .git",
    "a dangling link": "rm -rf .git; ln -s /nowhere .git",
    "without HEAD": "rm .git/HEAD",
    "with an empty HEAD": ": > .git/HEAD",
    "bare": "git config core.bare true",
    "with a worktree elsewhere": "mkdir ../far; git config core.worktree $PWD/../far",
    "of a version to come": "git config core.repositoryFormatVersion 99",
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("how", GARBAGE)
@pytest.mark.parametrize("known", [False, True], ids=["at once", "after a save"])
def test_a_git_folder_that_is_garbage_does_not_stop_a_save(how: str, known: bool, place: Workspace) -> None:
    if known:
        place.save()
    place.sh(GARBAGE[how])
    files = place.files()
    saved = place.save()
    place.write("more", b"more")
    place.save()
    place.empty()
    place.restore(saved)
    assert place.files() == files
    assert place.saver.repo().shadow


def test_a_workspace_that_lost_its_git_folder_never_reads_or_writes_the_parents_repository(
    tmp_path: Path,
) -> None:
    outer = tmp_path / "outer"
    with placed(outer, BASE) as place:
        place.sh(
            "cd ..; git init -q; printf 'w/new\\n*.log\\n' > .gitignore; git add -f w/a.txt .gitignore || true; git commit -qm outer"
        )
        own = place.save()
        shutil.rmtree(place.folder / ".git")
        place.write("new", b"new")
        place.write("x.log", b"log")
        there = everything(outer / ".git")
        saved = place.save()
        assert everything(outer / ".git") == there
        assert place.content(saved, "new") == b"new"
        assert place.content(saved, "x.log") == b"log"
        assert place.saver.repo().shadow
        assert own.commit != saved.commit
        place.empty()
        place.restore(saved)
        assert (place.folder / "new").read_bytes() == b"new"
        assert everything(outer / ".git") == there


def test_a_workspace_inside_another_repository_without_one_of_its_own(tmp_path: Path) -> None:
    outer = Workspace(tmp_path / "outer", tmp_path / "state")
    outer.sh(BASE)
    there = everything(tmp_path / "outer/.git")
    inner = Workspace(tmp_path / "outer/sub", tmp_path / "state")
    saved = inner.save()
    assert inner.content(saved, "b.txt") is not None
    assert everything(tmp_path / "outer/.git") == there
    inner.close()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name", ["with space", "line\nbreak", "\u2028", "co:lon", 'qu"ote', b"\xff\xfe", "-dash", "{}"]
)
def test_a_workspace_may_have_any_name(name: str | bytes, tmp_path: Path) -> None:
    place = Workspace(tmp_path / os.fsdecode(name), tmp_path / "state")
    place.sh(BASE + DIRTY)
    before = place.picture()
    saved = place.save()
    assert not place.saver.repo().shadow
    place.empty()
    place.anew()
    place.restore(saved)
    same(before, place.picture())
    place.close()


def test_a_repository_made_anew_under_the_saver_is_saved_as_it_is(place: Workspace) -> None:
    place.save()
    for form in ("sha256", "sha1"):
        place.sh(
            f"rm -rf .git; git init -q --object-format={form}; git add a.txt; git commit -qm again; echo {form} > new"
        )
        before = place.picture()
        saved = place.save()
        place.empty()
        place.restore(saved)
        same(before, place.picture())


def test_another_users_repository_gets_roots_saves_only_if_root_lists_it_as_safe(
    place: Workspace, state: environment.Isolated
) -> None:
    environment.need_root()
    subprocess.run(["chown", "-R", str(environment.NOBODY), place.folder], check=True)
    assert place.saver.capture(Purpose(kind="emergency", run="r")) is not None
    assert place.saver.repo().shadow
    place.sh("git config --global --add safe.directory $PWD")
    place.anew()
    assert place.saver.capture(Purpose(kind="emergency", run="r")) is not None
    assert not place.saver.repo().shadow
