"""Help: every command once, in its group, on one line of plain words; the documentation has the same groups."""

import argparse
import re

import pytest

from outlast.cli import help as layout
from outlast.cli.main import parser
from tests.cli.command_line import Cli
from tests.support.environment import ROOT


def commands(top: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """The commands that people see: the line of each, and its parser."""
    (action,) = (each for each in top._actions if isinstance(each, argparse._SubParsersAction))
    return {shown.dest: (shown.help or "", action.choices[shown.dest]) for shown in action._choices_actions}


def grouped(text: str) -> dict[str, list[str]]:
    """The groups of the help, and the first word of each of their lines."""
    groups: dict[str, list[str]] = {}
    for block in text.split("\n\n"):
        title, *lines = block.splitlines()
        if title in layout.GROUPS:
            groups[title] = [line.split()[0] for line in lines]
    return groups


def test_every_command_is_in_one_group_and_on_one_line() -> None:
    known = commands(parser())
    listed = [name for names in layout.GROUPS.values() for name in names]
    assert sorted(listed) == sorted(known)
    text = layout.overview(parser())
    assert grouped(text) == {group: list(names) for group, names in layout.GROUPS.items()}
    assert [line for line in text.splitlines() if len(line) > layout.COLUMNS] == []
    starts = {
        line.index(known[line.split()[0]][0])
        for line in text.splitlines()
        if line.split()[:1] and line.split()[0] in known and line[:2] == "  "
    }
    assert len(starts) == 1, "the texts are not aligned"


def test_help_is_the_same_however_it_is_asked_for(cli: Cli) -> None:
    whole = cli.forked("--help")
    assert (whole.code, whole.out) == (0, layout.overview(parser()))
    assert cli.forked("help").out == cli.forked().out == cli.forked("--help", "run").out == whole.out
    assert cli.forked("help", "show").out == cli.forked("show", "--help").out
    assert cli.forked("help", "chaos", "eval").out == cli.forked("chaos", "eval", "--help").out


def test_the_help_of_a_command_fits_the_terminal_and_explains_every_argument() -> None:
    for name, (_, command) in commands(parser()).items():
        lines = command.format_help().splitlines()
        assert [line for line in lines if len(line) > layout.COLUMNS and "outlast" not in line] == [], name
        for action in command._actions:
            assert action.help, f"{name} {action.dest}"
        assert command.description, name


@pytest.mark.parametrize("document", ["docs/commands.md", "README.md"])
def test_the_documentation_has_the_groups_of_the_help(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    table = text[text.index("| | I want to") :].split("\n\n")[0]
    group, found = "", dict.fromkeys(layout.GROUPS, 0)
    for row in table.splitlines()[2:]:
        first, *cells = [cell.strip() for cell in row.removeprefix("|").removesuffix("|").split(" | ")]
        group = first.strip("*") or group
        names = re.findall(r"`outlast ([a-z-]+)", cells[-1])
        assert names, row
        assert names[0] in layout.GROUPS[group], row
        found[group] += 1
    order = [group for group in layout.GROUPS if found[group]]
    assert list(dict.fromkeys(order)) == order
    assert document == "README.md" or all(found.values())
