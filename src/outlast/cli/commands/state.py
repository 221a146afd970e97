"""`outlast state`: the fields of `active_state.json`, computed from the store and never read from the file."""

import argparse
from pathlib import Path

from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.core.values import scrub
from outlast.errors import UsageError
from outlast.inspect import find
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.supervisor.attempt import state_file
from outlast.supervisor.launch import last_launch
from outlast.workspace import repo


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "state", help="where a run stands, as JSON for scripts",
        description="Print the state of a run as JSON, with the fields of its active_state.json. It is computed from the store,\n"
        "so it is right even if the file is lost or old.",
        epilog="example: outlast state 1411\n"
        "         jq .progress_stage < \"$(outlast state --path 1411)\"",
    )  # fmt: skip
    command.add_argument(
        "run", metavar="TASK", nargs="?", help="a task or run (default: the newest open one)"
    )
    command.add_argument("--path", action="store_true", help="print only the path of the file")
    command.set_defaults(handler=state)


def state(arguments: argparse.Namespace) -> None:
    """`outlast state`"""
    with store_option.opened(arguments) as store:
        summary = _meant(arguments, store)
        if arguments.path:
            messages.say(str(store.local.state_file(summary.run)))
            return
        messages.say_json(_active(store, summary))


def _meant(arguments: argparse.Namespace, store: Store) -> Summary:
    project = store_option.project(arguments, store)
    if arguments.run is not None:
        return find.find(store, scrub(arguments.run), project)
    active = store.list(RunFilter(project=project, parent="", open_only=True), limit=1)
    if not active:
        raise UsageError(
            "no run of this project is open",
            hint="name a run: `outlast state TASK`; `outlast ls` lists them",
        )
    return active[0]


def _active(store: Store, summary: Summary) -> state_file.ActiveState:
    head = summary.state
    launch = last_launch.launch_of(store, summary)
    branch = repo.branch_in(Path(head.workspace)) if head.workspace else ""
    status = find.shown_status(store, head, summary.root)
    return state_file.of(head, status, issue=launch.issue if launch is not None else "", branch=branch)
