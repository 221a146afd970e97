"""How long agent CLIs and the far sides of their calls are waited for, and why."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of agents and probes. `current` is the standard one."""

    version_s: float = 10.0  # for `--version`: some CLIs start a whole runtime first
    hook_timeout_s: int = (
        600  # as written into a CLI's settings: far above the 5 s after which our hook answers by itself
    )
    http_hook_s: int = 30  # a hook by HTTP that nobody answers denies its call then, a local one as well
    facts_s: float = 3.0  # before an outward call; its hook waits for it
    look_s: float = 10.0  # for a probe to find out whether a call happened
    settles_s: float = 3.0  # how long the far side of a call may be busy with it after its caller died
    index_settles_s: float = 30.0  # the same for a package index, which may answer from a cache for a while

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("agents", cls)
