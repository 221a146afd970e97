"""Paths that lead nowhere: nothing there, a file in place of a folder, or links that lead in a circle."""

import errno
import os

ERRNOS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


def is_nowhere(error: OSError) -> bool:
    """Whether this error says that the path leads to nothing; what may not be looked at could be there."""
    return error.errno in ERRNOS


def lstat(path: bytes) -> os.stat_result | None:
    """The stat of a path itself; None if it leads nowhere."""
    try:
        return os.lstat(path)
    except OSError as error:
        if is_nowhere(error):
            return None
        raise
