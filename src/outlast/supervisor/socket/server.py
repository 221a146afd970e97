"""The supervisor's socket: a thread takes connections, each is served by one of its own until it is closed."""

import contextlib
import itertools
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from outlast import decoders
from outlast.core.values import Usage
from outlast.errors import EffectFailed, EffectInDoubt, NotAnswered, OutlastError, WaitsForPerson
from outlast.processes import cause_of_death, proc, reap, signals
from outlast.store import durable
from outlast.supervisor.socket import connection, pipe
from outlast.supervisor.socket.connection import Connection, Gone
from outlast.supervisor.socket.delivery import Delivery
from outlast.supervisor.socket.script_calls import CannotStart, Halted, NotThere, ScriptCalls, step_of
from outlast.supervisor.socket.tool_calls import ToolCalls
from outlast.supervisor.socket.wire import (
    REFUSED,
    Call,
    Hook,
    Note,
    Order,
    Output,
    Report,
    Shim,
    ShimAnswer,
    Started,
    ToolCall,
    Verdict,
    Welcome,
)
from outlast.supervisor.timing import Timing

NOT_FOUND = 127
REPLAYED_BYTES_MAX = (
    64 << 10
)  # of a program's output below a guarded command: a later attempt prints these again
CONNECTIONS_MAX = 64
LEFT_NAMED_MAX = 3
_KILLED = 128 + signal.SIGKILL
_CREDENTIALS = struct.Struct("3i")


class ScriptGone(BaseException):
    """A script died inside its call. No Exception: its effect stays as it was intended, and the next attempt looks."""


class AnswersAgent(Protocol):
    """Answers an agent's hooks, and says which programs may be run below it."""

    @property
    def replays(self) -> bool:
        """Whether it may answer with a program's end of an earlier attempt, so that the output of programs is recorded."""

    def hook(self, data: bytes, delivery: Delivery) -> tuple[bytes, int]: ...
    def shim(self, shim: Shim, perform: Callable[[], Output], delivery: Delivery) -> ShimAnswer: ...
    def look_at_answers(self) -> None:
        """Look which answers reached their callers, and take back those that did not."""

    def stopping(self) -> None: ...


def _relays_nothing(_: str) -> bytes:
    raise OutlastError("no command is run for you here")


class Server:
    """Serves the scripts of one attempt. Calls of another attempt, or of another user, are refused."""

    def __init__(
        self,
        path: Path,
        mark: str,
        scripts: ScriptCalls,
        agent: AnswersAgent | None = None,
        *,
        relay: Callable[[str], bytes] = _relays_nothing,
        timing: Timing | None = None,
    ) -> None:
        """`relay`: runs a command of outlast that was typed below us; its answer as JSON."""
        self.path = path
        self._timing = timing or Timing.current()
        self._relay = relay
        self._numbers = itertools.count(1)
        self._stop_ns = 0
        self._refusals = 0  # of shims, so far
        self._effects: dict[str, str] = {}  # of effects of scripts that are under way: the key, by the mark
        self._steps: dict[
            str, tuple[str, ...]
        ] = {}  # by the mark of a step's call: that step, and those it is below
        self._firsts: dict[reap.Identity, str] = {}  # by the process of a step's command: its mark
        # what could not be stopped, by kind and name of its call
        self._left: dict[tuple[str, str], list[proc.Proc]] = {}
        self._sweep()
        self._agent = agent
        self._mark, self._scripts, self._roster = mark, scripts, scripts.roster
        self.pipe = pipe.Pipe(pipe.path_of(path))
        self._listening = connection.listen(path)
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._open: set[socket.socket] = set()
        self._closed = False
        self.shell_notes: list[Note] = []  # how shells fared, to be taken away by whoever keeps the run
        threading.Thread(target=self._accept, name="outlast-socket", daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a call is being served."""
        return bool(self._open)

    @property
    def failure(self) -> OutlastError | None:
        """The error of a call after which the attempt cannot go on, if any."""
        return self._scripts.failure

    def stopping(self) -> None:
        """The attempt's processes are about to be stopped: calls that end from now on have no result."""
        self._stop_ns = self._stop_ns or time.monotonic_ns()
        if self._agent is not None:
            self._agent.stopping()

    def hear(self) -> None:
        """Record the notes of shells since the last call."""
        for note in self.pipe.notes():
            with contextlib.suppress(OutlastError):  # what cannot be recorded must not cost the rest
                self._note(note)

    def close(self) -> None:
        """Stop serving. Calls under way lose their connection, and their effects are in doubt."""
        self._closed = True
        self.hear()
        self.pipe.remove()
        self.path.unlink(missing_ok=True)
        for sock in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._sweep()

    def _sweep(self) -> None:
        """Remove the outputs that dead processes left beside the socket."""
        with contextlib.suppress(OSError):
            # The short place holds the sockets of many runs: a Path for each of them would cost more than the rest.
            for name in os.listdir(self.path.parent):
                if name.startswith((f"{self.path.name}.in-", f"{self.path.name}.out-")):
                    self.path.with_name(name).unlink(missing_ok=True)

    def _accept(self) -> None:
        """Until we are closed: one connection that cannot be taken does not cost the next ones."""
        while not self._closed:
            try:
                sock, _ = self._listening.accept()
            except OSError:  # no descriptors, or the caller was gone already
                time.sleep(self._timing.accept_retry_s)
                continue
            self._room.acquire()
            try:
                threading.Thread(target=self._serve, args=(sock,), name="outlast-call", daemon=True).start()
            except RuntimeError:  # no more threads: the caller is told by the end of its connection
                sock.close()
                self._room.release()
                time.sleep(self._timing.accept_retry_s)

    def _serve(self, sock: socket.socket) -> None:
        self._open.add(sock)
        try:
            with sock, contextlib.suppress(Gone, ScriptGone):
                there = Connection(sock)
                if _uid(sock) not in (os.getuid(), 0):
                    there.send(Verdict(allowed=False, reason="another user's process"))
                    return
                self._answer(there)
        finally:
            self._open.discard(sock)
            self._room.release()

    def _answer(self, there: Connection) -> None:
        try:
            message = there.receive(limit_s=self._timing.silent_s)
            if message.attempt != self._mark:
                raise OutlastError(
                    "this process belongs to an attempt that is over",
                    hint="it should have been stopped: end it",
                )
            delivery = Delivery(there, acknowledges=message.acks)
            match message:
                case Call():
                    self._end(there, self._answered(there, message, delivery), delivery)
                case Note():
                    there.send(Verdict(allowed=True, body=msgspec.Raw(self._note(message))))
                case ToolCall():
                    body = ToolCalls(self._scripts.beats, self._scripts).answer(
                        message, is_stopping=bool(self._stop_ns)
                    )
                    there.send(Verdict(allowed=True, body=msgspec.Raw(body)))
                case Hook() if self._agent is not None:
                    out, code = self._agent.hook(message.data, delivery)
                    there.answer(code, out)
                    self._await(delivery, self._agent)
                case Shim() if self._agent is not None:
                    there.send(self._shim(there, message, self._agent, delivery))
                    self._await(delivery, self._agent)
                case _:
                    there.send(Verdict(allowed=False, reason=f"cannot serve {type(message).__name__}"))
        except Gone:
            raise
        except WaitsForPerson as error:
            there.send(Order(do="wait", exit_code=error.exit_code, reason=str(error), hint=error.hint))
            there.receive()  # until it is stopped: the script must not go on as if this had been refused
        except OutlastError as error:
            code = error.exit_code if isinstance(error, NotAnswered) else REFUSED
            there.send(Order(do="refuse", exit_code=code, reason=str(error), hint=error.hint))
        except Exception as error:  # what is wrong here must not cost the script its answer
            there.send(Order(do="refuse", exit_code=REFUSED, reason=f"{type(error).__name__}: {error}"))

    @staticmethod
    def _await(delivery: Delivery, agent: AnswersAgent) -> None:
        delivery.wait()
        if delivery.look() == "lost":
            agent.look_at_answers()

    def _end(self, there: Connection, order: Order, delivery: Delivery) -> None:
        """Send the last order of a call. A file that goes with it stays until the other side has read it, or died."""
        try:
            there.send(order)
            delivery.wait()
            if order.output:
                with contextlib.suppress(Gone):
                    there.receive()
        finally:
            if order.output:
                Path(order.output).unlink(missing_ok=True)

    # -- calls ---------------------------------------------------------------------------------------------------

    def _answered(self, there: Connection, call: Call, delivery: Delivery) -> Order:
        try:
            return self._call(there, call, delivery)
        except NotThere:
            return Order(do="missing", exit_code=call.missing)
        except Halted as halted:
            return Order(
                do="refuse", exit_code=halted.output.exit_code or REFUSED,
                reason=f"effect {call.name!r} was stopped, and it is not known whether it happened",
                hint="start the script again: it is looked up first",
            )  # fmt: skip

    def _call(self, there: Connection, call: Call, delivery: Delivery) -> Order:
        if self._stop_ns:
            raise OutlastError("the attempt is being stopped", hint=connection.AGAIN)
        if call.names:
            self._scripts.stage(None, call.names)
        outputs: list[Output] = []

        def perform(key: str, occurrence: int) -> Output:
            outputs.append(self._order(there, Order(do="run", key=key, occurrence=occurrence), call))
            return outputs[-1]

        if call.kind == "step":
            output, replayed = self._scripts.step(
                call.name, perform, words=call.words, retry_failed=call.retry_failed, missing=call.missing,
                delivery=delivery,
            )  # fmt: skip
            return self._ended(output, replay=replayed)

        def probe(key: str) -> int:
            answer = self._order(there, Order(do="probe", key=key), call)
            if answer.stopped:
                raise Halted(answer)
            return answer.exit_code

        try:
            outcome = self._scripts.effect(
                call.name, call.words, perform, key=call.key, unknown=call.unknown,
                probe=probe if call.probe else None, missing=call.missing, delivery=delivery,
                approve=call.approve_within or call.approve,
            )  # fmt: skip
        except (EffectInDoubt, EffectFailed) as error:
            last = (
                outputs[-1] if outputs else Output(NOT_FOUND if isinstance(error, CannotStart) else REFUSED)
            )
            if last.missing:  # the script's side has said so
                return Order(do="done", exit_code=last.exit_code)
            code = last.exit_code if last.exit_code > 0 else REFUSED
            return Order(do="refuse", exit_code=code, reason=str(error), hint=error.hint)
        if outcome is None:  # given up: as it ended just now, else as if it had gone well
            outcome = Output(outputs[-1].exit_code if outputs else 0)
        return self._ended(outcome, replay=not outputs)

    def _ended(self, output: Output, *, replay: bool) -> Order:
        if not replay:
            return Order(do="done", exit_code=output.exit_code)
        return Order(do="replay", exit_code=output.exit_code, output=self._spooled(output))

    def _order(self, there: Connection, order: Order, call: Call | None = None) -> Output:
        """Give the script's side an order, and wait for its report.

        Raises ScriptGone if that side dies: then the command that it started is dead too.
        """
        self._refuse_left(call)
        mark, first, refusals = order.call or self._next_mark(), None, self._refusals
        if call is not None and call.kind == "effect":
            self._effects[mark] = order.key
            self._roster.name(mark, order.key)
        elif call is not None:
            around = self._steps.get(call.within, ())
            self._steps[mark] = (step_of(call.name, order.occurrence), *around)
        oom = cause_of_death.OomMark.take(os.getpid())
        above = proc.look(there.pid) if there.pid else None
        try:
            there.send(msgspec.structs.replace(order, call=mark))
            report = there.receive()
            if isinstance(report, Started):
                first = _child(report.pid, above)
                if first is not None:
                    self._firsts[first.identity] = mark
                    self._roster.enter(mark, first)
                there.send(Verdict(allowed=True))
                report = there.receive()
            left = self._left_by(there, mark) if mark in self._effects and order.do == "run" else ""
        except Gone as error:
            self._stop_orphans(mark, first, call)
            raise ScriptGone(str(error)) from error
        finally:
            self._effects.pop(mark, None)
        if not isinstance(report, Report):
            raise OutlastError(f"a report was due, not {type(report).__name__}")
        # A step that failed while a shim refused a program has no result of its own: it is done again.
        was_refused = (
            call is not None and call.kind == "step" and report.exit_code and self._refusals > refusals
        )
        return msgspec.structs.replace(
            _taken(report.output) if report.output else Output(report.exit_code, report.out, cut=report.cut),
            missing=report.missing,
            # A shell tells with an exit code that the kernel killed its child for memory: that is no result either.
            killed=report.killed
            or bool(was_refused)
            or (report.exit_code == _KILLED and oom.kills_since() > 0),
            stopped=report.stopped or self._is_too_late(report.ended_ns),
            unkept=report.unkept,
            left=left,
        )

    def _left_by(self, there: Connection, mark: str) -> str:
        """Wait, up to a limit, for processes that the ended command of an effect left running: they may still perform it.
        Returns the survivors, as text.

        Raises Gone if the script's side dies meanwhile.
        """
        until_s = time.monotonic() + self._timing.background_s
        while left := self._roster.alive_of(mark):
            wait_s = min(self._timing.background_tick_s, until_s - time.monotonic())
            if self._stop_ns or wait_s <= 0:
                return ", ".join(proc.describe(each.pid) for each in left[:LEFT_NAMED_MAX])
            if not there.is_there():
                raise Gone("it was killed while its command ran on")
            signals.wait_gone(left, wait_s)
        return ""

    def _next_mark(self) -> str:
        return f"{self._mark}.{next(self._numbers)}"

    def _is_too_late(self, ended_ns: int) -> bool:
        """Whether a command that ended then may have ended because it was being stopped."""
        return bool(self._stop_ns) and (not ended_ns or ended_ns >= self._stop_ns)

    def _stop_orphans(self, mark: str, first: proc.Proc | None, call: Call | None) -> None:
        """Stop the processes of a call whose script's side died. Until then, the call's name is not free."""
        if self._stop_ns or call is None:
            return  # everything is being stopped, and nothing is begun after that

        def found() -> list[proc.Proc]:
            return list(reap.search_call(mark, root=first))

        if reap.stop(found, grace_s=self._timing.orphan_grace_s).escaped:
            self._left[call.kind, call.name] = found()

    def _refuse_left(self, call: Call | None) -> None:
        """Nothing is begun or believed as long as an earlier self of the call may still be at work."""
        left = self._left.get((call.kind, call.name), []) if call is not None else []
        alive = [there for there in left if signals.is_running(there)]
        if alive and call is not None:
            raise OutlastError(
                f"an earlier call of {call.kind} {call.name!r} still runs and could not be stopped:"
                f" {proc.describe(alive[0].pid)}",
                hint="end it, then start the script again",
            )

    def _spooled(self, output: Output) -> str:
        """A recorded output in a file of its own, which the script's side reads."""
        path = self.path.with_name(f"{self.path.name}.out-{os.getpid()}-{next(self._numbers)}")
        with open(path, "wb", opener=durable.opener) as file:
            file.write(msgspec.msgpack.encode(output))
        return str(path)

    def _shim(self, there: Connection, shim: Shim, agent: AnswersAgent, delivery: Delivery) -> Order:
        """Judge a program that may reach outside; if it may run, the shim on the other side runs it."""

        is_effect = shim.call in self._effects  # then that is the record, and says what is done after a kill

        mark = self._next_mark()
        if is_effect:
            self._roster.name(mark, self._effects[shim.call])

        def perform() -> Output:
            keeps = REPLAYED_BYTES_MAX if agent.replays else 0
            output = self._order(there, Order(do="run", call=mark, keeps=keeps))
            if output.stopped:
                raise ScriptGone("it was stopped")
            return output

        above = tuple(each.identity for each in proc.lineage(there.pid)) if there.pid else ()
        steps = () if is_effect else self._steps_around(shim.call, above)
        call = shim.call if is_effect else ""
        shim = msgspec.structs.replace(shim, call=call, mark=mark, steps=steps, above=above)
        answer = agent.shim(shim, perform, delivery)
        if not answer.reason:
            return Order(do="done", exit_code=answer.exit_code)
        if answer.exit_code == 0:
            return Order(do="replay", reason=answer.reason, out=answer.out)
        self._refusals += 1
        return Order(do="refuse", exit_code=answer.exit_code, reason=answer.reason)

    def _steps_around(self, mark: str, above: tuple[reap.Identity, ...]) -> tuple[str, ...]:
        """The steps that a program is below: by its mark, or by its parent processes if its environment lost the mark."""
        if mark in self._steps:
            return self._steps[mark]
        marks = [self._firsts.get(each, "") for each in above]
        return next((self._steps[mark] for mark in marks if mark in self._steps), ())

    # -- notes ---------------------------------------------------------------------------------------------------

    def _note(self, note: Note) -> bytes:
        """Put a note on record; the answer to it, as JSON."""
        match note.kind:
            case "hello":
                welcome = Welcome(str(self.pipe.path), self._scripts.found_names, self._scripts.found_task)
                return msgspec.json.encode(welcome)
            case "stage":
                self._scripts.stage(note.text, note.names)
            case "ask":
                return msgspec.json.encode(self._scripts.ask(note.text, note.choices, note.within))
            case "remember":
                self._scripts.remember(note.name, note.text, note.names)
            case "command":
                return self._relay(note.text)
            case "spent":
                self._scripts.spent_inside(note.name, _usage(note.text))
            case "interrupted" | "went_on" | "killed" | "left":
                self.shell_notes.append(note)
                self._scripts.stage(None, note.names)
            case "names" | "text":
                self._scripts.stage(None, note.names)
        return b"null"


def _child(pid: int, above: proc.Proc | None) -> proc.Proc | None:
    """The process behind a pid that the script's side reported, if we see it as a child of that side.

    Raises Gone if the script's side was alive and is dead now: then its child is an orphan, and must not begin.
    """
    if above is None:
        return None
    found = proc.look(pid)
    if found is not None and found.ppid == above.pid:
        return found
    if not signals.is_running(above):
        raise Gone("it was killed before its command began")
    return None


def _usage(text: str) -> Usage:
    try:
        return decoders.decode(text, Usage)
    except msgspec.MsgspecError as error:
        raise OutlastError(f"a cost cannot be read: {error}") from error


def _taken(name: str) -> Output:
    """A command's output, from the file that the script's side left."""
    path = Path(name)
    try:
        return decoders.unpack(path.read_bytes(), Output)
    finally:
        path.unlink(missing_ok=True)


def _uid(sock: socket.socket) -> int:
    """The user behind a connection, as the kernel says."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])
