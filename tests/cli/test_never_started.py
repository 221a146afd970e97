"""Runs that nobody started here, forks and imports: `resume --all`, and so the service at boot, leaves them alone.

The witness is a file: the command writes a line to it each time that it is run.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.core import events as ev
from outlast.core.values import ForkPoint
from outlast.operations import requests
from tests.supervisor.host import Host
from tests.support.environment import TIMEOUT_S, isolate
from tests.support.processes import wait_for

NOT_STARTED = "not started"


@pytest.fixture
def elsewhere(host: Host) -> Iterator[Host]:
    """Another home on the same machine, with a store that has no runs yet."""
    (host.folder / "elsewhere").mkdir()
    with Host(host.folder, isolate(host.folder / "elsewhere")) as other:
        other.witness = host.witness  # the world is the same
        yield other


def command(host: Host) -> tuple[str, ...]:
    """Notes that it was run, and ends when it is let go."""
    return ("sh", "-c", f"echo ran >> {host.folder}/ran; until [ -e {host.folder}/go ]; do sleep 0.02; done")


def ran(host: Host) -> int:
    path = host.folder / "ran"
    return len(path.read_text().split()) if path.exists() else 0


def was_run(host: Host, task: str) -> None:
    """The command ran once, and its run is done."""
    host.let_go()
    assert host.start(task, *command(host)).wait(TIMEOUT_S) == 0, host.said(task)
    assert ran(host) == 1


def exported(host: Host, *options: str) -> Path:
    """A run that was killed in its command, as a file; from now on the command ends at once."""
    process = host.start("a", *command(host), options=("--done", "true"))
    wait_for(lambda: ran(host) or None, what=f"its command: {host.said('a')}")
    host.kill_everything()
    process.wait(TIMEOUT_S)
    host.let_go()
    path = host.folder / "a.outlast.tar.gz"
    answer = host("export", "a", "-o", str(path), *options, cwd=host.folder / "a")
    assert answer.code == 0, answer.err
    return path


def woken(host: Host) -> list[dict[str, Any]]:
    """What `resume --all` says of each run, when all that it started has come to its end."""
    answer = host("resume", "--all", "--json")
    rows: list[dict[str, Any]] = answer.json
    for row in rows:
        if row["started"]:
            host.comes_to(row["task"], "done")
    return rows


# --- a fork -------------------------------------------------------------------------------------------------------------


def test_a_fork_that_nobody_started_is_not_woken(host: Host) -> None:
    was_run(host, "a")
    assert host("fork", "a", "--at", "0", "--task", "b", "--yes", cwd=host.folder / "a").code == 0
    [row] = woken(host)
    assert ran(host) == 1
    assert (row["wake"], row["started"]) == (False, None)
    assert NOT_STARTED in row["why"]


def test_a_fork_in_an_old_store_that_nobody_started_is_not_woken(host: Host) -> None:
    """As an outlast wrote it that did not put on record who asked for a fork."""
    was_run(host, "a")
    [opened] = [event for event in host.events("a") if isinstance(event, ev.RunOpened)]
    point = ForkPoint(opened.run, 0, 1)
    host.store.create(
        msgspec.structs.replace(opened, run="runforkedlong", task="b", fork=point, at=datetime.now(UTC))
    )
    [row] = woken(host)
    assert ran(host) == 1
    assert (row["wake"], row["started"]) == (False, None)


def test_a_fork_that_nobody_started_is_shown_as_such(host: Host) -> None:
    was_run(host, "a")
    assert host("fork", "a", "--at", "0", "--task", "b", "--yes", cwd=host.folder / "a").code == 0
    answer = host("show", "b", cwd=host.folder / "a")
    assert NOT_STARTED in answer.out + answer.err
    assert NOT_STARTED in host("ls", cwd=host.folder / "a").out


def test_a_fork_is_started_by_name(host: Host) -> None:
    was_run(host, "a")
    assert host("fork", "a", "--at", "0", "--task", "b", "--yes", cwd=host.folder / "a").code == 0
    assert host("resume", "b", cwd=host.folder / "a").code == 0
    assert ran(host) == 2


# --- an archive ---------------------------------------------------------------------------------------------------------

each_kind = pytest.mark.parametrize("options", [(), ("--copy",)], ids=["handed off", "copy"])


def imported(host: Host, file: Path) -> str:
    """Taken in where no repository is around; what was said of it."""
    place = host.folder / "nothing here"
    place.mkdir()
    answer = host("import", str(file), cwd=place)
    assert answer.code == 0, answer.err
    return answer.out + answer.err


@each_kind
def test_an_imported_run_that_nobody_started_here_is_not_woken(
    host: Host, elsewhere: Host, options: tuple[str, ...]
) -> None:
    imported(elsewhere, exported(host, *options))
    [row] = woken(elsewhere)
    assert ran(host) == 1, "before it was exported"
    assert (row["wake"], row["started"]) == (False, None)
    assert NOT_STARTED in row["why"]


def test_import_says_what_would_be_run_and_where_it_came_from(host: Host, elsewhere: Host) -> None:
    said = imported(elsewhere, exported(host))
    assert f"echo ran >> {host.folder}/ran" in said
    assert "true" in said
    assert str(host.folder / "a") in said
    assert "outlast resume" in said


@each_kind
def test_an_imported_run_is_started_by_name(host: Host, elsewhere: Host, options: tuple[str, ...]) -> None:
    imported(elsewhere, exported(host, *options))
    [row] = elsewhere("resume", "--all", "--dry-run", "--json").json
    answer = elsewhere("resume", row["run"], cwd=host.folder)
    assert answer.code == 0, answer.err
    assert ran(host) == 2


# --- what was started ---------------------------------------------------------------------------------------------------


def test_what_outlast_run_began_and_was_killed_before_its_first_attempt_is_woken(host: Host) -> None:
    """Killed at the point `store.created`: its first event is on record, with its command."""
    was_run(host, "a")
    [opened] = [event for event in host.events("a") if isinstance(event, ev.RunOpened)]
    host.store.create(msgspec.structs.replace(opened, run="runkilledsoon", task="b", at=datetime.now(UTC)))
    [row] = woken(host)
    assert (row["wake"], row["started"]) == (True, True)
    assert ran(host) == 2


def test_a_fork_that_was_asked_for_and_killed_before_its_attempt_is_woken(host: Host) -> None:
    """`outlast resume` puts on record that a person asked, before it starts anything."""
    was_run(host, "a")
    assert host("fork", "a", "--at", "0", "--task", "b", "--yes", cwd=host.folder / "a").code == 0
    requests.resume(host.store, host.summary("b").run, by="anna")
    [row] = woken(host)
    assert (row["wake"], row["started"]) == (True, True)
    assert ran(host) == 2


def test_a_fork_that_somebody_started_and_that_was_killed_is_woken(host: Host) -> None:
    was_run(host, "a")
    assert host("fork", "a", "--at", "0", "--task", "b", "--yes", cwd=host.folder / "a").code == 0
    (host.folder / "go").unlink()
    host("resume", "b", "--detach", cwd=host.folder / "a")
    wait_for(lambda: ran(host) == 2 or None, what="its command")
    host.kill_everything()
    host.let_go()
    [row] = woken(host)
    assert (row["wake"], row["started"]) == (True, True)
    assert ran(host) == 3
