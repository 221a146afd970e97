"""What a mutant is: one break, and the tests that must notice; and where many of those tests are."""

from dataclasses import dataclass

RUNS = "tests/runs"
SUPERVISOR = "tests/supervisor"


@dataclass(frozen=True)
class Mutant:
    """One break: in `file` under src/outlast, `old` (there exactly once) becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
