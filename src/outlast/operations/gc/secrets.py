"""Removes secrets kept apart that no save names any more, unless they are young."""

import contextlib
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec

from outlast.core import events as ev
from outlast.errors import SaveDamaged, SaveError
from outlast.inspect import find
from outlast.operations.gc import places
from outlast.operations.timing import Timing
from outlast.store.protocol import RunFilter, Store
from outlast.workspace import repo, saves
from outlast.workspace.capture.special import secrets
from outlast.workspace.compact import chain as chains
from outlast.workspace.git import command
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.types import text

Foreseen = Mapping[Path, Mapping[str, chains.Tip]]
"""What the refs of repositories would lead to, by their folders."""


class ThinnedSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """Secrets of one workspace that were let go of, or would be. `failed` says why none was looked at."""

    workspace: str
    removed: int = 0
    bytes: int = 0
    failed: str = ""


def thin(store: Store, foreseen: Foreseen, now: datetime, *, dry_run: bool) -> tuple[ThinnedSecrets, ...]:
    """Thin the secrets of every workspace; workspaces with nothing to remove are left out of the answer. Safe to repeat after a kill.

    A save counts while any ref of ours leads to it, of whatever run or store, or an event of an open run names it. Where that
    cannot be found out for certain, the secrets of a workspace stay as they are, and the answer says why.
    """
    apart = [private for private in store.local.privates() if secrets.git_dir(private).is_dir()]
    named = _named(store) if apart else set()
    found = []
    for private in apart:
        workspace = text(places.folder_of(private))
        try:
            with places.locked([private]):
                needed = partial(_needed, private, named, foreseen)
                before_s = now.timestamp() - Timing.current().young_secret_s
                gone = secrets.remove_unnamed(private, needed, before_s=before_s, dry_run=dry_run)
        except SaveError as error:
            found.append(ThinnedSecrets(workspace=workspace, failed=str(error)))
            continue
        if gone.secrets:
            found.append(ThinnedSecrets(workspace=workspace, removed=gone.secrets, bytes=gone.size_bytes))
    return tuple(found)


def _named(store: Store) -> set[str]:
    """Saves that the events of open runs name."""
    runs = find.all_runs(store, RunFilter(open_only=True))
    return set[str]().union(*(named_by(store, summary.run) for summary in runs))


def named_by(store: Store, run: str) -> set[str]:
    """Saves that the events of a run name."""
    found: set[str] = set()
    after = 0
    while page := store.read(run, after=after).events:
        found |= {_save_in(item.event) for item in page}
        after = page[-1].seq
    return found - {""}


def _save_in(event: ev.AnyEvent) -> str:
    if isinstance(event, ev.BeatDone | ev.EffectConfirmed):
        return event.save
    return event.commit if isinstance(event, ev.SaveMade) else ""


def _needed(private: Path, named: set[str], foreseen: Foreseen) -> set[str]:
    """The secrets that saves name. Raises SaveError where a repository or a save cannot be read."""
    needed: set[str] = set()
    for place in places.every(private):
        tips = foreseen[place.vault] if place.vault in foreseen else chains.tips(place)
        with ObjectReader(place.vault, command.environment()) as reader:
            needed |= _behind(place, reader, tips) | _in_saves(place, reader, named)
    return needed


def _behind(place: repo.Repo, reader: ObjectReader, tips: Mapping[str, chains.Tip]) -> set[str]:
    needed: set[str] = set()
    seen: set[str] = set()
    for tip in (tip for ref, tip in tips.items() if chains.is_of_saves(ref)):
        for held in tip.saves(place, reader):
            needed |= {secret.oid for secret in held.meta.secrets}
            if held.commit in seen:
                break
            if not tip.chosen:
                seen.add(held.commit)
    return needed


def _in_saves(place: repo.Repo, reader: ObjectReader, commits: set[str]) -> set[str]:
    """What these saves name, of those that are there."""
    needed: set[str] = set()
    for commit in sorted(commits):
        with contextlib.suppress(SaveDamaged):  # of another repository, or no more to be restored
            needed |= {secret.oid for secret in saves.read(reader, commit, place.algo).meta.secrets}
    return needed
