"""The two drivers of the one implementation: `blocking` carries out a beat's steps in place, `awaiting` on an event loop.

Many async runs of a process share commits: each hands over its batch and awaits; one thread commits all that wait."""

import contextlib
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

from outlast.errors import OutlastError, UsageError
from outlast.runs.engine.act_mark import marked
from outlast.runs.engine.steps import Append, Block, Call, Op, Steps, TimedOut, Wait
from outlast.runs.journal import Journal
from outlast.store.protocol import Batch, Store, Wake

if TYPE_CHECKING:
    import asyncio


def blocking(journal: Journal | None, steps: Steps) -> Any:
    """Carry out steps one after the other, in this thread."""
    try:
        op: Op = next(steps)
        while True:
            try:
                done = _do(journal, op)
            except BaseException as error:
                op = steps.throw(error)
            else:
                op = steps.send(done)
    except StopIteration as stop:
        return stop.value


def _do(journal: Journal | None, op: Op) -> Any:
    match op:
        case Append():
            assert journal is not None, "a run must be open to be written"
            to = op.target or journal
            try:
                with to.mutex:
                    batch = to.batch(op)
                    to.store.append(batch)
                    to.committed(batch)
            except BaseException as error:
                to.uncertain |= not isinstance(error, OutlastError)
                raise
            return None
        case Call():
            return _call(op, _guarded(journal, op))
        case Block():
            return op.fn()
        case Wait():
            return time.sleep(op.seconds) if op.seconds > 0 else None


def _guarded(journal: Journal | None, op: Call) -> Callable[[], Any]:
    """The call, inside the lease's guard where it asks for one. A call that outlives its time limit keeps the guard."""

    def call() -> Any:
        return op.fn(*op.args, **op.kwargs)

    def call_guarded() -> Any:
        assert journal is not None, "an act belongs to an open run"
        with journal.lease.guard(), marked(journal.lease):
            return call()

    return call_guarded if op.guarded else call


def _call(op: Call, call: Callable[[], Any]) -> Any:
    result = call() if op.timeout_s is None else _in_thread(call, op)
    if hasattr(result, "__await__"):
        close = getattr(result, "close", None)
        if close is not None:
            close()
        raise UsageError(f"{op.fn!r:.80} is async", hint="open the run with `async with` to await it")
    return result


def _in_thread(call: Callable[[], Any], op: Call) -> Any:
    """Call with a time limit. A thread cannot be stopped, so the caller learns that it may still be at work."""
    outcome: list[tuple[Any, BaseException | None]] = []
    ended = threading.Event()  # not is_alive(): a join that is interrupted takes a living thread for dead

    def work() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))
        finally:
            ended.set()

    def running() -> bool:
        return not ended.is_set()

    if op.started is not None:
        op.started(running)
    threading.Thread(target=work, name="outlast-act", daemon=True).start()
    if not ended.wait(op.timeout_s):
        raise TimedOut(op.timeout_s or 0, running)
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


async def awaiting(journal: Journal | None, steps: Steps) -> Any:
    """Carry out steps on the running event loop, which never waits for the disk."""
    try:
        op: Op = next(steps)
        while True:
            try:
                done = await (_append(journal, op) if type(op) is Append else _await(journal, op))
            except BaseException as error:
                op = steps.throw(error)
            else:
                op = steps.send(done)
    except StopIteration as stop:
        return stop.value


async def _await(journal: Journal | None, op: Op) -> Any:
    match op:
        case Append():
            return await _append(journal, op)
        case Call():
            return await _await_call(journal, op)
        case Block():
            return await _await_thread(op.fn)
        case Wait():
            import asyncio

            return await asyncio.sleep(op.seconds) if op.seconds > 0 else None


def _perhaps() -> bool:
    """A cancelled coroutine may have left a thread at work: as long as this process lives, nobody can tell."""
    return True


async def _await_thread(fn: Callable[[], Any]) -> Any:
    """Wait for our thread to end, even when cancelled: whatever it takes must be given back."""
    import asyncio

    work = asyncio.ensure_future(asyncio.to_thread(fn))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


async def _await_call(journal: Journal | None, op: Call) -> Any:
    import asyncio
    import inspect

    threaded = op.timeout_s is not None and not inspect.iscoroutinefunction(op.fn)
    if threaded:
        assert op.timeout_s is not None, "only a call with a time limit goes to a thread"
        result = await asyncio.to_thread(_in_thread, _guarded(journal, op), op)
        if not inspect.isawaitable(result):
            return result
    with contextlib.ExitStack() as held:
        if op.guarded and journal:
            held.enter_context(journal.lease.guard())
            held.enter_context(marked(journal.lease))
        if not threaded:
            result = op.fn(*op.args, **op.kwargs)
        if not inspect.isawaitable(result):
            return result
        deadline = asyncio.timeout(op.timeout_s)
        try:
            async with deadline:
                return await result
        except TimeoutError as error:
            if not deadline.expired() or op.timeout_s is None:
                raise
            raise TimedOut(op.timeout_s, _perhaps) from error
        except asyncio.CancelledError:
            if op.started is not None:
                op.started(_perhaps)
            raise


def _append(journal: Journal | None, op: Append) -> "Awaitable[None]":
    """Hand a batch to the committing thread; the future is set on the loop when it is durable.

    Cancelling the waiting task does not cancel the commit: the batch is on its way.
    """
    assert journal is not None, "a run must be open to be written"
    to = op.target or journal
    mailbox = _mailbox()
    if to.loop is not mailbox.loop:
        _settle_in(to, mailbox.loop)
    future = mailbox.loop.create_future()
    with to.mutex:
        mailbox.hand_over(to.store, to.batch(op), future)
    return future


def _settle_in(journal: Journal, loop: "asyncio.AbstractEventLoop") -> None:
    """A journal is written from one event loop: the batches of two would overtake each other."""
    if journal.loop is not None:
        raise UsageError(
            f"run {journal.run} is used from two event loops",
            hint="open, use and leave it inside one asyncio.run()",
        )
    journal.loop = loop


class _Mailbox:
    """Per event loop: collects the batches of one turn of the loop, and the answers of one commit."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self.loop = loop
        self._answers: list[tuple[asyncio.Future[None], Exception | None]] = []
        self._outgoing: list[tuple[Store, Batch, Wake]] = []
        self._lock = threading.Lock()

    def hand_over(self, store: Store, batch: Batch, future: "asyncio.Future[None]") -> None:
        """Send at the end of this turn, so that all runs that are ready now share one commit."""
        self._outgoing.append((store, batch, lambda error: self._answer(future, error)))
        if len(self._outgoing) == 1:
            self.loop.call_soon(self._send)

    def _send(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        for store, batch, wake in outgoing:
            try:
                store.append(batch, wake)
            except Exception as error:
                wake(error)

    def _answer(self, future: "asyncio.Future[None]", error: Exception | None) -> None:
        with self._lock:
            self._answers.append((future, error))
            first = len(self._answers) == 1
        if first:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            answers, self._answers = self._answers, []
        for future, error in answers:
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(None)


_mailboxes: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox]" = weakref.WeakKeyDictionary()


def _mailbox() -> _Mailbox:
    import asyncio

    loop = asyncio.get_running_loop()
    mailbox = _mailboxes.get(loop)
    if mailbox is None:
        mailbox = _mailboxes[loop] = _Mailbox(loop)
    return mailbox


# -- Values that may also be awaited, so that the same names work in a blocking and in an async run.


class AwaitableText(str):
    """A text that may also be awaited, so that the same names work in an async run."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, str]:
        yield from ()
        return str(self)


class _Nothing:
    """Nothing, which may be awaited."""

    def __await__(self) -> Generator[None]:
        yield from ()


NOTHING = _Nothing()
