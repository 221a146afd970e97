"""How long outlast waits for processes of the system, and why."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of starting, stopping and hearing processes. `current` is the standard one."""

    start_limit_s: float = 30.0  # fork and exec: only a very busy machine or a dead network disk takes longer
    kill_limit_s: float = (
        10.0  # of SIGKILL, round after round; who is left then is in the kernel and named as escaped
    )
    die_limit_s: float = 2.0  # for one round of killed processes to be gone
    signal_tick_s: float = (
        0.1  # between two looks at processes that have no pidfd, and at what `on_wait` says
    )
    terminal_write_s: float = 0.5  # a terminal that takes nothing for so long is not waited for

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("processes", cls)
