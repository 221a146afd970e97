"""`outlast gc` and secrets kept apart, and what a dry run says of a budget: real runs, real git, real kills."""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import outlast
from tests.cli.command_line import Cli
from tests.cli.saved_tree import Tree
from tests.cli.test_watch_and_gc import age_packs
from tests.support.environment import TIMEOUT_S
from tests.support.sweeps import Sweep
from tests.workspace.test_secrets_removal import age, check_whole, values

GC = ("gc", "--older-than", "0s")


@pytest.fixture
def tree(cli: Cli) -> Tree:
    made = Tree(cli)
    made.git("init", "-q")
    made.write(kept="kept\n")
    made.git("add", ".")
    made.git("commit", "-qm", "first")
    return made


def private(tree: Tree) -> Path:
    (found,) = (tree.cli.root / "workspaces").glob("*/secrets.git")
    return found.parent


def secrets(tree: Tree) -> set[str]:
    return values(private(tree) / "secrets.git")


def work(tree: Tree, task: str, beats: int = 3, *, until: int | None = None, blob_bytes: int = 0) -> str:
    """A run whose every beat has a secret and a file of its own; its id."""
    with outlast.run(task, workspace=tree.folder) as run:
        run.plan([f"step {number}" for number in range(1, beats + 1)])
        for beat in run.beats():
            if until is not None and beat.number > until:
                break
            tree.write(**{".env": f"{task}-{beat.number}", "file": f"{task} {beat.number}\n"})
            (tree.folder / "blob").write_bytes(os.urandom(blob_bytes))
            beat.done()
    return run.id


def aged(tree: Tree) -> Tree:
    """As if all of it was saved long ago."""
    age_packs(tree)
    age(private(tree) / "secrets.git")
    return tree


def gc(tree: Tree, *more: str) -> Any:
    return tree.cli.ok(*GC, "--json", *more).json["saves"]


# -- what goes, and what stays -------------------------------------------------------------------------------------------


def test_gc_lets_go_of_secrets_that_no_save_names_and_a_dry_run_tells_it_before(tree: Tree) -> None:
    work(tree, "done")
    work(tree, "still", until=2)
    aged(tree)
    everything = {"done-1", "done-2", "done-3", "still-1", "still-2"}
    would = gc(tree, "--dry-run")["secrets"]
    assert would == [{"workspace": str(tree.folder), "removed": 2, "bytes": 12, "failed": ""}]
    assert f"secrets of {tree.folder} that no save names: 2 would go, 12 bytes" in tree.cli.ok(*GC, "-n").err
    assert secrets(tree) == everything
    said = gc(tree)
    assert said["secrets"] == would
    assert secrets(tree) == everything - {"done-1", "done-2"}
    check_whole(private(tree) / "secrets.git")
    (thinned,) = said["runs"]
    (tree.folder / ".env").unlink()
    tree.cli.ok("restore", thinned["kept"], "--with-secrets", "--force")
    assert (tree.folder / ".env").read_text() == "done-3"
    tree.cli.ok("restore", "still@1", "--with-secrets", "--force")
    assert (tree.folder / ".env").read_text() == "still-1"
    assert gc(tree)["secrets"] == []


def test_gc_says_how_many_secrets_went(tree: Tree) -> None:
    work(tree, "done")
    said = aged(tree).cli.ok(*GC).err
    assert f"secrets of {tree.folder} that no save names: 2 gone, 12 bytes" in said


def test_a_secret_of_less_than_a_day_stays(tree: Tree) -> None:
    work(tree, "done")
    age_packs(tree)
    assert gc(tree)["secrets"] == []
    assert secrets(tree) == {"done-1", "done-2", "done-3"}


@pytest.mark.parametrize(("beat", "stay"), [(1, {"done-1", "done-3"}), (3, {"done-1", "done-2", "done-3"})])
def test_secrets_of_saves_that_any_ref_of_ours_leads_to_stay(tree: Tree, beat: int, stay: set[str]) -> None:
    work(tree, "done")
    commits = [each["commit"] for each in tree.cli.ok("saves", "done", "--json").json if each["beat"] <= beat]
    tree.git("update-ref", "refs/outlast/rescued", commits[0])
    would = gc(aged(tree), "--dry-run")["secrets"]
    assert gc(tree)["secrets"] == would
    assert secrets(tree) == stay


def test_secrets_of_saves_before_one_that_is_kept_stay_while_another_ref_leads_to_them(tree: Tree) -> None:
    work(tree, "any", until=1)
    tree.cli.ok("cancel", "any")
    for value in ("one", "two", "three"):
        tree.write(**{".env": value, "file": f"{value}\n"})
        tree.cli.ok("watch", "--once")
    newest = next(each for each in tree.cli.ok("saves", "--json").json if each["run"] == "hand")
    aged(tree)
    tree.git("update-ref", "refs/outlast/rescued", newest["commit"])
    assert gc(tree, "--dry-run")["secrets"] == gc(tree)["secrets"] == []
    tree.git("update-ref", "-d", "refs/outlast/rescued")
    assert gc(tree)["secrets"][0]["removed"] == 2
    assert secrets(tree) == {"any-1", "three"}


def test_the_secrets_of_a_fork_stay_although_its_source_is_forgotten(tree: Tree) -> None:
    work(tree, "done")
    tree.cli.ok("fork", "done", "--at", "1", "--task", "forked")
    aged(tree)
    for _ in range(2):
        assert gc(tree)["secrets"] == []
    tree.cli.ok("restore", "forked@1", "--with-secrets", "--force")
    assert (tree.folder / ".env").read_text() == "done-1"


def test_the_secrets_of_a_save_that_only_an_event_of_an_open_run_names_stay(tree: Tree) -> None:
    """Somebody removed its refs by hand; the commits are still there."""
    run = work(tree, "still", until=2)
    work(tree, "done", beats=2)
    for ref in tree.git("for-each-ref", "--format=%(refname)", f"refs/outlast/{run}").split():
        tree.git("update-ref", "-d", ref)
    age(private(tree) / "secrets.git")
    assert gc(tree)["secrets"][0]["removed"] == 1
    assert secrets(tree) == {"still-1", "still-2", "done-2"}


def test_a_save_that_cannot_be_read_keeps_all_secrets_and_it_is_told(tree: Tree) -> None:
    work(tree, "done")
    tree.git("update-ref", "refs/outlast/odd", tree.git("rev-parse", "HEAD").strip())
    aged(tree)
    (said,) = gc(tree)["secrets"]
    assert (said["removed"], "not a save of outlast" in said["failed"]) == (0, True)
    assert f"kept the secrets of {tree.folder}: " in tree.cli.ok(*GC).err
    assert secrets(tree) == {"done-1", "done-2", "done-3"}


@pytest.mark.parametrize("kind", ["repository", "folder"])
def test_what_secrets_are_needed_is_known_although_the_folder_moved(
    tree: Tree, tmp_path: Path, kind: str
) -> None:
    if kind == "folder":
        shutil.rmtree(tree.folder / ".git")
    work(tree, "done")
    age(private(tree) / "secrets.git")
    away = tmp_path / "away"
    tree.folder.rename(away)
    tree.folder.parent.joinpath("elsewhere").mkdir()
    cli = Cli(tree.folder.parent / "elsewhere", tree.cli.isolated)
    (said,) = cli.ok(*GC, "--json").json["saves"]["secrets"]
    assert (said["removed"], said["failed"]) == (2, "")
    assert secrets(tree) == {"done-3"}
    away.rename(tree.folder)
    assert [each["failed"] for each in gc(tree)["secrets"] if each["failed"]] == []


def moved_away(tree: Tree, to: Path) -> str:
    """A save with a secret in a repository that is then moved, with another one in its place; the save."""
    tree.write(**{".env": "precious", "file": "x\n"})
    commit = tree.save()
    work(tree, "done", beats=1)
    tree.folder.rename(to)
    tree.folder.mkdir()
    tree.git("init", "-q")
    tree.write(**{".env": "other", "file": "y\n"})
    tree.save()
    age(private(tree) / "secrets.git")
    return commit


def test_another_repository_in_its_place_keeps_the_secrets_of_one_that_moved(
    tree: Tree, tmp_path: Path
) -> None:
    away = tmp_path / "away"
    commit = moved_away(tree, away)
    for more in (["--dry-run"], [], []):
        assert gc(tree, *more)["secrets"] == []
    assert secrets(tree) >= {"precious", "done-1", "other"}
    (away / ".env").unlink()
    tree.cli.ok("restore", commit, "--with-secrets", "--force", "--workspace", away)
    assert (away / ".env").read_text() == "precious"
    assert gc(tree, "--dry-run")["secrets"] == []


def test_a_repository_is_the_same_after_all_its_saves_were_let_go_of(tree: Tree) -> None:
    work(tree, "done")
    aged(tree)
    for ref in tree.git("for-each-ref", "--format=%(refname)", "refs/outlast").split():
        tree.git("update-ref", "-d", ref)
    assert gc(tree)["secrets"][0] == {
        "workspace": str(tree.folder), "removed": 3, "bytes": 18, "failed": "",
    }  # fmt: skip


def test_the_next_save_of_the_same_workspace_has_its_secrets(tree: Tree) -> None:
    """What a save remembers of secrets it need not write again is what some save still names."""
    work(tree, "done")
    aged(tree)
    gc(tree)
    for value in ("done-3", "done-1"):
        tree.write(**{".env": value, "file": f"{value}\n"})
        commit = tree.save()
        (tree.folder / ".env").unlink()
        tree.cli.ok("restore", commit, "--with-secrets", "--force")
        assert (tree.folder / ".env").read_text() == value


# -- never while somebody saves, and killed at any point ----------------------------------------------------------------


def test_nobody_can_save_while_secrets_are_let_go_of(tree: Tree, tmp_path: Path) -> None:
    work(tree, "done")
    aged(tree)
    lock, met = private(tree) / "lock", tmp_path / "met"

    def look(name: str) -> None:
        fd = os.open(lock, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = "free"
        except BlockingIOError:
            free = "held"
        finally:
            os.close(fd)
        with met.open("a") as file:
            file.write(f"{free} {name}\n")

    tree.cli.forked(*GC, hook=look)
    told = [line.split() for line in met.read_text().splitlines()]
    assert secrets(tree) == {"done-3"}
    assert [name for _, name in told].count("gc.packed") == 2
    of_saves = ("save.", "consolidate.", "gc.packed", "gc.before_ref")
    assert {free for free, name in told if name.startswith(of_saves)} == {"held"}


def named_secrets(tree: Tree) -> set[str]:
    """The secrets that the saves name which are there, as plain git tells it."""
    found = set()
    for ref in tree.git("for-each-ref", "--format=%(refname)", "refs/outlast").split():
        commit = tree.git("rev-parse", ref).strip()
        while commit:
            meta = json.loads(tree.git("show", f"{commit}^2^2:meta.json"))
            found |= {each["oid"] for each in meta.get("secrets", [])}
            commit = tree.git("rev-parse", f"{commit}^2^2^1").strip() if meta["number"] > 1 else ""
    return found


def lost(tree: Tree) -> set[str]:
    """Secrets that a save names and that are not there."""
    asked = "".join(f"{oid}\n" for oid in sorted(named_secrets(tree)))
    said = subprocess.run(
        ["git", "-C", private(tree) / "secrets.git", "--git-dir=.", "cat-file", "--batch-check"],
        input=asked, capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    return {line for line in said.stdout.splitlines() if line.endswith("missing")}


@pytest.mark.slow
def test_gc_killed_at_any_crash_point_loses_no_secret_that_a_save_names(
    tree: Tree, tmp_path: Path, sweep: Sweep
) -> None:
    work(tree, "done")
    work(tree, "still", until=1)
    aged(tree)
    template = tmp_path / "template"
    places = (("home", tree.cli.isolated.home), ("app", tree.folder))
    for name, place in places:
        shutil.copytree(place, template / name, symlinks=True)
    for nth in sweep:
        for name, place in places:
            shutil.rmtree(place)
            shutil.copytree(template / name, place, symlinks=True)
        died = tree.cli.killed_at(nth, *GC)
        assert lost(tree) == set(), f"killed at crash point {nth}"
        assert tree.cli.forked(*GC).code == 0
        assert lost(tree) == set(), f"killed at crash point {nth}"
        assert secrets(tree) == {"done-3", "still-1"}, f"killed at crash point {nth}"
        check_whole(private(tree) / "secrets.git")
        sweep.met(died)


# -- a dry run over budget ---------------------------------------------------------------------------------------------


def listed(said: Any) -> list[tuple[object, ...]]:
    return [
        tuple(each[key] for key in ("repository", "run", "task", "why", "removed")) for each in said["runs"]
    ]


def over_budget(tree: Tree, *more: str) -> Any:
    answer = tree.cli(*GC, "--json", *more, OUTLAST_SAVE_DISK_BUDGET_BYTES=str(1 << 20))
    assert answer.code == 0, answer.err
    return answer.json["saves"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("order", ["first", "last"])
def test_a_dry_run_tells_what_the_budget_takes_just_as_it_then_goes(tree: Tree, order: str) -> None:
    """The open run that comes last saved again what the one before it left: that is not kept twice."""
    still = work(tree, "still", until=1) if order == "first" else ""
    runs = [work(tree, f"task-{number}", beats=2, blob_bytes=300_000) for number in range(6)]
    still = still or work(tree, "still", until=1)
    aged(tree)
    before = tree.git("for-each-ref")
    packs = sorted(os.listdir(tree.folder / ".git/objects/pack"))
    would = over_budget(tree, "--dry-run")
    assert (tree.git("for-each-ref"), sorted(os.listdir(tree.folder / ".git/objects/pack"))) == (
        before,
        packs,
    )
    said = over_budget(tree)
    assert listed(would) == listed(said)
    gone = [each["run"] for each in said["runs"] if each["why"] == "budget"]
    assert gone == runs[:3]
    assert [each["run"] for each in said["runs"] if each["why"] == "over" and not each["kept"]] == sorted(
        gone
    )
    assert would["secrets"] == said["secrets"]
    assert said["secrets"][0]["removed"] == 6 + 3
    (foreseen,), (room,) = would["rooms"], said["rooms"]
    assert foreseen["bytes_before"] == room["bytes_before"] > 1 << 20 >= room["bytes_after"]
    assert abs(foreseen["bytes_after"] - room["bytes_after"]) < 20_000
    assert still in tree.git("for-each-ref", "refs/outlast")
    assert over_budget(tree)["runs"] == []
    tree.git("fsck", "--full", "--strict", "--no-dangling")


def test_gc_does_not_say_that_it_kept_what_goes_for_the_budget(tree: Tree) -> None:
    work(tree, "done", beats=1, blob_bytes=1_500_000)
    aged(tree)
    for more in (["--dry-run"], []):
        said = tree.cli(*GC, *more, OUTLAST_SAVE_DISK_BUDGET_BYTES=str(1 << 20)).err
        assert "(over save_disk_budget_bytes)" in said
        assert "kept: " not in said


def test_a_dry_run_foresees_anchors_of_an_earlier_gc_too(tree: Tree) -> None:
    for number in range(4):
        work(tree, f"task-{number}", beats=1, blob_bytes=400_000)
    aged(tree)
    assert [each["why"] for each in gc(tree)["runs"]] == ["over"] * 4
    aged(tree)
    would = over_budget(tree, "--dry-run")
    assert {each["why"] for each in would["runs"]} == {"budget"}
    assert listed(would) == listed(over_budget(tree))
    assert over_budget(tree, "--dry-run")["runs"] == []


def test_a_dry_run_within_the_budget_takes_no_anchor(tree: Tree) -> None:
    work(tree, "done", beats=1, blob_bytes=400_000)
    aged(tree)
    assert [each["why"] for each in over_budget(tree, "--dry-run")["runs"]] == ["over"]


def test_the_budget_takes_no_anchor_of_saves_that_an_open_run_needs(tree: Tree) -> None:
    work(tree, "done", beats=2, blob_bytes=700_000)
    tree.cli.ok("fork", "done", "--at", "1", "--task", "forked")
    aged(tree)
    for more in (["--dry-run"], [], []):
        assert over_budget(tree, *more)["runs"] == []
    tree.cli.ok("restore", "forked@1", "--with-secrets", "--force")
    assert (tree.folder / ".env").read_text() == "done-1"
