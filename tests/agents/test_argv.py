"""Command lines: read against a table, changed in one place, and otherwise untouched."""

import pytest
from hypothesis import given, strategies as st

from outlast.agents.common import argv
from outlast.agents.common.argv import Table

TABLE = Table(
    valued=frozenset({"--model", "--settings"}),
    optional=frozenset({"--resume"}),
    listed=frozenset({"--add-dir"}),
    bare=frozenset({"--print", "--continue", "--verbose"}),
    aliases={"-p": "--print", "-c": "--continue", "-r": "--resume", "-m": "--model"},
)
WORDS = st.lists(
    st.sampled_from("-p -c -r -m -pc -pr -pm -mopus -x -pxc --model --model=a --settings --resume --resume=1 --add-dir a b --print --unknown -- - ''".split())
    | st.text(max_size=5),
    max_size=10,
)  # fmt: skip


def parts(line: str) -> argv.Parts:
    return argv.split(line.split(), TABLE)


@pytest.mark.parametrize(
    ("line", "prompt"),
    [
        ("-p hello", "hello"),
        ("hello -p", "hello"),
        ("--model opus hello", "hello"),
        ("-m opus hello", "hello"),
        ("-mopus hello", "hello"),
        ("--add-dir a b -p hello", "hello"),
        ("--resume id hello", "hello"),
        ("--resume --print hello", "hello"),
        ("--new-flag value --print hello", "hello"),
        ("hello --new-flag value", "hello"),
        ("--new-flag hello", "hello"),
        ("-p -- -hello", "-hello"),
        ("-p", None),
        ("--add-dir a b", None),
    ],
)
def test_the_prompt_is_found(line: str, prompt: str | None) -> None:
    split = parts(line)
    at = argv.prompt_at(split)
    assert (None if at is None else split[at].words[0]) == prompt


@pytest.mark.parametrize(
    ("line", "gone", "left"),
    [
        ("-pc hello", "--continue", "-p hello"),
        ("-cp hello", "--continue", "-p hello"),
        ("-pr id hello", "--resume", "-p hello"),
        ("-pr id hello", "--print", "-r id hello"),
        ("--resume=id --print", "--resume", "--print"),
        ("--resume id --print", "--resume", "--print"),
        ("--resume --print x", "--resume", "--print x"),
        ("--settings a --settings b x", "--settings", "x"),
        ("-- --resume id", "--resume", "-- --resume id"),
    ],
)
def test_a_flag_goes_with_its_value_and_nothing_else_does(line: str, gone: str, left: str) -> None:
    assert argv.joined(argv.without(parts(line), gone)) == tuple(left.split())


def test_the_last_value_counts() -> None:
    assert argv.value(parts("--model a -m b x"), "--model") == "b"
    assert argv.value(parts("--model=a"), "--model") == "a"
    assert argv.value(parts("-pr id"), "--resume") == "id"
    assert argv.value(parts("--resume --print"), "--resume") is None


def test_another_prompt_is_never_a_flag_nor_the_value_of_one() -> None:
    assert argv.joined(argv.with_prompt(parts("-p old --add-dir a"), "-new")) == (
        "-p",
        "--add-dir",
        "a",
        "--",
        "-new",
    )
    assert argv.joined(argv.with_prompt(parts("-p -- old"), "new")) == ("-p", "--", "new")
    assert argv.joined(argv.with_prompt(parts("-p"), "new")) == ("-p", "--", "new")


@given(WORDS)
def test_what_is_not_changed_comes_back_word_for_word(words: list[str]) -> None:
    split = argv.split(words, TABLE)
    assert argv.joined(split) == tuple(words)
    assert argv.without(split, "--none") == split
    less = argv.without(split, "--print", "--resume")
    assert not argv.has(less, "--print", "--resume")
    changed = argv.with_prompt(split, "new")
    assert argv.joined(changed)[-1] == "new"
