"""The parts of a trial's plan, by name: what is asked of an agent, what befalls it, and what happens between two starts.

Which parts a trial has follows from the seed and its number; how a part shapes the plan is in trial_plan.py.
"""

from __future__ import annotations

import random
from typing import Literal

Part = Literal[
    "plain", "same", "make", "npm", "background", "task", "mcp", "sub",
    "program", "stop", "takeover", "disk", "twice",
    "torn", "deleted", "fresh", "worktree", "settled", "agent",
]  # fmt: skip

# Calls: posts to one address with other bodies, below make or npm, left in the background by the shell or by the CLI's
# own switch, through an MCP server, by a sub-agent.
CALLS: tuple[Part, ...] = ("same", "make", "npm", "background", "task", "mcp", "sub")
# What befalls it: a program below a call dies, processes are stopped and go on, somebody starts it while it is stopped,
# the disk of its state is full for a while, it is killed twice while it resumes.
BLOWS: tuple[Part, ...] = ("program", "stop", "takeover", "disk", "twice")
# What happens after a kill, before the next start: a transcript loses the end of its last line, the CLI's transcripts
# are gone, our copies too, the worktree is gone, a person settles what is in doubt, another agent goes on.
BETWEEN: tuple[Part, ...] = ("torn", "deleted", "fresh", "worktree", "settled", "agent")
PARTS: tuple[Part, ...] = ("plain", *CALLS, *BLOWS, *BETWEEN)

SECOND = 0.35  # so many trials have a second part, of another family

# aider has neither tools nor a session that can be torn; mini-swe-agent has a shell and no session.
_CANNOT: dict[str, set[Part]] = {
    "aider": {"background", "task", "mcp", "sub", "torn", "deleted", "fresh"},
    "mini-swe-agent": {"task", "mcp", "sub", "torn", "deleted", "fresh"},
    "opencode": {"torn"},  # its sessions lie in a database
}


def drawn(seed: int, trial: int, agent: str, rng: random.Random) -> tuple[Part, ...]:
    """In turn, in an order that the seed decides, so that every part meets every agent; and sometimes a second one."""
    order = list(PARTS)
    random.Random(f"parts:{seed}").shuffle(order)
    possible = [part for part in order if part not in _CANNOT.get(agent, set())]
    first = order[trial % len(order)]
    if first not in possible:
        first = rng.choice(possible)
    family = next((each for each in (CALLS, BLOWS, BETWEEN) if first in each), ())
    others = [part for part in possible if part not in family and part != "plain"]
    if first == "plain" or rng.random() >= SECOND:
        return (first,)
    return (first, rng.choice(others))
