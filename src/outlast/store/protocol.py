"""The storage seam: what every backend promises. No shared base class; `tests/store/conformance.py` is the suite.

A store holds what several hosts could share: runs, journals, leases, inbox, blobs, shelf. `local` is this host's half."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from outlast.core.events import AnyEvent, RunOpened
from outlast.core.state import RunState, Status
from outlast.store.local import Local

Wake = Callable[[Exception | None], None]
ShelfKind = Literal["walls", "pools", "pressed"]
LEASE_TTL_S = 30
PAGE_MAX = 10_000
SHELF_BYTES_MAX = 1 << 20  # of a longer document only this much is read


class Holder(msgspec.Struct, frozen=True):
    """The process that works on a run. This identity is enough to kill it, but not to take the run from it.

    `host_id`: this host as a store that hosts share knows it; empty in a store of one host.
    """

    host: str
    pid: int
    start_ticks: int
    boot_id: str
    pid_ns: str
    since: datetime
    host_id: str = ""


class Lease(Protocol):
    """The right to write a run's journal, until somebody holds a later epoch."""

    @property
    def run(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def holder(self) -> Holder: ...
    @property
    def last_seen_s(self) -> float | None:
        """Until when, in seconds since boot, the previous holder is known to have lived; None if unknown."""

    @property
    def released(self) -> bool: ...

    def guard(self) -> AbstractContextManager[None]:
        """Perform an act inside this block: nobody on this host takes the run over meanwhile. Raises LeaseLost."""

    def request_waits(self) -> bool:
        """Whether a request may be waiting. Costs nothing, so every beat can ask."""

    def clear_request_flag(self) -> None:
        """Clear the flag: the inbox is about to be read."""

    def set_request_flag(self) -> None:
        """Set the flag: a request waits."""

    def acting(self) -> bool:
        """Whether this process is performing an act."""


class Batch(msgspec.Struct, frozen=True):
    """Events to append together. `after` is the expected sequence number; `head` replaces the stored head.

    `encoded` are the same events as JSON, if the caller has them already.
    """

    lease: Lease
    run: str
    after: int
    events: tuple[AnyEvent, ...]
    takes: tuple[int, ...] = ()
    head: RunState | None = None
    encoded: tuple[bytes, ...] = ()


class RecordedEvent(msgspec.Struct, frozen=True):
    """An event with its sequence number in the run and its number in the whole store."""

    n: int
    run: str
    seq: int
    event: AnyEvent


class EventGlimpse(msgspec.Struct, frozen=True):
    """An event with the fields that every version can read. `event` is None if it cannot be decoded, as one of a newer version."""

    n: int
    run: str
    seq: int
    tag: str
    at: datetime | None
    event: AnyEvent | None


def decoded(items: Sequence[EventGlimpse]) -> list[RecordedEvent]:
    """The ones that can be decoded."""
    return [RecordedEvent(item.n, item.run, item.seq, item.event) for item in items if item.event is not None]


class History(msgspec.Struct, frozen=True):
    """A stored head, if asked for, and the events after it."""

    state: RunState
    events: list[RecordedEvent]


class Request(msgspec.Struct, frozen=True):
    """A request to a run that its holder has not taken in yet."""

    id: int
    run: str
    at: datetime
    by: str
    what: str
    args: bytes = b"null"


class Changes(msgspec.Struct, frozen=True):
    """The changes up to the event `number`: the runs that have new events. `anew`: read everything again, because a run
    was forgotten, the store was put back from a backup, or there is too much. `trace` identifies the event `number`, in
    case another event gets the same number later.
    """

    number: int
    runs: tuple[str, ...]
    anew: bool
    trace: str = ""


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list. Empty fields do not filter; `runs` lists exactly these runs; `within` those that were last started
    inside of this run."""

    runs: tuple[str, ...] = ()
    run_prefix: str = ""
    project: str = ""
    task: str = ""
    parent: str | None = None
    parent_beat: int | None = None
    within: str = ""
    statuses: tuple[Status, ...] = ()
    open_only: bool = False


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run's columns and head for a list; `id` is the paging cursor.

    `problem`: why the run cannot be read, if that was asked for. Then `state` is as of the last readable event.
    """

    id: int
    run: str
    task: str
    project: str
    generation: int
    parent: str
    parent_beat: int
    root: str
    epoch: int
    holder: Holder | None
    state: RunState
    problem: str = ""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of an examination of a store and this host's folder of it.

    `missing`: an acknowledged event that is not in the store. `rewound`: runs that lost their newest events. `lost`: runs
    that are gone completely. `hindrances`: what other programs keep it from, in words.
    """

    version: int
    version_known: int
    problems: tuple[str, ...]
    missing: int | None
    rewound: tuple[str, ...]
    lost: tuple[str, ...]
    stale_locks: tuple[str, ...]
    size_bytes: int
    wal_bytes: int
    hindrances: tuple[str, ...] = ()


class Flaw(msgspec.Struct, frozen=True):
    """A thing that differs from what was written. `repairable`: it can be made again from whole events."""

    what: str
    text: str
    repairable: bool = False


class RunHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of a look at every event of a run. `unchecked` events have no checksum: an older outlast wrote them.

    `blobs` are the payloads its events name. `state` is the fold of all its events; None if they cannot be folded.
    """

    run: str
    task: str
    events: int
    unchecked: int
    flaws: tuple[Flaw, ...]
    blobs: frozenset[str]
    state: RunState | None


class Inbox(Protocol):
    """Unfenced requests to a run. Anybody may put one."""

    def put(self, run: str, *, by: str, what: str, args: bytes = b"null") -> int:
        """Add a request and return its id. Durable when it returns."""

    def pending(self, run: str) -> list[Request]:
        """Requests not taken in yet, oldest first."""

    def all_pending(self) -> list[Request]:
        """The pending requests of all runs, oldest first: at most 10,000, without those that cannot be read."""


class Blobs(Protocol):
    """Content-addressed payloads."""

    def put(self, data: bytes) -> str:
        """Store a payload and return its digest, which is its name. Durable when it returns."""

    def get(self, digest: str) -> bytes:
        """The payload, verified against its name."""

    def sweep(self, keep: set[str], *, older_than_s: float) -> int:
        """Remove old blobs that are not in `keep`; return how many."""


class Document(Protocol):
    """A held document of the shelf: nobody else changes it meanwhile."""

    def get(self) -> bytes | None:
        """The current content, or None."""

    def put(self, data: bytes | None, *, room: int = 0) -> None:
        """Replace the content; None deletes it. Durable when it returns. `room`: reserve so many bytes for a later put."""


class Shelf(Protocol):
    """Small named documents that one process at a time changes: quota walls, budget pools, button presses on the page.

    A name is one word without a slash; a pool's name is any text. A pool is JSON. Presses are lines that are appended to.
    Every method raises StoreError if it cannot read or write; then nothing was changed.
    """

    def get(self, kind: ShelfKind, name: str) -> bytes | None:
        """The whole document of the last put, or None."""

    def get_unheld(self, kind: ShelfKind, name: str) -> bytes | None:
        """The document as `hold` would read it; None if there is none, or while a process holds it."""

    def change(
        self, kind: ShelfKind, name: str, change: Callable[[bytes | None], bytes | None]
    ) -> bytes | None:
        """Replace a document by `change(document)` and return that; None deletes it. Durable when it returns."""

    def hold(
        self, kind: ShelfKind, name: str, *, wait_s: float | None = None
    ) -> AbstractContextManager[Document]:
        """Hold a document: others who hold or change it wait until this block, or this process, ends.

        Raises StoreBusy if another process holds it for longer than `wait_s`. Hold only one document of a kind at a time.
        """

    def every(self, kind: ShelfKind) -> Iterator[tuple[str, bytes]]:
        """All documents of a kind, sorted by name."""

    def sweep(self, kind: ShelfKind, *, newest: int, older_than_s: float) -> int:
        """Delete presses that are old or beyond the `newest` so many, except held ones; return how many."""


class StorePlace(Protocol):
    """Where a store is, before it is opened. Asking creates nothing."""

    @property
    def url(self) -> str:
        """The store's one URL, however it was named (links are not resolved)."""

    @property
    def real_url(self) -> str:
        """The store's one URL, however it was named, with links resolved."""

    @property
    def name(self) -> str:
        """The name for people."""

    @property
    def option(self) -> str:
        """The value of `--store` that leads to it."""

    @property
    def local(self) -> Local:
        """This host's folder for the store."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The store's paths on this host, existing or not: the local folder first."""

    def exists(self) -> bool:
        """Whether a store was created there. Raises StoreRewound for one that is gone, and StoreRefused."""

    def open(self, *, reading: bool = False) -> "Store":
        """Open the store. Creates a missing one, except for `reading`."""

    def examine(self) -> Health:
        """Check everything in it without changing it. Raises StoreCorrupt if it cannot be read at all."""

    def examine_all(self) -> tuple[list[Flaw], Iterator[RunHealth]]:
        """Read every event: what is wrong with the store itself, and then each run. Changes nothing."""

    def repair(self) -> list[str]:
        """Make heads and indexes again from whole events. Says what it did."""

    def versions(self) -> str:
        """The versions of the database programs, in words."""

    def folder_of(self, kind: ShelfKind) -> Path | None:
        """The folder that is empty or missing while the shelf has no document of this kind; None if there is no such folder."""


class Store(Protocol):
    """Where runs live. `local` is this host's folder for it. Opened for `reading`, it creates and changes nothing."""

    url: str
    reading: bool
    local: Local
    inbox: Inbox
    blobs: Blobs
    shelf: Shelf

    @property
    def usable(self) -> bool:
        """Whether this object can still write."""

    @property
    def disk_is_full(self) -> bool:
        """Whether the disk was found full: work in progress may end, nothing new may begin."""

    @property
    def host_id(self) -> str:
        """This host as the store knows it, in `Holder` and in `AttemptStarted`; empty in a store of one host."""

    def check_exists(self) -> None:
        """Raise StoreGone, now and at every later write, if the store was deleted or replaced. Costs one stat."""

    def create(
        self,
        opened: RunOpened,
        events: Sequence[AnyEvent] = (),
        *,
        after: str = "",
        children: Sequence[tuple[RunOpened, Sequence[AnyEvent]]] = (),
    ) -> str:
        """Create the run unless its identity exists; return the id of the run that has this identity now. Durable.

        With `after`, create a further run of the same identity if that run is still the newest. When two processes ask at
        once, one creates it and both get its id. `children` are created in the same transaction.
        """

    def list(
        self, where: RunFilter, *, after: int = 0, limit: int = PAGE_MAX, unreadable: bool = False
    ) -> list[Summary]:
        """Runs, newest first, from below the cursor `after`.

        Raises if a run cannot be read. With `unreadable` such a run is listed with its `problem`: use this only for
        display, never to act on the result.
        """

    def read(
        self,
        run: str,
        *,
        after: int | None = None,
        limit: int = PAGE_MAX,
        tags: Sequence[str] = (),
        key: str = "",
        newest: bool = False,
        before: int = 0,
        ends: bool = False,
    ) -> History:
        """Events after a sequence number; with `after=None` the newest stored head and all events after it.

        With `before` only those below that number. The first `limit` of them, or with `newest` the last; always in order.
        Among beat ends, `tags` finds only those that extended the plan, and with `ends` all.
        """

    def append(self, batch: Batch, wake: Wake | None = None) -> None:
        """Append if epoch and sequence number match, else raise LeaseLost. Durable when it returns.

        With `wake` it returns at once, and calls `wake(error)` from another thread when the batch is durable or failed.
        """

    def claim(self, run: str, *, ttl_s: float = LEASE_TTL_S, placement: int = 0) -> Lease:
        """Become the only writer, under a new epoch. Raises RunHeld, or StoreRewound if a mark shows lost events."""

    def renew(self, leases: Iterable[Lease], *, ttl_s: float = LEASE_TTL_S) -> dict[str, str]:
        """Extend leases; return the runs whose lease is lost, with the reason."""

    def release(self, lease: Lease) -> None:
        """Release the run."""

    def holder_lives(self, run: str) -> bool:
        """Whether a living process holds the run."""

    def accept_rewind(self, run: str) -> None:
        """Forget that a run lost events, after a person has looked."""

    def exclusive(self, run: str, what: str, *, wait_s: float) -> AbstractContextManager[None]:
        """Hold this kind of act on a run: one process at a time. Raises StoreBusy after `wait_s`."""

    def subscribe(self, after: int, *, wait_s: float, limit: int = PAGE_MAX) -> Sequence[RecordedEvent]:
        """Events of all runs after a store-wide number, as soon as there are some; empty after `wait_s`."""

    def glimpses(self, after: int, *, wait_s: float, limit: int = PAGE_MAX) -> Sequence[EventGlimpse]:
        """Events of all runs for display. Those that cannot be decoded are included."""

    def last_number(self) -> int:
        """The number of the newest event in the store; 0 if it is empty."""

    def changes(self, after: int, trace: str = "") -> Changes:
        """The runs that have events after a store-wide number, at once and without reading the events.

        Pass the `trace` that came with that number: it shows when the store was put back from a backup and grew since.
        """

    def beat_end_sample(self, run: str, count: int) -> Sequence[RecordedEvent]:
        """At most `count` beat ends, spread evenly over the journal, with the first and the last; all if they are few."""

    def beat_ends(self, run: str, *, before: int = 0, limit: int = PAGE_MAX) -> Sequence[RecordedEvent]:
        """The beat ends of a run, newest first, from below the sequence number `before`."""

    def event_counts(self, run: str) -> dict[str, int]:
        """How many events of each kind a run has; of the beat ends only those that extended the plan."""

    def events_of_kinds(
        self, tags: Sequence[str], *, before: int = 0, limit: int = PAGE_MAX
    ) -> Sequence[RecordedEvent]:
        """Events of these kinds of all runs, newest first, from below the number `before`."""

    def forget(self, run: str) -> None:
        """Remove a run and its children."""

    def sweep_locks(self) -> int:
        """Remove the local files of forgotten runs, except those that prove a rewound store; return how many."""

    def close(self) -> None:
        """Close files and threads. Leases that were not released end with the process."""
