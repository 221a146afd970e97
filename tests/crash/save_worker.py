"""One who works in a folder and saves it, and one who looks at what a power cut left. Run as a program: `python -m`.

    saving work JOB      works and saves, round after round; tells each save on stdout after it returned
    saving judge         one question per line on stdin (a cut and what was told before it), one verdict per line

The worker's own gits are plain: nothing they write is flushed. What it is asked to do without (`Job.without`) is taken
out of this process only, so that a test can show that it would notice.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from outlast import faults
from outlast.store import locks
from outlast.store.local import Local
from outlast.workspace import saves
from outlast.workspace.capture import saver as capture_saver
from outlast.workspace.capture.special import secrets as special_secrets
from outlast.workspace.git import command, objects, packs, refs, rooms, trees
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.restore import power_cut, restore
from outlast.workspace.types import Purpose

RUN = "therun"
SECRET = ".env"
MODULE = "mod"
STOPS = b"stops"
KINDS = ("plain", "sha256", "linked", "shadow")
# Where the objects of the user's lie, and how they come into the vault.
SOURCES = ("packed", "copied", "module", "reftable")
OPERATIONS = ("fsync", "link", "rename", "replace", "unlink", "symlink", "mkdir", "rmdir", "write")
_write = os.write  # itself, also where operations are counted
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to do where. Everything lies below `place`, which may be a disk that loses power."""

    place: str
    kind: str = "plain"
    rounds: int = 1
    first: int = 1
    run: str = RUN
    saves: tuple[str, ...] = ("beat",)  # kinds of saves, in turn
    gits: bool = True  # whether it also commits, stages and merges
    files: int = 2  # new files in a round
    secrets: bool = True
    without: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()  # stops itself: "worked", "saved", "operation", or the name of a crash point
    die_at: int = 0  # the how-manieth crash point of saving it kills itself at
    looks: bool = True  # tells what was in the folder; not where others write to it meanwhile

    @property
    def folder(self) -> Path:
        return Path(self.place) / "work"

    @property
    def state(self) -> Path:
        return Path(self.place) / "state"

    def saver(self) -> capture_saver.Saver:
        return capture_saver.Saver(self.folder, Local(self.state))


class Told(msgspec.Struct, frozen=True):
    """A save that returned, and what was in the folder when it was made."""

    number: int
    commit: str
    ref: str
    files: dict[str, str]
    secrets: dict[str, str] = {}


class Question(msgspec.Struct, frozen=True):
    """Whether what was told is there on a copy of the disk, looked at in the disk's own place."""

    job: Job
    cut: str
    told: tuple[Told, ...]
    whole: bool = False  # also bring every save back, in place and elsewhere
    mended: bool = False  # instead: the repository itself is whole when the next attempt has looked at it


# -- a folder and work in it -----------------------------------------------------------------------------------------


def agent_git(folder: Path, *words: str) -> str:
    """The agent's own git, as it comes."""
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout.strip()


def prepare(job: Job) -> None:
    """The folder before anything happened, flushed."""
    base = Path(job.place) / "main" if job.kind == "linked" else job.folder
    base.mkdir(parents=True)
    for n in range(20):
        _put(base / f"src/{n % 5}/file-{n}.txt", f"file {n}\n")
    for name in ("a.txt", "b.txt", "c.txt"):
        _put(base / name, f"{name}\n")
    if job.kind != "shadow":
        form = "sha256" if job.kind == "sha256" else "sha1"
        format_of_refs = ["--ref-format=reftable"] if job.kind == "reftable" else []
        agent_git(base, "init", "-q", f"--object-format={form}", *format_of_refs, ".")
        agent_git(base, "add", ".")
        agent_git(base, "commit", "-qm", "beginning")
    if job.kind == "module":
        _put(Path(job.place) / "origin" / "m.txt", "module\n")
        for words in (["init", "-q", "-b", "main", "."], ["add", "."], ["commit", "-qm", "module"]):
            agent_git(Path(job.place) / "origin", *words)
        words = ["submodule", "--quiet", "add", str(Path(job.place) / "origin"), MODULE]
        agent_git(base, "-c", "protocol.file.allow=always", *words)
        agent_git(base, "commit", "-qm", "with a module")
    if job.kind == "linked":
        agent_git(base, "worktree", "add", "-q", "-b", "side", str(job.folder))
    job.state.mkdir(exist_ok=True)
    refs.syncfs(Path(job.place))


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def work(job: Job, n: int) -> None:
    """One round of an agent's work: nothing of it is flushed."""
    folder = job.folder
    _put(folder / "a.txt", f"a in round {n}\n" * (n % 7 + 1))
    for k in range(job.files):
        _put(folder / f"new/{n}-{k}.txt", f"{n} {k}\n" * 40)
        (folder / f"new/{n - 3}-{k}.txt").unlink(missing_ok=True)
    if job.secrets:
        _put(folder / SECRET, f"API_KEY=round-{n}\n")
    if job.gits and job.kind != "shadow":
        (_edit, _commit, _stage, _merge)[n % 4](folder, n)
    if job.kind in ("packed", "copied"):
        agent_git(folder, "gc", "-q")
    if job.kind == "module":
        _put(folder / MODULE / "m.txt", f"committed in round {n}\n")
        agent_git(folder / MODULE, "commit", "-qam", f"round {n}")
        _put(folder / MODULE / "s.txt", f"staged in round {n}\n")
        agent_git(folder / MODULE, "add", "s.txt")


def _edit(folder: Path, n: int) -> None:
    _put(folder / "src/0/file-0.txt", f"edited {n}\n")


def _commit(folder: Path, n: int) -> None:
    agent_git(folder, "add", "a.txt", "new")
    agent_git(folder, "commit", "-qm", f"round {n}")


def _stage(folder: Path, n: int) -> None:
    _put(folder / "c.txt", f"staged {n}\n")
    agent_git(folder, "add", "c.txt")
    _put(folder / "c.txt", f"not staged {n}\n")


def _merge(folder: Path, n: int) -> None:
    agent_git(folder, "commit", "-qam", f"before the merge of {n}")
    agent_git(folder, "checkout", "-q", "-b", f"branch-{n}")
    _put(folder / f"branch/{n}.txt", f"branch {n}\n")
    agent_git(folder, "add", "branch")
    agent_git(folder, "commit", "-qm", f"branch {n}")
    agent_git(folder, "checkout", "-q", "-")
    _put(folder / "b.txt", f"b {n}\n")
    agent_git(folder, "commit", "-qam", f"beside it {n}")
    agent_git(folder, "merge", "-q", "--no-ff", "-m", f"merge {n}", f"branch-{n}")


def listing(folder: Path) -> dict[str, str]:
    """Every file but git's and the secret, and the digest of what is in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and name != SECRET and ".git" not in name.split("/"):
            found[name] = _digest(path.read_bytes())
    return found


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _secrets(folder: Path) -> dict[str, str]:
    path = folder / SECRET
    return {SECRET: _digest(path.read_bytes())} if path.exists() else {}


# -- the worker ------------------------------------------------------------------------------------------------------


def stop_here() -> None:
    """Say so first: who lets us go on cannot tell a new stop from the one before by looking."""
    _write(1, STOPS + b"\n")
    os.kill(os.getpid(), signal.SIGSTOP)


def run_job(job: Job) -> None:
    """Work and save; each save is told after it returned, in one write."""
    for name in job.without:
        WITHOUT[name]()
    if job.kind == "copied":
        os.link = _as_on_another_file_system
    saver = job.saver()
    points = Points(job)
    faults.arm(points.met)
    for n in range(job.first, job.first + job.rounds):
        work(job, n)
        _stop_if(job, "worked")
        files, secrets = (listing(job.folder), _secrets(job.folder)) if job.looks else ({}, {})
        kind: Any = job.saves[n % len(job.saves)]
        with before_operations(stop_here) if "operation" in job.stop else contextlib.nullcontext():
            save = saver.capture(Purpose(kind=kind, run=job.run, task="1411", reason=f"round {n}", beat=n))
        assert save is not None
        tell(msgspec.json.encode(Told(n, save.commit, save.ref, files, secrets)))
        _stop_if(job, "saved")
    saver.close()


def _as_on_another_file_system(*_: object, **__: object) -> None:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def tell(line: bytes) -> None:
    _write(1, line + b"\n")


def _stop_if(job: Job, where: str) -> None:
    if where in job.stop:
        stop_here()


class Points:
    """What happens at the crash points of saving."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._met = 0

    def met(self, name: str) -> None:
        if not name.startswith("save."):
            return
        self._met += 1
        if self._met == self._job.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        _stop_if(self._job, name)


@contextlib.contextmanager
def before_operations(act: Callable[[], None], names: tuple[str, ...] = OPERATIONS) -> Iterator[None]:
    """Do something before each call of ours that changes the disk."""
    before = {name: getattr(os, name) for name in names}
    synced = refs.syncfs

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def first(*args: Any, **more: Any) -> Any:
            act()
            return call(*args, **more)

        return first

    for name, call in before.items():
        setattr(os, name, wrapped(call))
    refs.syncfs = wrapped(synced)
    try:
        yield
    finally:
        for name, call in before.items():
            setattr(os, name, call)
        refs.syncfs = synced


# -- taking protections out ------------------------------------------------------------------------------------------


class _WithoutFsync:
    """The module os for one of ours, in which flushing does nothing, or nothing for files of one ending."""

    def __init__(self, ending: str = "") -> None:
        self._ending = ending

    def __getattr__(self, name: str) -> Any:
        return self._flush if name == "fsync" else getattr(os, name)

    def _flush(self, fd: int) -> None:
        if not os.readlink(f"/proc/self/fd/{fd}").endswith(self._ending):
            os.fsync(fd)


def _no_pack_fsync() -> None:
    packs.os = _WithoutFsync()  # type: ignore[assignment]


def _no_index_fsync() -> None:
    packs.os = _WithoutFsync(".idx")  # type: ignore[assignment]


def _no_pack_folder_fsync() -> None:
    packs.sync_folder = lambda _: None


def _no_ref_fsync() -> None:
    refs.os = _WithoutFsync()  # type: ignore[assignment]


def _no_ref_folder_fsync() -> None:
    refs.sync_folder = lambda _: None


WITHOUT: dict[str, Callable[[], None]] = {
    "pack fsync": _no_pack_fsync,
    "pack index fsync": _no_index_fsync,
    "pack folder fsync": _no_pack_folder_fsync,
    "ref fsync": _no_ref_fsync,
    "ref folder fsync": _no_ref_folder_fsync,
}


# -- the judge -------------------------------------------------------------------------------------------------------


def judge() -> None:
    """Answer every question in a process and a view of the mounts of its own; empty means that nothing is lost."""
    for line in sys.stdin.buffer:
        question = msgspec.json.decode(line, type=Question)
        out, back = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(out)
            _answer(question, back)
        os.close(back)
        with os.fdopen(out, "rb") as pipe:
            said = pipe.read()
        os.waitpid(pid, 0)
        tell(msgspec.json.encode(said.decode(errors="replace")))


def _answer(question: Question, back: int) -> None:
    said = "the judge died"
    try:
        _move_to(question)
        if question.mended:
            check_mended(question.job, question.told)
        else:
            check(question.job, question.told, whole=question.whole)
        said = ""
    except BaseException:
        said = traceback.format_exc()
    finally:
        with contextlib.suppress(BaseException):
            while said:
                said = said[os.write(back, said.encode()[: 1 << 15]) :]
        os._exit(0)


def _move_to(question: Question) -> None:
    """See the copy where the disk was, and another boot than the one before the cut."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: str, target: str, flags: int) -> None:
        if libc.mount(source.encode(), target.encode(), None, flags, None):
            raise OSError(ctypes.get_errno(), f"cannot mount {source} on {target}")

    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "cannot unshare")
    mount("none", "/", _MS_REC | _MS_PRIVATE)
    mount(question.cut, question.job.place, _MS_BIND)
    boot = Path(question.cut) / "boot-id"
    boot.write_text("00000000-0000-0000-0000-000000000000\n")
    mount(str(boot), "/proc/sys/kernel/random/boot_id", _MS_BIND)
    locks.boot_id.cache_clear()
    for name in ("tmp_outlast_*", "pack-*.keep", f"{rooms.ROOMS}-*"):
        for path in Path(question.job.place).rglob(name):
            os.utime(path, (0, 0))  # what was being written just before a reboot is not young for ever
    os.chdir("/")


def check(job: Job, told: tuple[Told, ...], *, whole: bool = False, before: bool = True) -> None:
    """Everything that was told is there, and another save can be made at once. Raises AssertionError."""
    if before:
        check_saves(job, told)
    with contextlib.closing(job.saver()) as saver:
        save = saver.capture(Purpose(kind="found", run=job.run, reason="after the cut"))
        assert save is not None
        files = listing(job.folder)
        assert content(saver, save.commit) == files, (
            "the first save after it holds something else than the folder"
        )
        check_swept(job, saver)
        numbered = Told(0, save.commit, save.ref, files)
    check_saves(job, (*told, numbered))
    if whole and told:
        check_restores(job, told)


def check_mended(job: Job, told: tuple[Told, ...]) -> None:
    """The user's git has all that HEAD, the branches and the index name, without the vault; HEAD is the save's or a later one."""
    with contextlib.closing(job.saver()) as saver:
        held = saves.read(saver.reader(), told[-1].commit, saver.repo().algo)
        place = saver.repo()
        files = (
            place.git_dir / "HEAD",
            place.common_dir / held.meta.branch,
            place.common_dir / "packed-refs",
        )
        found = [path.read_bytes() for path in files if path.exists()]
        said = power_cut.mend_repository(saver, held)
        assert power_cut.mend_repository(saver, held) == "", "once is enough"
    try:
        agent_git(job.folder, "merge-base", "--is-ancestor", held.meta.head, "HEAD")
        agent_git(job.folder, "status")
        agent_git(job.folder, "write-tree")
    except AssertionError as error:
        error.add_note(f"shadow: {place.shadow}, found: {found}, mended: {said!r}")
        raise
    named = [line.split()[0] for line in agent_git(job.folder, "rev-list", "--objects", "HEAD").splitlines()]
    named += [line.split()[1] for line in agent_git(job.folder, "ls-files", "-s").splitlines()]
    for oid in dict.fromkeys(named):
        agent_git(job.folder, "cat-file", "-p", oid)


def check_saves(job: Job, told: tuple[Told, ...]) -> None:
    """Every ref leads to a save, the newest reaches every one told, and all they reach can be read."""
    with contextlib.closing(job.saver()) as saver:
        place, reader = saver.repo(), saver.vault_reader()  # everything is in the vault
        tips = refs.list_refs(place.vault, "refs/outlast/")
        for ref, tip in tips.items():
            saves.read(reader, tip, place.algo)
            told_by_git = command.run(["rev-parse", "--verify", f"{ref}^{{commit}}"], git_dir=place.vault)
            assert told_by_git.decode().strip() == tip, ref
        if not told:
            return
        last = told[-1]
        assert any(ref.startswith(f"refs/outlast/{job.run}/") for ref in tips), "no ref of the run is left"
        if "beat" not in last.ref.rpartition("/")[2]:
            assert tips.get(last.ref) == last.commit, f"{last.ref} is lost"
        chained = [held.commit for held in saves.chain(place, reader, job.run)]
        missing = [save.number for save in told if save.commit not in chained]
        assert not missing, f"the saves {missing} are not reached, {len(chained)} are"
        reached = command.run(["rev-list", "--objects", *sorted({*tips.values()})], git_dir=place.vault)
        for line in reached.decode(errors="replace").splitlines():
            reader.read(line.split()[0])  # verified against its name
        for save in told:
            found = content(saver, save.commit)
            assert not job.looks or found == save.files, f"save {save.number} holds something else"
            _check_secrets(saver, save)


def content(saver: capture_saver.Saver, commit: str) -> dict[str, str]:
    """What is in the worktree's tree of a save."""
    place, reader = saver.repo(), saver.reader()
    held = saves.read(reader, commit, place.algo)
    empty = objects.oid_of("tree", b"", place.algo)
    found = trees.diff(None, held.tree, lambda oid: b"" if oid == empty else reader.read(oid)[1], place.algo)
    return {os.fsdecode(path): _digest(reader.read(new.oid)[1]) for path, _, new in found if new is not None}


def _check_secrets(saver: capture_saver.Saver, save: Told) -> None:
    if not save.secrets:
        return
    place = saver.repo()
    kept = saves.read(saver.reader(), save.commit, place.algo).meta.secrets
    with ObjectReader(special_secrets.git_dir(saver.private), command.environment()) as reader:
        found = {item.path: _digest(reader.read(item.oid)[1]) for item in kept}
    assert found == save.secrets, f"the secrets of save {save.number}"
    reached = command.run(
        ["rev-list", "--objects", special_secrets.REF], git_dir=special_secrets.git_dir(saver.private)
    ).decode()
    oids = {line.split()[0] for line in reached.splitlines()}
    assert {item.oid for item in kept} <= oids, "a secret would be swept by gc"


def check_swept(job: Job, saver: capture_saver.Saver) -> None:
    """Nothing is left of a save that was killed."""
    place = saver.repo()
    left = [*place.packs.glob("tmp_outlast_*"), *saver.private.glob("quarantine-*")]
    left += (place.vault / "refs" / "outlast").rglob("*.lock")
    left += [keep for keep in place.packs.glob("*.keep") if not keep.with_suffix(".idx").exists()]
    left += place.git_dir.glob("index.lock")
    assert left == [], f"what a killed save left is still there: {left}"


def check_restores(job: Job, told: tuple[Told, ...]) -> None:
    """Every save comes back in a new folder; the newest and the oldest also in place."""
    with contextlib.closing(job.saver()) as saver:
        place = saver.repo()
        for save in told:
            held = saves.read(saver.reader(), save.commit, place.algo)
            to = Path(job.place) / f"back-{save.number}"
            restore.materialise(saver, held, to)
            assert listing(to) == save.files, f"save {save.number} in a new folder"
            shutil.rmtree(to)
        for save in (told[0], told[-1]):
            held = saves.read(saver.reader(), save.commit, place.algo)
            purpose = Purpose(kind="pre-restore", run=job.run)
            restore.restore(saver, held, purpose, restore.Options(force=True, with_secrets=True))
            assert listing(job.folder) == save.files, f"save {save.number} in place"
            assert not save.secrets or _secrets(job.folder) == save.secrets


if __name__ == "__main__":
    if sys.argv[1] == "work":
        run_job(msgspec.json.decode(sys.argv[2], type=Job))
    else:
        judge()
