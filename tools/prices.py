"""Writes src/outlast/operations/prices.json from the package genai-prices (MIT): `./dev prices`, before a release.

Takes facts only (names, prices, thresholds, dates), from makers that bill for their own models: see `compare`."""

import argparse
import itertools
import re
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

import genai_prices.types as theirs
import msgspec
from genai_prices.data import providers

from outlast.core.values import Usage
from outlast.operations.prices import DATA, Known, List, Price, Rates, Tier, by_name, find, names_of

TARGET = Path(__file__).parents[1] / "src/outlast/operations" / DATA
# In this order: if two sell a model of one name, the first one's price counts.
MAKERS = (
    "anthropic", "openai", "google", "moonshotai", "x-ai", "deepseek", "mistral", "zai", "zhipuai", "minimax", "cohere",
    "meta", "cursor",
)  # fmt: skip
KINDS = {
    "input": "input_mtok", "output": "output_mtok", "cache_read": "cache_read_mtok", "cache_write": "cache_write_mtok"
}  # fmt: skip
ENDINGS = {"google": ("", "-preview", "-exp")}  # endings under which a model is sold too, if its rule says so
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,79}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as-of", default=datetime.now(UTC).date().isoformat(), help="the date to write")
    as_of = parser.parse_args().as_of
    taken: set[str] = set()
    models = []
    for maker in MAKERS:
        provider = next(each for each in providers if each.id == maker)
        for model in provider.models:
            known = converted(provider, model, taken)
            if known is not None:
                taken.update(known.names)
                models.append(known)
                compare(model, known)
    write(List(as_of=as_of, source=f"genai-prices {version('genai-prices')} (MIT)", models=tuple(models)))
    print(f"{len(models)} models under {len(taken)} names in {TARGET.name}", file=sys.stderr)
    return 0


def converted(provider: theirs.Provider, model: theirs.ModelInfo, taken: set[str]) -> Known | None:
    """A model in our form; None if it is not paid by tokens, or all its names are taken."""
    found = sorted(set(names(provider, model)) - taken)
    prices = tuple(periods(model))
    return Known(names=tuple(found), prices=prices) if found and prices else None


def names(provider: theirs.Provider, model: theirs.ModelInfo) -> Iterator[str]:
    """Every plain name that genai-prices itself gives to this model. Similar names do not count."""
    words = {model.id, *(word for word in clauses(model.match))}
    for word, ending in itertools.product(sorted(words), ENDINGS.get(provider.id, ("",))):
        name = names_of(f"{word}{ending}")[-1]
        found = provider.find_model(name)
        if NAME.fullmatch(name) and found is model:
            yield name


def clauses(match: object) -> Iterator[str]:
    """The words of a rule: its prefixes, its equals, and what must be contained."""
    for part in (*getattr(match, "or_", ()), *getattr(match, "and_", ())):
        yield from clauses(part)
    for kind in ("equals", "starts_with", "contains"):
        word = getattr(match, kind, None)
        if isinstance(word, str):
            yield word.rstrip("@-")


def periods(model: theirs.ModelInfo) -> Iterator[Price]:
    """The prices of a model, each with its first day. For prices by the hour the dearest counts."""
    given = model.prices
    rows = given if isinstance(given, list) else [theirs.ConditionalPrice(prices=given)]
    hourly = [row.prices for row in rows if isinstance(row.constraint, theirs.TimeOfDateConstraint)]
    dated = [row for row in rows if not isinstance(row.constraint, theirs.TimeOfDateConstraint)]
    for row in dated:
        since = row.constraint.start_date if row.constraint is not None else None
        sets = [row.prices, *(hourly if row is dated[-1] else [])]
        starts = sorted({start for prices in sets for start in thresholds(prices)})
        base = rates(sets, 0)
        if base is not None and base.input + base.output:
            tiers = tuple(
                Tier(above=start, rates=tier) for start in starts if (tier := rates(sets, start + 1))
            )
            yield Price(since=since, rates=base, tiers=tiers)


def thresholds(prices: theirs.ModelPrice) -> Iterator[int]:
    for kind in KINDS.values():
        value = getattr(prices, kind)
        if isinstance(value, theirs.TieredPrices):
            yield from (tier.start for tier in value.tiers)


def rates(sets: list[theirs.ModelPrice], tokens: int) -> Rates | None:
    """What a million tokens cost, by kind, in a request with so many of them; None without a price for both ways."""
    found = {}
    for kind, theirs_kind in KINDS.items():
        values = [micro(getattr(prices, theirs_kind), tokens) for prices in sets]
        known = [value for value in values if value is not None]
        found[kind] = max(known) if known else None
    if found["input"] is None or found["output"] is None:
        return None
    return Rates(found["input"], found["output"], found["cache_read"], found["cache_write"])


def micro(value: Decimal | theirs.TieredPrices | None, tokens: int) -> int | None:
    """Dollars for a million tokens as whole micro-dollars for a million tokens."""
    if value is None:
        return None
    if isinstance(value, theirs.TieredPrices):
        passed = [tier.price for tier in value.tiers if tokens > tier.start]
        value = passed[-1] if passed else value.base
    exact = value * 1_000_000
    if exact != int(exact):
        raise SystemExit(f"a price of {value} dollars does not fit into whole micro-dollars")
    return int(exact)


def compare(model: theirs.ModelInfo, known: Known) -> None:
    """Compare our price of some requests with genai-prices' own, on the days around each change, before writing.

    Raises SystemExit if they differ.
    """
    if isinstance(model.prices, list) and any(
        isinstance(row.constraint, theirs.TimeOfDateConstraint) for row in model.prices
    ):
        return  # ours is the dearest of the day
    days = {date(2025, 1, 1), *(price.since for price in known.prices if price.since is not None)}
    sizes = {1_000, *(tier.above + more for price in known.prices for tier in price.tiers for more in (0, 1))}
    for day, size in itertools.product(sorted(days), sorted(sizes)):
        price = known.on(day)
        if price is None:
            continue
        read, write = size // 3, size // 5
        usage = Usage(input=size - read - write, output=777, cache_read=read, cache_write=write)
        moment = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
        told = theirs.Usage(
            input_tokens=size, output_tokens=777, cache_read_tokens=read, cache_write_tokens=write
        )
        expected = model.get_prices(moment).calc_price(told)["total_price"] * 1_000_000
        if not expected <= price.cost(usage) < expected + 1:
            raise SystemExit(f"{model.id} on {day}, {size} tokens: {price.cost(usage)} against {expected}")


def write(found: List) -> None:
    """One model per line, so that a release's changes can be read."""
    index = by_name(found)
    for known in found.models:
        for name in known.names:
            assert find(index, name) is known, f"{name} leads to another model"
    rows = ",\n".join(msgspec.json.encode(known).decode() for known in found.models)
    head = msgspec.json.encode({"as_of": found.as_of, "source": found.source}).decode()
    TARGET.write_text(f'{head[:-1]},"models":[\n{rows}\n]}}\n')


if __name__ == "__main__":
    sys.exit(main())
