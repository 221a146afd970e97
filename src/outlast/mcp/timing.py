"""How long `outlast mcp` waits for the run, and why."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of the MCP server. `current` is the standard one."""

    answer_s: float = (
        20.0  # for the run to answer: a busy disk takes seconds, a supervisor that is stopped takes for ever
    )
    save_s: float = 150.0  # the same for a save: a large workspace takes long
    stopped_s: float = (
        60.0  # a person must answer: for the run to save its files and stop the agent, and us with it
    )
    cached_ms: int = 3_600_000  # for which a client may believe what does not change while we live
    last_calls_s: float = 10.0  # stdin has ended: calls under way may still be put on record and answered

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("mcp", cls)
