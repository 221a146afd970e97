"""One thread per store that keeps this process's leases alive, whatever its other threads wait for."""

import os
import threading
from typing import ClassVar

from outlast.errors import StoreError
from outlast.store.protocol import Lease
from outlast.store.sqlite import SqliteStore


class Heartbeat:
    """Renews all leases of a store three times per lease."""

    _all: ClassVar[dict[int, "Heartbeat"]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, store: SqliteStore, ttl_s: float) -> None:
        self._store = store
        self._ttl_s = ttl_s
        self._leases: dict[tuple[str, int], Lease] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="outlast-lease", daemon=True)
        self._thread.start()

    @classmethod
    def add(cls, store: SqliteStore, lease: Lease, ttl_s: float) -> None:
        """Keep a lease alive."""
        with cls._lock:
            heart = cls._all.get(id(store))
            if heart is None:
                heart = cls._all[id(store)] = Heartbeat(store, ttl_s)
            heart._leases[lease.run, lease.epoch] = lease

    @classmethod
    def remove(cls, store: SqliteStore, lease: Lease) -> None:
        """Let a lease go; the thread ends with the last one."""
        with cls._lock:
            heart = cls._all.get(id(store))
            if heart is None:
                return
            heart._leases.pop((lease.run, lease.epoch), None)
            if not heart._leases:
                heart._stop.set()
                del cls._all[id(store)]

    def _beat(self) -> None:
        while not self._stop.wait(self._ttl_s / 3):
            with self._lock:
                leases = list(self._leases.values())
            try:
                self._store.renew(leases, ttl_s=self._ttl_s)
            except StoreError:
                # The next append or act finds out for itself; here nobody could be told.
                continue


def _forget_after_fork() -> None:
    """In a forked child there are no threads of ours, and the lock may have been held by one."""
    Heartbeat._lock = threading.Lock()
    Heartbeat._all.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
