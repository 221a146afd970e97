"""The files of a workspace: save, saves, diff, restore, bisect, watch. What they do lives in `operations.saves`."""

import argparse
import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import msgspec

from outlast import settings
from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.messages import clock, safe, say, short
from outlast.cli.terminal.progress import working
from outlast.core.values import scrub
from outlast.errors import UsageError, WorkspaceRefused
from outlast.operations import bisect as operations_bisect, watch as operations_watch
from outlast.operations.saves import diff as saves_diff, restore as saves_restore
from outlast.operations.saves.find import SHORT_CHARS, Made, Saves
from outlast.operations.saves.listing import Point
from outlast.workspace import new_folder
from outlast.workspace.repo import workspace_around
from outlast.workspace.restore import unsaved_files
from outlast.workspace.restore.restore import Options
from outlast.workspace.types import LeftOut, raw, text

LISTED_MAX = 20
LAST = 50

SAVE_HELP = "a commit or its beginning, a ref, RUN@BEAT, or a RUN for its newest save"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    _add_save(commands)
    _add_saves(commands)
    _add_diff(commands)
    _add_restore(commands)
    _add_bisect(commands)
    _add_watch(commands)


def _add_save(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "save", help="save the files of a workspace as they are now",
        description="Save everything in the workspace, staged or not, tracked or not, under a private ref of its own\n"
        "repository. HEAD, branch, index and stash are not touched. Nothing to save is no error.",
        epilog='example: outlast save -m "before the refactoring"',
    )  # fmt: skip
    command.add_argument("-m", "--message", metavar="TEXT", default="", help="why, in your words")
    _add_workspace(command)
    command.add_argument("--branch", action="store_true", help="also put it on a branch outlast/TASK")
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(handler=save)


def _add_saves(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "saves", help="list saves of a run or of this repository",
        description="The saves of a run, or of the repository around this folder, newest first.",
        epilog="example: outlast saves 1411",
    )  # fmt: skip
    command.add_argument(
        "run", metavar="RUN", nargs="?", help="a task, a run id or its beginning, or PROJECT:TASK"
    )
    command.add_argument("--last", type=int, metavar="N", help=f"at most so many ({LAST}; with --json all)")
    _add_workspace(command)
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(handler=saves)


def _add_diff(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "diff", help="what changed between two saves, or since one",
        description="What changed from one save to another, or from a save to what is there now, as `git diff` says it.",
        epilog="example: outlast diff 1411@3 1411@4\n         outlast diff 9c1e4d2 --stat",
    )  # fmt: skip
    command.add_argument("save", metavar="SAVE", help=SAVE_HELP)
    command.add_argument("other", metavar="SAVE", nargs="?", help="another; without it: what is there now")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--stat", action="store_true", help="only how much of which file")
    how.add_argument("--name-only", action="store_true", help="only which files")
    how.add_argument("--json", action="store_true", help="which files and how much, as JSON")
    _add_workspace(command)
    command.set_defaults(handler=diff)


def _add_restore(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "restore", help="bring the files of a save back",
        description="Make the workspace what it was at a save: files, index, branch, a merge under way. What is there\n"
        "now is saved first, and the last line says how to undo it. What no save holds is not deleted. A workspace\n"
        "that is gone is made again, as long as its repository is there.",
        epilog="example: outlast restore 1411@12 --dry-run\n         outlast restore 9c1e4d2 --to ../looked-at",
    )  # fmt: skip
    command.add_argument("save", metavar="SAVE", help=SAVE_HELP)
    command.add_argument("--to", metavar="DIR", type=_folder, help="into a new folder instead")
    command.add_argument(
        "--dry-run", "-n", action="store_true", help="only say what would be written and deleted"
    )
    command.add_argument(
        "--force",
        action="store_true",
        help="move a branch back that has moved on; do not ask who works there",
    )
    command.add_argument(
        "--with-secrets", action="store_true", help="also untracked secrets that were kept apart"
    )
    _add_workspace(command)
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(handler=restore)


def _add_bisect(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "bisect", help="find the first beat at which a command fails",
        description="Run a command on the files of beats, each in a folder of its own, until the first beat is found at\n"
        "which it fails. Its exit code: 0 good, 125 cannot be told, 126 and above stop, the rest bad.",
        epilog="example: outlast bisect 1411 -- pytest -q tests/test_trap.py",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument("--json", action="store_true", help="as JSON")
    command.usage = "outlast bisect [--json] [--store PATH] [--project PATH] RUN -- CMD …"
    command.set_defaults(handler=bisect, rest=())


def _add_watch(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "watch", help="save any worktree under a folder when it changes",
        description="A rescue net for agents that outlast did not start: every git worktree in or under the folders is\n"
        "saved when it changes, at most once in 30 seconds and once more when it is quiet. Ctrl-C ends it.",
        epilog="example: outlast watch ~/src\n         outlast watch ~/src --once      (for cron)",
    )  # fmt: skip
    command.add_argument(
        "folders", metavar="DIR", nargs="*", type=_folder, help="where to look (default: this folder)"
    )
    command.add_argument("--once", action="store_true", help="save all that changed once, and end")
    command.add_argument("--json", action="store_true", help="one JSON document a line")
    command.set_defaults(handler=watch)


def _add_workspace(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--workspace",
        metavar="DIR",
        type=_folder,
        help="work on this folder (default: the repository around this one)",
    )


def _folder(given: str) -> Path:
    """A folder as the command line names it; `~` is the home also where no shell made it so, as in `--to=~/x`."""
    return Path(os.path.expanduser(given))


@contextlib.contextmanager
def _desk(arguments: argparse.Namespace) -> Iterator[Saves]:
    """Where saves are handled. There need not be a store: saves are made and found without one."""
    _refuse_nowhere()
    place = store_option.location(arguments)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(store_option.opened(arguments)) if place.exists() else None
        desk = Saves(
            place.local, store, store_option.project(arguments, store), getattr(arguments, "workspace", None)
        )
        stack.callback(desk.close)
        yield desk


def _refuse_nowhere() -> None:
    """Where a worktree was removed, a shell may still stand in it."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the folder you are in is gone", hint="`cd` to one that is there, and do this again"
        ) from error


# -- save --------------------------------------------------------------------------------------------------------


def save(arguments: argparse.Namespace) -> None:
    """`outlast save`"""
    with _desk(arguments) as desk, working(f"saving {desk.folder}"):
        branch = arguments.branch or settings.load(desk.folder)["save_branch"]
        made = desk.save(scrub(arguments.message), branch=branch)
    if arguments.json:
        messages.say_json(made)
        return
    if made.commit is None:
        messages.tell(f"nothing to save: {made.folder} {_why_nothing(made)}")
        return
    say(f"{made.commit}  {made.ref}")
    _tell_made(made)


def _why_nothing(made: Made) -> str:
    return "is empty, or as its last save has it" if _is_shadow(made) else "is as HEAD says"


def _is_shadow(made: Made) -> bool:
    return made.git_dir.endswith("/shadow.git")


def _tell_made(made: Made) -> None:
    assert made.commit is not None, "there is a save"
    name, there = made.commit[:SHORT_CHARS], _there(made.folder)
    around = f"git -C {shlex.quote(os.fsdecode(raw(made.folder)))}" if there else "git"
    git = f"git --git-dir={shlex.quote(made.git_dir)}" if _is_shadow(made) else around
    messages.tell(f"look at it: `{git} show --stat {name}`; get it back: `outlast restore {name}{there}`")
    if made.branch:
        messages.tell(f"it is on branch {made.branch} too")
    if made.warning:
        messages.tell(f"warning: {made.warning}")
    _tell_left_out(made.left_out)


def _tell_left_out(left_out: Sequence[LeftOut]) -> None:
    for left in left_out[:LISTED_MAX]:
        size = f", {left.size:,} bytes" if left.size else ""
        messages.tell(f"left out: {left.path} ({left.why}{size})")
    if len(left_out) > LISTED_MAX:
        messages.tell(f"  … and {len(left_out) - LISTED_MAX} more; --json lists all")


# -- saves -------------------------------------------------------------------------------------------------------


def saves(arguments: argparse.Namespace) -> None:
    """`outlast saves`"""
    if arguments.last is not None and arguments.last < 1:
        raise UsageError(f"--last {arguments.last} makes no sense", hint="give 1 or more")
    with _desk(arguments) as desk, working("reading saves"):
        run = desk.run_called(scrub(arguments.run)) if arguments.run is not None else None
        last = arguments.last or (None if arguments.json else LAST)
        found: list[Point] = []
        more = False
        for point in desk.listed(run):
            if last is not None and len(found) == last:
                more = True
                break
            found.append(point)
    if arguments.json:
        messages.say_json(found)
        return
    for line in messages.table(_rows(found)):
        say(line)
    if not found:
        messages.tell("no saves" if run is not None else f"no saves in {desk.folder}")
    if more:
        messages.tell(f"these are the last {last}; --last N shows more")


def _rows(found: Sequence[Point]) -> Iterator[list[str]]:
    if found:
        yield ["SAVE", "WHEN", "KIND", "TASK", "BEAT", "FILES", "LEFT OUT", "REF", "WHY"]
    for point in found:
        yield [
            point.commit[:SHORT_CHARS], clock(point.at), point.kind, short(point.task or "-", 30),
            str(point.beat) if point.task else "-", "?" if point.changed is None else f"{point.changed:,}", f"{len(point.left_out):,}" if point.left_out else "-",
            point.ref.removeprefix("refs/outlast/"), short(point.reason, 60),
        ]  # fmt: skip


# -- diff --------------------------------------------------------------------------------------------------------


def diff(arguments: argparse.Namespace) -> None:
    """`outlast diff`"""
    with _desk(arguments) as desk:
        with working("comparing"):
            old = desk.find(scrub(arguments.save))
            new = desk.find(scrub(arguments.other)) if arguments.other is not None else None
            if new is None and not old.saver.folder.is_dir():
                raise WorkspaceRefused(
                    f"the workspace {old.saver.folder} is gone: there is nothing to compare with",
                    hint=f"bring it back with `outlast restore {old.held.commit[:SHORT_CHARS]}`, or name another SAVE",
                )
        with saves_diff.compared(old, new) as pair:
            if arguments.json:
                to = new.held.commit if new is not None else None
                messages.say_json(
                    saves_diff.Difference(
                        from_=old.held.commit, to=to, folder=text(old.saver.folder), files=pair.files()
                    )
                )
                return
            options = ["--stat"] if arguments.stat else ["--name-only"] if arguments.name_only else []
            _say_bytes(pair.printed(*options))


def _say_bytes(text: bytes) -> None:
    """As git said it for a program; for a terminal without what would steer it."""
    sys.stdout.flush()
    if not sys.stdout.isatty() and hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(text)
        return
    for line in text.decode(errors="backslashreplace").split("\n")[:-1]:
        say("\t".join(safe(part) for part in line.split("\t")))


# -- restore -----------------------------------------------------------------------------------------------------


def restore(arguments: argparse.Namespace) -> None:
    """`outlast restore`"""
    options = Options(force=arguments.force, dry_run=arguments.dry_run, with_secrets=arguments.with_secrets)
    with _desk(arguments) as desk:
        found = desk.find(scrub(arguments.save))
        with working(f"restoring {found.held.commit[:SHORT_CHARS]}"), _told_if_interrupted():
            if arguments.to is not None:
                done = saves_restore.restore_to(
                    found,
                    new_folder.place(arguments.to),
                    dry_run=options.dry_run,
                    with_secrets=options.with_secrets,
                )
            else:
                done = saves_restore.restore(desk, found, options)
        here = unsaved_files.secrets_here(found.saver, found.held)
    if arguments.json:
        messages.say_json(done)
        return
    apart = {kept.path: kept.path in here for kept in found.held.meta.secrets}
    _say_brought(done, apart, options)
    if found.run is not None and not done.dry_run:
        beat = found.held.meta.beat if found.beat is None else found.beat
        messages.tell(
            f"its journal stays as it is; a run that goes on from there: `outlast fork {found.run.run} --at {beat} --to DIR`"
        )


@contextlib.contextmanager
def _told_if_interrupted() -> Iterator[None]:
    """Ctrl-C ends a command without a word, but not where it leaves something half done."""
    try:
        yield
    except KeyboardInterrupt as error:
        for note in getattr(error, "__notes__", ()):
            messages.tell(note)
        raise


def _say_brought(done: saves_restore.Restored, apart: Mapping[str, bool], options: Options) -> None:
    """What was done. Of secrets that the save has `apart` it is told whether they are kept here."""
    for path in done.deleted:
        say(f"D  {safe(path)}")
    for path in done.written:
        say(f"W  {safe(path)}")
    would = "would be " if done.dry_run else ""
    if done.recreated:
        branch = f", on branch {done.branch.removeprefix('refs/heads/')}" if done.branch else ""
        messages.tell(f"{done.folder} was gone: it {'would be' if done.dry_run else 'is'} made again{branch}")
    counts = f"{len(done.written):,} files {would}written, {len(done.deleted):,} {would}deleted"
    messages.tell(f"{done.folder}: {counts}")
    for path in done.secrets:
        messages.tell(f"secret {would}brought back: {path}")
    for path in [path for path in done.left_out if path in apart][:LISTED_MAX]:
        if not options.with_secrets:
            how = "bring it back with --with-secrets" if apart[path] else "not here: put it there yourself"
            messages.tell(f"secret, kept apart: {path} ({how})")
    for path in [path for path in done.left_out if path not in apart][:LISTED_MAX]:
        messages.tell(f"not in the save{'' if done.new or done.recreated else ', left as it is'}: {path}")
    if done.before is not None:
        name, force = done.before[:SHORT_CHARS], " --force" if options.force else ""
        secrets = " --with-secrets" if done.apart else ""
        undo = f"outlast restore {name}{force}{secrets}{_there(done.folder)}"
        messages.tell(f"what was there is save {name}; undo: `{undo}`")


def _there(folder: str) -> str:
    """The option with which a command works on a folder; none where that is the workspace around the person."""
    path, is_here = os.fsdecode(raw(folder)), False
    with contextlib.suppress(
        FileNotFoundError
    ):  # a restore may have deleted the folder that the person is in
        is_here = str(workspace_around(Path.cwd())) == path
    return "" if is_here else f" --workspace {shlex.quote(path)}"


# -- bisect ------------------------------------------------------------------------------------------------------


def bisect(arguments: argparse.Namespace) -> int:
    """`outlast bisect`"""
    command = list(arguments.rest)
    if not command:
        raise UsageError("no command to try", hint="like `outlast bisect 1411 -- pytest -q`")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that folders are removed

    def tell(probe: operations_bisect.Probe) -> None:
        step = f" ({short(probe.step, 40)})" if probe.step else ""
        messages.tell(f"beat {probe.beat}{step}: {probe.verdict}, exit code {probe.exit_code}")

    with _desk(arguments) as desk:
        run = desk.run_called(scrub(arguments.run))
        done = operations_bisect.bisect(desk, run, command, tell)
    if arguments.json:
        messages.say_json(done)
    else:
        _say_bisected(done)
    return 0 if done.outcome in ("found", "first") else 1


def _say_bisected(done: operations_bisect.Bisected) -> None:
    name = done.save[:SHORT_CHARS]
    if done.outcome == "never":
        messages.tell(f"it never fails: beat {done.good} is the last with a save, and good")
    elif done.outcome == "unclear" and done.beat is None:
        messages.tell("nothing can be told: it was skipped at every beat")
    else:
        say(f"{done.beat}  {name}  {short(done.step, 60)}".rstrip())
    if done.outcome == "found":
        messages.tell(
            f"beat {done.beat} is the first at which it fails;"
            f" look: `outlast diff {done.run}@{done.good} {done.run}@{done.beat}`"
        )
    elif done.outcome == "first":
        messages.tell(f"it fails at beat {done.beat} already, the first that can be told")
    elif done.outcome == "unclear" and done.beat is not None:
        beats = ", ".join(str(beat) for beat in done.skipped)
        messages.tell(f"good at beat {done.good}, bad at beat {done.beat}; skipped: {beats}")


# -- watch -------------------------------------------------------------------------------------------------------


class _Line(msgspec.Struct, frozen=True):
    commit: str
    ref: str
    kind: str
    left_out: tuple[LeftOut, ...]
    folder: str


def watch(arguments: argparse.Namespace) -> int:
    """`outlast watch`"""
    local = store_option.location(arguments).local
    folders = arguments.folders or [Path.cwd()]
    if arguments.once:
        failed = [_say_event(event, arguments.json) for event in operations_watch.once(folders, local)]
        return 1 if any(failed) else 0
    ended = threading.Event()
    caught: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        caught.append(number)
        ended.set()
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    for event in operations_watch.watch(folders, local, ended.wait):
        _say_event(event, arguments.json)
    return 128 + caught[0]


def _say_event(event: operations_watch.Event, as_json: bool) -> bool:
    """One line; whether it tells of a failure."""
    if event.error is not None:
        messages.tell(f"error: {event.folder}: {event.error}")
    elif event.save is None:
        messages.tell(f"watching {event.folder}")
    elif as_json:
        saved = event.save
        messages.say_json_line(_Line(saved.commit, saved.ref, saved.kind, saved.left_out, text(event.folder)))
    else:
        files = f"{event.save.taken:,} read, {event.save.removed:,} gone"
        say(
            f"{clock(event.save.at)}  {event.save.commit[:SHORT_CHARS]}  {safe(os.fspath(event.folder))}  {files}"
        )
    sys.stdout.flush()
    return event.error is not None
