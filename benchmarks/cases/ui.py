"""The dashboard: how fast and how big its pages are, how fast an event reaches them, what open pages cost writers."""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import available_timezones

from benchmarks.driver import ROOT, Bench, environment
from benchmarks.report import Bar, Section, number, percentile
from benchmarks.ui_ends import EVENTS_A_SECOND

FIRST_MAX_MS = 150.0
BYTES_MAX_KB = 300.0
REACHES_MAX_MS = 300.0
WRITES_MAX = 1.05
MANY, LONG, FEW = 10_000, 10_000, 100
PAGES = 20
EVENTS = 100
SLICE_S = 2.0
LIMIT_S = 60.0
OUTLAST = str(Path(sys.executable).with_name("outlast"))
ENDS = [sys.executable, "-P", "-m", "benchmarks.ui_ends"]


@dataclass(frozen=True, slots=True)
class Got:
    """The answer to one request."""

    first_ms: float
    size: int
    body: bytes


def measure(bench: Bench) -> Section:
    section = Section(
        f"ui: {MANY:,} runs, a run of {LONG:,} beats, {PAGES} pages open", ["", "measured", "beside"]
    )
    folder = bench.folder("ui")
    env = environment(folder)
    pages = measure_pages(bench, folder, env, section)
    statements = measure_statements(bench, folder, env, section)
    reaches = measure_reaches(bench, folder, env, section)
    writes = measure_writes(bench, folder, env, section)
    section.bars = [
        *pages, *statements,
        Bar("ui: an event in the refetched page, p95", reaches, REACHES_MAX_MS, "ms"),
        Bar(f"ui: a write with {PAGES} pages open, against none", writes, WRITES_MAX, "×"),
    ]  # fmt: skip
    section.notes.append(
        "the real `outlast ui`; first byte on a new connection, each page in another time zone so that none is a copy of "
        "the one before; pages refetch the overview at an event, at once and then once a second, as the browser does; "
        "of the commits the medians of two slices are compared, one with the pages open and one without"
    )
    return section


# -- the parts of it ---------------------------------------------------------------------------------------------------


def stores(folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Stores by name, and what to request from each."""
    from tests.support.journals.large_stores import long_run, many_runs

    places = {name: folder / name for name in ("many", "few", "long", "short")}
    if not places["many"].exists():
        many_runs(places["many"], MANY)
        many_runs(places["few"], FEW)
        long_run(places["long"], LONG)
        long_run(places["short"], FEW)
    paths = dict.fromkeys(("many", "few"), "/")
    return places, paths | {name: f"/runs/{only_run(places[name])}" for name in ("long", "short")}


def only_run(place: Path) -> str:
    from outlast.store import open_store
    from outlast.store.protocol import RunFilter

    store = open_store(place)
    try:
        return store.list(RunFilter())[0].run
    finally:
        store.close()


@contextlib.contextmanager
def served(words: list[str], place: Path, env: dict[str, str]) -> Iterator[str]:
    """The dashboard of a store in a process of its own; yields its address."""
    command = [*words, "--store", str(place), "ui", "--port", "0"]
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


class End:
    """A process that takes commands line by line."""

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [*ENDS, *words], cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def __call__(self, word: str, amount: float = 0) -> Any:
        assert self._process.stdin is not None
        print(word, amount, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> End:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def get(url: str, path: str, *, zone: str = "UTC", gzip: bool = False) -> Got:
    """One request on a connection of its own."""
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    encoding = "gzip" if gzip else "identity"
    head = f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nAccept-Encoding: {encoding}\r\nCookie: zone={zone}\r\nConnection: close\r\n\r\n"
    with socket.create_connection((place.hostname, place.port), timeout=LIMIT_S) as link:
        began = time.perf_counter()
        link.sendall(head.encode())
        data = link.recv(1 << 20)
        first_ms = (time.perf_counter() - began) * 1e3
        parts = [data]
        while data := link.recv(1 << 20):
            parts.append(data)
    answer, _, body = b"".join(parts).partition(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    return Got(first_ms, len(body), body)


# -- the pages ---------------------------------------------------------------------------------------------------------


def measure_pages(bench: Bench, folder: Path, env: dict[str, str], section: Section) -> list[Bar]:
    places, paths = stores(folder)
    zones = sorted(zone for zone in available_timezones() if zone.startswith("Europe/"))
    bars = []
    for name, what in (("many", f"overview of {MANY:,} runs"), ("long", f"page of {LONG:,} beats")):
        with served([OUTLAST], places[name], env) as url:
            cold = get(url, paths[name])
            rounds = bench.rounds_of(full=40, quick=20)
            times = [get(url, paths[name], zone=zones[n % len(zones)]).first_ms for n in range(rounds)]
            small = get(url, paths[name], gzip=True)
        late = percentile(times, 95)
        section.rows.append(
            [
                f"{what}: first byte, p95",
                f"{number(late)} ms",
                f"p50 {number(statistics.median(times))} ms; the very first {number(cold.first_ms)} ms",
            ]
        )
        section.rows.append(
            [f"{what}: size", f"{number(cold.size / 1e3)} KB", f"on the wire {number(small.size / 1e3)} KB"]
        )
        section.data |= {f"{name}_ms": times, f"{name}_cold_ms": cold.first_ms, f"{name}_bytes": cold.size}
        bars += [
            Bar(f"ui: {what}, first byte, p95", late, FIRST_MAX_MS, "ms"),
            Bar(f"ui: {what}, size", cold.size / 1e3, BYTES_MAX_KB, "KB"),
        ]
    return bars


def measure_statements(bench: Bench, folder: Path, env: dict[str, str], section: Section) -> list[Bar]:
    """The most SQL statements that some requests of a page take."""
    places, paths = stores(folder)
    counts = {}
    for name, place in places.items():
        counter = folder / f"{name}.count"
        with served([*ENDS, "counted", str(counter)], place, env) as url:
            get(url, paths[name])
            counts[name] = max(
                count_one(url, paths[name], counter, zone)
                for zone in ("Asia/Tokyo", "Africa/Cairo", "Europe/Rome", "Asia/Dubai", "America/Lima")
            )
    section.data["statements"] = counts
    section.rows.append(["overview: SQL statements", str(counts["many"]), f"with {FEW} runs {counts['few']}"])
    section.rows.append(
        ["page of a run: SQL statements", str(counts["long"]), f"with {FEW} beats {counts['short']}"]
    )
    return [
        Bar(f"ui: statements for {MANY:,} runs more than for {FEW}", counts["many"] - counts["few"], 0.0, ""),
        Bar(
            f"ui: statements for {LONG:,} beats more than for {FEW}",
            counts["long"] - counts["short"],
            0.0,
            "",
        ),
    ]


def count_one(url: str, path: str, counter: Path, zone: str) -> int:
    before = int.from_bytes(counter.read_bytes(), sys.byteorder)
    get(url, path, zone=zone)
    return int.from_bytes(counter.read_bytes(), sys.byteorder) - before


# -- live --------------------------------------------------------------------------------------------------------------


def measure_reaches(bench: Bench, folder: Path, env: dict[str, str], section: Section) -> float:
    """From the commit of an event to the page that has it. A page refetches at once, but at most once a second."""
    places, _ = stores(folder)
    with served([OUTLAST], places["many"], env) as url, End(["writer", str(places["many"])], env) as writer:
        heard, seen = list[float](), list[float]()
        get(url, "/")
        with End(["pages", url], env) as pages:
            pages("open", 1)
            ends = writer("spread", EVENTS)
            time.sleep(1.5)
            told = pages("close")
        assert len(told["heard"][0]) == len(ends), "an event was missed"
        heard = [(got - end) * 1e3 for got, end in zip(told["heard"][0], ends, strict=True)]
        for _ in range(
            bench.rounds_of(full=20, quick=8)
        ):  # one event after a quiet time: the page refetches at once
            with End(["pages", url], env) as pages:
                pages("open", 1)
                (end,) = writer("spread", 1)
                time.sleep(0.7)
                told = pages("close")
            seen.append((told["seen"][0][0] - end) * 1e3)
    section.rows.append(
        [
            "an event told to a page, p95",
            f"{number(percentile(heard, 95))} ms",
            f"p50 {number(statistics.median(heard))} ms",
        ]
    )
    late = percentile(seen, 95)
    section.rows.append(
        [
            "an event in the refetched page, p95",
            f"{number(late)} ms",
            f"p50 {number(statistics.median(seen))} ms",
        ]
    )
    section.data |= {"heard_ms": heard, "seen_ms": seen}
    return late


def measure_writes(bench: Bench, folder: Path, env: dict[str, str], section: Section) -> float:
    """Eight agents write, with the pages open and without, in turns; what a commit takes."""
    places, _ = stores(folder)
    turns: dict[str, list[tuple[list[float], list[float]]]] = {"paced": [], "flood": []}
    with (
        served([OUTLAST], places["many"], env) as url,
        End(["writer", str(places["many"])], env) as writer,
        End(["pages", url], env) as pages,
    ):
        get(url, "/")
        writer("paced", SLICE_S)
        for how, found in turns.items():
            for turn in range(bench.rounds_of(full=16 if how == "paced" else 4, quick=4)):
                found.append(one_turn(writer, pages, how, open_first=bool(turn % 2)))
    ratios = {}
    for how, what in (("paced", f"{EVENTS_A_SECOND} a second"), ("flood", "as many as go")):
        middles = [(statistics.median(alone), statistics.median(watched)) for alone, watched in turns[how]]
        ratios[how] = statistics.median(watched / alone for alone, watched in middles)
        alone, watched = (spread_us(part) for part in zip(*turns[how], strict=True))
        section.rows.append(
            [
                f"a commit with {PAGES} pages open, {what}",
                f"{ratios[how]:.2f} ×",
                f"{watched} µs; none open {alone} µs",
            ]
        )
    section.data |= {"writes": ratios}
    return ratios["paced"]


def spread_us(slices: Iterable[list[float]]) -> str:
    """The median of all commits, and the time of the slowest twentieth."""
    times = [taken * 1e6 for part in slices for taken in part]
    return f"p50 {number(statistics.median(times))}, p95 {number(percentile(times, 95))}"


def one_turn(writer: End, pages: End, how: str, *, open_first: bool) -> tuple[list[float], list[float]]:
    """A slice with the pages open and one without; which comes first changes."""
    slices: dict[bool, list[float]] = {}
    for is_open in (open_first, not open_first):
        if is_open:
            pages("open", PAGES)
        slices[is_open] = writer(how, SLICE_S)
        if is_open:
            told = pages("close")
            assert told["fetched"] >= PAGES, "the pages were not fetched"
    return slices[False], slices[True]
