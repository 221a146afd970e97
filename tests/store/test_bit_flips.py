"""A bit that flips in a store is found by the look at everything, or changes nothing that anybody reads."""

import contextlib
import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

import outlast
from outlast.errors import OutlastError
from outlast.store import locate, open_store
from outlast.store.protocol import RunFilter
from tests.store import make_fixture

FLIPS = 1_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs in every state, one that was forgotten, requests that were taken in and one that waits."""
    folder = tmp_path_factory.mktemp("flips") / "store"
    make_fixture.work(folder)
    where: dict[str, Any] = {"store": folder, "project": "/p"}
    for task in ("forgotten", "many"):
        with outlast.run(task, **where) as run:
            for beat in run.beats():
                beat.done({"n": beat.number})
                if beat.number == 40:
                    run.finish()
        if task == "forgotten":
            opened = open_store(folder)
            opened.forget(run.id)
            opened.close()
    with outlast.run("paused", **where) as run, contextlib.suppress(OutlastError):
        opened = open_store(folder)
        opened.inbox.put(run.id, by="ada", what="pause")
        opened.close()
        for beat in run.beats():
            beat.done()
    with contextlib.closing(apsw.Connection(str(folder / "outlast.db"))) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for path in folder.glob("outlast.db-*"):
        path.unlink()
    return folder


def flaws(folder: Path) -> list[str]:
    """All that the look at everything finds, as lines."""
    try:
        place = locate(folder)
        place.open(reading=True).close()
        quick = place.examine()
        found, runs = place.examine_all()
        rest = [f"{run.run}: {flaw.text}" for run in runs for flaw in run.flaws] if not found else []
    except OutlastError as error:
        return [str(error)]
    lost = [str(each) for each in (quick.missing, *quick.rewound, *quick.lost) if each is not None]
    return [*quick.problems, *lost, *(flaw.text for flaw in found), *rest]


def flipped(store: Path, to: Path, at_bit: int) -> Path:
    shutil.copytree(store, to)
    with (to / "outlast.db").open("r+b") as file:
        file.seek(at_bit // 8)
        byte = file.read(1)[0]
        file.seek(at_bit // 8)
        file.write(bytes([byte ^ (1 << at_bit % 8)]))
    return to


def test_a_whole_store_has_no_flaws_and_every_event_is_checked(store: Path) -> None:
    assert flaws(store) == []
    _, runs = locate(store).examine_all()
    found = list(runs)
    assert len(found) == 6
    assert sum(run.unchecked for run in found) == 0
    assert all(run.state is not None and run.state.seq == run.events for run in found)


def test_a_flipped_bit_is_found_or_changes_nothing(
    store: Path, tmp_path: Path, rng: random.Random, whole: bool
) -> None:
    before = make_fixture.contents(shutil.copytree(store, tmp_path / "before"))
    bits = 8 * (store / "outlast.db").stat().st_size
    found = 0
    for number in range(FLIPS if whole else FLIPS // 10):
        at_bit = rng.randrange(bits)
        damaged = flipped(store, tmp_path / f"{number}", at_bit)
        said = flaws(damaged)
        found += bool(said)
        if not said:
            assert make_fixture.contents(damaged) == before, (
                f"bit {at_bit} changed something, and nothing found it"
            )
        shutil.rmtree(damaged)
    print(f"{found} found, the others changed nothing")
    assert found > 20


def test_a_flip_in_any_event_is_found(store: Path, tmp_path: Path, rng: random.Random, whole: bool) -> None:
    data = (store / "outlast.db").read_bytes()
    with contextlib.closing(apsw.Connection(str(store / "outlast.db"))) as database:
        rows: list[Any] = database.execute("SELECT data FROM events WHERE run != 0").fetchall()
    once = [bytes(event) for (event,) in rows if data.count(event) == 1]
    assert len(once) > 60, "those that lie on one page, and of which no earlier version is left on another"
    for number in range(300 if whole else 30):
        event = rng.choice(once)
        at_bit = 8 * data.index(event) + rng.randrange(8 * len(event))
        damaged = flipped(store, tmp_path / f"{number}", at_bit)
        assert flaws(damaged), f"bit {at_bit} is in an event, and nothing found it"
        shutil.rmtree(damaged)


def test_an_event_moved_to_another_place_or_run_is_found(store: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(store, tmp_path / "moved")
    with contextlib.closing(apsw.Connection(str(moved / "outlast.db"))) as database:
        (one, other), *_ = database.execute(
            "SELECT a.n, b.n FROM events a JOIN events b ON a.run = b.run AND a.n < b.n AND a.kind IS NULL AND b.kind IS NULL"
        ).fetchall()
        data: dict[int, Any] = dict(
            database.execute("SELECT n, data FROM events WHERE n IN (?, ?)", (one, other)).fetchall()
        )
        for n, text in ((one, data[other]), (other, data[one])):
            database.execute("UPDATE events SET data = ? WHERE n = ?", (text, n))
    assert sum("is damaged" in line for line in flaws(moved)) == 2


def test_a_damaged_head_is_made_again_from_the_events_and_costs_no_other_run(
    store: Path, tmp_path: Path
) -> None:
    before = make_fixture.contents(shutil.copytree(store, tmp_path / "before"))
    damaged = shutil.copytree(store, tmp_path / "damaged")
    with contextlib.closing(apsw.Connection(str(damaged / "outlast.db"))) as database:
        rows: list[Any] = database.execute("SELECT id, state FROM heads").fetchall()
        for number, state in rows:
            text = bytes(state).replace(b'"created_at":"2', b'"created_at":"3')
            database.execute("UPDATE heads SET state = ? WHERE id = ?", (text, number))
    assert sum("its stored head does not equal its events" in line for line in flaws(damaged)) == len(rows)
    assert make_fixture.contents(damaged) == before
    opened = open_store(damaged)
    years = [
        summary.state.created_at.year for summary in opened.list(RunFilter()) if summary.state.created_at
    ]
    opened.close()
    assert max(years) < 3000
