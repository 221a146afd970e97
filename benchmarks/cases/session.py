"""What outlast costs a working agent: whole sessions of real CLIs, bare and under outlast, one after the other.

A session of few calls is taken from one of many, so that what is left is what a call costs.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cases.syncs import SYNCS, strace_missing
from benchmarks.driver import HERE, Bench
from benchmarks.report import Bar, Section, number

if TYPE_CHECKING:
    from tests.agents.agent_under_outlast import Under
    from tests.agents.script import Call, Script

FILES = 2_000
FEW, MANY = 4, 44
LIMIT_S = 900.0
FLUSH_MS = 20
THINKING_S = 3.0
THINKING_CALLS = 60
PROCESSES = ("clone", "clone3", "fork", "vfork")
CLAUDE, CODEX, NO_HOOKS = "claude", "codex", "mini-swe-agent"


@dataclass(frozen=True, slots=True)
class Kind:
    """Sessions that consist of one kind of call."""

    name: str
    agent: str
    call: Callable[[Path, int], Call]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one session, or of one call of it."""

    cpu_ms: float
    wall_ms: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.cpu_ms - other.cpu_ms, self.wall_ms - other.wall_ms)

    def each(self, calls: int) -> Cost:
        return Cost(self.cpu_ms / calls, self.wall_ms / calls)


@dataclass(frozen=True, slots=True)
class Counts:
    """What strace saw: flushes, and processes started, of one session or of one call of it."""

    flushes: float
    processes: float

    def __sub__(self, other: Counts) -> Counts:
        return Counts(self.flushes - other.flushes, self.processes - other.processes)

    def each(self, calls: int) -> Counts:
        return Counts(self.flushes / calls, self.processes / calls)


def changes(_: Path, number: int) -> Call:
    """In turn what an agent does to files: its own tool, a redirection, a commit."""
    from tests.agents.script import bash, write

    if number % 3 == 0:
        return write(f"src/new{number}.txt", f"{number}\n" * 20)
    if number % 3 == 1:
        return bash(f"echo {number} >> notes.txt")
    return bash(f"git add -A && git commit -q -m 'step {number}'")


def shell_changes(_: Path, number: int) -> Call:
    from tests.agents.script import bash

    return bash(f"echo {number} >> notes.txt")


def shell_looks(_: Path, number: int) -> Call:
    from tests.agents.script import bash

    return bash(f"ls src/d0 # {number}")


def reads(work: Path, number: int) -> Call:
    from tests.agents.script import Call

    return Call("Read", {"file_path": str(work / f"src/d{number % 20}/f0.txt")})


KINDS = (
    Kind("changes a file", CLAUDE, changes),
    Kind("a shell call that changes nothing", CLAUDE, shell_looks),
    Kind("reads a file", CLAUDE, reads),
    Kind("changes a file", CODEX, shell_changes),
    Kind("a shell call that changes nothing", CODEX, shell_looks),
    Kind("changes a file", NO_HOOKS, shell_changes),
)
BARS = (
    # kind, agent, CPU ms, wall ms
    ("changes a file", CLAUDE, 25.0, 30.0),
    ("a shell call that changes nothing", CLAUDE, 8.0, None),
    ("changes a file", CODEX, 45.0, None),
    ("changes a file", NO_HOOKS, 25.0, 30.0),
)


def measure(bench: Bench) -> Section:
    columns = ["", "CPU ms a call", "wall ms a call", "flushes", "processes", "bare"]
    section = Section("session: whole sessions of real CLIs, above what they cost bare", columns)
    kinds = KINDS[:3] if bench.quick else KINDS
    for kind in kinds:
        measure_kind(bench, section, kind)
    measure_slow_disk(bench, section)
    if not bench.quick:
        measure_thinking(bench, section)
    return section


# --- worlds -----------------------------------------------------------------------------------------------------


def script_of(kind: Kind, work: Path, delay_s: float = 0.0) -> Script:
    """As many calls as the prompt says: `go N`."""
    from tests.agents.script import Fault, History, Script, Step

    def chosen(history: History, _: int) -> Step:
        wanted = re.search(r"go (\d+) calls", history.prompt)
        fault = Fault(delay_s=delay_s) if delay_s else None
        if wanted is None:
            return Step("ok")
        if history.responses >= int(wanted[1]):
            return Step("All steps are done.", fault=fault)
        return Step(f"Call {history.responses}.", (kind.call(work, history.responses),), fault=fault)

    return Script(chosen)


@dataclass(slots=True)
class Sessions:
    """One kind of session: a world for it bare and one under outlast, alike but for that."""

    bench: Bench
    kind: Kind
    delay_s: float = 0.0
    made: int = 0

    def cost(self, calls: int, *, carried: bool, prefix: tuple[str, ...] = ()) -> Cost:
        """Of one session in a world of its own."""
        from tests.agents.agent_under_outlast import Under
        from tests.agents.agent_world import AgentWorld

        folder = self.bench.folder("session") / "world"
        with AgentWorld(
            folder, script_of(self.kind, folder / "work", self.delay_s), own_network=False
        ) as world:
            fill(world.work, world.environ())
            under = Under(world, self.kind.agent)
            prompt = f"go {calls} calls"
            agent = under.words(prompt)
            words = under.outlast("run", "--task", "t", "--", *agent) if carried else agent
            return self._timed([*prefix, *words], under, folder)

    def _timed(self, words: list[str], under: Under, folder: Path) -> Cost:
        result = folder / "cost.json"
        argv = [sys.executable, "-I", str(HERE / "whole_tree.py"), str(result), *words]
        with (folder / "printed").open("wb") as printed:
            subprocess.run(
                argv, cwd=under.world.work, env=under.environ(), stdin=subprocess.DEVNULL,
                stdout=printed, stderr=printed, check=True, timeout=LIMIT_S,
            )  # fmt: skip
        found = json.loads(result.read_text())
        assert found["code"] == 0, (folder / "printed").read_text(errors="replace")[-2000:]
        return Cost(found["cpu_s"] * 1e3, found["wall_s"] * 1e3)

    def counts(self, calls: int, *, carried: bool) -> Counts:
        """The same under strace, which makes it slow: nothing is timed."""
        output = self.bench.folder("session-strace") / "calls"
        traced = ",".join((*SYNCS, *PROCESSES))
        prefix = ("strace", "-f", "--seccomp-bpf", "-qq", "-s", "0", "-e", f"trace={traced}")
        self.cost(calls, carried=carried, prefix=(*prefix, "-e", "signal=none", "-o", str(output)))
        return counted(output)


def fill(work: Path, env: dict[str, str]) -> None:
    """A repository of some size, committed; the agent's own files are left out of it."""
    for each in range(FILES):
        path = work / f"src/d{each % 20}/f{each // 20}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{each}\n" * 40)
    subprocess.run(["sh", "-c", "git add -A && git commit -qm files"], cwd=work, env=env, check=True)


def counted(output: Path) -> Counts:
    """A call that strace shows twice, unfinished and resumed, counts once; a thread is no process."""
    flushes = processes = 0
    for line in output.read_text(errors="replace").splitlines():
        found = re.match(r"\d+ +(\w+)\(", line)
        if found is None:
            continue
        flushes += found[1] in SYNCS
        processes += found[1] in PROCESSES and "CLONE_THREAD" not in line
    return Counts(flushes, processes)


# --- measuring --------------------------------------------------------------------------------------------------


def missing(kind: Kind) -> str | None:
    from tests.agents import tools

    if tools.find(kind.agent) is None:
        return f"{kind.agent} is not in the cache: ./dev test-agents fetches it"
    return None


def measure_kind(bench: Bench, section: Section, kind: Kind) -> None:
    label = f"{kind.agent}: {kind.name}"
    if (reason := missing(kind)) is not None:
        section.absent(label, reason)
        return
    sessions, calls = Sessions(bench, kind), MANY - FEW
    bare: list[Cost] = []
    ours: list[Cost] = []
    for turn in range(bench.rounds_of(full=5, quick=2)):
        for carried in (False, True) if turn % 2 == 0 else (True, False):
            spent = sessions.cost(MANY, carried=carried) - sessions.cost(FEW, carried=carried)
            (ours if carried else bare).append(spent.each(calls))
        bench.say(f"  {label}: round {turn + 1}")
    above = [one - other for one, other in zip(ours, bare, strict=True)]
    cpu, wall = middle([each.cpu_ms for each in above]), middle([each.wall_ms for each in above])
    counts = None
    if strace_missing() is None:
        counts = above_bare(sessions).each(calls)
    section.rows.append(
        [
            label, number(cpu), number(wall),
            "–" if counts is None else f"{counts.flushes:.1f}", "–" if counts is None else f"{counts.processes:.1f}",
            f"{number(middle([each.cpu_ms for each in bare]))} ms CPU, {number(middle([each.wall_ms for each in bare]))} ms",
        ]
    )  # fmt: skip
    section.data[label] = {
        "cpu_ms": [each.cpu_ms for each in above], "wall_ms": [each.wall_ms for each in above],
        "flushes": counts and counts.flushes, "processes": counts and counts.processes,
    }  # fmt: skip
    add_bars(section, kind, label, cpu, wall, counts)


def above_bare(sessions: Sessions) -> Counts:
    ours = sessions.counts(MANY, carried=True) - sessions.counts(FEW, carried=True)
    return ours - (sessions.counts(MANY, carried=False) - sessions.counts(FEW, carried=False))


def add_bars(
    section: Section, kind: Kind, label: str, cpu: float, wall: float, counts: Counts | None
) -> None:
    for name, agent, cpu_max, wall_max in BARS:
        if (name, agent) != (kind.name, kind.agent):
            continue
        section.bars.append(Bar(f"session: {label}, CPU above bare", cpu, cpu_max, "ms"))
        if wall_max is not None:
            section.bars.append(Bar(f"session: {label}, wall above bare", wall, wall_max, "ms"))
    flushes = None if counts is None else counts.flushes
    flushes_max = 8.0 if kind.name == "changes a file" else 3.0
    section.bars.append(Bar(f"session: {label}, flushes", flushes, flushes_max + 0.5, "a call"))
    if kind.agent == CLAUDE:
        processes = None if counts is None else counts.processes
        saves_max = 2.0 if kind.call is changes else 0.0  # git, where HEAD or the index changed
        section.bars.append(Bar(f"session: {label}, processes", processes, saves_max + 0.1, "a call"))


def middle(values: list[float]) -> float:
    return statistics.median(values)


def measure_slow_disk(bench: Bench, section: Section) -> None:
    """Every flush takes some milliseconds more, delayed by strace."""
    kind, label = KINDS[0], f"{CLAUDE}: a flush takes {FLUSH_MS} ms more"
    if (reason := missing(kind) or strace_missing()) is not None:
        section.absent(label, reason)
        return
    sessions, many = Sessions(bench, kind), MANY // 2
    flushes = ",".join(SYNCS)
    prefix = (
        "strace", "-f", "--seccomp-bpf", "-qq", "-s", "0", "-e", f"trace={flushes}", "-e", "signal=none",
        "-e", f"inject={flushes}:delay_exit={FLUSH_MS * 1000}", "-o", os.devnull,
    )  # fmt: skip
    spent = {
        carried: (
            sessions.cost(many, carried=carried, prefix=prefix)
            - sessions.cost(FEW, carried=carried, prefix=prefix)
        ).each(many - FEW)
        for carried in (False, True)
    }
    wall = spent[True].wall_ms - spent[False].wall_ms
    section.rows.append([label, "–", number(wall), "–", "–", f"{number(spent[False].wall_ms)} ms"])
    section.data["slow_disk_ms"] = wall
    section.bars.append(Bar(f"session: {label}, wall above bare", wall, 250.0, "ms"))


def measure_thinking(bench: Bench, section: Section) -> None:
    """A model that takes its time: both sessions at once, as most of it is waiting."""
    kind, label = KINDS[0], f"{CLAUDE}: {THINKING_CALLS} calls, {THINKING_S:.0f} s of thinking before each"
    if (reason := missing(kind)) is not None:
        section.absent(label, reason)
        return
    sessions = Sessions(bench, kind, delay_s=THINKING_S)
    with ThreadPoolExecutor(2) as pool:
        ours, bare = pool.map(lambda carried: sessions.cost(THINKING_CALLS, carried=carried), (True, False))
    share = (ours.wall_ms / bare.wall_ms - 1) * 100
    section.rows.append(
        [label, "–", f"{share:.1f} % longer", "–", "–", f"{number(bare.wall_ms / 1e3)} s in all"]
    )
    section.data["thinking_percent"] = share
    section.bars.append(Bar(f"session: {label}, longer than bare", share, 2.0, "%"))
