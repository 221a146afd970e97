"""How a run stands is one word, the same in `ls`, `show`, `top`, `report` and `budget`, for people and as `standing` in JSON."""

import json
import re
from collections.abc import Callable

import msgspec
import pytest

import outlast
from outlast.core import events as ev
from tests.cli.command_line import Cli, work
from tests.cli.test_plain_words import NOW, agent_run as add_run, call


def ended(status: ev.EndStatus, cause: ev.Cause, evidence: str, *, wanted: bool = False) -> ev.AttemptEnded:
    return ev.AttemptEnded(at=NOW, epoch=1, status=status, cause=cause, evidence=evidence, wanted=wanted)


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


# --- beside its word nothing says another one -------------------------------------------------------------------------


def _quarantined(cli: Cli) -> None:
    """A command that used all its attempts."""
    add_run(cli, ended("failed", "quarantine", "all 2 allowed attempts are used; the last: exit code 1"))


def test_a_quarantined_run_is_called_so_wherever_a_person_reads_it(cli: Cli) -> None:
    _quarantined(cli)
    assert cli.forked("ls", "--json").json[0]["why"].startswith("failed: quarantine: all 2 allowed")
    for words in (["ls"], ["report"], ["top", "--once"], ["show", "a"]):
        text = cli.forked(*words).out
        assert "quarantined" in text, words
        assert "all 2 allowed attempts are used" in text, words
        assert "failed" not in text.lower(), words
        assert words[0] == "show" or "quarantine:" not in text, words  # there it is the name of the cause
    assert cli.forked("pause", "a").complaint == "run runofanagent of task a is quarantined"
    assert "it is quarantined" in cli.forked("kill", "a").out


def test_in_doubt_and_quarantined_neither_list_says_failed(cli: Cli) -> None:
    end = ended("failed", "quarantine", "all 2 allowed attempts are used", wanted=True)
    ask = msgspec.structs.replace(call(2, "git push", ends=False)[0], policy="ask")
    add_run(cli, ask, end)
    for words in (["ls"], ["report"], ["top", "--once"]):
        text = cli.forked(*words).out
        assert "in doubt: 1.2 Bash; quarantined: all 2 allowed" in text, (words, text)
        assert "failed" not in text, words


def test_beside_unsettled_stands_that_there_is_no_outcome(cli: Cli) -> None:
    add_run(cli, *call(2, "git push", ends=False))
    for words in (["ls"], ["report"], ["top", "--once"]):
        text = cli.forked(*words).out
        assert " unsettled " in text, words
        assert "no outcome: 1.2 Bash; the next attempt settles it" in text, words
        assert "in doubt" not in text, words
    assert cli.forked("ls", "--json").json[0]["why"].startswith("in doubt: 1.2 Bash; the next attempt")


@pytest.mark.parametrize(
    ("cause", "evidence", "wanted", "word"),
    [
        ("operator", "kill by ada", True, "stopped"),
        ("operator", "the program left the run after beat 0", True, "left"),
        ("crash", "exit code 7", False, "died"),
        ("signal", "SIGTERM from pid 1", True, "signalled"),
        ("budget", "9 of 9 tokens", True, "out of budget"),
        ("crash", "EffectInDoubt: push", False, "in doubt"),
        ("checks", "false", False, "checks failed"),
    ],
)
def test_the_log_says_of_an_attempt_what_every_list_says(
    cli: Cli, cause: ev.Cause, evidence: str, wanted: bool, word: str
) -> None:
    add_run(cli, ended("interrupted", cause, evidence, wanted=wanted))
    line = cli.forked("log", "a").out.splitlines()[-1]
    assert f"status={word} cause={cause}" in line
    assert "interrupted" not in line
    assert (
        json.loads(cli.forked("log", "a", "--json").out.splitlines()[-1])["event"]["status"] == "interrupted"
    )


def test_no_class_of_ours_stands_before_what_happened(cli: Cli) -> None:
    told = "the command ended with 7"
    doubt = ev.EffectInDoubt(at=NOW, beat=1, n=2, evidence=f"CommandFailed: {told}")
    end = ended("in_doubt", "crash", f"EffectInDoubt: {told}", wanted=True)
    add_run(cli, *call(2, "git push", ends=False), doubt, end)
    for words in (["show", "a"], ["log", "a"], ["ls"], ["report"], ["effects", "a"]):
        text = cli.forked(*words).out
        assert not re.search("CommandFailed|EffectInDoubt", text), (words, text)
    assert told in cli.forked("show", "a").out
    assert f"CommandFailed: {told}" in cli.forked("effects", "a", "--json").out
