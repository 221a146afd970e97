"""How long the evaluation and the demo wait for their processes, and how late their world is on purpose."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of the evaluation. `current` is the standard one."""

    # Only there to end a hang.
    attempt_limit_s: int = 60
    cold_start_limit_s: float = 60.0
    agent_limit_s: float = 60.0
    witness_start_s: float = 60.0
    check_limit_s: float = 30.0

    # The witness.
    settle_s: float = 0.02  # how long it may be busy with a request whose sender died
    quiet_limit_s: float = 5.0  # for every request that a dead attempt had sent to be done with
    quiet_look_s: float = 0.001  # between two looks at whether they are
    unsure_wait_s: float = 0.03  # where it may drop a request, its silence is waited for

    # The tasks whose world is late: the caller gives up long before, and looks only after it was done.
    patience_s: float = 0.1
    late_ms: int = 250
    late_settle_s: float = 0.5

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("chaos", cls)
