"""Leases on one host: an flock proves that a holder lives, an epoch fences off one that was overtaken.

Free lock = dead holder = claim at once. Held lock = wait for the lease; when that is over and the holder does not wake
up, it is robbed, unless it is frozen inside an act: then it is killed first, for nothing else proves that it will not act.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from outlast import faults
from outlast.core import recovery
from outlast.errors import LeaseLost, RunHeld, StoreBusy, StoreRefused, StoreRewound, UnknownRun
from outlast.store import locks
from outlast.store.local import Local
from outlast.store.protocol import Holder, Lease
from outlast.store.sqlite.database import Database, row_in
from outlast.store.timing import Timing

_MARKED = """
SELECT (SELECT coalesce(max(n), 0) FROM events),
       (SELECT root FROM runs WHERE id = (SELECT run FROM events WHERE n = ?)),
       (SELECT id FROM runs WHERE run = ?)
"""
_WAITING = "SELECT 1 FROM requests WHERE run = ? AND taken = 0 LIMIT 1"
decode_holder = msgspec.json.Decoder(Holder).decode


class SqliteLease:
    """A claimed run in this process."""

    def __init__(
        self,
        leases: "Leases",
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
        self.holder = holder
        self.lock = lock
        self.ttl_s = ttl_s
        self.deadline_s = 0.0
        self.released = False
        self.last_seen_s: float | None = None  # until when the holder before this one is known to have lived
        self._leases = leases

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Inside it the lease is valid, and a taker on this host waits for the end or kills this process."""
        self._leases.check_usable()  # after a failed write nothing is performed either
        if self.released:
            raise LeaseLost(self.run, held=self.epoch, current=self._leases.epoch_of(self.row))
        with self.lock.acting():
            margin_s = min(self._leases.timing.lease_margin_s, self.ttl_s / 3)
            late = locks.boottime_s() > self.deadline_s - margin_s
            if late and self._leases.renew([self], ttl_s=self.ttl_s):
                raise LeaseLost(self.run, held=self.epoch, current=self._leases.epoch_of(self.row))
            yield

    def mail_waits(self) -> bool:
        """Whether a request may be waiting."""
        return self.lock.mail_waits()

    def mail_taken(self) -> None:
        """The inbox is about to be read."""
        self.lock.set_mail(False)

    def mail_came(self) -> None:
        """A request waits."""
        self.lock.set_mail(True)

    def acting(self) -> bool:
        """Whether an act is under way in this process."""
        return self.lock.is_acting


class _Seen(msgspec.Struct, frozen=True):
    """Who holds a run, as one look told."""

    holder: Holder | None
    expires_s: int
    epoch: int


class _Taken(msgspec.Struct, frozen=True):
    """A new epoch, and who has it until when."""

    row: int
    epoch: int
    holder: Holder
    deadline_s: float


class Leases:
    """The leases of one store."""

    def __init__(self, database: Database, local: Local, timing: Timing) -> None:
        self.timing = timing
        self._db = database
        self._local = local
        self._held: dict[tuple[str, int], SqliteLease] = {}

    def epoch_of(self, row: int) -> int:
        """The run's current epoch."""
        return self._db.epoch_of(row)

    def check_usable(self) -> None:
        """Raise unless something may still be written through this store."""
        self._db.check_usable()

    def claim(self, run: str, ttl_s: float, placement: int) -> SqliteLease:
        """See `Store.claim`."""
        self._db.check_there()
        path = self._local.run_lock(run)
        lease = None
        deadline_s = locks.boottime_s() + self.timing.claim_wait_s
        while lease is None:
            seen = self._seen(run)
            if locks.boottime_s() > deadline_s:
                raise held(run, seen.holder)
            try:
                lock = locks.try_lock(path)
            except OSError as error:
                raise StoreRefused(
                    f"run {run} cannot be claimed: {path}: {error.strerror}", hint="see `outlast doctor`"
                ) from error
            if lock is not None:
                lease = self._claim_free(run, path, seen, lock, ttl_s, placement)
            else:
                lease = self._take_over(run, path, ttl_s, placement)
        self._held[run, lease.epoch] = lease
        faults.point("store.claimed")
        return lease

    def _claim_free(
        self, run: str, path: Path, seen: _Seen, lock: locks.RunLock, ttl_s: float, placement: int
    ) -> SqliteLease | None:
        """The lock is ours. Should we have slept before the epoch is, we may have been robbed of it: look again.

        The act lock is held meanwhile: one who robs a holder has it from before its epoch until its lock is in place,
        and looks dead in between.
        """
        try:
            taken = None
            if lock.hold_acts():
                locks.sweep(path)
                self._check_mark(run, path)
                taken = self._take(run, seen, ttl_s, placement, "epoch = ?")
                lock.free_acts()
        except BaseException:
            lock.close()
            raise
        if taken is None:
            lock.close()
            threading.Event().wait(self.timing.poll_s)
            return None
        return self._lease(run, taken, lock, ttl_s, seen)

    def _take(self, run: str, seen: _Seen, ttl_s: float, placement: int, unchanged: str) -> _Taken | None:
        """The next epoch, unless something changed since we looked."""
        holder = locks.myself()
        now = locks.boottime_s()
        values = (seen.epoch, seen.expires_s)[: unchanged.count("?")]

        def take(connection: apsw.Connection) -> tuple[int, int | None]:
            row = row_in(connection, run)
            epoch = connection.execute(
                "UPDATE runs SET epoch = epoch + 1, holder = ?, expires_s = ?, placement = max(placement, ?)"
                f" WHERE id = ? AND {unchanged} RETURNING epoch",
                (msgspec.json.encode(holder), int(now + ttl_s) + 1, placement, row, *values),
            ).get
            return row, epoch

        row, epoch = self._db.write(take)
        return None if epoch is None else _Taken(row, epoch, holder, now + ttl_s)

    def _lease(self, run: str, taken: _Taken, lock: locks.RunLock, ttl_s: float, seen: _Seen) -> SqliteLease:
        lease = SqliteLease(self, run, taken.row, taken.epoch, taken.holder, lock, ttl_s)
        lease.deadline_s = taken.deadline_s
        if seen.holder is not None:
            here = seen.holder.boot_id == taken.holder.boot_id
            lease.last_seen_s = seen.expires_s - ttl_s if here else 0.0
        return lease

    def _take_over(self, run: str, path: Path, ttl_s: float, placement: int) -> SqliteLease | None:
        """From a living holder whose lease is over; RunHeld while it is not, None when its lock became free.

        Its acts are held off until the epoch is ours: it wakes up before that, as the holder, or after it, fenced.
        """
        deadline_s = locks.boottime_s() + self.timing.wakeup_grace_s
        quiet = threading.Event()
        while True:
            seen = self._seen(run)
            if seen.expires_s > locks.boottime_s():
                raise held(run, seen.holder)
            if not locks.is_locked(path):
                return None
            if locks.boottime_s() > deadline_s:
                break
            quiet.wait(self.timing.poll_s)
        act_fd = locks.hold_acts(path)
        if act_fd is None:
            if seen.holder is not None and locks.kill_frozen(seen.holder):
                return None
            raise held(run, seen.holder, ", with an act still under way")
        try:
            self._check_mark(run, path)
            taken = self._rob(run, seen, ttl_s, placement)
            if taken is None:
                raise held(run, self.holder(run)[0])
        except BaseException:
            os.close(act_fd)
            raise
        return self._lease(run, taken, locks.seize(path, act_fd), ttl_s, seen)

    def _rob(self, run: str, seen: _Seen, ttl_s: float, placement: int) -> _Taken | None:
        unchanged = "epoch = ? AND expires_s = ?"
        try:
            return self._take(run, seen, ttl_s, placement, unchanged)
        except StoreBusy:
            if not self.thaw():
                raise
            return self._take(run, seen, ttl_s, placement, unchanged)

    def thaw(self) -> bool:
        """The whole store is locked: kill whoever is frozen, with its lease over, for it may be inside a commit."""
        sql = "SELECT holder FROM runs WHERE holder IS NOT NULL AND expires_s < ?"
        now = int(locks.boottime_s())
        rows: list[Any] = self._db.read(lambda connection: connection.execute(sql, (now,)).fetchall())
        killed = [locks.kill_frozen(decode_holder(holder)) for (holder,) in rows]
        return any(killed)

    def _seen(self, run: str) -> _Seen:
        sql = "SELECT holder, expires_s, epoch FROM runs WHERE run = ?"
        found = self._db.read(lambda connection: connection.execute(sql, (run,)).get)
        if found is None:
            raise UnknownRun(run)
        return _Seen(decode_holder(found[0]) if found[0] else None, found[1], found[2])

    def holder(self, run: str) -> tuple[Holder | None, int]:
        """Who claimed the run last, and until when."""
        seen = self._seen(run)
        return seen.holder, seen.expires_s

    def _check_mark(self, run: str, path: Path) -> None:
        """The last event that was acknowledged to this run must be there, and be its own."""
        mark = locks.read_mark(path)
        if mark == 0:
            return
        last, owner, mine = self._db.read(lambda connection: connection.execute(_MARKED, (mark, run)).get)
        if recovery.rewound(last, [mark]) is not None or owner != mine:
            raise StoreRewound(
                f"the store lost events of run {run}: event {mark} was acknowledged and is gone",
                hint=f"look at what the run did, then `outlast resume {run} --accept-rewind`",
            )

    def accept_rewind(self, run: str) -> None:
        """A person has looked: forget the mark of a run whose events were lost."""
        lock = locks.try_lock(self._local.run_lock(run))
        if lock is None:
            raise held(run, self.holder(run)[0])
        lock.mark(0)
        lock.close()

    def renew(self, leases: Iterable[Lease], *, ttl_s: float) -> dict[str, str]:
        """See `Store.renew`."""
        self._db.check_there()
        now = locks.boottime_s()

        def prolong(connection: apsw.Connection) -> dict[str, str]:
            lost: dict[str, str] = {}
            for lease in leases:
                assert isinstance(lease, SqliteLease), "a lease is used with the store that gave it"
                kept = connection.execute(
                    "UPDATE runs SET expires_s = ? WHERE id = ? AND epoch = ? RETURNING 1",
                    (int(now + ttl_s) + 1, lease.row, lease.epoch),
                ).get
                if kept is None:
                    lost[lease.run] = "another attempt claimed it"
                    continue
                lease.deadline_s = now + ttl_s
                if connection.execute(_WAITING, (lease.row,)).get is not None:
                    lease.lock.set_mail(True)
            return lost

        return self._db.write(prolong)

    def release(self, lease: Lease) -> None:
        """See `Store.release`. Letting go of the lock says it all: no write is needed."""
        assert isinstance(lease, SqliteLease), "a lease is used with the store that gave it"
        self._held.pop((lease.run, lease.epoch), None)
        lease.released = True
        lease.lock.close()

    def close(self) -> None:
        """Let go of every lock."""
        for lease in list(self._held.values()):
            lease.lock.close()
        self._held.clear()

    def abandon(self) -> None:
        """In a forked child: the parent's locks stay with the parent alone."""
        for lease in list(self._held.values()):
            lease.lock.abandon()
        self._held.clear()


def held(run: str, holder: Holder | None, why: str = "") -> RunHeld:
    """The refusal that names who holds the run."""
    if holder is None:
        return RunHeld(run, pid=0, host="unknown", since="unknown", why=why)
    since = holder.since.strftime("%Y-%m-%d %H:%M:%SZ")
    return RunHeld(run, pid=holder.pid, host=holder.host, since=since, why=why)
