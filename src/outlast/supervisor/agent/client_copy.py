"""The copy of outlast that hooks and shims of one attempt run: placed at its start, looked at while it lasts."""

from pathlib import Path

from outlast.runs.engine.run import RunEngine
from outlast.supervisor.client import copy
from outlast.supervisor.person import Person


class ClientCopy:
    """Without their copy, hooks and shims deny every call, and only the agent reads why. So this warns the person too."""

    def __init__(self, run: RunEngine, person: Person) -> None:
        self._run, self._person = run, person
        self._folder = run.journal.store.local.client_folder(run.id)
        self._is_told = True  # nothing can be damaged before it is placed

    def place(self) -> Path:
        """Make the copy whole. Raises OutlastError where outlast itself is gone, DiskFull where there is no room."""
        placed = copy.place(self._folder)
        self._is_told = False
        return placed

    def look(self) -> None:
        """Warn the person once in an attempt: on the terminal, on record and by a notification."""
        damage = "" if self._is_told else copy.damage(self._folder)
        if not damage:
            return
        self._is_told = True
        run, person = self._run, self._person
        text = (
            f"{damage}: the agent's calls are denied until the next attempt copies it again. "
            f"`outlast pause {run.id}`, then `outlast resume {run.id}`"
        )
        person.warn(run, f"{copy.DAMAGED} {run.state.attempts}", text)
        person.notify(run, run.journal.store.local.run_folder(run.id), "needs a person", text)

    def remove(self) -> None:
        """The run is over, and so is its agent: what hooks and shims ran is not needed any more."""
        self._is_told = True
        copy.remove(self._folder)
