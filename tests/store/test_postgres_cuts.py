"""The connection is cut at the 1st, the 2nd, … message of whatever is done with a store: it is done, or one clear error says why not."""

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.core import events as ev
from outlast.errors import StoreError
from outlast.settings import TIMING
from outlast.store import open_store
from outlast.store.protocol import RunFilter, Store
from tests.store.journal_batches import AT, batch, opened, stage, stages
from tests.support.cut_proxy import NAME, WAYS, CutProxy, cut_proxy
from tests.support.postgres import PostgresServer

QUICK = "store.reconnect_poll_s=0.01,store.quiet_s=0.3,store.watch_look_s=0.2,store.silence_ms=1500,store.silence_look_s=0.05"
MESSAGES_MAX = 60
Opener = Callable[[], Store]


@pytest.fixture
def proxy(postgres_server: PostgresServer, rng: random.Random) -> Iterator[CutProxy]:
    with cut_proxy(postgres_server.folder, rng) as made:
        yield made


@pytest.fixture
def through(
    proxy: CutProxy,
    postgres_server: PostgresServer,
    postgres_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Opener:
    """Opens the store by way of the proxy."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "host"))
    monkeypatch.setenv(TIMING, QUICK)
    return lambda: open_store(postgres_url.replace(str(postgres_server.folder), str(proxy.folder)))


@pytest.mark.parametrize("way", WAYS)
def test_an_open_that_is_cut_at_any_message_is_one_clear_error(
    way: str, proxy: CutProxy, through: Opener
) -> None:
    for after in itertools.count():
        proxy.cut_next(way, after=after)
        with contextlib.suppress(StoreError):
            store = through()
            store.close()
        if proxy.disarm():
            break
    assert 2 < after < MESSAGES_MAX


def _create(store: Store, number: int) -> None:
    run = store.create(opened(f"t{number}"))
    assert [found.run for found in store.list(RunFilter(task=f"t{number}"))] == [run]


def _work(store: Store, number: int) -> None:
    """Claimed, written with a request taken in, renewed, asked before an act, released; and claimed again."""
    run = store.create(opened(f"t{number}"))
    lease = store.claim(run)
    asked = store.inbox.put(run, by="ada", what="settle")
    taken = ev.Requested(at=AT, id=asked, by="ada", what="settle")
    store.append(batch(lease, run, 1, stage("a"), taken, takes=(asked,)))
    store.renew([lease])
    with lease.guard():
        store.append(batch(lease, run, 3, stage("b")))
    store.release(lease)
    assert store.inbox.pending(run) == []
    assert stages(store, run) == ["a", "b"]
    again = store.claim(run)
    assert again.epoch == lease.epoch + 1
    store.release(again)


def _look(store: Store, number: int) -> None:
    known = store.changes(0)
    assert known.number <= store.last_number()
    assert store.beat_ends(store.create(opened(f"t{number}")), limit=5) == []


def _keep(store: Store, number: int) -> None:
    """A document changed, a payload kept and swept, a run forgotten."""
    name = f"t{number}"
    assert store.shelf.change("pools", name, lambda old: (old or b"") + b"x") == b"x"
    store.blobs.get(store.blobs.put(name.encode()))
    run = store.create(opened(name))
    with store.exclusive(run, "settle", wait_s=5.0):
        store.forget(run)
    assert store.list(RunFilter(task=name)) == []


# What cannot know whether it was done says so: it is looked for, and done again where it was not.
@pytest.mark.parametrize("what", [_create, _work, _look, _keep], ids=["create", "work", "look", "keep"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_cut_at_any_message_is_done_once(
    way: str, what: Callable[[Store, int], Any], proxy: CutProxy, through: Opener
) -> None:
    refused = []
    for after in itertools.count():
        with contextlib.closing(through()) as store:
            proxy.cut_next(way, after=after)
            try:
                what(store, after)
            except StoreError as error:
                refused.append(f"{after}: {error}")
            was_left = proxy.disarm()
        if was_left:
            break
    assert 2 < after < MESSAGES_MAX
    assert [text for text in refused if "held a document" not in text] == []


def test_a_renewal_that_reaches_nobody_says_nothing_of_a_lease_that_is_not_over(
    proxy: CutProxy, through: Opener
) -> None:
    with contextlib.closing(through()) as store:
        run = store.create(opened())
        lease = store.claim(run, ttl_s=60.0)
        way = proxy.folder / NAME
        way.rename(away := proxy.folder / "away")
        proxy.silence(True)
        proxy.silence(False)  # every connection is cut
        for _ in range(6):  # more than there are connections to spare
            assert store.renew([lease]) == {}
        away.rename(way)
        store.append(batch(lease, run, 1, stage("a")))
        assert stages(store, run) == ["a"]
