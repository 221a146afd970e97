"""Where a command works: the store and the project that its options, the settings and the folder lead to."""

import argparse
import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from outlast import settings
from outlast.core.values import scrub
from outlast.errors import UsageError
from outlast.inspect import find
from outlast.runs.opening.project import project_of
from outlast.store import locate
from outlast.store.protocol import Store, StorePlace, Summary, Where


def add_run(command: argparse.ArgumentParser) -> None:
    """The argument that nearly every command has."""
    command.add_argument("run", metavar="RUN", help="a task, a run id or its beginning, or PROJECT:TASK")


def typed(name: str, run: str) -> str:
    """How a hint names a run: as the person did, quoted for the shell, or by its id if it would read as an option."""
    return run if name.startswith("-") else shlex.quote(name)


def location(arguments: argparse.Namespace) -> StorePlace:
    """Where the store is. Raises BadSetting for settings that make no sense."""
    return locate(settings.load(flags={"store": arguments.store})["store"] or None)


@contextlib.contextmanager
def opened(arguments: argparse.Namespace, *, make: bool = False) -> Iterator[Store]:
    """The store, closed at the end. A mistyped one is an error and not an empty new store, unless `make`."""
    place = location(arguments)
    if not make and not place.exists():
        folder = place.local.folder
        raise UsageError(
            f"there is no store at {folder}", hint="start a run, or point --store to where it is"
        )
    store = place.open()
    try:
        yield store
    finally:
        store.close()


def project(arguments: argparse.Namespace, store: Store | None) -> str:
    """The project in which names of tasks are meant."""
    given: str | None = arguments.project
    if given is None:
        return project_of(Path.cwd())
    known = bool(given and store is not None and store.list(Where(project=given), limit=1))
    if not given.strip() or (not known and "/" in given and not Path(given).is_dir()):
        raise UsageError(
            f"--project {given!r:.200} is no folder, and no run is of such a project",
            hint="give the folder of the project; `outlast ls --all` lists the runs of all",
        )
    return find.project_called(store, given)


def named(arguments: argparse.Namespace, store: Store) -> Summary:
    """The run that the command line names."""
    return find.find(store, scrub(arguments.run), project(arguments, store))
