"""Saving a worktree: outlast against git's own ways and against a floor, by size and by how much changed."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import trees
from benchmarks.driver import Bench, environment
from benchmarks.report import Bar, Section, number

COUNTS = (0, 10, 1_000)
FLOOR_TIMES = 2.0
FLOOR_MORE_MS = 20.0
HINTED_MAX_MS = 15.0
IDLE_MAX_MS = 2.0
INDEX_MAX_MS = 130.0
BIG_MAX = 3.0
BIG_FILES, BIG_BYTES = 3, 100_000_000
MEMORY_MAX_MB = 16.0
DISK_MAX = 0.25
BRING_IN_MAX_MS = 300.0
LOOSE_MAX_MS = 1_000.0  # each is read, checked and written
COMMITS_BYTES = 100_000_000

Times = dict[str, list[float]]


def sizes_of(bench: Bench) -> tuple[int, ...]:
    return (1_000, 20_000) if bench.quick else (1_000, 20_000, 100_000)


def timed_ms(work: Any, *arguments: Any) -> float:
    """Earlier writes must be on the disk: nobody pays for the writes of another."""
    os.sync()
    started = time.perf_counter()
    work(*arguments)
    return (time.perf_counter() - started) * 1e3


def measure(bench: Bench) -> Section:
    section = Section(
        "workspace: a save of a worktree, ms, by files / changes (half edits, half new files)",
        [
            "files / changes",
            *(trees.WAYS[name].label.partition(" (")[0].partition(":")[0] for name in trees.WAYS),
            "scan ÷ floor",
        ],
        notes=[
            "medians; floor: `find -newer` over the tree, sha1 and zlib-1 of what changed, the index read, 4 fsyncs.",
            "git's own ways are not durable, and stash create takes no untracked file.",
        ],
    )
    cells: dict[tuple[int, int], Times] = {}
    index: dict[str, list[float]] = {}
    for files in sizes_of(bench):
        index = measure_size(bench, files, cells)
    for (files, count), times in cells.items():
        row = [number(statistics.median(times[name])) for name in trees.WAYS]
        ratio = statistics.median(a / b for a, b in zip(times["scan"], times["floor"], strict=True))
        section.rows.append([f"{files:,} / {count:,}", *row, number(ratio)])
        section.data[f"{files}/{count}"] = times
    largest = max(sizes_of(bench))
    for what, spent in index.items():
        section.rows.append(
            [f"{largest:,}, {what} changed", f"with hints {number(statistics.median(spent))} ms"]
        )
    big, memory_mb, disk = measure_big(bench), measure_memory(bench), measure_disk(bench)
    section.rows.append(
        ["disk of 1,000 beats", f"{disk['before'] / 1e6:.1f} MB, {disk['after'] / 1e6:.1f} MB consolidated"]
    )
    section.rows.append(
        ["links to the user's packs beside it", f"{disk['linked'] / 1e6:.1f} MB, which take no room"]
    )
    brought = measure_bring_in(bench)
    for how, spent in brought.items():
        section.rows.append([f"history brought in, {how}", f"{number(statistics.median(spent))} ms"])
    section.data |= {"index": index, "big": big, "memory_mb": memory_mb, "disk": disk, "brought": brought}
    section.bars = bars(cells, index, big, memory_mb, disk)
    linked_ms = statistics.median(brought["linked"])
    section.bars.append(Bar("a packed history brought in by link", linked_ms, BRING_IN_MAX_MS, "ms"))
    loose_ms = statistics.median(brought["loose"])
    section.bars.append(Bar("20,000 loose objects brought in", loose_ms, LOOSE_MAX_MS, "ms"))
    return section


# --- by size and change ---


def measure_size(bench: Bench, files: int, cells: dict[tuple[int, int], Times]) -> dict[str, list[float]]:
    """All cells of one size; at the end also what a changed index or HEAD costs a hinted save."""
    bench.say(f"  making {files:,} files")
    place = bench.folder(f"tree-{files}")
    trees.make(place / "source", files)
    ways = {}
    for name, kind in trees.WAYS.items():
        trees.copy(place / "source", place / name)
        ways[name] = kind(place / name)
    time.sleep(1.1)  # an index as young as its files makes git read them again
    for way in ways.values():
        way.ready()
    for count in COUNTS:
        cells[files, count] = measure_cell(bench, ways, files, count)
    hinted = ways["hinted"]
    assert isinstance(hinted, trees.Hinted), "the way with hints"
    index = measure_index(bench, hinted, files)
    for way in ways.values():
        way.close()
    shutil.rmtree(place)
    return index


def measure_cell(bench: Bench, ways: dict[str, trees.Way], files: int, count: int) -> Times:
    times: Times = {name: [] for name in ways}
    rounds = bench.rounds_of(full=7, quick=3)
    for turn in range(rounds + 1):
        order = list(ways) if turn % 2 == 0 else list(reversed(ways))
        for name in order:
            changed = trees.change(ways[name].folder, files, count, f"{count}-{turn}")
            spent = timed_ms(ways[name].save, changed)
            ways[name].tidy()
            if turn > 0:  # the first round warms
                times[name].append(spent)
    bench.say(
        f"  {files:,} / {count:,}: "
        + ", ".join(f"{name} {statistics.median(got):.1f}" for name, got in times.items())
    )
    return times


def measure_index(bench: Bench, way: trees.Hinted, files: int) -> dict[str, list[float]]:
    spent: dict[str, list[float]] = {"index": [], "index and HEAD": []}
    rounds = bench.rounds_of(full=7, quick=3)
    for turn in range(rounds):
        for what, words in (
            ("index", ["add", "-A"]),
            ("index and HEAD", ["commit", "-qm", "x", "--no-verify"]),
        ):
            changed = trees.change(way.folder, files, 10, f"{what} {turn}") if what == "index" else []
            trees.git(way.folder, *words)
            one_ms = timed_ms(way.save, changed)
            if way.hinted:  # every 45 s a save looks at everything, whatever changed
                spent[what].append(one_ms)
        way.tidy()
    assert all(len(times) > rounds // 2 for times in spent.values()), "a changed index makes hints useless"
    return spent


# --- big files, memory, disk ---


def measure_big(bench: Bench) -> dict[str, list[float]]:
    """Three tracked files of 100 MB change; compared with reading, hashing and writing as many bytes."""
    place = bench.folder("big")
    source = place / "source"
    trees.make(source, 100)
    size = bench.pick(full=BIG_BYTES, quick=BIG_BYTES // 10)
    paths = [source / f"big{each}" for each in range(BIG_FILES)]
    fill(paths, size)
    trees.git(source, "add", "-A")
    trees.git(source, "-c", "core.bigFileThreshold=1m", "commit", "-qm", "big")
    way = trees.Scanning(source)
    way.ready()
    spent: dict[str, list[float]] = {"ours": [], "raw": []}
    for _ in range(bench.rounds_of(full=3, quick=2)):
        fill(paths, size)
        spent["raw"].append(timed_ms(read_hash_write, paths, place / "raw"))
        spent["ours"].append(timed_ms(way.save, paths))
    way.close()
    shutil.rmtree(place)
    return spent


def fill(paths: list[Path], size: int) -> None:
    for path in paths:
        path.write_bytes(os.urandom(1 << 20) * (size >> 20) + os.urandom(size & 0xFFFFF))


def read_hash_write(paths: list[Path], to: Path) -> None:
    with to.open("wb", buffering=0) as out:
        for path in paths:
            digest = hashlib.sha1(usedforsecurity=False)
            with path.open("rb", buffering=0) as file:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
                    out.write(chunk)
        os.fsync(out.fileno())


# Not ru_maxrss: it counts what the parent held when it forked.
CHILD = """
import sys
from pathlib import Path
from outlast.store.local import Local
from outlast.workspace.capture.saver import Saver
from outlast.workspace.types import Purpose
saver = Saver(Path(sys.argv[1]), Local(Path(sys.argv[2])))
assert saver.capture(Purpose(kind="beat", run="m")) is not None
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def measure_memory(bench: Bench) -> float:
    """How much more memory a save of a file ten times as big needs, in a process of its own."""
    peaks = []
    for size in (
        bench.pick(full=50_000_000, quick=20_000_000),
        bench.pick(full=500_000_000, quick=200_000_000),
    ):
        place = bench.folder("memory")
        trees.make(place / "source", 100)
        fill([place / "source" / "big"], size)
        trees.git(place / "source", "add", "-N", "big")
        words = [sys.executable, "-P", "-c", CHILD, str(place / "source"), str(place / "state")]
        done = subprocess.run(words, env=environment(place), check=True, capture_output=True, text=True)
        peaks.append(int(done.stdout) / 1024)
        shutil.rmtree(place)
    return peaks[1] - peaks[0]


def measure_disk(bench: Bench) -> dict[str, float]:
    """What beats of ten small edits leave on the disk, before and after consolidation; scaled to 1,000 beats.

    Beside it what the vault has by links alone. The whole vault counts, not only its packs.
    """
    from outlast.workspace.compact.repack import consolidate

    place = bench.folder("disk")
    trees.make(place / "source", 1_000)
    way = trees.Hinted(place / "source")
    way.ready()
    vault = way.saver.repo().vault
    empty = used(vault)
    beats = bench.pick(full=1_000, quick=200)
    for beat in range(beats):
        way.save(trees.edit(way.folder, 1_000, 10, str(beat)))
    before = used(vault)
    started = time.perf_counter()
    consolidate(way.saver.repo(), grace_s=0.0)
    spent_s = time.perf_counter() - started
    consolidate(way.saver.repo(), grace_s=0.0)
    after, linked = used(vault), used(vault, linked=True)
    way.close()
    shutil.rmtree(place)
    scale = 1_000 / beats
    return {
        "before": (before - empty) * scale,
        "after": (after - empty) * scale,
        "linked": linked,
        "consolidating_s": spent_s * scale,
    }


def measure_bring_in(bench: Bench) -> dict[str, list[float]]:
    """What the first save of a repository pays for its history: loose, by link, and by copy, as to another file system."""
    place = bench.folder("history")
    trees.make(place / "source", 20_000)
    spent: dict[str, list[float]] = {"loose": [], "linked": [], "copied": []}
    make_loose(place / "source", place / "packs")
    for turn in range(bench.rounds_of(full=5, quick=2)):
        spent["loose"].append(bring_in_ms(place, f"loose-{turn}"))
    for commit in range(bench.pick(full=10, quick=2)):
        fill([place / "source" / "big"], COMMITS_BYTES)
        trees.git(place / "source", "add", "-A")
        trees.git(place / "source", "commit", "-qm", f"{commit}", "--no-verify")
    trees.git(place / "source", "-c", "pack.window=0", "gc", "-q")
    for how in ("linked", "copied"):
        for turn in range(bench.rounds_of(full=5, quick=2)):
            spent[how].append(bring_in_ms(place, f"{how}-{turn}", copied=how == "copied"))
    shutil.rmtree(place)
    return spent


def make_loose(folder: Path, room: Path) -> None:
    """Take all objects of a repository out of its packs."""
    (folder / ".git" / "objects" / "pack").rename(room)
    for pack in room.glob("*.pack"):
        with pack.open("rb") as file:
            subprocess.run(["git", "unpack-objects", "-q"], cwd=folder, stdin=file, check=True)


def bring_in_ms(place: Path, name: str, *, copied: bool = False) -> float:
    from outlast.store.local import Local
    from outlast.workspace import repo
    from outlast.workspace.capture.saver import Saver
    from outlast.workspace.vault import bring_in

    saver = Saver(place / "source", Local(place / name))
    link = os.link
    try:
        found = saver.repo()
        if copied:
            os.link = other_file_system
        return timed_ms(bring_in.bring, found, [repo.head(found).oid])
    finally:
        os.link = link
        saver.close()


def other_file_system(*_: object, **__: object) -> None:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def used(folder: Path, *, linked: bool = False) -> int:
    """The bytes that files take on the disk: ours, or those that are the user's as well."""
    found = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum(told.st_blocks * 512 for told in found if (told.st_nlink > 1) == linked)


# --- bars ---


def bars(
    cells: dict[tuple[int, int], Times], index: dict[str, list[float]], big: dict[str, list[float]], memory_mb: float,
    disk: dict[str, float],
) -> list[Bar]:  # fmt: skip
    median = statistics.median
    share = {
        cell: median(ours / (FLOOR_TIMES * floor + FLOOR_MORE_MS) for ours, floor in zip(times["scan"], times["floor"], strict=True))
        for cell, times in cells.items()
    }  # fmt: skip
    faster = {
        cell: median(theirs / ours for ours, theirs in zip(times["scan"], times["commit"], strict=True))
        for cell, times in cells.items()
    }
    hinted = {cell: median(times["hinted"]) for cell, times in cells.items()}
    return [
        Bar("workspace: scanning, worst cell, of 2 × floor + 20 ms", max(share.values()), 1.0, "×"),
        Bar("workspace: scanning against add && commit, worst cell", min(faster.values()), 1.0, "×", at_least=True),
        Bar("workspace: hinted, 10 changes, worst size", max(spent for (_, count), spent in hinted.items() if count == 10), HINTED_MAX_MS, "ms"),
        Bar("workspace: hinted, nothing changed, worst size", max(spent for (_, count), spent in hinted.items() if count == 0), IDLE_MAX_MS, "ms"),
        Bar("workspace: hinted, index and HEAD changed, largest", max(median(spent) for spent in index.values()), INDEX_MAX_MS, "ms"),
        Bar("workspace: 3 × 100 MB against read + sha1 + write", median(a / b for a, b in zip(big["ours"], big["raw"], strict=True)), BIG_MAX, "×"),
        Bar("workspace: memory for a file ten times as big", memory_mb, MEMORY_MAX_MB, "MB"),
        Bar("workspace: disk after consolidation against before", disk["after"] / disk["before"], DISK_MAX, "×"),
    ]  # fmt: skip
