"""The times of a log's lines. Each line has the time of day by its writer's clock; the first line has the day and the zone,
and the file has the time of the last write.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from outlast.store.local import Local
from outlast.supervisor.output import log
from outlast.supervisor.output.log_reader import Span

BACK = timedelta(minutes=1)  # so much a clock is set back without that a day has passed
DAY = timedelta(days=1)


def moments(stamps: Sequence[str], span: Span) -> list[datetime | None]:
    """The moment of each time of day; None if there is no time, or if the zone is unknown.

    They are found from the end: a time that is later than the one after it was of the day before.
    """
    if span.begun is None or span.written is None:
        return [None] * len(stamps)
    offset = span.begun.utcoffset() or timedelta()
    ours = span.begun.astimezone().utcoffset() == offset  # whoever wrote it had this machine's zone
    later = (span.written.astimezone() if ours else span.written.astimezone(span.begun.tzinfo)).replace(
        tzinfo=None
    )
    found: list[datetime | None] = []
    for stamp in reversed(stamps):
        try:
            at = datetime.combine(later.date(), time.fromisoformat(stamp))
        except ValueError:  # a line that we did not write
            found.append(None)
            continue
        at -= DAY if at > later + BACK else timedelta()
        later = at
        found.append(at.astimezone() if ours else at.replace(tzinfo=span.begun.tzinfo))
    return found[::-1]


# -- When a living run was last heard of: its agent's output is a sign of life that no journal has.


def output_at(local: Local, run: str, attempt: int) -> datetime | None:
    """When the log of an attempt was last written to; None if it has no log."""
    folder = local.run_folder(run)
    first = _looked(log.part_path(folder, attempt, 0))
    if first is None:
        return None
    size, written_s = first
    if size + _ROOM >= log.PART_BYTES:  # it may be full, and go on in another part
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
