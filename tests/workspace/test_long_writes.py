"""A file that is in the middle of a write when a save reads it: no later stat shows it, so it is read again."""

import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlast.workspace.capture import refresh_index, stat_cache
from outlast.workspace.capture.stat_cache import FileAges, KnownFile, Memo, Moment
from outlast.workspace.timing import Timing
from tests.support import held_write, processes
from tests.support.environment import skip_or_fail
from tests.support.held_write import HeldWrite
from tests.workspace.workspace import Workspace

S = 1_000_000_000
OLD, NEW = b"o" * (4 << 20), b"n" * (4 << 20)


@pytest.fixture
def one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, the writes of these tests are not over yet."""
    monkeypatch.setenv("OUTLAST_TIMING", "workspace.one_write_s=3600")


def wait_until_old(path: Path) -> None:
    """Until the file's times are older than any clock is coarse."""
    processes.wait_for(lambda: time.time_ns() - path.stat().st_ctime_ns > S // 4)


def stamp(path: Path) -> tuple[int, ...]:
    told = path.stat()
    return told.st_mtime_ns, told.st_ctime_ns, told.st_size, told.st_ino


def begin_with_held_write(path: Path) -> Iterator[None]:
    """One write, held in the middle while the caller saves."""
    if (reason := held_write.available()) is not None:
        skip_or_fail(reason)
    with HeldWrite(path, NEW) as held:
        wait_until_old(path)
        during = stamp(path)
        yield
        held.finish()
        assert stamp(path) == during, "no stat shows that the write went on"
        yield


def begin_with_mapped_memory(path: Path) -> Iterator[None]:
    """Stores into mapped memory: the kernel sets the times with the first store into a page, and again after a flush."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:1] = memory[:1]
        wait_until_old(path)
        yield
        memory[:4096] = b"m" * 4096
        yield


WRITERS = [
    pytest.param(begin_with_held_write, marks=pytest.mark.root, id="one write"),
    pytest.param(begin_with_mapped_memory, id="mapped memory"),
]


@pytest.mark.usefixtures("one_write")
@pytest.mark.parametrize("hinted", [False, True], ids=["look", "hints"])
@pytest.mark.parametrize("name", ["a.txt", "new", ".env"], ids=["tracked", "untracked", "secret"])
@pytest.mark.parametrize("begin", WRITERS)
def test_a_file_read_in_the_middle_of_a_write_is_read_again(
    begin: Callable[[Path], Iterator[None]], name: str, hinted: bool, place: Workspace
) -> None:
    place.write(name, OLD)
    if hinted:
        place.saver.watch()
    place.save("beat")
    writing = begin(place.folder / name)
    next(writing)
    place.save("beat")
    next(writing)
    last = place.save("beat")
    held = place.held(last)
    if name == ".env":
        [secret] = held.meta.secrets
        done = place.git_in(place.saver.private / "secrets.git", "cat-file", "blob", secret.oid)
        assert done.stdout == (place.folder / name).read_bytes()
    else:
        assert place.content(last, name) == (place.folder / name).read_bytes()
    assert list(writing) == []


@pytest.mark.usefixtures("one_write")
@pytest.mark.parametrize("begin", WRITERS)
def test_a_file_in_the_middle_of_a_write_is_not_taken_into_the_private_index(
    begin: Callable[[Path], Iterator[None]], place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.workspace.capture.refresh_index.TAKE_IN_ABOVE", -1)
    place.write("a.txt", OLD)
    place.sh("git add a.txt; git commit -qm big")
    place.save()
    writing = begin(place.folder / "a.txt")
    next(writing)
    place.save()
    place.saver.tend()
    next(writing)
    assert place.content(place.save(), "a.txt") == (place.folder / "a.txt").read_bytes()
    assert list(writing) == []


@pytest.mark.usefixtures("one_write")
@pytest.mark.parametrize("begin", WRITERS)
def test_a_write_that_begins_before_the_index_is_refreshed_is_found(
    begin: Callable[[Path], Iterator[None]], place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is still as the index has it, with the times of the write: git would note them as the file's."""
    monkeypatch.setattr("outlast.workspace.capture.refresh_index.TAKE_IN_ABOVE", -1)
    place.write("a.txt", NEW[: 2 << 20] + OLD[2 << 20 :])  # a writer's first half changes nothing
    place.sh("git add a.txt; git commit -qm big")
    place.save()
    place.write("other", b"1")
    place.save()
    writing = begin(place.folder / "a.txt")
    next(writing)
    place.saver.tend()
    next(writing)
    assert place.content(place.save(), "a.txt") == (place.folder / "a.txt").read_bytes()
    assert list(writing) == []


@pytest.mark.usefixtures("one_write")
@pytest.mark.parametrize("begin", WRITERS)
def test_a_write_that_begins_before_the_first_save_is_found(
    begin: Callable[[Path], Iterator[None]], place: Workspace
) -> None:
    place.write("a.txt", NEW[: 2 << 20] + OLD[2 << 20 :])  # a writer's first half changes nothing
    place.sh("git add a.txt; git commit -qm big")
    writing = begin(place.folder / "a.txt")
    next(writing)
    place.save()
    next(writing)
    assert place.content(place.save(), "a.txt") == (place.folder / "a.txt").read_bytes()
    assert list(writing) == []


def test_the_private_index_is_trusted_when_a_later_look_compared_it(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else git would read such files with every save."""
    place.write("a.txt", OLD)
    place.sh("git add a.txt; git commit -qm big")
    place.save()
    index = place.saver.base().index
    assert index.stat().st_mtime_ns < place.folder.joinpath("a.txt").stat().st_mtime_ns
    later_ns = time.time_ns() + 3 * S
    monkeypatch.setattr("time.time_ns", lambda: later_ns)
    place.save()
    assert index.stat().st_mtime_ns > place.folder.joinpath("a.txt").stat().st_mtime_ns


def test_the_private_index_is_not_told_of_young_files() -> None:
    old, young = KnownFile(0o100644, "a", 0, 1, 1, 7), KnownFile(0o100644, "b", 0, 1, 1, 8, young_ns=1)
    area = stat_cache.Area({b"old": old, b"young": young}, {b"gone"})
    assert refresh_index.index_updates(area) == {b"old": (0o100644, "a"), b"gone": None}
    assert (area.exceeds(1), area.exceeds(2)) == (True, False)


def test_a_file_that_is_old_enough_is_not_read_again(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_TIMING", "workspace.one_write_s=0")
    place.write("new", b"1")
    wait_until_old(place.folder / "new")
    place.save()
    entries = place.saver.remembered().areas[b""].entries  # type: ignore[union-attr]
    assert entries[b"new"].young_ns == 0


# -- how old is old enough -------------------------------------------------------------------------------------------


def told(size: int = 0, mtime_ns: int = 1, ctime_ns: int = 1, mode: int = 0o100644) -> os.stat_result:
    return os.stat_result((mode, 7, 0, 1, 0, 0, size, 0, 0, 0, 0.0, 0.0, 0.0, 0, mtime_ns, ctime_ns))


AT = Moment(1_000_000 * S + 1, 500 * S)
"""When the file is read."""


def known(
    age_s: float, *, since: KnownFile | None = None, later_s: float = 0, oid: str = "a", **more: int
) -> KnownFile:
    changed = AT.wall_ns - int(age_s * S)
    at = Moment(AT.wall_ns + int(later_s * S), AT.steady_ns + int(later_s * S))
    memory = Memo(ahead_ns=at.wall_ns - at.steady_ns)
    stat = told(**{"mtime_ns": changed, "ctime_ns": changed} | more)
    return FileAges(memory, Timing(one_write_s=2.0), at).known_file(stat, oid, at, None, since)


@pytest.mark.parametrize(
    ("age_s", "more", "young"),
    [
        (1.9, {}, True),
        (2.1, {}, False),
        (2.1, {"size": 100_000_000}, True),
        (11.9, {"size": 100_000_000}, True),
        (12.1, {"size": 100_000_000}, False),
        (1.9, {"mtime_ns": 1}, True),  # `touch -d`, `cp -p`, tar: the time of change says it
        (1.9, {"ctime_ns": 1}, True),  # a file system that has none
        (-3600, {}, True),  # a clock was set back
    ],
)
def test_how_long_ago_a_file_must_have_changed(age_s: float, more: dict[str, int], young: bool) -> None:
    assert bool(known(age_s, **more).young_ns) is young


def test_times_in_whole_seconds_may_be_rounded_down() -> None:
    whole = AT.wall_ns // S * S
    assert known(0, mtime_ns=whole - 3 * S, ctime_ns=whole - 3 * S).young_ns
    assert not known(0, mtime_ns=whole - 4 * S, ctime_ns=whole - 4 * S).young_ns


def test_a_file_that_stays_the_same_for_long_enough_is_old_whatever_its_times_say() -> None:
    ahead = -3600
    first = known(ahead)
    assert first.young_ns
    assert known(ahead, since=first, later_s=1.9).young_ns == first.young_ns
    assert not known(ahead, since=first, later_s=2.1).young_ns
    assert known(ahead, since=first, later_s=2.1, oid="b").young_ns, "it had other bytes in between"
    assert known(ahead, since=first, later_s=2.1, size=1).young_ns, "it looks different"


def test_after_a_clock_was_set_no_age_is_believed() -> None:
    long_ago = told(mtime_ns=AT.wall_ns - 3600 * S, ctime_ns=AT.wall_ns - 3600 * S)
    old = KnownFile(0o100644, "a", 0, 1, 1, 7)
    for step_ns in (3600 * S, -3600 * S):
        memory = Memo(ahead_ns=AT.wall_ns - AT.steady_ns - step_ns)
        memory.areas[b""] = stat_cache.Area({b"x": old})
        memory.secrets[b".env"] = old
        ages = FileAges(memory, Timing(one_write_s=2.0), AT)
        assert ages.known_file(long_ago, "a", AT, None, None).young_ns
        assert memory.areas[b""].entries[b"x"].young_ns
        assert memory.secrets[b".env"].young_ns
        again = FileAges(memory, Timing(one_write_s=2.0), AT)
        assert not again.known_file(long_ago, "a", AT, None, None).young_ns, "it was set once"
