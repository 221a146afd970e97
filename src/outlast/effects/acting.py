"""`beat.act`: intent → act → outcome, and the carrying out of what `core.recovery` decides about doubtful ones."""

import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from outlast import faults
from outlast.core import events as ev
from outlast.core import recovery
from outlast.core.replay import EffectRecord
from outlast.core.values import Payload, shorten
from outlast.effects.ops import Append, Call, Steps, TimedOut, Wait
from outlast.errors import DidNotHappen, EffectFailed, EffectInDoubt, LeaseLost, NotEncodable, ReplayMismatch
from outlast.probes import CannotTell, Happened, Probe

KEY_ARGUMENT = "idempotency_key"
REISSUE_WAIT_S = 0.25
EVIDENCE_CHARS_MAX = 500


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


class Port(Protocol):
    """What acting needs of the run it belongs to."""

    run: str
    since_s: float

    def now(self) -> Any: ...
    def uptime_s(self) -> int: ...
    def age_s(self, intent: ev.EffectIntended) -> int | None: ...
    def payload(self, value: object) -> Payload: ...
    def value(self, payload: Payload) -> Any: ...
    def in_beat(self, event: ev.AnyEvent) -> Append: ...
    def effect(self, n: int) -> EffectRecord | None: ...
    def mail(self) -> Steps: ...


def perform(port: Port, act: Act, record: EffectRecord | None) -> Steps:
    """Bring one effect to its end: its outcome, returned or raised."""
    if record is not None and record.intent.digest != act.digest:
        raise ReplayMismatch(
            f"act {act.name!r} of beat {act.beat} was recorded with other arguments; nothing was performed",
            hint="give an act whose arguments may differ between attempts its inputs from `beat.decide`",
        )
    course = _Course(port, act, record)
    while True:
        match recovery.decide(course.record, course.facts()):
            case recovery.Perform():
                yield from course.intend()
                yield from course.go()
            case recovery.Reissue():
                faults.point("reissue.before")
                yield from course.reissue()
            case recovery.Probe(did_not_counts=counts):
                yield from course.look(counts)
            case recovery.Replay(result=result):
                return course.outcome(result)
            case recovery.Fail(error=error):
                raise EffectFailed(
                    f"act {act.name!r} of beat {act.beat} did not happen: {error}"
                ) from course.raised
            case recovery.GiveUp(recorded=recorded):
                if not recorded:
                    yield from course.settle("give_up", by="policy")
                return None
            case recovery.Ask(why=why):
                raise _in_doubt(port.run, act, why) from course.raised


def _in_doubt(run: str, act: Act, why: str) -> EffectInDoubt:
    return EffectInDoubt(
        f"effect {act.beat}.{act.n} {act.name!r} of run {run} is in doubt: {why}",
        hint=f"look whether it happened, then `outlast settle {run} {act.beat}.{act.n} --happened` or `--did-not`",
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
        self._since_s = port.since_s
        self._running: Callable[[], bool] = lambda: False

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
        )

    def outcome(self, result: Payload) -> Any:
        assert self.record is not None, "an outcome belongs to a record"
        if self.record.unencodable:
            raise NotEncodable(
                f"the result of act {self.act.name!r} could not be written as JSON; it was confirmed"
            )
        return self.port.value(result)

    def intend(self) -> Steps:
        """Record the intent, durable before anything happens."""
        yield from self.port.mail()
        faults.point("act.before_intent")
        act = self.act
        intent = ev.EffectIntended(
            at=self.port.now(), beat=act.beat, n=act.n, name=act.name, occurrence=act.occurrence, key=act.key,
            own_key=act.own_key, args=act.encoded, digest=act.digest, policy=act.policy,
            attempt=1 if self.record is None else self.record.intent.attempt + 1, uptime_s=self.port.uptime_s(),
        )  # fmt: skip
        yield from self._record(intent)
        self._reissued = 0
        self._probed = False
        faults.point("act.intended")

    def _record(self, event: ev.AnyEvent) -> Steps:
        yield self.port.in_beat(event)
        self.record = self.port.effect(self.act.n)

    def reissue(self) -> Steps:
        yield from self.port.mail()
        if self._reissued:
            yield Wait(REISSUE_WAIT_S * 2**self._reissued)
        self._reissued += 1
        yield from self.go()

    def go(self) -> Steps:
        """Perform the act once and record what came of it."""
        act = self.act
        kwargs = {**act.kwargs, KEY_ARGUMENT: act.key} if takes_key(act.fn) else act.kwargs
        try:
            result = yield Call(act.fn, act.args, kwargs, act.timeout_s, guarded=True)
        except LeaseLost:
            raise
        except DidNotHappen as error:
            self.raised = error
            yield from self._record(
                ev.EffectFailed(at=self.port.now(), beat=act.beat, n=act.n, error=str(error))
            )
        except Exception as error:
            yield from self._doubt(error)
        else:
            faults.point("act.performed")
            yield from self._confirm(result)

    def _doubt(self, error: Exception) -> Steps:
        self.raised = error
        self._since_s = time.monotonic()
        self._running = error.running if isinstance(error, TimedOut) else lambda: False
        evidence = shorten(f"{type(error).__name__}: {error}", EVIDENCE_CHARS_MAX)
        act = self.act
        yield from self._record(
            ev.EffectInDoubt(at=self.port.now(), beat=act.beat, n=act.n, evidence=evidence)
        )
        faults.point("act.doubted")

    def _confirm(self, result: object) -> Steps:
        act = self.act
        payload, unencodable = self._payload(result)
        yield from self._record(
            ev.EffectConfirmed(
                at=self.port.now(), beat=act.beat, n=act.n, result=payload, unencodable=unencodable
            )
        )
        faults.point("act.confirmed")

    def _payload(self, result: object) -> tuple[Payload, bool]:
        try:
            return self.port.payload(result), False
        except NotEncodable:
            return self.port.payload(repr(result)), True

    def look(self, did_not_counts: bool) -> Steps:
        """Ask the probe; its "did not" counts only from a dead performer, after the far side has settled."""
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
                yield from self.settle("did_not", by="probe", evidence=str(found))
            case DidNotHappen():
                yield from self.settle("cannot_tell", by="probe", evidence="the act may still be under way")
            case CannotTell(why=why):
                yield from self.settle("cannot_tell", by="probe", evidence=why)
            case _:
                why = f"the probe answered {found!r:.80}, which is no finding"
                yield from self.settle("cannot_tell", by="probe", evidence=why)

    def settle(self, finding: ev.Finding, *, by: str, result: object = None, evidence: str = "") -> Steps:
        """Record what was found out."""
        act = self.act
        payload, _ = self._payload(result)
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
