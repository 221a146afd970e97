"""A command under `outlast run` while the server of its store is away."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import commands, processes
from tests.support.environment import Isolated
from tests.support.postgres import PostgresServer

WORK = "echo >> began; while [ ! -e go ]; do echo >> alive; sleep 0.1; done"
LEASE_S = "6"  # its holder stops by its own clock after 4.4 s


@contextmanager
def at_work(folder: Path, state: Isolated, url: str) -> Iterator["subprocess.Popen[str]"]:
    folder.mkdir()
    words = [*commands.ARGV, "run", "--task", "t", "--restarts", "1", "--", "sh", "-c", WORK]
    with subprocess.Popen(
        words, cwd=folder, env=state.environ(OUTLAST_STORE=url, OUTLAST_LEASE_S=LEASE_S), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            processes.wait_for(lambda: (folder / "began").exists(), what="the command to begin")
            yield process
        finally:
            process.kill()


def lines(path: Path) -> int:
    return path.read_text().count("\n")


@pytest.mark.slow
def test_a_short_outage_of_the_store_disturbs_no_command(
    postgres_server: PostgresServer, postgres_url: str, state: Isolated, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    with at_work(folder, state, postgres_url) as process:
        with postgres_server.frozen():
            before = lines(folder / "alive")
            processes.wait_for(lambda: lines(folder / "alive") > before + 15, what="a second and a half")
        (folder / "go").touch()
        said, _ = process.communicate(timeout=processes.LIMIT_S)
    assert process.returncode == 0, said
    assert lines(folder / "began") == 1


@pytest.mark.slow
def test_a_command_is_stopped_before_its_run_can_be_overtaken_and_goes_on_when_the_store_answers(
    postgres_server: PostgresServer, postgres_url: str, state: Isolated, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    with at_work(folder, state, postgres_url) as process:
        with postgres_server.frozen():
            said, _ = process.communicate(timeout=processes.LIMIT_S)
            assert "the store did not answer until the lease" in said
            assert "hint:" not in said.splitlines()[0]
            ended = lines(folder / "alive")
        (folder / "go").touch()
    again = subprocess.run(
        [*commands.ARGV, "resume", "t"], cwd=folder, env=state.environ(OUTLAST_STORE=postgres_url, OUTLAST_LEASE_S=LEASE_S),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again
    assert lines(folder / "alive") == ended, "nothing of it ran on"
    assert lines(folder / "began") == 2
