"""A run whose agent was told of a doubt and ended with it: it needs a person, wherever one looks.

The agent is a stand-in that does one thing to the world, is killed in it, resumed, told, and ends without settling it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted
from tests.support.environment import isolate
from tests.web.server import Served, ui

NEEDS_A_PERSON = 3
CALL = "comment"


def ended_in_doubt(folder: Path) -> Iterator[Scripted]:
    """The run, told and ended."""
    with Host(folder, isolate(folder)) as host:
        agent = Scripted(host)
        agent.killed_in(CALL, "--done", "touch checked")
        assert agent.run("--done", "touch checked") == NEEDS_A_PERSON, host.said("t")
        assert "needs a person" in host.said("t")
        yield agent


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    """One for all that only look."""
    yield from ended_in_doubt(tmp_path_factory.mktemp("doubt"))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Scripted]:
    yield from ended_in_doubt(tmp_path)


@pytest.fixture
def page(looked_at: Scripted) -> Iterator[Served]:
    with ui(looked_at.host.root) as running:
        yield running


def settle_line(agent: Scripted) -> str:
    """What a person has to type."""
    return f"outlast settle {agent.host.summary('t').run} 1.1"


# --- wherever one looks -------------------------------------------------------------------------------------------------


def test_doctor_says_that_it_needs_a_person_and_how_it_is_settled(looked_at: Scripted) -> None:
    answer = looked_at.host("doctor", cwd=looked_at.work)
    assert answer.code == NEEDS_A_PERSON
    assert f"outlast settle {looked_at.host.summary('t').run} 1.1 --happened" in answer.out


def test_the_report_says_that_it_needs_a_person_and_how_it_is_settled(looked_at: Scripted) -> None:
    answer = looked_at.host("report", "--json")
    [row] = answer.json["runs"]
    assert (row["what"], row["command"]) == ("needs you", settle_line(looked_at))
    assert "the next attempt" not in row["why"]
    assert answer.code == NEEDS_A_PERSON
    assert looked_at.host("report").code == NEEDS_A_PERSON


def test_show_says_how_a_person_settles_it(looked_at: Scripted) -> None:
    answer = looked_at.host("show", "t", cwd=looked_at.work)
    assert "outlast settle t 1.1 --happened" in answer.err
    assert "the next attempt" not in answer.err


def test_top_counts_it_among_those_that_need_a_person(looked_at: Scripted) -> None:
    answer = looked_at.host("top", "--once", "--json")
    assert answer.json["needs_total"] == 1
    [row] = answer.json["rows"]
    assert (row["what"], row["command"], row["act"]) == ("needs you", settle_line(looked_at), "settle")
    assert answer.code == NEEDS_A_PERSON
    printed = looked_at.host("top", "--once")
    assert printed.code == NEEDS_A_PERSON
    assert "All is well" not in printed.out


def test_the_api_of_the_page_counts_it_among_those_that_need_a_person(
    looked_at: Scripted, page: Served
) -> None:
    overview = page.ask("/api/runs").json
    assert overview["needs_total"] == 1
    [row] = overview["rows"]
    assert (row["what"], row["command"], row["act"]) == ("needs you", settle_line(looked_at), "settle")


def test_the_page_says_that_a_run_needs_a_person(page: Served) -> None:
    text = page.ask("/").text
    assert "1 run needs you" in text
    assert "All is well" not in text


def test_the_metrics_count_it_among_those_that_need_a_person(page: Served) -> None:
    assert "outlast_runs_needing_a_person 1" in page.ask("/metrics").text.splitlines()


@pytest.mark.parametrize("words", [("show", "t"), ("ls",)], ids=["show", "ls"])
def test_its_cause_is_not_a_crash(looked_at: Scripted, words: tuple[str, ...]) -> None:
    told = looked_at.host(*words, "--json", cwd=looked_at.work).json
    row = told[0] if isinstance(told, list) else told
    assert row["status"] == "in_doubt"
    assert row["cause"] != "crash"


def test_resume_all_leaves_it_alone_and_says_that_it_is_in_doubt(looked_at: Scripted) -> None:
    answer = looked_at.host("resume", "--all", "--json")
    [row] = answer.json["runs"] if isinstance(answer.json, dict) else answer.json
    assert not row["wake"]
    assert "in doubt" in row["why"]


# --- not settled ------------------------------------------------------------------------------------------------------


def test_resumed_before_it_is_settled_it_asks_no_model_and_says_the_same_again(agent: Scripted) -> None:
    asked = agent.responses()
    assert agent.run("--done", "touch checked") == NEEDS_A_PERSON
    assert agent.responses() == asked
    assert agent.host.status("t") == "in_doubt"
    assert agent.host("settle", "t", "1.1", "--happened", cwd=agent.work).code == 0
    assert agent.run("--done", "touch checked") == 0, agent.host.said("t")
    assert agent.responses() == asked


# --- settled ------------------------------------------------------------------------------------------------------------


def test_settled_as_happened_it_is_checked_and_done_without_asking_a_model_again(agent: Scripted) -> None:
    asked = agent.responses()
    assert agent.host("settle", "t", "1.1", "--happened", cwd=agent.work).code == 0
    assert agent.run("--done", "touch checked") == 0, agent.host.said("t")
    assert (agent.work / "checked").exists()
    assert agent.host.status("t") == "done"
    assert agent.responses() == asked


def test_settled_as_not_happened_its_agent_is_asked_to_go_on(agent: Scripted) -> None:
    asked = agent.responses()
    assert agent.host("settle", "t", "1.1", "--did-not", cwd=agent.work).code == 0
    assert agent.run("--done", "touch checked") == 0, agent.host.said("t")
    assert agent.responses() > asked
    assert agent.performed() == [CALL]


# --- not told yet -------------------------------------------------------------------------------------------------------


def test_a_doubt_that_no_attempt_has_met_yet_needs_nobody_but_the_next_attempt(host: Host) -> None:
    agent = Scripted(host)
    agent.killed_in(CALL)
    answer = host("report", "--json")
    [row] = answer.json["runs"]
    assert (row["status"], row["what"], row["command"]) == (
        "in_doubt",
        "stopped",
        f"outlast resume {row['run']}",
    )
    assert answer.code == 0
    assert "the next attempt settles" in host("show", "t", cwd=agent.work).err
