"""The line that an agent shows a person at its terminal: how far the run is, in a file that a few words of shell print."""

import contextlib
import os
import shlex
from pathlib import Path

from outlast.core.text import safe, short
from outlast.store import durable

NAME = "status-line"
CHARS_MAX = 200


class StatusFile:
    """One line, replaced in one step. Nobody waits for it, and without it nothing is shown."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._shown = ""

    def command(self, task: str) -> str:
        """The shell words that print the line, with programs of the shell alone: no process is started for them. They end with 0
        in any case; once this process is gone they say so."""
        gone = shlex.quote(
            short(f"outlast does not watch any more: outlast resume {shlex.quote(task)}", CHARS_MAX)
        )
        return (
            f"if [ -d /proc/{os.getpid()} ]; then read -r line <{shlex.quote(str(self._path))} && printf '%s\\n' \"$line\"; "
            f"else printf '%s\\n' {gone}; fi 2>/dev/null || :"
        )

    def show(self, text: str) -> None:
        """Show this from the next refresh on."""
        line = short(safe(text), CHARS_MAX)
        if line == self._shown:
            return
        with contextlib.suppress(OSError):
            new = self._path.with_name(f".{NAME}.{os.getpid()}")
            with open(new, "w", opener=durable.opener) as file:
                file.write(line + "\n")
            new.rename(self._path)
            self._shown = line
