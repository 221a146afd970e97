"""`doctor --all` finds what is wrong with events, payloads, saves and permissions; `--repair` puts back what can be."""

import contextlib
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from tests.cli.command_line import Cli, work
from tests.conftest import Nobody
from tests.support.vaults import vault_of


@contextlib.contextmanager
def database(cli: Cli) -> Iterator[apsw.Connection]:
    with contextlib.closing(apsw.Connection(str(cli.root / "outlast.db"))) as connection:
        yield connection


def found(cli: Cli, *words: str) -> list[str]:
    """What needs a person, as lines; the exit code says the same."""
    answer = cli("doctor", *(words or ("--all",)), "--json")
    lines = [f"{each['what']}: {each['text']}" for each in answer.json if each["level"] == "person"]
    assert answer.code == (3 if lines else 0), answer.err
    return lines


def repaired(cli: Cli) -> list[str]:
    said = cli("doctor", "--repair", "--json").json
    return [each["text"] for each in said if each["what"] == "repaired"]


@pytest.fixture
def saved(cli: Cli) -> Cli:
    """A run whose agent wrote a file in a repository, and another run."""
    subprocess.run(["git", "init", "-q"], cwd=cli.folder, check=True, env=cli.environ)
    cli.ok("run", "--task", "saved", "--", "sh", "-c", "echo x > b")
    cli.ok("run", "--task", "other", "--", "true")
    return cli


def test_a_whole_store_is_read_whole_and_called_well(cli: Cli) -> None:
    work(act=lambda **given: f"{given['issue']}" * 9_000)
    answer = cli.ok("doctor", "--all")
    assert re.search(r"ok    journals: \d+ events of 1 run read, flaws in 0 runs\n", answer.out), answer.out
    assert "ok    payloads: 5 of 5 are whole\n" in answer.out
    assert repaired(cli) == []


def test_a_damaged_head_costs_nobody_anything_and_is_made_again(cli: Cli) -> None:
    one, two = work("one"), work("two", beats=2)
    before = cli.ok("ls", "--all", "--json").json
    with database(cli) as db:
        db.execute("UPDATE heads SET state = substr(state, 1, 40) || x'80' || substr(state, 42) WHERE id = 1")
    assert cli.ok("ls", "--all", "--json").json == before
    assert cli("report").code == 0
    assert found(cli) == [f"head: run {one} (one): its stored head does not equal its events"]
    assert [line.partition(":")[0] for line in repaired(cli)] == [f"run {one} (one)"]
    assert found(cli) == []
    assert cli.ok("ls", "--all", "--json").json == before
    assert two


def test_events_filed_wrongly_are_filed_again(cli: Cli) -> None:
    run = work()
    with database(cli) as db:
        db.execute("UPDATE events SET kind = 'warned' WHERE kind = 'decided'")
    assert len(found(cli)) > 3
    assert [line for line in repaired(cli) if "filed again" in line] == [
        f"run {run} (1411): 5 events filed again"
    ]
    assert found(cli) == []


def test_a_damaged_event_is_named_stays_one_runs_and_cannot_be_repaired(cli: Cli) -> None:
    one, _ = work("one"), work("two", beats=2)
    with database(cli) as db:
        db.execute(
            "UPDATE events SET data = CAST(replace(CAST(data AS TEXT), 'Trap', 'Drap') AS BLOB) WHERE run = 1 AND seq = 1"
        )
    assert found(cli, "--repair") == [f"journal: run {one} (one): event 1 is damaged"]
    with database(cli) as db:
        db.execute("DELETE FROM events WHERE run = 1 AND seq = 3")
    assert f"journal: run {one} (one): events 3 to 3 are missing" in found(cli)
    assert "two" in cli.ok("ls", "--all").out


def test_an_event_without_a_checksum_is_counted_and_not_called_damaged(cli: Cli) -> None:
    work()
    with database(cli) as db:
        rows: list[Any] = db.execute("SELECT n, data FROM events").fetchall()
        for n, data in rows:
            db.execute(
                "UPDATE events SET data = ? WHERE n = ?", (re.sub(rb',"sum":"[0-9a-f]{8}"}$', b"}", data), n)
            )
    said = cli.ok("doctor", "--all").out
    assert f"{len(rows)} events without a checksum, from an older outlast" in said


def test_a_payload_that_is_missing_or_damaged_is_named(cli: Cli) -> None:
    run = work(act=lambda **given: f"{given['issue']}" * 9_000)
    one, two, *_ = sorted((cli.root / "blobs").glob("??/*"))
    one.unlink()
    two.chmod(0o600)
    two.write_bytes(two.read_bytes()[:-1] + b"!")
    wanted = {
        f"payload: run {run} (1411): payload {path.name[:16]} is missing or damaged" for path in (one, two)
    }
    assert set(found(cli, "--repair")) == wanted


def test_a_ref_that_was_pruned_is_put_back(saved: Cli) -> None:
    def refs() -> dict[str, str]:
        lines = subprocess.run(
            ["git", f"--git-dir={vault_of(saved.folder)}", "for-each-ref", "--format=%(refname) %(objectname)", "refs/outlast/"],
            check=True, capture_output=True, text=True,
        ).stdout.splitlines()  # fmt: skip
        return dict(line.split() for line in lines)

    assert found(saved) == []
    before = refs()
    assert before
    for name in before:
        subprocess.run(["git", f"--git-dir={vault_of(saved.folder)}", "update-ref", "-d", name], check=True)
    assert any("no ref keeps its newest save" in line for line in found(saved))
    assert any("keeps its newest save" in line for line in repaired(saved))
    assert found(saved) == []
    assert set(refs().values()) <= set(before.values())
    assert refs()


def test_a_save_that_is_gone_is_named(saved: Cli) -> None:
    shutil.rmtree(vault_of(saved.folder) / "objects/pack")
    assert any("is not in" in line for line in found(saved, "--repair"))


def test_what_others_can_look_into_is_closed(cli: Cli) -> None:
    work()
    cli.root.chmod(0o755)
    (cli.root / "outlast.db").chmod(0o644)
    assert any("others can look into" in line for line in found(cli))
    assert any("closed to other users" in line for line in repaired(cli))
    assert found(cli) == []
    assert stat.S_IMODE(cli.root.stat().st_mode) == 0o700


def test_a_database_that_was_deleted_is_not_called_empty(cli: Cli) -> None:
    work()
    for path in cli.root.glob("outlast.db*"):
        path.unlink()
    for words in (["ls"], ["ls", "--all"], ["show", "1411"], ["report"], ["resume", "--all"]):
        answer = cli(*words)
        assert answer.code != 0, words
        assert "is gone, and" in answer.complaint, words
    assert any("is gone, and" in line for line in found(cli))
    mark = cli.root / "mark"
    assert f"rm {mark}" in cli("ls").err
    mark.unlink()
    assert cli.ok("ls").out == ""


COMMANDS = (
    "ls --all", "show t1", "doctor", "doctor --all", "doctor --repair", "report", "effects t1", "log t1", "output t1", "budget t1",
    "resume t1", "resume --all", "pause t1", "cancel t1", "settle t1 1.1 --happened", "fork t1 --at 0 --task b", "saves",
    "restore t1 --dry-run", "export t1", "gc --dry-run", "run --task t2 -- true", "save", "context t1", "handoff t1", "state",
)  # fmt: skip
TRY = """
import os, sys, subprocess
from pathlib import Path
mode, commands = sys.argv[1], sys.argv[2:]
run = [sys.executable, "-P", "-m", "outlast"]
subprocess.run([*run, "run", "--task", "t1", "--", "true"], check=True, capture_output=True)
root = Path(os.environ["XDG_STATE_HOME"]) / "outlast" / mode.partition(" ")[2]
root.chmod(int(mode.partition(" ")[0], 8))
for command in commands:
    done = subprocess.run([*run, *command.split()], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    if done.returncode in (70, -11) or "bug" in done.stderr or "Traceback" in done.stderr:
        print(command, done.returncode, done.stderr)
root.chmod(0o700)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["000 .", "000 outlast.db", "500 .", "000 runs", "000 blobs", "000 mark"])
def test_a_store_that_we_may_not_use_is_no_bug_of_ours(as_nobody: Nobody, mode: str) -> None:
    done = as_nobody.run([sys.executable, "-P", "-c", TRY, mode, *COMMANDS])
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
