"""`outlast top`: all runs, live in the terminal; `--once` prints them. Drawing is in `terminal/screen`."""

import argparse
import gc
import os
import sys
from datetime import UTC, datetime

from outlast import settings
from outlast.cli import store_option
from outlast.cli.terminal import columns, messages
from outlast.cli.terminal.messages import say
from outlast.dashboard.documents import PAGE_ROWS, Ask, Overview
from outlast.dashboard.overview import filters, verdict
from outlast.dashboard.overview.index import Index
from outlast.errors import UsageError

EXIT_PERSON = 3


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "top", help="all runs, live in the terminal; those that need you first",
        description="Show the runs of all projects, live, those that need you first; ? shows the keys. --once prints them and\n"
        "ends; so does `outlast top` without a terminal. --once exits with 3 if a run needs a person.",
        epilog="example: outlast top --once",
    )  # fmt: skip
    command.add_argument("--once", action="store_true", help="print the runs once and end")
    command.add_argument("--json", action="store_true", help="with --once: print JSON")
    command.add_argument(
        "--page",
        type=int,
        metavar="N",
        help=f"with --once: print page N ({PAGE_ROWS} runs per page; {filters.SIZE_MAX} as JSON)",
    )
    command.set_defaults(handler=top)


def top(arguments: argparse.Namespace) -> int:
    """`outlast top`"""
    prints = arguments.once or arguments.json or not _has_screen()
    if arguments.page is not None and (arguments.page < 1 or not prints):
        raise UsageError("--page needs --once, and a number from 1", hint="`outlast top --once --page 2`")
    if arguments.store is None and not store_option.location(arguments).exists():
        return _once(arguments, filters.overview([], Ask(), datetime.now(UTC), 0))
    with store_option.opened(arguments) as store:
        project = "" if arguments.project is None else store_option.project(arguments, store)
        index = Index(store)
        ask = Ask(
            grouped=False, page=arguments.page or 1, size=filters.SIZE_MAX if arguments.json else PAGE_ROWS
        )
        if prints:
            return _once(arguments, index.overview(ask, within=project))
        from outlast.cli.terminal import screen

        gc.freeze()  # the collector would scan thousands of permanent rows each time
        if screen.show(store, index, project):
            return 0
        return _once(arguments, index.overview(ask, within=project))


def _has_screen() -> bool:
    return os.isatty(0) and sys.stdout.isatty() and settings.variable("TERM") not in ("", "dumb")


def _once(arguments: argparse.Namespace, overview: Overview) -> int:
    if arguments.json:
        messages.say_json(overview)
    elif not overview.total:
        messages.tell("no runs yet; `outlast run -- COMMAND` starts one")
    else:
        _say(overview)
    return EXIT_PERSON if overview.needs_total else 0


def _say(overview: Overview) -> None:
    say(headline(overview))
    blocks = _shows_blocks()
    made = [columns.cells(row, overview.at, blocks=blocks) for row in overview.rows]
    for cells, row in zip(made, overview.rows, strict=True):
        help_line = columns.helps(row)
        why = messages.short(cells["WHY"], 100)
        cells["WHY"] = f"{why}{'   ' if why and help_line else ''}{help_line}"
    titles, *lines = columns.table(made)
    say(titles)
    before = ""
    for line, row in zip(lines, overview.rows, strict=True):
        if row.what != before:
            say(row.what)
            before = row.what
        say(line)
    if overview.page < overview.pages:
        rest = overview.found - overview.page * PAGE_ROWS
        messages.tell(f"{rest:,} more: `outlast top --once --page {overview.page + 1}`")


def headline(overview: Overview) -> str:
    """The verdict in the words of the page, then the number of runs of each sort, and what they spent."""
    counts = {count.name: count.runs for count in overview.all_whats}
    counts |= {"stuck": overview.stuck, "idle": overview.idle}
    kinds = ("running", "stuck", "idle", "stopped", "done")
    counted = [f"{counts[kind]:,} {kind}" for kind in kinds if counts.get(kind)]
    spent = overview.all_spent or overview.spent
    amounts = [
        *([f"{spent.tokens:,} tokens"] if spent.tokens else []),
        *([f"${spent.cost_microusd / 1e6:,.2f}"] if spent.cost_microusd else []),
    ]
    return "; ".join(filter(None, (verdict.verdict(overview)[0], ", ".join(counted), ", ".join(amounts))))


def _shows_blocks() -> bool:
    """Whether stdout can print the characters of a bar."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
