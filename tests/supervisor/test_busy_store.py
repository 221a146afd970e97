"""A store that another program keeps locked: the run says so and waits, its agent works on, and a person can stop it."""

import contextlib
import signal
from collections.abc import Iterator

import apsw
import pytest

from tests.supervisor.supervised_command import Night
from tests.support.environment import TIMEOUT_S
from tests.support.processes import alive, wait_for

TIMING = "store.busy_ms=200,store.turn_wait_s=0.2"


@contextlib.contextmanager
def locked(night: Night) -> Iterator[apsw.Connection]:
    """The database as a foreign program holds it that began to write and does not end."""
    path = night.isolated.state_home / "outlast" / "outlast.db"
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.set_busy_timeout(60_000)
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@pytest.mark.parametrize("then", ["goes on", "is stopped"])
def test_an_agent_is_not_stopped_because_the_store_is_busy(then: str, night: Night) -> None:
    night.timing = f"{night.timing},{TIMING}" if night.timing else TIMING
    process = night.start_agent()
    agent, _ = night.ready(1)
    with locked(night):
        (night.work / "more.txt").write_text("more\n")
        night.let_go()
        assert process.stderr is not None
        lines = []
        while not (lines and "waiting for it" in lines[-1]):
            lines.append(process.stderr.readline().decode())
            assert lines[-1], lines
        assert "stayed locked for 0.2 s" in lines[-1]
        if then == "is stopped":
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=TIMEOUT_S)
            assert process.returncode not in (0, 70)
            wait_for(lambda: not alive(agent) or None, what="the agent's end")
    if then == "is stopped":
        assert night("resume", "t").code == 0
    else:
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, err
        assert [attempt["cause"] for attempt in night.attempts()] == ["done"]
    assert night.ask("show", "t")["status"] == "done"
    assert any(text for text in night.saved())
