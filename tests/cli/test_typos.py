"""A mistyped name from a known set is answered with the nearest one: runs, projects, saves, effects, settings, units, agents, trials."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import outlast
from outlast.agents import registry
from outlast.chaos.tasks.catalog import TASKS
from outlast.cli import help as layout, main
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


# --- commands and options -----------------------------------------------------------------------------------------------

LINES = [
    ("service uninstall", "takes install, status or remove, got uninstall", "did you mean remove? "),
    ("service enable", "takes install, status or remove, got enable", "did you mean install? "),
    ("service instal", "takes install, status or remove, got instal", "did you mean install? "),
    ("help chaos evl", "no such command: chaos evl", "did you mean `outlast help chaos eval`?"),
    ("help service foo", "no such command: service foo", "`outlast help service`"),
    ("help stop", "no such command: stop", "did you mean `outlast help kill`?"),
    ("stop 1411", "no such command: stop", "did you mean `outlast kill`?"),
    ("uninstall", "no such command: uninstall", "did you mean `outlast service remove`?"),
    ("settle 1411 1.1 --happend", "no such option: --happend", "did you mean --happened? "),
    ("fork 1411 --att 3", "no such option: --att", "did you mean --at? "),
    ("import --projekt .", "no such option: --projekt", "did you mean --project? "),
    ("--stroe there ls", "no such option: --stroe", "did you mean --store? "),
    ("--json ls", "no such option: --json", "put it after the command: `outlast ls --json`"),
    ("run claude --verbose", "unexpected argument: claude", "put `--` before the command: "),
    ("run --taks t -- true", "no such option: --taks", "did you mean --task? "),
    ("--store http://there ls", "--store: no such kind of store: http", "give a folder, sqlite:///path or postgresql://"),
]  # fmt: skip


def test_a_mistyped_command_or_option_is_answered_with_the_one_that_was_meant(cli: Cli) -> None:
    for words, said, hint in LINES:
        answer = cli.forked(*words.split())
        assert said in answer.complaint, words
        # A process that ran a command before repeats its --store in hints.
        told = re.sub(r"outlast --store \S+ ", "outlast ", answer.err.splitlines()[1])
        assert told.removeprefix("hint: ").startswith(hint), (words, answer.err)
        assert answer.code == 2, words


def _options(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every long option, with the words of the command that it belongs to."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from _options(child, (*words, name)) if not name.startswith("_") else ()
        for option in action.option_strings if words else ():
            if option.startswith("--") and option != "--help":
                yield words, option


def test_whatever_else_is_missing_a_mistyped_option_is_what_is_complained_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    top = main.parser()
    for words, option in _options(top):
        with pytest.raises(SystemExit):
            top.parse_args([*words, f"{option}x"])
        said, hint = capsys.readouterr().err.splitlines()
        assert said == f"error: no such option: {option}x", words
        assert hint.startswith(f"hint: did you mean {option}? "), words


def _outcome(words: list[str], capsys: pytest.CaptureFixture[str]) -> object:
    """What a line is read as, or what is complained of."""
    try:
        found = vars(main.parser().parse_args(words))
        return found | {"rest": list(found.get("rest") or ())}
    except SystemExit as ended:
        return ended.code, capsys.readouterr().err


def _command_words(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[list[str]]:
    yield list(words)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from _command_words(child, (*words, name))


def test_two_dashes_with_nothing_after_them_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for words in _command_words(main.parser()):
        assert _outcome([*words, "--"], capsys) == _outcome(words, capsys), words


def test_after_two_dashes_nothing_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    for before, after in [
        (["--", "ls", "--json"], ["ls", "--json"]),
        (["--project", "--", "--", "ls"], ["--project", "--", "ls"]),  # the first is the folder's name
        (["service", "--", "status"], ["service", "status"]),
        (["show", "--json", "--", "1411"], ["show", "1411", "--json"]),
    ]:
        assert _outcome(before, capsys) == _outcome(after, capsys), before
    for words, said in [
        (["ls", "--", "x"], "unexpected argument: x"),
        (["ls", "--", "--json"], "unexpected argument: --json"),
        (["ls", "--", "--"], "unexpected argument: --"),
        (["ls", "--frob", "--", "x"], "no such option: --frob"),
        (["show", "a", "--", "--json"], "unexpected argument: --json"),
    ]:
        assert f"error: {said}\n" in str(_outcome(words, capsys)[1]), words  # type: ignore[index]
    assert main.parser().parse_args(["show", "--", "--json"]).run == "--json"


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("answer 1411 --id q2 v2", {"run": "1411", "id": "q2", "text": "v2"}),
        ("answer 1411 --no-start v2", {"run": "1411", "text": "v2"}),
        ("answer --id q2 1411 v2", {"run": "1411", "id": "q2", "text": "v2"}),
        ("answer 1411 --id q2 -- --v2", {"run": "1411", "id": "q2", "text": "--v2"}),
        ("approve 1411 --dry-run a1", {"run": "1411", "id": "a1"}),
        ("reject 1411 --why no a1", {"run": "1411", "id": "a1", "why": "no"}),
        ("diff 1411 9c1e --whole 8b2f", None),
        ("answer 1411 v2 --id q2 v3", None),
        ("reject 1411 a1 --why not on a Friday", None),
    ],
)
def test_what_may_be_left_out_may_stand_behind_the_options(
    line: str, given: dict[str, str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs and hints have it: `outlast answer 1411 --id q2 v2`."""
    if given is None:
        assert "error: unexpected argument" in str(_outcome(line.split(), capsys)), line
    else:
        found = vars(main.parser().parse_args(line.split()))
        assert {name: found[name] for name in given} == given


@pytest.mark.parametrize(
    ("line", "quoted"),
    [
        ("answer 1411 use the v2 API", "answer 1411 'use the v2 API'"),
        ("answer v2 v2 v2 API", "answer v2 'v2 v2 API'"),
        ("answer 1411 --id q2 use v2 --no-start", "answer 1411 --id q2 'use v2' --no-start"),
        ("answer 1411 -- use v2", "answer 1411 -- 'use v2'"),
        ("reject 1411 --why not on a Friday", "reject 1411 --why 'not on a Friday'"),
        ("reject 1411 a1 --why=it's a Friday", """reject 1411 a1 '--why=it'"'"'s a Friday'"""),
        ("ask which API? --choice v1", "ask 'which API?' --choice v1"),
        ("save -m before the change", "save -m 'before the change'"),
    ],
)
def test_a_text_without_quotes_is_answered_with_the_line_that_has_them(
    line: str, quoted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.parser().parse_args(line.split())
    assert ended.value.code == 2
    said, hint = capsys.readouterr().err.splitlines()
    assert said.startswith("error: unexpected argument: ")
    assert hint.endswith(f"put quotes around a text: `outlast {quoted}`"), hint


def test_every_word_of_another_program_leads_to_a_command_of_ours() -> None:
    commands = {name for group in layout.GROUPS.values() for name in group}
    of_service = {"install", "status", "remove"}
    for word, candidates in layout.OTHER_WORDS.items():
        assert candidates, word
        for each in candidates:
            first, *rest = each.split()
            assert first in commands | of_service, word
            assert set(rest) <= of_service, word


def test_help_of_a_word_of_a_command_is_the_help_of_the_command(cli: Cli) -> None:
    assert cli.forked("help", "service", "install").out == cli.forked("help", "service").out
