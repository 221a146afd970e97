"""The end of a run, if its checks pass; and the end of an attempt, however it comes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from outlast import faults
from outlast.core import events as ev
from outlast.core.events import SaveKind
from outlast.core.values import Check, Payload, shorten
from outlast.errors import ChecksFailed, EffectInDoubt, StoreError, UnreachedEffect
from outlast.runs import attempts, reader
from outlast.runs.checks import check_one_by_one
from outlast.runs.engine.steps import Append, Block, Steps

if TYPE_CHECKING:
    from outlast.runs.engine.run import RunEngine


def finish(run: "RunEngine", result: object) -> Steps:
    """Record that the run is done. Raises ChecksFailed or UnreachedEffect where it is not."""
    if run.is_done:
        return
    payload = yield from begin_finish(run, result)
    checks = (yield Block(lambda: tuple(filter(None, checking(run))))) if run.contract.checks else ()
    yield from record_done(run, payload, checks)


def begin_finish(run: "RunEngine", result: object) -> Steps:
    """Raise UnreachedEffect where an effect is in doubt; else return the result as it is kept. The checks come next."""
    run.check_open()
    if run.in_doubt():
        raise UnreachedEffect(
            f"run {run.id} cannot be finished: an effect is in doubt",
            hint=f"see `outlast effects {run.id}`",
        )
    payload = yield from _final_result(run, result)
    faults.point("checks.before")
    return payload


def checking(run: "RunEngine") -> Iterator[Check | None]:
    """Run the contract's checks, up to the first that fails: each as it ends, and None now and then meanwhile."""
    timeout_s, mark = run.settings["check_timeout_s"], run.supervision.mark
    return check_one_by_one(run.contract.checks, run.folder, timeout_s, mark)


def record_done(run: "RunEngine", result: Payload, checks: tuple[Check, ...]) -> Steps:
    """Save the files and record that the run is done, with its result. Raises ChecksFailed where a check failed."""
    failed = next((check for check in checks if check.exit_code != 0), None)
    if failed is not None:
        raise ChecksFailed(
            f"check {failed.command!r} failed with {failed.exit_code}{_output_of(failed)}",
            hint=f"run {run.id} is not done; mend it and start again",
        )
    faults.point("checks.passed")
    journal = run.journal
    epoch, spent = journal.lease.epoch, run.meter.at_end(run.beat)
    saved = yield from _last_save(run, "final", "done")
    yield Append(
        (
            *saved,
            ev.Finished(at=journal.now(), result=result, checks=checks),
            ev.AttemptEnded(at=journal.now(), epoch=epoch, status="done", cause="done", spent=spent),
        )
    )
    run.result = journal.value(result)
    faults.point("run.finished")


def _output_of(failed: Check) -> str:
    output = shorten(failed.output[-1500:], 1500).strip()
    return f": {output}" if output else ", and printed nothing"


def _final_result(run: "RunEngine", result: object) -> Steps:
    """The run's result as it is kept: the given one, else the one that the last beat staged, perhaps in an earlier attempt."""
    if result is None and run.state.finish_seq:
        event = run.journal.event_at(run.state.finish_seq)
        if isinstance(event, ev.BeatDone) and event.finish is not None:
            return event.finish
    return (yield from run.journal.keep(result))


def _last_save(run: "RunEngine", kind: SaveKind, reason: str, error: BaseException | None = None) -> Steps:
    """The save of an ending, as events."""
    return (yield from run.files.ending(kind, run.journal, reason, error)) if run.files is not None else ()


def leave(run: "RunEngine", error: BaseException | None) -> Steps:
    """Record how the attempt ended and let the run go. Errors come through unchanged."""
    try:
        if not run.closed and not run.is_done and run.state.attempt is not None:
            yield from _end(run, error)
        elif not run.closed and not run.is_done:  # it was stopped on request, which recorded its end
            saved = yield from _last_save(run, "emergency", f"operator: {error}", error)
            if saved:
                yield Append(saved)
    except StoreError as failed:
        if error is None:
            raise
        error.add_note(f"outlast could not record how the run ended: {failed}")
    finally:
        if run.beat is not None:
            run.beat.close()
        yield Block(run.give_back)


def _end(run: "RunEngine", error: BaseException | None) -> Steps:
    if isinstance(error, StoreError):
        yield from _last_save(run, "emergency", f"store: {error}", error)
        return  # whatever was written last is unknown, or not ours any more: write nothing
    if run.journal.uncertain:
        # An interrupt may have hit between handing events over and learning of their commit: ask the journal.
        run.journal.restart(reader.head(run.journal.store, run.id))
    if error is None and run.state.over:
        try:
            yield from finish(run, None)
        except (ChecksFailed, UnreachedEffect) as failed:
            yield from _record_end(run, failed)
            raise
        if run.parent is not None:
            faults.point("child.finished")
        return
    yield from _record_end(run, error)


def _record_end(run: "RunEngine", error: BaseException | None) -> Steps:
    faults.point("attempt.before_end")
    journal = run.journal
    end = attempts.ended(journal.lease.epoch, journal.now(), run.state, error, in_doubt=run.in_doubt())
    well = run.supervision.has_finished and isinstance(error, EffectInDoubt)
    end = msgspec.structs.replace(end, spent=run.meter.at_end(run.beat), ended_well=well)
    saved = yield from _last_save(run, "emergency", f"{end.cause}: {end.evidence}", error)
    yield Append((*saved, end, *attempts.parked(end, run.state, error)))
    faults.point("attempt.ended")
