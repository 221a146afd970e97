"""Going back before the last turn of a run in its folder, and taking that back. Both are restores of saves.

A note lists what was undone. It is written before the first file is touched: killed, the same command ends what was begun."""

import contextlib
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from outlast import decoders, faults
from outlast.core.statuses import CLOSED
from outlast.errors import RunRefused, UsageError, WorkspaceMoved
from outlast.operations.saves import restore as saves_restore
from outlast.operations.saves.find import HAND, Found, Saves, runs_in
from outlast.operations.saves.restore import Restored
from outlast.store import durable
from outlast.store.local import Local
from outlast.store.protocol import Summary
from outlast.workspace import repo, saves as workspace_saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.restore.restore import Options

_NOTE = "undone"
_STEPS_MAX = 100

What = Literal["turn", "run"]


class UndoStep(msgspec.Struct, frozen=True, kw_only=True):
    """One undo: of which run, to which save and beat, and the save of what it took away.

    `after` is the newest save from before it of the run `saved_as`; `was` is HEAD before it, `head` as the undo left it; `seq` the
    run's last event then.
    """

    run: str
    what: What
    seq: int
    beat: int
    to: str
    state: Literal["undoing", "undone", "bringing back"]
    saved_as: str
    after: str = ""
    before: str = ""
    was: repo.Head | None = None
    head: repo.Head = repo.Head()
    secrets: bool = False


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """What an undo did, or would do with `dry_run`. `beat` is the last that is left; `before` the save of what was there.

    `what` is "undo" where an undo was taken back. `goes_on`: it ended what a killed one had begun. `later`: other runs that worked
    there after `save`; what they did goes too.
    """

    run: str
    task: str
    what: What | Literal["undo"]
    beat: int | None
    save: str
    folder: str
    written: tuple[str, ...]
    deleted: tuple[str, ...]
    branch: str
    before: str | None = None
    goes_on: bool = False
    dry_run: bool = False
    later: tuple[str, ...] = ()


class _Target(NamedTuple):
    found: Found
    beat: int


def undo(saves: Saves, run: Summary, what: What, *, force: bool, dry_run: bool) -> Undone:
    """Make the folder of a run what it was before its last turn, or before the run. What is there is saved first.

    Each call goes back one more turn. Raises RunRefused while a run is at work there, WorkspaceMoved where the branch has moved on
    and `force` is not given.
    """
    saver = _at_rest(saves, run)
    steps = _current(_noted(saver.private), run)
    last = steps[-1] if steps else None
    if last is not None and last.state == "bringing back":
        raise RunRefused(
            f"`outlast undo --undo` was cut off in {saver.folder}",
            hint=f"`outlast undo {run.run} --undo` ends it",
        )
    if last is not None and last.state == "undoing" and not dry_run:
        return _finish(saves, run, saver, steps, force=force)
    target = _before_turn(saves, run, last) if what == "turn" else _before_run(saves, run)
    options = Options(force=force, dry_run=True)
    foreseen = _restored(saves, target.found, options, f"outlast undo {run.run}")
    if dry_run:
        return msgspec.structs.replace(
            _outcome(run, what, target.beat, foreseen), later=_later(saves, run, target.found)
        )
    owner = saves.owner(saver.folder)
    saved_as = owner.run if owner is not None else HAND
    step = UndoStep(
        run=run.run, what=what, seq=run.state.seq, beat=target.beat, to=target.found.held.commit, state="undoing",
        saved_as=saved_as, after=_newest(saver, saved_as), was=repo.head(saver.repo()),
    )  # fmt: skip
    _note(saver, [*steps, step])
    faults.point("undo.noted")
    return _carry_out(saves, run, saver, [*steps, step], force=force)


def bring_back(saves: Saves, run: Summary, *, force: bool, dry_run: bool) -> Undone:
    """Take back the last undo in the folder of a run: files, HEAD, index and permissions are as they were before it."""
    saver = _at_rest(saves, run)
    steps = _current(_noted(saver.private), run)
    if not steps:
        raise UsageError(
            f"nothing of run {run.run} is undone in {saver.folder}, or the run has gone on since",
            hint=f"`outlast saves {run.run}` lists its saves; `outlast restore SAVE` brings one back",
        )
    last = steps[-1]
    before = last.before or _anchor(saver, last)
    if not before:  # it was cut off before it saved anything, so nothing was touched
        if not dry_run:
            _note(saver, steps[:-1])
        raise UsageError(f"nothing is undone in {saver.folder}: the undo was cut off before it began")
    now = repo.head(saver.repo())
    forced = force or last.state != "undone" or now == last.head
    held = workspace_saves.read(saver.reader(), before, saver.repo().algo)
    found = Found(saver, held, run, held.meta.beat)
    options = Options(force=forced, dry_run=dry_run, with_secrets=last.secrets)
    if not dry_run:
        _restored(
            saves, found, msgspec.structs.replace(options, dry_run=True), f"outlast undo {run.run} --undo"
        )
        _note(saver, [*steps[:-1], msgspec.structs.replace(last, before=before, state="bringing back")])
        faults.point("undo.noted")
    done = _restored(saves, found, options, f"outlast undo {run.run} --undo")
    if not dry_run:
        faults.point("undo.restored")
        _note(saver, steps[:-1])
    goes_on = last.state == "bringing back"
    return msgspec.structs.replace(_outcome(run, "undo", None, done), goes_on=goes_on)


def is_in_force(local: Local, run: Summary) -> bool:
    """Whether an undo of a run was not taken back, or was cut off: then what it took away may be in saves of the run alone."""
    folder = run.state.workspace
    return bool(folder) and bool(_current(_noted(local.private_of(Path(folder))), run))


def _at_rest(saves: Saves, run: Summary) -> Saver:
    saver = saves.saver_of(run)
    saves_restore.refuse_held(saves, saver)
    return saver


def _finish(saves: Saves, run: Summary, saver: Saver, steps: list[UndoStep], *, force: bool) -> Undone:
    """End an undo that was cut off. Its own restore may have moved the branch already; what somebody else moved needs `force`."""
    step = steps[-1]
    held = workspace_saves.read(saver.reader(), step.to, saver.repo().algo)
    now = repo.head(saver.repo())
    ours = now in (step.was, repo.Head(held.meta.head, held.meta.branch))
    forced = force or ours or step.was is None
    return msgspec.structs.replace(_carry_out(saves, run, saver, steps, force=forced), goes_on=True)


def _carry_out(saves: Saves, run: Summary, saver: Saver, steps: list[UndoStep], *, force: bool) -> Undone:
    step = steps[-1]
    held = workspace_saves.read(saver.reader(), step.to, saver.repo().algo)
    cut_off = _anchor(saver, step)
    found = Found(saver, held, run, step.beat)
    later = _later(saves, run, found)
    done = _restored(saves, found, Options(force=force), f"outlast undo {run.run}")
    faults.point("undo.restored")
    before = cut_off or done.before or ""
    new = msgspec.structs.replace(
        step, state="undone", before=before, head=repo.head(saver.repo()), secrets=bool(done.apart)
    )
    _note(saver, [*steps[:-1], new])
    outcome = _outcome(run, step.what, step.beat, msgspec.structs.replace(done, before=before))
    return msgspec.structs.replace(outcome, later=later)


def _later(saves: Saves, run: Summary, to: Found) -> tuple[str, ...]:
    """The other runs that worked in the folder after the save that it goes back to, newest first."""
    others = (each for each in runs_in(saves.store, to.saver.folder, open_only=False) if each.run != run.run)
    since = to.held.meta.at
    return tuple(each.run for each in others if each.state.updated_at and each.state.updated_at > since)


def _restored(saves: Saves, found: Found, options: Options, typed: str) -> Restored:
    try:
        return saves_restore.restore(saves, found, options)
    except WorkspaceMoved as error:
        error.hint = f"`{typed} --force` moves it back (its commits stay in the vault, and an undo of the undo brings them back)"
        raise


def _outcome(run: Summary, what: What | Literal["undo"], beat: int | None, done: Restored) -> Undone:
    return Undone(
        run=run.run, task=run.task, what=what, beat=beat, save=done.save, folder=done.folder, written=done.written,
        deleted=done.deleted, branch=done.branch, before=done.before, dry_run=done.dry_run,
    )  # fmt: skip


# -- where to go back to -----------------------------------------------------------------------------------------------


def _before_turn(saves: Saves, run: Summary, last: UndoStep | None) -> _Target:
    """The save before the turn in flight, else before the last one; after an undo, one turn further back.

    A turn that changed nothing, as the end of a script is one, does not count.
    """
    began = saves.began(run)
    first = began.beat or 0 if began is not None else -1
    turns = run.state.beats + (
        run.state.status not in CLOSED
    )  # of a run that is not over, one may be in flight
    reached = last.beat if last is not None else turns
    beats = [beat for beat, _ in saves.saves_of_beats(run) if first < beat < reached]
    saver = saves.saver_of(run)
    now = saver.peek().tree, repo.head(saver.repo()).oid
    for beat in reversed(beats):
        found = saves.at_beat(run, beat)
        if (found.held.tree, found.held.meta.head) != now:
            return _Target(found, beat)
    if began is not None and (last is None or last.beat > first):
        return _Target(began, first)
    why = "every turn of it is undone" if last is not None else "no save from before its last turn is there"
    raise UsageError(
        f"run {run.run} cannot go back further: {why}",
        hint=f"`outlast undo {run.run} --undo` takes an undo back; `outlast saves {run.run}` lists its saves",
    )


def _before_run(saves: Saves, run: Summary) -> _Target:
    began = saves.began(run)
    if began is None:
        raise UsageError(
            f"nothing says how the files were when run {run.run} began",
            hint=f"`outlast saves {run.run}` lists its saves; `outlast restore SAVE` brings one back",
        )
    return _Target(began, began.beat or 0)


def _newest(saver: Saver, saved_as: str) -> str:
    held = workspace_saves.newest(saver.repo(), saver.reader(), saved_as)
    return held.commit if held is not None else ""


def _anchor(saver: Saver, step: UndoStep) -> str:
    """The first save since a step began: what its restore saved before it touched anything. Empty if it did not come so far."""
    found = ""
    for held in workspace_saves.chain(saver.repo(), saver.reader(), step.saved_as):
        if held.commit == step.after:
            return found
        found = held.commit
    return "" if step.after else found


# -- the note ----------------------------------------------------------------------------------------------------------


def _noted(private: Path) -> list[UndoStep]:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return decoders.decode((private / _NOTE).read_bytes(), list[UndoStep])
    return []


def _current(steps: list[UndoStep], run: Summary) -> list[UndoStep]:
    """What is undone of a run that has not gone on since. One of another run, or of earlier, does not count any more."""
    fitting: list[UndoStep] = []
    for step in reversed(steps):
        if (step.run, step.seq) != (run.run, run.state.seq):
            break
        fitting.insert(0, step)
    return fitting


def _note(saver: Saver, steps: list[UndoStep]) -> None:
    durable.write_durably(saver.private / _NOTE, msgspec.json.encode(steps[-_STEPS_MAX:]))
