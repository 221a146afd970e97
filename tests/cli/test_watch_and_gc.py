"""`outlast watch` saves what changes; `outlast gc` lets go of saves that nothing needs."""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import outlast
from outlast.store.local import Local
from tests.cli.saved_tree import Tree, work
from tests.support.environment import TIMEOUT_S
from tests.support.sweeps import Sweep
from tests.support.vaults import vault_of

# -- watch ------------------------------------------------------------------------------------------------------------


def test_watch_once_saves_every_worktree_that_changed(tree: Tree, tmp_path: Path) -> None:
    nested, hidden = tmp_path / "app/../deep/er", tmp_path / ".hidden/repo"
    for folder in (nested, hidden):
        folder.mkdir(parents=True)
        tree.git("init", "-q", folder)
        (folder / "file").write_text("x\n")
    tree.write(changed="two\n")
    said = tree.cli.ok("watch", "--once", "--json", tmp_path)
    saved = [json.loads(line) for line in said.out.splitlines()]
    assert {each["folder"] for each in saved} == {str(tree.folder), str(tmp_path / "deep/er")}
    assert {each["kind"] for each in saved} == {"watch"}
    assert tree.git("rev-parse", next(e["ref"] for e in saved if e["folder"] == str(tree.folder)))
    assert tree.cli.ok("watch", "--once", tmp_path).out == ""  # nothing changed since
    tree.write(changed="three\n")
    assert len(tree.cli.ok("watch", "--once", tmp_path).out.splitlines()) == 1


def test_watch_saves_changes_and_once_more_when_it_is_stopped(tree: Tree, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    tree.git("init", "-q", root / "late")
    with tree.cli.started(sys.executable, "-m", "outlast", "watch", "--json", str(root)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        (root / "late/file").write_text("one\n")
        assert process.stderr.readline() == f"watching {root / 'late'}\n"
        first = json.loads(process.stdout.readline())
        assert tree.git("show", f"{first['commit']}:file", folder=root / "late") == "one\n"
        (root / "late/file").write_text("two\n")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, err) == (128 + signal.SIGTERM, "")
        last = json.loads(out)
        assert tree.git("show", f"{last['commit']}:file", folder=root / "late") == "two\n"


def test_watch_goes_on_when_one_worktree_cannot_be_saved(tree: Tree, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("good", "bad"):
        (root / name).mkdir(parents=True)
        tree.git("init", "-q", root / name)
        (root / name / "file").write_text("x\n")
    (Local(tree.cli.root).private_of(root / "bad") / "lock").mkdir(parents=True)  # in the way
    answer = tree.cli("watch", "--once", "--json", root)
    assert answer.code == 1
    assert json.loads(answer.out)["folder"] == str(root / "good")
    assert f"error: {root / 'bad'}: " in answer.err


# -- gc ---------------------------------------------------------------------------------------------------------------


def age_packs(tree: Tree) -> None:
    """As if all saves were made an hour ago: a young pack may belong to a save under way."""
    an_hour_ago = time.time() - 3600
    for path in (vault_of(tree.folder) / "objects/pack").iterdir():
        os.utime(path, (an_hour_ago, an_hour_ago))


def anchors(tree: Tree, run: str) -> list[str]:
    return tree.git("for-each-ref", "--format=%(refname)", f"refs/outlast/{run}").split()


def test_gc_leaves_one_anchor_of_a_run_that_is_over_and_gives_the_room_back(tree: Tree) -> None:
    done, open_run = work(tree, "done"), work(tree, "open", until=2)
    newest = tree.cli.ok("saves", "done", "--json").json[0]
    kept = tree.git("rev-parse", f"{newest['commit']}^{{tree}}", f"{newest['commit']}^2^{{tree}}")
    theirs = tree.git("for-each-ref", f"refs/outlast/{open_run}")
    age_packs(tree)
    would = tree.cli.ok("gc", "--older-than", "0s", "--dry-run", "--json").json["saves"]["runs"]
    assert [(each["run"], each["kept"]) for each in would] == [(done, newest["commit"])]
    said = tree.cli.ok("gc", "--older-than", "0s", "--json").json["saves"]
    (thinned,) = said["runs"]
    assert (thinned["run"], thinned["why"], thinned["removed"]) == (done, "over", would[0]["removed"])
    assert anchors(tree, done) == [f"refs/outlast/{done}/kept"]
    assert tree.git("rev-parse", f"{thinned['kept']}^{{tree}}", f"{thinned['kept']}^2^{{tree}}") == kept
    assert tree.git("for-each-ref", f"refs/outlast/{open_run}") == theirs
    assert newest["commit"] not in tree.git("cat-file", "--batch-all-objects", "--batch-check")
    tree.git("fsck", "--strict", "--no-dangling")
    tree.cli.ok("restore", thinned["kept"][:10], "--workspace", tree.folder)
    assert (tree.folder / "beat").read_text() == "5\n"
    work(tree, "open")  # and the open one goes on
    assert tree.cli.ok("gc", "--older-than", "1h", "--json").json["saves"]["runs"] == []


def test_gc_keeps_what_an_event_of_an_open_run_names(tree: Tree) -> None:
    source = work(tree, "done")
    commits = [each["commit"] for each in tree.cli.ok("saves", "done", "--json").json]
    tree.cli.ok("fork", "done", "--at", "3", "--task", "forked")
    age_packs(tree)
    assert tree.cli.ok("gc", "--older-than", "0s", "--json").json["saves"]["runs"] == []
    for commit in commits:
        tree.git("cat-file", "-e", commit)
    tree.cli.ok("restore", "forked@3")
    assert (tree.folder / "beat").read_text() == "3\n"
    tree.cli.ok("cancel", "forked")
    age_packs(tree)
    said = tree.cli.ok("gc", "--older-than", "0s", "--json").json["saves"]["runs"]
    assert source in [each["run"] for each in said]  # though the store has forgotten it by now
    assert anchors(tree, source) == [f"refs/outlast/{source}/kept"]


def test_gc_keeps_what_a_person_saved_and_lets_go_of_what_a_machine_did(tree: Tree) -> None:
    work(tree, "any", until=1)
    tree.cli.ok("cancel", "any")
    tree.write(changed="two\n")
    mine = tree.git("rev-parse", f"{tree.save('-m', 'mine')}^{{tree}}")
    for text in ("three\n", "four\n", "five\n"):
        tree.write(changed=text)
        tree.cli.ok("watch", "--once")
    tree.cli.ok("gc", "--older-than", "0s")
    left = tree.cli.ok("saves", "--json").json
    assert [each["kind"] for each in left if each["run"] == "hand"] == ["watch", "manual"]
    assert mine in [tree.git("rev-parse", f"{each['commit']}^{{tree}}") for each in left]


def test_gc_keeps_to_the_budget_oldest_anchors_first(tree: Tree) -> None:
    runs = []
    for number in range(4):
        (tree.folder / "blob").write_bytes(os.urandom(600_000))
        runs.append(work(tree, f"task-{number}", beats=1))
    (tree.folder / "blob").unlink()
    still = work(tree, "still", beats=3, until=1)
    age_packs(tree)
    answer = tree.cli("gc", "--older-than", "0s", "--json", OUTLAST_SAVE_DISK_BUDGET_BYTES=str(1 << 20))
    said = answer.json["saves"]
    gone = [each["run"] for each in said["runs"] if each["why"] == "budget"]
    assert gone == runs[: len(gone)]
    assert 0 < len(gone) < 4
    assert said["rooms"][0]["bytes_after"] <= 1 << 20 < said["rooms"][0]["bytes_before"]
    assert anchors(tree, still)
    tree.git("fsck", "--strict", "--no-dangling")


def test_gc_of_saves_killed_at_any_crash_point_ends_right_when_repeated(
    tree: Tree, tmp_path: Path, sweep: Sweep
) -> None:
    done, still = work(tree, "done", beats=3), work(tree, "still", until=1)
    age_packs(tree)
    template = tmp_path / "template"
    shutil.copytree(tree.cli.isolated.home, template / "home", symlinks=True)
    shutil.copytree(tree.folder, template / "app", symlinks=True)
    wanted = tree.git("rev-parse", f"refs/outlast/{still}/beat")
    for nth in sweep:
        for name, place in (("home", tree.cli.isolated.home), ("app", tree.folder)):
            shutil.rmtree(place)
            shutil.copytree(template / name, place, symlinks=True)
        died = tree.cli.killed_at(nth, "gc", "--older-than", "0s")
        tree.git("fsck", "--strict", "--no-dangling")
        tree.cli.ok("gc", "--older-than", "0s")
        assert anchors(tree, done) == [f"refs/outlast/{done}/kept"], f"killed at crash point {nth}"
        assert tree.git("rev-parse", f"refs/outlast/{still}/beat") == wanted, f"killed at crash point {nth}"
        tree.git("fsck", "--strict", "--no-dangling")
        sweep.met(died)


def test_gc_never_drops_what_only_our_packs_hold_and_the_user_needs(tree: Tree) -> None:
    """Git removes its own copy of an object when a pack with a `.keep` has it; from then on ours is the only one."""
    tree.write(changed="precious\n")
    done = work(tree, "done", beats=2)
    tree.git("add", "changed")
    tree.git("commit", "-qm", "mine")
    tree.git("repack", "-adq")
    tree.git("prune", "--expire=now")
    tree.git("prune-packed")
    tree.write(staged="staged\n")
    tree.save()
    tree.git("add", "staged")
    tree.git("prune-packed")
    age_packs(tree)
    tree.cli.ok("gc", "--older-than", "0s")
    assert anchors(tree, done) == [f"refs/outlast/{done}/kept"]
    assert tree.git("show", "HEAD:changed") == "precious\n"
    assert tree.git("show", ":staged") == "staged\n"
    tree.git("fsck", "--strict", "--no-dangling")


def test_gc_of_one_store_leaves_the_saves_of_another_alone(tree: Tree, tmp_path: Path) -> None:
    source = work(tree, "done")
    tree.cli.ok("fork", "done", "--at", "3", "--task", "forked")
    age_packs(tree)
    tree.cli.ok("gc", "--older-than", "0s")  # the store forgets the source, the open fork keeps its saves
    assert f"refs/outlast/{source}/kept" in anchors(tree, source)
    before, vault = tree.git("for-each-ref", "refs/outlast"), vault_of(tree.folder)
    other = Tree(tree.cli.empty(tmp_path))
    tree.write(changed="by another\n")
    other.save("-m", "another store saves here too")
    with outlast.run("another", store=other.cli.root) as run:
        run.plan(["one"])
    answer = other.cli("gc", "--older-than", "0s", "--json", OUTLAST_SAVE_DISK_BUDGET_BYTES=str(1 << 20))
    assert [each for each in answer.json["saves"]["runs"] if each["run"] != "hand"] == []
    theirs = tree.git(f"--git-dir={vault}", "for-each-ref")
    assert set(before.splitlines()) <= set(theirs.splitlines())
    tree.cli.ok("restore", "forked@3")
    assert (tree.folder / "beat").read_text() == "3\n"
