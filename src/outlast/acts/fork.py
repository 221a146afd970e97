"""Fork: a new run that shares the past of another. How it is made and killed on the way is `operations.fork`."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from outlast.acts import new_folder
from outlast.acts.plan import ActOutcome, name
from outlast.core.text import short
from outlast.errors import OutlastError
from outlast.inspect import show
from outlast.operations import fork as forks, requests
from outlast.operations.saves import restore
from outlast.runs.opening.terms import budget_of
from outlast.store.protocol import Store, Summary

LISTED_MAX = 20


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """A fork worked out. `again` lists effects of the source that the fork may do again; none where it `exists`.

    `named` is the task that was asked for, `task` the one it gets. `is_shadow`: its files come from no repository of the
    workspace's own.
    """

    store: Store
    source: Summary
    at: int
    named: str | None
    amounts: tuple[str, ...]
    folder: Path | None
    task: str
    workspace: str
    exists: bool
    is_shadow: bool
    again: tuple[show.Effect, ...]
    sentences: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The words that do the same."""
        options = [word for text in self.amounts for word in ("--budget", text)]
        options += ["--to", str(self.folder)] if self.folder is not None else []
        return ("fork", self.source.run, "--at", str(self.at), "--task", self.task, *options, "--yes")

    def apply(self, by: str = "") -> ActOutcome:
        """Make it and write its files; killed anywhere, the same again ends right. It is not started."""
        store, run, folder = self.store, self.source.run, self.folder
        with requests.alone(store, run, "fork"), contextlib.ExitStack() as stack:
            files = restore.ForkFiles(store, self.source, self.at, folder) if folder is not None else None
            if files is not None:
                stack.callback(files.close)
            prepared = _prepared(
                store, requests.summary_of(store, run), self.at, self.named, self.amounts, folder
            )
            fork = requests.summary_of(store, forks.make(store, prepared, by=by))
            is_new = forks.is_new(prepared, fork.run)
            try:
                if files is not None:
                    files.give(fork)
            except (OutlastError, OSError) as error:
                return _without_files(fork, error, is_new=is_new)
        made = "is made" if is_new else "was made before"
        where = ""
        if folder is not None:
            where = f" Its files are in {folder}."
        elif self.workspace:
            where = f" It works in {self.workspace} as that is now; `--to DIR` gives it the files of beat {self.at:,}."
        return ActOutcome(
            says=f"{name(fork)} {made}: it goes on after beat {self.at:,} of run {run}.{where}",
            changed=is_new, hint=_how_to_start(fork), link=fork.run,
            next="resume" if fork.state.supervised else None, folder="" if folder is None else str(folder),
        )  # fmt: skip


def plan(
    store: Store, summary: Summary, at: int, *, task: str | None = None, amounts: Sequence[str] = (),
    folder: Path | None = None,
) -> ForkPlan:  # fmt: skip
    """Work a fork out after beat `at`; `amounts` are moved to it, its files go to `folder`. Raises UsageError, RunRefused."""
    is_shadow = False
    if folder is not None:
        new_folder.require(folder, store=store.local.folder, workspace=summary.state.workspace, full=True)
        with contextlib.closing(restore.ForkFiles(store, summary, at, folder)) as files:
            is_shadow = files.shadow
    prepared = _prepared(store, summary, at, task, amounts, folder)
    opened, again = prepared.opened, () if prepared.exists else prepared.again
    if prepared.exists:
        sentences = [f"The fork is there already: run {opened.run} of task {opened.task}. Nothing changes."]
    else:
        point = f"the end of beat {at:,}" if at else "the beginning"
        sentences = [
            f"A new run of task {opened.task} is made. It shares the past of run {summary.run} up to {point}, and goes its"
            " own way from there. It is not started by this."
        ]
    if folder is not None:
        sentences.append(f"Its files, as they were then, are written into {folder}.")
    elif opened.workspace:
        sentences.append(f"It works in the same folder, {opened.workspace}, as it is when it is started.")
    if amounts and not prepared.exists:
        sentences.append(f"{', '.join(amounts)} of the budget of run {summary.run} is moved to it.")
    return ForkPlan(
        store, summary, at, task, tuple(amounts), folder, opened.task, opened.workspace, prepared.exists, is_shadow, again,
        (*sentences, *_repeats(summary, again)),
    )  # fmt: skip


def _prepared(
    store: Store, source: Summary, at: int, task: str | None, amounts: Sequence[str], folder: Path | None
) -> forks.Plan:
    return forks.prepare(
        store, source, at=at, task=task, budget=budget_of(list(amounts) or None),
        workspace="" if folder is None else str(folder),
    )  # fmt: skip


def _repeats(summary: Summary, again: Sequence[show.Effect]) -> Iterator[str]:
    """The fork has keys of its own: what the source did after the save point, the world would see twice."""
    if not again:
        return
    count = "1 later effect" if len(again) == 1 else f"{len(again):,} later effects"
    yield f"Run {summary.run} did {count}, which the fork may do again:"
    for effect in again[:LISTED_MAX]:
        yield f"{effect.id} {short(effect.name, 100)}: {effect.state.replace('_', ' ')}"
    if len(again) > LISTED_MAX:
        yield f"… and {len(again) - LISTED_MAX:,} more; `outlast effects {summary.run}` lists them."


def _how_to_start(fork: Summary) -> str:
    if fork.state.supervised:
        return f"`outlast resume {fork.run}` starts it"
    return f"start its program with task {fork.task}"


def _without_files(fork: Summary, error: OutlastError | OSError, *, is_new: bool) -> ActOutcome:
    """Report a fork that exists but has no files yet. Asking for the same fork again writes them."""
    hint = error.hint if isinstance(error, OutlastError) else "see `outlast doctor`"
    return ActOutcome(
        says=f"{name(fork)} is made, but its files could not be written: {error}.",
        hint=f"{hint}; then ask for the same fork again", link=fork.run, changed=is_new, error=error,
    )  # fmt: skip
