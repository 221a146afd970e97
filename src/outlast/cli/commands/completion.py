"""Completion scripts for bash, zsh and fish, made from the parser; the scripts ask `outlast __complete` for names of runs.

A task may be called `$(rm -rf ~)`, so the scripts quote each name and never let the shell expand it."""

import argparse
import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.errors import OutlastError
from outlast.inspect import find
from outlast.store.protocol import RunFilter

NAMES_MAX = 500


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    command = commands.add_parser(
        "completion", help="print a completion script for your shell",
        description="Print a script that completes commands, options and names of runs.",
        epilog="example: outlast completion bash > ~/.local/share/bash-completion/completions/outlast\n"
        "         outlast completion zsh > ~/.zfunc/_outlast\n"
        "         outlast completion fish > ~/.config/fish/completions/outlast.fish",
    )  # fmt: skip
    command.add_argument(
        "shell", choices=("bash", "zsh", "fish"), metavar="bash|zsh|fish", help="the shell you use"
    )
    command.set_defaults(handler=completion)
    hidden = commands.add_parser("__complete")
    hidden.add_argument("beginning", nargs="?", default="")
    hidden.set_defaults(handler=names)


def completion(arguments: argparse.Namespace) -> None:
    """`outlast completion`"""
    from outlast.cli.main import parser

    made = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell]
    messages.say("\n".join(made(_words(parser()))))


def names(arguments: argparse.Namespace) -> None:
    """`outlast __complete`: tasks of this project and ids of runs that begin like this, one a line."""
    with contextlib.suppress(OutlastError), store_option.opened(arguments) as store:
        project = store_option.project(arguments, store)
        mine = [summary.task for summary in find.all_runs(store, RunFilter(project=project, parent=""))]
        ids = [summary.run for summary in find.all_runs(store, RunFilter())] if arguments.beginning else []
        fitting = dict.fromkeys(name for name in (*mine, *ids) if name.startswith(arguments.beginning))
        for name in list(fitting)[:NAMES_MAX]:
            if name.isprintable():
                messages.say(name)


class _Words(NamedTuple):
    """The words that can follow one command."""

    name: str
    text: str
    options: tuple[str, ...]
    choices: tuple[str, ...]
    takes_run: bool


def _words(top: argparse.ArgumentParser) -> list[_Words]:
    """Every command that is shown to people, with what can follow it."""
    return [
        _Words(
            name, text,
            tuple(option for action in command._actions for option in action.option_strings if option[:2] == "--"),
            tuple(_choices(command)), any(action.metavar in ("RUN", "SAVE") for action in command._actions),
        )
        for name, text, command in _subcommands(top)
    ]  # fmt: skip


def _subcommands(top: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for shown in action._choices_actions:
                yield shown.dest, shown.help or "", action.choices[shown.dest]


def _choices(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        if not action.option_strings and action.choices is not None:
            yield from (str(choice) for choice in action.choices)


def _bash(commands: list[_Words]) -> Iterator[str]:
    yield "# bash completion for outlast; made by `outlast completion bash`"
    yield "_outlast() {"
    yield "    local cur=${COMP_WORDS[COMP_CWORD]} command= word names=() options='--version --help'"
    yield "    COMPREPLY=()"
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield f"        case $word in {'|'.join(each.name for each in commands)}) command=$word; break ;; esac"
    yield "    done"
    yield "    case $command in"
    yield f"        '') names=({' '.join(each.name for each in commands)}) ;;"
    for each in commands:
        fill = 'mapfile -t names < <(outlast __complete -- "$cur" 2>/dev/null)' if each.takes_run else ""
        fixed = f"names=({' '.join(each.choices)})" if each.choices else ""
        parts = [f"options='{' '.join(each.options)}'", *filter(None, (fill, fixed))]
        yield f"        {each.name}) {'; '.join(parts)} ;;"
    yield "    esac"
    yield "    if [[ $cur == -* ]]; then names=($options); fi"
    yield '    for word in "${names[@]}"; do'
    yield '        if [[ $word == "$cur"* ]]; then COMPREPLY+=("$(printf %q "$word")"); fi'
    yield "    done"
    yield "}"
    yield "complete -o default -F _outlast outlast"


def _zsh(commands: list[_Words]) -> Iterator[str]:
    yield "#compdef outlast"
    yield "# zsh completion for outlast; made by `outlast completion zsh`"
    yield "_outlast() {"
    yield "    local command= word"
    yield '    for word in "${(@)words[2,CURRENT-1]}"; do'
    yield f"        case $word in {'|'.join(each.name for each in commands)}) command=$word; break ;; esac"
    yield "    done"
    yield "    case $command in"
    yield f"        '') compadd -- {' '.join(each.name for each in commands)} ;;"
    for each in commands:
        options = f"[[ $PREFIX == -* ]] && compadd -- {' '.join(each.options)}"
        runs = 'compadd -- "${(@f)$(outlast __complete -- "$PREFIX" 2>/dev/null)}"'
        last = (
            runs if each.takes_run else f"compadd -- {' '.join(each.choices)}" if each.choices else "_files"
        )
        yield f"        {each.name}) {options} || {last} ;;"
    yield "    esac"
    yield "}"
    yield 'if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then _outlast "$@"; else compdef _outlast outlast; fi'


def _fish(commands: list[_Words]) -> Iterator[str]:
    yield "# fish completion for outlast; made by `outlast completion fish`"
    for each in commands:
        text = each.text.replace("\\", "\\\\").replace("'", "\\'")
        yield f"complete -c outlast -n __fish_use_subcommand -f -a {each.name} -d '{text}'"
        here = f"-n '__fish_seen_subcommand_from {each.name}'"
        for option in each.options:
            yield f"complete -c outlast {here} -l {option[2:]}"
        if each.takes_run:
            runs = "(outlast __complete -- (commandline -ct) 2>/dev/null)"
            yield f"complete -c outlast {here} -f -a '{runs}'"
        if each.choices:
            yield f"complete -c outlast {here} -f -a '{' '.join(each.choices)}'"
