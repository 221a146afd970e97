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
