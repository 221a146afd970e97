"""Objects that git writes for a save before they are in our pack: in a temporary folder of their own."""

import contextlib
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

from outlast.workspace.git import command
from outlast.workspace.git.packs import PackWriter
from outlast.workspace.git.reader import ObjectReader


class Quarantine:
    """Objects of one save that are not in the repository yet, and the git processes that work for the save."""

    def __init__(self, private: Path, reader: ObjectReader) -> None:
        self.place = private / f"quarantine-{os.getpid()}-{secrets.token_hex(4)}"
        self.held: dict[str, bytes] = {}  # objects that moved from here into our pack
        self._reader = reader
        self._running: list[command.Running] = []

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """At the end of the block its processes are stopped and its folder is removed."""
        try:
            yield
        finally:
            for running in self._running:
                running.stop()
            shutil.rmtree(self.place, ignore_errors=True)

    def started(self, running: command.Running) -> command.Running:
        """Register a git process that must not outlive the save."""
        self._running.append(running)
        return running

    def collect(self, pack: PackWriter) -> None:
        """Move the loose objects that git wrote here into our pack."""
        for path in self.place.glob("??/*"):
            header, _, data = zlib.decompress(path.read_bytes()).partition(b"\0")
            self.hold(pack, header.split()[0].decode(), data)

    def hold(self, pack: PackWriter, kind: str, data: bytes) -> str:
        """Put an object into our pack, and keep it readable until the pack is in place."""
        oid = pack.add(kind, data)
        self.held[oid] = data
        return oid

    def read(self, oid: str) -> bytes:
        """An object from the repository or from here."""
        data = self.held.get(oid)
        return data if data is not None else self._reader.read(oid)[1]

    def read_many(self, oids: list[str]) -> dict[str, bytes]:
        """Read many objects in one query."""
        held = {oid: self.held[oid] for oid in oids if oid in self.held}
        return held | self._reader.read_many([oid for oid in oids if oid not in held])
