"""All runs of one store into another one, as they are. In the store they came from, those that could go on are handed off.

What only this host has of them (saves, copies of transcripts, logs) goes into its folder of the other store."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from outlast import faults
from outlast.core import events as ev, state as st
from outlast.core.events import blobs_in
from outlast.core.statuses import CLOSED
from outlast.core.text import count_of
from outlast.errors import RunRefused, StoreCorrupt, UsageError
from outlast.inspect import find
from outlast.operations import requests
from outlast.runs.engine.heartbeat import Heartbeat
from outlast.runs.journal import Journal
from outlast.store import durable
from outlast.store.protocol import LEASE_TTL_S, PAGE_MAX, RunFilter, ShelfKind, Store, Summary

NAMED_MAX = 3
_SHELF: tuple[ShelfKind, ...] = ("walls", "pools", "pressed")
_FOLDERS = ("vaults", "workspaces", "imported")  # of this host, as `Local` names them
# Who works on a run, and how it is reached: not of the run itself.
_LEFT = ("socket", "*.lock", "*.lock.*", "guardian.json", "keeper.json", "hooks.pipe", "*.tmp")


class StoreCopied(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the other store now. `known` of the runs were there before. `elsewhere`: runs whose files another host has."""

    runs: int
    known: int
    events: int
    payloads: int
    sealed: int
    documents: int
    elsewhere: tuple[str, ...]


class StoreCopy:
    """One copy of a store. Killed anywhere, the same again ends right: what is there already is compared and left."""

    def __init__(self, source: Store, target: Store, say: Callable[[str], None]) -> None:
        if source.url == target.url or source.local.folder == target.local.folder:
            raise UsageError(f"{source.url} cannot be copied into itself", hint="name another store")
        self._source, self._target, self._say = source, target, say
        self._put: set[str] = set()
        self._known = self._events = self._sealed = 0
        self._elsewhere: list[str] = []

    def all(self) -> StoreCopied:
        """Copy everything. Raises RunRefused before anything is written if a run is worked on, or differs there."""
        every = sorted(find.all_runs(self._source, RunFilter()), key=lambda each: each.id)
        self._refuse_live(every)
        families: dict[str, list[Summary]] = {}
        for each in every:
            families.setdefault(each.root, []).append(each)
        for number, (root, family) in enumerate(families.items(), 1):
            self._say(f"{number} of {len(families)}: {family[0].task}")
            self._family(root, family)
        new = {each.run for each in find.all_runs(self._source, RunFilter())} - {each.run for each in every}
        if new:
            raise RunRefused(f"begun meanwhile: {count_of(len(new), 'run')}", hint="type the same again")
        return StoreCopied(
            runs=len(every), known=self._known, events=self._events, payloads=len(self._put), sealed=self._sealed,
            documents=self._documents(), elsewhere=tuple(self._elsewhere),
        )  # fmt: skip

    def _refuse_live(self, every: Sequence[Summary]) -> None:
        roots = {each.root: each for each in every if each.run == each.root}
        live = [
            each.task
            for root, each in roots.items()
            if each.holder is not None and self._source.holder_lives(root)
        ]
        if live:
            named = ", ".join(live[:NAMED_MAX])
            more = f" and {len(live) - NAMED_MAX} more" if len(live) > NAMED_MAX else ""
            raise RunRefused(
                f"{named}{more} {'is' if len(live) == 1 else 'are'} being worked on; nothing was copied",
                hint="`outlast pause` each of them, or wait, and type the same again",
            )

    def _family(self, root: str, family: Sequence[Summary]) -> None:
        """A run with its children: nobody changes it meanwhile, and in the end it goes on in one of the stores only."""
        with self._still(family[0]) as journal:
            mapped = {each.run: self._journal(self._source, each.run) for each in family}
            missing = [each for each in family if not self._is_there(each, mapped[each.run])]
            for each in family:
                self._payloads(mapped[each.run])
            here = self._is_here(mapped[root])
            if here:
                self._files([each.run for each in family])
            else:
                self._elsewhere.append(root)
            os.sync()  # files before the journal that names them, and that before the seal
            faults.point("import.before_create")
            for each in missing:
                self._create(each, mapped[each.run])
            for each in family:
                self._verify(each, mapped[each.run])
            self._advance(root, family[0].epoch if journal is None else journal.lease.epoch)
            if journal is None:
                return
            faults.point("export.before_seal")
            requests.take(journal, requests.own_request(journal, "handoff"))
            self._sealed += 1

    @contextlib.contextmanager
    def _still(self, root: Summary) -> Iterator[Journal | None]:
        """None for a run that cannot go on: it is over, or sealed already."""
        if root.state.status in (*CLOSED, "handed_off"):
            yield None
            return
        with requests.claimed(self._source, root.run) as journal:
            Heartbeat.add(self._source, journal.lease, LEASE_TTL_S)
            try:
                requests.drain(journal)
                requests.bury(journal)
                yield None if journal.state.status in (*CLOSED, "handed_off") else journal
            finally:
                Heartbeat.remove(self._source, journal.lease)

    # -- journals ------------------------------------------------------------------------------------------------

    def _journal(self, store: Store, run: str) -> list[ev.AnyEvent]:
        """Every event; of the source, with this host as the other store knows it."""
        events: list[ev.AnyEvent] = []
        while page := store.read(run, after=len(events), limit=PAGE_MAX).events:
            events += [item.event for item in page]
        return events if store is self._target else [self._hosted(event) for event in events]

    def _hosted(self, event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.AttemptStarted) and event.host_id == self._source.host_id:
            return msgspec.structs.replace(event, host_id=self._target.host_id)
        return event

    def _is_here(self, events: Sequence[ev.AnyEvent]) -> bool:
        """Whether the files of a run, as of its last attempt, are this host's."""
        hosts = [event.host_id for event in events if isinstance(event, ev.AttemptStarted)]
        return not hosts or hosts[-1] == self._target.host_id

    def _is_there(self, each: Summary, events: list[ev.AnyEvent]) -> bool:
        """Whether an earlier copy brought the run. One of the two may have gone on: never both."""
        found = self._target.list(RunFilter(runs=(each.run,)), limit=1)
        if not found:
            return False
        if found[0].state.status == "handed_off" and each.state.status not in (*CLOSED, "handed_off"):
            raise RunRefused(
                f"run {each.run} of task {each.task} is handed off there, so it goes on in another store; it was not copied",
                hint=f"if it goes on here and nowhere else: `outlast handoff {each.run} --take-back` there, then the same again",
            )
        there = self._journal(self._target, each.run)
        shared = min(len(there), len(events))
        if there[:shared] != events[:shared] or not there:
            raise RunRefused(
                f"run {each.run} of task {each.task} is in both stores and they differ: it was not copied",
                hint=f"`outlast show {each.run}` in each; `outlast export` brings one of them over as a fork",
            )
        if len(there) < len(events) and each.state.status != "handed_off":
            raise RunRefused(
                f"run {each.run} of task {each.task} went on after it was copied: there it is older",
                hint=f"`outlast export {each.run} --copy` brings it over as a fork",
            )
        self._known += 1
        return True

    def _create(self, each: Summary, events: list[ev.AnyEvent]) -> None:
        opened = events[0]
        assert isinstance(opened, ev.RunOpened), "a journal begins with its opening"
        parent = opened.parent
        found = self._target.list(
            RunFilter(
                project=opened.project, task=opened.task, parent=parent.run if parent else "",
                parent_beat=parent.beat if parent else None,
            ), limit=1,
        )  # fmt: skip
        made = self._target.create(opened, events[1:], after=found[0].run if found else "")
        if made != each.run:
            raise RunRefused(
                f"task {each.task} was begun there meanwhile as run {made}", hint="type the same again"
            )
        self._events += len(events)

    def _verify(self, each: Summary, events: list[ev.AnyEvent]) -> None:
        """Read the run back: its events, and its head as readers get it."""
        there = self._journal(self._target, each.run)
        (found,) = self._target.list(RunFilter(runs=(each.run,)), limit=1)
        shared = min(len(there), len(events))
        if there[:shared] != events[:shared] or found.state != st.fold(st.RunState(), there):
            raise StoreCorrupt(
                f"run {each.run} is another one in {self._target.url} than it was in {self._source.url}",
                hint="the store it came from was not changed; see `outlast doctor` with both",
            )

    def _payloads(self, events: Sequence[ev.AnyEvent]) -> None:
        for name in {payload.blob for event in events for payload in blobs_in(event)} - self._put:
            put = self._target.blobs.put(self._source.blobs.get(name))
            assert put == name, "a payload's name is made of its content"
            self._target.blobs.get(name)
            self._put.add(name)

    def _advance(self, root: str, epoch: int) -> None:
        """No attempt there gets the number of one here: by it, processes left by an attempt are told from later ones."""
        (found,) = self._target.list(RunFilter(runs=(root,)), limit=1)
        for _ in range(found.epoch, epoch):
            self._target.release(self._target.claim(root))

    # -- the rest ------------------------------------------------------------------------------------------------

    def _documents(self) -> int:
        """Quota walls, pools of budget and presses of the page; what is there already stays."""
        count = 0
        for kind in _SHELF:
            for name, data in self._source.shelf.every(kind):
                if self._target.shelf.get(kind, name) is None:
                    with self._target.shelf.hold(kind, name) as held:
                        held.put(held.get() or data)
                    count += 1
        return count

    def _files(self, runs: Sequence[str]) -> None:
        """This host's files of these runs, and the saves of all: a vault belongs to a repository, not to a run."""
        here, there = self._source.local, self._target.local
        for run in runs:
            _bring(here.run_folder(run), there.run_folder(run))
        for name in _FOLDERS:
            _bring(here.folder / name, there.folder / name)


def _bring(here: Path, there: Path) -> None:
    """Copy a tree into another: files that are missing there or older. A file is there with its name only when it is whole."""
    if not here.is_dir():
        return
    durable.make_folder(there)
    for entry in sorted(here.iterdir()):
        target = there / entry.name
        if any(entry.match(pattern) for pattern in _LEFT):
            continue
        if entry.is_symlink():
            if not target.is_symlink():
                target.symlink_to(os.readlink(entry))
        elif entry.is_dir():
            _bring(entry, target)
        elif entry.is_file() and not (
            target.exists() and target.stat().st_mtime_ns >= entry.stat().st_mtime_ns
        ):
            partial = target.with_name(f"{target.name}.copying")
            shutil.copy2(entry, partial)
            os.replace(partial, target)
