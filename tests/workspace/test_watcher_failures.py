"""A watcher that cannot watch: it says so, once and for certain, and nothing raises."""

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from outlast.workspace.watch import inotify, watcher as watch_watcher
from outlast.workspace.watch.watcher import Hints, Watcher
from tests.conftest import Nobody
from tests.support.environment import TIMEOUT_S, need_root, need_tool, skip_or_fail
from tests.support.processes import python_command, wait_for
from tests.workspace.watch_folder import assert_every_folder_is_watched, nothing, repository, watching_of


def assert_failed(watcher: Watcher, why: str) -> None:
    for _ in range(2):
        hints = watcher.take()
        assert (hints.scan, hints.repository, hints.paths) == (True, True, frozenset())
        assert why in hints.why
    assert why in watcher.failed
    assert watcher.watches == 0
    watcher.close()


def test_a_removed_root_fails(root: Path) -> None:
    watcher = Watcher(root, skip=nothing)
    root.rmdir()
    assert_failed(watcher, "No such file")


def test_a_root_that_was_replaced_fails(root: Path) -> None:
    watcher = Watcher(root, skip=nothing)
    root.rename(root.with_name("old"))
    root.mkdir()
    assert_failed(watcher, "another folder than before")


def test_a_folder_above_that_moves_fails(root: Path) -> None:
    (root / "inner").mkdir()
    watcher = Watcher(root / "inner", skip=nothing)
    root.rename(root.with_name("old"))
    assert_failed(watcher, "No such file")


def test_the_thread_alone_notices_that_the_root_is_gone(root: Path) -> None:
    watcher = Watcher(root, skip=nothing)
    root.rmdir()
    wait_for(lambda: watcher.failed, what="the watcher to notice")
    assert watcher.watches == 0
    watcher.close()


def test_it_says_that_it_failed_only_when_nothing_is_watched_any_more(root: Path) -> None:
    watcher = Watcher(root, skip=nothing)
    assert watcher._folders is not None
    queue = watcher._folders.queue
    with inotify.account()._lock:  # the thread waits for it after it closed the queue
        root.rmdir()
        wait_for(lambda: queue.fd < 0, what="the thread to close the queue")
        assert (watcher.failed, watcher.watches) == ("", 1)
    wait_for(lambda: watcher.failed, what="the watcher to say so")
    assert watcher.watches == 0
    watcher.close()


def test_a_missing_root_fails_and_does_not_raise(root: Path) -> None:
    assert_failed(Watcher(root / "none", skip=nothing), "No such file")


@pytest.mark.parametrize("how", ["removed", "moved", "made"])
def test_a_git_dir_that_is_not_what_it_was_fails(root: Path, how: str) -> None:
    if how == "made":
        watcher = Watcher(root, skip=nothing)
        repository(root)
    else:
        repository(root)
        watcher = Watcher(root, skip=nothing, git_dirs=[root / ".git"])
        shutil.rmtree(root / ".git") if how == "removed" else (root / ".git").rename(root.with_name("away"))
    wait_for(lambda: watcher.failed, what="the watcher to notice")
    assert_failed(watcher, ".git")


def test_a_skip_that_raises_is_a_failure_and_not_an_exception(root: Path) -> None:
    def skip(folders: list[bytes]) -> set[bytes]:
        raise KeyError("no git")

    watcher = Watcher(root, skip=skip)
    (root / "new").mkdir()
    assert_failed(watcher, "the watcher broke: KeyError('no git')")


def test_the_limit_holds_over_all_watchers_of_the_process(root: Path) -> None:
    for name in ("one/a", "one/b", "two/a", "two/b"):
        (root / name).mkdir(parents=True)
    used = inotify.account().used
    with watching_of(root / "one", limit=used + 5) as one:
        two = Watcher(root / "two", skip=nothing, limit=used + 5)
        assert_failed(two, f"needs more watches than the {used + 5} we may have")
        assert inotify.account().used == used + 3
        (root / "one/c").mkdir()
        (root / "one/c/d").mkdir()
        assert one.take().paths >= {b"c"}
        (root / "one/e").mkdir()
        assert_failed(one, "needs more watches")
        assert inotify.account().used == used


def test_without_a_limit_a_quarter_of_the_users_watches_is_ours() -> None:
    allowed = int(Path("/proc/sys/fs/inotify/max_user_watches").read_text())
    assert inotify.quarter() == allowed // 4


NO_WATCHES = """
import sys
from pathlib import Path
from outlast.workspace.watch.watcher import Watcher
root = Path(sys.argv[1])
for number in range(30):
    (root / str(number)).mkdir()
Path("/proc/sys/user/max_inotify_watches").write_text("20")
watcher = Watcher(root, skip=lambda folders: set())
assert watcher.watches == 0 and watcher.take().scan
print(watcher.take().why)
"""


def test_watches_that_the_kernel_refuses_are_a_failure(root: Path) -> None:
    """In a user namespace of its own, whose limit is nobody else's."""
    inside = [need_tool("unshare"), "--user", "--map-root-user"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False, timeout=TIMEOUT_S).returncode:
        skip_or_fail("needs user namespaces")
    done = subprocess.run(
        [*inside, *python_command(NO_WATCHES, str(root))],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stderr, done.stdout) == (
        "",
        "the user has no inotify watch left (fs.inotify.max_user_watches)\n",
    )


NO_INSTANCES = """
import errno, os
from pathlib import Path
from outlast.workspace.watch.inotify import Inotify
from outlast.workspace.watch.watcher import Watcher
Path("w").mkdir()
held = []
try:
    while len(held) < 100_000:
        held.append(Inotify())
except OSError as error:
    assert error.errno == errno.EMFILE
watcher = Watcher(Path("w"), skip=lambda folders: set())
print(watcher.failed, watcher.take().scan)
watcher.close()
"""


def test_instances_that_the_kernel_refuses_are_a_failure(as_nobody: Nobody) -> None:
    done = as_nobody.run(python_command(NO_INSTANCES))
    assert (done.stderr, done.stdout) == ("", "no inotify instance: Too many open files True\n")


def test_an_overflowing_queue_is_one_scan_and_the_watches_are_made_good(root: Path) -> None:
    """The watcher's thread is held where it asks about ignored folders."""
    held, go = threading.Event(), threading.Event()

    def skip(folders: list[bytes]) -> set[bytes]:
        if folders == [b"hold"]:
            held.set()
            go.wait(TIMEOUT_S)
        return set()

    (root / "old/gone").mkdir(parents=True)
    events_max = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with watching_of(root, skip) as watcher:
        (root / "hold").mkdir()
        assert held.wait(TIMEOUT_S)
        for number in range(events_max // 2 + 10):  # two events each, and no two alike in a row
            os.close(os.open(root / f"{number % 2}", os.O_CREAT | os.O_WRONLY))
            os.chmod(root / f"{number % 2}", 0o600)
        (root / "unseen/deep").mkdir(parents=True)
        shutil.rmtree(root / "old/gone")
        (root / "old").rename(root / "hold/old")
        assert watcher.take().why == "the watcher was busy for 2 s"
        go.set()
        assert watcher.take() == Hints(
            repository=True, scan=True, why="more events than the kernel's queue holds"
        )
        assert_every_folder_is_watched(root, watcher)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs", "fuse", "fuseblk", "virtiofs"])
def test_file_systems_that_others_write_to_are_not_watched(kind: str) -> None:
    assert watch_watcher._is_unseen(kind)


MOUNTS = """
import os, subprocess, sys
from pathlib import Path
from outlast.workspace.watch.watcher import Watcher
base = Path(sys.argv[1])

def mount(*words): subprocess.run(["mount", *map(str, words)], check=True)
def watch(root, *ignored): return Watcher(root, skip=lambda folders: set(ignored) & set(folders))

# The names of this mount namespace alone.
for name in ("lower/sub", "upper", "work", "merged", "root/real", "root/bound", "root/memory"):
    (base / name).mkdir(parents=True)
(base / "lower/sub/file").write_text("old")
mount("-t", "overlay", "-o", f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work", "none", base / "merged")
overlay = watch(base / "merged")
overlay.take()
with open(base / "merged/sub/file", "r+b") as file:
    file.write(b"new")
assert overlay.take().paths == {b"sub/file"}
(base / "merged/sub/new").write_text("")
assert overlay.take().paths == {b"sub/new"}
overlay.close()

mount("-t", "tmpfs", "none", base / "root/memory")
memory = watch(base / "root")
memory.take()
(base / "root/memory/file").write_text("")
assert memory.take().paths == {b"memory/file"}
subprocess.run(["umount", str(base / "root/memory")], check=True)
assert "was unmounted" in memory.take().why
memory.close()

mount("--bind", base / "root/real", base / "root/bound")
twice = watch(base / "root")
assert "bound is a mount of" in twice.failed, twice.failed
ignored = watch(base / "root", b"bound")
assert not ignored.failed
ignored.close()
"""


@pytest.mark.root
def test_mounts_inside_are_watched_where_that_works_and_refused_where_not(real_disk: Path) -> None:
    need_root()
    done = subprocess.run(
        [need_tool("unshare"), "--mount", *python_command(MOUNTS, str(real_disk))],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
