"""The morning page: what became of each run since a time, what needs a person, and what to type then."""

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest

from outlast.dashboard import report
from outlast.errors import UsageError
from tests.supervisor.host import Host
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

NOW = datetime(2026, 11, 15, 7, 30, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("22:00", "2026-11-14T20:00Z"),
        ("7:29", "2026-11-15T05:29Z"),
        ("07:31", "2026-11-14T05:31Z"),
        ("8h", "2026-11-14T21:30Z"),
        ("2d", "2026-11-13T05:30Z"),
        ("2026-11-01T22:00+00:00", "2026-11-01T22:00Z"),
    ],
)
def test_a_time_is_the_last_such_moment(text: str, meant: str) -> None:
    assert report.since(text, NOW) == datetime.fromisoformat(meant)


@pytest.mark.parametrize(
    "text", ["", "25:00", "22", "yesterday", "0001-01-01", "8x", "22:60", "9" * 400 + "h"]
)
def test_a_time_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        report.since(text, NOW)


def told(host: Host, *words: str) -> dict[str, dict[str, object]]:
    answer = host("report", "--json", *words)
    assert answer.code in (0, 3), answer.err
    return {row["task"]: row for row in answer.json["runs"]}


SLEEP = ("bash", "-c", 'touch "../$OUTLAST_TASK.up"; exec sleep 1000')
PAY = ("bash", "-c", "outlast effect pay -- bash -c 'exit 9'")


def test_each_run_stands_under_what_it_needs_with_the_command_to_type(host: Host) -> None:
    running = {task: host.start(task, *SLEEP) for task in ("works", "stopped", "died")}
    codes = {
        host.start("done", "true"): 0,
        host.start("failed", "true", options=("--done", "false", "--rounds", "0")): 1,
        host.start("in doubt", *PAY): 3,
        host.start("quarantined", "false"): 3,
        host.start("budget", "bash", "-c", "outlast step a -- true; outlast step b -- true", options=("--budget", "beats=1")): 4,
    }  # fmt: skip
    for task in running:
        wait_for(lambda task=task: (host.folder / f"{task}.up").exists() or None, what=host.said(task))
    running["stopped"].send_signal(signal.SIGTERM)
    assert [process.wait(TIMEOUT_S) for process in codes] == list(codes.values())
    running["stopped"].wait(TIMEOUT_S)
    pids = [pid for pid in host.pids() if pid not in host.pids(spare="died")]
    for pid in pids:
        subprocess.run(["kill", "-9", str(pid)], check=False)
    running["died"].wait(TIMEOUT_S)
    rows = told(host)
    ids = {task: row["run"] for task, row in rows.items()}
    assert {task: (row["what"], row["command"]) for task, row in rows.items()} == {
        "works": ("running", None),
        "done": ("done", None),
        "stopped": ("stopped", f"outlast resume {ids['stopped']}"),
        "died": ("stopped", f"outlast resume {ids['died']}"),
        "failed": ("needs you", f"outlast resume {ids['failed']}"),
        "quarantined": ("needs you", f"outlast resume {ids['quarantined']}"),
        "in doubt": ("needs you", f"outlast settle {ids['in doubt']} 1.1"),
        "budget": ("needs you", f"outlast resume {ids['budget']} --budget beats=+1"),
    }
    assert "SIGTERM from " in str(rows["stopped"]["why"])
    assert rows["in doubt"]["why"] == "in doubt: 1.1 pay"
    page = host("report")
    assert page.code == 3
    lines = page.out.splitlines()
    assert "4 needs you, 2 stopped, 1 running, 1 done" in lines[0]
    assert [line for line in lines if not line.startswith(" ")][1:] == [
        "needs you",
        "stopped",
        "running",
        "done",
    ]
    assert any(f"outlast resume {ids['failed']}" in line for line in lines)


SPENDS = """
import outlast, sys
with outlast.run("own", goal="Trap exit signals") as run:
    for beat in run.beats():
        if beat.number > int(sys.argv[1]):
            break
        beat.decide("ask", lambda: outlast.Answer("x", outlast.Usage(input=100, output=10, cost_microusd=2_000_000)))
        beat.done()
"""


def spend(host: Host, until: int) -> None:
    words = [sys.executable, "-c", SPENDS, str(until)]
    subprocess.run(words, cwd=host.repository("own"), env=host.environ(), check=True, timeout=TIMEOUT_S)


def test_only_what_was_done_and_spent_since_then_counts(host: Host) -> None:
    spend(host, 3)
    between = datetime.now(UTC)
    spend(host, 5)
    row = told(host, "--since", between.isoformat())["own"]
    assert (row["beats"], row["beats_since"], row["tokens"], row["cost_microusd"]) == (5, 2, 220, 4_000_000)
    assert told(host)["own"]["tokens"] == 550
    assert told(host, "--since", datetime.now(UTC).isoformat()) == {}
    assert "220 tokens, $4.00" in host("report", "--since", between.isoformat()).out


def test_all_projects_are_on_the_page_or_the_one_that_is_asked_for(host: Host) -> None:
    for task in ("one", "two"):
        assert host.start(task, "true").wait(TIMEOUT_S) == 0
    assert set(told(host)) == {"one", "two"}
    assert set(told(host, "--project", str(host.folder / "one"))) == {"one"}


def test_where_no_run_was_ever_started_the_page_is_empty(host: Host) -> None:
    answer = host("report", XDG_STATE_HOME=str(host.folder / "nowhere"))
    assert (answer.code, answer.out.partition(": ")[2]) == (0, "no run did anything; 0 saves\n")
    assert not (host.folder / "nowhere").exists()
