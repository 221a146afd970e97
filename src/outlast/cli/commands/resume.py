"""resume and report: their command lines. The work is done in `supervisor.control` and `dashboard.report`."""

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from outlast import settings
from outlast.acts import resume as act_resume
from outlast.cli import chronicle_options, store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.messages import clock, say, short
from outlast.core import verdict
from outlast.core.text import count_of
from outlast.dashboard import report as dashboard_report
from outlast.dashboard.report import Page, ReportRow
from outlast.dashboard.run import request_words
from outlast.errors import UsageError
from outlast.inspect import find
from outlast.inspect.standing import words
from outlast.store.protocol import Store, Summary
from outlast.supervisor import start
from outlast.supervisor.control import resume, wake
from outlast.supervisor.control.wake import JOBS, Sleeper
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.person import Person

if TYPE_CHECKING:
    from outlast.supervisor.chronicle.options import ChronicleOptions

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
        raise UsageError("RUN and --all cannot be used together", hint="name one run, or give --all")
    if arguments.rest and arguments.agent is None:
        raise UsageError("a command after `--` needs --agent", hint="`outlast resume --help` explains it")
    alone = {
        "--jobs": arguments.jobs is not None, "--json": arguments.json, "--parked": arguments.parked,
        "--now": arguments.now,
    }  # fmt: skip
    among = {
        "--detach": arguments.detach, "--accept-rewind": arguments.accept_rewind, "--agent": arguments.agent is not None,
        "--budget": arguments.budget is not None, "--until": arguments.until is not None,
        "--quiet": arguments.quiet, "--json-lines": arguments.json_lines is not None,
    }  # fmt: skip
    odd = [option for option, given in (among if arguments.all else alone).items() if given]
    if odd:
        why = "and --all cannot be used together" if arguments.all else "needs --all"
        raise UsageError(f"{odd[0]} {why}", hint="`outlast resume --help` explains it")
    if not arguments.all and arguments.run is None:
        raise UsageError("RUN is missing", hint="name a run, or give --all; `outlast ls` lists the runs")


def resume_one(arguments: argparse.Namespace) -> int:
    """Go on with one command, in the foreground or apart; a program of somebody's own is theirs to start."""
    options = chronicle_options.read(arguments)
    with store_option.opened(arguments) as store:
        url, summary = store.url, store_option.named(arguments, store)
        if arguments.woken:
            launch = _woken(arguments, store, summary)
        else:
            plan = act_resume.plan(store, summary, _wish(arguments), wait=not arguments.dry_run)
            if arguments.dry_run:
                for sentence in plan.sentences:
                    say(messages.safe(messages.pasteable(sentence)))
                return EXIT_PERSON if plan.asks else 0
            _allow(plan)
            launch, summary = plan.launch, plan.root  # which a child goes on with
        if launch is not None and arguments.detach:
            return _detach(store, summary, _other(arguments), chronicle_options.passed_fds(arguments))
    return _carry(url, summary, launch, options) if launch is not None else 0


def _allow(plan: act_resume.ResumePlan) -> None:
    """A person asks for it: put that on record, and tell what they should know."""
    for note in plan.notes:
        messages.tell(note)
    allowed = plan.allow()
    if allowed.changed or plan.launch is None:
        messages.tell_outcome(allowed)
    for sentence in plan.hindrances:
        messages.tell(sentence)


def _woken(arguments: argparse.Namespace, store: Store, summary: Summary) -> Launch | None:
    """Another process of ours has the person's word for it, or needs none."""
    launch = act_resume.launch_of(store, summary, _wish(arguments), Person(messages.tell))
    if launch is None:
        messages.tell("start its program, and it goes on")
    else:
        resume.refuse_watched(store, summary)
    return launch


def _wish(arguments: argparse.Namespace) -> act_resume.ResumeWish:
    return act_resume.ResumeWish(
        amounts=tuple(arguments.budget or ()), until=arguments.until, accept_rewind=arguments.accept_rewind,
        agent=arguments.agent, agent_command=tuple(arguments.rest), background=arguments.detach,
    )  # fmt: skip


def _other(arguments: argparse.Namespace) -> list[str]:
    """The options that tell another outlast process the same."""
    where = arguments.json_lines or ""
    lines = (
        ["--json-lines", where if where.isdigit() else str(Path(where).expanduser().absolute())]
        if where
        else []
    )
    if arguments.agent is None:
        return lines
    return [*lines, "--agent", arguments.agent, *(["--", *arguments.rest] if arguments.rest else [])]


def _carry(url: str, summary: Summary, launch: Launch, options: "ChronicleOptions") -> int:
    from outlast.cli.commands import run as running

    person = Person(running.say, quiet=options.quiet)
    return start.resume(url, summary, launch, running.to_guardian(), person, options=options)


def _detach(store: Store, summary: Summary, other: list[str], pass_fds: tuple[int, ...]) -> int:
    pid = resume.detach(store, summary, other, pass_fds=pass_fds).pid
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
        messages.tell(f"no run has been started at {place.local.folder} yet")
        return _say_sleepers([], arguments)
    with store_option.opened(arguments) as store:
        if not arguments.dry_run:
            wake.take_answers(store)
        asleep = wake.sleepers(store, parked_only=arguments.parked, now=arguments.now)
        if not arguments.dry_run:
            asleep = _wake(store, asleep, jobs, parked_only=arguments.parked, now=arguments.now)
    return _say_sleepers(asleep, arguments)


def _wake(
    store: Store, asleep: list[Sleeper], jobs: int, *, parked_only: bool, now: bool = False
) -> list[Sleeper]:
    apart_s = settings.load()["wake_apart_s"]
    with wake.alone(store) as alone:
        if parked_only and not alone:
            messages.tell("another `outlast resume --all` is running")
            return []
        if now:
            wake.lift_walls(store)
        asleep = wake.wake(store, asleep, jobs, Person(messages.tell), apart_s=apart_s)
        wake.tidy(store)
    return asleep


def _say_sleepers(asleep: list[Sleeper], arguments: argparse.Namespace) -> int:
    if arguments.json:
        messages.say_json(asleep)
    else:
        rows = [
            [
                _verdict(each),
                _name(each),
                each.run,
                f"beat {each.beats}",
                messages.local(verdict.in_words(each.why)),
            ]
            for each in asleep
        ]
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
    estimated = any(row.estimated for row in page.runs)
    spent = [*_spent(page.tokens, page.cost_microusd, estimated), count_of(page.saves, "save")]
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
    place = row.worktree
    parts = [
        f"save {row.last_save[:7]}" if row.last_save else "",
        f"branch {place.branch} in {place.folder}" if place else "",
    ]
    saved = ", ".join(filter(None, parts))
    did = ", ".join(
        [count_of(row.beats_since, "beat"), *_spent(row.tokens, row.cost_microusd, row.estimated)]
    )
    command = messages.pasteable(f"`{row.command}`").strip("`") if row.command else ""
    waiting = request_words.pending_clauses(row.pending, row.asks)
    reasons = "; ".join(
        filter(None, (*waiting, messages.local(dashboard_report.why_words(row.why, row.status))))
    )
    why = short(reasons or row.goal, 100)
    return [
        _name(row),
        row.run,
        words(row.standing or row.status),
        did,
        saved,
        f"{why}{'   ' if command and why else ''}{command}",
    ]


def _spent(tokens: int, cost_microusd: int, estimated: bool) -> list[str]:
    """The spending; `~` if some of it is an upper bound."""
    about = "~" if estimated else ""
    return [
        *([f"{about}{count_of(tokens, 'token')}"] if tokens else []),
        *([f"{about}${cost_microusd / 1e6:.2f}"] if cost_microusd else []),
    ]
