"""Ctrl-C at any instant: the end is recorded at once, and nothing that was locked stays locked."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import outlast
from outlast.runs.run import run_engine
from tests.support.inprocess import journal_of

TRIALS = 200

# A timer's signal with Python's own handler for Ctrl-C strikes wherever the program happens to be.
INTERRUPTED = """
import random, signal, sys
import outlast
from outlast.runs.run import run_engine
mode, store, seed, trials = sys.argv[1:]
rng = random.Random(seed)
signal.signal(signal.SIGALRM, signal.default_int_handler)
soon = lambda: signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, 0.003))
with outlast.run("warm up: an interrupted import is not ours", store=store, project="p"):
    pass
for trial in range(int(trials)):
    armed = False  # once in an attempt: a second signal while the end of the first is recorded is another matter
    try:
        if mode == "opening":
            soon()
        with outlast.run("t", store=store, project="p") as run:
            for beat in run.beats():
                beat.decide("d", lambda: 1) if mode == "context" else None
                if not armed and mode != "opening" and (mode != "write" or beat.number % 9 == 1):
                    armed = True
                    soon()
                while True:
                    if mode == "write":
                        beat.decide("d", lambda: 1)
                        beat.done()
                        break
                    if mode == "read":
                        run_engine(run).journal.store.read(run.id, after=0, limit=1)
                    if mode == "context":
                        run.context()
                    if mode == "acting":
                        with run_engine(run).journal.lease.guard():
                            pass
    except KeyboardInterrupt as error:
        print("interrupted", *getattr(error, "__notes__", []), flush=True)
with outlast.run("t", store=store, project="p") as run:
    run.finish()
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["read", "context", "acting", "opening", "write"])
def test_ctrl_c_at_any_instant_ends_the_attempt_at_once_and_leaves_nothing_locked(
    store: Path, rng: random.Random, mode: str
) -> None:
    script = [sys.executable, "-c", INTERRUPTED, mode, store, str(rng.random()), str(TRIALS)]
    done = subprocess.run(
        script, capture_output=True, text=True, timeout=120, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGALRM, signal.SIG_DFL),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout == "interrupted\n" * TRIALS
    if mode == "opening":
        return
    ends = [event for event in journal_of(store) if type(event).__name__ == "AttemptEnded"]
    assert [event.cause for event in ends] == ["signal"] * TRIALS + ["done"]


def test_a_run_that_was_given_back_performs_nothing(store: Path) -> None:
    """Its descriptors are closed, and their numbers may be another run's by now."""
    with outlast.run("t", store=store, project="p") as run:
        lease = run_engine(run).journal.lease
        with outlast.run("other", store=store, project="p") as other:
            late = run_engine(other).journal.lease
        with pytest.raises(outlast.StoreError), late.guard():
            pytest.fail("it acts")
        with lease.guard():
            pass
