"""Restore to a new folder: the files of a save, beside the run. Into the workspace itself: `operations.saves.restore`."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from outlast.acts import new_folder
from outlast.acts.plan import WRITES, ActOutcome
from outlast.core.text import short
from outlast.errors import OutlastError, UnknownRun
from outlast.operations import fork as forks, requests
from outlast.operations.saves import restore
from outlast.operations.saves.find import SHORT_CHARS, Found
from outlast.operations.saves.restore import Restored
from outlast.store.protocol import Store, Summary


class RestoreArgs(msgspec.Struct, frozen=True):
    """The record in a run's journal: which save was restored, and into which new folder."""

    save: str
    to: str


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A restore worked out. `foreseen` is what it would write. `found` must stay open until it is applied.

    `run` is the run of the save."""

    store: Store | None
    found: Found
    run: Summary | None
    folder: Path
    with_secrets: bool
    foreseen: Restored
    sentences: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The words that do the same, wherever they are typed."""
        run = self.run
        place = ("--workspace", run.state.workspace) if run is not None and run.state.workspace else ()
        secrets = ("--with-secrets",) if self.with_secrets else ()
        return ("restore", self.found.held.commit, "--to", str(self.folder), *secrets, *place)

    def apply(self, by: str = "") -> ActOutcome:
        """Write the files, and put that on the run's record."""
        return self.outcome(self.write(), by)

    def write(self) -> Restored:
        """Write the files. Raises WorkspaceRefused where the folder holds anything by now."""
        return restore.restore_to(self.found, self.folder, with_secrets=self.with_secrets)

    def outcome(self, done: Restored, by: str = "") -> ActOutcome:
        """Put on record what was written, and say so."""
        commit, run = self.found.held.commit, self.run
        says = f"{len(done.written):,} files of save {commit[:SHORT_CHARS]} are in {done.folder} now."
        if run is None:
            return ActOutcome(says=says, link="", folder=done.folder)
        if self.store is not None:
            says += _recorded(self.store, run, commit, done.folder, by)
        beat = self.found.held.meta.beat if self.found.beat is None else self.found.beat
        line = (
            f"`outlast fork {run.run} --at {beat} --to DIR`"
            if self.store is None
            else forks.how(self.store, run, beat)
        )
        hint = f"{line} makes a run that goes on from there"
        return ActOutcome(says=says, hint=hint, link=run.run, folder=done.folder)


def plan(
    store: Store | None, found: Found, folder: Path, *, state: Path, with_secrets: bool = False
) -> RestorePlan:
    """Work out what a save would write into a new folder, given by its real path. Raises UsageError, WorkspaceRefused.

    `state` is the state folder, which is there also where there is no store.
    """
    run = _run_of(store, found)
    new_folder.require(folder, store=state, workspace=run.state.workspace if run is not None else "")
    foreseen = restore.restore_to(found, folder, dry_run=True, with_secrets=with_secrets)
    sentences = _sentences(found, run, foreseen, folder, with_secrets=with_secrets)
    return RestorePlan(store, found, run, folder, with_secrets, foreseen, tuple(sentences))


def _run_of(store: Store | None, found: Found) -> Summary | None:
    """The run that a save is of: by which it was named, else which it says itself, if that is here."""
    if found.run is not None or store is None or not found.held.meta.run:
        return found.run
    with contextlib.suppress(UnknownRun):
        return requests.summary_of(store, found.held.meta.run)
    return None


def _sentences(
    found: Found, run: Summary | None, foreseen: Restored, folder: Path, *, with_secrets: bool
) -> Iterator[str]:
    meta, commit = found.held.meta, found.held.commit
    made = f"made {meta.at:%Y-%m-%d %H:%M} UTC after beat {meta.beat:,}"
    yield f"{len(foreseen.written):,} files of save {commit[:SHORT_CHARS]} ({meta.kind}, {made}) are written into {folder}."
    goes_on = " The run and its own files go on as they are; its journal records that this was done."
    yield f"That folder is a new one: nothing is overwritten.{goes_on if run is not None else ''}"
    if meta.secrets and not with_secrets:
        one = len(meta.secrets) == 1
        count = "1 untracked secret" if one else f"{len(meta.secrets):,} untracked secrets"
        yield f"{count} of it, kept apart, {'stays' if one else 'stay'} apart; --with-secrets on the command line brings {'it' if one else 'them'} back."
    left = [path for path in foreseen.left_out if path not in {secret.path for secret in meta.secrets}]
    if left:
        count = "1 path was" if len(left) == 1 else f"{len(left):,} paths were"
        yield f"{count} left out of the save: {short(left[0], 80)}{'' if len(left) == 1 else ' and others'}."


def _recorded(store: Store, summary: Summary, commit: str, folder: str, by: str) -> str:
    """Put the restore on record. What was done is done, so nothing that is in the way of that is an error."""
    args = msgspec.json.encode(RestoreArgs(commit, folder))
    try:
        root = requests.root_of(store, summary.run)
        if root.state.status == "handed_off":
            return " The run is handed off, so its journal here does not say so."
        with requests.alone(store, root.run, WRITES):
            noted = requests.note(store, root.run, "restore", args, by=by)
    except OutlastError as error:
        return f" That could not be recorded: {error}."
    return "" if noted else " The run is at work: its holder records that at its next beat or act."
