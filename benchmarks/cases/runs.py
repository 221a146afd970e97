"""Many runs in one store: what the commands that list them cost, and whether all that start or go on at once get through."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.cases.night import OUTLAST, kill_all
from benchmarks.driver import Bench, environment
from benchmarks.report import Bar, Section, number

MANY = 10_000
CPU_MAX_S = 1.0
LIMIT_S = 1_200.0
LISTING = (("ls", "--all"), ("report", "--since", "24h"), ("doctor",), ("top", "--once"))
# It waits until it may end, so that all of them live at once.
WAITS = "touch ../$0.ready; while [ ! -e ../go ]; do sleep 0.2; done"


def measure(bench: Bench) -> Section:
    many, crowd = bench.pick(full=MANY, quick=MANY // 5), bench.pick(full=200, quick=20)
    section = Section(f"runs: {many:,} in a store, {crowd} started at once", ["", "measured"])
    measure_lists(bench, section, many)
    measure_crowd(bench, section, crowd)
    return section


def measure_lists(bench: Bench, section: Section, many: int) -> None:
    """CPU of the commands that show all runs."""
    from tests.support.journals.large_stores import many_runs

    folder = bench.folder("runs")
    env, place = environment(folder), many_runs(folder / "many", many)
    for words in LISTING:
        spent_s = statistics.median(
            cpu_s([OUTLAST, "--store", str(place), *words], env)
            for _ in range(bench.rounds_of(full=5, quick=3))
        )
        name = f"outlast {' '.join(words)}"
        section.rows.append([f"{name}, CPU", f"{number(spent_s)} s"])
        section.data[name] = spent_s
        section.bars.append(Bar(f"runs: {name} of {many:,} runs, CPU", spent_s, CPU_MAX_S, "s"))


def cpu_s(words: list[str], env: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S)
    assert done.returncode in (0, 1, 3), done.stderr[-2_000:]  # some have found something
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_crowd(bench: Bench, section: Section, crowd: int) -> None:
    """So many `outlast run` at once; all killed at one instant; `outlast resume --all`."""
    folder = bench.folder("crowd")
    env = environment(folder)
    tasks = [f"t{number}" for number in range(crowd)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda task: prepare(folder / task, env), tasks))
    began_s = time.monotonic()
    guardians = [start(folder / task, task, env) for task in tasks]
    begun = ready(folder, tasks, guardians)
    all_begun_s = time.monotonic() - began_s
    kill_all(folder, guardians)
    (folder / "go").touch()
    began_s = time.monotonic()
    resumed = subprocess.run(
        [OUTLAST, "resume", "--all"], cwd=folder, env=env, capture_output=True, timeout=LIMIT_S
    )
    ended = done(folder, crowd)
    all_done_s = time.monotonic() - began_s
    section.rows += [
        [f"{crowd} `outlast run` at once: that begin", number(begun)],
        ["the last one begins after", f"{all_begun_s:.1f} s"],
        ["`resume --all` of them, all killed: that end well", number(ended)],
        ["the last one ends after", f"{all_done_s:.1f} s"],
        ["exit code of `resume --all`", str(resumed.returncode)],
    ]
    section.data |= {"begun": begun, "ended": ended, "begun_s": all_begun_s, "ended_s": all_done_s}
    section.bars += [
        Bar(f"runs: of {crowd} started at once, not begun", float(crowd - begun), 0.0, ""),
        Bar(f"runs: of {crowd} resumed at once, not done", float(crowd - ended), 0.0, ""),
    ]


def prepare(work: Path, env: dict[str, str]) -> None:
    work.mkdir()
    script = "git init -q && git config user.name a && git config user.email a@b && echo 1 > a && git add a && git commit -qm a"
    subprocess.run(["sh", "-c", script], cwd=work, env=env, check=True)


def start(work: Path, task: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        [OUTLAST, "run", "--task", task, "--", "sh", "-c", WAITS, task], cwd=work, env=env,
        stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True,
    )  # fmt: skip


def ready(folder: Path, tasks: list[str], guardians: list[subprocess.Popen[bytes]]) -> int:
    """How many commands have begun, once each has or its outlast has given up."""
    until_s = time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        begun = [(folder / f"{task}.ready").exists() for task in tasks]
        if all(has or guardian.poll() is not None for has, guardian in zip(begun, guardians, strict=True)):
            break
        time.sleep(0.1)
    return sum(begun)


def done(folder: Path, crowd: int) -> int:
    """How many runs are done, once all are or none has been for a while."""
    from outlast.store import open_store
    from outlast.store.protocol import RunFilter

    store = open_store(folder / "state" / "outlast")
    try:
        until_s, ended = time.monotonic() + LIMIT_S / 10, 0
        while ended < crowd and time.monotonic() < until_s:
            now = sum(summary.state.status == "done" for summary in store.list(RunFilter()))
            if now > ended:
                until_s = time.monotonic() + LIMIT_S / 10
            ended = now
            time.sleep(0.2)
        return ended
    finally:
        store.close()
