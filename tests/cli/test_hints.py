"""A hint is the next thing to type: pasted into a shell as it stands, it works."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import outlast
from outlast.cli.terminal import messages
from tests.cli.command_line import Cli, unknown_outcome, work
from tests.support.commands import Answer
from tests.support.environment import TIMEOUT_S, need_tool

ODD = 'it\'s "1411"; touch pwned $(touch pwned)'
COMMAND = re.compile(r"`((?:outlast|rm|chmod) .*?)`(?!\w)")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A store that only `--store` leads to, at a path that a shell would take apart."""
    return tmp_path / "some 'where"


def paste(cli: Cli, command: str) -> Answer:
    """What a person does with a hint."""
    done = subprocess.run(
        [need_tool("bash"), "-c", command],
        cwd=cli.folder,
        env=cli.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    return Answer(done.returncode, done.stdout, done.stderr)


def hinted(text: str) -> list[str]:
    """The commands that a text tells a person to type."""
    return COMMAND.findall(text)


def doubt_twice(task: str, store: Path) -> str:
    """A run with two effects in doubt, and its id."""
    with pytest.raises(outlast.EffectInDoubt), outlast.run(task, store=store) as run:
        for beat in run.beats():
            with pytest.raises(outlast.EffectInDoubt):
                beat.act("one", unknown_outcome, unknown="ask")
            beat.act("two", unknown_outcome, unknown="ask")
    return run.id


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("words", "then"),
    [
        (["show", ODD], f"settle {shlex.quote(ODD)} 1.1 --happened"),
        (["settle", ODD, "1.1", "--did-not"], "effects {run}"),
        (["resume", ODD], "effects {run}"),
        (["settle", ODD, "9.9", "--did-not"], "effects {run}"),
        (["show", "nobody's"], "ls --all"),
        (["pause", "finished"], "show {done}"),
        (["export", ODD], "handoff {run} --take-back"),
        (["resume", "sealed"], "handoff {sealed} --take-back"),
        (["doctor"], "settle {run} 1.1 --happened"),
        (["doctor", "--json"], "settle {run} 1.1 --happened"),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_a_hint_leads_to_the_store_of_the_command_that_gave_it(
    cli: Cli, there: Path, words: list[str], then: str
) -> None:
    runs = {"run": doubt_twice(ODD, there), "done": work("finished", store=there)}
    runs["sealed"] = work("sealed", beats=1, store=there)
    cli.ok("handoff", "sealed", "--store", there)
    answer = cli(*words, "--store", there)
    hints = [each["hint"] for each in answer.json] if "--json" in words else [answer.out, answer.err]
    wanted = f"outlast --store {shlex.quote(str(there))} {then.format(**runs)}"
    assert wanted in hinted("\n".join(hints))
    pasted = paste(cli, wanted)
    assert pasted.code == 0, pasted.err
    assert not (cli.folder / "pwned").exists()
    assert not cli.root.exists()


def test_without_the_option_a_hint_does_not_name_the_store(cli: Cli) -> None:
    work(beats=2, doubt_at=2)
    assert hinted(cli.ok("show", "1411").err) == ["outlast settle 1411 2.1 --happened"]
    assert hinted(cli("show", "nope").err) == ["outlast ls --all"]


def test_a_hint_repeats_the_project_in_which_a_task_was_meant(cli: Cli, tmp_path: Path) -> None:
    run = work("12", beats=2, doubt_at=2)
    elsewhere = replace(cli, folder=tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    work("12", beats=1, project=str(elsewhere.folder))
    (command,) = hinted(elsewhere.ok("show", "12", "--project", "../app").err)
    assert paste(elsewhere, command).code == 0
    assert cli.show(run)["effects"][1]["state"] == "confirmed"


@pytest.mark.parametrize("task", ["--json", "-x", "back`tick", "$HOME", "*"])
def test_a_task_of_any_name_can_be_pasted(cli: Cli, task: str) -> None:
    work(task, beats=2, doubt_at=2)
    said = cli.ok("show", "--", task).err
    command = said[said.index("outlast settle") : said.index("` or `--did-not`")]
    assert paste(cli, command).code == 0
    assert cli.ok("ls", "--json").json[0]["status"] == "interrupted"


@pytest.mark.parametrize("folder", ["plain", "with a 'quote"])
def test_what_doctor_says_about_permissions_can_be_pasted(cli: Cli, tmp_path: Path, folder: str) -> None:
    store = tmp_path / folder
    work(beats=1, store=store)
    store.chmod(0o755)
    commands = hinted(cli.ok("doctor", "--store", store).out)
    assert [paste(cli, command).code for command in commands if "chmod" in command] == [0]
    assert "others can look" not in cli.ok("doctor", "--store", store).out


# -- options that are not there ----------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "complaint", "hint"),
    [
        ("ls --nonsense", "no such option: --nonsense", "`outlast ls --help` lists the options"),
        ("ls --jsno", "no such option: --jsno", "did you mean --json? `outlast ls --help` lists the options"),
        (
            "run --buget 4k -- true",
            "no such option: --buget",
            "did you mean --budget? `outlast run --help` lists the options",
        ),
        (
            "show 1411 --lats=3",
            "no such option: --lats",
            "did you mean --last? `outlast show --help` lists the options",
        ),
        ("ls 1411", "unexpected argument: 1411", "`outlast ls --help` explains it"),
        (
            "chaos eval --quik",
            "no such option: --quik",
            "did you mean --quick? `outlast chaos eval --help` lists the options",
        ),
        (
            "--debugg ls",
            "no such option: --debugg",
            "did you mean --debug? `outlast --help` lists the options",
        ),
        ("shwo", "no such command: shwo", "did you mean `outlast show`?"),
        ("shwo run", "no such command: shwo", "did you mean `outlast show`?"),
        ("help shwo", "no such command: shwo", "did you mean `outlast help show`?"),
        ("chaos evla", "no such command: evla", "did you mean `outlast chaos eval`?"),
        ("frobnicate", "no such command: frobnicate", "`outlast --help` lists the commands"),
        (
            "service instal",
            "outlast service takes install, status or remove, got instal",
            "did you mean install? `outlast service --help` explains it",
        ),
        (
            "budget 1411 --by bat",
            "--by takes beat, tool or attempt, got bat",
            "did you mean beat? `outlast budget --help` explains it",
        ),
    ],
)
def test_a_mistyped_command_option_or_choice_is_answered_with_the_nearest(
    cli: Cli, words: str, complaint: str, hint: str
) -> None:
    answer = cli(*words.split())
    assert answer.complaint == complaint
    assert answer.err.splitlines()[1] == f"hint: {hint}"
    assert answer.code == 2
    for command in hinted(hint):
        asked = command if "help" in command else f"{command} --help"
        assert paste(cli, asked).code == 0


# -- a new run of a task that is over ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["done", "cancelled"])
def test_a_task_that_is_over_says_how_to_run_it_again(cli: Cli, end: str) -> None:
    first = work(beats=5 if end == "done" else 1)
    if end == "cancelled":
        cli.ok("cancel", "1411")
    hint = cli("resume", "1411").err.splitlines()[1]
    assert "`outlast.run(…, again=True)`" in hint
    assert work(again=True) != first
    assert "`again=True`" in cli.ok("cancel", "--help").out


@pytest.mark.parametrize(
    ("of_the_library", "as_typed"),
    [
        (
            "give the same as at first, or amend=True to change it",
            "give the same as at first, or --amend to change it",
        ),
        (
            "start t again with amend=True and a larger budget=",
            "start t again with --amend and a larger --budget",
        ),
        ('like goal="Trap exit signals"', 'like --goal "Trap exit signals"'),
        ('like done=["make test"]', 'like --done "make test"'),
        ("invariants= takes shell commands", "--invariant takes shell commands"),
        ("make it, or give another workspace=", "make it, or give another --workspace"),
        ('start with files="keep" and moved=True', 'start with --files "keep" and --moved'),
        ("its inputs from `beat.decide`", "its inputs from `outlast step`"),
        ("`outlast.run(…, again=True)` starts a new run", "`--again` starts a new run"),
        ("pytest --store=x undone=1 again=Truely usd=5", "pytest --store=x undone=1 again=Truely usd=5"),
    ],
)
def test_what_the_library_advises_is_said_in_words_that_can_be_typed(
    of_the_library: str, as_typed: str
) -> None:
    assert messages.typed(of_the_library) == as_typed
