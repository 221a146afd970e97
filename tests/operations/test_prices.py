"""What tokens cost: our list, the user's before it, and models that nobody knows the price of."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from outlast import settings
from outlast.agents import aider
from outlast.core.values import Usage
from outlast.errors import BadSetting
from outlast.operations import prices
from outlast.operations.prices import Price, Rates, Tier

TODAY = date(2026, 11, 16)
# What the CLIs of tests/agents take for a model when nobody names one, and what they offer beside it. Read from the
# programs themselves: Claude Code 2.1.325 and 2.1.197, Codex 0.166, Gemini 0.61, kimi-cli 1.52 and Kimi Code 2.1,
# mini-swe-agent 2.4.6 (which has no default, and names these). opencode 1.18 tells its own cost.
DEFAULTS = {
    "claude": ["claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-4-8", "claude-haiku-4-5-20251001"],
    "codex": ["gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-sol", "gpt-6-luna", "gpt-6-astra", "gpt-5.5", "gpt-5.1-codex-max"],
    "gemini": ["gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-3-pro-preview", "gemini-3-flash-preview"],
    "kimi": ["kimi-k3", "kimi-k2.7-code", "kimi-k2.6", "kimi-k2.5"],
    "mini-swe-agent": ["anthropic/claude-opus-4-6-20260205", "openai/gpt-5.4", "gemini/gemini-3-pro-preview"],
    "aider": list(aider.DEFAULTS.values()),
}  # fmt: skip


@pytest.mark.parametrize("agent", DEFAULTS)
def test_the_models_that_an_agent_takes_by_itself_have_a_price(agent: str) -> None:
    for model in DEFAULTS[agent]:
        price = prices.of(model, TODAY)
        assert price is not None, model
        assert price.cost(Usage(input=1_000_000)) >= 10_000, "a cent for a million tokens, at least"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize(
    "model",
    [
        "claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-5", "claude-sonnet-4-5-latest",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5@20250929", "claude-sonnet-4-5[1m]",
        "Claude-Sonnet-4.5", "openrouter/anthropic/claude-sonnet-4.5", "global.anthropic.claude-sonnet-4-5",
    ],
)  # fmt: skip
def test_a_model_is_found_under_all_its_names(model: str) -> None:
    price = prices.of(model, TODAY)
    assert price is not None
    assert price.rates == Rates(3_000_000, 15_000_000, 300_000, 3_750_000)


@pytest.mark.parametrize(
    "model",
    [
        "",
        "fake-model",
        "claude-sonnet-4-5-turbo",
        "claude-sonnet-4-55",
        "gpt-5-giant",
        "gpt-5.99",
        "sonnet",
        "claude",
    ],
)
def test_a_model_that_is_only_alike_has_no_price(model: str) -> None:
    assert prices.of(model, TODAY) is None
    assert prices.priced(model, Usage(input=1), TODAY) == Usage(input=1, unpriced=True)


def test_money_is_whole_and_rounded_up() -> None:
    usage = Usage(input=1_000, output=10, cache_read=1, cache_write=2)
    assert prices.priced("claude-sonnet-4-5", usage, TODAY).cost_microusd == 3_000 + 150 + 8  # 0.3 + 7.5
    assert prices.priced("claude-sonnet-4-5", Usage(), TODAY) == Usage()
    assert prices.priced("fake", Usage(input=5, cost_microusd=7), TODAY) == Usage(input=5, cost_microusd=7)


def test_the_users_own_price_comes_first_and_is_read_anew() -> None:
    own = settings.user_folder() / prices.OWN
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text('[model]\n"fake-model" = { input = 1, output = 2 }\n"gpt-5" = { input = 9, output = 9 }\n')
    assert prices.of("openai/fake-model", TODAY) == Price(Rates(1_000_000, 2_000_000))
    assert prices.of("gpt-5", TODAY) == Price(Rates(9_000_000, 9_000_000))
    own.write_text('[model]\n"fake-model" = { input = 10, output = 2 }\n')
    assert prices.priced("fake-model", Usage(input=3, cache_read=1, cache_write=1), TODAY).cost_microusd == 50


@pytest.mark.parametrize(
    "text",
    [
        "[model",
        "model = 3",
        '[model]\n"a" = 3',
        '[model]\n"a" = { input = -1, output = 1 }',
        '[model]\n"a" = { input = nan, output = 1 }',
        '[model]\n"a" = { input = 1, output = inf }',
        '[model]\n"a" = { input = 1, output = 1, cache_read = nan }',
        '[model]\n"a" = { input = "3", output = 1 }',
        '[model]\n"a" = { in = 1 }',
    ],
)
def test_nonsense_is_named(text: str) -> None:
    own: Path = settings.user_folder() / prices.OWN
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(text)
    with pytest.raises(BadSetting, match="prices"):
        prices.of("a", TODAY)


def test_the_size_of_the_input_cached_or_not_chooses_the_tier_for_all_tokens() -> None:
    low, high = Rates(1_000_000, 2_000_000), Rates(10_000_000, 20_000_000, 1_000_000)
    price = Price(low, tiers=(Tier(1_000, high),))
    assert price.cost(Usage(input=600, cache_read=400, output=5)) == 1_010
    assert price.cost(Usage(input=601, cache_read=400, output=5)) == 6_010 + 400 + 100
    assert price.cost(Usage(input=400, cache_read=300, cache_write=301)) == 4_000 + 300 + 3_010
    assert price.cost(Usage(output=5_000)) == 10_000, "what comes out is no part of the size"


def test_a_price_holds_from_its_day_on() -> None:
    day = date(2026, 3, 13)
    old, new = Price(Rates(2, 2)), Price(Rates(1, 1), since=day)
    known = prices.Known(names=("m",), prices=(old, new))
    assert [known.on(day - timedelta(days=1)), known.on(day)] == [old, new]
    assert prices.Known(names=("m",), prices=(new,)).on(day - timedelta(days=1)) is None


def test_a_price_that_changed_is_in_our_list_with_its_day() -> None:
    usage = Usage(input=250_000)
    assert prices.priced("claude-opus-4-6", usage, date(2026, 3, 12)).cost_microusd == 2_500_000
    assert prices.priced("claude-opus-4-6", usage, date(2026, 3, 13)).cost_microusd == 1_250_000


def test_our_list_is_whole_numbers_and_no_name_leads_to_two_models() -> None:
    index = prices.ours()
    assert len(index) > 500
    seen: dict[str, tuple[str, ...]] = {}
    for known in index.values():
        assert known.prices
        for name in known.names:
            assert seen.setdefault(name, known.names) == known.names
            assert prices.find(index, name) is known
        assert [price.since or date.min for price in known.prices] == sorted(
            price.since or date.min for price in known.prices
        )
