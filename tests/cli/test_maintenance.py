import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import apsw

import outlast
from outlast.cli.commands.completion import _subcommands
from outlast.cli.main import parser
from tests.cli.command_line import Cli, LiveAgent, work
from tests.support.environment import TIMEOUT_S, need_tool
from tests.support.sweeps import Sweep


def payloads(cli: Cli) -> list[Path]:
    return sorted((cli.root / "blobs").glob("??/*"))


def grow_old(cli: Cli) -> None:
    """Payloads are spared while they are young."""
    long_ago = time.time() - 7200
    for path in payloads(cli):
        os.utime(path, (long_ago, long_ago))


# -- gc ----------------------------------------------------------------------------------------------------------------


def test_gc_forgets_closed_runs_that_rested_and_nothing_else(cli: Cli) -> None:
    done = work("done", act=lambda **given: f"{given['issue']}" * 9_000)
    work("open", beats=2, act=lambda **given: f"{given['issue']}." * 9_000)
    work("doubt", beats=2, doubt_at=2)
    kept = cli.show("open")
    before = cli.rows()
    assert cli.ok("gc", "--older-than", "1h", "--json").json["runs"] == []
    assert cli.ok("gc", "--older-than", "0s", "--dry-run").out.split() == [done, "done"]
    assert cli.rows() == before
    assert len(payloads(cli)) == 7
    collected = cli.ok("gc", "--older-than", "0s", "--json").json
    assert (collected["runs"], collected["blobs"]) == ([done], 0)
    grow_old(cli)
    assert cli.ok("gc", "--older-than", "0s", "--json").json["blobs"] == 5
    assert [run["task"] for run in cli.ok("ls", "--json").json] == ["doubt", "open"]
    assert cli.show("open") == kept
    assert not list((cli.root / "runs").glob(f"{done}.*"))


def test_gc_takes_its_default_age_from_the_settings(cli: Cli) -> None:
    run = work()
    assert cli.ok("gc", "--json").json["runs"] == []
    (cli.isolated.config_home / "outlast").mkdir()
    (cli.isolated.config_home / "outlast/config.toml").write_text('gc_older_than = "0s"')
    assert cli.ok("gc", "--json").json["runs"] == [run]


def test_gc_killed_anywhere_is_ended_by_the_same_command(cli: Cli, tmp_path: Path, sweep: Sweep) -> None:
    work("one", act=lambda **given: f"{given['issue']}" * 9_000)
    work("two")
    kept = work("open", beats=1, act=lambda **given: f"{given['issue']}." * 9_000)
    grow_old(cli)
    for nth in sweep:
        world = cli.copied(tmp_path / str(nth))
        died = world.killed_at(nth, "gc", "--older-than", "0s")
        if died:
            world.forked("gc", "--older-than", "0s")
        assert world.tasks() == ["open"], f"killed at crash point {nth}"
        assert len(payloads(world)) == 1, f"killed at crash point {nth}"
        locks = {path.stem for path in (world.root / "runs").iterdir()}
        assert locks == {kept}, f"killed at crash point {nth}"
        sweep.met(died)
    assert sweep.total > 6


# -- config and doctor -------------------------------------------------------------------------------------------------


def test_config_names_the_origin_of_every_value(cli: Cli) -> None:
    (cli.isolated.config_home / "outlast").mkdir()
    own = cli.isolated.config_home / "outlast/config.toml"
    own.write_text("lease_s = 60\nkey_ttl_s = 50\n")
    (cli.folder / "outlast.toml").write_text("key_ttl_s = 6\n")
    found = {each["name"]: each for each in cli.ok("config", "--json", "--store", "here").json}
    assert (found["lease_s"]["value"], found["lease_s"]["origin"]) == (60, str(own))
    assert (found["key_ttl_s"]["value"], found["key_ttl_s"]["origin"]) == (
        6,
        str(cli.folder / "outlast.toml"),
    )
    assert (found["store"]["value"], found["store"]["origin"]) == ("here", "flag")
    assert found["gateway"]["origin"] == "default"
    answer = cli("config", OUTLAST_LEASE_S="45")
    line = next(line for line in answer.out.splitlines() if line.startswith("lease_s"))
    assert line.split()[1:3] == ["45", "OUTLAST_LEASE_S"]
    assert not (cli.folder / "here").exists()


def test_doctor_is_content_with_a_sound_store(cli: Cli) -> None:
    assert cli.ok("doctor").code == 0
    assert not cli.root.exists()
    work(beats=2)
    found = cli.ok("doctor", "--json").json
    assert {"versions", "platform", "git", "store", "file system", "free space", "permissions", "schema",
            "integrity", "runs"} <= {each["what"] for each in found}  # fmt: skip
    assert all(set(each) == {"level", "what", "text", "hint"} for each in found)
    assert not any(each["level"] == "person" for each in found)


def test_doctor_sends_for_a_person_when_an_effect_is_in_doubt(cli: Cli) -> None:
    run = work(beats=2, doubt_at=2)
    answer = cli("doctor")
    assert answer.code == 3
    assert f"outlast settle {run} 2.1" in answer.out
    cli.ok("settle", "1411", "2.1", "--did-not")
    cli.ok("doctor")


def test_doctor_finds_a_damaged_page(cli: Cli) -> None:
    work(act=lambda **given: f"{given['issue']}" * 3_000)
    database = cli.root / "outlast.db"
    _checkpoint(database)
    data = bytearray(database.read_bytes())
    page = 4096
    for start in range(2 * page, len(data), page):
        data[start : start + 64] = b"\xff" * 64
    database.write_bytes(data)
    content = database.read_bytes()
    answer = cli("doctor")
    assert (answer.code, "NEEDS A PERSON integrity: " in answer.out) == (3, True)
    assert database.read_bytes() == content


def _checkpoint(database: Path) -> Path:
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return database


def test_doctor_says_what_to_do_about_a_run_that_a_backup_does_not_know(cli: Cli, tmp_path: Path) -> None:
    work("old")
    backup = shutil.copy(_checkpoint(cli.root / "outlast.db"), tmp_path)
    lost = work("new")
    for path in cli.root.glob("outlast.db*"):
        path.unlink()
    shutil.copy(backup, cli.root / "outlast.db")
    answer = cli("doctor")
    assert answer.code == 3
    assert f"run {lost} is lost as a whole" in answer.out
    assert "--accept-rewind" not in answer.out
    for command in re.findall(r"`(rm .*?)`", answer.out):
        assert str(cli.root) in command
        subprocess.run(shlex.split(command), check=True)
    assert not list((cli.root / "runs").glob(f"{lost}.*"))
    cli.ok("doctor")
    assert work("new") != lost


def test_doctor_is_not_alarmed_by_what_is_acknowledged_while_it_looks(cli: Cli) -> None:
    with outlast.run("busy") as run, cli.started(sys.executable, "-c", LOOKS) as doctor:
        for beat in run.beats():
            beat.done()
            if doctor.poll() is not None:
                break
        assert doctor.stdout is not None
        assert doctor.stdout.read() == "[]\n"


LOOKS = """
from outlast.store import locate
looked = [locate().examine() for _ in range(200)]
print([found for found in looked if found.missing is not None or found.rewound or found.lost])
"""


def test_doctor_warns_when_others_can_look_in(cli: Cli) -> None:
    work(beats=1)
    cli.root.chmod(0o755)
    answer = cli.ok("doctor")
    assert "warn  permissions: others can look into" in answer.out


def test_doctor_warns_of_a_store_that_does_not_outlive_a_reboot(cli: Cli) -> None:
    shm = Path("/dev/shm")
    folder = shm / f"outlast-test-{os.getpid()}"
    try:
        answer = cli("doctor", "--store", _made(cli, folder))
        if "tmpfs" in _fs(folder):
            assert "gone after a reboot" in answer.out
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made(cli: Cli, folder: Path) -> Path:
    work(beats=1, store=folder)
    return folder


def _fs(folder: Path) -> str:
    return subprocess.run(
        ["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True
    ).stdout


# -- help, version, completion -----------------------------------------------------------------------------------------


def test_every_command_has_a_help_with_an_example(cli: Cli) -> None:
    names = []
    for name, text, command in _subcommands(parser()):
        help_text = command.format_help()
        assert text, name
        if name not in ("demo", "chaos"):
            assert f"example: outlast {name}" in help_text, name
        assert "--store" in help_text, name
        names.append(name)
    assert len(names) == len(set(names)) >= 17
    answer = cli.ok("show", "--help")
    assert "example: outlast show 1411" in answer.out
    assert "__complete" not in cli.ok("--help").out


def test_version_is_quick_and_loads_nothing_heavy(cli: Cli) -> None:
    assert cli.ok("--version").out.startswith("outlast ")
    script = (
        "import sys\nfrom outlast.cli.main import main\ntry: main(['--version'])\nexcept SystemExit: pass\n"
    )
    script += (
        "print([name for name in ('apsw', 'tarfile', 'outlast.cli.commands.show') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=cli.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_options_may_stand_before_or_after_the_command(cli: Cli, tmp_path: Path) -> None:
    run = work(beats=1, store=tmp_path / "there")
    assert cli.ok("--store", tmp_path / "there", "show", "1411", "--json").json["run"] == run
    assert cli.ok("show", "1411", "--json", "--store", tmp_path / "there").json["run"] == run
    assert cli("show", "1411", "--json", OUTLAST_STORE=str(tmp_path / "there")).json["run"] == run


def complete_in_bash(cli: Cli, line: str) -> list[str]:
    """What a real bash offers after this line, as its completion function leaves it."""
    words = line.split(" ")
    script = f"""
    outlast() {{ {shlex.quote(sys.executable)} -m outlast "$@"; }}
    source <(outlast completion bash)
    COMP_WORDS=({" ".join(f"'{word}'" for word in words)}) COMP_CWORD={len(words) - 1}
    _outlast
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        [need_tool("bash"), "-uc", script],
        cwd=cli.folder, env=cli.environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [word for word in done.stdout.splitlines() if word]


def test_bash_completes_commands_options_and_runs(cli: Cli) -> None:
    run = work("1411", beats=1)
    work("14 spaced", beats=1)
    work("$(touch pwned)", beats=1)
    work("`touch pwned`;touch pwned", beats=1)
    assert complete_in_bash(cli, "outlast sh") == ["shell-init", "show"]
    assert complete_in_bash(cli, "outlast sa") == ["save", "saves"]
    assert complete_in_bash(cli, "outlast settle 1411 1.1 --h") == ["--help", "--happened"]
    assert complete_in_bash(cli, "outlast show 14") == ["14\\ spaced", "1411"]
    assert complete_in_bash(cli, f"outlast pause {run[:5]}") == [run]
    assert complete_in_bash(cli, "outlast completion ") == ["bash", "zsh", "fish"]
    assert len(complete_in_bash(cli, "outlast show ")) == 4
    assert not (cli.folder / "pwned").exists()


def test_completion_never_complains(cli: Cli) -> None:
    assert complete_in_bash(cli, "outlast show ") == []
    assert not cli.root.exists()


def test_zsh_and_fish_accept_their_scripts(cli: Cli) -> None:
    for shell in ("zsh", "fish"):
        script = cli.ok("completion", shell).out
        assert "__complete" in script
        program = shutil.which(shell)
        if program is not None:
            done = subprocess.run(
                [program, "-n"], input=script, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
            assert (done.returncode, done.stderr) == (0, "")


def test_a_living_run_is_not_collected(cli: Cli, agent: LiveAgent) -> None:
    assert cli.ok("gc", "--older-than", "0s", "--json").json["runs"] == []
    agent.go_on()
    agent.wait_for("acting 2")
