"""Finds the processes that a dead attempt's act left, by mark or open act lock, and stops them before the act is judged."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from outlast.processes import reap
from outlast.processes.proc import describe
from outlast.processes.roster import Roster
from outlast.processes.signals import wait_gone
from outlast.runs.timing import Timing
from outlast.store.locks import boottime_s

NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The processes that were stopped, and those that could not be, in words."""

    stopped: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def stop(run: str, act_lock: Path, roster: Path, key: str, age_s: int | None) -> Leftovers:
    """Stop all that the run's acts started in the last `age_s` seconds (None: ever), and all that its dead programs forked.

    Our own descendants are ours to mind and are not stopped: those on the roster of the effect with this key are left. A
    process that also belongs to an act of another run is not stopped but waited for. Without /proc nothing is found: ask
    `unseen` too, of an intent of an earlier attempt.
    """
    if not os.path.isdir("/proc/self/fd"):
        return Leftovers()
    timing = Timing.current()
    since_s = _since_s(age_s, timing)
    found = reap.search_acts(run, since_s, act_lock)
    if not (found.own or found.shared):
        return Leftovers(left=_on(roster, key))
    report = reap.stop(
        lambda: reap.search_acts(run, since_s, act_lock).own,
        first=signal.SIGTERM,
        grace_s=timing.leftover_grace_s,
    )
    deadline = time.monotonic() + timing.leftover_wait_s
    shared = wait_gone(found.shared, deadline - time.monotonic())
    return Leftovers(
        (*report.stopped, *report.killed),
        (*report.escaped, *(describe(proc.pid) for proc in shared), *_on(roster, key)),
    )


def unseen(age_s: int | None) -> tuple[str, ...]:
    """What may have been started in the last `age_s` seconds (None: ever) by a process that is dead, and cannot be
    recognised, in words. While there is such, nobody knows that what was begun then is over."""
    since_s = _since_s(age_s, Timing.current())
    if since_s < 0 and age_s is not None:
        return ()  # before this boot
    if not os.path.isdir("/proc/self/fd"):
        return ("a process that cannot be seen, as there is no /proc",)
    return tuple(describe(proc.pid) for proc in reap.search_hidden(since_s)[:NAMED_MAX])


def _since_s(age_s: int | None, timing: Timing) -> float:
    return 0.0 if age_s is None else boottime_s() - age_s - timing.intent_rounded_s


def _on(roster: Path, key: str) -> tuple[str, ...]:
    """The living processes of an effect's calls, in words."""
    return tuple(describe(proc.pid) for proc in Roster(roster).alive(key))
