"""Stores to look at: `python -m tests.support.journals FOLDER [--many] [--long] [--hold]`.

With `--hold` the runs that work are held alive until Ctrl-C."""

import argparse
import contextlib
import signal
import sys
from pathlib import Path

from tests.support.journals.cast import SEED
from tests.support.journals.held_runs import held
from tests.support.journals.large_stores import long_run, many_runs
from tests.support.journals.night import make_night


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.journals", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--many", action="store_true", help="ten thousand runs")
    parser.add_argument("--long", action="store_true", help="a run of ten thousand beats")
    parser.add_argument("--hold", action="store_true", help="hold the runs that work until Ctrl-C")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    if not (given.folder / "outlast.db").exists() and not (given.many or given.long):
        make_night(given.folder, seed=given.seed)
    if given.many:
        many_runs(given.folder, seed=given.seed)
    if given.long:
        long_run(given.folder, seed=given.seed)
    sys.stdout.write(f"outlast --store {given.folder} ls --all\n")
    if given.hold:
        with held(given.folder), contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
