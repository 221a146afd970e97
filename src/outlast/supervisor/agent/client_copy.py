"""The copy of outlast that the hooks and shims of one attempt run: placed at its start, checked while the attempt lasts."""

from pathlib import Path

from outlast.runs.engine.run import RunEngine
from outlast.supervisor.client import copy
from outlast.supervisor.person import Person


class ClientCopy:
    """Without their copy, hooks and shims deny every call, and only the agent reads why. So this warns the person too."""

    def __init__(self, run: RunEngine, person: Person) -> None:
        self._run, self._person = run, person
        self._folder = run.journal.store.local.client_folder(run.id)
        self._seen: copy.Seen = {}
        self._watches = False  # not before the copy is placed, and no more once the person is warned

    def place(self) -> Path:
        """Make the copy whole. Raises OutlastError if outlast itself is gone, DiskFull if there is no room."""
        placed = copy.place(self._folder)
        self._seen.clear()
        self._watches = True
        return placed

    def look(self) -> None:
        """If the copy is damaged, warn the person once in an attempt: on the terminal, on record and by a notification."""
        damage = copy.damage(self._folder, self._seen) if self._watches else ""
        if not damage:
            return
        self._watches = False
        run, person = self._run, self._person
        text = (
            f"{damage}: the agent's calls are denied until the next attempt copies it again. "
            f"`outlast pause {run.id}`, then `outlast resume {run.id}`"
        )
        person.warn(run, f"{copy.DAMAGED} {run.state.attempts}", text)
        person.notify(run, "needs a person", text)

    def remove(self) -> None:
        """Remove the copy: the run and its agent have ended, so no hook and no shim needs it any more."""
        self._watches = False
        copy.remove(self._folder)
