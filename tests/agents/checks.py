"""What the tests of all agents have in common: recorded endings, fuzz, and the kill of a real program in a call."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings, strategies as st

from outlast.agents import KnownAgent
from outlast.agents.events import ToolStart
from outlast.agents.values import AgentCommand, Answer, Ask, Cut, Hook
from outlast.core.values import SessionMark
from tests.agents.agent_alone import HELD, TRUTH, Launched, bash, slow
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script, Step
from tests.agents.test_json_lines import JSON
from tests.support import sweeps

SAMPLES = Path(__file__).parent / "samples"
UUID = "11111111-2222-4333-8444-555555555555"
RAW = msgspec.Raw


def lines(sample: str) -> list[bytes]:
    return (SAMPLES / sample).read_bytes().splitlines()


def ask(words: str | tuple[str, ...], home: Path, **more: Any) -> Ask:
    """A command of a user whose home is this folder."""
    given = {"environment": {"HOME": str(home)}, "cwd": home, "folder": home, **more}
    return Ask(words=tuple(words.split()) if isinstance(words, str) else words, **given)


def mark(name: str, session: str = UUID) -> SessionMark:
    return SessionMark(name, session)


def launched(known: KnownAgent, asked: Ask) -> AgentCommand:
    launch = known.cli.launch(asked)
    assert launch is not None
    return launch


def wrong_endings(known: KnownAgent) -> list[object]:
    """The recorded endings that are not told apart."""
    wrong: list[object] = []
    for line in lines(f"{known.name}-endings.jsonl"):
        one = json.loads(line)
        transcript = "".join(each + "\n" for each in one["transcript"])
        final = known.transcript.ending(one["exit"], one["tail"].encode(), transcript.encode())
        if final.ending != one["case"]:
            wrong.append((one["case"], final))
    return wrong


def hostile(known: KnownAgent, *samples: str) -> Callable[[], None]:
    """A test: no line, no hook input and no end makes the agent's parts fail; and what it mends it can read."""
    seeds = [line for sample in samples for line in lines(sample)] or [b"{}"]
    values = JSON.map(lambda value: json.dumps(value).encode())
    torn = st.tuples(st.sampled_from(seeds), st.integers(0, 2000)).map(lambda pair: pair[0][: pair[1]])
    bent = st.tuples(st.sampled_from(seeds), JSON, st.randoms(use_true_random=False)).map(_bent)
    any_line = st.binary(max_size=300) | values | torn | bent

    @settings(deadline=None, max_examples=sweeps.examples(150))
    @given(any_line, any_line)
    def check(one: bytes, other: bytes) -> None:
        for _ in known.transcript.parse(one):
            pass
        hook = known.cli.hook(one)
        assert isinstance(hook, Hook)
        out, code = known.cli.answer(one, Answer(False, "no"))
        assert isinstance(out, bytes)
        assert code in (0, 2)
        assert known.transcript.ending(1, one, other).cause
        cut = Cut("c", "t", RAW(b"{}"), "true")
        assert isinstance(known.transcript.mend(one + b"\n" + other, [cut]), bytes)

    return check


def _bent(given: tuple[bytes, Any, Any]) -> bytes:
    """A real line with one of its values replaced."""
    line, value, random = given
    try:
        record = json.loads(line)
    except ValueError:
        return line
    place = record
    while isinstance(place, dict) and place:
        key = random.choice(sorted(place))
        if not isinstance(place[key], dict) or random.random() < 0.3:
            place[key] = value
            break
        place = place[key]
    return json.dumps(record).encode()


# --- with the real program -------------------------------------------------------------------------------------


def killed_in_a_call(world: AgentWorld, name: str) -> Launched:
    """The agent, killed with -9 in its second call; its first one ended well."""
    call, made, stop = slow(world)
    world.model.script = Script(
        [Step("First.", (bash("echo one >> marks"),)), Step("Slow.", (call,)), Step("All done.")]
    )
    agent = Launched(world, name)
    agent.kill_in(agent.start(agent.ask()), made)
    stop.touch()
    return agent


def results(world: AgentWorld) -> list[str]:
    """What the model was last told of its calls."""
    return [result.text for result in world.model.requests()[-1].history.results]


def resumes_with_the_truth(world: AgentWorld, name: str) -> Launched:
    """Killed in a call and mended, the real program goes on and its model reads the truth, once."""
    agent = killed_in_a_call(world, name)
    cuts = agent.cuts()
    assert [cut.name for cut in cuts] == [started(agent)[-1].name]
    agent.mend(cuts)
    code, said = agent.resume("go on")
    assert code == 0, said
    told = results(world)
    assert [TRUTH in text for text in told] == [False, True], told
    assert world.model.requests()[-1].step == 2
    assert "go on" in world.model.requests()[-1].history.turns[-1].text
    assert (world.work / "marks").read_text() == "one\n"
    return agent


def denies(world: AgentWorld, name: str) -> None:
    """A call that our hook denies is not made, and its model reads why; the others are."""
    first, second = bash("echo one >> marks"), bash("echo forbidden >> marks")
    world.model.script = Script([Step("One.", (first,)), Step("Two.", (second,)), Step("Done.")])
    agent = Launched(world, name)
    agent.deny("forbidden")
    code, said = agent.run(agent.ask())
    assert code == 0, said
    assert (world.work / "marks").read_text() == "one\n"
    assert any(HELD in text for text in results(world)), results(world)


def started(agent: Launched) -> list[ToolStart]:
    return [event for event in agent.told() if isinstance(event, ToolStart)]
