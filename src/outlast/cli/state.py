"""`outlast state`: what `active_state.json` says of a run, computed from the store and never read from the file."""

import argparse
from pathlib import Path

from outlast.cli import place, terminal
from outlast.core.values import scrub
from outlast.errors import UsageError
from outlast.runs import find
from outlast.store.protocol import Summary, Where
from outlast.store.sqlite import SqliteStore
from outlast.supervisor import starting, statefile


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "state", help="print where a run is, as its state file has it",
        description="Print the state of a run as JSON, the same fields as its active_state.json. It comes from the store:\n"
        "whatever happened to the file makes no difference.",
        epilog="example: outlast state 1411\n"
        "         jq .progress_stage < \"$(outlast state --path 1411)\"",
    )  # fmt: skip
    command.add_argument(
        "run", metavar="TASK", nargs="?", help="a task or run (default: the newest that is not over)"
    )
    command.add_argument("--path", action="store_true", help="print only where the file lies")
    command.set_defaults(handler=state)


def state(arguments: argparse.Namespace) -> None:
    """`outlast state`"""
    with place.opened(arguments) as store:
        summary = _meant(arguments, store)
        if arguments.path:
            terminal.say(str(statefile.path_of(store.root, summary.run)))
            return
        terminal.say_json(_active(store, summary))


def _meant(arguments: argparse.Namespace, store: SqliteStore) -> Summary:
    project = place.project(arguments, store)
    if arguments.run is not None:
        return find.find(store, scrub(arguments.run), project)
    active = store.list(Where(project=project, parent="", open_only=True), limit=1)
    if not active:
        raise UsageError(
            "no run of this project is under way",
            hint="name one: `outlast state TASK`; `outlast ls` lists them",
        )
    return active[0]


def _active(store: SqliteStore, summary: Summary) -> statefile.ActiveState:
    head = summary.state
    launch = starting.launch_of(store, summary)
    branch = statefile.branch_in(Path(head.workspace)) if head.workspace else ""
    status = find.shown_status(store, head, summary.root)
    return statefile.of(head, status, issue=launch.issue if launch is not None else "", branch=branch)
