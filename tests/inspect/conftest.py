"""A store of the test's own, and `start`: `outlast.run` in it. The same as for tests/runs."""

from tests.runs.conftest import start, store

__all__ = ["start", "store"]
