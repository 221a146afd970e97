"""The further checks of `outlast doctor --all`: every event, payload and save, permissions, the clock, the agents.

`doctor` has the quick look; `operations/repair.py` puts back what it can."""

import contextlib
import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from outlast.agents import registry
from outlast.agents.common import versions
from outlast.core import events as ev
from outlast.core.text import count_of
from outlast.errors import OutlastError
from outlast.inspect.doctor import BACKUP as WHOLE_BACKUP, NAMED_MAX, Finding, advice
from outlast.inspect.timing import Timing
from outlast.store.protocol import Flaw, RunHealth, Store, StorePlace
from outlast.workspace import repo
from outlast.workspace.git import command, refs
from outlast.workspace.types import raw

REPAIR = "`outlast doctor --repair` puts it right"
NOT_REPAIRED = "it could not be put right: keep a copy of the store, and restore it from a backup"
BACKUP = "look at what it did (`outlast show {run}`), keep a copy of the store, and restore the run's events from a backup"
AHEAD_MAX = timedelta(minutes=5)


def examine_all(place: StorePlace) -> list[Finding]:
    """Look at everything. Never raises for what it finds, and repairs nothing."""
    findings = [*_agents()]
    try:
        if place.exists():
            findings += _readable_by_others(place)
            findings += _stored(place)
    except OutlastError as error:
        findings.append(Finding("person", "store", str(error), advice(error, whole=True)))
    except OSError as error:
        hint = "check who owns the folder and whether the disk answers"
        findings.append(Finding("person", "store", f"{error.filename}: {error.strerror or error}", hint))
    return findings


# -- events, payloads and saves ----------------------------------------------------------------------------------------


def _stored(place: StorePlace) -> Iterator[Finding]:
    flaws, runs = place.examine_all()
    yield from map(_of_store, flaws)
    if any(not flaw.repairable for flaw in flaws):
        return  # what is read from a damaged file says nothing reliable about its runs
    store = place.open(reading=True)
    try:
        found = list(runs)
        yield from _journals(found)
        yield from _payloads(store, found)
        yield from _saves(store, found)
        yield from _clock(found)
    finally:
        store.close()


def _of_store(flaw: Flaw) -> Finding:
    return Finding("person", "integrity", flaw.text, REPAIR if flaw.repairable else WHOLE_BACKUP)


def _journals(runs: list[RunHealth]) -> Iterator[Finding]:
    for run in runs:
        for flaw in run.flaws[:NAMED_MAX]:
            hint = REPAIR if flaw.repairable else BACKUP.format(run=run.run)
            yield Finding("person", flaw.what, f"run {run.run} ({run.task}): {flaw.text}", hint)
        if (more := len(run.flaws) - NAMED_MAX) > 0:
            text = f"run {run.run} ({run.task}): {more:,} more flaws"
            yield Finding("person", "journal", text, BACKUP.format(run=run.run))
    events, unchecked = sum(run.events for run in runs), sum(run.unchecked for run in runs)
    damaged = sum(bool(run.flaws) for run in runs)
    text = f"{count_of(events, 'event')} of {count_of(len(runs), 'run')} read, flaws in {count_of(damaged, 'run')}"
    if unchecked:
        text += f"; {count_of(unchecked, 'event')} without a checksum, from an older outlast"
    yield Finding("note" if unchecked else "ok", "journals", text)


def _payloads(store: Store, runs: list[RunHealth]) -> Iterator[Finding]:
    """Every payload that an event names is there, and is what its name says."""
    seen: dict[str, bool] = {}
    for run in runs:
        for digest in sorted(run.blobs):
            if digest not in seen:
                with contextlib.suppress(OutlastError):
                    store.blobs.get(digest)
                    seen[digest] = True
            if not seen.setdefault(digest, False):
                yield Finding(
                    "person", "payload", f"run {run.run} ({run.task}): payload {digest[:16]} is missing or damaged",
                    "restore the folder `blobs` of the store from a backup; nothing else knows its content",
                )  # fmt: skip
    yield Finding("ok", "payloads", f"{sum(seen.values()):,} of {len(seen):,} are whole")


def _saves(store: Store, runs: list[RunHealth]) -> Iterator[Finding]:
    """The newest save of every run that is not closed is in its repository, under a ref."""
    checked = 0
    for run in runs:
        if run.state is None or not run.state.last_save or run.state.parent is not None:
            continue
        found = save_of(store, run)
        if found is None:
            yield Finding(
                "warn", "saves", f"run {run.run} ({run.task}): the vault with the saves of {run.state.workspace} is gone",
                "put the state folder back from a backup; else the run begins anew with the files that are there",
            )  # fmt: skip
            continue
        checked += 1
        if not found.is_there:
            yield Finding(
                "person", "saves", f"run {run.run} ({run.task}): its newest save {found.commit[:12]} is not in {found.git_dir}",
                "put the state folder back from a backup, or save the files as they are: `outlast save`",
            )  # fmt: skip
        elif not found.is_anchored:
            yield Finding(
                "person", "saves", f"run {run.run} ({run.task}): no ref keeps its newest save {found.commit[:12]}", REPAIR
            )  # fmt: skip
    yield Finding("ok", "saves", f"the newest save of {count_of(checked, 'run')} was looked for")


class NewestSave:
    """The newest save of a run, and whether its repository still has it."""

    def __init__(self, run: str, commit: str, ref: str, git_dir: Path) -> None:
        self.run, self.commit, self.ref, self.git_dir = run, commit, ref, git_dir
        self.is_there = _git(git_dir, "cat-file", "-e", f"{commit}^{{commit}}")
        names = refs.list_refs(git_dir, f"refs/outlast/{run}/") if self.is_there else {}
        self.is_anchored = any(
            _git(git_dir, "merge-base", "--is-ancestor", commit, tip) or tip == commit
            for tip in sorted(set(names.values()))
        )


def save_of(store: Store, run: RunHealth) -> NewestSave | None:
    """The newest save of a run; None if the repository it lies in is not there."""
    assert run.state is not None, "the run was folded"
    private = store.local.private_of(Path(run.state.workspace))
    noted = repo.noted_place(private)
    candidates = [Path(os.fsdecode(raw(noted.vault)))] if noted is not None and noted.vault else []
    candidates += (
        [Path(noted.common_dir)] if noted is not None and not noted.vault else []
    )  # of before vaults
    candidates.append(private / "shadow.git")
    there = [git_dir for git_dir in candidates if git_dir.is_dir()]
    if not there:
        return None
    ref = _ref_of(store, run, run.state.last_save)
    found = [NewestSave(run.run, run.state.last_save, ref, git_dir) for git_dir in there]
    return next((save for save in found if save.is_there), found[0])


def _ref_of(store: Store, run: RunHealth, commit: str) -> str:
    """The ref under which a save was made."""
    made = (item.event for item in store.read(run.run, after=0, tags=["save_made"], newest=True).events)
    named = [
        event.ref for event in made if isinstance(event, ev.SaveMade) and event.commit == commit and event.ref
    ]
    return named[-1] if named else f"refs/outlast/{run.run}/beat"


def _git(git_dir: Path, *words: str) -> bool:
    try:
        done = subprocess.run(
            ["git", f"--git-dir={git_dir}", *words],
            env=command.environment(),
            capture_output=True,
            timeout=Timing.current().find_save_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


# -- the host ----------------------------------------------------------------------------------------------------------


def _clock(runs: list[RunHealth]) -> Iterator[Finding]:
    newest = max((run.state.updated_at for run in runs if run.state and run.state.updated_at), default=None)
    now = datetime.now(UTC)
    if newest is not None and newest - now > AHEAD_MAX:
        yield Finding(
            "warn", "clock", f"the newest event is of {newest:%Y-%m-%d %H:%M}, and this clock says {now:%Y-%m-%d %H:%M}",
            "set the clock (`timedatectl`): times shown, usage windows and waits depend on it",
        )  # fmt: skip
    else:
        yield Finding("ok", "clock", f"{now:%Y-%m-%d %H:%M} UTC, not before the newest event")


def _readable_by_others(place: StorePlace) -> Iterator[Finding]:
    """Everything in the store's folder is ours alone."""
    open_paths, foreign = [], []
    for path in private_paths(place):
        with contextlib.suppress(OSError):
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode):
                continue
            if found.st_uid != os.geteuid():
                foreign.append(path)
            elif is_open_to_others(found.st_mode):
                open_paths.append(path)
    for path in foreign[:NAMED_MAX]:
        yield Finding(
            "person", "permissions", f"{path} belongs to another user", f"look at it, then `sudo chown $USER {shlex.quote(str(path))}`"
        )  # fmt: skip
    if open_paths:
        named = ", ".join(map(str, open_paths[:NAMED_MAX]))
        yield Finding(
            "person",
            "permissions",
            f"others can look into {len(open_paths):,} files and folders: {named}",
            REPAIR,
        )
    if not foreign and not open_paths:
        yield Finding("ok", "permissions", "nobody else can look into the store's folder")


def private_paths(place: StorePlace) -> Iterator[Path]:
    """The store's folder and all below it. What lies below a folder that is closed to others is out of their reach."""
    paths = [path for path in place.paths if path.exists()]
    if is_open_to_others(place.local.folder.stat().st_mode):
        paths += place.local.folder.rglob("*")
    yield from dict.fromkeys(paths)  # the database mostly lies in the folder


def is_open_to_others(mode: int) -> bool:
    """Whether somebody else may read, write or enter it."""
    return bool(stat.S_IMODE(mode) & 0o077)


def _agents() -> Iterator[Finding]:
    for name in registry.NAMES:
        agent = registry.by_name(name)
        if agent is None:
            continue
        there = [path for program in sorted(agent.release.names.programs) if (path := shutil.which(program))]
        if there:
            version = versions.of(agent.release, there[0])
            problem = versions.problem(agent.release, version) or versions.untested(agent.release, version)
            text = problem or f"{agent.release.title or name} {version}"
            yield Finding("warn" if problem else "ok", "agents", text)
