"""The first beat at which a command fails, by binary search over the saves that beats name."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from outlast import settings
from outlast.core.values import shorten
from outlast.errors import SaveFailed, UsageError
from outlast.operations.saves.find import Found, Saves
from outlast.runs import reader
from outlast.store.protocol import Summary
from outlast.workspace import repo
from outlast.workspace.git import command as git_command
from outlast.workspace.restore import restore

SKIP = 125
STOPS_FROM = 126
_ROOM, _LOCK = "outlast-bisect-", "lock"
_SWEPT_MAX = 100

Verdict = Literal["good", "bad", "skipped"]
Outcome = Literal["found", "first", "never", "unclear"]


class Probe(msgspec.Struct, frozen=True):
    """One run of the command."""

    beat: int
    step: str
    save: str
    exit_code: int
    verdict: Verdict


class Bisected(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search. `found`: fails first at `beat`; `first`: it fails at the first save already; `never`: at none;
    `unclear`: the beats between the last good and the first bad one were skipped."""

    run: str
    outcome: Outcome
    beat: int | None = None
    step: str = ""
    save: str = ""
    good: int | None = None
    skipped: tuple[int, ...] = ()
    probes: tuple[Probe, ...] = ()


class _Candidate(msgspec.Struct, frozen=True):
    beat: int
    step: str
    save: str


def bisect(
    saves: Saves, run: Summary, command: Sequence[str], tell: Callable[[Probe], None] = lambda probe: None
) -> Bisected:
    """Search. Raises UsageError if there is nothing to search, or if the command cannot answer.

    Each probe is a worktree of its own in a temporary folder, which is removed afterwards: the workspace is not touched. The
    command's exit code counts as for `git bisect run`: 0 good, 125 unknown, 126 and above stop the search, the rest bad.
    """
    candidates = _candidates(saves, run)
    if not candidates:
        raise UsageError(
            f"run {run.run} of task {run.task} has no beat that names a save",
            hint=f"see `outlast saves {run.run}`; a run has saves if it has a workspace",
        )
    _sweep(saves.saver_of(run).repo())
    with _room() as room:
        search = _Search(saves, run, command, candidates, room, tell)
        return search.result()


def _candidates(saves: Saves, run: Summary) -> list[_Candidate]:
    assert saves.store is not None, "a run was found in a store"
    steps = {event.beat: event.step for _, event in reader.beats_done(saves.store, run.run)}
    return [_Candidate(beat, steps.get(beat, ""), save) for beat, save in saves.saves_of_beats(run)]


class _Search:
    """One search: each save is tried once, and beats with the same save share the answer."""

    def __init__(
        self, saves: Saves, run: Summary, command: Sequence[str], candidates: list[_Candidate], room: Path,
        tell: Callable[[Probe], None],
    ) -> None:  # fmt: skip
        self._saves, self._run, self._command = saves, run, command
        self._candidates, self._room, self._tell = candidates, room, tell
        self._codes: dict[str, int] = {}
        self._probes: list[Probe] = []

    def result(self) -> Bisected:
        begun = next((at for at, each in enumerate(self._candidates) if each.beat > 0), 0)
        return self._result_of(*search(begun, len(self._candidates), self._verdict))

    def _verdict(self, at: int) -> Verdict:
        candidate = self._candidates[at]
        code = self._codes.get(candidate.save)
        if code is None:
            code = self._codes[candidate.save] = self._try(candidate)
            probe = Probe(candidate.beat, candidate.step, candidate.save, code, _verdict_of(code))
            self._probes.append(probe)
            self._tell(probe)
        return _verdict_of(code)

    def _try(self, candidate: _Candidate) -> int:
        found = self._saves.at_beat(self._run, candidate.beat)
        with _worktree(found, self._room / f"beat-{candidate.beat}") as folder:
            code = _run(self._command, folder, candidate.beat)
        if code >= STOPS_FROM or code < 0:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            raise UsageError(
                f"{shorten(' '.join(self._command), 80)!r} {how} at beat {candidate.beat}, so the beat is neither good nor bad",
                hint="0 is good, 1 to 124 bad, 125 unknown; correct the command and search again",
            )
        return code

    def _result_of(self, outcome: Outcome, bad: int | None, good: int | None) -> Bisected:
        found = self._candidates[bad] if bad is not None else None
        skipped = tuple(probe.beat for probe in self._probes if probe.verdict == "skipped")
        return Bisected(
            run=self._run.run, outcome=outcome, beat=found.beat if found else None, step=found.step if found else "",
            save=found.save if found else "", good=self._candidates[good].beat if good is not None else None,
            skipped=skipped, probes=tuple(self._probes),
        )  # fmt: skip


def search(
    begun: int, count: int, verdict: Callable[[int], Verdict]
) -> tuple[Outcome, int | None, int | None]:
    """The result, the first bad place, and the last good one before it; asks for each place at most once.

    The last place comes first, then the first from `begun` on. Asks for the place before that (how the run began)
    only to see whether the first one broke it.
    """
    known: dict[int, Verdict] = {}

    def ask(at: int) -> Verdict:
        if at not in known:
            known[at] = verdict(at)
        return known[at]

    def first(places: Iterable[int], *wanted: Verdict) -> int | None:
        return next((at for at in places if ask(at) in wanted), None)

    bad = first(range(count - 1, begun - 1, -1), "good", "bad")
    if bad is None or ask(bad) == "good":
        return ("unclear" if bad is None else "never"), None, bad
    good = first(range(begun, bad), "good", "bad")
    if good is not None and ask(good) == "bad":
        bad, good = good, None
    good = first(range(begun), "good") if good is None else good
    if good is None:
        return "first", bad, None
    while untried := [at for at in range(good + 1, bad) if known.get(at) != "skipped"]:
        middle = untried[len(untried) // 2]
        if ask(middle) == "bad":
            bad = middle
        elif ask(middle) == "good":
            good = middle
    return ("unclear" if bad - good > 1 else "found"), bad, good


def _verdict_of(code: int) -> Verdict:
    return "good" if code == 0 else "skipped" if code == SKIP else "bad"


def _run(command: Sequence[str], folder: Path, beat: int) -> int:
    """The command's exit code; its output goes to stderr, for stdout is ours."""
    given = settings.environment(without="GIT_", OUTLAST_BISECT_BEAT=str(beat))
    environment = settings.went_to(given, str(folder))
    try:
        done = subprocess.run(
            list(command), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), check=False,
        )  # fmt: skip
    except OSError as error:
        raise UsageError(
            f"{command[0]!r} cannot be run: {error.strerror}",
            hint="give a program and its arguments after --; for a shell line: -- sh -c '…'",
        ) from error
    return done.returncode


@contextlib.contextmanager
def _room() -> Iterator[Path]:
    """A temporary folder with a lock that is held as long as we live."""
    room = Path(os.path.realpath(tempfile.mkdtemp(prefix=_ROOM)))
    lock = os.open(room / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)
        os.close(lock)


def _sweep(place: repo.Repo) -> None:
    """Remove what killed searches left behind: their folders, and their entries in git's list."""
    top = Path(os.path.realpath(tempfile.gettempdir()))
    dead = [room for room in sorted(top.glob(f"{_ROOM}*"))[:_SWEPT_MAX] if _is_dead(room)]
    if not dead:
        return
    if not place.shadow:
        listing = git_command.run(["worktree", "list", "--porcelain"], git_dir=place.common_dir)
        for line in listing.splitlines():
            folder = Path(os.fsdecode(line.removeprefix(b"worktree ")))
            if line.startswith(b"worktree ") and folder.parent in dead:
                with contextlib.suppress(SaveFailed):  # somebody else was quicker
                    words = ["worktree", "remove", "--force", "--force", str(folder)]
                    git_command.run(words, git_dir=place.common_dir)
    for room in dead:
        shutil.rmtree(room, ignore_errors=True)


def _is_dead(room: Path) -> bool:
    """Whether a temporary folder is ours and its process is gone."""
    try:
        if room.is_symlink() or room.stat().st_uid != os.getuid():
            return False
        lock = os.open(room / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False  # not there yet, or no room of ours
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


@contextlib.contextmanager
def _worktree(found: Found, folder: Path) -> Iterator[Path]:
    """A save in a folder that is gone afterwards, from git's list too."""
    place = found.saver.repo()
    try:
        restore.materialise(found.saver, found.held, Path(os.path.realpath(folder)))
        yield folder
    finally:
        if not place.shadow:
            with contextlib.suppress(SaveFailed):  # it was never added
                git_command.run(
                    ["worktree", "remove", "--force", "--force", str(folder)], git_dir=place.common_dir
                )
        shutil.rmtree(folder, ignore_errors=True)
