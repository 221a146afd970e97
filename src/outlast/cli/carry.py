"""Carrying runs on: fork, export, import."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from outlast.cli import place, terminal
from outlast.errors import RunRefused
from outlast.runs import archive, show
from outlast.runs import fork as forks
from outlast.runs.terms import budget_of

LISTED_MAX = 20


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    _add_fork(commands)
    command = commands.add_parser(
        "export", help="write a run into one file and seal it here",
        description="Write a run with its children and payloads into one file. It is sealed here (handed off), so\n"
        "that it goes on in one place only; --copy leaves it live, and the import becomes a fork.",
        epilog="example: outlast export 1411 -o 1411.outlast.tar.gz",
    )  # fmt: skip
    place.add_run(command)
    command.add_argument("-o", "--output", metavar="FILE", type=Path, help="file or folder to write into")
    command.add_argument("--copy", action="store_true", help="leave the run live here")
    command.add_argument("--json", action="store_true", help="what was written, as JSON")
    command.set_defaults(handler=export)
    command = commands.add_parser(
        "import", help="take in a run that was exported",
        description="Take a run in under its own id and keys, as a task of this project. Everything in the file is\n"
        "verified before anything is written.",
        epilog="example: outlast import 1411.outlast.tar.gz",
    )  # fmt: skip
    command.add_argument("file", metavar="FILE", type=Path, help="what `outlast export` wrote")
    command.add_argument("--task", metavar="NAME", help="the fork's task (only for a --copy)")
    command.add_argument("--json", action="store_true", help="what is here now, as JSON")
    command.set_defaults(handler=import_)


def _add_fork(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "fork", help="a new run from a save point of another",
        description="A new run that shares the past of another up to the end of a beat, and goes its own way from\n"
        "there. What the other did later, it may do again: that is listed and asked about.",
        epilog="example: outlast fork 1411 --at 12 --task 1411-again --budget 100k",
    )  # fmt: skip
    place.add_run(command)
    command.add_argument(
        "--at", type=int, required=True, metavar="BEAT", help="after this beat; 0 is before the first"
    )
    command.add_argument("--task", metavar="NAME", help="the new run's task (default: TASK-fork-N)")
    command.add_argument(
        "--budget", action="append", metavar="AMOUNT", help="moved from the source: 100k, usd=5, beats=20"
    )
    command.add_argument("--yes", "-y", action="store_true", help="do not ask")
    command.add_argument("--json", action="store_true", help="the new run, as JSON")
    command.set_defaults(handler=fork)


def fork(arguments: argparse.Namespace) -> None:
    """`outlast fork`"""
    budget = budget_of(arguments.budget)
    with place.opened(arguments) as store:
        source = place.named(arguments, store)
        plan = forks.prepare(store, source, at=arguments.at, task=arguments.task, budget=budget)
        if plan.again and not plan.exists and not arguments.yes:
            _confirm(source.run, plan.again)
        run = forks.make(store, plan)
    if arguments.json:
        terminal.say_json({"run": run, "task": plan.opened.task, "source": source.run, "at": arguments.at})
    else:
        terminal.say(f"{terminal.safe(plan.opened.task)}  {run}")
        terminal.tell(
            f"start its command with task {plan.opened.task} and it goes on after beat {arguments.at}"
        )


def _confirm(source: str, again: Sequence[show.Effect]) -> None:
    """The fork has keys of its own: what the source did after the save point, the world would see twice."""
    terminal.tell(f"run {source} did {len(again)} later effects, which the fork may do again:")
    for effect in again[:LISTED_MAX]:
        terminal.tell(f"  {effect.id}  {effect.name}  {effect.state.replace('_', ' ')}")
    if len(again) > LISTED_MAX:
        terminal.tell(f"  … and {len(again) - LISTED_MAX} more; see `outlast effects {source}`")
    refused = RunRefused("not forked: it may do them again", hint="add --yes if that is all right")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise refused
    sys.stderr.write("fork all the same? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise refused


def export(arguments: argparse.Namespace) -> None:
    """`outlast export`"""
    with place.opened(arguments) as store:
        summary = place.named(arguments, store)
        written = archive.export(store, summary, arguments.output, copy=arguments.copy)
    if arguments.json:
        terminal.say_json(written)
        return
    terminal.say(terminal.safe(written.path))
    terminal.tell(f"{written.events:,} events, {written.blobs:,} payloads, {written.size:,} bytes")
    if written.sealed_before:
        terminal.tell("it was handed off before: make sure that it is taken in at one place only")
    elif not written.copy:
        terminal.tell(f"sealed here; `outlast handoff {written.run} --take-back` undoes that")


def import_(arguments: argparse.Namespace) -> None:
    """`outlast import`"""
    with place.opened(arguments, make=True) as store:
        project = place.project(arguments, store)
        taken = archive.import_run(store, arguments.file, project, task=arguments.task)
    if arguments.json:
        terminal.say_json(taken)
        return
    terminal.say(f"{terminal.safe(taken.task)}  {taken.run}")
    terminal.tell(f"task {taken.task} of project {taken.project}, after beat {taken.beats}")
    for command in taken.commands:
        terminal.tell(f"its contract runs here: {command}")
