"""The checks of `outlast doctor`: where the store is, whether it is whole, and which runs need a person."""

import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from outlast._version import __version__
from outlast.core import verdict
from outlast.core.text import short
from outlast.errors import OutlastError, StoreBusy, StoreCorrupt
from outlast.inspect import find, standing
from outlast.inspect.timing import Timing
from outlast.notifications import channel_health
from outlast.store import durable
from outlast.store.local import Local
from outlast.store.protocol import Health, RunFilter, Store, StorePlace, Summary

FREE_WARN_BYTES = 256 << 20
FREE_BAD_BYTES = 16 << 20
NAMED_MAX = 5
TEXT_CHARS = 200
BACKUP = "stop all runs, keep a copy of the folder, restore the file from a backup"
IN_USE = "another program holds it: wait for it, or find it with `fuser` and end it"
UNUSABLE = "check that it is a database file that you may read and write, and whether the disk answers"

_VOLATILE = {
    "tmpfs": "its content is gone after a reboot",
    "ramfs": "its content is gone after a reboot",
    "overlay": "its content is gone with the container",
}

Level = Literal["ok", "note", "warn", "person"]


class Finding(msgspec.Struct, frozen=True):
    """The result of one check. `person`: somebody has to do something; the hint says what."""

    level: Level
    what: str
    text: str
    hint: str = ""


def examine(place: StorePlace, *, whole: bool = False) -> list[Finding]:
    """Check everything. Never raises for what it finds, and repairs nothing. `whole`: `doctor_all` looks too."""
    findings = [*_programs(place), *_saves(Path.cwd()), Finding("ok", "store", place.name)]
    try:
        is_there = place.exists()
    except OutlastError as error:
        return [*findings, Finding("person", "store", str(error), advice(error, whole=whole))]
    if not is_there:
        findings.append(Finding("note", "store", "it does not exist yet; the first run makes it"))
        return findings
    looks = (
        _disk,
        *(() if whole else (_readable_by_others,)),
        _permissions,
        _file,
        _channels,
        partial(_runs, whole=whole),
    )
    for look in looks:
        findings += [found for found in _looked(look, place, whole=whole) if found not in findings]
    return findings


def needs_person(findings: list[Finding]) -> bool:
    """Whether somebody has to do something."""
    return any(finding.level == "person" for finding in findings)


def advice(error: OutlastError, *, whole: bool) -> str:
    """The hint of an error for a person who looks with `outlast doctor` already; `whole`: with `--all`."""
    here = ("`outlast doctor`", *(("`outlast doctor --all`",) if whole else ()))
    if not any(command in error.hint for command in here):
        return error.hint
    return IN_USE if isinstance(error, StoreBusy) else BACKUP if isinstance(error, StoreCorrupt) else UNUSABLE


def _looked(
    look: Callable[[StorePlace], Iterator[Finding]], place: StorePlace, *, whole: bool
) -> Iterator[Finding]:
    try:
        yield from look(place)
    except OutlastError as error:
        yield Finding("person", "store", str(error), advice(error, whole=whole))
    except OSError as error:
        hint = "check who owns the folder and whether the disk answers"
        yield Finding(
            "person", "store", f"{error.filename or place.local.folder}: {error.strerror or error}", hint
        )


def _programs(place: StorePlace) -> Iterator[Finding]:
    python = platform.python_version()
    yield Finding(
        "ok", "versions",
        f"outlast {__version__}, Python {python}, {place.versions()}",
    )  # fmt: skip
    if sys.platform == "linux":
        yield Finding("ok", "platform", f"Linux {platform.release()}")
    elif sys.platform == "darwin":
        yield Finding(
            "warn",
            "platform",
            "macOS is untested",
            "the Python API and `outlast save`, `watch`, `ls`, `top`, `demo` work; `outlast run` and `ui` need Linux",
        )
    else:
        yield Finding("person", "platform", f"{sys.platform} is not supported", "use WSL2")
    git = shutil.which("git")
    if git:
        yield Finding("ok", "git", git)
    else:
        yield Finding("warn", "git", "not found: workspaces cannot be saved", "install git")


def _channels(place: StorePlace) -> Iterator[Finding]:
    """Notification channels on which the last notice did not arrive."""
    for dead in channel_health.dead(place.local):
        since = f"{dead.failed_at:%Y-%m-%d %H:%M} UTC: " if dead.failed_at else ""
        text = f"{dead.channel} does not work: {since}{short(dead.problem, TEXT_CHARS)}"
        yield Finding("warn", "notify", text, f"correct it, then `outlast notify --test {dead.channel}`")


def _saves(folder: Path) -> Iterator[Finding]:
    """Saves of before there were vaults, in the repository around this folder: people who push everything should know."""
    from outlast.workspace.git import command

    words = ["for-each-ref", "--format=%(refname)", "refs/outlast/"]
    try:
        count = len(
            command.run(words, cwd=folder, ok=(0, 128), timeout_s=Timing.current().list_refs_s).splitlines()
        )
    except (OutlastError, OSError, subprocess.TimeoutExpired):
        return
    if count:
        text = f"{count:,} refs of saves of before in this repository: `git log --all` shows them, `git push --mirror` pushes them"
        yield Finding(
            "note",
            "saves",
            text,
            "`outlast gc --move-saves` takes them out; the vault has them already or gets them",
        )


def _disk(place: StorePlace) -> Iterator[Finding]:
    kind = durable.fs_type(place.paths[-1]) or "unknown"
    move = "put it on a local disk with --store or OUTLAST_STORE"
    if kind in durable.NETWORK_TYPES:
        yield Finding("person", "file system", f"{kind}: locks and flushes cannot be trusted", move)
    elif kind in _VOLATILE:
        yield Finding("warn", "file system", f"{kind}: {_VOLATILE[kind]}", move)
    else:
        yield Finding("ok", "file system", kind)
    free_bytes = shutil.disk_usage(place.paths[-1].parent).free
    text = f"{free_bytes / (1 << 20):,.0f} MiB free"
    if free_bytes < FREE_BAD_BYTES:
        yield Finding("person", "free space", text, "make room, or runs stop at their next beat")
    elif free_bytes < FREE_WARN_BYTES:
        yield Finding("warn", "free space", text, "`outlast gc --older-than 30d` gives some back")
    else:
        yield Finding("ok", "free space", text)


def _readable_by_others(place: StorePlace) -> Iterator[Finding]:
    for path in place.paths:
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            yield Finding(
                "warn", "permissions", f"others can look into {path}", f"`chmod go= {shlex.quote(str(path))}`"
            )  # fmt: skip


def _permissions(place: StorePlace) -> Iterator[Finding]:
    folder, *files = place.paths
    writable = all(os.access(path, os.R_OK | os.W_OK) for path in files)
    if not writable or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        hint = "use the user who made it, or another --store"
        yield Finding("person", "permissions", f"you may not write {folder}", hint)
    else:
        yield Finding("ok", "permissions", "the store can be written")


def _file(place: StorePlace) -> Iterator[Finding]:
    place.open().close()
    found = place.examine()
    yield Finding("ok", "schema", f"version {found.version} of {found.version_known}")
    if found.problems:
        text = "; ".join(found.problems[:NAMED_MAX])
        yield Finding("person", "integrity", text, BACKUP)
    else:
        yield Finding("ok", "integrity", f"{found.size_bytes:,} bytes, {found.wal_bytes:,} in the WAL")
    for words in found.hindrances:
        more = "; the log then shrinks by itself" if found.wal_bytes else ""
        yield Finding("warn", "log", words, f"let that program end{more}")
    yield from _rewound(place.local, found)
    if found.stale_locks:
        count = len(found.stale_locks)
        yield Finding("note", "locks", f"{count} left of forgotten runs", "`outlast gc` removes them")


def _rewound(local: Local, found: Health) -> Iterator[Finding]:
    for run in found.rewound:
        yield Finding(
            "person", "rewound", f"run {run} lost events that were acknowledged",
            f"look at what it did, then `outlast resume {run} --accept-rewind`",
        )  # fmt: skip
    for run in found.lost:
        files = shlex.join(map(str, (local.run_lock(run), local.act_lock(run))))
        yield Finding(
            "person", "rewound", f"run {run} is lost as a whole: only its lock file is left",
            f"restore a newer backup; or look at what it did, then `rm -f {files}`",
        )  # fmt: skip
    if found.missing is not None:
        yield Finding(
            "person", "rewound", f"event {found.missing} was acknowledged and is gone; no new run is begun",
            f"when you know which runs are missing, `rm {shlex.quote(str(local.mark))}`",
        )  # fmt: skip


def _runs(place: StorePlace, *, whole: bool) -> Iterator[Finding]:
    store = place.open()
    try:
        count = 0
        for summary in find.all_runs(store, RunFilter(parent=""), unreadable=True):
            count += 1
            if not summary.problem:
                yield from _run(store, summary)
            elif (
                not whole
            ):  # one run that cannot be read hides no other; the whole look says which of its events
                yield Finding("person", "unreadable", f"{summary.task}: {summary.problem}")
        yield Finding("ok", "runs", f"{count:,}")
    finally:
        store.close()


def _run(store: Store, summary: Summary) -> Iterator[Finding]:
    """The line for a run that needs a person, or whose effects the next attempt settles."""
    state, children = summary.state, find.children_in(store)
    shown = find.shown_status(store, state, summary.run)
    stands = standing.of(state, shown, datetime.now(UTC), children)
    if stands.word == "in_doubt":
        for run, effect in verdict.to_settle(children, state)[:NAMED_MAX]:
            hint = standing.settle_hint(f"outlast settle {run} {effect.id}")
            yield Finding("person", "in doubt", f"{summary.task}: effect {effect.id} {effect.name}", hint)
    elif stands.verdict.needs_somebody:
        text = f"{summary.task}: {short(stands.says, TEXT_CHARS)}"
        yield Finding("person", standing.words(stands.word), text, standing.typed(stands.next))
    elif stands.word == "unsettled":
        for _, effect in verdict.doubts_among(children, state)[:NAMED_MAX]:
            text = f"{summary.task}: effect {effect.id} {effect.name}; the next attempt settles it"
            yield Finding("note", "in doubt", text, standing.typed(stands.next))
