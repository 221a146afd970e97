"""Turns what transcript and hooks report into events of the run: responses are beats, calls are effects."""

import time
from collections.abc import Callable

from outlast.agents.events import (
    AgentEvent,
    BatchEnd,
    Response,
    Session,
    TaskEnd,
    Text,
    ToolEnd,
    ToolStart,
    UsageReport,
)
from outlast.core import values
from outlast.supervisor.agent import hook_input
from outlast.supervisor.agent.agent import Agent
from outlast.supervisor.agent.calls.calls import AgentCalls
from outlast.supervisor.agent.calls.outward import OutwardCalls
from outlast.supervisor.agent.calls.record import CallRecord
from outlast.supervisor.agent.progress import AgentProgress
from outlast.supervisor.agent.responses import Responses
from outlast.supervisor.agent.session.follower import SessionFollower
from outlast.supervisor.timing import Timing


class AgentObserver:
    """Applies reports of hooks and the transcript about the agent. Its caller holds the lock of the beat in flight."""

    def __init__(
        self,
        agent: Agent,
        session: SessionFollower,
        calls: AgentCalls,
        responses: Responses,
        progress: AgentProgress,
        outward: OutwardCalls,
        timing: Timing | None = None,
    ) -> None:
        self.timing = timing or Timing.current()
        self._agent, self._session, self._outward = agent, session, outward
        self._calls, self._responses, self._progress = calls, responses, progress
        self.hooked = (
            "hooks" in agent.known.release.caps.intent
        )  # whether a hook tells of each call before it is made
        self.before_look: Callable[[], None] = lambda: (
            None
        )  # hooks may have seen calls begin that nobody noted yet
        self.unhooked: frozenset[str] = frozenset()  # tools before which no hook runs
        self._announced: dict[str, ToolStart] = {}  # calls that the transcript tells of, and no hook yet
        self._is_forbidden = False  # to ask us; that is said once
        self.answered = False  # whether its model has said anything in this attempt
        self.paid = False  # whether an answer of this attempt was paid for: its account works
        self._looked_s = time.monotonic()
        # When it was noticed that nobody had looked for long: we were stopped, or held up.
        self._woke_s = -self.timing.waking_s

    def look(self) -> None:
        """Apply the lines that the agent wrote to its transcript since the last look."""
        self.before_look()
        before_s, self._looked_s = self._looked_s, time.monotonic()
        if self._looked_s - before_s > self.timing.hook_hold_s:
            self._woke_s = self._looked_s
        for event, is_result in self._session.news():
            if isinstance(event, BatchEnd):
                if not event.lane:
                    self._responses.step_ended()
                continue
            self.take(event)
            if is_result and isinstance(event, ToolEnd):
                self._responses.written(event.id)

    def take(self, event: AgentEvent) -> None:
        """Record one event of a hook, or of the transcript if it does not end a response."""
        if isinstance(event, UsageReport) and event.scope == "response" and event.values.output:
            self.paid = True
        match event:
            case Session():
                self._session.know(event)
            case Response():
                self.answered = True
                self._responses.response(event)
            case Text():
                self._responses.text(event)
            case ToolStart():
                self._responses.call_reported(event.lane)
                if self.hooked and event.name not in self.unhooked:
                    self._announced[event.id] = event
                elif not self._calls.knows(event.id):
                    if self.hooked:
                        self._progress.call_began(event)
                    self._responses.intend(event, self.record_of(event, self._agent.cwd))
            case ToolEnd():
                self._responses.result_reported(event)
                self._take_missed(event)
                if not event.ok and (ours := hook_input.OURS.search(event.output)):
                    self._calls.not_done(event.id, ours[0])
                    self._progress.call_denied()
                elif words := hook_input.refused_by_shims(
                    event.output, self._calls.unseen_programs(event.id)
                ):
                    self._calls.refused(event.id, words)
                    self._progress.call_denied()
                self._calls.outcome(event)
                self._responses.call_ended(event)
                self._progress.call_ended(event)
            case TaskEnd():
                self._calls.task_ended(event)
            case BatchEnd():
                if not event.lane:
                    self._responses.end_batch(by_hook=True)
            case UsageReport() if self._agent.gate is None:
                self._session.count(event)
            case values.Window():
                self._agent.run.meter.window(event)
            case _:
                pass

    def announced(self, call: str) -> None:
        """A hook reported this call, so the transcript need not."""
        self._announced.pop(call, None)

    def _take_missed(self, end: ToolEnd) -> None:
        """Record a call that ended and that no hook announced; from now on do not rely on hooks."""
        start = self._announced.pop(end.id, None)
        if start is None or self._calls.knows(end.id):
            return
        record = self.record_of(start, self._agent.cwd)
        if not end.ok and (ours := hook_input.OURS.search(end.output)):
            # Its hook ran, and had nobody to ask: it did not happen.
            self._responses.refuse(start, record, ours[0])
            self._say_forbidden(end.output)
            return
        self._responses.intend(start, record)
        if not start.lane and self.hooked and self._is_awake:
            self.hooked = False
            name = self._agent.known.name
            self._agent.person.say(f"{name} does not run its hooks: calls are seen by shims, and afterwards")

    def _say_forbidden(self, output: str) -> None:
        """Settings that we could not know of when it was started deny each of its calls: only a person can help."""
        if hook_input.FORBIDDEN in output and not self._is_forbidden:
            self._is_forbidden = True
            self._agent.person.say(
                f"{self._agent.known.name} may not ask outlast, so its calls are denied: {hook_input.FORBIDDEN} in the "
                "settings of its organisation came after its start; stop the run and resume it"
            )

    @property
    def _is_awake(self) -> bool:
        """Whether the supervisor has been awake for a while since a suspend: just after one, hooks may have judged alone."""
        return time.monotonic() - self._woke_s > self.timing.waking_s

    def record_of(self, start: ToolStart, cwd: str) -> CallRecord:
        """The record of a call, for its intent."""
        given = hook_input.decoded(start.input)
        own = self._agent.known.release.own_tools
        tool = start.name if own is None else own.full_name(start.name)
        return CallRecord(start.name, given, start.lane, cwd, self._outward.of_tool(tool, given, cwd))
