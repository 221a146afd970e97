"""How long saves and restores wait, and how old must be what is removed, and why. A save's own deadline is a setting."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of saves and restores. `current` is the standard one."""

    # Others at work in the same folder or repository.
    lock_wait_s: float = 600.0  # a first save of a very large workspace may take minutes
    stopped_wait_s: float = 10.0  # one that was stopped (SIGSTOP, Ctrl-Z) saves nothing meanwhile
    lock_look_s: float = 0.02
    ref_lock_wait_s: float = 2.0  # git holds a ref's lock for milliseconds
    ref_lock_poll_s: float = 0.005
    git_close_s: float = 5.0  # a `git cat-file` whose input is closed ends at once, or hangs

    roots_s: float = 5.0  # a first save waits no longer for where a history begins

    # A save has little time.
    short_s: float = 1.0  # with less left, only what is hinted is looked at

    # One write may go on so long after it set the file's times, and no later stat shows it: on a busy system it stops
    # halfway for its turn, its memory or its disk. A file is read again until it was the same for this long.
    one_write_s: float = 2.0

    # Watching.
    watcher_busy_s: float = 2.0  # then everything is looked at instead
    coalesce_ms: int = 10  # the queue holds 16,384 events: nobody makes so many in that time
    reconcile_s: float = 45.0  # then everything is looked at although hints sufficed: a lost hint heals

    # After a power cut.
    file_tick_s: float = 0.05  # so far the times of files may lag behind the clock

    # What is removed.
    temporary_s: float = 60.0  # a younger temporary file may not be locked yet
    room_s: float = 5.0  # a younger folder of a living packer may not be locked yet
    empty_keep_s: float = 3600.0  # an older empty `.keep` is what a power cut left
    replaced_pack_s: float = 60.0  # whoever listed the packs before goes on reading from the old ones
    young_pack_s: float = 600.0  # a save may be yet to name what is in it

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("workspace", cls)
