"""`outlast.drive(run, agent)`: the six-phase loop for agents written as an object.

Each beat is context → reason → act → observe → learn; the plan is made once. What `reason` answers is recorded as the
beat's decision; inside `act` the agent calls `beat.act` for whatever touches the outside world.
"""

from typing import Any, Protocol

from outlast.effects.ops import Call, Steps
from outlast.runs.beat import Beat
from outlast.runs.run import Run


class Agent(Protocol):
    """The six phases. Each may be a plain or an async method; `plan`, `context` and `learn` may be left out."""

    def reason(self, beat: Beat, context: Any) -> Any:
        """Ask the model. The answer is recorded and never asked for again in this beat."""

    def act(self, beat: Beat, decision: Any) -> Any:
        """Do it: effects through `beat.act`."""

    def observe(self, beat: Beat, outcome: Any) -> Any:
        """What came of it: becomes the beat's result."""


def drive(run: Run, agent: Agent) -> Any:
    """Carry an agent through its run, from the cursor to the end. In an async run, await it."""
    return _drive_async(run, agent) if run.is_async else _drive(run, agent)


def _drive(run: Run, agent: Agent) -> None:
    if hasattr(agent, "plan"):
        run.plan(agent.plan)
    for beat in run.beats():
        run.drive(_turn(run, agent, beat))


async def _drive_async(run: Run, agent: Agent) -> None:
    if hasattr(agent, "plan"):
        await run.plan(agent.plan)
    async for beat in run.beats():
        await run.drive(_turn(run, agent, beat))


def _turn(run: Run, agent: Agent, beat: Beat) -> Steps:
    """One beat: each phase is a step, so that one implementation serves both kinds of agents."""
    context = yield Call(_phase(agent, "context", lambda _: run.context()), (beat,))
    decision = yield from beat.steps_of_decide("reason", agent.reason, beat, context)
    outcome = yield Call(agent.act, (beat, decision))
    observation = yield Call(agent.observe, (beat, outcome))
    yield Call(_phase(agent, "learn", lambda _beat, _seen: None), (beat, observation))
    if not beat.closed:
        yield from beat.steps_of_done(observation)


def _phase(agent: Agent, name: str, default: Any) -> Any:
    return getattr(agent, name, default)
