"""The mutants are about code that is there: one that no longer applies would prove nothing."""

from pathlib import Path

import pytest

import outlast
from tests.mutants import MUTANTS, Mutant

SOURCE = Path(outlast.__file__).parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_applies_in_one_place(mutant: Mutant) -> None:
    assert (SOURCE / mutant.file).read_text().count(mutant.old) == 1
