"""Each real agent, pointed at a loopback address for one run: all its calls for a response come through it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from outlast.agents.events import UsageReport
from outlast.agents.values import Ask
from tests.agents.agent_alone import Launched
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script, Step, bash
from tests.agents.stub_gateway import SECRET, Passing

# What each asks for behind its address.
ASKS = {
    "claude": "v1/messages", "codex": "responses", "kimi-code": "chat/completions", "kimi-cli": "chat/completions",
    "gemini": "v1beta/models/gemini-2.5-flash:streamGenerateContent", "opencode": "chat/completions",
    "aider": "chat/completions", "mini-swe-agent": "chat/completions",
}  # fmt: skip
SETTINGS = ("settings.json", "config.toml", "opencode.json", ".claude.json", ".env")
LATER = ("kimi-cli", "opencode", "aider", "mini-swe-agent")  # less used, or slow


def names() -> list[object]:
    return [pytest.param(name, marks=pytest.mark.campaign) if name in LATER else name for name in ASKS]


@pytest.fixture
def passing(world: AgentWorld) -> Iterator[Passing]:
    world.model.script = Script([Step("One.", (bash("echo one > marks"),)), Step("Done.")])
    with Passing(world) as made:
        yield made


def routed(agent: Launched, passing: Passing, ask: Ask) -> tuple[Ask, set[str]]:
    """The agent run to its end by way of the gateway, and what it asked for there."""
    found = agent.known.billing.gateway(ask, passing.route)
    assert isinstance(found, Ask), found
    code, said = agent.run(found)
    assert code == 0, said
    first = f"POST /{SECRET}/0/"  # its model's; another for small things may have an address of its own
    asked = [path.removeprefix(first) for path in passing.asked() if path.startswith(first)]
    return found, {path.partition("?")[0] for path in asked}


def written(folder: Path) -> bytes:
    """The user's own settings, all in one."""
    found = sorted(path for name in SETTINGS for path in folder.rglob(name) if path.is_file())
    return b"\n".join(path.read_bytes() for path in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_all_calls_of_a_routed_agent_come_through(world: AgentWorld, passing: Passing, name: str) -> None:
    agent = Launched(world, name, "1.51.0" if name == "kimi-cli" else None)
    ask, paths = routed(agent, passing, agent.ask())
    assert paths == {ASKS[name]}
    assert len(passing.asked()) == len(world.model.requests()), "none went another way"
    assert (world.work / "marks").read_text() == "one\n"
    assert SECRET.encode() not in written(world.home), "the user's settings know nothing of it"
    known = agent.known
    told = [*known.billing.spent(ask)] if name == "mini-swe-agent" else agent.events()
    usages = [event for event in told if isinstance(event, UsageReport)]
    named = known.billing.model(ask.words, ask.environment, ask.cwd)
    asked = {request.body.get("model") or "gemini-2.5-flash" for request in world.model.requests()}
    assert {usage.model or named for usage in usages} == asked


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "words", "key", "path"),
    [
        ("codex", (), "CODEX_API_KEY", "responses"),
        ("opencode", ("--model", "anthropic/claude-sonnet-4-5"), "ANTHROPIC_API_KEY", "messages"),
        ("aider", ("--model", "anthropic/claude-sonnet-4-5"), "ANTHROPIC_API_KEY", "v1/messages"),
    ],
)
def test_calls_to_a_provider_that_no_setting_names_come_through(
    world: AgentWorld, passing: Passing, name: str, words: tuple[str, ...], key: str, path: str
) -> None:
    """Codex asks for a WebSocket first, and goes on without when it is refused."""
    agent = Launched(world, name)
    ask = agent.ask()
    if name == "codex":
        (world.home / ".codex/config.toml").write_text('model = "gpt-5.5-codex"\nanalytics.enabled = false\n')
    at = next(at for at, word in enumerate(ask.words) if word in ("--json", "--auto", "--message"))
    given = (*ask.words[:at], *words, *ask.words[at:])
    ask = msgspec.structs.replace(ask, words=given, environment={**ask.environment, key: "sk-fake"})
    _, paths = routed(agent, passing, ask)
    assert paths == {path}
    assert "127.0.0.1" not in passing.upstreams[0]
    for usage in (one for one in agent.events() if isinstance(one, UsageReport)):
        assert (usage.values.cache_read, usage.values.cache_write) == (22, 11 if path != "responses" else 0)
