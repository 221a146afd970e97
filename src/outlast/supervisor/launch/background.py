"""`--detach`: the same command line in the background. It announces through a pipe that its command runs; if it dies before,
its output is quoted."""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from outlast import decoders, settings
from outlast.store import credentials, durable
from outlast.store.local import Local
from outlast.supervisor.launch import environment
from outlast.supervisor.timing import Timing

TELL = "OUTLAST_TELL_FD"


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a start in the background: the run, or the exit code and output of a start that was refused."""

    run: str = ""
    task: str = ""
    code: int | None = None
    output: str = ""


def start(words: Sequence[str], local: Local, cwd: Path, *, pass_fds: Sequence[int] = ()) -> Begun:
    """Start the command line, and wait until its command runs or it has ended. Its later messages go beside the run's logs."""
    log = local.detached_log()
    ours, theirs = os.pipe()
    try:
        command = ["env", f"{TELL}={theirs}", *ourselves(*words)]
        process = spawn(command, log, cwd=str(cwd), pass_fds=(theirs, *pass_fds))
    finally:
        os.close(theirs)
    with open(ours, "rb", buffering=0) as announcement:
        until_s = time.monotonic() + Timing.current().start_limit_s
        data = b""
        while select.select([announcement], [], [], max(0.0, until_s - time.monotonic()))[0]:
            chunk = announcement.read(1 << 12)
            data += chunk
            if not chunk or data.endswith(b"\n"):
                break
    if data.endswith(b"\n"):
        begun = decoders.decode(data, Begun)
        _keep(log, local.supervisor_log(begun.run))
        return begun
    code = process.wait()
    output = log.read_text(errors="replace")
    log.unlink(missing_ok=True)
    return Begun(code=code, output=output)


def _keep(log: Path, place: Path) -> None:
    """Move a log that is still being written into its run's folder. The log of an earlier start is put aside."""
    with contextlib.suppress(OSError):
        if place.exists():
            place.replace(earlier(place))
        log.replace(place)


class Announcement:
    """Tells the process that started us in the background that the command runs."""

    def __init__(self) -> None:
        given = settings.variable(TELL)
        self._fd = int(given) if given.isdigit() else -1

    def make(self, run: str, task: str) -> None:
        """Send the run and its task, once. Does nothing if nobody waits."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError), open(fd, "wb", buffering=0) as file:
                file.write(msgspec.json.encode(Begun(run=run, task=task)) + b"\n")


# -- a command of ours that nobody waits for: a session of its own, no terminal, its output in a log

LOG_BYTES_MAX = 256 << 10  # a larger log is put aside at the next start, in place of the one put aside before
APART = "OUTLAST_APART"  # set for a process that nobody watches: it passes no output on
_OF_AN_ATTEMPT = {
    environment.RUN, environment.TASK, environment.ATTEMPT, environment.SOCKET, environment.BUDGET_FILE,
    environment.CONTEXT_FILE,
}  # fmt: skip


def ourselves(*words: str) -> list[str]:
    """The command that runs outlast with this very interpreter, whatever the PATH."""
    return [sys.executable, "-P", "-m", "outlast", *words]


def spawn(
    words: Sequence[str], log: Path, *, cwd: str = "/", pass_fds: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    """Start a command that outlives us. Its output is added to `log`."""
    durable.make_folder(log.parent)
    room_in(log)
    with open(log, "ab", opener=durable.opener) as output, credentials.handed() as (variables, fds):
        return subprocess.Popen(
            list(words), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=cwd, env=_variables() | variables,
            start_new_session=True, pass_fds=(*pass_fds, *fds),
        )  # fmt: skip


def capture(
    words: Sequence[str], *, cwd: str, timeout_s: float, **more: str
) -> "subprocess.CompletedProcess[bytes]":
    """Run one of our commands to its end, with these variables more. Raises TimeoutExpired and OSError."""
    with credentials.handed() as (variables, fds):
        ours = {name: value for name, value in _variables().items() if name != APART}
        return subprocess.run(
            ourselves(*words), stdin=subprocess.DEVNULL, capture_output=True, cwd=cwd, env=ours | more | variables,
            timeout=timeout_s, pass_fds=fds, check=False,
        )  # fmt: skip


def room_in(log: Path) -> int:
    """Put a log aside that has grown large. Returns the length of the log then."""
    with contextlib.suppress(OSError):
        size = log.stat().st_size
        if size <= LOG_BYTES_MAX:
            return size
        log.replace(earlier(log))
    return 0


def earlier(log: Path) -> Path:
    """The place of a log that is put aside."""
    return log.with_name(f"{log.name}.1")


def is_apart() -> bool:
    """Whether this process was started by `spawn`, with nobody watching."""
    return bool(settings.variable(APART))


def _variables() -> dict[str, str]:
    """Our environment, without the variables that would make the command part of an attempt that this process is in."""
    ours = settings.environment(without=environment.ATTEMPT, **{APART: "1"})
    return {name: value for name, value in ours.items() if name not in _OF_AN_ATTEMPT}
