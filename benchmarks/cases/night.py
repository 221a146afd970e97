"""The night: four commands on one host, everything killed with -9 at one instant, then `outlast resume --all`."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.driver import Bench, environment
from benchmarks.report import Bar, Section, number

COMMANDS = 4
BEATS_NOTED = 6
FIRST_BEAT_MAX_S = 5.0
LIMIT_S = 120.0
OUTLAST = str(Path(sys.executable).with_name("outlast"))

# Beat after beat, each a line; one payment in the middle; it waits after the fifth beat until it may go on.
SCRIPT = """
set -eu
for n in 1 2 3 4 5; do
    outlast step s$n -- sh -c "echo $n >> ../$1.notes"
    if [ $n = 3 ]; then outlast effect pay --unknown ask -- {python} -P ../pay.py {url} $1; fi
done
outlast step wait -- sh -c "echo wait >> ../$1.notes; touch ../$1.ready; while [ ! -e ../go ]; do sleep 0.02; done"
outlast step last -- true
"""
PAY = """
import sys
from outlast.chaos.witness.client import Client
Client(sys.argv[1]).act("blind", "pay-" + sys.argv[2], {}, identity=sys.argv[2])
"""


def measure(bench: Bench) -> Section:
    rounds = [one_night(bench) for _ in range(bench.rounds_of(full=5, quick=2))]
    first_s = [last for last, _, _ in rounds]
    duplicates, lost = sum(twice for _, twice, _ in rounds), max(lost for _, _, lost in rounds)
    section = Section("night: four commands, all killed at one instant, `resume --all`", ["", "measured"])
    section.rows = [
        ["the last one's first new beat, median", f"{statistics.median(first_s):.2f} s"],
        ["the same, slowest night", f"{max(first_s):.2f} s"],
        ["effects done twice, by the witness", number(duplicates)],
        ["beats lost by one command, at most", number(lost)],
    ]
    section.data = {"first_s": first_s, "duplicates": duplicates, "beats_lost": lost}
    section.bars = [
        Bar("night: the last one's first new beat", max(first_s), FIRST_BEAT_MAX_S, "s"),
        Bar("night: effects done twice", float(duplicates), 0.0, ""),
        Bar("night: beats lost by one command", float(lost), 1.0, ""),
    ]
    return section


def one_night(bench: Bench) -> tuple[float, int, int]:
    """Seconds to the last command's first new beat; effects done twice; the most beats repeated by one command."""
    from outlast.chaos.witness.client import Witness

    folder = bench.folder("night")
    env = environment(folder)
    env["PATH"] = f"{Path(OUTLAST).parent}:{env.get('PATH', os.defpath)}"
    with Witness.start(folder / "witness.log") as witness:
        (folder / "pay.py").write_text(PAY)
        (folder / "loop.sh").write_text(SCRIPT.format(python=sys.executable, url=witness.url))
        tasks = [f"t{number}" for number in range(COMMANDS)]
        guardians = [start(folder, task, env) for task in tasks]
        for task in tasks:
            wait_for(folder / f"{task}.ready")
        kill_all(folder, guardians)
        (folder / "go").touch()
        at = datetime.now(UTC)
        subprocess.run(
            [OUTLAST, "resume", "--all"], cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL
        )
        first_s = max(first_beat_s(folder, task, at) for task in tasks)
        notes = [(folder / f"{task}.notes").read_text().split() for task in tasks]
        return first_s, witness.counts().duplicates, max(len(lines) - BEATS_NOTED for lines in notes)


def start(folder: Path, task: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    work = folder / task
    work.mkdir()
    script = "git init -q && git config user.name a && git config user.email a@b && echo 1 > a && git add a && git commit -qm a"
    subprocess.run(["sh", "-c", script], cwd=work, env=env, check=True)
    words = [OUTLAST, "run", "--task", task, "--", "bash", str(folder / "loop.sh"), task]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        words, cwd=work, env=env, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )


def wait_for(path: Path) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not path.exists():
        if time.monotonic() > until_s:
            raise TimeoutError(f"{path.name} did not come within {LIMIT_S:.0f} s")
        time.sleep(0.01)


def kill_all(folder: Path, guardians: list[subprocess.Popen[bytes]]) -> None:
    """SIGKILL guardians, supervisors and all processes of their attempts; stopped first, so that it is one instant."""
    from outlast.processes import reap
    from outlast.store import open_store
    from outlast.store.protocol import RunFilter
    from outlast.supervisor.guardian import lock

    store = open_store(folder / "state" / "outlast")
    runs, local = [summary.run for summary in store.list(RunFilter())], store.local
    store.close()
    pids = [guardian.pid for guardian in guardians]
    watched = [lock.of(local, run) for run in runs]
    pids += [watcher.supervisor for watcher in watched if watcher is not None and watcher.supervisor]
    pids += [proc.pid for run in runs for proc in reap.find(run)]
    for blow in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, blow)
    for guardian in guardians:
        guardian.wait()


def first_beat_s(folder: Path, task: str, at: datetime) -> float:
    """Seconds from `at` to the first beat that a run did after it; returns when the run is done."""
    from outlast.core import events as ev
    from outlast.store import open_store
    from outlast.store.protocol import RunFilter

    store = open_store(folder / "state" / "outlast")
    try:
        until_s = time.monotonic() + LIMIT_S
        while (summary := store.list(RunFilter(task=task))[0]).state.status != "done":
            if time.monotonic() > until_s:
                raise TimeoutError(f"{task} did not go on: it is {summary.state.status}")
            time.sleep(0.02)
        events = (item.event for item in store.read(summary.run, after=0).events)
        beats = [event.at for event in events if isinstance(event, ev.BeatDone) and event.at > at]
        return (beats[0] - at).total_seconds()
    finally:
        store.close()
