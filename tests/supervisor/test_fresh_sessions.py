"""A session that cannot be gone on with is replaced by a fresh one: what the run did outside is not done again in it.

The agent is a stand-in whose model starts over in every fresh session; the witness says what was done.
"""

import pytest

from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted, held

ACTS = ["e1", "e2"]


@pytest.fixture
def agent(host: Host) -> Scripted:
    """It has done all of it, everything confirmed, and is killed in a local call."""
    made = Scripted(host)
    made.says(*map(made.posting, ACTS), held("begun"))
    made.killed_at("begun")
    assert made.performed() == ACTS
    return made


def test_in_a_fresh_session_a_model_that_starts_over_repeats_no_confirmed_call(agent: Scripted) -> None:
    agent.forget_sessions()
    assert agent.run() == 0, agent.host.said("t")
    assert agent.performed() == ACTS


def test_killed_again_in_its_fresh_session_it_repeats_no_confirmed_call(agent: Scripted) -> None:
    agent.forget_sessions()
    (agent.work / "begun").unlink()
    agent.killed_at("begun")
    agent.forget_sessions()
    assert agent.run() == 0, agent.host.said("t")
    assert agent.performed() == ACTS


def test_in_a_fresh_session_a_confirmed_call_that_is_meant_once_more_is_made(agent: Scripted) -> None:
    """It is answered at most once: a model that insists knows what it does."""
    agent.says(*map(agent.posting, ["e1", "e1", "e1"]))
    agent.forget_sessions()
    assert agent.run() == 0, agent.host.said("t")
    assert agent.performed().count("e1") >= 2


def test_in_a_fresh_session_another_body_to_the_address_of_a_confirmed_call_is_made(agent: Scripted) -> None:
    other = agent.posting("e1").replace("-d {}", """-d '{"body": "more"}'""")
    agent.says(agent.posting("e1"), other)
    agent.forget_sessions()
    assert agent.run() == 0, agent.host.said("t")
    assert [act.body for act in agent.host.witness.performances()] == [None, None, "more"]


def test_in_a_fresh_session_below_a_script_a_confirmed_call_is_not_made_again(agent: Scripted) -> None:
    (agent.work / "all.sh").write_text("\n".join(map(agent.posting, ACTS)))
    agent.says("sh ./all.sh")
    agent.forget_sessions()
    assert agent.run() == 0, agent.host.said("t")
    assert agent.performed() == ACTS


def test_in_its_own_session_it_knows_what_it_did_and_may_do_it_once_more(agent: Scripted) -> None:
    agent.says(*map(agent.posting, ACTS), held("begun"), agent.posting("e1"))
    assert agent.run() == 0, agent.host.said("t")
    assert agent.performed() == [*ACTS, "e1"]
