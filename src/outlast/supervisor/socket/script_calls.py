"""The calls of scripts through a run's socket: steps recorded once and replayed, effects done once, stages, memory."""

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from outlast import faults
from outlast.core import events as ev
from outlast.core.recovery import effect_key
from outlast.core.replay import EffectRecord
from outlast.core.state import RunState
from outlast.core.values import Usage, digest
from outlast.errors import (
    AmbiguousOccurrence,
    DidNotHappen,
    DiskFull,
    EffectFailed,
    OutlastError,
    ReplayMismatch,
    UnreachedEffect,
)
from outlast.probes import CannotTell, Happened
from outlast.processes.roster import Roster
from outlast.runs.engine import questions
from outlast.runs.engine.steps import append
from outlast.runs.journal import Journal
from outlast.settings import age
from outlast.store.local import Local
from outlast.supervisor.beat_in_flight import ENDS_ATTEMPT, BeatInFlight
from outlast.supervisor.lifecycle import Lifecycle
from outlast.supervisor.socket.delivery import DELIVERED, Delivery
from outlast.supervisor.socket.wire import Output
from outlast.supervisor.timing import Timing

STEP, ASK = "step ", "ask "
QUESTION_CHARS = 150  # of a question, in the name of its answer
DID_NOT = 1  # a probe's exit code
_CANNOT_START = "the command cannot be started"
ROOM_MIN_BYTES = 256 << 10  # with less nothing is begun: its end might not be recorded

Perform = Callable[[str, int], Output]  # given the key of an effect, or which call of its name a step is


def step_of(name: str, occurrence: int) -> str:
    """Which call of which name a step is, as the programs below it have it on record."""
    return f"{name}#{occurrence}"


def steps_on_record(journal: Journal) -> set[str]:
    """The steps of a run that have ended: they are replayed, unless a failed one is called again."""
    found = (event for event in journal.events("decided") if isinstance(event, ev.Decided))
    return {
        step_of(event.name.removeprefix(STEP), event.occurrence)
        for event in found
        if event.name.startswith(STEP)
    }


class _Answered(msgspec.Struct, frozen=True):
    """The last call of a name that ended with a result, and whether its caller got that."""

    occurrence: int
    words: tuple[str, ...]
    delivery: Delivery


class CommandFailed(Exception):
    """A command of an effect ended with another code than 0: whether it did its work is not known."""


class CommandRunsOn(Exception):
    """The command of an effect ended and left processes running, which may do its work yet."""


class CannotStart(EffectFailed):
    """The command of an effect cannot be started, or could not when that was put on record."""


class Halted(BaseException):
    """The command of an effect ended after its stop began. Not an Exception: the effect stays intended, and the next attempt looks."""

    def __init__(self, output: Output) -> None:
        super().__init__("it ended after somebody began to stop it")
        self.output = output


class NotThere(Exception):
    """The program of a call is not there and would have to run. Nothing was recorded: another attempt may find it."""


class ScriptCalls:
    """Serves the calls of one attempt's scripts. Its methods may be called from several threads.

    Every attempt reads a script from its first line, so calls are found again by name and occurrence in the whole run, not
    only in the beat in flight. The end of a step ends a beat too, unless an effect is still under way or in doubt.

    `ends_beats`: a step that ends ends a beat too. Below an agent it does not: the agent's responses are the beats.
    """

    def __init__(
        self,
        beats: BeatInFlight,
        lifecycle: Lifecycle | None = None,
        *,
        ends_beats: bool = True,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self._beats, self._run = beats, beats.run
        self.roster = Roster(beats.run.journal.store.local.roster(beats.run.id))
        self._lifecycle, self._ends_beats = lifecycle, ends_beats
        self._lock = beats.lock
        self._free = threading.Condition(self._lock)
        self._counts: dict[str, int] = {}
        self._busy: dict[str, Delivery] = {}
        self._answers: dict[str, _Answered] = {}  # by name
        self._acting = 0
        self._ended: list[tuple[str, int]] = []  # steps whose beat could not end yet
        self._known = self._read_steps()
        self._answers_known = self._read_answers()
        self._spent_inside = self._read_spent_inside()
        self.found_names, self.found_task = self._found()

    @property
    def beats(self) -> BeatInFlight:
        """The beat that the calls are recorded in."""
        return self._beats

    @property
    def failure(self) -> OutlastError | None:
        """The error after which the attempt cannot go on, if any."""
        return self._beats.failure

    def _found(self) -> tuple[dict[str, str], str]:
        """The names a script had when it was interrupted, and the task that was under way; nothing at the first start."""
        state = self._run.state
        names = dict(state.names)
        if state.stage:
            names.setdefault("PROGRESS_STAGE", state.stage)
        if state.attempts < 2 or "CURRENT_TASK_ID" in names:
            return names, names.get("CURRENT_TASK_ID", "") if state.attempts > 1 else ""
        stages = self._run.journal.events("stage_set")
        has_own = any(isinstance(event, ev.StageSet) and "CURRENT_TASK_ID" in event.names for event in stages)
        return names, "" if has_own else state.task

    def _read_steps(self) -> dict[tuple[str, int], ev.Decided]:
        found = {}
        for event in self._run.journal.events("decided"):
            if isinstance(event, ev.Decided) and event.name.startswith(STEP):
                found[event.name, event.occurrence] = event
        return found

    def _read_answers(self) -> dict[tuple[str, int], ev.Decided]:
        return {
            (event.name, event.occurrence): event
            for event in self._run.journal.events("decided")
            if isinstance(event, ev.Decided) and event.question
        }

    def _read_spent_inside(self) -> dict[str, Usage]:
        found: dict[str, Usage] = {}
        for event in self._run.journal.events("spend_settled"):
            if isinstance(event, ev.SpendSettled) and event.source == ev.INSIDE:
                found[event.key] = found.get(event.key, Usage()).plus(event.usage)
        return found

    # -- steps ---------------------------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        """Raise before the command runs if its end could not be recorded."""
        failure = self._beats.failure
        if failure is not None:
            raise OutlastError(f"the attempt ends: {failure}", hint=failure.hint)
        store = self._run.journal.store
        if store.disk_is_full or not _has_room(store.local):
            raise self._beats.no_room()

    def step(
        self, name: str, perform: Perform, *, words: tuple[str, ...] = (), retry_failed: bool = False,
        missing: int = 0, delivery: Delivery = DELIVERED,
    ) -> tuple[Output, bool]:  # fmt: skip
        """The recorded output of this call, else perform it now and record its output; and whether it was replayed.

        One that was killed or stopped has no result: nothing is recorded, but it counts as a call. One that has a result
        counts as a call when its caller got that: until then the same call again is this one. Raises NotThere
        where its program is `missing` and would have to run; ReplayMismatch where a name that is used more than once was
        recorded with other words.
        """
        named = STEP + name
        with self._beats.noting_failure(), self._turn(named, words, delivery) as occurrence:
            self._check_usable()
            recorded = self._known.get((named, occurrence))
            if recorded is not None:
                value = self._run.journal.value(recorded.value)
                output = _output(value)
                if output.exit_code == 0 or not retry_failed:
                    self._compare(named, occurrence, value, words)
                    self._counts[named] = occurrence
                    self._answers[named] = _Answered(occurrence, words, delivery)
                    return output, True
            # whatever comes of it: after a restart the n-th call is the n-th
            self._counts[named] = occurrence
            if missing:
                raise NotThere
            output = perform("", occurrence)
            if output.missing or output.killed or output.stopped:
                return output, False
            if output.unkept:
                raise DiskFull(
                    f"what step {name!r} printed cannot be kept: {output.unkept}",
                    hint="make room, then start again",
                )
            self._record(named, occurrence, output, words)
            self._answers[named] = _Answered(occurrence, words, delivery)
            return output, False

    def _compare(self, named: str, occurrence: int, value: Any, words: tuple[str, ...]) -> None:
        """Only their order tells calls of one name apart, so they must be the same calls as before."""
        known = value.get("words", "") if isinstance(value, dict) else ""
        is_alone = occurrence == 1 and (named, 2) not in self._known
        if is_alone or not known or known == _digest(words):
            return
        name = named.removeprefix(STEP)
        raise ReplayMismatch(
            f"call {occurrence} of step {name!r} was recorded with another command; nothing was run",
            hint=f'calls of one name must come in the same order again: give each its own, as `outlast step "{name} $ITEM" -- …`',
        )

    def _record(self, named: str, occurrence: int, output: Output, words: tuple[str, ...]) -> None:
        with self._lock:
            journal = self._run.journal
            value = journal.payload(_plain(output) | ({"words": _digest(words)} if words else {}))
            # The last beat takes what ends after it too: it is on record, and whoever was under way is told why.
            beat = self._beats.last if self._ends_beats else self._beats.now()
            event = ev.Decided(
                at=journal.now(),
                beat=beat.number,
                name=named,
                occurrence=occurrence,
                value=value,
            )
            self._ended.append((named.removeprefix(STEP), output.exit_code))
            if self._may_end():
                journal.later(event)
                self._end_beat()
            else:
                self._beats.append(event)
            self._known[named, occurrence] = event

    def _may_end(self) -> bool:
        return self._ends_beats and not self._acting and not self._run.in_doubt()

    def _end_beat(self) -> None:
        """End the open beat with the steps that ended in it."""
        beat = self._beats.now()  # where no other is allowed, whoever was under way is told why
        result = [{"step": name, "exit_code": code} for name, code in self._ended]
        try:
            beat.done(result[0] if len(result) == 1 else result)
        except UnreachedEffect:
            return  # it ends with a later step, when what is in doubt is settled
        self._ended.clear()
        # The step is on record: what keeps the next beat from being opened is not its failure.
        with contextlib.suppress(*ENDS_ATTEMPT), self._beats.noting_failure():
            self._beats.now()
            self._beat_ended()

    def _beat_ended(self) -> None:
        if self._lifecycle is not None:
            self._lifecycle.beat_ended()

    def finish(self, result: object) -> None:
        """The command ended well: its last beat is done."""
        if self.failure is not None:
            raise self.failure
        with self._lock:
            self._ended.clear()
            try:
                self._beats.now().done(result)
            except UnreachedEffect as error:
                raise self._beats.doubt() or error from error
            self._beat_ended()

    # -- effects -------------------------------------------------------------------------------------------------

    def effect(
        self, name: str, words: tuple[str, ...], perform: Perform, *, key: str = "", unknown: str = "",
        probe: Callable[[str], int] | None = None, missing: int = 0, delivery: Delivery = DELIVERED,
        approve: bool | str = False,
    ) -> Output | None:  # fmt: skip
        """The recorded outcome of this effect, else perform it now: intent first, outcome after; None if given up.

        Where the program is `missing` it is not even intended: raises NotThere. One whose program could not be started after all did not
        happen, and is tried again as long as its beat is open. Unlike a step, one without an outcome is not counted: the
        next call of its name means it. So does the same call again where the caller never got the outcome.

        With `approve` a person approves it first: WaitsForPerson, after which the attempt ends, and NotApproved.
        Raises EffectInDoubt, EffectFailed, ReplayMismatch: then the command was not performed, or it is not known; and Halted
        where it was stopped.
        """
        named = f"effect {name}"
        with self._beats.noting_failure(), self._turn(named, words, delivery) as occurrence:
            self._check_usable()
            own = key or effect_key(self._run.id, 0, name, occurrence)
            with self._lock:
                beat = self._beats.now()
                known = beat.recorded(name, own)
                if missing and known is None:
                    raise NotThere
                self._acting += 1
            try:
                result = beat.act(
                    name, self._performing(perform, own), list(words), key=own, probe=_probing(probe, own),
                    unknown=unknown.replace("-", "_") or None, retry=_retries(known, beat.number),
                    approve=approve,
                )  # fmt: skip
            except EffectFailed as error:
                recorded = beat.recorded(name, own)
                if recorded is not None and recorded.evidence.startswith(_CANNOT_START):
                    raise CannotStart(str(error), hint=error.hint) from error
                raise
            finally:
                with self._lock:
                    self._acting -= 1
                    if self._ended and self._may_end():
                        self._end_beat()
            self._counts[named] = occurrence
            self._answers[named] = _Answered(occurrence, words, delivery)
        return None if result is None else _output(result)

    def _performing(self, perform: Perform, key: str) -> Callable[[list[str]], Any]:
        def act(words: list[str]) -> Any:
            output = perform(key, 0)
            if output.missing:
                raise DidNotHappen(f"{_CANNOT_START}: {output.missing}")
            if output.stopped:
                raise Halted(output)
            if output.unkept:  # it happened all the same
                self._beats.fail(self._beats.no_room())
            if output.left:
                raise CommandRunsOn(
                    f"its command ended with {output.exit_code} and left {output.left} running"
                )
            if output.exit_code != 0:
                raise CommandFailed(f"the command ended with {output.exit_code}")
            return _plain(output)

        return act

    # -- questions -----------------------------------------------------------------------------------------------

    def ask(self, text: str, choices: tuple[str, ...], within: str = "") -> str:
        """A person's answer to a question, recorded; the n-th call with the same words gets the n-th answer.

        Raises WaitsForPerson, after which the attempt ends and its run is parked; and NotAnswered.
        """
        options = questions.check_question(text, choices)
        within_s = int(age(within).total_seconds()) if within else 0
        name = ASK + (text if len(text) <= QUESTION_CHARS else digest(text.encode()))
        with self._beats.noting_failure(), self._turn(name, options, DELIVERED) as occurrence:
            self._check_usable()
            known = self._answers_known.get((name, occurrence))
            if known is None:
                known = self._answer(name, occurrence, text, options, within_s)
                self._answers_known[name, occurrence] = known
            self._counts[name] = occurrence
            return str(self._run.journal.value(known.value))

    def _answer(
        self, name: str, occurrence: int, text: str, choices: tuple[str, ...], within_s: int
    ) -> ev.Decided:
        journal = self._run.journal
        bound = digest(msgspec.json.encode((name, occurrence, choices)))
        inquiry = questions.Inquiry(
            kind="question", text=text, digest=bound, choices=choices, within_s=within_s
        )
        with self._lock:
            self._beats.now()
            question, reply = self._run.drive(questions.reply(journal, inquiry))
            event = ev.Decided(
                at=journal.now(), beat=self._beats.now().number, name=name, occurrence=occurrence,
                value=journal.payload(reply), question=question,
            )  # fmt: skip
            faults.point("ask.answered")
            self._beats.append(event)
            faults.point("ask.used")
        return event

    # -- notes ---------------------------------------------------------------------------------------------------

    def stage(self, stage: str | None, names: dict[str, str]) -> None:
        """Put a stage and a script's own names on record, if they are new."""
        with self._beats.noting_failure(), self._lock:
            state, journal = self._run.state, self._run.journal
            news = _news(state, names)
            if not news and stage in (None, state.stage):
                return
            new_stage = state.stage if stage is None else stage
            self._run.drive(append(ev.StageSet(at=journal.now(), stage=new_stage, names=news)))
        self._beat_ended()

    def remember(self, name: str, uri: str, names: dict[str, str]) -> None:
        """Put a memory ref on record, with a script's own names if they are new."""
        with self._beats.noting_failure(), self._lock:
            state, journal = self._run.state, self._run.journal
            news = _news(state, names)
            stage_events = [ev.StageSet(at=journal.now(), stage=state.stage, names=news)] if news else []
            self._run.drive(append(self._remembered(name, uri), *stage_events))
        self._beat_ended()

    def spent_inside(self, run: str, total: Usage) -> None:
        """Charge this run with the cost so far of a run inside of it, less the amount charged before."""
        with self._beats.noting_failure(), self._lock:
            before = self._spent_inside.get(run, Usage())
            more = total.minus(before)
            if not more.tokens and not more.cost_microusd:
                return
            journal = self._run.journal
            event = ev.SpendSettled(at=journal.now(), key=run, usage=more, source=ev.INSIDE)
            self._run.drive(append(event))
            self._spent_inside[run] = before.plus(more)
        self._beat_ended()

    def _remembered(self, name: str, uri: str) -> ev.AnyEvent:
        from outlast.runs.engine.beat import check_memory, make_ref

        ref = make_ref(name, uri, "", self._run.folder)
        check_memory(self._run.state.memory, (ref,))
        return ev.Remembered(at=self._run.journal.now(), ref=ref)

    # -- occurrences ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _turn(self, named: str, words: tuple[str, ...], delivery: Delivery) -> Iterator[int]:
        """Let one call of a name run at a time: after a crash, two at once could not be distinguished.

        Waits for a call whose script died: the processes that it left are stopped before its turn ends.
        """
        until_s = time.monotonic() + self._timing.turn_wait_s
        with self._free:
            while (other := self._busy.get(named)) is not None:
                if other.is_there() or not self._free.wait(until_s - time.monotonic()):
                    raise AmbiguousOccurrence(
                        f"two calls of {named!r} run at once", hint="give each another name"
                    )
            self._busy[named] = delivery
            occurrence = self._next(named, words)
        try:
            yield occurrence
        finally:
            with self._free:
                del self._busy[named]
                self._free.notify_all()

    def _next(self, named: str, words: tuple[str, ...]) -> int:
        """The number of the next call of a name. It is the last call's number again if that was the very same call and its
        caller never got its recorded result: then the new caller does not know that it was made."""
        count, last = self._counts.get(named, 0), self._answers.get(named)
        is_again = last is not None and (last.occurrence, last.words) == (count, words)
        return count if last is not None and is_again and last.delivery.look() == "lost" else count + 1


def _news(state: RunState, names: dict[str, str]) -> dict[str, str]:
    """A script's own names whose values differ from the recorded ones."""
    known = dict(state.names)
    return {name: value for name, value in names.items() if known.get(name, "") != value}


def _retries(known: EffectRecord | None, beat: int) -> int:
    """How often its command failed to start in this beat: each failure allows one more try. 0 if a beat has ended since."""
    return (
        known.failures if known is not None and known.state == "failed" and known.intent.beat == beat else 0
    )


def _probing(probe: Callable[[str], int] | None, key: str) -> Callable[[list[str]], object] | None:
    if probe is None:
        return None

    def look(words: list[str]) -> object:
        code = probe(key)
        if code == 0:
            return Happened(_plain(Output(0)))
        return (
            DidNotHappen("the probe says so")
            if code == DID_NOT
            else CannotTell(f"the probe ended with {code}")
        )

    return look


def _digest(words: tuple[str, ...]) -> str:
    return digest(msgspec.json.encode(words))


def _has_room(local: Local) -> bool:
    """Whether there is enough room left on the disk; also True if that cannot be found out."""
    try:
        return local.room_bytes() >= ROOM_MIN_BYTES
    except OSError:
        return True


def _plain(output: Output) -> dict[str, Any]:
    """The recorded form: text stays text, so that exports can mask it; other bytes are in base64."""
    recorded: dict[str, Any] = {"exit_code": output.exit_code}
    for name, data in (("out", output.out), ("err", output.err)):
        try:
            recorded[name] = data.decode()
        except UnicodeDecodeError:
            recorded[f"{name}64"] = base64.b64encode(data).decode()
    return recorded | ({"cut": output.cut} if output.cut else {})


def _output(value: Any) -> Output:
    if not isinstance(value, dict) or not isinstance(value.get("exit_code"), int):
        return Output(0, msgspec.json.encode(value) + b"\n")  # a person settled it with a result of their own
    out, err = (
        base64.b64decode(value[f"{name}64"]) if f"{name}64" in value else str(value.get(name, "")).encode()
        for name in ("out", "err")
    )
    return Output(value["exit_code"], out, err, int(value.get("cut", 0)))
