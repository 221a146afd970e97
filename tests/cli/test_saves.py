"""The files of a workspace from the command line: real processes, real git, and what git says of it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import outlast
from tests.cli.conftest import Answer, Cli
from tests.support.environment import ROOT, TIMEOUT_S, need_tool
from tests.support.sweeps import Sweep


@dataclass(frozen=True)
class Tree:
    """A worktree and the command line in it."""

    cli: Cli

    @property
    def folder(self) -> Path:
        return self.cli.folder

    def git(self, *words: str | Path, folder: Path | None = None) -> str:
        done = subprocess.run(
            ["git", "-C", folder or self.folder, *words],
            env=self.cli.environ | {"GIT_OPTIONAL_LOCKS": "0"},  # `git status` would write the index
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def save(self, *words: str) -> str:
        commit = self.cli.ok("save", "--json", *words).json["commit"]
        assert isinstance(commit, str)
        return commit

    def state(self) -> tuple[str, ...]:
        """What saves must never touch, and what is there."""
        index = self.folder / ".git/index"
        return (
            self.git("rev-parse", "HEAD"), self.git("symbolic-ref", "HEAD"), self.git("branch", "--list"),
            self.git("stash", "list"), index.read_bytes().hex(), self.git("status", "--porcelain"),
        )  # fmt: skip


@pytest.fixture
def tree(cli: Cli) -> Tree:
    made = Tree(cli)
    made.git("init", "-q")
    made.write(kept="kept\n", changed="one\n", deleted="gone soon\n")
    made.git("add", ".")
    made.git("commit", "-qm", "first")
    return made


def work(
    tree: Tree, task: str = "1411", beats: int = 5, *, until: int | None = None, breaks_at: int = 4
) -> str:
    """A run whose every beat leaves a mark in the workspace; its id."""
    with outlast.run(task, workspace=tree.folder) as run:
        run.plan([f"step {number}" for number in range(1, beats + 1)])
        for beat in run.beats():
            if until is not None and beat.number > until:
                break
            tree.write(beat=f"{beat.number}\n", health="broken\n" if beat.number >= breaks_at else "fine\n")
            beat.done(beat.number)
    return run.id


# -- save --------------------------------------------------------------------------------------------------------------


def test_a_clean_tree_has_nothing_to_save(tree: Tree) -> None:
    said = tree.cli.ok("save", "--json").json
    assert {name: said[name] for name in ("commit", "ref", "kind", "left_out")} == {
        "commit": None, "ref": None, "kind": "manual", "left_out": [],
    }  # fmt: skip
    assert "nothing to save" in tree.cli.ok("save").err
    assert tree.git("for-each-ref", "refs/outlast") == ""


def test_a_save_holds_everything_and_touches_nothing(tree: Tree) -> None:
    tree.write(changed="staged\n")
    tree.git("add", "changed")
    tree.write(changed="two\n", untracked="new\n")
    (tree.folder / "deleted").unlink()
    before = tree.state()
    answer = tree.cli.ok("save", "-m", "a word")
    commit, ref = answer.out.split()
    assert tree.state() == before
    assert ref.startswith("refs/outlast/hand/manual/")
    assert tree.git("rev-parse", ref).strip() == commit
    assert tree.git("ls-tree", "-r", "--name-only", commit).split() == ["changed", "kept", "untracked"]
    assert tree.git("show", f"{commit}:changed") == "two\n"
    assert tree.git("show", f"{commit}^2:changed") == "staged\n"
    assert "a word" in tree.git("log", "-1", "--format=%s", commit)
    assert f"`git show --stat {commit[:12]}`" in answer.err
    assert f"`outlast restore {commit[:12]}`" in answer.err


def test_from_a_folder_below_the_whole_repository_is_saved(tree: Tree) -> None:
    below = replace(tree.cli, folder=tree.folder / "below")
    below.folder.mkdir()
    tree.write(changed="two\n")
    said = below.ok("save", "--json").json
    assert said["folder"] == str(tree.folder)
    assert tree.git("show", f"{said['commit']}:changed") == "two\n"


def test_what_is_left_out_is_said_with_the_reason(tree: Tree) -> None:
    tree.write(**{".env": "PASSWORD=x\n"})
    (tree.folder / "big.bin").write_bytes(b"\0" * 2048)
    said = tree.cli("save", "--json", OUTLAST_SAVE_BIG_FILE_BYTES="1024").json
    left = {each["path"]: each for each in said["left_out"]}
    assert set(left) == {".env", "big.bin"}
    assert left["big.bin"]["size"] == 2048
    assert "left out: .env (" in tree.cli.ok("save").err
    assert "PASSWORD" not in tree.git("log", "-p", "--all", "--format=%B")


def test_a_save_belongs_to_the_open_run_of_its_folder(tree: Tree, tmp_path: Path) -> None:
    run = work(tree, until=2)
    tree.write(changed="by hand\n")
    said = tree.cli.ok("save", "--json").json
    assert said["run"] == run
    assert said["ref"].startswith(f"refs/outlast/{run}/manual/")
    other = tmp_path / "other"
    tree.git("worktree", "add", "-q", str(other))
    (other / "changed").write_text("elsewhere\n")
    assert tree.cli.ok("save", "--json", "--workspace", str(other)).json["run"] == "hand"
    work(tree)
    assert tree.cli.ok("save", "--json").json["run"] == "hand"  # it is done now


def test_a_save_can_be_put_on_a_branch(tree: Tree) -> None:
    tree.write(changed="two\n")
    said = tree.cli.ok("save", "--branch", "--json").json
    assert said["branch"] == "outlast/hand"
    assert tree.git("show", "outlast/hand:changed") == "two\n"
    assert tree.git("symbolic-ref", "HEAD").strip() == "refs/heads/main"
    (tree.folder / "outlast.toml").write_text("[save]\nbranch = true\n")
    assert tree.cli.ok("save", "--json").json["branch"] == "outlast/hand"


def test_a_folder_without_a_repository_is_saved_and_brought_back(cli: Cli, tmp_path: Path) -> None:
    (cli.folder / "notes").write_text("one\n")
    first = cli.ok("save").out.split()[0]
    (cli.folder / "notes").write_text("two\n")
    assert "-one\n+two\n" in cli.ok("diff", first).out
    cli.ok("restore", first)
    assert (cli.folder / "notes").read_text() == "one\n"
    cli.ok("restore", first, "--to", tmp_path / "new")
    assert (tmp_path / "new/notes").read_text() == "one\n"
    assert not (cli.folder / ".git").exists()


# -- saves -------------------------------------------------------------------------------------------------------------


def test_saves_are_listed_newest_first(tree: Tree) -> None:
    tree.write(changed="two\n")
    first = tree.save("-m", "first words")
    tree.write(changed="three\n", more="x\n")
    second = tree.save()
    found = tree.cli.ok("saves", "--json").json
    assert [each["commit"] for each in found] == [second, first]
    assert [(each["kind"], each["run"], each["changed"], each["reason"]) for each in found] == [
        ("manual", "hand", 2, ""), ("manual", "hand", 1, "first words"),
    ]  # fmt: skip
    lines = tree.cli.ok("saves").out.splitlines()
    assert lines[0].split()[:3] == ["SAVE", "WHEN", "KIND"]
    assert [line.split()[0] for line in lines[1:]] == [second[:12], first[:12]]
    assert len(tree.cli.ok("saves", "--last", "1").out.splitlines()) == 2


def test_saves_of_a_run_name_its_beats_and_the_ref_that_reaches_them(tree: Tree) -> None:
    run = work(tree, beats=3)
    found = tree.cli.ok("saves", "1411", "--json").json
    beats = [each for each in found if each["kind"] == "beat" and each["reason"].startswith("beat")]
    assert [each["beat"] for each in beats] == [3, 2, 1]
    assert {each["ref"] for each in beats} == {f"refs/outlast/{run}/beat"}
    for each in found:
        tree.git("merge-base", "--is-ancestor", each["commit"], each["ref"])


def test_a_damaged_save_does_not_hide_the_others(tree: Tree) -> None:
    tree.write(changed="two\n")
    first = tree.save()
    tree.git("update-ref", "refs/outlast/hand/wrong", "HEAD")
    (tree.folder / ".git/refs/outlast/hand/torn").write_text("not an id\n")
    assert [each["commit"] for each in tree.cli.ok("saves", "--json").json] == [first]
    assert tree.cli("restore", "hand/wrong").code == 3


def test_where_nothing_was_saved_the_list_is_empty_and_nothing_is_made(cli: Cli) -> None:
    assert cli.ok("saves", "--json").json == []
    assert "no saves" in cli.ok("saves").err
    assert not cli.root.exists()


# -- diff --------------------------------------------------------------------------------------------------------------


def test_two_saves_are_compared_as_git_does(tree: Tree) -> None:
    tree.write(changed="two\n")
    first = tree.save()
    tree.write(changed="three\n", untracked="new\n")
    second = tree.save()
    said = tree.cli.ok("diff", first[:7], second[:7])
    assert said.out == tree.git("diff", "--full-index", "--no-renames", first, second)
    assert tree.cli.ok("diff", first, second, "--name-only").out == "changed\nuntracked\n"
    assert "2 files changed" in tree.cli.ok("diff", first, second, "--stat").out
    assert tree.cli.ok("diff", first, second, "--json").json["files"] == [
        {"path": "changed", "change": "changed", "lines_added": 1, "lines_deleted": 1},
        {"path": "untracked", "change": "added", "lines_added": 1, "lines_deleted": 0},
    ]


def test_what_is_there_now_is_compared_exactly_and_nothing_of_it_is_written(
    tree: Tree, tmp_path: Path
) -> None:
    tree.write(changed="two\n")
    first = tree.save()
    tree.write(changed="two\nthree\n", untracked="new\n", **{"with space": "x\n"})
    (tree.folder / "deleted").unlink()
    (tree.folder / "kept").chmod(0o755)
    (tree.folder / "link").symlink_to("changed")
    (tree.folder / "below").mkdir()
    (tree.folder / "below/deep").write_text("deep\n")
    objects = sorted((tree.folder / ".git/objects").rglob("*"))
    patch = tree.cli.ok("diff", first).out
    assert sorted((tree.folder / ".git/objects").rglob("*")) == objects
    there = tmp_path / "there"
    tree.cli.ok("restore", first, "--to", there)
    (tmp_path / "patch").write_text(patch)
    tree.git("apply", tmp_path / "patch", folder=there)
    assert _files(there) == _files(tree.folder)
    changes = {each["path"]: each["change"] for each in tree.cli.ok("diff", first, "--json").json["files"]}
    assert changes == {
        "below/deep": "added", "changed": "changed", "deleted": "deleted", "kept": "changed", "link": "added",
        "untracked": "added", "with space": "added",
    }  # fmt: skip


def _files(folder: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not name.startswith(".git") and not path.is_dir():
            data = os.readlink(path) if path.is_symlink() else path.read_text()
            found[name] = data, path.is_symlink(), bool(path.lstat().st_mode & 0o100)
    return found


# -- restore -----------------------------------------------------------------------------------------------------------


def test_restore_brings_files_and_index_back_and_says_how_to_undo_it(tree: Tree) -> None:
    tree.write(changed="staged\n")
    tree.git("add", "changed")
    tree.write(changed="two\n", untracked="mine\n")
    wanted, status = _files(tree.folder), tree.git("status", "--porcelain")
    first = tree.save()
    tree.git("add", ".")
    tree.write(changed="later\n", later="x\n")
    (tree.folder / "untracked").unlink()
    after = _files(tree.folder)
    said = tree.cli.ok("restore", first[:8])
    assert (_files(tree.folder), tree.git("status", "--porcelain")) == (wanted, status)
    assert said.out.splitlines() == ["D  later", "W  changed", "W  untracked"]
    (undo,) = re.findall(r"`outlast restore (\w+)`", said.err)
    tree.cli.ok("restore", undo)
    assert _files(tree.folder) == after


def test_a_dry_run_says_what_would_be_and_changes_nothing(tree: Tree, tmp_path: Path) -> None:
    tree.write(changed="two\n")
    first = tree.save()
    tree.write(changed="three\n", later="x\n")
    before, refs = (_files(tree.folder), tree.state()), tree.git("for-each-ref")
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
    assert ((_files(tree.folder), tree.state()), tree.git("for-each-ref")) == (before, refs)


def test_a_save_goes_into_a_new_folder_and_nowhere_else(tree: Tree) -> None:
    tree.write(changed="two\n", untracked="mine\n")
    first, wanted, before = tree.save(), _files(tree.folder), tree.state()
    said = tree.cli.ok("restore", first, "--to", "../new", "--json").json
    new = tree.folder.parent / "new"
    assert (said["folder"], said["new"], said["before"]) == (str(new), True, None)
    assert _files(new) == wanted
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
    assert "secret would be brought back: .env\n" in tree.cli.ok(*words, "--dry-run").err
    assert not new.exists()
    before = tree.state(), _files(tree.folder)
    said = tree.cli.ok(*words)
    assert "secret brought back: id_rsa\n" in said.err
    assert "kept apart" not in said.err
    assert _files(new) == _files(tree.folder)
    assert [(new / name).stat().st_mode & 0o777 for name in (".env", "id_rsa")] == [0o640, 0o600]
    assert os.readlink(new / "deep/.env.local") == "../.env"
    assert (tree.state(), _files(tree.folder)) == before
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


# -- a run and its beats -----------------------------------------------------------------------------------------------


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


# -- bisect ------------------------------------------------------------------------------------------------------------


def bisect(tree: Tree, *command: str) -> Answer:
    answer = tree.cli("bisect", "1411", "--json", "--", *command)
    assert tree.git("worktree", "list").count("\n") == 1
    return answer


def test_bisect_finds_the_first_beat_that_fails(tree: Tree) -> None:
    work(tree, beats=12, breaks_at=9)
    before = _files(tree.folder), tree.state()
    said = bisect(tree, "grep", "-q", "fine", "health").json
    assert (said["outcome"], said["beat"], said["step"], said["good"]) == ("found", 9, "step 9", 8)
    assert len(said["probes"]) <= 6
    assert tree.git("show", f"{said['save']}:beat") == "9\n"
    assert (_files(tree.folder), tree.state()) == before
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


# -- watch -------------------------------------------------------------------------------------------------------------


def test_watch_once_saves_every_worktree_that_changed(tree: Tree, tmp_path: Path) -> None:
    nested, hidden = tmp_path / "app/../deep/er", tmp_path / ".hidden/repo"
    for folder in (nested, hidden):
        folder.mkdir(parents=True)
        tree.git("init", "-q", folder)
        (folder / "file").write_text("x\n")
    tree.write(changed="two\n")
    said = tree.cli.ok("watch", "--once", "--json", tmp_path)
    saved = [json.loads(line) for line in said.out.splitlines()]
    assert {each["folder"] for each in saved} == {str(tree.folder), str(tmp_path / "deep/er")}
    assert {each["kind"] for each in saved} == {"watch"}
    assert tree.git("rev-parse", next(e["ref"] for e in saved if e["folder"] == str(tree.folder)))
    assert tree.cli.ok("watch", "--once", tmp_path).out == ""  # nothing changed since
    tree.write(changed="three\n")
    assert len(tree.cli.ok("watch", "--once", tmp_path).out.splitlines()) == 1


def test_watch_saves_changes_and_once_more_when_it_is_stopped(tree: Tree, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with tree.cli.started(sys.executable, "-m", "outlast", "watch", "--json", str(root)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        tree.git("init", "-q", root / "late")
        (root / "late/file").write_text("one\n")
        assert process.stderr.readline() == f"watching {root / 'late'}\n"
        first = json.loads(process.stdout.readline())
        assert tree.git("show", f"{first['commit']}:file", folder=root / "late") == "one\n"
        (root / "late/file").write_text("two\n")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, err) == (128 + signal.SIGTERM, "")
        last = json.loads(out)
        assert tree.git("show", f"{last['commit']}:file", folder=root / "late") == "two\n"


def test_watch_goes_on_when_one_worktree_cannot_be_saved(tree: Tree, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("good", "bad"):
        (root / name).mkdir(parents=True)
        tree.git("init", "-q", root / name)
        (root / name / "file").write_text("x\n")
    (root / "bad/.git/objects/pack").rmdir()
    (root / "bad/.git/objects/pack").write_text("in the way\n")
    answer = tree.cli("watch", "--once", "--json", root)
    assert answer.code == 1
    assert json.loads(answer.out)["folder"] == str(root / "good")
    assert f"error: {root / 'bad'}: " in answer.err


# -- gc ----------------------------------------------------------------------------------------------------------------


def age_packs(tree: Tree) -> None:
    """As if all saves were made an hour ago: a young pack may belong to a save under way."""
    an_hour_ago = time.time() - 3600
    for path in (tree.folder / ".git/objects/pack").iterdir():
        os.utime(path, (an_hour_ago, an_hour_ago))


def anchors(tree: Tree, run: str) -> list[str]:
    return tree.git("for-each-ref", "--format=%(refname)", f"refs/outlast/{run}").split()


def test_gc_leaves_one_anchor_of_a_run_that_is_over_and_gives_the_room_back(tree: Tree) -> None:
    done, open_run = work(tree, "done"), work(tree, "open", until=2)
    newest = tree.cli.ok("saves", "done", "--json").json[0]
    kept = tree.git("rev-parse", f"{newest['commit']}^{{tree}}", f"{newest['commit']}^2^{{tree}}")
    theirs = tree.git("for-each-ref", f"refs/outlast/{open_run}")
    age_packs(tree)
    would = tree.cli.ok("gc", "--older-than", "0s", "--dry-run", "--json").json["saves"]["runs"]
    assert [(each["run"], each["kept"]) for each in would] == [(done, newest["commit"])]
    said = tree.cli.ok("gc", "--older-than", "0s", "--json").json["saves"]
    (thinned,) = said["runs"]
    assert (thinned["run"], thinned["why"], thinned["removed"]) == (done, "over", would[0]["removed"])
    assert anchors(tree, done) == [f"refs/outlast/{done}/kept"]
    assert tree.git("rev-parse", f"{thinned['kept']}^{{tree}}", f"{thinned['kept']}^2^{{tree}}") == kept
    assert tree.git("for-each-ref", f"refs/outlast/{open_run}") == theirs
    assert newest["commit"] not in tree.git("cat-file", "--batch-all-objects", "--batch-check")
    tree.git("fsck", "--strict", "--no-dangling")
    tree.cli.ok("restore", thinned["kept"][:10], "--workspace", tree.folder)
    assert (tree.folder / "beat").read_text() == "5\n"
    work(tree, "open")  # and the open one goes on
    assert tree.cli.ok("gc", "--older-than", "1h", "--json").json["saves"]["runs"] == []


def test_gc_keeps_what_an_event_of_an_open_run_names(tree: Tree) -> None:
    source = work(tree, "done")
    commits = [each["commit"] for each in tree.cli.ok("saves", "done", "--json").json]
    tree.cli.ok("fork", "done", "--at", "3", "--task", "forked")
    age_packs(tree)
    assert tree.cli.ok("gc", "--older-than", "0s", "--json").json["saves"]["runs"] == []
    for commit in commits:
        tree.git("cat-file", "-e", commit)
    tree.cli.ok("restore", "forked@3")
    assert (tree.folder / "beat").read_text() == "3\n"
    tree.cli.ok("cancel", "forked")
    age_packs(tree)
    said = tree.cli.ok("gc", "--older-than", "0s", "--json").json["saves"]["runs"]
    assert source in [each["run"] for each in said]  # though the store has forgotten it by now
    assert anchors(tree, source) == [f"refs/outlast/{source}/kept"]


def test_gc_keeps_what_a_person_saved_and_lets_go_of_what_a_machine_did(tree: Tree) -> None:
    work(tree, "any", until=1)
    tree.cli.ok("cancel", "any")
    tree.write(changed="two\n")
    mine = tree.git("rev-parse", f"{tree.save('-m', 'mine')}^{{tree}}")
    for text in ("three\n", "four\n", "five\n"):
        tree.write(changed=text)
        tree.cli.ok("watch", "--once")
    tree.cli.ok("gc", "--older-than", "0s")
    left = tree.cli.ok("saves", "--json").json
    assert [each["kind"] for each in left if each["run"] == "hand"] == ["watch", "manual"]
    assert mine in [tree.git("rev-parse", f"{each['commit']}^{{tree}}") for each in left]


def test_gc_keeps_to_the_budget_oldest_anchors_first(tree: Tree) -> None:
    runs = []
    for number in range(4):
        (tree.folder / "blob").write_bytes(os.urandom(600_000))
        runs.append(work(tree, f"task-{number}", beats=1))
    (tree.folder / "blob").unlink()
    still = work(tree, "still", beats=3, until=1)
    age_packs(tree)
    answer = tree.cli("gc", "--older-than", "0s", "--json", OUTLAST_SAVE_DISK_BUDGET_BYTES=str(1 << 20))
    said = answer.json["saves"]
    gone = [each["run"] for each in said["runs"] if each["why"] == "budget"]
    assert gone == runs[: len(gone)]
    assert 0 < len(gone) < 4
    assert said["rooms"][0]["bytes_after"] <= 1 << 20 < said["rooms"][0]["bytes_before"]
    assert anchors(tree, still)
    tree.git("fsck", "--strict", "--no-dangling")


def test_gc_of_saves_killed_at_any_crash_point_ends_right_when_repeated(
    tree: Tree, tmp_path: Path, sweep: Sweep
) -> None:
    done, still = work(tree, "done", beats=3), work(tree, "still", until=1)
    age_packs(tree)
    template = tmp_path / "template"
    shutil.copytree(tree.cli.isolated.home, template / "home", symlinks=True)
    shutil.copytree(tree.folder, template / "app", symlinks=True)
    wanted = tree.git("rev-parse", f"refs/outlast/{still}/beat")
    for nth in sweep:
        for name, place in (("home", tree.cli.isolated.home), ("app", tree.folder)):
            shutil.rmtree(place)
            shutil.copytree(template / name, place, symlinks=True)
        died = tree.cli.killed_at(nth, "gc", "--older-than", "0s")
        tree.git("fsck", "--strict", "--no-dangling")
        tree.cli.ok("gc", "--older-than", "0s")
        assert anchors(tree, done) == [f"refs/outlast/{done}/kept"], f"killed at crash point {nth}"
        assert tree.git("rev-parse", f"refs/outlast/{still}/beat") == wanted, f"killed at crash point {nth}"
        tree.git("fsck", "--strict", "--no-dangling")
        sweep.met(died)


def test_gc_never_drops_what_only_our_packs_hold_and_the_user_needs(tree: Tree) -> None:
    """Git removes its own copy of an object when a pack with a `.keep` has it; from then on ours is the only one."""
    tree.write(changed="precious\n")
    done = work(tree, "done", beats=2)
    tree.git("add", "changed")
    tree.git("commit", "-qm", "mine")
    tree.git("repack", "-adq")
    tree.git("prune", "--expire=now")
    tree.git("prune-packed")
    tree.write(staged="staged\n")
    tree.save()
    tree.git("add", "staged")
    tree.git("prune-packed")
    age_packs(tree)
    tree.cli.ok("gc", "--older-than", "0s")
    assert anchors(tree, done) == [f"refs/outlast/{done}/kept"]
    assert tree.git("show", "HEAD:changed") == "precious\n"
    assert tree.git("show", ":staged") == "staged\n"
    tree.git("fsck", "--strict", "--no-dangling")


def test_gc_of_one_store_leaves_the_saves_of_another_alone(tree: Tree, tmp_path: Path) -> None:
    source = work(tree, "done")
    tree.cli.ok("fork", "done", "--at", "3", "--task", "forked")
    age_packs(tree)
    tree.cli.ok("gc", "--older-than", "0s")  # the store forgets the source, the open fork keeps its saves
    assert f"refs/outlast/{source}/kept" in anchors(tree, source)
    before = tree.git("for-each-ref", "refs/outlast")
    other = Tree(tree.cli.empty(tmp_path))
    tree.write(changed="by another\n")
    other.save("-m", "another store saves here too")
    with outlast.run("another", store=other.cli.root) as run:
        run.plan(["one"])
    answer = other.cli("gc", "--older-than", "0s", "--json", OUTLAST_SAVE_DISK_BUDGET_BYTES=str(1 << 20))
    assert [each for each in answer.json["saves"]["runs"] if each["run"] != "hand"] == []
    after = tree.git("for-each-ref", "refs/outlast").splitlines()
    assert set(before.splitlines()) <= set(after)
    tree.cli.ok("restore", "forked@3")
    assert (tree.folder / "beat").read_text() == "3\n"


# -- bad input ---------------------------------------------------------------------------------------------------------


BAD = [
    ("restore nope", "no save is called 'nope'", 2),
    ("restore abc", "no save is called 'abc'", 2),
    ("restore refs/heads/main", "no save is called 'refs/heads/main'", 2),
    ("restore {head}", "no save is called", 2),
    ("restore 1411@9", "beat 9 of run", 2),
    ("restore nope@1", "no run is called 'nope'", 2),
    ("restore bare", "has no workspace", 2),
    ("restore {save} --to .", "is there and not empty", 2),
    ("restore {save} --workspace nowhere", "nowhere is no folder", 2),
    ("restore", "the following arguments are required: SAVE", 2),
    ("diff nope", "no save is called 'nope'", 2),
    ("diff {save} nope", "no save is called 'nope'", 2),
    ("diff {save} --stat --name-only", "not allowed with argument", 2),
    ("saves nope", "no run is called 'nope'", 2),
    ("saves bare", "has no workspace", 2),
    ("saves --last 0", "--last 0 makes no sense", 2),
    ("save --workspace nowhere", "nowhere is no folder", 2),
    ("save --workspace /", "is too much to save", 2),
    ("save more", "unrecognized arguments: more", 2),
    ("bisect 1411", "no command to try", 2),
    ("bisect 1411 --", "no command to try", 2),
    ("bisect nope -- true", "no run is called 'nope'", 2),
    ("bisect bare -- true", "has no beat that names a save", 2),
    ("watch nowhere", "nowhere is no folder", 2),
    ("watch --once nowhere", "nowhere is no folder", 2),
    ("fork 1411 --at 1 --to .", "is there and not empty", 2),
    ("fork bare --at 0 --to ../x", "names no save", 2),
]


def test_bad_input_is_one_line_and_a_hint_and_changes_nothing(tree: Tree) -> None:
    work(tree, until=2)
    with outlast.run("bare") as run:
        for beat in run.beats():
            beat.finish()
            beat.done()
    given = {"save": tree.save(), "head": tree.git("rev-parse", "HEAD").strip()}
    before = tree.git("for-each-ref"), _files(tree.folder), tree.cli.rows(), tree.state()
    for words, said, code in BAD:
        answer = tree.cli.forked(*words.format(**given).split(" "))
        assert said in answer.complaint, words
        assert answer.code == code, words
        assert (tree.git("for-each-ref"), _files(tree.folder), tree.cli.rows(), tree.state()) == before, words


def test_a_name_that_fits_a_run_and_a_save_is_refused(tree: Tree) -> None:
    tree.write(changed="two\n")
    commit = tree.save()
    work(tree, commit[:4], until=1)
    answer = tree.cli("restore", commit[:4])
    assert f"{commit[:4]!r} fits 2 saves: {commit[:12]}, run " in answer.complaint
    assert answer.code == 2
    tree.cli.ok("restore", commit[:12])


# -- with plain git ----------------------------------------------------------------------------------------------------


def test_every_line_of_the_rescue_page_runs(tree: Tree) -> None:
    page = (ROOT / "docs/rescue.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    tree.write(changed="staged\n")
    tree.git("add", "changed")
    tree.write(changed="two\n")
    tree.save()
    tree.write(**{"notes.txt": "precious\n", ".env": "PASSWORD=x\n"})
    tree.save("-m", "second")
    script = "set -eux\n" + "".join(blocks)
    done = subprocess.run(
        [need_tool("sh"), "-c", script], cwd=tree.folder, env=tree.cli.environ,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(blocks) >= 8
    assert "PASSWORD=x" in done.stdout
    assert "outlast: manual save second" in done.stdout
    assert (tree.folder.parent / "notes.rescued").read_text() == "precious\n"
    assert tree.git("diff", "--cached", "--name-only") == "changed\n"
    assert tree.git("for-each-ref", "refs/outlast/hand") == ""


def test_completion_knows_the_commands_of_files(tree: Tree) -> None:
    said = tree.cli.ok("completion", "bash").out
    for command in ("save", "saves", "diff", "restore", "bisect", "watch"):
        assert f"        {command}) " in said
    assert "--with-secrets" in said
