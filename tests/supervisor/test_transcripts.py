"""Our copy of an agent's transcript: it follows whole lines, and makes whole what a kill left torn, short or gone."""

import os
import shutil
from pathlib import Path

import pytest

from outlast.operations.transfer import sessions
from outlast.supervisor.agent.session.transcript_copy import Mirror
from outlast.workspace.git import refs
from tests.support import loopdisk
from tests.support.environment import skip_or_fail


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent").mkdir()
    return tmp_path / "agent"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / "s.jsonl"


def mirror(folder: Path) -> Mirror:
    return Mirror(folder, "claude", "s-1")


def kept(folder: Path, theirs: Path, data: bytes) -> Mirror:
    theirs.write_bytes(data)
    made = mirror(folder)
    made.follow(theirs)
    list(made.news())
    made.keep()
    return made


def test_only_whole_lines_are_read_and_each_once(folder: Path, theirs: Path) -> None:
    theirs.write_bytes(b'{"a":1}\n{"b"')
    made = mirror(folder)
    made.follow(theirs)
    assert list(made.news()) == [b'{"a":1}']
    assert list(made.news()) == []
    with theirs.open("ab") as file:
        file.write(b":2}\n")
    assert list(made.news()) == [b'{"b":2}']
    mark = made.keep()
    assert (mark.agent, mark.session, mark.path, mark.length) == ("claude", "s-1", str(theirs), 16)
    assert mirror(folder).content() == theirs.read_bytes()


def test_the_mark_tells_two_transcripts_of_one_length_apart(folder: Path, theirs: Path) -> None:
    first = kept(folder, theirs, b"one\n").mark
    assert kept(folder, theirs, b"two\n").mark.digest != first.digest


@pytest.mark.parametrize(
    ("found", "expected", "wrong"),
    [
        (b"one\ntwo\n", b"one\ntwo\n", ""),
        (b"one\ntwo\nthree\n", b"one\ntwo\nthree\n", ""),
        (b"one\ntwo\nthr", b"one\ntwo\n", "its last line was torn"),
        (b"one\ntw", b"one\ntwo\n", "it was shorter than our copy"),
        (b"one\n", b"one\ntwo\n", "it was shorter than our copy"),
        (b"", b"one\ntwo\n", "it was gone"),
        (None, b"one\ntwo\n", "it was gone"),
        (b"other\nlines\nof somebody\n", b"one\ntwo\n", "it was changed"),
    ],
)
def test_what_a_kill_left_is_made_whole(
    folder: Path, theirs: Path, found: bytes | None, expected: bytes, wrong: str
) -> None:
    kept(folder, theirs, b"one\ntwo\n")
    theirs.unlink()
    if found is not None:
        theirs.write_bytes(found)
    again = mirror(folder)
    assert again.reconcile(theirs) == (expected, wrong)
    again.rebuild(theirs, expected)
    assert theirs.read_bytes() == expected
    assert mirror(folder).content() == expected
    originals = [path.read_bytes() for path in folder.glob("*-found-*")]
    assert originals == ([found] if found and found != expected else [])
    with theirs.open("ab") as file:
        file.write(b"more\n")
    assert list(again.news()) == [b"more"]


def test_a_copy_that_was_cut_off_in_an_append_goes_on_from_its_mark(folder: Path, theirs: Path) -> None:
    made = kept(folder, theirs, b"one\n")
    copy = folder / "claude-s-1.jsonl"
    copy.write_bytes(copy.read_bytes() + b"half of a li")
    with theirs.open("ab") as file:
        file.write(b"two\n")
    assert mirror(folder).reconcile(theirs) == (b"one\ntwo\n", "")
    list(made.news())
    made.keep()
    assert mirror(folder).content() == b"one\ntwo\n"


def written_anew(theirs: Path, data: bytes, how: str) -> None:
    """Somebody takes the file away under a live agent, which goes on writing."""
    if how == "truncated":
        os.truncate(theirs, 0)
        with theirs.open("ab") as file:
            file.write(data)
        return
    fresh = theirs.with_name("fresh")
    fresh.write_bytes(data)
    fresh.rename(theirs)


each_way = pytest.mark.parametrize("how", ["truncated", "replaced"])


@each_way
def test_what_is_written_into_a_file_anew_is_added_to_the_copy_which_loses_nothing(
    folder: Path, theirs: Path, how: str
) -> None:
    made = kept(folder, theirs, b"one\ntwo\n")
    written_anew(theirs, b"three\n", how)
    assert list(made.news()) == [b"three"]
    assert made.keep().length == 14
    assert mirror(folder).content() == b"one\ntwo\nthree\n"
    with theirs.open("ab") as file:
        file.write(b"four\n")  # after the last look: the beat in flight
    assert mirror(folder).reconcile(theirs, made.mark) == (b"one\ntwo\nthree\nfour\n", "it was changed")


@each_way
def test_what_the_copy_holds_of_a_file_written_anew_is_not_told_again(
    folder: Path, theirs: Path, how: str
) -> None:
    made = kept(folder, theirs, b"head\none\none\n")
    written_anew(theirs, b"other head\none\none\none\n", how)
    assert list(made.news()) == [b"other head", b"one"]
    made.keep()
    assert mirror(folder).content() == b"head\none\none\nother head\none\n"


def test_a_file_that_was_cut_short_and_is_longer_again_is_no_longer_the_same(
    folder: Path, theirs: Path
) -> None:
    made = kept(folder, theirs, b"one\ntwo\n")
    written_anew(theirs, b"three is longer\n", "truncated")
    assert list(made.news()) == [b"three is longer"]


def test_a_file_that_is_gone_for_a_while_costs_nothing_that_was_read(folder: Path, theirs: Path) -> None:
    made = kept(folder, theirs, b"one\n")
    with theirs.open("ab") as file:
        file.write(b"two\n")
    assert list(made.news()) == [b"two"]
    theirs.unlink()
    assert list(made.news()) == []
    other = theirs.with_name("other.jsonl")
    other.write_bytes(b"three\n")
    made.follow(other)
    assert list(made.news()) == [b"three"]
    made.keep()
    assert mirror(folder).content() == b"one\ntwo\nthree\n"


def test_a_copy_that_exists_is_never_begun_anew(folder: Path, theirs: Path) -> None:
    kept(folder, theirs, b"one\n")
    kept(folder, theirs, b"two\n")
    assert mirror(folder).content() == b"one\ntwo\n"


def damaged(folder: Path) -> None:
    copy = folder / "claude-s-1.jsonl"
    copy.write_bytes(copy.read_bytes().replace(b"one", b"\0\0\0"))


def test_a_copy_that_is_not_what_its_mark_says_makes_nothing_whole(folder: Path, theirs: Path) -> None:
    mark = kept(folder, theirs, b"one\ntwo\n").mark
    damaged(folder)
    with theirs.open("ab") as file:
        file.write(b"three\n")
    again = mirror(folder)
    assert again.reconcile(theirs, mark) == (b"one\ntwo\nthree\n", "")
    again.rebuild(theirs, b"one\ntwo\nthree\n")
    assert mirror(folder).content() == theirs.read_bytes()


def test_where_copy_and_transcript_are_damaged_there_is_nothing_to_go_on_with(
    folder: Path, theirs: Path
) -> None:
    mark = kept(folder, theirs, b"one\ntwo\n").mark
    damaged(folder)
    theirs.write_bytes(b"one\n")
    data, wrong = mirror(folder).reconcile(theirs, mark)
    assert (data, bool(wrong)) == (b"", True)


def test_what_a_resume_needs_besides_is_copied_when_it_changes_and_comes_back(
    folder: Path, theirs: Path
) -> None:
    made, beside = mirror(folder), theirs.with_name("below") / "state.json"
    beside.parent.mkdir()
    beside.write_bytes(b"1")
    made.keep_beside([beside])
    beside.write_bytes(b"22")
    made.keep_beside([beside])
    mirror(folder).restore_beside([beside])
    shutil.rmtree(beside.parent)
    made.keep_beside([beside])
    mirror(folder).restore_beside([beside, theirs.with_name("never kept")])
    assert beside.read_bytes() == b"22"
    beside.write_bytes(b"333")
    mirror(folder).restore_beside([beside])
    assert beside.read_bytes() == b"333", "what is there is the agent's own"


def test_a_transcript_that_was_written_anew_with_the_same_beginning_goes_on(
    folder: Path, theirs: Path
) -> None:
    made = kept(folder, theirs, b"one\ntwo\n")
    fresh = theirs.with_name("fresh")
    fresh.write_bytes(b"one\ntwo\nthree\n")
    fresh.rename(theirs)
    assert list(made.news()) == [b"three"]


def test_a_sessions_name_cannot_lead_outside(folder: Path) -> None:
    Mirror(folder, "claude", "../../etc/x").rebuild(folder / "t", b"x\n")
    assert sorted(path.name for path in folder.iterdir()) == ["claude-.._.._etc_x.jsonl", "t"]


def test_what_a_failed_write_left_in_the_copy_is_cut_off(folder: Path, theirs: Path) -> None:
    made = kept(folder, theirs, b"one\n")
    copy = next(folder.glob("claude-*.jsonl"))
    copy.write_bytes(b"one\nhalf of what could not be wri")
    with theirs.open("ab") as file:
        file.write(b"two\n")
    list(made.news())
    made.keep()
    assert copy.read_bytes() == b"one\ntwo\n"


@pytest.mark.root
def test_what_was_kept_survives_a_power_cut_and_so_does_what_a_killed_attempt_only_copied(
    theirs: Path,
) -> None:
    if (reason := loopdisk.available()) is not None:
        skip_or_fail(reason)
    with loopdisk.LoopDisk() as disk:
        folder = disk.mount / "agent"
        folder.mkdir()
        refs.syncfs(disk.mount)
        theirs.write_bytes(b"one\n")
        first = mirror(folder)
        first.follow(theirs)
        list(first.news())
        mark = first.keep()
        theirs.write_bytes(b"one\ntwo\n")
        list(first.news())
        first.copy()
        copy = mirror(folder)._copy.name
        found = (disk.cut() / "agent" / copy).read_bytes()
        assert sessions.is_as(mark, found), "the save point names this"
        second = mirror(folder)
        mark = second.keep()  # the attempt was killed; the next one has nothing to add
        assert mark.length == 8
        assert sessions.is_as(mark, (disk.cut() / "agent" / copy).read_bytes())
        theirs.write_bytes(b"one\ntwo\nthree\n")
        second.follow(theirs, 8)
        list(second.news())
        mark = (
            second.keep()
        )  # by now its folder is not flushed, which brings some file systems to write more than names
        assert mark.length == 14
        assert sessions.is_as(mark, (disk.cut() / "agent" / copy).read_bytes())


def test_a_copy_is_flushed_once_a_beat_and_its_folder_once(
    folder: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{fd}")).suffix)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    made = mirror(folder)
    theirs.touch()
    made.follow(theirs)
    for beat in range(3):
        for number in range(4):
            with theirs.open("a") as file:
                file.write(f"{beat} {number}\n")
            list(made.news())
            made.copy()
            assert mirror(folder).content() == theirs.read_bytes(), "a kill takes nothing of it"
        assert flushed == []
        made.keep()
        assert flushed == ([".jsonl", ""] if beat == 0 else [".jsonl"])
        made.keep()
        flushed.clear()
