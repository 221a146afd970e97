"""Makes `fixtures/v<N>/`: a store as this version writes it, and what must be read from it for ever.

Run once per schema version: `python -m tests.store.make_fixture`. A fixture is never made again.
"""

import contextlib
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any

import msgspec

import outlast
from outlast.core import events as ev, state as st
from outlast.runs import reader
from outlast.store import open_store
from outlast.store.protocol import RunFilter
from outlast.store.sqlite import schema

FIXTURES = Path(__file__).with_name("fixtures")


def work(store: Path) -> None:
    """A few runs in every state that a store can be in."""
    where: dict[str, Any] = {"store": store, "project": "/p"}
    with outlast.run("done", goal="Trap exit signals", done=["true"], budget="400k", **where) as run:
        run.plan([("group", ["one", "two"]), "three"])
        for beat in run.beats():
            draft = beat.decide(
                "draft", lambda: outlast.Answer({"text": "ä🧪"}, outlast.Usage(input=3, output=4))
            )
            beat.act("comment", lambda body: {"url": "u/1"}, draft)
            beat.act("own", lambda: 7, key=f"order {beat.number}")
            beat.remember("notes", "https://example.invalid/notes")
            if beat.step == "one":
                beat.extend(["between"], where="next")
                with beat.run("child") as child:
                    child.finish("of the child")
            beat.done("large " * 2000 if beat.step == "two" else beat.step, evidence=[1, None, True])
    with contextlib.suppress(outlast.EffectInDoubt), outlast.run("in doubt", goal="g", **where) as run:
        for beat in run.beats():
            beat.act("pay", _lose)
    with outlast.run("open", **where) as run:
        for beat in run.beats():
            beat.decide("d", lambda: 1)
            break
    opened = open_store(store)
    opened.inbox.put(run.id, by="ada", what="pause", args=b'{"why":"lunch"}')
    opened.close()


def _lose() -> None:
    raise ConnectionError("reset")


def contents(store: Path) -> dict[str, Any]:
    """Everything a reader can see, as plain data."""
    opened = open_store(store)
    try:
        found: dict[str, Any] = {}
        for summary in reversed(opened.list(RunFilter())):
            events = [item.event for item in opened.read(summary.run, after=0).events]
            found[summary.run] = {
                "task": summary.task,
                "parent_beat": summary.parent_beat,
                "generation": summary.generation,
                "epoch": summary.epoch,
                "status": summary.state.status,
                "beats": summary.state.beats,
                "tags": [ev.tag_of(event) for event in events],
                "events": [msgspec.json.decode(ev.encode(event)) for event in events],
                "folded": _plain(st.fold(st.RunState(), events)),
                "head": _plain(reader.head(opened, summary.run)),
                "plan": msgspec.to_builtins(reader.plan_of(opened, summary.state)),
                "results": [
                    reader.value_of(opened, event.result)
                    for event in events
                    if isinstance(event, ev.BeatDone)
                ],
                "requests": [[item.id, item.by, item.what] for item in opened.inbox.pending(summary.run)],
            }
        return found
    finally:
        opened.close()


def _plain(state: st.RunState) -> dict[str, Any]:
    """The fields that have always been there and never change their meaning."""
    names = (
        "run",
        "task",
        "seq",
        "status",
        "cursor",
        "beats",
        "plan_total",
        "effects_total",
        "attempts",
        "contract_digest",
    )
    return {name: msgspec.to_builtins(getattr(state, name)) for name in names}


def main() -> None:
    folder = FIXTURES / f"v{schema.VERSION}"
    assert not folder.exists(), f"{folder} is there: a fixture is never made again"
    sys.argv[:] = ["agent"]  # the command of an attempt is recorded, and no file tells where it was made
    work(folder / "store")
    (folder / "contents.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(contents(folder / "store")), indent=1)
    )
    with contextlib.closing(sqlite3.connect(folder / "store" / "outlast.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for name in ("ballast", "runs"):
        path = folder / "store" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
