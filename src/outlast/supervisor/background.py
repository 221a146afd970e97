"""`--detach`: the same command line in the background. It says through a pipe that it runs, or dies and is quoted."""

import contextlib
import os
import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from outlast import settings
from outlast.supervisor import detaching, guarding

TELL = "OUTLAST_TELL_FD"
WAIT_S = 120.0


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a start in the background: the run, or the exit code and the words of one that was refused."""

    run: str = ""
    task: str = ""
    code: int | None = None
    said: str = ""


def start(words: Sequence[str], root: Path, cwd: Path) -> Begun:
    """Start it, and wait until its command runs or it has ended. What it says from then on is beside the run's logs."""
    log = root / "runs" / f"detached-{os.getpid()}-{time.time_ns()}.log"
    ours, theirs = os.pipe()
    try:
        command = ["env", f"{TELL}={theirs}", *detaching.ourselves(*words)]
        process = detaching.start(command, log, cwd=str(cwd), pass_fds=(theirs,))
    finally:
        os.close(theirs)
    with open(ours, "rb", buffering=0) as told:
        until_s = time.monotonic() + WAIT_S
        data = b""
        while select.select([told], [], [], max(0.0, until_s - time.monotonic()))[0]:
            chunk = told.read(1 << 12)
            data += chunk
            if not chunk or data.endswith(b"\n"):
                break
    if data.endswith(b"\n"):
        begun = msgspec.json.decode(data, type=Begun)
        _keep(log, guarding.folder_of(root, begun.run) / detaching.LOG)
        return begun
    code = process.wait()
    said = log.read_text(errors="replace")
    log.unlink(missing_ok=True)
    return Begun(code=code, said=said)


def _keep(log: Path, place: Path) -> None:
    """Move a file that is still written to its run; the words of an earlier start are put aside."""
    with contextlib.suppress(OSError):
        if place.exists():
            place.replace(detaching.earlier(place))
        log.replace(place)


def telling() -> Callable[[str, str], None]:
    """Says to the one who started us that the command runs: run and task. Does nothing where nobody waits, or twice."""
    given = settings.variable(TELL)
    fds = [int(given)] if given.isdigit() else []

    def tell(run: str, task: str) -> None:
        while fds:
            with contextlib.suppress(OSError), open(fds.pop(), "wb", buffering=0) as file:
                file.write(msgspec.json.encode(Begun(run=run, task=task)) + b"\n")

    return tell
