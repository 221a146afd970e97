"""Named crash points: the instants at which tests kill the process, and what is true at each.

Production code calls `point(name)`, which does nothing until a test arms a hook. No environment is read."""

from collections.abc import Callable

POINTS: dict[str, str] = {
    "store.created": "the run's first event is durable, no attempt holds it",
    "store.claimed": "the lease is taken, the attempt's event is not written",
    "store.before_commit": "the events of a commit are in the transaction, not durable",
    "store.after_commit": "the events of a commit are durable, no caller knows yet",
    "blob.before_rename": "a payload is written under a temporary name",
    "blob.written": "a payload is durable, no event names it yet",
    "run.started": "the attempt's event is durable, no beat is open",
    "plan.made": "the plan callable answered, its answer is not recorded",
    "plan.recorded": "the plan is durable",
    "beat.begun": "the beat is open, nothing of it is recorded",
    "decide.answered": "the model answered, its answer is not recorded",
    "decide.recorded": "the answer is durable",
    "ask.before": "a call waits for a person, and nothing says so yet",
    "ask.recorded": "the question is durable, the run is not parked for it",
    "ask.answered": "a person's answer is in hand, nothing says that it was used",
    "ask.used": "the decision that uses an answer is durable",
    "act.before_intent": "the arguments are encoded, the intent is not written",
    "act.intended": "the intent is durable, nothing is performed",
    "act.performed": "the act returned, its outcome is not written",
    "act.confirmed": "the outcome is durable",
    "act.doubted": "the act raised or timed out and that is recorded",
    "probe.before": "an effect is in doubt and about to be probed",
    "probe.answered": "the probe answered, its answer is not recorded",
    "settle.recorded": "what was found out about an effect in doubt is durable",
    "reissue.before": "an effect in doubt is about to be performed again under its key",
    "child.opened": "a child run exists, it has no beat yet",
    "child.finished": "a child is done, its parent's beat is not",
    "beat.before_done": "everything of a beat is recorded except its end",
    "beat.done": "the beat's end is durable",
    "checks.before": "the last beat is done, the checks have not run",
    "checks.passed": "the checks passed, the run is not finished",
    "run.finished": "the end of the run is durable, the lease is held",
    "attempt.before_end": "the attempt is about to record how it ended",
    "attempt.ended": "the attempt's end is durable, the lease is held",
    "save.pack_written": "a save's pack and index are durable under temporary names, git sees neither",
    "save.packed": "a save's pack is durable and in place, no ref names its commit",
    "save.before_ref": "a ref's new value is durable beside it, the old one still counts",
    "save.ref_written": "a save's ref is durable, no event names the save",
    "consolidate.packed": "one pack that replaces many is durable and in place, the many still exist",
    "consolidate.removed": "a replaced pack has lost its index, its other files still exist",
    "fork.before": "the fork is computed, nothing of it is written",
    "export.bundled": "the saves are in a bundle beside the future archive, the source is live",
    "export.before_seal": "the archive is durable under a temporary name, the source is live",
    "export.sealed": "the source is handed off, the archive is not yet in place",
    "import.noted": "what an import is about to create is noted, nothing of it is created",
    "import.packed": "the saves of an archive are in the repository, some of its refs may not be",
    "import.sessions": "the copies of agents' transcripts are where the run will look for them, the run does not exist yet",
    "import.before_create": "the blobs and saves of an archive are stored, its run is not",
    "import.created": "the run exists here, the note about its import is not removed yet",
    "gc.before_ref": "the saves to keep are durable and anchored, an old ref is about to be deleted",
    "gc.packed": "packs are rewritten without what nothing reaches, the old ones still exist",
    "gc.before_forget": "a run is about to be forgotten",
    "gc.forgotten": "a run is forgotten, its blobs and lock file still exist",
    "restore.worktree": "a worktree for a missing folder exists under another name, git does not know its final name",
    "restore.before_folder": "a missing folder exists under another name, git knows its final name",
    "restore.folder": "a missing folder exists again, empty; its files are still to come",
    "restore.deleted": "a file is deleted that the pre-restore save has, others are still to come",
    "restore.named": "a file is whole under a temporary name, its place still has the old one",
    "restore.written": "a file is back, others are still to come",
    "restore.objects": "objects that the user's repository lacked are back, HEAD is not",
    "restore.revived": "a repository that was gone has its objects and settings again, but no HEAD",
    "restore.head": "HEAD is back, the index is not",
    "restore.index": "the index is back, the restore is not verified",
    "apply.saved": "what is in the folder is saved, nothing of a run's result is in its repository",
    "apply.objects": "the objects of a run's result are in the repository, nothing names them",
    "apply.noted": "a note says that a result is being taken over, no file is changed",
    "apply.files": "the files of a result are in the folder, HEAD and index are as before",
    "apply.head": "HEAD names the result, the index is as before",
    "apply.index": "files, HEAD and index have the result, the note is still there",
    "apply.ready": "a merge waits for `git commit`, the note is still there",
    "undo.noted": "a note says that an undo is under way, no file is changed",
    "undo.restored": "an undo, or its undo, has brought the files back, the note does not say so yet",
    "rm.before_ref": "a run is claimed that a person wants forgotten, a ref to saves of it is about to be deleted",
    "rm.before_folder": "no ref leads to the saves of a run any more, its logs are still there",
    "rm.before_forget": "saves and logs of a run are gone, its journal is still there",
    "migrate.before_commit": "a migration is in its transaction",
}

_hook: Callable[[str], None] | None = None


def point(name: str) -> None:
    """Mark an instant. Costs one comparison unless a test armed it."""
    if _hook is not None:
        _hook(name)


def arm(hook: Callable[[str], None] | None) -> None:
    """Call `hook(name)` at every crash point from now on, or never again with None."""
    global _hook
    _hook = hook


def nth(number: int, act: Callable[[str], None]) -> Callable[[str], None]:
    """A hook that calls `act` at the `number`-th crash point met, counted from 1."""
    met = 0

    def hook(name: str) -> None:
        nonlocal met
        assert name in POINTS, f"crash point {name!r} is not listed in POINTS"
        met += 1
        if met == number:
            act(name)

    return hook
