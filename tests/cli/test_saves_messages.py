"""What the commands of files say can be pasted and is true, wherever the person stands."""

import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import outlast
from tests.cli.command_line import Cli
from tests.cli.saved_tree import Tree, work
from tests.cli.test_hints import paste
from tests.core.test_secret_formats import plain
from tests.support.commands import Answer
from tests.support.environment import TIMEOUT_S

COMMANDS = re.compile(r"`((?:outlast|git) (?!fork).*?)`(?!\w)")


def pasted(answer: Answer, word: str, cli: Cli) -> Answer:
    """Run the command that a line names after a word."""
    found = re.search(rf"{word}: `outlast ([^`]*)`", answer.err)
    assert found, answer.err
    return cli.ok(*shlex.split(found[1]))


def worked(answer: Answer) -> Answer:
    assert answer.code == 0, answer.err
    return answer


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
    assert away("restore", "abcdef12").complaint == "no such save: abcdef12"


def standing(tree: Tree, where: str) -> Cli:
    """The command line in the workspace, below it, or away from it."""
    folder = {"in": tree.folder, "below": tree.folder / "below", "away": tree.folder.parent / "away"}[where]
    folder.mkdir(exist_ok=True)
    return replace(tree.cli, folder=folder)


@pytest.fixture
def odd(tree: Tree) -> Tree:
    """A workspace at a path that a shell would take apart."""
    folder = tree.folder.with_name("it's $HOME; here")
    tree.folder.rename(folder)
    return Tree(replace(tree.cli, folder=folder))


@pytest.mark.parametrize("where", ["in", "below", "away"])
def test_what_a_save_and_a_restore_say_is_pasted_where_the_person_stands(odd: Tree, where: str) -> None:
    odd.write(changed="two\n")
    here = standing(odd, where)
    made = here.ok("save", "--workspace", odd.folder)
    look, back = COMMANDS.findall(made.err)
    assert look.startswith("git --git-dir=")
    assert ("--workspace" in back) == (where == "away")
    assert "changed | 2 +-" in worked(paste(here, look)).out
    odd.write(changed="broken\n")
    restored = worked(paste(here, back))
    assert (odd.folder / "changed").read_text() == "two\n"
    (undo,) = COMMANDS.findall(restored.err)
    worked(paste(here, undo))
    assert (odd.folder / "changed").read_text() == "broken\n"


FAILING = """
import sys
from pathlib import Path
import outlast

with outlast.run("1411", workspace=sys.argv[1], store=sys.argv[2] or None) as run:
    for beat in run.beats():
        Path(sys.argv[1], "changed").write_text("by the agent\\n")
        raise RuntimeError("no more")
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("store", ["", "state folder", "it's.db"])
@pytest.mark.parametrize("where", ["in", "below", "away"])
def test_what_a_failed_attempt_says_of_its_files_is_pasted_where_it_stood(
    odd: Tree, where: str, store: str
) -> None:
    here = standing(odd, where)
    path = str(odd.folder.parent / store) if store else ""
    done = subprocess.run(
        [sys.executable, "-c", FAILING, odd.folder, path], cwd=here.folder, env=here.environ, capture_output=True,
        text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    look, back = COMMANDS.findall(done.stderr)
    assert ("git --git-dir=" in look, "--workspace" in back) == (True, where == "away")
    assert ("--store" in back) == bool(store)
    assert "+by the agent" in worked(paste(here, look)).out
    odd.write(changed="broken\n")
    worked(paste(here, back))
    assert (odd.folder / "changed").read_text() == "by the agent\n"
    assert here.root.exists() == (not store)


def test_what_a_search_says_is_pasted_from_anywhere(tree: Tree) -> None:
    work(tree, beats=3, breaks_at=3)
    away = standing(tree, "away")
    run = tree.cli.show()["run"]
    (look,) = COMMANDS.findall(away.ok("bisect", run, "--", "grep", "-q", "fine", "health").err)
    assert "-fine\n+broken\n" in worked(paste(away, look)).out


def test_a_folder_in_the_home_is_named_with_a_tilde(tree: Tree) -> None:
    mine = tree.cli.isolated.home / "mine"
    tree.folder.rename(mine)
    tree.folder.mkdir()  # where this process stands
    moved = Tree(replace(tree.cli, folder=mine))
    with outlast.run("1411", workspace="~/mine") as run:
        for beat in run.beats():
            moved.write(changed="by the agent\n")
            beat.finish()
            beat.done()
    assert moved.cli.show()["workspace"] == str(mine)
    moved.write(changed="broken\n")
    tree.cli.ok("restore", "1411", "--workspace=~/mine", "--project", mine)
    assert (mine / "changed").read_text() == "by the agent\n"
    tree.cli.ok("restore", run.id, "--to=~/new")
    assert (tree.cli.isolated.home / "new/changed").read_text() == "by the agent\n"
    assert list(tree.folder.iterdir()) == []
    with (
        pytest.raises(outlast.WorkspaceRefused, match="it contains a whole home"),
        outlast.run("2", workspace="~"),
    ):
        pass
    with pytest.raises(outlast.UsageError, match="~nobody-is-called-so/x is not a folder"):
        outlast.run("3", workspace="~nobody-is-called-so/x").__enter__()


def test_secrets_are_said_to_be_kept_apart(tree: Tree) -> None:
    (tree.folder / ".env").write_text("TOKEN=1\n")
    save = tree.save()
    said = tree.cli.ok("restore", save).err
    assert "secret, not in the save: .env (restore it with --with-secrets)" in said
    assert "left as it is: .env" not in said
    (tree.folder / ".env").unlink()
    said = tree.cli.ok("restore", save, "--with-secrets").err
    assert "secret restored: .env" in said
    assert "kept apart" not in said


def test_a_text_with_a_key_is_said_to_be_kept_apart_with_the_kind_of_key(tree: Tree) -> None:
    token = "ghp_" + plain(36)
    (tree.folder / "notes.txt").write_text(f"use {token}\n")
    answers = [tree.cli.ok("save"), tree.cli.ok("saves"), tree.cli.ok("saves", "--json")]
    save = answers[0].out.split()[0]
    assert "left out: notes.txt (secret: GitHub token, kept apart, 45 bytes)" in answers[0].err
    assert "`[save] not_secret` in outlast.toml" in answers[0].err
    assert "1: notes.txt (GitHub token)" in answers[1].out
    assert answers[2].json[0]["left_out"][0]["why"] == "secret: GitHub token, kept apart"
    (tree.folder / "notes.txt").unlink()
    answers += [tree.cli.ok("restore", save), tree.cli.ok("restore", save, "--with-secrets")]
    assert (
        "secret (GitHub token), not in the save: notes.txt (restore it with --with-secrets)" in answers[3].err
    )
    assert "secret (GitHub token) restored: notes.txt" in answers[4].err
    assert (tree.folder / "notes.txt").read_text() == f"use {token}\n"
    (tree.folder / "outlast.toml").write_text('[save]\nnot_secret = ["notes.txt", "docs/"]\n')
    answers += [tree.cli.ok("diff", save), tree.cli.ok("save")]
    assert "use " in answers[5].out
    assert "notes.txt" not in answers[6].err
    assert not any(token in answer.out + answer.err for answer in answers[:5])


def test_an_empty_folder_without_a_repository_is_not_said_to_be_as_head(cli: Cli) -> None:
    said = cli.ok("save").err
    assert "is empty or unchanged since its last save" in said
    assert "HEAD" not in said


def test_watch_without_a_worktree_says_so(cli: Cli) -> None:
    for words in (["watch"], ["watch", "--once"]):
        answer = cli(*words)
        assert answer.code == 2
        assert answer.complaint == f"there is no git worktree in or under {cli.folder}"


def test_a_state_folder_that_is_the_workspace_is_refused(tree: Tree) -> None:
    answer = tree.cli("save", OUTLAST_STORE=str(tree.folder))
    assert answer.code == 2
    assert "is both the workspace and outlast's state folder" in answer.complaint
    assert not (tree.folder / "workspaces" / "vaults").exists()


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
    for module in ("outlast.cli.main", "outlast.cli.commands.saves"):
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
        assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "stopped by Ctrl-C\n")


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
