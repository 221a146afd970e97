"""Leases on one host: an flock proves that a holder lives, an epoch fences off a holder that was overtaken.

See `Leases.claim` for who may take a run over, and when."""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from outlast import decoders, faults
from outlast.core import recovery
from outlast.errors import LeaseLost, RunHeld, StoreBusy, StoreRefused, StoreRewound, UnknownRun
from outlast.store import locks
from outlast.store.local import Local
from outlast.store.protocol import Holder, Lease
from outlast.store.sqlite.database import Database, row_in
from outlast.store.sqlite.log_readers import LogWatch
from outlast.store.timing import Timing

_MARKED = """
SELECT (SELECT coalesce(max(n), 0) FROM events),
       (SELECT root FROM runs WHERE id = (SELECT run FROM events WHERE n = ?)),
       (SELECT id FROM runs WHERE run = ?)
"""
_WAITING = "SELECT 1 FROM requests WHERE run = ? AND taken = 0 LIMIT 1"
_decode_holder = decoders.of_json(Holder).decode


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
        self.last_seen_s: float | None = None  # until when the previous holder is known to have lived
        self._leases = leases

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Inside it the lease is valid. A process that takes over on this host waits for its end, or kills us."""
        self._leases.check_usable()  # after a failed write, perform nothing either
        if self.released:
            raise LeaseLost(self.run, held=self.epoch, current=self._leases.epoch_of(self.row))
        with self.lock.acting():
            margin_s = min(self._leases.timing.lease_margin_s, self.ttl_s / 3)
            late = locks.boottime_s() > self.deadline_s - margin_s
            if late and self._leases.renew([self], ttl_s=self.ttl_s):
                raise LeaseLost(self.run, held=self.epoch, current=self._leases.epoch_of(self.row))
            yield

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


class _Seen(msgspec.Struct, frozen=True):
    """The holder, the lease and the epoch of a run at one moment."""

    holder: Holder | None
    expires_s: int
    epoch: int


class _Taken(msgspec.Struct, frozen=True):
    """A new epoch, with its holder and its expiry."""

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
        self._log = LogWatch(database.path, timing)

    def epoch_of(self, row: int) -> int:
        """The run's current epoch."""
        return self._db.epoch_of(row)

    def check_usable(self) -> None:
        """Raise unless this store can still write."""
        self._db.check_usable()

    def claim(self, run: str, ttl_s: float, placement: int) -> SqliteLease:
        """See `Store.claim`.

        A free lock means a dead holder: claim at once. A held lock means waiting until the lease has expired. If the
        holder does not wake up then, it is overtaken. If it is frozen inside an act, it is killed first, because nothing
        else proves that it will not act later.
        """
        self._db.check_exists()
        path = self._local.run_lock(run)
        lease = None
        deadline_s = locks.boottime_s() + self.timing.claim_wait_s
        while lease is None:
            seen = self._seen(run)
            if locks.boottime_s() > deadline_s:
                raise run_held(run, seen.holder)
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
        """Claim with the run's lock held. If this process slept before it had the epoch, another may have overtaken it:
        look again.

        The act lock is held meanwhile. A process that overtakes a holder has that lock from before its new epoch until
        its own lock file is in place; in between it looks dead.
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
        """Take the next epoch, unless something changed since `seen`."""
        holder = locks.myself()
        values = (seen.epoch, seen.expires_s)[: unchanged.count("?")]

        def take(connection: apsw.Connection) -> tuple[int, float, int | None]:
            now = locks.boottime_s()  # of now, however long the store was busy
            row = row_in(connection, run)
            epoch = connection.execute(
                "UPDATE runs SET epoch = epoch + 1, holder = ?, expires_s = ?, placement = max(placement, ?)"
                f" WHERE id = ? AND {unchanged} RETURNING epoch",
                (msgspec.json.encode(holder), int(now + ttl_s) + 1, placement, row, *values),
            ).get
            return row, now, epoch

        row, now, epoch = self._db.write(take)
        return None if epoch is None else _Taken(row, epoch, holder, now + ttl_s)

    def _lease(self, run: str, taken: _Taken, lock: locks.RunLock, ttl_s: float, seen: _Seen) -> SqliteLease:
        lease = SqliteLease(self, run, taken.row, taken.epoch, taken.holder, lock, ttl_s)
        lease.deadline_s = taken.deadline_s
        if seen.holder is not None:
            here = seen.holder.boot_id == taken.holder.boot_id
            lease.last_seen_s = seen.expires_s - ttl_s if here else 0.0
        return lease

    def _take_over(self, run: str, path: Path, ttl_s: float, placement: int) -> SqliteLease | None:
        """Take the run from a living holder whose lease has expired. RunHeld while it has not; None if the lock got free.

        The holder cannot begin an act until the epoch is ours: it wakes up before that as the holder, or later, fenced.
        """
        deadline_s = locks.boottime_s() + self.timing.wakeup_grace_s
        quiet = threading.Event()
        while True:
            seen = self._seen(run)
            if seen.expires_s > locks.boottime_s():
                raise run_held(run, seen.holder)
            if not locks.is_locked(path):
                return None
            if locks.boottime_s() > deadline_s:
                break
            quiet.wait(self.timing.poll_s)
        act_fd = locks.hold_acts(path)
        if act_fd is None:
            if seen.holder is not None and locks.kill_frozen(seen.holder):
                return None
            raise run_held(run, seen.holder, ", which is still performing an act")
        try:
            self._check_mark(run, path)
            taken = self._rob(run, seen, ttl_s, placement)
            if taken is None:
                raise run_held(run, self.holder(run)[0])
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
        """The whole store is locked: kill every frozen holder with an expired lease, for it may be inside a commit."""
        sql = "SELECT holder FROM runs WHERE holder IS NOT NULL AND expires_s < ?"
        now = int(locks.boottime_s())
        rows: list[Any] = self._db.read(lambda connection: connection.execute(sql, (now,)).fetchall())
        holders = [readable_holder(stored) for (stored,) in rows]
        killed = [locks.kill_frozen(holder) for holder in holders if holder is not None]
        return any(killed)

    def _seen(self, run: str) -> _Seen:
        sql = "SELECT holder, expires_s, epoch FROM runs WHERE run = ?"
        found = self._db.read(lambda connection: connection.execute(sql, (run,)).get)
        if found is None:
            raise UnknownRun(run)
        return _Seen(readable_holder(found[0]), found[1], found[2])

    def holder(self, run: str) -> tuple[Holder | None, int]:
        """Who claimed the run last, and until when the lease lasts."""
        seen = self._seen(run)
        return seen.holder, seen.expires_s

    def _check_mark(self, run: str, path: Path) -> None:
        """Check that the last event acknowledged to this run exists and belongs to it."""
        mark = locks.read_mark(path)
        if mark == 0:
            return
        last, owner, mine = self._db.read(lambda connection: connection.execute(_MARKED, (mark, run)).get)
        if recovery.missing_event(last, [mark]) is not None or owner != mine:
            raise StoreRewound(
                f"the store lost events of run {run}: event {mark} was acknowledged and is gone",
                hint=f"look at what the run did, then `outlast resume {run} --accept-rewind`",
            )

    def accept_rewind(self, run: str) -> None:
        """Forget the mark of a run that lost events, after a person has looked."""
        lock = locks.try_lock(self._local.run_lock(run))
        if lock is None:
            raise run_held(run, self.holder(run)[0])
        lock.mark(0)
        lock.close()

    def renew(self, leases: Iterable[Lease], *, ttl_s: float) -> dict[str, str]:
        """See `Store.renew`."""
        self._db.check_exists()
        self._log.look()

        def prolong(connection: apsw.Connection) -> dict[str, str]:
            now = locks.boottime_s()  # of now, however long the store was busy
            lost: dict[str, str] = {}
            for lease in leases:
                assert isinstance(lease, SqliteLease), "a lease works only with the store that gave it"
                renewed = connection.execute(
                    "UPDATE runs SET expires_s = ? WHERE id = ? AND epoch = ? RETURNING 1",
                    (int(now + ttl_s) + 1, lease.row, lease.epoch),
                ).get
                if renewed is None:
                    lost[lease.run] = "another attempt claimed it"
                    continue
                lease.deadline_s = now + ttl_s
                if connection.execute(_WAITING, (lease.row,)).get is not None:
                    lease.lock.set_request_flag(True)
            return lost

        return self._db.write(prolong)

    def release(self, lease: Lease) -> None:
        """See `Store.release`. Releasing the lock is enough: no write is needed."""
        assert isinstance(lease, SqliteLease), "a lease works only with the store that gave it"
        self._held.pop((lease.run, lease.epoch), None)
        lease.released = True
        lease.lock.close()

    def close(self) -> None:
        """Release every lock."""
        for lease in list(self._held.values()):
            lease.lock.close()
        self._held.clear()

    def abandon(self) -> None:
        """In a forked child: leave the locks to the parent."""
        for lease in list(self._held.values()):
            lease.lock.abandon()
        self._held.clear()


def run_held(run: str, holder: Holder | None, why: str = "") -> RunHeld:
    """The error that names the holder of the run."""
    if holder is None:
        return RunHeld(run, pid=0, host="unknown", since="unknown", why=why)
    since = holder.since.strftime("%Y-%m-%d %H:%M:%SZ")
    return RunHeld(run, pid=holder.pid, host=holder.host, since=since, why=why)


def readable_holder(stored: object) -> Holder | None:
    """The holder of a run, from its row; None if there is none, or if the row is damaged: its lock says whether somebody lives."""
    try:
        return _decode_holder(stored) if isinstance(stored, bytes) and stored else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
