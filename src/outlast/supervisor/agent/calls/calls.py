"""The calls of an agent we did not write, as effects: an intent before, an outcome after."""

import os
from collections.abc import Sequence
from typing import Any

import msgspec

from outlast.agents.events import TaskEnd, ToolEnd, ToolStart
from outlast.core import events as ev
from outlast.core.state import EFFECTS_OPEN_MAX
from outlast.core.values import clip
from outlast.errors import OutlastError
from outlast.supervisor.agent.calls.identity import is_part
from outlast.supervisor.agent.calls.left_processes import Left, LeftRunning
from outlast.supervisor.agent.calls.open_call import OpenCall, covering
from outlast.supervisor.agent.calls.record import CallRecord, OutwardCall
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.socket.wire import Output

REASON_BYTES_MAX = 1_500
SIGNALLED = 128  # exit codes above it tell of a signal; git ends with this one itself
BY_SHIM = "shim"


class Unrecorded(OutlastError):
    """A call that could not be put on record. It must not happen; the attempt goes on."""


class NoRoom(Unrecorded):
    """As many calls as a run can have on record without an outcome are under way or in doubt."""

    def __init__(self) -> None:
        super().__init__(
            f"{EFFECTS_OPEN_MAX} calls are under way or in doubt, and no more fit on record at once",
            hint=_LATER,
        )


_LATER = "make it again when some of them have ended or are settled"


class AgentCalls:
    """The calls of one attempt that have no outcome yet.

    Hooks, shims and the transcript report calls, in any order, each possibly from its own thread. So the lock of the beat
    in flight guards everything here, and every report may come twice.
    """

    def __init__(self, beats: BeatInFlight) -> None:
        self._beats, self._run, self._lock = beats, beats.run, beats.lock
        self._calls: dict[str, OpenCall] = {}  # by key
        # By effect, of calls that lost a program: what of them had begun by then. The rest of them is not in doubt.
        self.begun: dict[str, tuple[OutwardCall, ...]] = {}
        self.processes: LeftRunning | None = None  # once the agent runs

    # -- which there are -------------------------------------------------------------------------------------------

    def _under_way(self, call: str) -> OpenCall | None:
        return next((each for each in self._calls.values() if each.id == call and not each.background), None)

    @property
    def is_busy(self) -> bool:
        """Whether a call of the agent is under way. What only a shim saw may run on: no beat waits for it."""
        return any(not each.by_shim and not each.background for each in self._calls.values())

    @property
    def is_full(self) -> bool:
        """Whether no further call fits on record before another one has an outcome."""
        return len(self._run.state.effects_open) >= EFFECTS_OPEN_MAX

    def knows(self, call: str) -> bool:
        """Whether an intent of this call is on record."""
        with self._lock:
            if self._under_way(call) is not None:
                return True
            journal = self._run.journal
            return bool(journal.store.read(journal.run, after=0, limit=1, key=call).events)

    def is_under_way(self, call: str, record: CallRecord) -> bool:
        """Whether just this call is under way. Raises Unrecorded where another one is, under its id."""
        with self._lock:
            opened = self._under_way(call)
            if opened is None:
                return False
            if all(is_part(each, opened.recorded) for each in record.outward):
                return True
            raise Unrecorded("another call is under way under its id", hint="make the call again")

    def enclosing(self) -> tuple[str, ...]:
        """The calls under way that a program may be part of: those that run programs, if there are such."""
        with self._lock:
            calls = [each for each in self._calls.values() if not each.by_shim and not each.background]
            return tuple(each.id for each in calls if each.runs) or tuple(each.id for each in calls)

    # -- before a call ---------------------------------------------------------------------------------------------

    def intend(self, call: str, record: CallRecord) -> None:
        """Put a call on record; durable when this returns. Raises NoRoom where too many have no outcome."""
        with self._lock:
            if self.is_full:
                raise NoRoom
            opened = self._put(call, record)
            self._calls[opened.key] = opened

    def found(self, call: str, record: CallRecord) -> None:
        """Record a call of an earlier attempt that only the transcript has. It is not under way."""
        with self._lock:
            self._put(call, record)

    def refuse(self, start: ToolStart, record: CallRecord, reason: str) -> None:
        """Put a call on record that was not let through, where it fits there."""
        with self._lock:
            if not self.is_full:
                self._fail(self._put(start.id, record), reason)

    def ask(self, start: ToolStart, record: CallRecord) -> str:
        """Put a call on record that was not let through and is in doubt: it may be one that was made before. Its effect's id."""
        with self._lock:
            opened = self._put(start.id, record)
            self._doubt(opened, f"it was not made: it may be effect {record.asks} again", asks=True)
            return opened.effect

    def left(self, call: str, record: CallRecord) -> None:
        """Put on record that something ran on when the command had ended, and was stopped: nobody knows what it did."""
        with self._lock:
            self._doubt(self._put(call, record), "it still ran when the command had ended, and was stopped")

    def not_done(self, call: str, reason: str) -> None:
        """A call on record was not let through after all. One that is not under way changes nothing."""
        with self._lock:
            opened = self._under_way(call)
            if opened is not None:
                self._fail(self._calls.pop(opened.key), reason)

    def unseen_programs(self, call: str) -> tuple[str, ...]:
        """Of a call under way, the programs that reach outside and that no shim let run.

        Empty where that is not certain, and where a tool reaches outside by itself: no shim stands before it.
        """
        with self._lock:
            opened = self._under_way(call)
            if opened is None or opened.lost or opened.not_done:
                return ()
            may_be_below = any(call in each.below for each in self._calls.values())
            return () if may_be_below else opened.unseen_programs

    def refused(self, call: str, reason: str) -> None:
        """The shims refused each program of a call that they did not let run. If they let none run, nothing was done;
        else what they refused is an effect of its own that was not done, and the call's result names it."""
        with self._lock:
            opened = self._under_way(call)
            if opened is None or opened.unseen == opened.recorded:
                self.not_done(call, reason)
                return
            refused = msgspec.structs.replace(opened.record, outward=opened.unseen)
            if not self.is_full:
                self._fail(self._put(call, refused), reason)
            self._change(opened, not_done=tuple(each.signature for each in opened.unseen))

    def _fail(self, opened: OpenCall, reason: str) -> None:
        error = f"not done: {clip(reason, REASON_BYTES_MAX)}"
        self._beats.append(
            ev.EffectFailed(at=self._run.journal.now(), beat=opened.beat, n=opened.n, error=error)
        )

    def _put(self, call: str, record: CallRecord) -> OpenCall:
        # Some agents name a call by what it is, so that two alike have one id: the second gets a key of its own.
        key = call if not self.knows(call) else f"{call}~{os.urandom(6).hex()}"
        record = record if key == call else msgspec.structs.replace(record, call=call)
        beat, journal = self._beats.now(), self._run.journal
        n = beat.number_effect()
        self._beats.append(
            ev.EffectIntended(
                at=journal.now(), beat=beat.number, n=n, name=clip(record.name, 200), occurrence=0, key=key, own_key=True,
                args=journal.payload(msgspec.to_builtins(record)), policy="tell" if record.outward else "give_up",
                uptime_s=journal.uptime_s(),
            )
        )  # fmt: skip
        return OpenCall.of(call, key, beat.number, n, record)

    # -- programs below a call -------------------------------------------------------------------------------------

    def covers(self, program: Sequence[OutwardCall]) -> str:
        """The key of the recorded call that includes all that a program is about to do; each call covers it once.

        Empty if no call or several calls match: then nobody knows whose program it is. One that runs in the
        background counts only where none under way does. One that has lost a program covers no other: what comes after it
        in the same call is judged by itself.
        """
        with self._lock:
            for background in (False, True):
                opened = covering(self._calls.values(), program, background=background)
                if opened is not None:
                    unseen = tuple(each for each in opened.unseen if not is_part(each, program))
                    self._change(opened, unseen=unseen, waits=opened.waits + 1, live=opened.live + 1)
                    return opened.key
            return ""

    def unheard(self, key: str) -> None:
        """A program of a call ended well, and its caller did not hear of that. The call's result will say so."""
        with self._lock:
            if (opened := self._calls.get(key)) is not None:
                self._change(opened, unheard=True)

    def effect_of(self, key: str) -> str:
        """The id of the effect under this key, of a call that has no outcome yet; empty where there is none."""
        with self._lock:
            opened = self._calls.get(key)
            return opened.effect if opened is not None else ""

    def program_began(self, key: str) -> None:
        """One more program of a call is under way."""
        with self._lock:
            if (opened := self._calls.get(key)) is not None:
                self._change(opened, waits=opened.waits + 1, live=opened.live + 1)

    def program_ended(
        self, key: str, code: int, program: Sequence[OutwardCall], printed: Output | None = None
    ) -> None:
        """A program that belongs to a call ended. When all of them ended well, what the call does outside has happened,
        if their exit codes can say so: that is on record before the call goes on, for what comes after may be
        cut off. One that only a shim saw is over when the call around it is: so long its agent has not been told."""
        with self._lock:
            opened = self._calls.get(key)
            if opened is None:
                return
            sure = all(each.sure for each in program)
            if code > SIGNALLED:  # what it had done by then nobody knows
                self.program_killed(key)
                return
            if opened.by_shim:
                end = ToolEnd(opened.id, code == 0, f"exit code {code}", code=code)
                opened = self._change(opened, printed=printed)
                if code != 0 or not self._is_below(opened):
                    self._take(opened, end)
                    return
                opened = self._change(opened, ended=end, sure=sure)
            elif code == 0:
                done = {at for at, each in enumerate(opened.recorded) if is_part(each, program)}
                opened = self._change(
                    opened, waits=opened.waits - 1, live=opened.live - 1, sure=opened.sure and sure, done=opened.done | done
                )  # fmt: skip
            else:
                opened = self._change(opened, live=opened.live - 1, code=code)
            if code == 0 and opened.waits == 0 and not opened.unseen and opened.sure:
                self._settle(opened, "happened", BY_SHIM, "its program ended with exit code 0")
            self._end_background(opened)

    def program_killed(self, key: str) -> None:
        """A program or its shim was killed: nobody knows whether it did its work. That is on record when this
        returns, so that whatever is judged next is held against it, be it part of the same call."""
        with self._lock:
            opened = self._calls.get(key)
            if opened is None:
                return
            if opened.by_shim:
                self._doubt(self._calls.pop(key), "its program was killed")
                return
            self.begun[opened.effect] = tuple(each for each in opened.recorded if each not in opened.unseen)
            if not opened.lost:
                self._doubt(opened, "a program of it was killed")
            self._end_background(self._change(opened, live=opened.live - 1, lost=True))

    def _is_below(self, opened: OpenCall) -> bool:
        return any(self._under_way(call) is not None for call in opened.below)

    # -- after a call ----------------------------------------------------------------------------------------------

    def outcome(self, end: ToolEnd) -> None:
        """Record how a call ended. Ignores a call that is not under way; one that still runs gets no outcome yet."""
        with self._lock:
            opened = self._under_way(end.id)
            if opened is None:
                return
            if opened.unseen and not opened.lost and (end.code or 0) > SIGNALLED:
                # No shim saw what it did, and it was killed.
                self.begun[opened.effect] = opened.recorded
                self._doubt(opened, f"it was killed: exit code {end.code}")
                opened = self._change(opened, lost=True)
            left = self._left_by(opened)
            if opened.is_outward and (end.task or opened.live or left):
                self._change(opened, background=True, returned=end, task=end.task, left=left)
            else:
                self._take(opened, end)

    def _left_by(self, opened: OpenCall) -> Left:
        if self.processes is None or not (opened.is_outward and opened.runs and opened.unseen):
            return ()
        return self.processes.found(opened.began_s)

    def stopping(self) -> None:
        """The attempt's processes are about to be stopped: what ends from now on was cut off, and says nothing."""
        with self._lock:
            self.processes = None

    def look_at_left(self) -> tuple[str, ...]:
        """Give those their outcome whose processes have ended; the keys of the others, which may reach outside yet."""
        with self._lock:
            for opened in [each for each in self._calls.values() if each.left and self.processes is not None]:
                left = LeftRunning.still(opened.left) if opened.unseen else ()
                self._end_background(self._change(opened, left=left))
            return tuple(key for key, each in self._calls.items() if each.is_outward and each.runs_on)

    def task_ended(self, end: TaskEnd) -> None:
        """A background task ended: record its end as the outcome of its call. Ignores an unknown task."""
        with self._lock:
            for opened in list(self._calls.values()):
                if end.task and opened.task == end.task:
                    opened = self._change(opened, background=False, task="")
                    self._take(opened, ToolEnd(opened.id, end.ok, end.output, opened.lane))

    def _end_background(self, opened: OpenCall) -> None:
        """When the last program that a call left running has ended, record the result that the agent already got."""
        if opened.background and not opened.runs_on and not opened.task and opened.returned is not None:
            ended, end = self._judged_apart(self._change(opened, background=False), opened.returned)
            if opened.heard:
                self._confirm(ended, end)
            else:
                self._take(ended, end)

    def _judged_apart(self, opened: OpenCall, end: ToolEnd) -> tuple[OpenCall, ToolEnd]:
        """A call and its end, when all its processes have ended. That it ended well says nothing of a program that it did not
        wait for. A shim would have seen that begin: where none did, it was most likely stopped before, as by an agent that
        stops what a call leaves in its process group. Where no shim stands, nobody says how it ended."""
        if not end.ok or opened.lost or not any(each.apart for each in opened.unseen):
            return opened, end
        if not opened.programs:
            return opened, msgspec.structs.replace(end, sure=False)
        self.begun[opened.effect] = opened.recorded
        self._doubt(opened, "it was left to run, and no program of it was seen to begin")
        return self._change(opened, lost=True), end

    def _take(self, opened: OpenCall, end: ToolEnd) -> None:
        """Agents say that a call failed also when they are killed in it, and it is not true then. So of a call that
        reaches outside, a failure counts only when the agent goes on."""
        opened, end = self._judged_apart(opened, end)
        if opened.is_outward and not (end.ok and end.sure):
            self._change(opened, failed=end)
        else:
            self._confirm(opened, end)

    def went_on(self) -> None:
        """The model answered again, so earlier failures were not the end of the agent."""
        with self._lock:
            for opened in list(self._calls.values()):
                if opened.failed is not None and opened.key in self._calls:
                    self._confirm(opened, opened.failed)
                elif opened.background and opened.returned is not None and opened.key in self._calls:
                    self._change(opened, heard=True)

    def _confirm(self, opened: OpenCall, end: ToolEnd) -> None:
        """Put a result on record with the files as they are, and those of the programs below it, which its agent knows now."""
        del self._calls[opened.key]
        if not opened.lost:  # its result says nothing of a program that was killed: it stays in doubt
            run, journal = self._run, self._run.journal
            save = run.files.save_effect(journal) if run.files is not None and opened.ended is None else ""
            result = journal.payload(opened.result(end))
            self._beats.append(
                ev.EffectConfirmed(
                    at=self._run.journal.now(), beat=opened.beat, n=opened.n, result=result, save=save
                )
            )
        for below in list(self._calls.values()):
            known = below.ended or below.failed
            if opened.id in below.below and known is not None and not self._is_below(below):
                self._confirm(below, known)

    def settle_rest(self) -> None:
        """The agent ended and says nothing more of its calls: outward ones are in doubt, the others are over."""
        with self._lock:
            still = {(effect.beat, effect.n) for effect in self._run.state.effects_open}
            why = "the agent ended without a result for it"
            for opened in list(self._calls.values()):
                if opened.key not in self._calls:
                    continue  # it was below one that is confirmed by now
                if opened.ended is not None:
                    self._confirm(opened, opened.ended)
                    continue
                del self._calls[opened.key]
                if opened.lost or (opened.background and (opened.beat, opened.n) not in still):
                    continue  # that is on record
                if opened.is_outward:
                    self._doubt(opened, why)
                else:
                    self._settle(opened, "give_up", "policy", why)

    # -- words for the journal -------------------------------------------------------------------------------------

    def _doubt(self, opened: OpenCall, why: str, *, asks: bool = False) -> None:
        at, beat, n = self._run.journal.now(), opened.beat, opened.n
        self._beats.append(ev.EffectInDoubt(at=at, beat=beat, n=n, evidence=why, asks=asks))

    def _settle(self, opened: OpenCall, finding: ev.Finding, by: str, why: str) -> None:
        at, beat, n = self._run.journal.now(), opened.beat, opened.n
        self._beats.append(ev.EffectSettled(at=at, beat=beat, n=n, finding=finding, by=by, evidence=why))

    def _change(self, opened: OpenCall, **changes: Any) -> OpenCall:
        changed = self._calls[opened.key] = msgspec.structs.replace(opened, **changes)
        return changed
