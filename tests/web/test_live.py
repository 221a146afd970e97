"""Events as they are told: every listener gets each one once and in order, whenever it comes, goes, or comes again."""

import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from outlast.store import open_store
from outlast.store.protocol import EventGlimpse, Store
from outlast.web import live as lives
from outlast.web.http.requests import Request
from outlast.web.http.responses import Answer
from outlast.web.http.server import Connection
from outlast.web.live import Live, Source
from outlast.web.timing import Timing
from tests.support.processes import wait_for
from tests.web.busy_store import Writer
from tests.web.server import Client, Served, served


class LiveStore:
    """A store, its pump, and a server that offers it to whoever comes."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.gone = False
        self.failures: list[Exception] = []
        self.source: Source = store
        self.live = Live(lambda: None if self.gone else self.source, self.failures.append)
        self.web: Served

    def handle(self, request: Request, connection: Connection) -> Answer:
        fields = dict(request.fields)
        after = int(fields["after"]) if "after" in fields else None
        if not self.live.take_place():
            return Answer(b"no place", status=503)
        return Answer(kind="text/event-stream", stream=lambda to, head: self.live.listen(to, head, after))

    def listen(self, after: int | None = None, buffer_bytes: int = 0) -> "StreamClient":
        client = self.web.client()
        if buffer_bytes:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        target = "/" if after is None else f"/?after={after}"
        client.say(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")
        return StreamClient(client)


class StreamClient:
    """A client of a stream: its events one by one."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.heard = client.hear(head_only=True)
        self.hello = self.next("hello") if self.heard.status == 200 else {}

    def next(self, kind: str = "message") -> dict[str, object]:
        """The next event of a kind, with its id; comments are passed over."""
        fields: dict[str, str] = {}
        while True:
            line = self.client.line()
            if not line and "data" in fields:
                assert fields.get("event", "message") == kind
                return {**json.loads(fields["data"]), "id": int(fields["id"])}
            if not line:
                fields = {}
            elif not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value

    def numbers(self, until: int) -> list[int]:
        found = []
        while not found or found[-1] < until:
            event = self.next()
            assert event["id"] == event["n"]
            found.append(int(str(event["n"])))
        return found


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with Writer(tmp_path / "store") as writing:
        yield writing


@pytest.fixture
def world(writer: Writer) -> Iterator[LiveStore]:
    made = LiveStore(open_store(writer.root))
    made.live.start()
    try:
        with served(made.handle) as web:
            made.web = web
            yield made
            made.live.stop()
    finally:
        made.store.close()
    assert made.failures == []


def test_a_listener_is_greeted_with_the_newest_number_and_told_what_follows(
    world: LiveStore, writer: Writer
) -> None:
    writer.write(3)
    listener = world.listen()
    newest = world.store.last_number()
    assert listener.hello == {"n": newest, "after": newest, "id": newest}
    writer.write(1)
    told = listener.next()
    assert (told["n"], told["run"], told["tag"]) == (newest + 1, writer.run, "stage_set")
    assert set(told) == {"n", "run", "seq", "tag", "at", "id"}


def test_what_was_missed_is_told_first(world: LiveStore, writer: Writer) -> None:
    writer.write(1200)
    newest = world.store.last_number()
    assert world.listen(after=0).numbers(newest) == list(range(1, newest + 1))
    assert world.listen(after=newest - 2).numbers(newest) == [newest - 1, newest]


def test_a_number_of_another_store_begins_at_the_newest(world: LiveStore, writer: Writer) -> None:
    newest = world.store.last_number()
    assert world.listen(after=10**9).hello == {"n": newest, "after": newest, "id": newest}


def test_while_a_writer_hammers_each_listener_gets_every_event_once(
    world: LiveStore, writer: Writer, rng: random.Random
) -> None:
    total = 4000
    writing = threading.Thread(target=lambda: [writer.write(rng.randint(1, 20)) for _ in range(total // 10)])
    ends: list[int] = []
    told: list[list[int]] = []

    def come_and_go(seed: int) -> None:
        mine, seen = random.Random(seed), []
        while not ends or not seen or seen[-1] < ends[0]:
            listener = world.listen(after=seen[-1] if seen else 0)
            with contextlib.suppress(EOFError, ConnectionResetError):
                for _ in range(mine.randint(1, 900)):
                    seen.append(int(str(listener.next()["n"])))
                    if ends and seen[-1] >= ends[0]:
                        break
            listener.client.close()
        told.append(seen)

    listeners = [threading.Thread(target=come_and_go, args=(rng.random(),)) for _ in range(8)]
    for thread in (writing, *listeners):
        thread.start()
    writing.join(60)
    ends.append(world.store.last_number())
    writer.write(1)  # so that whoever waits is told once more
    for thread in listeners:
        thread.join(60)
    assert len(told) == len(listeners)
    for seen in told:
        assert seen == list(range(1, seen[-1] + 1))
        assert seen[-1] >= ends[0]


class Between:
    """The store, with something that happens right after the first look that found nothing more to catch up with."""

    def __init__(self, store: Store, then: Callable[[], object]) -> None:
        self._store, self._then = store, [then]

    def last_number(self) -> int:
        return self._store.last_number()

    def glimpses(self, after: int, *, wait_s: float, limit: int = 10_000) -> Sequence[EventGlimpse]:
        page = self._store.glimpses(after, wait_s=wait_s, limit=limit)
        if not page and not wait_s and self._then:
            self._then.pop()()
        return page


def test_an_event_between_the_last_look_and_the_handing_over_is_told(
    world: LiveStore, writer: Writer
) -> None:
    told: list[dict[str, object]] = []

    def write_and_hear() -> None:
        writer.write(1)
        told.append(first.next())

    source = Between(world.store, lambda: None)
    world.source = source
    first = world.listen()
    wait_for(lambda: world.live.listeners == 1)
    wait_for(lambda: not source._then)
    source._then.append(write_and_hear)
    second = world.listen()
    wait_for(lambda: told and world.live.listeners == 2)
    writer.write(1)
    assert second.next()["n"] == told[0]["n"]
    assert second.next()["n"] == first.next()["n"]


def test_an_event_is_told_within_a_third_of_a_second(world: LiveStore, writer: Writer) -> None:
    listener, took_s = world.listen(), []
    for _ in range(10):
        begun_s = time.monotonic()
        writer.write(1)
        listener.next()
        took_s.append(time.monotonic() - begun_s)
    assert min(took_s) < 0.3, took_s  # of ten: this process may have to wait for its turn


def test_one_that_does_not_read_is_cut_off_and_holds_up_nobody(
    world: LiveStore, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lives, "PENDING_BYTES_MAX", 100_000)
    world.listen(buffer_bytes=2048)
    listener = world.listen()
    wait_for(lambda: world.live.listeners == 2)

    def cut_off() -> bool:
        writer.write(3000)
        newest = world.store.last_number()
        assert listener.numbers(newest)[-1] == newest
        return world.live.listeners == 1

    wait_for(cut_off, what="the end of the one that does not read")


def test_who_leaves_gives_the_place_to_another(world: LiveStore) -> None:
    world.live._timing = Timing(heartbeat_s=3600)  # so that no heartbeat that cannot be sent finds them
    listeners = [world.listen() for _ in range(lives.LISTENERS_MAX)]
    assert world.listen().heard.status == 503
    for listener in listeners[:3]:
        listener.client.close()
    wait_for(lambda: world.live.listeners == lives.LISTENERS_MAX - 3)
    assert world.listen().heard.status == 200
    assert world.web.server.connections <= lives.LISTENERS_MAX
    for listener in listeners:
        listener.client.close()


def test_a_quiet_stream_beats(world: LiveStore) -> None:
    world.live._timing = Timing(heartbeat_s=0.1)
    listener = world.listen()
    wait_for(lambda: listener.client.line() == ": alive")


def test_without_listeners_the_store_is_not_asked(world: LiveStore) -> None:
    listener = world.listen()
    listener.client.close()
    wait_for(lambda: world.live.listeners == 0)
    asked = []
    world.live._source = lambda: asked.append(1)  # type: ignore[func-returns-value]
    assert not threading.Event().wait(0.3)
    assert asked == []


def test_a_store_that_goes_away_ends_the_streams(world: LiveStore) -> None:
    listener = world.listen()
    world.gone = True
    with pytest.raises((EOFError, ConnectionResetError)):
        listener.next()


def test_streams_end_at_once_when_the_server_stops(world: LiveStore) -> None:
    listeners = [world.listen() for _ in range(20)]
    begun_s = time.monotonic()
    world.live.stop()
    world.web.server.stop()
    assert time.monotonic() - begun_s < Timing().stall_s / 2
    for listener in listeners:
        with pytest.raises((EOFError, ConnectionResetError)):
            listener.next()


def test_who_listens_before_there_is_a_store_is_told_of_it_from_its_first_event(
    world: LiveStore, writer: Writer
) -> None:
    world.gone = True
    listener = world.listen()
    assert listener.hello == {"n": 0, "after": 0, "id": 0}
    wait_for(lambda: world.live.listeners == 1)
    writer.write(3)
    world.gone = False
    assert listener.numbers(4) == [1, 2, 3, 4]
