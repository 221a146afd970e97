"""The commands for scripts: step, effect, stage, remember, shell-init. They talk to a socket and import little."""

import argparse
import os
import shlex
import sys
from importlib import resources
from pathlib import Path
from typing import NoReturn

from outlast.cli.terminal import messages
from outlast.errors import UsageError
from outlast.supervisor.client import script
from outlast.supervisor.socket.wire import Call, Note

UNKNOWN = ("ask", "reissue", "give-up")
_NAMED = {"step": "step", "effect": "effect", "remember": "memory ref"}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    _add_step(commands)
    _add_effect(commands)
    _add_ask(commands)
    _add_notes(commands)
    _add_shell(commands)


def _add_step(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "step", help="in a script: run a command once; later replay its output",
        description="Run a command and record its output and exit code. Later attempts do not run the step again: they replay\n"
        "what was recorded, byte for byte. A step killed by a signal has no result and runs again.",
        epilog="example: outlast step build -- make -j4",
    )  # fmt: skip
    command.add_argument(
        "name", metavar="NAME", help="name of the step; a second call with the same name is another step"
    )
    command.add_argument(
        "--retry-failed", action="store_true", help="run it again if its recorded exit code is not 0"
    )
    command.add_argument(
        "--plain", action="store_true", help="treat an agent that outlast knows like any other command"
    )
    command.usage = "outlast step NAME [--retry-failed] [--plain] -- CMD …"
    command.set_defaults(handler=step, rest=())


def _add_effect(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "effect", help="in a script: act on the outside world once",
        description="Record the intent, run the command, record the outcome. Later attempts get the recorded outcome. An intent\n"
        "without an outcome is in doubt: outlast asks the probe; without an answer, --unknown decides.",
        epilog="example: outlast effect comment --probe './has-comment 7' -- gh issue comment 7 -b done\n"
        "probe:   exit code 0: it happened; 1: it did not; any other: it cannot tell\n         $OUTLAST_KEY is the key of the effect",
    )  # fmt: skip
    command.add_argument(
        "name", metavar="NAME", help="name of the effect; a second call with the same name is another effect"
    )
    command.add_argument("--key", metavar="K", help="your own key: calls with the same key are one effect")
    command.add_argument("--probe", metavar="CMD", help="shell command that finds out whether it happened")
    command.add_argument(
        "--unknown",
        choices=UNKNOWN,
        default="",
        help="what to do if its outcome stays unknown: ask a person (default), reissue, give-up",
    )
    command.add_argument(
        "--approve", action="store_true",
        help="a person approves it first (`outlast approve`); until then the run is parked and the script stopped",
    )  # fmt: skip
    command.add_argument(
        "--approve-within",
        metavar="AGE",
        help="the same, and how long that may take before it counts as rejected: 8h",
    )
    command.usage = (
        "outlast effect NAME [--approve] [--key K] [--probe CMD] [--unknown ask|reissue|give-up] -- CMD …"
    )
    command.set_defaults(handler=effect, rest=())


def _add_ask(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "ask", help="in a script or agent: ask a person, and print the answer",
        description="Ask a person. While nobody has answered, the run is parked: the script is stopped and costs nothing. After\n"
        "`outlast answer` it is started again, and this call prints the answer. Later attempts get the same answer.",
        epilog='example: outlast ask "which API?" --choice v1 --choice v2      (in a script: api=$(outlast ask …))\n'
        "exit codes: 0 answered, 1 rejected or not answered in time, 3 the run waits, 125 not asked: outlast refused",
    )  # fmt: skip
    command.add_argument("text", metavar="QUESTION", help="what a person reads")
    command.add_argument(
        "--choice",
        metavar="ANSWER",
        action="append",
        help="an answer that it takes; repeatable. None: any text",
    )
    command.add_argument(
        "--within", metavar="AGE", help="how long it waits for an answer, like 8h (default: for ever)"
    )
    command.set_defaults(handler=ask, sentence="text")


def _add_notes(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "stage",
        help="in a script: say how far the work is",
        description="Name the stage that the work has reached. `outlast show` and the page print it.",
        epilog="example: outlast stage reviewing",
    )
    command.add_argument("name", metavar="NAME", help="any short word")
    command.set_defaults(handler=stage)
    command = commands.add_parser(
        "remember",
        help="in a script: remember where something is",
        description="Remember where something is. outlast passes the place on to later attempts; it does not store the content.",
        epilog="example: outlast remember notes notes.md",
    )
    command.add_argument("name", metavar="NAME", help="what you call it")
    command.add_argument("path", metavar="PATH", help="a file or a URI")
    command.set_defaults(handler=remember)


def _add_shell(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "shell-init", help="print the shell code that makes a bash or zsh script killable",
        description="Print shell code. A script that evaluates it first is part of the run it was started in, or has a run of\n"
        "its own. Its steps are recorded and its files saved; start it again and it goes on.",
        epilog='example: outlast shell-init      (in a script: eval "$(outlast shell-init)")',
    )  # fmt: skip
    command.set_defaults(handler=shell_init)
    command = commands.add_parser("__attach")
    command.add_argument("--pid", type=int, required=True)
    command.add_argument("--script", required=True)
    command.set_defaults(handler=attach)
    command = commands.add_parser("__keep")
    command.add_argument("asked")
    command.set_defaults(handler=keep)


def step(arguments: argparse.Namespace) -> NoReturn:
    """`outlast step`"""
    call = Call(
        kind="step", name=_name(arguments), words=_words(arguments), retry_failed=arguments.retry_failed
    )
    # At once: a kill after the result was taken and before we have ended would cost our caller what it was told.
    os._exit(script.perform(call, plain=arguments.plain))


def effect(arguments: argparse.Namespace) -> NoReturn:
    """`outlast effect`"""
    messages.refuse_blank(arguments, "--key", "--probe", "--approve-within")
    call = Call(
        kind="effect", name=_name(arguments), words=_words(arguments), key=arguments.key or "",
        probe=arguments.probe or "",
        unknown=arguments.unknown,
        approve=arguments.approve, approve_within=arguments.approve_within or "",
    )  # fmt: skip
    os._exit(script.perform(call))


def ask(arguments: argparse.Namespace) -> None:
    """`outlast ask`"""
    from outlast import decoders

    messages.refuse_blank(arguments, "--choice", "--within")
    note = Note(
        kind="ask", text=arguments.text, choices=tuple(arguments.choice or ()), within=arguments.within or ""
    )
    messages.say(decoders.decode(script.ask(note), str))


def stage(arguments: argparse.Namespace) -> None:
    """`outlast stage`"""
    script.tell(Note(kind="stage", text=arguments.name, names=script.names()))


def remember(arguments: argparse.Namespace) -> None:
    """`outlast remember`"""
    given = arguments.path
    uri = given if "://" in given or given.startswith("file:") else f"file:{Path(os.path.abspath(given))}"
    script.tell(Note(kind="remember", name=_name(arguments), text=uri, names=script.names()))


def shell_init(arguments: argparse.Namespace) -> None:
    """`outlast shell-init`"""
    sys.stdout.write(resources.files("outlast.supervisor.script").joinpath("init.sh").read_text())


def attach(arguments: argparse.Namespace) -> None:
    """`outlast __attach`: print the assignments that a script evaluates to join its run."""
    from outlast.supervisor.script import attach as script_attach

    joined = script_attach.join(
        arguments.pid, arguments.script, store=arguments.store, project=arguments.project
    )
    for text in joined.words:
        messages.tell(f"outlast: {text}")
    welcome, lines = joined.welcome, []
    found = joined.variables | welcome.names | {"RECOVERED_TASK_ID": welcome.recovered}
    lines += [f"export {name}={shlex.quote(value)}" for name, value in found.items()]
    lines += [f'export {name}="${{{name}-}}"' for name in script.NAMES if name not in found]
    lines.append(f"__outlast_pipe={shlex.quote(welcome.pipe)}")
    lines.append(f"__outlast_package={shlex.quote(str(resources.files('outlast').joinpath('__init__.py')))}")
    sys.stdout.buffer.write(os.fsencode("\n".join(lines) + "\n"))


def keep(arguments: argparse.Namespace) -> None:
    """`outlast __keep`: the process that keeps the run of a script."""
    from outlast import decoders
    from outlast.supervisor.script import attach as script_attach, main

    main.keep(decoders.decode(arguments.asked, script_attach.KeeperRequest))


def _name(arguments: argparse.Namespace) -> str:
    name: str = arguments.name
    if not name.strip():
        raise UsageError(
            f"the name of a {_NAMED[arguments.command]} is empty",
            hint=f"give it a name; `outlast {arguments.command} --help` explains it",
        )
    return name


def _words(arguments: argparse.Namespace) -> tuple[str, ...]:
    if not arguments.rest:
        raise UsageError("no command to run", hint=f"`outlast {arguments.command} NAME -- CMD …`")
    return tuple(arguments.rest)
