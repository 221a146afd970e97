"""Random kills of real agents, a few of them with a fixed seed (`./dev chaos-agents` does as many as one likes), and the judge."""

import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.agents import chaos, trial_plan
from tests.agents.agent_world import need
from tests.agents.trial import Trial, described
from tests.agents.trial_plan import Kill, Plan, Task, plan

SEED = 5
TRIALS = (0, 2, 3, 5)  # of this seed: Claude Code, Codex, Kimi Code, Gemini


@pytest.mark.real_agent
@pytest.mark.parametrize(
    "number", TRIALS, ids=lambda number: f"{number}-{trial_plan.AGENTS[number % len(trial_plan.AGENTS)][0]}"
)
def test_killed_at_random_instants_an_agent_does_everything_once(tmp_path: Path, number: int) -> None:
    planned = plan(SEED, number)
    need(planned.agent, planned.version)
    out = Trial(planned, tmp_path / "world").run()
    assert not out.failures, described(out)
    assert out.kills, "somebody was killed"


@pytest.mark.real_agent
def test_the_judge_sees_what_an_agent_without_us_does_twice(tmp_path: Path) -> None:
    """Run as a plain command it is started anew, and its model does everything again."""
    need("codex")
    kill = Kill("hold", "x0n1e", 0.0, ("agent",), signal.SIGKILL)
    batches = ((Task("x0n0e", "local"), Task("x0n1e", "post", "after")),)
    planned = Plan(0, 0, "codex", None, batches, (kill,), "never", hasty=False, ways=("run",))
    out = Trial(planned, tmp_path / "world", flags=("--plain",)).run()
    assert "done 2 times: x0n1e" in out.failures, described(out)


def test_a_trial_is_known_by_its_seed_and_number() -> None:
    assert plan(7, 3) == plan(7, 3)
    assert plan(7, 3) != plan(8, 3)
    assert [plan(7, n).agent for n in range(9)] == [agent for agent, _ in trial_plan.AGENTS]
    assert chaos.numbers(["codex"], 3) == [2, 11, 20]
    assert chaos.numbers(["claude@2.1.197"], 2) == [1, 10]


def test_over_many_trials_everybody_is_killed_at_every_kind_of_instant() -> None:
    kills = [kill for n in range(300) for kill in plan(1, n).kills]
    assert {kill.when for kill in kills} == {"hold", "hang", "act", "asked", "start"}
    assert {kill.victims for kill in kills} == {*trial_plan.VICTIMS, ("program",), ()}
    assert {kill.how for kill in kills} == {"kill", "program", "stop", "takeover", "fill"}
    numbers = Counter(kill.number for kill in kills)
    assert numbers[signal.SIGKILL] > numbers[signal.SIGTERM] > 0
    assert {plan(1, n).repeats for n in range(100)} == {"never", "verbatim", "flags", "words", "settles"}
    names = [name for n in range(100) for name in plan(1, n).tasks]
    assert len(names) == len(set(names)), "the witness counts by name"
