"""A task is one run whatever becomes of the folder around it: each test kills a program, changes the place, starts it again."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from outlast.runs.opening.project import project_of
from outlast.store.protocol import RunFilter
from outlast.workspace.git import layout
from tests.support.inprocess import reading
from tests.support.processes import clean_environment

# Beat 1 changes the place (once), beat 2 acts, beat 3 dies by its own hand the first time.
PROGRAM = """\
import os, pathlib, sys, outlast
done, extra = pathlib.Path(sys.argv[1]), eval(sys.argv[2])
with outlast.run("t", **extra) as run:
    run.plan(["change", "act", "die"])
    for beat in run.beats():
        if beat.step == "act":
            beat.act("post", lambda: open(done, "a").write("x"))
        if beat.step == "die" and not os.path.exists(f"{done}.died"):
            open(f"{done}.died", "w").close()
            os.kill(os.getpid(), 9)
        beat.done()
"""


@dataclass
class TaskFolder:
    """A folder without a repository, a program in it, and what the program did to the world."""

    top: Path
    store: Path

    @property
    def folder(self) -> Path:
        return self.top / "work"

    def start(
        self, cwd: Path | None = None, *, program: Path | None = None, **terms: object
    ) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, program or self.top / "job.py", self.top / "acts", repr(terms)],
            cwd=cwd or self.folder, capture_output=True, text=True, check=False,
            env=clean_environment({"OUTLAST_STORE": str(self.store)}),
        )  # fmt: skip
        return done.returncode, done.stderr

    def sh(self, text: str, cwd: Path | None = None) -> None:
        subprocess.run(["sh", "-ec", text], cwd=cwd or self.folder, check=True)

    @property
    def acts(self) -> int:
        return len((self.top / "acts").read_text())

    def runs(self) -> list[str]:
        with reading(self.store) as store:
            return [each.run for each in store.list(RunFilter(task="t"))]


@pytest.fixture
def place(tmp_path: Path, state: object) -> TaskFolder:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "job.py").write_text(PROGRAM)
    return TaskFolder(tmp_path, tmp_path / "store")


CHANGES = {
    "a repository is made": ("", "git init -q"),
    "a repository is made around": ("", "git init -q .."),
    "an empty folder called .git is made": ("", "mkdir .git"),
    "an empty folder called .git is made around": ("", "mkdir ../.git"),
    "the repository is removed": ("git init -q", "rm -rf .git"),
    "the repository loses its HEAD": ("git init -q", "rm .git/HEAD"),
    "the repository becomes a worktree's": (
        "git init -q", "mv .git ../elsewhere.git; echo gitdir: ../elsewhere.git > .git",
    ),
    "a repository inside another": ("git init -q ..", "git init -q"),
    "a file called .git that leads nowhere": ("", "echo gitdir: /nowhere > .git"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_becomes_of_the_repository_the_act_is_done_once(place: TaskFolder, change: str) -> None:
    before, after = CHANGES[change]
    place.sh(before)
    assert place.start()[0] == -9
    place.sh(after)
    assert place.start() == (0, "")
    assert (place.acts, len(place.runs())) == (1, 1)
    assert place.start() == (0, ""), "a run that is done is found, too"
    assert (place.acts, len(place.runs())) == (1, 1)


def test_a_repository_that_is_gone_is_known_from_any_folder_in_it(place: TaskFolder) -> None:
    place.sh("git init -q")
    assert place.start(place.folder / "sub")[0] == -9
    place.sh("rm -rf .git; mkdir other")
    assert place.start(place.folder / "other") == (0, "")
    assert place.acts == 1


def test_a_link_or_the_variables_of_git_make_no_other_run(place: TaskFolder) -> None:
    assert place.start()[0] == -9
    (place.top / "link").symlink_to(place.folder)
    subprocess.run(["git", "init", "-q", place.top / "other"], check=True)
    os.environ["GIT_DIR"] = str(place.top / "other/.git")
    try:
        assert place.start(place.top / "link") == (0, "")
    finally:
        del os.environ["GIT_DIR"]
    assert place.acts == 1


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount")
def test_a_bind_mount_of_the_folder_is_the_folder(place: TaskFolder) -> None:
    assert place.start()[0] == -9
    mounted = place.top / "mounted"
    mounted.mkdir()
    if subprocess.run(["mount", "--bind", place.folder, mounted], capture_output=True).returncode:
        pytest.skip("this machine does not mount")
    try:
        assert place.start(mounted) == (0, "")
    finally:
        subprocess.run(["umount", mounted], check=True)
    assert place.acts == 1


@pytest.mark.parametrize(
    ("first", "then"), [("work", "work/sub"), ("work/sub", "work"), ("work", "elsewhere")]
)
def test_a_program_started_in_another_folder_is_refused_until_a_person_chooses(
    place: TaskFolder, first: str, then: str
) -> None:
    (place.top / "elsewhere").mkdir()
    program = place.folder / "job.py"
    shutil.copy(place.top / "job.py", program)
    assert place.start(place.top / first, program=program)[0] == -9
    (run,) = place.runs()
    code, said = place.start(place.top / then, program=program)
    assert code == 1
    assert "AmbiguousRun" in said
    assert run in said
    assert f"a new one (in {place.top / then})" in said
    assert (place.acts, place.runs()) == (1, [run])
    assert f"project='{place.top / first}'" in said
    assert place.start(place.top / then, program=program, project=str(place.top / first)) == (0, "")
    assert place.acts == 1


def test_the_other_choice_is_a_new_run_and_so_is_a_program_of_another_name(place: TaskFolder) -> None:
    program = place.folder / "job.py"
    shutil.copy(place.top / "job.py", program)
    assert place.start(program=program)[0] == -9
    other = place.folder / "sub"
    assert place.start(other, program=program)[0] == 1
    assert place.start(other, program=program, project=str(other)) == (0, "")
    assert (place.acts, len(place.runs())) == (2, 2)
    shutil.copy(place.top / "job.py", place.folder / "third.py")
    (place.folder / "sub/deep").mkdir()
    assert place.start(place.folder / "sub/deep", program=place.folder / "third.py") == (0, "")
    assert len(place.runs()) == 3


@pytest.mark.parametrize("before", ["", "git init -q"])
def test_a_folder_that_was_moved_is_refused_until_a_person_chooses(place: TaskFolder, before: str) -> None:
    place.sh(before)
    assert place.start()[0] == -9
    place.folder.rename(place.top / "moved")
    code, said = place.start(place.top / "moved")
    assert code == 1
    assert "AmbiguousRun" in said
    assert str(place.folder) in said
    assert place.acts == 1


def test_a_project_that_was_named_at_first_is_not_forgotten(place: TaskFolder) -> None:
    assert place.start(project="app")[0] == -9
    code, said = place.start()
    assert code == 1
    assert "project='app'" in said
    assert place.start(project="app") == (0, "")
    assert place.acts == 1


def test_two_runs_that_may_be_one_are_refused_with_both_named_until_one_is_cancelled(
    place: TaskFolder,
) -> None:
    """As an earlier release left them."""
    assert place.start()[0] == -9
    place.sh("git init -q")
    (place.top / "acts.died").unlink()
    assert place.start(project=project_of(place.folder))[0] == -9
    new, old = place.runs()
    code, said = place.start()
    assert code == 1
    assert f"`outlast cancel {new}` or `outlast cancel {old}`" in said
    command = [sys.executable, "-m", "outlast", "cancel", new]
    subprocess.run(command, env=clean_environment({"OUTLAST_STORE": str(place.store)}), check=True)
    assert place.start() == (0, "")
    with reading(place.store) as store:
        assert {each.run: each.state.status for each in store.list(RunFilter())} == {
            new: "cancelled",
            old: "done",
        }


REPOSITORIES: dict[str, Callable[[Path], object]] = {
    "new": lambda git: None,
    "an empty folder": lambda git: (shutil.rmtree(git), git.mkdir()),
    "without HEAD": lambda git: (git / "HEAD").unlink(),
    "an empty HEAD": lambda git: (git / "HEAD").write_text(""),
    "a HEAD of something else": lambda git: (git / "HEAD").write_text("ref: heads/main\n"),
    "a HEAD with spaces": lambda git: (git / "HEAD").write_text("ref:   refs/heads/main\n"),
    "a detached HEAD": lambda git: (git / "HEAD").write_text("a" * 40 + "\n"),
    "a HEAD that is a link": lambda git: (
        (git / "HEAD").unlink(),
        (git / "HEAD").symlink_to("refs/heads/main"),
    ),
    "a link to anywhere": lambda git: ((git / "HEAD").unlink(), (git / "HEAD").symlink_to("config")),
    "without objects": lambda git: shutil.rmtree(git / "objects"),
    "without refs": lambda git: shutil.rmtree(git / "refs"),
    "without a config": lambda git: (git / "config").unlink(),
}


@pytest.mark.parametrize("kind", REPOSITORIES)
def test_what_a_repository_is_git_and_we_say_alike(tmp_path: Path, kind: str) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    REPOSITORIES[kind](tmp_path / ".git")
    asked = subprocess.run(
        ["git", "rev-parse", "--absolute-git-dir"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}, check=False,
    )  # fmt: skip
    found = layout.at(tmp_path)
    assert (asked.stdout.strip() or None) == (None if found is None else str(found.own))


def test_an_earlier_journal_without_an_origin_is_found_by_its_project(place: TaskFolder) -> None:
    import msgspec

    from outlast.runs.opening import admission, entry

    terms = entry.terms_of("t", workspace=None, project=str(place.folder))
    with reading(place.store) as store:
        made = store.create(admission.opened(msgspec.structs.replace(terms, origin=None), None))
    place.sh("git init -q")
    (place.top / "acts.died").touch()
    assert place.start() == (0, "")
    assert place.runs() == [made]
