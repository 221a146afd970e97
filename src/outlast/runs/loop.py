"""`outlast.drive(run, agent)`: the six-phase loop for agents written as an object."""

from collections.abc import Coroutine
from typing import Any, Protocol, overload

from outlast.runs.beat import AsyncBeat, Beat, beat_engine
from outlast.runs.engine.steps import Call, Steps
from outlast.runs.run import AsyncRun, Run, run_engine


class Agent(Protocol):
    """The phases of an agent. `plan`, `context` and `learn` may be there too."""

    def reason(self, beat: Beat, context: Any, /) -> Any:
        """Ask the model. The answer is recorded and never asked for again in this beat."""

    def act(self, beat: Beat, decision: Any, /) -> Any:
        """Do it: effects through `beat.act`."""

    def observe(self, beat: Beat, outcome: Any, /) -> Any:
        """Turn the outcome of the act into the beat's result."""


class AsyncAgent(Protocol):
    """The phases of an agent in an async run. Each may be a plain or an async method."""

    def reason(self, beat: AsyncBeat, context: Any, /) -> Any:
        """As `Agent.reason`."""

    def act(self, beat: AsyncBeat, decision: Any, /) -> Any:
        """As `Agent.act`: effects through `await beat.act`."""

    def observe(self, beat: AsyncBeat, outcome: Any, /) -> Any:
        """As `Agent.observe`."""


@overload
def drive(run: Run, agent: Agent) -> None: ...
@overload
def drive(run: AsyncRun, agent: AsyncAgent) -> Coroutine[Any, Any, None]: ...
def drive(run: Run | AsyncRun, agent: Agent | AsyncAgent) -> Any:
    """Carry an agent through its run, from the cursor to the end. In an async run, await it.

    Each beat is context → reason → act → observe → learn; the plan is made once. The answer of `reason` is recorded as the
    beat's decision; inside `act` the agent calls `beat.act` for everything that touches the outside world.
    """
    return _drive_async(run, agent) if run_engine(run).is_async else _drive(run, agent)


def _drive(run: Any, agent: Any) -> None:
    if hasattr(agent, "plan"):
        run.plan(agent.plan)
    for beat in run.beats():
        run_engine(run).drive(_turn(run, agent, beat))


async def _drive_async(run: Any, agent: Any) -> None:
    if hasattr(agent, "plan"):
        await run.plan(agent.plan)
    async for beat in run.beats():
        await run_engine(run).drive(_turn(run, agent, beat))


def _turn(run: Run | AsyncRun, agent: Any, beat: Beat | AsyncBeat) -> Steps:
    """One beat: each phase is a step, so that one implementation serves both kinds of agents."""
    engine = beat_engine(beat)
    context = yield Call(_phase(agent, "context", lambda _: run.context()), (beat,))
    decision = yield from engine.steps_of_decide("reason", agent.reason, beat, context)
    outcome = yield Call(agent.act, (beat, decision))
    observation = yield Call(agent.observe, (beat, outcome))
    yield Call(_phase(agent, "learn", lambda _beat, _seen: None), (beat, observation))
    if not engine.closed:
        yield from engine.steps_of_done(observation)


def _phase(agent: Any, name: str, default: Any) -> Any:
    return getattr(agent, name, default)
