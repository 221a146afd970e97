"""How long a store waits for locks, leases and other processes, and why. How long a lease is, is a setting."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of a store. `current` is the standard one."""

    # Leases.
    lease_margin_s: float = 1.0  # so near its end a lease is renewed before an act: the act takes time too
    wakeup_grace_s: float = (
        2.0  # after a lease ended: a machine that slept wakes the holder too, which then renews it
    )
    claim_wait_s: float = 10.0  # for a lock whose holder is just dying or just letting go
    frozen_kill_s: float = 5.0  # for a stopped holder to be gone after SIGKILL
    lock_retry_s: float = 0.005  # a reader holds a lock for an instant only
    frozen_look_s: float = 0.01
    poll_s: float = 0.05  # between two looks at a lease or at news, which SQLite does not tell of

    # The database and the shelf.
    busy_ms: int = 10_000  # for another process's transaction: far above the longest of ours on a slow disk
    busy_poll_s: float = 0.01
    shelf_look_s: float = 0.02

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("store", cls)
