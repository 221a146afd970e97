"""An agent's session goes with its run: our copies of its transcripts, masked, with the marks of what goes."""

import itertools
import json
import os
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from outlast.core import events as ev
from outlast.core.values import Contract, SessionMark
from outlast.operations.transfer import archive_file, sessions
from outlast.runs.opening.project import project_of
from outlast.store import open_store
from outlast.store.local import Local
from outlast.supervisor.agent.session.transcript_copy import Mirror
from tests.cli.command_line import Cli
from tests.cli.test_bad_input import changed, entries, pack, resealed
from tests.support import sweeps
from tests.support.sweeps import Sweep

RUN = "run000000001"
TOKEN = "ghp_" + "a1B2" * 9
AT = datetime(2026, 3, 1, tzinfo=UTC)


def line(text: str) -> bytes:
    return json.dumps({"type": "user", "text": text}).encode() + b"\n"


LINES = [line("hello"), line(f"the key is {TOKEN}, \ud83d"), b"no JSON, {TOKEN}\n".replace(b"{TOKEN}", TOKEN.encode()),
         line("after it"), line(f"a beat in flight with {TOKEN}")]  # fmt: skip


@dataclass(frozen=True)
class Worked:
    """A run of an agent that was killed in its third beat, in a store; our copies are in its folder."""

    cli: Cli
    mark: SessionMark

    @property
    def folder(self) -> Path:
        return Local(self.cli.root).agent_folder(RUN)


def put(cli: Cli, lines: list[bytes] = LINES, *, session: str = "s-1", path: str = "") -> Worked:
    """Two beats; the last line is of a third one, which no save point tells of."""
    folder = Local(cli.root).agent_folder(RUN)
    folder.mkdir(parents=True)
    theirs = cli.folder / "theirs.jsonl"
    events: list[ev.AnyEvent] = [ev.SessionKnown(at=AT, session=SessionMark("claude", session))]
    mirror = Mirror(folder, "claude", session)
    for beat, upto in enumerate((2, len(lines) - 1), 1):
        theirs.write_bytes(b"".join(lines[:upto]))
        mirror.follow(theirs, mirror.length)
        list(mirror.news())
        mark = SessionMark(*_fields(mirror.keep(), path or str(theirs)))
        events.append(ev.BeatDone(at=AT, beat=beat, session=mark))
    theirs.write_bytes(b"".join(lines))
    list(mirror.news())
    mirror.keep()
    (folder / f"claude-{session}-beside-state.json").write_text(json.dumps({"token": TOKEN}))
    (folder / "settings.json").write_text("our own, of this home")
    opened = ev.RunOpened(
        at=AT, run=RUN, task="1411", project=project_of(cli.folder), contract=Contract(goal="g")
    )
    store = open_store(cli.root)
    store.create(opened, events)
    store.close()
    return Worked(cli, mark)


def _fields(mark: SessionMark, path: str) -> tuple[Any, ...]:
    return mark.agent, mark.session, path, mark.length, mark.digest


def mark_there(cli: Cli, run: str = RUN) -> SessionMark | None:
    told = cli.show(run)["session"]
    return None if told is None else SessionMark(**{name: told[name] for name in told if name != "lanes"})


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else {}


@pytest.fixture
def there(cli: Cli, tmp_path: Path) -> Cli:
    return cli.empty(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.outlast.tar.gz"


def test_the_copies_go_along_masked_and_the_marks_are_those_of_what_went(
    cli: Cli, there: Cli, file: Path, tmp_path: Path
) -> None:
    worked = put(cli)
    told = cli.ok("export", "1411", "-o", file, "--json").json
    assert [(each["agent"], each["beside"]) for each in told["sessions"]] == [
        ("claude", ""),
        ("claude", "state.json"),
    ]
    assert told["sessions"][0]["masked"] == ["GitHub token"]
    assert told["sessions_left"] == []
    assert TOKEN.encode() not in b"".join(entries(file).values())
    taken = there.ok("import", file, "--json").json
    assert [each["masked"] for each in taken["sessions"]] == [True, True]

    arrived = files_of(Local(there.root).agent_folder(RUN))
    assert arrived.keys() == {"claude-s-1.jsonl", "claude-s-1-beside-state.json"}, (
        "what is ours to make stays"
    )
    lines = arrived["claude-s-1.jsonl"].splitlines()
    texts = [json.loads(each)["text"] for at, each in enumerate(lines) if at != 2]
    masked = "[masked:GitHub token]"
    assert texts == ["hello", f"the key is {masked}, \ud83d", "after it", f"a beat in flight with {masked}"]

    mark = mark_there(there)
    assert mark is not None
    assert (mark.path, mark.length) == ("", sum(len(each) + 1 for each in lines[:4])), (
        "the surplus begins there too"
    )
    assert sessions.is_as(mark, arrived["claude-s-1.jsonl"])
    mirror = Mirror(Local(there.root).agent_folder(RUN), "claude", "s-1")
    whole, wrong = mirror.reconcile(tmp_path / "new home" / "s-1.jsonl", mark)
    assert (whole, wrong) == (arrived["claude-s-1.jsonl"], "it was gone")
    assert mark_there(cli) == worked.mark, "here everything is as it was"


def test_with_secrets_they_are_byte_for_byte_what_they_were(cli: Cli, there: Cli, file: Path) -> None:
    worked = put(cli)
    answer = cli.ok("export", "1411", "-o", file, "--with-secrets")
    assert "agent session: claude s-1" in answer.err
    assert "masked" not in answer.err
    answer = there.ok("import", file)
    assert "imported the agent's session: claude s-1; `outlast resume` goes on in it" in answer.err
    assert files_of(Local(there.root).agent_folder(RUN)) == {
        name: data for name, data in files_of(worked.folder).items() if name != "settings.json"
    }
    mark = mark_there(there)
    assert mark is not None
    assert (mark.length, mark.digest) == (worked.mark.length, worked.mark.digest)


def test_a_damaged_copy_is_still_told_from_a_good_one_there(
    cli: Cli, there: Cli, file: Path, tmp_path: Path
) -> None:
    put(cli)
    cli.ok("export", "1411", "-o", file)
    there.ok("import", file)
    copy = Local(there.root).agent_folder(RUN) / "claude-s-1.jsonl"
    copy.write_bytes(copy.read_bytes().replace(b"hello", b"HELLO"))
    mark = mark_there(there)
    assert Mirror(copy.parent, "claude", "s-1").reconcile(tmp_path / "s", mark)[0] == b""


def test_an_older_transcript_is_not_gone_on_with_where_no_copy_came_along(cli: Cli, tmp_path: Path) -> None:
    """A run that comes back home finds a transcript there that ends before its last save point."""
    worked, folder = put(cli), tmp_path / "agent"
    folder.mkdir()
    stale = tmp_path / "s-1.jsonl"
    for data in (LINES[0], b"".join(LINES[:3]), b""):
        stale.write_bytes(data)
        assert Mirror(folder, "claude", "s-1").reconcile(stale, worked.mark)[0] == b""
    stale.write_bytes(b"".join(LINES))
    assert Mirror(folder, "claude", "s-1").reconcile(stale, worked.mark) == (b"".join(LINES), "")


def test_what_there_is_no_room_for_stays_and_that_is_said(
    cli: Cli, there: Cli, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked = put(cli)
    monkeypatch.setattr(sessions, "SESSIONS_MAX_BYTES", 100)
    answer = cli.forked("export", "1411", "-o", file)
    assert answer.code == 0, answer.err
    size = (worked.folder / "claude-s-1.jsonl").stat().st_size
    assert f"left out {size:,} bytes of claude s-1: no room" in answer.err
    assert archive_file.manifest_of(file).version == archive_file.VERSION_WITHOUT_FILES
    there.ok("import", file)
    assert files_of(Local(there.root).agent_folder(RUN)) == {}
    assert there.show(RUN)["beats"] == 2


def test_a_copy_brings_them_and_its_fork_has_a_session_of_its_own(cli: Cli, there: Cli, file: Path) -> None:
    put(cli)
    cli.ok("export", "1411", "-o", file, "--copy")
    answer = there.ok("import", file)
    assert "the fork starts a session of its own" in answer.err
    fork = there.show("1411-fork-1")
    assert (fork["beats"], fork["session"]) == (2, None)
    assert "claude-s-1.jsonl" in files_of(Local(there.root).agent_folder(fork["run"]))
    cli.ok("fork", "1411", "--at", "2", "--yes")
    assert cli.show("1411-fork-1")["session"] is None
    assert cli.show("1411")["session"]["session"] == "s-1"


def test_an_import_killed_anywhere_is_ended_by_the_same_command(
    cli: Cli, file: Path, tmp_path: Path, sweep: Sweep
) -> None:
    put(cli)
    cli.ok("export", "1411", "-o", file)
    whole: dict[str, bytes] = {}
    for nth in sweep:
        world = cli.empty(tmp_path / str(nth))
        died = world.killed_at(nth, "import", file)
        if died:
            again = world.forked("import", file)
            assert again.code == 0 or "already in this store" in again.err, (
                f"killed at crash point {nth}: {again.err}"
            )
        arrived = files_of(Local(world.root).agent_folder(RUN))
        whole = whole or arrived
        assert arrived == whole != {}, f"killed at crash point {nth}"
        sweep.met(died)
    assert sweep.total > 3


# -- hostile -----------------------------------------------------------------------------------------------------------


def hostile(good: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
    told = json.loads(good["manifest.json"])["sessions"]
    first = told["sessions/0"]

    def with_first(**fields: object) -> dict[str, bytes]:
        return changed(good, sessions=told | {"sessions/0": first | fields})

    sized = json.loads(good["manifest.json"])["digests"]
    sized["sessions/0"]["size"] = 1 << 40
    return {
        "agent as path": with_first(agent="../../../evil"),
        "agent with a slash": with_first(agent="claude/x"),
        "another run": with_first(run="run000000009"),
        "run as path": with_first(run="../../evil"),
        "a session nobody names": with_first(session="s-2"),
        "no session": with_first(session=""),
        "no proper name": with_first(beside="état"),
        "twice": changed(good, sessions=told | {"sessions/1": first}),
        "not in the manifest": changed(good, sessions={}),
        "not in the file": changed(good, sessions=told | {"sessions/7": first}),
        "no names": changed(good, sessions=[1, 2]),
        "another entry": resealed(good | {"sessions/../evil": b"x"}),
        "too large": changed(good, digests=sized),
        "another digest": good | {"sessions/0": good["sessions/0"].replace(b"hello", b"HELLO")},
    }


def test_a_hostile_session_is_refused_before_anything_is_written(
    cli: Cli, there: Cli, file: Path, tmp_path: Path
) -> None:
    put(cli)
    cli.ok("export", "1411", "-o", file)
    good, bad = entries(file), tmp_path / "bad.tar.gz"
    for case, contents in hostile(good).items():
        pack(bad, contents)
        answer = there.forked("import", bad)
        assert answer.code == 2, (case, answer.err)
        assert "bad.tar.gz" in answer.complaint, case
        assert there.rows().get("runs", []) == [], case
        assert not list((there.root / "runs").rglob("*.jsonl")), case
    link = tarfile.TarInfo("sessions/0")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    pack(bad, {name: data for name, data in good.items() if name != "sessions/0"}, link)
    assert there.forked("import", bad).code == 2
    pack(bad, good)
    assert there.forked("import", bad).code == 0


def test_where_a_transcript_was_is_nothing_to_write_to_here(
    cli: Cli, there: Cli, file: Path, tmp_path: Path
) -> None:
    put(cli, path=os.fspath(tmp_path / "somebody's own file"))
    cli.ok("export", "1411", "-o", file)
    there.ok("import", file)
    assert "somebody's own file" not in json.dumps(there.show(RUN)["session"])


# -- masking -----------------------------------------------------------------------------------------------------------

_texts = st.text(max_size=30) | st.just(f"x {TOKEN} y") | st.just("-----BEGIN PRIVATE KEY-----\nabc \ud83d")
_json_lines = st.recursive(
    _texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)
)
_lines = st.lists(
    _json_lines.map(lambda value: json.dumps(value).encode() + b"\n")
    | st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"") + b"\n"),
    max_size=12,
)


@settings(max_examples=sweeps.examples(100))
@given(_lines)
def test_masking_keeps_lines_of_json_and_the_way_from_each_end_to_its_own(lines: list[bytes]) -> None:
    data = b"".join(lines)
    masked = sessions._mask(data)
    assert TOKEN.encode() not in b"".join(part for part in masked.data.split(b"\n") if part.startswith(b'"'))
    if not masked.kinds:
        assert masked.data == data
        return
    at = dict(masked.ends)
    assert (max(at), at[max(at)]) == (len(data), len(masked.data))
    ends = list(itertools.accumulate(map(len, lines)))
    for start, end in itertools.pairwise([0, *ends]):
        was = data[start:end]
        if sessions._is_json(was) and start in {0, *at}:
            now = masked.data[at.get(start, 0) : at[end]]
            assert now.endswith(b"\n")
            assert now.count(b"\n") == 1
            assert type(json.loads(now)) is type(json.loads(was))
