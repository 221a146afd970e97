"""One claimed run of a shared store, and how long a holder elsewhere has been silent by our own clock."""

import contextlib
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from outlast import decoders
from outlast.errors import RunHeld
from outlast.store import locks
from outlast.store.locks import boottime_s
from outlast.store.protocol import Holder

if TYPE_CHECKING:
    from outlast.store.postgres.leases import ServerLeases

_decode_holder = decoders.of_json(Holder).decode


class PostgresLease:
    """A claimed run in this process."""

    def __init__(
        self,
        leases: "ServerLeases",
        run: str,
        row: int,
        epoch: int,
        holder: Holder,
        lock: locks.RunLock,
        ttl_s: float,
    ) -> None:
        self.run = run
        self.row = row
        self.epoch = epoch
        self.turn = 0
        self.holder = holder
        self.lock = lock
        self.ttl_s = ttl_s
        self.deadline_s = 0.0
        self.vouched_s = 0.0  # when the last acknowledged statement that proves the lease was sent
        self.released = self.lost = False
        self.last_seen_s: float | None = None
        self._leases = leases

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Inside it the lease is valid, and an act begins soon enough that nobody elsewhere has settled it yet."""
        leases = self._leases
        leases.check_usable()
        if self.released or self.lost:
            raise leases.lease_lost(self)
        try:
            with self.lock.acting():
                while not self._is_fresh():
                    leases.confirm(self)  # its answer may be late: then it is asked again
                yield
        finally:
            leases.end_act(self)

    def _is_fresh(self) -> bool:
        now_s = boottime_s()
        return now_s <= self.deadline_s and now_s <= self.vouched_s + self._leases.timing.act_within_s

    def vouch(self, sent_s: float) -> None:
        """An acknowledged statement sent at this time found the lease valid. It prolongs nothing."""
        self.vouched_s = max(self.vouched_s, sent_s)

    def request_waits(self) -> bool:
        """Whether a request may be waiting."""
        return self.lock.request_waits()

    def clear_request_flag(self) -> None:
        """Clear the flag: the inbox is about to be read."""
        self.lock.set_request_flag(False)

    def set_request_flag(self) -> None:
        """Set the flag: a request waits."""
        self.lock.set_request_flag(True)

    def acting(self) -> bool:
        """Whether this process is performing an act."""
        return self.lock.is_acting


class LeaseSeen(msgspec.Struct, frozen=True):
    """A run's lease and the session that holds it, at one moment."""

    epoch: int
    session: uuid.UUID | None
    holder: Holder | None
    ttl_s: float
    uptime_s: int
    beats: int | None
    host: uuid.UUID | None
    machine: str
    last: int
    looks_over: bool  # by the server's clock: for display only


class Watch:
    """Since when, by our own clock, the counters of other sessions stand still."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[object, float, float]] = {}

    def look(self, row: int, seen: LeaseSeen) -> float:
        """How long the lease's counter is known to stand still. A look that came late begins the watch anew."""
        now_s, what = boottime_s(), (seen.epoch, seen.session, seen.beats)
        before, since_s, last_s = self._since.get(row, (None, 0.0, 0.0))
        if before != what or now_s - last_s > 2 * seen.ttl_s / 6:
            since_s = now_s
        self._since[row] = (what, since_s, now_s)
        return now_s - since_s

    def moved(self, row: int, seen: LeaseSeen, since_s: float) -> bool:
        """Whether the counter is another than at the last look, if that was after this time."""
        before, _, last_s = self._since.get(row, (None, 0.0, 0.0))
        return last_s >= since_s and before != (seen.epoch, seen.session, seen.beats)

    def forget(self, row: int) -> None:
        self._since.pop(row, None)


def run_held(run: str, holder: Holder | None, why: str = "") -> RunHeld:
    """The error that names the holder of the run."""
    if holder is None:
        return RunHeld(run, pid=0, host="unknown", since="unknown", why=why)
    since = holder.since.strftime("%Y-%m-%d %H:%M:%SZ")
    return RunHeld(run, pid=holder.pid, host=holder.host, since=since, why=why)


def readable_holder(stored: object) -> Holder | None:
    """The holder of a run, from its row; None if there is none."""
    try:
        return _decode_holder(stored) if isinstance(stored, bytes) and stored else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
