"""When a living run was last heard of: its agent's output is a sign of life that no journal has."""

import os
from datetime import UTC, datetime
from pathlib import Path

from outlast.supervisor import guarding, logs


def output_at(root: Path, run: str, attempt: int) -> datetime | None:
    """When the log of an attempt was last written to; None where there is none."""
    folder = guarding.folder_of(root, run)
    first = _looked(logs.part_path(folder, attempt, 0))
    if first is None:
        return None
    size, written_s = first
    if size + _ROOM >= logs.PART_BYTES:  # it may be full, and go on in another part
        written_s = max([written_s, *_parts(folder, attempt)])
    return datetime.fromtimestamp(written_s, UTC)


_ROOM = 1 << 20  # the line that did not fit any more is shorter


def _looked(path: Path) -> tuple[int, float] | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_size, found.st_mtime


def _parts(folder: Path, attempt: int) -> list[float]:
    beginning = f"attempt-{attempt}."
    try:
        with os.scandir(folder) as entries:
            paths = [Path(each.path) for each in entries if each.name.startswith(beginning)]
    except OSError:
        return []
    return [found[1] for path in paths if (found := _looked(path)) is not None]
