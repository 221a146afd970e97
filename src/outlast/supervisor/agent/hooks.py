"""Whether an agent may make a call: answers its hooks and the shims below it, after the call is on record."""

import threading
import time
from collections.abc import Callable
from functools import partial

from outlast.agents import Cli, Release
from outlast.agents.events import BatchEnd, ToolStart
from outlast.agents.values import Answer, Hook
from outlast.supervisor.agent import hook_input
from outlast.supervisor.agent.calls.calls import AgentCalls
from outlast.supervisor.agent.calls.outward import OutwardCalls
from outlast.supervisor.agent.calls.programs import OutwardPrograms
from outlast.supervisor.agent.calls.repeats import Holds
from outlast.supervisor.agent.observer import AgentObserver
from outlast.supervisor.agent.progress import AgentProgress
from outlast.supervisor.agent.responses import Responses
from outlast.supervisor.agent.stall import STOPPED_AT, TOLD_AT
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.budget.enforce import BudgetWatch
from outlast.supervisor.socket.delivery import DELIVERED, Delivery
from outlast.supervisor.socket.wire import Output, Shim, ShimAnswer
from outlast.supervisor.timing import Timing

NOT_UNDERSTOOD = (
    "outlast could not read what this call is, so it was not made. Make it smaller, or in another way."
)
SLEPT = "its supervisor did not answer in time, so its hook denied it"
LEAVING = (
    "outlast stops this run here, at the end of a beat, because a person asked for it. This call was not made; make it "
    "when you go on."
)
ENDING = "outlast stops this run now. This call was not made."
SAME = (
    f"outlast: you have made this very call {TOLD_AT} times with the same result, and nothing changed in between. "
    f"Do something else; after {STOPPED_AT} times the run is stopped."
)


class AgentHooks:
    """Answers hooks and shims. A call that reaches outside passes only when its intent is durable.

    Each hook has a thread of its own. The lock of the beat in flight orders them with the main thread, which reads the
    transcript.
    """

    replays = False  # what was done before is told: an agent reads

    def __init__(
        self,
        cli: Cli,
        release: Release,
        cwd: str,
        budget: BudgetWatch,
        holds: Holds,
        beats: BeatInFlight,
        observer: AgentObserver,
        calls: AgentCalls,
        responses: Responses,
        progress: AgentProgress,
        outward: OutwardCalls,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self._cli, self._release, self._cwd, self._budget = cli, release, cwd, budget
        self._lock, self._outward = beats.lock, outward
        self._observer, self._calls, self._responses, self._progress = observer, calls, responses, progress
        self._programs = OutwardPrograms(
            beats.run, beats, holds, calls, responses, progress, outward, self._timing
        )
        self._said: list[tuple[Delivery, str]] = []  # words for the agent, and who was to pass them on
        self.keeps_waiting = False  # the agent waits for the answer to a hook, which it will not get
        self.closed = threading.Event()

    # -- hooks -----------------------------------------------------------------------------------------------------

    def stopping(self) -> None:
        """The attempt's processes are about to be stopped."""
        self._calls.stopping()

    def hook(self, data: bytes, delivery: Delivery = DELIVERED) -> tuple[bytes, int]:
        """Put on record what a hook tells, then answer it. One that left has judged by itself."""
        cli, progress = self._cli, self._progress
        hook = cli.hook(data)
        if not hook_input.is_understood(hook, data):
            return cli.answer(data, Answer(False, NOT_UNDERSTOOD))
        answer = Answer()
        cwd = hook_input.cwd_of(data) or self._cwd
        self._await_transcript(hook)
        with self._lock:
            self._outward.refresh_shims()
            self._programs.agent_went_on()
            progress.guarded(self._observer.look)
            if hook.kind == "pre":  # the beat before is over, whatever the transcript tells yet
                progress.guarded(self._responses.end_due)
            is_held = hook.kind == "pre" and (progress.leaves or progress.failure is not None)
            self.keeps_waiting = is_held
            for event in () if is_held else hook.events:
                if isinstance(event, ToolStart) and hook.kind == "pre":
                    is_there = delivery.is_there()
                    answer = self._about_to(event, cwd, delivery) if is_there else self._too_late(event, cwd)
                else:
                    progress.guarded(partial(self._observer.take, event))
            answer = self._with_words(answer, hook.kind, delivery)
        if is_held:  # its answer is not waited for: the agent is being stopped
            self.closed.wait(self._timing.hook_hold_s)
            answer = Answer(False, LEAVING if progress.failure is None else ENDING)
        return cli.answer(data, answer)

    def _await_transcript(self, hook: Hook) -> None:
        """Wait until the transcript has the end and the cost of the beat before: an agent writes it after its hooks."""
        is_end = any(isinstance(event, BatchEnd) and not event.lane for event in hook.events)
        if hook.kind != "pre" and not is_end:
            return
        until_s = time.monotonic() + self._timing.transcript_behind_s
        while True:
            with self._lock:
                self._progress.guarded(self._observer.look)
                if not self._responses.is_behind(is_end=is_end):
                    return
                if time.monotonic() > until_s:
                    self._responses.stop_waiting()
                    return
            if self.closed.wait(self._timing.transcript_look_s):
                return

    def _with_words(self, answer: Answer, kind: str, delivery: Delivery) -> Answer:
        """Add the words for the agent to the answer about a call that has ended. Words whose hook was killed before it passed
        them on are told again."""
        said = [SAME] if self._progress.take_repeats() else []
        if kind == "post" and self._release.caps.tells and not self._budget.by_gateway:
            said += filter(None, [*self._unheard(), self._budget.words()])
        self._said += [(delivery, "\n".join(said))] if said else []
        return Answer(reason="\n".join(said)) if said else answer

    def _unheard(self) -> list[str]:
        looked = [(each.look(), each, words) for each, words in self._said]
        self._said = [(each, words) for state, each, words in looked if state != "lost" and not each.is_final]
        return [words for state, _, words in looked if state == "lost"]

    def _about_to(self, start: ToolStart, cwd: str, delivery: Delivery) -> Answer:
        """Whether a call may go."""
        self._observer.announced(start.id)
        record = self._observer.record_of(start, cwd)
        can_only_deny = not self._release.caps.tells and not self._budget.by_gateway
        if can_only_deny and (words := self._budget.word()):  # there is no other way to tell it
            words = f"{words} This call was not made; make it again if your ending needs it."
            self._progress.guarded(partial(self._responses.refuse, start, record, words))
            return Answer(False, words)
        self._progress.call_began(start)
        return self._programs.judged(start, record, delivery)

    def _too_late(self, start: ToolStart, cwd: str) -> Answer:
        """Its hook waits no more, and did what it does alone: what reaches outside is denied, what stays in here passed."""
        self._observer.announced(start.id)
        record = self._observer.record_of(start, cwd)
        if record.outward:
            self._progress.guarded(partial(self._responses.refuse, start, record, SLEPT))
        elif not self._calls.knows(start.id):
            self._progress.guarded(partial(self._responses.intend, start, record))
        return Answer()

    def look_at_answers(self) -> None:
        """Whoever was answered has got that answer, or has left."""
        with self._lock:
            self._programs.look_at_answers()

    # -- shims -----------------------------------------------------------------------------------------------------

    def shim(self, shim: Shim, perform: Callable[[], Output], delivery: Delivery = DELIVERED) -> ShimAnswer:
        """A program below the agent that may reach outside: why it is not run, or its exit code when it was."""
        return self._programs.shim(shim, perform, delivery)
