"""`outlast budget suggest` and `outlast budget share`: their command lines. The sums are in `inspect` and `operations`."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.messages import safe, say
from outlast.core import budget as budgets, forecast, plan as plans
from outlast.core.forecast import Accuracy, Estimate, Forecast, Unit
from outlast.core.statuses import ENDED
from outlast.core.text import count_of
from outlast.core.values import Allowance, scrub
from outlast.errors import UsageError
from outlast.inspect import find, forecast as inspect_forecast
from outlast.inspect.standing import words
from outlast.operations import budget_share, requests
from outlast.store.protocol import Store, Summary
from outlast.supervisor.control import standing

PLAN_MAX_BYTES = 1 << 20
PLAN_STEPS_MAX = 1_000_000
SURE: dict[forecast.Sureness, str] = {
    "default": "no history yet, so this is the default",
    "guess": "a guess",
    "rough": "roughly",
    "fair": "fairly sure",
    "good": "sure",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of both, for the parser that knows the words `suggest` and `share`."""
    group = parser.add_argument_group("suggest: predict what a run will need, from the runs of this store")
    group.add_argument("--goal", metavar="TEXT", help="the goal of the run")
    group.add_argument(
        "--plan", metavar="N|FILE", help="number of steps, or a file with one step per line or JSON"
    )
    group.add_argument("--agent", metavar="NAME", help="the agent that will do it, like claude")
    group.add_argument("--model", metavar="NAME", help="the model that the agent will use")
    group.add_argument(
        "--file", metavar="PATH", action="append", help="a file that it will change; repeatable"
    )
    group.add_argument(
        "--measure", action="store_true", help="print how good the predictions for this store are"
    )
    shared = parser.add_argument_group("share: split one budget among the runs that wait")
    shared.add_argument("--total", metavar="AMOUNT", help="budget for all of them, like 5M or time=8h")
    shared.add_argument(
        "--yes", action="store_true", help="set the limits; without --yes they are only printed"
    )
    shared.add_argument(
        "--anew", action="store_true", help="do not count what earlier runs have used of the total"
    )


# -- suggest -----------------------------------------------------------------------------------------------------------


class Suggested(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of `suggest --json`. `budget` is the meaning of `--budget auto`."""

    goal: str
    plan: int | None
    project: str
    agent: str
    model: str
    tokens: Estimate
    time_s: Estimate
    nearest: tuple[str, ...]
    budget: Allowance


def suggest(arguments: argparse.Namespace) -> int:
    """`outlast budget suggest`"""
    if arguments.measure:
        return _measure(arguments)
    if arguments.goal is None:
        raise UsageError(
            "--goal is missing",
            hint='`outlast budget suggest --goal "…"`, or --measure to see how good the predictions are',
        )
    messages.refuse_blank(arguments, "--goal", "--plan", "--agent", "--model", "--file")
    goal, plan = scrub(arguments.goal), _steps(arguments.plan)
    words = {name: scrub(getattr(arguments, name) or "") for name in ("agent", "model")}
    files = [scrub(each) for each in arguments.file or ()]
    if arguments.store is None and not store_option.location(arguments).exists():
        project = store_option.project(arguments, None)  # nobody has started a run here yet
        found = inspect_forecast.suggest(None, goal=goal, plan=plan, project=project, files=files, **words)
    else:
        with store_option.opened(arguments) as store:
            project = store_option.project(arguments, store)
            found = inspect_forecast.suggest(
                store, goal=goal, plan=plan, project=project, files=files, **words
            )
    budget = inspect_forecast.allowance(found)
    if arguments.json:
        messages.say_json(
            Suggested(
                goal=goal, plan=plan, project=project, **words, tokens=found.tokens, time_s=found.time_s,
                nearest=found.nearest, budget=budget,
            )
        )  # fmt: skip
        return 0
    _say(found, budget)
    return 0


def _say(found: Forecast, budget: Allowance) -> None:
    rows = [
        ["tokens", f"p50 {amount(found.tokens.p50)}", f"p90 {amount(found.tokens.p90)}", _sure(found.tokens)],
        ["time", f"p50 {clock(found.time_s.p50)}", f"p90 {clock(found.time_s.p90)}", _sure(found.time_s)],
    ]
    for line in messages.table(rows):
        say(line)
    if found.nearest:
        say(f"most like it: {', '.join(safe(name) for name in found.nearest)}")
    time = f" --budget time={budget.time_s // 60}m" if budget.time_s is not None else ""
    say(f"--budget auto is --budget {amount(budget.tokens or 0)}{time}")


def _sure(found: Estimate) -> str:
    if found.sure == "default":
        return f"{SURE['default']}: {count_of(found.runs, 'finished run')} here, {forecast.HISTORY_MIN} are needed to learn from"
    return f"{SURE[found.sure]}: from {found.runs:,} finished runs, {found.similar:,} of them similar"


def amount(tokens: int) -> str:
    """Tokens as people write them, with three digits that matter."""
    for scale, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if tokens >= scale:
            return f"{tokens / scale:.3g}{unit}" if tokens < 1_000 * scale else f"{tokens / scale:,.0f}{unit}"
    return str(tokens)


def clock(seconds: int) -> str:
    """A time in two units."""
    minutes, rest = divmod(seconds, 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def _steps(given: str | None) -> int | None:
    """How many steps a plan has: a number, or a file with one a line, or with the JSON that `run.plan` takes."""
    if given is None:
        return None
    if given.isascii() and given.isdigit() and len(given) <= 9:
        count = int(given)
    else:
        count = _steps_in(Path(given))
    if not 0 < count <= PLAN_STEPS_MAX:
        raise UsageError(
            f"--plan must have 1 to {PLAN_STEPS_MAX:,} steps, got {count:,}",
            hint="give a number of steps, or a file with one per line",
        )
    return count


def _steps_in(path: Path) -> int:
    hint = "give a number of steps, or a file with one per line"
    try:
        with path.open("rb") as file:
            data = file.read(PLAN_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--plan must be a number or a readable file, got {str(path)!r:.120}", hint=hint
        ) from error
    if len(data) > PLAN_MAX_BYTES:
        raise UsageError(f"the plan {path} must have at most {PLAN_MAX_BYTES:,} bytes", hint=hint)
    if data.lstrip()[:1] in (b"[", b"{"):
        try:
            return plans.count(plans.parse(msgspec.json.decode(data)))
        except (msgspec.DecodeError, RecursionError):
            pass  # a list of another kind: by its lines
        except UsageError as error:
            raise UsageError(f"the plan {path} cannot be used: {error}", hint=hint) from error
    return sum(bool(line.strip()) for line in data.splitlines())


# -- suggest --measure -------------------------------------------------------------------------------------------------


def _measure(arguments: argparse.Namespace) -> int:
    with store_option.opened(arguments) as store:
        found = inspect_forecast.measure(store)
    if arguments.json:
        messages.say_json(found)
        return 0
    rows = [["", "RUNS", "P90 COVERS", "P50 COVERS", "P90 LOSS", "P50 LOSS", "CUT OFF (ABOVE P90)"]]
    rows += [_measured({"tokens": "tokens", "time_s": "time"}[unit], each) for unit, each in found.items()]
    for line in messages.table(rows):
        say(line)
    if not any(each.runs for each in found.values()):
        least = forecast.HISTORY_MIN
        messages.tell(f"nothing to measure yet: the first {least} finished runs are only used for learning")
    return 0


def _measured(name: str, found: Accuracy) -> list[str]:
    if not found.runs:
        return [name, "0", "-", "-", "-", "-", "-"]
    covers = [f"{share:.1%}" for share in (found.p90_covers, found.p50_covers)]
    losses = [f"{loss:.3f}" for loss in (found.p90_loss, found.p50_loss)]
    return [name, f"{found.runs:,}", *covers, *losses, f"{found.unfinished:,} ({found.above:,})"]


# -- share -------------------------------------------------------------------------------------------------------------


class ShareResult(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of `share --json`. `used` and `held` and the limits of `shares` add up to `total`."""

    unit: Unit
    total: int
    used: int
    held: int
    returned: int
    shares: tuple[budget_share.Share, ...]
    applied: bool


def share(arguments: argparse.Namespace) -> int:
    """`outlast budget share`, with the names of the runs in `arguments.runs`"""
    total = _total(arguments.total)
    with store_option.opened(arguments) as store:
        project = store_option.project(arguments, store)
        runs = _meant(store, project, arguments.runs)
        with budget_share.sharing(store, project) as pool:
            made = budget_share.split(store, project, total, runs, anew=arguments.anew)
            outcomes = budget_share.apply(store, pool, made) if arguments.yes else []
        stands = {
            each.run: words(standing.of(store, requests.summary_of(store, each.run)).word)
            for each in made.shares
        }
    if arguments.json:
        fields = {name: getattr(made, name) for name in ShareResult.__struct_fields__ if name != "applied"}
        messages.say_json(ShareResult(**fields, applied=arguments.yes))
        return 0
    _say_split(made, stands)
    running = {outcome.run for outcome in outcomes if outcome.in_inbox}
    if running:
        messages.tell(f"{len(running)} of them are running and get it at their next beat")
    if not arguments.yes:
        messages.tell("nothing was changed; add --yes to set these limits")
    return 0


def _total(given: str | None) -> tuple[Unit, int] | None:
    if given is None:
        return None
    if not given.strip():
        raise UsageError("--total is empty", hint="like --total 5M or --total time=8h")
    found = budgets.parse(scrub(given))
    if found is not None and found.tokens is not None:
        return "tokens", found.tokens
    if found is not None and found.time_s is not None:
        return "time_s", found.time_s
    raise UsageError(
        f"--total must be in tokens or time, got {given!r:.60}",
        hint="like 5M or time=8h",
    )


def _meant(store: Store, project: str, names: Sequence[str]) -> list[Summary]:
    """The runs to share among: those that are named and not over, or all that wait."""
    if not names:
        found = budget_share.waiting(store, project)
        if not found:
            raise UsageError(
                "no run of this project waits for a budget",
                hint="name the runs: `outlast budget share --total 5M RUN…`; `outlast ls` lists them",
            )
        return found
    meant = [requests.root_of(store, find.find(store, scrub(name), project).run) for name in names]
    for each in meant:
        status = find.shown_status(store, each.state, each.root)
        if status in ENDED:
            raise UsageError(
                f"run {each.run} of task {each.task} is {words(status)} and cannot use a share",
                hint="leave it out; `outlast ls` lists the runs",
            )
    return list({each.run: each for each in meant}.values())


def _say_split(made: budget_share.Split, stands: Mapping[str, str]) -> None:
    shown = amount if made.unit == "tokens" else clock
    rows = [["TASK", "STATUS", "SPENT", "P90", "LIMIT SO FAR", "LIMIT", "RUN"]]
    for each in made.shares:
        before = "-" if each.before is None else shown(each.before)
        limit = f"{each.limit:,}" if made.unit == "tokens" else clock(each.limit)
        rows.append(
            [each.task, stands[each.run], shown(each.spent), shown(each.p90), before, limit, each.run]
        )
    for line in messages.table(rows):
        say(line)
    parts = [f"{shown(sum(each.limit for each in made.shares))} to {count_of(len(made.shares), 'run')}"]
    parts += [f"{shown(made.used)} used by runs that are over"] if made.used else []
    parts += [f"{shown(made.held)} held by runs that work or have failed"] if made.held else []
    say(f"total {shown(made.total)}: {', '.join(parts)}")
    if made.returned:
        say(f"{shown(made.returned)} came back from runs that did not need it")
