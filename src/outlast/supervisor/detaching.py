"""Starting a command of ours that nobody waits for: a session of its own, no terminal, its words in a file.

What the agent prints is not passed on there: it is in the log of its attempt, masked and bounded.
"""

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from outlast import settings
from outlast.supervisor import environment, private

LOG = "supervisor.log"
LOG_BYTES_MAX = 256 << 10  # what is in it at the next start; one earlier file of words is kept beside it
APART = "OUTLAST_APART"  # set for what nobody watches: there is nobody to pass output on to
_OF_AN_ATTEMPT = {
    environment.RUN, environment.TASK, environment.ATTEMPT, environment.SOCKET, environment.BUDGET_FILE,
    environment.CONTEXT_FILE,
}  # fmt: skip


def ourselves(*words: str) -> list[str]:
    """The command that runs outlast with this very interpreter, whatever the PATH."""
    return [sys.executable, "-P", "-m", "outlast", *words]


def start(
    words: Sequence[str], log: Path, *, cwd: str = "/", pass_fds: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    """Start a command that outlives us. What it says is added to `log`."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    room_in(log)
    with open(log, "ab", opener=private.opener) as said:
        return subprocess.Popen(
            list(words), stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=cwd, env=_variables(),
            start_new_session=True, pass_fds=pass_fds,
        )  # fmt: skip


def room_in(log: Path) -> int:
    """Put a file of words aside that has grown large; how long it is then."""
    with contextlib.suppress(OSError):
        size = log.stat().st_size
        if size <= LOG_BYTES_MAX:
            return size
        log.replace(earlier(log))
    return 0


def earlier(log: Path) -> Path:
    """Where the words before go."""
    return log.with_name(f"{log.name}.1")


def is_apart() -> bool:
    """Whether this process was started so."""
    return bool(settings.variable(APART))


def _variables() -> dict[str, str]:
    """Ours, without what would make it part of an attempt that we are in ourselves."""
    ours = settings.environment(without=environment.ATTEMPT, **{APART: "1"})
    return {name: value for name, value in ours.items() if name not in _OF_AN_ATTEMPT}
