"""The script's side of the socket: `outlast step`, `effect`, `stage`, `remember`. Imports little, for it runs often."""

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO

import msgspec

from outlast import settings
from outlast.errors import OutlastError
from outlast.supervisor import environment, wire
from outlast.supervisor.connection import Connection, Gone, connect
from outlast.supervisor.wire import Call, Note, Order, Output, Report

NAMES = ("CURRENT_TASK_ID", "ISSUE_NUMBER", "WORKSPACE_PATH", "BRANCH_NAME", "PROGRESS_STAGE")
OUTPUT_MAX_BYTES = 64 << 20
REFUSED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
KEY_VARIABLE = "OUTLAST_KEY"
IN_BACKGROUND = "OUTLAST_IN_BACKGROUND"  # set by the shell function, which starts us with `&`
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_CHUNK = 1 << 16


class Outside(OutlastError):
    """The command makes sense only inside a run."""

    exit_code = REFUSED


def names() -> dict[str, str]:
    """What the script calls its work just now; a name that it emptied is told as empty."""
    mine = settings.inherited()
    return {name: mine[name] for name in NAMES if name in mine}


def tell(note: Note, timeout_s: float | None = None) -> None:
    """Put something on record. Raises OutlastError where it was refused."""
    ask(note, timeout_s)


def ask(note: Note, timeout_s: float | None = None) -> bytes:
    """The same; the answer, as JSON."""
    there = _connected(timeout_s)
    there.send(msgspec.structs.replace(note, attempt=_attempt()))
    answer = there.receive()
    if isinstance(answer, Order):
        raise _refusal(answer)
    if not isinstance(answer, wire.Verdict):
        raise Gone("the supervisor gave an answer that cannot be understood")
    if not answer.allowed:
        raise Outside(answer.reason)
    return bytes(answer.body)


def perform(call: Call) -> int:
    """Run a step or an effect as the supervisor says; the exit code."""
    there = _connected(None)
    there.send(msgspec.structs.replace(call, attempt=_attempt(), names=names()))
    while True:
        order = there.receive()
        if not isinstance(order, Order):
            raise Gone("the supervisor gave an answer that cannot be understood")
        match order.do:
            case "run":
                there.send(_run(list(call.words), order.key))
            case "probe":
                there.send(_probe(call.probe, order.key))
            case "replay":
                return _replay(order)
            case "done":
                return _code(order.exit_code)
            case "refuse":
                raise _refusal(order)


def _connected(timeout_s: float | None) -> Connection:
    path = settings.variable(environment.SOCKET)
    if not path:
        raise Outside(
            "this is not inside a run",
            hint='start the script with `outlast run -- …`, or put `eval "$(outlast shell-init)"` into it',
        )
    return connect(path, timeout_s)


def _attempt() -> str:
    return settings.variable(environment.ATTEMPT)


def _refusal(order: Order) -> OutlastError:
    error = Outside(order.reason, hint=order.hint)
    error.exit_code = _code(order.exit_code) or REFUSED
    return error


def _code(exit_code: int) -> int:
    """The exit code of a command, as a shell reports it."""
    return 128 - exit_code if exit_code < 0 else exit_code


# -- what is ordered ---------------------------------------------------------------------------------------------


def _run(words: list[str], key: str) -> Report:
    """Run the command with its output passed on and kept."""
    variables = settings.inherited(**({KEY_VARIABLE: key} if key else {}))
    passing = _Passing(variables.pop(IN_BACKGROUND, ""))
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        _say(f"{words[0]}: {error.strerror}")
        return Report(exit_code=code, missing=error.strerror or "")
    assert process.stdout is not None, "it was asked for"
    assert process.stderr is not None, "it was asked for"
    passing.to(process.pid)
    out, err = _Copy(process.stdout, 1), _Copy(process.stderr, 2)
    code = process.wait()
    passing.to(0)
    kept = Output(_code(code), out.kept(), err.kept(), out.cut + err.cut)
    if not kept.out and not kept.err:
        return Report(exit_code=kept.exit_code)
    return Report(exit_code=kept.exit_code, output=_spooled(kept))


class _Passing:
    """Signals that would end us are passed on to the command instead, and we end when it does.

    A shell starts what runs in the background deaf for Ctrl-C; a signal that we handle is the command's own again.
    Ctrl-C itself reaches the command from the terminal, so that is not passed on. What was ignored stays ignored.
    """

    def __init__(self, in_background: str) -> None:
        self._pid = 0
        self._waits = 0
        deaf = (signal.SIGINT, signal.SIGQUIT) if in_background else ()
        for number in _PASSED_ON:
            if number in deaf or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._pass)

    def to(self, pid: int) -> None:
        """From now on to this process; one that came earlier goes to it too."""
        self._pid = pid
        if pid and self._waits:
            self._pass(self._waits, None)

    def _pass(self, number: int, _: object) -> None:
        self._waits = number
        if self._pid and number not in (signal.SIGINT, signal.SIGQUIT):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)


class _Copy:
    """Passes a stream on as it comes, and keeps it."""

    def __init__(self, stream: IO[bytes], to: int) -> None:
        self._stream, self._to = stream, to
        self._data = bytearray()
        self.cut = 0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def kept(self) -> bytes:
        """All of it, once the stream has ended."""
        self._thread.join()
        return bytes(self._data)

    def _work(self) -> None:
        while chunk := os.read(self._stream.fileno(), _CHUNK):
            room = OUTPUT_MAX_BYTES - len(self._data)
            self._data += chunk[:room]
            self.cut += max(0, len(chunk) - room)
            with contextlib.suppress(OSError):  # nobody reads it; it is recorded all the same
                _write(self._to, chunk)


def _probe(command: str, key: str) -> Report:
    variables = settings.inherited(**{KEY_VARIABLE: key})
    done = subprocess.run(["/bin/sh", "-c", command], env=variables, stdin=subprocess.DEVNULL, check=False)
    return Report(exit_code=_code(done.returncode))


def _spooled(output: Output) -> str:
    path = Path(settings.variable(environment.SOCKET)).with_name(f"in-{os.getpid()}")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        file.write(msgspec.msgpack.encode(output))
    return str(path)


def _replay(order: Order) -> int:
    path = Path(order.output)
    output = msgspec.msgpack.decode(path.read_bytes(), type=Output)
    path.unlink(missing_ok=True)
    _write(1, output.out)
    _write(2, output.err)
    if output.cut:
        _say(f"{output.cut:,} bytes of the output were too many to be recorded")
    return _code(order.exit_code)


def _say(text: str) -> None:
    _write(2, os.fsencode(f"outlast: {text}\n"))


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
