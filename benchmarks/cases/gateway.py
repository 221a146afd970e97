"""What the metering gateway costs a stream: calls through it against calls straight to the model, at the same time."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.driver import ROOT, Bench, environment
from benchmarks.gateway_ends import CHUNKS, PACE_S
from benchmarks.report import Bar, Section, number, percentile

if TYPE_CHECKING:
    from outlast.gateway import Call, CallUsage

FIRST_MAX_MS = 2.0
STREAM_MAX = 1.05
AT_ONCE = 100
LIMIT_S = 120.0


class Counting:
    """A meter that lets everything pass."""

    def __init__(self) -> None:
        self.exact = 0

    def closed(self) -> None:
        return None

    def before(self, call: Call) -> None:
        return None

    def after(self, spent: CallUsage) -> None:
        self.exact += spent.ended == "complete" and not spent.usage.estimated

    def words(self) -> str:
        return ""


def measure(bench: Bench) -> Section:
    from outlast.gateway import Gateway

    section = Section(
        f"gateway: a stream of {CHUNKS} chunks, {AT_ONCE} at once", ["", "through it", "direct"]
    )
    words, env = [sys.executable, "-P", "-m", "benchmarks.gateway_ends"], environment(bench.folder("gateway"))
    meter = Counting()
    gateway = Gateway(meter)
    with subprocess.Popen(
        [*words, "upstream"], cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as model:
        assert model.stdout is not None
        direct = f"http://127.0.0.1:{model.stdout.readline().strip()}"
        gateway.start()
        rounds = []
        for _ in range(bench.rounds_of(full=5, quick=2)):
            # Both ways in one round: half of the hundred each.
            urls = [direct, gateway.route(direct)]
            done = subprocess.run(
                [*words, "client", str(AT_ONCE), *urls], cwd=ROOT, env=env, capture_output=True, text=True,
                timeout=LIMIT_S, check=True,
            )  # fmt: skip
            rounds.append(json.loads(done.stdout))
        gateway.close()
        model.kill()
    calls = 2 * AT_ONCE * len(rounds)
    assert meter.exact == calls, f"{meter.exact} of {calls} calls were counted exactly"
    report(section, rounds)
    return section


def report(section: Section, rounds: list[list[list[list[float]]]]) -> None:
    """The medians of each round, one way against the other, and the median of these."""
    first = [[statistics.median(call[0] for call in way) * 1e3 for way in both] for both in rounds]
    whole = [[statistics.median(call[1] for call in way) for way in both] for both in rounds]
    added_ms = statistics.median(through - straight for straight, through in first)
    ratio = statistics.median(through / straight for straight, through in whole)
    late = [percentile([call[0] * 1e3 for both in rounds for call in both[way]], 95) for way in (0, 1)]
    middle = [statistics.median(one[way] for one in first) for way in (0, 1)]
    ends = [statistics.median(one[way] for one in whole) for way in (0, 1)]
    section.rows += [
        ["first byte, p50", f"{number(middle[1])} ms", f"{number(middle[0])} ms"],
        ["first byte, p95", f"{number(late[1])} ms", f"{number(late[0])} ms"],
        ["whole stream, p50", f"{number(ends[1])} s", f"{number(ends[0])} s"],
    ]
    section.notes.append(
        f"{AT_ONCE} streams through the gateway beside {AT_ONCE} direct ones, a chunk each {PACE_S * 1e3:.0f} ms; "
        "kept connections; client, model and gateway are processes of their own"
    )
    section.data = {"first_ms": first, "whole_s": whole}
    section.bars = [
        Bar("gateway: added to the first byte, p50", added_ms, FIRST_MAX_MS, "ms"),
        Bar("gateway: a whole stream, against a direct one", ratio, STREAM_MAX, "×"),
    ]
