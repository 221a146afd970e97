"""Saves from hints hold what a look at everything would find, cost what changed, and are confirmed by a look."""

import mmap
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.errors import SaveFailed
from outlast.store.local import Local
from outlast.workspace import rules
from outlast.workspace.capture import refresh_index
from outlast.workspace.capture.saver import Saver
from outlast.workspace.types import Purpose, Save
from tests.core.test_secret_formats import plain
from tests.workspace.workspace import BASE, Workspace, placed

BEAT = Purpose(kind="beat", run="r1")


@pytest.fixture
def short_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files just written are old, and not read again by the next save."""
    monkeypatch.setenv("OUTLAST_TIMING", "workspace.one_write_s=0")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    with placed(tmp_path) as made:
        made.saver.watch()
        made.save("beat")
        yield made


def files_of(place: Workspace, save: Save) -> dict[str, bytes]:
    git_dir = place.saver.repo().vault
    names = place.git_in(git_dir, "ls-tree", "-r", "-z", "--name-only", save.commit).stdout.split(b"\0")[:-1]
    return {os.fsdecode(name): place.content(save, os.fsdecode(name)) or b"" for name in names}


def looked(place: Workspace) -> tuple[Save, dict[str, bytes]]:
    """The same moment saved by a saver that knows nothing and looks at everything; and what is in that save."""
    other = Workspace(place.folder, place.state.with_name("other-state"), limits=place.limits)
    try:
        save = other.save("beat", run="other")
        return save, files_of(other, save)
    finally:
        other.close()
        shutil.rmtree(other.state)


def check(place: Workspace, *, hinted: bool = True) -> Save:
    """A save from hints that is just what a look finds."""
    save = place.save("beat")
    assert save.hinted is hinted
    other, files = looked(place)
    assert files_of(place, save) == files
    assert save.left_out == other.left_out
    return save


CHANGES = {
    "edit": "echo more >> a.txt",
    "edit and back": "cp -p a.txt /tmp/$$; echo x >> a.txt; mv /tmp/$$ a.txt",
    "new": "echo new > new; echo n > sub/new",
    "new folder": "mkdir -p n/e/w; echo x > n/e/w/x; echo y > n/y",
    "new ignored": "echo x > x.ign; mkdir -p build/deep; echo o > build/deep/o; mkdir m; echo i > m/i.ign; echo j > m/j",
    "delete": "rm a.txt sub/deep/d",
    "delete folder": "rm -r sub",
    "rename folder": "mv sub bus",
    "rename folder over": "mkdir o; echo o > o/o; rm -r sub; mv o sub",
    "exec bit": "chmod +x a.txt",
    "link": "ln -s nowhere l; rm a.txt; ln -s c a.txt",
    "file to folder": "rm a.txt; mkdir a.txt; echo x > a.txt/x",
    "folder to file": "rm -r sub; echo f > sub",
    "folder to link": "mv sub bus; ln -s bus sub",
    "staged": "echo s > s; git add s; echo more >> s",
    "committed": "echo s > s; git add s; git commit -qm three",
    "tracked though ignored": "echo 1 > x.ign; git add -f x.ign; echo 2 > x.ign",
    "untracked secret": "echo k > .env; echo k > sub/id_rsa",
    "a key in a file": "printf -- '-----BEGIN PRIVATE KEY-----\\n' > plain.txt",
    "a key in a text": "echo ghp_" + plain(36) + " > token.txt; echo t > moved; mv token.txt moved",
    "a key in a tracked text": "echo ghp_" + plain(36) + " >> c",
    "big": "head -c 3000 /dev/zero > big; head -c 3000 /dev/zero > c",
    "fifo": "mkfifo p",
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_hinted_save_holds_what_a_look_would_find(tmp_path: Path, change: str) -> None:
    with placed(tmp_path) as place:
        place.limits = rules.Limits(file_bytes=2000)
        place.saver.watch()
        place.save("beat")
        place.sh(change)
        check(place)
        place.sh(
            "echo again >> c; rm -f s .env plain.txt big; echo none > moved; git rm -q --cached -f x.ign s",
            ok=False,
        )
        check(place)
        place.fsck()


def test_random_changes_are_saved_alike_by_hints_and_by_looks(place: Workspace, rng: random.Random) -> None:
    folders = ["", "sub/", "sub/deep/", "n/", "n/m/", "build/"]
    names = [f"{folder}{name}" for folder in folders for name in ("f", "g.txt", "h.ign")]
    for _ in range(12):
        for _ in range(rng.randint(1, 6)):
            here, there = rng.choice(names), rng.choice(names)
            script = rng.choice(
                [
                    f"mkdir -p $(dirname {here}); echo {rng.random()} >> {here}",
                    f"rm -f {here}",
                    f"mkdir -p $(dirname {there}); mv {here} {there}",
                    f"rm -rf {rng.choice(folders[1:])}",
                    f"mv {rng.choice(folders[1:])} {rng.choice(folders[1:])}",
                    f"chmod +x {here}",
                    f"git add -A; git commit -qm {rng.random()}",
                    f"git add -f {here}",
                ]
            )
            place.sh(script, ok=False)
        save = place.save("beat")
        assert files_of(place, save) == looked(place)[1]


def test_nothing_changed_costs_no_file_and_no_git(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    first = place.save("beat")
    before = sorted(os.listdir(place.saver.repo().packs))
    monkeypatch.setenv("PATH", "/nowhere")
    again = place.save("beat")
    assert (again.commit, again.hinted, again.taken) == (first.commit, True, 0)
    assert sorted(os.listdir(place.saver.repo().packs)) == before


def test_known_files_are_saved_without_starting_git(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.sh("echo more >> a.txt")
    place.save("beat")  # by now the trees are known
    place.sh("echo more >> a.txt; rm c")
    monkeypatch.setenv("PATH", "/nowhere")
    save = place.save("beat")
    monkeypatch.undo()
    assert (save.hinted, save.taken, save.removed) == (True, 1, 1)
    assert place.content(save, "a.txt") == (place.folder / "a.txt").read_bytes()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "change",
    [
        "echo '*.txt' >> .gitignore",
        "echo '* text' > .gitattributes",
        "git init -q n; echo x > n/x",
        "mkdir -p d/e; git init -q d/e; echo x > d/e/x",
        "mkdir -p q; git -C q init -q; echo x > q/x; git -C q add x; git -C q commit -qm x",
        "echo '*.txt' >> .git/info/exclude",
    ],
)
def test_what_hints_cannot_tell_is_looked_at(place: Workspace, change: str) -> None:
    place.sh("echo t > t.txt")
    check(place)
    place.sh(change)
    check(place, hinted=False)


@pytest.mark.usefixtures("short_writes")
def test_changes_in_a_repository_inside_are_saved(place: Workspace) -> None:
    place.sh("git init -q n; echo x > n/x; git -C n add x; git -C n commit -qm x")
    place.save("beat")
    place.sh("echo y > n/x")
    save = place.save("beat")
    assert place.content(save, "n/x") == b"y\n"
    place.sh("echo more >> a.txt")
    save = place.save("beat")
    assert save.hinted
    assert place.content(save, "n/x") == b"y\n"
    assert [inside.path for inside in place.held(save).meta.inside] == ["n"]


def test_an_ending_looks_at_everything_unless_time_is_short(place: Workspace) -> None:
    place.sh("echo more >> a.txt")
    assert not place.save("emergency").hinted
    place.sh("echo more >> a.txt")
    short = place.saver.capture(Purpose(kind="emergency", run="r1"), deadline_s=0.9)
    assert short is not None
    assert short.hinted
    assert place.held(short).meta.hinted
    assert place.content(short, "a.txt") == (place.folder / "a.txt").read_bytes()


def test_a_look_comes_again_and_confirms(place: Workspace) -> None:
    place.sh("echo more >> a.txt")
    hinted = place.save("beat")
    assert place.saver._hinting is not None
    place.saver._hinting._reconcile_s = 0.0
    confirmed = place.save("beat")
    assert (hinted.hinted, confirmed.hinted) == (True, False)
    assert confirmed.commit == hinted.commit
    assert confirmed.warning == ""


@pytest.mark.usefixtures("short_writes")
def test_a_change_without_an_event_is_saved_and_said_and_ends_the_trust(place: Workspace) -> None:
    data = b"0" * mmap.PAGESIZE
    place.write("mapped", data)
    place.save("beat")
    with open(place.folder / "mapped", "r+b") as file, mmap.mmap(file.fileno(), mmap.PAGESIZE) as mapped:
        mapped[:5] = b"quiet"
        mapped.flush()
        unseen = place.save("beat")
        assert unseen.hinted
        assert place.content(unseen, "mapped") == data
        found = place.save("final")
    assert place.content(found, "mapped") == b"quiet" + data[5:]
    assert "mapped" in found.warning
    assert place.held(found).meta.warning == found.warning
    place.sh("echo more >> a.txt")
    after = place.save("beat")
    assert (after.hinted, after.warning) == (False, "")


def test_too_many_untracked_files_are_noticed_though_they_come_one_by_one(tmp_path: Path) -> None:
    with placed(tmp_path) as place:
        place.limits = rules.Limits(folder_files=10)
        place.saver.watch()
        place.save("beat")
        for number in range(14):
            place.write(f"heap/{number}", b"x")
            save = place.save("beat")
        assert [left.path for left in save.left_out] == ["heap/"]
        assert save.left_out == looked(place)[0].left_out


def test_a_file_that_becomes_a_secret_leaves_the_saves(place: Workspace) -> None:
    place.sh("echo nothing > notes.txt")
    check(place)
    place.sh("printf -- '-----BEGIN RSA PRIVATE KEY-----\\n' > notes.txt")
    save = check(place)
    assert [(left.path, left.why) for left in save.left_out] == [
        ("notes.txt", "secret: private key, kept apart")
    ]
    place.sh("echo more >> a.txt")
    save = check(place)
    assert [secret.path for secret in place.held(save).meta.secrets] == ["notes.txt"]


def test_a_failed_save_loses_no_hint(place: Workspace) -> None:
    place.sh("echo more >> a.txt")
    packs = place.saver.repo().packs
    shutil.move(packs, packs.with_name("away"))
    with pytest.raises(SaveFailed, match="pack"):
        place.save("beat")
    shutil.move(packs.with_name("away"), packs)
    save = place.save("beat")
    assert place.content(save, "a.txt") == (place.folder / "a.txt").read_bytes()


def test_a_clean_tree_that_gets_no_save_loses_no_hint(place: Workspace) -> None:
    place.sh("echo more >> a.txt")
    place.save("beat")
    place.sh("git checkout -q a.txt")
    assert place.saver.capture(Purpose(kind="beat", run="r1", if_dirty=True)) is None
    place.sh("echo x > x")
    check(place)


def test_another_process_saving_in_between_is_noticed(place: Workspace) -> None:
    other = Saver(place.folder, Local(place.state))
    try:
        place.sh("echo n > n1; echo more >> a.txt")
        assert other.capture(Purpose(kind="emergency", run="r1")) is not None
        place.sh("echo n > n2")
        check(place)
    finally:
        other.close()


@pytest.mark.usefixtures("short_writes")
def test_taking_in_between_saves_changes_no_save(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh_index, "TAKE_IN_ABOVE", 2)
    place.sh("for i in 1 2 3 4 5; do echo $i > n$i; done; rm c")
    place.save("beat")
    assert refresh_index.refresh(place.saver)
    assert not refresh_index.refresh(place.saver)
    check(place)
    place.sh("rm n1; echo more >> n2; echo c > c")
    check(place)
    place.anew()
    save = place.save("beat")
    assert files_of(place, save) == looked(place)[1]


@pytest.mark.usefixtures("short_writes")
def test_a_folder_without_a_repository_is_hinted_alike(tmp_path: Path) -> None:
    with placed(tmp_path, "mkdir sub; echo a > a; echo b > sub/b; echo '*.ign' > .gitignore") as place:
        place.saver.watch()
        place.save("beat")
        place.sh("echo more >> a; rm sub/b; echo x > x.ign; echo n > n")
        save = place.save("beat")
        assert save.hinted
        assert sorted(files_of(place, save)) == [".gitignore", "a", "n"]
        place.sh(BASE)
        assert not place.save("beat").hinted
        place.sh("echo more >> a.txt")
        place.save("beat")
        place.sh("echo more >> a.txt")
        save = place.save("beat")
        assert save.hinted
        assert place.content(save, "a.txt") == (place.folder / "a.txt").read_bytes()


def test_what_is_no_longer_tracked_is_no_reason_for_distrust(place: Workspace) -> None:
    place.sh("echo 1 > x.ign; git add -f x.ign")
    place.save("beat")
    place.sh("git rm -q --cached x.ign")
    looked_at = place.save("final")
    assert (looked_at.warning, place.content(looked_at, "x.ign")) == ("", None)
    place.sh("echo more >> a.txt")
    assert place.save("beat").hinted
