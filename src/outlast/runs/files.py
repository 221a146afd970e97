"""A run's workspace in this process: the saves its events name, and what an attempt finds when it arrives.

`keep` goes on from the files that are there; `rewind` goes back to the newest save point. What is found is saved first.
"""

import contextlib
import os
import shlex
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from outlast.core import events as ev
from outlast.core import state as st
from outlast.core.events import SaveKind
from outlast.core.values import shorten
from outlast.effects.ops import Block, Steps
from outlast.errors import SaveError, WorkspaceMoved
from outlast.runs import leaving
from outlast.runs.journal import Journal
from outlast.runs.leaving import Arriving, Left, Recreating
from outlast.runs.terms import Mode
from outlast.settings import Settings
from outlast.store import liveness
from outlast.workspace import branches, lost, objects, recreating, repo, restoring, saves
from outlast.workspace.capture import Saver
from outlast.workspace.rules import Limits
from outlast.workspace.seam import LeftOut, Purpose, Save

RENEWED_WITHIN_S = 15.0
WATCH_FROM = 3  # beats; a watch costs about as much to set up as a look at everything
TEND_EVERY = 25
TEND_WAIT_S = 10.0
_NAMED_MAX = 20


class Files:
    """Saves and brings back the workspace of one run."""

    def __init__(self, folder: Path, state_folder: Path, run: str, task: str, settings: Settings) -> None:
        limits = Limits(
            settings["save_big_file_bytes"], settings["save_folder_files"], settings["save_folder_bytes"]
        )
        self._deadline_s: float = settings["save_deadline_s"]
        self._branch: bool = settings["save_branch"]
        self._run, self._task = run, task
        self._beats = 0
        self.warning = ""
        self._tending: threading.Thread | None = None
        self.saver = Saver(folder, state_folder, limits=limits, shadow=settings["save_where"] == "shadow")

    # -- saving --------------------------------------------------------------------------------------------------

    def save(
        self,
        kind: SaveKind,
        head: st.RunState,
        reason: str = "",
        *,
        if_dirty: bool = False,
        deadline_s: float | None = None,
        ending: int = 0,
    ) -> Save | None:
        """A save of this moment, durable when it returns; `ending` is 1 inside the beat that it ends."""
        purpose = Purpose(
            kind=kind, run=self._run, task=self._task, reason=reason, beat=head.beats + ending,
            seq=head.seq, if_dirty=if_dirty,
        )  # fmt: skip
        save = self.saver.capture(purpose, deadline_s=deadline_s)
        if save is not None and self._branch and kind in ("emergency", "final"):
            branches.put(self.saver.repo(), self.saver.reader(), self._task, save)
        return save

    def save_beat(self, head: st.RunState) -> str:
        """The save that the end of a beat names."""
        save = self.save("beat", head, f"beat {head.beats + 1}", ending=1)
        assert save is not None, "a beat's save is made whether the tree is dirty or not"
        self.warning = save.warning
        self._beats += 1
        if self._beats == WATCH_FROM:
            self.saver.watch()
        if self._beats % TEND_EVERY == 0 and not (self._tending and self._tending.is_alive()):
            self._tending = threading.Thread(target=self._tend, name="outlast-tend", daemon=True)
            self._tending.start()
        return save.commit

    def _tend(self) -> None:
        with contextlib.suppress(
            SaveError
        ):  # it only makes saves cheaper and smaller; a save says what is wrong
            self.saver.tend()

    def save_ending(self, kind: SaveKind, head: st.RunState, reason: str, *, hurried: bool) -> Save | None:
        """The last save of an attempt, if there is anything that HEAD does not hold."""
        deadline_s = self._deadline_s if hurried else None
        return self.save(kind, head, shorten(reason, 200), if_dirty=True, deadline_s=deadline_s)

    def save_effect(self, journal: Journal) -> str:
        """The save that a confirmed effect names. Its outcome is recorded all the same if the files cannot be saved."""
        try:
            return self.save_beat(journal.state)
        except SaveError as error:
            journal.later(failed(error, journal.now()))
            return ""

    def ending(self, kind: SaveKind, journal: Journal, reason: str, error: BaseException | None) -> Steps:
        """The save of an ending, as events; the error that ends the attempt says where it is."""
        hurried = isinstance(error, KeyboardInterrupt | SystemExit)  # as signals end a program
        try:
            save = yield Block(lambda: self.save_ending(kind, journal.state, reason, hurried=hurried))
        except SaveError as refused:
            if error is not None:
                error.add_note(f"outlast could not save the files: {refused}")
            return (failed(refused, journal.now()),)
        yield Block(lambda: self._note_left(journal.state, save))
        if save is None:
            return ()
        if error is not None:
            error.add_note(told(save, self.saver.repo()))
        return (made(save, journal.now(), journal.state),)

    def _note_left(self, head: st.RunState, save: Save | None) -> None:
        """How the files are when the attempt ends, so that the next one knows what somebody changed since."""
        with contextlib.suppress(SaveError, OSError):
            place, reader = self.saver.repo(), self.saver.reader()
            now = repo.head(place)
            if save is None and place.shadow:  # as it was at the last save, for there is no HEAD
                newest = saves.newest(place, reader, self._run)
                held = newest.commit if newest is not None else ""
            else:
                held = save.commit if save is not None else now.oid
            tree = objects.parse_commit(reader.read(held)[1]).tree if held else ""
            leaving.note(self.saver.private, Left(self._run, head.attempts, now.oid, now.branch, tree))

    def close(self) -> None:
        """Let go of the processes that read and watch."""
        if self._tending is not None:
            self._tending.join(TEND_WAIT_S)
        self.saver.close()

    # -- arriving ------------------------------------------------------------------------------------------------

    def arrive(
        self, head: st.RunState, mode: Mode, *, alive_until_s: float | None, moved_is_fine: bool
    ) -> list[ev.AnyEvent]:
        """Save what is found, and make the files what this attempt begins with; what happened, as events."""
        at = _now()
        if not head.save_point:
            return [made(self._first(head), at, head)]
        self._recreate(head)
        found = self.save("found", head, "found on resume", if_dirty=True)
        events: list[ev.AnyEvent] = [made(found, at, head)] if found is not None else []
        held = self._point(head)
        if held is None:
            return events + self._begin_anew(head, mode, at, moved_is_fine=moved_is_fine)
        if not moved_is_fine:
            self._check_moved(head, held, mode, alive_until_s)
        if mode == "rewind":
            return events + self._rewind(held, found, head, alive_until_s, at)
        return events + self._mend(held, head, at)

    def _first(self, head: st.RunState) -> Save:
        save = self.save("beat", head, "the beginning")
        assert save is not None, "a beat's save is made whether the tree is dirty or not"
        return save

    def _point(self, head: st.RunState) -> saves.Held | None:
        """The save point, if it is in the repository that the workspace has now."""
        with contextlib.suppress(SaveError):
            return saves.read(self.saver.reader(), head.save_point, self.saver.repo().algo)
        return None

    def _begin_anew(
        self, head: st.RunState, mode: Mode, at: datetime, *, moved_is_fine: bool
    ) -> list[ev.AnyEvent]:
        """The repository was made, replaced or removed since: there is nothing to go back to, only to go on from."""
        text = f"the save point {head.save_point[:12]} of run {head.run} is not in the repository of {self.saver.folder}"
        if mode == "rewind" and not moved_is_fine:
            raise WorkspaceMoved(
                f"{text} any more",
                hint='go on from the files that are there with files="keep", or moved=True',
            )
        text += "; the run goes on from the files that are there"
        return [
            made(self._first(head), at, head),
            ev.Warned(at=at, level=f"anew {head.attempts}", text=text),
        ]

    def _recreate(self, head: st.RunState) -> None:
        """A workspace that is gone comes back from its save point, if the repository is not gone with it."""
        private, note = self.saver.private, leaving.noted(self.saver.private, Recreating)
        under_way = note is not None and (note.run, note.point) == (self._run, head.save_point)
        if os.path.lexists(self.saver.folder) and not under_way:
            return
        leaving.note(private, Recreating(self._run, head.save_point))
        if not os.path.lexists(self.saver.folder):
            recreating.make_folder(self.saver, head.save_point)
        held = saves.read(self.saver.reader(), head.save_point, self.saver.repo().algo)
        self._restore(held, "recreated")
        leaving.drop(private, Recreating)

    def _restore(self, held: saves.Held, reason: str) -> None:
        purpose = Purpose(kind="pre-restore", run=self._run, task=self._task, reason=reason)
        restoring.restore(self.saver, held, purpose, restoring.Options(force=True, with_secrets=True))

    def _left(self, head: st.RunState) -> Left | None:
        """What the last attempt noted when it ended."""
        left = leaving.noted(self.saver.private, Left)
        fits = left is not None and (left.run, left.attempts) == (self._run, head.attempts)
        return left if fits and head.attempt is None else None

    def _check_moved(
        self, head: st.RunState, held: saves.Held, mode: Mode, alive_until_s: float | None
    ) -> None:
        """HEAD that a person moved: nobody but a person knows what that means for the run."""
        now = repo.head(self.saver.repo())
        if held.meta.shadow or now == repo.Head(held.meta.head, held.meta.branch):
            return
        if self._is_the_attempts_own(head, now, alive_until_s):
            return
        if mode == "keep" and now.branch == held.meta.branch and self._descends(held.meta.head, now.oid):
            return
        was, now_is = (
            shown.removeprefix("refs/heads/") or "a commit" for shown in (held.meta.branch, now.branch)
        )
        raise WorkspaceMoved(
            f"HEAD of {self.saver.folder} was moved since run {head.run} stopped: it was on {was} at"
            f" {held.meta.head[:12] or 'no commit'}, now it is on {now_is} at {now.oid[:12] or 'no commit'}",
            hint=f"put it back (`outlast restore {head.save_point[:12]} --force`), or start with"
            ' files="keep" and moved=True',
        )

    def _is_the_attempts_own(self, head: st.RunState, now: repo.Head, alive_until_s: float | None) -> bool:
        """Whether the agent itself moved HEAD: as it noted when it ended, else by the time at which it moved."""
        left = self._left(head)
        if left is not None:
            return (left.head, left.branch) == (now.oid, now.branch)
        if head.attempt is None or alive_until_s is None:
            return False
        moved_at_s = liveness.boottime_s() - (time.time() - self._moved_at(now))
        return moved_at_s <= alive_until_s + RENEWED_WITHIN_S

    def _moved_at(self, now: repo.Head) -> float:
        """When HEAD or its branch was last moved, by the wall clock."""
        place = self.saver.repo()
        paths = [place.git_dir / "HEAD", place.git_dir / "logs" / "HEAD"]
        if now.branch:
            loose = place.common_dir / now.branch
            paths.append(loose if loose.exists() else place.common_dir / "packed-refs")
        times = [0.0]
        for path in paths:
            with contextlib.suppress(OSError):
                times.append(path.stat().st_mtime)
        return max(times)

    def _descends(self, older: str, newer: str) -> bool:
        return bool(older) and bool(newer) and repo.is_ancestor(self.saver.repo(), older, newer)

    def _rewind(
        self,
        held: saves.Held,
        found: Save | None,
        head: st.RunState,
        alive_until_s: float | None,
        at: datetime,
    ) -> list[ev.AnyEvent]:
        """Back to the save point, but for what a person changed since the attempt ended: that is kept and named."""
        private = self.saver.private
        plan = leaving.noted(private, Arriving)
        if plan is None or (plan.run, plan.attempts, plan.point) != (self._run, head.attempts, held.commit):
            theirs = self._theirs(held, found, head, alive_until_s)
            plan = Arriving(self._run, head.attempts, held.commit, found.commit if found else "", theirs)
            leaving.note(private, plan)
        self._restore(held, "rewind")
        if plan.theirs:
            there = saves.read(self.saver.reader(), plan.found, self.saver.repo().algo).tree
            point, wanted = (
                restoring.entries_of(self.saver, tree, plan.theirs) for tree in (held.tree, there)
            )
            restoring.put_files(self.saver, [(path, point[path], wanted[path]) for path in plan.theirs])
        leaving.drop(private, Arriving)
        if not plan.theirs:
            return []
        text = f"files that somebody changed since the last attempt were kept: {_names(plan.theirs)}"
        return [ev.Warned(at=at, level=f"kept {held.commit[:12]} {head.attempts}", text=text)]

    def _theirs(
        self, held: saves.Held, found: Save | None, head: st.RunState, alive_until_s: float | None
    ) -> tuple[bytes, ...]:
        """What was changed since the last attempt ended, or, where it did not say so, when it was not alive any more."""
        if found is None:
            return ()
        there = saves.read(self.saver.reader(), found.commit, self.saver.repo().algo).tree
        left = self._left(head)
        if left is not None and left.tree:
            return tuple(path for path, _, _ in restoring.changes_between(self.saver, left.tree, there))
        since = restoring.changes_between(self.saver, held.tree, there)
        return tuple(path for path, _, _ in since if self._is_younger(path, alive_until_s))

    def _is_younger(self, path: bytes, alive_until_s: float | None) -> bool:
        """Whether a file was changed when no attempt was alive any more."""
        if alive_until_s is None:
            return False
        with contextlib.suppress(OSError):
            changed = os.lstat(os.fsencode(self.saver.folder) + b"/" + path).st_ctime
            return liveness.boottime_s() - (time.time() - changed) > alive_until_s + RENEWED_WITHIN_S
        return False

    def _mend(self, held: saves.Held, head: st.RunState, at: datetime) -> list[ev.AnyEvent]:
        """After another boot: files that a power cut left empty or full of zeros come back from the save."""
        if held.meta.boot_id == liveness.boot_id():
            return []
        mended = lost.mend(self.saver, held)
        if not mended:
            return []
        names = ", ".join(mended[:_NAMED_MAX]) + (" …" if len(mended) > _NAMED_MAX else "")
        text = f"{len(mended):,} files were empty or full of zeros after the reboot and came back from the save: {names}"
        return [ev.Warned(at=at, level=f"mended {held.commit[:12]}", text=text)]


def _names(paths: Sequence[bytes]) -> str:
    names = [os.fsdecode(path).encode("utf-8", "backslashreplace").decode() for path in paths]
    return ", ".join(names[:_NAMED_MAX]) + (" …" if len(names) > _NAMED_MAX else "")


def made(save: Save, at: datetime, head: st.RunState) -> ev.SaveMade:
    """The record of a save."""
    return ev.SaveMade(
        at=at, kind=save.kind, commit=save.commit, ref=save.ref, beat=head.beats, reason=save.reason,
        left_out=tuple(named(left) for left in save.left_out[:_NAMED_MAX]),
    )  # fmt: skip


def named(left: LeftOut) -> str:
    """One thing that a save did not take, in words."""
    return shorten(f"{left.path} ({left.why})", 200)


def told(save: Save, place: repo.Repo) -> str:
    """How to look at a save, and how to get it back."""
    short = save.commit[:12]
    git = f"git --git-dir={shlex.quote(str(place.git_dir))}" if place.shadow else "git"
    left = f"; left out: {', '.join(named(item) for item in save.left_out[:3])}" if save.left_out else ""
    return f"outlast saved the files: look with `{git} show {short}`, get them back with `outlast restore {short}`{left}"


def failed(error: SaveError, at: datetime) -> ev.Warned:
    """The record that a save could not be made."""
    return ev.Warned(at=at, level="save failed", text=shorten(str(error), 500))


def _now() -> datetime:
    return datetime.now(UTC)
