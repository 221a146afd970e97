"""A run's changes to its files, for the context of the next attempt: changed files and commits since the start."""

import os
from collections.abc import Iterable
from pathlib import Path

from outlast.core import events as ev
from outlast.core.state import RunState
from outlast.errors import OutlastError, SaveError
from outlast.runs.journal import Journal
from outlast.store.protocol import Store
from outlast.workspace import repo, saves
from outlast.workspace.git import command, objects, trees
from outlast.workspace.git.reader import ObjectReader

FILES_MAX = 100
COMMITS_MAX = 20
Lines = tuple[tuple[str, ...], tuple[str, ...]]


def count(store: Store, state: RunState) -> int | None:
    """How many files differ between the first and the newest save of a run; None where that is not known."""
    if not state.workspace or not state.save_point:
        return None
    local, folder = store.local, Path(state.workspace)
    try:
        place = repo.find(folder, local.private_of(Path(os.path.realpath(folder))))
        page = store.read(state.run, after=0, limit=1, tags=("save_made",)).events
        event = page[0].event if page else None
        first = event.commit if isinstance(event, ev.SaveMade) else state.save_point
        with ObjectReader(place.vault, command.environment(place.seeing())) as reader:
            old = saves.read(reader, first, place.algo).tree
            new = saves.read(reader, state.last_save or state.save_point, place.algo).tree
            return sum(1 for _ in _changes(reader, place.algo, old, new))
    except (OutlastError, OSError):
        return None


def look(journal: Journal) -> Lines:
    """Files with what happened to them and their digest; commits since the start. Nothing where there is no save."""
    state = journal.state
    if not state.workspace or not state.save_point:
        return (), ()
    folder = Path(state.workspace)
    try:
        place = _place(folder, journal)
        with ObjectReader(place.vault, command.environment(place.seeing())) as reader:
            first = saves.read(reader, _first(journal) or state.save_point, place.algo)
            last = saves.read(reader, state.save_point, place.algo)
            return _files(reader, place.algo, first.tree, last.tree), _commits(place, first.meta.head)
    except SaveError as error:
        return (f"(not known: {error})",), ()


def _place(folder: Path, journal: Journal) -> repo.Repo:
    """The workspace's repository and vault."""
    return repo.find(folder, journal.store.local.private_of(Path(os.path.realpath(folder))))


def _first(journal: Journal) -> str:
    made = journal.events("save_made")
    return next(
        (event.commit for event in made if isinstance(event, ev.SaveMade) and event.kind == "beat"), ""
    )


def _files(reader: ObjectReader, algo: objects.Algo, first: str, last: str) -> tuple[str, ...]:
    lines = [_line(*change) for change in _changes(reader, algo, first, last)]
    more = len(lines) - FILES_MAX
    return (*lines[:FILES_MAX], f"… and {more:,} more") if more > 0 else tuple(lines)


def _changes(reader: ObjectReader, algo: objects.Algo, first: str, last: str) -> Iterable[trees.Change]:
    empty = objects.oid_of("tree", b"", algo)

    def read(oid: str) -> bytes:
        return b"" if oid == empty else reader.read(oid)[1]

    return trees.diff(first, last, read, algo)


def _line(path: bytes, old: objects.Entry | None, new: objects.Entry | None) -> str:
    name = os.fsdecode(path).encode("utf-8", "backslashreplace").decode()
    if new is None:
        return f"{name} (deleted)"
    return f"{name} ({'new' if old is None else 'edited'}, {new.oid[:10]})"


def _commits(place: repo.Repo, since: str) -> tuple[str, ...]:
    if place.shadow or not repo.head(place).oid:
        return ()
    words = [
        "log",
        "--no-show-signature",
        "--no-mailmap",
        "--format=%h %s",
        f"-{COMMITS_MAX}",
        f"{since}..HEAD" if since else "HEAD",
        "--",
    ]
    output = command.run(words, git_dir=place.git_dir, ok=(0, 128))
    return tuple(output.decode(errors="backslashreplace").splitlines())
