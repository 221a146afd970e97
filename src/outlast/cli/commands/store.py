"""store init, store migrate, store accept: the command lines for a store that hosts share."""

import argparse

from outlast.errors import UsageError
from outlast.store import administration


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    command = commands.add_parser(
        "store", help="make or migrate a store in PostgreSQL",
        description="Make a store in a PostgreSQL database, or bring it to this version of outlast. A store in a folder needs neither.",
        epilog="example: outlast store init postgresql://outlast@db/outlast",
    )  # fmt: skip
    acts = command.add_subparsers(metavar="ACT", required=True, help="what to do")
    for name, text in _ACTS.items():
        act = acts.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        act.add_argument(
            "url",
            metavar="URL",
            help="like postgresql://user@host/database; a password is better in ~/.pgpass",
        )
        act.set_defaults(handler=_HANDLERS[name])


def init(arguments: argparse.Namespace) -> None:
    """`outlast store init URL`"""
    store = _database(arguments.url)
    for line in store.init() or [f"{store.url} has a store already; nothing changed"]:
        print(line)
    print("to use it, type this, or put `store` into your config.toml:")
    print(f"  export OUTLAST_STORE='{store.url}'")


def migrate(arguments: argparse.Namespace) -> None:
    """`outlast store migrate URL`"""
    store = _database(arguments.url)
    for line in store.migrate() or [f"{store.url} is of this version already; nothing changed"]:
        print(line)


def accept(arguments: argparse.Namespace) -> None:
    """`outlast store accept URL`"""
    store = _database(arguments.url)
    for line in store.accept() or [f"{store.url} is on the server that is known; nothing changed"]:
        print(line)


def _database(url: str) -> administration.SharedPlace:
    found = administration.shared(url)
    if found is None:
        raise UsageError(
            f"a store at {url} is made when a run is started",
            hint="give postgresql://user@host/database, or start a run",
        )
    return found


_ACTS = {
    "init": "make the store in a database; where there is one already, nothing changes",
    "migrate": "bring the store's schema to this version of outlast",
    "accept": "work on with a server after a failover or a restored backup, when you have looked at what is missing",
}
_HANDLERS = {"init": init, "migrate": migrate, "accept": accept}
