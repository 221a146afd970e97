"""Asking something of a run: settle, pause, resume, cancel, handoff. The acts are in `outlast.operations.requests`."""

import argparse
from collections.abc import Callable

from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.core.events import Finding
from outlast.errors import UsageError
from outlast.inspect import find
from outlast.operations import requests
from outlast.operations.requests import Outcome
from outlast.runs.opening.terms import in_words
from outlast.store.protocol import Store


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    _add_settle(commands)
    _add(
        commands, "pause", "stop a run after the act under way; it rests until `resume`",
        "Ask a run to stop after the act under way. It keeps everything and rests until `outlast resume`.", pause,
    )  # fmt: skip
    _add_resume(commands)
    _add(
        commands, "cancel", "stop a run for good",
        "Stop a run for good. What it did stays recorded; a new run of the task needs\n"
        "`outlast run --again`, or `again=True` in a program that starts it.", cancel,
    )  # fmt: skip
    command = _add(
        commands, "handoff", "seal a run so that it can go on elsewhere",
        "Seal a run: it will not start here any more. `outlast export` does this by itself.", handoff,
    )  # fmt: skip
    command.add_argument("--take-back", action="store_true", help="undo it: the run goes on here after all")


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
        "resume", help="go on with a run, or with all that died without anybody's wish",
        description="Go on with a command that `outlast run` carried, also if it is paused, failed or parked. A run of a\n"
        "program of your own may be started again: start that, and it goes on. With --all: every run of this\n"
        "store that died without anybody's wish, each in the background; the others are listed with why not.",
        epilog="example: outlast resume 1411\n         outlast resume --all --dry-run\n"
        "         outlast resume 1411 --agent codex\n"
        "         outlast resume 1411 --budget +200k\n"
        "exit codes of --all: 0 all that should go on do, 1 one does not; else those of `outlast run`",
    )  # fmt: skip
    command.add_argument(
        "run", metavar="RUN", nargs="?", help="a task, a run id or its beginning, or PROJECT:TASK"
    )
    command.add_argument(
        "--accept-rewind", action="store_true",
        help="the store lost acknowledged events (a restored backup?); I looked, go on from what is there",
    )  # fmt: skip
    command.add_argument("--detach", action="store_true", help="go on in the background, also after logout")
    command.add_argument(
        "--all", action="store_true", help="all that died without anybody's wish, of all projects"
    )
    command.add_argument(
        "--jobs", type=int, metavar="N", help="with --all: so many at a time are being started (4)"
    )
    command.add_argument(
        "--dry-run", action="store_true", help="only say what would go on, and why; nothing is started"
    )
    command.add_argument(
        "--parked", action="store_true", help="with --all: only those that waited for a quota, which is back"
    )
    command.add_argument("--json", action="store_true", help="with --all: as JSON")
    command.add_argument(
        "--budget", metavar="LIMIT", action="append",
        help="go on with more: +200k, usd=+5, time=+2h on top, or 600k as the new limit; repeatable",
    )  # fmt: skip
    command.add_argument("--until", metavar="TIME", help="it may work until 07:00, +8h, 2026-11-16T07:00")
    command.add_argument(
        "--agent", metavar="NAME",
        help="go on in another agent CLI (claude, codex, kimi-code, …), with its usual command or the one after `--`",
    )  # fmt: skip
    command.add_argument(
        "--woken", action="store_true", help=argparse.SUPPRESS
    )  # by --all: no person asks for it
    command.usage = "outlast resume [options] [RUN] [--agent NAME [-- CMD …]]"
    command.set_defaults(handler=resume, rest=())


def _add_settle(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "settle", help="say what became of an effect in doubt",
        description="An effect in doubt was intended and has no outcome: nobody knows whether it happened. Look\n"
        "outside (the remote, the ticket, the mailbox), then say what you found. It is never repeated unasked.",
        epilog="example: outlast settle 1411 41.1 --happened --result '{\"url\": \"https://…\"}'\n"
        "         outlast settle 1411 41.1 --did-not      (the next attempt does it)",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument("effect", metavar="EFFECT", help="its id, like 41.1; see `outlast effects RUN`")
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
        help="nobody will find out; go on without it",
    )  # fmt: skip
    command.add_argument("--result", metavar="JSON", help="what it would have returned (with --happened)")
    command.set_defaults(handler=settle)


def settle(arguments: argparse.Namespace) -> None:
    """`outlast settle`"""
    finding: Finding = arguments.finding
    given = "null" if arguments.result is None else arguments.result
    try:
        result = given.encode()
    except UnicodeEncodeError as error:
        raise UsageError("--result is not valid UTF-8", hint="give JSON as UTF-8") from error
    if arguments.result is not None and finding != "happened":
        raise UsageError("only what happened has a result", hint="leave out --result, or say --happened")
    with store_option.opened(arguments) as store:
        run = store_option.named(arguments, store).run
        outcome = requests.settle(store, run, arguments.effect, finding, result)
        left = len(find.doubts(store, requests.root_of(store, run).state))
    said = {"happened": "happened", "did_not": "did not happen", "give_up": "is given up"}[finding]
    _report(outcome, f"effect {arguments.effect} {said}")
    if left and not outcome.asked:
        messages.tell(f"{left} more in doubt; see `outlast show {store_option.typed(arguments.run, run)}`")


def pause(arguments: argparse.Namespace) -> None:
    """`outlast pause`"""
    _act(arguments, requests.pause, "paused")


def cancel(arguments: argparse.Namespace) -> None:
    """`outlast cancel`"""
    _act(arguments, requests.cancel, "cancelled")


def resume(arguments: argparse.Namespace) -> int:
    """`outlast resume`"""
    from outlast.cli.commands import resume as commands_resume

    commands_resume.refuse_odd(arguments)
    if arguments.all:
        return commands_resume.resume_all(arguments)
    messages.refuse_blank(arguments, "--budget", "--until")
    if arguments.dry_run:
        return commands_resume.foresee(arguments)
    commands_resume.check_agent(arguments)
    if not arguments.woken:
        _allow_again(arguments)
    return commands_resume.resume_one(arguments)


def _allow_again(arguments: argparse.Namespace) -> None:
    """A person asks for it, so that what rests may start, and the attempts so far count no more."""
    from outlast.cli.commands import resume as commands_resume
    from outlast.supervisor.control import resume as control_resume

    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        budget = commands_resume.raised(arguments, store, summary)
        wall = control_resume.wall_of(store, summary)
        outcome = control_resume.allow_again(
            store, summary, arguments.budget or (), arguments.until, accept_rewind=arguments.accept_rewind
        )
        after = requests.root_of(store, summary.run).state.budget if budget is not None else None
    if after is not None:
        messages.tell(f"its budget is now {in_words(after)}")
    if outcome.changed or not summary.state.supervised:
        _report(outcome, "may be started again")
    if wall is not None:
        again_at = messages.clock(wall)
        messages.tell(
            f"the wall may still stand: it was to be tried again at {again_at}; it goes on all the same"
        )
    if outcome.status == "in_doubt":
        messages.tell(
            f"it has effects in doubt; see `outlast show {store_option.typed(arguments.run, outcome.run)}`"
        )


def handoff(arguments: argparse.Namespace) -> None:
    """`outlast handoff`"""
    back = arguments.take_back
    word = "taken back" if back else "handed off"
    _act(arguments, lambda store, run: requests.handoff(store, run, take_back=back), word)


def _act(arguments: argparse.Namespace, act: Callable[[Store, str], Outcome], word: str) -> Outcome:
    with store_option.opened(arguments) as store:
        outcome = act(store, store_option.named(arguments, store).run)
    _report(outcome, word)
    return outcome


def _report(outcome: Outcome, word: str) -> None:
    name = f"run {outcome.run} of task {outcome.task}"
    if outcome.asked and not outcome.changed:
        messages.tell(f"{name}: asked already; its holder has not taken it in yet")
    elif outcome.asked:
        messages.tell(f"{name}: asked ({word}); its holder takes it in at its next beat or act")
    elif outcome.changed:
        messages.tell(f"{name}: {word}; it is {outcome.status.replace('_', ' ')} now")
    else:
        messages.tell(f"{name}: nothing to do, it is {outcome.status.replace('_', ' ')}")
