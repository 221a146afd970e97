"""How long a notification may take, and why."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of the notifications. `current` is the standard one."""

    post_s: float = 10.0  # for one request: a phone's network is slow, and other channels wait meanwhile
    desktop_s: float = 10.0  # `notify-send` ends at once, or has no desktop to speak to
    command_s: float = 60.0  # a user's command: after that it is ended, so that none piles up
    again_s: float = 2.0  # before the second try; five times as long before the third
    quiet_look_s: float = (
        20.0  # between two looks at the clock: a laptop may sleep through the end of the quiet hours
    )
    link_s: float = (
        48 * 3600.0
    )  # a link acts so long: over a night and a day, and well below the week of `pressed`

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("notifications", cls)
