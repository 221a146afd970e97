"""What a supervisor costs: starting a command, waiting beside it, passing on what it prints, replaying a step."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.driver import Bench, environment
from benchmarks.report import Bar, Section, number

RUN_MAX_S = 0.35
IDLE_MAX_MB = 70.0
IDLE_MAX_CPU = 0.01
PASS_MIN_MB_S = 50.0
REPLAY_MAX_S = 0.15
PRINTED_MB = 400
OUTLAST = str(Path(sys.executable).with_name("outlast"))


def measure(bench: Bench) -> Section:
    section = Section("supervisor: any command under `outlast run`", ["", "measured", "beside"])
    folder = bench.folder("supervisor")
    env = environment(folder)
    env["PATH"] = f"{Path(OUTLAST).parent}:{env.get('PATH', os.defpath)}"
    work = folder / "work"
    work.mkdir()
    script = "git init -q && git config user.name a && git config user.email a@b && echo 1 > a && git add a && git commit -qm a"
    subprocess.run(["sh", "-c", script], cwd=work, env=env, check=True)
    over, bare = measure_run(bench, work, env)
    section.rows.append(["outlast run -- true", f"{number(over)} s above", f"true alone {number(bare)} s"])
    memory_mb, cpu = measure_idle(bench, work, env)
    section.rows.append(["idle, guardian and supervisor", f"{memory_mb:.0f} MB, {cpu:.1%} of a core", ""])
    rate, alone = measure_printing(bench, work, env)
    section.rows.append(["pass-through", f"{rate:.0f} MB/s", f"cat alone {alone:.0f} MB/s"])
    replay = measure_replay(bench, work, env)
    section.rows.append(["outlast step, replayed", f"{number(replay)} s", ""])
    section.data = {"run_s": over, "idle_mb": memory_mb, "idle_cpu": cpu, "mb_s": rate, "replay_s": replay}
    section.bars = [
        Bar("supervisor: outlast run -- true, above true", over, RUN_MAX_S, "s"),
        Bar("supervisor: idle, guardian and supervisor together", memory_mb, IDLE_MAX_MB, "MB"),
        Bar("supervisor: idle, share of a core", cpu, IDLE_MAX_CPU, "cores"),
        Bar("supervisor: pass-through", rate, PASS_MIN_MB_S, "MB/s", at_least=True),
        Bar("supervisor: outlast step, replayed", replay, REPLAY_MAX_S, "s"),
    ]
    return section


def seconds(words: list[str], work: Path, env: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(words, cwd=work, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def measure_run(bench: Bench, work: Path, env: dict[str, str]) -> tuple[float, float]:
    over, bare = [], []
    for turn in range(bench.rounds_of(full=15, quick=5) + 1):
        alone = seconds(["true"], work, env)
        ours = seconds([OUTLAST, "run", "--", "true"], work, env)
        if turn:
            bare.append(alone)
            over.append(ours - alone)
    return statistics.median(over), statistics.median(bare)


def measure_idle(bench: Bench, work: Path, env: dict[str, str]) -> tuple[float, float]:
    """Proportional memory, so that shared pages count once; CPU over some seconds of waiting."""
    process = subprocess.Popen(
        [OUTLAST, "run", "--task", "idle", "--", "sleep", "600"], cwd=work, env=env,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        pids = both(process.pid)
        time.sleep(2.0)
        began = sum(ticks(pid) for pid in pids)
        waited_s = bench.pick(full=20, quick=5)
        time.sleep(waited_s)
        spent_s = (sum(ticks(pid) for pid in pids) - began) / os.sysconf("SC_CLK_TCK")
        return sum(resident_mb(pid) for pid in pids), spent_s / waited_s
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def both(guardian: int) -> tuple[int, int]:
    """The guardian and its supervisor, once the command runs below it."""
    while True:
        for child in children(guardian):
            if any("sleep" in Path(f"/proc/{pid}/comm").read_text() for pid in children(child)):
                return guardian, child
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def measure_printing(bench: Bench, work: Path, env: dict[str, str]) -> tuple[float, float]:
    """Lines as a build prints them, through a pipe."""
    lines = work.parent / "lines"
    line = b"[ 41%] Building C object src/CMakeFiles/app.dir/parser/expression_statement.c.o\n"
    lines.write_bytes(line * (PRINTED_MB * 1_000_000 // len(line)))
    rates: dict[str, list[float]] = {"ours": [], "alone": []}
    for turn in range(bench.rounds_of(full=3, quick=2)):
        command = ["cat", str(lines)]
        rates["alone"].append(PRINTED_MB / piped(command, work, env))
        rates["ours"].append(
            PRINTED_MB / piped([OUTLAST, "run", "--task", f"print{turn}", "--", *command], work, env)
        )
    lines.unlink()
    return statistics.median(rates["ours"]), statistics.median(rates["alone"])


def piped(words: list[str], work: Path, env: dict[str, str]) -> float:
    started = time.perf_counter()
    with subprocess.Popen(
        words, cwd=work, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        while process.stdout.read(1 << 20):
            pass
    return time.perf_counter() - started


def measure_replay(bench: Bench, work: Path, env: dict[str, str]) -> float:
    """A script that runs the same steps twice, the second time in another attempt."""
    count = bench.pick(full=10, quick=3)
    times = work.parent / "times"
    script = (
        f'for n in $(seq {count}); do b=$(date +%s%N); outlast step "s$n" -- echo "$n" > /dev/null; '
        f"e=$(date +%s%N); [ -e again ] && echo $((e - b)) >> {times}; done; [ -e again ] || {{ touch again; exit 1; }}"
    )
    env = env | {"OUTLAST_RESTART_WAIT_S": "0"}
    seconds([OUTLAST, "run", "--task", "replay", "--", "bash", "-c", script], work, env)
    return statistics.median(int(line) for line in times.read_text().split()) / 1e9
