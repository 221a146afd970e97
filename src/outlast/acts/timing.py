"""How long an act waits for a run that starts or stops, and why."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of acts. `current` is the standard one."""

    started_within_s: float = (
        20.0  # for a run that is resumed to begin; after that the outcome says that it has not
    )
    leaves_within_s: float = 5.0  # for one that was asked to stop
    sure_after_s: float = 0.5  # a process that was killed is there for a little while
    look_every_s: float = 0.05

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("acts", cls)
