"""What an agent recorded, however large or odd, makes no page or document large, slow or broken."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from outlast.core import events as ev
from outlast.core.values import Allowance, Contract, Payload, Usage
from outlast.inspect import show
from outlast.store import open_store
from outlast.store.protocol import Batch, Store
from tests.web.server import ui

RUN = "rlargeabcdef"
TABS = ("", "/beats", "/effects", "/budget", "/context", "/journal", "/timeline")


def record(root: Path, *events: ev.AnyEvent) -> None:
    store = open_store(root)
    at = datetime.now(UTC) - timedelta(hours=1)
    opened = ev.RunOpened(
        at=at, run=RUN, task="t", project="p", contract=Contract("goal"), budget=Allowance(time_s=60)
    )
    lease = store.claim(store.create(opened))
    store.append(Batch(lease, RUN, 1, events))
    store.release(lease)
    store.close()


def large(store: Store, size: int, letter: str) -> Payload:
    data = msgspec.json.encode(letter * (size - 2))
    return Payload(blob=store.blobs.put(data), size=len(data))


@pytest.mark.parametrize("size", [20_000, 900_000])
def test_large_values_are_cut_in_lists(tmp_path: Path, size: int) -> None:
    root, at, made = tmp_path / "store", datetime.now(UTC), list[ev.AnyEvent]()
    store = open_store(root)
    for beat in range(1, 41):
        value = large(store, size, chr(64 + beat))
        made += [
            ev.EffectIntended(at=at, beat=beat, n=1, name="act", occurrence=1, key=f"k{beat}", args=value),
            ev.EffectConfirmed(at=at, beat=beat, n=1, result=value),
            ev.BeatDone(at=at, beat=beat, result=value),
        ]
    store.close()
    record(root, *made)
    with ui(root) as web:
        heard = {tab: web.ask(f"/api/runs/{RUN}{tab}") for tab in ("", "/beats", "/effects")}
        assert [each.status for each in heard.values()] == [200] * 3
        for tab, each in heard.items():
            assert len(each.body) < 600_000, tab
            assert web.ask(f"/runs/{RUN}{tab}").status == 200
        result = heard["/beats"].json["beats"][0]["result"]
        assert (result["cut"], result["size"]) == (True, size)
        assert (len(result.get("begins", "")) == show.BEGINS_CHARS) is (size <= show.BEGUN_MAX_BYTES)
        effect = heard["/effects"].json["effects"][0]["effect"]
        assert effect["args"]["cut"] is effect["result"]["cut"] is True


def test_an_agent_that_says_it_lived_for_ever_breaks_no_page(tmp_path: Path) -> None:
    at = datetime.now(UTC) - timedelta(minutes=5)
    spent = Usage(input=1, time_ms=2**60)
    record(
        tmp_path / "store",
        ev.AttemptStarted(at=at, epoch=1),
        ev.BeatDone(at=at, beat=1, spent=spent),
    )
    with ui(tmp_path / "store") as web:
        for path in (
            *(f"/runs/{RUN}{tab}" for tab in TABS[:-1]),
            "/",
            "/charts",
            "/metrics",
            "/api/charts",
            "/api/runs",
        ):
            assert web.ask(path).status == 200, path
        for tab in TABS:
            assert web.ask(f"/api/runs/{RUN}{tab}").status == 200, tab
