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

    # Leases of a store that several hosts share.
    ttl_min_s: float = 6.0  # of a shorter lease the margin for clocks would leave nothing
    act_within_s: float = 2.0  # an act begins so soon after its intent was sent, or the lease is asked again
    quiet_s: float = (
        10.0  # after a silent holder was overtaken: what it began before is over, or never will be
    )
    watch_look_s: float = 1.0  # between two looks at a holder elsewhere; at most a sixth of its lease
    retry_s: float = 1.0  # after a renewal that was not answered

    # A server: how long it is waited for.
    connect_s: int = 3
    keepalive_s: int = 5
    silence_ms: int = 3_000  # a connection without an answer is given up: four more fit into a lease
    silence_look_s: float = 0.25
    news_look_s: float = 0.2  # between two looks at whether somebody wrote
    reconnect_s: float = 20.0  # what is not a lease's: an outage that a living attempt survives
    reconnect_poll_s: float = 0.3
    gather_s: float = (
        0.003  # for more batches of an event loop's runs, before one statement for all: less than a flush
    )
    gather_look_s: float = 0.0003

    # The database and the shelf.
    busy_ms: int = 10_000  # for another process's transaction: far above the longest of ours on a slow disk
    busy_poll_s: float = 0.01
    log_look_s: float = 20.0  # between two looks at who keeps the log from being reset
    turn_wait_s: float = 10.0  # for the turn to write, before going without: its holder may be stopped
    turn_pause_s: float = 60.0  # without turns after one that did not come
    shelf_look_s: float = 0.02

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("store", cls)
