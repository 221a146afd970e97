"""Which repository saves go to: the workspace's own, and only where git says that it has none, the shadow."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from outlast import store
from outlast.errors import SaveFailed, StoreRefused
from outlast.workspace import repo
from tests.support import environment
from tests.support.environment import TIMEOUT_S
from tests.workspace.gitrepo import make_repo
from tests.workspace.workspace import BASE, Workspace, placed, wrapper

FAILURES = {
    "no memory": "echo 'fatal: out of memory, malloc failed (tried to allocate 64 bytes)' >&2; exit 128",
    "no process": "echo 'fatal: cannot fork() for x: Resource temporarily unavailable' >&2; exit 128",
    "no word": "exit 128",
    "killed": "kill -9 $$",
    "another code": "echo 'error while loading shared libraries: libz.so.1' >&2; exit 127",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_git_that_fails_is_no_folder_without_a_repository(
    place: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    first = place.save()
    noted = repo.noted_place(place.saver.private)
    once = tmp_path / "once"
    script = (
        f'case "$*" in *--is-bare-repository*) if rm {once} 2>/dev/null; then {FAILURES[failure]}; fi;; esac'
    )
    wrapper(tmp_path, monkeypatch, script)
    once.touch()
    place.anew()
    place.write("a.txt", b"changed")
    with pytest.raises(SaveFailed, match="git"):
        place.save()
    assert not once.exists()
    assert repo.noted_place(place.saver.private) == noted
    assert not (place.saver.private / "shadow.git").exists()
    saved = place.save()
    assert place.held(saved).previous == first.commit
    assert place.content(saved, "a.txt") == b"changed"


def test_a_git_that_is_not_there_is_no_folder_without_a_repository(
    place: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = repo.noted_place(place.saver.private)
    (tmp_path / "empty").mkdir()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path / "empty"))
        with pytest.raises(SaveFailed, match="git is not installed"):
            place.save()
    assert repo.noted_place(place.saver.private) == noted
    assert not place.saver.repo().shadow


NO_REPOSITORY = {
    "an empty folder": "mkdir .git",
    "half of one": "git init -q; rm .git/HEAD",
    "a file": "echo hello > .git",
    "an empty file": ": > .git",
    "a pointer to nowhere": "echo 'gitdir: /nonexistent/x' > .git",
    "a link to nowhere": "ln -s /nonexistent .git",
    "a link to itself": "ln -s .git .git",
    "a bare one": "git init -q --bare .git",
    "of the future": "git init -q; git config core.repositoryFormatVersion 99",
    "with an extension of the future": "git init -q; git config core.repositoryFormatVersion 1;"
    " git config extensions.frobnicate true",
    "with garbage for settings": "git init -q; head -c 300 /dev/urandom > .git/config",
    "with a hash nobody knows": "git init -q; git config core.repositoryFormatVersion 1;"
    " git config extensions.objectFormat md5",
    "with a worktree elsewhere": "git init -q; git config core.worktree /nonexistent/w",
}


@pytest.mark.parametrize("what", NO_REPOSITORY)
def test_files_beside_a_git_folder_that_git_cannot_use_are_saved(what: str, tmp_path: Path) -> None:
    with placed(tmp_path, NO_REPOSITORY[what] + "; echo precious > file") as place:
        saved = place.save()
        assert place.saver.repo().shadow
        assert repo.workspace_around(place.folder) == place.folder
        assert place.content(saved, "file") == b"precious\n"


HOMELESS = """
import os, sys
os.environ.pop("HOME", None)
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(64321); os.setuid(64321)
from pathlib import Path
from outlast.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_user_without_a_home_can_save() -> None:
    environment.need_root()
    with tempfile.TemporaryDirectory(prefix="outlast-homeless-") as top, placed(Path(top), BASE) as place:
        subprocess.run(["chown", "-R", "64321:64321", top], check=True)
        variables = {"PATH": "/usr/bin:/bin", "OUTLAST_STORE": f"{top}/store", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-P", "-c", HOMELESS, "save", "-m", "homeless"], cwd=place.folder, env=variables,
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_a_store_of_nobody_is_refused(tmp_path: Path) -> None:
    script = (
        "import os\nif os.geteuid() == 0: os.setuid(64321)\nfrom outlast import store\n"
        "try: store.default_url()\nexcept store.StoreRefused as error: print(error.hint)\n"
    )
    environment.need_root()
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert "OUTLAST_STORE" in done.stdout, done.stderr
    assert issubclass(StoreRefused, Exception)
    assert store.default_url()


def test_the_branch_that_is_checked_out_is_found_without_asking_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_repo(tmp_path / "w")
    made.git("commit", "-q", "--allow-empty", "-m", "first")
    made.git("checkout", "-q", "-b", "deep/branch")
    made.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    made.git("worktree", "add", "-q", "--detach", str(tmp_path / "detached"))
    (made.folder / "below").mkdir()
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    monkeypatch.setenv("PATH", "/nowhere")
    assert repo.branch_in(made.folder) == "deep/branch"
    assert repo.branch_in(tmp_path / "linked") == "side"
    for none in (tmp_path / "detached", made.folder / "below", tmp_path / "empty", tmp_path / "not there"):
        assert repo.branch_in(none) == ""
