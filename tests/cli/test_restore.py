"""`outlast restore`, `fork --files` and `bisect`: files come back exactly, and nothing else is touched."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.saved_tree import Tree, files, work
from tests.support.commands import Answer
from tests.support.environment import TIMEOUT_S
from tests.support.sweeps import Sweep

# -- restore ----------------------------------------------------------------------------------------------------------


def test_restore_brings_files_and_index_back_and_says_how_to_undo_it(tree: Tree) -> None:
    tree.write(changed="staged\n")
    tree.git("add", "changed")
    tree.write(changed="two\n", untracked="mine\n")
    wanted, status = files(tree.folder), tree.git("status", "--porcelain")
    first = tree.save()
    tree.git("add", ".")
    tree.write(changed="later\n", later="x\n")
    (tree.folder / "untracked").unlink()
    after = files(tree.folder)
    said = tree.cli.ok("restore", first[:8])
    assert (files(tree.folder), tree.git("status", "--porcelain")) == (wanted, status)
    assert said.out.splitlines() == ["D  later", "W  changed", "W  untracked"]
    (undo,) = re.findall(r"`outlast restore (\w+)`", said.err)
    tree.cli.ok("restore", undo)
    assert files(tree.folder) == after


def test_a_dry_run_says_what_would_be_and_changes_nothing(tree: Tree, tmp_path: Path) -> None:
    tree.write(changed="two\n")
    first = tree.save()
    tree.write(changed="three\n", later="x\n")
    before, refs = (files(tree.folder), tree.state()), tree.git("for-each-ref")
    said = tree.cli.ok("restore", first, "--dry-run", "--json").json
    assert (said["written"], said["deleted"], said["before"], said["dry_run"]) == (
        ["changed"],
        ["later"],
        None,
        True,
    )
    said = tree.cli.ok("restore", first, "--dry-run", "--json", "--to", tmp_path / "new").json
    assert said["written"] == ["changed", "deleted", "kept"]
    assert not (tmp_path / "new").exists()
    assert ((files(tree.folder), tree.state()), tree.git("for-each-ref")) == (before, refs)


def test_a_save_goes_into_a_new_folder_and_nowhere_else(tree: Tree) -> None:
    tree.write(changed="two\n", untracked="mine\n")
    first, wanted, before = tree.save(), files(tree.folder), tree.state()
    said = tree.cli.ok("restore", first, "--to", "../new", "--json").json
    new = tree.folder.parent / "new"
    assert (said["folder"], said["new"], said["before"]) == (str(new), True, None)
    assert files(new) == wanted
    assert tree.state() == before
    assert "not empty" in tree.cli("restore", first, "--to", "../new").complaint
    (tree.folder.parent / "link").symlink_to(tree.folder.parent / "elsewhere")
    assert tree.cli("restore", first, "--to", "../link").code == 2, "whoever put a link there gains nothing"
    assert not (tree.folder.parent / "elsewhere").exists()


def test_names_of_any_bytes_are_compared_and_brought_back(tree: Tree) -> None:
    name = os.fsencode(tree.folder) + b"/\xff\n\x1b[31m"
    with open(name, "wb") as file:
        file.write(b"\xff\0\x1b[31m\n")
    first = tree.save()
    os.unlink(name)
    shown = "\ufffdff\n\x1b[31m"
    assert tree.cli.ok("diff", first, "--json").json["files"][0]["path"] == shown
    assert tree.cli.ok("restore", first, "--json", "--dry-run").json["written"] == [shown]
    assert "\x1b" not in tree.cli.ok("restore", first).out
    with open(name, "rb") as file:
        assert file.read() == b"\xff\0\x1b[31m\n"


def test_secrets_come_back_only_when_asked_for(tree: Tree) -> None:
    tree.write(changed="two\n", **{".env": "PASSWORD=x\n"})
    first = tree.save()
    (tree.folder / ".env").unlink()
    tree.cli.ok("restore", first)
    assert not (tree.folder / ".env").exists()
    foreseen = tree.cli.ok("restore", first, "--with-secrets", "--dry-run", "--json").json
    assert (foreseen["secrets"], (tree.folder / ".env").exists()) == ([".env"], False)
    assert tree.cli.ok("restore", first, "--with-secrets", "--json").json["secrets"] == [".env"]
    assert (tree.folder / ".env").read_text() == "PASSWORD=x\n"


def test_secrets_come_into_a_new_folder_too_with_their_own_mode(tree: Tree) -> None:
    tree.write(changed="two\n", **{".env": "PASSWORD=x\n", "id_rsa": "hush\n"})
    (tree.folder / ".env").chmod(0o640)
    (tree.folder / "id_rsa").chmod(0o600)
    (tree.folder / "deep").mkdir()
    (tree.folder / "deep/.env.local").symlink_to("../.env")
    first = tree.save()
    new = tree.folder.parent / "new"
    words = ("restore", first, "--to", new, "--with-secrets")
    kept = [".env", "deep/.env.local", "id_rsa"]
    assert tree.cli.ok(*words, "--dry-run", "--json").json["secrets"] == kept
    assert "secret would be restored: .env\n" in tree.cli.ok(*words, "--dry-run").err
    assert not new.exists()
    before = tree.state(), files(tree.folder)
    said = tree.cli.ok(*words)
    assert "secret restored: id_rsa\n" in said.err
    assert "kept apart" not in said.err
    assert files(new) == files(tree.folder)
    assert [(new / name).stat().st_mode & 0o777 for name in (".env", "id_rsa")] == [0o640, 0o600]
    assert os.readlink(new / "deep/.env.local") == "../.env"
    assert (tree.state(), files(tree.folder)) == before
    assert not (new.parent / "other").exists()
    tree.cli.ok("restore", first, "--to", "../other")
    assert not (new.parent / "other/.env").exists()


def test_secrets_are_found_from_any_worktree_and_missed_before_anything_is_made(tree: Tree) -> None:
    tree.git("checkout", "-q", "--detach")  # a branch could be in one worktree only
    tree.write(**{".env": "PASSWORD=x\n"})
    first = tree.save()
    other = replace(tree.cli, folder=tree.folder.parent / "other")
    tree.git("worktree", "add", "-q", other.folder)
    other.ok("restore", first, "--to", "../new", "--with-secrets")
    assert (tree.folder.parent / "new/.env").read_text() == "PASSWORD=x\n"
    other.ok("restore", first, "--workspace", other.folder, "--with-secrets")
    assert (other.folder / ".env").read_text() == "PASSWORD=x\n"
    for place in (tree.cli.root / "workspaces").glob("*/secrets.git"):
        shutil.rmtree(place)
    answer = tree.cli("restore", first, "--to", "../late", "--with-secrets")
    assert "the secret .env of the save" in answer.complaint
    assert not (tree.folder.parent / "late").exists()
    tree.write(changed="two\n")
    for more in ([], ["--dry-run"]):
        assert "the secret .env of the save" in tree.cli("restore", first, "--with-secrets", *more).complaint
    assert (tree.folder / "changed").read_text() == "two\n"


def test_a_branch_that_moved_on_is_moved_back_only_by_force(tree: Tree) -> None:
    tree.write(changed="two\n")
    first, head = tree.save(), tree.git("rev-parse", "HEAD").strip()
    tree.git("commit", "-qam", "second")
    later = tree.git("rev-parse", "HEAD").strip()
    answer = tree.cli("restore", first)
    assert (answer.code, "has moved on" in answer.complaint) == (3, True)
    assert tree.git("rev-parse", "HEAD").strip() == later
    tree.cli.ok("restore", first, "--force")
    assert tree.git("rev-parse", "HEAD").strip() == head
    assert later in tree.git("for-each-ref", "refs/outlast", "--format=%(objectname)").split()
    assert tree.cli.ok("saves").out
    assert tree.cli.ok("save").out  # the commits that are kept are no saves, and nobody takes them for some


def test_after_a_restore_git_sees_what_was_changed_in_the_second_of_its_adding(tree: Tree) -> None:
    """Git trusts an entry that is older than the index file, and compares whole seconds."""
    tree.git("config", "core.trustctime", "false")  # nobody can set the ctime of a file
    now = int(time.time()) - 5
    for name in ("changed", ".git/index"):
        os.utime(tree.folder / name, (now, now))
    tree.git("add", "--refresh", ".")
    os.utime(tree.folder / ".git/index", (now, now))
    tree.write(changed="two\n")
    os.utime(tree.folder / "changed", (now, now))
    first = tree.save()
    tree.git("commit", "-qm", "all", "changed")
    tree.cli.ok("restore", first, "--force")
    assert tree.git("status", "--porcelain") == " M changed\n"
    assert tree.cli.ok("save").out


def test_a_save_of_another_worktree_is_not_put_here_by_mistake(tree: Tree) -> None:
    other = replace(tree.cli, folder=tree.folder.parent / "other")
    tree.git("worktree", "add", "-q", other.folder)
    (other.folder / "changed").write_text("elsewhere\n")
    first = other.ok("save", "--json").json["commit"]
    answer = tree.cli("restore", first)
    assert f"was made of {other.folder}" in answer.complaint
    (other.folder / "changed").write_text("lost\n")
    tree.cli.ok("restore", first, "--workspace", other.folder)
    assert (other.folder / "changed").read_text() == "elsewhere\n"
    assert (tree.folder / "changed").read_text() == "one\n"


LIVE = """
import sys
from pathlib import Path
import outlast

with outlast.run("1411", workspace=".") as run:
    run.plan(["one", "two"])
    for beat in run.beats():
        Path("changed").write_text(f"{beat.number}\\n")
        print("working", flush=True)
        sys.stdin.readline()
        beat.done()
"""


@pytest.fixture
def live(tree: Tree) -> Iterator["subprocess.Popen[str]"]:
    with tree.cli.started(sys.executable, "-c", LIVE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        yield process


def test_nothing_is_restored_under_a_living_agent(tree: Tree, live: "subprocess.Popen[str]") -> None:
    first = tree.save()
    answer = tree.cli("restore", first)
    assert f"is held by pid {live.pid}" in answer.complaint
    assert "`outlast pause " in answer.err
    tree.cli.ok("restore", first, "--to", "../new")
    tree.cli.ok("restore", first, "--force")
    os.kill(live.pid, signal.SIGKILL)
    live.wait(TIMEOUT_S)
    tree.cli.ok("restore", first)


# -- a run and its beats ----------------------------------------------------------------------------------------------


def test_a_beat_is_brought_back_by_its_number(tree: Tree) -> None:
    run = work(tree)
    tree.cli.ok("restore", "1411@2")
    assert (tree.folder / "beat").read_text() == "2\n"
    tree.cli.ok("restore", f"{run}@0")
    assert not (tree.folder / "beat").exists()
    tree.cli.ok("restore", "1411")
    assert (tree.folder / "beat").read_text() == "5\n"  # the newest of its saves, not what a restore replaced
    assert tree.cli.ok("diff", "1411@3", "1411@4", "--name-only").out == "beat\nhealth\n"
    elsewhere = replace(tree.cli, folder=tree.folder.parent / "elsewhere")
    elsewhere.folder.mkdir()
    elsewhere.ok("restore", f"{run}@1")
    assert (tree.folder / "beat").read_text() == "1\n"


def test_a_fork_gets_the_files_of_its_beat_and_goes_on_there(tree: Tree) -> None:
    work(tree, until=4)
    new = tree.folder.parent / "again"
    said = tree.cli.ok("fork", "1411", "--at", "2", "--to", new, "--task", "again", "--json").json
    assert said["workspace"] == str(new)
    assert (new / "beat").read_text() == "2\n"
    again = tree.cli.ok("fork", "1411", "--at", "2", "--to", new, "--task", "again", "--json").json
    assert (again["run"], again["made"]) == (said["run"], False)
    forked = Tree(replace(tree.cli, folder=new))
    assert work(forked, "again", breaks_at=9) == said["run"]
    assert (new / "health").read_text() == "fine\n"
    assert (tree.folder / "beat").read_text() == "4\n"
    tree.cli.ok("restore", "again@3")
    assert (new / "beat").read_text() == "3\n"
    assert "not empty" in tree.cli("fork", "1411", "--at", "1", "--to", new, "--yes").complaint


def test_a_fork_with_files_killed_at_any_crash_point_ends_right_when_repeated(
    tree: Tree, sweep: Sweep
) -> None:
    work(tree, until=3)
    for nth in sweep:
        new = tree.folder.parent / f"again-{nth}"
        words = ("fork", "1411", "--at", "2", "--to", new, "--task", f"again-{nth}", "--json")
        died = tree.cli.killed_at(nth, *words)
        said = tree.cli.ok(*words).json
        assert (new / "beat").read_text() == "2\n", f"killed at crash point {nth}"
        log = tree.cli.ok("log", said["run"]).out
        assert log.count("forked after beat 2") == 1, f"killed at crash point {nth}"
        sweep.met(died)


# -- bisect -----------------------------------------------------------------------------------------------------------


def bisect(tree: Tree, *command: str) -> Answer:
    answer = tree.cli("bisect", "1411", "--json", "--", *command)
    assert tree.git("worktree", "list").count("\n") == 1
    return answer


def test_bisect_finds_the_first_beat_that_fails(tree: Tree) -> None:
    work(tree, beats=12, breaks_at=9)
    before = files(tree.folder), tree.state()
    said = bisect(tree, "grep", "-q", "fine", "health").json
    assert (said["outcome"], said["beat"], said["step"], said["good"]) == ("found", 9, "step 9", 8)
    assert len(said["probes"]) <= 6
    assert tree.git("show", f"{said['save']}:beat") == "9\n"
    assert (files(tree.folder), tree.state()) == before
    answer = tree.cli.ok("bisect", "1411", "--", "grep", "-q", "fine", "health")
    assert answer.out.split()[:2] == ["9", said["save"][:12]]


@pytest.mark.parametrize(
    ("script", "code", "outcome", "beat"),
    [
        ("true", 1, "never", None),
        ("false", 0, "first", 1),
        ("test ! -e beat", 0, "found", 1),
        ("case $OUTLAST_BISECT_BEAT in 3) exit 125;; esac; grep -q fine health", 1, "unclear", 4),
        ("case $OUTLAST_BISECT_BEAT in 2) exit 125;; esac; grep -q fine health", 0, "found", 4),
        ("exit 125", 1, "unclear", None),
    ],
)
def test_bisect_says_what_it_can(tree: Tree, script: str, code: int, outcome: str, beat: int | None) -> None:
    work(tree)
    answer = bisect(tree, "sh", "-c", script)
    assert (answer.code, answer.json["outcome"], answer.json["beat"]) == (code, outcome, beat)


def test_bisect_stops_when_the_command_itself_is_broken(tree: Tree) -> None:
    work(tree)
    for command, said in (
        (["sh", "-c", "exit 127"], "ended with 127 at beat 5"),
        (["sh", "-c", "exit 130"], "ended with 130 at beat 5"),
        (["sh", "-c", "kill -9 $$"], "was killed by signal 9 at beat 5"),
        (["no-such-program"], "cannot be run"),
    ):
        answer = bisect(tree, *command)
        assert (answer.code, said in answer.complaint) == (2, True), answer.err
