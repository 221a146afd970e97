"""`outlast budget`: prints what a run has spent and has left. The sums are made in `inspect.ledger`."""

import argparse
import sys
from collections.abc import Iterable, Mapping

from outlast import settings
from outlast.acts import budget as act_budget
from outlast.cli import store_option
from outlast.cli.commands import budget_suggest
from outlast.cli.commands.budget_suggest import clock as lasting
from outlast.cli.terminal import burndown, messages
from outlast.cli.terminal.burndown import amount
from outlast.cli.terminal.messages import clock, safe, say, short
from outlast.core.text import did_you_mean
from outlast.core.values import scrub
from outlast.errors import RunRefused, UnknownRun, UsageError
from outlast.inspect import find, ledger
from outlast.inspect.ledger import Glance, Ledger, Overview, Unit
from outlast.inspect.show import Spent
from outlast.inspect.standing import words
from outlast.operations import requests
from outlast.store.protocol import Store, Summary
from outlast.supervisor.control import standing

LAST = 20
LAST_MAX = 100_000
INSIDE = "OUTLAST_RUN"  # which run a command was started in
NEEDS_A_PERSON = 3  # the exit code
_NAMES = {"usd": "money", "until": "clock"}
_SUGGEST = ("goal", "plan", "agent", "model", "file", "measure")
_SHARE = ("total", "yes", "anew")
_ONE = ("by", "last", "plain", "add")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "budget", help="what a run has spent and has left; suggest or share a budget",
        description="Print what a run has spent, reserved and left, how fast it spends and how long the rest lasts, when it was\n"
        "warned and saved, and what it spent on. Without RUN: the run this command is started in, else all open runs.\n"
        "`suggest` predicts what a run will need, `share` splits one budget among the runs that wait.",
        epilog="example: outlast budget 1411 --by tool\n"
        '         outlast budget suggest --goal "trap exit signals" --plan 12\n'
        "         outlast budget share --total 5M",
    )  # fmt: skip
    command.add_argument(
        "runs", metavar="RUN", nargs="*", help="a task, a run id or its beginning, or PROJECT:TASK"
    )
    command.add_argument(
        "--by", choices=("beat", "tool", "attempt"), help="what it was spent on, in rows of these"
    )
    command.add_argument(
        "--last", type=int, metavar="N", help=f"with --by beat: the last N beats (default {LAST})"
    )
    command.add_argument("--plain", action="store_true", help="draw with ASCII characters only")
    command.add_argument(
        "--add", metavar="LIMIT", action="append", help="give the run more: 200k, usd=5, time=2h; repeatable"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    budget_suggest.add_options(command)
    command.usage = "outlast budget [options] [RUN]\n       outlast budget suggest --goal TEXT [options]\n       outlast budget share --total AMOUNT [options] [RUN …]"
    command.set_defaults(handler=budget, spread="runs")


def budget(arguments: argparse.Namespace) -> int:
    """`outlast budget`"""
    first, *rest = arguments.runs or [""]
    _refuse_odd(arguments, first, rest)
    if first == "suggest":
        return budget_suggest.suggest(arguments)
    if first == "share":
        if arguments.yes and settings.variable(INSIDE):
            raise RunRefused(
                "a run cannot share out budgets: this command was started inside one",
                hint="a person does it outside the run; without --yes it only prints the split",
            )
        arguments.runs = rest
        return budget_suggest.share(arguments)
    if arguments.store is None and not store_option.location(arguments).exists() and not first:
        return _say_all(arguments, ledger.total(()), {})  # nobody has started a run here yet
    with store_option.opened(arguments) as store:
        summary = _meant(arguments, store, first)
        if summary is None:
            project = "" if arguments.project is None else store_option.project(arguments, store)
            found_all = ledger.overview(store, ledger.now(), project)
            stands = {each.run: _word(store, each.run) for each in found_all.runs}
            return _say_all(arguments, found_all, stands)
        if arguments.add and _is_inside(store, summary):
            messages.tell_outcome(act_budget.ask_a_person(store, summary, arguments.add))
            return NEEDS_A_PERSON
        if arguments.add:
            messages.tell_outcome(act_budget.plan(store, summary, arguments.add).apply())
            return 0
        warn_at = settings.percentages(settings.load()["warn_at"])
        last = LAST if arguments.last is None else arguments.last
        found = ledger.of(store, summary, ledger.now(), warn_at=warn_at, last=last)
        word = standing.of(store, summary).word
    if arguments.json:
        messages.say_json(found)
    else:
        _say_one(found, words(word), arguments)
    return 0


def _is_inside(store: Store, root: Summary) -> bool:
    """Whether this command was started by the run itself, or by a run below it."""
    inside = settings.variable(INSIDE)
    try:
        return bool(inside) and requests.root_of(store, inside).run == root.run
    except UnknownRun:  # of another store
        return False


def _refuse_odd(arguments: argparse.Namespace, first: str, rest: list[str]) -> None:
    """Options that mean nothing beside the others."""
    theirs = {"suggest": _SUGGEST, "share": _SHARE}.get(first, _ONE)
    for name in (*_SUGGEST, *_SHARE, *_ONE):
        if name not in theirs and getattr(arguments, name):
            whose = "suggest" if name in _SUGGEST else "share" if name in _SHARE else "one run"
            raise UsageError(f"--{name} is only for {whose}", hint="`outlast budget --help` explains it")
    if rest and first != "share":
        raise UsageError(
            f"only one RUN is allowed, got {len(rest) + 1}", hint="`outlast budget --help` explains it"
        )
    if arguments.last is not None and not (arguments.by == "beat" and 0 < arguments.last <= LAST_MAX):
        raise UsageError(
            f"--last must be 1 to {LAST_MAX:,}, with --by beat", hint="`outlast budget --help` explains it"
        )
    if arguments.add and not first:
        raise UsageError("--add needs a RUN", hint="`outlast budget RUN --add 200k`")
    messages.refuse_blank(arguments, "--add")


def _meant(arguments: argparse.Namespace, store: Store, name: str) -> Summary | None:
    """The root of the run that is named, or that this was started in; None for all."""
    inside = "" if name else settings.variable(INSIDE)
    if not name and not inside:
        return None
    try:
        summary = find.find(store, scrub(name or inside), store_option.project(arguments, store))
    except UnknownRun as error:
        if inside:  # of another store
            return None
        error.hint = did_you_mean(name, ("suggest", "share"), error.hint, form="`outlast budget {}`")
        raise
    if summary.root != summary.run:
        messages.tell(
            f"run {summary.run} has no budget of its own: this is the budget of its root, run {summary.root}"
        )
    return requests.root_of(store, summary.run)


# -- one run ---------------------------------------------------------------------------------------------------------


def _say_one(found: Ledger, word: str, arguments: argparse.Namespace) -> None:
    of = "" if found.plan_total is None else f" of {found.plan_total:,}"
    state = [word, f"beat {found.beats:,}{of}", f"attempt {found.attempts:,}"]
    say(safe(f"{found.task}  {'   '.join(state)}   run {found.run}"))
    for line in messages.table(_rows(found)):
        say(line)
    spent = found.spent
    say(
        f"of the tokens: {spent.input:,} input, {spent.output:,} output, {spent.cache_read:,} cache read,"
        f" {spent.cache_write:,} cache write{'; some of it is an upper bound (~)' if spent.estimated else ''}"
    )
    if found.expected is not None and found.expected.learnt:
        tokens, time_s = found.expected.tokens, found.expected.time_s
        say(
            f"earlier runs predict {tokens.p50:,} tokens in all, {lasting(time_s.p50)}"
            f" (nine of ten need at most {tokens.p90:,}, {lasting(time_s.p90)})"
        )
    if arguments.by is not None:
        rows = {"beat": _by_beat, "tool": _by_tool, "attempt": _by_attempt}[arguments.by](found)
        say()
        for line in messages.table(rows):
            say(line)
        return
    say()
    for line in burndown.drawn(found.chart, plain=arguments.plain or not _shows_blocks()):
        say(line)
    _say_course(found)
    if found.cause == "budget" and found.status != "running":
        line = " ".join(
            filter(None, ("outlast resume", store_option.typed(found.task, found.run), found.more))
        )
        messages.tell(f"{'' if found.more else 'there is budget left: '}`{line}` goes on where it was")


def _shows_blocks() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")


def _rows(found: Ledger) -> Iterable[list[str]]:
    yield ["", "SPENT", "LIMIT", "LEFT", "RESERVED", "IN THE LAST HOUR", "AN HOUR", "FORECAST", "LASTS"]
    for unit in found.units:
        if unit.unit == "beats" and not unit.limit:
            continue
        yield [
            _NAMES.get(unit.unit, unit.unit),
            spent_words(unit, found.spent),
            amount(unit.unit, unit.limit),
            amount(unit.unit, unit.left),
            amount(unit.unit, unit.reserved) if unit.reserved else "-",
            amount(unit.unit, unit.per_hour_now),
            amount(unit.unit, unit.per_hour),
            amount(unit.unit, unit.forecast),
            "-" if unit.lasts_s is None else lasting(unit.lasts_s),
        ]


def spent_words(unit: Unit, spent: Spent) -> str:
    """The spending of a unit; of money the known part, which is no 0 if nothing was paid."""
    about = "~" if spent.estimated and unit.unit in ("tokens", "usd") else ""
    kind = ledger.money(spent)
    if unit.unit != "usd" or kind == "paid":
        return about + amount(unit.unit, unit.spent)
    return f"{about}{amount(unit.unit, unit.spent)} + {kind}" if unit.spent else kind


def _say_course(found: Ledger) -> None:
    """When and why it was warned, told to wrap up, given more, and saved."""
    now = ledger.now()
    entries = [(each.at, each.beat, "warned", each.text) for each in found.warnings]
    entries += [(each.at, each.beat, "limit", each.text) for each in found.changes]
    entries += [
        (each.at, each.beat, f"{each.kind} save", f"{each.commit[:7]} {each.reason}") for each in found.saves
    ]
    rows = [
        [clock(at, now), f"beat {beat:,}", what, short(text, 120)]
        for at, beat, what, text in sorted(entries, key=lambda each: each[0])
    ]
    if rows:
        say()
    for line in messages.table(rows[-LAST:]):
        say(line)


def _by_beat(found: Ledger) -> Iterable[list[str]]:
    yield ["BEAT", "AT", "TOKENS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "MONEY", "CALLS", "STEP"]
    for row in found.by_beat:
        yield [f"{row.beat:,}", clock(row.at), *_cells(row.spent), f"{row.calls:,}", short(row.step, 60)]


def _by_attempt(found: Ledger) -> Iterable[list[str]]:
    yield [
        "ATTEMPT",
        "STARTED",
        "TIME",
        "BEATS",
        "TOKENS",
        "INPUT",
        "OUTPUT",
        "CACHE READ",
        "CACHE WRITE",
        "MONEY",
        "ENDED",
    ]
    for row in found.by_attempt:
        lived = lasting(row.spent.time_ms // 1000)
        ended = "-" if row.cause is None else f"{row.cause}: {short(row.evidence, 60)}"
        yield [
            str(row.attempt), clock(row.started_at), lived, f"{row.beats:,}", *_cells(row.spent), ended,
        ]  # fmt: skip


def _cells(spent: Spent) -> list[str]:
    kinds = (spent.tokens, spent.input, spent.output, spent.cache_read, spent.cache_write)
    kind = ledger.money(spent)
    about = "~" if spent.estimated else ""
    return [
        *(f"{each:,}" for each in kinds),
        kind if kind != "paid" else f"{about}${spent.cost_microusd / 1e6:.4f}",
    ]


def _by_tool(found: Ledger) -> Iterable[list[str]]:
    yield ["TOOL", "CALLS", "TOKENS", "MONEY", "HOW IT IS KNOWN"]
    known = {
        "call": "a share: the cost of a beat divided by its calls",
        "decision": "measured",
        "none": "beats without a call",
    }
    for row in found.by_tool:
        name = row.name if row.kind != "decision" else f"decide {row.name}"
        yield [
            short(name, 60),
            f"{row.calls:,}",
            f"{row.tokens:,}",
            f"${row.cost_microusd / 1e6:.4f}",
            known[row.kind],
        ]


# -- all open runs ---------------------------------------------------------------------------------------------------


def _word(store: Store, run: str) -> str:
    return words(standing.of(store, requests.summary_of(store, run)).word)


def _say_all(arguments: argparse.Namespace, found: Overview, stands: Mapping[str, str]) -> int:
    if arguments.by is not None:
        raise UsageError(
            "--by needs a RUN", hint="`outlast budget RUN --by tool`; `outlast ls` lists the runs"
        )
    if arguments.json:
        messages.say_json(found)
        return 0
    for line in messages.table(_all_rows(found, stands)):
        say(line)
    if not found.runs:
        messages.tell("no run is open")
    return 0


def _all_rows(found: Overview, stands: Mapping[str, str]) -> Iterable[list[str]]:
    if not found.runs:
        return
    yield ["RUN", "STATUS", "TOKENS", "MONEY", "TIME", "BEATS", "NEAREST LIMIT", "GOAL"]
    for each in found.runs:
        name = f"{find.project_name(each.project)}:{each.task}"
        yield [name, stands[each.run], *_sums(each.spent), _nearest(each), short(each.goal, 50)]
    yield ["total", f"{len(found.runs)} open", *_sums(found.spent), "", ""]


def _sums(spent: Spent) -> list[str]:
    _, *_, money = _cells(spent)
    about = "~" if spent.estimated else ""
    return [f"{about}{spent.tokens:,}", money, lasting(spent.time_ms // 1000), f"{spent.beats:,}"]


def _nearest(each: Glance) -> str:
    limited = [unit for unit in each.units if unit.used_pct is not None]
    if not limited:
        return "no limit"
    unit = max(limited, key=lambda unit: unit.used_pct or 0.0)
    return f"{unit.used_pct:.0f} % of {amount(unit.unit, unit.limit)} {_NAMES.get(unit.unit, unit.unit)}"
