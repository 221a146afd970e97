"""`outlast rm`: the command line of it. What may go is judged in `outlast.acts.forget`."""

import argparse
import sys

from outlast.acts import forget as act_forget
from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.progress import working
from outlast.core.values import scrub
from outlast.errors import RunRefused
from outlast.inspect import find


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "rm", help="forget a run: journal, logs and saves",
        description="Remove a run with all that outlast keeps of it: journal, logs, copies of transcripts, child runs, and the saves\n"
        "that no fork needs. Your files, repository and branches stay. Refused while it is at work, while an effect is in doubt,\n"
        "or while its worktree has work that nobody committed. After a kill, type the same again.",
        epilog="example: outlast rm 1411 --dry-run\n         outlast rm 1411 --yes",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument(
        "--yes", "-y", action="store_true", help="do not ask; without a terminal it is needed"
    )
    command.add_argument(
        "--force",
        action="store_true",
        help="also with effects in doubt, or work in its worktree that nobody committed",
    )
    command.add_argument("--dry-run", "-n", action="store_true", help="only print what would go")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=rm)


def rm(arguments: argparse.Namespace) -> None:
    """`outlast rm`"""
    with store_option.opened(arguments) as store:
        run = find.find(store, scrub(arguments.run), store_option.project(arguments, store))
        with working("looking"):
            plan = act_forget.plan(store, run, force=arguments.force)
        if arguments.dry_run:
            if arguments.json:
                messages.say_json(plan.foreseen)
                return
            for sentence in plan.sentences:
                messages.tell(sentence)
            return
        if not arguments.yes:
            _confirm(plan)
        with working(f"removing {run.run}"):
            done = plan.remove()
    if arguments.json:
        messages.say_json(done)
        return
    messages.tell(act_forget.removed(done))
    for warning in done.warnings:
        messages.tell(f"warning: {warning}; `outlast gc` tries again")


def _confirm(plan: act_forget.ForgetPlan) -> None:
    """It cannot be undone: ask the person."""
    for sentence in plan.sentences:
        messages.tell(sentence)
    refused = RunRefused("nothing was removed", hint="add --yes if all that may go")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise refused
    sys.stderr.write("forget it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise refused
