"""The command line: which benchmarks, how long, where the results go."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks import postgres
from benchmarks.cases.size import is_database
from benchmarks.driver import HERE, ROOT, Bench, SubjectFailed
from benchmarks.report import Section, markdown, terminal

NAMES = (
    "step",
    "group",
    "postgres",
    "resume",
    "size",
    "import",
    "syncs",
    "workspace",
    "supervisor",
    "night",
    "agents",
    "session",
    "runs",
    "forecast",
    "gateway",
    "ui",
)
PACKAGES = ("outlast", "apsw", "dbos", "langgraph", "langgraph-checkpoint-sqlite", "absurd-sdk", "psycopg")
# Not /tmp, which may be memory: a sync must reach a disk to cost what it costs.
PLACE_DEFAULT = "/var/tmp"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench", description="outlast beside the raw disk and its peers"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; without: all")
    parser.add_argument("--quick", action="store_true", help="shorter histories and fewer rounds")
    parser.add_argument("--rounds", type=int, help="rounds of each benchmark")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md")
    parser.add_argument("--no-fail", action="store_true", help="exit 0 also when a bar is missed")
    parser.add_argument(
        "--place", default=PLACE_DEFAULT, help=f"a folder on the disk to measure ({PLACE_DEFAULT})"
    )
    parser.add_argument("--rebuild", action="store_true", help="make benchmarks/.venv afresh")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)} (there are {', '.join(NAMES)})")
    return options


def file_system(path: str) -> str:
    """The type of the file system that holds a path: the longest mount point above it."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    real = os.path.realpath(path)
    above = [(point, kind) for point, kind in mounts if os.path.commonpath([point, real]) == point]
    return max(above, key=lambda mount: len(mount[0]))[1]


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def machine(place: str) -> dict[str, str]:
    import apsw

    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, {file_system(place)}",
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "packages": ", ".join(f"{package} {installed(package)}" for package in PACKAGES),
        "load at start": f"{os.getloadavg()[0]:.1f}",
    }


@contextmanager
def bench_of(options: argparse.Namespace) -> Iterator[Bench]:
    work = Path(tempfile.mkdtemp(prefix="outlast-bench-", dir=options.place))
    bench = Bench(work=work, quick=options.quick, rounds=options.rounds)
    try:
        bench.page_bytes = page_bytes_of_outlast(bench)
        with server_for(bench, options.place):
            yield bench
    finally:
        shutil.rmtree(work, ignore_errors=True)


def page_bytes_of_outlast(bench: Bench) -> int:
    """The raw baseline must use the pages that outlast uses; they are in the header of its file."""
    try:
        history = bench.history("outlast", 1)
    except SubjectFailed:
        return bench.page_bytes
    database = next(path for path in history.rglob("*") if path.is_file() and is_database(path))
    in_header = int.from_bytes(database.read_bytes()[16:18])
    return 65_536 if in_header == 1 else in_header


@contextmanager
def server_for(bench: Bench, place: str) -> Iterator[None]:
    """Sets the bench's URL, or the reason why there is none."""
    started = postgres.server(Path(place))
    try:
        bench.postgres_url = started.__enter__()
    except postgres.NoServer as reason:
        bench.no_postgres = f"no PostgreSQL: {reason}"
        yield
        return
    try:
        yield
    finally:
        started.__exit__(None, None, None)


def measure_all(bench: Bench, names: list[str]) -> list[Section]:
    sections = []
    for name in names:
        bench.say(f"{name} …")
        module = import_module(f"benchmarks.cases.{'imports' if name == 'import' else name}")
        sections.append(module.measure(bench))
    return sections


def missing_line() -> str:
    stamp = HERE / ".venv" / "stamp.json"
    missing = json.loads(stamp.read_text())["missing"] if stamp.exists() else {}
    return "; ".join(f"{requirement}: {reason}" for requirement, reason in missing.items())


def save(options: argparse.Namespace, sections: list[Section], about: dict[str, str]) -> None:
    found = {
        "machine": about,
        "quick": options.quick,
        "bars": [
            {
                "what": bar.what,
                "measured": bar.measured,
                "limit": bar.limit,
                "unit": bar.unit,
                "passed": bar.passed,
            }
            for section in sections
            for bar in section.bars
        ],
        "benchmarks": {section.title.partition(":")[0]: section.data for section in sections},
    }
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    named = results / f"{datetime.now(UTC).strftime('%Y-%m-%dT%H%M%SZ')}.json"
    for path in [named, *([options.json] if options.json else [])]:
        path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"wrote {named.relative_to(ROOT)}", file=sys.stderr)
    if options.write:
        (HERE / "RESULTS.md").write_text(markdown(sections, about))


def main() -> int:
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server and the folders go with us
    names = [name for name in NAMES if name in options.names] or list(NAMES)
    about = machine(options.place)
    if missing_line():
        about["could not be installed"] = missing_line()
    with bench_of(options) as bench:
        sections = measure_all(bench, names)
    print("\n".join(f"{key}: {value}" for key, value in about.items()))
    print("\n" + terminal(sections))
    save(options, sections, about)
    missed = [bar for section in sections for bar in section.bars if not bar.passed]
    return 1 if missed and not options.no_fail else 0


if __name__ == "__main__":
    sys.exit(main())
