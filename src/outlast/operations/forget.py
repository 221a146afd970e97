"""Forgetting one run that a person no longer wants: its saves, logs, copies and journal. What may go is judged in `acts.forget`.

The journal goes last: killed at any instant before that, the same command finds the run again and ends it."""

import contextlib
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from outlast import faults
from outlast.core.events import blobs_in
from outlast.errors import SaveError
from outlast.inspect import find
from outlast.operations import requests
from outlast.operations.gc import places, secrets as gc_secrets
from outlast.operations.gc.anchors import Anchored
from outlast.operations.timing import Timing
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.workspace import repo
from outlast.workspace.compact import chain as chains, prune
from outlast.workspace.git import command, refs
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.types import text


class RemovedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What went of a run, or would. `children` went with it; `saves_left` are those that forks of it need.

    `bytes` is what its folder and the vaults gave back; saves of the last minutes give back theirs at the next `outlast gc`.
    """

    run: str
    task: str
    children: tuple[str, ...] = ()
    saves: int = 0
    saves_left: int = 0
    payloads: int = 0
    bytes: int = 0
    folder: str = ""
    warnings: tuple[str, ...] = ()
    dry_run: bool = False


def family(store: Store, root: Summary) -> list[Summary]:
    """A run and all its children."""
    return [each for each in find.all_runs(store, RunFilter()) if each.root == root.run]


def foreseen(store: Store, root: Summary) -> RemovedRun:
    """What forgetting a run would take away. Writes nothing."""
    runs = [each.run for each in family(store, root)]
    needed = _needed(store, set(runs))
    going = left = 0
    for place, _ in places.repositories(store.local):
        with ObjectReader(place.vault, command.environment()) as reader:
            for run in runs:
                held = chains.newest_first(place, reader, run)
                stay = _staying([each.commit for each in held], needed)
                going, left = going + len(held) - stay, left + stay
    return RemovedRun(
        run=root.run, task=root.task, children=tuple(run for run in runs if run != root.run), saves=going,
        saves_left=left, payloads=len(_payloads(store, runs)), bytes=_size(store.local.run_folder(root.run)),
        folder=root.state.workspace, dry_run=True,
    )  # fmt: skip


def forget(store: Store, root: Summary) -> RemovedRun:
    """Forget a run that nobody holds. Raises RunHeld, or SaveError where its saves cannot be looked at; then it is all there."""
    before = foreseen(store, root)
    runs = [root.run, *before.children]
    with requests.claimed(store, root.run):
        needed = _needed(store, set(runs))
        payloads = _payloads(store, runs)
        touched = _forget_saves(store, runs, needed)
        faults.point("rm.before_folder")
        for run in runs:
            shutil.rmtree(store.local.run_folder(run), ignore_errors=True)
        faults.point("rm.before_forget")
        store.forget(root.run)
    freed, warnings = _give_back_room(store, touched)
    if payloads:
        named = _payloads(store, [each.run for each in find.all_runs(store, RunFilter())])
        store.blobs.sweep(named, older_than_s=Timing.current().young_blob_s)
    return msgspec.structs.replace(
        before, bytes=before.bytes + freed, warnings=warnings, dry_run=False, payloads=len(payloads)
    )


def _needed(store: Store, gone: set[str]) -> set[str]:
    """The saves that events of other runs name: a fork has its source's past."""
    found: set[str] = set()
    for each in find.all_runs(store, RunFilter()):
        if each.run in gone:
            continue
        found |= {each.state.last_save, each.state.save_point}
        if each.state.fork is not None:
            found |= gc_secrets.named_by(store, each.run)
    return found - {""}


def _staying(newest_first: list[str], needed: set[str]) -> int:
    """How many saves of a chain stay: the newest that is needed, and those before it, which it reaches."""
    at = next((at for at, commit in enumerate(newest_first) if commit in needed), len(newest_first))
    return len(newest_first) - at


def _forget_saves(store: Store, runs: Iterable[str], needed: set[str]) -> list[repo.Repo]:
    """Delete the refs that lead to saves of these runs; one anchor stays where others need some. The vaults that had any."""
    touched = []
    for place, privates in places.repositories(store.local):
        with places.locked(privates), ObjectReader(place.vault, command.environment()) as reader:
            touched += [place] * sum([_forget_one(store, place, reader, run, needed) for run in runs])
    return list(dict.fromkeys(touched))


def _forget_one(store: Store, place: repo.Repo, reader: ObjectReader, run: str, needed: set[str]) -> bool:
    before = chains.refs_of(place, run)
    held = [each.commit for each in chains.newest_first(place, reader, run)]
    staying = _staying(held, needed)
    if staying:
        Anchored(store.local).add(run)
        refs.write_ref(place.vault, chains.anchor_ref(run), held[-staying], old=refs.ANY)
    for ref in before:
        if not (staying and ref == chains.anchor_ref(run)):
            faults.point("rm.before_ref")
            refs.delete_ref(place.vault, ref, refs.ANY)
    return bool(before)


def _give_back_room(store: Store, touched: list[repo.Repo]) -> tuple[int, tuple[str, ...]]:
    """Remove what nothing reaches any more. The run is forgotten by now: what fails here, `outlast gc` does later."""
    freed, warnings = 0, list[str]()
    for place in touched:
        try:
            freed += prune.rewrite_packs(place)
        except SaveError as error:
            warnings.append(f"the vault of {text(place.folder)} could not be made smaller: {error}")
    for thinned in gc_secrets.thin(store, {}, datetime.now(UTC), dry_run=False):
        freed += thinned.bytes
    return max(0, freed), tuple(warnings)


def _payloads(store: Store, runs: Iterable[str]) -> set[str]:
    """The payloads that events of these runs name."""
    named: set[str] = set()
    for run in runs:
        after = 0
        while page := store.read(run, after=after).events:
            named |= {payload.blob for item in page for payload in blobs_in(item.event)}
            after = page[-1].seq
    return named


def _size(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            size += path.lstat().st_size
    return size
