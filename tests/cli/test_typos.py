"""A mistyped name from a known set is answered with the nearest one: runs, projects, saves, effects, settings, units, agents, trials."""

from pathlib import Path

import pytest

import outlast
from outlast.agents import registry
from outlast.chaos.tasks.catalog import TASKS
from outlast.core.text import did_you_mean, nearest
from tests.cli.command_line import Cli, work


def test_the_nearest_names_come_first_and_nothing_is_guessed() -> None:
    known = ("show", "save", "saves", "settle", "step", "stage")
    assert nearest("shwo", known) == ["show"]
    assert nearest("SAVE", known)[0] == "save"
    assert nearest("set", known) == ["settle"], "the beginning of one"
    assert nearest("frobnicate", known) == []
    assert did_you_mean("shwo", known, "then this") == "did you mean show? then this"
    assert did_you_mean("frobnicate", known, "then this") == "then this"
    assert len(nearest("s" * 4, [f"sss{n}" for n in range(10)])) == 3


@pytest.fixture
def world(cli: Cli) -> Cli:
    """A run with an effect in doubt, and one in another project."""
    work("fix-parser", beats=2, doubt_at=2)
    other = cli.folder.parent / "other"
    other.mkdir()
    work("fix-lexer", beats=1, project=str(other))
    return cli


NAMES = [
    ("show fix-praser", "no such run: fix-praser", "did you mean fix-parser? "),
    ("log fix-parsre", "no such run: fix-parsre", "did you mean fix-parser"),
    ("show fix-lexre", "no such run: fix-lexre", "did you mean other:fix-lexer"),
    ("budget sugest", "no such run: sugest", "did you mean `outlast budget suggest`? "),
    ("restore fix-praser", "no such save: fix-praser", "did you mean fix-parser"),
    ("diff fix-praser@1", "no such run: fix-praser", "did you mean fix-parser"),
    ("settle fix-parser 2.11 --happened", "has no effect 2.11; in doubt: 2.1 comment", "did you mean 2.1? "),
    ("ls --project ../othr", "no such project: '../othr'", "did you mean "),
    ("resume fix-parser --budget tokns=+4k", "no such unit of a budget: tokns", "did you mean tokens?"),
    ("chaos eval --designs outlats", "no such design: outlats", "did you mean outlast?"),
    (f"chaos eval --tasks {next(iter(TASKS))}x", "no such task: ", f"did you mean {next(iter(TASKS))}?"),
    (f"chaos eval --replay {next(iter(TASKS))}:outlast:x", "no such trial: ", "give TASK:DESIGN:N"),
]  # fmt: skip


def test_a_mistyped_name_is_answered_with_the_nearest_one_there_is(world: Cli) -> None:
    before = world.rows()
    for words, said, hint in NAMES:
        answer = world.forked(*words.split())
        assert said in answer.complaint, words
        assert answer.err.splitlines()[1].removeprefix("hint: ").startswith(hint), (words, answer.err)
        assert answer.code == 2, words
    assert world.rows() == before


@pytest.mark.parametrize(
    ("file", "said", "hint"),
    [
        ("lesae_s = 30", "no such setting: lesae_s", "hint: did you mean lease_s?"),
        ("[save]\nbranhc = true", "no such setting: save_branhc", "hint: did you mean save_branch?"),
        (
            "save_where = 'shadwo'",
            "it must be repository or shadow, got 'shadwo'",
            "hint: did you mean shadow?",
        ),
        ("frobnicate = 1", "no such setting: frobnicate", "hint: the settings are "),
    ],
)
def test_a_mistyped_setting_is_answered_with_the_nearest_one(
    cli: Cli, file: str, said: str, hint: str
) -> None:
    (cli.folder / "outlast.toml").write_text(file)
    answer = cli.forked("config")
    assert said in answer.complaint
    assert answer.err.splitlines()[1].startswith(hint)


def test_a_mistyped_word_of_a_program_is_answered_with_the_nearest_one(cli: Cli, tmp_path: Path) -> None:
    with pytest.raises(outlast.UsageError) as caught:
        outlast.run("t", files="kep", store=tmp_path / "s")  # type: ignore[call-overload]
    assert caught.value.hint == "did you mean keep?"
    with outlast.run("t", store=tmp_path / "s") as run:
        for beat in run.beats():
            with pytest.raises(outlast.UsageError) as caught:
                beat.act("x", print, unknown="reisue")
            assert caught.value.hint == "did you mean reissue?"
            with pytest.raises(outlast.UsageError) as caught:
                beat.extend(["more"], where="nxt")
            assert caught.value.hint == "did you mean next?"
            break


def test_a_mistyped_agent_is_answered_with_the_nearest_one() -> None:
    for name in registry.NAMES:
        assert nearest(name[:-1], registry.NAMES)[0] == name
