"""`outlast help`: the same texts as `--help`."""

import argparse

from outlast.cli import help as layout
from outlast.cli.terminal import messages
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

    found, above = parser(), ""
    for word in arguments.about:
        known = _commands(found)
        if word in _choices(found):
            break  # `service install`: the help of `service` explains it
        if word not in known:
            visible = [name for name in known if not name.startswith("_")]
            raise UsageError(
                f"no such command: {above}{word}",
                hint=layout.nearest(word, visible, f"`outlast help {above}{{}}`")
                or (f"`outlast help {above.strip()}`" if above else "`outlast --help` lists the commands"),
            )
        found, above = known[word], f"{above}{word} "
    text = found.format_help() if arguments.about else layout.overview(found)
    messages.say(text.rstrip("\n"))


def _choices(parser: argparse.ArgumentParser) -> list[str]:
    """The words that a command takes as its argument, as `install` of `service`; none where commands stand below it."""
    plain = (each for each in parser._actions if not each.option_strings and not _commands(parser))
    return [str(choice) for action in plain for choice in action.choices or ()]


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands below a parser, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
