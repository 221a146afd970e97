"""What a save would not take by now is not lost by a restore, and a secret among it never gets into the repository."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.errors import SaveFailed
from outlast.workspace import leftovers
from outlast.workspace.capture import files as capture_files
from outlast.workspace.capture.special import secrets
from outlast.workspace.restore import restore, worktree
from outlast.workspace.types import Purpose
from tests.conftest import Nobody
from tests.support import inprocess
from tests.support.environment import ROOT, TIMEOUT_S
from tests.workspace.test_guards import PRIVATE_KEY, is_anywhere, left
from tests.workspace.workspace import Workspace

# -- secrets in the place of saved files -------------------------------------------------------------------------------

SECRET_BY_NOW = {
    "ignored": ("key.pem", "echo hush-now > key.pem; echo key.pem > .gitignore"),
    "big": ("key.pem", "(echo hush-now; head -c 11000000 /dev/zero) > key.pem"),
    "big and ignored": (
        "key.pem",
        "(echo hush-now; head -c 11000000 /dev/zero) > key.pem; echo key.pem > .gitignore",
    ),
    "begins like a key": (
        "notes",
        f"printf -- '{PRIVATE_KEY.decode().strip()}\\nhush-now\\n' > notes; echo notes > .gitignore",
    ),
    "for a folder": (
        "dir",
        f"rm -r dir; printf -- '{PRIVATE_KEY.decode().strip()}\\nhush-now\\n' > dir; echo /dir > .gitignore",
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize("how", SECRET_BY_NOW)
def test_a_secret_in_the_place_of_a_saved_file_goes_apart_and_never_into_the_repository(
    place: Workspace, how: str, remembered: bool
) -> None:
    path, script = SECRET_BY_NOW[how]
    place.sh(
        "mkdir dir; echo then > dir/f; echo then > key.pem; git add -A; git commit -qm k; echo then > notes"
    )
    saved = place.save()
    place.sh(f"git rm -q -r --cached {path}; {script}" if path != "notes" else script)
    if not remembered:  # as after a reboot
        (place.saver.private / "memo").unlink()
        place.anew()
    there = (place.folder / path).read_bytes()
    done = place.restore(saved)
    assert (
        b"then\n"
        in ((place.folder / path / "f") if how == "for a folder" else (place.folder / path)).read_bytes()
    )
    assert not is_anywhere(place.folder / ".git", b"hush-now")
    assert is_anywhere(secrets.git_dir(place.saver.private), b"hush-now")
    assert done.before is not None
    assert done.apart == (path,)
    assert [kept.path for kept in place.held(done.before).meta.secrets] == [path]
    if (
        how == "for a folder"
    ):  # what is in it by now is not deleted, for the save that is undone to ignored it
        (place.folder / path / "f").unlink()
        (place.folder / path).rmdir()
    place.restore(done.before, with_secrets=True)
    assert (place.folder / path).read_bytes() == there


def test_a_big_secret_is_kept_apart_and_one_above_measure_is_listed_and_not_written_over(
    place: Workspace,
) -> None:
    place.sh("echo then > x.tfstate; git add x.tfstate; git commit -qm x")
    saved = place.save()
    place.sh("git rm -q --cached x.tfstate")
    for size, why in (
        (capture_files.SECRET_BYTES_MAX, "secret, kept apart"),
        (capture_files.SECRET_BYTES_MAX + 1, "secret, too big to be kept apart"),
    ):
        os.truncate(place.folder / "x.tfstate", size)
        assert left(place.save()) == {"x.tfstate": why}
    place.write("a.txt", b"changed")
    with pytest.raises(SaveFailed, match=r"^x\.tfstate is in the way"):
        place.restore(saved)
    assert (place.folder / "x.tfstate").stat().st_size == capture_files.SECRET_BYTES_MAX + 1
    assert (place.folder / "a.txt").read_bytes() == b"changed", "refused before anything was touched"


def test_an_ignored_file_in_the_place_of_a_secret_is_kept_apart_before_the_secret_comes_back(
    place: Workspace,
) -> None:
    place.write(".env", b"then")
    saved = place.save()
    place.sh("echo .env >> .git/info/exclude; echo hush-now > .env")
    before = place.restore(saved, with_secrets=True).before
    assert before is not None
    assert (place.folder / ".env").read_bytes() == b"then"
    assert not is_anywhere(place.folder / ".git", b"hush-now")
    place.restore(before, with_secrets=True)
    assert (place.folder / ".env").read_bytes() == b"hush-now\n"


def test_what_is_spared_is_left_as_it_is_file_or_secret(place: Workspace) -> None:
    place.write(".env", b"then")
    place.write("notes", b"then")
    saved = place.save()
    place.sh(
        "echo notes >> .git/info/exclude; echo now > notes; echo now > .env; echo now > a.txt; chmod 600 notes"
    )
    purpose = Purpose(kind="pre-restore", run="r1")
    options = restore.Options(with_secrets=True, spared=frozenset((b".env", b"notes")))
    restore.restore(place.saver, place.held(saved), purpose, options)
    assert [(place.folder / name).read_bytes() for name in (".env", "notes")] == [b"now\n"] * 2
    assert (place.folder / "notes").stat().st_mode & 0o777 == 0o600
    assert (place.folder / "a.txt").read_bytes() != b"now\n"


NOBODYS = """
import os
from pathlib import Path
from outlast.errors import SaveFailed
from outlast.workspace.restore import restore as restoring
from outlast.workspace import saves
from outlast.store.local import Local
from outlast.workspace.capture.saver import Saver
from outlast.workspace.types import Purpose
saver = Saver(Path("w"), Local(Path("state").absolute()))
made = saver.capture(Purpose(kind="manual", run="r"))
held = saves.read(saver.reader(), made.commit, saver.repo().algo)
Path("w/closed/a").write_text("2"); Path("w/open").write_text("2"); os.chmod("w/closed", 0)
for dry_run in (True, False):
    try:
        restoring.restore(saver, held, Purpose(kind="pre-restore", run="r"), restoring.Options(dry_run=dry_run))
    except SaveFailed as error:
        print(error, Path("w/open").read_text())
os.chmod("w/closed", 0o755)
restoring.restore(saver, held, Purpose(kind="pre-restore", run="r"), restoring.Options())
print(Path("w/closed/a").read_text(), Path("w/open").read_text())
"""


def test_a_folder_that_may_not_be_read_is_named_where_the_save_has_files_in_it(as_nobody: Nobody) -> None:
    made = as_nobody.run(
        ["bash", "-ec", "mkdir -p w/closed; cd w; git init -q; printf 1 > closed/a; printf 1 > open"]
    )
    assert made.returncode == 0, made.stderr
    done = as_nobody.run([sys.executable, "-c", NOBODYS])
    assert done.returncode == 0, done.stderr
    *refused, last = done.stdout.splitlines()
    assert len(refused) == 2
    for line in refused:
        assert line.startswith("cannot read closed/, and the save ")
        assert line.endswith(" 2"), "nothing was touched"
    assert last == "1 1"


# -- names of ours -----------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from outlast import faults
from outlast.workspace.restore import restore as restoring
from outlast.workspace import saves
from outlast.store.local import Local
from outlast.workspace.capture.saver import Saver
from outlast.workspace.types import Purpose
from outlast.workspace.restore import worktree
worktree.NAMELESS = sys.argv[2] == "nameless"
saver = Saver(Path("w"), Local(Path("state").absolute()))
held = saves.read(saver.reader(), sys.argv[1], saver.repo().algo)
def hook(name):
    if name == "restore.named" and b"hush" in b"".join(path.read_bytes() for path in Path("w").glob(".outlast-*")):
        os.kill(os.getpid(), signal.SIGKILL)
faults.arm(hook)
restoring.restore(saver, held, Purpose(kind="pre-restore", run="r1"), restoring.Options(with_secrets=True))
"""


@pytest.mark.parametrize("then", ["save", "restore"])
@pytest.mark.parametrize("how", ["nameless", "named"])
def test_killed_while_a_secret_is_put_back_it_stays_under_no_other_name(
    place: Workspace, tmp_path: Path, how: str, then: str
) -> None:
    place.write(".env", b"hush")
    (place.folder / ".env").chmod(0o600)
    saved = place.save()
    place.write(".env", b"now")
    place.close()
    done = subprocess.run(
        [sys.executable, "-c", KILLED, saved.commit, how], cwd=tmp_path, capture_output=True,
        timeout=TIMEOUT_S, check=False, env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    (stays,) = place.folder.glob(".outlast-*")
    assert stays.stat().st_mode & 0o777 == 0o600
    place.anew()
    if then == "save":
        assert set(left(place.save())) == {".env"}
    else:
        place.restore(saved, with_secrets=True)
        assert (place.folder / ".env").read_bytes() == b"hush"
    assert not stays.exists()
    assert not is_anywhere(place.folder / ".git", b"hush")


def test_a_file_that_is_only_called_like_ours_is_listed_and_never_deleted(place: Workspace) -> None:
    saved = place.save()
    place.write(".outlast-17", b"a person's")
    assert left(place.save()) == {".outlast-17": "unfinished, left by outlast"}
    assert place.content(place.save(), ".outlast-17") is None
    place.restore(saved)
    assert (place.folder / ".outlast-17").read_bytes() == b"a person's"
    place.sh("git add -f .outlast-17")
    assert place.content(place.save(), ".outlast-17") == b"a person's", "what is tracked is saved"
    assert [
        leftovers.is_temporary_name(path) for path in (b"d/.outlast-1", b".outlast-1x", b"x.outlast-1")
    ] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("nameless", [True, False])
def test_what_is_put_back_has_its_permissions_and_replaces_what_is_there(
    place: Workspace, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    place.sh("echo 1 > there; echo 1 > gone; echo s > .env; chmod 640 .env there; chmod 755 gone")
    saved, files = place.save(), place.files()
    place.sh("echo 22 > there; echo 22 > .env; rm gone; mkdir -p gone/empty")
    monkeypatch.setattr(worktree, "NAMELESS", nameless)
    place.restore(saved, with_secrets=True)
    assert place.files() == files
    modes = [(place.folder / name).stat().st_mode & 0o777 for name in ("there", "gone", ".env")]
    assert modes == [0o640, 0o755, 0o640]


# -- what is said ------------------------------------------------------------------------------------------------------


def test_an_interrupted_restore_says_where_what_was_there_is(place: Workspace) -> None:
    saved = place.save()
    place.sh("echo 1 > a.txt; echo 2 > c")

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with (
        inprocess.armed(inprocess.at_point("restore.written", act=interrupt)),
        pytest.raises(KeyboardInterrupt) as raised,
    ):
        place.restore(saved)
    (note,) = raised.value.__notes__
    assert "half restored" in note
    before = note.split()[-1]
    assert place.content(before, "c") == b"2\n"
    place.restore(saved)
    assert place.content(saved, "c") == (place.folder / "c").read_bytes()


@pytest.mark.parametrize("nameless", [True, False])
def test_an_error_names_the_file_and_not_a_name_of_ours(
    place: Workspace, as_nobody: Nobody, nameless: bool
) -> None:
    script = f"""
import os
from pathlib import Path
from outlast.errors import SaveFailed
from outlast.workspace.restore import restore as restoring
from outlast.workspace import saves
from outlast.store.local import Local
from outlast.workspace.capture.saver import Saver
from outlast.workspace.types import Purpose
from outlast.workspace.restore import worktree
worktree.NAMELESS = {nameless}
saver = Saver(Path("w"), Local(Path("state").absolute()))
made = saver.capture(Purpose(kind="manual", run="r"))
held = saves.read(saver.reader(), made.commit, saver.repo().algo)
Path("w/d/f").write_text("2"); os.chmod("w/d", 0o555)
try:
    restoring.restore(saver, held, Purpose(kind="pre-restore", run="r"), restoring.Options())
except SaveFailed as error:
    print(error)
"""
    made = as_nobody.run(["bash", "-ec", "mkdir -p w/d; cd w; git init -q; printf 1 > d/f"])
    assert made.returncode == 0, made.stderr
    done = as_nobody.run([sys.executable, "-c", script])
    assert done.stdout.strip().endswith(f": d/f: {os.strerror(13)}"), (
        done.stdout,
        done.stderr,
    )
