"""What a merge, rebase or bisect under way names, and a save must therefore keep reachable."""

import re

from outlast.workspace import objects
from outlast.workspace.reader import ObjectReader

NAMES_MAX = 64  # of one file
_OID = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{40})(?![0-9a-f])")


def named_objects(
    reader: ObjectReader, progress: dict[bytes, bytes]
) -> tuple[dict[bytes, objects.Entry], list[str]]:
    """Objects that these files name: entries that hold trees and files, for M's tree, and commits, for its parents."""
    held: dict[bytes, objects.Entry] = {}
    commits: dict[str, None] = {}
    for data in progress.values():
        for oid in [found.decode() for found in _OID.findall(data)[:NAMES_MAX]]:
            if not reader.has(oid):
                continue
            kind = reader.read(oid)[0]
            if kind == "commit":
                commits[oid] = None
            elif kind in ("tree", "blob"):
                mode = objects.TREE if kind == "tree" else objects.FILE
                held[b"held-" + oid.encode()] = objects.Entry(mode, oid)
    return held, list(commits)
