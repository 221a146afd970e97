"""A sweep that is sampled finds what a whole one finds: the first, the last, and how many there are."""

import random
import subprocess
import sys

import pytest

from tests.support.sweeps import Sweep


def tried(sweep: Sweep, last: int) -> list[int]:
    """The numbers tried where the numbers up to `last` are met."""
    numbers = []
    for nth in sweep:
        numbers.append(nth)
        sweep.met(nth <= last)
    return numbers


@pytest.mark.parametrize("last", [0, 1, 2, 3, 10, 300])
def test_a_whole_sweep_tries_each_until_one_is_not_met(last: int, rng: random.Random) -> None:
    sweep = Sweep(rng, whole=True)
    assert tried(sweep, last) == list(range(1, last + 2))
    assert sweep.total == last + 1


@pytest.mark.parametrize("last", [0, 1, 2, 3, 10, 300])
def test_a_sample_has_the_first_and_the_last_tries_none_twice_and_ends_with_one_that_is_not_met(
    last: int, rng: random.Random
) -> None:
    for _ in range(200):
        sweep = Sweep(rng, whole=False)
        numbers = tried(sweep, last)
        assert sweep.total == last + 1
        assert {1, max(last, 1)} <= set(numbers)
        assert len(set(numbers)) == len(numbers) <= 40
        assert numbers[-1] > last


def test_every_number_is_in_the_sample_of_some_seed() -> None:
    samples = [tried(Sweep(random.Random(seed), whole=False), 60) for seed in range(300)]
    assert set().union(*samples) >= set(range(1, 61))
    assert sum(map(len, samples)) / len(samples) < 20


def test_the_same_seed_is_the_same_sample() -> None:
    one, two = (tried(Sweep(random.Random(7), whole=False), 60) for _ in range(2))
    assert one == two


@pytest.mark.parametrize("every", [True, False])
def test_a_search_that_never_ends_is_a_failure_and_so_is_a_trial_without_an_answer(
    every: bool, rng: random.Random
) -> None:
    with pytest.raises(AssertionError, match="never ended by itself"):
        tried(Sweep(rng, whole=every), 10**9)
    with pytest.raises(AssertionError, match="without"):
        list(Sweep(rng, whole=every))


def test_each_run_of_the_tests_does_half_of_a_file_and_every_test_is_in_some_run() -> None:
    where = "tests/shell/test_loops.py"
    tests = {seed: _names(where, f"--seed={seed}") for seed in range(1, 9)}
    every = set().union(*tests.values())
    assert every == _names(where) and len(every) >= 4
    assert all(0 < len(names) <= (len(every) + 1) // 2 for names in tests.values())


def _names(where: str, *seed: str) -> set[str]:
    """Of the tests that pytest would do there: with a seed half of them."""
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *seed, *(["--rotate"] if seed else [])]
        + [where],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return {line.partition("[")[0] for line in found.stdout.splitlines() if "::" in line}
