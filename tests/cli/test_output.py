"""`outlast output`: the log of an attempt, while it is written and afterwards, through the real command line."""

import json
import sys
from datetime import UTC, datetime

import pytest

from outlast.supervisor.output.log import Log
from tests.cli.command_line import Cli, LiveAgent, work
from tests.support.environment import TIMEOUT_S

AT = datetime(2026, 11, 2, 14, 2, 11, 300_000, tzinfo=UTC)


def log_of(cli: Cli, run: str, attempt: int, *lines: bytes) -> Log:
    log = Log(cli.root / "runs" / run, attempt, AT)
    for line in lines:
        log.put("out", line, AT)
    return log


def test_the_newest_attempt_is_shown_or_the_one_that_is_asked_for(cli: Cli) -> None:
    run = work()
    log_of(cli, run, 1, b"of the first\n").close(AT)
    log_of(cli, run, 2, b"of the second\n").close(AT)
    assert "of the second" in cli.ok("output", "1411").out
    assert "of the first" not in cli.ok("output", "1411").out
    assert "of the first" in cli.ok("output", "1411", "--attempt", "1").out
    assert (
        "of the second" in cli.ok("output", "1411", "-f").out
    )  # nobody works on it, so nothing is waited for
    lines = [json.loads(line) for line in cli.ok("output", run, "--json").out.splitlines()]
    assert [line["text"] for line in lines if line["stream"] == "out"] == ["of the second"]


def test_what_somebody_else_wrote_into_a_log_does_not_steer_the_terminal(cli: Cli) -> None:
    log = log_of(cli, work(), 1)
    log.close(AT)
    log.path.write_bytes(b"\x1b[2Jgone\tkept\n\xff\n")
    assert cli.ok("output", "1411").out == "\\x1b[2Jgone\tkept\n\\xff\n"


def test_no_output_is_one_line_and_a_hint(cli: Cli) -> None:
    run = work()
    assert cli("output", "1411").complaint == f"run {run} of task 1411 has no recorded output"
    log_of(cli, run, 1).close(AT)
    assert "attempt 7" in cli("output", "1411", "--attempt", "7").complaint
    assert cli("output", "nobody").code == 2


@pytest.mark.usefixtures("agent")
def test_a_follower_ends_when_nobody_works_on_the_run(cli: Cli, agent: LiveAgent) -> None:
    run = cli.show()["run"]
    log = log_of(cli, run, 1, b"one\n")
    with cli.started(sys.executable, "-m", "outlast", "output", "1411", "-f") as follower:
        assert follower.stdout is not None
        assert "attempt 1" in follower.stdout.readline()
        assert follower.stdout.readline().endswith("out| one\n")
        log.put("out", b"two\n", AT)
        assert follower.stdout.readline().endswith("out| two\n")
        log.close(AT)
        agent.kill()
        out, err = follower.communicate(timeout=TIMEOUT_S)
        assert (follower.returncode, err) == (0, "")
        assert out.endswith("end of 8 bytes of output\n")
