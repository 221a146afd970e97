"""`beat.act`: intent → act → outcome, and the carrying out of what `core.recovery` decides about doubtful ones."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from outlast import faults
from outlast.core import events as ev, recovery
from outlast.core.replay import EffectRecord
from outlast.core.state import RunState
from outlast.core.values import Payload, shorten
from outlast.errors import (
    BeatClosed,
    DidNotHappen,
    EffectFailed,
    EffectInDoubt,
    LeaseLost,
    NotEncodable,
    ReplayMismatch,
    StoreError,
)
from outlast.probes import CannotTell, Happened, Probe
from outlast.runs.engine import leftovers, questions
from outlast.runs.engine.questions import Inquiry
from outlast.runs.engine.steps import Append, Block, Call, Steps, TimedOut, Wait
from outlast.runs.timing import Timing
from outlast.store.protocol import Lease

KEY_ARGUMENT = "idempotency_key"
EVIDENCE_CHARS_MAX = 500
RESULT_CHARS_MAX = 100_000
HINTED_CHARS_MAX = 200

# Calls that outlived their time limit, by run and key. A later attempt in the same process must know of them: as long
# as one is under way, a probe's "did not" proves nothing.
_outliving: dict[tuple[str, str], Callable[[], bool]] = {}


def _nobody() -> bool:
    return False


def _under_way(run: str, key: str) -> Callable[[], bool]:
    running = _outliving.get((run, key), _nobody)
    if not running():
        _outliving.pop((run, key), None)
        return _nobody
    return running


class Act(msgspec.Struct, frozen=True):
    """One call of `beat.act`, with everything that identifies and performs it."""

    beat: int
    n: int
    name: str
    occurrence: int
    key: str
    own_key: bool
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    encoded: Payload
    digest: str
    policy: ev.Policy
    probe: Probe | None
    retries: int
    timeout_s: float | None
    key_ttl_s: int
    ask: Inquiry | None = None  # what a person must approve before it is performed


class Port(Protocol):
    """The part of a journal that an effect needs."""

    @property
    def run(self) -> str: ...
    @property
    def state(self) -> RunState: ...
    @property
    def lease(self) -> Lease: ...
    @property
    def since_s(self) -> float: ...
    @property
    def act_lock(self) -> Path: ...
    @property
    def roster(self) -> Path: ...
    def now(self) -> Any: ...
    def uptime_s(self) -> int: ...
    def age_s(self, intent: ev.EffectIntended) -> int | None: ...
    def events(self, *tags: str, after: int = 0) -> Iterable[ev.AnyEvent]: ...
    def keep(self, value: object) -> Steps: ...
    def value(self, payload: Payload) -> Any: ...
    def in_beat(self, event: ev.AnyEvent) -> Append: ...
    def saved(self) -> Steps: ...
    def effect(self, n: int) -> EffectRecord | None: ...
    def take_requests(self, *, if_rung: bool = False) -> Steps: ...


def perform(port: Port, act: Act, record: EffectRecord | None) -> Steps:
    """Bring one effect to its end: its outcome, returned or raised."""
    if record is not None:
        _compare(act, record)
        if record.state not in ("confirmed", "given_up"):
            yield from port.take_requests()  # a person may have settled it meanwhile
    course = _Course(port, act, record)
    while True:
        yield from course.stop_leftovers()
        match recovery.decide(course.record, course.facts()):
            case recovery.Perform():
                yield from course.intend((yield from course.approval()))
                yield from course.go()
            case recovery.Reissue():
                faults.point("reissue.before")
                yield from course.reissue()
            case recovery.Probe(did_not_counts=counts):
                yield from course.look(counts)
            case recovery.Replay(result=result):
                return course.outcome(result)
            case recovery.Fail(error=error):
                yield from course.fail_for_good(error)
                raise EffectFailed(
                    f"act {act.name!r} of beat {act.beat} did not happen: {error}"
                ) from course.raised
            case recovery.GiveUp(recorded=recorded):
                if not recorded:
                    yield from course.settle("give_up", by="policy")
                return None
            case recovery.Ask(why=why):
                raise _in_doubt(port.run, act, why) from course.raised


def _compare(act: Act, record: EffectRecord) -> None:
    """Raise ReplayMismatch if the record with this key or occurrence has another name or other arguments."""
    intent = record.intent
    if (intent.name, intent.digest) == (act.name, act.digest):
        return
    what = "other arguments" if intent.name == act.name else f"the name {intent.name!r}"
    raise ReplayMismatch(
        f"act {act.name!r} of beat {act.beat} was recorded with {what}; nothing was performed",
        hint="give an act whose arguments may differ between attempts its inputs from `beat.decide`",
    )


def _in_doubt(run: str, act: Act, why: str) -> EffectInDoubt:
    return EffectInDoubt(
        f"effect {act.beat}.{act.n} {act.name!r} of run {run} is in doubt: {why}",
        hint=f"look whether it happened, then `outlast settle {run} {act.beat}.{act.n} --happened` or `--did-not`",
    )


def _too_late(run: str, act: Act, event: ev.AnyEvent) -> EffectInDoubt:
    """The error for an act that ended after its attempt had, for example after a cancel. Only this process knows how it ended, so the error says it."""
    import shlex

    ending, answer = "", "--happened` or `--did-not"
    if isinstance(event, ev.EffectConfirmed):
        result = bytes(event.result.v).decode() if not event.result.blob else ""
        ending, answer = "it happened", "--happened"
        if result not in ("", "null") and len(result) <= HINTED_CHARS_MAX:
            answer += f" --result {shlex.quote(result)}"
    elif isinstance(event, ev.EffectFailed):
        ending, answer = f"it did not happen ({event.error})", "--did-not"
    elif isinstance(event, ev.EffectInDoubt):
        ending = event.evidence
    return EffectInDoubt(
        f"effect {act.beat}.{act.n} {act.name!r} of run {run} ended after its attempt had, and that can no longer"
        f" be recorded: {ending or ev.tag_of(event)}; it is in doubt",
        hint=f"`outlast settle {run} {act.beat}.{act.n} {answer}`",
    )


class _Course:
    """The way of one effect through this call."""

    def __init__(self, port: Port, act: Act, record: EffectRecord | None) -> None:
        self.port = port
        self.act = act
        self.record = record
        self.raised: BaseException | None = None
        self._reissued = 0
        self._probed = False
        self._denied = 0
        self._leftovers = ""
        self._earlier = None if record is None else record.intent  # of an earlier call of this act
        self._searched: ev.AnyEvent | None = None
        self._since_s = port.since_s
        self._running = _under_way(port.run, act.key)

    def facts(self) -> recovery.Facts:
        act = self.act
        return recovery.Facts(
            policy=act.policy,
            has_probe=act.probe is not None,
            retries=act.retries,
            age_s=0 if self.record is None else self.port.age_s(self.record.intent),
            key_ttl_s=act.key_ttl_s,
            performer_lives=self._running(),
            reissued=self._reissued,
            probed=self._probed,
            denied=self._denied,
            leftovers=self._leftovers,
        )

    def stop_leftovers(self) -> Steps:
        """Before it is judged whether to do it again, stop what an earlier attempt's act started: it may do it yet."""
        record = self.record
        if record is None or record.state not in ("intended", "in_doubt", "did_not"):
            return
        intent = record.intent
        if self._searched is intent and not self._leftovers:
            return
        self._searched, lease = intent, self.port.lease
        port = self.port

        def look() -> leftovers.Leftovers:
            age_s = port.age_s(intent)
            found = leftovers.stop(lease.run, port.act_lock, port.roster, intent.key, age_s)
            # One that is settled as "did not" was looked at, by somebody who saw more than we do.
            may_run = intent is self._earlier and record.state != "did_not"
            unseen = leftovers.unseen(age_s) if may_run else ()
            return leftovers.Leftovers(found.stopped, (*found.left, *unseen))

        found = yield Block(look)
        self._leftovers = ", ".join(found.left)
        if found.stopped:
            self._since_s = time.monotonic()  # the far side may be busy yet with what was cut off

    def fail_for_good(self, error: str) -> Steps:
        """Record that the program learns of a failure: it may go another way now, and must not see success later."""
        if self.record is None or self.record.state != "did_not":
            return
        act = self.act
        yield from self._record(
            ev.EffectFailed(at=self.port.now(), beat=act.beat, n=act.n, error=error, final=True)
        )

    def outcome(self, result: Payload) -> Any:
        assert self.record is not None, "an outcome belongs to a record"
        if self.record.unencodable:
            raise NotEncodable(
                f"the result of act {self.act.name!r} could not be written as JSON; it was confirmed"
            )
        return self.port.value(result)

    def approval(self) -> Steps:
        """The id of the approval that the intent uses up; empty for an act that needs none.

        An act that surely did not happen is tried again under the approval of its first intent: a person allowed it once.
        """
        if self.act.ask is None:
            return ""
        if self.record is not None and self.record.intent.approved:
            return self.record.intent.approved
        return (yield from questions.approval(self.port, self.act.ask))

    def intend(self, approved: str) -> Steps:
        """Record the intent, durable before anything happens."""
        yield from self.port.take_requests(if_rung=True)
        faults.point("act.before_intent")
        act = self.act
        intent = ev.EffectIntended(
            at=self.port.now(), beat=act.beat, n=act.n, name=act.name, occurrence=act.occurrence, key=act.key,
            own_key=act.own_key, args=act.encoded, digest=act.digest, policy=act.policy,
            attempt=1 if self.record is None else self.record.intent.attempt + 1, uptime_s=self.port.uptime_s(),
            approved=approved,
        )  # fmt: skip
        yield from self._record(intent)
        self._reissued = 0
        self._probed = False
        faults.point("act.intended")

    def _record(self, event: ev.AnyEvent) -> Steps:
        try:
            yield self.port.in_beat(event)
        except StoreError as error:
            if not self.port.lease.released or isinstance(event, ev.EffectIntended):
                raise
            raise _too_late(self.port.run, self.act, event) from error
        record = self.port.effect(self.act.n)
        if record is None or record.intent.beat != self.act.beat:
            raise BeatClosed(f"beat {self.act.beat} ended while act {self.act.name!r} was under way")
        self.record = record

    def reissue(self) -> Steps:
        yield from self.port.take_requests()
        if self.record is not None and self.record.state not in ("intended", "in_doubt"):
            return  # a person settled it just now
        if self._reissued:
            yield Wait(Timing.current().reissue_wait_s * 2**self._reissued)
        self._reissued += 1
        yield from self.go(again=True)

    def go(self, *, again: bool = False) -> Steps:
        """Perform the act once and record what came of it."""
        act = self.act
        kwargs = {**act.kwargs, KEY_ARGUMENT: act.key} if takes_key(act.fn) else act.kwargs
        try:
            result = yield Call(act.fn, act.args, kwargs, act.timeout_s, guarded=True, started=self._started)
        except LeaseLost:
            raise
        except DidNotHappen as error:
            if again:  # it speaks of this call; the one before may have happened all the same
                yield from self._doubt(error)
                return
            self.raised = error
            yield from self._record(
                ev.EffectFailed(
                    at=self.port.now(), beat=act.beat, n=act.n, error=shorten(str(error), EVIDENCE_CHARS_MAX)
                )
            )
        except Exception as error:
            yield from self._doubt(error)
        else:
            faults.point("act.performed")
            yield from self._confirm(result)

    def _started(self, running: Callable[[], bool]) -> None:
        self._running = _outliving[self.port.run, self.act.key] = running

    def _doubt(self, error: Exception) -> Steps:
        self.raised = error
        self._since_s = time.monotonic()
        if isinstance(error, TimedOut):
            self._started(error.running)
        evidence = shorten(f"{type(error).__name__}: {error}", EVIDENCE_CHARS_MAX)
        act = self.act
        yield from self._record(
            ev.EffectInDoubt(at=self.port.now(), beat=act.beat, n=act.n, evidence=evidence)
        )
        faults.point("act.doubted")

    def _confirm(self, result: object) -> Steps:
        act = self.act
        payload, unencodable = yield from self._keep(result)
        save = yield from self.port.saved()
        yield from self._record(
            ev.EffectConfirmed(
                at=self.port.now(), beat=act.beat, n=act.n, result=payload, unencodable=unencodable, save=save
            )
        )
        faults.point("act.confirmed")

    def _keep(self, result: object) -> Steps:
        try:
            return (yield from self.port.keep(result)), False
        except NotEncodable:
            return (yield from self.port.keep(_described(result))), True

    def look(self, did_not_counts: bool) -> Steps:
        """Inquiry the probe; its "did not" counts only from a dead performer, after the far side has settled."""
        act, probe = self.act, self.act.probe
        assert probe is not None, "a probe is decided only where there is one"
        faults.point("probe.before")
        yield Wait(max(0.0, self._since_s + probe.settle_s - time.monotonic()))
        kwargs = {**act.kwargs, KEY_ARGUMENT: act.key} if takes_key(probe.look) else act.kwargs
        try:
            found = yield Call(probe.look, act.args, kwargs)
        except DidNotHappen as error:
            found = error
        except Exception as error:
            found = CannotTell(f"{type(error).__name__}: {error}")
        faults.point("probe.answered")
        self._probed = True
        match found:
            case Happened(result=result):
                yield from self.settle("happened", by="probe", result=result)
            case DidNotHappen() if did_not_counts:
                self._denied += 1
                yield from self.settle("did_not", by="probe", evidence=str(found))
            case DidNotHappen():
                under_way = f" in {self._leftovers}" if self._leftovers else ""
                why = f"the act may still be under way{under_way}"
                yield from self.settle("cannot_tell", by="probe", evidence=why)
            case CannotTell(why=why):
                yield from self.settle("cannot_tell", by="probe", evidence=why)
            case _:
                why = f"the probe answered {found!r:.80}, which is not a finding"
                yield from self.settle("cannot_tell", by="probe", evidence=why)

    def settle(self, finding: ev.Finding, *, by: str, result: object = None, evidence: str = "") -> Steps:
        """Record what was found out."""
        act = self.act
        payload, _ = yield from self._keep(result)
        evidence = shorten(evidence, EVIDENCE_CHARS_MAX)
        yield from self._record(
            ev.EffectSettled(
                at=self.port.now(),
                beat=act.beat,
                n=act.n,
                finding=finding,
                by=by,
                result=payload,
                evidence=evidence,
            )
        )
        faults.point("settle.recorded")


def _described(result: object) -> str:
    """A result in words, whatever it is."""
    try:
        return shorten(repr(result), RESULT_CHARS_MAX)
    except Exception as error:
        return f"<{type(result).__name__} that cannot be shown: {type(error).__name__}>"


def check_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise TypeError for arguments that the function cannot take, before an intent says that it was called."""
    import inspect

    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return
    with_key = {**kwargs, KEY_ARGUMENT: ""} if KEY_ARGUMENT in signature.parameters else kwargs
    signature.bind(*args, **with_key)


def takes_key(fn: Callable[..., Any]) -> bool:
    """Whether a function wants our idempotency key: it has a parameter of that name."""
    code = getattr(fn, "__code__", None)
    if code is not None and not hasattr(fn, "__wrapped__"):
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return KEY_ARGUMENT in names
    import inspect

    try:
        return KEY_ARGUMENT in inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False
