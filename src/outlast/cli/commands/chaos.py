"""`outlast chaos eval`: its command line and its table. The work is done in `outlast.chaos.eval`."""

import argparse
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.cli import help as layout
from outlast.cli.terminal.messages import safe, say, say_json, table, tell
from outlast.cli.timing import Timing

if TYPE_CHECKING:
    from outlast.chaos.eval.evaluation import Plan
    from outlast.chaos.eval.trial import Trial

SEED_MAX = 2**32 - 1
JOBS_MAX = 64

DESCRIPTION = """\
Run scripted tasks under three designs: state in the prompt, act-then-save, and outlast. Each task is killed (SIGKILL)
at every beat boundary and inside every phase of a beat, resumed until it ends, and compared with an uninterrupted
twin. An external witness counts what was done, never the design itself."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    chaos = commands.add_parser(
        "chaos", help="kill agents on purpose; count what they lose or repeat",
        description="Kill agents on purpose and count what they lose or repeat.",
        epilog="example: outlast chaos eval --quick",
    )  # fmt: skip
    kinds = chaos.add_subparsers(
        dest="chaos", metavar="COMMAND", required=True, parser_class=type(chaos), help="what to do"
    )
    command = kinds.add_parser(
        "eval", help="the evaluation: every task, every design, every instant",
        description=DESCRIPTION, formatter_class=layout.Layout, add_help=False,
        epilog="example: outlast chaos eval --quick --seed 7",
    )  # fmt: skip
    command.add_argument("-h", "--help", action="help", help="print this text")
    command.add_argument(
        "--seed", type=int, metavar="S", help="repeat the random choices of another evaluation"
    )
    command.add_argument(
        "--tasks", nargs="+", metavar="TASK", help="only these tasks; a number: so many, chosen by the seed"
    )
    command.add_argument(
        "--designs", nargs="+", metavar="DESIGN", help="only these: prompt, act-then-save, outlast"
    )
    # One more than there are cores, because trials also wait: for the disk, and for a world that is late.
    jobs = (os.cpu_count() or 1) + 1
    command.add_argument(
        "--jobs", type=int, default=jobs, metavar="N", help=f"run N processes side by side (default {jobs})"
    )
    command.add_argument(
        "--quick", action="store_true", help="all tasks, but only some of the instants: under a minute"
    )
    command.add_argument("--in", dest="folder", metavar="FOLDER", help="folder for the stores of the trials")
    command.add_argument(
        "--replay", metavar="TASK:DESIGN:N", help="repeat one trial, as a failing one prints it"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=evaluate)


def evaluate(arguments: argparse.Namespace) -> int:
    """`outlast chaos eval`: 0 when every bar holds, 1 when one does not."""
    from outlast.chaos.eval import evaluation, report

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the folders are removed
    if arguments.replay:
        return _replay(arguments)
    plan = _plan(arguments)
    evaluation.check_names(plan.tasks, plan.designs)
    if not arguments.json:
        say(
            f"seed {plan.seed}: {len(plan.tasks)} tasks, {len(plan.designs)} designs{' (quick)' * plan.quick}"
        )
        sys.stdout.flush()
    done = evaluation.evaluate(plan, _Progress())
    if arguments.json:
        say_json(report.document(done))
    else:
        say()
        for line in table(report.table(done)):
            say(line)
        for line in ("", *report.LEGEND, "", *report.verdict(done)):
            say(line)
        say(
            f"{sum(row.trials for row in done.rows.values()):,} trials in {done.seconds:.0f} s, seed {plan.seed}"
        )
    for line in report.failures(done):
        tell(f"failed: {line}")
    return 0 if done.passed else 1


def _plan(arguments: argparse.Namespace) -> "Plan":
    from outlast.chaos.eval.designs import DESIGNS
    from outlast.chaos.eval.evaluation import Plan
    from outlast.chaos.tasks.catalog import TASKS
    from outlast.errors import UsageError

    if not 1 <= arguments.jobs <= JOBS_MAX:
        raise UsageError(f"--jobs must be 1 to {JOBS_MAX}, got {arguments.jobs}", hint="like --jobs 4")
    seed = random.SystemRandom().randint(0, SEED_MAX) if arguments.seed is None else arguments.seed
    tasks = tuple(arguments.tasks or TASKS)
    if len(tasks) == 1 and tasks[0].isdigit():
        count = int(tasks[0])
        if not 1 <= count <= len(TASKS):
            raise UsageError(f"--tasks must be 1 to {len(TASKS)}, got {count}", hint="or name the tasks")
        chosen = set(random.Random(f"{seed} tasks").sample(sorted(TASKS), count))
        tasks = tuple(name for name in TASKS if name in chosen)
    folder = None if arguments.folder is None else Path(arguments.folder).absolute()
    if folder is not None and not folder.is_dir():
        raise UsageError(f"--in must be a folder, got {arguments.folder}", hint="make the folder first")
    designs = tuple(arguments.designs or DESIGNS)
    return Plan(seed, tasks, designs, arguments.jobs, arguments.quick, folder)


def _replay(arguments: argparse.Namespace) -> int:
    from outlast.chaos.eval import evaluation, report

    trial = evaluation.replay(arguments.replay)
    if arguments.json:
        say_json(report.trial_document(trial))
    else:
        _tell_trial(trial)
    return 1 if trial.wrong or trial.beats_lost or trial.paid_twice or trial.unstopped else 0


def _tell_trial(trial: "Trial") -> None:
    say(f"{trial.task} under {trial.design}")
    for number, end in enumerate(trial.ends, start=1):
        at = f" at {trial.at[number - 1]}" if end == "killed" and number <= len(trial.at) else ""
        lines = safe(end) if end.count("\n") == 0 else "failed\n" + end
        say(f"  attempt {number}: {lines}{at}")
    for text in trial.wrong:
        say(f"  wrong: {safe(text)}")
    say(
        f"  done twice {trial.duplicates}, lost {trial.lost}, beats lost {trial.beats_lost}, "
        f"paid twice {trial.paid_twice}, asked again {trial.decisions_repeated}"
    )
    say("  survived" if trial.survived else "  did not survive")


class _Progress:
    """How many trials so far: redrawn on a terminal, a line a minute elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        timing = Timing.current()
        self._every_s = timing.redraw_every_s if self._terminal else timing.line_every_s
        self._last_s = self._began_s = time.monotonic()

    def __call__(self, trials: int) -> None:
        now_s = time.monotonic()
        if now_s - self._last_s < self._every_s:
            return
        self._last_s = now_s
        text = f"{trials:,} trials, {now_s - self._began_s:.0f} s"
        sys.stderr.write(f"\r{text} " if self._terminal else f"{text}\n")
        sys.stderr.flush()
