"""How long a look at runs waits for git, and why."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of `outlast doctor`. `current` is the standard one."""

    list_refs_s: float = 10.0  # in a repository with very many refs: nobody waits longer for a note
    find_save_s: float = 60.0  # for one answer about a save, in a large vault on a slow disk

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("inspect", cls)
