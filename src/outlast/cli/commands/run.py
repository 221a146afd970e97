"""`outlast run -- CMD`: the command line of it. The work is done in `outlast.supervisor`."""

import argparse
import os
import sys
from pathlib import Path

import msgspec

from outlast.cli import chronicle_options, store_option
from outlast.cli.terminal import messages
from outlast.core.secrets import mask
from outlast.errors import RunHeld, UsageError
from outlast.store.protocol import RunFilter
from outlast.supervisor.guardian.link import Link, pair

_WITH_WORDS = (
    "--task", "--issue", "--goal", "--done", "--invariant", "--budget", "--until", "--reserve", "--workspace",
    "--base", "--approve", "--approve-within",
)  # fmt: skip

link: Link | None = None  # to the guardian that started this process


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "run", help="start a command that can be killed and goes on where it stopped",
        description="Run a command under a supervisor. outlast saves its files, keeps its output, finds out why it died and\n"
        "starts it again, within limits. Type the same line again and it goes on where it stopped.",
        epilog='example: outlast run --task 1411 --goal "trap exit signals" --done "make test" -- ./agent.sh\n'
        "exit codes: 0 done, 1 failed, 2 refused, 3 needs a person, 4 budget reached,\n            5 parked, 128+n stopped by signal n",
    )  # fmt: skip
    command.add_argument(
        "--task", metavar="NAME", help="name of the work in this project: an issue number, a slug"
    )
    command.add_argument("--issue", metavar="N", help="number of the issue, for active_state.json")
    command.add_argument("--goal", metavar="TEXT", help="what must be true in the end")
    command.add_argument(
        "--done",
        metavar="CMD",
        action="append",
        help="a check that must pass before the run is done; repeatable",
    )
    command.add_argument(
        "--invariant",
        metavar="CMD",
        action="append",
        help="a check that must pass at the end of each beat; repeatable",
    )
    _add_budget(command)
    _add_place(command)
    _add_terms(command)
    chronicle_options.add(command)
    command.add_argument("--as-step", action="store_true", help=argparse.SUPPRESS)  # by `outlast step`
    command.usage = "outlast run [options] -- CMD …"
    command.set_defaults(handler=run, rest=())


def _add_budget(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--budget", metavar="LIMIT", action="append",
        help="400k (tokens), usd=12, time=8h, beats=500, window=80%%; repeatable. auto: predict it from earlier runs",
    )  # fmt: skip
    command.add_argument(
        "--until", metavar="TIME", help="stop work at this time: 07:00 (the next), +8h or 2026-11-16T07:00"
    )
    command.add_argument(
        "--reserve", metavar="SHARE", help="share of the budget kept for wrapping up (default 10%%)"
    )


def _add_place(command: argparse.ArgumentParser) -> None:
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--workspace", metavar="DIR", help="the folder to save (default: the repository you are in)"
    )
    where.add_argument(
        "--worktree",
        metavar="DIR",
        nargs="?",
        const="",
        help="work in a new worktree, on the branch outlast/TASK",
    )
    command.add_argument(
        "--base", metavar="REF", help="with --worktree: where the branch starts (default HEAD)"
    )
    command.add_argument(
        "--share", action="store_true", help="work in a folder where another run works already"
    )


def _add_terms(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--detach", action="store_true", help="run in the background, also after you log out"
    )
    command.add_argument(
        "--headless", action="store_true", help="give the command no terminal, even if there is one"
    )
    command.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        default=5,
        help="fail the run after N attempts with failing checks (default 5); 0 is like 1",
    )
    command.add_argument(
        "--restarts", type=int, metavar="N", default=50, help="at most N attempts in all (default 50)"
    )
    command.add_argument(
        "--parks", type=int, metavar="N", default=6,
        help="wait for at most N usage limits in a row without progress (default 6); then it needs a person",
    )  # fmt: skip
    command.add_argument(
        "--stall",
        type=int,
        metavar="N",
        default=30,
        help="stop an agent after N beats without anything new (default 30); 0: never",
    )
    command.add_argument(
        "--files",
        choices=("keep", "rewind"),
        default="keep",
        help="on resume: keep the files as they are (default), or rewind them to the last beat",
    )
    command.add_argument(
        "--plain", action="store_true", help="treat an agent that outlast knows like any other command"
    )
    command.add_argument(
        "--guard",
        action="store_true",
        help="record each outward call of any command; after a kill look it up, replay or hold it",
    )
    command.add_argument(
        "--accept-unknown",
        action="store_true",
        help="exit 0 even if some outward calls of an agent or a guarded command have an unknown outcome",
    )
    command.add_argument(
        "--gateway", nargs="?", const="", metavar="yes",
        help="count tokens with a proxy between the agent and its model; with a subscription only as --gateway=yes",
    )  # fmt: skip
    command.add_argument(
        "--approve", metavar="LIST",
        help="outward calls that wait for a person: classes and targets, as push,publish,'*prod*'; all: every one",
    )  # fmt: skip
    command.add_argument(
        "--approve-within",
        metavar="AGE",
        help="how long they wait before they count as rejected (default 24h); 0s: for ever",
    )
    command.add_argument("--moved", action="store_true", help="you moved HEAD on purpose: go on from there")
    command.add_argument("--amend", action="store_true", help="change the goal, checks or budget on purpose")
    command.add_argument(
        "--again", action="store_true", help="start a new run of a task that is done, failed or cancelled"
    )


def run(arguments: argparse.Namespace) -> int:
    """`outlast run`"""
    from outlast.supervisor import start
    from outlast.supervisor.person import Person

    messages.refuse_blank(arguments, *_WITH_WORDS)
    options = chronicle_options.read(arguments)
    if arguments.detach:
        return _detach(arguments)
    if min(arguments.rounds, arguments.stall, arguments.parks) < 0 or arguments.restarts < 1:
        raise UsageError(
            "--rounds, --stall and --parks must be 0 or more, --restarts 1 or more",
            hint="`outlast run --help` explains them",
        )
    if arguments.base is not None and arguments.worktree is None:
        raise UsageError("--base needs --worktree", hint="add --worktree, or leave --base out")
    request = start.RunRequest(
        words=tuple(arguments.rest), task=arguments.task or "", issue=arguments.issue or "", goal=arguments.goal,
        done=_commands(arguments.done), invariants=_commands(arguments.invariant), budget=_commands(arguments.budget),
        until=arguments.until, reserve=arguments.reserve,
        workspace=arguments.workspace, cwd=str(Path.cwd()), store=arguments.store, project=_project(arguments),
        files=arguments.files,
        rounds=arguments.rounds, restarts=arguments.restarts, parks=arguments.parks, stall=arguments.stall, share=arguments.share, amend=arguments.amend,
        again=arguments.again, moved=arguments.moved, plain=arguments.plain, guard=arguments.guard, accept_unknown=arguments.accept_unknown, gateway=arguments.gateway,
        approve=arguments.approve, approve_within=arguments.approve_within,
        headless=arguments.headless or arguments.detach, as_step=arguments.as_step,
    )  # fmt: skip
    start.check(request)
    if arguments.worktree is not None:
        folder, setup = _worktree(arguments)
        request = msgspec.structs.replace(request, workspace=str(folder), cwd=str(folder), setup=setup)
    try:
        return start.start(request, to_guardian(), Person(say, quiet=options.quiet), options)
    except RunHeld as error:
        name = store_option.typed(arguments.task or error.name, error.name)
        error.hint = f"`outlast output {name} -f` shows what it prints; wait for it, or stop it with `outlast kill {name}`"
        raise


def _project(arguments: argparse.Namespace) -> str | None:
    """The project that --project means, as other commands will find it."""
    if arguments.project is None or not store_option.location(arguments).exists():
        return None if arguments.project is None else store_option.project(arguments, None)
    with store_option.opened(arguments) as store:
        return store_option.project(arguments, store)


def _detach(arguments: argparse.Namespace) -> int:
    """Start the same line in the background, in its own session. Returns when the command runs or was refused."""
    from outlast.supervisor.launch import background

    local = store_option.location(arguments).local
    words = list(sys.argv[1:])
    words.remove("--detach")
    begun = background.start(words, local, Path.cwd(), pass_fds=chronicle_options.passed_fds(arguments))
    if begun.code is not None:
        sys.stderr.write(begun.output)
        return begun.code
    name = store_option.typed(begun.task, begun.run)
    messages.say(messages.safe(f"task {begun.task} runs in the background as run {begun.run}"))
    messages.say(f"  {messages.command(f'output {name} -f')}    shows what it prints")
    messages.say(f"  {messages.command(f'kill {name}')}         saves and stops it")
    return 0


def _worktree(arguments: argparse.Namespace) -> tuple[Path, str]:
    """The worktree to work in, with its copied files; and the command that sets it up."""
    from outlast import settings
    from outlast.supervisor.worktree import copy, make

    if not arguments.task:
        raise UsageError(
            "--worktree needs --task: the branch is named after the task", hint="add --task NAME"
        )
    lost = _lost(arguments)
    if lost is not None:
        return lost, settings.load(lost.parent)["worktree_setup"]
    to = Path(arguments.worktree) if arguments.worktree else None
    found = settings.load()
    patterns = settings.words(found["worktree_copy"])
    copy.check(patterns)
    made = make.make(Path.cwd(), arguments.task, to=to, base=arguments.base)
    for path, why in copy.copy_into(made, patterns).skipped:
        say(f"{path} was not copied into {made.folder}: {why}")
    if not getattr(arguments, "quiet", False):
        say(f"works in {made.folder}, on branch {made.branch}")
    return made.folder, found["worktree_setup"]


def _lost(arguments: argparse.Namespace) -> Path | None:
    """The workspace of an unfinished run of this task, if it is gone and a save can bring it back."""
    if not store_option.location(arguments).exists():
        return None
    with store_option.opened(arguments) as store:
        where = RunFilter(
            task=arguments.task, project=store_option.project(arguments, store), parent="", open_only=True
        )
        for summary in store.list(where, limit=1):
            folder = summary.state.workspace
            if summary.state.save_point and folder and not os.path.lexists(folder):
                return Path(folder)
    return None


def _commands(given: list[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)


def to_guardian() -> Link:
    """The link to our guardian; without one, a link that nobody reads."""
    if link is not None:
        return link
    ours, theirs = pair()
    theirs.close()
    return Link(ours)


def say(text: str) -> None:
    """Print our own words on stderr, without control characters and without secrets that a check printed."""
    from outlast.supervisor.launch import launch
    from outlast.supervisor.output import sanitize

    text = messages.typed(text)
    messages.tell(f"outlast: {sanitize.hidden(mask(text)[0], launch.known_secrets())}")
    sys.stderr.flush()
