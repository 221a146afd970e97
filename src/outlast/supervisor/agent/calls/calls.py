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
from outlast.supervisor.agent.calls.open_call import UNNAMED, OpenCall, covering, left_by
from outlast.supervisor.agent.calls.record import CallRecord, OutwardCall
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.socket.delivery import Delivery
from outlast.supervisor.socket.wire import Output
from outlast.supervisor.timing import Timing

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
        # Whether the intent of a local call waits for its outcome: where a transcript tells what a kill cut off.
        self.defers = False
        self._long_call_s = Timing.current().long_call_s
        self._last_below_s = 0.0  # when a call of a sub-agent last began
        self._deferred: set[str] = set()  # the calls of which that is so, also when they have ended

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
            if self._under_way(call) is not None or call in self._deferred:
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
        """The calls under way that a program may be part of: the calls that run programs if there are any, else all."""
        with self._lock:
            calls = [each for each in self._calls.values() if not each.by_shim and not each.background]
            return tuple(each.id for each in calls if each.runs) or tuple(each.id for each in calls)

    # -- before a call ---------------------------------------------------------------------------------------------

    def intend(self, call: str, record: CallRecord) -> None:
        """Put a call on record; durable when this returns. Raises NoRoom where too many have no outcome."""
        with self._lock:
            waits = self.defers and not record.outward
            if self.is_full and not waits:
                raise NoRoom
            opened = self._put(call, record, waits=waits)
            self._calls[opened.key] = opened

    def _append(self, opened: OpenCall, *events: ev.AnyEvent, soon: bool = False) -> None:
        """Record events of a call, after its intent. One whose intent has no room is left out: it stays inside.

        `soon`: with the next commit of the beat.
        """
        if opened.unwritten is not None:
            if self.is_full:
                return
            events = (*self._unwritten_before(opened.beat, opened.n), opened.unwritten, *events)
        if not soon:
            self._beats.append(*events)
            return
        for event in events:
            self._beats.append_soon(event)

    def _unwritten_before(self, beat: int, n: int) -> list[ev.EffectIntended]:
        """The intents of calls under way that began earlier: they go first, so that a sub-agent's call follows its own."""
        intents: list[ev.EffectIntended] = []
        room = EFFECTS_OPEN_MAX - len(self._run.state.effects_open) - 1
        for opened in list(self._calls.values()):
            if opened.unwritten is not None and (opened.beat, opened.n) < (beat, n) and len(intents) < room:
                intents.append(opened.unwritten)
                self._change(opened, unwritten=None)
        return intents

    def found(self, call: str, record: CallRecord) -> None:
        """Record a call of an earlier attempt that only the transcript has. It is not under way."""
        with self._lock:
            self._put(call, record)

    def cut_off(self, call: str, record: CallRecord) -> bool:
        """Record that a local call of an earlier attempt was cut off, if there is room for it. Returns whether there was."""
        with self._lock:
            if self.is_full:
                return False
            opened = self._put(call, record)
            self._settle(opened, "give_up", "policy", "cut off with its attempt; its files are saved")
            return True

    def refuse(self, start: ToolStart, record: CallRecord, reason: str) -> None:
        """Record a call that was not let through, if there is room for one more open effect."""
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
        """Record that a process outlived the command and was stopped: its effect is in doubt."""
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

        Empty if that is not certain, or if a tool reaches outside by itself, without a program that a shim could stop.
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
        self._append(
            opened, ev.EffectFailed(at=self._run.journal.now(), beat=opened.beat, n=opened.n, error=error)
        )

    def _put(self, call: str, record: CallRecord, *, waits: bool = False) -> OpenCall:
        # Some agents name a call by what it is, so that two alike have one id: the second gets a key of its own.
        key = call if not self.knows(call) else f"{call}~{os.urandom(6).hex()}"
        record = record if key == call else msgspec.structs.replace(record, call=call)
        if record.lane:
            self._last_below_s = LeftRunning.now_s()
        beat, journal = self._beats.now(), self._run.journal
        n = beat.number_effect()
        intent = ev.EffectIntended(
            at=journal.now(), beat=beat.number, n=n, name=clip(record.name, 200), occurrence=0, key=key, own_key=True,
            args=journal.payload(msgspec.to_builtins(record)), policy="tell" if record.outward else "give_up",
            uptime_s=journal.uptime_s(), approved=record.approved,
        )  # fmt: skip
        if waits:
            self._deferred.add(call)
        else:
            self._beats.append(*self._unwritten_before(beat.number, n), intent)
        return OpenCall.of(call, key, beat.number, n, record, intent if waits else None)

    # -- programs below a call -------------------------------------------------------------------------------------

    def covers(self, program: Sequence[OutwardCall], above: Left = ()) -> str:
        """The key of the recorded call that includes all that a program is about to do; each call covers it once.

        A process that a call left behind belongs to that call. `above`: the program's shim and the processes above it. For
        others it is empty if no call or several calls match: then nobody knows whose program it is. One that runs in the
        background counts only where none under way does. One that has lost a program covers no other: what comes after it
        in the same call is judged by itself.
        """
        with self._lock:
            opened = self._covering(program, above)
            if opened is None:
                return ""
            unseen = tuple(each for each in opened.unseen if not is_part(each, program))
            self._change(opened, unseen=unseen, waits=opened.waits + 1, live=opened.live + 1)
            return opened.key

    def _covering(self, program: Sequence[OutwardCall], above: Left) -> OpenCall | None:
        processes = self.processes
        if processes is None or not (orphan := processes.orphaned(above)):
            return covering(self._calls.values(), program)
        self.look_at_left()
        is_known, opened = left_by(self._calls.values(), program, orphan)
        if is_known:
            return opened
        # What still waits for a process of its own is not done by one that is older than its call.
        return covering([
            each
            for each in self._calls.values()
            if not (each.left and processes.began_before(orphan[0], each.began_s))
        ], program)  # fmt: skip

    def answers(self, key: str, delivery: Delivery) -> None:
        """The caller of a program is about to hear that it ended well. Whether it did is looked up when the call's result is
        recorded, whoever tells of that: its transcript may do so before any hook."""
        with self._lock:
            if (opened := self._calls.get(key)) is not None:
                self._change(opened, answers=(*opened.answers, delivery))

    def unheard(self, key: str) -> None:
        """A program of a call ended well, and its agent did not read of that. The call's result will say so."""
        with self._lock:
            if (opened := self._calls.get(key)) is not None:
                self._change(opened, unheard=True)

    def effect_of(self, key: str) -> str:
        """The id of the effect under this key, if its call has no outcome yet; else empty."""
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
        cut off. One that only a shim saw is over when the call around it is: until then its agent has no result."""
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
                self._name_task(end)
                return
            opened = self._if_killed(opened, end.code)
            left = self._left_by(opened)
            task = end.task or (UNNAMED if end.ok and opened.asks_for_background else "")
            if opened.is_outward and (task or opened.live or left):
                self._change(opened, background=True, returned=end, task=task, left=left)
            else:
                self._take(opened, end)

    def _name_task(self, end: ToolEnd) -> None:
        """A hook may tell less of a call that went to the background than the transcript does after it."""
        for opened in list(self._calls.values()):
            if end.task and opened.id == end.id and opened.task == UNNAMED:
                self._change(opened, task=end.task)

    def _if_killed(self, opened: OpenCall, code: int | None) -> OpenCall:
        """A call that ended with this exit code: in doubt where no shim saw all that it did, and it was killed."""
        if not opened.unseen or opened.lost or (code or 0) <= SIGNALLED:
            return opened
        self.begun[opened.effect] = opened.recorded
        self._doubt(opened, f"it was killed: exit code {code}")
        return self._change(opened, lost=True)

    def _left_by(self, opened: OpenCall) -> Left:
        if self.processes is None or not (opened.is_outward and opened.runs and opened.unseen):
            return ()
        return self.processes.found(opened.began_s)

    def stopping(self) -> None:
        """The attempt's processes are about to be stopped: what ends from now on was cut off, and says nothing."""
        with self._lock:
            self.processes = None

    def look_at_left(self) -> tuple[str, ...]:
        """Record the outcome of calls whose leftover processes have ended. Returns the keys of calls that may still reach
        outside."""
        with self._lock:
            for opened in [each for each in self._calls.values() if each.left and self.processes is not None]:
                self._end_background(self._change(opened, left=LeftRunning.still(opened.left)))
            return tuple(key for key, each in self._calls.items() if each.is_outward and each.runs_on)

    def task_ended(self, end: TaskEnd) -> None:
        """A background task ended: record its end as the outcome of its call. Ignores an unknown task."""
        with self._lock:
            for opened in list(self._calls.values()):
                if end.task and opened.task == end.task:
                    opened = self._if_killed(self._change(opened, background=False, task=""), end.code)
                    self._take(opened, ToolEnd(opened.id, end.ok, end.output, opened.lane, code=end.code))

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
        """Record a call's result with a save of the files, and the results of the programs below it, which the agent knows
        now."""
        del self._calls[opened.key]
        if not opened.lost:  # its result says nothing of a program that was killed: it stays in doubt
            run, journal = self._run, self._run.journal
            save = run.files.save_effect(journal) if run.files is not None and opened.ended is None else ""
            result = journal.payload(opened.result(end))
            confirmed = ev.EffectConfirmed(
                at=journal.now(), beat=opened.beat, n=opened.n, result=result, save=save
            )
            # Of a local call the transcript tells as well, and what is lost of it is looked up in the files: unless a
            # restart sets these back to this very save, its outcome needs no commit of its own.
            is_late = not opened.is_outward and not run.saves_effects and not self._was_long(opened)
            self._append(opened, confirmed, soon=is_late)
        for below in list(self._calls.values()):
            known = below.ended or below.failed
            if opened.id in below.below and known is not None and not self._is_below(below):
                self._confirm(below, known)

    def _was_long(self, opened: OpenCall) -> bool:
        """Whether to do a call again would cost much: it took long, or a sub-agent worked meanwhile."""
        took_s = LeftRunning.now_s() - opened.began_s
        return took_s >= self._long_call_s or (
            not opened.record.lane and self._last_below_s >= opened.began_s
        )

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
        self._append(opened, ev.EffectInDoubt(at=at, beat=beat, n=n, evidence=why, asks=asks))

    def _settle(self, opened: OpenCall, finding: ev.Finding, by: str, why: str) -> None:
        at, beat, n = self._run.journal.now(), opened.beat, opened.n
        self._append(opened, ev.EffectSettled(at=at, beat=beat, n=n, finding=finding, by=by, evidence=why))

    def _change(self, opened: OpenCall, **changes: Any) -> OpenCall:
        changed = self._calls[opened.key] = msgspec.structs.replace(opened, **changes)
        return changed
