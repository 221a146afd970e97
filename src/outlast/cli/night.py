"""After a night: going on with one run or with all that died, and the morning page. What it does lives in `supervisor`."""

import argparse
import shlex
from datetime import UTC, datetime

from outlast.cli import place, terminal
from outlast.cli.terminal import clock, say, short
from outlast.errors import RunRefused, UsageError
from outlast.runs import find
from outlast.store import SqliteStore
from outlast.store.protocol import Summary
from outlast.supervisor import detaching, guarding, reporting, starting, waking_up, watchers
from outlast.supervisor.launching import Launch
from outlast.supervisor.reporting import Page, Row
from outlast.supervisor.waking_up import Sleeper

EXIT_FAILED, EXIT_PERSON = 1, 3
JOBS_MAX = 64
SINCE_H = 12


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command that belongs to nobody else."""
    command = commands.add_parser(
        "report", help="the morning page: done, stopped and why, needs you, spent, saved",
        description="What became of the runs of all projects since a time: done, stopped and why, what needs you and the\n"
        "command to type, what was spent and saved. Exit code 3 if something needs a person.",
        epilog="example: outlast report --since 22:00",
    )  # fmt: skip
    command.add_argument(
        "--since", metavar="TIME", default=f"{SINCE_H}h",
        help=f"22:00 (the last), an age like 8h or 2d, or 2026-11-15T22:00 (default {SINCE_H}h)",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(handler=report)


# -- resume ------------------------------------------------------------------------------------------------------


def resume_one(arguments: argparse.Namespace) -> int:
    """Go on with one command, in the foreground or apart; a program of somebody's own is theirs to start."""
    with place.opened(arguments) as store:
        summary = place.named(arguments, store)
        launch = starting.launch_of(store, summary) if summary.state.supervised else None
        if launch is None:
            terminal.tell("start its command again and it goes on")
            return 0
        _refuse_watched(store, summary)
        url = store.url
        if arguments.detach:
            return _detach(store, summary)
    return _carry(url, summary, launch)


def _carry(url: str, summary: Summary, launch: Launch) -> int:
    from outlast.cli import run as running

    return starting.resume(url, summary, launch, running.to_guardian(), running.say)


def _refuse_watched(store: SqliteStore, summary: Summary) -> None:
    """One supervisor at a time, also while it only waits to start its command again."""
    watcher = watchers.of(store.root, summary.run)
    if watcher is not None and watcher.supervisor:
        raise RunRefused(
            f"run {summary.run} of task {summary.task!r} is looked after by pid {watcher.supervisor} already",
            hint=f"wait for it, or stop it with `outlast kill {summary.run}`",
        )


def _detach(store: SqliteStore, summary: Summary) -> int:
    log = guarding.folder_of(store.root, summary.run) / detaching.LOG
    words = detaching.ourselves("resume", summary.run, "--woken", "--store", store.url)
    pid = detaching.start(words, log).pid
    terminal.tell(f"run {summary.run} of task {summary.task} goes on in the background, pid {pid}")
    say(f"outlast output {shlex.quote(summary.run)} -f")
    say(f"outlast kill {shlex.quote(summary.run)}")
    return 0


def resume_all(arguments: argparse.Namespace) -> int:
    """Wake all that died without anybody's wish."""
    if arguments.run is not None:
        raise UsageError("--all takes no RUN", hint="name one run, or say --all")
    if not 1 <= arguments.jobs <= JOBS_MAX:
        raise UsageError(f"--jobs takes 1 to {JOBS_MAX}", hint="`outlast resume --help` shows how")
    root, database = place.location(arguments)
    if not database.exists():  # at the first boot after `service install` that is no error
        terminal.tell(f"no run was ever started at {root}")
        return _say_sleepers([], arguments)
    with place.opened(arguments) as store:
        asleep = waking_up.sleepers(store)
        if not arguments.dry_run:
            asleep = waking_up.wake(store, asleep, arguments.jobs, _tell_settled)
    return _say_sleepers(asleep, arguments)


def _tell_settled(sleeper: Sleeper) -> None:
    terminal.tell(f"{_name(sleeper)}: {sleeper.why}")


def _say_sleepers(asleep: list[Sleeper], arguments: argparse.Namespace) -> int:
    if arguments.json:
        terminal.say_json(asleep)
    else:
        rows = [[_verdict(each), _name(each), each.run, f"beat {each.beats}", each.why] for each in asleep]
        for line in terminal.table(rows):
            say(line)
    return EXIT_FAILED if any(each.started is False for each in asleep) else 0


def _verdict(sleeper: Sleeper) -> str:
    if sleeper.started is not None:
        return "woken" if sleeper.started else "FAILED"
    return "would wake" if sleeper.wake else "not woken"


def _name(item: Sleeper | Row) -> str:
    return f"{find.project_name(item.project)}:{item.task}"


# -- report ------------------------------------------------------------------------------------------------------


def report(arguments: argparse.Namespace) -> int:
    """`outlast report`"""
    now = datetime.now(UTC)
    since = reporting.since(arguments.since, now.astimezone())
    if arguments.store is None and not place.location(arguments)[1].exists():
        page = reporting.summed(since, now, [])
    else:
        with place.opened(arguments) as store:
            project = "" if arguments.project is None else place.project(arguments, store)
            page = reporting.page(store, since, now, project)
    if arguments.json:
        terminal.say_json(page)
    else:
        _say_page(page)
    return EXIT_PERSON if any(row.what == "needs you" for row in page.runs) else 0


def _say_page(page: Page) -> None:
    counts = [f"{count} {what}" for what in reporting.KINDS if (count := _count(page, what))]
    spent = [*_spent(page.tokens, page.cost_microusd), f"{page.saves} saves"]
    say(f"since {clock(page.since)}: {', '.join(counts) or 'no run did anything'}; {', '.join(spent)}")
    for what in reporting.KINDS:
        rows = [row for row in page.runs if row.what == what]
        if rows:
            say(what)
        for line in terminal.table([_cells(row) for row in rows]):
            say(f"  {line}")


def _count(page: Page, what: str) -> int:
    return sum(1 for row in page.runs if row.what == what)


def _cells(row: Row) -> list[str]:
    saved = f"save {row.last_save[:7]}" if row.last_save else ""
    did = ", ".join([f"{row.beats_since} beats", *_spent(row.tokens, row.cost_microusd)])
    told = terminal.pasteable(f"`{row.command}`").strip("`") if row.command else ""
    why = short(row.why or row.goal, 100)
    return [_name(row), row.run, did, saved, f"{why}{'   ' if told and why else ''}{told}"]


def _spent(tokens: int, cost_microusd: int) -> list[str]:
    return [
        *([f"{tokens:,} tokens"] if tokens else []),
        *([f"${cost_microusd / 1e6:.2f}"] if cost_microusd else []),
    ]
