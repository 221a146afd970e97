"""Where a command works: the store and the project that its options, the settings and the folder lead to."""

import argparse
import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from outlast import settings
from outlast.core.values import scrub
from outlast.errors import UsageError
from outlast.runs import find
from outlast.runs.project import project_of
from outlast.store import SqliteStore, locate
from outlast.store.protocol import Summary


def add_run(command: argparse.ArgumentParser) -> None:
    """The argument that nearly every command has."""
    command.add_argument("run", metavar="RUN", help="a task, a run id or its beginning, or PROJECT:TASK")


def typed(name: str, run: str) -> str:
    """How a hint names a run: as the person did, quoted for the shell, or by its id if it would read as an option."""
    return run if name.startswith("-") else shlex.quote(name)


def location(arguments: argparse.Namespace) -> tuple[Path, Path]:
    """Folder and file of the store. Raises BadSetting for settings that make no sense."""
    return locate(settings.load(flags={"store": arguments.store})["store"] or None)


@contextlib.contextmanager
def opened(arguments: argparse.Namespace, *, make: bool = False) -> Iterator[SqliteStore]:
    """The store, closed at the end. A mistyped one is an error and not an empty new store, unless `make`."""
    root, database = location(arguments)
    if not make and not database.exists():
        raise UsageError(f"there is no store at {root}", hint="start a run, or point --store to where it is")
    store = SqliteStore(root, database)
    try:
        yield store
    finally:
        store.close()


def project(arguments: argparse.Namespace, store: SqliteStore | None) -> str:
    """The project in which names of tasks are meant."""
    if arguments.project is not None:
        return find.project_called(store, arguments.project)
    return project_of(Path.cwd())


def named(arguments: argparse.Namespace, store: SqliteStore) -> Summary:
    """The run that the command line names."""
    return find.find(store, scrub(arguments.run), project(arguments, store))
