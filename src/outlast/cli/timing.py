"""How often the terminal is drawn, and after how long it says that work goes on."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of the terminal. `current` is the standard one."""

    screen_tick_ms: int = 250  # between two looks at the runs in `outlast top`
    escape_ms: int = 50  # after which the key is itself, and no beginning of another's code
    silent_s: float = 2.0  # of work before a terminal is told that it goes on
    line_every_s: float = 60.0  # where nobody looks: a line in a log
    count_every_s: float = 1.0  # the seconds on a terminal
    redraw_every_s: float = 0.2  # of the evaluation's count of trials
    demo_pace_s: float = 0.4  # so that eyes can follow; without a terminal nobody waits
    follow_wait_s: float = 1.0  # for events, between two looks at whether the run is over

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("cli", cls)
