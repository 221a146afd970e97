"""fork, export, import: their command lines. The work is done in `operations`."""

import argparse
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.progress import working
from outlast.core.secrets import mask
from outlast.core.text import count_of
from outlast.errors import RunRefused
from outlast.operations.transfer import archive

if TYPE_CHECKING:
    from outlast.acts import fork as act_fork

LISTED_MAX = 20


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    _add_fork(commands)
    command = commands.add_parser(
        "export", help="write a run into one file, to go on elsewhere",
        description="Write a run with its children, payloads, saves and agent sessions into one file. The run is then sealed here\n"
        "(handed off), so that it goes on in one place only; with --copy it stays open here, and the import is a fork.\n"
        "Secrets are masked in the journal and in the transcripts, but not in the files of the workspace. Untracked\n"
        "secrets, which saves keep separately, never leave this store.",
        epilog="example: outlast export 1411 -o 1411.outlast.tar.gz",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="the file to write, or the folder to write it into"
    )
    command.add_argument("--copy", action="store_true", help="leave the run open here")
    command.add_argument(
        "--with-secrets", action="store_true", help="mask nothing; untracked secrets still stay here"
    )
    command.add_argument("--json", action="store_true", help="print what was written, as JSON")
    command.set_defaults(handler=export)
    command = commands.add_parser(
        "import", help="take in an exported run",
        description="Take in an exported run under its own id and keys, as a task of this project. outlast checks the whole file\n"
        "before it writes anything. The saves become refs of the repository you are in, or of --workspace; HEAD, branches,\n"
        "index and files stay as they are. If --workspace does not exist, or you are in no repository, a folder is made\n"
        "from the saves.",
        epilog="example: outlast import 1411.outlast.tar.gz --workspace ~/src/app",
    )  # fmt: skip
    command.add_argument("file", metavar="FILE", type=Path, help="the file that `outlast export` wrote")
    command.add_argument(
        "--workspace", metavar="DIR", type=Path, help="where the run will work: a clone or a new folder"
    )
    command.add_argument("--task", metavar="NAME", help="task of the fork (only for an export with --copy)")
    command.add_argument("--json", action="store_true", help="print what was imported, as JSON")
    command.set_defaults(handler=import_)


def _add_fork(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "fork", help="start a new run from an earlier beat of another",
        description="Make a new run that shares the past of another up to the end of a beat. The new run may repeat effects that\n"
        "the other did later: outlast lists them and asks first.",
        epilog="example: outlast fork 1411 --at 12 --task 1411-again --budget 100k",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument(
        "--at", type=int, required=True, metavar="BEAT", help="fork after this beat; 0 is before the first"
    )
    command.add_argument("--task", metavar="NAME", help="task of the new run (default: TASK-fork-N)")
    command.add_argument(
        "--budget",
        action="append",
        metavar="AMOUNT",
        help="budget to move from the source: 100k, usd=5, beats=20; repeatable",
    )
    command.add_argument(
        "--to", metavar="DIR", type=Path, help="write the files as that beat left them into a new folder"
    )
    command.add_argument("--yes", "-y", action="store_true", help="do not ask")
    command.add_argument("--json", action="store_true", help="print the new run, as JSON")
    command.set_defaults(handler=fork)


def fork(arguments: argparse.Namespace) -> None:
    """`outlast fork`"""
    from outlast.acts import fork as act_fork
    from outlast.workspace import new_folder

    folder = new_folder.place(arguments.to) if arguments.to is not None else None
    with store_option.opened(arguments) as store:
        source = store_option.named(arguments, store)
        plan = act_fork.plan(
            store, source, arguments.at, task=arguments.task, amounts=arguments.budget or (), folder=folder
        )
        if plan.again and not arguments.yes:
            _confirm(plan)
        with working(f"forking {source.run}"):
            outcome = plan.apply()
    if outcome.error is None and arguments.json:
        document = {"run": outcome.link, "task": plan.task, "source": source.run, "at": arguments.at}
        messages.say_json({**document, "made": outcome.changed, "workspace": plan.workspace})
        return
    if outcome.error is None:
        messages.say(f"{messages.safe(plan.task)}  {outcome.link}")
    messages.tell_outcome(outcome)
    if folder is not None:
        messages.tell(_started_in(str(folder)))
        if plan.is_shadow:
            messages.tell("give the same --project too: that folder is not in a repository")


def _confirm(plan: "act_fork.ForkPlan") -> None:
    """The world might see twice what the source did after the save point: ask the person."""
    for sentence in plan.sentences:
        messages.tell(sentence)
    refused = RunRefused("not forked: it may do them again", hint="add --yes if that is all right")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise refused
    sys.stderr.write("fork anyway? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise refused


def export(arguments: argparse.Namespace) -> None:
    """`outlast export`"""
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        with working(f"exporting {summary.run}"):
            written = archive.export(
                store, summary, arguments.output, copy=arguments.copy, with_secrets=arguments.with_secrets
            )
    if arguments.json:
        messages.say_json(written)
        return
    messages.say(messages.safe(written.path))
    messages.tell(
        f"{count_of(written.events, 'event')}, {count_of(written.blobs, 'payload')}, {written.size:,} bytes"
    )
    _tell_files(written)
    _tell_sessions(written)
    if written.masked:
        _tell_masked(written)
    if written.sealed_before:
        messages.tell("the run was handed off before: make sure that it is imported at one place only")
    elif not written.copy:
        messages.tell(f"sealed here; `outlast handoff {written.run} --take-back` undoes that")


def _tell_files(written: archive.Exported) -> None:
    if written.bundle_bytes:
        messages.tell(
            f"files: {written.bundle_bytes:,} bytes, with the commits they are based on; nothing in them is masked"
        )
    elif written.no_files:
        messages.tell(f"without files: {written.no_files}")
    if written.secrets_left:
        messages.tell(f"untracked secrets stay here: {_listed(written.secrets_left)}")


def _tell_sessions(written: archive.Exported) -> None:
    if written.sessions:
        size = sum(each.size for each in written.sessions)
        kinds = sorted({kind for each in written.sessions for kind in each.masked})
        masked = f"; masked in it: {', '.join(kinds)}" if kinds else ""
        whose = _sessions((each.agent, each.session) for each in written.sessions)
        messages.tell(f"agent session: {whose}, {size:,} bytes{masked}")
    if written.sessions_left:
        size = sum(each.size for each in written.sessions_left)
        whose = _sessions((each.agent, each.session) for each in written.sessions_left)
        messages.tell(f"left out {size:,} bytes of {whose}: no room; a fresh session will go on instead")


def _sessions(named: Iterable[tuple[str, str]]) -> str:
    return _listed(tuple(dict.fromkeys(messages.safe(f"{agent} {session}") for agent, session in named)))


def _listed(names: Sequence[str]) -> str:
    more = f" … and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return ", ".join(names[:LISTED_MAX]) + more


def _tell_masked(written: archive.Exported) -> None:
    """List the masked values: a beat that is repeated elsewhere gets them masked."""
    messages.tell(f"{len(written.masked):,} values are masked; --with-secrets keeps them:")
    for each in written.masked[:LISTED_MAX]:
        messages.tell(f"  {each.run} event {each.seq}  {each.event} {each.field}: {', '.join(each.kinds)}")
    if len(written.masked) > LISTED_MAX:
        messages.tell(f"  … and {len(written.masked) - LISTED_MAX} more; --json lists all")


def import_(arguments: argparse.Namespace) -> None:
    """`outlast import`"""
    with store_option.opened(arguments, make=True) as store:
        of_its_own = arguments.workspace is not None and arguments.project is None
        project = None if of_its_own else store_option.project(arguments, store)
        with working(f"importing {arguments.file}"):
            taken = archive.import_run(
                store, arguments.file, project, task=arguments.task, workspace=arguments.workspace
            )
    if arguments.json:
        messages.say_json(taken)
        return
    messages.say(f"{messages.safe(taken.task)}  {taken.run}")
    messages.tell(f"task {taken.task} of project {taken.project}, after beat {taken.beats}")
    if taken.masked:
        messages.tell(f"{taken.masked:,} values were masked by the export; `outlast log` shows them masked")
    _tell_workspace(taken)
    if taken.sessions:
        whose = _sessions((each.agent, each.session) for each in taken.sessions)
        masked = ", masked" if any(each.masked for each in taken.sessions) else ""
        how = "; the fork starts a session of its own" if taken.copy else "; `outlast resume` goes on in it"
        messages.tell(f"imported the agent's session{masked}: {whose}{how}")
    messages.tell(f"it came from {taken.came_from}")
    if taken.command:
        messages.tell(f"it runs this command: {mask(shlex.join(taken.command))[0]}")
    for command in taken.commands:
        messages.tell(f"its contract runs this command here: {mask(command)[0]}")
    if taken.command:
        messages.tell(
            f"nothing of it runs before `outlast resume {taken.run}`, or before you start its task here yourself"
        )


def _started_in(folder: str) -> str:
    """How to start a run in another folder than before."""
    return f"start it with --workspace {shlex.quote(folder)}, in a program workspace={folder!r}"


def _tell_workspace(taken: archive.Imported) -> None:
    if not taken.workspace:
        return
    brought = taken.files
    start = _started_in(taken.workspace)
    if brought is None:
        there = "" if os.path.isdir(taken.workspace) else ", which is not here"
        messages.tell(f"no files were exported; the run worked in {taken.workspace}{there}")
        return
    if brought.new:
        messages.tell(f"its files are in {brought.workspace}; {start}")
    else:
        messages.tell(f"its saves are in the repository of {brought.workspace}; {start}")
    if brought.head_differs and not brought.new:
        was = brought.branch.removeprefix("refs/heads/") or "no branch"
        messages.tell(
            f"the run left HEAD on {was} at {brought.head[:12] or 'no commit'}; here HEAD is elsewhere. Start it with --moved (in a"
            f" program moved=True) to move HEAD there, or use `outlast restore {taken.run} --to DIR` and leave this folder alone"
        )
    if brought.secrets:
        messages.tell(f"untracked secrets were not exported: {_listed(brought.secrets)}")
