"""The two drivers of the one implementation: `blocking` carries out a beat's steps in place, `awaiting` on an event loop.

Many async runs of a process share commits: each hands its batch over and awaits; one thread commits what waits.
"""

import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from outlast.effects.ops import Append, Block, Call, Op, Steps, TimedOut, Wait
from outlast.errors import UsageError
from outlast.runs.journal import Journal

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
            with journal.mutex:
                if journal.store.append(journal.batch(op)):
                    journal.mail_waits = True
            return None
        case Call():
            with journal.lease.guard() if op.guarded and journal else contextlib.nullcontext():
                return _call(op)
        case Block():
            return op.fn()
        case Wait():
            return time.sleep(op.seconds) if op.seconds > 0 else None


def _call(op: Call) -> Any:
    result = _in_thread(op, op.timeout_s) if op.timeout_s is not None else op.fn(*op.args, **op.kwargs)
    if hasattr(result, "__await__"):
        close = getattr(result, "close", None)
        if close is not None:
            close()
        raise UsageError(f"{op.fn!r:.80} is async", hint="open the run with `async with` to await it")
    return result


def _in_thread(op: Call, timeout_s: float) -> Any:
    """Call with a time limit. A thread cannot be stopped, so the caller learns that it may still be at work."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            outcome.append((op.fn(*op.args, **op.kwargs), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=work, name="outlast-act", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not outcome:
        raise TimedOut(timeout_s, thread.is_alive)
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
                done = await _await(journal, op)
            except BaseException as error:
                op = steps.throw(error)
            else:
                op = steps.send(done)
    except StopIteration as stop:
        return stop.value


async def _await(journal: Journal | None, op: Op) -> Any:
    match op:
        case Append():
            assert journal is not None, "a run must be open to be written"
            if await _append(journal, op):
                journal.mail_waits = True
            return None
        case Call():
            with journal.lease.guard() if op.guarded and journal else contextlib.nullcontext():
                return await _await_call(op)
        case Block():
            import asyncio

            return await asyncio.to_thread(op.fn)
        case Wait():
            import asyncio

            return await asyncio.sleep(op.seconds) if op.seconds > 0 else None


async def _await_call(op: Call) -> Any:
    import asyncio
    import inspect

    if op.timeout_s is None:
        result = op.fn(*op.args, **op.kwargs)
        return await result if inspect.isawaitable(result) else result
    if not inspect.iscoroutinefunction(op.fn):
        return await asyncio.to_thread(_in_thread, op, op.timeout_s)
    try:
        return await asyncio.wait_for(op.fn(*op.args, **op.kwargs), op.timeout_s)
    except TimeoutError as error:
        raise TimedOut(op.timeout_s, lambda: False) from error


def _append(journal: Journal, op: Append) -> "Awaitable[bool]":
    """Hand a batch to the committing thread; the future is set on the loop when it is durable."""
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[bool] = loop.create_future()
    mailbox = _Mailbox.of(loop)
    with journal.mutex:
        batch = journal.batch(op)
        mailbox.hand_over(journal, batch, future)
    return asyncio.shield(future)


class _Mailbox:
    """Per event loop: collects the batches of one turn of the loop, and the answers of one commit."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = loop
        self._answers: list[tuple[asyncio.Future[bool], Exception | None, bool]] = []
        self._outgoing: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @classmethod
    def of(cls, loop: "asyncio.AbstractEventLoop") -> "_Mailbox":
        mailbox: _Mailbox | None = getattr(loop, "_outlast_mailbox", None)
        if mailbox is None:
            mailbox = cls(loop)
            loop._outlast_mailbox = mailbox  # type: ignore[attr-defined]
        return mailbox

    def hand_over(self, journal: Journal, batch: Any, future: "asyncio.Future[bool]") -> None:
        """Send at the end of this turn, so that all runs that are ready now share one commit."""

        def wake(error: Exception | None, waiting: bool) -> None:
            self._answer(future, error, waiting)

        self._outgoing.append(lambda: journal.store.append(batch, wake) and None)
        if len(self._outgoing) == 1:
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        for send in outgoing:
            send()

    def _answer(self, future: "asyncio.Future[bool]", error: Exception | None, waiting: bool) -> None:
        with self._lock:
            self._answers.append((future, error, waiting))
            first = len(self._answers) == 1
        if first:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            answers, self._answers = self._answers, []
        for future, error, waiting in answers:
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(waiting)
