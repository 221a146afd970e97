"""ServerLeases that hosts share: an epoch fences, a session's counter shows life, and a taker judges it by its own clock.

On one host a free lock file still proves death at once. See `ServerLeases.claim` for who may take a run over, and when."""

import contextlib
import os
import threading
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import psycopg

from outlast import faults
from outlast.errors import (
    LeaseLost,
    StoreError,
    StoreRefused,
    StoreRewound,
    StoreUnreachable,
    UnknownRun,
)
from outlast.store import locks
from outlast.store.local import Local
from outlast.store.locks import boottime_s
from outlast.store.postgres.database import Connection, Server, Unanswered
from outlast.store.postgres.host import Host
from outlast.store.postgres.lease import LeaseSeen, PostgresLease, Watch, readable_holder, run_held
from outlast.store.protocol import Lease

_SEEN = """
SELECT l.epoch, l.session, l.holder, l.ttl_ms, coalesce(s.uptime_s, l.seen_s), s.beats, s.host, s.machine,
       (SELECT max(seq) FROM events WHERE run = l.run),
       clock_timestamp() - s.renewed_at > l.ttl_ms * interval '1 ms'
FROM leases l LEFT JOIN sessions s ON s.id = l.session WHERE l.run = %s
"""
_BEGIN = """
INSERT INTO sessions(id, host, machine, holder, uptime_s) VALUES (%s, %s, %s, %s, %s) ON CONFLICT (id) DO NOTHING
"""
_SESSION = "SELECT beats FROM sessions WHERE id = %s FOR UPDATE"
_CLAIM = """
UPDATE leases SET epoch = epoch + 1, turn = 0, session = %(me)s, holder = %(holder)s, ttl_ms = %(ttl_ms)s,
       placement = greatest(placement, %(placement)s),
       proven = CASE WHEN %(is_proof)s AND proven >= epoch - 1 THEN epoch ELSE proven END
WHERE run = %(run)s AND epoch = %(epoch)s AND session IS NOT DISTINCT FROM %(session)s
RETURNING epoch, proven
"""
_DOOR = "UPDATE leases SET turn = %s WHERE run = %s AND epoch = %s AND session = %s AND turn < %s RETURNING proven"
_PROVE = "UPDATE leases SET proven = greatest(proven, %s) WHERE run = %s AND epoch = %s AND session = %s"
_RELEASE = "UPDATE leases SET session = NULL, seen_s = %s WHERE run = %s AND epoch = %s AND session = %s"
_RELEASE_ALL = "UPDATE leases SET session = NULL, seen_s = %s WHERE session = %s"
_END = "DELETE FROM sessions s WHERE id = %s AND NOT EXISTS (SELECT 1 FROM leases WHERE session = s.id)"
_SWEEP = """
DELETE FROM sessions s WHERE renewed_at < clock_timestamp() - interval '1 day'
AND NOT EXISTS (SELECT 1 FROM leases WHERE session = s.id)
"""
# Two statements in one round trip: the second has a snapshot of its own, so it sees a claim that the first waited for.
# Only what is certainly a UUID or a number stands in it.
_RENEW = """
UPDATE sessions SET beats = beats + 1, uptime_s = {uptime}, renewed_at = clock_timestamp() WHERE id = '{me}';
SELECT l.run, l.epoch, EXISTS (SELECT 1 FROM requests q WHERE q.run = l.run AND NOT q.taken) FROM leases l
WHERE l.session = '{me}'
"""


class ServerLeases:
    """The leases of one store, and this process's session in it."""

    def __init__(self, database: Server, local: Local, host: Host) -> None:
        self.timing = database.timing
        self.session = uuid.uuid4()
        self._db = database
        self._local = local
        self._host = host
        self._watch = Watch()
        self._doors = 0
        self._held: dict[tuple[int, int], PostgresLease] = {}
        # Rows that a thread of ours is claiming, since when: what the server tells of them may be news.
        self._claims: dict[tuple[int, int], float] = {}
        self._mutex = threading.RLock()
        self._begun = False
        self._heart: threading.Thread | None = None
        self._wake = threading.Event()
        self._closing = False

    @property
    def host_id(self) -> uuid.UUID:
        """This host."""
        return self._host.id

    def check_usable(self) -> None:
        """Raise unless this store can still write."""
        self._db.check_usable()

    def lease_lost(self, lease: PostgresLease) -> LeaseLost:
        """The error that tells which epoch the run has now."""
        with contextlib.suppress(StoreError, UnknownRun):
            return LeaseLost(lease.run, held=lease.epoch, current=self._seen(lease.run, lease.row).epoch)
        return LeaseLost(lease.run, held=lease.epoch, current=lease.epoch)

    # -- claim ---------------------------------------------------------------------------------------------------

    def claim(self, run: str, ttl_s: float, placement: int) -> PostgresLease:
        """See `Store.claim`.

        Free, or the lock file proves that the holder on this host is dead: claim at once. Held elsewhere: watch the holder's
        counter. If it moves, the run is held; if it stands still for the holder's whole lease, by our clock, the run is
        overtaken, and nothing is done with it until what its holder may have begun is over.
        """
        if ttl_s < self.timing.ttl_min_s:
            raise StoreRefused(
                f"a lease of {ttl_s:g} s is too short for a store that hosts share",
                hint=f"set lease_s to {self.timing.ttl_min_s:g} or more",
            )
        row, _ = self._db.row(run)
        self._begin()
        path = self._local.run_lock(run)
        deadline_s = boottime_s() + self.timing.claim_wait_s
        lease = None
        with self._claiming(row):
            while lease is None:
                seen = self._seen(run, row)
                try:
                    lock = locks.try_lock(path)
                except OSError as error:
                    raise StoreRefused(
                        f"run {run} cannot be claimed: {path}: {error.strerror}", hint="see `outlast doctor`"
                    ) from error
                if lock is not None:
                    lease = self._claim_locked(run, row, seen, lock, ttl_s, placement)
                else:
                    lease = self._claim_from_here(run, row, seen, path, ttl_s, placement, deadline_s)
        self._settle_down(lease)
        faults.point("store.claimed")
        return lease

    @contextlib.contextmanager
    def _claiming(self, row: int) -> Iterator[None]:
        with self._mutex:
            self._claims[row, threading.get_ident()] = boottime_s()
        try:
            yield
        finally:
            with self._mutex:
                self._claims.pop((row, threading.get_ident()), None)

    def _claim_locked(
        self, run: str, row: int, seen: LeaseSeen, lock: locks.RunLock, ttl_s: float, placement: int
    ) -> PostgresLease | None:
        """Claim with the run's local lock held: nobody on this host works on it. None: look again."""
        try:
            lease = None
            if lock.hold_acts():
                try:
                    lease = self._claim_alone(run, row, seen, lock, ttl_s, placement)
                finally:
                    lock.free_acts()
        except BaseException:
            lock.close()
            raise
        if lease is None:
            lock.close()
            pause_s = min(self.timing.watch_look_s, seen.ttl_s / 6) if seen.session else self.timing.poll_s
            threading.Event().wait(pause_s)
        return lease

    def _claim_alone(
        self, run: str, row: int, seen: LeaseSeen, lock: locks.RunLock, ttl_s: float, placement: int
    ) -> PostgresLease | None:
        locks.sweep(lock.path)
        self._check_mark(run, lock.path, seen)
        is_proof = seen.session is None or self._is_dead(seen, lock.path)
        if not is_proof:
            if self._watch.moved(row, seen, self._claims[row, threading.get_ident()]):
                self._watch.look(row, seen)
                raise run_held(run, seen.holder)
            if self._watch.look(row, seen) < seen.ttl_s:
                return None
        return self._take(run, row, seen, lock, ttl_s, placement, is_proof=is_proof)

    def _is_dead(self, seen: LeaseSeen, path: Path) -> bool:
        """Whether the free lock file proves the holder's death: it held this very file, on this machine."""
        assert seen.session is not None, "nobody holds the run"
        mine = locks.read_session(path) == seen.session.bytes and seen.host == self._host.id
        boot = seen.holder.boot_id if seen.holder is not None else ""
        return mine and self._host.proves_death(seen.machine, boot)

    def _claim_from_here(
        self, run: str, row: int, seen: LeaseSeen, path: Path, ttl_s: float, placement: int, deadline_s: float
    ) -> PostgresLease | None:
        """Somebody on this host has the lock. Taken over only if its counter stands still: it hangs, or is stopped."""
        if seen.session is None:  # it is just letting go
            if boottime_s() > deadline_s:
                raise run_held(run, seen.holder)
            threading.Event().wait(self.timing.poll_s)
            return None
        moved = self._watch.moved(row, seen, self._claims[row, threading.get_ident()])
        if self._watch.look(row, seen) < seen.ttl_s:
            # Its counter may be known to stand still only to the server's clock, which decides nothing: watch it.
            if moved or not seen.looks_over:
                raise run_held(run, seen.holder)
            pause_s = min(self.timing.watch_look_s, seen.ttl_s / 6)
            threading.Event().wait(pause_s)
            return None
        act_fd = locks.hold_acts(path)
        if act_fd is None:
            if seen.holder is not None and locks.kill_frozen(seen.holder):
                return None
            raise run_held(run, seen.holder, ", which is still performing an act")
        try:
            self._check_mark(run, path, seen)
            lock = locks.seize(path, act_fd)
        except BaseException:
            os.close(act_fd)
            raise
        try:
            lease = self._take(run, row, seen, lock, ttl_s, placement, is_proof=False)
            if lease is None:
                raise run_held(run, seen.holder)
            return lease
        except BaseException:
            lock.close()
            raise

    def _take(
        self,
        run: str,
        row: int,
        seen: LeaseSeen,
        lock: locks.RunLock,
        ttl_s: float,
        placement: int,
        *,
        is_proof: bool,
    ) -> PostgresLease | None:
        """Take the next epoch; None if something changed since `seen`. A lost answer is looked for."""
        lock.set_session(
            self.session.bytes
        )  # before it is sent: wherever we die, this lock tells that it was us
        holder = msgspec.structs.replace(locks.myself(), host_id=str(self._host.id))
        values = {
            "me": self.session, "holder": msgspec.json.encode(holder), "ttl_ms": round(ttl_s * 1000), "placement": placement,
            "is_proof": is_proof, "run": row, "epoch": seen.epoch, "session": seen.session,
        }  # fmt: skip
        first_s = boottime_s()
        turn = 0
        until_s = first_s + self.timing.reconnect_s

        def attempt() -> tuple[int, int] | None:
            nonlocal turn
            try:
                with self._db.connection() as connection, self._db.limit(connection):
                    found = _claimed(connection, values, None if is_proof else seen)
                if found is not None:
                    return found
            except Unanswered:
                lost.append(True)
                raise
            if lost:  # an earlier try may have been granted: what was only read may vanish with its server, so write
                self._doors += 1
                turn = self._doors
                rows = self._db.ask(_DOOR, (turn, row, seen.epoch + 1, self.session, turn))
                if rows:
                    return seen.epoch + 1, int(rows[0][0])
            return None

        lost: list[bool] = []
        taken = self._db.repeat(attempt, until_s=until_s)
        if taken is None:
            return None
        lease = PostgresLease(self, run, row, taken[0], holder, lock, ttl_s)
        lease.turn = turn
        lease.deadline_s = first_s + ttl_s - self._margin_s(ttl_s)
        lease.vouch(first_s)
        lease.last_seen_s = self._last_seen_s(seen)
        with self._mutex:
            self._held[row, lease.epoch] = lease
        self._watch.forget(row)
        try:
            self._start_heart()
            if taken[1] < lease.epoch - 1:
                self._wait_for_quiet(lease)
        except BaseException:  # else this session would hold a run that nobody works on
            lease.released = True
            self.let_go(lease)
            raise
        return lease

    def _wait_for_quiet(self, lease: PostgresLease) -> None:
        """An earlier holder is not known to be dead: wait until what it may have begun is over, and record that."""
        threading.Event().wait(self.timing.quiet_s)
        self._db.repeat(
            lambda: self._db.ask(_PROVE, (lease.epoch - 1, lease.row, lease.epoch, self.session)),
            until_s=lease.deadline_s,
        )

    def _settle_down(self, lease: PostgresLease) -> None:
        if lease.lost:
            self.let_go(lease)
            raise self.lease_lost(lease)

    def _last_seen_s(self, seen: LeaseSeen) -> float | None:
        if seen.holder is None:
            return None
        return float(seen.uptime_s) if seen.holder.boot_id == locks.boot_id() else 0.0

    @staticmethod
    def _margin_s(ttl_s: float) -> float:
        """What clocks may differ by in a lease, and a second for the rest."""
        return ttl_s / 10 + 1

    def _seen(self, run: str, row: int) -> LeaseSeen:
        rows = self._db.read(_SEEN, (row,))
        if not rows:
            self._db.forget_row(run)
            raise UnknownRun(run)
        epoch, session, holder, ttl_ms, uptime_s, beats, host, machine, last, over = rows[0]
        return LeaseSeen(
            epoch, session, readable_holder(holder), ttl_ms / 1000, uptime_s, beats, host, machine or "", last or 0, bool(over)
        )  # fmt: skip

    def _check_mark(self, run: str, path: Path, seen: LeaseSeen) -> None:
        """Check that the last event of the run that was acknowledged to this host is there."""
        mark = locks.read_mark(path)
        if mark > seen.last:
            raise StoreRewound(
                f"the store lost events of run {run}: event {mark} was acknowledged, the last one is {seen.last}",
                hint=f"look at what the run did, then `outlast resume {run} --accept-rewind`",
            )

    def accept_rewind(self, run: str) -> None:
        """Forget the mark of a run that lost events, after a person has looked."""
        row, _ = self._db.row(run)
        lock = locks.try_lock(self._local.run_lock(run))
        if lock is None:
            raise run_held(run, self._seen(run, row).holder)
        lock.mark(0)
        lock.close()

    def holder_lives(self, run: str) -> bool:
        """Whether a living process holds the run, as far as can be told at once. A claim judges for itself."""
        path = self._local.run_lock(run)
        if locks.is_locked(path):
            return True
        row, _ = self._db.row(run)
        seen = self._seen(run, row)
        return seen.session is not None and not seen.looks_over and not self._is_dead(seen, path)

    # -- the session ---------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._begun:
            values = (
                self.session,
                self._host.id,
                self._host.machine,
                msgspec.json.encode(locks.myself()),
                int(boottime_s()),
            )
            self._db.repeat(lambda: self._db.ask(_BEGIN, values))
            self._begun = True

    def _start_heart(self) -> None:
        with self._mutex:
            if self._heart is None or not self._heart.is_alive():
                self._heart = threading.Thread(target=self._beat, name="outlast-session", daemon=True)
                self._heart.start()
        self._wake.set()

    def _beat(self) -> None:
        """Count up while we hold something. A renewal that was not answered is tried again soon."""
        answered = True
        while not self._closing:
            with self._mutex:
                ttl_s = min([lease.ttl_s for lease in self._held.values()], default=0.0)
            if not ttl_s:
                self._wake.wait()
                self._wake.clear()
                continue
            period_s = ttl_s / 6
            threading.Event().wait(period_s if answered else min(period_s, self.timing.retry_s))
            try:
                self._renew()
                answered = True
            except (StoreError, Unanswered):
                answered = False  # the next append or act finds out for itself

    def _renew(self) -> None:
        """One round trip for all leases. Raises Unanswered or StoreError; then nothing is prolonged."""
        with self._mutex:
            known = dict(self._held)
        sent_s = boottime_s()
        query = _RENEW.format(uptime=int(sent_s), me=self.session)
        try:
            with self._db.connection() as connection, self._db.limit(connection):
                cursor = connection.execute(query.encode())
                cursor.nextset()
                found = {(int(run), int(epoch)): bool(waits) for run, epoch, waits in cursor.fetchall()}
        except psycopg.Error as error:  # as a full disk, or a lock that somebody keeps
            raise self._db.translated(error) from error
        for place, lease in known.items():
            if place not in found:
                lease.lost = not lease.released
                continue
            lease.deadline_s = max(lease.deadline_s, sent_s + lease.ttl_s - self._margin_s(lease.ttl_s))
            lease.vouch(sent_s)
            if found[place]:
                lease.set_request_flag()
        self._let_go_unknown(found.keys() - known.keys())

    def _let_go_unknown(self, places: Iterable[tuple[int, int]]) -> None:
        """Release what the server says is ours and nobody here has: a claim or release whose answer was lost for good."""
        for row, epoch in places:
            if self._closing:
                return  # what is held in the middle of an act is not let go by us
            with self._mutex:
                claimed = {claimed for claimed, _ in self._claims}
                ours = (row, epoch) in self._held or row in claimed
            if not ours:
                self._db.try_to(_RELEASE, (int(boottime_s()), row, epoch, self.session))

    def confirm(self, lease: PostgresLease) -> None:
        """Ask the store whether the lease is valid. Raises LeaseLost, or StoreUnreachable when its time is over."""
        try:
            self._db.repeat(self._renew, until_s=lease.deadline_s)
        except StoreUnreachable as error:
            error.hint = "nothing was done; go on when the store answers"
            raise
        if lease.lost:
            raise self.lease_lost(lease)

    def renew(self, leases: Iterable[Lease]) -> dict[str, str]:
        """See `Store.renew`. The session's own thread renews too."""
        mine = [lease for lease in leases if isinstance(lease, PostgresLease)]
        with contextlib.suppress(Unanswered, StoreUnreachable):
            self._renew()  # without an answer, those whose time is over are said to be lost
        return {lease.run: why for lease in mine if (why := self._why_lost(lease))}

    def _why_lost(self, lease: PostgresLease) -> str:
        if lease.lost or (lease.row, lease.epoch) not in self._held:
            return "another attempt claimed it"
        return "the store did not answer for too long" if boottime_s() > lease.deadline_s else ""

    def overdue(self) -> PostgresLease | None:
        """A lease whose time is over by our clock, so that somebody else may hold the run. Costs nothing."""
        now_s = boottime_s()
        return next(
            (lease for lease in list(self._held.values()) if lease.lost or now_s > lease.deadline_s), None
        )

    # -- the end of a lease --------------------------------------------------------------------------------------

    def release(self, lease: Lease) -> None:
        """See `Store.release`. Others may claim when the last act in progress has ended."""
        assert isinstance(lease, PostgresLease), "a lease works only with the store that gave it"
        lease.released = True
        self.let_go(lease)

    def end_act(self, lease: PostgresLease) -> None:
        """An act has ended: a release may have waited for it."""
        if lease.released:
            self.let_go(lease)

    def let_go(self, lease: PostgresLease) -> None:
        """Tell the server and free the lock, unless an act is in progress: a release is a proof that nothing is done."""
        with self._mutex:
            if lease.acting() or (lease.row, lease.epoch) not in self._held:
                return
            del self._held[lease.row, lease.epoch]
        try:  # on this host the free lock is enough; for others the session's thread tells, or its end
            if not lease.lost:
                self._db.try_to(_RELEASE, (int(boottime_s()), lease.row, lease.epoch, self.session))
        finally:
            lease.lock.close()

    def sweep(self) -> None:
        """Remove the rows of sessions that ended long ago."""
        self._db.write(lambda connection: connection.execute(_SWEEP))

    def close(self) -> None:
        """End the session. What is held in the middle of an act stays the process's until it ends."""
        self._closing = True
        self._wake.set()
        with self._mutex:
            held, self._held = list(self._held.values()), {}
        if self._begun and self._db.usable and not any(lease.acting() for lease in held):
            self._db.try_to(_RELEASE_ALL, (int(boottime_s()), self.session))
            self._db.try_to(_END, (self.session,))
        for lease in held:
            lease.lock.close()

    def abandon(self) -> None:
        """In a forked child: leave the locks and the session to the parent."""
        for lease in list(self._held.values()):
            lease.lock.abandon()
        self._held.clear()
        self._heart = None
        self._mutex = threading.RLock()


def _claimed(
    connection: Connection, values: dict[str, object], seen: LeaseSeen | None
) -> tuple[int, int] | None:
    """The new epoch and up to which one is proven over; None if the lease changed. With `seen`, only if its holder is silent."""
    if seen is None:
        found = connection.execute(_CLAIM, values).fetchone()
    else:
        with connection.transaction():
            found = connection.execute(_CLAIM, values).fetchone() if _is_still(connection, seen) else None
    return None if found is None else (int(found[0]), int(found[1]))


def _is_still(connection: Connection, seen: LeaseSeen) -> bool:
    """Lock the holder's session, then look: a renewal under way is waited for. A session that is gone is silent."""
    found = connection.execute(_SESSION, (seen.session,)).fetchone()
    return found is None or found[0] == seen.beats
