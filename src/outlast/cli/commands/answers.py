"""The commands with which a person answers a run: approve, reject, answer. The plans are in `acts/approve.py`."""

import argparse

from outlast.acts import approve as act_approve
from outlast.acts.approve import Word
from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.messages import say
from outlast.errors import UsageError


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    command = commands.add_parser(
        "approve", help="let a call that waits for you pass, once",
        description="Approve one call that a run waits for: it passes once, and the run goes on. `outlast show RUN` lists what it\n"
        "waits for; --dry-run shows the whole call.",
        epilog="example: outlast approve 1411\n         outlast approve 1411 a1 --dry-run",
    )  # fmt: skip
    store_option.add_run(command)
    _add_id(command)
    _add_rest(command)
    command.set_defaults(handler=approve)
    command = commands.add_parser(
        "reject", help="refuse a call or question that waits for you",
        description="Reject one call that a run waits for, or refuse to answer its question. The call is not made; the run is told\n"
        "why, and goes on.",
        epilog='example: outlast reject 1411 --why "not on a Friday"',
    )  # fmt: skip
    store_option.add_run(command)
    _add_id(command)
    command.add_argument("--why", metavar="TEXT", default="", help="the reason, for the agent or program")
    _add_rest(command)
    command.set_defaults(handler=reject, sentence="why")
    command = commands.add_parser(
        "answer", help="answer a question that a run asks",
        description="Answer a question of a run; it goes on with the answer. Without an answer, the command shows the question\n"
        "and its choices.",
        epilog='example: outlast answer 1411 "use the v2 API"',
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument(
        "text", metavar="ANSWER", nargs="?", default="", help="the answer; one of the choices, if it has any"
    )
    command.add_argument(
        "--id", metavar="ID", default="", help="which question, like q1; needed where several are open"
    )
    _add_rest(command)
    command.set_defaults(handler=answer, sentence="text")


def _add_id(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "id", metavar="ID", nargs="?", default="",
        help="what is meant, like a1 or the effect's id; needed where several wait",
    )  # fmt: skip


def _add_rest(command: argparse.ArgumentParser) -> None:
    command.add_argument("--no-start", action="store_true", help="only record it; do not start the run again")
    command.add_argument(
        "--dry-run", action="store_true", help="only print what it would do, with the whole text"
    )
    command.add_argument("--json", action="store_true", help="print JSON")


def approve(arguments: argparse.Namespace) -> None:
    """`outlast approve`"""
    _answer(arguments, "approve", arguments.id)


def reject(arguments: argparse.Namespace) -> None:
    """`outlast reject`"""
    _answer(arguments, "reject", arguments.id, arguments.why)


def answer(arguments: argparse.Namespace) -> None:
    """`outlast answer`"""
    _answer(arguments, "answer", arguments.id, arguments.text)


def _answer(arguments: argparse.Namespace, word: Word, wanted: str, text: str = "") -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the text is not valid UTF-8", hint="give it as UTF-8") from error
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        plan = act_approve.plan(store, summary, word, wanted, text, starts=not arguments.no_start)
        if arguments.dry_run:
            _say_plan(plan, as_json=arguments.json)
            return
        outcome = plan.apply()
    if arguments.json:
        messages.say_json(
            {
                "run": plan.root.run, "id": plan.question.id, "answer": word, "changed": outcome.changed,
                "says": outcome.says, "ok": outcome.ok,
            }
        )  # fmt: skip
        if outcome.error is not None:
            raise outcome.error
        return
    messages.tell_outcome(outcome)


def _say_plan(plan: act_approve.AnswerPlan, *, as_json: bool) -> None:
    if as_json:
        messages.say_json({"run": plan.root.run, "id": plan.question.id, "sentences": plan.sentences})
        return
    for sentence in plan.sentences:
        say(messages.safe(messages.pasteable(sentence)))
