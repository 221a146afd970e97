"""`outlast help`: the same texts as `--help`."""

import argparse

from outlast.cli import help as layout
from outlast.cli.terminal import messages
from outlast.core.text import did_you_mean
from outlast.errors import UsageError


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "help", help="print this text, or the help of one command",
        description="Print all commands, or the help of one command: the same as `outlast COMMAND --help`.",
        epilog="example: outlast help run",
    )  # fmt: skip
    command.add_argument("about", metavar="COMMAND", nargs="*", help="the command to explain")
    command.set_defaults(handler=explain)


def explain(arguments: argparse.Namespace) -> None:
    """`outlast help`"""
    from outlast.cli.main import parser

    found = parser()
    for word in arguments.about:
        known = _commands(found)
        if word not in known:
            visible = [name for name in known if not name.startswith("_")]
            raise UsageError(
                f"no such command: {word}",
                hint=did_you_mean(word, visible, form="`outlast help {}`")
                or "`outlast --help` lists the commands",
            )
        found = known[word]
    text = found.format_help() if arguments.about else layout.overview(found)
    messages.say(text.rstrip("\n"))


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands below a parser, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
