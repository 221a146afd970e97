"""store init, migrate, accept, copy: the command lines for a store that hosts share."""

import argparse
import contextlib

from outlast.cli.terminal import messages
from outlast.cli.terminal.progress import working
from outlast.core.text import count_of
from outlast.errors import UsageError
from outlast.store import administration, locate


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
        if name == "init":
            which = act.add_mutually_exclusive_group()
            which.add_argument(
                "--roles", action="store_true",
                help="also make the roles outlast_host, outlast_reader and outlast_person, with the rights they need",
            )  # fmt: skip
            which.add_argument(
                "--print-roles", action="store_true", help="only print the SQL for these roles, for an administrator"
            )  # fmt: skip
    act = acts.add_parser(
        "copy", help="copy all runs of a store into another one",
        description="Copy every run with its payloads, saves and agent sessions from one store into another. Runs that could go\n"
        "on are handed off in the store they came from, so that they go on in one place only. Nobody may be working on\n"
        "them. If it is cut off, type the same again: what is there already is compared, and left.",
        epilog="example: outlast store copy ~/.local/state/outlast postgresql://outlast@db/outlast",
    )  # fmt: skip
    act.add_argument("source", metavar="FROM", help="folder or URL of the store that has the runs")
    act.add_argument("target", metavar="TO", help="folder or URL of the store that gets them")
    act.set_defaults(handler=copy)


def init(arguments: argparse.Namespace) -> None:
    """`outlast store init URL`"""
    store = _database(arguments.url)
    if arguments.print_roles:
        print("\n".join(store.roles()))
        return
    done = store.init(with_roles=arguments.roles)
    for line in done or [f"{store.url} has a store already; nothing changed"]:
        print(line)
    if arguments.roles:
        print("give one of them to each role that logs in, as in: GRANT outlast_host TO somebody")
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


def copy(arguments: argparse.Namespace) -> None:
    """`outlast store copy FROM TO`"""
    from outlast.operations.transfer.store_copy import StoreCopy

    source, target = locate(arguments.source), locate(arguments.target)
    if not source.exists():
        raise UsageError(f"no store at {source.name}", hint="name the store that has the runs first")
    target.exists()  # a database without a store is refused before anything is opened
    with contextlib.ExitStack() as stack:
        having, getting = source.open(), target.open()
        stack.callback(having.close)
        stack.callback(getting.close)
        with working("copying the store"):
            done = StoreCopy(having, getting, messages.tell).all()
    known = f" ({done.known} were there already)" if done.known else ""
    messages.say(
        f"{target.name} has {count_of(done.runs, 'run')} of {source.name}{known}: copied {count_of(done.events, 'event')},"
        f" {count_of(done.payloads, 'payload')}, {count_of(done.documents, 'document')}"
    )
    if done.sealed:
        messages.say(f"what can go on does so there ({count_of(done.sealed, 'run')}), and is handed off here")
    for run in done.elsewhere:
        messages.say(f"run {run} worked on another host last: its files and their saves are there")


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
