"""The user's own command, which gets the notice as one JSON document on its standard input."""

import contextlib
import os
import signal
import subprocess

import msgspec

from outlast import settings
from outlast.notifications.message import Message
from outlast.notifications.post import Unsent
from outlast.notifications.timing import Timing


class Command:
    """A command for `/bin/sh`. It runs once for each notice, also if it fails: nobody knows what it did by then."""

    name = "command"

    def __init__(self, command: str) -> None:
        self._command = command

    def send(self, message: Message) -> str:
        """Run it, in a session of its own and without what would make it part of a run. Raises Unsent."""
        limit_s = Timing.current().command_s
        with open(os.memfd_create("outlast-notice", os.MFD_CLOEXEC), "wb+", buffering=0) as file:
            file.write(msgspec.json.encode(message.document) + b"\n")
            file.seek(0)
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", self._command], stdin=file, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    start_new_session=True, env=settings.environment(without="OUTLAST_"),
                )  # fmt: skip
            except OSError as error:
                raise Unsent(f"/bin/sh: {error.strerror}") from error
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise Unsent(f"the command did not end within {limit_s:g} s, and was killed") from None
        if code:
            raise Unsent(f"the command ended with {code}")
        return "ran"
