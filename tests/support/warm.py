"""The command line without the start of Python: each call is a fork of a process that has imported all of outlast.

Imported it is `run`, which does what `subprocess.run([python, "-m", "outlast", …])` does. Run as a program it is the
process that forks. A call is a real process with its own pid, streams, folder and environment, and ends as any other
would; only its modules are there before it starts. So `./dev test` uses it, and `--all` and CI start every command anew.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

MESSAGE_MAX = 1 << 20
FDS = 4  # stdin, stdout, stderr, and the socket on which the end is told


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
        reading = [os.pipe(), os.pipe()]
        told, telling = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nothing = os.open(os.devnull, os.O_RDONLY)
        request = {"words": list(words), "cwd": str(cwd), "env": dict(env)}
        try:
            with self._lock:
                self._start()
                assert self._asking is not None, "it was just started"
                fds = [nothing, reading[0][1], reading[1][1], telling.fileno()]
                socket.send_fds(self._asking, [json.dumps(request).encode()], fds)
        finally:
            for fd in (nothing, reading[0][1], reading[1][1]):
                os.close(fd)
            telling.close()
        with told, open(reading[0][0], "rb") as out, open(reading[1][0], "rb") as err:
            pid = int(told.recv(64) or b"0")
            assert pid, "the warm process is gone"
            said = _read_both((out.fileno(), err.fileno()), pid, list(words), time.monotonic() + timeout)
            status = int(told.recv(64))
        texts = [text.decode().replace("\r\n", "\n") for text in said]
        return subprocess.CompletedProcess(list(words), os.waitstatus_to_exitcode(status), *texts)

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


def fits(env: Mapping[str, str]) -> bool:
    """Whether nothing in these variables would make another Python of it: its settings are read when it starts."""
    special = {name for name in env if name.startswith(("PYTHON", "LC_", "LANG"))} - {
        "PYTHONDONTWRITEBYTECODE"
    }
    return all(env[name] == os.environ.get(name) for name in special)


def _read_both(fds: tuple[int, int], pid: int, words: list[str], deadline: float) -> list[bytes]:
    """What is written to both until nobody can write there any more, as `communicate` does."""
    said: dict[int, list[bytes]] = {fd: [] for fd in fds}
    with selectors.DefaultSelector() as waiting:
        for fd in fds:
            waiting.register(fd, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(words, 0)
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                said[key.fd].append(data)
                if not data:
                    waiting.unregister(key.fd)
    return [b"".join(parts) for parts in said.values()]


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
                _tell(telling, os.waitpid(pid, 0)[1])
                telling.close()
                continue
            data, fds = _receive(asked)
            if not data:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                asked.close()
                os.close(fds[3])
                for pidfd, (_, telling) in living.items():
                    os.close(pidfd)
                    telling.close()
                return {"fds": fds[:3], **json.loads(data)}
            for given in fds[:3]:
                os.close(given)
            telling = socket.socket(fileno=fds[3])
            _tell(telling, pid)
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


def _tell(telling: socket.socket, number: int) -> None:
    try:
        telling.send(b"%d" % number)
    except OSError:
        pass  # who asked has given up


def _become(request: dict[str, Any]) -> None:
    """Take on the streams, folder, variables and words of the command."""
    for target, fd in enumerate(request["fds"]):
        os.dup2(fd, target)
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
