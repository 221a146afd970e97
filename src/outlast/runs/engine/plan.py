"""The plan of an open run: set once, read from the journal once per attempt, extended at the end of beats."""

from typing import TYPE_CHECKING, Any

from outlast import faults
from outlast.core import events as ev, plan as plans
from outlast.errors import UsageError
from outlast.runs import reader
from outlast.runs.engine.steps import Append, Call, Steps

if TYPE_CHECKING:
    from outlast.runs.engine.run import RunEngine


class PlanBody:
    """The steps of a run's plan."""

    def __init__(self, run: "RunEngine") -> None:
        self._run = run
        self._steps: tuple[plans.Step, ...] | None = None

    def forget(self) -> None:
        """Another attempt begins: read the plan from the journal again."""
        self._steps = None

    def steps(self) -> tuple[plans.Step, ...]:
        """All steps, read from the journal once per attempt."""
        if self._steps is None:
            self._steps = reader.plan_body(self._run.journal)
        return self._steps

    def extended(self, extensions: tuple[ev.Extension, ...]) -> tuple[plans.Step, ...]:
        """The steps as they would be with these extensions."""
        return reader.extend(self._run.journal, self.steps(), extensions)

    def extend(self, extensions: tuple[ev.Extension, ...]) -> None:
        """The extensions took hold."""
        if extensions:
            self._steps = self.extended(extensions)

    def make(self, given: object, args: tuple[Any, ...]) -> Steps:
        """Record the plan, or what a callable answers; nothing where the run has a plan or is done."""
        run = self._run
        if run.is_done or run.state.plan_seq:
            return
        run.check_open()
        made = (yield Call(given, args)) if callable(given) else given
        steps = plans.parse(made)
        if plans.count(steps) > plans.STEPS_MAX:
            raise UsageError(f"a plan has at most {plans.STEPS_MAX:,} steps")
        payload = yield from run.journal.keep(steps)
        faults.point("plan.made")
        yield Append((ev.PlanSet(at=run.journal.now(), steps=payload, total=plans.count(steps)),))
        self._steps = steps
        faults.point("plan.recorded")
