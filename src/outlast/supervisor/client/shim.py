"""The program that a shim runs: it asks the supervisor, runs the real program if allowed, and reports its end.

A shim imports it and calls `ENTRY` with SOCKET ATTEMPT CLASSES PROGRAM REAL ARGUMENTS…"""

import _socket
import _thread
import binascii
import json
import os
import re
import select
import signal
import stat
import subprocess
import sys
import time
import types
from collections.abc import Callable

REFUSED = 125
LIMIT_S = 5.0
FRAME_MAX_BYTES = 32 << 20  # as in `wire`, which is not imported here
TAKEN = b"\x06"  # as in `connection`, which is not imported here
# As in `environment`, which is not imported here.
ATTEMPT, CALL, PROGRAMS = b"OUTLAST_ATTEMPT", b"OUTLAST_CALL", b"OUTLAST_PROGRAMS"
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_BY_KERNEL = 0x80  # the origin of a signal from the terminal, which the program got as well
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_READ_ANYWAY = ("http", "https", "httpie")  # they take any standard input but a terminal for a body
SENT_MAX_BYTES = 1 << 20  # what is longer is not compared with what was sent before
_STREAMED = re.compile(r"--upload|-[A-WYZa-z0-9#]*T")  # curl begins to send such an input before it has ended


def main(place: str, attempt: str, classes: str, real: str, words: list[str]) -> int:
    """The exit code of the program, or 125 if it was not run.

    A call that does not reach outside becomes the real program at once, with or without a supervisor. Any other call is
    refused when the supervisor does not answer: what is not on record does not happen. `place` (the socket) and `attempt`
    are written in the shim, for a program may have cleaned its environment. `classes` is the file in which the user named
    more calls that reach outside, or empty.
    """
    try:
        variables, fed = _variables(), _is_fed(words[0])
        named = _named(variables, words[0])
        found = _outward(words, classes, named, fed)
        if found == []:
            return _become(real, words)
        sent = _input() if fed and _is_content(found, words, classes, named) else None
        who: dict[str, object] = {
            "attempt": _attempt(attempt, variables),
            "call": variables.get(CALL, b"").decode(errors="replace"),
        }
        return _ask(place, who | {"fed": fed, "sent": sent}, real, words, named)
    except Exception as error:  # what is not on record does not happen
        return _refuse(words, f"{type(error).__name__}: {error}")


def _variables() -> dict[bytes, bytes]:
    """The environment that we were started with."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = [each.partition(b"=") for each in file.read().split(b"\0")]
    except OSError:
        return {}
    return {name: value for name, equals, value in pairs if equals}


def _attempt(ours: str, variables: dict[bytes, bytes]) -> str:
    """Our attempt, unless the environment names another one of the same run: that is over, and refused."""
    mark = variables.get(ATTEMPT, b"").decode(errors="replace")
    return mark if mark.rpartition(".")[0] == ours.rpartition(".")[0] else ours


def _named(variables: dict[bytes, bytes], program: str) -> dict[str, str]:
    """The variables that name a target of a call. Without a HOME all programs but git look for their files where the system
    says that it is."""
    found = {name: variables.get(name.encode()) for name in _classifier().VARIABLES}
    named = {name: _text(os.fsdecode(value)) for name, value in found.items() if value is not None}
    return named if program == "git" or "HOME" in named else {**named, "HOME": _own_home()}


def _own_home() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"


def _package() -> str:
    """The folder of outlast: this file lies two folders below it."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def _classifier() -> types.ModuleType:
    """`outlast.agents.outward.classify`. Only this file's folder is trusted, never the working folder."""
    folder = os.path.join(_package(), "agents", "outward")
    if folder not in sys.path:
        sys.path.append(folder)
    from alone import load  # type: ignore[import-not-found]

    found: types.ModuleType = load()
    return found


def _is_fed(program: str) -> bool:
    """Whether something may come through the standard input."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    is_data = stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
    return is_data or (program in _READ_ANYWAY and not os.isatty(0))


def _outward(
    words: list[str], classes: str, named: dict[str, str], fed: bool, sent: str | None = None
) -> list[types.SimpleNamespace] | None:
    """The outward acts of the call; None if only the supervisor can say them."""
    try:
        outward = _classifier()
        known = outward.rules.load(outward.rules.tables(classes)) if classes else None
        return list(
            outward.classify_argv(
                list(map(_text, words)), _text(_cwd()), environment=named, known=known, fed=fed, sent=sent
            )
        )
    except Exception:
        return None


def _is_content(
    found: list[types.SimpleNamespace] | None, words: list[str], classes: str, named: dict[str, str]
) -> bool:
    """Whether the program sends its whole standard input: only then that input is part of the call's content."""

    def is_whole(calls: list[types.SimpleNamespace]) -> bool:
        return all(_classifier().content.is_whole(each.content) for each in calls)

    if not found or is_whole(found) or any(map(_STREAMED.match, words[1:])):
        return False
    return is_whole(_outward(words, classes, named, True, "x") or found)


def _input() -> str | None:
    """The standard input, kept so that the program can read it too; None if it is too long to compare."""
    read = b""
    while len(read) <= SENT_MAX_BYTES and (chunk := os.read(0, 1 << 16)):
        read += chunk
    if len(read) <= SENT_MAX_BYTES:
        again = os.memfd_create("input")
        _write_all(again, read)
        os.lseek(again, 0, os.SEEK_SET)
        os.dup2(again, 0)
        return read.decode(errors="backslashreplace")
    again, end = os.pipe()
    _thread.start_new_thread(_pour, (read, os.dup(0), end))
    os.dup2(again, 0)
    return None


def _pour(first: bytes, rest: int, end: int) -> None:
    """Everything that was read and everything that follows it, into a pipe."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # they are another thread's
    try:
        while first:
            _write_all(end, first)
            first = os.read(rest, 1 << 16)
    except OSError:  # nobody reads it any more
        pass
    os.close(end)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _become(real: str, words: list[str]) -> int:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(real, [real, *words[1:]])
    except OSError as error:
        return _cannot_start(real, error)


def _ask(place: str, who: dict[str, object], real: str, words: list[str], named: dict[str, str]) -> int:
    """Ask the supervisor and obey its order. The messages are `wire.Shim`, `Order` and `Report`, written here with the
    standard library alone: our package may be gone."""
    given = list(map(_text, words))
    request = {"type": "shim", "acks": True, **who, "words": given, "cwd": _text(_cwd()), "variables": named}
    try:
        there = _Connection(place)
        there.send(request | {"sent_ns": time.monotonic_ns()})
        tied = _tie()  # loaded while the supervisor judges
        order = there.receive()
        if order.get("type") != "order" or order.get("do") != "run":
            return there.leave(_not_run(words, order))
    except (OSError, ValueError) as error:
        return _refuse(words, f"it is not on record: {error}")
    keeps = order.get("keeps")
    begin = _Beginning(there, tied, _marked(str(who["attempt"]), str(order.get("call") or "")))
    code, printed = (
        _run_captured(real, words, begin, keeps)
        if isinstance(keeps, int) and keeps
        else (_run(real, words, begin), {})
    )
    try:
        there.send({"type": "report", "exit_code": code, **printed})
        there.receive()  # the outcome is durable before our caller goes on
    except (OSError, ValueError) as error:
        _say(f"outlast: what came of `{words[0]}` is not on record: {error}")
    return there.leave(code)


def _refuse_stranger(there: _socket.socket) -> None:
    """Raise if another user answers in the supervisor's place: as in `hook`, which is not imported here."""
    uid = int.from_bytes(there.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)[4:8], sys.byteorder)
    mine = os.getuid()
    if uid not in (mine, 0) and not (mine == 0 and _variables().get(b"SUDO_UID") == b"%d" % uid):
        there.close()
        raise OSError(f"another user (uid {uid}) answers in the supervisor's place")


class _Connection:
    """Sends and receives whole messages, as `wire.frame` makes them. Raises OSError if nobody answers, ValueError for garbage."""

    def __init__(self, path: str) -> None:
        self._sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._sock.settimeout(LIMIT_S)
        try:
            self._sock.connect(path)
        except OSError as error:
            raise OSError(f"no supervisor listens on {path}: {error.strerror or 'timed out'}") from error
        _refuse_stranger(self._sock)

    def send(self, message: dict[str, object]) -> None:
        body = json.dumps(message).encode()
        self._sock.sendall(len(body).to_bytes(4, "big") + body)

    def receive(self) -> dict[str, object]:
        size = int.from_bytes(self._bytes(4), "big")
        if size > FRAME_MAX_BYTES:
            raise ValueError(f"a frame of {size:,} bytes is too large")
        message = json.loads(self._bytes(size))
        if not isinstance(message, dict):
            raise ValueError("its answer makes no sense")
        return message

    def leave(self, code: int) -> int:
        """End at once, after the acknowledgement that the answer was taken. A shim that is killed before that has taken
        nothing."""
        try:
            self._sock.sendall(TAKEN)
        except OSError:  # the supervisor is gone
            pass
        os._exit(code)

    def _bytes(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            chunk = self._sock.recv(count - len(found))
            if not chunk:
                raise ConnectionError("the supervisor of this run is gone")
            found += chunk
        return found


def _tie() -> Callable[[int, int], int] | None:
    """The C library's function that lets a program die with us; None if Python cannot reach it."""
    try:
        import ctypes

        function = ctypes.CDLL(None).prctl
        function.argtypes = [ctypes.c_int, ctypes.c_ulong]
    except (ImportError, OSError, AttributeError):
        return None
    found: Callable[[int, int], int] = function
    return found


def _marked(attempt: str, program: str) -> dict[bytes, bytes] | None:
    """Our environment with the marks by which outlast finds the program and its child processes, even if a caller removed
    them. None if we cannot read our own environment."""
    mine = _variables()
    if not mine:
        return None
    mine.setdefault(ATTEMPT, attempt.encode())
    if program:
        mine[PROGRAMS] = b" ".join([*mine.get(PROGRAMS, b"").split(), program.encode()])
    return mine


class _Beginning:
    """Starts the program as our child: on record before it begins, killed when we are, and signalled when we are."""

    def __init__(
        self,
        there: "_Connection",
        tie: Callable[[int, int], int] | None,
        environment: dict[bytes, bytes] | None,
    ) -> None:
        self._there, self._tie, self._environment, self._me = there, tie, environment, os.getpid()
        # What is ignored stays ignored.
        self._passed = {each for each in _PASSED_ON if signal.getsignal(each) is not signal.SIG_IGN}

    def start(self, real: str, words: list[str], stdout: int | None) -> "subprocess.Popen[bytes]":
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._passed)
        process = subprocess.Popen(
            [words[0], *words[1:]], executable=real, stdout=stdout, env=self._environment, preexec_fn=self._as_child
        )  # fmt: skip
        _thread.start_new_thread(self._pass_on, (os.pidfd_open(process.pid),))
        return process

    def _as_child(self) -> None:
        for each in self._passed:
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        if self._tie is not None:
            self._tie(_DIES_WITH_PARENT, signal.SIGKILL)
        try:
            if os.getppid() == self._me:  # else it died before we were tied to it
                self._there.send({"type": "started", "pid": os.getpid()})
                if self._there.receive().get("allowed") is True:
                    return
        except (OSError, ValueError):
            pass
        os._exit(REFUSED)

    def _pass_on(self, program: int) -> None:
        """Pass signals that would end us on to the program; we end when it does. The terminal sends Ctrl-C to it as well."""
        while True:
            came = signal.sigwaitinfo(self._passed)
            if came.si_code == _BY_KERNEL:
                continue
            try:
                signal.pidfd_send_signal(program, came.si_signo)
            except OSError:  # it has ended
                return


def _run(real: str, words: list[str], begin: _Beginning) -> int:
    try:
        code = begin.start(real, words, None).wait()
    except OSError as error:
        return _cannot_start(real, error)
    return code if code >= 0 else 128 - code


def _run_captured(
    real: str, words: list[str], begin: _Beginning, keeps: int
) -> tuple[int, dict[str, object]]:
    """Run it as `_run` does, but pass its output on and keep the first `keeps` bytes: a later attempt can print these instead.

    A process that the program leaves running may hold the pipe open for ever, so wait for the program's own end.
    """
    try:
        process = begin.start(real, words, subprocess.PIPE)
    except OSError as error:
        return _cannot_start(real, error), {}
    assert process.stdout is not None, "its output goes to a pipe"
    captured, size, poll = bytearray(), 0, select.poll()
    try:
        pipe, ended = process.stdout.fileno(), os.pidfd_open(process.pid)
        for fd in (pipe, ended):
            poll.register(fd, select.POLLIN)
        while pipe in [fd for fd, _ in poll.poll()]:
            chunk = os.read(pipe, 1 << 16)
            if not chunk or not _pass_on(chunk):
                break
            captured += chunk[: keeps - len(captured)]
            size += len(chunk)
        process.stdout.close()  # if nobody reads its output, its next write fails, as without us
        code = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    out = binascii.b2a_base64(captured, newline=False).decode()
    return code if code >= 0 else 128 - code, {"out": out, "cut": size - len(captured)}


def _pass_on(data: bytes) -> bool:
    try:
        _write_all(1, data)
    except OSError:
        return False
    return True


def _not_run(words: list[str], order: dict[str, object]) -> int:
    """Print why the program was not run. `replay`: an earlier attempt ran it, so print the output that it had then."""
    reason = str(order.get("reason") or "its answer makes no sense")
    if order.get("type") != "order" or order.get("do") != "replay":
        return _refuse(words, reason)
    _say(f"outlast: `{words[0]}` was not run again: {reason}")
    _pass_on(binascii.a2b_base64(str(order.get("out", ""))))
    return 0


def _cannot_start(real: str, error: OSError) -> int:
    _say(f"outlast: {real}: {error.strerror}")
    return 126


def _refuse(words: list[str], reason: str) -> int:
    _say(f"outlast: `{words[0]}` was not run: {reason}")
    return REFUSED


def _say(text: str) -> None:
    os.write(2, f"{text}\n".encode(errors="replace"))


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"


def _text(word: str) -> str:
    return word.encode(errors="backslashreplace").decode()


def _entry(words: list[str]) -> int:
    place, attempt, classes, program, real, *others = words
    return main(place, attempt, classes, real, [program, *others])


if __name__ == "__main__":  # as shims of an earlier outlast run it
    sys.exit(_entry(sys.argv[1:]))

ENTRY = _entry  # the last line: a file that was cut off has none, and the shim refuses
