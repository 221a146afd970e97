"""`outlast demo`: the command line of it. The story is in `outlast.chaos.demo`."""

import argparse
import signal
import sys

from outlast.cli.terminal.messages import complain, say
from outlast.cli.timing import Timing


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "demo", help="watch an agent being killed with -9, resumed, and finishing",
        description="Kill a scripted agent between an act and its record and resume it; then do the same without outlast.\n"
        "It works offline, in a temporary folder. Exit code 0 only if the counts are as promised.",
        epilog="example: outlast demo",
    )  # fmt: skip
    command.set_defaults(handler=demo)


def demo(arguments: argparse.Namespace) -> int:
    """`outlast demo`"""
    from outlast.chaos.demo.demo import StoryWentWrong, play

    def tell(line: str) -> None:
        say(line)
        sys.stdout.flush()

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the folder is removed
    try:
        came_out = play(tell, pace_s=Timing.current().demo_pace_s if sys.stdout.isatty() else 0.0)
    except StoryWentWrong as error:
        complain(str(error), "try again; if it happens again, this is a bug in outlast")
        return 1
    say()
    if not came_out:
        complain("the counts are not what this demo promises", "this is a bug in outlast")
        return 1
    say("The comment was posted once with outlast, twice without. Next: `outlast --help`")
    return 0
