"""One thread per store that keeps this process's leases alive, whatever its other threads wait for."""

import os
import signal
import threading
import time
from typing import ClassVar

from outlast.errors import StoreError
from outlast.store.protocol import Lease, Store


class Heartbeat:
    """Renews the leases of a store, each three times before it would be over; those of one length together."""

    _all: ClassVar[dict[int, "Heartbeat"]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, store: Store) -> None:
        self._store = store
        self._leases: dict[tuple[str, int], tuple[Lease, float]] = {}
        self._due_s: dict[float, float] = {}  # by length of the lease: when these are renewed next
        self._changed = threading.Event()
        # A Ctrl-C while Python waits for a thread to start becomes a RuntimeError about a lock: it comes after that.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            threading.Thread(target=self._beat, name="outlast-lease", daemon=True).start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    @classmethod
    def add(cls, store: Store, lease: Lease, ttl_s: float) -> None:
        """Keep a lease alive."""
        with cls._lock:
            heart = cls._all.get(id(store))
            if heart is None:
                heart = cls._all[id(store)] = Heartbeat(store)
            known = ttl_s in heart._due_s
            if not known:  # first, so that a Ctrl-C in between leaves no lease without its time
                heart._due_s[ttl_s] = time.monotonic() + ttl_s / 3
            heart._leases[lease.run, lease.epoch] = lease, ttl_s
            if not known:
                heart._changed.set()  # it may be due before those that are waited for

    @classmethod
    def remove(cls, store: Store, lease: Lease) -> None:
        """Let a lease go; the thread ends with the last one."""
        with cls._lock:
            heart = cls._all.get(id(store))
            if heart is None:
                return
            heart._leases.pop((lease.run, lease.epoch), None)
            if not heart._leases:
                heart._changed.set()
                del cls._all[id(store)]

    def _beat(self) -> None:
        while (wait_s := self._wait_s()) is not None:
            self._changed.wait(wait_s)
            self._changed.clear()
            for ttl_s, leases in self._due().items():
                try:
                    self._store.renew(leases, ttl_s=ttl_s)
                except StoreError:
                    # The next append or act finds out for itself; here nobody could be told.
                    continue

    def _wait_s(self) -> float | None:
        """How long nothing is due; None when there is no lease left to keep."""
        with self._lock:
            if not self._leases:
                return None
            now_s = time.monotonic()
            return max(0.0, min(self._due_s.values(), default=now_s + 1) - now_s)

    def _due(self) -> dict[float, list[Lease]]:
        """The leases to renew now, by their length; each length is due again after a third of it."""
        now = time.monotonic()
        with self._lock:
            lengths = {ttl_s for _, ttl_s in self._leases.values()}
            self._due_s = {ttl_s: due_s for ttl_s, due_s in self._due_s.items() if ttl_s in lengths}
            due = {ttl_s for ttl_s, due_s in self._due_s.items() if due_s <= now}
            self._due_s |= {ttl_s: now + ttl_s / 3 for ttl_s in due}
            return {
                ttl_s: [lease for lease, own_s in self._leases.values() if own_s == ttl_s] for ttl_s in due
            }


def _forget_after_fork() -> None:
    """In a forked child there are no threads of ours, and the lock may have been held by one."""
    Heartbeat._lock = threading.Lock()
    Heartbeat._all.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
