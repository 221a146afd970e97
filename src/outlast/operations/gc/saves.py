"""Removes saves that nobody needs: one anchor stays of each run that is over. Secrets are in `secrets`."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from outlast.core.statuses import CLOSED
from outlast.errors import SaveError
from outlast.inspect import find
from outlast.operations.gc import places, secrets as gc_secrets
from outlast.operations.gc.anchors import Anchored
from outlast.operations.saves.find import HAND
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.workspace import repo
from outlast.workspace.compact import chain as chains, prune
from outlast.workspace.compact.chain import Tip
from outlast.workspace.git import command, refs
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.saves import SaveContents
from outlast.workspace.types import text

_PASSING = ("watch", "pre-restore")

Why = Literal["over", "old", "budget"]


class ThinnedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What was let go of one run in one repository, or would be. `anchor` is the commit that its anchor names now."""

    repository: str
    run: str
    task: str
    why: Why
    removed: int
    anchor: str | None = msgspec.field(default=None, name="kept")


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What the saves of one repository take. In a dry run `bytes_after` is an estimate."""

    repository: str
    bytes_before: int
    bytes_after: int
    budget_bytes: int

    @property
    def is_over(self) -> bool:
        return self.bytes_after > self.budget_bytes


class Thinned(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the saves of all repositories. `failed` could not be looked at, with the reason."""

    runs: tuple[ThinnedRun, ...] = ()
    rooms: tuple[Room, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    secrets: tuple[gc_secrets.ThinnedSecrets, ...] = ()


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept, and how."""

    older_than: timedelta
    now: datetime
    budget_bytes: int
    dry_run: bool = False

    @property
    def limit(self) -> datetime:
        return self.now - self.older_than


def thin(store: Store, terms: Terms, tell: Callable[[str], None] = lambda line: None) -> Thinned:
    """Thin the saves of every repository that this store's workspaces are in. Safe to repeat after a kill.

    Then the secrets go that none of the saves names which are left, or in a dry run would be.

    Never touched: a run that is not over, a save that an event of such a run names, the runs of other stores, and what a person
    saved by hand. Anchors go too, oldest first, only when a repository's saves take more than their budget. Everything is planned
    before anything is removed, so a dry run says the same.
    """
    known = {
        summary.run: _is_over(summary, terms.limit) for summary in find.all_runs(store, RunFilter(parent=""))
    }
    named = _named(store)
    anchored = Anchored(store.local)
    runs: list[ThinnedRun] = []
    rooms: list[Room] = []
    failed: list[tuple[str, str]] = []
    foreseen: dict[Path, dict[str, Tip]] = {}
    for place, privates in places.repositories(store.local):
        tell(text(place.folder))
        try:
            with places.locked(privates), ObjectReader(place.vault, command.environment()) as reader:
                one = _Thinning(place, reader, terms, known, named, anchored)
                one.plan()
                runs += one.thinned()
                rooms.append(one.room())
                runs += one.removed
                if terms.dry_run:
                    foreseen[place.vault] = one.after
        except SaveError as error:
            failed.append((text(place.folder), str(error)))
    secrets = gc_secrets.thin(store, foreseen, terms.now, dry_run=terms.dry_run)
    return Thinned(runs=tuple(runs), rooms=tuple(rooms), failed=tuple(failed), secrets=secrets)


def _is_over(summary: Summary, limit: datetime) -> bool:
    """Whether nobody goes on with a run. One that was handed off goes on in another store, maybe on the same repository."""
    state = summary.state
    is_closed = state.status in CLOSED and state.status != "handed_off"
    return is_closed and state.updated_at is not None and state.updated_at < limit


def _named(store: Store) -> set[str]:
    """Saves of other runs that an open run's events name: a fork shares its source's past, and so its saves."""
    found: set[str] = set()
    for summary in find.all_runs(store, RunFilter(open_only=True)):
        found |= {summary.state.last_save, summary.state.save_point}
        if summary.state.fork is not None:
            found |= gc_secrets.named_by(store, summary.run)
    return found - {""}


# -- one repository ----------------------------------------------------------------------------------------------


class _Planned(NamedTuple):
    """The saves of a run that go, but for those to keep. Both newest first."""

    why: Why
    held: Sequence[SaveContents]
    keep: Sequence[SaveContents]


class _Thinning:
    """One repository being thinned; its locks are ours. `after` is what its refs will lead to."""

    def __init__(
        self, place: repo.Repo, reader: ObjectReader, terms: Terms, known: dict[str, bool], named: set[str],
        anchored: Anchored,
    ) -> None:  # fmt: skip
        self._place, self._reader, self._terms = place, reader, terms
        self._known, self._named, self._anchored = known, named, anchored
        self._over = {run for run, over in known.items() if over}
        self._before = prune.packed_bytes(place)
        self._planned: dict[str, _Planned] = {}
        self._left: dict[str, SaveContents] = {}
        self._surplus: list[str] = []
        self.after = chains.tips(place)
        self.removed: list[ThinnedRun] = []

    # -- what is to go -------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """One anchor for each run that is over; by hand, nothing that only a machine asked for and that is old.

        And where the saves take more than their budget, the oldest of these anchors go, as few as will do.
        """
        for run in sorted({name.split("/")[2] for name in self.after}):
            forgotten = run not in self._known and run in self._anchored.runs
            if run in self._over or forgotten:
                self._plan_one(run)
            elif run == HAND:
                self._plan_by_hand()
        if self._before > self._terms.budget_bytes:
            self._plan_budget()

    def _plan_one(self, run: str) -> None:
        held = chains.newest_first(self._place, self._reader, run)
        if not held or held[0].meta.at >= self._terms.limit:
            return  # somebody still saves under this name
        if self._named & {each.commit for each in held}:
            self._left[run] = held[0]
            self.after[chains.anchor_ref(run)] = Tip(held[0].commit)
            return
        if len(held) == 1 and list(chains.refs_of(self._place, run)) == [chains.anchor_ref(run)]:
            return
        newest = next((each for each in held if each.meta.kind != "pre-restore"), held[0])
        self._planned[run] = _Planned("over", held, [newest])
        for ref in chains.refs_of(self._place, run):
            del self.after[ref]
        self.after[chains.anchor_ref(run)] = Tip(newest.commit, (newest,))

    def _plan_by_hand(self) -> None:
        held = chains.newest_first(self._place, self._reader, HAND)
        keep = [each for each in held if each is held[0] or not self._is_passing(each)]
        if len(keep) == len(held) or self._named & {each.commit for each in held}:
            return
        self._planned[HAND] = _Planned("old", held, keep)
        commits = {each.commit for each in keep}
        for ref, commit in chains.refs_of(self._place, HAND).items():
            if commit in commits:
                self.after[ref] = Tip(commit, tuple(keep))
            else:
                del self.after[ref]

    def _is_passing(self, held: SaveContents) -> bool:
        return held.meta.kind in _PASSING and held.meta.at < self._terms.limit

    def _plan_budget(self) -> None:
        anchors = self._anchors()
        few, many = 0, len(anchors)
        while few < many:
            middle = (few + many) // 2
            enough = self._bytes_without(anchors[:middle]) <= self._terms.budget_bytes
            few, many = (few, middle) if enough else (middle + 1, many)
        for ref in anchors[:few]:
            run, newest = ref.split("/")[2], self._newest(ref)
            self._surplus.append(ref)
            self.removed.append(self._thinned_run(run, newest.meta.task, "budget", 1, None))
            del self.after[ref]

    def _bytes_without(self, gone: Sequence[str]) -> int:
        """What would be left to keep if these refs were gone as well."""
        left = [tip for ref, tip in self.after.items() if ref not in gone]
        tips = set[str]().union(*(tip.reached_from(self._reader) for tip in left))
        anew = sum(tip.anew_bytes(self._reader) for tip in left)
        return prune.reached_bytes(self._place, sorted(tips)) + anew

    def _anchors(self) -> list[str]:
        """The anchors of runs that are over, oldest first."""
        free = [
            ref
            for ref in self.after
            if ref == chains.anchor_ref(ref.split("/")[2])
            and self._is_ours_and_over(ref.split("/")[2])
            and not self._is_named(ref)
        ]
        return sorted(free, key=lambda ref: (self._newest(ref).meta.at, ref))

    def _newest(self, ref: str) -> SaveContents:
        return next(self.after[ref].saves(self._place, self._reader))

    def _is_ours_and_over(self, run: str) -> bool:
        return self._known.get(run, run in self._anchored.runs)

    def _is_named(self, ref: str) -> bool:
        """Whether an open run needs this save or one before it."""
        return any(each.commit in self._named for each in self.after[ref].saves(self._place, self._reader))

    # -- letting go ----------------------------------------------------------------------------------------------

    def thinned(self) -> list[ThinnedRun]:
        """Carry out the plan but for the budget, or only report it."""
        if not self._terms.dry_run:
            for run, newest in self._left.items():
                self._leave(run, newest)
        return [self._thin(run, planned) for run, planned in self._planned.items()]

    def _leave(self, run: str, newest: SaveContents) -> None:
        """An open run needs these. Mark them as of a run that is over, for the store will have forgotten it by then."""
        self._anchored.add(run)
        refs.write_ref(self._place.vault, chains.anchor_ref(run), newest.commit, old=refs.ANY)

    def _thin(self, run: str, planned: _Planned) -> ThinnedRun:
        why, held, keep = planned
        anchor = keep[0].commit
        if not self._terms.dry_run:
            if why == "over":
                self._anchored.add(run)
            done = chains.thin(self._place, self._reader, run, keep[::-1], anchor=why == "over")
            anchor = done.rewritten[anchor]
        # An anchor over the budget is removed, and reported by itself.
        going = chains.anchor_ref(run) in self._surplus
        return self._thinned_run(
            run, held[0].meta.task, why, len(held) - len(keep), None if going else anchor
        )

    def _thinned_run(self, run: str, task: str, why: Why, removed: int, anchor: str | None) -> ThinnedRun:
        return ThinnedRun(
            repository=text(self._place.folder), run=run, task=task, why=why, removed=removed, anchor=anchor
        )

    def room(self) -> Room:
        """Keep to the budget as planned, and give back what nothing reaches any more."""
        after = self._before
        changes = bool(self._planned) or self._before > self._terms.budget_bytes
        if changes and self._terms.dry_run:
            after = min(after, self._bytes_without([]))
        elif changes:
            for ref in self._surplus:
                refs.delete_ref(self._place.vault, ref, refs.ANY)
            self._reader.close()
            prune.rewrite_packs(self._place)
            after = prune.packed_bytes(self._place)
        return Room(
            repository=text(self._place.folder), bytes_before=self._before, bytes_after=after,
            budget_bytes=self._terms.budget_bytes,
        )  # fmt: skip
