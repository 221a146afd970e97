"""Durations of a person's operations on runs: waits, saves of a watched worktree, ages before a removal."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of operations. `current` is the standard one."""

    alone_wait_s: float = 30.0  # for the same act of another process on a run

    # `outlast watch`.
    debounce_s: float = 2.0  # after a change: an editor or a build writes several files
    save_every_s: float = 30.0  # at most, while changes go on
    quiet_s: float = 10.0  # then a last save, whenever the one before was
    search_every_s: float = 5.0  # for new worktrees
    watch_poll_s: float = 0.25

    # What `outlast gc` removes.
    young_secret_s: float = 86_400.0  # since it was written: a save may be yet to name it
    young_blob_s: float = 3600.0  # an event may be yet to name it

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("operations", cls)
