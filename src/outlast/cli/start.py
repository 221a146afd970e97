"""The entry point of the `outlast` command. It imports little, so that Ctrl-C ends it in one line from the start."""

import contextlib
import itertools
import os
import sys
from typing import TYPE_CHECKING

from outlast.store import credentials

if TYPE_CHECKING:
    from outlast.supervisor.guardian.link import Link

_EXIT_INTERRUPTED = 130
_EXIT_BROKEN = 125  # as `outlast step` that was not run
_EXIT_REFUSED = 2
# What starts, watches or stops processes as only Linux lets it, or serves the page beside them.
_LINUX_ONLY = (
    "run", "open", "kill", "service", "step", "effect", "stage", "remember", "shell-init", "mcp", "ui", "bisect", "chaos",
    "__attach", "__keep",
)  # fmt: skip
_ELSEWHERE = "the Python API and `outlast save`, `saves`, `diff`, `restore`, `watch`, `ls`, `show`, `top`, `demo` work here"


def main() -> int:
    """Run one command; its exit code."""
    _open_missing()
    credentials.begin()
    if sys.platform != "linux" and _command() in _LINUX_ONLY and not {"-h", "--help"} & set(sys.argv):
        message = f"error: `outlast {_command()}` needs Linux, and this is {sys.platform}\nhint: {_ELSEWHERE}; for the rest use Linux, a container or WSL2\n"
        os.write(2, message.encode())
        return _EXIT_REFUSED
    try:
        if _is_supervised():
            from outlast.errors import BadSetting
            from outlast.supervisor.guardian.guardian import guard

            with contextlib.suppress(BadSetting):  # which the command refuses in its own words
                return guard(_supervised)
        from outlast.cli.main import main as run

        return run()
    except ImportError as error:
        message = f"outlast: it cannot run: {error}. It is being removed or replaced: install it again, then type the same again\n"
        os.write(2, message.encode(errors="replace"))
        return _EXIT_BROKEN
    except KeyboardInterrupt:
        os.write(2, b"stopped by Ctrl-C\n")
        return _EXIT_INTERRUPTED


def _is_supervised() -> bool:
    """Whether this process will supervise a run itself; `resume --all` starts other processes for that.

    Only on Linux: elsewhere `resume` can still tell a paused program to go on.
    """
    if sys.platform != "linux":
        return False
    command = _command()
    if command == "resume":
        return "--all" not in itertools.takewhile("--".__ne__, sys.argv)
    return command in ("run", "open")


def _open_missing() -> None:
    """Open the standard streams that our parent closed: else the next file we open would take the place of one."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(fd, mode, closefd=False))


def _command() -> str:
    """The first word that is not an option. Options before it have their value in `--store=PATH` or in the next word."""
    words = iter(sys.argv[1:])
    for word in words:
        if word in ("--store", "--project"):
            next(words, "")
        elif not word.startswith("-"):
            return word
    return ""


def _supervised(link: "Link") -> int:
    """In the child of the guardian."""
    from outlast.cli.commands import run as command
    from outlast.cli.main import main as run

    command.link = link
    return run()
