"""How help reads: `outlast --help` in groups, and one layout for the help of each command. The texts are the commands' own."""

import argparse
import re
import textwrap
from collections.abc import Iterable

from outlast.core.text import did_you_mean

COLUMNS = 80

# Every command that people see, in the groups and the order of `outlast --help`.
GROUPS: dict[str, tuple[str, ...]] = {
    "run": ("run", "shell-init", "step", "effect", "ask", "stage", "remember", "mcp"),
    "look": (
        "ls", "show", "top", "ui", "report", "log", "output", "effects", "budget", "context", "state",
    ),
    "decide": ("resume", "pause", "kill", "cancel", "settle", "approve", "reject", "answer", "open"),
    "files": ("apply", "undo", "saves", "save", "diff", "restore", "bisect", "watch"),
    "elsewhere": ("fork", "export", "import", "handoff"),
    "care": ("doctor", "config", "notify", "store", "service", "clean", "rm", "gc", "completion", "demo", "chaos", "help"),
}  # fmt: skip

ABOUT = "outlast runs agents that can be killed and go on where they stopped."
READ_ON = """\
RUN is a task (1411), a run id or the unique beginning of one (kx3f), or
PROJECT:TASK (app:1411).

example:     outlast run --task 1411 --done "make test" -- ./agent.sh
in doubt?    outlast effects 1411; look outside; then say what you found:
             outlast settle 1411 41.1 --happened
read on:     outlast help COMMAND; docs/commands.md; docs/recovery.md
exit codes:  0 fine, 1 failed, 2 refused and nothing changed, 3 needs a person,
             4 budget reached, 5 parked, 70 a bug in outlast"""

# Words that people bring from other programs, and what does that here: the first that is a command, or begins with one.
OTHER_WORDS: dict[str, tuple[str, ...]] = {
    "abort": ("cancel",), "add": ("install",), "attach": ("open",), "continue": ("resume",),
    "delete": ("remove",), "disable": ("remove",), "enable": ("install",), "history": ("log",), "install": ("service install",),
    "list": ("ls",), "ps": ("ls",), "start": ("run", "install"), "status": ("show",),
    "stop": ("kill", "remove"), "uninstall": ("remove", "service remove"),
}  # fmt: skip

_LAID_OUT = re.compile(r"\s|example:|exit codes|probe:")  # lines that are laid out already


class Layout(argparse.HelpFormatter):
    """Prose is filled to the width; examples stay on their lines."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=COLUMNS)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        prose: list[str] = []
        for line in (*text.splitlines(), " "):
            if _LAID_OUT.match(line):
                lines += textwrap.wrap(" ".join(prose), width)
                lines.append(line)
                prose = []
            else:
                prose.append(line)
        return "\n".join(lines[:-1])


def nearest(word: str, known: Iterable[str], form: str, then: str = "") -> str:
    """The hint for an unknown word: our word for the same, else the nearest one; `then` follows."""
    names = list(known)
    same = next((each for each in OTHER_WORDS.get(word, ()) if each.split()[0] in names), None)
    return did_you_mean(same or word, [*names, *filter(None, [same])], then, form=form)


def overview(top: argparse.ArgumentParser) -> str:
    """`outlast --help`: every command on one line, by group."""
    texts = {}
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {shown.dest: shown.help or "" for shown in action._choices_actions}
    width = max(map(len, texts))
    lines = ["usage: outlast [--store PATH] [--project PATH] COMMAND …", "", ABOUT]
    for group, names in GROUPS.items():
        lines += ["", group, *(f"  {name:<{width}}  {texts[name]}" for name in names)]
    lines += ["", "options, before or after the command"]
    options = [action for action in top._actions if action.option_strings]
    shown = {
        ", ".join(each.option_strings) + (f" {each.metavar}" if each.metavar else ""): each.help
        for each in options
    }
    lines += [f"  {option:<{max(map(len, shown))}}  {text}" for option, text in shown.items()]
    return "\n".join([*lines, "", READ_ON, ""])
