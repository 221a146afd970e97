"""Whether an agent may make a call: answers its hooks and the shims below it, after the call is on record."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from outlast.agents import Cli, Release
from outlast.agents.events import BatchEnd, ToolEnd, ToolStart
from outlast.agents.own_questions import OwnQuestion
from outlast.agents.values import Answer, Hook
from outlast.supervisor.agent import hook_input
from outlast.supervisor.agent.approvals import CallApprovals
from outlast.supervisor.agent.calls.calls import AgentCalls, Unrecorded
from outlast.supervisor.agent.calls.outward import OutwardCalls
from outlast.supervisor.agent.calls.programs import OutwardPrograms
from outlast.supervisor.agent.calls.record import CallRecord
from outlast.supervisor.agent.calls.repeats import Holds
from outlast.supervisor.agent.observer import AgentObserver
from outlast.supervisor.agent.progress import AgentProgress
from outlast.supervisor.agent.responses import Responses
from outlast.supervisor.agent.stall import STOPPED_AT, WARNED_AT
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
    f"outlast: you have made this very call {WARNED_AT} times with the same result, and nothing changed in between. "
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
        approvals: CallApprovals,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self._cli, self._release, self._cwd, self._budget = cli, release, cwd, budget
        self._run, self._lock, self._outward = beats.run, beats.lock, outward
        self._observer, self._calls, self._responses, self._progress = observer, calls, responses, progress
        self._programs = OutwardPrograms(
            beats.run, beats, holds, calls, responses, progress, outward, approvals, self._timing
        )
        self._approvals = approvals
        self._undelivered: list[
            tuple[Delivery, str]
        ] = []  # words for the agent, and the answer that carries them
        self.keeps_waiting = False  # the agent waits for the answer to a hook, which it will not get
        self.closed = threading.Event()
        self.by_http = False  # then an agent that no longer waits for an answer has denied the call
        # Local calls that were let through at once, and are to be noted by whoever has the lock next.
        self._begun: deque[tuple[ToolStart, CallRecord]] = deque()
        observer.before_look = self.note_begun

    @property
    def is_busy(self) -> bool:
        """Whether the agent waits for an answer that it will not get, or is in a call that is not noted yet."""
        return self.keeps_waiting or bool(self._begun)

    # -- hooks -----------------------------------------------------------------------------------------------------

    def stopping(self) -> None:
        """The attempt's processes are about to be stopped."""
        self._calls.stopping()

    def hook(self, data: bytes, delivery: Delivery = DELIVERED) -> tuple[bytes, int]:
        """Record what a hook reports, then answer it. A hook that has left has judged the call by itself."""
        cli, progress = self._cli, self._progress
        hook = cli.hook(data)
        if not hook_input.is_understood(hook, data):
            return cli.answer(data, Answer(False, NOT_UNDERSTOOD))
        answer = Answer()
        cwd = hook_input.cwd_of(data) or self._cwd
        if self._passes_at_once(hook, cwd, delivery):
            return cli.answer(data, answer)
        hook = self._with_batch(hook)
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
            answer = self._with_words(answer, hook, delivery)
        rests = self.by_http and hook.ends_batch and self._rests_after_batch()
        if rests:
            self.closed.wait(self._timing.hook_hold_s)
            self.keeps_waiting = False
        if is_held:  # its answer is not waited for: the agent is being stopped
            self.closed.wait(self._timing.hook_hold_s)
            answer = Answer(False, LEAVING if progress.failure is None else ENDING)
        return cli.answer(data, answer)

    def _rests_after_batch(self) -> bool:
        """Whether the agent is held here: somebody wants it to stop, or it must. No hook runs before the file tools of its next
        batch. Where a request waits, the beat ends now, however late its transcript is."""
        progress = self._progress
        if not progress.leaves and self._run.journal.lease.request_waits():
            until_s = time.monotonic() + self._timing.transcript_behind_s
            while self._responses.is_due and time.monotonic() < until_s:
                with self._lock:
                    progress.guarded(self._observer.look)
                if self.closed.wait(self._timing.transcript_look_s):
                    break
            progress.guarded(self._responses.end_due)
        self.keeps_waiting = progress.leaves or progress.failure is not None
        return self.keeps_waiting

    def _passes_at_once(self, hook: Hook, cwd: str, delivery: Delivery) -> bool:
        """Whether the hook is about a call that stays inside and may go: it waits for nothing, and is noted afterwards.

        Only where its agent's transcript tells of it if a kill cuts it off, and still waits: else it has denied the call.
        """
        progress = self._progress
        starts = [each for each in hook.events if isinstance(each, ToolStart)]
        if not (self.by_http and hook.kind == "pre" and self._calls.defers and len(starts) == 1):
            return False
        if progress.leaves or progress.failure is not None:
            return False
        record = self._observer.record_of(starts[0], cwd)
        if record.outward:
            return False
        self._outward.refresh_shims()
        if not delivery.is_there():
            return False
        self._begun.append((starts[0], record))
        return True

    def note_begun(self) -> None:
        """Note the calls that were let through at once."""
        with self._lock:
            while self._begun:
                start, record = self._begun.popleft()
                self._observer.announced(start.id)
                self._progress.call_began(start)
                self._progress.guarded(partial(self._intend_local, start, record))

    def _intend_local(self, start: ToolStart, record: CallRecord) -> None:
        with contextlib.suppress(Unrecorded):  # its id is another one's: it stays inside all the same
            self._responses.intend(start, record)

    def _with_batch(self, hook: Hook) -> Hook:
        """The hook without what other hooks have told, after the calls of its batch that none told have begun. How these ended the
        transcript tells better, but later: nothing waits for that."""
        if hook.kind != "other" or not any(isinstance(each, ToolStart) for each in hook.events):
            return hook
        if not self.by_http:
            return msgspec.structs.replace(
                hook, events=tuple(each for each in hook.events if isinstance(each, BatchEnd))
            )
        with self._lock:
            self._progress.guarded(self._observer.look)
            starts = [each for each in hook.events if isinstance(each, ToolStart)]
            for start in starts:
                if not self._calls.knows(start.id):
                    self._progress.guarded(partial(self._observer.take, start))
        known = (ToolStart, ToolEnd) if self._responses.has_results else ToolStart
        rest = tuple(each for each in hook.events if not isinstance(each, known))
        return msgspec.structs.replace(hook, events=rest)

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

    def _with_words(self, answer: Answer, hook: Hook, delivery: Delivery) -> Answer:
        """Add the words for the agent to the answer about a call that has ended. If a hook was killed before it passed its
        words on, they are added again."""
        is_after = hook.kind == "post" or (self.by_http and hook.ends_batch)
        words = [SAME] if self._progress.take_repeats() else []
        if is_after and self._release.caps.tells and not self._budget.by_gateway:
            words += filter(None, [*self._unheard(), *self._approvals.news(), self._budget.words()])
        self._undelivered += [(delivery, "\n".join(words))] if words else []
        return Answer(reason="\n".join(words)) if words else answer

    def _unheard(self) -> list[str]:
        looked = [(each.look(), each, words) for each, words in self._undelivered]
        self._undelivered = [
            (each, words) for state, each, words in looked if state != "lost" and not each.is_final
        ]
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
        if own := self._approvals.own_question(start, record.input):
            return self._ask(start, record, own)
        self._progress.call_began(start)
        answer = self._programs.judged(start, record, delivery)
        return msgspec.structs.replace(answer, aside=answer.aside and self._approvals.puts_aside(start))

    def _ask(self, start: ToolStart, record: CallRecord, own: OwnQuestion) -> Answer:
        """The agent asks its user, and nobody is there: a person is asked, and it gets the answer when it is made again."""
        try:
            words = self._approvals.ask(own)
        except Exception as error:  # too, where it asks the same again and again
            self._progress.fail(error)
            words = ENDING
        self._progress.guarded(partial(self._responses.refuse, start, record, words))
        return Answer(False, words)

    def _too_late(self, start: ToolStart, cwd: str) -> Answer:
        """The call's hook no longer waits and has judged alone: it denied an outward call, and let any other one pass. One by
        HTTP has denied any."""
        self._observer.announced(start.id)
        record = self._observer.record_of(start, cwd)
        if record.outward or self.by_http:
            self._progress.guarded(partial(self._responses.refuse, start, record, SLEPT))
        elif not self._calls.knows(start.id):
            self._progress.guarded(partial(self._responses.intend, start, record))
        return Answer()

    def look_at_answers(self) -> None:
        """Look which answers reached their callers, and take back those that did not."""
        with self._lock:
            self._programs.look_at_answers()

    # -- shims -----------------------------------------------------------------------------------------------------

    def shim(self, shim: Shim, perform: Callable[[], Output], delivery: Delivery = DELIVERED) -> ShimAnswer:
        """Judge a program below the agent that may reach outside. Returns the reason if it is not run, else its exit code."""
        self.note_begun()
        return self._programs.shim(shim, perform, delivery)
