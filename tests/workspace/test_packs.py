import contextlib
import errno
import os
import random
import signal
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from outlast.errors import SaveDamaged, SaveFailed
from outlast.workspace.git import packs
from outlast.workspace.git.objects import (
    EXEC,
    FILE,
    SHA1,
    SHA256,
    WHO,
    Entry,
    commit_bytes,
    oid_of,
    tree_bytes,
)
from outlast.workspace.git.packs import CHUNK_BYTES, Moving, PackWriter, Unreadable, read_pack_index
from tests.conftest import Nobody
from tests.support import processes, strace
from tests.support.environment import TIMEOUT_S, need_root, need_tool, skip_or_fail
from tests.workspace.gitrepo import GitRepo, make_repo

AT = datetime(2026, 11, 15, tzinfo=UTC)
GROWTH_KB_MAX = 60 * 1024


def _add(pack: PackWriter, path: Path) -> str:
    return pack.add_file(os.fsencode(path), expect=path.lstat())


def _file(folder: Path, data: bytes, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _fill(pack: PackWriter, algo_name: str = "") -> str:
    """A commit with two files; its oid."""
    files = {b"a": Entry(FILE, pack.add("blob", b"one\n")), b"b": Entry(EXEC, pack.add("blob", b""))}
    return pack.add(
        "commit", commit_bytes(pack.add("tree", tree_bytes(files)), [], WHO, AT, f"a save {algo_name}")
    )


SIZES = [0, 1, 15, 16, 2047, 2048, packs.PROBE_BYTES, packs.PROBE_BYTES + 1, CHUNK_BYTES, CHUNK_BYTES + 1]
SIZES += [3 * CHUNK_BYTES, packs.STORED_FROM_BYTES - 1, packs.STORED_FROM_BYTES]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("hint", ["none", "right", "wrong"])
def test_git_finds_every_object_as_it_was_given(
    repo: GitRepo, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, hint: str
) -> None:
    contents = [rng.randbytes(size) for size in SIZES]
    contents += [(b"%d " % rng.randrange(100, 1000)) * (size // 4) for size in SIZES]
    given_bytes = {oid_of("blob", data, repo.algo): data for data in contents}
    count = {"none": 0, "right": len(given_bytes) + 3, "wrong": 1}[hint]  # the empty file is also in _fill
    if hint == "right":
        monkeypatch.delattr(packs, "_hash_of_file")  # it is not read once more
    with PackWriter(repo.packs, repo.algo, expect_objects=count) as pack:
        commit = _fill(pack)
        assert [_add(pack, _file(tmp_path, data)) for data in contents] == [
            oid_of("blob", data, repo.algo) for data in contents
        ]
        made = pack.close()
    assert made is not None
    repo.git("update-ref", "refs/outlast/x", commit)
    repo.fsck()
    repo.verify_packs()
    for oid, data in given_bytes.items():
        assert repo.git("cat-file", "blob", oid) == data
    assert repo.git("ls-tree", "--name-only", commit) == b"a\nb\n"
    listed = repo.git("show-index", f"--object-format={repo.algo.name}", stdin=made.index.read_bytes())
    assert read_pack_index(made.index) == [line.split()[1].decode() for line in listed.splitlines()]
    assert made.objects == len(read_pack_index(made.index))
    assert made.size_bytes == made.path.stat().st_size


def test_a_pack_is_kept_and_looks_like_one_of_gits(repo: GitRepo) -> None:
    old = os.umask(0o022)
    try:
        with PackWriter(repo.packs, repo.algo) as pack:
            _fill(pack)
            made = pack.close()
    finally:
        os.umask(old)
    assert made is not None
    assert _left(repo.packs) == [f"{made.path.stem}{suffix}" for suffix in (".idx", ".keep", ".pack")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in repo.packs.iterdir()} == {0o444}
    assert made.path.with_suffix(".keep").read_text() == "outlast\n"
    repo.git("repack", "-a", "-d", "-q")
    assert made.path.exists()
    read_pack_index(made.index)


def test_an_object_is_written_once(tmp_path: Path, rng: random.Random) -> None:
    repo = make_repo(tmp_path / "repo")
    big = _file(tmp_path, rng.randbytes(2 * CHUNK_BYTES), "big")
    small = _file(tmp_path, b"one\n", "small")
    with PackWriter(repo.packs, SHA1, expect_objects=5) as pack:
        _fill(pack)
        assert [_add(pack, big) for _ in range(3)] == [oid_of("blob", big.read_bytes(), SHA1)] * 3
        assert _add(pack, small) == pack.add("blob", b"one\n")
        made = pack.close()
    assert made is not None
    assert made.objects == 5
    repo.verify_packs()


def test_what_is_known_elsewhere_is_not_written(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    big = _file(tmp_path, b"x" * (2 * CHUNK_BYTES), "big")
    known = {oid_of("blob", b"one\n", SHA1), oid_of("blob", big.read_bytes(), SHA1)}
    with PackWriter(repo.packs, SHA1, known=known.__contains__) as pack:
        assert pack.add("blob", b"one\n") in known
        assert _add(pack, big) in known
        assert pack.close() is None
    assert _left(repo.packs) == []


def test_the_same_objects_again_make_the_same_pack(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    made = []
    for _ in range(2):
        with PackWriter(repo.packs, SHA1) as pack:
            _fill(pack)
            made.append(pack.close())
    assert made[0] == made[1]
    assert len(_left(repo.packs)) == 3
    repo.verify_packs()


def test_a_block_left_without_close_leaves_nothing(tmp_path: Path) -> None:
    with PackWriter(tmp_path, SHA1) as pack:
        _fill(pack)
        assert len(_left(tmp_path)) == 1
    assert _left(tmp_path) == []


@pytest.mark.parametrize("kind", ["random", "text"])
def test_what_does_not_shrink_is_stored_fast(tmp_path: Path, rng: random.Random, kind: str) -> None:
    size = 4 * CHUNK_BYTES
    data = rng.randbytes(size) if kind == "random" else b"the same words " * (size // 15)
    with PackWriter(tmp_path, SHA1) as pack:
        _add(pack, _file(tmp_path, data))
        made = pack.close()
    assert made is not None
    second_byte_of_zlib = made.path.read_bytes()[12 + 4 + 1]  # after the pack's header and the entry's
    assert second_byte_of_zlib >> 6 == 0
    assert (made.size_bytes >= size) == (kind == "random")


# --- files that change ---


@pytest.mark.parametrize("size", [100, 3 * CHUNK_BYTES])
@pytest.mark.parametrize(
    "how",
    ["before", "grown", "shrunk", "same size", "same mtime", "replaced", "gone", "link", "pipe", "folder"],
)
def test_a_file_that_changes_is_said_to_move_and_the_pack_stays_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random, size: int, how: str
) -> None:
    repo = make_repo(tmp_path / "repo")
    data = rng.randbytes(size)  # does not shrink: what is taken back had reached the file
    path = _file(tmp_path, data)
    os.utime(path, ns=(1, 1))
    change = {
        "before": lambda: path.write_bytes(data[::-1]),
        "grown": lambda: path.write_bytes(data + b"more"),
        "shrunk": lambda: os.truncate(path, size - 10),
        "same size": lambda: path.write_bytes(data[::-1]),
        "same mtime": lambda: (path.write_bytes(data[::-1]), os.utime(path, ns=(1, 1))),
        "replaced": lambda: os.replace(_file(tmp_path, data, "other"), path),
        "gone": path.unlink,
        "link": lambda: (path.rename(tmp_path / "moved"), path.symlink_to("moved")),
        "pipe": lambda: (path.unlink(), os.mkfifo(path)),
        "folder": lambda: (path.unlink(), path.mkdir()),
    }[how]
    expect = path.lstat()
    during = how in ("grown", "shrunk", "same size", "same mtime")
    if not during:
        change()
    with PackWriter(repo.packs, SHA1, expect_objects=5) as pack:  # right: it is not hashed once more
        commit = _fill(pack)
        read, calls = packs._read, iter([False, True] if size > CHUNK_BYTES else [True])

        def reading(fd: int, count: int, name: bytes) -> bytes:
            data = read(fd, count, name)
            if during and next(calls, False):
                change()  # after the first chunk was read, or the only one
            return data

        with monkeypatch.context() as patch:
            patch.setattr(packs, "_read", reading)
            with pytest.raises(Moving) as caught:
                pack.add_file(os.fsencode(path), expect=expect)
        assert caught.value.path == os.fsencode(path)
        pack.add("blob", b"after")
        pack.close()
    repo.git("update-ref", "refs/outlast/x", commit)
    repo.fsck()
    repo.verify_packs()


def test_a_file_rewritten_by_another_process_all_the_while_is_read_whole_or_said_to_move(
    real_disk: Path,
) -> None:
    """Each version is one letter throughout, written from the front: a file of the next letter and then the last one is half
    written, as it lay there while its writer did not run. Any other mixture was never on the disk."""
    repo = make_repo(real_disk / "repo")
    size = 6 * CHUNK_BYTES  # takes longer than a tick of the clock that the stat is told in
    path = _file(real_disk, b"a" * size)
    script = (
        "import itertools, os, sys\nfd = os.open(sys.argv[1], os.O_WRONLY)\n"
        f"for n in itertools.count(): os.pwrite(fd, bytes([97 + n % 26]) * {size}, 0)"
    )
    versions = {oid_of("blob", bytes([97 + n]) * size, SHA1) for n in range(26)}
    moved, odd = 0, set[str]()
    with PackWriter(repo.packs, SHA1) as pack:
        with processes.running(processes.python_command(script, str(path))):
            first = path.lstat().st_mtime_ns
            processes.wait_for(lambda: path.lstat().st_mtime_ns != first, what="the writer to write")
            for _ in range(60):
                try:
                    odd |= {_add(pack, path)} - versions
                except Moving:
                    moved += 1
        pack.add("blob", b"last")
        pack.close()
    assert moved > 0
    for oid in odd:
        written, left = _two_letters(repo.git("cat-file", "blob", oid))
        assert (written - left) % 26 == 1, (oid, written, left)
    repo.verify_packs()


def _two_letters(content: bytes) -> tuple[int, int]:
    """The letters of a file that has one up to some place and another from there on."""
    rest = content.lstrip(content[:1])
    assert set(rest) == set(rest[:1]) != set(), "a mixture of two versions"
    return content[0], rest[0]


def test_a_file_below_an_open_folder_is_found(tmp_path: Path) -> None:
    path = _file(tmp_path, b"data")
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with PackWriter(tmp_path, SHA1) as pack:
            assert pack.add_file(b"file", expect=path.lstat(), dir_fd=fd) == oid_of("blob", b"data", SHA1)
    finally:
        os.close(fd)


def test_reading_a_file_leaves_no_trace_on_it(tmp_path: Path) -> None:
    path = _file(tmp_path, b"data")
    os.utime(path, ns=(1, 10**18))
    with PackWriter(tmp_path, SHA1) as pack:
        _add(pack, path)
    assert path.lstat().st_atime_ns == 1


UNREADABLE = """
import os, sys
from pathlib import Path
from outlast.workspace.git.objects import SHA1
from outlast.workspace.git.packs import PackWriter, Unreadable
folder, foreign = Path("packs"), Path("/etc/hostname")
folder.mkdir()
closed, plain = Path("closed"), Path("plain")
closed.write_bytes(b"secret"), plain.write_bytes(b"plain")
closed.chmod(0)
with PackWriter(folder, SHA1) as pack:
    try:
        pack.add_file(b"closed", expect=closed.lstat())
    except Unreadable as error:
        print(error)
    pack.add_file(os.fsencode(foreign), expect=foreign.lstat())
    pack.add_file(b"plain", expect=plain.lstat())
    print(pack.close().objects)
"""


def test_one_unreadable_file_does_not_spoil_the_pack_and_anothers_file_is_read(as_nobody: Nobody) -> None:
    done = as_nobody.run([sys.executable, "-c", UNREADABLE])
    assert (done.stderr, done.stdout) == ("", "cannot read closed to save it: Permission denied\n2\n")


# --- memory and speed ---

GROWTH = """
import os, sys
from pathlib import Path
from outlast.workspace.git.objects import SHA1
from outlast.workspace.git.packs import PackWriter
folder, *names = map(Path, sys.argv[1:])
def peak():  # not ru_maxrss, which begins with what the parent had before the exec
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])
with PackWriter(folder, SHA1) as pack:
    pack.add("blob", b"warm")
    before = peak()
    for name in names:
        pack.add_file(os.fsencode(name), expect=name.lstat())
    pack.close()
print(peak() - before)
"""


@pytest.mark.sampled(0)
@pytest.mark.slow
def test_memory_does_not_grow_with_the_size_of_a_file(tmp_path: Path, rng: random.Random) -> None:
    repo = make_repo(tmp_path / "repo")
    sparse, noise = tmp_path / "sparse", tmp_path / "noise"
    with sparse.open("wb") as file:
        file.truncate(200 << 20)
    with noise.open("wb") as file:
        for _ in range(200):
            file.write(rng.randbytes(1 << 20))
    command = processes.python_command(GROWTH, str(repo.packs), str(sparse), str(noise))
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert int(done.stdout) <= GROWTH_KB_MAX
    repo.verify_packs()


# --- disks that fail ---


@contextlib.contextmanager
def _small_disk(at: Path, size_kb: int) -> Iterator[Path]:
    need_root()
    at.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size_kb}k", "outlast-test", str(at)]
    subprocess.run([need_tool("mount"), *options], check=True, timeout=TIMEOUT_S)
    try:
        yield at
    finally:
        subprocess.run([need_tool("umount"), "-l", str(at)], check=True, timeout=TIMEOUT_S)


@pytest.mark.root
@pytest.mark.parametrize("what", ["many small", "one big", "at the end"])
def test_a_full_disk_fails_the_save_and_leaves_nothing(tmp_path: Path, rng: random.Random, what: str) -> None:
    source = _file(tmp_path, rng.randbytes(3 * CHUNK_BYTES))
    with _small_disk(tmp_path / "disk", 1024) as folder:
        with pytest.raises(SaveFailed, match="No space left") as caught, PackWriter(folder, SHA1) as pack:
            if what == "one big":
                _add(pack, source)
            for _ in range(1000 if what == "many small" else 100):
                pack.add("blob", rng.randbytes(10_000))
            _file(folder, b"")
            with contextlib.suppress(OSError):
                _file(folder, rng.randbytes(CHUNK_BYTES), "ballast")
            pack.close()
        assert str(folder) in str(caught.value)
        assert caught.value.hint
        assert [name for name in _left(folder) if name not in ("file", "ballast")] == []


@pytest.mark.root
def test_a_read_only_disk_fails_the_save(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk", 1024) as folder:
        subprocess.run([need_tool("mount"), "-o", "remount,ro", str(folder)], check=True, timeout=TIMEOUT_S)
        with pytest.raises(SaveFailed, match="Read-only"):
            PackWriter(folder, SHA1)


CALLS = {"write": 4, "fsync": 3, "rename": 3, "open": 4}  # what closing a small pack takes


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", CALLS)
def test_any_failing_call_fails_the_save_and_no_index_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """The 1st, 2nd, … call fails, until a pack is closed without meeting the fault."""
    for nth in range(1, 20):
        folder = tmp_path / str(nth)
        folder.mkdir()
        met = 0
        real = getattr(os, call)

        def failing(*args: object, real=real, nth=nth, **kwargs: object) -> object:  # type: ignore[no-untyped-def]
            nonlocal met
            met += 1
            if met == nth:
                raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        failed = pytest.raises(SaveFailed, match=os.strerror(code))
        with monkeypatch.context() as patch, contextlib.ExitStack() as expected:
            patch.setattr(os, call, failing)
            if nth <= CALLS[call]:
                expected.enter_context(failed)
            with PackWriter(folder, SHA1) as pack:
                _fill(pack)
                pack.close()
        if met < nth:
            assert nth > 1
            assert len(_left(folder)) == 3
            return
        # The folder's own fsync is the last call: then the pack is whole and visible, and only its name may be lost.
        renamed = [name for name in _left(folder) if name.endswith(".idx")]
        assert len(_left(folder)) == 3 if renamed else not any("tmp" in name for name in _left(folder))
        packs.sweep(folder)
        assert _left(folder) == [] or renamed
    pytest.fail("the fault was met for ever")


# --- crash points ---

KILLED = """
import os, signal, sys
from pathlib import Path
from outlast import faults
from outlast.workspace.git.objects import SHA1
from outlast.workspace.git.packs import PackWriter
folder, at = Path(sys.argv[1]), sys.argv[2]
faults.arm(lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == at else None)
real, renames = os.rename, 0
def rename(*names):
    global renames
    if at == f"rename {renames}":
        os.kill(os.getpid(), signal.SIGKILL)
    renames += 1
    real(*names)
os.rename = rename
pack = PackWriter(folder, SHA1)
pack.add("blob", b"killed")
if at == "open":
    os.kill(os.getpid(), signal.SIGKILL)
pack.close()
"""


@pytest.mark.parametrize(
    "at", ["open", "save.pack_written", "rename 0", "rename 1", "rename 2", "save.packed"]
)
def test_killed_at_a_crash_point_no_half_pack_is_seen_and_sweep_cleans(tmp_path: Path, at: str) -> None:
    repo = make_repo(tmp_path / "repo")
    oid = oid_of("blob", b"killed", SHA1)
    command = processes.python_command(KILLED, str(repo.packs), at)
    done = subprocess.run(command, timeout=TIMEOUT_S, check=False)
    assert done.returncode == -signal.SIGKILL
    whole = at == "save.packed"
    assert (repo.try_git("cat-file", "-e", oid).returncode == 0) == whole
    repo.fsck()
    assert (packs.sweep(repo.packs) > 0) == (not whole)
    assert len(_left(repo.packs)) == (3 if whole else 0)
    assert packs.sweep(repo.packs) == 0
    with PackWriter(repo.packs, SHA1) as pack:
        pack.add("blob", b"killed")
        pack.close()
    repo.verify_packs()
    assert repo.git("cat-file", "blob", oid) == b"killed"


@pytest.mark.strace
def test_everything_is_durable_before_anything_is_seen_and_the_index_is_seen_last(tmp_path: Path) -> None:
    if reason := strace.available():
        skip_or_fail(reason)
    repo = make_repo(tmp_path / "repo")
    out = tmp_path / "trace"
    traced = ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync,rename", "-o", str(out)]
    command = [*traced, *processes.python_command(KILLED, str(repo.packs), "never")]
    subprocess.run(command, check=True, timeout=TIMEOUT_S, env=processes.clean_environment())
    lines = [line for line in out.read_text().splitlines() if str(repo.packs) in line]
    calls = [line.split(None, 1)[1].partition("(")[0] for line in lines]
    assert calls == ["fsync", "fsync", "rename", "rename", "rename", "fsync"]
    assert [line.rpartition('"')[0].rpartition(".")[2] for line in lines[2:5]] == ["keep", "pack", "idx"]
    assert f"{packs.TEMPORARY}" in lines[0]
    assert ".idx>" in lines[1]
    assert f"{repo.packs}>" in lines[5]


def test_sweep_leaves_the_living_and_what_is_not_ours(tmp_path: Path) -> None:
    lone = tmp_path / f"pack-{'a' * 40}.keep"
    lone.write_bytes(packs.KEEP_TEXT)
    others = [
        tmp_path / name for name in ("pack-x.pack", "tmp_pack_abc", f"pack-{'b' * 40}.keep", "pack-y.idx")
    ]
    for path in others:
        path.write_bytes(b"fetch-pack 1 on host")
    with PackWriter(tmp_path, SHA1) as pack:
        _fill(pack)
        before = _left(tmp_path)
        assert packs.sweep(tmp_path) == 0
        assert _left(tmp_path) == before
    assert packs.sweep(tmp_path) == 1
    assert _left(tmp_path) == sorted(path.name for path in others)


def test_sweep_believes_a_lock_over_a_pid_it_cannot_see(tmp_path: Path) -> None:
    """The writer may be in another container, where its pid is another."""
    with PackWriter(tmp_path, SHA1) as pack:
        foreign = tmp_path / f"{packs.TEMPORARY}{2**22 + 1}_abc"
        pack._temporary.rename(foreign)
        assert packs.sweep(tmp_path) == 0
    assert packs.sweep(tmp_path) == 1


# --- the index ---


@given(
    st.dictionaries(
        st.binary(min_size=32, max_size=32),
        st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**31 + 5) | st.integers(2**31, 2**50)),
        max_size=20,
    ),
    st.sampled_from([SHA1, SHA256]),
)
def test_git_reads_any_index_as_it_was_meant(entries: dict[bytes, tuple[int, int]], algo: object) -> None:
    assert algo in (SHA1, SHA256)
    chosen = SHA1 if algo == SHA1 else SHA256
    by_oid = {raw[: chosen.raw_length].hex(): place for raw, place in entries.items()}
    data = packs.index_bytes(by_oid, b"t" * chosen.raw_length, chosen)
    command = ["git", "show-index", f"--object-format={chosen.name}"]
    listed = subprocess.run(command, input=data, capture_output=True, check=True, timeout=TIMEOUT_S).stdout
    assert [line.split() for line in listed.decode().splitlines()] == [
        [str(offset), oid, f"({crc:08x})"] for oid, (crc, offset) in sorted(by_oid.items())
    ]


def test_an_index_that_is_not_whole_is_an_error(tmp_path: Path) -> None:
    data = bytearray(packs.index_bytes({"a" * 40: (1, 12)}, b"t" * 20, SHA1))
    path = tmp_path / f"pack-{'a' * 40}.idx"
    path.write_bytes(data)
    assert read_pack_index(path) == ["a" * 40]
    for broken in (b"", data[:-1], data[:1030] + b"\1" + data[1031:]):
        path.write_bytes(broken)
        with pytest.raises(SaveDamaged):
            read_pack_index(path)


def test_a_crc_is_that_of_the_bytes_in_the_pack(tmp_path: Path, rng: random.Random) -> None:
    repo = make_repo(tmp_path / "repo")
    with PackWriter(repo.packs, SHA1) as pack:
        for size in (3, 3 * CHUNK_BYTES, 500):
            _add(pack, _file(tmp_path, rng.randbytes(size)))
        made = pack.close()
    assert made is not None
    data = made.path.read_bytes()
    lines = repo.git("show-index", stdin=made.index.read_bytes()).decode().split("\n")[:-1]
    places = sorted((int(line.split()[0]), line.split()[2]) for line in lines)
    ends = [place for place, _ in places[1:]] + [len(data) - SHA1.raw_length]
    for (start, crc), end in zip(places, ends, strict=True):
        assert crc == f"({zlib.crc32(data[start:end]):08x})"


def test_an_unreadable_file_is_a_failed_save_for_who_does_not_care() -> None:
    assert issubclass(Unreadable, SaveFailed)
