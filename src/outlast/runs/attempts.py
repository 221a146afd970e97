"""How attempts begin and end: the event for each, with its cause and evidence."""

import errno
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.core import budget as budgets, events as ev, questions, restarts, state as st
from outlast.core.secrets import mask
from outlast.core.values import Payload, Usage, shorten
from outlast.errors import (
    AgentStopped,
    BudgetReached,
    ChecksFailed,
    DiskFull,
    EffectInDoubt,
    InvariantFailed,
    LeaseLost,
    QuotaReached,
    RunCancelled,
    RunHandedOff,
    RunPaused,
    WaitsForPerson,
)
from outlast.runs.opening.project import commit_of
from outlast.store.locks import boot_id, boottime_s, myself
from outlast.store.protocol import Holder, Lease

EVIDENCE_CHARS_MAX = 2_000
NO_RESET = "no reset time was given"


class _NoLease:
    """The lease of a run that is only read: it guards nothing."""

    run = ""
    epoch = -1
    released = True
    last_seen_s = None

    @property
    def holder(self) -> Holder:
        return myself()

    def guard(self) -> AbstractContextManager[None]:
        raise LeaseLost(self.run, held=-1, current=-1)

    def request_waits(self) -> bool:
        return False

    def clear_request_flag(self) -> None:
        pass

    def set_request_flag(self) -> None:
        pass

    def acting(self) -> bool:
        return False


NO_LEASE: Lease = _NoLease()


def now() -> datetime:
    """The wall clock, for display."""
    return datetime.now(UTC)


def started(
    lease: Lease,
    at: datetime,
    version: str,
    command: list[str],
    launch: Payload | None = None,
    reserved: Usage | None = None,
    *,
    finishes: bool = False,
    guarded: bool = False,
    within: str = "",
) -> ev.AttemptStarted:
    """This process takes the run up; `launch` is how a supervised command is started again."""
    holder = lease.holder
    return ev.AttemptStarted(
        at=at, epoch=lease.epoch, host=holder.host, pid=holder.pid, boot_id=holder.boot_id, version=version,
        code=commit_of(Path()), command=tuple(shorten(word, 200) for word in command[:32]),
        launch=launch, reserved=reserved, uptime_s=int(boottime_s()), finishes=finishes,
        guarded=guarded, within=within, host_id=holder.host_id,
    )  # fmt: skip


def lost(
    head: st.RunState, at: datetime, *, last_seen_s: float | None = None, progress: bool = False
) -> ev.AttemptEnded:
    """The end of an attempt that recorded none. `progress`: it left files that were new.

    The attempt is charged what was set aside for the beat in flight, and its time up to the last sign of life.
    """
    attempt = head.attempt
    assert attempt is not None, "only an attempt that has started can be lost"
    same_boot = attempt.boot_id == boot_id()
    cause: ev.Cause = "crash" if same_boot else "host"
    what = "is gone and recorded no end" if same_boot else "ran before the last boot"
    return ev.AttemptEnded(
        at=at,
        epoch=attempt.epoch,
        status="interrupted",
        cause=cause,
        evidence=f"pid {attempt.pid} on {attempt.host} {what}",
        progress=progress,
        spent=_lost_with(head, attempt, last_seen_s if same_boot else None),
        ended_well=head.ended_well,
    )


def _lost_with(head: st.RunState, attempt: st.Attempt, last_seen_s: float | None) -> Usage | None:
    if last_seen_s and attempt.uptime_s:
        lived_s = last_seen_s - attempt.uptime_s
    else:  # another boot: nothing is known after its last event
        lived_s = ((head.updated_at or attempt.started_at) - attempt.started_at).total_seconds()
    spent = msgspec.structs.replace(budgets.charge_for_killed(head), time_ms=max(0, int(lived_s * 1000)))
    return spent if spent != Usage() else None


def ended(
    epoch: int, at: datetime, head: st.RunState, error: BaseException | None, *, in_doubt: bool
) -> ev.AttemptEnded:
    """The end of an attempt that leaves its block."""
    given_up = bool(head.in_doubt) and all(effect.policy == "give_up" for effect in head.in_doubt)
    doubt: ev.EndStatus = "in_doubt" if in_doubt and not given_up else "interrupted"
    if isinstance(error, AgentStopped):
        return _stopped(epoch, at, error, doubt)
    status, cause, evidence = _judge(head, error, doubt)
    wanted = error is None or isinstance(
        error, KeyboardInterrupt | SystemExit | GeneratorExit | EffectInDoubt
    )  # a doubt that needs a person: nothing wakes the run before it is settled
    return ev.AttemptEnded(
        at=at, epoch=epoch, status=status, cause=cause, evidence=shorten(mask(evidence)[0], EVIDENCE_CHARS_MAX), wanted=wanted
    )  # fmt: skip


def parked(end: ev.AttemptEnded, head: st.RunState, error: BaseException | None) -> tuple[ev.Parked, ...]:
    """The event that parks a run whose program met a quota wall or waits for a person; none where a person must look first."""
    if end.cause == "person":
        return _waiting(end, head)
    if not isinstance(error, QuotaReached) or end.status != "interrupted" or head.parent is not None:
        return ()
    reset_at = error.reset_at.astimezone(UTC) if error.reset_at is not None else None
    reset, known = restarts.reset_time(reset_at, end.at, st.apply(head, end).past.parks)
    evidence = end.evidence if known else f"{end.evidence}; {NO_RESET}"
    until = restarts.wake_at(reset, head.run, 0, 0.0)
    return (ev.Parked(at=end.at, until=until, evidence=evidence, account=shorten(error.account, 120)),)


def _waiting(end: ev.AttemptEnded, head: st.RunState) -> tuple[ev.Parked, ...]:
    """The event that parks a run until a person answers what is open; none if it has all answers by now."""
    left = questions.open_among(head.questions)
    if not left or end.status != "interrupted" or head.parent is not None:
        return ()
    until, waits = questions.first_deadline(left), tuple(each.id for each in left)
    return (ev.Parked(at=end.at, until=until, cause="person", evidence=end.evidence, waits=waits),)


def _stopped(epoch: int, at: datetime, error: AgentStopped, doubt: ev.EndStatus) -> ev.AttemptEnded:
    """The end of a supervised command's attempt, as its supervisor judged it."""
    status = doubt if error.status == "interrupted" else decoders.convert(error.status, ev.EndStatus)
    return ev.AttemptEnded(
        at=at, epoch=epoch, status=status, cause=decoders.convert(error.cause, ev.Cause),
        evidence=shorten(mask(str(error))[0], EVIDENCE_CHARS_MAX), exit_code=error.agent_exit_code, wanted=error.wanted,
        progress=error.progress,
    )  # fmt: skip


def _judge(
    head: st.RunState, error: BaseException | None, doubt: ev.EndStatus
) -> tuple[ev.EndStatus, ev.Cause, str]:
    text = "" if error is None else f"{type(error).__name__}: {error}"
    match error:
        case None | SystemExit() | GeneratorExit():
            return doubt, "operator", text or f"the program left the run after beat {head.beats}"
        case EffectInDoubt():
            return "in_doubt", "crash", text
        case RunPaused():
            return "paused", "operator", text
        case RunCancelled():
            return "cancelled", "operator", text
        case RunHandedOff():
            return "handed_off", "handed_off", text
        case BudgetReached():
            return doubt, "budget", str(error)
        case QuotaReached():
            return doubt, "quota", str(error)
        case WaitsForPerson():
            return doubt, "person", error.what
        case ChecksFailed():
            return doubt, "checks", str(error)
        case InvariantFailed():
            return doubt, "invariant", str(error)
        case DiskFull():
            return doubt, "disk", text
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return doubt, "disk", text
        case KeyboardInterrupt():
            return doubt, "signal", "SIGINT"
        case _:
            return doubt, "crash", text
