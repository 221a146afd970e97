"""`--quiet` and `--json-lines`, which `run` and `resume` share."""

import argparse
from typing import TYPE_CHECKING

from outlast.cli.terminal import messages

if TYPE_CHECKING:
    from outlast.supervisor.chronicle.options import ChronicleOptions


def add(command: argparse.ArgumentParser) -> None:
    """Add the options that say what a person and a program are told meanwhile."""
    command.add_argument(
        "-q", "--quiet", action="store_true", help="print nothing but errors and what needs a person"
    )
    command.add_argument(
        "--json-lines", metavar="FILE|FD",
        help="append a line of JSON for each event: to a file, a FIFO or an open descriptor",
    )  # fmt: skip


def read(arguments: argparse.Namespace) -> "ChronicleOptions":
    """What these options say. Raises UsageError for a place that cannot take JSON lines."""
    from outlast.supervisor.chronicle import json_lines
    from outlast.supervisor.chronicle.options import ChronicleOptions

    where = arguments.json_lines
    if where is not None:
        messages.refuse_blank(arguments, "--json-lines")
        json_lines.refuse_unusable(where)
    return ChronicleOptions(quiet=arguments.quiet, json_lines=where or "")


def passed_fds(arguments: argparse.Namespace) -> tuple[int, ...]:
    """The descriptor that a process in the background writes JSON lines to, if it is one."""
    where = arguments.json_lines or ""
    return (int(where),) if where.isdigit() else ()
