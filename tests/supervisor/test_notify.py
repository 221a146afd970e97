"""`notify`: one JSON document on standard input, once per cause and run, never waited for, only from the user's own file."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.host import Host
from tests.support.environment import TIMEOUT_S
from tests.support.processes import alive, wait_for


def notify_with(host: Host, command: str) -> None:
    path = host.isolated.config_home / "outlast/config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"notify = {json.dumps(command)}\n")


def keep(host: Host) -> Path:
    """Each notice in a file of its own, complete when it has its name."""
    place = host.folder / "notices"
    place.mkdir()
    notify_with(host, f"part=$(mktemp {place}/part.XXXXXX) && cat > $part && mv $part $part.told")
    return place


def notices(place: Path, count: int) -> list[dict[str, Any]]:
    wait_for(lambda: len(list(place.glob("*.told"))) >= count or None, what=f"{count} notices")
    found = [json.loads(path.read_text()) for path in place.glob("*.told")]
    assert len(found) == count
    return found


ENDINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...], int, str]] = {
    "done": (("true",), (), 0, "done"),
    "failed": (("true",), ("--done", "false", "--rounds", "0"), 1, "checks"),
    "quarantined": (("false",), (), 3, "quarantine"),
    "needs a person": (("bash", "-c", "outlast effect pay -- bash -c 'exit 9'"), (), 3, "crash"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", ENDINGS)
def test_each_kind_is_told_once_with_all_one_needs_to_know(host: Host, what: str) -> None:
    place = keep(host)
    words, options, code, cause = ENDINGS[what]
    assert host.start("t", *words, options=("--goal", "All is well", *options)).wait(TIMEOUT_S) == code
    (told,) = notices(place, 1)
    state = host.summary("t").state
    assert (told["what"], told["run"], told["task"], told["goal"], told["cause"]) == (
        what, state.run, "t", "All is well", cause,
    )  # fmt: skip
    assert told["workspace"] == str(host.folder / "t")
    assert told["status"] == state.status


def test_parked_is_told_once_also_when_it_is_parked_again(host: Host) -> None:
    place = keep(host)
    program = host.folder / "agent"
    program.write_text('#!/bin/sh\nrm "$0"\nexit 1\n')
    program.chmod(0o755)
    assert host.start("t", str(program)).wait(TIMEOUT_S) == 5
    assert notices(place, 1)[0]["what"] == "parked"
    assert host("resume", "t", cwd=host.folder / "t").code == 5
    assert len(notices(place, 1)) == 1


def test_the_same_cause_of_another_run_is_told_again(host: Host) -> None:
    place = keep(host)
    for task in ("one", "two"):
        assert host.start(task, "true").wait(TIMEOUT_S) == 0
    assert {told["task"] for told in notices(place, 2)} == {"one", "two"}


def test_a_command_that_hangs_is_not_waited_for_and_can_be_stopped(host: Host) -> None:
    """It outlives the supervisor, and takes signals although the supervisor does not."""
    notify_with(
        host,
        f"echo $$ > {host.folder}/pid.part; mv {host.folder}/pid.part {host.folder}/pid; exec sleep 1000",
    )
    assert host.start("t", "true").wait(TIMEOUT_S) == 0
    wait_for(lambda: (host.folder / "pid").exists() or None, what="the command")
    pid = int((host.folder / "pid").read_text())
    assert alive(pid)

    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not alive(pid) or None, what="its end")


def test_a_command_that_is_missing_or_reads_nothing_costs_nothing(host: Host) -> None:
    for task, command in (("missing", "/no/such/program"), ("reads nothing", "true"), ("no shell", "'")):
        notify_with(host, command)
        assert host.start(task, "true").wait(TIMEOUT_S) == 0, host.said(task)


def test_a_command_from_the_repositorys_file_is_never_run(host: Host) -> None:
    """Agents can edit that file."""
    place = keep(host)
    (host.repository("t") / "outlast.toml").write_text(f'notify = "touch {host.folder}/ran"\n')
    assert host.start("t", "true").wait(TIMEOUT_S) == 2
    assert "only your own file may set it" in host.said("t")
    assert not (host.folder / "ran").exists()
    assert list(place.iterdir()) == []


def test_the_command_sees_nothing_that_would_make_it_part_of_the_run(host: Host) -> None:
    notify_with(host, f"env > {host.folder}/env.part; mv {host.folder}/env.part {host.folder}/env")
    assert host.start("t", "true").wait(TIMEOUT_S) == 0
    wait_for(lambda: (host.folder / "env").exists() or None, what="the command")
    assert "OUTLAST_" not in (host.folder / "env").read_text()


ASKS = """
one=$(outlast ask 'Which API?' --choice v1 --choice v2) || exit $?
outlast effect deploy --approve -- sh -c 'echo SECRET-ARGUMENT >> ../deployed' || exit $?
"""


def test_each_question_is_told_once_with_its_command_and_without_the_arguments_of_the_call(
    host: Host,
) -> None:
    place = keep(host)
    (host.folder / "asks.sh").write_text(ASKS)
    assert host.start("t", "bash", "../asks.sh").wait(TIMEOUT_S) == 3
    (first,) = notices(place, 1)
    assert (first["line"], first["command"]) == ("t asks: Which API? [v1, v2]", "outlast answer t --id q1")
    assert [act["act"] for act in first["acts"]] == ["answer"]
    assert host.start("t", "bash", "../asks.sh").wait(TIMEOUT_S) == 3
    assert len(notices(place, 1)) == 1, "it waits for the same"

    assert host("answer", "t", "v2", "--no-start", cwd=host.folder / "t").code == 0
    assert host.start("t", "bash", "../asks.sh").wait(TIMEOUT_S) == 3
    second = max(notices(place, 2), key=lambda each: each["at"])
    assert (second["line"], second["command"]) == (
        "t waits for your approval of deploy",
        "outlast approve t a2",
    )
    assert [act["act"] for act in second["acts"]] == ["approve", "reject"]
    assert "SECRET-ARGUMENT" not in json.dumps(second)


def test_a_token_in_task_goal_question_and_choices_leaves_in_no_field(host: Host) -> None:
    place = keep(host)
    token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    (host.folder / "asks.sh").write_text(
        f"outlast ask 'Is it {token}?' --choice {token} --choice no || exit $?\n"
    )
    (host.folder / f"use-{token}").mkdir()
    started = host.start(f"use-{token}", "bash", "../asks.sh", options=("--goal", f"Use {token}"))
    assert started.wait(TIMEOUT_S) == 3
    (told,) = notices(place, 1)
    # The folder is one of the user's own making, and the command has to find it.
    assert token not in json.dumps(
        {name: value for name, value in told.items() if name not in ("workspace", "project")}
    )


def test_a_notice_of_a_run_inside_of_a_run_has_no_token(host: Host) -> None:
    """Its settings may be the agent's own: what it gets so could approve what a person is asked."""
    place = keep(host)
    path = host.isolated.config_home / "outlast/config.toml"
    path.write_text(f'ui_url = "https://runs.example.com"\n{path.read_text()}')
    (host.folder / "asks.sh").write_text("outlast ask 'Which API?' || exit $?\n")
    until = f"until ls {place}/*.told >/dev/null 2>&1; do sleep 0.05; done"
    inner = f"outlast run --task inner -- bash ../asks.sh; {until}"
    assert host.start("outer", "bash", "-c", inner).wait(TIMEOUT_S) == 0
    told = {each["task"]: each for each in notices(place, 2)}
    assert told["inner"]["link"] == f"https://runs.example.com/runs/{told['inner']['run']}"
    assert host.start("alone", "bash", "../asks.sh").wait(TIMEOUT_S) == 3
    told = {each["task"]: each for each in notices(place, 3)}
    assert told["alone"]["link"].startswith("https://runs.example.com/press/")
