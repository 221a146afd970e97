"""What scripts call: step, effect, stage, remember, and the way into a run. They talk to a socket and import little."""

import argparse
import os
import shlex
import sys
from importlib import resources
from pathlib import Path

from outlast.cli.terminal import messages
from outlast.errors import UsageError
from outlast.supervisor.client import script
from outlast.supervisor.socket.wire import Call, Note

UNKNOWN = ("ask", "reissue", "give-up")
_NAMED = {"step": "step", "effect": "effect", "remember": "memory ref"}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    command = commands.add_parser(
        "step", help="inside a run: run a command once and record its output",
        description="Run a command and record its output and exit code. In every later attempt the same step is not run\n"
        "but replayed, to the byte. One that was killed by a signal has no result and runs again.",
        epilog="example: outlast step build -- make -j4",
    )  # fmt: skip
    command.add_argument("name", metavar="NAME", help="its name; the second call of a name is another step")
    command.add_argument(
        "--retry-failed", action="store_true", help="run it again if it was recorded with another code than 0"
    )
    command.usage = "outlast step NAME [--retry-failed] -- CMD …"
    command.set_defaults(handler=step, rest=())
    command = commands.add_parser(
        "effect", help="inside a run: do something to the outside world once",
        description="Record the intent, run the command, record the outcome. A later attempt gets the recorded outcome.\n"
        "An intent without an outcome is in doubt: the probe is asked, else --unknown says what then.",
        epilog="example: outlast effect comment --probe './has-comment 7' -- gh issue comment 7 -b done\n"
        "the probe's exit code: 0 it happened, 1 it did not, else it cannot tell. $OUTLAST_KEY is the effect's own key.",
    )  # fmt: skip
    command.add_argument("name", metavar="NAME", help="its name; the second call of a name is another effect")
    command.add_argument("--key", metavar="K", help="your own key: the same key is the same effect")
    command.add_argument("--probe", metavar="CMD", help="shell command that finds out whether it happened")
    command.add_argument(
        "--unknown", choices=UNKNOWN, default="", help="when nobody can tell: ask (default), reissue, give-up"
    )
    command.usage = "outlast effect NAME [--key K] [--probe CMD] [--unknown ask|reissue|give-up] -- CMD …"
    command.set_defaults(handler=effect, rest=())
    command = commands.add_parser(
        "stage", help="inside a run: say how far the work is", epilog="example: outlast stage reviewing"
    )
    command.add_argument("name", metavar="NAME", help="your own word for it")
    command.set_defaults(handler=stage)
    command = commands.add_parser(
        "remember",
        help="inside a run: remember where something is",
        epilog="example: outlast remember notes notes.md",
    )
    command.add_argument("name", metavar="NAME", help="what it is")
    command.add_argument("path", metavar="PATH", help="a file, or a URI")
    command.set_defaults(handler=remember)
    command = commands.add_parser(
        "shell-init", help="print what makes a bash or zsh script killable",
        description="Print shell code. A script that begins with it is in a run: the one it was started in, else one of its\n"
        "own. Its steps are recorded, its interruptions saved, and started again it goes on.",
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


def step(arguments: argparse.Namespace) -> int:
    """`outlast step`"""
    return script.perform(
        Call(kind="step", name=_name(arguments), words=_words(arguments), retry_failed=arguments.retry_failed)
    )


def effect(arguments: argparse.Namespace) -> int:
    """`outlast effect`"""
    messages.refuse_blank(arguments, "--key", "--probe")
    call = Call(
        kind="effect", name=_name(arguments), words=_words(arguments), key=arguments.key or "",
        probe=arguments.probe or "",
        unknown=arguments.unknown,
    )  # fmt: skip
    return script.perform(call)


def stage(arguments: argparse.Namespace) -> None:
    """`outlast stage`"""
    script.tell(Note(kind="stage", text=arguments.name, names=script.names()))


def remember(arguments: argparse.Namespace) -> None:
    """`outlast remember`"""
    given = arguments.path
    uri = given if "://" in given or given.startswith("file:") else f"file:{Path(os.path.abspath(given))}"
    script.tell(Note(kind="remember", name=_name(arguments), text=uri))


def shell_init(arguments: argparse.Namespace) -> None:
    """`outlast shell-init`"""
    sys.stdout.write(resources.files("outlast.supervisor.script").joinpath("init.sh").read_text())


def attach(arguments: argparse.Namespace) -> None:
    """`outlast __attach`: the assignments that a script evaluates to be in its run."""
    from outlast.supervisor.script import attach as script_attach

    joined = script_attach.join(
        arguments.pid, arguments.script, store=arguments.store, project=arguments.project
    )
    for text in joined.said:
        messages.tell(f"outlast: {text}")
    welcome, lines = joined.welcome, []
    found = joined.variables | welcome.names | {"RECOVERED_TASK_ID": welcome.recovered}
    lines += [f"export {name}={shlex.quote(value)}" for name, value in found.items()]
    lines += [f'export {name}="${{{name}-}}"' for name in script.NAMES if name not in found]
    lines.append(f"__outlast_pipe={shlex.quote(welcome.pipe)}")
    sys.stdout.buffer.write(os.fsencode("\n".join(lines) + "\n"))


def keep(arguments: argparse.Namespace) -> None:
    """`outlast __keep`: the process behind a script that runs by itself."""
    import msgspec

    from outlast.supervisor.script import attach as script_attach, main

    main.keep(msgspec.json.decode(arguments.asked, type=script_attach.KeeperRequest))


def _name(arguments: argparse.Namespace) -> str:
    name: str = arguments.name
    if not name.strip():
        raise UsageError(
            f"{name!r} is no name for a {_NAMED[arguments.command]}",
            hint=f"`outlast {arguments.command} --help` shows how",
        )
    return name


def _words(arguments: argparse.Namespace) -> tuple[str, ...]:
    if not arguments.rest:
        error = UsageError("there is no command to run", hint=f"outlast {arguments.command} NAME -- CMD …")
        error.exit_code = script.REFUSED
        raise error
    return tuple(arguments.rest)
