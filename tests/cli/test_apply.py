"""`outlast apply`: the result of a run comes into a repository as git would merge it, whole or not at all."""

import random
import shutil
from pathlib import Path

import pytest

from outlast import faults
from tests.cli.command_line import Cli, LiveAgent
from tests.cli.result_world import TASK, ResultWorld, random_change
from tests.support.sweeps import Sweep

LINES = "".join(f"{line}\n" for line in range(1, 9))


@pytest.fixture
def world(cli: Cli) -> ResultWorld:
    made = ResultWorld(cli)
    made.begin(**{"a": LINES, "b": "b\n", "below/c": "c\n", ".gitignore": "*.log\n"})
    return made


def work(world: ResultWorld, *, commits: bool = True) -> None:
    """The run changes the end of a file in a commit, and leaves a new, a changed and a deleted file uncommitted."""
    world.write(world.tree, "a", LINES.replace("8\n", "eight\n"))
    if commits:
        world.commit("the run's", world.tree)
    world.write(world.tree, "new/file", "new\n")
    world.write(world.tree, "below/c", "changed\n")
    (world.tree / "b").unlink()


def move_on(world: ResultWorld) -> None:
    world.write(world.cli.folder, "a", LINES.replace("1\n", "one\n", 1))
    world.commit("mine")


# -- what it makes of a repository -------------------------------------------------------------------------------------


def test_commits_come_as_commits_and_the_rest_as_changes(world: ResultWorld) -> None:
    work(world)
    move_on(world)
    world.finish()
    done = world.cli.ok("apply", TASK, "--json").json
    assert (done["how"], done["branch"], done["source_branch"]) == ("merge", "main", f"outlast/{TASK}")
    assert {each["path"]: each["change"] for each in done["files"]} == {
        "a": "changed", "b": "deleted", "below/c": "changed", "new/file": "added"
    }  # fmt: skip
    assert world.git("log", "-1", "--format=%an %p %s").split()[0] == "me"
    assert len(world.git("log", "-1", "--format=%P").split()) == 2
    assert (world.cli.folder / "a").read_text() == LINES.replace("1\n", "one\n", 1).replace("8\n", "eight\n")
    assert world.git("status", "--porcelain", "-uall").splitlines() == [" D b", " M below/c", "?? new/file"]
    assert world.git("rev-parse", "ORIG_HEAD").strip() == done["onto"]
    world.git("fsck", "--strict", "--no-dangling")


def test_without_commits_of_the_run_no_commit_is_made(world: ResultWorld) -> None:
    work(world, commits=False)
    move_on(world)
    head = world.git("rev-parse", "HEAD")
    world.finish()
    assert world.cli.ok("apply", TASK, "--json").json["how"] == "files"
    assert world.git("rev-parse", "HEAD") == head
    assert world.git("diff", "--cached") == ""
    assert (world.cli.folder / "a").read_text() == LINES.replace("1\n", "one\n", 1).replace("8\n", "eight\n")


def test_a_branch_that_stood_still_moves_forward(world: ResultWorld) -> None:
    work(world)
    world.finish()
    done = world.cli.ok("apply", TASK, "--json").json
    assert done["how"] == "fast-forward"
    assert world.git("rev-parse", "main") == world.git("rev-parse", f"outlast/{TASK}")
    assert "outlast apply" in world.git("reflog", "-1")
    assert world.files() == {**world.files(world.tree)}


def test_typed_again_it_changes_nothing(world: ResultWorld) -> None:
    work(world)
    move_on(world)
    world.finish()
    world.cli.ok("apply", TASK)
    before = world.all_state()
    again = world.cli.ok("apply", TASK, "--json").json
    assert (again["how"], again["files"], again["before"]) == ("nothing", [], None)
    assert again["here_already"] == ["b", "below/c", "new/file"]
    assert world.all_state() == before


def test_a_worktree_that_is_gone_is_taken_over_from_its_newest_save(world: ResultWorld) -> None:
    work(world)
    world.finish()
    wanted = world.files(world.tree)
    world.cli.ok("clean", TASK)
    assert not world.tree.exists()
    world.cli.ok("apply", TASK)
    assert world.files() == wanted


def test_a_clone_gets_the_commits_and_files_of_a_run_elsewhere(world: ResultWorld, cli: Cli) -> None:
    work(world)
    run = world.finish()
    clone = cli.folder.parent / "clone"
    world.git("clone", "-q", "--single-branch", f"file://{cli.folder}", clone)
    there = Cli(clone, cli.isolated)
    there.ok("apply", run)
    assert world.files(clone) == world.files(world.tree)
    shutil.rmtree(cli.folder)
    shutil.rmtree(world.tree)
    world.git("fsck", "--strict", "--no-dangling", folder=clone)


def test_the_save_from_before_brings_everything_back(world: ResultWorld) -> None:
    work(world)
    move_on(world)
    world.write(world.cli.folder, "mine", "staged\n")
    world.git("add", "mine")
    world.write(world.cli.folder, "untracked", "mine too\n")
    before = world.all_state()
    world.finish()
    done = world.cli.ok("apply", TASK, "--json").json
    assert world.all_state() != before
    world.cli.ok("restore", done["before"], "--force")
    assert world.all_state() == before


# -- equal to git ------------------------------------------------------------------------------------------------------


def test_a_merge_is_git_s_own_or_nothing(
    tmp_path: Path, world: ResultWorld, rng: random.Random, whole: bool
) -> None:
    """Over random histories: the same commit, files and permissions as `git merge` makes, and where git has conflicts, all as it was."""
    clean = refused = 0
    for trial in range(60 if whole else 12):
        folder = tmp_path / f"trial-{trial}" / "app"
        folder.mkdir(parents=True)
        mine = ResultWorld(Cli(folder, world.cli.isolated))
        mine.begin(**{name: "".join(f"{line}\n" for line in range(12)) for name in ("a", "c.txt", "below/e")})
        _history(mine, rng, must_conflict=trial == 0)
        expected = _as_git_merges(mine, tmp_path / f"trial-{trial}" / "copy")
        before = mine.all_state()
        run = mine.finish()
        answer = mine.cli("apply", run, "--json")
        if expected is None:
            assert answer.code == 2, (trial, answer)
            assert answer.json["conflicts"], trial
            assert mine.all_state() == before, trial
            refused += 1
        else:
            assert answer.code == 0, (trial, answer)
            assert (mine.files(), mine.git("rev-parse", "HEAD^{tree}")) == expected, trial
            assert mine.git("diff", "--cached") == "", trial
            clean += 1
    assert clean, "every random history had conflicts"
    assert refused, "no random history had a conflict"


def _history(world: ResultWorld, rng: random.Random, *, must_conflict: bool) -> None:
    if must_conflict:
        world.write(world.cli.folder, "a", "mine\n")
        world.commit("mine")
        world.write(world.tree, "a", "the run's\n")
    for _ in range(rng.randrange(3)):
        random_change(world, world.cli.folder, rng)
        world.commit("mine")
    for _ in range(rng.randrange(3)):
        random_change(world, world.tree, rng)
        world.commit("the run's", world.tree)
    for _ in range(rng.randrange(4)):
        random_change(world, world.tree, rng)


def _as_git_merges(world: ResultWorld, copy: Path) -> tuple[dict[str, tuple[int, str]], str] | None:
    """The files and the tree of HEAD as git's merges make them in a clone; None where it has a conflict."""
    tree = copy.parent / "tree"
    shutil.copytree(world.tree, tree, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    world.git("clone", "-q", "--no-hardlinks", world.cli.folder, copy)
    git = ("-C", str(copy), "-c", "user.name=x", "-c", "user.email=x@example.org")
    world.git(*git, "checkout", "-q", "-B", "run", f"origin/outlast/{TASK}")
    world.git(*git, "--work-tree", str(tree), "add", "-A")
    world.git(*git, "commit", "-q", "--allow-empty", "-m", "whole")
    world.git(*git, "checkout", "-q", "-f", "main")
    world.git(*git, "clean", "-qfdx")
    committed = world.try_git(*git, "merge", "-q", "--no-edit", f"origin/outlast/{TASK}")
    if committed.returncode:
        return None
    head = world.git("rev-parse", "HEAD^{tree}", folder=copy)
    world.git(*git, "reset", "-q", "--hard", "origin/main")
    if world.try_git(*git, "merge", "-q", "--no-edit", "run").returncode:
        return None
    return world.files(copy), head


# -- nothing is lost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["merge", "fast-forward", "files"])
def test_killed_at_any_crash_point_the_same_command_ends_it(
    how: str, tmp_path: Path, world: ResultWorld, sweep: Sweep
) -> None:
    for nth in sweep:
        folder = tmp_path / f"{how}-{nth}" / "app"
        folder.mkdir(parents=True)
        mine = ResultWorld(Cli(folder, world.cli.isolated))
        mine.begin(**{"a": LINES, "b": "b\n", "below/c": "c\n"})
        work(mine, commits=how != "files")
        if how == "merge":
            move_on(mine)
        mine.write(folder, "mine", "staged\n")
        mine.git("add", "mine")
        mine.write(folder, "untracked", "mine too\n")
        before = mine.all_state()
        run = mine.finish()
        died = mine.cli.killed_at(nth, "apply", run)
        noted = any(mine.cli.root.glob("workspaces/*/applying"))
        if died and not noted:
            assert mine.all_state() == before, nth
        done = mine.cli.ok("apply", run, "--json").json
        assert (folder / "a").read_text().endswith("eight\n"), (how, nth)
        assert (folder / "new/file").read_text() == "new\n"
        assert not (folder / "b").exists()
        assert (folder / "mine").read_text() + (folder / "untracked").read_text() == "staged\nmine too\n"
        status = mine.git("status", "--porcelain", "-uall").splitlines()
        rest = [" M a"] if how == "files" else []
        assert status == ["A  mine", *rest, " D b", " M below/c", "?? new/file", "?? untracked"] or sorted(
            status
        ) == sorted(["A  mine", *rest, " D b", " M below/c", "?? new/file", "?? untracked"]), (nth, done)
        assert not any(mine.cli.root.glob("workspaces/*/applying")), nth
        sweep.met(died)
    assert sweep.total > 8


def test_killed_while_git_writes_the_files_they_come_back_first(world: ResultWorld) -> None:
    """SIGKILL to the whole group, from within a filter of the user's that git runs in the middle of the files."""
    world.write(world.cli.folder, ".gitattributes", "*.slow filter=slow\n")
    world.commit("attributes")
    world.git("merge", "-q", "main", folder=world.tree)
    fuse = world.cli.folder.parent / "fuse"
    script = world.cli.folder.parent / "smudge.sh"
    script.write_text(f"#!/bin/sh\ncat\nif [ -e {fuse} ]; then rm {fuse}; kill -9 0; fi\n")
    script.chmod(0o755)
    world.git("config", "filter.slow.smudge", str(script))
    world.git("config", "filter.slow.clean", "cat")
    for name in ("1.slow", "a", "z"):
        world.write(world.tree, name, f"the run's {name}\n")
    world.finish()
    fuse.touch()
    with world.cli.started("setsid", "-w", *_argv("apply", TASK)) as process:
        process.communicate(timeout=60)
    assert not fuse.exists(), "the filter did not run"
    assert any(world.cli.root.glob("workspaces/*/applying"))
    world.cli.ok("apply", TASK)
    assert {name: (world.cli.folder / name).read_text() for name in ("1.slow", "a", "z")} == {
        name: f"the run's {name}\n" for name in ("1.slow", "a", "z")
    }


def _argv(*words: str) -> tuple[str, ...]:
    from tests.support.commands import ARGV  # the very command line, in a session of its own

    return (*ARGV, *words)


@pytest.mark.parametrize("point", [name for name in faults.POINTS if name.startswith("apply.")])
def test_every_named_point_is_met_and_survived(point: str, world: ResultWorld) -> None:
    work(world)
    move_on(world)
    world.write(world.cli.folder, "mine", "staged\n")
    world.git("add", "mine")
    before = world.all_state()
    world.finish()
    assert world.cli.killed_at_point(point, "apply", TASK)
    if point in ("apply.saved", "apply.objects", "apply.noted"):
        assert world.all_state() == before
    assert world.cli.ok("apply", TASK, "--json").json["how"] == "merge"
    assert (world.cli.folder / "a").read_text() == LINES.replace("1\n", "one\n", 1).replace("8\n", "eight\n")
    status = world.git("status", "--porcelain", "-uall").splitlines()
    assert sorted(status) == [" D b", " M below/c", "?? new/file", "A  mine"]


@pytest.mark.parametrize("point", ["apply.files", "apply.head", "apply.index"])
def test_killed_between_files_head_and_index_nothing_stays_half_way(point: str, world: ResultWorld) -> None:
    work(world)
    move_on(world)
    world.finish()
    assert world.cli.killed_at_point(point, "apply", TASK)
    done = world.cli.ok("apply", TASK, "--json").json
    assert (done["taken_back"], done["how"]) == (True, "merge")
    assert world.git("log", "-1", "--format=%P").split()[0] == done["onto"]
    assert world.git("status", "--porcelain", "-uall").splitlines() == [" D b", " M below/c", "?? new/file"]


def test_a_file_changed_since_a_cut_off_apply_that_it_touches_is_in_the_save_that_it_names(
    world: ResultWorld,
) -> None:
    work(world)
    world.finish()
    assert world.cli.killed_at_point("apply.index", "apply", TASK)
    world.write(world.cli.folder, "below/c", "mine, since then\n")
    done = world.cli.ok("apply", TASK, "--json").json
    world.cli.ok("restore", done["cut_off"], "--force")
    assert (world.cli.folder / "below/c").read_text() == "mine, since then\n"


def test_a_file_changed_since_a_cut_off_apply_that_it_does_not_touch_stays(world: ResultWorld) -> None:
    work(world)
    world.finish()
    assert world.cli.killed_at_point("apply.files", "apply", TASK)
    world.write(world.cli.folder, "other", "written meanwhile\n")
    world.cli.ok("apply", TASK)
    assert (world.cli.folder / "other").read_text() == "written meanwhile\n"
    assert world.files().keys() - world.files(world.tree).keys() == {"other"}


@pytest.mark.parametrize("kind", ["changed", "staged", "untracked", "ignored", "folder in the way"])
def test_a_file_that_somebody_changed_here_is_named_and_nothing_is_changed(
    kind: str, world: ResultWorld
) -> None:
    work(world)
    world.write(world.tree, "out.log", "the run's\n")
    world.git("add", "-f", "out.log", folder=world.tree)
    world.git("commit", "-qm", "a log", folder=world.tree)
    name = {"untracked": "new/file", "ignored": "out.log", "folder in the way": "new"}.get(kind, "a")
    world.write(world.cli.folder, name, "mine\n")
    if kind == "staged":
        world.git("add", "a")
    before = world.all_state()
    world.finish()
    answer = world.cli("apply", TASK)
    assert answer.code == 2
    shown = "new/file" if kind == "folder in the way" else name
    assert f"!  {shown}" in answer.out
    assert "git stash" in answer.err
    assert world.cli("apply", TASK, "--dry-run").code == 2
    assert world.all_state() == before


def test_changes_elsewhere_do_not_matter(world: ResultWorld) -> None:
    work(world)
    world.write(world.cli.folder, "mine", "x\n")
    world.finish()
    world.cli.ok("apply", TASK)
    assert (world.cli.folder / "mine").read_text() == "x\n"


def test_a_conflict_is_told_per_file_and_nothing_is_changed(world: ResultWorld) -> None:
    work(world)
    world.write(world.cli.folder, "a", LINES.replace("8\n", "acht\n"))
    world.write(world.cli.folder, "b", "changed where the run deleted it\n")
    world.commit("mine")
    before, saves = world.all_state(), world.saves() if world.cli.root.exists() else []
    world.finish()
    assert {each["path"] for each in world.cli("apply", TASK, "--dry-run", "--json").json["conflicts"]} == {
        "a",
        "b",
    }
    answer = world.cli("apply", TASK)
    assert answer.code == 2
    assert [line.split()[1] for line in answer.out.splitlines()] == ["a", "b"]
    assert "--branch NAME" in answer.err
    assert world.all_state() == before
    assert not [ref for ref in world.saves() if "pre-restore" in ref and ref not in saves]


def test_a_dry_run_writes_nothing_and_says_what_the_real_one_does(world: ResultWorld) -> None:
    work(world)
    move_on(world)
    world.finish()
    before, objects, saves = world.all_state(), _objects(world), world.saves()
    foreseen = world.cli.ok("apply", TASK, "--dry-run", "--json").json
    assert (world.all_state(), _objects(world), world.saves()) == (before, objects, saves)
    done = world.cli.ok("apply", TASK, "--json").json
    assert [foreseen[name] for name in ("how", "files", "onto")] == [
        done[name] for name in ("how", "files", "onto")
    ]


def _objects(world: ResultWorld) -> list[str]:
    return sorted(str(path) for path in (world.cli.folder / ".git").rglob("*") if path.is_file())


def test_files_that_no_save_takes_are_not_deleted_here(world: ResultWorld) -> None:
    """A tracked file that a sparse checkout leaves out of the worktree was not deleted by the run."""
    world.git("sparse-checkout", "set", "--no-cone", "/*", "!/below/", folder=world.tree)
    assert not (world.tree / "below").exists()
    world.write(world.tree, "new", "new\n")
    world.finish()
    world.cli.ok("apply", TASK)
    assert (world.cli.folder / "below" / "c").read_text() == "c\n"
    assert world.git("status", "--porcelain").split() == ["??", "new"]


def test_secrets_kept_apart_stay_apart(world: ResultWorld) -> None:
    work(world)
    world.write(world.tree, ".env.local", "TOKEN=ghp_0123456789abcdefghijABCDEFGHIJ012345\n")
    world.finish()
    done = world.cli.ok("apply", TASK, "--json").json
    assert done["secrets"] == [".env.local"]
    assert not (world.cli.folder / ".env.local").exists()


# -- filters and hooks -------------------------------------------------------------------------------------------------


def test_files_are_converted_as_git_converts_them(world: ResultWorld) -> None:
    """A save has the bytes of the disk; what comes here went through the user's filters, as in a merge."""
    for name, words in {"clean": "tr a-z A-Z", "smudge": "tr A-Z a-z"}.items():
        world.git("config", f"filter.case.{name}", words)
    world.write(world.cli.folder, ".gitattributes", "*.case filter=case\n*.crlf text eol=crlf\n")
    world.write(world.cli.folder, "x.case", "hello\n")
    world.write(world.cli.folder, "y.crlf", "one\r\ntwo\r\n")
    world.commit("with filters")
    world.git("merge", "-q", "main", folder=world.tree)
    world.write(world.tree, "x.case", "hello\nworld\n")
    world.write(world.tree, "y.crlf", "one\r\ntwo\r\nthree\r\n")
    world.write(world.tree, "z.case", "fresh\n")
    world.finish()
    done = world.cli.ok("apply", TASK, "--json").json
    assert [each["path"] for each in done["files"]] == ["x.case", "y.crlf", "z.case"]
    assert world.files() == world.files(world.tree)
    assert world.cli.ok("apply", TASK, "--branch", "taken").code == 0
    assert world.git("show", "taken:x.case") == "HELLO\nWORLD\n"
    assert world.git("show", "taken:y.crlf") == "one\ntwo\nthree\n"


def test_no_hook_runs_and_a_hook_that_judges_merges_is_left_to_git_commit(world: ResultWorld) -> None:
    work(world)
    move_on(world)
    hooks, seen = world.cli.folder / ".git/hooks", world.cli.folder.parent / "seen"
    for name in ("post-merge", "post-checkout", "post-commit", "reference-transaction", "commit-msg"):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {seen}\n")
        (hooks / name).chmod(0o755)
    head = world.git("rev-parse", "HEAD")
    seen.unlink(missing_ok=True)
    world.finish()
    answer = world.cli.ok("apply", TASK)
    assert "git commit" in answer.err
    assert not seen.exists()
    assert world.git("rev-parse", "HEAD") == head
    assert world.git("status", "--porcelain", "-uall").splitlines() == [
        "M  a",
        " D b",
        " M below/c",
        "?? new/file",
    ]
    world.git("commit", "-q", "--no-edit")
    assert "commit-msg" in seen.read_text()
    assert (
        world.git("log", "-1", "--format=%P").split()[1] == world.git("rev-parse", f"outlast/{TASK}").strip()
    )
    assert world.git("log", "-1", "--format=%s").startswith("Merge branch")


# -- branch and patch --------------------------------------------------------------------------------------------------


def test_a_branch_has_the_result_and_nothing_else_changes(world: ResultWorld) -> None:
    work(world)
    move_on(world)
    world.write(world.cli.folder, "a", "dirty\n")
    world.finish()
    before = world.files()
    done = world.cli.ok("apply", TASK, "--branch", "taken", "--json").json
    assert world.files() == before
    assert world.git("rev-parse", "taken").strip() == done["commit"]
    assert world.git("rev-parse", "taken~1") == world.git("rev-parse", f"outlast/{TASK}")
    assert world.git("ls-tree", "-r", "--name-only", "taken").split() == [
        ".gitignore",
        "a",
        "below/c",
        "new/file",
    ]
    assert world.cli.ok("apply", TASK, "--branch", "taken", "--json").json["how"] == "nothing"
    assert world.cli("apply", TASK, "--branch", "main").complaint.startswith("branch main exists")
    assert "not a name" in world.cli("apply", TASK, "--branch", "a..b").complaint
    world.git("fsck", "--strict", "--no-dangling")


def test_killed_at_any_crash_point_a_branch_is_there_or_not(world: ResultWorld, sweep: Sweep) -> None:
    work(world)
    run = world.finish()
    for nth in sweep:
        name = f"taken-{nth}"
        died = world.cli.killed_at(nth, "apply", run, "--branch", name)
        world.cli.ok("apply", run, "--branch", name)
        assert world.git("show", f"{name}:new/file") == "new\n"
        sweep.met(died)


def test_a_patch_makes_the_result_of_what_the_run_began_with(world: ResultWorld, tmp_path: Path) -> None:
    world.finish(done=False)
    work(world)
    (world.tree / "binary").write_bytes(bytes(range(256)))
    (world.tree / "below/c").chmod(0o755)
    world.finish(done=False)
    patch = tmp_path / "result.patch"
    world.cli.ok("apply", TASK, "--patch", patch)
    assert world.cli("apply", TASK, "--patch", patch).complaint.endswith("exists")
    world.git("apply", "--check", patch)
    world.git("apply", patch)
    assert world.files() == world.files(world.tree)


# -- when it may not be ------------------------------------------------------------------------------------------------


def test_a_run_at_work_has_no_result_yet(agent: LiveAgent, cli: Cli) -> None:
    cli.program("git", "init", "-q")
    answer = cli("apply", "1411", "--dry-run")
    assert "is at work" in answer.complaint
    assert "outlast kill" in answer.err


def test_the_folder_of_the_run_itself_has_its_result_already(world: ResultWorld) -> None:
    run = world.finish(world.cli.folder, "here")
    answer = world.cli("apply", run)
    assert "its result is there already" in answer.complaint
    assert "--whole" in answer.err


def test_what_is_no_repository_or_a_stranger_s_is_refused(world: ResultWorld, cli: Cli) -> None:
    work(world)
    run = world.finish()
    plain, stranger = cli.folder.parent / "plain", cli.folder.parent / "stranger"
    plain.mkdir()
    assert "not a repository" in Cli(plain, cli.isolated)("apply", run).complaint
    stranger.mkdir()
    world.git("init", "-q", folder=stranger)
    assert "no commit yet" in Cli(stranger, cli.isolated)("apply", run).complaint
    world.git(
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@y",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "x",
        folder=stranger,
    )
    assert "no commit in common" in Cli(stranger, cli.isolated)("apply", run).complaint


def test_a_merge_under_way_is_not_disturbed(world: ResultWorld) -> None:
    work(world)
    world.git("checkout", "-q", "-b", "other")
    world.write(world.cli.folder, "b", "other\n")
    world.commit("other")
    world.git("checkout", "-q", "main")
    world.write(world.cli.folder, "b", "mine\n")
    world.commit("mine")
    assert world.try_git("merge", "other").returncode == 1
    before = world.all_state()
    world.finish()
    assert "a merge is under way" in world.cli("apply", TASK).complaint
    assert world.all_state() == before


def test_merge_ff_only_and_no_ff_are_the_user_s_wish(world: ResultWorld) -> None:
    work(world)
    world.finish()
    world.git("config", "merge.ff", "false")
    assert world.cli.ok("apply", TASK, "--dry-run", "--json").json["how"] == "merge"
    world.git("config", "merge.ff", "only")
    move_on(world)
    assert "merge.ff = only" in world.cli("apply", TASK).complaint
