"""Programs below an agent or a guarded command: a shim asks, outlast judges and records, and the shim reports their end."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from outlast.agents.events import ToolStart
from outlast.agents.values import Answer
from outlast.errors import WaitsForPerson
from outlast.processes.roster import Roster
from outlast.runs.engine.run import RunEngine
from outlast.supervisor.agent.approvals import PASSES, CallApprovals, Ruling
from outlast.supervisor.agent.calls.answers import CallAnswers
from outlast.supervisor.agent.calls.calls import SIGNALLED, AgentCalls, NoRoom, Unrecorded
from outlast.supervisor.agent.calls.identity import is_part
from outlast.supervisor.agent.calls.left_processes import Left, may_be_below
from outlast.supervisor.agent.calls.outward import OutwardCalls
from outlast.supervisor.agent.calls.record import SHIM, CallRecord, EndedProgram, OutwardCall
from outlast.supervisor.agent.calls.repeats import Held, Holds
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.socket.delivery import DELIVERED, Delivery
from outlast.supervisor.socket.wire import REFUSED, Output, Shim, ShimAnswer
from outlast.supervisor.timing import Timing

UNRECORDED = "outlast could not put this call on record, so it was not made: "
LATE = "outlast was asked too long ago; the program no longer waits for the answer"
LEFT = "its shim had left before it was told to run the program"


class RecordsCalls(Protocol):
    """Records calls in the beats of their agent or command."""

    def intend(self, start: ToolStart, record: CallRecord) -> None: ...
    def refuse(self, start: ToolStart, record: CallRecord, reason: str) -> None: ...


class NotesFailure(Protocol):
    """Ends the attempt with what went wrong."""

    def fail(self, error: BaseException) -> Any: ...
    def guarded(self, what: Callable[[], Any]) -> None: ...


class OutwardPrograms:
    """Judges programs that are about to reach outside. One passes only when its intent is durable.

    `replays`: nobody reads words below a plain command, so a program that it ran to a good end in an earlier attempt
    ends as it did then, and is not run. Without it such a call is refused with words, which an agent reads.
    """

    def __init__(
        self,
        run: RunEngine,
        beats: BeatInFlight,
        holds: Holds,
        calls: AgentCalls,
        records: RecordsCalls,
        failures: NotesFailure,
        outward: OutwardCalls,
        approvals: CallApprovals,
        timing: Timing,
        *,
        replays: bool = False,
    ) -> None:
        self._run, self._lock = run, beats.lock
        self._roster = Roster(run.journal.store.local.roster(run.id))
        self._holds, self._outward, self._timing = holds, outward, timing
        self._calls, self._records, self._failures, self._replays = calls, records, failures, replays
        self._approvals = approvals
        self._answers = CallAnswers(holds, calls)
        self._ended = threading.Condition(self._lock)  # a program has
        # Those that a shim runs now: whose each is, and its shim, as whoever is to hear how it ends.
        self._programs: dict[object, tuple[str, Delivery]] = {}
        # And what below them is not seen yet, with the shim's process and those above it.
        self._runners: dict[object, tuple[str, tuple[OutwardCall, ...], Left]] = {}
        self.has_held = False  # whether a call was held in this attempt because of one in doubt

    # -- before a call ---------------------------------------------------------------------------------------------

    def judged(self, start: ToolStart, record: CallRecord, delivery: Delivery = DELIVERED) -> Answer:
        """Whether a call may go. If it may, it is on record. `delivery`: of this very answer."""
        answer, _ = self._judged(start, record, delivery)
        return answer

    def _judged(
        self, start: ToolStart, record: CallRecord, delivery: Delivery, program: str = ""
    ) -> tuple[Answer, Held | None]:
        try:
            if record.outward:
                if self._calls.is_full:
                    raise NoRoom
                held = self._held(record, program)
                if held is not None:
                    return Answer(False, self._hold(start, record, held, delivery)), held
                ruling = self._ruled(start, record)
                if ruling.words:
                    waiting = msgspec.structs.replace(record, waits=ruling.question)
                    self._records.refuse(start, waiting, ruling.words)
                    return Answer(False, ruling.words, aside=ruling.is_open), None
                record = msgspec.structs.replace(self._outward.with_facts(record), approved=ruling.question)
            self._records.intend(start, record)
        except WaitsForPerson as error:
            words = f"outlast: this call was not made, and outlast stops here: {error}"
            self._failures.fail(error)
            self._failures.guarded(partial(self._records.refuse, start, record, words))
            return Answer(False, words), None
        except NoRoom as error:  # what stays in here need not be on record
            words = f"{UNRECORDED}{error}; {error.hint}" if record.outward else ""
            return Answer(not record.outward, words), None
        except Unrecorded as error:
            return Answer(False, f"{UNRECORDED}{error}"), None
        except Exception as error:
            self._failures.fail(error)
            if record.outward:
                return Answer(False, f"{UNRECORDED}{error}"), None
        return Answer(), None

    def _ruled(self, start: ToolStart, record: CallRecord) -> Ruling:
        """What a person says of a call that must be approved. One that is on record as under way was judged before."""
        if self._calls.is_under_way(start.id, record):
            return PASSES
        return self._approvals.judge(record)

    def _held(self, record: CallRecord, program: str) -> Held | None:
        """Why a call, or the `program` that a shim stands before, may not go. Requests that the agent has just made about
        earlier calls count."""
        self.note_killed()
        held = self._answers.owed(record.outward, program)
        held = held or self._holds.judge(record.outward, self._calls.begun, record.steps)
        if held is not None and not held.is_known and self._run.journal.lease.request_waits():
            self._run.drive(self._run.take_findings())
            held = self._holds.judge(record.outward, self._calls.begun, record.steps)
        return held

    def _hold(self, start: ToolStart, record: CallRecord, held: Held, delivery: Delivery) -> str:
        """Record that a call was not let through, and return the reason as text. If nobody reads that text and the call may
        repeat an earlier one, a person decides."""
        self.has_held = self.has_held or not held.is_known or held.again is None
        if held.is_known and held.again is None and self._replays:
            self._calls.went_on()
            self._answers.drop_owed(held)
            effect = self._calls.ask(start, msgspec.structs.replace(record, asks=held.effect))
            return self._holds.question(effect, held.effect)
        if held.is_known:
            record = msgspec.structs.replace(record, answered=held.effect)
            is_shim = start.id.startswith(SHIM)
            self._answers.answered(delivery, held, record, by_hook=not is_shim)
        else:
            record = msgspec.structs.replace(record, held=held.effect)
            self._holds.held(held.effect, record)
        self._records.refuse(start, record, held.text)
        return held.text

    def agent_went_on(self) -> None:
        """A hook ran: the agent has gone on since the hooks before it."""
        self._answers.look()
        self._answers.agent_went_on()

    def look_at_answers(self) -> None:
        """Look which answers reached their callers, and take back those that did not."""
        self._answers.look()

    # -- shims -----------------------------------------------------------------------------------------------------

    def shim(self, shim: Shim, perform: Callable[[], Output], delivery: Delivery = DELIVERED) -> ShimAnswer:
        """Judge a program that may reach outside. Returns the reason if it is not run, else its exit code."""
        outward = self._outward.of_shim(shim)
        if not outward:
            return ShimAnswer(exit_code=perform().exit_code)
        program = object()
        with self._lock:
            if shim.sent_ns and time.monotonic_ns() - shim.sent_ns > self._timing.shim_waits_s * 1e9:
                return ShimAnswer(LATE, REFUSED)
            begun = self._begun(shim, outward, delivery)
            if isinstance(begun, ShimAnswer):
                return begun
            call, runner = begun
            effect = self._calls.effect_of(call)
            self._programs[program] = (call, delivery)
            # It starts the programs that do it.
            if any(each.words[:1] != shim.words[:1] for each in outward):
                self._runners[program] = (call, outward, shim.above)
        try:
            self._roster.name(shim.mark, call)
            performed = perform()
        except BaseException:
            with self._lock:
                self.note_killed(program)
            raise
        code = performed.exit_code
        with self._lock:
            self._runners.pop(program, None)
            is_part_of_one = runner.startswith(SHIM) and code <= SIGNALLED  # whose own end tells
            if self._programs.pop(program, None) is not None:
                if code == 0:
                    self._answers.ended(
                        delivery, EndedProgram(effect, call, shim.words[0], outward, performed)
                    )
                if not is_part_of_one:
                    self._calls.program_ended(call, code, outward, performed)
            self._ended.notify_all()
        return ShimAnswer(exit_code=code)

    def _begun(
        self, shim: Shim, outward: tuple[OutwardCall, ...], delivery: Delivery
    ) -> ShimAnswer | tuple[str, str]:
        """Let a program begin: return the key of its call, and that of the runner that it is part of. If it may not begin,
        return the answer for its shim."""
        self.note_killed()
        self._answers.begins(outward)
        name = shim.words[0]
        runner = self._within_runner(outward, shim.above)
        if call := runner or self._calls.covers(outward, shim.above):
            return call, runner
        if self._waited_for_room(shim):
            return self._begun(shim, outward, delivery)
        call = f"{SHIM}{os.urandom(8).hex()}"  # no call on record does this
        start = ToolStart(call, name, msgspec.Raw(b"null"))
        below = self._calls.enclosing()
        record = CallRecord(name, list(shim.words), "", shim.cwd, outward, below=below, steps=shim.steps)
        answer, held = self._judged(start, record, delivery, name)
        if answer.allowed and delivery.is_there():
            return call, ""
        if answer.allowed:  # the record took too long, and its shim has refused the program
            self._calls.not_done(call, LEFT)
            return ShimAnswer(LATE, REFUSED)
        again = held.again if held is not None and (self._replays or held.owed) else None
        return ShimAnswer(answer.reason, REFUSED) if again is None else ShimAnswer(answer.reason, 0, again)

    def _waited_for_room(self, shim: Shim) -> bool:
        """A program that does not fit on record waits for another one to end, as long as its shim waits. Returns whether one
        ended, so that there may be room."""
        since_s = shim.sent_ns / 1e9 if shim.sent_ns else time.monotonic()
        until_s = since_s + self._timing.shim_waits_s
        waited = False
        while self._calls.is_full and self._programs and (rest_s := until_s - time.monotonic()) > 0:
            waited = self._ended.wait(rest_s)
        return waited

    def _within_runner(self, outward: Sequence[OutwardCall], above: Left) -> str:
        """The key of the call whose runner (`npm run deploy`) is under way and was allowed to do this; each of its acts once."""
        for program, (call, parts, shim) in list(self._runners.items()):
            is_one = program in self._programs and all(is_part(each, parts) for each in outward)
            if is_one and may_be_below(above, shim):
                self._runners[program] = (
                    call,
                    tuple(each for each in parts if not is_part(each, outward)),
                    shim,
                )
                self._calls.program_began(call)
                return call
        return ""

    def note_killed(self, program: object = None) -> None:
        """Record which programs were killed with their shims, before judging any call that may repeat them.

        The thread of such a shim hears of its end too, perhaps later. The kernel closes a dying process's connection before
        whoever waits for that process goes on. Callers that were killed before they received an answer are noted here too.
        """
        self._answers.look()
        for each, (call, shim) in list(self._programs.items()):
            if each is program or not shim.is_there():
                del self._programs[each]
                self._failures.guarded(partial(self._calls.program_killed, call))
