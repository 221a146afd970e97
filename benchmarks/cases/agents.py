"""What supervising an agent costs: its hooks against a bare interpreter, reading its stream, resuming after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cases.night import wait_for
from benchmarks.cases.supervisor import ticks
from benchmarks.driver import ROOT, Bench, environment
from benchmarks.report import Bar, Section, number, spread

if TYPE_CHECKING:
    from tests.agents.agent_under_outlast import Under

HOOK_MAX = 1.2
PARSE_MIN_MB_S = 50.0
RESUME_MAX_S = 1.0
LIMIT_S = 120.0
TICKS_S = os.sysconf("SC_CLK_TCK")
CLAUDE = ("claude", "2.1.325")
SAMPLES = ROOT / "tests/agents/samples"
OUTLAST = str(Path(sys.executable).with_name("outlast"))
SHIMMED = {
    "git status": 2.0,
    "git stash push": 10.0,
    "npm ls": 10.0,
    "curl -X GET http://h": 10.0,
}  # added ms, at most
STREAMS = {
    "claude": "claude-2.1.325-transcript.jsonl",
    "codex": "codex-0.166-rollout.jsonl",
    "kimi-code": "kimi-code-2.1.0-wire.jsonl",
    "kimi-cli": "kimi-cli-1.51.0-wire.jsonl",
    "gemini": "gemini-0.61.0-chat.jsonl",
    "opencode": "opencode-1.18.33-run.jsonl",
    "aider": "aider-0.86.2-history.md",
}
# A stand-in for Claude Code: prints its version, writes down its arguments, and lives until it is stopped.
STAND_IN = """#!/bin/sh
[ "$1" != --version ] || { echo "2.1.325 (Claude Code)"; exit; }
printf '%s\\n' "$@" > "$ARGUMENTS.part"; mv "$ARGUMENTS.part" "$ARGUMENTS"
exec sleep 600
"""


def measure(bench: Bench) -> Section:
    section = Section("agents: their hooks, streams and resumes", ["", "measured", "beside"])
    measure_hooks(bench, section)
    measure_shims(bench, section)
    measure_parsing(bench, section)
    measure_resume(bench, section)
    return section


# --- hooks ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Live:
    """A live supervisor, and the command that its agent's hooks run."""

    hook: list[str]
    work: Path
    env: dict[str, str]

    def ms(self, told: Path) -> float:
        """One hook with this input."""
        return self.timed(self.hook, told)

    def bare_ms(self) -> float:
        return self.timed([sys.executable, "-c", "pass"], Path(os.devnull))

    def timed(self, words: list[str], told: Path) -> float:
        with told.open("rb") as stdin:
            started = time.perf_counter()
            code = subprocess.run(words, cwd=self.work, env=self.env, stdin=stdin, check=False).returncode
            spent_ms = (time.perf_counter() - started) * 1e3
        assert code == 0, f"exit code {code}: the hook was not answered"
        return spent_ms


@contextlib.contextmanager
def live(bench: Bench, *, saves: bool) -> Iterator[Live]:
    """`outlast run -- claude`, with a stand-in; a home is a folder that is not saved."""
    folder = bench.folder("hooks")
    program, work = folder / "bin/claude", folder / "work" if saves else folder
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    env = environment(folder) | {"ARGUMENTS": str(folder / "arguments")}
    if saves:
        work.mkdir()
        script = "git init -q && git config user.name a && git config user.email a@b && echo 1 > a && git add a && git commit -qm a"
        subprocess.run(["sh", "-c", script], cwd=work, env=env, check=True)
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [OUTLAST, "run", "--task", "t", "--", str(program), "-p", "x"], cwd=work, env=env,
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
        )  # fmt: skip
    try:
        wait_for(folder / "arguments")
        words = (folder / "arguments").read_text().splitlines()
        settings = json.loads(Path(words[words.index("--settings") + 1]).read_text())
        command = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
        yield Live(shlex.split(command), work, env)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT_S)


def inputs(folder: Path, number: int) -> tuple[Path, Path]:
    """What Claude Code sends before and after one call, as recorded, with an id of its own."""
    recorded = [
        json.loads(line) for line in (SAMPLES / "claude-2.1.325-hooks.jsonl").read_bytes().splitlines()
    ]
    made = []
    for event in ("PreToolUse", "PostToolUse"):
        told = next(each for each in recorded if each["hook_event_name"] == event)
        told |= {
            "tool_use_id": f"toolu_{number}",
            "tool_name": "Bash",
            "tool_input": {"command": f"echo {number}"},
        }
        told |= {"cwd": str(folder), "transcript_path": str(folder / "none.jsonl")}
        path = folder.with_name(f"{folder.name}-{event}-{number}")
        path.write_text(json.dumps(told))
        made.append(path)
    return made[0], made[1]


def hook_times(bench: Bench, *, saves: bool) -> dict[str, list[float]]:
    """Bare interpreter, before a call, after it, one after the other in each round; a file changes before the last."""
    found: dict[str, list[float]] = {"bare": [], "pre": [], "post": []}
    with live(bench, saves=saves) as there:
        for turn in range(bench.rounds_of(full=40, quick=15) + 1):
            pre, post = inputs(there.work, turn)
            spent = {"bare": there.bare_ms(), "pre": there.ms(pre)}
            (there.work / "a").write_text(f"{turn}\n")
            spent["post"] = there.ms(post)
            for name, spent_ms in spent.items() if turn else ():
                found[name].append(spent_ms)
    return found


def measure_hooks(bench: Bench, section: Section) -> None:
    plain, saving = hook_times(bench, saves=False), hook_times(bench, saves=True)
    ratios = {
        name: [one / bare for one, bare in zip(found[what], found["bare"], strict=True)]
        for name, found, what in (
            ("PreToolUse", plain, "pre"),
            ("PostToolUse without a save", plain, "post"),
            ("PreToolUse, in a repository", saving, "pre"),
            ("PostToolUse with its save", saving, "post"),
        )
    }
    bare_ms = statistics.median(plain["bare"] + saving["bare"])
    for name, ratio in ratios.items():
        section.rows.append([name, f"{spread(ratio)} ×", f"python -c pass {number(bare_ms)} ms"])
    save_ms = statistics.median(post - pre for post, pre in zip(saving["post"], saving["pre"], strict=True))
    section.rows.append(["the save in PostToolUse", f"{number(save_ms)} ms", ""])
    section.data |= {"hooks": ratios, "bare_ms": bare_ms, "save_ms": save_ms}
    section.bars += [
        Bar(f"agents: {name}, beside python -c pass", statistics.median(ratios[name]), HOOK_MAX, "×")
        for name in ("PreToolUse", "PostToolUse without a save", "PreToolUse, in a repository")
    ]


# --- shims ------------------------------------------------------------------------------------------------------


def measure_shims(bench: Bench, section: Section) -> None:
    """What a shim adds to a call that surely stays inside, above a program that does nothing."""
    from outlast.agents.outward import shims

    folder = bench.folder("shims")
    for text, most_ms in SHIMMED.items():
        words, real = text.split(), folder / "real" / text.split()[0]
        shim = folder / real.name
        real.parent.mkdir(exist_ok=True)
        if not shim.exists():
            real.symlink_to("/bin/true")
            script = shims.shim_script(real.name, str(real), sys.executable, os.devnull, folder=str(folder))
            shim.write_text(script)
            shim.chmod(0o755)
        env = {"PATH": f"{folder}:{real.parent}", "HOME": str(folder)}
        spent: dict[Path, list[float]] = {real: [], shim: []}
        for _ in range(bench.rounds_of(full=200, quick=50)):
            for program, times in spent.items():
                started = time.perf_counter()
                subprocess.run([program, *words[1:]], env=env, check=True)
                times.append((time.perf_counter() - started) * 1e3)
        bare_ms, added_ms = (
            statistics.median(spent[real]),
            statistics.median([a - b for a, b in zip(spent[shim], spent[real], strict=True)]),
        )
        section.rows.append([f"the shim of `{text}`", f"+{added_ms:.2f} ms", f"{number(bare_ms)} ms"])
        section.bars.append(Bar(f"agents: the shim of `{text}`, added", added_ms, most_ms, "ms"))


# --- streams ----------------------------------------------------------------------------------------------------


def stream(agent: str) -> bytes:
    """A recorded session. aider's is short prose, so a file that it had to write whole is added."""
    recorded = (SAMPLES / STREAMS[agent]).read_bytes()
    return recorded + (ROOT / "src/outlast/agents/aider.py").read_bytes() if agent == "aider" else recorded


def measure_parsing(bench: Bench, section: Section) -> None:
    from outlast.agents import registry

    rates = {}
    for agent in STREAMS:
        known = registry.by_name(agent)
        assert known is not None, f"{agent} is known"
        data = stream(agent)
        lines = data.splitlines() * (bench.pick(full=40, quick=8) * 1_000_000 // len(data))
        size_mb = sum(map(len, lines)) / 1e6
        spent_s = []
        for _ in range(3):
            started = time.process_time()
            for line in lines:
                for _event in known.transcript.parse(line):
                    pass
            spent_s.append(time.process_time() - started)
        rates[agent] = size_mb / statistics.median(spent_s)
        section.rows.append(
            [
                f"reading {agent}",
                f"{number(rates[agent])} MB/s",
                f"{len(data) // len(data.splitlines())} bytes a line",
            ]
        )
    section.data["parsing_mb_s"] = rates
    slowest = min(rates, key=lambda agent: rates[agent])
    section.bars.append(
        Bar(
            f"agents: reading the slowest stream ({slowest})",
            rates[slowest],
            PARSE_MIN_MB_S,
            "MB/s",
            at_least=True,
        )
    )


# --- resuming ---------------------------------------------------------------------------------------------------


def measure_resume(bench: Bench, section: Section) -> None:
    """The real program with a scripted model: from its start to its first request, bare and under outlast."""
    from tests.agents import tools

    if tools.find(*CLAUDE) is None:
        section.absent(
            "resume of a real session",
            f"{' '.join(CLAUDE)} is not in the cache: ./dev test-agents fetches it",
        )
        return
    bare, ours, before, cpu = resume_times(bench)
    over = [one - other for one, other in zip(ours, bare, strict=True)]
    section.rows.append(
        ["resume of a real session", f"{spread(over)} s above", f"claude --resume {spread(bare)} s"]
    )
    section.rows.append(["of it, before the program is started", f"{spread(before)} s", ""])
    section.rows.append(["CPU of guardian and supervisor until then", f"{spread(cpu)} s", ""])
    section.data["resume_s"] = {"bare": bare, "ours": ours, "before": before, "cpu": cpu}
    section.bars.append(
        Bar("agents: resume, above the CLI's own start", statistics.median(over), RESUME_MAX_S, "s")
    )


def resume_times(bench: Bench) -> tuple[list[float], list[float], list[float], list[float]]:
    """Seconds to the first request, bare and under outlast; the time before the program was started; our CPU."""
    from tests.agents.agent_under_outlast import Under
    from tests.agents.agent_world import AgentWorld
    from tests.agents.script import Script, Step, bash

    call = bash("touch begun; sleep 300")
    script = Script(lambda history, played: Step("Go.", (call,)))
    name, version = CLAUDE
    with AgentWorld(bench.folder("resume") / "world", script, own_network=False) as world:
        under = Under(world, name, version)
        first = world.command(name, "go", version=version, namespaced=False)
        again = world.command(name, "go", version=version, session=first.session, namespaced=False)
        words = under.outlast("run", "--task", "t", "--", *under.words())
        bare, ours, before, cpu = [], [], [], []
        for turn in range(bench.rounds_of(full=9, quick=4) + 1):
            alone = until_asked(under, (again if turn else first).argv, first.env)
            carried = until_asked(under, words, under.environ(), level=2)
            if turn:
                bare.append(alone[0])
                ours.append(carried[0])
                before.append(carried[1])
                cpu.append(carried[2])
        return bare, ours, before, cpu


def until_asked(
    under: Under, words: list[str], env: dict[str, str], level: int = 0
) -> tuple[float, float, float]:
    """Seconds from the start to the model's first request, and to the start of the process at that level; CPU above it.

    The agent is killed in the call that follows, with all around it.
    """
    from outlast.processes import proc

    world, quiet = under.world, subprocess.DEVNULL
    begun = world.work / "begun"
    begun.unlink(missing_ok=True)
    asked = len(world.model.paid())
    booted = time.clock_gettime(time.CLOCK_BOOTTIME)
    started = time.perf_counter()
    process = subprocess.Popen(
        words, cwd=world.work, env=env, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        while len(world.model.paid()) == asked:
            assert time.perf_counter() - started < LIMIT_S, "the agent sent no request to its model"
            time.sleep(0.005)
        spent_s = time.perf_counter() - started
        pids = under.pids(process)
        there = proc.look(pids[level])
        cpu_s = sum(map(ticks, pids[:level])) / TICKS_S
        assert there is not None, "the agent waits for its model"
        wait_for(begun)
    finally:
        under.kill_all(process)
    return spent_s, there.start_ticks / TICKS_S - booted, cpu_s
