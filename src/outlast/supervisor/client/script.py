"""The script's side of the socket: `outlast step`, `effect`, `stage`, `remember`. Imports little, for it runs often."""

import contextlib
import errno
import fcntl
import os
import select
import signal
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import IO

import msgspec

from outlast import decoders, settings
from outlast.core.text import safe
from outlast.errors import OutlastError
from outlast.processes.programs import ProgramMissing, find_program
from outlast.supervisor.launch import environment
from outlast.supervisor.socket import wire
from outlast.supervisor.socket.connection import AGAIN, Connection, Gone, connect
from outlast.supervisor.socket.wire import Call, Note, Order, Output, Report, Started

NAMES = ("CURRENT_TASK_ID", "ISSUE_NUMBER", "WORKSPACE_PATH", "BRANCH_NAME", "PROGRESS_STAGE")
OUTPUT_MAX_BYTES = 64 << 20
REFUSED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
KEY_VARIABLE = "OUTLAST_KEY"
IN_BACKGROUND = "OUTLAST_IN_BACKGROUND"  # set by the shell function, which starts us with `&`
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_CHUNK = 1 << 16


class NotInARun(OutlastError):
    """The command makes sense only inside a run."""

    exit_code = REFUSED


def names() -> dict[str, str]:
    """The script's present names for its work; a name that it emptied is sent as empty."""
    mine = settings.inherited()
    return {name: mine[name] for name in NAMES if name in mine}


def tell(note: Note, timeout_s: float | None = None) -> None:
    """Put a note on record. Raises OutlastError if the supervisor refuses it."""
    ask(note, timeout_s)


def ask(note: Note, timeout_s: float | None = None) -> bytes:
    """The same; the answer, as JSON."""
    there = _connected(timeout_s)
    there.send(msgspec.structs.replace(note, attempt=_attempt()))
    answer = there.receive()
    if isinstance(answer, Order):
        if answer.do == "wait":
            _wait_to_be_stopped(there, answer)
        raise _refusal(answer)
    if not isinstance(answer, wire.Verdict):
        raise Gone("the supervisor gave an answer that cannot be understood")
    if not answer.allowed:
        raise NotInARun(answer.reason)
    return bytes(answer.body)


def perform(call: Call, *, plain: bool = False) -> int:
    """Run a step or an effect as the supervisor orders, and return its exit code. `plain`: treat a known agent as any command.

    It last acknowledges the result, so the caller must exit with that code at once.
    """
    _have_streams()
    there = _connected(None)
    code = _performed(there, call, plain=plain)
    there.acknowledge()
    return code


def _performed(there: Connection, call: Call, *, plain: bool) -> int:
    missing = _missing(call.words[0])
    code = 0 if missing is None else missing.exit_code
    within = settings.variable(environment.CALL)
    there.send(
        msgspec.structs.replace(
            call, attempt=_attempt(), acks=True, names=names(), missing=code, within=within
        )
    )
    while True:
        order = there.receive()
        if isinstance(order, wire.Verdict):  # for a command that was killed before it could read it
            continue
        if not isinstance(order, Order):
            raise Gone("the supervisor gave an answer that cannot be understood")
        match order.do:
            case "run":
                there.send(
                    _run_step(there, call, order) if not plain else _run(there, list(call.words), order)
                )
            case "probe":
                there.send(_probe(call.probe, order))
            case "replay":
                return _replay(order)
            case "done":
                return _code(order.exit_code)
            case "wait":
                _wait_to_be_stopped(there, order)
                raise _refusal(order)
            case "refuse":
                raise _refusal(order)
            case "missing":
                raise missing or _refusal(order)


def _missing(word: str) -> OutlastError | None:
    """The message for a missing program, with a shell's exit code; None if the program exists."""
    try:
        find_program(word, settings.variable("PATH") or os.defpath, "")
    except ProgramMissing as error:
        error.exit_code = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
        return error
    return None


def _connected(timeout_s: float | None) -> Connection:
    path = settings.variable(environment.SOCKET)
    if not path:
        raise NotInARun(
            "this is not inside a run",
            hint='start the script with `outlast run -- …`, or put `eval "$(outlast shell-init)"` into it',
        )
    return connect(path, timeout_s)


def _attempt() -> str:
    return settings.variable(environment.ATTEMPT)


def _refusal(order: Order) -> OutlastError:
    error = NotInARun(order.reason, hint=order.hint)
    error.exit_code = _code(order.exit_code) or REFUSED
    return error


def _wait_to_be_stopped(there: Connection, order: Order) -> None:
    """Stay until the supervisor has stopped the script: what stands behind this call must not run before a person has answered.

    A signal to stop is ours only when our caller is gone. Returns when the supervisor is.
    """
    _say(f"{order.reason}; {order.hint}. The script is stopped here, and started again then")
    from outlast.supervisor.timing import Timing

    above, tick_s = os.getppid(), Timing.current().person_tick_s
    for number in _PASSED_ON:
        signal.signal(number, lambda *_: None)
    poll = select.poll()
    poll.register(there.fileno(), select.POLLIN)
    while os.getppid() == above and not poll.poll(tick_s * 1000):
        pass


def _code(exit_code: int) -> int:
    """The exit code of a command, as a shell reports it."""
    return 128 - exit_code if exit_code < 0 else exit_code


# -- what is ordered ---------------------------------------------------------------------------------------------


def _variables(order: Order) -> dict[str, str]:
    key = {KEY_VARIABLE: order.key} if order.key else {}
    return settings.inherited(**key, **{environment.CALL: order.call})


def _run_step(there: Connection, call: Call, order: Order) -> Report:
    """Run a command. A known agent gets a run of its own inside the script's run: after a kill it goes on in its session.

    Such a run has a result when it is done or has failed; parked, stopped or waiting for a person, it has none yet.
    """
    words = list(call.words)
    inside = _supervised(words, call, order) if call.kind == "step" and order.occurrence else []
    report = _run(there, inside or words, order)
    if inside and report.exit_code not in (0, 1):
        return msgspec.structs.replace(report, stopped=True)
    return report


def _supervised(words: list[str], call: Call, order: Order) -> list[str]:
    """The command that runs a headless agent inside of the script's run; empty for any other command."""
    from outlast.agents import registry

    agent = registry.recognise(words, find_program(words[0], settings.variable("PATH") or os.defpath, ""))
    if agent is None or not agent.cli.read(words).headless:
        return []
    from outlast.supervisor.launch import background

    which = f" ({order.occurrence})" if order.occurrence > 1 else ""
    task = f"{settings.variable(environment.TASK)}: {call.name}{which}"
    return background.ourselves("run", "--as-step", "--headless", "--task", task, "--", *words)


def _run(there: Connection, words: list[str], order: Order) -> Report:
    """Run the command with its output passed on and kept."""
    variables = _variables(order)
    passing = _Passing(variables.pop(IN_BACKGROUND, ""))
    # Blocked, so that one which comes meanwhile is neither lost in the child, which has our handlers yet, nor here.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    try:
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables,
            preexec_fn=partial(_announce, there, mask),
        )  # fmt: skip
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        why = f"{words[0] or repr(words[0])}: {error.strerror}"
        _say(why)
        return Report(exit_code=code, missing=why)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert process.stdout is not None, "it was asked for"
    assert process.stderr is not None, "it was asked for"
    passing.to(process.pid)
    out, err = _Copy(process.stdout, 1), _Copy(process.stderr, 2)
    code = process.wait()
    report = Report(
        exit_code=_code(code), killed=code < 0, stopped=passing.wanted, ended_ns=time.monotonic_ns()
    )
    passing.to(0)
    out.end()
    err.end()
    output = Output(_code(code), out.content(), err.content(), out.cut + err.cut)
    if out.left_open or err.left_open:
        _say(f"{words[0]} ended, and what it left running holds its output open: that is recorded no further")
    if not output.out and not output.err:
        return report
    try:
        return msgspec.structs.replace(report, output=_spooled(output))
    except OSError as error:
        return msgspec.structs.replace(report, unkept=error.strerror or str(error))


def _announce(there: Connection, mask: set[signal.Signals | int]) -> None:
    """Report ourselves to the supervisor before exec, so that it can always stop us.

    If the parent reported us, its death could come between, and nobody would stop a command that removed its mark.
    """
    for number in _PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        there.send(Started(pid=os.getpid()))
        answer = there.receive()
    except OutlastError:
        os._exit(REFUSED)
    if not isinstance(answer, wire.Verdict) or not answer.allowed:
        os._exit(REFUSED)


class _Passing:
    """Passes signals that would end us on to the command; we end when it does.

    A shell starts background commands with Ctrl-C ignored; the command gets back every signal that we handle.
    The terminal sends Ctrl-C to the command too, so that is not passed on. Ignored signals stay ignored.
    """

    def __init__(self, in_background: str) -> None:
        self._pid = 0
        self._waits = 0
        deaf = (signal.SIGINT, signal.SIGQUIT) if in_background else ()
        for number in _PASSED_ON:
            if number in deaf or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._pass)

    @property
    def wanted(self) -> bool:
        """Whether a signal has come."""
        return self._waits != 0

    def to(self, pid: int) -> None:
        """Pass signals on to this process from now on, and one that came earlier too."""
        self._pid = pid
        if pid and self._waits:
            self._pass(self._waits, None)

    def _pass(self, number: int, _: object) -> None:
        self._waits = number
        if self._pid and number not in (signal.SIGINT, signal.SIGQUIT):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)


class _Copy:
    """Passes a stream on as it comes, and keeps a copy: to its end, or until the command has ended and no more is due.

    The command's own output may still lie in the pipe when it ends, so a pipe's size is read after that in any case.
    """

    def __init__(self, stream: IO[bytes], to: int) -> None:
        self._stream, self._to = stream, to
        self._data = bytearray()
        self.cut = 0
        self.left_open = False
        self._over = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The command has ended. Other processes may hold the stream open for ever: do not wait for them."""
        os.eventfd_write(self._over, 1)

    def content(self) -> bytes:
        """All that was read, once the stream has ended or is given up."""
        self._thread.join()
        return bytes(self._data)

    def _work(self) -> None:
        from outlast.supervisor.timing import Timing  # while the command runs: its start does not wait for it

        left_open_s = Timing.current().left_open_s
        poll = select.poll()
        poll.register(self._stream.fileno(), select.POLLIN)
        poll.register(self._over, select.POLLIN)
        due = wait_s = float("inf")
        while due > 0:
            began_s = time.monotonic()
            ready = dict(poll.poll(None if wait_s == float("inf") else max(0.0, wait_s) * 1000))
            wait_s -= time.monotonic() - began_s
            if self._over in ready:
                poll.unregister(self._over)
                due, wait_s = fcntl.fcntl(self._stream.fileno(), fcntl.F_GETPIPE_SZ) + 1, left_open_s
            elif not ready:
                break
            else:
                chunk = os.read(self._stream.fileno(), _CHUNK)
                if not chunk:
                    return
                due -= len(chunk)
                self._take(chunk)
        self.left_open = True

    def _take(self, chunk: bytes) -> None:
        room = OUTPUT_MAX_BYTES - len(self._data)
        self._data += chunk[:room]
        self.cut += max(0, len(chunk) - room)
        _pass_on(self._to, chunk)


def _probe(command: str, order: Order) -> Report:
    done = subprocess.run(
        ["/bin/sh", "-c", command], env=_variables(order), stdin=subprocess.DEVNULL, check=False
    )
    return Report(exit_code=_code(done.returncode), ended_ns=time.monotonic_ns())


def _spooled(output: Output) -> str:
    """Write an output to a file of its own beside the socket. Raises OSError if there is no room."""
    socket = Path(settings.variable(environment.SOCKET))
    path = socket.with_name(f"{socket.name}.in-{os.getpid()}-{os.urandom(4).hex()}")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(msgspec.msgpack.encode(output))
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return str(path)


def _replay(order: Order) -> int:
    """Print the record and exit as the command did, whether or not anybody reads it."""
    try:
        output = decoders.unpack(Path(order.output).read_bytes(), Output)
    except FileNotFoundError as error:
        raise Gone("the supervisor of this run is gone", hint=AGAIN) from error
    _pass_on(1, output.out)
    _pass_on(2, output.err)
    if output.cut:
        _say(f"{output.cut:,} bytes of the output were too many to be recorded")
    return _code(order.exit_code)


def _say(text: str) -> None:
    _pass_on(2, os.fsencode(f"outlast: {safe(text)}\n"))


def _pass_on(fd: int, data: bytes) -> None:
    """Write all of it if it can be written; the record has it anyway."""
    view = memoryview(data)
    with contextlib.suppress(OSError):
        while view:
            view = view[os.write(fd, view) :]


def _have_streams() -> None:
    """Open the standard streams that the script closed: else the next file, perhaps the socket, would be standard output."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
