"""The store, project and run that a command line means, by its options, the settings and the current folder."""

import argparse
import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from outlast import settings
from outlast.core.text import did_you_mean
from outlast.core.values import scrub
from outlast.errors import UsageError
from outlast.inspect import find
from outlast.runs.opening.project import project_of
from outlast.store import locate
from outlast.store.protocol import RunFilter, Store, StorePlace, Summary


def add_run(command: argparse.ArgumentParser) -> None:
    """Add the RUN argument, which nearly every command has."""
    command.add_argument("run", metavar="RUN", help="a task, a run id or its beginning, or PROJECT:TASK")


def typed(name: str, run: str) -> str:
    """How a hint names a run: as the person did, quoted for the shell; by its id if the name looks like an option."""
    return run if name.startswith("-") else shlex.quote(name)


def location(arguments: argparse.Namespace) -> StorePlace:
    """Where the store is. Raises BadSetting for an invalid setting."""
    return locate(settings.load(flags={"store": arguments.store})["store"] or None)


@contextlib.contextmanager
def opened(arguments: argparse.Namespace, *, make: bool = False) -> Iterator[Store]:
    """Open the store; close it at the end. A store that does not exist is an error, unless `make`."""
    place = location(arguments)
    if not make and not place.exists():
        folder = place.local.folder
        raise UsageError(f"no store at {folder}", hint="start a run, or give the right --store")
    store = place.open()
    try:
        yield store
    finally:
        store.close()


def project(arguments: argparse.Namespace, store: Store | None) -> str:
    """The project whose tasks the command line names."""
    given: str | None = arguments.project
    if given is None:
        return project_of(Path.cwd())
    known = bool(given and store is not None and store.list(RunFilter(project=given), limit=1))
    if not given.strip() or (not known and "/" in given and not Path(given).is_dir()):
        names = find.project_names(store) if store is not None else []
        raise UsageError(
            f"no such project: {given!r:.200} is neither a folder nor the project of a run",
            hint=did_you_mean(given, names)
            or "give the folder of the project; `outlast ls --all` lists all runs",
        )
    return find.project_named(store, given)


def named(arguments: argparse.Namespace, store: Store) -> Summary:
    """The run that the command line names."""
    return find.find(store, scrub(arguments.run), project(arguments, store))
