"""Restoring files that a save would not take now (ignored, big), and secrets that are stored separately.

Nothing is overwritten before it is in the pre-restore save, or beside it among the secrets."""

import contextlib
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from outlast.errors import SaveDamaged, SaveFailed
from outlast.store.local import place_of
from outlast.workspace import saves
from outlast.workspace.capture.files import CLOSED
from outlast.workspace.capture.saver import Saver
from outlast.workspace.capture.special import secrets
from outlast.workspace.git import command, objects, trees
from outlast.workspace.git.objects import TREE, Entry
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.restore.worktree import Change, Worktree, in_the_way
from outlast.workspace.types import LeftOut, SavePreview, Secret, raw


def folders(path: bytes) -> list[bytes]:
    """The folders above a path, each with a slash at the end."""
    parts = path.split(b"/")
    return [b"/".join(parts[:end]) + b"/" for end in range(1, len(parts))]


def is_left(path: bytes, left: Collection[bytes]) -> bool:
    """Whether a path was left out, by itself or with a folder above it; folders have a slash at the end."""
    if path in left:
        return True
    return any(folder in left for folder in folders(path))


# -- files -------------------------------------------------------------------------------------------------------


def hidden_files(worktree: Worktree, changes: Sequence[Change]) -> dict[bytes, Entry]:
    """Files in the place of saved ones that a save would not take now: ignored, big or secret."""
    found: dict[bytes, Entry] = {}
    known = {path for path, old, _ in changes if old is not None}
    wanted = {path: new for path, old, new in changes if old is None and new is not None}
    ways = {folder.rstrip(b"/") for path in wanted for folder in folders(path)}
    for path in wanted.keys() | (ways - known):
        if _is_file(worktree, path):
            entry = worktree.entry(path)
            if entry is not None and entry != wanted.get(path):
                found[path] = entry
    return found


def _is_file(worktree: Worktree, path: bytes) -> bool:
    file_stat = worktree.lstat(path)
    return file_stat is not None and (stat.S_ISREG(file_stat.st_mode) or stat.S_ISLNK(file_stat.st_mode))


def with_hidden_files(changes: Sequence[Change], found: Mapping[bytes, Entry]) -> list[Change]:
    """These changes, with the other files that exist and must be deleted or overwritten."""
    known = {path for path, _, _ in changes}
    more: list[Change] = [(path, entry, None) for path, entry in found.items() if path not in known]
    return [*more, *((path, old or found.get(path), new) for path, old, new in changes)]


def stored_as_secrets(
    worktree: Worktree, there: saves.SaveContents, found: Mapping[bytes, Entry]
) -> dict[bytes, Entry]:
    """The files that the pre-restore save has, unchanged, among its secrets."""
    saved = {raw(secret.path): secret.oid for secret in there.meta.secrets}
    return {
        path: entry
        for path, entry in found.items()
        if path in saved and worktree.digest(path, objects.SHA1) == saved[path]
    }


def check_unsaved(
    saver: Saver,
    held: saves.SaveContents,
    now: Sequence[LeftOut],
    worktree: Worktree,
    apart: Collection[bytes],
) -> None:
    """Raise SaveFailed if a file that the pre-restore save could not take is in the place of a saved one."""
    for path, entry in files_now_left_out(saver, held, now):
        if path not in apart and not is_as(worktree, path, entry):
            raise in_the_way(path)


def check_closed(saver: Saver, held: saves.SaveContents, now: Sequence[LeftOut]) -> None:
    """Raise SaveFailed if the save has files in a folder that may not be read: its content is unknown."""
    left = {raw(item.path) for item in held.meta.left_out}
    tree = _tree(saver, held)
    for item in now:
        if item.why != CLOSED or is_left(raw(item.path), left):
            continue
        there = tree.get(raw(item.path.rstrip("/")))
        if there is not None:
            raise SaveFailed(
                f"cannot read {item.path}, and the save {held.commit[:12]} has files there",
                hint="make it readable (`chmod u+rwx`), and restore again",
            )


def files_now_left_out(
    saver: Saver, held: saves.SaveContents, now: Sequence[LeftOut]
) -> list[tuple[bytes, Entry]]:
    """Files of the save that a save would leave out now."""
    left = {raw(item.path) for item in held.meta.left_out}
    paths = [raw(item.path) for item in now if not item.path.endswith("/")]
    tree = _tree(saver, held)
    found = {path: tree.get(path) for path in paths if not is_left(path, left)}
    return [(path, entry) for path, entry in found.items() if entry is not None and entry.mode != TREE]


def is_as(worktree: Worktree, path: bytes, entry: Entry) -> bool:
    with contextlib.suppress(OSError):
        return worktree.entry(path) == entry
    return False


def _tree(saver: Saver, held: saves.SaveContents) -> trees.TreeEditor:
    return trees.TreeEditor(held.tree, lambda oid: saver.reader().read(oid)[1], saver.repo().algo)


# -- secrets -----------------------------------------------------------------------------------------------------


def files_over_secrets(
    saver: Saver, worktree: Worktree, held: saves.SaveContents, now: SavePreview
) -> frozenset[bytes]:
    """Files in the place of the save's secrets that a save would not take now, for example ignored ones."""

    def read(oid: str) -> bytes:
        data = now.trees.get(oid)
        return data if data is not None else saver.reader().read(oid)[1]

    tree = trees.TreeEditor(now.tree, read, saver.repo().algo)
    return frozenset(
        path
        for path, oid in ((raw(secret.path), secret.oid) for secret in held.meta.secrets)
        if path not in now.secrets
        and tree.get(path) is None
        and _is_file(worktree, path)
        and worktree.digest(path, objects.SHA1) != oid
    )


def secrets_wanted(
    saver: Saver,
    held: saves.SaveContents,
    there: saves.SaveContents,
    worktree: Worktree,
    spared: Collection[bytes],
) -> list[Secret]:
    """The untracked secrets to restore. Raises SaveFailed if one would overwrite what no save has."""
    saved = {secret.path: secret.oid for secret in there.meta.secrets}
    tree = _tree(saver, there)
    wanted = []
    for secret in held.meta.secrets:
        path = raw(secret.path)
        if path in spared:
            continue
        now, entry = worktree.digest(path, objects.SHA1), tree.get(path)
        if now in ("", saved.get(secret.path)) or (
            entry and worktree.digest(path, saver.repo().algo) == entry.oid
        ):
            wanted.append(secret)
        elif now != secret.oid:
            raise in_the_way(path)
    return wanted


def secrets_of(saver: Saver, held: saves.SaveContents) -> list[Secret]:
    """The untracked secrets of a save. Raises SaveFailed if one is not stored here."""
    here = secrets_here(saver, held)
    for secret in held.meta.secrets:
        if secret.path not in here:
            raise SaveFailed(
                f"the secret {secret.path} of the save {held.commit[:12]} is not stored here: it was removed, or the"
                " save came from elsewhere",
                hint="leave out --with-secrets, and put the file there yourself",
            )
    return list(held.meta.secrets)


def secrets_here(saver: Saver, held: saves.SaveContents) -> frozenset[str]:
    """The paths of a save's secrets that this state folder has."""
    place = _secrets_dir(saver, held)
    if not held.meta.secrets or not (place / "HEAD").exists():
        return frozenset()
    with ObjectReader(place, command.environment()) as reader:
        return frozenset(secret.path for secret in held.meta.secrets if reader.has(secret.oid))


def _secrets_dir(saver: Saver, held: saves.SaveContents) -> Path:
    """Where the secrets of a save are: in the private folder of the workspace it was made of."""
    made_of = Path(os.fsdecode(raw(held.meta.folder))) if held.meta.folder else saver.folder
    return secrets.git_dir(saver.private.with_name(place_of(made_of)))


def put_secrets(
    saver: Saver, held: saves.SaveContents, wanted: Sequence[Secret], worktree: Worktree
) -> tuple[str, ...]:
    """Restore the untracked secrets. A run imported from another store has none."""
    place = _secrets_dir(saver, held)
    if not wanted or not (place / "HEAD").exists():
        return ()
    with ObjectReader(place, command.environment()) as reader:
        secrets_stored = [secret for secret in wanted if reader.has(secret.oid)]
        if any(raw(secret.path).startswith(b".git/") for secret in secrets_stored):
            raise SaveDamaged(f"save {held.commit[:12]} has a secret inside a .git folder")
        for secret in secrets_stored:
            worktree.put(raw(secret.path), secret.mode, reader.read(secret.oid)[1])
    return tuple(secret.path for secret in secrets_stored)
