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
from tests.agents import tools, trial_parts, trial_plan
from tests.agents.chaos_results import Line, Results, line_of, table
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
    parser.add_argument(
        "--part", default="", choices=("", *trial_parts.PARTS), help="only trials with this part"
    )
    parser.add_argument(
        "--results",
        type=Path,
        help="write each trial here as it ends; those that are in it are not carried out again",
    )
    parser.add_argument("--jobs", type=int, default=JOBS, help="so many at a time")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="begin no trial after this")
    parser.add_argument("--keep", action="store_true", help="keep the folders of good trials too")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    wanted = options.only or numbers(options.agent, options.trials)
    wanted = [n for n in wanted if not options.part or options.part in trial_plan.plan(seed, n).parts]
    results = Results(options.results)
    before = {} if options.only else {n: line for n, line in results.read(seed).items() if n in wanted}
    wanted = [n for n in wanted if n not in before]
    if missing():
        say(f"missing: {', '.join(missing())}; `./dev test-agents` fetches them")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="outlast-chaos-"))
    say(f"seed {seed}, {len(wanted)} trials in {folder}" + (f", {len(before)} done before" if before else ""))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    lines: list[Line] = []
    try:
        for out in carry_all(
            seed, wanted, folder, jobs=options.jobs, limit_s=options.limit_s, keep=options.keep
        ):
            lines.append(line_of(out))
            results.add(lines[-1])
            tell(out, f"[{len(lines)}/{len(wanted)}]", whole=bool(options.only))
    except KeyboardInterrupt:
        sweep(folder)
        say(f"seed {seed}: interrupted after {len(lines)} trials; nothing of them runs any more")
        os._exit(128 + signal.SIGINT)  # threads of trials would go on for minutes
    skipped = len(wanted) - len(lines)
    failed = summed(seed, [*before.values(), *lines], skipped)
    if not any(line.failures for line in lines) and not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed or skipped else 0


def summed(seed: int, lines: list[Line], skipped: int) -> int:
    """Say what all of them showed, those of earlier calls included; returns how many failed."""
    for by in ("agent", "part"):
        for row in table(lines, by=by):
            say(row)
        say("")
    failed = [line for line in lines if line.failures]
    for line in failed:
        say(f"failed: ./dev chaos-agents --seed {seed} --only {line.trial}: {line.failures[0][:160]}")
    say(
        f"seed {seed}: {len(lines)} trials, {len(failed)} failed; {sum(x.kills for x in lines)} blows, "
        f"{sum(x.wanted for x in lines)} effects: {sum(x.twice for x in lines)} twice, {sum(x.lost for x in lines)} lost, "
        f"{sum(x.stuck for x in lines)} stuck" + (f"; {skipped} not begun" if skipped else "")
    )
    return len(failed)


def tell(out: Outcome, which: str, *, whole: bool) -> None:
    """A line for a trial, or all of it where it failed."""
    verdict = "FAILED" if out.failures else "ok"
    say(
        f"{which} trial {out.plan.trial} {out.plan.key} ({', '.join(out.plan.parts)}): {verdict}, {out.took_s:.0f} s, {len(out.kills)} kills"
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
