"""`outlast service`: the command line of it. The work is done in `outlast.supervisor.control.service`."""

import argparse
import shlex

from outlast.cli.terminal import messages
from outlast.cli.terminal.messages import say
from outlast.supervisor.control import service
from outlast.supervisor.control.service import Service

EXIT_FAILED = 1


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command and what it can do."""
    command = commands.add_parser(
        "service", help="go on with all runs by itself after a reboot",
        description="Run `outlast resume --all` at boot: by a systemd user unit with lingering, or by an @reboot line of cron\n"
        "where systemd is missing. Secrets come from the file `env` in your configuration folder (chmod 600).",
        epilog="example: outlast service install",
    )  # fmt: skip
    command.add_argument(
        "what",
        choices=("install", "status", "remove"),
        metavar="install|status|remove",
        help="install it, check it, or remove it",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    """`outlast service`"""
    was_there = arguments.what != "remove" or service.is_there()
    found = _done(arguments.what, arguments.store)
    if arguments.json:
        messages.say_json(found)
    else:
        _say(found, arguments.what, was_there=was_there)
    gone_as_wanted = arguments.what == "remove" and found.how is None
    return 0 if found.works or gone_as_wanted else EXIT_FAILED


def _done(what: str, store: str | None) -> Service:
    match what:
        case "install":
            return service.install(store)
        case "remove":
            return service.remove()
        case _:
            return service.status(store)


def _say(found: Service, what: str, *, was_there: bool) -> None:
    if found.how is None:
        say("removed" if what == "remove" and was_there else "not installed")
    else:
        say(f"{found.how}  {messages.safe(found.path or '@reboot')}")
        say(f"  runs     {messages.safe(shlex.join(found.command))}")
        if found.lingering is not None:
            say(f"  lingers  {'yes' if found.lingering else 'no'}")
        say(f"  works    {'yes' if found.works else 'no'}")
    for problem in found.problems if what != "remove" else ():
        messages.tell(problem)
