"""Plays the person after a crash: looks at the run, asks the world about effects in doubt, settles them truthfully."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from outlast.chaos.eval.designs import PROJECT
from outlast.core import events as ev
from outlast.core.values import MemoryRef
from outlast.inspect import find, show
from outlast.operations import requests
from outlast.runs import reader
from outlast.runs.engine.beat import file_digest
from outlast.store import open_store
from outlast.store.protocol import RunFilter, Store, Summary


def settle(folder: Path, task: str, happened: Mapping[str, Any]) -> int:
    """Settle what only a person can settle; `happened` maps identities to results, as the witness knows them.

    Writes the identities and the answers to `settled.jsonl`. The other effects are left to their policies.
    """
    store = open_store(folder / "store")
    try:
        root = _root(store, task)
        doubts = [each for each in find.doubts(store, root.state) if each[1].policy == "ask"]
        assert doubts, f"{task} stopped in doubt, but no effect needs a person"
        for run, effect in doubts:
            identity = _identity(store, run, effect.id)
            finding: ev.Finding = "happened" if identity in happened else "did_not"
            requests.settle(store, run, effect.id, finding, msgspec.json.encode(happened.get(identity)))
            with (folder / "settled.jsonl").open("a") as file:
                file.write(json.dumps([identity, finding]) + "\n")
    finally:
        store.close()
    return 0


def _identity(store: Store, run: str, effect: str) -> str:
    summary = requests.summary_of(store, run)
    args = next(each.args for each in show.effects(store, summary) if each.id == effect)
    identity: str = msgspec.json.decode(args)[1]["identity"]
    return identity


def look(folder: Path, task: str) -> int:
    """Write down what the journal says about a finished run and its children."""
    store = open_store(folder / "store")
    try:
        root = _root(store, task)
        shown = show.full(store, root)
        seen = {
            "status": shown.status,
            "plan": msgspec.to_builtins(shown.plan),
            "memory": [[ref.name, ref.uri, _still(folder / "work", ref)] for ref in shown.memory],
            "effects": sorted(f"{each.id} {each.name} {each.state}" for each in shown.effects),
            "result": _result(store, root),
            "results": _results(store, root, ""),
            "decided": _decided(store, root),
        }
        (folder / "journal.json").write_text(json.dumps(seen, ensure_ascii=False))
    finally:
        store.close()
    return 0


def _root(store: Store, task: str) -> Summary:
    return find.find(store, task, PROJECT)


def _children(store: Store, summary: Summary) -> list[Summary]:
    return list(find.all_runs(store, RunFilter(parent=summary.run)))


def _still(work: Path, ref: MemoryRef) -> bool:
    """Whether a pointer's digest is still that of the file."""
    return not ref.uri.startswith("file:") or ref.digest == file_digest(work, ref.uri)


def _result(store: Store, summary: Summary) -> Any:
    finished = [item.event for item in store.read(summary.run, after=0, tags=("finished",)).events]
    return [reader.value_of(store, event.result) for event in finished if isinstance(event, ev.Finished)]


def _results(store: Store, summary: Summary, prefix: str) -> dict[str, Any]:
    found = {
        f"{prefix}{event.beat}": reader.value_of(store, event.result)
        for _, event in reader.beats_done(store, summary.run)
    }
    for child in _children(store, summary):
        found |= _results(store, child, f"{prefix}{child.parent_beat}/{child.task}:")
    return found


def _decided(store: Store, summary: Summary) -> list[Any]:
    """Every recorded answer: decisions, and plans made by the model."""
    found: list[Any] = []
    after = 0
    while page := store.read(summary.run, after=after, tags=("decided", "plan_set")).events:
        for item in page:
            if isinstance(item.event, ev.Decided):
                found.append(reader.value_of(store, item.event.value))
            elif isinstance(item.event, ev.PlanSet):
                found += [step.name for step in reader.decode_steps(store, item.event.steps)]
        after = page[-1].seq
    for child in _children(store, summary):
        found += _decided(store, child)
    return found
