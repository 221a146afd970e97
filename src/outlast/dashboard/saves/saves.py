"""The saves of a run, and what changed in each, read through its workspace's own repository."""

import os
import re

import msgspec

from outlast.dashboard import documents
from outlast.dashboard.actions import forms
from outlast.dashboard.run.effects import summary_of
from outlast.dashboard.saves import cache, patches
from outlast.dashboard.saves.emergencies import emergencies as emergencies
from outlast.dashboard.timing import Timing
from outlast.errors import OutlastError, UsageError
from outlast.operations.saves import diff as saves_diff, listing
from outlast.store.protocol import Store
from outlast.workspace import repo
from outlast.workspace.capture.saver import Saver
from outlast.workspace.saves import SaveContents
from outlast.workspace.types import raw

SIZE_MAX = 200
FILES_MAX = 200
PATCH_BYTES_MAX = 2 << 20
NAME_CHARS = 12
_COMMIT = re.compile(r"[0-9a-f]{4,64}")


# -- the list ------------------------------------------------------------------------------------------------------


def saves(store: Store, run: str, page: int = 1, size: int = 50) -> documents.Saves:
    """The saves of a run, newest first; only those of the page are compared with what was before. Raises UnknownRun.

    A workspace that cannot be read becomes a problem in the document and raises nothing: the page has other things to say.
    """
    summary, size = summary_of(store, run), max(1, min(size, SIZE_MAX))
    try:
        with cache.opened(store, summary) as saver:
            found, whole = cache.of_run(saver, run)
            pages = max(1, -(-len(found) // size))
            page = max(1, min(page, pages))
            rows = tuple(_row(store, saver, *each) for each in found[(page - 1) * size : page * size])
    except (OutlastError, OSError) as error:
        return documents.Saves(run=run, total=0, saves=(), page=1, pages=1, problem=cache.problem(error))
    more = "" if whole else _not_all(store, run, len(found))
    return documents.Saves(run=run, total=len(found), saves=rows, page=page, pages=pages, more=more)


def _not_all(store: Store, run: str, count: int) -> str:
    note = f"these are the newest {count:,}: reading the others takes longer. Look again, or see `outlast saves {run}`"
    return forms.led(store, note)


def _row(store: Store, saver: Saver, held: SaveContents, ref: str) -> documents.SaveRow:
    point = listing.point(held, ref, cache.changed(saver, held))
    return documents.SaveRow(point=point, restore=restore_command(store, held))


def restore_command(store: Store, held: SaveContents) -> str:
    """The command that restores a save into a new folder beside the one it was made of."""
    name = held.commit[:NAME_CHARS]
    stem = f"{os.fsdecode(raw(held.meta.folder)).rstrip('/') or 'save'}-{name}"
    folder, number = stem, 2
    while os.path.lexists(folder):
        folder, number = f"{stem}-{number}", number + 1
    where = ("--workspace", os.fsdecode(raw(held.meta.folder))) if held.meta.folder else ()
    return forms.command(store, "restore", name, "--to", folder, *where)


# -- the difference ------------------------------------------------------------------------------------------------


def diff(store: Store, run: str, commit: str, against: documents.Against) -> documents.Diff:
    """A save of a run against the one before it, or against HEAD as it is now.

    Raises UnknownRun, and UsageError for a commit that is not a save of this run: no other object can be read this way.
    """
    summary = summary_of(store, run)
    unknown = UsageError(f"run {run} has no such save: {commit!r:.80}", hint=f"see `outlast saves {run}`")
    if not _COMMIT.fullmatch(commit):
        raise unknown
    try:
        with cache.opened(store, summary) as saver:
            listed = cache.of_run(saver, run)
            fitting = [held for held, _ in listed.found if held.commit.startswith(commit)]
            if not fitting and not listed.whole:
                raise UsageError(_not_all(store, run, len(listed.found)))
            found = _compared(store, saver, fitting[0], run, against) if len(fitting) == 1 else None
    except (OutlastError, OSError) as error:
        at = summary.state.updated_at
        assert at is not None, "a run that was opened has a time"
        return documents.Diff(
            run=run, save=commit, against=against, other="", at=at, kind="", reason="", files_total=0,
            lines_added=0, lines_deleted=0, files=(), cut=False, restore="", problem=cache.problem(error),
        )  # fmt: skip
    if found is None:
        raise unknown
    return found


def _compared(
    store: Store, saver: Saver, held: SaveContents, run: str, against: documents.Against
) -> documents.Diff:
    """The difference; where git cannot tell it, or not in time, what is known of the save, and the problem."""
    plain = documents.Diff(
        run=run, save=held.commit, against=against, other="", at=held.meta.at, kind=held.meta.kind,
        reason=held.meta.reason, files_total=0, lines_added=0, lines_deleted=0, files=(), cut=False,
        restore=restore_command(store, held),
    )  # fmt: skip
    try:
        other, tree = _other(saver, held, against)
        plain = msgspec.structs.replace(plain, other=other)
        with saves_diff.between(saver, tree, held.tree) as pair:
            return _document(pair, plain)
    except (OutlastError, OSError) as error:
        return msgspec.structs.replace(plain, problem=cache.problem(error))


def _other(saver: Saver, held: SaveContents, against: documents.Against) -> tuple[str, str | None]:
    """The commit it is compared with and its tree; an empty one for a repository without any commit."""
    if against == "before":
        return listing.before_it(saver, held)
    head = repo.head(saver.repo()).oid
    return head, listing.tree_of(saver, head)


def _document(pair: saves_diff.Pair, plain: documents.Diff) -> documents.Diff:
    git_s = Timing.current().diff_s
    files, all_of_them = pair.first_files(PATCH_BYTES_MAX, git_s)
    shown = files[:FILES_MAX]
    wanted = patches.wanted(shown, files)
    printed, whole = pair.patch(wanted, PATCH_BYTES_MAX, git_s) if wanted else (b"", True)
    return msgspec.structs.replace(
        plain,
        files_total=len(files),
        lines_added=sum(file.lines_added or 0 for file in files),
        lines_deleted=sum(file.lines_deleted or 0 for file in files),
        files=patches.patches(shown, set(wanted), printed, whole=whole),
        cut=len(shown) < len(files) or not all_of_them,
    )
