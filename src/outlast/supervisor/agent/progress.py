"""Whether an agent may go on. It may not when it repeats itself, a person asked for a stop, its budget is spent, or a part
of the supervisor failed."""

from collections.abc import Callable
from typing import Any

from outlast.agents.events import ToolEnd, ToolStart
from outlast.core import values
from outlast.errors import AgentStopped
from outlast.runs import inbox
from outlast.runs.inbox import WAITING
from outlast.supervisor.agent.agent import Agent
from outlast.supervisor.agent.client_copy import ClientCopy
from outlast.supervisor.agent.stall import STOPPED_AT, WARNED_AT, Stall
from outlast.supervisor.lifecycle import Lifecycle


class AgentProgress:
    """Judges after each beat and each call. `failure` ends the attempt when the main thread sees it."""

    def __init__(self, agent: Agent, lifecycle: Lifecycle, client: ClientCopy) -> None:
        self._agent, self._lifecycle, self._client = agent, lifecycle, client
        self._stall = Stall(0 if agent.launch.interactive else agent.launch.stall)
        self._inputs: dict[
            str, tuple[str, str]
        ] = {}  # of calls under way, by id: tool, and digest of its input
        self._repeats = False
        self.leaves = False  # a beat has ended since somebody asked for a stop
        self.failure: BaseException | None = None

    def beat_ended(self) -> None:
        """Requests are looked up here, for the main thread may learn of one when the next call has begun."""
        run = self._agent.run
        self.leaves = self.leaves or inbox.stop_request(run.journal) in WAITING
        files, save = run.files, run.state.last_save
        if self._stall.beat(files.tree_of(save) if files is not None and save else ""):
            self._stand_still(f"{self._agent.launch.stall} beats without anything new (--stall)")
        self._client.look()
        stop = self._agent.budget.beat_ended()
        if stop is not None:
            self.fail(stop)
        self._lifecycle.beat_ended()

    def call_began(self, start: ToolStart) -> None:
        """A call was let through, or is about to be."""
        self._inputs[start.id] = (start.name, values.digest(bytes(start.input)))

    def call_ended(self, end: ToolEnd) -> None:
        """Count whether the agent repeats itself: outlast first warns it, then stops it."""
        call = self._inputs.pop(end.id, None)
        if call is None:
            return
        count = self._stall.call(call, values.digest(end.output.encode(errors="replace")))
        self._repeats = count == WARNED_AT
        if count >= STOPPED_AT:
            self._stand_still(f"{call[0]} was called {count} times with the same result")

    def call_denied(self) -> None:
        """Our hooks or shims denied a call by themselves: perhaps the copy of outlast that they run is damaged."""
        self._client.look()

    def take_repeats(self) -> bool:
        """Whether the call that just ended was a repetition to warn of. True once for each."""
        repeats, self._repeats = self._repeats, False
        return repeats

    def _stand_still(self, why: str) -> None:
        self.fail(AgentStopped(f"no progress: {why}", cause="stall"))

    def fail(self, error: BaseException) -> None:
        """End the attempt with this. The first one counts."""
        if self.failure is None:
            self.failure = error

    def guarded(self, what: Callable[[], Any]) -> None:
        """Run it; an error ends the attempt and does not cost the agent its answer."""
        try:
            what()
        except Exception as error:
            self.fail(error)
