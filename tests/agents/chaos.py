"""`./dev chaos-agents`: real agent CLIs under outlast, killed at random instants, judged by the external witness.

Trial N of a seed is always the same plan for the same agent, so that one can be carried out again by its number.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from outlast.processes import proc
from tests.agents import tools, trial_plan
from tests.agents.trial import Trial, described
from tests.agents.trial_judge import Outcome

JOBS = 2
LIMIT_S = 7200.0  # no trial is begun after this


def numbers(agents: Iterable[str], trials: int) -> list[int]:
    """The trials to carry out: so many, shared among these agents (all where none is named)."""
    wanted = set(agents)
    at = [
        n
        for n, (name, version) in enumerate(trial_plan.AGENTS)
        if not wanted or {name, f"{name}@{version}"} & wanted
    ]
    if not at:
        raise SystemExit(f"no such agent; there are {', '.join(name for name, _ in trial_plan.AGENTS)}")
    every = (n for n in itertools.count() if n % len(trial_plan.AGENTS) in at)
    return list(itertools.islice(every, trials))


def carry(plan: trial_plan.Plan, folder: Path, *, keep: bool) -> Outcome:
    """One trial; its folder stays where it failed, for whoever looks into it."""
    place = folder / f"{plan.key}-{plan.trial}"
    out = Trial(plan, place).run()
    if not out.failures and not keep:
        shutil.rmtree(place, ignore_errors=True)
    return out


def carry_all(
    seed: int,
    wanted: list[int],
    folder: Path,
    *,
    jobs: int = JOBS,
    limit_s: float = LIMIT_S,
    keep: bool = False,
) -> Iterator[Outcome]:
    """Each trial as it ends."""
    until_s = time.monotonic() + limit_s
    waiting = [trial_plan.plan(seed, number) for number in wanted]
    with ThreadPoolExecutor(jobs) as pool:
        running: set[Future[Outcome]] = set()
        while waiting or running:
            while waiting and len(running) < jobs:
                if time.monotonic() > until_s:
                    waiting = []
                    break
                running.add(pool.submit(carry, waiting.pop(0), folder, keep=keep))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def table(outcomes: list[Outcome]) -> Iterator[str]:
    """A line for each agent."""
    heads = ["agent", "trials", "failed", "kills", "starts", "acts", "settled", "again", "longest"]
    rows = [heads]
    for key in dict.fromkeys("-".join(filter(None, agent)) for agent in trial_plan.AGENTS):
        of_it = [out for out in outcomes if out.plan.key == key]
        if of_it:
            failed = sum(bool(out.failures) for out in of_it)
            counts = [len(of_it), failed, *(sum(each) for each in zip(*map(_counts, of_it), strict=True))]
            rows.append([key, *map(str, counts), f"{max(out.took_s for out in of_it):.0f} s"])
    widths = [max(len(row[n]) for row in rows) for n in range(len(heads))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _counts(out: Outcome) -> tuple[int, ...]:
    return len(out.kills), out.starts, out.acts, out.settled, out.repeated


def missing() -> list[str]:
    """The CLIs that are not here."""
    return ["-".join(filter(None, agent)) for agent in trial_plan.AGENTS if tools.find(*agent) is None]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos-agents", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seed", type=int, default=None, help="any number; the same one means the same trials"
    )
    parser.add_argument("--trials", type=int, default=14)
    parser.add_argument(
        "--agent", action="append", default=[], help="only this one, as NAME or NAME@VERSION; repeatable"
    )
    parser.add_argument("--only", type=int, action="append", default=[], help="carry out trial N; repeatable")
    parser.add_argument("--jobs", type=int, default=JOBS, help="so many at a time")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="begin no trial after this")
    parser.add_argument("--keep", action="store_true", help="keep the folders of good trials too")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    wanted = options.only or numbers(options.agent, options.trials)
    if missing():
        say(f"missing: {', '.join(missing())}; `./dev test-agents` fetches them")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="outlast-chaos-"))
    say(f"seed {seed}, {len(wanted)} trials in {folder}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcomes: list[Outcome] = []
    try:
        for out in carry_all(
            seed, wanted, folder, jobs=options.jobs, limit_s=options.limit_s, keep=options.keep
        ):
            outcomes.append(out)
            tell(out, f"[{len(outcomes)}/{len(wanted)}]", whole=bool(options.only))
    except KeyboardInterrupt:
        sweep(folder)
        say(f"seed {seed}: interrupted after {len(outcomes)} trials; nothing of them runs any more")
        os._exit(128 + signal.SIGINT)  # threads of trials would go on for minutes
    for line in table(outcomes):
        say(line)
    failed = [out for out in outcomes if out.failures]
    skipped = len(wanted) - len(outcomes)
    say(
        f"seed {seed}: {len(outcomes)} trials, {len(failed)} failed"
        + (f", {skipped} not begun" if skipped else "")
    )
    if not failed and not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed or skipped else 0


def tell(out: Outcome, which: str, *, whole: bool) -> None:
    """A line for a trial, or all of it where it failed."""
    verdict = "FAILED" if out.failures else "ok"
    say(
        f"{which} trial {out.plan.trial} {out.plan.key}: {verdict}, {out.took_s:.0f} s, {len(out.kills)} kills"
    )
    if out.failures or whole:
        say(described(out))


def sweep(folder: Path) -> None:
    """Kill what belongs to trials below this folder, by the home that only they have."""
    below = os.fsencode(f"{folder}/")
    for pid in proc.all_processes():
        if (proc.environ_value(pid, b"HOME") or b"").startswith(below):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
