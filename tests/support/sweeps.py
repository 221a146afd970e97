"""Exhaustive searches, whole or as a sample that the seed decides. `./dev test` samples; `--all` and CI do them whole.

    for nth in sweep:                    # kill at the 1st crash point, the 2nd, …
        died = killed(world.run(kill_at=nth))
        ...
        sweep.met(died)                  # False ends it: this run met fewer than nth
    assert sweep.total > 8

A sample needs no count before: it goes up in leaps until a run meets none, and then looks between the leaps for the
last one that is met. So the first and the last are always among those tried, and the final trial meets none.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

EXAMPLES_SHARE = 4
TRIALS_MAX = 2_000
LEAP_MAX = 3

sampling = False  # set by tests/conftest.py before any test is imported


def examples(whole: int) -> int:
    """How many examples hypothesis looks at where that is said in a module: in a sample a quarter."""
    return max(1, whole // EXAMPLES_SHARE) if sampling else whole


class Sweep:
    """The numbers to be tried, one after the other. After each trial `met` must be called."""

    def __init__(self, rng: random.Random, *, whole: bool) -> None:
        self._rng, self.whole = rng, whole
        self._answer: bool | None = None
        self.total = 0  # how many trials a whole sweep has: all that are met, and the one that meets none

    def met(self, met: bool) -> None:
        """Say whether the run of this trial met the number it was given."""
        self._answer = bool(met)

    def __iter__(self) -> Iterator[int]:
        return self._all() if self.whole else self._some()

    def _all(self) -> Iterator[int]:
        for nth in range(1, TRIALS_MAX):
            yield nth
            if not self._taken():
                self.total = nth
                return
        raise AssertionError(f"{TRIALS_MAX} trials, and it never ended by itself")

    def _some(self) -> Iterator[int]:
        low, high = 0, 1  # the highest that was met, and the next one to try
        yield high
        while self._taken():
            low, high = high, high + self._rng.randint(1, LEAP_MAX * high)
            assert high < LEAP_MAX * TRIALS_MAX, "it never ended by itself"
            yield high
        highest, met = high, False
        while high - low > 1:
            nth = self._rng.randint(low + 1, high - 1)
            yield nth
            met = self._taken()
            low, high = (nth, high) if met else (low, nth)
        self.total = high
        if met:
            yield highest + 1
            assert not self._taken(), f"{highest} was not met, {highest + 1} was"

    def _taken(self) -> bool:
        answer, self._answer = self._answer, None
        assert answer is not None, "a trial ended without `sweep.met(…)`"
        return answer
