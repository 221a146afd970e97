"""What keeps a run's saves: not a file that somebody may remove, but that its refs reach them all."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from outlast.workspace import saves
from outlast.workspace.restore import restore
from tests.crash import save_worker
from tests.crash.save_control import Worker
from tests.crash.save_worker import KINDS, Job, Told
from tests.crash.test_saves_killed import again, fsck, prepared


def with_saves(place: Path, kind: str, **more: object) -> tuple[Job, tuple[Told, ...]]:
    job = prepared(place, kind, **{"rounds": 9, "saves": ("beat", "beat", "emergency"), **more})
    with Worker(job) as worker:
        assert worker.wait() == 0
        return job, worker.told


def repository(job: Job) -> Path:
    with contextlib.closing(job.saver()) as saver:
        return saver.repo().vault


def sweep_hard(place: Path) -> None:
    """All that git can do to throw away what nothing reaches."""
    for words in (
        ["reflog", "expire", "--expire=now", "--all"],
        ["gc", "-q", "--prune=now"],
        ["repack", "-adq"],
    ):
        save_worker.agent_git(place, f"--git-dir={place}", *words)
    save_worker.agent_git(place, f"--git-dir={place}", "prune", "--expire=now")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_every_save_of_a_run_stays_whole_through_gc_also_without_the_keep_files(
    kind: str, tmp_path: Path
) -> None:
    job, told = with_saves(tmp_path / "place", kind)
    place = repository(job)
    sweep_hard(place)
    save_worker.check_saves(job, told)
    keeps = list((place / "objects/pack").glob("*.keep"))
    assert len(keeps) >= len(told)
    for keep in keeps:
        keep.unlink()
    sweep_hard(place)
    assert len(list((place / "objects/pack").glob("*.pack"))) == 1
    save_worker.check(job, told, whole=True)
    fsck(job)


def test_the_packs_of_saves_are_kept_apart_from_the_users_own(tmp_path: Path) -> None:
    """Else sixty saves would have the user's next git begin its `gc --auto`, and repack them all each time."""
    job, told = with_saves(tmp_path / "place", "plain")
    place = repository(job)
    before = {path.name for path in (place / "objects/pack").glob("*.pack")}
    sweep_hard(place)
    assert before <= {path.name for path in (place / "objects/pack").glob("*.pack")}
    save_worker.check(job, told)


@pytest.mark.parametrize("point", ["save.packed", "save.before_ref"])
def test_gc_in_the_middle_of_a_save_takes_nothing_from_it(point: str, tmp_path: Path) -> None:
    """No ref reaches its pack yet: only the keep file tells git to leave it alone."""
    job = prepared(tmp_path / "place", secrets=False, rounds=2, stop=(point,))
    with Worker(job) as worker:
        while worker.wait_stopped():
            sweep_hard(repository(job))
            worker.go_on()
        assert worker.wait() == 0
        save_worker.check(job, worker.told)
    fsck(job)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["plain", "sha256", "shadow"])
def test_every_save_of_a_run_travels_in_a_bundle_of_its_newest_ref(kind: str, tmp_path: Path) -> None:
    job, told = with_saves(tmp_path / "place", kind, secrets=False)
    bundle = tmp_path / "run.bundle"
    ref = told[-1].ref
    save_worker.agent_git(
        tmp_path, f"--git-dir={repository(job)}", "bundle", "create", "-q", str(bundle), ref
    )
    form = "sha256" if kind == "sha256" else "sha1"
    other = again(job, place=str(tmp_path / "other"))
    other.folder.mkdir(parents=True)
    there = other.folder
    if kind == "shadow":
        there = repository(other)
    else:
        save_worker.agent_git(there, "init", "-q", f"--object-format={form}", ".")
    save_worker.agent_git(there, "fetch", "-q", str(bundle), f"{ref}:{ref}")
    with contextlib.closing(other.saver()) as saver:
        for save in told:
            held = saves.read(saver.reader(), save.commit, saver.repo().algo)
            to = tmp_path / f"back-{save.number}"
            restore.materialise(saver, held, to)
            assert save_worker.listing(to) == save.files, f"save {save.number}"
    fsck(other)
