"""Saves as a person handles them, below the command line: which folder, which save, when, and what may go."""

import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from outlast.errors import SaveDamaged, UsageError
from outlast.operations import bisect, watch
from outlast.operations.bisect import Verdict
from outlast.operations.gc import saves as gc_saves
from outlast.operations.saves.find import HAND, Saves
from outlast.store import open_store
from outlast.store.local import Local
from outlast.workspace import saves
from outlast.workspace.compact import chain as chains, prune
from outlast.workspace.git import objects
from outlast.workspace.git.packs import PackWriter
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.repo import workspace_around
from outlast.workspace.types import Purpose
from tests.support.environment import TIMEOUT_S, Isolated
from tests.support.vaults import git_words, seeing


def git(folder: Path, *words: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["git", *git_words(folder, words), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ | seeing(folder),
    )
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout.strip()


@pytest.fixture(params=["sha1", "sha256"])
def folder(
    request: pytest.FixtureRequest, state: Isolated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    made = tmp_path / "app"
    made.mkdir()
    monkeypatch.chdir(made)
    git(made, "init", "-q", f"--object-format={request.param}")
    (made / "file").write_text("one\n")
    git(made, "add", ".")
    git(made, "commit", "-qm", "first")
    return made


@pytest.fixture
def desk(folder: Path, state: Isolated) -> Iterator[Saves]:
    made = Saves(Local(state.state_home / "outlast"), None, str(folder), None)
    yield made
    made.close()


# -- which folder ------------------------------------------------------------------------------------------------------


def test_the_workspace_is_the_repository_around_and_never_a_whole_home(
    state: Isolated, tmp_path: Path
) -> None:
    below = tmp_path / "app/deep/er"
    below.mkdir(parents=True)
    assert workspace_around(below) == below
    (tmp_path / "app/.git").mkdir()
    assert workspace_around(below) == below, "an empty folder called .git is not a repository"
    (tmp_path / "app/.git/config").touch()
    assert workspace_around(below) == tmp_path / "app", "a damaged one keeps its saves"
    mine = state.home / "project"
    mine.mkdir()
    (state.home / ".git/objects").mkdir(parents=True)  # people keep their dot files so
    assert workspace_around(mine) == mine


def test_worktrees_are_found_four_folders_deep_and_not_in_hidden_or_heavy_ones(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for place in (
        "a/.git",
        "a/inside/.git",
        "b/c/d/e/.git",
        "b/c/d/f/g/.git",
        ".hidden/.git",
        "node_modules/x/.git",
    ):
        (root / place).mkdir(parents=True)
    (root / "loop").symlink_to(root)
    assert set(watch.worktrees([root])) == {root / "a", root / "b/c/d/e"}
    assert watch.worktrees([root / "a/inside", root / "a"]) == [root / "a/inside", root / "a"]
    assert watch.worktrees([root / "b/c"]) == [root / "b/c/d/e", root / "b/c/d/f/g"]


# -- which save --------------------------------------------------------------------------------------------------------


def test_a_save_is_found_by_commit_beginning_and_ref(desk: Saves, folder: Path) -> None:
    (folder / "file").write_text("two\n")
    made = desk.save("words")
    assert made.commit is not None
    assert made.ref is not None
    for name in (made.commit, made.commit[:4], made.ref, made.ref.removeprefix("refs/outlast/")):
        assert desk.find(name).held.commit == made.commit
    for name in (
        "",
        "abc",
        "HEAD",
        git(folder, "rev-parse", "HEAD"),
        f"{made.commit}~1",
        "../../HEAD",
        "a b",
        "@3",
    ):
        with pytest.raises(UsageError):
            desk.find(name)
    for part in ("^2", "^2^2"):
        with pytest.raises(UsageError):
            desk.find(git(folder, "rev-parse", f"{made.commit}{part}"))
    git(folder, "update-ref", "refs/outlast/hand/wrong", git(folder, "rev-parse", "HEAD"))
    with pytest.raises(SaveDamaged):
        desk.find("hand/wrong")


def test_a_beginning_that_fits_several_saves_lists_them(desk: Saves, folder: Path) -> None:
    (folder / "file").write_text("two\n")
    made = desk.save().commit
    assert made is not None
    place = desk.saver().repo()
    like = objects.parse_commit(desk.saver().reader().read(made)[1])
    seen: dict[str, bytes] = {}
    for number in itertools.count():  # saves that differ in a word, until two have the same beginning
        data = objects.commit_bytes(like.tree, like.parents, objects.WHO, like.at, f"{number}\n")
        oid = objects.oid_of("commit", data, place.algo)
        if oid[:4] in seen:
            break
        seen[oid[:4]] = data
    with PackWriter(place.packs, place.algo) as pack:
        twins = sorted([pack.add("commit", data), pack.add("commit", seen[oid[:4]])])
        pack.close()
    desk.saver().close()
    with pytest.raises(UsageError, match=f"fits 2 saves: {twins[0][:12]}, {twins[1][:12]}"):
        desk.find(oid[:4])
    assert desk.find(twins[0][:20]).held.commit == twins[0]


# -- when a watched worktree is saved ----------------------------------------------------------------------------------


def paced(changes: set[int], seconds: int) -> list[int]:
    """The seconds at which a worktree is saved that changes at these."""
    pace, found = watch.Pace(), []
    for now in range(seconds):
        if now in changes:
            pace.changed(now)
        if pace.is_due(now):
            found.append(now)
            pace.saved(now)
    return found


def test_a_change_is_saved_two_seconds_later_and_again_when_it_is_quiet() -> None:
    assert paced({5}, 100) == [7]
    assert paced({5, 6, 7}, 100) == [9]
    assert paced({5, 9}, 100) == [7, 19]
    assert paced({5, 60}, 100) == [7, 62]
    assert paced(set(), 100) == []


def test_a_worktree_that_never_rests_is_saved_once_in_thirty_seconds() -> None:
    assert paced(set(range(5, 200)), 200) == [35, 66, 97, 128, 159, 190]
    every_third = paced(set(range(0, 300, 3)), 300)
    assert all(later - earlier >= 30 for earlier, later in itertools.pairwise(every_third))
    assert len(every_third) >= 9


# -- bisect ------------------------------------------------------------------------------------------------------------


def test_a_search_finds_the_first_bad_place_and_asks_little(rng: Random) -> None:
    for _ in range(300):
        count, begun = rng.randint(1, 60), rng.randint(0, 1)
        turns = rng.randint(0, count)
        asked: list[int] = []

        def verdict(at: int, asked: list[int] = asked, turns: int = turns) -> Verdict:
            asked.append(at)
            return "bad" if at >= turns else "good"

        outcome, bad, good = bisect.search(min(begun, count - 1), count, verdict)
        assert len(asked) == len(set(asked)) <= 10
        if turns >= count:
            assert (outcome, bad, good) == ("never", None, count - 1)
        elif turns == 0:
            assert (outcome, good) == ("first", None)
        else:
            assert (outcome, bad, good) == ("found", turns, turns - 1)


def test_a_search_with_skips_never_blames_a_place_before_a_good_one(rng: Random) -> None:
    for _ in range(300):
        count = rng.randint(1, 30)
        turns = rng.randint(0, count)
        truth: list[Verdict] = [
            "skipped" if rng.random() < 0.4 else "bad" if at >= turns else "good" for at in range(count)
        ]
        outcome, bad, good = bisect.search(0, count, truth.__getitem__)
        bads = [at for at in range(count) if truth[at] == "bad"]
        goods = [at for at in range(count) if truth[at] == "good"]
        if not bads:
            assert outcome == ("never" if goods else "unclear")
        elif not goods:
            assert (outcome, bad) == ("first", bads[0])
        else:
            assert (bad, good) == (bads[0], goods[-1])
            assert outcome == ("found" if bads[0] - goods[-1] == 1 else "unclear")


# -- thinning ----------------------------------------------------------------------------------------------------------


def chain_of(desk: Saves, folder: Path, run: str, count: int) -> list[saves.SaveContents]:
    """Saves of a run, oldest first."""
    for number in range(count):
        (folder / "file").write_text(f"{run} {number}\n")
        desk.saver().capture(Purpose(kind="beat", run=run, task="t", beat=number + 1))
    return list(saves.chain(desk.saver().repo(), desk.saver().reader(), run))[::-1]


def test_a_thinned_chain_holds_the_kept_saves_and_nothing_else(desk: Saves, folder: Path) -> None:
    held = chain_of(desk, folder, "run", 6)
    place, keep = desk.saver().repo(), [held[1], held[4]]
    with ObjectReader(place.vault, dict(os.environ)) as reader:
        chains.thin(place, reader, "run", keep, anchor=True)
        left = list(saves.chain(place, reader, "run"))
    assert [each.tree for each in left] == [held[4].tree, held[1].tree]
    assert [each.meta.number for each in left] == [2, 1]
    assert [each.meta.beat for each in left] == [5, 2]
    assert git(folder, "for-each-ref", "--format=%(refname)", "refs/outlast") == "refs/outlast/run/kept"
    reached = git(folder, "rev-list", "--objects", "refs/outlast/run/kept").split()
    assert not {held[n].commit for n in range(6)} & set(reached)
    assert git(folder, "log", "-1", "--format=%s%n%ct", left[0].commit) == git(
        folder, "log", "-1", "--format=%s%n%ct", held[4].commit
    )
    git(folder, "fsck", "--strict", "--no-dangling")


def test_a_save_in_the_middle_of_a_merge_keeps_what_the_merge_needs_when_it_is_thinned(
    desk: Saves, folder: Path
) -> None:
    git(folder, "switch", "-qc", "other")
    (folder / "file").write_text("theirs\n")
    git(folder, "commit", "-qam", "theirs")
    theirs = git(folder, "rev-parse", "HEAD")
    git(folder, "switch", "-q", "-")
    (folder / "file").write_text("ours\n")
    git(folder, "commit", "-qam", "ours")
    chain_of(desk, folder, "run", 1)
    git(folder, "checkout", "-q", "file")
    subprocess.run(
        ["git", "-C", folder, "merge", "-q", "other"], capture_output=True, check=False, timeout=TIMEOUT_S
    )
    desk.saver().capture(Purpose(kind="emergency", run="run", task="t"))
    place = desk.saver().repo()
    with ObjectReader(place.vault, dict(os.environ)) as reader:
        newest = saves.newest(place, reader, "run")
        assert newest is not None
        chains.thin(place, reader, "run", [newest], anchor=True)
        left = saves.newest(place, reader, "run")
    assert left is not None
    assert (left.previous, left.meta.number) == ("", 1)
    assert theirs in git(folder, "rev-list", left.commit).split()
    assert git(folder, "show", f"{left.commit}^2^2:stages/3/file") == "theirs"


def test_shedding_gives_back_what_nothing_reaches_and_spares_the_young(desk: Saves, folder: Path) -> None:
    (folder / "big").write_bytes(os.urandom(300_000))
    held = chain_of(desk, folder, "run", 3)
    (folder / "big").unlink()
    last = chain_of(desk, folder, "run", 4)[-1]
    place = desk.saver().repo()
    with ObjectReader(place.vault, dict(os.environ)) as reader:
        chains.thin(place, reader, "run", [last], anchor=True)
    before = prune.packed_bytes(place)
    assert prune.rewrite_packs(place) == 0
    assert prune.packed_bytes(place) == before
    for path in place.packs.iterdir():
        os.utime(path, (time.time() - 3600,) * 2)
    assert prune.rewrite_packs(place) > 290_000
    assert prune.rewrite_packs(place) == 0
    kept = git(folder, "rev-parse", "refs/outlast/run/kept")
    assert git(folder, "rev-parse", f"{kept}^{{tree}}") == last.tree
    assert held[0].commit not in git(folder, "cat-file", "--batch-all-objects", "--batch-check")
    git(folder, "fsck", "--strict", "--no-dangling")
    desk.saver().close()
    assert desk.save().commit is not None  # and saving goes on


def test_saves_of_a_run_that_this_store_does_not_know_are_left_alone(
    desk: Saves, folder: Path, state: Isolated
) -> None:
    chain_of(desk, folder, "elsewhere", 3)
    for number in range(3):
        (folder / "file").write_text(f"watched {number}\n")
        desk.saver().capture(Purpose(kind="watch", run=HAND))
    before = git(folder, "for-each-ref", "refs/outlast/elsewhere")
    root = state.state_home / "outlast"
    store = open_store(root)
    try:
        terms = gc_saves.Terms(older_than=timedelta(0), now=datetime.now(UTC), budget_bytes=1)
        done = gc_saves.thin(store, terms)
    finally:
        store.close()
    assert [(each.run, each.why, each.removed) for each in done.runs] == [(HAND, "old", 2)]
    assert done.failed == ()
    assert done.rooms[0].is_over  # and it says so
    assert git(folder, "for-each-ref", "refs/outlast/elsewhere") == before
