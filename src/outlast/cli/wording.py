"""Hints of the library in the words of the command line: what a program writes as `amend=True` is typed as `--amend`."""

import re

from outlast.core.statuses import AGAIN

# Commands behind which there is a command line or a script, and no program that calls the library.
COMMANDS = ("run", "resume", "open", "step", "effect", "stage", "remember", "__attach")
_OPTIONS = {"invariants": "--invariant"}
_FLAG = re.compile(r"(?<![-\w])(amend|again|moved)=True\b")
_VALUE = re.compile(
    r"(?<![-\w.])(goal|done|invariants|budget|workspace|project|store|files)="
    r"""(?:\[?("[^"\]]*")\]?|(?=[\s`,;)]|$))"""
)


def typed(text: str, command: str = "run") -> str:
    """The text with our parameters as options; everything else stays. What is resumed may be a program all the same."""
    again = AGAIN if command == "resume" else "`--again`"
    text, *rest = (_VALUE.sub(_option, _FLAG.sub(r"--\1", part)) for part in text.split(AGAIN))
    return again.join((text, *rest)).replace("`beat.decide`", "`outlast step`")


def _option(found: re.Match[str]) -> str:
    option = _OPTIONS.get(found[1], f"--{found[1]}")
    return f"{option} {found[2]}" if found[2] else option
