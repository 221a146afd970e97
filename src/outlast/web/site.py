"""The common state of all requests: the store, opened when it appears and given up when it fails, and its caches."""

import gc
import shlex
import threading
import time
from dataclasses import dataclass

from outlast.dashboard.actions import forms
from outlast.dashboard.actions.once import OnceOnly
from outlast.dashboard.charts import Counter
from outlast.dashboard.overview.index import Index
from outlast.errors import OutlastError, StoreError, StoreGone
from outlast.store.protocol import Store, StorePlace
from outlast.web.http.cache import AnswerCache
from outlast.web.http.guard import Guard
from outlast.web.live import Live
from outlast.web.metrics import Requests
from outlast.web.timing import Timing


@dataclass(frozen=True, slots=True)
class OpenSite:
    """An open store, and the caches made of it."""

    store: Store
    index: Index
    counter: Counter


class Site:
    """One page on one store. `by` is who acts through it."""

    def __init__(self, place: StorePlace, guard: Guard, *, by: str, timing: Timing | None = None) -> None:
        self._timing = timing or Timing.current()
        self.place, self.guard, self.by = place, guard, by
        self.options = shlex.join(forms.there(place.url))  # that lead a command to this store
        self.outlast = f"outlast {self.options}".rstrip()
        self.pressed = OnceOnly()
        self.requests = Requests()
        self.shared = AnswerCache(self._timing)
        self.live = Live(self._source, self._failed, self._timing)
        self._lock = threading.Lock()
        self._opened: OpenSite | None = None
        self._was_there = False
        self._problem: StoreError | None = None
        self._problem_s = 0.0

    def start(self) -> None:
        """Read the store ahead of the first request, and begin to tell of events."""
        threading.Thread(target=self._read_ahead, name="outlast-ui-store", daemon=True).start()
        self.live.start()

    def stop(self) -> None:
        """End all streams and let go of the store."""
        self.live.stop()
        with self._lock:
            self._close()

    def opened(self) -> OpenSite | None:
        """The store; None where none is there yet. Raises StoreError where it cannot be read, or where it is gone."""
        with self._lock:
            if self._opened is not None:
                try:
                    self._opened.store.check_exists()
                except StoreError:
                    self._close()
                    raise
                if self._opened.store.usable:
                    return self._opened
                self._close()  # a write has failed, after which it writes no more: what became of it shows in another
            if self._problem is not None and time.monotonic() - self._problem_s < self._timing.store_retry_s:
                raise self._problem
            if not self.place.exists():
                if self._was_there:
                    raise StoreGone(self.place.name)
                return None
            try:
                self._opened = self._open()
            except StoreError as error:
                self._problem, self._problem_s = error, time.monotonic()
                raise
            self._problem, self._was_there = None, True
            return self._opened

    def _open(self) -> OpenSite:
        store = self.place.open(reading=self.guard.read_only)
        try:
            index = Index(store)
            gc.freeze()  # what is known of 10,000 runs is no garbage: looking through it holds up a request by 70 ms
            counter = Counter(store, index)
            counter.start()
        except BaseException:
            store.close()
            raise
        return OpenSite(store, index, counter)

    def _close(self) -> None:
        """Asked with the lock held."""
        opened, self._opened = self._opened, None
        self.shared = AnswerCache(
            self._timing
        )  # what was told of it is not told of another one that comes in its place
        if opened is not None:
            opened.counter.stop()
            opened.store.close()

    def _read_ahead(self) -> None:
        try:
            self.opened()
        except OutlastError:
            pass  # the first request says so

    def _source(self) -> Store | None:
        opened = self.opened()
        return opened.store if opened else None

    def _failed(self, error: Exception) -> None:
        """The pump met an error. A busy store is asked again; any other is opened again."""
        with self._lock:
            if self._opened is not None and not self._opened.store.usable:
                self._close()
