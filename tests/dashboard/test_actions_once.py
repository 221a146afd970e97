"""The same form or key again does nothing again: not after a restart, not from another page, not after a kill."""

import multiprocessing
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from outlast.dashboard.actions import once
from outlast.dashboard.actions.once import OnceOnly
from outlast.dashboard.documents import Done, Wish
from outlast.dashboard.timing import Timing
from outlast.errors import RunRefused, StoreError
from outlast.store import open_store
from tests.support.processes import wait_for

WISH = Wish(act="budget", run="r", amounts="+10k")


def outcome(says: str = "done", *, ok: bool = True, changed: bool = True, wish: Wish = WISH) -> Done:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Done(
        wish=wish, at=at, by="alice", ok=ok, changed=changed, says=says, hint="", link="r", folder="/new"
    )


class ActionPage:
    """One page on a store."""

    def __init__(self, root: Path, timing: Timing | None = None) -> None:
        self.root = root
        self._store, self._pressed = open_store(root), OnceOnly(timing)

    def once(self, nonce: str, act: Callable[[], Done], wish: Wish) -> Done:
        return self._pressed.once(self._store.shelf, nonce, act, wish)

    def done(self, nonce: str) -> Done | None:
        return self._pressed.done(self._store.shelf, nonce)

    def path(self, nonce: str) -> Path:
        return self.root / "pressed" / f"{once._name(nonce)}.jsonl"


def never() -> Done:
    raise AssertionError("it is not done again")


def counting(done: Done) -> tuple[list[int], Callable[[], Done]]:
    acted: list[int] = []

    def act() -> Done:
        acted.append(1)
        return done

    return acted, act


def test_a_form_that_is_sent_twice_acts_once_and_others_wait(tmp_path: Path) -> None:
    pages, go, under_way = [ActionPage(tmp_path), ActionPage(tmp_path)], threading.Event(), threading.Event()
    acted: list[int] = []

    def act() -> Done:
        acted.append(1)
        under_way.set()
        go.wait(30)
        return outcome()

    with ThreadPoolExecutor(8) as pool:
        presses = [pool.submit(pages[n % 2].once, "n", act, WISH) for n in range(8)]
        assert under_way.wait(30)
        assert pages[0].done("n") is None, "it is under way"
        go.set()
        assert [press.result(30) for press in presses] == [outcome()] * 8
    assert acted == [1]
    assert pages[1].done("n") == outcome()


def test_an_outcome_is_known_after_a_restart_and_many_other_acts(tmp_path: Path) -> None:
    ActionPage(tmp_path).once("n", lambda: outcome("first"), WISH)
    for number in range(1_200):
        (tmp_path / "pressed" / f"{number}.jsonl").touch()
    again = ActionPage(tmp_path)
    assert again.once("n", never, WISH) == outcome("first")
    assert again.done("n") == outcome("first")


def test_another_wish_under_the_same_name_is_refused(tmp_path: Path) -> None:
    page = ActionPage(tmp_path)
    page.once("n", outcome, WISH)
    other = msgspec.structs.replace(WISH, amounts="+20k")
    with pytest.raises(RunRefused, match="for another request"):
        page.once("n", never, other)


def _killed(root: Path) -> None:
    def act() -> Done:
        (root / "begun").touch()
        os.kill(os.getpid(), 9)
        return outcome()

    ActionPage(root).once("n", act, WISH)


def test_what_was_begun_by_a_page_that_was_killed_is_not_done_again(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=_killed, args=(tmp_path,))
    process.start()
    process.join(30)
    assert (process.exitcode, (tmp_path / "begun").exists()) == (-9, True)
    page = ActionPage(tmp_path)
    for done in (page.once("n", never, WISH), page.done("n")):
        assert done is not None
        assert (done.ok, done.changed, done.link) == (False, False, "r")
        assert "outcome is unknown" in done.says
        assert "look at the run" in done.hint


def test_an_act_that_broke_down_is_of_unknown_outcome(tmp_path: Path) -> None:
    page = ActionPage(tmp_path)
    with pytest.raises(ZeroDivisionError):
        page.once("n", lambda: outcome(str(1 // 0)), WISH)
    assert "unknown" in page.once("n", never, WISH).says


def test_what_was_refused_is_shown_and_may_be_asked_again(tmp_path: Path) -> None:
    page = ActionPage(tmp_path)
    page.once("n", lambda: outcome("no", ok=False, changed=False), WISH)
    shown = page.done("n")
    assert shown is not None
    assert shown.says == "no"
    assert list((tmp_path / "pressed").iterdir()) == []
    acted, act = counting(outcome("yes"))
    assert page.once("n", act, WISH).says == "yes"
    shown = page.done("n")
    assert shown is not None
    assert (shown.says, acted) == ("yes", [1])


def test_the_wish_is_on_disk_before_the_act_with_room_for_its_outcome(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def act() -> Done:
        (path,) = (tmp_path / "pressed").iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.stat().st_blocks * 512 >= 4096
        seen.append(path.read_bytes())
        return outcome()

    ActionPage(tmp_path).once("n", act, WISH)
    assert msgspec.json.decode(seen[0].partition(b"\n")[0], type=Wish) == WISH


def test_what_is_torn_before_it_was_begun_is_done(tmp_path: Path) -> None:
    page = ActionPage(tmp_path)
    page.once("n", outcome, WISH)
    (path,) = (tmp_path / "pressed").iterdir()
    whole = path.read_bytes()
    first = whole.index(b"\n")
    for cut in (0, 1, first - 1, first):
        path.write_bytes(whole[:cut])
        acted, act = counting(outcome("now"))
        assert page.once("n", act, WISH).says == "now"
        assert acted == [1]
    for cut in (first + 1, first + 9, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert "unknown" in page.once("n", never, WISH).says


def test_where_nothing_can_be_written_nothing_is_done(tmp_path: Path) -> None:
    gone = ActionPage(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    (tmp_path / "pressed").touch()
    with pytest.raises(StoreError, match="nothing was done"):
        ActionPage(tmp_path).once("n", never, WISH)
    with pytest.raises(StoreError, match="nothing was done"):
        gone.once("n", never, WISH)
    assert not (tmp_path / "gone").exists()


def test_only_the_newest_of_a_week_are_kept_and_none_is_taken_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "RECORDS_MAX", 10)
    page = ActionPage(tmp_path)
    for number in range(12):
        page.once(f"n{number}", outcome, WISH)
        os.utime(page.path(f"n{number}"), (time.time() + number - 50,) * 2)
    old = time.time() - Timing().pressed_age_max_s - 5
    os.utime(page.path("n11"), (old, old))

    def act() -> Done:
        os.utime(page.path("now"), (old, old))
        other = ActionPage(tmp_path)
        other.once("another", outcome, WISH)
        assert page.path("now").exists(), "it is under way"
        return outcome()

    page.once("now", act, WISH)
    assert page.done("n11") is None, "a week ago"
    assert page.done("n0") is None
    assert page.done("n10") is not None


def test_a_name_that_is_none_is_not_kept(tmp_path: Path) -> None:
    page = ActionPage(tmp_path)
    for nonce in ("", "x" * 10_000):
        assert page.once(nonce, outcome, WISH) == outcome()
        assert page.done(nonce) is None


def test_who_waits_too_long_is_told_so(tmp_path: Path) -> None:
    go, under_way = threading.Event(), threading.Event()
    page = ActionPage(tmp_path, Timing(pressed_wait_s=0.0))

    def act() -> Done:
        under_way.set()
        go.wait(30)
        return outcome()

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(page.once, "n", act, WISH)
        assert under_way.wait(30)
        with pytest.raises(RunRefused, match="under way"):
            page.once("n", never, WISH)
        go.set()
        assert wait_for(first.done, 30)
