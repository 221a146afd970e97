"""Letting go of secrets kept apart: what is named stays whatever happens, what is not goes and leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.workspace.capture.special import secrets
from outlast.workspace.compact import repack
from tests.support.environment import TIMEOUT_S
from tests.support.sweeps import Sweep
from tests.workspace.workspace import Workspace, placed

DAY_S = 86_400.0


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    with placed(tmp_path) as made:
        yield made


def save_secret(place: Workspace, value: str) -> str:
    """Save `.env` with this value; the secret's oid."""
    place.write(".env", value.encode())
    (kept,) = place.held(place.save()).meta.secrets
    return kept.oid


def apart(place: Workspace) -> Path:
    return secrets.git_dir(place.saver.private)


def age(folder: Path) -> None:
    """As if everything there was written two days ago."""
    for path in (folder / "objects/pack").iterdir():
        os.utime(path, (time.time() - 2 * DAY_S,) * 2)


def values(folder: Path) -> set[str]:
    """Every secret that is there, reachable or not."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", folder, "--git-dir=.", *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
        )  # fmt: skip
        return done.stdout

    listed = git("cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)").splitlines()
    return {git("cat-file", "blob", line.split()[1]) for line in listed if line.startswith("blob")}


def check_whole(folder: Path) -> None:
    """Git finds nothing wrong, nothing is unfinished, and nobody else may look in."""
    subprocess.run(
        ["git", "-C", folder, "--git-dir=.", "fsck", "--full", "--strict", "--no-dangling", "--no-progress"],
        check=True, capture_output=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    packs = list((folder / "objects/pack").iterdir())
    assert {path.stem for path in packs} == {path.stem for path in packs if path.suffix == ".idx"}
    assert [path for path in packs if path.suffix != ".keep" and path.stat().st_mode & 0o777 != 0o600] == []
    assert [
        each for each in (folder, *folder.glob("objects/*")) if each.stat().st_mode & 0o777 != 0o700
    ] == []


def let_go(place: Workspace, *named: str, dry_run: bool = False) -> secrets.RemovedSecrets:
    return secrets.remove_unnamed(
        place.saver.private, lambda: set(named), before_s=time.time() - DAY_S, dry_run=dry_run
    )


def test_what_is_not_named_goes_and_what_is_named_comes_back(place: Workspace) -> None:
    save_secret(place, "one")
    two = save_secret(place, "two!")
    saved = place.save()
    save_secret(place, "three")
    age(apart(place))
    before = sorted(os.listdir(apart(place) / "objects/pack"))
    assert let_go(place, two, dry_run=True) == (2, len("one") + len("three"))
    assert sorted(os.listdir(apart(place) / "objects/pack")) == before
    assert let_go(place, two) == (2, len("one") + len("three"))
    assert values(apart(place)) == {"two!"}
    check_whole(apart(place))
    assert let_go(place, two) == (0, 0)
    place.restore(saved, with_secrets=True)
    assert (place.folder / ".env").read_text() == "two!"


def test_git_keeps_in_its_own_cleaning_what_stayed(place: Workspace) -> None:
    """The ref leads to all of it, also to what lies in packs that were not written anew."""
    one = save_secret(place, "one")
    save_secret(place, "two")
    age(apart(place))
    save_secret(place, "young")
    assert let_go(place, one).secrets == 1
    for keep in (apart(place) / "objects/pack").glob("*.keep"):
        keep.unlink()
    place.git_in(apart(place), "gc", "-q", "--prune=now")
    assert values(apart(place)) == {"one", "young"}


def test_a_young_secret_stays_though_nothing_names_it(place: Workspace) -> None:
    save_secret(place, "old")
    age(apart(place))
    save_secret(place, "young")
    assert let_go(place).secrets == 1
    assert values(apart(place)) == {"young"}
    check_whole(apart(place))


def test_a_secret_that_was_written_again_just_now_stays(place: Workspace) -> None:
    save_secret(place, "again")
    save_secret(place, "other")
    age(apart(place))
    save_secret(place, "again")
    assert let_go(place).secrets == 1
    assert values(apart(place)) == {"again"}


def test_what_cannot_be_found_out_leaves_all_as_it_is(place: Workspace) -> None:
    save_secret(place, "one")
    age(apart(place))

    def unknown() -> set[str]:
        raise LookupError

    with pytest.raises(LookupError):
        secrets.remove_unnamed(place.saver.private, unknown, before_s=time.time())
    assert values(apart(place)) == {"one"}


def test_what_a_killed_save_left_goes_and_what_others_could_read_is_closed(place: Workspace) -> None:
    save_secret(place, "one")
    packs = apart(place) / "objects/pack"
    (packs / "tmp_outlast_1_abc").write_bytes(b"half a secret")
    (packs / f"pack-{'0' * 40}.pack").write_bytes(b"a secret without an index")
    for path in packs.glob("*.pack"):
        path.chmod(0o444)
    let_go(place)
    check_whole(apart(place))
    assert values(apart(place)) == {"one"}


CHILD = """
import os, signal, sys, time
from pathlib import Path
from outlast.workspace.capture.special import secrets as secret
private, nth, *named = sys.argv[1:]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {"os.rename", "os.remove", "os.chmod", "os.symlink", "os.rmdir", "os.mkdir", "os.truncate"}
left = int(nth)
def count(event, told):
    global left
    if event in CHANGES or (event == "open" and private in str(told[0]) and told[2] & WRITES):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
secret.remove_unnamed(Path(private), lambda: set(named), before_s=time.time() - 86_400)
"""


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("later", [False, True], ids=["at once", "days later"])
def test_killed_before_any_change_of_a_file_no_named_secret_is_lost_and_the_same_again_ends_right(
    place: Workspace, tmp_path: Path, later: bool, sweep: Sweep
) -> None:
    named = [save_secret(place, value) for value in ("one", "gone", "two", "gone too")][::2]
    age(apart(place))
    private = place.saver.private
    place.close()
    for nth in sweep:
        copy = tmp_path / f"killed-{nth}"
        shutil.copytree(private, copy, symlinks=True)
        words = [sys.executable, "-c", CHILD, str(copy), str(nth), *named]
        done = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        folder = secrets.git_dir(copy)
        assert values(folder) >= {"one", "two"}, f"killed before change {nth}"
        if later:
            age(folder)
        secrets.remove_unnamed(copy, lambda: set(named), before_s=time.time() - DAY_S)
        assert values(folder) == {"one", "two"}, f"killed before change {nth}"
        check_whole(folder)
        sweep.met(done.returncode != 0)
    assert sweep.total > 20


def test_many_versions_of_a_secret_take_little_room(place: Workspace) -> None:
    lines = [f"KEY_{number}={os.urandom(16).hex()}" for number in range(1_000)]
    made = []
    for number in range(repack.PACKS_MAX + 2):
        lines[number] = f"KEY_{number}={os.urandom(16).hex()}"
        made.append(save_secret(place, "\n".join(lines)))
    place.saver.tend()
    assert not secrets.consolidate(place.saver.private, grace_s=0.0)
    packs = list((apart(place) / "objects/pack").glob("*.pack"))
    assert len(packs) == 1
    assert sum(pack.stat().st_size for pack in packs) < 5 * len("\n".join(lines))
    assert len(values(apart(place))) == len(made)
    check_whole(apart(place))
    age(apart(place))
    assert let_go(place, made[0], made[-1]).secrets == len(made) - 2
    assert len(values(apart(place))) == 2
    check_whole(apart(place))


def test_while_secrets_are_consolidated_none_is_removed(place: Workspace) -> None:
    save_secret(place, "PASSWORD=one")
    age(apart(place))
    with repack.packing_lock(apart(place) / "objects/pack"):
        assert let_go(place).secrets == 0
    assert let_go(place).secrets == 1
