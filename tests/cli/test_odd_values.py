"""Numbers, words and files that are too large, too long or too deep are refused in a line; what is printed can be pasted."""

import json
import stat
import sys

import pytest

from tests.cli.command_line import Cli, work

MANY = "9" * 20
LONG = "x" * 60_000


@pytest.mark.parametrize(
    "words",
    ["log 1411 --after", "show 1411 --last", "output 1411 --attempt", "context 1411 --tokens", "saves 1411 --last",
     "fork 1411 --at", "resume --all --jobs", "run --restarts"],
)  # fmt: skip
@pytest.mark.parametrize("number", [MANY, f"-{MANY}"])
def test_a_number_that_nothing_can_hold_is_refused(cli: Cli, words: str, number: str) -> None:
    work()
    answer = cli(*words.split(" ")[:-1], f"{words.split(' ')[-1]}={number}")
    assert (answer.code, len(answer.err.splitlines())) == (2, 2), answer.err
    assert "must be at most 9,007,199,254,740,991" in answer.err


@pytest.mark.parametrize("file", ["outlast.toml", "config.toml", "outward.toml"])
@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "# " + "x" * (2 << 20)], ids=["deep", "long"])
def test_a_settings_file_that_is_too_deep_or_too_long_is_refused(cli: Cli, file: str, text: str) -> None:
    own = cli.isolated.config_home / "outlast"
    own.mkdir(parents=True, exist_ok=True)
    path = cli.folder / file if file == "outlast.toml" else own / file
    path.write_text(text)
    answer = cli.forked("run", "--guard", "--task", "t", "--", "true")
    is_read = file != "outward.toml" or text.startswith("a")  # of classes a long comment is no harm
    assert (answer.code, path.name in answer.err) == ((2, True) if is_read else (0, False)), answer.err[:400]


@pytest.mark.parametrize(
    "words",
    [["show", LONG], [LONG], ["show", "1411", "--last", LONG], ["diff", LONG, "1411@1"], ["fork", "1411", "--at", LONG],
     ["config", "--store", LONG], ["run", "--task", LONG, "--", "true"]],
    ids=["run", "command", "number", "save", "beat", "store", "task"],
)  # fmt: skip
def test_a_word_that_goes_on_for_pages_is_not_echoed_whole(cli: Cli, words: list[str]) -> None:
    work()
    answer = cli.forked(*words)
    assert answer.code == 2, answer.err[:300]
    assert len(answer.err) < 5000


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('run_guard = "true"', "run_guard = 'true' is invalid"),
        ("run_guard = 1", "run_guard = 1 is invalid"),
        ('idle_s = "30"', "idle_s = '30' is invalid"),
        ("key_ttl_s = 1.5", "key_ttl_s = 1.5 is invalid"),
        ("warn_at = 75", "warn_at = 75 is invalid"),
        ("idle_s = true", "idle_s = True is invalid"),
    ],
)
def test_a_setting_of_another_type_is_refused(cli: Cli, written: str, said: str) -> None:
    (cli.folder / "outlast.toml").write_text(written)
    assert said in cli("config").complaint


def test_a_whole_number_is_good_for_seconds_and_variables_are_texts(cli: Cli) -> None:
    (cli.folder / "outlast.toml").write_text("idle_s = 30\n[run]\nguard = true\n")
    found = {each["name"]: each["value"] for each in cli("config", "--json", OUTLAST_LEASE_S="45").json}
    assert (found["idle_s"], found["run_guard"], found["lease_s"]) == (30, True, 45)


def test_the_command_that_settles_can_be_pasted(cli: Cli) -> None:
    run = work(beats=2, doubt_at=2)
    answer = cli("report", "--json")
    command = next(row["command"] for row in json.loads(answer.out)["runs"] if row["run"] == run)
    assert command == f"outlast settle {run} 2.1"
    asked = cli(*command.split(" ")[1:])
    assert asked.code == 2
    assert "--happened --did-not" in asked.err


def test_a_resume_that_would_only_stop_again_says_so_beforehand(cli: Cli) -> None:
    run = work(beats=2, doubt_at=2)
    before = cli.rows()
    answer = cli("resume", run, "--dry-run")
    assert answer.code == 3
    assert f"`outlast settle {run} 2.1 --happened` or `outlast settle {run} 2.1 --did-not`" in answer.out
    assert "goes on at beat" not in answer.out
    assert cli.rows() == before
    assert "goes on at beat" not in cli("resume", run).err


@pytest.mark.parametrize("word", ["step", "effect"])
def test_a_call_without_a_command_is_invalid(cli: Cli, word: str) -> None:
    answer = cli(word, "name")
    assert (answer.code, answer.complaint) == (2, "no command to run")


def test_what_a_first_run_in_the_background_makes_is_for_its_user_alone(cli: Cli) -> None:
    assert not cli.root.exists()
    assert (
        cli.program(sys.executable, "-m", "outlast", "run", "--detach", "--task", "t", "--", "true").code == 0
    )
    made = [path for path in (cli.root, *cli.root.iterdir()) if path.is_dir()]
    assert made
    assert [path for path in made if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
