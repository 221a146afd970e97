"""Export and import: a run leaves one store and goes on in another, sealed behind it so that only one place works.

No fence spans two stores: the seal is what keeps the source from starting again. Killed anywhere, the same command
again ends right: an export is written afresh, an import finds its blobs there and its run not.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from outlast import faults, settings
from outlast._version import __version__
from outlast.core import events as ev
from outlast.core import state as st
from outlast.core.values import ForkPoint, Payload
from outlast.errors import OutlastError, RunExists, RunRefused, UsageError
from outlast.runs import acts, archive_file, endings, find, fork, gather
from outlast.runs.archive_file import Contents, Entry, Manifest, damaged
from outlast.runs.heartbeat import Heartbeat
from outlast.runs.journal import Journal
from outlast.runs.payloads import blobs_in
from outlast.runs.terms import new_id, task_name
from outlast.store.files import sync_folder
from outlast.store.protocol import LEASE_TTL_S, Summary, Where
from outlast.store.sqlite import SqliteStore

SUFFIX = ".outlast.tar.gz"
CHILDREN_MAX = 100_000

Events = tuple[ev.AnyEvent, ...]


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was written where."""

    run: str
    task: str
    path: str
    copy: bool
    events: int
    blobs: int
    size: int
    sealed_before: bool = False


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What is here now. `commands` are its checks and invariants, which going on with it will run here."""

    run: str
    task: str
    project: str
    beats: int
    copy: bool
    children: int
    commands: tuple[str, ...]


# -- export ------------------------------------------------------------------------------------------------------------


def export(store: SqliteStore, summary: Summary, target: Path | None, *, copy: bool = False) -> Exported:
    """Write the run into one file and seal it here; with `copy` it stays live, and the import will be a fork.

    The file has its name only when it is whole, durable, and the run sealed. Raises RunHeld, RunRefused, UsageError.
    """
    if summary.root != summary.run:
        raise RunRefused(
            f"run {summary.run} is a child and goes with its root",
            hint=f"`outlast export {summary.root}`",
        )
    status = find.shown_status(store, summary.state, summary.run)
    acts.allow(summary.state, status, "fork" if copy else "export")
    path = _target(target, summary)
    with archive_file.partial(path) as (file, temporary), _still(store, summary, copy) as journal:
        exported = _write(store, summary, path, file, copy)
        faults.point("export.before_seal")
        if journal is not None and journal.state.status != "handed_off":
            acts.take(journal, acts.own_request(journal, "handoff"))
        faults.point("export.sealed")
        os.replace(temporary, path)
        sync_folder(path.parent)
    return msgspec.structs.replace(exported, sealed_before=status == "handed_off")


def _target(given: Path | None, summary: Summary) -> Path:
    name = "".join(char if char.isalnum() or char in "-_." else "-" for char in summary.task)[:80]
    path = given or Path.cwd()
    if path.is_dir():
        path = path / f"{name.lstrip('.-') or 'run'}-{summary.run}{SUFFIX}"
    path = path.absolute()
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}", hint="make it, or name another with -o")
    if path.exists():
        _require_ours(path, summary.run)
    return path


def _require_ours(path: Path, run: str) -> None:
    """Only an earlier export of the same run is replaced."""
    try:
        ours = archive_file.manifest_of(path).run == run
    except OutlastError:
        ours = False
    if not ours:
        raise UsageError(
            f"{path} is there already and is no export of run {run}", hint="name another file with -o"
        )


@contextlib.contextmanager
def _still(store: SqliteStore, summary: Summary, copy: bool) -> Iterator[Journal | None]:
    """Nobody changes the run inside the block. A copy needs no stillness: it ends at a save point."""
    if copy:
        yield None
        return
    with acts.claimed(store, summary.run) as journal:
        Heartbeat.add(store, journal.lease, LEASE_TTL_S)
        try:
            acts.drain(journal)
            acts.bury(journal)
            acts.allow(journal.state, find.status_if(store, journal.state, lives=False), "export")
            yield journal
        finally:
            Heartbeat.remove(store, journal.lease)


def _write(store: SqliteStore, summary: Summary, path: Path, file: IO[bytes], copy: bool) -> Exported:
    journals: dict[str, bytes] = {}
    blobs: dict[str, Payload] = {}
    count = 0
    for run in [summary.run] if copy else _family(store, summary.run):
        events = _journal(store, run)
        count += len(events)
        journals[run] = b"".join(ev.encode(event) + b"\n" for event in events)
        blobs |= {payload.blob: payload for event in events for payload in blobs_in(event)}
    entries = {
        f"journals/{run}.jsonl": Entry(len(data), archive_file.digest_of(data))
        for run, data in journals.items()
    }
    entries |= {f"blobs/{name}": Entry(payload.size, name) for name, payload in blobs.items()}
    manifest = Manifest(
        format=archive_file.FORMAT, version=archive_file.VERSION, run=summary.run, copy=copy, made_at=endings.now(),
        made_with=__version__, digests=entries,
    )  # fmt: skip
    archive_file.write(file, manifest, journals, blobs, store.blobs.get)
    return Exported(
        run=summary.run, task=summary.task, path=str(path), copy=copy, events=count, blobs=len(blobs),
        size=os.fstat(file.fileno()).st_size,
    )  # fmt: skip


def _family(store: SqliteStore, run: str) -> list[str]:
    """The run and everything below it, parents before their children."""
    runs = [run]
    for parent in runs:
        runs += [child.run for child in find.every(store, Where(parent=parent))]
        if len(runs) > CHILDREN_MAX:
            raise RunRefused(f"run {run} has more than {CHILDREN_MAX:,} children")
    return runs


def _journal(store: SqliteStore, run: str) -> list[ev.AnyEvent]:
    events: list[ev.AnyEvent] = []
    while page := store.read(run, after=len(events)).events:
        events += [item.event for item in page]
    return events


# -- import ------------------------------------------------------------------------------------------------------------


def import_run(store: SqliteStore, path: Path, project: str, *, task: str | None = None) -> Imported:
    """Take a run in from an archive, under its own id and keys, as a task of `project`.

    Everything is verified before anything is written; then blobs, then the run and its children in one transaction.
    A copy becomes a fork at its last save point. Raises RunExists, UsageError.
    """
    contents = archive_file.verify(path)
    family = _decoded(path, contents)
    if contents.manifest.copy:
        opened, events = _as_fork(store, path, family[0], project, task)
        children: list[tuple[ev.RunOpened, Events]] = []
    else:
        if task is not None:
            raise UsageError("only a copy can have another task", hint="leave out --task")
        opened, events = _as_itself(family[0], project)
        children = [
            (msgspec.structs.replace(child, project=project), journal) for child, journal in family[1:]
        ]
        _require_absent(store, opened, children)
    for data in archive_file.read_blobs(path):
        store.blobs.put(data)
    faults.point("import.before_create")
    newest = store.list(Where(project=opened.project, task=opened.task, parent=""), limit=1)
    made = store.create(opened, events, after=newest[0].run if newest else "", children=children)
    if made != opened.run:
        raise UsageError(f"task {opened.task!r} was started meanwhile as run {made}", hint="import it again")
    head = gather.head(store, opened.run)
    contract = gather.contract(store, head)
    return Imported(
        run=opened.run, task=opened.task, project=project, beats=head.beats, copy=contents.manifest.copy,
        children=len(children), commands=(*contract.checks, *contract.invariants),
    )  # fmt: skip


def _as_itself(journal: tuple[ev.RunOpened, Events], project: str) -> tuple[ev.RunOpened, Events]:
    """The run goes on here: the seal it was exported under is taken back, and who did it is recorded."""
    opened, events = journal
    opened = msgspec.structs.replace(opened, project=project)
    by = settings.user_name()
    noted: Events = (*events, ev.Requested(at=endings.now(), id=0, by=by, what="import"))
    if st.fold(st.RunState(), [opened, *noted]).status == "handed_off":
        noted = (*noted, ev.Requested(at=endings.now(), id=0, by=by, what="take_back"))
    return opened, noted


def _as_fork(
    store: SqliteStore,
    path: Path,
    journal: tuple[ev.RunOpened, Events],
    project: str,
    task: str | None,
) -> tuple[ev.RunOpened, Events]:
    opened, events = journal
    whole = [opened, *events]
    beats = st.fold(st.RunState(), whole).beats
    length = fork.save_point(whole, beats)
    if length is None and beats:
        raise damaged(path, "its last save point is missing")
    length = len(whole) if length is None else length
    name = fork.free_task(store, project, f"{opened.task}-fork") if task is None else task_name(task)
    if store.list(Where(project=project, task=name, parent=""), limit=1):
        raise UsageError(f"task {name!r} has a run already", hint="name the fork with --task")
    point = ForkPoint(opened.run, beats, length)
    budget = st.fold(st.RunState(), whole[:length]).budget
    made = msgspec.structs.replace(
        opened, at=endings.now(), run=new_id(), task=name, project=project, parent=None, fork=point, budget=budget
    )  # fmt: skip
    return made, fork.kept(whole[:length])


def _require_absent(
    store: SqliteStore, opened: ev.RunOpened, children: Sequence[tuple[ev.RunOpened, Events]]
) -> None:
    for each in (opened, *(child for child, _ in children)):
        found = [summary for summary in store.list(Where(run_prefix=each.run)) if summary.run == each.run]
        if found:
            sealed = found[0].state.status == "handed_off"
            raise RunExists(
                f"run {each.run} is already in this store; nothing was changed",
                hint=f"`outlast handoff {each.run} --take-back` lets it go on here"
                if sealed
                else f"see `outlast show {each.run}`",
            )
    for other in store.list(Where(project=opened.project, task=opened.task, parent=""), limit=1):
        if other.state.status not in ("done", "cancelled", "handed_off"):
            raise RunRefused(
                f"task {opened.task!r} of this project has another run that is not over: {other.run}",
                hint=f"`outlast cancel {other.run}` first, or import into another --project",
            )


def _decoded(path: Path, contents: Contents) -> list[tuple[ev.RunOpened, Events]]:
    """The journals as events, the root first and every parent before its children. Distrusts all of it."""
    root = contents.manifest.run
    found: dict[str, tuple[ev.RunOpened, Events]] = {}
    for run, data in contents.journals.items():
        found[run] = _events(path, run, data)
    named = {payload.blob for _, events in found.values() for event in events for payload in blobs_in(event)}
    if named != contents.blobs:
        raise damaged(path, "its blobs are not those that its events name")
    return _ordered(path, root, found)


def _events(path: Path, run: str, data: bytes) -> tuple[ev.RunOpened, Events]:
    try:
        events = [ev.decode(line) for line in data.splitlines()]
        # Folding finds what decodes and still makes no sense; its head must fit like any other.
        st.snapshot(st.fold(st.RunState(), events))
    except (OutlastError, msgspec.MsgspecError, AssertionError, ValueError, TypeError, LookupError) as error:
        raise damaged(path, f"the journal of {run} cannot be read: {error}") from error
    first = events[0] if events else None
    if not isinstance(first, ev.RunOpened) or first.run != run:
        raise damaged(path, f"the journal of {run} does not begin with its opening")
    if any(isinstance(event, ev.RunOpened) for event in events[1:]):
        raise damaged(path, f"the journal of {run} opens it twice")
    try:
        task_name(first.task)
    except UsageError as error:
        raise damaged(path, f"run {run} has no proper task") from error
    return first, tuple(events[1:])


def _ordered(
    path: Path, root: str, found: dict[str, tuple[ev.RunOpened, Events]]
) -> list[tuple[ev.RunOpened, Events]]:
    if found[root][0].parent is not None:
        raise damaged(path, f"run {root} is a child without its root")
    ordered = [root]
    for parent in ordered:
        ordered += [
            run
            for run, (opened, _) in found.items()
            if opened.parent is not None and opened.parent.run == parent and opened.parent.root == root
        ]
        if len(ordered) > len(found):
            break
    if len(ordered) != len(found):
        raise damaged(path, "its runs are not one family")
    return [found[run] for run in ordered]
