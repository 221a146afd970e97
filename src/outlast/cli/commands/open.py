"""`outlast open`: the command line of it. The work is done in `outlast.supervisor`."""

import argparse
import os

from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.errors import UsageError


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "open", help="go on in the agent's session yourself, at this terminal",
        description="Open the session of an agent that `outlast run` started, at this terminal and in its folder, under the same\n"
        "run, hooks and budget. If the agent is working, it stops at the end of its beat first. When you leave the session,\n"
        "outlast saves the files, and `outlast resume` goes on without you.",
        epilog="example: outlast open 1411",
    )  # fmt: skip
    store_option.add_run(command)
    command.set_defaults(handler=open_)


def open_(arguments: argparse.Namespace) -> int:
    """`outlast open`"""
    from outlast.cli.commands import run as running
    from outlast.supervisor import start
    from outlast.supervisor.control import takeover
    from outlast.supervisor.person import Person

    link = running.to_guardian()
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        if not (os.isatty(0) and os.isatty(1)):
            raise UsageError("`outlast open` needs a terminal", hint="`outlast resume` goes on without one")
        launch = takeover.take(store, summary, link, Person(messages.tell))
        url = store.url
    return start.resume(url, summary, launch, link, Person(running.say), opened=True)
