"""The storage seam: what every backend promises. A store is what several hosts could share: runs, their journals and
leases, and three small rooms (inbox, blobs, shelf). What is this host's alone is its `local`.

A backend is complete in itself, without a shared base class, and passes the public conformance suite.
"""

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
SHELF_BYTES_MAX = 1 << 20  # a document that is longer is not read to its end


class Holder(msgspec.Struct, frozen=True):
    """The process that works on a run. It is killed by this identity, never robbed by it alone."""

    host: str
    pid: int
    start_ticks: int
    boot_id: str
    pid_ns: str
    since: datetime


class Lease(Protocol):
    """The right to write a run's journal, as long as nobody holds a later epoch."""

    @property
    def run(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def holder(self) -> Holder: ...
    @property
    def last_seen_s(self) -> float | None:
        """Until when, in seconds since boot, the holder before this one is known to have lived; None if unknown."""

    @property
    def released(self) -> bool: ...

    def guard(self) -> AbstractContextManager[None]:
        """Perform an act inside it: nobody on this host takes the run over meanwhile. Raises LeaseLost."""

    def mail_waits(self) -> bool:
        """Whether a request may be waiting; asked at every beat, so it costs nothing."""

    def mail_taken(self) -> None:
        """The inbox is about to be read."""

    def mail_came(self) -> None:
        """A request waits."""

    def acting(self) -> bool:
        """Whether an act is under way in this process."""


class Batch(msgspec.Struct, frozen=True):
    """Events to append together. `after` is the expected sequence number; `head` renews the stored head.

    `encoded` are the same events as JSON, where the caller has them already.
    """

    lease: Lease
    run: str
    after: int
    events: tuple[AnyEvent, ...]
    takes: tuple[int, ...] = ()
    head: RunState | None = None
    encoded: tuple[bytes, ...] = ()


class Recorded(msgspec.Struct, frozen=True):
    """An event with its place in the run and in the whole store."""

    n: int
    run: str
    seq: int
    event: AnyEvent


class Heard(msgspec.Struct, frozen=True):
    """An event at a glance; `event` is None where it cannot be read, as one of a newer version."""

    n: int
    run: str
    seq: int
    tag: str
    at: datetime | None
    event: AnyEvent | None


def readable(items: Sequence[Heard]) -> list[Recorded]:
    """Those of them that can be read."""
    return [Recorded(item.n, item.run, item.seq, item.event) for item in items if item.event is not None]


class History(msgspec.Struct, frozen=True):
    """A stored head, if one was asked for, and the events after it."""

    state: RunState
    events: list[Recorded]


class Request(msgspec.Struct, frozen=True):
    """Something asked of a run, not yet taken in."""

    id: int
    run: str
    at: datetime
    by: str
    what: str
    args: bytes = b"null"


class Changes(msgspec.Struct, frozen=True):
    """What happened up to the event `number`: the runs that have new events. `anew`: more than can be told so, as when a
    run was forgotten or the store was put back; then all has to be read again. `trace` tells that event from every other
    that may come to have its number.
    """

    number: int
    runs: tuple[str, ...]
    anew: bool
    trace: str = ""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list. Empty fields do not filter; `runs` are these runs only."""

    runs: tuple[str, ...] = ()
    run_prefix: str = ""
    project: str = ""
    task: str = ""
    parent: str | None = None
    parent_beat: int | None = None
    statuses: tuple[Status, ...] = ()
    open_only: bool = False


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run at a glance, from columns; `id` is the paging cursor.

    `problem`: why it cannot be read, where that was asked for; then `state` is as of the last event that can.
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
    """What was found in a store and in this host's folder of it.

    `missing` is an acknowledged event that the store does not hold; `rewound` are runs that lost their newest events,
    `lost` those that are gone as a whole.
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


class Inbox(Protocol):
    """Unfenced requests to a run; anybody may put one."""

    def put(self, run: str, *, by: str, what: str, args: bytes = b"null") -> int:
        """Durable when it returns; the id of the request."""

    def pending(self, run: str) -> list[Request]:
        """Requests not taken in yet, oldest first."""


class Blobs(Protocol):
    """Content-addressed payloads."""

    def put(self, data: bytes) -> str:
        """Durable when it returns; the digest that names it."""

    def get(self, digest: str) -> bytes:
        """The payload, verified against its name."""

    def sweep(self, keep: set[str], *, older_than_s: float) -> int:
        """Remove blobs that are in nobody's use and old; how many."""


class Document(Protocol):
    """A document of the shelf that is held: nobody else changes it meanwhile."""

    def get(self) -> bytes | None:
        """As it is now; None where there is none."""

    def put(self, data: bytes | None, *, room: int = 0) -> None:
        """Durable when it returns; None takes it away. `room`: so many bytes more are to fit later, should the disk be full."""


class Shelf(Protocol):
    """Small named documents that are changed by one at a time: quota walls, pools of budget, what was pressed on a page.

    A name is one word without a slash; that of a pool is any text. A pool is JSON. What was pressed is lines, to which others
    are added. Everything raises StoreError where it cannot be read or written: then nothing was changed.
    """

    def get(self, kind: ShelfKind, name: str) -> bytes | None:
        """The document as it was last put, whole; None where there is none."""

    def settled(self, kind: ShelfKind, name: str) -> bytes | None:
        """The same, but None also while somebody holds it."""

    def change(
        self, kind: ShelfKind, name: str, change: Callable[[bytes | None], bytes | None]
    ) -> bytes | None:
        """Replace a document by what becomes of it, which is returned; None takes it away. Durable when it returns."""

    def hold(
        self, kind: ShelfKind, name: str, *, wait_s: float | None = None
    ) -> AbstractContextManager[Document]:
        """Whoever else wants to hold or change it waits until the end of the block, or of the process.

        Raises StoreBusy where it stays somebody else's for `wait_s`. Who holds one may hold no other of its kind.
        """

    def every(self, kind: ShelfKind) -> Iterator[tuple[str, bytes]]:
        """All documents of a kind with their names, in the order of these."""

    def sweep(self, kind: ShelfKind, *, newest: int, older_than_s: float) -> int:
        """Let go of what was pressed, beyond the `newest` so many and of old; of none that is held. How many."""


class StorePlace(Protocol):
    """Where a store is, before it is opened. Asking makes nothing."""

    @property
    def url(self) -> str:
        """The same for every way to name it, but for links."""

    @property
    def real_url(self) -> str:
        """The same for every way to name it."""

    @property
    def name(self) -> str:
        """As people know it."""

    @property
    def option(self) -> str:
        """What `--store` leads to it with."""

    @property
    def local(self) -> Local:
        """This host's folder for it."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """What of it lies on this host, which need not be there: the local folder first."""

    def exists(self) -> bool:
        """Whether a store was made there."""

    def open(self, *, reading: bool = False) -> "Store":
        """Open it; made if it is not there and not opened for `reading`."""

    def examine(self) -> Health:
        """Look at everything in it, without changing it. Raises StoreCorrupt for one that cannot be read at all."""

    def versions(self) -> str:
        """Of the programs that it is kept with, in words."""

    def folder_of(self, kind: ShelfKind) -> Path | None:
        """Empty, or not there, while the shelf has no document of this kind; None where no folder tells."""


class Store(Protocol):
    """Where runs live. `local` is this host's folder for it; opened for `reading`, nothing of it is made or changed."""

    url: str
    reading: bool
    local: Local
    inbox: Inbox
    blobs: Blobs
    shelf: Shelf

    @property
    def usable(self) -> bool:
        """Whether anything can still be written through this object."""

    @property
    def low(self) -> bool:
        """Whether the disk was found full: what is under way may end, nothing new may begin."""

    def check_there(self) -> None:
        """Raise StoreGone, now and at every write from now on, if the store was deleted or replaced. Costs one look."""

    def create(
        self,
        opened: RunOpened,
        events: Sequence[AnyEvent] = (),
        *,
        after: str = "",
        children: Sequence[tuple[RunOpened, Sequence[AnyEvent]]] = (),
    ) -> str:
        """Make the run unless its identity exists; the id of the run that has it now. Durable when it returns.

        With `after` a further run of the same identity is made, if the newest one is still that run; of two who ask at
        once, one makes it and both get it. Children that come with it share its transaction.
        """

    def list(
        self, where: Where, *, after: int = 0, limit: int = PAGE_MAX, unreadable: bool = False
    ) -> list[Summary]:
        """Runs, newest first, from below the cursor `after`.

        One that cannot be read raises what is in its way. With `unreadable` it stands there, with its `problem`: for those
        who only look, never for those who act on what they find.
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
        """Events after a sequence number; with `after=None` the newest stored head and all that follows it.

        With `before` only those below that number. The first `limit` of them, or with `newest` the last; in order either
        way. Of the ends of beats, `tags` finds only those that extended the plan, and with `ends` all.
        """

    def append(self, batch: Batch, wake: Wake | None = None) -> None:
        """Append when epoch and sequence number fit, else LeaseLost. Durable when it returns.

        With `wake` it returns at once and calls `wake(error)` from another thread when it is durable or failed.
        """

    def claim(self, run: str, *, ttl_s: float = LEASE_TTL_S, placement: int = 0) -> Lease:
        """Become the one writer under a new epoch, or RunHeld. Raises StoreRewound where a mark shows it."""

    def renew(self, leases: Iterable[Lease], *, ttl_s: float = LEASE_TTL_S) -> dict[str, str]:
        """Prolong leases; the runs that were lost, with the reason."""

    def release(self, lease: Lease) -> None:
        """Give the run back."""

    def holder_lives(self, run: str) -> bool:
        """Whether a living process holds the run."""

    def accept_rewind(self, run: str) -> None:
        """A person has looked: forget that a run lost events."""

    def alone(self, run: str, what: str, *, wait_s: float) -> AbstractContextManager[None]:
        """One at a time does acts of this kind on a run, whichever process it is. Raises StoreBusy after a while."""

    def subscribe(self, after: int, *, wait_s: float, limit: int = PAGE_MAX) -> Sequence[Recorded]:
        """Events of all runs after a store-wide number, as soon as there are some; empty after `wait_s`."""

    def heard(self, after: int, *, wait_s: float, limit: int = PAGE_MAX) -> Sequence[Heard]:
        """The same, for those who only look: what cannot be read is told as well."""

    def last_number(self) -> int:
        """The number of the newest event of the whole store; 0 in an empty one."""

    def changes(self, after: int, trace: str = "") -> Changes:
        """The runs that have events after a store-wide number, at once and without reading the events.

        With the `trace` that was told with that number, a store that was put back and has grown since is noticed.
        """

    def sampled(self, run: str, count: int) -> Sequence[Recorded]:
        """At most `count` ends of beats, evenly over the journal, the first and the last among them; all if they are few."""

    def ends(self, run: str, *, before: int = 0, limit: int = PAGE_MAX) -> Sequence[Recorded]:
        """The ends of beats of a run, newest first, from below the sequence number `before`."""

    def counted(self, run: str) -> dict[str, int]:
        """How many events of each kind a run has; of the ends of beats only those that extended the plan."""

    def across(self, tags: Sequence[str], *, before: int = 0, limit: int = PAGE_MAX) -> Sequence[Recorded]:
        """Events of these kinds of all runs, newest first, from below the number `before`."""

    def forget(self, run: str) -> None:
        """Remove a run and its children."""

    def sweep_locks(self) -> int:
        """Remove what runs that were forgotten left in `local`; how many. What proves a rewound store is kept."""

    def close(self) -> None:
        """Let go of files and threads. Leases that are not released end with the process."""
