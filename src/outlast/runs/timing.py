"""How long a run in this process waits, and how exactly it knows when an attempt died."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of a run. `current` is the standard one."""

    reissue_wait_s: float = (
        0.25  # before the second reissue, doubled each time: the far side may be busy with the first
    )
    cancel_grace_s: float = 6.0  # for the acts under way; as long as a supervisor gives a command
    leftover_grace_s: float = 3.0  # for what a dead attempt's act started, between SIGTERM and SIGKILL
    leftover_wait_s: float = 10.0  # for such a process that belongs to an act of another run, too
    intent_rounded_s: float = 2.0  # an intent has its time in whole seconds, and so has its age
    check_look_s: float = 0.2  # between two looks at signals while a check runs
    tend_wait_s: float = (
        10.0  # for the thread that packs saves, at the end of a run; it may be cut off at any point
    )

    # When an attempt died is known by its lease.
    renewed_within_s: float = 15.0  # a lease is renewed every 10 s; half as much again for a busy machine
    lease_rounded_s: float = 1.0  # a store has the end of a lease in whole seconds, rounded up

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("runs", cls)
