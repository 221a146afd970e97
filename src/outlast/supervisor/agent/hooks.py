"""Whether an agent may make a call: answers its hooks and the shims below it, after the call is on record."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from outlast.agents import Cli, Release
from outlast.agents.events import BatchEnd, ToolStart
from outlast.agents.values import Answer, Hook
from outlast.supervisor.agent import hook_input
from outlast.supervisor.agent.calls.calls import SIGNALLED, AgentCalls, Unrecorded
from outlast.supervisor.agent.calls.identity import is_part
from outlast.supervisor.agent.calls.outward import OutwardCalls
from outlast.supervisor.agent.calls.record import SHIM, CallRecord, OutwardCall
from outlast.supervisor.agent.calls.repeats import Held, Holds
from outlast.supervisor.agent.observer import AgentObserver
from outlast.supervisor.agent.progress import AgentProgress
from outlast.supervisor.agent.responses import Responses
from outlast.supervisor.agent.stall import STOPPED_AT, TOLD_AT
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.budget.enforce import BudgetWatch
from outlast.supervisor.socket.wire import Shim
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
UNRECORDED = "outlast could not put this call on record, so it was not made: "
SAME = (
    f"outlast: you have made this very call {TOLD_AT} times with the same result, and nothing changed in between. "
    f"Do something else; after {STOPPED_AT} times the run is stopped."
)


class AgentHooks:
    """Answers hooks and shims. A call that reaches outside passes only when its intent is durable.

    Each hook has a thread of its own. The lock of the beat in flight orders them with the main thread, which reads the
    transcript.
    """

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
        self._holds, self._run, self._lock, self._outward = holds, beats.run, beats.lock, outward
        self._observer, self._calls, self._responses, self._progress = observer, calls, responses, progress
        # Those that a shim runs now: whose each is, and whether its shim is still there.
        self._programs: dict[object, tuple[str, Callable[[], bool]]] = {}
        self._runners: dict[
            object, tuple[str, tuple[OutwardCall, ...]]
        ] = {}  # and what below them is not seen yet
        self.keeps_waiting = False  # the agent waits for the answer to a hook, which it will not get
        self.closed = threading.Event()

    # -- hooks -----------------------------------------------------------------------------------------------------

    def stopping(self) -> None:
        """The attempt's processes are about to be stopped."""
        self._calls.stopping()

    def hook(self, data: bytes, is_there: Callable[[], bool] = lambda: True) -> tuple[bytes, int]:
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
            progress.guarded(self._observer.look)
            if hook.kind == "pre":  # the beat before is over, whatever the transcript tells yet
                progress.guarded(self._responses.end_due)
            is_held = hook.kind == "pre" and (progress.leaves or progress.failure is not None)
            self.keeps_waiting = is_held
            for event in () if is_held else hook.events:
                if isinstance(event, ToolStart) and hook.kind == "pre":
                    answer = self._about_to(event, cwd) if is_there() else self._too_late(event, cwd)
                else:
                    progress.guarded(partial(self._observer.take, event))
            answer = self._with_words(answer, hook.kind)
        if is_held:  # its answer is not waited for: the agent is being stopped
            self.closed.wait(self._timing.hook_hold_s)
            answer = Answer(False, LEAVING if progress.failure is None else ENDING)
        return cli.answer(data, answer)

    def _await_transcript(self, hook: Hook) -> None:
        """Let the transcript tell how the beat before ended, and what it cost: an agent writes it behind its hooks."""
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

    def _with_words(self, answer: Answer, kind: str) -> Answer:
        """What the agent has to be told rides on the answer to a call that has ended."""
        said = [SAME] if self._progress.take_repeats() else []
        if kind == "post" and self._release.caps.tells and not self._budget.by_gateway:
            said += filter(None, [self._budget.words()])
        return Answer(reason="\n".join(said)) if said else answer

    def _about_to(self, start: ToolStart, cwd: str) -> Answer:
        """Whether a call may go."""
        self._observer.announced(start.id)
        record = self._observer.record_of(start, cwd)
        can_only_deny = not self._release.caps.tells and not self._budget.by_gateway
        if can_only_deny and (words := self._budget.word()):  # there is no other way to tell it
            words = f"{words} This call was not made; make it again if your ending needs it."
            self._progress.guarded(partial(self._responses.refuse, start, record, words))
            return Answer(False, words)
        self._progress.call_began(start)
        return self._judged(start, record)

    def _too_late(self, start: ToolStart, cwd: str) -> Answer:
        """Its hook waits no more, and did what it does alone: what reaches outside is denied, what stays in here passed."""
        self._observer.announced(start.id)
        record = self._observer.record_of(start, cwd)
        if record.outward:
            self._progress.guarded(partial(self._responses.refuse, start, record, SLEPT))
        elif not self._calls.knows(start.id):
            self._progress.guarded(partial(self._responses.intend, start, record))
        return Answer()

    def _judged(self, start: ToolStart, record: CallRecord) -> Answer:
        try:
            if record.outward:
                held = self._held(record)
                if held is not None:
                    self._hold(start, record, held)
                    return Answer(False, held.text)
                record = self._outward.with_facts(record)
            self._responses.intend(start, record)
        except Unrecorded as error:
            return Answer(False, f"{UNRECORDED}{error}")
        except Exception as error:
            self._progress.fail(error)
            if record.outward:
                return Answer(False, f"{UNRECORDED}{error}")
        return Answer()

    def _held(self, record: CallRecord) -> Held | None:
        """Why a call may not go. What its agent has just said of earlier ones counts."""
        self._note_killed()
        held = self._holds.judge(record.outward, self._calls.begun)
        if held is not None and not held.is_known and self._run.journal.lease.request_waits():
            self._run.drive(self._run.take_findings())
            held = self._holds.judge(record.outward, self._calls.begun)
        return held

    def _hold(self, start: ToolStart, record: CallRecord, held: Held) -> None:
        """Put on record that a call was not let through, and why."""
        if held.is_known:
            record = msgspec.structs.replace(record, answered=held.effect)
            self._holds.answered(held.effect, record)
        else:
            record = msgspec.structs.replace(record, held=held.effect)
            self._holds.held(held.effect, record)
        self._responses.refuse(start, record, held.text)

    # -- shims -----------------------------------------------------------------------------------------------------

    def shim(
        self, shim: Shim, perform: Callable[[], int], is_there: Callable[[], bool] = lambda: True
    ) -> tuple[str, int]:
        """A program below the agent that may reach outside: why it is not run, or its exit code when it was."""
        outward, words = self._outward.of_shim(shim), shim.words
        if not outward:
            return "", perform()
        with self._lock:
            if shim.sent_ns and time.monotonic_ns() - shim.sent_ns > self._timing.shim_waits_s * 1e9:
                return "outlast was asked too long ago; the program no longer waits for the answer", 0
            self._note_killed()
            runner = self._within_runner(outward)
            call = runner or self._calls.covers(outward)
            if not call:  # no call on record does this
                call = f"{SHIM}{os.urandom(8).hex()}"
                start = ToolStart(call, words[0], msgspec.Raw(b"null"))
                below = self._calls.enclosing()
                answer = self._judged(
                    start, CallRecord(words[0], list(words), "", shim.cwd, outward, below=below)
                )
                if not answer.allowed:
                    return answer.reason, 0
            program = object()
            self._programs[program] = (call, is_there)
            if any(each.words[:1] != (words[0],) for each in outward):  # it starts the programs that do it
                self._runners[program] = (call, outward)
        try:
            code = perform()
        except BaseException:
            with self._lock:
                self._note_killed(program)
            raise
        with self._lock:
            self._runners.pop(program, None)
            is_part_of_one = runner.startswith(SHIM) and code <= SIGNALLED  # whose own end tells
            if self._programs.pop(program, None) is not None and not is_part_of_one:
                self._calls.program_ended(call, code, outward)
        return "", code

    def _within_runner(self, outward: Sequence[OutwardCall]) -> str:
        """The key of the call whose runner (`npm run deploy`) is under way and was let through for this; each part once."""
        for program, (call, parts) in list(self._runners.items()):
            if program in self._programs and all(is_part(each, parts) for each in outward):
                self._runners[program] = (call, tuple(each for each in parts if not is_part(each, outward)))
                self._calls.program_began(call)
                return call
        return ""

    def _note_killed(self, program: object = None) -> None:
        """Put on record which programs were killed with their shims, before anything is judged that may be the same again.

        The thread of such a shim hears of its end too, perhaps later. The kernel closes a dying process's connection before
        whoever waits for that process goes on.
        """
        for each, (call, is_there) in list(self._programs.items()):
            if each is program or not is_there():
                del self._programs[each]
                self._progress.guarded(partial(self._calls.program_killed, call))
