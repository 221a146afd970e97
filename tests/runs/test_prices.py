"""What tokens cost: our list, the user's before it, and models that nobody knows the price of."""

from pathlib import Path

import pytest

from outlast import settings
from outlast.core.values import Usage
from outlast.errors import BadSetting
from outlast.runs import prices


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize(
    "model",
    [
        "claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-5", "claude-sonnet-4-5-latest",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5@20250929", "claude-sonnet-4-5[1m]",
    ],
)  # fmt: skip
def test_a_model_is_found_under_all_its_names(model: str) -> None:
    assert prices.of(model) == prices.Price(3, 15, 0.30, 3.75)


@pytest.mark.parametrize(
    "model", ["", "fake-model", "claude-sonnet-4-5-turbo", "gpt-5-pro", "gpt-5.9", "sonnet"]
)
def test_a_model_that_is_only_alike_has_no_price(model: str) -> None:
    assert prices.of(model) is None
    assert prices.priced(model, Usage(input=1)) == Usage(input=1, unpriced=True)


def test_money_is_whole_and_rounded_up() -> None:
    usage = Usage(input=1_000, output=10, cache_read=1, cache_write=2)
    assert prices.priced("claude-sonnet-4-5", usage).cost_microusd == 3_000 + 150 + 8  # 0.3 + 7.5
    assert prices.priced("claude-sonnet-4-5", Usage()) == Usage()
    assert prices.priced("fake", Usage(input=5, cost_microusd=7)) == Usage(input=5, cost_microusd=7)


def test_the_users_own_price_comes_first_and_is_read_anew() -> None:
    own = settings.user_folder() / prices.OWN
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text('[model]\n"fake-model" = { input = 1, output = 2 }\n"gpt-5" = { input = 9, output = 9 }\n')
    assert prices.of("openai/fake-model") == prices.Price(1, 2)
    assert prices.of("gpt-5") == prices.Price(9, 9)
    own.write_text('[model]\n"fake-model" = { input = 10, output = 2 }\n')
    assert prices.priced("fake-model", Usage(input=3, cache_read=1, cache_write=1)).cost_microusd == 50


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
        prices.of("a")
