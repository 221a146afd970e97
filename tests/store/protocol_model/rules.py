"""The rules of the protocol between hosts, each of which can be broken, and the schedules that find each break."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


DRIFT = 0.01
OUTAGE = 20.0
HORIZON = 150.0
CALM = 130.0
EFFECTS = 9
LOST = "lost"


@dataclasses.dataclass
class Rules:
    """The protocol as it should be. `WRITTEN` is the first text of the protocol, where it said something else or nothing."""

    ttl: float = 30.0
    renew: float = 5.0
    margin: float = 4.0
    act_within: float = 2.0
    quiet: float = 6.0
    kill_in: float = 10.0
    poll: float = 5.0
    give_up: float = 3.0  # a connection without an answer is broken
    for_share: bool = True  # the append holds the lease's row until it is committed
    turn: bool = True  # a lost answer: shut the door first, then look
    deadline_from: str = "sent"  # | reply
    judge: str = "watch"  # | server: by the server's clock
    ship: str = "before"  # | after the event that names it
    lock_session: bool = (
        True  # a claim by silence locks the session's row, then looks; a renewal looks at leases second
    )
    watch_gap: bool = True  # a look that came late begins the watch anew
    proof_stays: bool = True  # who was not proven dead stays so for every later taker
    release_waits: bool = True  # no release while an act is under way
    door_acked: bool = True  # nothing is done on what was only read
    rewind_stops: bool = True  # asynchronous: after a change of timeline nobody acts before a person said so
    claim_found: bool = True  # a claim whose answer was lost is looked up
    claim_sent: bool = True  # and its deadline counts from when the claim was sent: looking prolongs nothing
    claim_door: bool = True  # and it is confirmed by a door before anything is done on it
    fence_session: bool = True  # every fenced statement names epoch and session
    dead_by_file: bool = (
        True  # "dead" names the epoch that the lock file holds, not the one that the store tells
    )
    boottime: bool = True  # the 2 s are counted by a clock that counts sleep
    own_name: bool = True  # a save's name is never used for another content


# The protocol as it was first written, before it was attacked with this model.
WRITTEN: dict[str, Any] = {
    "renew": 10.0, "quiet": 3.0, "give_up": 7.5, "lock_session": False, "watch_gap": False, "proof_stays": False, "release_waits": False,
    "door_acked": False, "rewind_stops": False, "claim_found": False, "claim_door": False, "fence_session": False, "boottime": False, "own_name": False,
}  # fmt: skip
MUTANTS: dict[str, dict[str, Any]] = {
    "no_for_share": {"for_share": False},
    "deadline_from_reply": {"deadline_from": "reply", "give_up": 9.0, "poll": 1.0},
    "no_quiet": {"quiet": 0.0, "kill_in": -30.0},
    "server_clock": {"judge": "server"},
    "no_turn": {"turn": False},
    "ship_after_event": {"ship": "after"},
    "no_session_lock": {"lock_session": False},
    "proof_of_last_only": {"proof_stays": False},
    "release_at_once": {"release_waits": False},
    "door_read_only": {"door_acked": False},
    "rewind_goes_on": {"rewind_stops": False},
    "claim_forgotten": {"claim_found": False},
    "claim_prolonged": {"claim_sent": False},
    "claim_by_look": {"claim_door": False},
    # With a door for looked-up claims the session is a second bolt.
    "epoch_alone": {"fence_session": False, "claim_door": False},
    "dead_by_store": {"dead_by_file": False},
    "monotonic": {"boottime": False},
    "name_again": {"own_name": False},
}

# Schedules that find them, so that a test need not search.
FOUND_BY: dict[str, tuple[int, ...]] = {
    "no_for_share": (18, 26),
    "deadline_from_reply": (730, 1192),
    "no_quiet": (0, 11),
    "server_clock": (12, 18),
    "no_turn": (24, 38),
    "ship_after_event": (56, 204),
    "no_session_lock": (52, 238),
    "proof_of_last_only": (11, 116),
    "release_at_once": (10, 16),
    "door_read_only": (44, 52),
    "rewind_goes_on": (17, 89),
    "claim_forgotten": (8, 18),
    "claim_prolonged": (14, 131),
    "claim_by_look": (888, 2732),
    "epoch_alone": (564, 888),
    "dead_by_store": (0, 1),
    "monotonic": (6, 8),
    "name_again": (0, 2),
}
FAULTS = ["net", "kill", "pg", "engine", "short"]
MODES = ["sync", "async"]


@dataclasses.dataclass
class Want:
    kind: str  # free | dead | silent | placed
    epoch: int = 0
    session: str = ""
    beats: int | None = None
    number: int = 0


class Violation(Exception):
    pass
