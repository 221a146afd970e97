"""`outlast`: finds the command, calls it, and turns what went wrong into two lines and an exit code.

Only the modules of commands that are named on the line are imported, so that a short answer stays short.
"""

import argparse
import importlib
import importlib.util
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from outlast import settings
from outlast._version import __version__
from outlast.cli.terminal import messages
from outlast.errors import OutlastError

EXIT_USAGE = 2
EXIT_NO_ROOM = 3
EXIT_UNEXPECTED = 70
_NO_THREAD = "can't start new thread"  # how Python says it, and in no other way
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141

# Which module brings which commands, in the order of `outlast --help`.
GROUPS: dict[str, tuple[str, ...]] = {
    "outlast.cli.commands.run": ("run",),
    "outlast.cli.commands.step": ("step", "effect", "stage", "remember", "shell-init", "__attach", "__keep"),
    "outlast.cli.commands.state": ("state",),
    "outlast.cli.commands.show": ("ls", "show", "log", "effects", "context"),
    "outlast.cli.commands.output": ("output",),
    "outlast.cli.commands.budget": ("budget",),
    "outlast.cli.commands.requests": ("settle", "pause", "resume", "cancel", "handoff"),
    "outlast.cli.commands.open": ("open",),
    "outlast.cli.commands.kill": ("kill",),
    "outlast.cli.commands.resume": ("report",),
    "outlast.cli.commands.ui": ("ui",),
    "outlast.cli.commands.top": ("top",),
    "outlast.cli.commands.service": ("service",),
    "outlast.cli.commands.saves": ("save", "saves", "diff", "restore", "bisect", "watch"),
    "outlast.cli.commands.transfer": ("fork", "export", "import"),
    "outlast.cli.commands.clean": ("clean",),
    "outlast.cli.commands.maintenance": ("gc", "config", "doctor"),
    "outlast.cli.commands.demo": ("demo",),
    "outlast.cli.commands.chaos": ("chaos",),
    "outlast.cli.commands.completion": ("completion", "__complete"),
}

# These look or stop: what an agent wrote into the repository's settings does not keep a person from them.
TOLERANT = (
    "ls", "show", "log", "effects", "context", "output", "state", "report", "saves", "diff", "doctor", "budget",
    "settle", "pause", "cancel", "kill", "handoff", "ui", "top", "__complete",
)  # fmt: skip

DESCRIPTION = """\
Runs of agents that can be killed and go on. RUN is a task (1411), a run id or a unique
beginning of one (kx3f), or PROJECT:TASK (app:1411)."""
EPILOG = """\
What is going on?            outlast ls
What happened to this one?   outlast show 1411
It is in doubt. Now what?    outlast effects 1411, look outside, then outlast settle 1411 41.1 --happened
Where are my files?          outlast saves, outlast diff SAVE, then outlast restore SAVE
Is the store all right?      outlast doctor

Exit codes: 0 fine, 1 failed, 2 usage or refused, 3 needs a person, 4 budget reached, 5 parked, 70 a bug of ours."""


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line and a hint."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"argument COMMAND: invalid choice: ('.*?') \(choose", message, re.DOTALL)
        if unknown:
            message = f"no such command: {unknown[1]}"
        self._refuse(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Each command refuses what it does not know itself; argparse would leave that to the topmost parser.

        A command with a `rest` takes all that comes after `--` as it is: another command line. One with a `spread` takes
        the words of that argument also after its options, which argparse does not.
        """
        rest: list[str] | None = None
        if args is not None and self.get_default("rest") is not None and "--" in args:
            at = list(args).index("--")
            args, rest = args[:at], list(args[at + 1 :])
        found, unknown = super().parse_known_args(args, namespace)
        if rest is not None:
            found.rest = rest
        if (spread := self.get_default("spread")) and not any(word.startswith("-") for word in unknown):
            setattr(found, spread, [*getattr(found, spread), *unknown])
            unknown = []
        if unknown:
            self._refuse(f"unrecognized arguments: {' '.join(unknown)}", self._nearest(unknown, rest))
        return found, unknown

    def _nearest(self, words: Sequence[str], rest: list[str] | None) -> str:
        import difflib

        if rest is None and self.get_default("rest") is not None and not words[0].startswith("-"):
            return f"put `--` before the command: {self.prog} … -- {' '.join(words)}; "

        for word in (word.partition("=")[0] for word in words if word.startswith("--")):
            for option in difflib.get_close_matches(word, self._option_string_actions, n=1):
                return f"did you mean {option}? "
        return ""

    def _refuse(self, message: str, advice: str = "") -> NoReturn:
        messages.complain(message, f"{advice}`{self.prog} --help` shows how")
        sys.exit(EXIT_USAGE)


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The whole parser; with `words`, only as much of it as a line of these words needs."""
    top = Parser(
        prog="outlast",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"outlast {__version__}")
    _add_everywhere(top, default=None)
    if words is not None and list(words) == ["--version"]:
        return top
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    for module in _modules(words):
        importlib.import_module(module).add(commands)
    for command in commands.choices.values():
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        _add_everywhere(command, default=argparse.SUPPRESS)
    return top


def _modules(words: Sequence[str] | None) -> list[str]:
    present = [module for module in GROUPS if importlib.util.find_spec(module) is not None]
    named = [module for module in present if words is not None and set(GROUPS[module]) & set(words)]
    return named or present


def _add_everywhere(command: argparse.ArgumentParser, default: str | None) -> None:
    """Options that may stand before or after the command."""
    taken = command._option_string_actions
    options = {
        "--store": ("PATH", "folder or URL of the store (see `outlast config`)"),
        "--project": ("PATH", "work in another project than that of this folder"),
    }
    for option, (metavar, text) in options.items():
        if option not in taken:
            command.add_argument(option, metavar=metavar, default=default, help=text)
    if "--debug" not in taken:
        off = False if default is None else default
        command.add_argument("--debug", action="store_true", default=off, help="show the trace of an error")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal that cannot show a sign gets its escape
    try:
        top = parser(words)
        arguments = top.parse_args(words)
        if getattr(arguments, "handler", None) is None:
            top.print_help(sys.stderr if words else None)
            return EXIT_USAGE if words else 0
        return _run(arguments)
    except KeyboardInterrupt:  # while a command was still imported
        messages.tell("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _pipe_closed()


def _run(arguments: argparse.Namespace) -> int:
    messages.repeat(store=arguments.store, project=arguments.project)
    settings.tolerate(_warn_of_setting if arguments.command in TOLERANT else None)
    try:
        _check_timing()
        code = int(arguments.handler(arguments) or 0)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except OutlastError as error:
        if arguments.debug:
            traceback.print_exc()  # here, for a supervisor's process ends without a further word
            return error.exit_code
        said = [str(error), error.hint]
        if arguments.command in messages.COMMANDS:
            said = [messages.typed(text, arguments.command) for text in said]
        messages.complain(*said)
        return error.exit_code
    except Exception as error:
        if arguments.debug:
            traceback.print_exc()
            return EXIT_UNEXPECTED
        if isinstance(error, FileNotFoundError) and not _is_somewhere():
            messages.complain("the folder you are in is gone", "`cd` to another one")
            return EXIT_USAGE
        if isinstance(error, MemoryError) or str(error) == _NO_THREAD:
            messages.complain(
                "the system gives no more memory or threads", "end some programs, or see `ulimit -a`"
            )
            return EXIT_NO_ROOM
        messages.complain(
            f"unexpected {type(error).__name__}: {error}",
            "this is a bug; the same command with --debug shows the trace",
        )
        return EXIT_UNEXPECTED


def _check_timing() -> None:
    """Refuse a wrong OUTLAST_TIMING before anything is done. Raises BadSetting."""
    for package in settings.TIMED if settings.timing_given() else ():
        importlib.import_module(f"outlast.{package}.timing").Timing.current()


def _warn_of_setting(error: OutlastError) -> None:
    messages.tell(f"warning: left out: {error}")


def _is_somewhere() -> bool:
    """Whether the current folder is still there."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _pipe_closed() -> int:
    """The reader went away, as in `outlast log 1411 | head`. Nothing of ours may complain at exit either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return EXIT_PIPE
