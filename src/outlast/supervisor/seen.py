"""Which states of the files the attempts of a run ended with: one that comes back is no progress."""

import os
from pathlib import Path

NAME = "trees"
KEPT_MAX = 1_000


def is_new(folder: Path, tree: str, began: str) -> bool:
    """Whether no attempt ended with this tree before, nor the run began with it; from now on one has."""
    path = folder / NAME
    known = path.read_text().split() if path.exists() else []
    if tree == began or tree in known:
        return False
    temporary = path.with_name(f".{NAME}.{os.getpid()}")
    temporary.write_text("\n".join([*known[-KEPT_MAX:], tree]) + "\n")
    temporary.replace(path)
    return True
