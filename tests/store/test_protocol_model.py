"""The protocol between hosts, as a model: it holds under its faults, and each of its rules is needed."""

import random

import pytest

from tests.store.protocol_model import campaign, races
from tests.store.protocol_model.rules import FAULTS, FOUND_BY, MODES, MUTANTS, WRITTEN, Rules

SEED_MAX = 1_000_000


def violations(seeds: range) -> dict[str, int]:
    found = campaign.campaign(Rules(), seeds, FAULTS, MODES, 0)
    return {
        each: n
        for each, n in found.items()
        if each not in ("schedules", "finished") and "window" not in each and "frozen" not in each
    }


def test_the_protocol_holds_in_schedules_of_cuts_kills_failovers_and_placements(
    rng: random.Random, whole: bool
) -> None:
    first = rng.randrange(SEED_MAX)
    assert violations(range(first, first + (400 if whole else 40))) == {}, f"from seed {first} on"


@pytest.mark.campaign
def test_the_protocol_holds_in_many_schedules(rng: random.Random) -> None:
    first = rng.randrange(SEED_MAX)
    assert violations(range(first, first + 6_500)) == {}, f"from seed {first} on"


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_without_any_of_its_rules_the_protocol_breaks(name: str) -> None:
    assert any(campaign.broken(name, seed) for seed in FOUND_BY[name])


def test_the_first_text_of_the_protocol_breaks() -> None:
    found = campaign.campaign(Rules(**WRITTEN), range(60), FAULTS, MODES, 0)
    assert set(found) > {"schedules", "finished"}


def test_claim_renewal_and_append_never_both_hold_a_run_in_any_order() -> None:
    assert races.races() == 0


def test_numbers_below_the_oldest_transaction_are_never_heard_of_too_late(whole: bool) -> None:
    assert races.numbers(7 if whole else 6) == 0
