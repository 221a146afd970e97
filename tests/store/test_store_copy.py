"""`outlast store copy`: every run goes over as it is, and goes on in one of the two stores only."""

import re
import subprocess
from pathlib import Path

import pytest

from outlast.core.state import RunState, fold
from outlast.errors import RunRefused
from outlast.operations.transfer.store_copy import StoreCopy
from outlast.store import open_store
from outlast.store.protocol import RunFilter, Store
from tests.store.journal_batches import appended
from tests.support import commands, processes
from tests.support.environment import Isolated

CRASHES = "test -e f || { echo new > f; git add f; kill -9 $PPID; sleep 60; }; cat f"


def outlast(state: Isolated, *words: str, cwd: Path, **more: str) -> commands.Answer:
    done = subprocess.run(
        [*commands.ARGV, *words], cwd=cwd, env=state.environ(**more), capture_output=True, text=True, check=False
    )  # fmt: skip
    return commands.Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def folder(state: Isolated) -> Path:
    """A repository in which run `killed` was cut off and run `done` is done, in a store of one host."""
    place = state.home / "app"
    place.mkdir()
    subprocess.run(
        "git init -q . && echo old > g && git add . && git commit -qm first",
        shell=True,
        cwd=place,
        check=True,
    )
    assert outlast(state, "run", "--task", "done", "--", "sh", "-c", "echo a > a", cwd=place).code == 0
    assert (
        outlast(
            state, "run", "--task", "killed", "--restarts", "1", "--", "sh", "-c", CRASHES, cwd=place
        ).code
        != 0
    )
    processes.wait_for(
        lambda: outlast(state, "show", "killed", "--json", cwd=place).json["status"] != "running", what="its supervisor to be dead"
    )  # fmt: skip
    return place


def test_a_store_goes_to_a_database_and_back_and_its_runs_go_on_with_their_files(
    folder: Path, postgres_url: str, state: Isolated
) -> None:
    here = str(state.state_home / "outlast")
    before = {task: outlast(state, "saves", task, "--json", cwd=folder).json for task in ("done", "killed")}
    copied = outlast(state, "store", "copy", here, postgres_url, cwd=folder)
    assert copied.code == 0, copied
    assert "has 2 runs" in copied.out
    assert "what can go on does so there (1 run)" in copied.out
    assert outlast(state, "show", "killed", "--json", cwd=folder).json["status"] == "handed_off"
    there = {"OUTLAST_STORE": postgres_url}
    assert {
        task: outlast(state, "saves", task, "--json", cwd=folder, **there).json for task in before
    } == before
    again = outlast(state, "store", "copy", here, postgres_url, cwd=folder)
    assert (again.code, "2 were there already" in again.out) == (0, True), again
    for path in (Path(here) / "vaults", Path(here) / "workspaces"):
        path.rename(path.with_suffix(".away"))  # nothing of the other store needs them
    (folder / "f").unlink()
    restored = outlast(state, "restore", "killed", cwd=folder, **there)
    assert restored.code == 0, restored
    assert (folder / "f").read_text() == "new\n"
    resumed = outlast(state, "resume", "killed", cwd=folder, **there)
    assert (resumed.code, resumed.out) == (0, "new\n"), resumed
    back = outlast(state, "store", "copy", postgres_url, str(state.home / "back"), cwd=folder)
    assert back.code == 0, back
    last = {"OUTLAST_STORE": str(state.home / "back")}
    assert outlast(state, "show", "killed", "--json", cwd=folder, **last).json["status"] == "done"
    looked = outlast(state, "doctor", "--all", cwd=folder, **last)
    assert "the newest save of 2 runs was looked for" in looked.out, looked
    bad = [line for line in looked.out.splitlines() if not line.startswith(("ok", "note"))]
    # Where the tests lie in memory, it says that this is gone after a reboot.
    assert [line for line in bad if not re.match(r"warn +(file system|free space):", line)] == [], looked
    assert outlast(state, "saves", "done", "--json", cwd=folder, **last).json == before["done"]


def test_a_store_with_a_run_that_is_worked_on_is_not_copied(postgres_url: str, tmp_path: Path) -> None:
    source, target = open_store(tmp_path / "s"), open_store(postgres_url)
    done, live = appended(source, "t", 3), appended(source, "live", 2)
    lease = source.claim(live)
    with pytest.raises(RunRefused, match="live is being worked on; nothing was copied"):
        StoreCopy(source, target, print).all()
    assert target.list(RunFilter()) == []
    source.release(lease)
    assert StoreCopy(source, target, lambda _: None).all().sealed == 2
    for run in (done, live):
        (here,), (there,) = (each.list(RunFilter(runs=(run,))) for each in (source, target))
        assert (there.state.status, here.state.status) == ("interrupted", "handed_off")
        assert there.epoch >= here.epoch, "no attempt there gets the number of one here"
    source.close()
    target.close()


def events(store: Store, run: str) -> list[object]:
    return [item.event for item in store.read(run, after=0).events]


def test_a_copy_that_was_cut_off_is_ended_by_the_same_again(postgres_url: str, tmp_path: Path) -> None:
    """Whatever is there already: nothing, some runs, or all but the seal."""
    source, target = open_store(tmp_path / "s"), open_store(postgres_url)
    runs = [appended(source, f"t{number}", number + 1) for number in range(3)]

    class Cut(Exception):
        pass

    for number in range(1, 4):

        def say(words: str, number: int = number) -> None:
            if words.startswith(f"{number} of"):
                raise Cut

        with pytest.raises(Cut):
            StoreCopy(source, target, say).all()
        assert len(target.list(RunFilter())) == number - 1
    unsealed = target.list(RunFilter(runs=(runs[0],)))[0]
    assert unsealed.state.status == "interrupted"
    copied = StoreCopy(source, target, lambda _: None).all()
    assert (copied.runs, copied.known) == (3, 2)
    for run in runs:
        assert events(target, run) == events(source, run)[: len(events(target, run))]
        assert source.list(RunFilter(runs=(run,)))[0].state.status == "handed_off"
        assert target.list(RunFilter(runs=(run,)))[0].state == fold(RunState(), events(target, run))  # type: ignore[arg-type]
    source.close()
    target.close()


def test_a_run_that_is_handed_off_there_is_refused(postgres_url: str, tmp_path: Path) -> None:
    source, target, third = open_store(tmp_path / "s"), open_store(postgres_url), open_store(tmp_path / "t")
    run = appended(source, "t", 3)
    StoreCopy(source, target, lambda _: None).all()
    StoreCopy(target, third, lambda _: None).all()
    with pytest.raises(RunRefused, match="is handed off there"):
        StoreCopy(third, source, lambda _: None).all()
    assert third.list(RunFilter(runs=(run,)))[0].state.status == "interrupted"
    for store in (source, target, third):
        store.close()
