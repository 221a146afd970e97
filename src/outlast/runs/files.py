"""A run's workspace in this process: the saves its events name, and the files an attempt finds when it starts.

`keep` continues from the files on disk, `rewind` from the newest save point. Both save the files found first."""

import contextlib
import os
import shlex
import stat
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from outlast.core import events as ev, state as st
from outlast.core.events import SaveKind
from outlast.core.values import shorten
from outlast.errors import AgentStopped, SaveError, WorkspaceMoved
from outlast.runs import files_notes
from outlast.runs.engine import stores
from outlast.runs.engine.steps import Block, Steps
from outlast.runs.files_notes import Arriving, Left, Recreating
from outlast.runs.journal import Journal
from outlast.runs.opening.terms import Mode
from outlast.runs.timing import Timing
from outlast.settings import Settings
from outlast.store import locks
from outlast.store.local import Local
from outlast.store.protocol import Store
from outlast.workspace import repo, saves
from outlast.workspace.capture import branch
from outlast.workspace.capture.saver import Saver
from outlast.workspace.git import objects, refs
from outlast.workspace.repo import workspace_around
from outlast.workspace.restore import git_marks, power_cut, recreate, restore as workspace_restore
from outlast.workspace.restore.worktree import Worktree
from outlast.workspace.rules import Limits
from outlast.workspace.types import LeftOut, Purpose, Save, raw

WATCH_FROM = 3  # beats; a watch costs about as much to set up as a look at everything
TEND_EVERY = 25
SIGNALLED = 128  # exit codes above it
_NAMED_MAX = 20


class Files:
    """Saves and brings back the workspace of one run."""

    def __init__(
        self,
        folder: Path,
        local: Local,
        run: str,
        task: str,
        settings: Settings,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self._deadline_s: float = settings["save_deadline_s"]
        self._branch: bool = settings["save_branch"]
        self._run, self._task = run, task
        self._beats = 0
        self._emergency: Save | None = None  # the last one of this attempt
        self.warning = ""
        self._tending: threading.Thread | None = None
        shadow = settings["save_where"] == "shadow"
        self.saver = Saver(folder, local, limits=Limits.of(settings), shadow=shadow)

    # -- saving --------------------------------------------------------------------------------------------------

    def save(
        self,
        kind: SaveKind,
        head: st.RunState,
        reason: str = "",
        *,
        if_dirty: bool = False,
        deadline_s: float | None = None,
        if_changed: bool = False,
        ending: int = 0,
    ) -> Save | None:
        """A save of this moment, durable when it returns; `ending` is 1 inside the beat that it ends."""
        purpose = Purpose(
            kind=kind, run=self._run, task=self._task, reason=reason, beat=head.beats + ending,
            seq=head.seq, if_dirty=if_dirty, if_changed=if_changed,
        )  # fmt: skip
        save = self.saver.capture(purpose, deadline_s=deadline_s)
        if save is not None and kind == "emergency":
            self._emergency = save
        if save is not None and self._branch and kind in ("emergency", "final"):
            branch.put(self.saver.repo(), self.saver.reader(), self._task, save)
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
        again = kind == "emergency" and self._emergency is not None
        return self.save(
            kind, head, shorten(reason, 200), if_dirty=True, if_changed=again, deadline_s=deadline_s
        )

    def save_effect(self, journal: Journal) -> str:
        """The save that a confirmed effect names. If the files cannot be saved, its outcome is still recorded."""
        try:
            return self.save_beat(journal.state)
        except SaveError as error:
            journal.later(failed(error, journal.now()))
            return ""

    def ending(self, kind: SaveKind, journal: Journal, reason: str, error: BaseException | None) -> Steps:
        """The save of an ending, as events; the error that ends the attempt says where it is."""
        hurried = isinstance(error, KeyboardInterrupt | SystemExit) or (  # as signals end a program
            isinstance(error, AgentStopped) and error.exit_code > SIGNALLED
        )
        try:
            save = yield Block(lambda: self.save_ending(kind, journal.state, reason, hurried=hurried))
        except SaveError as refused:
            if error is not None:
                error.add_note(f"outlast could not save the files: {refused}")
            return (failed(refused, journal.now()),)
        last = save or (
            self._emergency if kind == "emergency" else None
        )  # unchanged since it was interrupted
        yield Block(lambda: self._note_left(journal.state, last))
        if last is not None and error is not None:
            error.add_note(words_for(last, self.saver.repo(), journal.store))
        return (made(save, journal.now(), journal.state),) if save is not None else ()

    def _note_left(self, head: st.RunState, save: Save | None) -> None:
        """How the files are when the attempt ends, so that the next one knows what somebody changed since."""
        with contextlib.suppress(SaveError, OSError):
            place, reader = self.saver.repo(), self.saver.reader()
            now = repo.head(place)
            if save is not None:
                held: saves.SaveContents | None = saves.read(reader, save.commit, place.algo)
            else:  # as HEAD says; where there is none, as it was at the last save
                held = saves.newest(place, reader, self._run) if place.shadow else None
            tree = held.tree if held is not None else self.tree_of(now.oid) if now.oid else ""
            secrets = (
                {secret.path: _look(secret.mode, secret.oid) for secret in held.meta.secrets} if held else {}
            )
            left = Left(self._run, head.attempts, now.oid, now.branch, tree, secrets)
            files_notes.note(self.saver.private, left)

    def tree_of(self, commit: str) -> str:
        return objects.parse_commit(self.saver.reader().read(commit)[1]).tree

    def close(self) -> None:
        """Let go of the processes that read and watch."""
        if self._tending is not None:
            self._tending.join(self._timing.tend_wait_s)
        self.saver.close()

    # -- arriving ------------------------------------------------------------------------------------------------

    def arrive(
        self, head: st.RunState, mode: Mode, *, alive_until_s: float | None, moved_is_fine: bool
    ) -> list[ev.AnyEvent]:
        """Save the files as found, and make them what this attempt begins with; return events of what happened."""
        at = _now()
        if not head.save_point:
            return [made(self._first(head), at, head), *self._refused(at)]
        wanted = head.save_point if mode == "rewind" else head.last_save or head.save_point
        text = git_marks.mend(self.saver, wanted, locks.boot_id())
        self._recreate(wanted, head, alive_until_s, moved_is_fine=moved_is_fine)
        self._anchor(head)
        found, events = self._found(wanted, head, at)
        if text:
            events.insert(0, ev.Warned(at=at, level=f"repository known again {wanted[:12]}", text=text))
        held = self._point(head)
        if held is None:
            return events + self._begin_anew(head, mode, at, moved_is_fine=moved_is_fine)
        if not moved_is_fine:
            self._check_moved(head, held, mode, alive_until_s)
        if mode == "rewind":
            return events + self._rewind(held, found, head, alive_until_s, at)
        return events + self._unknown(held, at) + self._mend(held, head, at)

    def _found(self, wanted: str, head: st.RunState, at: datetime) -> tuple[Save | None, list[ev.AnyEvent]]:
        """The newest save of the files as found, and events; what a power cut left of the repository is saved before it is mended."""
        is_damaged = False
        saved: list[Save] = []
        try:
            saved += filter(None, [self.save("found", head, "found on resume", if_dirty=True)])
        except SaveError:
            is_damaged = self._is_of_another_boot(wanted)
            if not is_damaged:
                raise
        events = self._mend_repository(wanted, at)
        if events or is_damaged:
            saved += filter(None, [self.save("found", head, "found on resume, mended", if_dirty=True)])
        return saved[-1] if saved else None, [*events, *(made(save, at, head) for save in saved)]

    def _is_of_another_boot(self, commit: str) -> bool:
        with contextlib.suppress(SaveError, OSError):
            held = saves.read(self.saver.reader(), commit, self.saver.repo().algo)
            return held.meta.boot_id != locks.boot_id()
        return False

    def _unknown(self, held: saves.SaveContents, at: datetime) -> list[ev.AnyEvent]:
        """A warning if the workspace was in a git repository and no longer is."""
        place = self.saver.repo()
        if held.meta.shadow or not place.shadow or place.refused:
            return []
        text = (
            f"git knows no repository in {place.folder} any more; its files are saved as before, and"
            f" `outlast restore {held.commit[:12]}` brings the repository back"
        )
        return [ev.Warned(at=at, level=f"repository gone {held.commit[:12]}", text=text)]

    def _refused(self, at: datetime) -> list[ev.AnyEvent]:
        """A warning that outlast does not use the folder's own repository, if so."""
        why = self.saver.repo().refused
        return [ev.Warned(at=at, level="repository of another user", text=shorten(why, 500))] if why else []

    def _first(self, head: st.RunState) -> Save:
        save = self.save("beat", head, "the beginning")
        assert save is not None, "a beat's save is made whether the tree is dirty or not"
        return save

    def _point(self, head: st.RunState) -> saves.SaveContents | None:
        """The save point, if it is in the vault that the workspace has now."""
        with contextlib.suppress(SaveError):
            return saves.read(self.saver.reader(), head.save_point, self.saver.repo().algo)
        return None

    def _begin_anew(
        self, head: st.RunState, mode: Mode, at: datetime, *, moved_is_fine: bool
    ) -> list[ev.AnyEvent]:
        """The vault was removed since: there is nothing to go back to, only to go on from."""
        text = f"the save point {head.save_point[:12]} of run {head.run} is not among the saves of {self.saver.folder}"
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

    def _recreate(
        self, commit: str, head: st.RunState, alive_until_s: float | None, *, moved_is_fine: bool
    ) -> None:
        """A workspace that is gone comes back from a save, if the repository is not gone with it."""
        private, note = self.saver.private, files_notes.noted(self.saver.private, Recreating)
        if note is not None and (note.run, note.point) != (self._run, commit):
            note = None
        is_there = os.path.lexists(self.saver.folder)
        if is_there and note is None:
            return
        if is_there:
            assert note is not None, "what is not under way is left alone"
            tip = note.tip
        else:
            tip = self._checked_tip(commit, head, alive_until_s, moved_is_fine=moved_is_fine)
        files_notes.note(private, Recreating(self._run, commit, tip))
        if not is_there:
            recreate.make_folder(self.saver, commit)
        place = self.saver.repo()
        held = saves.read(self.saver.reader(), commit, place.algo)
        as_checked = bool(tip) and refs.read_ref(place.common_dir, os.fsdecode(raw(held.meta.branch))) == tip
        self._restore(held, "recreated", force=moved_is_fine or as_checked)
        files_notes.drop(private, Recreating)

    def _checked_tip(
        self, commit: str, head: st.RunState, alive_until_s: float | None, *, moved_is_fine: bool
    ) -> str:
        """Where the branch of a workspace that is gone may be moved back from: not from where a person moved it."""
        left = recreate.find_lost(self.saver.folder, self.saver.private)
        held = recreate.contents_of(left, commit)
        tip = recreate.tip_of(left, held)
        own = bool(tip.oid) and self._is_the_attempts_own(head, tip, alive_until_s, left.place)
        hint = (
            f"look at it, and bring the files back (`outlast restore {head.run}`), or start with moved=True"
        )
        recreate.check(self.saver, held, force=own or moved_is_fine, hint=hint)
        return tip.oid

    def _anchor(self, head: st.RunState) -> None:
        """Saves that events name are reachable: a ref that somebody packed or removed may not have survived a power cut."""
        place, reader = self.saver.repo(), self.saver.reader()
        for commit in dict.fromkeys((head.save_point, head.last_save)):
            with contextlib.suppress(SaveError):
                meta = saves.read(reader, commit, place.algo).meta
                newest = saves.newest(place, reader, self._run)
                if newest is None or not repo.is_ancestor(place, commit, newest.commit):
                    ref = saves.ref_of(self._run, meta.kind, meta.at)
                    refs.write_ref(place.vault, ref, commit, old=refs.ANY)

    def _restore(
        self, held: saves.SaveContents, reason: str, spared: Iterable[bytes] = (), *, force: bool = True
    ) -> None:
        purpose = Purpose(kind="pre-restore", run=self._run, task=self._task, reason=reason)
        options = workspace_restore.Options(force=force, with_secrets=True, spared=frozenset(spared))
        workspace_restore.restore(self.saver, held, purpose, options)

    def _left(self, head: st.RunState) -> Left | None:
        """The note that the last attempt wrote when it ended."""
        left = files_notes.noted(self.saver.private, Left)
        fits = left is not None and (left.run, left.attempts) == (self._run, head.attempts)
        return left if fits and head.attempt is None else None

    def _check_moved(
        self, head: st.RunState, held: saves.SaveContents, mode: Mode, alive_until_s: float | None
    ) -> None:
        """HEAD that a person moved: nobody but a person knows what that means for the run."""
        now = repo.head(self.saver.repo())
        if held.meta.shadow or now == repo.Head(held.meta.head, held.meta.branch):
            return
        if self.saver.repo().shadow and mode == "keep":
            return  # the repository is gone, or git does not know it: `_unknown` says so
        if self._is_the_attempts_own(head, now, alive_until_s, self.saver.repo()):
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

    def _is_the_attempts_own(
        self, head: st.RunState, now: repo.Head, alive_until_s: float | None, place: repo.Repo
    ) -> bool:
        """Whether the agent itself moved HEAD: as it noted when it ended, else by the time at which it moved."""
        left = self._left(head)
        if left is not None:
            return (left.head, left.branch) == (now.oid, now.branch)
        if head.attempt is None or alive_until_s is None:
            return False
        moved_s = _since_boot_s(self._moved_at(now, place))
        return moved_s <= alive_until_s + self._timing.renewed_within_s

    def _moved_at(self, now: repo.Head, place: repo.Repo) -> float:
        """When HEAD or its branch was last moved, by the wall clock."""
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
        held: saves.SaveContents,
        found: Save | None,
        head: st.RunState,
        alive_until_s: float | None,
        at: datetime,
    ) -> list[ev.AnyEvent]:
        """Rewind to the save point, but keep and list files that a person changed since."""
        private = self.saver.private
        plan = files_notes.noted(private, Arriving)
        if plan is None or (plan.run, plan.attempts, plan.point) != (self._run, head.attempts, held.commit):
            theirs, spared = self._theirs(held, found, head, alive_until_s)
            unsure = self._unsure(held, found, head, alive_until_s)
            point = found.commit if found else ""
            plan = Arriving(self._run, head.attempts, held.commit, point, theirs, spared, unsure)
            files_notes.note(private, plan)
        self._restore(held, "rewind", plan.spared)
        if plan.theirs:
            there = saves.read(self.saver.reader(), plan.found, self.saver.repo().algo)
            old, new = (
                workspace_restore.entries_of(self.saver, tree, plan.theirs)
                for tree in (held.tree, there.tree)
            )
            changes = [(path, old[path], new[path]) for path in plan.theirs]
            workspace_restore.put_files(self.saver, changes, there)
        files_notes.drop(private, Arriving)
        level, events = f"{held.commit[:12]} {head.attempts}", list[ev.AnyEvent]()
        if plan.unsure:
            events.append(ev.Warned(at=at, level=f"unsure {level}", text=plan.unsure))
        if left_alone := [*plan.theirs, *plan.spared]:
            text = f"files changed since the last attempt were kept: {_names(left_alone)}"
            events.append(ev.Warned(at=at, level=f"kept {level}", text=text))
        return events

    def _theirs(
        self, held: saves.SaveContents, found: Save | None, head: st.RunState, alive_until_s: float | None
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Files changed since the last attempt ended, or, if it recorded no end, since it was last alive.

        First those in the found save; then those in no tree, which are ignored or secret by now.
        """
        left, spared = self._left(head), self._their_secrets(held, head, alive_until_s)
        if found is None:
            return (), tuple(spared)
        there = saves.read(self.saver.reader(), found.commit, self.saver.repo().algo).tree
        if left is not None and left.tree:
            changes = workspace_restore.changes_between(self.saver, left.tree, there)
            changed = [path for path, _, _ in changes]
        else:
            changes = workspace_restore.changes_between(self.saver, held.tree, there)
            changed = [path for path, _, _ in changes if self._is_younger(path, alive_until_s)]
        gone = [path for path, _, new in changes if new is None and path in changed]
        spared |= {path for path in gone if self._is_file(path)}
        return tuple(path for path in changed if path not in spared), tuple(sorted(spared))

    def _their_secrets(
        self, held: saves.SaveContents, head: st.RunState, alive_until_s: float | None
    ) -> set[bytes]:
        """The secrets of the save point that a person changed or deleted since."""
        left, noted_at_s = self._left(head), files_notes.noted_at_s(self.saver.private, Left)
        worktree = Worktree(self.saver.folder, self.saver.reader(), self.saver.repo().algo)
        found: set[bytes] = set()
        for secret in held.meta.secrets:
            path = raw(secret.path)
            now = self._look_at(worktree, path)
            if now == _look(secret.mode, secret.oid):
                continue
            if left is None or left.secrets is None:
                theirs = self._is_younger(path, alive_until_s)
            elif now and secret.path not in left.secrets:  # ignored by then, so nobody noted what it was
                theirs = self._changed_at(path) > noted_at_s
            else:
                theirs = now != left.secrets.get(secret.path, "")
            if theirs:
                found.add(path)
        return found

    def _look_at(self, worktree: Worktree, path: bytes) -> str:
        """The present state of a secret; empty if it is gone."""
        file_stat = worktree.lstat(path)
        if file_stat is None:
            return ""
        mode = objects.LINK if stat.S_ISLNK(file_stat.st_mode) else file_stat.st_mode & 0o777
        return _look(mode, worktree.digest(path, objects.SHA1))

    def _unsure(
        self, held: saves.SaveContents, found: Save | None, head: st.RunState, alive_until_s: float | None
    ) -> str:
        """Changes that are undone as the attempt's own but may be a person's: nobody knows when in these seconds it died."""
        if head.attempt is None or alive_until_s is None or self._left(head) is not None:
            return ""
        place = self.saver.repo()
        now, parts = repo.head(place), []
        moved = not held.meta.shadow and now != repo.Head(held.meta.head, held.meta.branch)
        rounded_s = self._timing.lease_rounded_s
        if moved and now.oid and _since_boot_s(self._moved_at(now, place)) > alive_until_s - rounded_s:
            parts.append(f"HEAD at {now.oid[:12]}")
        commit = found.commit if found is not None else now.oid
        there = self.tree_of(commit) if commit else held.tree
        since = [path for path, _, _ in workspace_restore.changes_between(self.saver, held.tree, there)]
        files = [path for path in since if self._is_younger(path, alive_until_s, within_s=-rounded_s)]
        if files := [path for path in files if not self._is_younger(path, alive_until_s)]:
            parts.append(_names(files))
        if not parts:
            return ""
        what = f"{'save' if found is not None else 'commit'} {commit[:12]}"
        return (
            f"{what} holds what was taken back and may be a person's, for it was changed in the seconds in which the"
            f" last attempt died: {'; '.join(parts)}"
        )

    def _is_file(self, path: bytes) -> bool:
        with contextlib.suppress(OSError):
            return not stat.S_ISDIR(os.lstat(os.fsencode(self.saver.folder) + b"/" + path).st_mode)
        return False

    def _changed_at(self, path: bytes) -> float:
        """When a file last changed in any way, by the wall clock; long ago if it is gone."""
        with contextlib.suppress(OSError):
            return os.lstat(os.fsencode(self.saver.folder) + b"/" + path).st_ctime
        return 0.0

    def _is_younger(self, path: bytes, alive_until_s: float | None, within_s: float | None = None) -> bool:
        """Whether a file was changed when no attempt was alive any more."""
        within_s = self._timing.renewed_within_s if within_s is None else within_s
        changed = self._changed_at(path)
        return (
            bool(changed) and alive_until_s is not None and _since_boot_s(changed) > alive_until_s + within_s
        )

    def _mend_repository(self, commit: str, at: datetime) -> list[ev.AnyEvent]:
        """After another boot: what a power cut took of the agent's commits comes back from the vault, into the repository."""
        with contextlib.suppress(SaveError, OSError):
            held = saves.read(self.saver.reader(), commit, self.saver.repo().algo)
            if held.meta.boot_id != locks.boot_id() and (text := power_cut.mend_repository(self.saver, held)):
                return [ev.Warned(at=at, level=f"repository mended {commit[:12]}", text=text)]
        return []

    def _mend(self, held: saves.SaveContents, head: st.RunState, at: datetime) -> list[ev.AnyEvent]:
        """After another boot: files that a power cut left empty or full of zeros come back from the save."""
        if held.meta.boot_id == locks.boot_id():
            return []
        mended = power_cut.restore_blank_files(self.saver, held)
        if not mended:
            return []
        names = ", ".join(mended[:_NAMED_MAX]) + (" …" if len(mended) > _NAMED_MAX else "")
        text = f"{len(mended):,} files were empty or full of zeros after the reboot and came back from the save: {names}"
        return [ev.Warned(at=at, level=f"mended {held.commit[:12]}", text=text)]


def _since_boot_s(wall_s: float) -> float:
    """A time of the wall clock, on the clock of leases."""
    return locks.boottime_s() - (time.time() - wall_s)


def _look(mode: int, oid: str) -> str:
    """The marks that tell two versions of a secret apart."""
    return f"{mode:o} {oid}"


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


def words_for(save: Save, place: repo.Repo, store: Store) -> str:
    """How to look at a save, and how to get it back, as it can be typed where the program stands."""
    short, folder = save.commit[:12], shlex.quote(str(place.folder))
    here = _stands_in(place.folder)
    git = f"git --git-dir={shlex.quote(str(place.vault))}"
    restore = f"outlast restore {short}{'' if here else f' --workspace {folder}'}{stores.option_of(store)}"
    left = f"; left out: {', '.join(named(item) for item in save.left_out[:3])}" if save.left_out else ""
    return f"outlast saved the files: look with `{git} show {short}`, get them back with `{restore}`{left}"


def _stands_in(folder: Path) -> bool:
    """Whether a command typed in the present folder works on this workspace without naming it."""
    with contextlib.suppress(OSError):
        return workspace_around(Path.cwd()) == folder
    return False


def failed(error: SaveError, at: datetime) -> ev.Warned:
    """The record that a save could not be made."""
    return ev.Warned(at=at, level="save failed", text=shorten(str(error), 500))


def _now() -> datetime:
    return datetime.now(UTC)
