"""Work between two saves that makes the next ones cheap: adds what was saved to the private index.

No save waits for it: it works on a copy of the index, which replaces the index when nobody saves."""

import contextlib
import shutil
from typing import TYPE_CHECKING

from outlast.workspace.capture import stat_cache
from outlast.workspace.capture.private_index import PrivateIndex

if TYPE_CHECKING:
    from outlast.workspace.capture.saver import Saver

TAKE_IN_ABOVE = 1_000  # files that each save must check besides the private index; some 10 ms

Held = dict[bytes, tuple[int, str] | None]


def index_updates(area: stat_cache.Area) -> Held:
    """What to tell the private index: saved files, and removed ones. Not the young: git would take their stat data."""
    found: Held = {path: (known.mode, known.oid) for path, known in area.settled().items()}
    return found | dict.fromkeys(area.gone)


def take_in(base: PrivateIndex, area: stat_cache.Area) -> None:
    """Add what was saved to the private index at once. The memo must not be on disk meanwhile."""
    updates = index_updates(area)
    base.take_in(updates)
    for path in updates:
        area.entries.pop(path, None)
    area.gone.clear()


def refresh(saver: "Saver") -> bool:
    """Refresh the index while saves go on; return whether it was needed and done."""
    with saver.lock():
        known = saver.remembered()
        area = known.areas.get(b"") if known is not None else None
        if area is None or not area.exceeds(TAKE_IN_ABOVE):
            return False
        base, entries, gone = saver.base(), area.settled(), set(area.gone)
        copy = base.index.with_name("index.tended")
        shutil.copy2(base.index, copy)
        stamp = stat_cache.stamp(base.index)
    try:
        base.take_in(index_updates(stat_cache.Area(entries, gone)), copy)
        with saver.lock():
            known = saver.remembered()
            if known is None or stat_cache.stamp(base.index) != stamp:
                return False
            area = known.areas[b""]
            saver.unremember()
            copy.replace(base.index)
            _forget_equal(area, entries, gone)
            saver.remember(known)
    finally:
        with contextlib.suppress(FileNotFoundError):
            copy.unlink()
    return True


def _forget_equal(
    area: stat_cache.Area, entries: dict[bytes, stat_cache.KnownFile], gone: set[bytes]
) -> None:
    """Forget what the index has by now. What changed while the index was written still needs a look."""
    for path, known in entries.items():
        now = area.entries.get(path)
        if now == known:
            del area.entries[path]
        elif now is not None:
            area.entries[path] = now._replace(in_base=True)
        else:
            area.gone.add(path)
    for path in gone & area.gone:
        area.gone.discard(path)
    for path in gone & area.entries.keys():
        area.entries[path] = area.entries[path]._replace(in_base=False)
