"""How long the page's documents and buttons wait for runs, git and each other, and why."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of the dashboard. `current` is the standard one."""

    # What the buttons do: a person looks at the page meanwhile.
    written_within_s: float = 600.0  # for the files of a save to be written to a new folder
    pressed_wait_s: float = 60.0  # for the same wish under way in another request
    pressed_age_max_s: float = 7 * 86_400.0  # a page may stay open for days, and send its wish again

    # Reading saves: an agent can see to it that git never answers.
    git_s: float = 15.0
    diff_s: float = 10.0
    read_on_s: float = 2.0  # for reading on in the saves of a run; the rest next time
    turn_wait_s: float = 3.0  # for a turn to look at a workspace
    count_files_s: float = 0.1  # for a whole page of saves; the rest next time
    count_retry_s: float = 60.0  # before a save that could not be counted is tried again

    # The overview.
    look_s: float = 1.0  # at locks, logs and the clock, for what changes without an event
    service_s: float = 60.0  # before the system is asked again whether a service restarts runs at boot
    count_work_s: float = 0.01  # of counting the past at a time; then it rests as long
    count_follow_s: float = 5.0
    chart_rest_s: float = 1.0  # before charts are made anew
    count_stop_s: float = 5.0

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("dashboard", cls)
