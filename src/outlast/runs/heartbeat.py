"""One thread per store that keeps this process's leases alive, whatever its other threads wait for."""

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
        self._leases: dict[str, Lease] = {}
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
            heart._leases[lease.run] = lease

    @classmethod
    def remove(cls, store: SqliteStore, lease: Lease) -> None:
        """Let a lease go; the thread ends with the last one."""
        with cls._lock:
            heart = cls._all.get(id(store))
            if heart is None:
                return
            heart._leases.pop(lease.run, None)
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
