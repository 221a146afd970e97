"""What a model's tokens cost: our list, and before it the user's own. A model in neither has no price, which is said."""

import math
import re
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from outlast import settings
from outlast.core.values import Usage
from outlast.errors import BadSetting

OWN = "prices.toml"
DOLLARS_MAX = 1e9  # for a million tokens: above it somebody mistyped, and the ledger counts in whole numbers
_DATED = re.compile(r"(?:[-@](?:\d{8}|\d{6}|\d{4}-\d{2}-\d{2}|latest))?(?:-v\d+(?::\d+)?)?(?:\[[^\]]*\])?$")


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars for a million tokens, by kind."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def cost(self, usage: Usage) -> int:
        """In micro-dollars, rounded up: dollars for a million are micro-dollars for one."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        exact = (
            usage.input * self.input + usage.output * self.output + usage.cache_read * read + usage.cache_write * write
        )  # fmt: skip
        return int(-(-exact // 1))


class _List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: dict[str, Price] = {}
    as_of: str = ""


def of(model: str) -> Price | None:
    """The price of a model; None where nobody knows it. Raises BadSetting where the user's list cannot be read."""
    names = _names(model)
    for known in (_own(_own_path()), _ours()):
        for name in names:
            if name in known.model:
                return known.model[name]
    return None


def check() -> None:
    """Read the user's list. Raises BadSetting where that cannot be done: better before anything is spent than after."""
    _own(_own_path())


def priced(model: str, usage: Usage) -> Usage:
    """The usage with its cost; marked where the model has no price. What was reported with a cost keeps it."""
    if usage.cost_microusd or not usage.tokens:
        return usage
    price = of(model)
    if price is None:
        return msgspec.structs.replace(usage, unpriced=True)
    return msgspec.structs.replace(usage, cost_microusd=price.cost(usage))


def _names(model: str) -> list[str]:
    """The names a list may have it under: as it is, without provider, without date."""
    bare = model.strip().lower().rpartition("/")[2]
    bare = re.sub(r"^(?:[a-z]{2}\.)?anthropic\.", "", bare)
    return [model.strip(), bare, _DATED.sub("", bare)]


def _own_path() -> Path:
    return settings.user_folder() / OWN


def _own(path: Path) -> _List:
    try:
        return _read(path.read_bytes(), path.stat().st_mtime_ns)
    except FileNotFoundError:
        return _List()
    except (
        OSError,
        msgspec.ValidationError,
        tomllib.TOMLDecodeError,
        UnicodeDecodeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise BadSetting(
            f"the prices in {path} cannot be read: {error}",
            hint='like [model] and "my-model" = { input = 3, output = 15 }, US dollars for a million tokens',
        ) from error


@cache
def _read(data: bytes, _: int) -> _List:
    found = msgspec.convert(tomllib.loads(data.decode()), _List)
    for name, price in found.model.items():
        given = (price.input, price.output, price.cache_read or 0, price.cache_write or 0)
        if min(given) < 0:
            raise msgspec.ValidationError(f"the price of {name!r:.80} is below zero")
        if not all(math.isfinite(one) and one <= DOLLARS_MAX for one in given):
            raise msgspec.ValidationError(f"the price of {name!r:.80} is no amount of money")
    return found


@cache
def _ours() -> _List:
    return _read(resources.files("outlast.runs").joinpath(OWN).read_bytes(), 0)
