import fcntl
import os
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from outlast.errors import SaveDamaged, SaveFailed
from outlast.settings import TIMING
from outlast.workspace.git import refs
from outlast.workspace.git.objects import SHA1
from outlast.workspace.git.refs import ANY, delete_ref, list_refs, read_ref, task_branch, write_ref
from tests.support import processes, strace
from tests.support.environment import TIMEOUT_S, skip_or_fail
from tests.workspace.gitrepo import GitRepo, make_repo

REF = "refs/outlast/01J/beat"
TRIES_OF_A_LOCK = 2_000


@pytest.fixture
def oids(repo: GitRepo) -> list[str]:
    tree = repo.git("mktree").decode().strip()
    return [repo.git("commit-tree", tree, "-m", str(number)).decode().strip() for number in range(3)]


def _locks(repo: GitRepo) -> list[str]:
    return sorted(path.name for path in (repo.git_dir / "refs").rglob("*.lock"))


def test_git_sees_a_ref_that_we_wrote_and_we_see_gits(repo: GitRepo, oids: list[str]) -> None:
    write_ref(repo.git_dir, REF, oids[0], old=None)
    assert repo.git("rev-parse", REF).decode().strip() == oids[0]
    write_ref(repo.git_dir, REF, oids[1], old=oids[0])
    assert repo.git("for-each-ref", "--format=%(objectname) %(refname)").decode() == f"{oids[1]} {REF}\n"
    repo.git("update-ref", REF, oids[2], oids[1])
    assert read_ref(repo.git_dir, REF) == oids[2]
    write_ref(repo.git_dir, REF, oids[0], old=ANY)
    assert repo.git("rev-parse", REF).decode().strip() == oids[0]
    assert _locks(repo) == []
    assert not (repo.git_dir / "logs" / REF).exists()
    repo.fsck()


@pytest.mark.parametrize("packed", [False, True])
def test_a_ref_that_says_something_else_is_not_replaced(repo: GitRepo, oids: list[str], packed: bool) -> None:
    write_ref(repo.git_dir, REF, oids[0], old=None)
    if packed:
        repo.git("pack-refs", "--all", "--prune")
        assert not (repo.git_dir / REF).exists()
    for old in (None, oids[2]):
        with pytest.raises(SaveFailed, match=f"is {oids[0]}, expected"):
            write_ref(repo.git_dir, REF, oids[1], old=old)
    with pytest.raises(SaveFailed, match=r"missing, expected"):
        write_ref(repo.git_dir, f"{REF}2", oids[1], old=oids[0])
    assert read_ref(repo.git_dir, REF) == oids[0]
    assert _locks(repo) == []
    write_ref(repo.git_dir, REF, oids[1], old=oids[0])
    assert repo.git("rev-parse", REF).decode().strip() == oids[1]


def test_refs_are_listed_as_git_lists_them_loose_and_packed(repo: GitRepo, oids: list[str]) -> None:
    names = [
        f"refs/outlast/{run}/{kind}"
        for run in ("a", "ab", "ü")
        for kind in ("beat", "emergency/1", "emergency/2")
    ]
    for name in names:
        write_ref(repo.git_dir, name, oids[0], old=None)
    repo.git("tag", "-a", "-m", "x", "annotated", oids[0])
    repo.git("pack-refs", "--all", "--prune")
    write_ref(repo.git_dir, names[1], oids[1], old=oids[0])
    write_ref(repo.git_dir, "refs/outlast/new", oids[2], old=None)
    (repo.git_dir / "refs/outlast/damaged").write_bytes(b"\0" * 41)
    (repo.git_dir / "refs/outlast/other.lock").write_bytes(b"")
    for prefix in ("refs/outlast/", "refs/outlast/a/", "refs/outlast/a", "refs/", "refs/outlast/none/"):
        said = repo.try_git("for-each-ref", "--format=%(objectname) %(refname)").stdout.decode()
        listed = dict(reversed(line.split(" ", 1)) for line in said.splitlines())
        listed.pop("refs/outlast/damaged", None)
        assert list_refs(repo.git_dir, prefix) == {
            name: oid for name, oid in listed.items() if name.startswith(prefix)
        }
    with pytest.raises(SaveDamaged):
        read_ref(repo.git_dir, "refs/outlast/damaged")
    write_ref(repo.git_dir, "refs/outlast/damaged", oids[0], old=ANY)
    assert read_ref(repo.git_dir, "refs/outlast/damaged") == oids[0]


def test_a_symbolic_ref_is_followed_and_a_circle_is_an_error(repo: GitRepo, oids: list[str]) -> None:
    assert read_ref(repo.git_dir, "HEAD") is None
    write_ref(repo.git_dir, "refs/heads/main", oids[0], old=None)
    repo.git("symbolic-ref", "HEAD", "refs/heads/main")
    assert read_ref(repo.git_dir, "HEAD") == oids[0]
    (repo.git_dir / "refs/heads/round").write_text("ref: refs/heads/round\n")
    with pytest.raises(SaveDamaged, match="circle"):
        read_ref(repo.git_dir, "refs/heads/round")


@pytest.mark.parametrize("packed", [False, True])
def test_a_deleted_ref_is_gone_for_git_and_so_are_its_folders(
    repo: GitRepo, oids: list[str], packed: bool
) -> None:
    ref = "refs/outlast/01J/emergency/x"
    write_ref(repo.git_dir, ref, oids[0], old=None)
    write_ref(repo.git_dir, REF, oids[0], old=None)
    if packed:
        repo.git("pack-refs", "--all", "--prune")
        write_ref(repo.git_dir, ref, oids[1], old=oids[0])
    now = read_ref(repo.git_dir, ref)
    with pytest.raises(SaveFailed):
        delete_ref(repo.git_dir, ref, oids[2])
    with pytest.raises(SaveFailed):
        delete_ref(repo.git_dir, ref, None)
    assert read_ref(repo.git_dir, ref) == now
    delete_ref(repo.git_dir, ref, now)
    assert read_ref(repo.git_dir, ref) is None
    assert repo.git("for-each-ref", "--format=%(refname)").decode() == f"{REF}\n"
    assert not (repo.git_dir / ref).parent.exists()
    delete_ref(repo.git_dir, REF, ANY)
    delete_ref(repo.git_dir, REF, ANY)
    assert (repo.git_dir / "refs/outlast").exists()
    assert _locks(repo) == []


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("first", "second"), [(REF, f"{REF}/x"), (f"{REF}/x", REF)])
def test_a_ref_cannot_be_the_folder_of_another(
    repo: GitRepo, oids: list[str], first: str, second: str, packed: bool
) -> None:
    write_ref(repo.git_dir, first, oids[0], old=None)
    if packed:
        repo.git("pack-refs", "--all", "--prune")
    with pytest.raises(SaveFailed):
        write_ref(repo.git_dir, second, oids[1], old=None)
    assert list_refs(repo.git_dir, "refs/outlast/") == {first: oids[0]}
    delete_ref(repo.git_dir, first, oids[0])
    (repo.git_dir / second / "empty").mkdir(parents=True)
    write_ref(repo.git_dir, second, oids[1], old=None)
    assert list_refs(repo.git_dir, "refs/outlast/") == {second: oids[1]}


# --- locks ---


def test_the_lock_of_another_program_is_waited_for_and_then_respected(
    repo: GitRepo, oids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMING, "workspace.ref_lock_wait_s=0.05")
    write_ref(repo.git_dir, REF, oids[0], old=None)
    lock = repo.git_dir / f"{REF}.lock"
    lock.write_bytes(b"")
    with pytest.raises(SaveFailed, match="locked by another program") as caught:
        write_ref(repo.git_dir, REF, oids[1], old=oids[0])
    assert str(lock) in caught.value.hint
    assert refs.sweep_locks(repo.git_dir) == 0
    assert lock.exists()
    assert read_ref(repo.git_dir, REF) == oids[0]


def test_a_lock_that_is_given_back_is_taken(repo: GitRepo, oids: list[str]) -> None:
    write_ref(repo.git_dir, REF, oids[0], old=None)
    with refs._locked(repo.git_dir, REF):
        assert repo.try_git("update-ref", REF, oids[2]).returncode != 0
        writer = threading.Thread(
            target=write_ref, args=(repo.git_dir, REF, oids[1]), kwargs={"old": oids[0]}
        )
        writer.start()
    writer.join(TIMEOUT_S)
    assert read_ref(repo.git_dir, REF) == oids[1]


TAKING_AND_FREEING = """
import os, sys
print("begun", flush=True)
while True:
    try:
        os.symlink(sys.argv[2], sys.argv[1])
    except FileExistsError:
        continue
    os.unlink(sys.argv[1])
"""


def test_a_lock_that_is_freed_just_when_it_is_met_is_waited_for_as_any_other(
    repo: GitRepo, oids: list[str], tmp_path: Path
) -> None:
    write_ref(repo.git_dir, REF, oids[0], old=None)
    lock, output = repo.git_dir / f"{REF}.lock", tmp_path / "out"
    met = 0
    with processes.running(
        processes.python_command(TAKING_AND_FREEING, str(lock), refs._myself()), output=output
    ):
        processes.wait_for(lambda: "begun" in output.read_text(), what="the other to take the lock")
        for _ in range(TRIES_OF_A_LOCK):
            if refs._try_lock(lock):
                lock.unlink()
            else:
                met += 1
    assert met >= 10, "the two hardly met"


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        ({}, False),
        ({"pid": str(2**22 + 1)}, True),
        ({"ticks": "1"}, True),
        ({"boot": "another"}, True),
        ({"host": "elsewhere", "boot": "another"}, False),
        ({"space": "pid:[1]", "pid": str(2**22 + 1)}, False),
    ],
    ids=["mine", "dead", "pid reused", "before the boot", "another host", "another container"],
)
def test_only_the_lock_of_a_certainly_dead_owner_is_taken_over(
    repo: GitRepo, oids: list[str], monkeypatch: pytest.MonkeyPatch, change: dict[str, str], stale: bool
) -> None:
    monkeypatch.setenv(TIMING, "workspace.ref_lock_wait_s=0.05")
    _, host, boot, space, number, pid, ticks = refs._myself().split(":")
    parts = {"host": host, "boot": boot, "space": f"{space}:{number}", "pid": pid, "ticks": ticks} | change
    lock = repo.git_dir / f"{REF}.lock"
    lock.parent.mkdir(parents=True)
    lock.symlink_to(":".join(["outlast", *parts.values()]))
    if stale:
        write_ref(repo.git_dir, REF, oids[0], old=None)
        assert _locks(repo) == []
    else:
        with pytest.raises(SaveFailed, match="locked by outlast:"):
            write_ref(repo.git_dir, REF, oids[0], old=None)
        assert lock.is_symlink()


def test_who_waited_to_take_over_a_lock_does_not_take_the_new_owners(
    repo: GitRepo, oids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMING, "workspace.ref_lock_wait_s=0.05")
    lock = repo.git_dir / f"{REF}.lock"
    lock.parent.mkdir(parents=True)
    *me, _ = refs._myself().split(":")
    lock.symlink_to(":".join([*me, "1"]))
    with ThreadPoolExecutor(1) as pool:
        fd = os.open(lock.parent, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)  # the first taker
        second = pool.submit(write_ref, repo.git_dir, REF, oids[0], old=None)
        folder = f":{os.fstat(fd).st_ino} "
        processes.wait_for(
            lambda: any(
                "->" in line and folder in line for line in Path("/proc/locks").read_text().splitlines()
            ),
            what="the second taker to wait",
        )
        lock.unlink()
        lock.symlink_to(refs._myself())
        os.close(fd)
        with pytest.raises(SaveFailed, match="locked by outlast:"):
            second.result(TIMEOUT_S)
    assert os.readlink(lock) == refs._myself()


COUNTING = """
import sys
from pathlib import Path
from outlast.errors import SaveFailed
from outlast.workspace.git import refs
git_dir, log, wins = Path(sys.argv[1]), sys.argv[2], 0
while wins < 100:
    now = refs.read_ref(git_dir, "refs/outlast/n")
    try:
        refs.write_ref(git_dir, "refs/outlast/n", f"{int(now or '0', 16) + 1:040x}", old=now)
    except SaveFailed as error:
        assert "expected" in str(error), error
        continue
    wins += 1
    with open(log, "a") as file:
        file.write("won\\n")
"""


def test_many_writers_of_one_ref_lose_no_update_also_when_one_is_killed(tmp_path: Path) -> None:
    """The ref is a counter. The killed one may have counted without writing it into the log."""
    repo = make_repo(tmp_path / "repo")
    log = tmp_path / "log"
    log.write_text("")
    command = processes.python_command(COUNTING, str(repo.git_dir), str(log))
    with processes.running(command) as first, processes.running(command, output=tmp_path / "out") as second:
        processes.wait_for(lambda: log.read_text().count("won") >= 30, what="some wins")
        processes.kill(first)
        assert second.wait(TIMEOUT_S) == 0, (tmp_path / "out").read_text()
    wins = log.read_text().count("won")
    assert wins >= 100
    assert int(read_ref(repo.git_dir, "refs/outlast/n") or "", 16) - wins in (0, 1)
    assert _locks(repo) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from outlast import faults
from outlast.workspace.git.refs import ANY, write_ref
at = sys.argv[4]
faults.arm(lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == at else None)
write_ref(Path(sys.argv[1]), sys.argv[2], sys.argv[3], old=ANY)
"""


@pytest.mark.parametrize(("at", "written"), [("save.before_ref", False), ("save.ref_written", True)])
@pytest.mark.parametrize("then", ["write", "sweep"])
def test_killed_at_a_crash_point_the_ref_is_old_or_new_and_the_next_write_goes_through(
    repo: GitRepo, oids: list[str], at: str, written: bool, then: str
) -> None:
    write_ref(repo.git_dir, REF, oids[0], old=None)
    command = processes.python_command(KILLED, str(repo.git_dir), REF, oids[1], at)
    assert subprocess.run(command, timeout=TIMEOUT_S, check=False).returncode == -signal.SIGKILL
    assert repo.git("for-each-ref", "--format=%(objectname)").decode() == f"{oids[written]}\n"
    repo.fsck()
    assert _locks(repo) != []
    if then == "sweep":
        assert refs.sweep_locks(repo.git_dir) == 1
        repo.git("update-ref", REF, oids[2])
    else:
        write_ref(repo.git_dir, REF, oids[2], old=oids[written])
    assert read_ref(repo.git_dir, REF) == oids[2]
    assert _locks(repo) == []


@pytest.mark.strace
def test_the_value_is_durable_before_its_name_and_every_folder_after_it(tmp_path: Path) -> None:
    if reason := strace.available():
        skip_or_fail(reason)
    repo = make_repo(tmp_path / "repo")
    script = KILLED.replace("faults.arm", "str")
    command = processes.python_command(script, str(repo.git_dir), REF, "a" * 40, "none")
    out = tmp_path / "trace"
    traced = ["strace", "-f", "-y", "-e", "trace=fsync,rename,symlink,unlink", "-o", str(out), *command]
    subprocess.run(traced, check=True, timeout=TIMEOUT_S, env=processes.clean_environment())
    git_dir = os.path.realpath(repo.git_dir)
    calls = [
        line.split(None, 1)[1].replace(git_dir, "")
        for line in out.read_text().splitlines()
        if git_dir in line
    ]
    assert [call.partition(" = ")[0].partition("(")[0] for call in calls] == (
        ["symlink", "fsync", "rename"] + ["fsync"] * 4 + ["unlink"]
    )
    folders = [call.split("<")[1].split(">")[0] for call in calls[3:7]]
    assert folders == ["/refs/outlast/01J", "/refs/outlast", "/refs", ""]


def test_syncfs_takes_a_path_or_a_descriptor(tmp_path: Path) -> None:
    refs.syncfs(tmp_path)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        refs.syncfs(fd)
    finally:
        os.close(fd)
    with pytest.raises(OSError, match="descriptor"):
        refs.syncfs(fd)


def test_a_repository_with_reftable_is_written_through_git(tmp_path: Path) -> None:
    folder = tmp_path / "repo"
    made = subprocess.run(
        ["git", "init", "-q", "--ref-format=reftable", folder], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("this git knows no reftable")
    repo = GitRepo(folder, SHA1)
    tree = repo.git("mktree").decode().strip()
    oids = [repo.git("commit-tree", tree, "-m", str(number)).decode().strip() for number in range(2)]
    write_ref(repo.git_dir, REF, oids[0], old=None)
    with pytest.raises(SaveFailed):
        write_ref(repo.git_dir, REF, oids[1], old=None)
    write_ref(repo.git_dir, REF, oids[1], old=oids[0])
    assert list_refs(repo.git_dir, "refs/outlast/") == {REF: read_ref(repo.git_dir, REF)} == {REF: oids[1]}
    delete_ref(repo.git_dir, REF, oids[1])
    assert read_ref(repo.git_dir, REF) is None


# --- branches ---

TRAPS = [
    "",
    ".",
    "..",
    "a..b",
    ".a",
    "a.",
    "a.lock",
    ".lock",
    "a.lock.lock",
    "@",
    "@{",
    "a@{b",
    "/",
    "a/",
    "/a",
    "a//b",
]
TRAPS += [
    "a b",
    "~^:?*[\\",
    "\x7f\0\n",
    "%",
    "100%",
    "-x",
    "ü/ß",
    "日本語",
    "\udcff",
    "\ud800",
    "a\u2028b",
    "refs/heads/x",
]
PIECES = st.sampled_from([*TRAPS, ".", "/", "@", "{", "lock", "x"])
TASKS = st.text() | st.lists(PIECES, max_size=8).map("".join) | st.text(min_size=60)


@given(TASKS, st.sampled_from([frozenset(), frozenset({"outlast"}), frozenset({"main"})]))
@example("x" * 101, frozenset())
@example("é" * 51, frozenset())
@example("%" * 40, frozenset())
@example("a" * 90 + "....", frozenset())
def test_any_task_has_a_branch_that_git_accepts(task: str, taken: frozenset[str]) -> None:
    branch = task_branch(task, taken)
    done = subprocess.run(["git", "check-ref-format", "--branch", branch], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, os.fsencode(branch) + b"\n"), (task, branch)
    assert branch.startswith("outlast-" if "outlast" in taken else "outlast/")
    assert len(branch.encode()) <= len("outlast/") + refs.BRANCH_BYTES_MAX
    refs._check_name(f"refs/heads/{branch}")


@given(TASKS, TASKS)
def test_two_tasks_never_share_a_branch_and_none_is_the_folder_of_another(one: str, two: str) -> None:
    first, second = task_branch(one, ()), task_branch(two, ())
    assert (first == second) == (one == two)
    assert not first.startswith(f"{second}/")


@pytest.mark.parametrize(
    ("task", "branch"),
    [
        ("1411", "outlast/1411"),
        ("fix the parser", "outlast/fix%20the%20parser"),
        ("größer", "outlast/größer"),
        ("a/b", "outlast/a%2Fb"),
        ("v1.2", "outlast/v1.2"),
        ("x.lock", "outlast/x%2Elock"),
        ("", "outlast/%"),
    ],
)
def test_an_ordinary_task_keeps_its_name(task: str, branch: str) -> None:
    assert task_branch(task, ()) == branch


def test_a_branch_called_outlast_makes_way_for_none(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    oid = repo.git("commit-tree", repo.git("mktree").decode().strip(), "-m", "x").decode().strip()
    repo.git("branch", "outlast", oid)
    with pytest.raises(SaveFailed):
        write_ref(repo.git_dir, f"refs/heads/{task_branch('1', ())}", oid, old=None)
    write_ref(repo.git_dir, f"refs/heads/{task_branch('1', {'outlast'})}", oid, old=None)
    assert repo.git("rev-parse", "outlast-1").decode().strip() == oid
