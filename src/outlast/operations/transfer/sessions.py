"""Our copies of agents' transcripts: what their files are called, and how they leave and arrive with a run."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from outlast import decoders, faults
from outlast.core import events as ev, secrets
from outlast.core.values import SessionMark
from outlast.operations.transfer import archive_file
from outlast.operations.transfer.archive_file import SESSIONS_MAX_BYTES, Copy, Entry, Manifest, damaged
from outlast.store import durable
from outlast.store.local import Local

_AGENT = re.compile(r"[a-z][a-z0-9-]{0,31}")

Known = tuple[str, str]  # agent and session


# -- names ---------------------------------------------------------------------------------------------------------


def name_of(agent: str, session: str, beside: str = "") -> str:
    """The file that holds the copy of a session's transcript, or of a small file that a resume needs besides.

    A copy that leaves is masked like the journal, line by line, so that each line still reads as what it was. The journal that goes
    with it has the marks of the masked copy, which is verified on arrival and at each resume like any other.
    """
    stem = f"{agent}-{_plain(session)}"
    return f"{stem}-beside-{_plain(beside)}" if beside else f"{stem}.jsonl"


def _plain(session: str) -> str:
    """A session's name as part of a file name."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in session)[:100] or "_"


# -- marks ---------------------------------------------------------------------------------------------------------


def is_as(mark: SessionMark, data: bytes) -> bool:
    """Whether this begins with what a save point's mark was made of."""
    return _digests(data, [mark.length])[mark.length] == mark.digest if mark.length else True


def _digests(data: bytes, lengths: Iterable[int]) -> dict[int, str]:
    """The digests of so many beginnings of it, in one pass."""
    hashing, view, at, found = hashlib.blake2b(digest_size=16), memoryview(data), 0, dict[int, str]()
    for length in sorted(set(lengths)):
        hashing.update(view[at:length])
        at, found[length] = length, hashing.hexdigest()
    return found


def marks_in(events: Iterable[ev.AnyEvent]) -> Iterator[SessionMark]:
    """Every mark of a session, in order."""
    for event in events:
        mark = event.session if isinstance(event, ev.SessionKnown | ev.BeatDone) else None
        if mark is not None:
            yield mark


def with_mark(event: ev.AnyEvent, marks: Mapping[SessionMark, SessionMark]) -> ev.AnyEvent:
    """The event with another mark, where there is one for it."""
    if not isinstance(event, ev.SessionKnown | ev.BeatDone) or event.session is None:
        return event
    now = marks.get(event.session)
    return event if now is None else msgspec.structs.replace(event, session=now)


# -- leaving -------------------------------------------------------------------------------------------------------


class SessionCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy that goes along or stays: of which run and session, how large it is, and what was masked in it."""

    run: str
    agent: str
    session: str
    beside: str = ""
    size: int
    masked: tuple[str, ...] = ()


class Leaving:
    """The copies of a family that leaves, as much of them as an archive may hold; the newest sessions go first."""

    def __init__(self, local: Local, *, masks: bool) -> None:
        self._local, self._masks, self._room = local, masks, SESSIONS_MAX_BYTES
        self.entries: dict[str, bytes] = {}
        self.copies: dict[str, Copy] = {}
        self.gone: list[SessionCopy] = []  # what goes along
        self.left: list[SessionCopy] = []  # what stays

    @property
    def digests(self) -> dict[str, Entry]:
        """The manifest's entries for these files: size and digest by name."""
        return {name: Entry(len(data), archive_file.digest_of(data)) for name, data in self.entries.items()}

    def journal(self, run: str, events: Sequence[ev.AnyEvent]) -> list[ev.AnyEvent]:
        """Take the copies of a run's sessions along; its events, with the marks of what goes."""
        marks: dict[Known, list[SessionMark]] = {}
        for mark in marks_in(events):
            known = mark.agent, mark.session
            marks[known] = [*marks.pop(known, []), mark]  # the one that was taken up last is the last
        now: dict[SessionMark, SessionMark] = {}
        for (agent, session), made in reversed(marks.items()):
            copy = Copy(run, agent, session)
            data = _whole(self._read(copy))
            masked = self._take(copy, data) if data else None
            if masked is not None:
                now |= _moved(made, data, masked)
                self._take_beside(copy)
        return [with_mark(event, now) for event in events]

    def _take_beside(self, copy: Copy) -> None:
        stem = name_of(copy.agent, copy.session, "x")[:-1]
        names = [
            path.name for path in self._local.agent_folder(copy.run).glob("*") if path.name.startswith(stem)
        ]
        for name in sorted(names):
            beside = msgspec.structs.replace(copy, beside=name.removeprefix(stem))
            data = self._read(beside)
            if data:
                self._take(beside, data)

    def _read(self, copy: Copy) -> bytes:
        """The bytes of a copy; empty where there is none, or where there is no room for it, which is noted."""
        name = name_of(copy.agent, copy.session, copy.beside)
        try:
            with (self._local.agent_folder(copy.run) / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size <= self._room and not _why_bad(copy):
                    return file.read(self._room)
        except OSError:
            return b""
        self.left.append(_session_copy(copy, size))
        return b""

    def _take(self, copy: Copy, data: bytes) -> "MaskedCopy | None":
        """What goes along of a copy; None where it stays."""
        masked = _mask(data) if self._masks else MaskedCopy(data)
        if len(masked.data) > self._room:
            self.left.append(_session_copy(copy, len(data)))
            return None
        entry = f"{archive_file.SESSIONS}{len(self.entries)}"
        self.entries[entry] = masked.data
        self.copies[entry] = msgspec.structs.replace(copy, masked=bool(masked.kinds))
        self.gone.append(_session_copy(copy, len(masked.data), masked.kinds))
        self._room -= len(masked.data)
        return masked


def _session_copy(copy: Copy, size: int, kinds: tuple[str, ...] = ()) -> SessionCopy:
    return SessionCopy(
        run=copy.run, agent=copy.agent, session=copy.session, beside=copy.beside, size=size, masked=kinds
    )  # fmt: skip


def _whole(data: bytes) -> bytes:
    """Without a line that was cut off while it was written."""
    return data[: data.rfind(b"\n") + 1]


class MaskedCopy(NamedTuple):
    """What is left of a copy, the kinds of what was masked, and where the ends of its lines were and are."""

    data: bytes
    kinds: tuple[str, ...] = ()
    ends: tuple[tuple[int, int], ...] = ()


def _mask(data: bytes) -> MaskedCopy:
    """A line of JSON stays one. Lines of other text are masked together: a secret may take several."""
    parts: list[bytes] = []
    ends: list[tuple[int, int]] = []
    kinds, was, now = set[str](), 0, 0
    for piece, is_json in _pieces(data):
        masked, found = secrets.mask_json(piece) if is_json else _mask_text(piece)
        kinds |= found
        parts.append(masked)
        was, now = was + len(piece), now + len(masked)
        ends.append((was, now))
    return MaskedCopy(b"".join(parts), tuple(sorted(kinds)), tuple(ends)) if kinds else MaskedCopy(data)


def _pieces(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Each line that is JSON, and the others that stand together."""
    others: list[bytes] = []
    for line in _lines(data):
        if not _is_json(line):
            others.append(line)
            continue
        if others:
            yield b"".join(others), False
            others = []
        yield line, True
    if others:
        yield b"".join(others), False


def _lines(data: bytes) -> list[bytes]:
    """Only a newline ends a line."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return [line for line in lines if line]


def _is_json(line: bytes) -> bool:
    try:
        decoders.decode(line, msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _is_json_of_half_characters(line)
    return True


def _is_json_of_half_characters(line: bytes) -> bool:
    """Whether a line is JSON although it is not valid UTF-8: an agent may cut a text in the middle of a character."""
    try:
        json.loads(line.decode("utf-8", "surrogateescape"), strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def _mask_text(data: bytes) -> tuple[bytes, secrets.Names]:
    text, kinds = secrets.mask(data.decode("utf-8", "surrogateescape"))
    return (text.encode("utf-8", "surrogateescape") if kinds else data), kinds


def _moved(marks: Sequence[SessionMark], data: bytes, masked: MaskedCopy) -> dict[SessionMark, SessionMark]:
    """The marks of the copy as it goes, by those of the copy as it was. One that was not true stays as it is."""
    if not masked.kinds:
        return {}
    at = dict(((0, 0), *masked.ends))
    true = _digests(data, (mark.length for mark in marks))
    known = [mark for mark in marks if mark.length in at and true[mark.length] == mark.digest]
    now = _digests(masked.data, (at[mark.length] for mark in known))
    return {
        mark: msgspec.structs.replace(mark, length=at[mark.length], digest=now[at[mark.length]])
        for mark in known
    }


# -- arriving ------------------------------------------------------------------------------------------------------


def check(path: Path, manifest: Manifest, journals: Mapping[str, Sequence[ev.AnyEvent]]) -> None:
    """Refuse copies that could not be written, and those of sessions that no event names. Nothing is written."""
    known = {
        run: {(mark.agent, mark.session) for mark in marks_in(events)} for run, events in journals.items()
    }
    seen: set[tuple[str, str]] = set()
    for entry, copy in manifest.sessions.items():
        where = copy.run, name_of(copy.agent, copy.session, copy.beside)
        why = _why_bad(copy)
        if not why and (copy.agent, copy.session) not in known.get(copy.run, ()):
            why = "belongs to a session that no event of its run names"
        if not why and where in seen:
            why = "is there twice"
        if why:
            raise damaged(path, f"entry {entry} {why}")
        seen.add(where)


def _why_bad(copy: Copy) -> str:
    """Why this is no copy of ours, empty where it may be one."""
    if not _AGENT.fullmatch(copy.agent) or not copy.session:
        return "does not belong to an agent's session"
    return "" if name_of(copy.agent, copy.session, copy.beside).isascii() else "has no proper name"


def arrive(local: Local, path: Path, manifest: Manifest, ids: Mapping[str, str]) -> None:
    """Put the copies of an archive that was verified where the runs, which have these ids here, will look for them."""
    if not manifest.sessions:
        return
    for entry, data in archive_file.read_sessions(path):
        copy = manifest.sessions[entry]
        folder = local.agent_folder(ids[copy.run])
        durable.make_folder(folder)
        durable.write_durably(folder / name_of(copy.agent, copy.session, copy.beside), data)
    faults.point("import.sessions")


def without_places(events: Iterable[ev.AnyEvent]) -> tuple[ev.AnyEvent, ...]:
    """The events of a run that arrives: where a transcript was elsewhere is nothing to write to here."""
    events = tuple(events)
    here = {mark: msgspec.structs.replace(mark, path="") for mark in marks_in(events) if mark.path}
    return tuple(with_mark(event, here) for event in events)
