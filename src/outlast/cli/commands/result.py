"""apply, undo: their command lines. The work is done in `acts` and `operations`."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

from outlast.acts import apply as act_apply, undo as act_undo
from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.messages import safe, say
from outlast.cli.terminal.progress import working
from outlast.core.values import scrub
from outlast.errors import UsageError
from outlast.operations.result import Applied, Wish
from outlast.operations.saves.find import SHORT_CHARS, Saves
from outlast.store.protocol import Store

LISTED_MAX = 200
_REFUSED = 2
_LETTERS = {"added": "A", "changed": "M", "deleted": "D"}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    _add_apply(commands)
    _add_undo(commands)


def _add_apply(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "apply", help="take the result of a run over into this repository",
        description="Take over what a run made, in its worktree or its newest save, into the repository you are in. Its commits\n"
        "come as commits, what it had not committed as changes of your files. What is here is saved first. With conflicts, or\n"
        "where you changed the same files, nothing is changed: exit code 2. After a kill, type the same again.",
        epilog="example: outlast apply 1411 --dry-run\n         outlast apply 1411",
    )  # fmt: skip
    store_option.add_run(command)
    how = command.add_mutually_exclusive_group()
    how.add_argument("--merge", action="store_true", help="merge it into the branch you are on (default)")
    how.add_argument(
        "--patch",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write it as a patch to a new FILE, else to stdout",
    )
    how.add_argument("--branch", metavar="NAME", help="put it on a new branch; your files stay as they are")
    command.add_argument("--dry-run", "-n", action="store_true", help="only print what would change")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=apply)


@contextlib.contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[tuple[Store, Saves]]:
    """The store, and the saves as seen from the folder around a person."""
    with store_option.opened(arguments) as store:
        saves = Saves(store.local, store, store_option.project(arguments, store), None)
        try:
            yield store, saves
        finally:
            saves.close()


def apply(arguments: argparse.Namespace) -> int:
    """`outlast apply`"""
    wish = _wish(arguments)
    with opened(arguments) as (store, saves):
        run = saves.run_called(scrub(arguments.run))
        with working(f"applying {run.run}"):
            done, patch = act_apply.take(store, saves, run, wish, dry_run=arguments.dry_run)
    if arguments.json:
        messages.say_json(done)
        return _REFUSED if done.is_refused else 0
    if wish.mode == "patch" and wish.to is None and not done.dry_run:
        messages.say_bytes(patch)
    else:
        _say(done)
    if not done.dry_run:
        act_apply.refuse(done)
    for sentence in act_apply.sentences(done):
        messages.tell(sentence)
    if done.before is not None:
        force = "" if done.commit == done.onto else " --force"
        name = done.before[:SHORT_CHARS]
        messages.tell(f"the files from before are save {name}; undo: `outlast restore {name}{force}`")
    return _REFUSED if done.is_refused else 0


def _wish(arguments: argparse.Namespace) -> Wish:
    if arguments.branch is not None:
        return Wish(mode="branch", branch=scrub(arguments.branch))
    if arguments.patch is None:
        return Wish()
    if not arguments.patch:
        raise UsageError("--patch is empty", hint="like --patch 1411.patch, or `--patch` alone for stdout")
    to = None if arguments.patch == "-" else Path.cwd() / arguments.patch
    if to is None and arguments.json and not arguments.dry_run:
        raise UsageError("--json and a patch cannot both go to stdout", hint="name a file: --patch FILE")
    return Wish(mode="patch", to=to)


def _say(done: Applied) -> None:
    """Print the files that change, and those that keep it from happening, on stdout."""
    for conflict in done.conflicts[:LISTED_MAX]:
        say(f"C  {safe(conflict.path)}   {safe(conflict.why)}")
    for obstacle in done.in_the_way[:LISTED_MAX]:
        say(f"!  {safe(obstacle.path)}   {obstacle.why}")
    if not done.is_refused:
        for file in done.files[:LISTED_MAX]:
            say(f"{_LETTERS[file.change]}  {safe(file.path)}")
        if len(done.files) > LISTED_MAX:
            messages.tell(f"  … and {len(done.files) - LISTED_MAX:,} more; --json lists all")


# -- undo --------------------------------------------------------------------------------------------------------------


def _add_undo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "undo", help="go back before the last turn of a run in this folder",
        description="Bring back files, index, HEAD and branch as they were before the last turn (beat) of a run in this folder, or\n"
        "before the run. Each call goes one turn further back. What is there is saved first; --undo takes the last undo back.\n"
        "The journal of the run stays as it is. Refused while a run is at work there.",
        epilog="example: outlast undo --dry-run\n         outlast undo\n         outlast undo --undo",
    )  # fmt: skip
    command.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="this run, in its own folder (default: the newest run of the folder you are in)",
    )
    how = command.add_mutually_exclusive_group()
    how.add_argument("--turn", action="store_true", help="back before its last turn (default)")
    how.add_argument("--run", dest="whole", action="store_true", help="back before it began")
    how.add_argument("--undo", action="store_true", help="bring back what the last undo took away")
    command.add_argument("--force", action="store_true", help="also move a branch back that has new commits")
    command.add_argument("--dry-run", "-n", action="store_true", help="only print what would change")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=undo)


def undo(arguments: argparse.Namespace) -> None:
    """`outlast undo`"""
    with opened(arguments) as (store, saves):
        named = arguments.run is not None
        run = saves.run_called(scrub(arguments.run)) if named else act_undo.run_here(saves)
        with working("undoing"):
            done = act_undo.take(
                store, saves, run, "run" if arguments.whole else "turn", back=arguments.undo, force=arguments.force,
                dry_run=arguments.dry_run,
            )  # fmt: skip
    if arguments.json:
        messages.say_json(done)
        return
    for path in done.deleted[:LISTED_MAX]:
        say(f"D  {safe(path)}")
    for path in done.written[:LISTED_MAX]:
        say(f"W  {safe(path)}")
    for sentence in act_undo.sentences(done):
        messages.tell(sentence)
    if done.dry_run or done.what == "undo":
        return
    again = f"outlast undo {run.run} --undo" if named else "outlast undo --undo"
    messages.tell(
        f"`{again}` brings it back; `outlast undo{f' {run.run}' if named else ''}` goes one turn further back"
    )
