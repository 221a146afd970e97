"""save, saves, diff, restore, bisect, watch: their command lines. The work is done in `operations`."""

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
from outlast.acts import restore as act_restore
from outlast.acts.plan import ActOutcome
from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.messages import clock, safe, say, short
from outlast.cli.terminal.progress import working
from outlast.core.statuses import CLOSED
from outlast.core.text import count_of
from outlast.core.values import scrub
from outlast.errors import UsageError, WorkspaceRefused
from outlast.operations import bisect as operations_bisect, fork as forks, watch as operations_watch
from outlast.operations.saves import diff as saves_diff, restore as saves_restore
from outlast.operations.saves.find import SHORT_CHARS, Found, Made, Saves
from outlast.operations.saves.listing import Point
from outlast.workspace import new_folder
from outlast.workspace.repo import workspace_around
from outlast.workspace.restore import unsaved_files
from outlast.workspace.restore.restore import Options
from outlast.workspace.rules import apart_kind
from outlast.workspace.types import LeftOut, raw, text

LISTED_MAX = 20
LAST = 50

SAVE_HELP = "a commit or its beginning, a ref, RUN@BEAT, or RUN for its newest save"


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
        "save", help="save the files of a workspace now",
        description="Save everything in the workspace, staged or not, tracked or not, under a private ref of its repository.\n"
        "HEAD, branch, index and stash stay as they are. It is not an error if there is nothing to save.",
        epilog='example: outlast save -m "before the refactoring"',
    )  # fmt: skip
    command.add_argument("-m", "--message", metavar="TEXT", default="", help="why you save, in your words")
    _add_workspace(command)
    command.add_argument("--branch", action="store_true", help="also put the save on the branch outlast/TASK")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=save, sentence="message")


def _add_saves(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "saves", help="list the saves of a run or of this repository",
        description="List the saves of a run, or of the repository you are in, newest first.",
        epilog="example: outlast saves 1411",
    )  # fmt: skip
    command.add_argument(
        "run", metavar="RUN", nargs="?", help="a task, a run id or its beginning, or PROJECT:TASK"
    )
    command.add_argument(
        "--last", type=int, metavar="N", help=f"at most N saves (default {LAST}; all with --json)"
    )
    _add_workspace(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=saves)


def _add_diff(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "diff", help="what changed between two saves, or since one",
        description="Print what changed from one save to another, or from a save to now, in the format of `git diff`.",
        epilog="example: outlast diff 1411@3 1411@4\n         outlast diff 9c1e4d2 --stat\n         outlast diff 1411 --whole",
    )  # fmt: skip
    command.add_argument("save", metavar="SAVE", help=SAVE_HELP)
    command.add_argument(
        "other", metavar="SAVE", nargs="?", help="compare with this save (default: the files as they are now)"
    )
    command.add_argument(
        "--whole",
        action="store_true",
        help="with RUN: all that the run changed since it began, commits included",
    )
    how = command.add_mutually_exclusive_group()
    how.add_argument("--stat", action="store_true", help="print only how much each file changed")
    how.add_argument("--name-only", action="store_true", help="print only the names of the files")
    how.add_argument("--json", action="store_true", help="print the files and how much they changed, as JSON")
    _add_workspace(command)
    command.set_defaults(handler=diff)


def _add_restore(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "restore", help="bring the files of a save back",
        description="Bring the workspace back to a save: files, index, branch, a merge in progress. outlast first saves what is\n"
        "there now, and prints the command that undoes the restore. Files that no save holds are not deleted. A workspace\n"
        "that is gone is made again if its repository still exists.",
        epilog="example: outlast restore 1411@12 --dry-run\n         outlast restore 9c1e4d2 --to ../looked-at",
    )  # fmt: skip
    command.add_argument("save", metavar="SAVE", help=SAVE_HELP)
    command.add_argument(
        "--to", metavar="DIR", type=_folder, help="write the files into a new folder instead"
    )
    command.add_argument(
        "--dry-run", "-n", action="store_true", help="only print what would be written and deleted"
    )
    command.add_argument(
        "--force",
        action="store_true",
        help="move a branch back even if it has new commits; restore even if a run works there",
    )
    command.add_argument(
        "--with-secrets",
        action="store_true",
        help="also restore untracked secrets, which are kept separately",
    )
    _add_workspace(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=restore)


def _add_bisect(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "bisect", help="find the first beat at which a command fails",
        description="Find the first beat at which a command fails: run it on the files of several beats, each in a folder of its\n"
        "own. Exit code 0 of the command means good, 125 skips the beat, 126 and above stop, any other means bad.",
        epilog="example: outlast bisect 1411 -- pytest -q tests/test_trap.py",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.usage = "outlast bisect [--json] [--store PATH] [--project PATH] RUN -- CMD …"
    command.set_defaults(handler=bisect, rest=())


def _add_watch(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "watch", help="save worktrees of agents that outlast did not start",
        description="Save the work of agents that outlast did not start: every git worktree in or below the folders is saved when\n"
        "it changes, at most every 30 seconds and once more when it is quiet. Ctrl-C ends it.",
        epilog="example: outlast watch ~/src\n         outlast watch ~/src --once      (for cron)",
    )  # fmt: skip
    command.add_argument(
        "folders", metavar="DIR", nargs="*", type=_folder, help="folders to watch (default: this one)"
    )
    command.add_argument("--once", action="store_true", help="save once what has changed, and end")
    command.add_argument("--json", action="store_true", help="print one JSON document per line")
    command.set_defaults(handler=watch)


def _add_workspace(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--workspace",
        metavar="DIR",
        type=_folder,
        help="work on this folder (default: the repository you are in)",
    )


def _folder(given: str) -> Path:
    """A folder from the command line. `~` is expanded here, because a shell leaves it alone in `--to=~/x`."""
    return Path(os.path.expanduser(given))


@contextlib.contextmanager
def _saves_here(arguments: argparse.Namespace) -> Iterator[Saves]:
    """The saves of the workspace. They need no store."""
    _refuse_nowhere()
    place = store_option.location(arguments)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(store_option.opened(arguments)) if place.exists() else None
        all_saves = Saves(
            place.local, store, store_option.project(arguments, store), getattr(arguments, "workspace", None)
        )
        stack.callback(all_saves.close)
        yield all_saves


def _refuse_nowhere() -> None:
    """Refuse to work in a folder that was removed under the shell."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the folder you are in is gone", hint="`cd` to one that is there, and do this again"
        ) from error


# -- save --------------------------------------------------------------------------------------------------------


def save(arguments: argparse.Namespace) -> None:
    """`outlast save`"""
    with _saves_here(arguments) as all_saves, working(f"saving {all_saves.folder}"):
        branch = arguments.branch or settings.load(all_saves.folder)["save_branch"]
        made = all_saves.save(scrub(arguments.message), branch=branch)
    if arguments.json:
        messages.say_json(made)
        return
    if made.commit is None:
        messages.tell(f"nothing to save: {made.folder} {_why_nothing(made)}")
        return
    say(f"{made.commit}  {made.ref}")
    _tell_made(made)


def _why_nothing(made: Made) -> str:
    return "is empty or unchanged since its last save" if _is_shadow(made) else "is the same as HEAD"


def _is_shadow(made: Made) -> bool:
    return made.shadow


def _tell_made(made: Made) -> None:
    assert made.commit is not None, "there is a save"
    name, there = made.commit[:SHORT_CHARS], _there(made.folder)
    git = f"git --git-dir={shlex.quote(os.fsdecode(raw(made.git_dir)))}"
    messages.tell(f"look at it: `{git} show --stat {name}`; get it back: `outlast restore {name}{there}`")
    if made.branch:
        messages.tell(f"it is also on branch {made.branch}")
    if made.warning:
        messages.tell(f"warning: {made.warning}")
    _tell_left_out(made.left_out)


def _tell_left_out(left_out: Sequence[LeftOut]) -> None:
    for left in left_out[:LISTED_MAX]:
        size = f", {left.size:,} bytes" if left.size else ""
        messages.tell(f"left out: {left.path} ({left.why}{size})")
    if len(left_out) > LISTED_MAX:
        messages.tell(f"  … and {len(left_out) - LISTED_MAX} more; --json lists all")
    if any(apart_kind(left.why) for left in left_out):
        messages.tell(
            "if that is no key: `[save] not_secret` in outlast.toml names files that are no secrets"
        )


# -- saves -------------------------------------------------------------------------------------------------------


def saves(arguments: argparse.Namespace) -> None:
    """`outlast saves`"""
    if arguments.last is not None and arguments.last < 1:
        raise UsageError(f"--last must be 1 or more, got {arguments.last}", hint="like --last 20")
    with _saves_here(arguments) as all_saves, working("reading saves"):
        run = all_saves.run_called(scrub(arguments.run)) if arguments.run is not None else None
        last = arguments.last or (None if arguments.json else LAST)
        found: list[Point] = []
        more = False
        for point in all_saves.listed(run):
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
        messages.tell("no saves" if run is not None else f"no saves in {all_saves.folder}")
    if more:
        messages.tell(f"these are the newest {last}; --last N lists more")


def _rows(found: Sequence[Point]) -> Iterator[list[str]]:
    if found:
        yield ["SAVE", "WHEN", "KIND", "TASK", "BEAT", "FILES", "LEFT OUT", "REF", "WHY"]
    for point in found:
        yield [
            point.commit[:SHORT_CHARS], clock(point.at), point.kind, short(point.task or "-", 30),
            str(point.beat) if point.task else "-", "?" if point.changed is None else f"{point.changed:,}", _left_out(point),
            point.ref.removeprefix("refs/outlast/"), short(point.reason, 60),
        ]  # fmt: skip


def _left_out(point: Point) -> str:
    """How many files the save does not hold, and which."""
    if not point.left_out:
        return "-"
    names = [f"{each.path}{_kind(apart_kind(each.why))}" for each in point.left_out]
    return short(f"{len(names):,}: {', '.join(names)}", 40)


def _kind(kind: str | None) -> str:
    """The kind of a secret that its content gives away."""
    return f" ({kind})" if kind else ""


# -- diff --------------------------------------------------------------------------------------------------------


def diff(arguments: argparse.Namespace) -> None:
    """`outlast diff`"""
    with _saves_here(arguments) as all_saves:
        with working("comparing"):
            old, new = _whole(all_saves, arguments) if arguments.whole else _named(all_saves, arguments)
            if new is None and not old.saver.folder.is_dir():
                raise WorkspaceRefused(
                    f"the workspace {old.saver.folder} is gone, so there is nothing to compare with",
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
            messages.say_bytes(pair.printed(*options))


def _named(all_saves: Saves, arguments: argparse.Namespace) -> tuple[Found, Found | None]:
    old = all_saves.find(scrub(arguments.save))
    return old, all_saves.find(scrub(arguments.other)) if arguments.other is not None else None


def _whole(all_saves: Saves, arguments: argparse.Namespace) -> tuple[Found, Found | None]:
    """From the save that a run began with to the files as they are; of a run that is over, or whose folder is gone, to its newest save."""
    if arguments.other is not None:
        raise UsageError("--whole is of one RUN", hint="leave out the second SAVE, or --whole")
    run = all_saves.run_called(scrub(arguments.save))
    saver = all_saves.saver_of(run)  # says so where it has no workspace
    began = all_saves.began(run)
    if began is None:
        raise UsageError(
            f"nothing says how the files were when run {run.run} began",
            hint=f"`outlast saves {run.run}` lists its saves; compare two of them",
        )
    is_over = run.state.status in CLOSED or not saver.folder.is_dir()
    return began, all_saves.newest(run) if is_over else None


# -- restore -----------------------------------------------------------------------------------------------------


def restore(arguments: argparse.Namespace) -> None:
    """`outlast restore`"""
    options = Options(force=arguments.force, dry_run=arguments.dry_run, with_secrets=arguments.with_secrets)
    outcome: ActOutcome | None = None
    with _saves_here(arguments) as all_saves:
        found = all_saves.find(scrub(arguments.save))
        with working(f"restoring {found.held.commit[:SHORT_CHARS]}"), _explaining_interruption():
            if arguments.to is not None:
                done, outcome = _restore_to(arguments, all_saves, found)
            else:
                done = saves_restore.restore(all_saves, found, options)
        here = unsaved_files.secrets_here(found.saver, found.held)
        line = _fork_line(all_saves, found)
    if arguments.json:
        messages.say_json(done)
        return
    apart = {secret.path: secret.path in here for secret in found.held.meta.secrets}
    kinds = {left.path: _kind(apart_kind(left.why)) for left in found.held.meta.left_out}
    _say_brought(done, apart, kinds, options)
    if outcome is not None:
        messages.tell_outcome(outcome)
    elif line and not done.dry_run:
        messages.tell(f"the journal of the run is unchanged; to go on from there: {line}")


def _fork_line(all_saves: Saves, found: Found) -> str:
    """The command that makes a run that goes on from a save; nothing if the save is of no run."""
    if found.run is None or all_saves.store is None:
        return ""
    return forks.how(all_saves.store, found.run, found.held.meta.beat if found.beat is None else found.beat)


def _restore_to(
    arguments: argparse.Namespace, all_saves: Saves, found: Found
) -> tuple[saves_restore.Restored, ActOutcome | None]:
    """Restore into a new folder; say what was or would be written."""
    plan = act_restore.plan(
        all_saves.store, found, new_folder.place(arguments.to), state=all_saves.local.folder, with_secrets=arguments.with_secrets
    )  # fmt: skip
    if arguments.dry_run:
        if not arguments.json:
            for sentence in plan.sentences:
                messages.tell(sentence)
        return plan.foreseen, None
    done = plan.write()
    return done, plan.outcome(done)


@contextlib.contextmanager
def _explaining_interruption() -> Iterator[None]:
    """Ctrl-C ends a command silently, unless something is left half done: then say what."""
    try:
        yield
    except KeyboardInterrupt as error:
        for note in getattr(error, "__notes__", ()):
            messages.tell(note)
        raise


def _say_brought(
    done: saves_restore.Restored, apart: Mapping[str, bool], kinds: Mapping[str, str], options: Options
) -> None:
    """Print what was done. `apart` says for each secret of the save whether it is kept here, `kinds` what it holds."""
    for path in done.deleted:
        say(f"D  {safe(path)}")
    for path in done.written:
        say(f"W  {safe(path)}")
    would = "would be " if done.dry_run else ""
    if done.recreated:
        branch = f", on branch {done.branch.removeprefix('refs/heads/')}" if done.branch else ""
        messages.tell(f"{done.folder} was gone and {'would be' if done.dry_run else 'is'} made again{branch}")
    counts = f"{count_of(len(done.written), 'file')} {would}written, {len(done.deleted):,} {would}deleted"
    messages.tell(f"{done.folder}: {counts}")
    for path in done.secrets:
        messages.tell(f"secret{kinds.get(path, '')} {would}restored: {path}")
    for path in [path for path in done.left_out if path in apart][:LISTED_MAX]:
        if not options.with_secrets:
            how = (
                "restore it with --with-secrets"
                if apart[path]
                else "not on this machine: put it there yourself"
            )
            messages.tell(f"secret{kinds.get(path, '')}, not in the save: {path} ({how})")
    for path in [path for path in done.left_out if path not in apart][:LISTED_MAX]:
        messages.tell(f"not in the save{'' if done.new or done.recreated else ', left as it is'}: {path}")
    if done.before is not None:
        name, force = done.before[:SHORT_CHARS], " --force" if options.force else ""
        secrets = " --with-secrets" if done.apart else ""
        undo = f"outlast restore {name}{force}{secrets}{_there(done.folder)}"
        messages.tell(f"the files from before are save {name}; undo: `{undo}`")


def _there(folder: str) -> str:
    """The --workspace option for a folder; empty if the person is in that workspace."""
    path, is_here = os.fsdecode(raw(folder)), False
    with contextlib.suppress(FileNotFoundError):  # the restore may have deleted the current folder
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

    with _saves_here(arguments) as all_saves:
        run = all_saves.run_called(scrub(arguments.run))
        done = operations_bisect.bisect(all_saves, run, command, tell)
    if arguments.json:
        messages.say_json(done)
    else:
        _say_bisected(done)
    return 0 if done.outcome in ("found", "first") else 1


def _say_bisected(done: operations_bisect.Bisected) -> None:
    name = done.save[:SHORT_CHARS]
    if done.outcome == "never":
        messages.tell(f"the command never fails: beat {done.good}, the last with a save, is good")
    elif done.outcome == "unclear" and done.beat is None:
        messages.tell("no result: the command skipped every beat")
    else:
        say(f"{done.beat}  {name}  {short(done.step, 60)}".rstrip())
    if done.outcome == "found":
        messages.tell(
            f"beat {done.beat} is the first at which the command fails;"
            f" look: `outlast diff {done.run}@{done.good} {done.run}@{done.beat}`"
        )
    elif done.outcome == "first":
        messages.tell(f"the command fails at beat {done.beat} already, the first with a result")
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
    """Print one line; True for a failure."""
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
