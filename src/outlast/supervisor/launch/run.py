"""The run behind a supervised command: requests to stop it wait until the command has been stopped."""

from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.supervision import Supervision
from outlast.runs.opening.terms import Terms


def supervised_run(terms: Terms, *, typed: bool = False) -> RunEngine:
    """A run whose work is done by a command. `typed`: a person typed the command line."""
    return RunEngine(terms, supervision=Supervision(typed=typed, may_stop=False))
