"""The plan of a trial: the same by its seed, with every part in its turn."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from outlast.supervisor.agent import prompts
from tests.agents import trial_parts
from tests.agents.chaos_results import Line, Results, table
from tests.agents.protocols import translate
from tests.agents.script import Call, History, Result, SeenCall, Turn, bash
from tests.agents.trial_calls import Calls
from tests.agents.trial_model import Modelled
from tests.agents.trial_parts import PARTS
from tests.agents.trial_plan import AGENTS, Kind, Plan, Task, plan

SEEDS = (1, 7, 4711)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_means_the_same_plan_and_another_one_another(seed: int) -> None:
    assert [plan(seed, n) for n in range(100)] == [plan(seed, n) for n in range(100)]
    assert sum(plan(seed, n) == plan(seed + 1, n) for n in range(100)) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_every_part_appears_within_a_hundred_trials(seed: int) -> None:
    found = Counter(part for n in range(100) for part in plan(seed, n).parts)
    assert set(found) == set(PARTS)
    assert min(found.values()) >= 2, found


def test_every_part_meets_every_agent_that_can_have_it() -> None:
    assert math.gcd(len(PARTS), len(AGENTS)) == 1, "else some never meet"
    plans = [plan(7, n) for n in range(len(PARTS) * len(AGENTS))]
    met = {(each.agent, part) for each in plans for part in each.parts}
    cannot = {(agent, part) for agent, parts in trial_parts._CANNOT.items() for part in parts}
    assert met == {(agent, part) for agent, _ in AGENTS for part in PARTS} - cannot


@pytest.mark.parametrize("seed", SEEDS)
def test_a_part_shapes_its_plan(seed: int) -> None:
    for each in (plan(seed, n) for n in range(200)):
        for part in each.parts:
            assert _shaped(each, part), (part, each)


def _shaped(each: Plan, part: str) -> bool:
    kinds = Counter(task.kind for task in each.tasks.values())
    hows = {kill.how for kill in each.kills}
    if part in trial_parts.CALLS:
        return kinds[part] >= (2 if part == "same" and each.agent != "aider" else 1)
    if part in trial_parts.BETWEEN:
        everything = any(kill.victims == ("all",) and kill.when != "start" for kill in each.kills)
        return (
            everything and each.between == part and not each.hasty and bool(each.other) == (part == "agent")
        )
    match part:
        case "stop" | "takeover":
            return part in hows and max(kill.lasts_s for kill in each.kills) > 0
        case "disk":
            return "fill" in hows
        case "program":
            return "program" in hows or not {"post", "make", "npm"} & set(kinds)
        case "twice":
            return [kill.victims for kill in each.kills] == [("all",)] * 3
        case _:
            return True


# --- the model ------------------------------------------------------------------------------------------------------


def of_part(part: str) -> Modelled:
    planned = next(
        each for each in (plan(1, n) for n in range(1000)) if part in each.parts and each.agent == "claude"
    )
    return Modelled(planned, Calls(planned, "http://witness", "/folder", "/work"))


def answered(name: str, call: Call, text: str) -> History:
    seen = SeenCall("c1", call.tool, f"{call.input}")
    turns = (Turn("assistant", calls=(seen,)), Turn("tool", results=(Result("c1", text),)))
    return History(turns, {"Bash": {"properties": {"command": {}}}})


def test_a_model_says_that_its_call_is_another_one_and_not_of_the_same() -> None:
    model = of_part("same")
    first, second = [task for task in model.plan.tasks.values() if task.kind == "same"][:2]
    held = (
        "outlast holds this call. Another one went to the same address before, as effect 1.1: POST witness/same "
        f"(curl -d {first.name}); it was cut off, and it is not known whether it happened. If this is that call in other words: "
        "Look first. Then say what you found: `outlast settle r 1.1 --happened` or `--did-not`. If it is another call: say so "
        "with `outlast settle r 1.1 --another`, then make it again."
    )
    seen = model.read(answered(second.name, bash(f"post {second.name}"), held))[second.name]
    assert (seen.known, seen.another) == ("unknown", "outlast settle r 1.1")
    assert model.read(answered(first.name, bash(f"post {first.name}"), held))[first.name].another == ""
    said = model.read(answered(second.name, bash(f"post {second.name}"), f"{second.name} is another one"))
    assert said[second.name].known == "undone"


def test_a_careless_model_hears_nothing_of_what_was_done_before() -> None:
    planned = next(each for each in (plan(1, n) for n in range(1000)) if each.careless)
    model = Modelled(planned, Calls(planned, "http://witness", "/folder", "/work"))
    [name, *_] = planned.tasks
    told = History((Turn("user", f"- POST {name}: it happened"),), {"Bash": {}})
    assert model.read(told)[name].known is None


def test_a_careless_model_hears_what_became_of_its_own_calls() -> None:
    """Else it would never make one again that a person found was not made, and the trial would call that lost."""
    planned = next(each for each in (plan(1, n) for n in range(1000)) if each.careless)
    model = Modelled(planned, Calls(planned, "http://witness", "/folder", "/work"))
    name = next(name for name, task in planned.tasks.items() if task.kind == "post")
    held = answered(
        name, bash(f"post {name}"), "outlast holds this call: it is not known whether it happened"
    )
    assert model.read(held)[name].known == "unknown"
    told = Turn("user", f"- POST {name}: it did not happen. Make the call again if it is still needed.")
    assert model.read(replace(held, turns=(*held.turns, told)))[name].known == "undone"


def test_a_model_hears_that_what_is_not_named_was_not_made() -> None:
    model = of_part("plain")
    first, second, *_ = [name for name, task in model.plan.tasks.items() if task.kind == "post"]
    seen = [SeenCall(name, "Bash", f"post {name}") for name in (first, second)]
    lost = tuple(Result(name, "[Tool execution was interrupted]") for name in (first, second))
    turns = (Turn("assistant", calls=tuple(seen)), Turn("tool", results=lost))
    words = f"- bash post {first} ({first}): it is not known whether it happened\n\n{prompts.UNNAMED}"
    told = History((*turns, Turn("user", words)), {"Bash": {}})
    assert [model.read(told)[name].known for name in (first, second)] == ["unknown", "undone"]


def test_a_model_believes_the_world_although_its_program_says_that_the_call_timed_out() -> None:
    model = of_part("plain")
    name = next(name for name, task in model.plan.tasks.items() if task.kind == "post")
    said = answered(name, bash(f"post {name}"), '{"url": "https://world.example/x/4"} timed out after 30 s')
    assert model.read(said)[name].known == "done"


@pytest.mark.parametrize("kind", ["local", "write", "post", "make", "npm", "background"])
def test_a_model_does_not_take_the_words_of_its_call_for_its_result(kind: Kind) -> None:
    """outlast names a call by its command, and Codex has a shell alone: it writes files with `printf`."""
    given = plan(1, 2)
    planned = replace(given, batches=((Task("x2n0e", kind),),), agent="codex")
    model = Modelled(planned, Calls(planned, "http://witness", "/folder", "/work"))
    _, words = translate(model.calls.call(planned.tasks["x2n0e"], {}), {})
    asked = answered("x2n0e", bash(words["command"]), "interrupted")
    text = (
        f"- Bash {words['command']} (c1): nothing tells that this call was started before the interruption."
    )
    told = replace(asked, turns=(*asked.turns, Turn("user", text)))
    assert model.read(told)["x2n0e"].known == "undone"


# --- the results file -----------------------------------------------------------------------------------------------


def line(trial: int, **more: object) -> Line:
    given = {
        "kills": 1,
        "starts": 2,
        "wanted": 3,
        "acts": 3,
        "settled": 0,
        "again": 0,
        "twice": 0,
        "lost": 0,
        "stuck": 0,
    }
    return Line(7, trial, "codex", ("same",), (), **given | {"took_s": 1.5} | more)  # type: ignore[arg-type]


def test_a_results_file_gives_back_what_was_added_and_leaves_out_a_torn_line(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    assert results.read(7) == {}
    results.add(line(1))
    results.add(line(2, twice=1))
    content = (tmp_path / "results").read_bytes()
    (tmp_path / "results").write_bytes(content[:-20])
    assert set(results.read(7)) == {1}
    results.add(line(3))
    assert results.read(7) == {1: line(1), 3: line(3)}
    assert results.read(8) == {}


def test_a_table_counts_a_trial_for_each_of_its_parts() -> None:
    lines = [line(1, twice=1), line(2)]
    [heads, row] = [text.split() for text in table(lines, by="part")]
    assert dict(zip(heads, row, strict=False)) | {"part": "same", "trials": "2", "twice": "1"} == dict(
        zip(heads, row, strict=False)
    )
