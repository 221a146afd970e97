"""What a save does not take, whom it does not trust, and what a restore never does."""

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.errors import OutlastError, SaveFailed, WorkspaceRefused
from outlast.store.local import Local
from outlast.workspace import rules, saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.capture.special import secrets
from outlast.workspace.types import Purpose, Save
from tests.conftest import Nobody
from tests.support import environment, processes
from tests.support.environment import TIMEOUT_S
from tests.workspace.workspace import BASE, Workspace, placed, wrapper

LIMITS = rules.Limits(file_bytes=1000, folder_files=10, folder_bytes=5000)
PRIVATE_KEY = b"-----BEGIN OPENSSH PRIVATE " + b"KEY-----\n"


def left(save: Save) -> dict[str, str]:
    return {item.path: item.why for item in save.left_out}


def is_anywhere(git_dir: Path, needle: bytes) -> bool:
    """Whether any object of a repository, reachable or not, has these bytes."""
    listed = subprocess.run(
        ["git", f"--git-dir={git_dir}", "cat-file", "--batch-all-objects", "--batch"],
        capture_output=True, check=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    return needle in listed.stdout


# -- secrets -----------------------------------------------------------------------------------------------------------

SECRETS = [
    ".env",
    ".env.local",
    "deep/.env",
    "id_ed25519",
    "key.pem",
    ".netrc",
    "credentials.json",
    "x.tfstate",
]


@pytest.mark.parametrize("kind", ["repository", "folder"])
def test_untracked_secrets_are_kept_apart_and_come_back_when_asked(kind: str, tmp_path: Path) -> None:
    with placed(tmp_path, BASE if kind == "repository" else "true") as place:
        for number, name in enumerate([*SECRETS, "notes.txt", b"na\xffme.pem"]):
            place.write(name, (PRIVATE_KEY if name == "notes.txt" else b"") + b"hush-%d\n" % number)
        (place.folder / ".env").chmod(0o600)
        before = place.files()
        saved = place.save()
        found = left(saved)
        assert found.pop("notes.txt") == "secret: private key, kept apart"
        assert set(found.values()) == {"secret, kept apart"}
        assert set(SECRETS) < set(left(saved))
        assert not is_anywhere(place.saver.repo().vault, b"hush-")
        assert is_anywhere(secrets.git_dir(place.saver.private), b"hush-")
        for path in secrets.git_dir(place.saver.private).rglob("*.pack"):
            assert path.stat().st_mode & 0o077 == 0
        assert place.saver.private.stat().st_mode & 0o077 == 0
        place.empty()
        place.restore(saved)
        assert not (place.folder / ".env").exists()
        restored = place.restore(saved, with_secrets=True)
        assert len(restored.secrets) == len(SECRETS) + 2
        assert place.files() == before
        assert (place.folder / ".env").stat().st_mode & 0o777 == 0o600


def test_tracked_secrets_are_saved(place: Workspace) -> None:
    place.sh(
        "echo hush > .env; git add .env; git commit -qm env; echo hush2 > .env; echo hush3 > key.pem; git add key.pem"
    )
    saved = place.save()
    assert left(saved) == {}
    assert place.content(saved, ".env") == b"hush2\n"
    assert place.content(saved, "key.pem") == b"hush3\n"


def test_a_secret_that_is_untracked_again_goes_no_further_into_the_repository(place: Workspace) -> None:
    place.sh("echo old > .env; git add .env; git commit -qm env")
    place.save()
    place.sh("git rm -q --cached .env; git commit -qm untracked; echo hush-new > .env")
    saved = place.save()
    assert not is_anywhere(place.folder / ".git", b"hush-new")
    assert left(saved) == {".env": "secret, kept apart"}


def test_a_file_that_becomes_a_secret_leaves_the_save(place: Workspace) -> None:
    place.write("notes", b"harmless")
    assert place.content(place.save(), "notes") == b"harmless"
    place.write("notes", PRIVATE_KEY + b"hush-key")
    saved = place.save()
    assert place.content(saved, "notes") is None
    assert left(saved) == {"notes": "secret: private key, kept apart"}
    assert not is_anywhere(place.folder / ".git", b"hush-key")
    place.write("notes", b"harmless again")
    assert place.content(place.save(), "notes") == b"harmless again"


def test_a_secret_of_now_is_not_overwritten_by_one_of_then_unless_it_is_saved(place: Workspace) -> None:
    place.write(".env", b"then")
    saved = place.save()
    place.write(".env", b"now")
    before = place.restore(saved, with_secrets=True).before
    assert (place.folder / ".env").read_bytes() == b"then"
    assert before is not None
    place.restore(before.commit, with_secrets=True)
    assert (place.folder / ".env").read_bytes() == b"now"
    place.sh("rm .env; mkdir .env; echo unsaved > .env/x; echo .env >> .git/info/exclude; echo x >> a.txt")
    with pytest.raises(SaveFailed, match=r"\.env is in the way"):
        place.restore(saved, with_secrets=True)
    assert (place.folder / ".env/x").read_bytes() == b"unsaved\n"
    assert (place.folder / "a.txt").read_bytes().endswith(b"x\n"), "refused before anything was touched"


PUT_AWAY = {
    "ignored": "echo later > notes; echo notes >> .git/info/exclude",
    "big": "head -c 3000 /dev/zero > notes",
    "secret": "printf -- '-----BEGIN PRIVATE KEY-----\nhush-key\n' > notes",
    "in a full folder": "echo later > data/1; seq 30 | while read n; do echo $n > data/$n; done",
    "a link for its folder": "rm -r data; ln -s a.txt data; echo /data >> .git/info/exclude",
}


@pytest.mark.parametrize("how", PUT_AWAY)
def test_what_a_save_would_not_take_any_more_is_saved_before_a_restore_writes_over_it(
    place: Workspace, how: str
) -> None:
    place.limits = LIMITS
    place.write("notes", b"then\n")
    place.write("data/1", b"then\n")
    saved = place.save()
    place.sh(PUT_AWAY[how])
    there = {
        name: place.folder.joinpath(name).read_bytes()
        for name in ("notes", "data/1")
        if (place.folder / name).exists()
    }
    assert place.restore(saved, dry_run=True).written
    before = place.restore(saved).before
    assert before is not None
    assert [(place.folder / name).read_bytes() for name in ("notes", "data/1")] == [b"then\n"] * 2
    assert not is_anywhere(place.folder / ".git", b"hush-key")
    place.sh("> .git/info/exclude")
    again = place.restore(before, with_secrets=True, force=True)
    assert {name: (place.folder / name).read_bytes() for name in there} == there, again
    assert (place.folder / "data").is_symlink() == (how == "a link for its folder")


# -- too big -----------------------------------------------------------------------------------------------------------


def test_gigabytes_that_are_not_saved_are_not_read(place: Workspace) -> None:
    """A save reads what it says it reads, by the kernel's own count."""
    place.limits = rules.Limits(file_bytes=1_000, digest_bytes=50_000)
    for number in range(5):
        place.write(f"big{number}", b"x" * 20_000)
    with open(place.folder / "huge", "wb") as file:
        file.truncate(5 << 30)
    before = _bytes_read()
    told = {item.path: item for item in place.save().left_out}
    assert _bytes_read() - before < 10_000_000
    assert [bool(told[f"big{number}"].digest) for number in range(5)] == [True, True, False, False, False]
    assert (told["huge"].size, told["huge"].digest) == (5 << 30, "")
    assert {item.path: item for item in place.save().left_out} == told, "the same files, another save"


def _bytes_read() -> int:
    """What this process has read, from disks or not."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


def test_what_is_too_big_is_listed_with_size_and_digest_and_never_deleted(place: Workspace) -> None:
    place.limits = LIMITS
    place.write("big", b"x" * 2000)
    for number in range(20):
        place.write(f"data/{number}", b"d" * number)
    place.write("small", b"s")
    saved = place.save()
    told = {item.path: item for item in saved.left_out}
    assert set(told) == {"big", "data/"}
    assert told["big"].size == 2000
    assert told["big"].digest
    assert told["data/"].size == sum(range(20))
    assert told["data/"].digest
    place.write("small", b"changed")
    restored = place.restore(saved)
    assert set(restored.left_alone) == {"big", "data/"}
    assert (place.folder / "big").stat().st_size == 2000
    assert len(list((place.folder / "data").iterdir())) == 20
    place.write("big", b"now small")
    for number in range(5, 20):
        (place.folder / f"data/{number}").unlink()
    restored = place.restore(saved)
    assert restored.deleted == ()
    assert (place.folder / "big").read_bytes() == b"now small"
    assert len(list((place.folder / "data").iterdir())) == 5


def test_a_big_file_is_saved_when_it_is_tracked(place: Workspace) -> None:
    place.limits = LIMITS
    place.sh("head -c 5000 /dev/zero > big; git add big; echo more >> big")
    saved = place.save()
    assert saved.left_out == ()
    assert place.content(saved, "big") == b"\0" * 5000 + b"more\n"


def test_a_folder_stays_over_budget_without_its_fullest_part(place: Workspace) -> None:
    place.limits = LIMITS
    for number in range(30):
        place.write(f"data/{'deep/' if number % 2 else ''}{number}", b"d")
    saved = place.save()
    assert set(left(saved)) in ({"data/"}, {"data/", "data/deep/"})
    assert place.content(saved, "data/2") is None


def test_mass_deletion_is_saved_and_flagged_and_the_save_before_comes_back(place: Workspace) -> None:
    place.sh(
        "mkdir many; cd many; for i in $(seq 60); do echo $i > f$i; done; cd ..; git add many; git commit -qm many"
    )
    before = place.files()
    first = place.save("beat")
    assert first.warning == ""
    place.empty()
    second = place.save("beat")
    assert "files were deleted" in second.warning
    held = place.held(second)
    assert held.meta.removed >= 60
    assert "files were deleted" in held.meta.warning
    assert held.previous == first.commit
    place.restore(held.previous)
    assert place.files() == before


# -- where it may be ---------------------------------------------------------------------------------------------------


def test_the_root_and_a_home_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "people" / "me"
    home.mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    for folder in (Path("/"), home, home.parent, tmp_path, tmp_path / "link", home / ".." / "me"):
        with pytest.raises(WorkspaceRefused):
            Saver(folder, Local(tmp_path / "state")).repo()
    (home / "project").mkdir()
    Saver(home / "project", Local(tmp_path / "state")).repo()
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceRefused):
        Saver(tmp_path / "file", Local(tmp_path / "state")).repo()


@contextlib.contextmanager
def mounted(at: Path, *options: str) -> Iterator[Path]:
    environment.need_root()
    at.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, at], capture_output=True, text=True, check=False)
    if done.returncode:
        environment.skip_or_fail(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", at], check=True)


def test_a_full_disk_of_the_repository_stops_no_save(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=4m", "none") as disk, placed(disk) as place:
        place.state = tmp_path / "state"
        place.anew()
        first, files = place.save(), place.files()
        names = set((place.folder / ".git").rglob("*"))
        place.write("big", os.urandom(1 << 20))
        ballast = disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(os.urandom(4096))
        full = place.save()
        assert set((place.folder / ".git").rglob("*")) == names
        ballast.unlink()
        assert place.content(full, "big") == (place.folder / "big").read_bytes()
        place.restore(first)
        assert place.files() == files
        place.fsck()


def test_a_full_disk_of_the_state_folder_fails_the_save_visibly(tmp_path: Path) -> None:
    with (
        mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=1m", "none") as disk,
        placed(tmp_path) as place,
    ):
        place.state = disk / "state"
        place.anew()
        first = place.save()
        ballast = disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 512)
        place.sh("echo more > more; git add more")
        with contextlib.suppress(SaveFailed):
            assert place.content(place.save(), "more") == b"more\n"
        ballast.unlink()
        assert place.content(place.save(), "more") == b"more\n"
        place.restore(first)


def test_a_git_folder_that_cannot_be_written_stops_no_save(place: Workspace, tmp_path: Path) -> None:
    first = place.save()
    git_dir = place.folder / ".git"
    with mounted(git_dir, "--bind", str(git_dir)):
        subprocess.run(["mount", "-o", "remount,ro,bind", git_dir], check=True)
        place.write("a.txt", b"changed")
        saved = place.save()
    assert place.content(saved, "a.txt") == b"changed"
    place.restore(first)


NOBODYS = """
import os, sys
from pathlib import Path
from outlast.store.local import Local
from outlast.workspace.capture.saver import Saver
from outlast.workspace.types import Purpose
saver = Saver(Path("w"), Local(Path("state").absolute()))
def save():
    return saver.capture(Purpose(kind="emergency", run="r"))
first = save()
for path in ("secret", "d/x", "d/tracked"):
    print("first", path, saver.reader().has(first.commit) and path)
os.chmod("w/unreadable", 0); os.chmod("w/d", 0)
second = save()
for item in second.left_out:
    print("left", item.path, item.why)
print("same" if saver.peek() and second.removed == 0 else "removed")
import subprocess
print(subprocess.run(["git", f"--git-dir={saver.repo().vault}", "ls-tree", "-r", "--name-only", second.commit], capture_output=True, text=True).stdout)
os.chmod("w/d", 0o755)
os.chmod(saver.repo().packs, 0o555)
Path("w/new").write_text("new")
try:
    save()
except Exception as error:
    print(type(error).__name__, error)
"""


def test_what_may_not_be_read_is_named_and_kept_and_what_may_not_be_written_fails(as_nobody: Nobody) -> None:
    made = as_nobody.run(
        [
            "bash",
            "-ec",
            "mkdir -p w/d; cd w; git init -q; echo t > d/tracked; git add d; git commit -qm d; echo x > d/x; echo u > unreadable",
        ]
    )
    assert made.returncode == 0, made.stderr
    done = as_nobody.run([sys.executable, "-c", NOBODYS])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("left unreadable ") for line in lines), done.stdout
    assert any(line.startswith("left d/ ") for line in lines), done.stdout
    assert {"same", "d/x", "d/tracked", "unreadable"} <= set(lines), done.stdout
    assert lines[-1].startswith("SaveFailed"), done.stdout


# -- things that move, hang or lie -------------------------------------------------------------------------------------


def test_a_file_that_never_rests_is_named_and_keeps_what_was_saved_of_it(place: Workspace) -> None:
    place.write("busy", b"at rest")
    place.write("calm", b"1")
    place.save()
    place.write("calm", b"2")
    stop = threading.Event()

    def rewrite() -> None:
        with open(place.folder / "busy", "r+b", buffering=0) as file:
            for number in itertools.count():
                file.seek(0)
                file.write(b"x" * (5 << 20) + b"%d" % number)
                if stop.is_set():
                    return

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        processes.wait_for(lambda: (place.folder / "busy").stat().st_size > 1 << 20)
        found = [place.save() for _ in range(5)]
    finally:
        stop.set()
        writer.join()
    moving = [saved for saved in found if left(saved) == {"busy": "moving"}]
    assert moving, [left(saved) for saved in found]
    assert place.content(found[-1], "calm") == b"2"
    assert place.content(moving[0], "busy") is not None, "what was saved before is kept"
    last = place.save()
    assert last.left_out == ()
    assert place.content(last, "busy") == (place.folder / "busy").read_bytes()


def test_pipes_sockets_and_devices_are_passed_by(place: Workspace) -> None:
    first = place.save()
    os.mkfifo(place.folder / "pipe")
    os.mkfifo(place.folder / "key.pem")
    (place.folder / "a.txt").unlink()
    os.mkfifo(place.folder / "a.txt")
    with contextlib.suppress(PermissionError):
        os.mknod(place.folder / "device", 0o600 | 0o020000, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(place.folder)
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
        saved = place.save()
        assert place.content(saved, "pipe") is None
        assert "a.txt" in left(saved)
        with contextlib.suppress(SaveFailed):
            place.restore(first)
    assert (place.folder / "pipe").is_fifo()
    (place.folder / "a.txt").unlink()
    place.restore(first)
    assert (place.folder / "a.txt").is_file()


def test_a_git_that_fails_never_gives_a_stale_tree(place: Workspace) -> None:
    place.write("new", b"1")
    first = place.save()
    whole = (place.folder / ".git/index").read_bytes()
    for number, damaged in enumerate((b"", b"garbage", whole[: len(whole) // 2], whole[:-1] + b"\0" * 9)):
        (place.folder / ".git/index").write_bytes(damaged)
        place.write("new", b"2-%d" % number)
        for again in (False, True):
            if again:
                place.anew()
            try:
                saved = place.save()
            except SaveFailed:
                continue
            assert place.content(saved, "new") == b"2-%d" % number
            assert place.content(saved, "a.txt") is not None
    (place.folder / ".git/index").write_bytes(whole)
    assert place.content(first, "new") == b"1"
    assert place.content(place.save(), "new") == b"2-3"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "word", ["ls-files", "diff-files", "write-tree", "update-index", "config", "cat-file"]
)
def test_any_git_step_that_fails_is_a_failed_save(
    word: str, place: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("new", b"1")
    wrapper(tmp_path, monkeypatch, f'case " $* " in *" {word} "*) echo broken >&2; exit 128;; esac')
    saved = None
    with contextlib.suppress(SaveFailed):
        saved = place.save()
    monkeypatch.undo()
    assert saved is None or place.content(saved, "new") == b"1"
    place.anew()
    saved = place.save()
    assert place.content(saved, "new") == b"1"
    assert place.content(saved, "sub/b.txt") is not None


def test_two_savers_at_once_take_turns(place: Workspace) -> None:
    """Another process holds the lock: the save waits, and is then made."""
    other = Saver(place.folder, Local(place.state))
    found: list[Save | OutlastError | None] = []

    def capture() -> None:
        try:
            found.append(other.capture(Purpose(kind="emergency", run="r2")))
        except OutlastError as error:
            found.append(error)

    with place.saver.lock():
        waiting = threading.Thread(target=capture)
        waiting.start()
        assert not found
    waiting.join()
    other.close()
    assert isinstance(found[0], Save)
    assert saves.newest(place.saver.repo(), place.saver.reader(), "r2") is not None
