"""Commands that look at runs or ask something of them, typed below an agent whose store hosts share.

The supervisor runs them, because only it has the password of the store: what it prints goes back through the socket."""

import subprocess
from collections.abc import Sequence

import msgspec

from outlast import decoders
from outlast.errors import OutlastError
from outlast.supervisor.launch import background, environment
from outlast.supervisor.timing import Timing

COMMANDS = (
    "ls", "show", "log", "effects", "context", "state", "report", "saves", "diff", "budget", "settle", "pause", "cancel", "handoff",
)  # fmt: skip
PASSED_ON = (environment.RUN, environment.TASK, environment.STORE, "COLUMNS", "NO_COLOR")
_OUTPUT_MAX_BYTES = 8 << 20
_VALUED = ("--store", "--project")


class RelayedCommand(msgspec.Struct, frozen=True):
    """A command line, with the folder and the variables that it depends on."""

    words: tuple[str, ...]
    cwd: str
    variables: dict[str, str]


class RelayedOutput(msgspec.Struct, frozen=True):
    """The exit code of a command, and its output."""

    code: int
    out: bytes
    err: bytes


def carried_out(text: str) -> bytes:
    """Run a command for a process below us; the answer, as JSON. Raises OutlastError for any other command."""
    try:
        command = decoders.decode(text, RelayedCommand)
    except msgspec.MsgspecError as error:
        raise OutlastError(f"a command cannot be read: {error}") from error
    if command_of(command.words) not in COMMANDS:
        raise OutlastError(
            f"the supervisor does not run `outlast {command_of(command.words)}` for the command below it",
            hint=f"it runs {', '.join(COMMANDS)}",
        )
    timing = Timing.current()
    try:
        done = background.capture(
            command.words, cwd=command.cwd, timeout_s=timing.relayed_s,
            **{name: value for name, value in command.variables.items() if name in PASSED_ON},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise OutlastError(f"the command took longer than {timing.relayed_s:g} s and was stopped") from error
    except OSError as error:
        raise OutlastError(f"the command cannot be started: {error}") from error
    if len(done.stdout) + len(done.stderr) > _OUTPUT_MAX_BYTES:
        raise OutlastError(f"the command printed more than {_OUTPUT_MAX_BYTES >> 20} MiB")
    return msgspec.json.encode(RelayedOutput(done.returncode, done.stdout, done.stderr))


def command_of(words: Sequence[str]) -> str:
    """The first word that is not an option, or the value of one; empty if there is none."""
    rest = iter(words)
    for word in rest:
        if word in _VALUED:
            next(rest, "")
        elif not word.startswith("-"):
            return word
    return ""
