"""The supervisor's socket: a thread takes connections, each is served by one of its own until it is closed."""

import contextlib
import os
import socket
import struct
import threading
from pathlib import Path

import msgspec

from outlast.errors import EffectInDoubt, OutlastError
from outlast.supervisor import connection, telling
from outlast.supervisor.connection import Connection, Gone
from outlast.supervisor.steps import Desk
from outlast.supervisor.wire import Call, Note, Order, Output, Report, Verdict, Welcome

REFUSED = 125
CONNECTIONS_MAX = 64
_CREDENTIALS = struct.Struct("3i")


class ScriptGone(BaseException):
    """A script died inside its call. No Exception: its effect stays as it was intended, and the next attempt looks."""


class Server:
    """Serves the scripts of one attempt. Calls of another attempt, or of another user, are refused."""

    def __init__(self, path: Path, mark: str, desk: Desk) -> None:
        self.path = path
        self._mark, self._desk = mark, desk
        self.pipe = telling.Pipe(telling.path_of(path))
        self._listening = connection.listen(path)
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._open: set[socket.socket] = set()
        self._closed = False
        self.said: list[Note] = []  # how shells fared, to be taken away by whoever keeps the run
        threading.Thread(target=self._accept, name="outlast-socket", daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a call is being served."""
        return bool(self._open)

    def hear(self) -> None:
        """Put on record what shells told since the last look."""
        for note in self.pipe.notes():
            with contextlib.suppress(OutlastError):  # what cannot be recorded must not cost the rest
                self._note(note)

    def close(self) -> None:
        """Serve nobody any more. Calls under way lose their connection, and what they did is in doubt."""
        self._closed = True
        self.hear()
        self.pipe.close()
        self.path.unlink(missing_ok=True)
        for sock in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            self._room.acquire()
            threading.Thread(target=self._serve, args=(sock,), name="outlast-call", daemon=True).start()

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
            message = there.receive()
            if message.attempt != self._mark:
                raise OutlastError(
                    "this process belongs to an attempt that is over",
                    hint="it should have been stopped: end it",
                )
            match message:
                case Call():
                    there.send(self._call(there, message))
                case Note():
                    there.send(Verdict(allowed=True, body=msgspec.Raw(self._note(message))))
                case _:
                    there.send(Verdict(allowed=False, reason=f"cannot serve {type(message).__name__}"))
        except Gone:
            raise
        except OutlastError as error:
            there.send(Order(do="refuse", exit_code=REFUSED, reason=str(error), hint=error.hint))
        except Exception as error:  # what is wrong here must not cost the script its answer
            there.send(Order(do="refuse", exit_code=REFUSED, reason=f"{type(error).__name__}: {error}"))

    # -- calls ---------------------------------------------------------------------------------------------------

    def _call(self, there: Connection, call: Call) -> Order:
        if call.names:
            self._desk.stage(None, call.names)
        codes: list[int] = []

        def perform(key: str) -> Output:
            output = self._order(there, Order(do="run", key=key))
            codes.append(output.exit_code)
            return output

        if call.kind == "step":
            output, replayed = self._desk.step(call.name, perform, retry_failed=call.retry_failed)
            return self._ended(output, replay=replayed)

        def probe(key: str) -> int:
            return self._order(there, Order(do="probe", key=key)).exit_code

        try:
            output = self._desk.effect(
                call.name, call.words, perform, key=call.key, unknown=call.unknown,
                probe=probe if call.probe else None,
            )  # fmt: skip
        except EffectInDoubt as error:
            code = codes[-1] if codes and codes[-1] > 0 else REFUSED
            return Order(do="refuse", exit_code=code, reason=str(error), hint=error.hint)
        return self._ended(output, replay=not codes)

    def _ended(self, output: Output, *, replay: bool) -> Order:
        if not replay:
            return Order(do="done", exit_code=output.exit_code)
        return Order(do="replay", exit_code=output.exit_code, output=self._spooled(output))

    def _order(self, there: Connection, order: Order) -> Output:
        """Have the script's side do something, and wait for what comes of it. Raises ScriptGone if it dies."""
        try:
            there.send(order)
            report = there.receive()
        except Gone as error:
            raise ScriptGone(str(error)) from error
        if not isinstance(report, Report):
            raise OutlastError(f"a report was due, not {type(report).__name__}")
        if not report.output:
            return Output(report.exit_code)
        path = Path(report.output)
        try:
            return msgspec.msgpack.decode(path.read_bytes(), type=Output)
        finally:
            path.unlink(missing_ok=True)

    def _spooled(self, output: Output) -> str:
        """A recorded output in a file that the script's side reads and removes."""
        path = self.path.with_name(f"out-{threading.get_ident()}")
        with open(path, "wb", opener=_private) as file:
            file.write(msgspec.msgpack.encode(output))
        return str(path)

    # -- notes ---------------------------------------------------------------------------------------------------

    def _note(self, note: Note) -> bytes:
        """Put a note on record; the answer to it, as JSON."""
        match note.kind:
            case "hello":
                welcome = Welcome(str(self.pipe.path), self._desk.found_names, self._desk.found_task)
                return msgspec.json.encode(welcome)
            case "stage":
                self._desk.stage(note.text, note.names)
            case "remember":
                self._desk.remember(note.name, note.text)
            case "interrupted" | "went_on" | "killed" | "left":
                self.said.append(note)
                self._desk.stage(None, note.names)
            case "names" | "text":
                self._desk.stage(None, note.names)
        return b"null"


def _uid(sock: socket.socket) -> int:
    """The user behind a connection, as the kernel says."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
