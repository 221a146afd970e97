"""Export and import: a run leaves one store, sealed, and goes on in another."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from outlast import faults, settings
from outlast._version import __version__
from outlast.core import events as ev, state as st
from outlast.core.events import blobs_in
from outlast.core.statuses import CLOSED
from outlast.core.values import ForkPoint, Parent, Payload, scrub
from outlast.errors import OutlastError, RunExists, RunRefused, UsageError
from outlast.inspect import find
from outlast.operations import fork, requests
from outlast.operations.transfer import (
    archive_file,
    files as transfer_files,
    launch,
    sessions as transfer_sessions,
)
from outlast.operations.transfer.archive_file import Contents, Copy, Entry, Manifest, damaged
from outlast.operations.transfer.files import FilesBrought, Note, Notes, Packed, Target
from outlast.operations.transfer.masking import MaskedValue, Masking
from outlast.runs import attempts, reader
from outlast.runs.engine.heartbeat import Heartbeat
from outlast.runs.journal import Journal
from outlast.runs.opening.terms import new_id, task_name
from outlast.store.durable import sync_folder
from outlast.store.protocol import LEASE_TTL_S, RunFilter, Store, Summary
from outlast.workspace.types import text

SUFFIX = ".outlast.tar.gz"
CHILDREN_MAX = 100_000

Events = tuple[ev.AnyEvent, ...]
RunEvents = tuple[ev.RunOpened, Events]


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was written where. `bundle_bytes` are the files; where there are none, `no_files` says why.

    `secrets_left` are untracked files that saves keep apart, and that never leave this store. `sessions` are our copies of
    agents' transcripts, `sessions_left` those that an export has no room for.
    """

    run: str
    task: str
    path: str
    copy: bool
    events: int
    blobs: int
    size: int
    sealed_before: bool = False
    masked: tuple[MaskedValue, ...] = ()
    bundle_bytes: int = 0
    no_files: str = ""
    secrets_left: tuple[str, ...] = ()
    sessions: tuple[transfer_sessions.SessionCopy, ...] = ()
    sessions_left: tuple[transfer_sessions.SessionCopy, ...] = ()


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What is here now. `commands` are its checks and invariants, which going on with it will run here.

    `files` is null where none came along; `workspace` is then what the run was started with elsewhere. `command` is what
    `outlast resume` would start, empty for a program of somebody's own. `came_from` is the host and folder it worked in last.
    """

    run: str
    task: str
    project: str
    beats: int
    copy: bool
    children: int
    commands: tuple[str, ...]
    masked: int = 0
    workspace: str = ""
    files: FilesBrought | None = None
    sessions: tuple[Copy, ...] = ()
    command: tuple[str, ...] = ()
    came_from: str = ""


# -- export ------------------------------------------------------------------------------------------------------------


def export(
    store: Store,
    summary: Summary,
    target: Path | None,
    *,
    copy: bool = False,
    with_secrets: bool = False,
) -> Exported:
    """Write the run into one file and seal it here; with `copy` it stays live, and the import will be a fork.

    What looks like a secret is masked in the file, and listed, unless `with_secrets`. The file has its name only when it
    is whole, durable, and the run sealed. Raises RunHeld, RunRefused, UsageError.

    No fence spans two stores: the seal keeps the source from starting again. Killed anywhere, the same command again ends right: an
    export is written afresh; an import finds its blobs and saves there, and its run not.
    """
    if summary.root != summary.run:
        raise RunRefused(
            f"run {summary.run} is a child and goes with its root",
            hint=f"`outlast export {summary.root}`",
        )
    status = find.shown_status(store, summary.state, summary.run)
    requests.allow(summary.state, status, "fork" if copy else "export")
    path = _target(target, summary)
    with archive_file.partial(path) as (file, temporary), _still(store, summary, copy) as journal:
        exported = _write(store, summary, path, file, copy, with_secrets)
        faults.point("export.before_seal")
        if journal is not None and journal.state.status != "handed_off":
            requests.take(journal, requests.own_request(journal, "handoff"))
        faults.point("export.sealed")
        os.replace(temporary, path)
        sync_folder(path.parent)
    return msgspec.structs.replace(exported, sealed_before=status == "handed_off")


def _refuse_masked_beat(run: str, events: Sequence[ev.AnyEvent], found: Sequence[MaskedValue]) -> None:
    """A beat in flight is repeated with what is recorded of it: with masks in it, it would be another beat."""
    begun = st.fold(st.RunState(), list(events)).open_beat
    inside = [item for item in found if item.run == run and begun is not None and item.seq >= begun.seq]
    replayed = [item for item in inside if item.event in ("decided", "effect_confirmed", "effect_settled")]
    if replayed:
        raise RunRefused(
            f"the beat in flight of run {run} was given {len(replayed)} values that would be masked,"
            " and could not be repeated elsewhere",
            hint=f"`outlast export {run} --with-secrets`, or let it end the beat first",
        )


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
        raise UsageError(f"{path} exists and is not an export of run {run}", hint="name another file with -o")


@contextlib.contextmanager
def _still(store: Store, summary: Summary, copy: bool) -> Iterator[Journal | None]:
    """Nobody changes the run inside the block. A copy needs no stillness: it ends at a save point."""
    if copy:
        yield None
        return
    with requests.claimed(store, summary.run) as journal:
        Heartbeat.add(store, journal.lease, LEASE_TTL_S)
        try:
            requests.drain(journal)
            requests.bury(journal)
            requests.allow(journal.state, find.status_if(store, journal.state, lives=False), "export")
            yield journal
        finally:
            Heartbeat.remove(store, journal.lease)


def _write(
    store: Store, summary: Summary, path: Path, file: IO[bytes], copy: bool, with_secrets: bool
) -> Exported:
    masking, leaving = (
        Masking(store.blobs.get),
        transfer_sessions.Leaving(store.local, masks=not with_secrets),
    )
    journals: dict[str, bytes] = {}
    blobs: dict[str, Payload] = {}
    count = 0
    for run, read in _journals(store, _family(store, summary.run)).items():
        events = read if with_secrets else masking.journal(run, read)
        if not copy:
            _refuse_masked_beat(run, read, masking.found)
        events = leaving.journal(run, events)
        count += len(events)
        journals[run] = b"".join(msgspec.json.format(ev.encode(event), indent=-1) + b"\n" for event in events)
        _events(path, run, journals[run])  # no seal over what could not be read again
        blobs |= {payload.blob: payload for event in events for payload in blobs_in(event)}
    entries = {
        f"journals/{run}.jsonl": Entry(len(data), archive_file.digest_of(data))
        for run, data in journals.items()
    }
    entries |= {f"blobs/{name}": Entry(payload.size, name) for name, payload in blobs.items()}
    entries |= leaving.digests
    # After the journals, so that every save is in it that an event among them names.
    with transfer_files.packed(store.local, summary.state, list(journals), path) as packed:
        entries |= {archive_file.BUNDLE: packed.entry} if packed.entry is not None else {}
        manifest = Manifest(
            format=archive_file.FORMAT, version=_version(packed, leaving), run=summary.run, copy=copy, made_at=attempts.now(),
            made_with=__version__, digests=entries, masked=len(masking.found), bundle=packed.bundle,
            sessions=leaving.copies,
        )  # fmt: skip
        archive_file.write(file, manifest, journals, blobs, masking.blob, packed.path, leaving.entries)
    return Exported(
        run=summary.run, task=summary.task, path=str(path), copy=copy, events=count, blobs=len(blobs),
        size=os.fstat(file.fileno()).st_size, masked=tuple(masking.found),
        bundle_bytes=packed.entry.size if packed.entry is not None else 0, no_files=packed.why_not,
        secrets_left=packed.secrets, sessions=tuple(leaving.gone), sessions_left=tuple(leaving.left),
    )  # fmt: skip


def _version(packed: Packed, leaving: transfer_sessions.Leaving) -> int:
    if leaving.entries:
        return archive_file.VERSION
    is_with_files = packed.path is not None
    return archive_file.VERSION_WITHOUT_SESSIONS if is_with_files else archive_file.VERSION_WITHOUT_FILES


def _journals(store: Store, family: list[str]) -> dict[str, list[ev.AnyEvent]]:
    """The journals of a family, the root's first. Read in the other order: of a run that goes on meanwhile, a parent's
    must hold what its children were made from."""
    read = {run: _journal(store, run) for run in reversed(family)}
    return {run: read[run] for run in family}


def _family(store: Store, run: str) -> list[str]:
    """The run and everything below it, parents before their children."""
    runs = [run]
    for parent in runs:
        runs += [child.run for child in find.all_runs(store, RunFilter(parent=parent))]
        if len(runs) > CHILDREN_MAX:
            raise RunRefused(f"run {run} has more than {CHILDREN_MAX:,} children")
    return runs


def _journal(store: Store, run: str) -> list[ev.AnyEvent]:
    events: list[ev.AnyEvent] = []
    while page := store.read(run, after=len(events)).events:
        events += [item.event for item in page]
    return events


# -- import ------------------------------------------------------------------------------------------------------------


def import_run(
    store: Store,
    path: Path,
    project: str | None,
    *,
    task: str | None = None,
    workspace: Path | None = None,
) -> Imported:
    """Take a run in from an archive, under its own id and keys, as a task of `project`, or of its `workspace`.

    Everything is verified before anything is written; then files and blobs, then the run and its children in one
    transaction. A copy becomes a fork at its last save point, and so do its children. Its files come into `workspace`,
    the repository around the person, or a new folder; the copies of its agent's transcripts into the run's own. Raises RunExists, UsageError, RunRefused, SaveError.
    """
    contents = archive_file.verify(path)
    family = _decoded(path, contents)
    root = contents.manifest.run
    with transfer_files.noted(store.local, contents.manifest) as notes:
        made = notes.note.ids.get(root, "") if notes.note is not None else ""
        if not made or not _is_there(store, made):
            return _take_in(store, path, contents, family, project, task, workspace, notes)
        notes.drop()  # that import was killed when all was done
        if not contents.manifest.copy:
            _require_absent(store, family[0][0], [])
        return _imported(store, made, contents.manifest, family, None)


def _take_in(
    store: Store, path: Path, contents: Contents, family: list[RunEvents], given: str | None, task: str | None,
    workspace: Path | None, notes: Notes,
) -> Imported:  # fmt: skip
    manifest = contents.manifest
    ids = notes.note.ids if notes.note is not None else _ids(family, fresh=manifest.copy)
    target = transfer_files.choose(store.local, manifest.bundle, ids[manifest.run], workspace, notes.note)
    if given is not None:
        project = given
    else:
        assert target is not None, "a folder was named where no project was"
        project = transfer_files.project_of(target, manifest.bundle)
    if manifest.copy:
        name = _fork_name(store, family[0][0], project, task)
        (opened, events), *children = _as_forks(path, family, project, name, ids)
    else:
        if task is not None:
            raise UsageError("only a copy can have another task", hint="leave out --task")
        opened, events = _as_itself(family[0], project)
        children = [
            (msgspec.structs.replace(child, project=project), journal) for child, journal in family[1:]
        ]
        _require_absent(store, opened, children)
    if manifest.copy or (target is not None and target.is_new):
        notes.keep(Note(ids, text(target.folder) if target is not None and target.is_new else ""))
    before, arrived = opened.workspace, [(opened, events), *children]
    (opened, events), *children = [(_working_in(each, target), journal) for each, journal in arrived]
    brought = None
    if manifest.bundle is not None and target is not None:
        head = st.fold(st.RunState(), [opened, *events])
        chunks = archive_file.read_bundle(path)
        brought = transfer_files.bring(store, target, manifest.bundle, chunks, ids, head)
    for data in archive_file.read_blobs(path):
        store.blobs.put(data)
    transfer_sessions.arrive(store.local, path, manifest, ids)
    (opened, events), *children = [
        _started_here(store, each, before) for each in ((opened, events), *children)
    ]
    faults.point("import.before_create")
    newest = store.list(RunFilter(project=opened.project, task=opened.task, parent=""), limit=1)
    made = store.create(opened, events, after=newest[0].run if newest else "", children=children)
    if made != opened.run:
        raise UsageError(f"task {opened.task} was started meanwhile as run {made}", hint="import it again")
    faults.point("import.created")
    notes.drop()
    return _imported(store, made, manifest, family, brought)


def _imported(
    store: Store, run: str, manifest: Manifest, family: list[RunEvents], brought: FilesBrought | None
) -> Imported:
    opened, events = family[0]
    hosts = [event.host for event in events if isinstance(event, ev.AttemptStarted) and event.host]
    blobs = launch.Blobs(store.blobs.get, store.blobs.put)
    summary = requests.summary_of(store, run)
    contract = reader.contract(store, summary.state)
    return Imported(
        run=run, task=summary.task, project=summary.project, beats=summary.state.beats, copy=manifest.copy,
        children=len(family) - 1, commands=(*contract.checks, *contract.invariants), masked=manifest.masked,
        workspace=summary.state.workspace, files=brought, sessions=tuple(manifest.sessions.values()),
        command=launch.command_of((opened, *events), blobs),
        came_from=": ".join([*hosts[-1:], opened.workspace or opened.project]),
    )  # fmt: skip


def _ids(family: list[RunEvents], *, fresh: bool) -> dict[str, str]:
    """The ids of the runs here: their own, or new ones, so that the keys of a copy are new from here on."""
    return {opened.run: new_id() if fresh else opened.run for opened, _ in family}


def _working_in(opened: ev.RunOpened, target: Target | None) -> ev.RunOpened:
    """The opening of a run in its workspace here."""
    if target is None or not (opened.workspace or opened.parent is None):
        return opened
    return msgspec.structs.replace(
        opened, workspace=scrub(str(target.folder)), files=opened.files or "rewind"
    )


def _started_here(store: Store, journal: RunEvents, before: str) -> RunEvents:
    """The run as it will be started here: from its own folder, with its agent's transcripts where they belong here."""
    (opened, events), blobs = journal, launch.Blobs(store.blobs.get, store.blobs.put)
    now = opened.workspace if before else ""
    first, *rest = [
        launch.launched_here(event, before, now, blobs)
        for event in transfer_sessions.without_places((opened, *events))
    ]
    assert isinstance(first, ev.RunOpened), "a journal begins with its opening"
    return first, tuple(rest)


def _as_itself(journal: RunEvents, project: str) -> RunEvents:
    """The run goes on here: the seal it was exported under is taken back, and who did it is recorded."""
    opened, events = journal
    opened = msgspec.structs.replace(opened, project=project, origin=None)  # it was begun elsewhere
    by = settings.user_name()
    noted: Events = (*events, ev.Requested(at=attempts.now(), id=0, by=by, what="import"))
    if st.fold(st.RunState(), [opened, *noted]).status == "handed_off":
        noted = (*noted, ev.Requested(at=attempts.now(), id=0, by=by, what="take_back"))
    return opened, noted


def _fork_name(store: Store, opened: ev.RunOpened, project: str, task: str | None) -> str:
    name = fork.free_task(store, project, f"{opened.task}-fork") if task is None else task_name(task)
    if store.list(RunFilter(project=project, task=name, parent=""), limit=1):
        raise UsageError(f"task {name} has a run already", hint="name the fork with --task")
    return name


def _as_forks(
    path: Path, family: list[RunEvents], project: str, task: str, ids: Mapping[str, str]
) -> list[RunEvents]:
    """The family under new ids; its links lead to those too."""
    parents = {(opened.parent.run, opened.parent.beat) for opened, _ in family if opened.parent is not None}
    made: list[RunEvents] = []
    for opened, events in family:
        whole = [opened, *events]
        head = st.fold(st.RunState(), whole)
        length, shared = _past(path, whole, head, (opened.run, head.beats + 1) in parents)
        parent = opened.parent
        renamed = msgspec.structs.replace(
            opened, at=attempts.now(), run=ids[opened.run], task=task if parent is None else opened.task,
            project=project, origin=None, fork=ForkPoint(opened.run, head.beats, length),
            budget=st.fold(st.RunState(), whole[:length]).budget,
            parent=None if parent is None else Parent(ids[parent.run], parent.beat, ids[parent.root]),
        )  # fmt: skip
        made.append((renamed, shared))
    return made


def _past(path: Path, whole: list[ev.AnyEvent], head: st.RunState, has_children: bool) -> tuple[int, Events]:
    """How much of a journal a fork shares: up to its last save point, or all of a child that is done.

    The beat after it is repeated. If children belong to that beat, what it has decided goes with them: they were made
    from it, and another decision would find children that do not fit.
    """
    if head.parent is not None and head.status == "done":
        ends = tuple(event for event in whole if isinstance(event, ev.Finished))
        return len(whole), (*fork.work_among(whole), *ends)
    length = fork.save_point(whole, head.beats)
    if length is None and head.beats:
        raise damaged(path, f"the last save point of {head.run} is missing")
    length = len(whole) if length is None else length
    rest = fork.recorded(whole[length:], head.beats + 1) if has_children else ()
    return length, (*fork.work_among(whole[:length]), *rest)


def _require_absent(store: Store, opened: ev.RunOpened, children: Sequence[RunEvents]) -> None:
    for each in (opened, *(child for child, _ in children)):
        found = _found(store, each.run)
        if found:
            sealed = found[0].state.status == "handed_off"
            raise RunExists(
                f"run {each.run} is already in this store; nothing was changed",
                hint=f"`outlast handoff {each.run} --take-back` lets it go on here"
                if sealed
                else f"see `outlast show {each.run}`",
            )
    for other in store.list(RunFilter(project=opened.project, task=opened.task, parent=""), limit=1):
        if other.state.status not in CLOSED:
            raise RunRefused(
                f"task {opened.task} of this project has another run that is not over: {other.run}",
                hint=f"`outlast cancel {other.run}` first, or import into another --project",
            )


def _found(store: Store, run: str) -> list[Summary]:
    return [summary for summary in store.list(RunFilter(run_prefix=run)) if summary.run == run]


def _is_there(store: Store, run: str) -> bool:
    return bool(_found(store, run))


def _decoded(path: Path, contents: Contents) -> list[RunEvents]:
    """The journals as events, the root first and every parent before its children. Distrusts all of it."""
    root = contents.manifest.run
    found: dict[str, RunEvents] = {}
    for run, data in contents.journals.items():
        found[run] = _events(path, run, data)
    named = {payload.blob for _, events in found.values() for event in events for payload in blobs_in(event)}
    if named != contents.blobs:
        raise damaged(path, "its blobs are not those that its events name")
    transfer_sessions.check(path, contents.manifest, {run: events for run, (_, events) in found.items()})
    return _ordered(path, root, found)


def _events(path: Path, run: str, data: bytes) -> RunEvents:
    try:
        events = [ev.decode(line) for line in data.split(b"\n")[:-1]]
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


def _ordered(path: Path, root: str, found: dict[str, RunEvents]) -> list[RunEvents]:
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
