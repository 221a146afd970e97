"""What the commands of files say can be pasted and is true, wherever the person stands."""

import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.cli.conftest import Answer, Cli
from tests.cli.test_files import Tree, tree, work
from tests.support.environment import TIMEOUT_S

__all__ = ["tree"]


def pasted(answer: Answer, word: str, cli: Cli) -> Answer:
    """Run the command that a line names after a word."""
    found = re.search(rf"{word}: `outlast ([^`]*)`", answer.err)
    assert found, answer.err
    return cli.ok(*found[1].split())


def test_a_forced_restore_is_undone_by_what_it_says(tree: Tree) -> None:
    tree.write(changed="two\n")
    save = tree.save()
    tree.git("commit", "-qam", "moved on")
    tip = tree.git("rev-parse", "HEAD")
    answer = tree.cli.ok("restore", save, "--force")
    assert tree.git("rev-parse", "HEAD") != tip
    pasted(answer, "undo", tree.cli)
    assert tree.git("rev-parse", "HEAD") == tip


def test_a_save_is_found_from_any_folder(tree: Tree, tmp_path: Path) -> None:
    inner = tree.folder / "inner"
    inner.mkdir()
    (inner / "file").write_text("one\n")
    (tmp_path / "away").mkdir()
    away = replace(tree.cli, folder=tmp_path / "away")
    for standing in (tree.cli, away):
        (inner / "file").write_text(f"of {standing.folder}\n")
        made = standing.ok("save", "--workspace", inner)
        (inner / "file").write_text("broken\n")
        restored = pasted(made, "get it back", standing)
        assert (inner / "file").read_text() == f"of {standing.folder}\n"
        pasted(restored, "undo", standing)
        assert (inner / "file").read_text() == "broken\n"
    assert not list(away.folder.iterdir())
    assert away("restore", "abcdef12").complaint == "no save is called 'abcdef12'"


def test_how_to_look_at_a_save_leads_to_its_repository(tree: Tree, tmp_path: Path) -> None:
    tree.write(changed="two\n")
    (tmp_path / "away").mkdir()
    made = replace(tree.cli, folder=tmp_path / "away").ok("save", "--workspace", tree.folder)
    assert f"`git -C {tree.folder} show --stat " in made.err


def test_secrets_are_said_to_be_kept_apart(tree: Tree) -> None:
    (tree.folder / ".env").write_text("TOKEN=1\n")
    save = tree.save()
    said = tree.cli.ok("restore", save).err
    assert "secret, kept apart: .env (bring it back with --with-secrets)" in said
    assert "left as it is: .env" not in said
    (tree.folder / ".env").unlink()
    said = tree.cli.ok("restore", save, "--with-secrets").err
    assert "secret brought back: .env" in said
    assert "kept apart" not in said


def test_an_empty_folder_without_a_repository_is_not_said_to_be_as_head(cli: Cli) -> None:
    said = cli.ok("save").err
    assert "is empty, or as its last save has it" in said
    assert "HEAD" not in said


def test_watch_without_a_worktree_says_so(cli: Cli) -> None:
    for words in (["watch"], ["watch", "--once"]):
        answer = cli(*words)
        assert answer.code == 2
        assert answer.complaint == f"there is no git worktree in or under {cli.folder}"


def test_a_state_folder_that_is_the_workspace_is_refused(tree: Tree) -> None:
    before = tree.git("for-each-ref", "refs/outlast")
    answer = tree.cli("save", OUTLAST_STORE=str(tree.folder))
    assert answer.code == 2
    assert "is the workspace and outlast's state folder at once" in answer.complaint
    assert tree.git("for-each-ref", "refs/outlast") == before


def test_a_store_given_by_its_database_is_no_part_of_its_workspace(tree: Tree) -> None:
    tree.write(changed="two\n")
    script = (
        "import outlast\nwith outlast.run('t', store='my.db', workspace='.') as run:\n"
        "  for beat in run.beats():\n    beat.finish()\n    beat.done()\n"
    )
    environ = tree.cli.environ
    subprocess.run(
        [sys.executable, "-c", script], cwd=tree.folder, env=environ, check=True, timeout=TIMEOUT_S
    )
    commit = tree.git("for-each-ref", "--format=%(objectname)", "refs/outlast/*/beat").split()[0]
    assert tree.git("ls-tree", "--name-only", commit).split() == ["changed", "deleted", "kept"]


def test_ctrl_c_while_modules_are_imported_is_one_line(cli: Cli) -> None:
    for module in ("outlast.cli.main", "outlast.cli.files"):
        script = (
            "import sys, runpy\n"
            "class Interrupt:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            f"        if name == {module!r}: raise KeyboardInterrupt\n"
            "sys.meta_path.insert(0, Interrupt())\n"
            "sys.argv = ['outlast', 'saves']\n"
            "runpy.run_module('outlast', run_name='__main__')\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=cli.folder, env=cli.environ, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "interrupted\n")


def test_what_a_killed_bisect_left_is_swept_by_the_next(tree: Tree, tmp_path: Path) -> None:
    work(tree, beats=2, breaks_at=2)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environ = tree.cli.environ | {"TMPDIR": str(temporary)}
    words = [sys.executable, "-m", "outlast", "bisect", "1411", "--"]
    kill = 'kill -9 "$PPID"'
    died = subprocess.run(
        [*words, "sh", "-c", kill], cwd=tree.folder, env=environ, check=False, timeout=TIMEOUT_S
    )
    assert died.returncode == -signal.SIGKILL
    assert len(list(temporary.iterdir())) == 1
    assert tree.git("worktree", "list").count("\n") == 2
    tree.cli.ok("bisect", "1411", "--", "false")  # another folder for what is temporary: not its to sweep
    assert tree.git("worktree", "list").count("\n") == 2
    subprocess.run([*words, "false"], cwd=tree.folder, env=environ, check=True, timeout=TIMEOUT_S)
    assert list(temporary.iterdir()) == []
    assert tree.git("worktree", "list").count("\n") == 1
