"""Fork and restore as actions: into a new folder only, once, and recorded. Real runs and git."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from outlast import Run
from outlast.dashboard.actions import perform
from outlast.dashboard.documents import Foreseen
from outlast.store.protocol import RunFilter
from tests.dashboard.dashboard import BY, KEY, Dashboard, beats, interrupted
from tests.supervisor.supervised_command import Night
from tests.support import commands
from tests.support.environment import Isolated
from tests.support.inprocess import at_point, attempt


def pasted(foreseen: Foreseen, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command of the page, as a shell takes it."""
    words = shlex.split(foreseen.command)
    assert words[0] == "outlast"
    return commands.run(
        [sys.executable, "-P", "-m", "outlast", *words[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


# -- fork -------------------------------------------------------------------------------------------------------------


def test_a_fork_says_what_may_be_done_again_and_its_journal_who_made_it(
    dashboard: Dashboard, start: Callable[..., Run]
) -> None:
    interrupted(start)
    said = dashboard.foresee("fork", beat=1)
    source = dashboard.summary().run
    assert f"Run {source} did 1 later effect, which the fork may do again:" in said.says
    assert "2.1 post: confirmed" in said.says
    assert said.wish.task == "t-fork-1"
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: dashboard.do("fork", beat=1), range(4)))
    assert [done.ok for done in outcomes] == [True] * 4
    assert sum(done.changed for done in outcomes) == 1
    assert {done.link for done in outcomes} == {dashboard.summary("t-fork-1").run}
    assert dashboard.asked(dashboard.summary("t-fork-1").run) == [("fork", BY)]
    assert dashboard.asked() == []
    assert attempt(start("t-fork-1"), lambda run: [beat.finish() or beat.done() for beat in run.beats()])
    assert dashboard.status("t-fork-1") == "done"
    again = perform.do(dashboard.store, said.wish, BY)  # with its name it is found also after it was started
    assert (again.ok, again.changed, again.link) == (True, False, outcomes[0].link)
    assert "The fork is there already" in dashboard.foresee("fork", beat=1, task="t-fork-1").says[0]


def test_a_forks_budget_is_moved_and_never_copied(dashboard: Dashboard, start: Callable[..., Run]) -> None:
    interrupted(start, budget=["beats=10"])
    said = dashboard.foresee("fork", beat=1)
    assert (said.wish.amounts, said.refused) == ("beats=4", ""), "half of what is left is offered"
    assert "has a budget of beats" in dashboard.do("fork", beat=1).says, "and moved only if somebody says so"
    assert dashboard.do("fork", beat=1, amounts="beats=3").ok
    assert dashboard.asked() == [("less", BY), ("forked", BY)]
    limits = [dashboard.summary(task).state.budget for task in ("t", "t-fork-1")]
    assert [limit.beats for limit in limits if limit is not None] == [7, 4]


@pytest.mark.parametrize(
    "fields",
    [{"beat": -1}, {"beat": 3}, {"beat": 10**18}, {"beat": 1, "task": "t"}, {"beat": 1, "task": "a\nb"},
     {"beat": 1, "task": "x" * 10_000}, {"beat": 1, "amounts": "1k,1k"}, {"beat": 1, "folder": "relative"}],
)  # fmt: skip
def test_a_fork_that_makes_no_sense_is_refused(
    dashboard: Dashboard, start: Callable[..., Run], fields: dict[str, Any]
) -> None:
    interrupted(start)
    dashboard.refused("fork", **fields)
    assert len(dashboard.store.list(RunFilter())) == 1


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path: Path, state: Isolated) -> Path:
    """A repository with a file that the run of `worked` changes at each beat."""
    folder = tmp_path / "work"
    folder.mkdir()
    script = "git init -q -b main && echo one > a.txt && git add -A && git commit -qm one"
    subprocess.run(["sh", "-c", script], cwd=folder, env=state.environ(), check=True)
    return folder


def worked(start: Callable[..., Run], work: Path) -> None:
    def body(run: Run) -> None:
        for beat in run.beats():
            if beat.number > 2:
                raise RuntimeError("the agent broke down")
            (work / "a.txt").write_text(f"beat {beat.number}\n")
            (work / ".env").write_text(f"KEY={KEY}\n")
            beat.done()

    with pytest.raises(RuntimeError, match="broke down"):
        attempt(start(workspace=work), body)


def test_a_save_is_brought_back_into_a_new_folder_and_that_is_recorded(
    dashboard: Dashboard, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    worked(start, work)
    before = subprocess.run(
        ["git", "status", "--porcelain"], cwd=work, capture_output=True, check=True
    ).stdout
    run = dashboard.summary().run
    said = dashboard.foresee("restore", save=f"{run}@1", folder=str(tmp_path / "new"))
    assert len(said.wish.save) == 40
    assert f"are written into {tmp_path}/new." in said.says[0]
    assert not (tmp_path / "new").exists()
    done = perform.do(dashboard.store, said.wish, BY)
    assert (done.ok, done.changed, done.link) == (True, True, run), done
    assert (tmp_path / "new/a.txt").read_text() == "beat 1\n"
    assert not (tmp_path / "new/.env").exists()
    assert (work / "a.txt").read_text() == "beat 2\n"
    after = subprocess.run(["git", "status", "--porcelain"], cwd=work, capture_output=True, check=True).stdout
    assert after == before
    [event] = dashboard.events("requested")
    assert (event.what, event.by, event.id) == ("restore", BY, 0)
    assert json.loads(bytes(event.args.v)) == {"save": said.wish.save, "to": str(tmp_path / "new")}
    assert (
        "exists and is not empty"
        in dashboard.refused("restore", save=said.wish.save, folder=said.wish.folder)[0]
    )
    assert dashboard.status() == "interrupted"
    assert (
        "restore"
        in subprocess.run(
            [sys.executable, "-m", "outlast", "log", run], capture_output=True, text=True, check=True
        ).stdout
    )
    assert attempt(start(workspace=work), lambda run: [beat.finish() or beat.done() for beat in run.beats()])
    suggested = dashboard.foresee(
        "restore"
    )  # the newest save, beside the workspace; also of a run that is done
    assert suggested.wish.folder == f"{work}-{suggested.wish.save[:7]}"
    assert perform.do(dashboard.store, suggested.wish, BY).ok
    assert dashboard.asked() == [("restore", BY), ("restore", BY)]
    assert dashboard.status() == "done"


def test_a_restore_beside_a_living_run_is_recorded_by_its_holder(
    dashboard: Dashboard, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    with start(workspace=work) as run:
        for beat in run.beats():
            if beat.number == 1:
                done = dashboard.do(
                    "restore", save=dashboard.summary().state.last_save, folder=str(tmp_path / "new")
                )
                assert done.ok, done
                assert done.says.endswith("its holder records that at its next beat or act.")
                beat.done()
            else:
                beat.finish()
                beat.done()
    assert dashboard.asked() == [("restore", BY)]
    assert (dashboard.status(), dashboard.attempts()) == ("done", 1)
    assert (tmp_path / "new/a.txt").read_text() == "one\n"


def test_a_run_that_died_is_not_buried_by_a_restore(
    dashboard: Dashboard, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    assert not attempt(start(workspace=work), lambda run: beats(run), at_point("beat.begun"))
    open_attempt = dashboard.summary().state.attempt
    assert open_attempt is not None
    assert dashboard.do("restore", save=dashboard.summary().state.last_save, folder=str(tmp_path / "new")).ok
    assert dashboard.summary().state.attempt == open_attempt
    assert dashboard.asked() == [("restore", BY)]


def test_a_fork_with_files_of_its_own_is_made_once(
    dashboard: Dashboard, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    worked(start, work)
    said = dashboard.foresee("fork", beat=1, folder=str(tmp_path / "forked"))
    assert f"Its files, as they were then, are written into {tmp_path}/forked." in said.says
    for changed in (True, False):
        done = dashboard.do("fork", beat=1, folder=str(tmp_path / "forked"))
        assert (done.ok, done.changed) == (True, changed), done
    assert (tmp_path / "forked/a.txt").read_text() == "beat 1\n"
    fork = dashboard.summary("t-fork-1")
    assert (fork.run, fork.state.workspace) == (done.link, str(tmp_path / "forked"))
    assert dashboard.asked(fork.run) == [("fork", BY)]
    dashboard.refused("fork", beat=2, folder=str(tmp_path / "forked"))


def test_a_fork_of_a_command_is_resumed_in_a_folder_of_its_own(dashboard: Dashboard, night: Night) -> None:
    night.start_agent()
    night.ready(1)
    dashboard.do("cancel")
    dashboard.comes_to("cancelled")
    before = (night.work / "work.txt").read_text()
    forked = dashboard.do("fork", beat=0, folder=str(night.folder / "forked"))
    assert (forked.ok, forked.hint) == (True, f"`outlast resume {forked.link}` starts it"), forked
    assert f" in {night.folder}/forked; it has no limit." in dashboard.foresee("resume", "t-fork-1").says[0]
    resumed = dashboard.do("resume", "t-fork-1")
    assert (resumed.ok, resumed.changed) == (True, True), resumed
    night.ready(2)
    night.let_go()
    dashboard.comes_to("done", "t-fork-1")
    assert (night.folder / "forked/work.txt").read_text() == "attempt 2\n"
    assert (night.work / "work.txt").read_text() == before


HOSTILE_FOLDERS = (
    "relative", "", " ", "/", "..", "/etc/x/../..", "{tmp}/x/../y", "{tmp}/a\nb", "{tmp}/a\x1b[2Jb", "{tmp}/a\0b",
    "{tmp}/" + "x" * 300, "/" + "y" * 10_000, "{tmp}/link/new", "{tmp}/dangling", "{tree}/.git/new",
    "{tree}/.GIT", "{tmp}/bare.git/new", "{tree}/inside", "{tree}", "{tmp}/nowhere/new", "{store}/new", "{store}",
    "{tmp}/file", "{tmp}/file/new", "/proc/new", "~root/new", "~x", "/{tmp}/new", "{tmp}/\u202egnp", "\ud800", "-rf", "C:\\x",
    "{tmp}/full",
)  # fmt: skip


def test_a_folder_that_is_no_new_one_is_refused_and_nothing_is_written(
    dashboard: Dashboard, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    worked(start, work)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "real/there")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "bare.git")], check=True)
    save, run = dashboard.summary().state.last_save, dashboard.summary().run
    (dashboard.store.local.run_folder(run)).mkdir(exist_ok=True)
    before = listed(tmp_path)
    for given in HOSTILE_FOLDERS:
        folder = given.replace("{tmp}", str(tmp_path)).replace("{store}", str(dashboard.store.local.folder))
        folder = folder.replace("{tree}", str(work))
        done = dashboard.do("restore", save=save, folder=folder)
        assert (done.ok, done.changed) == (False, False), (given, done)
        assert done.says.isprintable(), given
        assert done.hint.isprintable(), given
        assert done.hint, given
        foreseen = dashboard.foresee("restore", save=save, folder=folder)
        assert not given.strip() or foreseen.refused == done.says
        if given.strip():
            assert not dashboard.do("fork", beat=1, folder=folder).ok, given
    assert listed(tmp_path) == before
    assert dashboard.asked() == []
    assert len(dashboard.store.list(RunFilter())) == 1
    assert (
        str(tmp_path / "real/new") in dashboard.do("restore", save=save, folder=f"{tmp_path}/link/new").hint
    )


def listed(folder: Path) -> list[str]:
    """Everything in a folder, but git's and the run's own locks."""
    return sorted(str(path) for path in folder.rglob("*") if ".git/" not in str(path))


NO_SAVES = ("", "zzzz", "HEAD", "main", "--all", "0" * 40, "@1", "x@1", "a" * 90, "\0", "refs/heads/main")


def test_what_is_no_save_of_the_run_is_not_restored(
    dashboard: Dashboard, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    worked(start, work)
    for save in NO_SAVES:
        done = dashboard.do("restore", save=save, folder=str(tmp_path / "new"))
        assert (done.ok, bool(done.hint), (tmp_path / "new").exists()) == (False, True, False), done


def test_the_commands_do_the_same(
    dashboard: Dashboard, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    worked(start, work)
    for act, fields in (
        ("pause", {}), ("resume", {"amounts": "beats=9"}), ("budget", {"amounts": "beats=+2"}),
        ("fork", {"beat": 1, "folder": f"{tmp_path}/a fork", "task": "o'fork", "amounts": "beats=1"}),
        ("restore", {"folder": f"{tmp_path}/it's new"}), ("cancel", {}),
    ):  # fmt: skip
        said = dashboard.foresee(act, **fields)  # type: ignore[arg-type]
        assert not said.refused, said
        answer = pasted(said, tmp_path)
        assert answer.returncode == 0, (said.command, answer.stderr)
    assert [what for what, _ in dashboard.asked()] == [
        "pause",
        "resume",
        "budget",
        "more",
        "less",
        "forked",
        "restore",
        "cancel",
    ]
    assert (tmp_path / "a fork/a.txt").read_text() == "beat 1\n"
    assert (tmp_path / "it's new/a.txt").read_text() == "beat 2\n"
    assert dashboard.summary("o'fork").state.workspace == f"{tmp_path}/a fork"
