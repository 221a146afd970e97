"""Forget: remove a run with all that outlast keeps of it. The work is done in `operations.forget`."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outlast.acts.plan import WRITES, ActOutcome, called, effects, name, stands
from outlast.core.statuses import CLOSED
from outlast.core.text import count_of
from outlast.errors import RunRefused, SaveError, UsageError
from outlast.inspect import find
from outlast.operations import forget, requests, undo
from outlast.operations.forget import RemovedRun
from outlast.processes import reap
from outlast.store.protocol import Store, Summary
from outlast.supervisor.control.standing import supervisor_of
from outlast.workspace.git import command
from outlast.workspace.worktree_marker import marker_of

_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """The removal worked out: `foreseen` is what goes."""

    store: Store
    run: Summary
    force: bool
    foreseen: RemovedRun
    sentences: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The words that do the same."""
        return ("rm", self.run.run, "--yes", *(("--force",) if self.force else ()))

    def apply(self, by: str = "") -> ActOutcome:
        """Remove it. Raises RunRefused where it may not go by now."""
        done = self.remove()
        return ActOutcome(says=removed(done), link="", hint="; ".join(done.warnings))

    def remove(self) -> RemovedRun:
        """Remove it, and say what went."""
        with requests.alone(self.store, self.run.run, WRITES):
            _refuse(self.store, requests.summary_of(self.store, self.run.run), force=self.force)
            return forget.forget(self.store, self.run)


def plan(store: Store, run: Summary, *, force: bool = False) -> ForgetPlan:
    """Work out what goes with a run; nothing is written. Raises RunRefused, or UsageError for a part of another run.

    `force` lets a run go whose effects are in doubt, whose worktree has work that nobody committed, or that was undone.
    """
    if run.root != run.run:
        raise UsageError(
            f"{called(run)} is part of run {run.root}", hint=f"it goes with that: `outlast rm {run.root}`"
        )
    _refuse(store, run, force=force)
    foreseen = forget.foreseen(store, run)
    return ForgetPlan(store, run, force, foreseen, tuple(_sentences(store, run, foreseen)))


def _refuse(store: Store, run: Summary, *, force: bool) -> None:
    if store.holder_lives(run.run) or supervisor_of(store, run.run):
        raise RunRefused(f"{called(run)} is at work", hint=f"stop it first: `outlast kill {run.run}`")
    left = next(iter(reap.search(run.run)), None)
    if left is not None:
        raise RunRefused(
            f"pid {left.pid}, which {called(run)} started, is still there",
            hint=f"stop it: `outlast kill {run.run}`",
        )
    if force:
        return
    doubts = find.doubts(store, run.state)
    if doubts:
        raise RunRefused(
            f"{effects(len(doubts))} in doubt in {called(run)}, and nobody would know of {'it' if len(doubts) == 1 else 'them'} any more",
            hint=f"look outside and say what you found (`outlast effects {run.run}`); or let it go with --force",
        )
    if undo.is_in_force(store.local, run):
        raise RunRefused(
            f"what an undo took away in {run.state.workspace} is in the saves of {called(run)} alone, and they would go",
            hint=f"bring it back: `outlast undo {run.run} --undo`; or let it go with --force",
        )
    if _has_unsaved_work(run):
        raise RunRefused(
            f"the worktree {run.state.workspace} has work that nobody committed, and its saves would go",
            hint=f"take it over with `outlast apply {run.run}`, then remove the worktree with `outlast clean {run.run}`; or let it go with --force",
        )


def _has_unsaved_work(run: Summary) -> bool:
    """Whether the run's own worktree has changes or new files that are in no commit. What cannot be looked at counts as work."""
    folder = Path(run.state.workspace) if run.state.workspace else None
    marker = marker_of(folder) if folder is not None else None
    if folder is None or marker is None or marker.task != run.task:
        return False
    with contextlib.suppress(SaveError, OSError):
        return bool(command.run(["status", "--porcelain", "-z"], cwd=folder))
    return True


def _sentences(store: Store, run: Summary, foreseen: RemovedRun) -> Iterator[str]:
    yield f"{name(run)} is {stands(store, run)}; its journal, logs and copies of transcripts are removed for good."
    if run.state.status not in CLOSED:
        yield "It could still go on; then it cannot any more."
    if foreseen.children:
        yield f"{count_of(len(foreseen.children), 'child run')} {'goes' if len(foreseen.children) == 1 else 'go'} with it."
    if foreseen.saves:
        yield f"{count_of(foreseen.saves, 'save')} of its files {'goes' if foreseen.saves == 1 else 'go'} too: files that are in no commit and in no folder are lost."
    if foreseen.saves_left:
        yield f"{count_of(foreseen.saves_left, 'save')} {'stays' if foreseen.saves_left == 1 else 'stay'}, because a fork of it needs {'it' if foreseen.saves_left == 1 else 'them'}."
    if foreseen.saves and foreseen.folder and not os.path.isdir(foreseen.folder):
        yield f"{foreseen.folder} is gone: what the run had not committed there is in these saves alone."
    if foreseen.folder and os.path.isdir(foreseen.folder):
        yield f"The files in {foreseen.folder}, your repository and its branches stay as they are."


def removed(done: RemovedRun) -> str:
    """What went, in a sentence."""
    room = f", {done.bytes / _MEGABYTE:,.1f} MB" if done.bytes >= _MEGABYTE // 10 else ""
    children = f" and {count_of(len(done.children), 'child run')}" if done.children else ""
    return f"Run {done.run} of task {done.task}{children} is forgotten, with {count_of(done.saves, 'save')}{room}."
