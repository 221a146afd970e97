"""Our copy of an agent's transcript: it follows whole lines, and makes whole what a kill left torn, short or gone."""

from pathlib import Path

import pytest

from outlast.supervisor.transcripts import Mirror


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
    assert mirror(folder).kept() == theirs.read_bytes()


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
    assert mirror(folder).kept() == expected
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
    assert mirror(folder).kept() == b"one\ntwo\n"


def test_a_transcript_that_was_written_anew_is_read_from_its_beginning(folder: Path, theirs: Path) -> None:
    made = kept(folder, theirs, b"one\ntwo\n")
    fresh = theirs.with_name("fresh")
    fresh.write_bytes(b"zero\n")
    fresh.rename(theirs)
    assert list(made.news()) == [b"zero"]
    assert made.keep().length == 5
    assert mirror(folder).kept() == b"zero\n"


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
