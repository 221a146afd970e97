"""How a run stands is one word, the same in `ls`, `show`, `top`, `report` and `budget`, for people and as `standing` in JSON."""

from collections.abc import Callable

import pytest

import outlast
from tests.cli.command_line import Cli, work


def _paused(cli: Cli) -> None:
    work(beats=1)
    cli.forked("pause", "1411")


def _ready(cli: Cli) -> None:
    _paused(cli)
    cli.forked("resume", "1411")


def _cancelled(cli: Cli) -> None:
    work(beats=1)
    cli.forked("cancel", "1411")


def _handed_off(cli: Cli) -> None:
    work(beats=1)
    cli.forked("handoff", "1411")


WAYS: dict[str, Callable[[Cli], object]] = {
    "left": lambda cli: work(beats=1),
    "paused": _paused,
    "ready": _ready,
    "in_doubt": lambda cli: work(beats=2, doubt_at=2),
    "cancelled": _cancelled,
    "handed_off": _handed_off,
    "done": lambda cli: work(),
}


@pytest.mark.parametrize("word", WAYS)
def test_every_command_has_the_same_word_for_it(cli: Cli, word: str) -> None:
    WAYS[word](cli)
    told = word.replace("_", " ")
    assert cli.forked("ls", "--json").json[0]["standing"] == word
    assert cli.forked("show", "1411", "--json").json["standing"] == word
    assert cli.forked("top", "--once", "--json").json["rows"][0]["standing"] == word
    assert cli.forked("report", "--json").json["runs"][0]["standing"] == word
    assert f"  {told}  " in cli.forked("ls").out
    assert cli.forked("show", "1411").out.startswith(f"1411  {told}   ")
    assert f" {told} " in cli.forked("top", "--once").out
    assert f"  {told}  " in cli.forked("report").out
    assert cli.forked("budget", "1411").out.startswith(f"1411  {told}   ")
    texts = "".join(
        cli.forked(*words).out for words in (["ls"], ["show", "1411"], ["top", "--once"], ["report"])
    )
    assert "interrupted" not in texts


def test_a_child_has_the_same_word_in_the_show_of_its_parent(cli: Cli) -> None:
    with outlast.run("1411") as run:
        for beat in run.beats():
            with beat.run("part") as child:
                for _ in child.beats():
                    break
            break
    assert cli.forked("show", child.id, "--json").json["standing"] == "left"
    assert cli.forked("show", "1411", "--json").json["children"][0]["standing"] == "left"
    assert f"{child.id} part: left\n" in cli.forked("show", "1411").out
