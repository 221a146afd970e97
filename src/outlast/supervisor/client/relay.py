"""A command typed below an agent whose store hosts share: the supervisor runs it, for it alone may open the store."""

import os
import sys
from collections.abc import Sequence

import msgspec

from outlast import decoders, settings
from outlast.errors import OutlastError
from outlast.store import administration
from outlast.supervisor.client import script
from outlast.supervisor.launch import environment
from outlast.supervisor.launch.relayed_commands import (
    COMMANDS,
    PASSED_ON,
    RelayedCommand,
    RelayedOutput,
    command_of,
)
from outlast.supervisor.socket.wire import Note
from outlast.supervisor.timing import Timing


def relayed(words: Sequence[str], store: str | None) -> int | None:
    """The exit code of a command that the supervisor ran; None for one that we run ourselves.

    `store`: the one that the command line names. Raises OutlastError if the supervisor is gone, or refuses.
    """
    mine = settings.variable(environment.STORE)
    if not settings.variable(environment.SOCKET) or command_of(words) not in COMMANDS:
        return None
    if store not in (None, mine) or not mine or administration.shared(mine) is None:
        return None
    given = {name: settings.variable(name) for name in PASSED_ON if settings.variable(name)}
    command = msgspec.json.encode(RelayedCommand(tuple(words), os.getcwd(), given)).decode()
    answer = script.ask(Note(kind="command", text=command), 2 * Timing.current().relayed_s)
    try:
        printed = decoders.decode(answer, RelayedOutput)
    except msgspec.MsgspecError as error:
        raise OutlastError(f"the supervisor's answer cannot be read: {error}") from error
    for stream, data in ((sys.stdout, printed.out), (sys.stderr, printed.err)):
        stream.flush()
        stream.buffer.write(data)
        stream.flush()
    return printed.code
