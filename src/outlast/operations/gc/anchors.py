"""Which runs this store gave an anchor: the one save that stays of a run that is over."""

import os

from outlast.errors import SaveFailed
from outlast.store.local import Local
from outlast.workspace.restore.worktree import write_over


class Anchored:
    """Runs that this store gave an anchor, and may have forgotten since. Those of other stores are not ours to touch."""

    def __init__(self, local: Local) -> None:
        self._file = local.anchored
        try:
            self.runs = set(self._file.read_text(encoding="utf-8").split())
        except FileNotFoundError:
            self.runs = set()

    def add(self, run: str) -> None:
        """Durable when it returns: an anchor without this would stay for ever."""
        if run not in self.runs:
            self.runs.add(run)
            lines = "".join(f"{each}\n" for each in sorted(self.runs))
            try:
                write_over(os.fsencode(self._file), lines.encode(), mode=0o600)
            except OSError as error:
                raise SaveFailed(f"{self._file} cannot be written: {error.strerror}") from error
