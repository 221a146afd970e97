"""Sends committed events to all listeners: one thread asks the store for all of them."""

import select
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from outlast.errors import OutlastError
from outlast.store.protocol import EventGlimpse
from outlast.web.http.server import Connection
from outlast.web.timing import Timing

LISTENERS_MAX = 64
PAGE_EVENTS = 500
PENDING_BYTES_MAX = 256 << 10
_BEAT = b": alive\n\n"


class Source(Protocol):
    """The part of a store that the live events need."""

    def glimpses(self, after: int, *, wait_s: float, limit: int = ...) -> Sequence[EventGlimpse]:
        """See `Store.glimpses`."""

    def last_number(self) -> int:
        """See `Store.last_number`."""


class EventNotice(msgspec.Struct, frozen=True):
    """The notice of an event to a listener: where to look, without its content. `at` is null if it is damaged."""

    n: int
    run: str
    seq: int
    tag: str
    at: datetime | None


class Hello(msgspec.Struct, frozen=True):
    """The first notice: the newest event of the store, and the event after which this stream goes on."""

    n: int
    after: int


class _Listener:
    """A listener, and the notices that it has not taken yet.

    A listener first gets what it missed, read from the store by the thread of its connection. Then the pump takes it over, under a
    lock and with the number of its last event, so that nothing is missed and nothing sent twice. A listener that reads too slowly is
    cut off: it comes again with the number of its last event and misses nothing.
    """

    def __init__(self, connection: Connection, at: int, stall_s: float) -> None:
        self.connection, self.at, self._stall_s = connection, at, stall_s
        self.pending = b""
        self.moved_s = time.monotonic()

    def offer(self, data: bytes) -> bool:
        """Send as much as goes without waiting; False if they have fallen behind too far, or are gone."""
        self.pending += data
        if not self.pending:
            return True
        try:
            sent = self.connection.socket.send(self.pending)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent:
            self.pending, self.moved_s = self.pending[sent:], time.monotonic()
        late = bool(self.pending) and time.monotonic() - self.moved_s > self._stall_s
        return len(self.pending) <= PENDING_BYTES_MAX and not late


class Live:
    """The pump. `source` gives the store, or None while there is none, and hears of a store that fails."""

    def __init__(
        self,
        source: Callable[[], Source | None],
        failed: Callable[[Exception], None],
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self._source, self._failed = source, failed
        self._listeners: list[_Listener] = []
        self._lock = threading.Lock()
        self._number = 0
        self._turn = 0
        self._store: Source | None = None
        self._wanted = threading.Event()
        self._idle = threading.Event()
        self._stopping = False
        self._places = LISTENERS_MAX
        self._thread = threading.Thread(target=self._pump, name="outlast-ui-live", daemon=True)

    @property
    def listeners(self) -> int:
        """How many listen."""
        return LISTENERS_MAX - self._places

    def start(self) -> None:
        """Begin to pump."""
        self._thread.start()

    def stop(self) -> None:
        """Tell nobody anything more."""
        self._stopping = True
        self._wanted.set()
        self._idle.set()
        self._thread.join(self._timing.live_stop_s)
        self.cut()

    def cut(self) -> None:
        """End all streams: another store is there now, or none."""
        with self._lock:
            self._turn += 1
            dropped, self._listeners = self._listeners, []
        for listener in dropped:
            self._let_go(listener)

    # -- listening -------------------------------------------------------------------------------------------------

    def take_place(self) -> bool:
        """Whether one more may listen; then `listen` must follow."""
        with self._lock:
            if self._places <= 0:
                return False
            self._places -= 1
            return True

    def listen(self, connection: Connection, head: bytes, after: int | None) -> None:
        """Tell a client all events after a number, or all from now on. Returns when it is handed over, or at its end."""
        handed_over = False
        try:
            connection.send(head)
            handed_over = self._catch_up(connection, after)
        except OutlastError:
            pass  # the client comes again, and is answered then
        finally:
            if not handed_over:
                with self._lock:
                    self._places += 1

    def _catch_up(self, connection: Connection, after: int | None) -> bool:
        store = self._source()
        newest = store.last_number() if store else 0
        listener = _Listener(
            connection, newest if after is None else min(after, newest), self._timing.stall_s
        )
        connection.send(_hello(newest, listener.at))
        while not self._stopping:
            page = store.glimpses(listener.at, wait_s=0, limit=PAGE_EVENTS) if store else ()
            if page:
                connection.send(_encoded_notices(page))
                listener.at = page[-1].n
                continue
            adopted = self._adopt(listener, store)
            if adopted is not None:
                return adopted
        return False

    def _adopt(self, listener: _Listener, store: Source | None) -> bool | None:
        """Hand a listener over to the pump; False if that cannot be, None if it must hear more before."""
        with self._lock:
            if self._stopping:
                return False
            if not self._listeners:
                self._turn += 1
                self._number, self._store = listener.at, store
            if self._store is not store:
                return False  # it counts from elsewhere; the client comes again
            if listener.at < self._number:
                return None
            listener.connection.socket.setblocking(False)
            listener.connection.streams = True
            self._listeners.append(listener)
            self._wanted.set()
            return True

    # -- the thread ------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        beat_s = time.monotonic()
        while not self._stopping:
            if not self._listeners:
                self._wanted.wait()
                self._wanted.clear()
                continue
            try:
                self._round()
            except (
                Exception
            ) as error:  # whatever it is, those who listen come again, and this thread must be there
                self._failed(error)
                self.cut()
            if time.monotonic() - beat_s >= self._timing.heartbeat_s:
                beat_s = time.monotonic()
                with self._lock:
                    self._offer_all([], _BEAT)

    def _round(self) -> None:
        with self._lock:
            turn, after, known = self._turn, self._number, self._store
        store = self._source()
        if store is not known and known is not None:
            self.cut()
            return
        if store is None:
            self._idle.wait(self._timing.live_wait_s)
        wait_s = self._timing.live_wait_s
        events = store.glimpses(after, wait_s=wait_s, limit=PAGE_EVENTS) if store else ()
        if store and not events and store.last_number() < after:
            self.cut()  # it was put back to an earlier state, and counts from there: they come again and are told
            return
        with self._lock:
            if self._turn != turn:
                return  # those who were to be told are gone, and others count from elsewhere
            self._store = store
            if events:
                self._number = events[-1].n
            self._drop_closed()
            self._offer_all(events, b"")

    def _offer_all(self, events: Sequence[EventGlimpse], besides: bytes) -> None:
        whole = _encoded_notices(events) + besides
        for listener in list(self._listeners):
            data = whole
            if events and listener.at >= events[0].n:
                data = _encoded_notices([event for event in events if event.n > listener.at]) + besides
            if events:
                listener.at = max(listener.at, events[-1].n)
            if not listener.offer(data):
                self._listeners.remove(listener)
                self._let_go(listener, locked=True)

    def _drop_closed(self) -> None:
        """Find all connections that their clients have ended, with one question."""
        waiting = select.poll()
        by_descriptor = {}
        for listener in self._listeners:
            descriptor = listener.connection.socket.fileno()
            by_descriptor[descriptor] = listener
            waiting.register(descriptor, select.POLLIN | select.POLLRDHUP)
        for descriptor, _ in waiting.poll(0):
            listener = by_descriptor[descriptor]
            if not _still_there(listener.connection):
                self._listeners.remove(listener)
                self._let_go(listener, locked=True)

    def _let_go(self, listener: _Listener, *, locked: bool = False) -> None:
        listener.connection.shut()
        listener.connection.close()
        if locked:
            self._places += 1
            return
        with self._lock:
            self._places += 1


def _still_there(connection: Connection) -> bool:
    """Ignores what a listener sends; only its end counts."""
    try:
        return bool(connection.socket.recv(4096))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _hello(number: int, after: int) -> bytes:
    data = msgspec.json.encode(Hello(number, after))
    return b"retry: 1000\nid: %d\nevent: hello\ndata: %s\n\n" % (after, data)


def _encoded_notices(events: Sequence[EventGlimpse]) -> bytes:
    notices = (EventNotice(item.n, item.run, item.seq, item.tag, item.at) for item in events)
    return b"".join(b"id: %d\ndata: %s\n\n" % (each.n, msgspec.json.encode(each)) for each in notices)
