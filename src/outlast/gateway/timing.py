"""How long the metering gateway waits for a model's API and for its own end, and why."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of the gateway. `current` is the standard one."""

    connect_s: float = 30.0  # to a model's API, through proxy and TLS
    head_s: float = 60.0  # for the head of an agent's request
    body_silent_s: float = 120.0  # between two pieces of its body
    secret_s: float = 10.0  # for a new connection to show the run's secret: until then it may be anybody's
    judge_s: float = (
        1.0  # between two looks at whose connections these are, while a crowd has not shown the secret
    )
    idle_s: float = 900.0  # between two requests: an agent's tools may run for long
    drain_s: float = 10.0  # of a request that was refused, so that its sender reads why
    sweep_s: float = 5.0  # between two looks at clients that are late
    close_s: float = 10.0  # for calls under way to be cut and counted

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("gateway", cls)
