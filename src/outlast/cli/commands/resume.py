"""resume and report: their command lines. The work is done in `supervisor.control` and `dashboard.report`."""

import argparse
import os
import shlex
from datetime import UTC, datetime

from outlast import settings
from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.messages import clock, say, short
from outlast.core.secrets import mask
from outlast.core.values import Allowance
from outlast.dashboard import report as dashboard_report, standing
from outlast.dashboard.report import Page, ReportRow
from outlast.errors import RunRefused, UsageError
from outlast.inspect import find
from outlast.inspect.standing import words
from outlast.operations import requests
from outlast.runs.opening.terms import in_words
from outlast.store.protocol import Store, Summary
from outlast.supervisor import start
from outlast.supervisor.control import resume, takeover, wake
from outlast.supervisor.control.wake import JOBS, Sleeper
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.person import Person
from outlast.workspace.types import raw

EXIT_FAILED, EXIT_PERSON = 1, 3
JOBS_MAX = 64
SINCE_H = 12


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register `report`; `resume` is registered in `requests`."""
    command = commands.add_parser(
        "report", help="what happened since last night, and what needs you",
        description="Print what happened to the runs of all projects since a time: which are done, which stopped and why, which\n"
        "need you and what to type, what they spent and saved. Exit code 3 if a run needs a person.",
        epilog="example: outlast report --since 22:00",
    )  # fmt: skip
    command.add_argument(
        "--since", metavar="TIME", default=f"{SINCE_H}h",
        help=f"22:00 (the last), 8h or 2d ago, or 2026-11-15T22:00 (default {SINCE_H}h)",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=report)


# -- resume ------------------------------------------------------------------------------------------------------


def refuse_odd(arguments: argparse.Namespace) -> None:
    """Options of `resume` that mean nothing beside the others."""
    if arguments.all and arguments.run is not None:
        raise UsageError("RUN and --all cannot stand together", hint="name one run, or give --all")
    if arguments.rest and arguments.agent is None:
        raise UsageError("a command after `--` needs --agent", hint="`outlast resume --help` explains it")
    alone = {
        "--jobs": arguments.jobs is not None, "--json": arguments.json, "--parked": arguments.parked,
    }  # fmt: skip
    among = {
        "--detach": arguments.detach, "--accept-rewind": arguments.accept_rewind, "--agent": arguments.agent is not None,
        "--budget": arguments.budget is not None, "--until": arguments.until is not None,
    }  # fmt: skip
    odd = [option for option, given in (among if arguments.all else alone).items() if given]
    if odd:
        why = "and --all cannot stand together" if arguments.all else "needs --all"
        raise UsageError(f"{odd[0]} {why}", hint="`outlast resume --help` explains it")
    if not arguments.all and arguments.run is None:
        raise UsageError("RUN is missing", hint="name a run, or give --all; `outlast ls` lists the runs")


def foresee(arguments: argparse.Namespace) -> int:
    """`outlast resume RUN --dry-run`: what would happen; nothing does."""
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        shown = find.shown_status(store, summary.state, summary.root)
        requests.allow(summary.state, shown, "resume")
        stands = standing.of(store, summary, shown)
        launch = _launch(arguments, store, summary)
        if launch is not None:
            resume.refuse_watched(store, summary)
        budget = raised(arguments, store, summary)
    name = f"run {summary.run} of task {summary.task}"
    is_now = f"it is {words(stands.word)} at beat {summary.state.beats + 1}"
    if launch is None:
        say(messages.safe(f"{name} may be started again; {is_now}; start its program to go on"))
    else:
        line, folder = mask(shlex.join(launch.words))[0], os.fsdecode(raw(launch.cwd))
        say(messages.safe(f"{name} would go on; {is_now}"))
        say(messages.safe(f"  runs  {messages.short(line, 300)}"))
        say(messages.safe(f"  in    {folder}"))
    if budget is not None:
        say(f"  with  {in_words(budget)}")
    return 0


def raised(arguments: argparse.Namespace, store: Store, summary: Summary) -> Allowance | None:
    """The budget that it goes on with, where another is asked for. Raises UsageError for one that makes no sense."""
    return resume.raised(store, summary, arguments.budget or (), arguments.until, Person(messages.tell))


def resume_one(arguments: argparse.Namespace) -> int:
    """Go on with one command, in the foreground or apart; a program of somebody's own is theirs to start."""
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        launch = _launch(arguments, store, summary)
        if launch is None:
            messages.tell("start its program again to go on")
            return 0
        resume.refuse_watched(store, summary)
        url = store.url
        if arguments.detach:
            return _detach(store, summary, _other(arguments))
    return _carry(url, summary, launch)


def check_agent(arguments: argparse.Namespace) -> None:
    """Refuse an agent that cannot be started before anything is changed."""
    if arguments.agent is not None:
        with store_option.opened(arguments) as store:
            _launch(arguments, store, store_option.named(arguments, store), quiet=True)


def _launch(
    arguments: argparse.Namespace, store: Store, summary: Summary, *, quiet: bool = False
) -> Launch | None:
    """How the run is started: as the last time, or in the agent that is named now; None for a program of somebody's own."""
    launch = resume.launch_of(store, summary)
    if arguments.agent is None:
        return launch
    if launch is None:
        raise RunRefused(
            f"run {summary.run} of task {summary.task!r} was not started by `outlast run`",
            hint="start its program to go on",
        )
    return takeover.in_other(
        store, summary, launch, arguments.agent, arguments.rest, Person(_nothing if quiet else messages.tell)
    )


def _nothing(_: str) -> None:
    """Say nothing: the message comes when the work is done."""


def _other(arguments: argparse.Namespace) -> list[str]:
    """The options that tell another outlast process the same."""
    if arguments.agent is None:
        return []
    return ["--agent", arguments.agent, *(["--", *arguments.rest] if arguments.rest else [])]


def _carry(url: str, summary: Summary, launch: Launch) -> int:
    from outlast.cli.commands import run as running

    return start.resume(url, summary, launch, running.to_guardian(), Person(running.say))


def _detach(store: Store, summary: Summary, other: list[str]) -> int:
    pid = resume.detach(store, summary, other).pid
    messages.tell(f"run {summary.run} of task {summary.task} goes on in the background, pid {pid}")
    say(messages.command(f"output {summary.run} -f"))
    say(messages.command(f"kill {summary.run}"))
    return 0


def resume_all(arguments: argparse.Namespace) -> int:
    """Go on with every run that died by itself."""
    jobs = JOBS if arguments.jobs is None else arguments.jobs
    if not 1 <= jobs <= JOBS_MAX:
        raise UsageError(
            f"--jobs must be 1 to {JOBS_MAX}, got {jobs}", hint="`outlast resume --help` explains it"
        )
    place = store_option.location(arguments)
    if not place.exists():  # not an error at the first boot after `service install`
        messages.tell(f"nobody has started a run at {place.local.folder} yet")
        return _say_sleepers([], arguments)
    with store_option.opened(arguments) as store:
        asleep = wake.sleepers(store, parked_only=arguments.parked)
        if not arguments.dry_run:
            asleep = _wake(store, asleep, jobs, parked_only=arguments.parked)
    return _say_sleepers(asleep, arguments)


def _wake(store: Store, asleep: list[Sleeper], jobs: int, *, parked_only: bool) -> list[Sleeper]:
    apart_s = settings.load()["wake_apart_s"]
    with wake.alone(store) as alone:
        if parked_only and not alone:
            messages.tell("another `outlast resume --all` is running")
            return []
        asleep = wake.wake(store, asleep, jobs, Person(messages.tell), apart_s=apart_s)
        wake.tidy(store)
    return asleep


def _say_sleepers(asleep: list[Sleeper], arguments: argparse.Namespace) -> int:
    if arguments.json:
        messages.say_json(asleep)
    else:
        rows = [[_verdict(each), _name(each), each.run, f"beat {each.beats}", each.why] for each in asleep]
        for line in messages.table(rows):
            say(line)
    return EXIT_FAILED if any(each.started is False for each in asleep) else 0


def _verdict(sleeper: Sleeper) -> str:
    if sleeper.started is not None:
        return "woken" if sleeper.started else "FAILED"
    return "would wake" if sleeper.wake else "not woken"


def _name(item: Sleeper | ReportRow) -> str:
    return f"{find.project_name(item.project)}:{item.task}"


# -- report ------------------------------------------------------------------------------------------------------


def report(arguments: argparse.Namespace) -> int:
    """`outlast report`"""
    now = datetime.now(UTC)
    since = dashboard_report.since(arguments.since, now.astimezone())
    if arguments.store is None and not store_option.location(arguments).exists():
        page = dashboard_report.summed(since, now, [])
    else:
        with store_option.opened(arguments) as store:
            project = "" if arguments.project is None else store_option.project(arguments, store)
            page = dashboard_report.page(store, since, now, project)
    if arguments.json:
        messages.say_json(page)
    else:
        _say_page(page)
    return EXIT_PERSON if any(row.what == "needs you" for row in page.runs) else 0


def _say_page(page: Page) -> None:
    counts = [f"{count} {what}" for what in dashboard_report.KINDS if (count := _count(page, what))]
    spent = [*_spent(page.tokens, page.cost_microusd), f"{page.saves} saves"]
    say(f"since {clock(page.since)}: {', '.join(counts) or 'no run did anything'}; {', '.join(spent)}")
    for what in dashboard_report.KINDS:
        rows = [row for row in page.runs if row.what == what]
        if rows:
            say(what)
        for line in messages.table([_cells(row) for row in rows]):
            say(f"  {line}")


def _count(page: Page, what: str) -> int:
    return sum(1 for row in page.runs if row.what == what)


def _cells(row: ReportRow) -> list[str]:
    saved = f"save {row.last_save[:7]}" if row.last_save else ""
    did = ", ".join([f"{row.beats_since} beats", *_spent(row.tokens, row.cost_microusd)])
    told = messages.pasteable(f"`{row.command}`").strip("`") if row.command else ""
    why = short(row.why or row.goal, 100)
    return [
        _name(row),
        row.run,
        words(row.standing or row.status),
        did,
        saved,
        f"{why}{'   ' if told and why else ''}{told}",
    ]


def _spent(tokens: int, cost_microusd: int) -> list[str]:
    return [
        *([f"{tokens:,} tokens"] if tokens else []),
        *([f"${cost_microusd / 1e6:.2f}"] if cost_microusd else []),
    ]
