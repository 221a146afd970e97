"""How the commands of one CLI are read: its names, its flags, and which words start no session here."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from outlast.agents.common import argv, launch
from outlast.agents.release import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """The facts about a CLI that are needed to read its commands."""

    names: Names
    table: argv.Table
    subcommands: frozenset[str] = frozenset()  # that start no session
    elsewhere: tuple[str, ...] = ()  # flags that start none, or one that this process does not hold
    shared_name: str = ""  # that other programs have as well: the agent is the one that is a Python script

    def opens_session(self, words: Sequence[str], program: str) -> bool:
        """Whether the command starts a session of this agent."""
        start = launch.start(words, program, self.names)
        if start is None:
            return False
        is_shared = start == 1 and bool(self.shared_name) and os.path.basename(words[0]) == self.shared_name
        if is_shared and not launch.is_python(program):
            return False
        return argv.opens_session(argv.split(words[start:], self.table), self.subcommands, self.elsewhere)

    def split(self, words: Sequence[str]) -> tuple[int, argv.Parts]:
        """How many words stand before the agent's own, and those in parts."""
        start = launch.start(words, "", self.names) or 1
        return start, argv.split(words[start:], self.table)

    def parts(self, words: Sequence[str]) -> argv.Parts:
        """The agent's own words in parts."""
        return self.split(words)[1]


def wants_json(parts: argv.Parts) -> bool:
    """Whether `--output-format` names a format for programs."""
    return argv.value(parts, "--output-format") in ("json", "stream-json")
