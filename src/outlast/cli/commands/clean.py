"""`outlast clean`: the command line of it. The work is done in `outlast.supervisor.worktree.remove`."""

import argparse
from pathlib import Path

from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.progress import working
from outlast.core.values import scrub
from outlast.errors import UsageError
from outlast.operations.saves.find import SHORT_CHARS, Saves
from outlast.store.protocol import Summary
from outlast.supervisor.worktree import remove
from outlast.supervisor.worktree.remove import Cleared, UnsavedFile

LISTED = 20


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "clean", help="remove the worktrees of closed runs",
        description="Remove worktrees that outlast made: those of runs that are done, cancelled or handed off, or that of RUN.\n"
        "outlast saves a worktree first, and removes it only if everything in it is on a branch or in a save. It says what\n"
        "it keeps and why. No branch is deleted. Exit code 1 if a worktree is kept.",
        epilog="example: outlast clean --dry-run\n         outlast clean 1411",
    )  # fmt: skip
    command.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="only the worktree of this run",
    )
    command.add_argument("--dry-run", "-n", action="store_true", help="only print what would be removed")
    command.add_argument(
        "--ignored",
        action="store_true",
        help="remove it even if files that git ignores and no save holds are lost",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=clean)


def clean(arguments: argparse.Namespace) -> int:
    """`outlast clean`"""
    options = remove.Options(dry_run=arguments.dry_run, ignored=arguments.ignored)
    with store_option.opened(arguments) as store:
        saves = Saves(store.local, store, store_option.project(arguments, store), None)
        try:
            run = saves.run_called(scrub(arguments.run)) if arguments.run is not None else None
            common = _common(saves, run)
            with working("cleaning"):
                found = remove.clear(saves, common, run, options)
        finally:
            saves.close()
    if run is not None and not found:
        raise UsageError(
            f"run {run.run} of task {run.task} has no worktree that outlast made",
            hint="see `git worktree list`",
        )
    if arguments.json:
        messages.say_json(found)
    else:
        _say(found, dry_run=options.dry_run)
    return 0 if all(each.removed for each in found) else 1


def _common(saves: Saves, run: Summary | None) -> Path:
    """The git folder whose worktrees are meant: that of the run's workspace while it is there, else of the project."""
    if run is not None and run.state.workspace and Path(run.state.workspace).is_dir():
        return saves.saver_of(run).repo().common_dir
    return Path(run.project if run is not None else saves.project)


def _say(found: list[Cleared], *, dry_run: bool) -> None:
    for each in found:
        if each.removed:
            save = f"   save {each.save[:SHORT_CHARS]}" if each.save else ""
            word = "would go" if dry_run else "removed"
            messages.say(f"{word}  {messages.safe(each.folder)}   branch {messages.safe(each.branch)}{save}")
        else:
            messages.say(f"kept     {messages.safe(each.folder)}   {messages.safe(each.why)}")
        _tell(each.unsaved)
        _tell(each.ignored)
    if not found:
        messages.tell("outlast has made no worktree here")


def _tell(files: tuple[UnsavedFile, ...]) -> None:
    for each in files[:LISTED]:
        messages.tell(f"  {each.path} ({each.why}, {each.size:,} bytes)")
    if len(files) > LISTED:
        messages.tell(f"  … and {len(files) - LISTED} more; --json lists all")
