"""settle, pause, resume, cancel, handoff: their command lines. What they do is in `outlast.acts`."""

import argparse
from collections.abc import Callable

from outlast.acts import another as act_another, settle as act_settle, stop
from outlast.cli import chronicle_options, store_option
from outlast.cli.terminal import messages
from outlast.core.events import Finding
from outlast.errors import UsageError


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    _add_settle(commands)
    _add(
        commands, "pause", "stop a run after the act under way; `resume` goes on",
        "Ask a run to stop after the act under way. Nothing is lost, and nothing starts it again until `outlast resume`.", pause,
    )  # fmt: skip
    _add_resume(commands)
    _add(
        commands, "cancel", "stop a run for good",
        "Stop a run for good. Its journal stays. To start the task again, type\n"
        "`outlast run --again …`, or give `again=True` in the program that starts it.", cancel,
    )  # fmt: skip
    command = _add(
        commands, "handoff", "seal a run here so that it can go on elsewhere; or undo that",
        "Seal a run: it cannot be started here any more. `outlast export` does this by itself.", handoff,
    )  # fmt: skip
    command.add_argument(
        "--take-back", action="store_true", help="undo it: the run can be started here again"
    )


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    description: str,
    handler: Callable[[argparse.Namespace], None],
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name, help=text, description=description, epilog=f"example: outlast {name} 1411"
    )
    store_option.add_run(command)
    command.set_defaults(handler=handler)
    return command


def _add_resume(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "resume", help="go on with a run; --all: with every run that died by itself",
        description="Go on with a command that `outlast run` started, also if it is paused, failed or parked. If the run belongs\n"
        "to your own program, resume allows it and you start the program. --all goes on with every run of the store that\n"
        "died without being stopped, each in the background; it lists the others and says why not.",
        epilog="example: outlast resume 1411\n         outlast resume --all --dry-run\n"
        "         outlast resume 1411 --agent codex\n"
        "         outlast resume 1411 --budget +200k\n"
        "exit codes of --all: 0 all started, 1 one did not; else those of `outlast run`",
    )  # fmt: skip
    command.add_argument(
        "run", metavar="RUN", nargs="?", help="a task, a run id or its beginning, or PROJECT:TASK"
    )
    command.add_argument(
        "--accept-rewind", action="store_true",
        help="go on although the store has lost committed events (a restored backup?)",
    )  # fmt: skip
    command.add_argument(
        "--detach", action="store_true", help="go on in the background, also after you log out"
    )
    command.add_argument(
        "--all", action="store_true", help="go on with every run that died by itself, of all projects"
    )
    command.add_argument("--jobs", type=int, metavar="N", help="with --all: start N at a time (default 4)")
    command.add_argument(
        "--dry-run", action="store_true", help="only print what would go on, and why; start nothing"
    )
    command.add_argument(
        "--parked", action="store_true", help="with --all: only runs whose usage limit is over"
    )
    command.add_argument(
        "--now", action="store_true", help="with --all: usage limits are over; do not wait for their times"
    )
    command.add_argument("--json", action="store_true", help="with --all: print JSON")
    command.add_argument(
        "--budget", metavar="LIMIT", action="append",
        help="go on with more budget: +200k, usd=+5, time=+2h on top, or 600k as the new limit; repeatable",
    )  # fmt: skip
    command.add_argument(
        "--until", metavar="TIME", help="stop work at this time: 07:00 (the next), +8h or 2026-11-16T07:00"
    )
    command.add_argument(
        "--agent", metavar="NAME",
        help="go on in another agent CLI (claude, codex, kimi-code, …); give its command after `--` or take the usual one",
    )  # fmt: skip
    chronicle_options.add(command)
    command.add_argument(
        "--woken", action="store_true", help=argparse.SUPPRESS
    )  # given by --all: no person asked for it
    command.usage = "outlast resume [options] [RUN] [--agent NAME [-- CMD …]]"
    command.set_defaults(handler=resume, rest=())


def _add_settle(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "settle", help="say whether an effect in doubt happened",
        description="Say whether an effect in doubt happened: it was begun and has no outcome, so outlast does not know. Look\n"
        "outside first (the remote, the ticket, the mailbox). outlast never repeats such an effect unasked.",
        epilog="example: outlast settle 1411 41.1 --happened --result '{\"url\": \"https://…\"}'\n"
        "         outlast settle 1411 41.1 --did-not      (the next attempt does it)",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument(
        "effect", metavar="EFFECT", help="id of the effect, like 41.1; see `outlast effects RUN`"
    )
    found = command.add_mutually_exclusive_group(required=True)
    found.add_argument(
        "--happened", dest="finding", action="store_const", const="happened", help="it happened"
    )
    found.add_argument(
        "--did-not", dest="finding", action="store_const", const="did_not",
        help="it did not happen; the next attempt does it",
    )  # fmt: skip
    found.add_argument(
        "--give-up", dest="finding", action="store_const", const="give_up",
        help="it cannot be found out; go on without it",
    )  # fmt: skip
    found.add_argument(
        "--another", dest="finding", action="store_const", const="another",
        help="the call that outlast holds is a different one: allow it; this effect stays in doubt",
    )  # fmt: skip
    command.add_argument(
        "--result", metavar="JSON", help="with --happened: the result that the call would have returned"
    )
    command.set_defaults(handler=settle)


def settle(arguments: argparse.Namespace) -> None:
    """`outlast settle`"""
    if arguments.finding == "another":
        _another(arguments)
        return
    finding: Finding = arguments.finding
    try:
        result = None if arguments.result is None else arguments.result.encode()
    except UnicodeEncodeError as error:
        raise UsageError("--result is not valid UTF-8", hint="give JSON as UTF-8") from error
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        messages.tell_outcome(act_settle.plan(store, summary, arguments.effect, finding, result).apply())


def _another(arguments: argparse.Namespace) -> None:
    if arguments.result is not None:
        raise UsageError(
            "only an effect that happened has a result", hint="leave out --result, or say --happened"
        )
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        messages.tell_outcome(act_another.plan(store, summary, arguments.effect).apply())


def pause(arguments: argparse.Namespace) -> None:
    """`outlast pause`"""
    _stop(arguments, "pause")


def cancel(arguments: argparse.Namespace) -> None:
    """`outlast cancel`"""
    _stop(arguments, "cancel")


def resume(arguments: argparse.Namespace) -> int:
    """`outlast resume`"""
    from outlast.cli.commands import resume as commands_resume

    commands_resume.refuse_odd(arguments)
    if arguments.all:
        return commands_resume.resume_all(arguments)
    messages.refuse_blank(arguments, "--budget", "--until")
    return commands_resume.resume_one(arguments)


def handoff(arguments: argparse.Namespace) -> None:
    """`outlast handoff`"""
    _stop(arguments, "take_back" if arguments.take_back else "handoff")


def _stop(arguments: argparse.Namespace, act: stop.Stop) -> None:
    with store_option.opened(arguments) as store:
        messages.tell_outcome(stop.plan(store, store_option.named(arguments, store), act).apply())
