"""Metrics for Prometheus: sums over all runs and over our own requests. No run, goal or path is a label."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator

from outlast._version import __version__
from outlast.dashboard.documents import Row
from outlast.dashboard.report import KINDS

KIND = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0)
MICRO = 1_000_000


class Requests:
    """How many requests were answered, with which status, and how long that took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes: Counter[int] = Counter()
        self._buckets = [0] * len(BUCKETS_S)
        self._sum_s = 0.0

    def count(self, code: int, seconds: float) -> None:
        """Count one answered request."""
        with self._lock:
            self._codes[code] += 1
            self._sum_s += seconds
            for at, bound in enumerate(BUCKETS_S):
                if seconds <= bound:
                    self._buckets[at] += 1
                    break

    def lines(self) -> Iterator[str]:
        """The metrics in Prometheus' text format."""
        with self._lock:
            codes, buckets, sum_s = sorted(self._codes.items()), list(self._buckets), self._sum_s
        total = sum(number for _, number in codes)
        yield from _family("outlast_ui_requests_total", "counter", "Requests answered, by status code.")
        yield from (f'outlast_ui_requests_total{{code="{code}"}} {number}' for code, number in codes)
        name = "outlast_ui_request_seconds"
        yield from _family(name, "histogram", "Time to make an answer.")
        below = 0
        for bound, number in zip(BUCKETS_S, buckets, strict=True):
            below += number
            yield f'{name}_bucket{{le="{bound}"}} {below}'
        yield f'{name}_bucket{{le="+Inf"}} {total}'
        yield f"{name}_sum {sum_s:.6f}"
        yield f"{name}_count {total}"


def render(rows: Iterable[Row], number: int, requests: Requests, listeners: int) -> bytes:
    """The whole text. Runs forgotten by `outlast gc` are in no sum, so totals can go down with it."""
    return "".join(f"{line}\n" for line in _lines(list(rows), number, requests, listeners)).encode()


def _lines(rows: list[Row], number: int, requests: Requests, listeners: int) -> Iterator[str]:
    yield from _family("outlast_build_info", "gauge", "The version that serves this.")
    yield f'outlast_build_info{{version="{__version__}"}} 1'
    yield from _family("outlast_runs", "gauge", "Runs by status and by what they ask of a person.")
    counts = Counter((row.status, row.what) for row in rows)
    for (status, what), runs in sorted(counts.items()):
        yield f'outlast_runs{{status="{status}",what="{what}"}} {runs}'
    needing = sum(row.what == KINDS[0] for row in rows)
    yield from _one("outlast_runs_needing_a_person", "gauge", "Runs that wait for a person.", needing)
    questions = sum(len(row.waits_for) for row in rows)
    yield from _one(
        "outlast_questions_open", "gauge", "Questions and approvals that wait for a person.", questions
    )
    stranded = sum(row.stranded for row in rows)
    about = "Runs that stopped without being asked to, and that will not restart by themselves."
    yield from _one("outlast_runs_stranded", "gauge", about, stranded)
    there = {row.run for row in rows}
    alone = [
        row for row in rows if not row.parent or row.root not in there
    ]  # a child's part is in its root's
    in_doubt = sum(row.in_doubt for row in alone)
    yield from _one("outlast_in_doubt_effects", "gauge", "Effects with an unknown outcome.", in_doubt)
    tokens = sum(row.spent.tokens for row in alone)
    yield from _one("outlast_tokens_spent_total", "counter", "Tokens spent by the runs known.", tokens)
    cost = sum(row.spent.cost_microusd for row in alone) / MICRO
    yield from _one("outlast_cost_usd_total", "counter", "Dollars spent by the runs known.", f"{cost:.6f}")
    beats = sum(row.beats for row in rows)
    yield from _one("outlast_beats_total", "counter", "Beats done by the runs known.", beats)
    yield from _one("outlast_event_number", "gauge", "Number of the newest event of the store.", number)
    yield from _one("outlast_ui_live_clients", "gauge", "Pages that listen for events.", listeners)
    yield from requests.lines()


def _one(name: str, kind: str, about: str, value: object) -> Iterator[str]:
    yield from _family(name, kind, about)
    yield f"{name} {value}"


def _family(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
