"""What `outlast restore` says is true where secrets, a folder that goes, another store or Ctrl-C are in play."""

import os
import signal
import subprocess
from dataclasses import replace

from tests.cli.saved_tree import Tree, work
from tests.cli.test_saves_messages import pasted
from tests.support.environment import isolate
from tests.support.sweeps import Sweep
from tests.workspace.test_guards import is_anywhere


def test_where_a_secret_was_written_over_the_printed_undo_brings_it_back(tree: Tree) -> None:
    tree.write(**{".env": "API=old\n"})
    tree.git("add", ".env")
    tree.git("commit", "-qm", "env")
    tree.write(changed="two\n")
    save = tree.save()
    tree.git("rm", "-q", "--cached", ".env")
    tree.write(**{".env": "API=rotated\n"})
    answer = tree.cli.ok("restore", save)
    assert (tree.folder / ".env").read_text() == "API=old\n"
    assert "--with-secrets" in answer.err
    pasted(answer, "undo", tree.cli)
    assert (tree.folder / ".env").read_text() == "API=rotated\n"
    assert not is_anywhere(tree.folder / ".git", b"rotated")


def test_where_nothing_was_kept_apart_the_undo_asks_for_no_secrets(tree: Tree) -> None:
    tree.write(**{".env": "API=old\n", "changed": "two\n"})
    save = tree.save()
    tree.write(changed="three\n")
    for words in ((), ("--with-secrets",)):
        answer = tree.cli.ok("restore", save, *words)
        assert "--with-secrets`" not in answer.err.partition("undo: ")[2]


def test_typed_in_a_folder_that_goes_it_ends_well_and_says_how_to_undo_it(tree: Tree) -> None:
    tree.write(changed="two\n")
    save = tree.save()
    for json in (False, True):
        below = tree.folder / "below/deep"
        below.mkdir(parents=True)
        (below / "file").write_text("precious\n")
        answer = replace(tree.cli, folder=below).ok("restore", save, *(["--json"] if json else []))
        assert not below.exists()
        if json:
            assert answer.json["deleted"] == ["below/deep/file"]
            continue
        pasted(answer, "undo", tree.cli)
        assert (below / "file").read_text() == "precious\n"
        (below / "file").unlink()
        below.rmdir()
        below.parent.rmdir()


def test_secrets_that_were_never_here_are_not_offered(tree: Tree) -> None:
    tree.write(**{".env": "K=1\n"})
    work(tree, until=2)
    archive = tree.folder.parent / "carried.tar.gz"
    tree.cli.ok("export", "1411", "-o", archive)
    base = tree.folder.parent / "elsewhere"
    base.mkdir()
    there = Tree(replace(tree.cli, folder=base / "clone", isolated=isolate(base)))
    tree.git("clone", "-q", tree.folder, there.folder)
    there.cli.ok("import", archive)
    answer = there.cli.ok("restore", "1411", "--to", base / "one")
    assert "secret, not in the save: .env (not on this machine: put it there yourself)" in answer.err
    assert "--with-secrets" not in answer.err
    refused = there.cli("restore", "1411", "--to", base / "two", "--with-secrets")
    assert "is not stored here: it was removed, or the save came from elsewhere" in refused.complaint
    own = tree.cli.ok("restore", "1411", "--to", base / "three")
    assert "secret, not in the save: .env (restore it with --with-secrets)" in own.err


def test_interrupted_it_says_what_there_is_and_the_same_again_ends_right(tree: Tree) -> None:
    tree.write(**{f"f{number}": f"{number}\n" for number in range(9)})
    save = tree.save()
    tree.write(f3="mine\n")
    (tree.folder / "f7").unlink()
    met: list[str] = []

    def interrupt(name: str) -> None:
        met.append(name)
        if name == "restore.written":
            os.kill(os.getpid(), signal.SIGINT)

    answer = tree.cli.forked("restore", save, hook=interrupt)
    assert answer.code == 128 + signal.SIGINT
    (line,) = answer.err.splitlines()
    assert line.startswith(
        f"interrupted: {tree.folder} may be half restored; run the same command again to finish"
    )
    before = line.split()[-1]
    assert tree.git("show", f"{before}:f3") == "mine\n"
    tree.cli.ok("restore", save)
    assert [(tree.folder / f"f{number}").read_text() for number in (3, 7)] == ["3\n", "7\n"]


def test_killed_at_any_point_a_restore_leaves_no_secret_under_a_name_of_ours(
    tree: Tree, sweep: Sweep
) -> None:
    tree.write(**{".env": "hush\n", "changed": "two\n"})
    save = tree.save()
    for nth in sweep:
        tree.write(**{".env": "now\n", "changed": "three\n"})
        killed = tree.cli.killed_at(nth, "restore", save, "--with-secrets")
        tree.cli.ok("restore", save, "--with-secrets")
        assert (tree.folder / ".env").read_text() == "hush\n", f"killed at the {nth}th"
        assert not list(tree.folder.glob(".outlast-*")), f"killed at the {nth}th"
        sweep.met(killed)
    assert not killed
    assert not is_anywhere(tree.folder / ".git", b"hush")
    subprocess.run(["git", "-C", tree.folder, "fsck", "--no-dangling"], check=True, capture_output=True)
