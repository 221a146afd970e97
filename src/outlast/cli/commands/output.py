"""`outlast output`: what the agent of a run printed."""

import argparse
import contextlib
import sys
from collections.abc import Iterator

import msgspec

from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.errors import UsageError
from outlast.store.protocol import Store, Summary
from outlast.supervisor.guardian import lock
from outlast.supervisor.output import log_reader
from outlast.supervisor.output.log import part_path


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "output", help="what the agent printed; --follow waits for more",
        description="Print the output of the newest attempt: each line with time and stream, control characters escaped and\n"
        "secrets masked. --follow waits for more, also of later attempts, until the run stops.",
        epilog="example: outlast output 1411 -f\n         outlast output 1411 --attempt 2",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument("--follow", "-f", action="store_true", help="wait for more and print it")
    command.add_argument(
        "--attempt", type=int, metavar="N", help="the output of attempt N (default: the newest)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON document per line")
    command.set_defaults(handler=output)


class _Line(msgspec.Struct, frozen=True):
    at: str
    stream: str
    text: str
    continues: bool


def output(arguments: argparse.Namespace) -> None:
    """`outlast output`"""
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        for line in _lines(store, summary, arguments.attempt, follow=arguments.follow):
            if arguments.json:
                found = log_reader.parsed(line)
                messages.say_json_line(_Line(found.at, found.stream, found.text, found.continues))
            else:
                messages.say("\t".join(messages.safe(part) for part in line.split("\t")))
            if arguments.follow:
                sys.stdout.flush()


def _lines(store: Store, summary: Summary, attempt: int | None, *, follow: bool) -> Iterator[str]:
    folder = store.local.run_folder(summary.run)

    def rests() -> bool:
        """Whether no attempt is alive and no supervisor waits to start one."""
        watcher = lock.of(store.local, summary.root)
        return not store.holder_lives(summary.root) and (watcher is None or not watcher.supervisor)

    lives = follow and not rests()
    there = log_reader.attempts(folder)
    if attempt is None and not there and not lives:
        raise UsageError(
            f"run {summary.run} of task {summary.task} has no recorded output",
            hint=f"outlast records the output of `outlast run -- CMD`; see `outlast log {summary.run}`",
        )
    if attempt is not None and attempt not in there:
        known = (
            f"attempts with output: {', '.join(map(str, there[-8:]))}"
            if there
            else f"see `outlast show {summary.run}`"
        )
        raise UsageError(f"attempt {attempt} of run {summary.run} has no recorded output", hint=known)
    number = attempt if attempt is not None else max(there, default=1)
    follows = lives and number >= max(there, default=1)
    reading = log_reader.read_log(part_path(folder, number, 0), follow=follows, stop=rests)
    with contextlib.closing(reading):
        yield from reading
