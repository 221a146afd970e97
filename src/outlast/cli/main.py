"""`outlast`: find the command, call it, and turn an error into two lines and an exit code.

Only modules of commands that the line names are imported, so that a quick command stays quick."""

import argparse
import errno
import importlib
import importlib.util
import io
import itertools
import os
import re
import shlex
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

from outlast import settings
from outlast._version import __version__
from outlast.cli import help as layout
from outlast.cli.terminal import messages
from outlast.core.text import did_you_mean
from outlast.errors import OutlastError

PROGRAM = "outlast"
EXIT_USAGE = 2
EXIT_NO_ROOM = 3
EXIT_UNEXPECTED = 70
_NO_THREAD = "can't start new thread"  # Python has only this text for it
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141

# Which module has which commands.
MODULES: dict[str, tuple[str, ...]] = {
    "outlast.cli.commands.run": ("run",),
    "outlast.cli.commands.step": (
        "step",
        "effect",
        "ask",
        "stage",
        "remember",
        "shell-init",
        "__attach",
        "__keep",
    ),
    "outlast.cli.commands.mcp": ("mcp",),
    "outlast.cli.commands.state": ("state",),
    "outlast.cli.commands.show": ("ls", "show", "log", "effects", "context"),
    "outlast.cli.commands.output": ("output",),
    "outlast.cli.commands.budget": ("budget",),
    "outlast.cli.commands.requests": ("settle", "pause", "resume", "cancel", "handoff"),
    "outlast.cli.commands.answers": ("approve", "reject", "answer"),
    "outlast.cli.commands.open": ("open",),
    "outlast.cli.commands.kill": ("kill",),
    "outlast.cli.commands.resume": ("report",),
    "outlast.cli.commands.ui": ("ui",),
    "outlast.cli.commands.top": ("top",),
    "outlast.cli.commands.service": ("service",),
    "outlast.cli.commands.saves": ("save", "saves", "diff", "restore", "bisect", "watch"),
    "outlast.cli.commands.result": ("apply", "undo"),
    "outlast.cli.commands.transfer": ("fork", "export", "import"),
    "outlast.cli.commands.clean": ("clean",),
    "outlast.cli.commands.forget": ("rm",),
    "outlast.cli.commands.store": ("store",),
    "outlast.cli.commands.maintenance": ("gc", "config", "doctor"),
    "outlast.cli.commands.demo": ("demo",),
    "outlast.cli.commands.chaos": ("chaos",),
    "outlast.cli.commands.notify": ("notify",),
    "outlast.cli.commands.completion": ("completion", "__complete"),
    "outlast.cli.commands.help": ("help",),
}

# Commands that look or stop: broken settings in the repository, which an agent can write, do not keep a person from them.
TOLERANT = (
    "ls", "show", "log", "effects", "context", "output", "state", "report", "saves", "diff", "doctor", "budget",
    "settle", "approve", "reject", "answer", "pause", "cancel", "kill", "handoff", "notify", "ui", "top", "__complete",
)  # fmt: skip

# What argparse says, and how we say it.
_IN_OUR_WORDS = (
    (re.compile(r"the following arguments are required: ([^,]+)"), r"\1 is missing"),
    (re.compile(r"the following arguments are required: (.+), ([^,]+)"), r"\1 and \2 are missing"),
    (
        re.compile(r"argument (\S+): invalid int value: '(.*)'", re.DOTALL),
        r"\1 must be a whole number, got \2",
    ),
    (re.compile(r"argument (\S+): expected one argument"), r"\1 needs a value"),
    (re.compile(r"argument (\S+): expected at least one argument"), r"\1 needs at least one value"),
    (re.compile(r"argument (\S+): not allowed with argument (\S+)"), r"\1 and \2 cannot be used together"),
    (re.compile(r"argument (\S+): ignored explicit argument '.*'", re.DOTALL), r"\1 takes no value"),
    (re.compile(r"one of the arguments (.+) is required"), r"one of these is missing: \1"),
    (re.compile(r"argument (\S+): (.+)", re.DOTALL), r"\1: \2"),
)


NUMBER_MAX = 2**53 - 1  # as far as JSON and SQLite agree


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong, and in a hint what to type instead. Options are not guessed from a prefix such as `--al`."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **{"allow_abbrev": False} | named)
        self.register("type", int, _whole_number)

    def error(self, message: str) -> NoReturn:
        """Refuse with argparse's complaint, in our words."""
        for pattern, words in _IN_OUR_WORDS:
            if (found := pattern.fullmatch(message)) is not None:
                message = found.expand(words)
        self._refuse(message)

    def format_help(self) -> str:
        return layout.overview(parser()) if self.prog == PROGRAM else super().format_help()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is not among the choices of an argument, and name the nearest."""
        if action.choices is None or value in action.choices:
            return
        if isinstance(action, argparse._SubParsersAction):
            # Of the commands only those that the line names are loaded, so the table is asked.
            names = [name for group in layout.GROUPS.values() for name in group]
            known = names if self.prog == PROGRAM else list(action.choices)
            advice = layout.nearest(value, known, f"`{self.prog} {{}}`")
            self._refuse(f"no such command: {value}", advice or f"`{self.prog} --help` lists the commands")
        choices = [str(choice) for choice in action.choices]
        self._refuse(
            f"{'/'.join(action.option_strings) or self.prog} takes {_either(choices)}, got {value}",
            layout.nearest(value, choices, "{}", f"`{self.prog} --help` explains it"),
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Each command refuses the arguments it does not know; argparse would leave that to the topmost parser.

        A command with a `rest` takes everything after `--` unchanged: another command line. A command with a `spread`
        takes the words of that argument also after its options, which argparse does not. Elsewhere `--` only says that
        no option follows. An argument that may be left out may stand behind the options, too (`answer RUN --id q1 v2`).
        """
        rest: list[str] | None = None
        args = self._after_separator(list(sys.argv[1:] if args is None else args))
        if self.get_default("rest") is not None and "--" in args:
            at = args.index("--")
            args, rest = args[:at], args[at + 1 :]
        # A mistyped option first: what is missing instead of it, argparse would say before that.
        if mistyped := self._mistyped(args, has_command=rest is not None):
            self._refuse_unknown(mistyped, has_rest=rest is not None)
        found, unknown = super().parse_known_args(args, namespace)
        if rest is not None:
            found.rest = rest
        unknown, plain = _sorted_out(unknown, args)
        if (spread := self.get_default("spread")) and not any(word.startswith("-") for word in unknown):
            setattr(found, spread, [*getattr(found, spread), *unknown, *plain])
            unknown = plain = []
        if not any(word.startswith("-") for word in unknown):
            unknown, plain = self._filled(found, unknown, plain)
        if not any(word.startswith("-") for word in unknown) and (left := [*unknown, *plain]):
            self._refuse_unquoted(found, args, left)
        if unknown:
            self._refuse_unknown(unknown, has_rest=rest is not None)
        if plain:
            self._refuse(f"unexpected argument: {' '.join(plain)}")
        return found, []

    def _refuse_unquoted(self, found: argparse.Namespace, args: Sequence[str], left: Sequence[str]) -> None:
        """Refuse the words of a text typed without quotes, with the line that has them. A command names its text as `sentence`."""
        dest = self.get_default("sentence")
        value = getattr(found, dest) if dest else None
        for at in reversed(range(len(args))):
            if value and args[at] in (value, f"--{dest}={value}"):
                words = list(itertools.takewhile(lambda word: not word.startswith("-"), args[at + 1 :]))
                if words and words[-len(left) :] == list(left):
                    line = [*args[:at], " ".join([args[at], *words]), *args[at + 1 + len(words) :]]
                    hint = f"put quotes around a text: `{self.prog} {shlex.join(line)}`"
                    self._refuse(f"unexpected argument: {' '.join(left)}", hint)

    def _filled(
        self, found: argparse.Namespace, words: list[str], plain: list[str]
    ) -> tuple[list[str], list[str]]:
        """Give words that argparse had no place for to the arguments that it took for left out. Returns those that are left."""
        words, plain = [*words], [*plain]
        for action in self._actions:
            is_free = action.nargs == argparse.OPTIONAL and not action.option_strings
            if (words or plain) and is_free and getattr(found, action.dest) == action.default:
                value = self._get_value(action, (words or plain).pop(0))
                self._check_value(action, value)
                setattr(found, action.dest, value)
        return words, plain

    def _after_separator(self, words: list[str]) -> list[str]:
        """Without a `--` before the name of a command below, where argparse takes it for the name."""
        waits = False  # for the value of an option
        for at, word in enumerate(words if self._below() else ()):
            if word == "--" and not waits:
                return words[:at] + words[at + 1 :]
            if not waits and not word.startswith("-"):
                break
            action = self._option_string_actions.get(word)
            waits = action is not None and action.nargs != 0
        return words

    def _mistyped(self, words: Sequence[str], *, has_command: bool) -> list[str]:
        """The first long option that outlast does not know, and the words after it.

        A command below has options of its own, and so has a command line that somebody wrote without `--` before it.
        """
        known = self._option_string_actions
        stops = bool(self._below()) or (self.get_default("rest") is not None and not has_command)
        waits = False  # for the value of an option
        for at, word in enumerate(words):
            name, given, _ = word.partition("=")
            if word == "--" or (stops and not waits and not word.startswith("-")):
                break
            if word.startswith("--") and name not in known and " " not in word:
                return list(words[at:])
            waits = name in known and not given and known[name].nargs != 0
        return []

    def _refuse_unknown(self, words: Sequence[str], *, has_rest: bool) -> NoReturn:
        """Words that the command has no place for."""
        if not has_rest and self.get_default("rest") is not None and not words[0].startswith("-"):
            self._refuse(
                f"unexpected argument: {words[0]}",
                f"put `--` before the command: {self.prog} … -- {' '.join(words)}; `{self.prog} --help` explains it",
            )
        options = [word.partition("=")[0] for word in words if word.startswith("-")]
        if not options:
            self._refuse(f"unexpected argument: {' '.join(words)}")
        known = self._option_string_actions
        hint = did_you_mean(options[0], known, f"`{self.prog} --help` lists the options")
        for name, command in self._below().items():
            if name in words and options[0] in command._option_string_actions:
                hint = f"put it after the command: `{self.prog} {name} {options[0]}`"
        self._refuse(f"no such option: {options[0]}", hint)

    def _below(self) -> dict[str, argparse.ArgumentParser]:
        """The commands below this one, by name."""
        actions = (each for each in self._actions if isinstance(each, argparse._SubParsersAction))
        return {name: command for each in actions for name, command in each.choices.items()}

    def _refuse(self, message: str, hint: str = "") -> NoReturn:
        messages.complain(message, hint or f"`{self.prog} --help` explains it")
        sys.exit(EXIT_USAGE)


def _sorted_out(unknown: Sequence[str], args: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that argparse has no place for: those before a `--`, and those after it, which are never options."""
    before = args[: args.index("--")] if "--" in args else args
    left, options, plain = Counter(before), list[str](), list[str]()
    for word in unknown:
        if left[word] > 0:
            left[word] -= 1
            options.append(word)
        else:
            plain.append(word)
    if "--" in plain:
        plain.remove("--")
    return options, plain


def _whole_number(text: str) -> int:
    """A number that every layer below can hold."""
    number = int(text)
    if abs(number) > NUMBER_MAX:
        raise argparse.ArgumentTypeError(f"must be at most {NUMBER_MAX:,}, got {text:.40}")
    return number


_whole_number.__name__ = "int"  # which argparse names, and `_IN_OUR_WORDS` expects


def _either(words: Sequence[str]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The whole parser; with `words`, only as much of it as a line of these words needs."""
    top = Parser(prog=PROGRAM, add_help=False)
    top.add_argument("-h", "--help", action="help", help="print this text")
    top.add_argument(
        "--version", action="version", version=f"outlast {__version__}", help="print the version"
    )
    _add_everywhere(top, default=None)
    if words is not None and list(words) == ["--version"]:
        return top
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    for module in _modules(words):
        importlib.import_module(module).add(commands)
    for command in commands.choices.values():
        command.formatter_class = layout.Layout
        command._option_string_actions["--help"].help = "print this text"
        _add_everywhere(command, default=argparse.SUPPRESS)
    return top


def _modules(words: Sequence[str] | None) -> list[str]:
    present = [module for module in MODULES if importlib.util.find_spec(module) is not None]
    named = [module for module in present if words is not None and set(MODULES[module]) & set(words)]
    return named or present


def _add_everywhere(command: argparse.ArgumentParser, default: str | None) -> None:
    """Options that may stand before or after the command."""
    taken = command._option_string_actions
    options = {
        "--store": ("PATH", "folder or URL of the store (default: see `outlast config`)"),
        "--project": ("PATH", "work in another project than that of this folder"),
    }
    for option, (metavar, text) in options.items():
        if option not in taken:
            command.add_argument(option, metavar=metavar, default=default, help=text)
    if "--debug" not in taken:
        off = False if default is None else default
        command.add_argument(
            "--debug", action="store_true", default=off, help="show the traceback of an error"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal that cannot show a character gets its escape
    try:
        top = parser(words)
        arguments = top.parse_args(words)
        if getattr(arguments, "handler", None) is None:
            top.print_help(sys.stderr if words else None)
            return EXIT_USAGE if words else 0
        return _run(arguments, words)
    except KeyboardInterrupt:  # while a command was still imported
        messages.tell("stopped by Ctrl-C")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _pipe_closed()


def _run(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    messages.repeat(store=arguments.store, project=arguments.project)
    settings.tolerate(_warn_of_setting if arguments.command in TOLERANT else None)
    try:
        _check_timing()
        code = _relayed(arguments, words)
        if code is None:
            code = int(arguments.handler(arguments) or 0)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except OutlastError as error:
        if arguments.debug:
            traceback.print_exc()  # now: the process of a supervisor ends right after this
            return error.exit_code
        lines = [str(error), error.hint]
        if arguments.command in messages.COMMANDS:
            lines = [messages.typed(text, arguments.command) for text in lines]
        messages.complain(*lines)
        return error.exit_code
    except Exception as error:
        if arguments.debug:
            traceback.print_exc()
            return EXIT_UNEXPECTED
        code, text, hint = _unexpected(error)
        messages.complain(text, hint)
        return code


def _relayed(arguments: argparse.Namespace, words: Sequence[str]) -> int | None:
    """The exit code of a command below an agent, if its supervisor ran it: there a shared store is the supervisor's alone."""
    if not settings.variable("OUTLAST_SOCKET") or "postgres" not in settings.variable("OUTLAST_STORE"):
        return None
    from outlast.supervisor.client.relay import relayed

    return relayed(words, arguments.store)


def _unexpected(error: Exception) -> tuple[int, str, str]:
    """Exit code, message and hint for an error that no code foresaw: what the system refuses us is no bug of ours."""
    if isinstance(error, FileNotFoundError) and not _is_somewhere():
        return EXIT_USAGE, "the folder you are in is gone", "`cd` to another one"
    if isinstance(error, MemoryError) or str(error) == _NO_THREAD:
        return (
            EXIT_NO_ROOM,
            "the system has no more memory or threads for us",
            "end some programs, or see `ulimit -a`",
        )
    if isinstance(error, OSError) and error.filename:
        path = shlex.quote(os.fsdecode(error.filename))
        match error.errno:
            case errno.EACCES | errno.EPERM | errno.EROFS:
                return (
                    EXIT_USAGE,
                    f"you may not use {path}: {error.strerror}",
                    f"see who may: `ls -ld {path}`",
                )
            case errno.ENAMETOOLONG:
                return EXIT_USAGE, f"the name is too long: {path:.80}", "give a shorter one"
            case errno.ENOSPC | errno.EDQUOT:
                return EXIT_NO_ROOM, f"no room for {path}: {error.strerror}", f"make room: `df -h {path}`"
            case _:
                pass
    hint = "this is a bug in outlast; the same command with --debug shows the traceback"
    return EXIT_UNEXPECTED, f"unexpected {type(error).__name__}: {error}", hint


def _check_timing() -> None:
    """Refuse a wrong OUTLAST_TIMING before anything is done. Raises BadSetting."""
    for package in settings.TIMED if settings.timing_given() else ():
        importlib.import_module(f"outlast.{package}.timing").Timing.current()


def _warn_of_setting(error: OutlastError) -> None:
    messages.tell(f"warning: setting ignored: {error}")


def _is_somewhere() -> bool:
    """Whether the current folder is still there."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _pipe_closed() -> int:
    """The reader has closed the pipe, as in `outlast log 1411 | head`. Python must not complain about it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return EXIT_PIPE
