"""Prices of models' tokens: the user's own list first, then ours. A model in neither has no price."""

import math
import re
import tomllib
from datetime import date
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from outlast import decoders, settings
from outlast.core.values import Usage
from outlast.errors import BadSetting

OWN = "prices.toml"
DATA = "prices.json"
DOLLARS_MAX = 1e9  # for a million tokens: above it somebody mistyped, and the ledger counts in whole numbers
_MILLION = 1_000_000
_DATED = re.compile(
    r"(?:[-@](?:\d{8}|\d{6}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}(?:-\d{4})?|\d{2}-\d{4}|latest|default))?"
    r"(?:-v\d+(?::\d+)?)?(?:\[[^\]]*\])?$"
)
# As Bedrock writes them: `us.anthropic.claude-…`, `openai.gpt-…`.
_MAKER = re.compile(
    r"^(?:(?:[a-z]{2}|apac|global|us-gov)\.)?(?:anthropic|openai|moonshotai|mistral|deepseek|xai)\."
)


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Micro-dollars for a million tokens, by kind. Cached tokens cost as much as input where the list says nothing else."""

    input: int
    output: int
    cache_read: int | None = None
    cache_write: int | None = None


class Tier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The price of all tokens of a request whose input, cached or not, has more tokens than `above`."""

    above: int
    rates: Rates


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The price of a model from a day on; None: since ever. Tiers are in ascending order.

    Our list (prices.json) is data that `./dev prices` writes from genai-prices before a release; nobody edits it by hand. Money is
    whole numbers throughout: micro-dollars for a million tokens in the list, micro-dollars in what comes out.
    """

    rates: Rates
    since: date | None = None
    tiers: tuple[Tier, ...] = ()

    def cost(self, usage: Usage) -> int:
        """One request in micro-dollars, rounded up. The size of its input chooses the tier."""
        size = usage.input + usage.cache_read + usage.cache_write
        rates = self.rates
        for tier in self.tiers:
            if size > tier.above:
                rates = tier.rates
        read = rates.input if rates.cache_read is None else rates.cache_read
        write = rates.input if rates.cache_write is None else rates.cache_write
        exact = (
            usage.input * rates.input + usage.output * rates.output + usage.cache_read * read + usage.cache_write * write
        )  # fmt: skip
        return -(-exact // _MILLION)

    def untiered(self) -> "Price":
        """The price for a sum of requests: its lowest tier, because none of them may have been large."""
        return msgspec.structs.replace(self, tiers=())


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model: the names it goes by, in small letters, and its prices in the order of their days."""

    names: tuple[str, ...]
    prices: tuple[Price, ...]

    def on(self, day: date) -> Price | None:
        """The price that holds on a day; None before the first."""
        held = [price for price in self.prices if price.since is None or price.since <= day]
        return held[-1] if held else None


class List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The list as it is on disk."""

    as_of: str
    source: str
    models: tuple[Known, ...]


class _OwnPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A price in a person's own list: US dollars for a million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def price(self) -> Price:
        read = None if self.cache_read is None else _micro(self.cache_read)
        write = None if self.cache_write is None else _micro(self.cache_write)
        return Price(Rates(_micro(self.input), _micro(self.output), read, write))


class _OwnList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: dict[str, _OwnPrice] = {}
    as_of: str = ""


def of(model: str, today: date) -> Price | None:
    """The price of a model; None where nobody knows it. Raises BadSetting where the user's list cannot be read."""
    own = _own(_own_path())
    for name in names_of(model):
        if name in own:
            return own[name]
    known = find(ours(), model)
    return None if known is None else known.on(today)


def find(among: dict[str, Known], model: str) -> Known | None:
    """The model of that name. A name that is only alike leads to none."""
    return next((among[name] for name in names_of(model) if name in among), None)


def by_name(found: List) -> dict[str, Known]:
    """The models of a list by each of their names."""
    return {name: known for known in found.models for name in known.names}


def check() -> None:
    """Read the user's list. Raises BadSetting where that cannot be done: better before anything is spent than after."""
    _own(_own_path())


def priced(model: str, usage: Usage, today: date) -> Usage:
    """The usage of one request with its cost; marked where the model has no price. A cost that was reported stays."""
    if usage.cost_microusd or not usage.tokens:
        return usage
    price = of(model, today)
    if price is None:
        return msgspec.structs.replace(usage, unpriced=True)
    return msgspec.structs.replace(usage, cost_microusd=price.cost(usage))


def names_of(model: str) -> list[str]:
    """The names a list may have it under: as it is, without provider, without date."""
    bare = _MAKER.sub("", model.strip().lower().rpartition("/")[2])
    return [model.strip(), bare, _DATED.sub("", bare)]


def _micro(dollars: float) -> int:
    return round(dollars * _MILLION)


def _own_path() -> Path:
    return settings.user_folder() / OWN


def _own(path: Path) -> dict[str, Price]:
    try:
        return _read(path.read_bytes(), path.stat().st_mtime_ns)
    except FileNotFoundError:
        return {}
    except (
        OSError,
        msgspec.ValidationError,
        tomllib.TOMLDecodeError,
        RecursionError,
        UnicodeDecodeError,
        OverflowError,
    ) as error:
        raise BadSetting(
            f"the prices in {path} cannot be read: {error}",
            hint='like [model] and "my-model" = { input = 3, output = 15 }, US dollars for a million tokens',
        ) from error


@cache
def _read(data: bytes, _: int) -> dict[str, Price]:
    found = decoders.convert(tomllib.loads(data.decode()), _OwnList)
    for name, price in found.model.items():
        given = (price.input, price.output, price.cache_read or 0, price.cache_write or 0)
        if min(given) < 0:
            raise msgspec.ValidationError(f"the price of {name!r:.80} is below zero")
        if not all(math.isfinite(one) and one <= DOLLARS_MAX for one in given):
            raise msgspec.ValidationError(f"the price of {name!r:.80} is not an amount of money")
    return {name: price.price() for name, price in found.model.items()}


@cache
def ours() -> dict[str, Known]:
    """Our own list, read once."""
    data = resources.files("outlast.operations").joinpath(DATA).read_bytes()
    return by_name(decoders.decode(data, List))
