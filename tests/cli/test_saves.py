"""Saves from the command line: save, saves, diff, bad input, and what plain git can do with them."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import outlast
from tests.cli.command_line import Cli
from tests.cli.saved_tree import Tree, files, work
from tests.support.environment import ROOT, TIMEOUT_S, need_tool
from tests.support.vaults import vault_of

# -- save -------------------------------------------------------------------------------------------------------------


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
    assert f"`git --git-dir={vault_of(tree.folder)} show --stat {commit[:12]}`" in answer.err
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


# -- saves ------------------------------------------------------------------------------------------------------------


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
    tree.git("update-ref", "refs/outlast/hand/wrong", tree.git("rev-parse", "HEAD").strip())
    (vault_of(tree.folder) / "refs/outlast/hand/torn").write_text("not an id\n")
    assert [each["commit"] for each in tree.cli.ok("saves", "--json").json] == [first]
    assert tree.cli("restore", "hand/wrong").code == 3


def test_where_nothing_was_saved_the_list_is_empty_and_nothing_is_made(cli: Cli) -> None:
    assert cli.ok("saves", "--json").json == []
    assert "no saves" in cli.ok("saves").err
    assert not cli.root.exists()


# -- diff -------------------------------------------------------------------------------------------------------------


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
    assert files(there) == files(tree.folder)
    changes = {each["path"]: each["change"] for each in tree.cli.ok("diff", first, "--json").json["files"]}
    assert changes == {
        "below/deep": "added", "changed": "changed", "deleted": "deleted", "kept": "changed", "link": "added",
        "untracked": "added", "with space": "added",
    }  # fmt: skip


# -- bad input --------------------------------------------------------------------------------------------------------


BAD = [
    ("restore nope", "no such save: nope", 2),
    ("restore abc", "no such save: abc", 2),
    ("restore refs/heads/main", "no such save: refs/heads/main", 2),
    ("restore {head}", "no such save: ", 2),
    ("restore 1411@9", "beat 9 of run", 2),
    ("restore nope@1", "no such run: nope", 2),
    ("restore bare", "has no workspace", 2),
    ("restore {save} --to .", "is inside the run's own workspace", 2),
    ("restore {save} --workspace nowhere", "nowhere is not a folder", 2),
    ("restore", "SAVE is missing", 2),
    ("diff nope", "no such save: nope", 2),
    ("diff {save} nope", "no such save: nope", 2),
    ("diff {save} --stat --name-only", "--name-only and --stat cannot be used together", 2),
    ("saves nope", "no such run: nope", 2),
    ("saves bare", "has no workspace", 2),
    ("saves --last 0", "--last must be 1 or more, got 0", 2),
    ("save --workspace nowhere", "nowhere is not a folder", 2),
    ("save --workspace /", "is too big to save", 2),
    ("save more", "unexpected argument: more", 2),
    ("bisect 1411", "no command to try", 2),
    ("bisect 1411 --", "no command to try", 2),
    ("bisect nope -- true", "no such run: nope", 2),
    ("bisect bare -- true", "has no beat that names a save", 2),
    ("watch nowhere", "nowhere is not a folder", 2),
    ("watch --once nowhere", "nowhere is not a folder", 2),
    ("fork 1411 --at 1 --to .", "is inside the run's own workspace", 2),
    ("fork bare --at 0 --to ../x", "names no save", 2),
]


def test_bad_input_is_one_line_and_a_hint_and_changes_nothing(tree: Tree) -> None:
    work(tree, until=2)
    with outlast.run("bare") as run:
        for beat in run.beats():
            beat.finish()
            beat.done()
    given = {"save": tree.save(), "head": tree.git("rev-parse", "HEAD").strip()}
    before = tree.git("for-each-ref"), files(tree.folder), tree.cli.rows(), tree.state()
    for words, said, code in BAD:
        answer = tree.cli.forked(*words.format(**given).split(" "))
        assert said in answer.complaint, words
        assert answer.code == code, words
        assert (tree.git("for-each-ref"), files(tree.folder), tree.cli.rows(), tree.state()) == before, words


def test_a_name_that_fits_a_run_and_a_save_is_refused(tree: Tree) -> None:
    tree.write(changed="two\n")
    commit = tree.save()
    work(tree, commit[:4], until=1)
    answer = tree.cli("restore", commit[:4])
    assert f"{commit[:4]!r} fits 2 saves: {commit[:12]}, run " in answer.complaint
    assert answer.code == 2
    tree.cli.ok("restore", commit[:12])


# -- with plain git ---------------------------------------------------------------------------------------------------


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
    assert (tree.folder.parent / "again/notes.txt").read_text() == "precious\n"


def test_completion_knows_the_commands_of_files(tree: Tree) -> None:
    said = tree.cli.ok("completion", "bash").out
    for command in ("save", "saves", "diff", "restore", "bisect", "watch"):
        assert f"        {command}) " in said
    assert "--with-secrets" in said
