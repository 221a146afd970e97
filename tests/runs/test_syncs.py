"""How often a run waits for the disk, counted by strace: the price list of the README."""

from pathlib import Path

import pytest

from tests.support import processes, strace
from tests.support.environment import skip_or_fail

pytestmark = pytest.mark.strace

# Two numbers of beats: the difference of the counts is what the extra beats cost, whatever starting and ending cost.
FEW, MANY = 5, 25

SYNC = """
import sys, outlast
folder, beats, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def refuse():
    raise outlast.DidNotHappen
budget = ["10k", "usd=9", "beats=30", "time=9h"] if kind == "budget" else None  # its warnings fall among the beats
with outlast.run("t", store=folder, project="p", budget=budget) as run:
    for beat in run.beats():
        if kind == "budget":
            beat.decide("m", lambda: outlast.Answer(1, outlast.Usage(output=390)))
        if kind in ("decide", "all"):
            beat.decide("d", lambda: 1)
        if kind == "two decides":
            beat.decide("d", lambda: 1)
            beat.decide("e", lambda: 1)
        if kind in ("lazy", "lazy then effect"):
            beat.decide("d", lambda: 1, lazy=True)
        if kind in ("effect", "all", "lazy then effect"):
            beat.act("a", lambda: 1)
        if kind == "replayed key":
            beat.act("a", lambda: 1, key="k")
        if kind == "staged":
            beat.remember("n", "x:y")
            beat.stage("s")
            beat.extend(["x"])
            beat.spend(1)
        if kind == "failed":
            try:
                beat.act("a", refuse)
            except outlast.EffectFailed:
                pass
        beat.done("r")
        if beat.number == beats:
            break
"""
ASYNC = """
import asyncio, sys, outlast
folder, beats, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
async def main():
    async with outlast.run("t", store=folder, project="p") as run:
        async for beat in run.beats():
            if kind == "all":
                await beat.decide("d", lambda: 1)
                await beat.act("a", lambda: 1)
            if kind == "lazy":
                await beat.decide("d", lambda: 1, lazy=True)
            await beat.done("r")
            if beat.number == beats:
                break
asyncio.run(main())
"""


def flushes(folder: Path, script: str, beats: int, kind: str) -> int:
    folder.mkdir()
    command = processes.python_command(script, str(folder), str(beats), kind)
    trace = strace.Traced(command, folder, strace.SYNCS).run()
    assert trace.returncode == 0, trace.output
    return trace.count()


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("script", "kind", "per_beat"),
    [
        (SYNC, "bare", 1),
        (SYNC, "decide", 2),
        (SYNC, "budget", 2),
        (SYNC, "two decides", 3),
        (SYNC, "lazy", 1),
        (SYNC, "effect", 3),
        (SYNC, "failed", 3),
        (SYNC, "lazy then effect", 3),
        (SYNC, "replayed key", 1),
        (SYNC, "staged", 1),
        (SYNC, "all", 4),
        (ASYNC, "bare", 1),
        (ASYNC, "lazy", 1),
        (ASYNC, "all", 4),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_one_flush_per_beat_one_per_decision_two_per_effect(
    tmp_path: Path, script: str, kind: str, per_beat: int
) -> None:
    reason = strace.available()
    if reason is not None:
        skip_or_fail(reason)
    few = flushes(tmp_path / "few", script, FEW, kind)
    many = flushes(tmp_path / "many", script, MANY, kind)
    assert many - few == per_beat * (MANY - FEW)


def test_starting_and_ending_wait_for_the_disk_a_bounded_number_of_times(tmp_path: Path) -> None:
    """A second start of a known store: the claim, the attempt's event, its end, and the beat."""
    reason = strace.available()
    if reason is not None:
        skip_or_fail(reason)
    folder = tmp_path / "store"
    first = flushes(folder, SYNC, 1, "bare")
    command = processes.python_command(SYNC, str(folder), "2", "bare")
    again = strace.Traced(command, folder, strace.SYNCS).run()
    assert again.returncode == 0, again.output
    assert again.count() <= 8
    assert again.count() < first
