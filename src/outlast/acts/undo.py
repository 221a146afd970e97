"""Undo: go back before the last turn of a run in its folder, or take that back. The work is done in `operations.undo`."""

from collections.abc import Iterator
from dataclasses import dataclass

from outlast.acts.plan import ActOutcome, called
from outlast.core.text import count_of
from outlast.errors import RunRefused, UsageError
from outlast.operations import requests, undo
from outlast.operations.saves.find import Saves, runs_in
from outlast.operations.undo import Undone, What
from outlast.store.protocol import Store, Summary
from outlast.supervisor.control.standing import supervisor_of

LATER_SHOWN = 3


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """An undo worked out: `foreseen` is what it would do. `saves` must stay open until it is applied."""

    store: Store
    saves: Saves
    run: Summary
    what: What
    back: bool
    force: bool
    foreseen: Undone
    sentences: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The words that do the same."""
        more = "--undo" if self.back else f"--{self.what}"
        return ("undo", self.run.run, more, *(("--force",) if self.force else ()))

    def apply(self, by: str = "") -> ActOutcome:
        """Do it. Raises RunRefused if a run is at work there by now."""
        done = take(self.store, self.saves, self.run, self.what, back=self.back, force=self.force)
        return ActOutcome(says=" ".join(sentences(done)), link=self.run.run, folder=done.folder)


def plan(
    store: Store, saves: Saves, run: Summary, what: What, *, back: bool = False, force: bool = False
) -> UndoPlan:
    """Work out what an undo would change; nothing is written. Raises RunRefused, UsageError, WorkspaceMoved."""
    foreseen = take(store, saves, run, what, back=back, force=force, dry_run=True)
    return UndoPlan(store, saves, run, what, back, force, foreseen, tuple(sentences(foreseen)))


def run_here(saves: Saves) -> Summary:
    """The newest run that worked in the folder around a person. Raises UsageError where there is none."""
    found = next(runs_in(saves.store, saves.folder, open_only=False), None)
    if found is None:
        raise UsageError(
            f"no run has worked in {saves.folder}",
            hint="name a RUN (`outlast ls --all`); an apply goes back by the `outlast restore` that it printed (`outlast saves`)",
        )
    return found


def take(
    store: Store, saves: Saves, run: Summary, what: What, *, back: bool = False, force: bool = False,
    dry_run: bool = False,
) -> Undone:  # fmt: skip
    """Undo, or bring back what the last undo took away. Never while a run is at work in that folder."""
    root = requests.root_of(store, run.run)
    saver = saves.saver_of(root)
    for each in runs_in(store, saver.folder, open_only=True):
        if store.holder_lives(each.root) or supervisor_of(store, each.root):
            raise RunRefused(
                f"{called(each)} is at work in {saver.folder}",
                hint=f"stop it first: `outlast kill {each.run}`; then `outlast undo {root.run}`",
            )
    if back:
        return undo.bring_back(saves, root, force=force, dry_run=dry_run)
    return undo.undo(saves, root, what, force=force, dry_run=dry_run)


def sentences(done: Undone) -> Iterator[str]:
    """What was done, or would be."""
    would = "would be" if done.dry_run else "is"
    if done.goes_on:
        yield "An earlier try was cut off; this ends it."
    if done.what == "undo":
        yield f"{done.folder} {would} again as it was before the last undo of run {done.run}."
    elif done.what == "run":
        yield f"{done.folder} {would} as it was when run {done.run} of task {done.task} began."
    else:
        after = f"after beat {done.beat:,}" if done.beat else "before its first beat"
        yield f"{done.folder} {would} as run {done.run} of task {done.task} left it {after}."
    if done.later:
        others = (
            f"runs {', '.join(done.later[:LATER_SHOWN])}" if len(done.later) > 1 else f"run {done.later[0]}"
        )
        more = f" and {len(done.later) - LATER_SHOWN:,} more" if len(done.later) > LATER_SHOWN else ""
        goes = "would go" if done.dry_run else "is gone"
        yield f"What {others}{more} did there since {goes} too."
    changes = " would be" if done.dry_run else ""
    yield f"{count_of(len(done.written), 'file')}{changes} written, {len(done.deleted):,}{changes} deleted."
