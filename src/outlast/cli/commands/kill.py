"""`outlast kill`: the command line of it. The work is done in `outlast.supervisor.control.kill`."""

import argparse

from outlast.acts.plan import next_act
from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.messages import say
from outlast.inspect.standing import words
from outlast.operations import requests
from outlast.supervisor.control import kill as control_kill, standing
from outlast.supervisor.control.kill import Killed
from outlast.supervisor.person import Person

EXIT_FAILED = 1


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "kill", help="stop a run now; its files are saved first",
        description="Stop a run and all its processes now. outlast saves the files first, then stops the command; nothing starts\n"
        "it again until `outlast resume`. A supervisor that does not answer is killed. Safe to repeat.",
        epilog="example: outlast kill 1411",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=kill)


def kill(arguments: argparse.Namespace) -> int:
    """`outlast kill`"""
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        killed = control_kill.kill(store, summary.run, Person(messages.tell))
        word = standing.of(store, requests.summary_of(store, summary.run)).word
        typed = store_option.typed(arguments.run, killed.run)
        _, hint = next_act(store, killed.run, typed=typed)
    if arguments.json:
        messages.say_json(killed)
    else:
        _say(killed, words(word), typed, hint)
    return EXIT_FAILED if killed.how == "waits" else 0


def _say(killed: Killed, word: str, typed: str, hint: str) -> None:
    name = messages.safe(f"run {killed.run} of task {killed.task}")
    if killed.how == "not_running":
        say(f"{name} is not running: it is {word}")
    elif killed.how == "waits":
        say(f"asked {name} to stop; its program stops at its next beat or act")
        return
    else:
        say(f"stopped {name} at beat {killed.beats + 1}: {messages.short(killed.evidence, 200)}")
    if killed.last_save and killed.how != "not_running":
        say(messages.pasteable(f"saved as {killed.last_save[:12]}; `outlast saves {typed}` lists it"))
    if hint:
        messages.tell(hint)
