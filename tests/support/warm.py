"""The command line without the start of Python: each call is a fork of a process that has imported all of outlast.

Imported it is `Warm`, which starts commands as `subprocess.Popen([python, "-m", "outlast", …])` does. Run as a program
it is the process that forks. A call is a real process with its own pid, streams, folder, variables and words, also for
those who look into /proc, and ends as any other would; only its modules are there before it starts. So `./dev test`
uses it, and `--all` and CI start every command anew.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import mmap
import os
import pkgutil
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

MESSAGE_MAX = 1 << 20
FDS = 4  # stdin, stdout, stderr, and the socket on which its pid and its end are told
PR_SET_MM, PR_SET_MM_MAP, PR_SET_MM_MAP_SIZE = 35, 14, 15


# -- who asks ----------------------------------------------------------------------------------------------------------


class Warm:
    """The other end: one process for all calls of a worker. Started at the first call, ended with the worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._asking: socket.socket | None = None

    def run(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """One command to its end, with nothing to read. Raises subprocess.TimeoutExpired, after it was killed."""
        nothing = subprocess.DEVNULL
        pipe = subprocess.PIPE
        with self.start(
            words, cwd=cwd, env=env, stdin=nothing, stdout=pipe, stderr=pipe, text=True
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            return subprocess.CompletedProcess(list(words), process.wait(), out, err)

    def start(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: Any = None, stdout: Any = None,
        stderr: Any = None, text: bool = False, start_new_session: bool = False,
    ) -> Forked:  # fmt: skip
        """Start a command. When this returns it has its words, variables, folder and session, as after an exec."""
        with contextlib.ExitStack() as given:
            ends: list[int | None] = [None, None, None]  # ours of the pipes
            theirs: list[int] = []
            for number, asked in enumerate((stdin, stdout, stderr)):
                if asked == subprocess.PIPE:
                    reading, writing = os.pipe()
                    ends[number], fd = (writing, reading) if number == 0 else (reading, writing)
                    given.callback(os.close, fd)
                elif asked == subprocess.DEVNULL:
                    fd = os.open(os.devnull, os.O_RDWR)
                    given.callback(os.close, fd)
                elif asked == subprocess.STDOUT:
                    fd = theirs[1]
                else:
                    fd = number if asked is None else asked if isinstance(asked, int) else asked.fileno()
                theirs.append(fd)
            told, telling = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            given.enter_context(telling)
            request = {"words": list(words), "cwd": str(cwd), "env": dict(env), "session": start_new_session}
            with self._lock:
                self._start()
                assert self._asking is not None, "it was just started"
                socket.send_fds(self._asking, [json.dumps(request).encode()], [*theirs, telling.fileno()])
        return Forked(list(words), told, ends, text=text)

    def _start(self) -> None:
        if self._process is None:
            self._asking, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", str(Path(__file__).resolve()), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd="/",
                )  # fmt: skip

    def close(self) -> None:
        if self._asking is not None and self._process is not None:
            self._asking.close()
            self._process.wait()
            self._process = self._asking = None


class Forked(subprocess.Popen[Any]):
    """A command that the warm process forked: its end is told on a socket, because it is not our child."""

    def __init__(self, args: list[str], told: socket.socket, ends: list[int | None], *, text: bool) -> None:
        self.args, self.returncode, self.text_mode = args, None, text
        self._told = told
        self._child_created, self._communication_started, self._input = True, False, None
        self._waitpid_lock, self._sigint_wait_secs = threading.Lock(), 0.25
        self.stdin, self.stdout, self.stderr = (
            None if fd is None else _stream(fd, mode, text)
            for fd, mode in zip(ends, ("wb", "rb", "rb"), strict=True)
        )
        self.pid, ended = self._hear()
        if ended is not None:  # before it was what it should become
            self._handle_exitstatus(ended)

    def _hear(self) -> tuple[int, int | None]:
        word, _, number = self._told.recv(64).decode().partition(" ")
        assert word, "the warm process is gone"
        return (int(number), None) if word == "pid" else (0, int(number))

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        ready, _, _ = select.select([self._told], [], [], 0 if wait_flags & os.WNOHANG else None)
        if not ready:
            return 0, 0
        _, status = self._hear()
        self._told.close()
        assert status is not None, "the pid is told once"
        return self.pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        with self._waitpid_lock:
            if self.returncode is None:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
        return self.returncode


def _stream(fd: int, mode: str, text: bool) -> Any:
    raw = open(fd, mode)  # noqa: SIM115  # its user closes it
    return io.TextIOWrapper(raw, write_through=mode == "wb") if text else raw


def fits(env: Mapping[str, str]) -> bool:
    """Whether nothing in these variables would make another Python of it: its settings are read when it starts."""
    special = {name for name in env if name.startswith(("PYTHON", "LC_", "LANG"))} - {
        "PYTHONDONTWRITEBYTECODE"
    }
    return all(env[name] == os.environ.get(name) for name in special)


def can_disguise() -> bool:
    """Whether the kernel lets a process choose what /proc tells of its command line and variables."""
    size = ctypes.c_uint()
    try:
        return bool(ctypes.CDLL(None).prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, ctypes.byref(size), 0, 0) == 0)
    except (OSError, AttributeError):
        return False


# -- who forks ---------------------------------------------------------------------------------------------------------


def _serve(asked: socket.socket) -> dict[str, Any]:
    """Fork for every request and tell of every end. Returns in the child, with what it shall run."""
    living: dict[int, tuple[int, socket.socket]] = {}  # by pidfd
    poll = select.poll()
    poll.register(asked, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in living:
                pid, telling = living.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                _tell(telling, "end", os.waitpid(pid, 0)[1])
                telling.close()
                continue
            data, fds = _receive(asked)
            if not data:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                asked.close()
                for pidfd, (_, telling) in living.items():
                    os.close(pidfd)
                    telling.close()
                return {"fds": fds[:3], "telling": fds[3], **json.loads(data)}
            for given in fds[:3]:
                os.close(given)
            telling = socket.socket(fileno=fds[3])
            watched = os.pidfd_open(pid)
            living[watched] = pid, telling
            poll.register(watched, select.POLLIN)


def _receive(asked: socket.socket) -> tuple[bytes, list[int]]:
    """One message and its descriptors, which no program that we start shall inherit."""
    room = socket.CMSG_LEN(FDS * array.array("i").itemsize)
    data, extra, _, _ = asked.recvmsg(MESSAGE_MAX, room, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for _, _, given in extra:
        fds.frombytes(given)
    return data, list(fds)


def _tell(telling: socket.socket, word: str, number: int) -> None:
    try:
        telling.send(f"{word} {number}".encode())
    except OSError:
        pass  # who asked has given up


def _become(request: dict[str, Any]) -> None:
    """Take on the streams, folder, variables, words and session of the command; then say that it is there."""
    if request["session"]:
        os.setsid()
    for target, fd in enumerate(request["fds"]):
        os.dup2(fd, target)
    for fd in request["fds"]:
        os.close(fd)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(fd, mode, closefd=False) for fd, mode in enumerate("rww"))
    sys.stderr.reconfigure(errors="backslashreplace", line_buffering=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    sys.argv = [
        str(Path(importlib.import_module("outlast").__file__ or "").parent / "__main__.py"),
        *request["words"],
    ]
    _disguise([sys.executable, "-P", "-m", "outlast", *request["words"]], request["env"])
    with socket.socket(fileno=request["telling"]) as telling:
        _tell(telling, "pid", os.getpid())


def _disguise(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Have /proc tell these words and variables of us, where the kernel allows it: others look for us by them."""
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    place = mmap.mmap(-1, len(words) + len(variables), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    place.write(words + variables)
    start = ctypes.addressof(ctypes.c_char.from_buffer(place))
    middle, end = start + len(words), start + len(words) + len(variables)
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    with open("/proc/self/stat") as file:
        told = ["", "", *file.read().rpartition(")")[2].split()]  # numbered as in proc(5), less one
    code, data, stack = told[25:27], told[44:47], told[27]
    kept = [*map(int, (*code, *data)), libc.sbrk(0), int(stack)]
    layout = struct.pack(
        "=12Q2I", *kept, start, middle, middle, end, 0, 0, 0xFFFFFFFF
    )  # the program stays as it is
    libc.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.c_char_p(layout), ctypes.c_ulong(len(layout)), 0)
    _disguises.append(place)


_disguises: list[mmap.mmap] = []  # as long as the process lives


def _main() -> NoReturn:
    import outlast

    for module in pkgutil.walk_packages(outlast.__path__, "outlast."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        request = _serve(asked)
    _become(request)
    _leave(_run())


def _run() -> int:
    """The command; its exit code, as the interpreter would have it."""
    from outlast.cli.start import main

    try:
        return main()
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        print(leaving.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1


def _leave(code: int) -> NoReturn:
    """What the interpreter does at its end, but for taking down each module: that takes longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120  # as Python says it
    os._exit(code)


if __name__ == "__main__":
    _main()
