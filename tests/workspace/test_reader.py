import os
import random
import signal
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.errors import SaveDamaged, SaveFailed
from outlast.workspace.git.objects import oid_of
from outlast.workspace.git.packs import PackWriter
from outlast.workspace.git.reader import CHUNK_BYTES, ObjectReader
from tests.support import processes
from tests.support.environment import TIMEOUT_S, without_outlast
from tests.workspace.gitrepo import GitRepo, make_repo

SIZES = [0, 1, 100, CHUNK_BYTES - 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5]
GROWTH_KB_MAX = 20 * 1024


def _environment() -> dict[str, str]:
    return without_outlast(os.environ)


@pytest.fixture
def reader(repo: GitRepo) -> Iterator[ObjectReader]:
    with ObjectReader(repo.git_dir, _environment()) as opened:
        yield opened


def _pid(reader: ObjectReader) -> int:
    assert reader._contents._process is not None
    return reader._contents._process.pid


def _loose(repo: GitRepo, oid: str) -> Path:
    return repo.git_dir / "objects" / oid[:2] / oid[2:]


def test_objects_are_read_as_they_were_written(
    repo: GitRepo, reader: ObjectReader, rng: random.Random
) -> None:
    contents = [rng.randbytes(size) for size in SIZES]
    with PackWriter(repo.packs, repo.algo) as pack:
        packed = [pack.add("blob", data) for data in contents]
        tree = pack.add("tree", b"")
        pack.close()
    loose = repo.git("hash-object", "-w", "--stdin", stdin=b"loose\n\n").decode().strip()
    for oid, data in zip([*packed, loose], [*contents, b"loose\n\n"], strict=True):
        assert reader.read(oid) == ("blob", data)
        assert reader.size(oid) == len(data)
        assert reader.has(oid)
    assert reader.read(tree) == ("tree", b"")
    assert not reader.has(oid_of("blob", b"never", repo.algo))


def test_a_blob_is_copied_through_memory_in_chunks(
    repo: GitRepo, reader: ObjectReader, rng: random.Random, tmp_path: Path
) -> None:
    for size in SIZES:
        data = rng.randbytes(size)
        oid = repo.git("hash-object", "-w", "--stdin", stdin=data).decode().strip()
        path = tmp_path / "copy"
        with path.open("wb") as file:
            assert reader.copy_to(oid, file.fileno()) == size
        assert path.read_bytes() == data
    assert reader.read(oid)[1] == data


def test_nothing_is_started_before_something_is_asked(repo: GitRepo) -> None:
    with ObjectReader(repo.folder / "nowhere", {}) as reader:
        assert reader._contents._process is None


def test_a_missing_object_is_a_damaged_save_and_the_next_one_is_read(
    repo: GitRepo, reader: ObjectReader
) -> None:
    missing = oid_of("blob", b"never", repo.algo)
    there = repo.git("hash-object", "-w", "--stdin", stdin=b"there").decode().strip()
    for ask in (reader.read, reader.size, lambda oid: reader.copy_to(oid, 1)):
        with pytest.raises(SaveDamaged, match=f"{missing} is missing"):
            ask(missing)
        assert reader.read(there) == ("blob", b"there")
    for name in ("", "HEAD", there[:10], f"{there}\n{there}", "--all"):
        with pytest.raises(SaveDamaged, match="not an object's name"):
            reader.read(name)


def test_an_object_that_is_not_what_its_name_says_is_a_damaged_save(
    repo: GitRepo, reader: ObjectReader
) -> None:
    for content, damage in {
        b"empty": b"",
        b"noise": b"noise",
        b"other": zlib.compress(b"blob 4\0liar"),
    }.items():
        oid = repo.git("hash-object", "-w", "--stdin", stdin=content).decode().strip()
        path = _loose(repo, oid)
        path.chmod(0o644)
        path.write_bytes(damage)
        with pytest.raises(SaveDamaged, match=oid):
            reader.read(oid)
        with pytest.raises(SaveDamaged, match=oid), open(os.devnull, "wb") as sink:
            reader.copy_to(oid, sink.fileno())
    there = repo.git("hash-object", "-w", "--stdin", stdin=b"there").decode().strip()
    assert reader.read(there) == ("blob", b"there")


def test_a_replacement_is_not_believed(repo: GitRepo, reader: ObjectReader) -> None:
    one, two = (
        repo.git("hash-object", "-w", "--stdin", stdin=data).decode().strip() for data in (b"one", b"two")
    )
    repo.git("replace", one, two)
    assert reader.read(one) == ("blob", b"one")


def test_a_child_that_was_killed_is_started_again(repo: GitRepo, reader: ObjectReader) -> None:
    oid = repo.git("hash-object", "-w", "--stdin", stdin=b"data").decode().strip()
    for _ in range(3):
        assert reader.read(oid) == ("blob", b"data")
        pid = _pid(reader)
        os.kill(pid, signal.SIGKILL)
        processes.wait_for(lambda pid=pid: not processes.alive(pid), what="the child to die")
    assert reader.read(oid) == ("blob", b"data")


def test_a_child_that_dies_halfway_through_a_copy_leaves_no_gap_and_no_repetition(
    repo: GitRepo, reader: ObjectReader, rng: random.Random
) -> None:
    data = rng.randbytes(5 * CHUNK_BYTES)
    oid = repo.git("hash-object", "-w", "--stdin", stdin=data).decode().strip()
    reader.read(repo.git("hash-object", "-w", "--stdin", stdin=b"warm").decode().strip())
    take, taken = reader._contents.take, 0

    def killing(size: int) -> bytes:
        nonlocal taken
        taken += 1
        if taken == 3:
            os.kill(_pid(reader), signal.SIGKILL)
        return take(size)

    reader._contents.take = killing  # type: ignore[method-assign]
    out = os.memfd_create("copy")
    try:
        assert reader.copy_to(oid, out) == len(data)
        assert os.pread(out, len(data) + 1, 0) == data
    finally:
        os.close(out)
    assert taken > 6


def test_after_a_copy_that_could_not_be_written_the_next_object_is_read(
    repo: GitRepo, reader: ObjectReader
) -> None:
    big = repo.git("hash-object", "-w", "--stdin", stdin=b"x" * (5 * CHUNK_BYTES)).decode().strip()
    small = repo.git("hash-object", "-w", "--stdin", stdin=b"small").decode().strip()
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="No space"):
            reader.copy_to(big, full)
    finally:
        os.close(full)
    assert reader.read(small) == ("blob", b"small")


def test_a_pack_made_after_the_child_started_is_seen(repo: GitRepo, reader: ObjectReader) -> None:
    assert not reader.has(oid_of("blob", b"late", repo.algo))
    with pytest.raises(SaveDamaged):
        reader.read(oid_of("blob", b"late", repo.algo))
    with PackWriter(repo.packs, repo.algo) as pack:
        oid = pack.add("blob", b"late")
        pack.close()
    assert reader.read(oid) == ("blob", b"late")
    assert reader.has(oid)


def test_no_git_and_no_repository_are_said(tmp_path: Path) -> None:
    with (
        ObjectReader(tmp_path, {**_environment(), "PATH": str(tmp_path)}) as reader,
        pytest.raises(SaveFailed),
    ):
        reader.read("a" * 40)
    with (
        ObjectReader(tmp_path, _environment()) as reader,
        pytest.raises(SaveDamaged, match="not a git repository"),
    ):
        reader.read("a" * 40)


def test_close_ends_the_children(repo: GitRepo) -> None:
    oid = repo.git("hash-object", "-w", "--stdin", stdin=b"data").decode().strip()
    reader = ObjectReader(repo.git_dir, _environment())
    reader.read(oid)
    pid = _pid(reader)
    reader.close()
    assert not processes.alive(pid)
    assert reader.read(oid) == ("blob", b"data")
    reader.close()


GROWTH = """
import os, sys
from pathlib import Path
from outlast.workspace.git.reader import ObjectReader
def peak():  # not ru_maxrss, which begins with what the parent had before the exec
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])
with ObjectReader(Path(sys.argv[1]), {"PATH": sys.argv[2]}) as reader, open(os.devnull, "wb") as sink:
    reader.has(sys.argv[3])
    before = peak()
    reader.copy_to(sys.argv[3], sink.fileno())
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_size_of_a_copied_blob(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(100 << 20)
    with PackWriter(repo.packs, repo.algo) as pack:
        oid = pack.add_file(os.fsencode(big), expect=big.lstat())
        pack.close()
    command = processes.python_command(GROWTH, str(repo.git_dir), os.environ["PATH"], oid)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert int(done.stdout) <= GROWTH_KB_MAX
