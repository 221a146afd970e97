"""What happens to a store under a living page: it is deleted, put back, damaged, forgotten from, out of room, or only read."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.errors import AppendUnknown
from outlast.store import open_store
from tests.store.test_other_processes import (
    DAMAGED,
    UNKNOWN,
    copied,
    inject,
    opened,
    put_back,
    spoil_head,
    stages,
)
from tests.store.test_read_only import contents
from tests.support.processes import wait_for
from tests.web.server import Served, ui

PAGES = ("/", "/saves", "/charts", "/api/runs", "/api/saves", "/api/charts", "/metrics")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of two runs that rest."""
    with contextlib.closing(open_store(tmp_path / "store")) as store:
        for run in ("run1", "run2"):
            store.create(opened(run), stages(3))
    return tmp_path / "store"


@pytest.fixture
def web(root: Path) -> Iterator[Served]:
    with ui(root) as served:
        yield served


def rows(web: Served) -> dict[str, Any]:
    heard = web.ask("/api/runs")
    assert heard.status == 200, heard.text
    return {row["run"]: row for row in heard.json["rows"]}


def act(web: Served, run: str, name: str = "pause") -> Any:
    heard = web.post(f"/api/runs/{run}/acts/{name}", {})
    assert heard.status == 200, heard.text
    return heard.json


def test_after_a_write_that_failed_the_page_acts_again(web: Served) -> None:
    """What SQLite says when the disk is full; once there is room again, nobody has to start the page anew."""
    store = web.site.opened().store
    writer = store._db.writer
    writer.pragma("max_page_count", writer.pragma("page_count"))
    with pytest.raises(AppendUnknown, match="full"):
        store.inbox.put("run1", by="me", what="pause", args=b"x" * 100_000)
    assert not store.usable
    assert act(web, "run1")["ok"]
    assert rows(web)["run1"]["status"] == "paused"


def test_a_store_that_is_gone_is_said_to_be_gone_until_one_is_there_again(web: Served, root: Path) -> None:
    assert len(rows(web)) == 2
    away = root.rename(root.with_name("away"))
    for _ in range(3):
        for page in PAGES:
            heard = web.ask(page)
            assert heard.status == 503, (page, heard.text)
            assert "was deleted or replaced" in heard.text
    away.rename(root)
    assert len(rows(web)) == 2


def test_where_no_store_ever_was_it_says_that_there_are_no_runs_yet(tmp_path: Path) -> None:
    with ui(tmp_path / "store") as web:
        for page in ("/", "/saves", "/api/runs", "/metrics"):
            assert web.ask(page).status == 200
        assert not (tmp_path / "store").exists()


def test_a_run_that_was_forgotten_and_brought_back_is_shown(web: Served, root: Path) -> None:
    pages = [
        f"/api/runs/run1{page}"
        for page in ("", "/timeline", "/beats", "/effects", "/budget", "/journal", "/context")
    ]
    assert [web.ask(page).status for page in pages] == [200] * len(pages)
    with contextlib.closing(open_store(root)) as other:
        other.forget("run1")
        assert web.ask("/api/runs/run1").status == 404
        other.create(opened("run1"), stages(5))
    assert [web.ask(page).status for page in pages] == [200] * len(pages)
    assert len(web.ask("/api/runs/run1/journal").json["events"]) == 6
    assert act(web, "run1")["ok"]


def test_a_store_that_was_put_back_and_has_grown_is_shown_as_it_is(
    web: Served, root: Path, tmp_path: Path
) -> None:
    with contextlib.closing(open_store(root)) as store:
        copy = copied(store, tmp_path / "copy.db")
    assert act(web, "run1")["ok"]
    assert rows(web)["run1"]["status"] == "paused"
    with contextlib.closing(open_store(root)) as other:
        put_back(other, copy)
        (root / "mark").unlink()
        other.create(opened("run3"), stages(9))
    assert {run: row["status"] for run, row in rows(web).items()} == dict.fromkeys(
        ("run1", "run2", "run3"), "interrupted"
    )


def test_who_listens_to_a_store_that_was_put_back_is_cut_off_to_come_again(
    web: Served, root: Path, tmp_path: Path
) -> None:
    with contextlib.closing(open_store(root)) as other:
        copy = copied(other, tmp_path / "copy.db")
        other.create(opened("run3"))
        listener = web.client().say(f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\n\r\n")
        while not listener.line().startswith("data: "):
            pass  # it is greeted
        wait_for(lambda: web.site.live.listeners == 1)
        put_back(other, copy)
    with pytest.raises(EOFError):
        while True:
            listener.line()
    assert set(rows(web)) == {"run1", "run2"}


# -- what cannot be read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [UNKNOWN, DAMAGED], ids=["newer", "damaged"])
def test_one_run_that_cannot_be_read_is_in_nobody_elses_way(web: Served, root: Path, data: bytes) -> None:
    assert len(rows(web)) == 2
    listener = web.client().say(f"GET /api/events?after=0 HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\n\r\n")
    with contextlib.closing(open_store(root)) as other:
        inject(other, "run1", data)
        last = other.last_number()
    while True:
        kind, _, value = listener.line().partition(": ")
        if kind == "data" and json.loads(value)["n"] == last and "seq" in json.loads(value):
            assert json.loads(value)["run"] == "run1"
            break
    found = rows(web)
    assert (found["run2"]["what"], found["run1"]["what"]) == ("stopped", "needs you")
    assert "cannot be read" in found["run1"]["why"]
    assert "upgrade" in found["run1"]["why"]
    assert found["run1"]["act"] is found["run1"]["command"] is None
    for page in (*PAGES, "/runs/run2", "/runs/run2/budget", "/api/runs/run2/budget"):
        assert web.ask(page).status == 200, page
    assert "cannot be read" in web.ask("/").text
    for page in ("/runs/run1", "/runs/run1/journal", "/runs/run1/do/pause"):
        heard = web.ask(page)
        assert heard.status in (200, 409, 503)
        assert "upgrade" in heard.text, page
    assert act(web, "run2")["ok"]


@pytest.mark.parametrize("first", [True, False], ids=["before it began", "under it"])
def test_a_damaged_head_changes_nothing_that_is_shown(root: Path, first: bool) -> None:
    with contextlib.closing(open_store(root)) as other:
        if first:
            spoil_head(other, "run1", b'{"garbage":')
        with ui(root) as web:
            assert len(rows(web)) == 2
            spoil_head(other, "run1", b'{"garbage":')
            assert rows(web)["run1"]["status"] == "interrupted"
            assert [web.ask(f"/runs/{run}").status for run in ("run1", "run2")] == [200, 200]
            assert act(web, "run1")["ok"]
            assert rows(web)["run1"]["status"] == "paused"


# -- only read -----------------------------------------------------------------------------------------------------------


def test_a_page_that_only_shows_writes_nothing(root: Path) -> None:
    for name in ("mark", "ballast"):
        (root / name).unlink()
    shutil.rmtree(root / "runs")
    before = contents(root)
    with ui(root, read_only=True) as web:
        assert len(rows(web)) == 2
        for page in PAGES:
            assert web.ask(page).status == 200
        for page in (
            "",
            "/timeline",
            "/beats",
            "/effects",
            "/saves",
            "/budget",
            "/context",
            "/output",
            "/journal",
        ):
            assert web.ask(f"/runs/run1{page}").status in (200, 404)
            assert web.ask(f"/api/runs/run1{page}").status in (200, 404)
        assert web.post("/api/runs/run1/acts/pause", {}).status == 403
    assert contents(root) == before


def test_a_page_that_only_shows_is_live(root: Path) -> None:
    with ui(root, read_only=True) as web, contextlib.closing(open_store(root)) as other:
        assert len(rows(web)) == 2
        other.create(opened("run3"))
        assert len(rows(web)) == 3
