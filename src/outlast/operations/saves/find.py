"""Saves as a person names them: make one, list them, find the one that is meant. Lists are in `listing`."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from outlast import settings
from outlast.core import events as ev
from outlast.core.events import SaveKind
from outlast.core.text import count_of
from outlast.errors import OutlastError, SaveDamaged, UnknownRun, UsageError
from outlast.inspect import find
from outlast.operations.saves import listing
from outlast.runs import reader
from outlast.store.local import Local
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.workspace import repo, saves, types
from outlast.workspace.capture import branch as capture_branch
from outlast.workspace.capture.saver import Saver
from outlast.workspace.git import command, refs
from outlast.workspace.restore import recreate
from outlast.workspace.rules import Limits
from outlast.workspace.saves import SaveContents
from outlast.workspace.types import LeftOut, Purpose

HAND = "hand"
"""The name that saves belong to which no run made."""
SHORT_CHARS = 12
CANDIDATES_MAX = 8
WORKSPACES_MAX = 200
_HEX = re.compile(r"[0-9a-f]{4,64}")


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What `outlast save` says of a save it made. `commit` and `ref` are null where there was nothing to save."""

    commit: str | None = None
    ref: str | None = None
    kind: SaveKind = "manual"
    left_out: tuple[LeftOut, ...] = ()
    run: str
    folder: str
    git_dir: str
    shadow: bool = False
    branch: str | None = None
    warning: str = ""


class Found(NamedTuple):
    """A save that somebody named, what opens it, and the run by which it was named."""

    saver: Saver
    held: SaveContents
    run: Summary | None = None
    beat: int | None = None


def open_saver(folder: Path, local: Local) -> Saver:
    """What saves a folder, as its settings say."""
    found = settings.load(folder if folder.is_dir() else None)
    return Saver(folder, local, limits=Limits.of(found), shadow=found["save_where"] == "shadow")


class Saves:
    """Where saves are handled from: this host's folder, a store if there is one yet, and where the person stands."""

    def __init__(self, local: Local, store: Store | None, project: str, workspace: Path | None) -> None:
        self.local, self.store, self.project = local, store, project
        self.given = workspace is not None
        self.folder = Path(os.path.realpath(workspace)) if workspace else repo.workspace_around(Path.cwd())
        if workspace is not None and not workspace.is_dir() and not self._is_known(self.folder):
            raise UsageError(f"{workspace} is not a folder", hint="give the folder the agent works in")
        self._savers: dict[Path, Saver] = {}

    def saver(self, folder: Path | None = None) -> Saver:
        """What saves a folder; the workspace around the person unless another is named.

        Of one that is gone saves can still be read. Raises WorkspaceRefused where its repository is gone as well.
        """
        folder = Path(os.path.realpath(folder or self.folder))
        if folder not in self._savers:
            left = (
                None
                if folder.is_dir()
                else recreate.find_lost(folder, self._private(folder), with_repository=True)
            )
            self._savers[folder] = open_saver(folder, self.local)
            if left is not None:
                self._savers[folder].lend(left.place)
        return self._savers[folder]

    def lost(self, folder: Path, vault: Path) -> Saver | None:
        """What saves a folder that is gone, if its saves are in this vault."""
        if folder.is_dir() or repo.noted_place(self._private(folder)) is None:
            return None
        saver = self.saver(folder)
        return saver if saver.repo().vault == vault else None

    def _private(self, folder: Path) -> Path:
        return self.local.private_of(folder)

    def _is_known(self, folder: Path) -> bool:
        return repo.noted_place(self._private(folder)) is not None

    def close(self) -> None:
        """Let go of the processes."""
        for saver in self._savers.values():
            saver.close()

    # -- runs ----------------------------------------------------------------------------------------------------

    def owner(self, folder: Path) -> Summary | None:
        """The newest open run that works in a folder."""
        return next(runs_in(self.store, folder, open_only=True), None)

    def run_called(self, name: str) -> Summary:
        """The run of a name. Raises UnknownRun, AmbiguousRun."""
        if self.store is None:
            raise UnknownRun(name)
        return find.find(self.store, name, self.project)

    def saver_of(self, run: Summary) -> Saver:
        """What saves the workspace of a run; of one that is gone, what its saves can be read through."""
        if not run.state.workspace:
            raise UsageError(
                f"run {run.run} of task {run.task} has no workspace, so no files of it were saved",
                hint="start it with --workspace DIR, in a program with `workspace=`",
            )
        return self.saver(Path(run.state.workspace))

    # -- making --------------------------------------------------------------------------------------------------

    def save(self, text: str = "", *, branch: bool = False) -> Made:
        """Save the workspace now; durable when it returns. No commit where everything is as HEAD says."""
        if not self.folder.is_dir():
            raise UsageError(f"{self.folder} is not a folder", hint="give the folder the agent works in")
        saver = self.saver()
        run = self.owner(saver.folder)
        save = saver.capture(purpose("manual", run, text, if_dirty=True))
        name, git_dir = run.run if run else HAND, types.text(saver.repo().vault)
        if save is None:
            return Made(
                run=name, folder=types.text(saver.folder), git_dir=git_dir, shadow=saver.repo().shadow
            )
        on = None
        if branch and not saver.repo().shadow:
            on = capture_branch.put(saver.repo(), saver.reader(), run.task if run else HAND, save)
        return Made(
            commit=save.commit, ref=save.ref, left_out=save.left_out, run=name, folder=types.text(saver.folder),
            git_dir=git_dir, shadow=saver.repo().shadow, branch=on, warning="; ".join(filter(None, (save.warning, saver.repo().refused))),
        )  # fmt: skip

    # -- finding -------------------------------------------------------------------------------------------------

    def find(self, text: str) -> Found:
        """The save that a text means: `RUN@BEAT`, a ref, a commit or its beginning, or a RUN for its newest.

        Raises UsageError where none or more than one is meant, SaveDamaged where it cannot be read.
        """
        at_beat = self._at_beat(text)
        if at_beat is not None:
            return at_beat
        by_ref = self._by_ref(text)
        if by_ref is not None:
            return by_ref
        commits = self._by_beginning(text)
        run = None if len(text) >= 40 and commits else self._run_or_none(text)
        if len(commits) + (run is not None) > 1:
            fitting = [held.commit[:SHORT_CHARS] for held in commits] + ([f"run {run.run}"] if run else [])
            raise UsageError(
                f"{text!r} fits {len(fitting)} saves: {', '.join(fitting[:CANDIDATES_MAX])}",
                hint="give more of the commit, or RUN@BEAT",
            )
        if commits:
            return Found(self.saver(), commits[0])
        if run is not None:
            return self.newest(run)
        elsewhere = self._elsewhere(text)
        if elsewhere is None:
            raise self._unknown(text)
        return elsewhere

    def _unknown(self, text: str) -> UsageError:
        """The error for a text that means no save. It may be a mistyped RUN."""
        name, _, beat = text.rpartition("@")
        hint = "`outlast saves` lists the saves"
        if self.store is not None:
            hint = find.like(self.store, name or beat, self.project, hint)
        return UsageError(f"no such save: {text}", hint=hint)

    def _run_or_none(self, text: str) -> Summary | None:
        try:
            return self.run_called(text)
        except UnknownRun:
            return None

    def _at_beat(self, text: str) -> Found | None:
        name, _, beat = text.rpartition("@")
        if not name or not re.fullmatch(r"[0-9]{1,9}", beat):
            return None
        run = self.run_called(name)
        return self.at_beat(run, int(beat))

    def at_beat(self, run: Summary, beat: int) -> Found:
        """The save that the event which ended a beat names; for 0, the one a run began with."""
        commit = dict(self.saves_of_beats(run)).get(beat)
        if not commit:
            raise UsageError(
                f"beat {beat} of run {run.run} names no save; it has {count_of(run.state.beats, 'beat')}",
                hint=f"see `outlast saves {run.run}`",
            )
        return Found(self.saver_of(run), self._read(self.saver_of(run), commit), run, beat)

    def began(self, run: Summary) -> Found | None:
        """The save that a run, or a fork of one, began with; None where none is recorded or it is gone."""
        assert self.store is not None, "a run was found in a store"
        first = self._first_save(run) if run.state.workspace else None
        if first is None:
            return None
        with contextlib.suppress(SaveDamaged):
            return Found(self.saver_of(run), self._read(self.saver_of(run), first.commit), run, first.beat)
        return None

    def _first_save(self, run: Summary) -> ev.SaveMade | None:
        """The event of a run's first save; of a fork, whose journal begins with its source's, of the first of its own."""
        assert self.store is not None, "a run was found in a store"
        after = 0
        while page := self.store.read(run.run, after=after, tags=("save_made",)).events:
            for item in page:
                if isinstance(item.event, ev.SaveMade) and f"/{run.run}/" in item.event.ref:
                    return item.event if item.event.kind == "beat" else None
            after = page[-1].seq
        return None

    def of_run(self, run: Summary, text: str) -> Found:
        """The save that a commit, its beginning or `RUN@BEAT` means among those of a run's workspace.

        Raises UsageError where none or more than one is meant, wherever this process stands.
        """
        name, _, beat = text.rpartition("@")
        if name == run.run and re.fullmatch(r"[0-9]{1,9}", beat):
            return self.at_beat(run, int(beat))
        saver = self.saver_of(run)
        found = self._by_beginning(text, saver)
        if len(found) != 1:
            what = f"fits {len(found)} saves" if found else "is not one of its saves"
            raise UsageError(
                f"{text!r:.80} {what} in the workspace of run {run.run}",
                hint=f"see `outlast saves {run.run}`",
            )
        return Found(saver, found[0], run)

    def saves_of_beats(self, run: Summary) -> Iterator[tuple[int, str]]:
        """Beats whose events name a save, and the saves; 0 is the beginning."""
        assert self.store is not None, "a run was found in a store"
        began = self.store.read(run.run, after=0, limit=1, tags=("save_made",)).events
        if (
            began
            and isinstance(made := began[0].event, ev.SaveMade)
            and (made.kind, made.beat) == ("beat", 0)
        ):
            yield 0, made.commit
        yield from (
            (event.beat, event.save) for _, event in reader.beats_done(self.store, run.run) if event.save
        )

    def _elsewhere(self, text: str) -> Found | None:
        """A save of another workspace of this state folder, as a hint named it to somebody who stands elsewhere."""
        if self.given or not _HEX.fullmatch(text):
            return None
        found: dict[str, Found] = {}
        for folder in sorted(self._others())[:WORKSPACES_MAX]:
            try:
                saver = self.saver(folder)
                fitting = self._by_beginning(text, saver)
            except OutlastError:
                continue  # it cannot be looked at, and nobody asked for this one
            for held in fitting:
                if held.commit not in found or held.meta.folder == types.text(folder):
                    found[held.commit] = Found(saver, held)
        if len(found) > 1:
            names = ", ".join(f"{name[:SHORT_CHARS]} of {each.saver.folder}" for name, each in found.items())
            raise UsageError(
                f"{text!r} fits {len(found)} saves of other folders: {names}", hint="give more of the commit"
            )
        return next(iter(found.values()), None)

    def _others(self) -> Iterator[Path]:
        """The other workspaces that are still there, or can be made again."""
        for note in self.local.workspaces.glob("*/folder"):
            folder = Path(os.fsdecode(note.read_bytes().removesuffix(b"\n")))
            if folder != self.folder and (folder.is_dir() or repo.noted_place(note.parent) is not None):
                yield folder

    def _by_ref(self, text: str) -> Found | None:
        for name in (text, f"refs/{text}", f"{listing.REFS}{text}"):
            if not name.startswith(listing.REFS) or not self._has_saves():
                continue
            saver = self.saver()
            commit = refs.list_refs(saver.repo().vault, name).get(name)
            if commit is not None:
                return Found(saver, self._read(saver, commit))
        return None

    def _by_beginning(self, text: str, saver: Saver | None = None) -> list[SaveContents]:
        """Saves whose commit begins so. Git lists every object that does; ours are those that are saves."""
        if not _HEX.fullmatch(text) or (saver is None and not self._has_saves()):
            return []
        saver = saver or self.saver()
        place = saver.repo()
        output = command.run(["rev-parse", f"--disambiguate={text}"], git_dir=place.vault, ok=(0, 128))
        found = []
        for oid in output.decode().split():
            if saver.reader().read(oid)[0] != "commit":
                continue
            try:
                found.append(saves.read(saver.reader(), oid, place.algo))
            except SaveDamaged:
                continue  # a commit of the user's, or one of the parts of a save
        return found

    def newest(self, run: Summary) -> Found:
        """The newest save of a run, but for those that a restore made. Raises UsageError where there is none."""
        saver = self.saver_of(run)
        chain = saves.chain(saver.repo(), saver.reader(), run.run)
        held = next((held for held in chain if held.meta.kind != "pre-restore"), None)
        if held is None:
            raise UsageError(
                f"run {run.run} of task {run.task} has no save in {saver.folder}",
                hint="see `outlast saves`",
            )
        return Found(saver, held, run)

    def _read(self, saver: Saver, commit: str) -> SaveContents:
        return saves.read(saver.reader(), commit, saver.repo().algo)

    def _has_saves(self) -> bool:
        """Whether there can be saves here at all; asked before anything is made in the state folder."""
        return os.path.lexists(self.folder / ".git") or self._private(self.folder).is_dir()

    # -- listing -------------------------------------------------------------------------------------------------

    def listed(self, run: Summary | None = None) -> Iterator[listing.Point]:
        """The saves of a run, or of the repository around the person, newest first."""
        if run is None and not self._has_saves():
            return
        saver = self.saver() if run is None else self.saver_of(run)
        yield from listing.points(saver, run.run if run else "")


def purpose(kind: SaveKind, run: Summary | None, reason: str, *, if_dirty: bool = False) -> Purpose:
    """A save by hand: of the run whose workspace it is, or of no run."""
    if run is None:
        return Purpose(kind=kind, run=HAND, reason=reason, if_dirty=if_dirty)
    beat, seq = run.state.beats, run.state.seq
    return Purpose(
        kind=kind, run=run.run, task=run.task, reason=reason, beat=beat, seq=seq, if_dirty=if_dirty
    )


def runs_in(store: Store | None, folder: Path, *, open_only: bool) -> Iterator[Summary]:
    """The runs whose workspace is this very folder, newest first."""
    if store is None:
        return
    for summary in find.all_runs(store, RunFilter(parent="", open_only=open_only)):
        workspace = summary.state.workspace
        if workspace and os.path.realpath(workspace) == str(folder):
            yield summary
