"""`outlast kill`: stop a run and everything of it, saved first. What it does lives in `outlast.supervisor.control.kill`."""

import argparse

from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.messages import say
from outlast.supervisor.control import kill as control_kill
from outlast.supervisor.control.kill import Killed
from outlast.supervisor.person import Person

EXIT_FAILED = 1


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "kill", help="stop a run now, saved first; `resume` goes on",
        description="Stop a run and everything of it: the files are saved, the command is stopped, and nothing wakes it until\n"
        "`outlast resume`. A supervisor that does not answer is killed. Safe to press twice.",
        epilog="example: outlast kill 1411",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(handler=kill)


def kill(arguments: argparse.Namespace) -> int:
    """`outlast kill`"""
    with store_option.opened(arguments) as store:
        killed = control_kill.kill(store, store_option.named(arguments, store).run, Person(messages.tell))
    if arguments.json:
        messages.say_json(killed)
    else:
        _say(killed, store_option.typed(arguments.run, killed.run))
    return EXIT_FAILED if killed.how == "waits" else 0


def _say(killed: Killed, typed: str) -> None:
    name = messages.safe(f"run {killed.run} of task {killed.task}")
    status = killed.status.replace("_", " ")
    if killed.how == "not_running":
        say(f"{name} is not running: it is {status}")
    elif killed.how == "waits":
        say(f"{name} is asked to stop; its program takes it in at its next beat or act")
        return
    else:
        say(f"{name} is stopped at beat {killed.beats + 1}: {messages.short(killed.evidence, 200)}")
    if killed.last_save and killed.how != "not_running":
        say(messages.pasteable(f"saved as {killed.last_save[:12]}; `outlast saves {typed}` lists it"))
    if killed.status not in ("done", "cancelled", "handed_off"):
        messages.tell(f"`outlast resume {typed}` goes on")
