"""After a power cut: restores files that the kernel had not written yet and that are empty or full of zeros."""

import os
import stat

from outlast.workspace import saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.restore import restore
from outlast.workspace.types import text

_CHUNK = 1 << 20


def restore_blank_files(saver: Saver, held: saves.SaveContents) -> list[str]:
    """Restore from a save the files that are empty or full of zeros now and were not then; return which."""
    root = os.fsencode(saver.folder) + b"/"
    now = saver.peek()
    empty = []
    for path, there, wanted in restore.changes_between(saver, now.tree, held.tree, now.trees):
        if there is None or wanted is None or not _is_blank(root + path):
            continue
        if not _is_blank_object(saver, wanted.oid):
            empty.append((path, there, wanted))
    restore.put_files(saver, empty)
    return [text(path) for path, _, _ in empty]


def _is_blank(path: bytes) -> bool:
    """Whether a file holds nothing but zeros, or nothing at all."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return False
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            if chunk.count(0) != len(chunk):
                return False
    return True


def _is_blank_object(saver: Saver, oid: str) -> bool:
    data = saver.reader().read(oid)[1]
    return data.count(0) == len(data)
