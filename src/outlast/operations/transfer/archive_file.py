"""The file that carries a run from one store to another: a tar.gz, written whole and read with distrust."""

import contextlib
import fcntl
import gzip
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO

import msgspec

from outlast import decoders
from outlast.errors import UPGRADE, UsageError

FORMAT = "outlast-run"
VERSION = 3
VERSION_WITHOUT_SESSIONS = 2  # which an older outlast reads as well
VERSION_WITHOUT_FILES = 1
MANIFEST = "manifest.json"
BUNDLE = "saves.bundle"
SESSIONS = "sessions/"
MANIFEST_MAX_BYTES = 64 << 20
JOURNALS_MAX_BYTES = 1 << 30
BLOB_MAX_BYTES = 1 << 30
BUNDLE_MAX_BYTES = (8 << 30) - 1  # as much as a plain header can say
SESSIONS_MAX_BYTES = 256 << 20  # of all sessions together
TOTAL_MAX_BYTES = 64 << 30
ENTRIES_MAX = 1_000_000
CHUNK_BYTES = 1 << 20
_BLOCK = tarfile.BLOCKSIZE

RUN_ID = re.compile(r"[a-z][a-z0-9]{11}")
_JOURNAL = re.compile(r"journals/([a-z][a-z0-9]{11})\.jsonl")
_BLOB = re.compile(r"blobs/([0-9a-f]{64})")
_SESSION = re.compile(r"sessions/(?:0|[1-9][0-9]{0,5})")


class Entry(msgspec.Struct, frozen=True):
    """What the manifest promises of an entry."""

    size: int
    digest: str


class Bundle(msgspec.Struct, frozen=True):
    """What the files of an archive are of: the form of their hashes, and whether the workspace was in no repository."""

    form: str
    shadow: bool = False


class Copy(msgspec.Struct, frozen=True):
    """Which session an entry is of: our copy of its transcript, or of a small file beside that."""

    run: str
    agent: str
    session: str
    beside: str = ""
    masked: bool = False


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The first entry of an archive.

    manifest.json comes first and names every other entry with size and digest: journals/<run>.jsonl, one event a line,
    blobs/<digest>, sessions/<n>, our copies of agents' transcripts, and saves.bundle, the files. A reader walks plain headers, knows
    every name beforehand, and counts.
    """

    format: str
    version: int
    run: str
    copy: bool
    made_at: datetime
    made_with: str
    digests: dict[str, Entry]
    masked: int = 0
    bundle: Bundle | None = None
    sessions: dict[str, Copy] = {}


class Contents(msgspec.Struct, frozen=True):
    """A verified archive: its manifest, and its journals by run as JSON lines."""

    manifest: Manifest
    journals: dict[str, bytes]

    @property
    def blobs(self) -> set[str]:
        return {name.removeprefix("blobs/") for name in self.manifest.digests if _BLOB.fullmatch(name)}


def digest_of(data: bytes) -> str:
    """The digest that names a blob, and that the manifest gives for every entry."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def digest_of_file(path: Path) -> str:
    """The same of a file, which need not fit into memory."""
    with path.open("rb") as file:
        return _hashed(iter(lambda: file.read(CHUNK_BYTES), b""), keep=False)[0]


# -- writing -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def partial(path: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """A file beside `path` under a temporary name that is always the same, so that a killed export leaves one at most."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", hint="name another place with -o"
        ) from error
    with os.fdopen(fd, "r+b") as file:
        if not _locked(fd, temporary):
            raise UsageError(f"another export is writing {path}", hint="wait for it")
        os.ftruncate(fd, 0)
        try:
            yield file, temporary
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UsageError(
                f"{path} cannot be written: {error.strerror or error}", hint="name another place with -o"
            ) from error
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _locked(fd: int, path: Path) -> bool:
    """Whether the file is ours alone, and still the one of that name: another export may just have renamed it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def write(
    file: IO[bytes],
    manifest: Manifest,
    journals: Mapping[str, bytes],
    blobs: Iterable[str],
    get: Callable[[str], bytes],
    bundle: Path | None = None,
    sessions: Mapping[str, bytes] = {},
) -> None:
    """Write an archive; durable when it returns, as far as its content goes. The name is the caller's to sync."""
    with (
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        _add(tar, MANIFEST, msgspec.json.encode(manifest))
        for run, journal in journals.items():
            _add(tar, f"journals/{run}.jsonl", journal)
        for digest in blobs:
            _add(tar, f"blobs/{digest}", get(digest))
        for name, copy in sessions.items():
            _add(tar, name, copy)
        if bundle is not None:
            with bundle.open("rb") as content:
                tar.addfile(_info(BUNDLE, manifest.digests[BUNDLE].size), content)
    file.flush()
    os.fsync(file.fileno())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    tar.addfile(_info(name, len(data)), io.BytesIO(data))


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info


# -- reading -----------------------------------------------------------------------------------------------------------


def verify(path: Path) -> Contents:
    """Read the whole archive and compare it with its manifest. Raises UsageError; nothing is written anywhere."""
    journals: dict[str, bytes] = {}
    manifest: Manifest | None = None
    seen: set[str] = set()
    for name, size, chunks in _entries(path):
        if manifest is None:
            manifest = _manifest(path, name, size, chunks)
            continue
        promised = manifest.digests.get(name)
        if promised is None or name in seen or promised.size != size:
            raise damaged(path, f"entry {name[:80]!r} is not what the manifest says")
        seen.add(name)
        journal = _JOURNAL.fullmatch(name)
        hashed, data = _hashed(chunks, keep=journal is not None)
        if hashed != promised.digest:
            raise damaged(path, f"entry {name} has another digest than the manifest says")
        if journal is not None:
            journals[journal[1]] = data
    if manifest is None:
        raise damaged(path, "it is empty")
    missing = set(manifest.digests) - seen
    if missing:
        raise damaged(path, f"{len(missing)} of its entries are missing, {min(missing)} among them")
    return Contents(manifest, journals)


def read_blobs(path: Path) -> Iterator[bytes]:
    """The blobs of an archive that was verified, one after the other."""
    return (data for _, data in _read(path, _BLOB))


def read_sessions(path: Path) -> Iterator[tuple[str, bytes]]:
    """The copies of transcripts in an archive that was verified, by the names of their entries."""
    return _read(path, _SESSION)


def _read(path: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    for name, _, chunks in _entries(path):
        if wanted.fullmatch(name):
            yield name, b"".join(chunks)
        else:
            for _ in chunks:
                pass


def read_bundle(path: Path) -> Iterator[bytes]:
    """The files of an archive that was verified, in chunks."""
    for name, _, chunks in _entries(path):
        for chunk in chunks:
            if name == BUNDLE:
                yield chunk


def manifest_of(path: Path) -> Manifest:
    """Only the manifest, to tell what a file is. Raises UsageError."""
    for name, size, chunks in _entries(path):
        return _manifest(path, name, size, chunks)
    raise damaged(path, "it is empty")


def damaged(path: Path, why: str) -> UsageError:
    """The refusal of a file that is not a whole archive."""
    return UsageError(
        f"{path} cannot be imported: {why}; nothing was changed",
        hint="copy the file again from where `outlast export` wrote it",
    )


def _manifest(path: Path, name: str, size: int, chunks: Iterator[bytes]) -> Manifest:
    if name != MANIFEST:
        raise damaged(path, "it is not an export of outlast")
    try:
        manifest = decoders.decode(b"".join(chunks), Manifest)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise damaged(path, f"its manifest cannot be read: {error}") from error
    if manifest.format != FORMAT:
        raise damaged(path, f"its format is {manifest.format[:40]!r}")
    if manifest.version > VERSION:
        raise UsageError(
            f"{path} has version {manifest.version}, this outlast reads up to {VERSION}",
            hint=UPGRADE,
        )
    if not RUN_ID.fullmatch(manifest.run) or f"journals/{manifest.run}.jsonl" not in manifest.digests:
        raise damaged(path, "its manifest names no run")
    for named, entry in manifest.digests.items():
        blob = _BLOB.fullmatch(named)
        known = blob or _JOURNAL.fullmatch(named) or (named == BUNDLE and manifest.bundle is not None)
        is_copy = _SESSION.fullmatch(named) and named in manifest.sessions
        if not (known or is_copy) or (blob and blob[1] != entry.digest):
            raise damaged(path, f"its manifest names an entry {named[:80]!r}")
    if manifest.bundle is not None and BUNDLE not in manifest.digests:
        raise damaged(path, "its manifest names files that it does not hold")
    if not manifest.sessions.keys() <= manifest.digests.keys():
        raise damaged(path, "its manifest names sessions that it does not hold")
    if sum(manifest.digests[name].size for name in manifest.sessions) > SESSIONS_MAX_BYTES:
        raise damaged(path, f"its sessions take more than {SESSIONS_MAX_BYTES:,} bytes")
    return manifest


def _entries(path: Path) -> Iterator[tuple[str, int, Iterator[bytes]]]:
    """Name, size and content of each entry; the content must be taken before the next entry is asked for.

    Plain headers only: links, devices, sparse files and long-name extensions have no place in our archives.
    """
    try:
        with path.open("rb") as file, gzip.GzipFile(fileobj=file) as packed:
            counted = _Counted(packed, path)
            for _ in range(ENTRIES_MAX):
                header = counted.read(_BLOCK)
                if header == bytes(_BLOCK):
                    counted.drain_zeros()
                    return
                info = _header(path, header)
                yield info.name, info.size, counted.content(info.size)
                counted.skip_padding(info.size)
            raise damaged(path, f"it has more than {ENTRIES_MAX:,} entries")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}", hint="check the path"
        ) from error


def _header(path: Path, block: bytes) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
        raise damaged(path, f"a header cannot be read: {error}") from error
    largest = _largest(info.name)
    if info.type != tarfile.REGTYPE or largest is None:
        raise damaged(path, f"it has an entry {info.name[:80]!r}, which has no place in an export")
    if not 0 <= info.size <= largest:
        raise damaged(path, f"entry {info.name} is larger than {largest:,} bytes")
    return info


def _largest(name: str) -> int | None:
    """How large an entry may be; None for one that has no place in an archive."""
    if name in (MANIFEST, BUNDLE):
        return MANIFEST_MAX_BYTES if name == MANIFEST else BUNDLE_MAX_BYTES
    if _JOURNAL.fullmatch(name):
        return JOURNALS_MAX_BYTES
    if _SESSION.fullmatch(name):
        return SESSIONS_MAX_BYTES
    return BLOB_MAX_BYTES if _BLOB.fullmatch(name) else None


class _Counted:
    """A decompressed stream that is never read beyond its limit."""

    def __init__(self, stream: gzip.GzipFile, path: Path) -> None:
        self._stream = stream
        self._path = path
        self._total = 0

    def read(self, size: int) -> bytes:
        """Exactly so many bytes."""
        self._total += size
        if self._total > TOTAL_MAX_BYTES:
            raise damaged(self._path, f"it unpacks to more than {TOTAL_MAX_BYTES:,} bytes")
        parts = []
        while size > 0:
            part = self._part(size)
            if not part:
                raise damaged(self._path, "it ends too early")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _part(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise damaged(self._path, f"it is cut off or not an archive: {error}") from error

    def content(self, size: int) -> Iterator[bytes]:
        """The next bytes in chunks."""
        while size > 0:
            chunk = self.read(min(size, CHUNK_BYTES))
            size -= len(chunk)
            yield chunk

    def skip_padding(self, size: int) -> None:
        """To the next header."""
        self.read(-size % _BLOCK)

    def drain_zeros(self) -> None:
        """To the end, where the checksum is compared. Only zeros may follow the last entry."""
        while part := self._part(CHUNK_BYTES):
            self._total += len(part)
            if part.strip(b"\0") or self._total > TOTAL_MAX_BYTES:
                raise damaged(self._path, "something follows its end")


def _hashed(chunks: Iterator[bytes], *, keep: bool) -> tuple[str, bytes]:
    hashing = hashlib.blake2b(digest_size=32)
    parts = []
    for chunk in chunks:
        hashing.update(chunk)
        if keep:
            parts.append(chunk)
    return hashing.hexdigest(), b"".join(parts)
