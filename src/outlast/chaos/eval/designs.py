"""The three designs by name, and the third of them: tasks under outlast, through its public interface only."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import outlast
from outlast.chaos.eval.handwritten import HandWritten, write
from outlast.chaos.eval.world import World
from outlast.chaos.tasks.script import (
    Ask,
    Body,
    BodyRun,
    Do,
    Extend,
    Finish,
    Here,
    Op,
    Remember,
    Script,
    Sub,
    Task,
    Together,
    Write,
)

CONTEXT_TOKENS_MAX = 1_000
PROJECT = "chaos"


class UnderOutlast:
    """A task under outlast, in the task's style: a loop or an agent object, blocking or async."""

    def __init__(self, world: World, task: Task) -> None:
        self.world = world
        self.task = task
        self.is_async = task.style.startswith("async")

    def run(self) -> None:
        """Start or continue the run: the same call."""
        if self.is_async:
            asyncio.run(self._run_async())
        else:
            self._run()

    def _open(self) -> outlast.Run:
        task, store = self.task, self.world.folder / "store"
        return outlast.run(
            task.name, goal=task.about, done=task.checks, invariants=task.invariants, budget=task.budget,
            store=store, project=PROJECT,
        )  # fmt: skip

    def _run(self) -> None:
        with self._open() as run:
            if self.task.style == "drive":
                agent = DrivenAgent(self, run, self.task.script)
                outlast.drive(run, agent)
                agent.saved()
            else:
                self._carry(run, self.task.script, "")

    async def _run_async(self) -> None:
        async with self._open() as run:
            if self.task.style == "async drive":
                agent = DrivenAgent(self, run, self.task.script)
                await outlast.drive(run, agent)
                agent.saved()
            else:
                await self._carry_async(run, self.task.script, "")

    # -- beat by beat --------------------------------------------------------------------------------------------

    def here(self, beat: outlast.Beat | outlast.AsyncBeat, prefix: str) -> Here:
        """Where the body of this beat is."""
        return Here(f"{prefix}{beat.number}", beat.step, beat.number, self.world.work)

    def planned(self, script: Script, prefix: str) -> Any:
        """The plan as outlast takes it: a value, or a callable that asks the model."""
        return (
            functools.partial(script.planned, self.world.ask, prefix)
            if callable(script.plan)
            else script.plan
        )

    def _carry(self, run: outlast.Run, script: Script, prefix: str) -> None:
        if script.plan is not None:
            run.plan(self.planned(script, prefix))
        for beat in run.beats():
            here = self.here(beat, prefix)
            self.world.begin(here.label)
            result = self.through(run, beat, here, script.body(here))
            self.world.mark("save.before")
            beat.done(result, evidence={"step": here.step})
            self.world.saved(here.label)

    async def _carry_async(self, run: outlast.AsyncRun, script: Script, prefix: str) -> None:
        if script.plan is not None:
            await run.plan(self.planned(script, prefix))
        async for beat in run.beats():
            here = self.here(beat, prefix)
            self.world.begin(here.label)
            result = await self.through_async(run, beat, here, script.body(here))
            self.world.mark("save.before")
            await beat.done(result, evidence={"step": here.step})
            self.world.saved(here.label)

    def through(
        self, run: outlast.Run, beat: outlast.Beat, here: Here, body: Body, value: object = None
    ) -> Any:
        """Run a body from where it is to its result."""
        played = BodyRun(body, value)
        while played.op is not None:
            try:
                answer = self._apply(run, beat, here, played.op)
            except outlast.EffectFailed as error:
                played.refuse(str(error))
            else:
                played.answer(answer)
        return played.result

    async def through_async(
        self, run: outlast.AsyncRun, beat: outlast.AsyncBeat, here: Here, body: Body, value: object = None
    ) -> Any:
        """Do the task through the async API."""
        played = BodyRun(body, value)
        while played.op is not None:
            try:
                answer = await self._apply_async(run, beat, here, played.op)
            except outlast.EffectFailed as error:
                played.refuse(str(error))
            else:
                played.answer(answer)
        return played.result

    def _apply(self, run: outlast.Run, beat: outlast.Beat, here: Here, op: Op) -> Any:
        match op:
            case Sub():
                with beat.run(op.script.name) as child:
                    self._carry(child, op.script, here.inside(op.script))
                return child.result
            case Together():
                self.world.mark("act.before")
                outcome = [self._act(beat, here, act) for act in op.acts]
                self.world.mark("act.after")
                return outcome
            case Ask() | Do():
                before, after = _marks(op)
                self.world.mark(before)
                outcome = self._ask(run, beat, here, op) if isinstance(op, Ask) else self._act(beat, here, op)
                self.world.mark(after)
                return outcome
            case _:
                return self._stage(beat, op)

    async def _apply_async(self, run: outlast.AsyncRun, beat: outlast.AsyncBeat, here: Here, op: Op) -> Any:
        match op:
            case Sub():
                async with beat.run(op.script.name) as child:
                    await self._carry_async(child, op.script, here.inside(op.script))
                return child.result
            case Together():
                self.world.mark("act.before")
                outcome = await asyncio.gather(*[self._act(beat, here, act) for act in op.acts])
                self.world.mark("act.after")
                return outcome
            case Ask() | Do():
                before, after = _marks(op)
                self.world.mark(before)
                call = self._ask(run, beat, here, op) if isinstance(op, Ask) else self._act(beat, here, op)
                outcome = await call
                self.world.mark(after)
                return outcome
            case _:
                staged = self._stage(beat, op)
                return None if staged is None else await staged

    # -- the same call, blocking or awaited: for beats of either kind ---------------------------------------------

    def _ask(self, run: Any, beat: Any, here: Here, op: Ask) -> Any:
        ask = self._ask_async if self.is_async else self.world.ask_priced
        context = run.context(tokens_max=CONTEXT_TOKENS_MAX)
        identity = here.identity("ask", op.name)
        return beat.decide(op.name, ask, identity, op.about, op.size, context, lazy=op.lazy)

    async def _ask_async(self, *args: Any) -> outlast.Answer[str]:
        return self.world.ask_priced(*args)

    async def _keyed_async(self, *, idempotency_key: str, **kwargs: Any) -> Any:
        return self.world.keyed(**kwargs, idempotency_key=idempotency_key)

    def _act(self, beat: Any, here: Here, op: Do) -> Any:
        keyed: Callable[..., Any] = self._keyed_async if self.is_async else self.world.keyed
        fn = {"keyed": keyed, "probed": self.world.probed, "blind": self.world.blind}[op.cls]
        probe = outlast.Probe(self.world.look, op.settle_s) if op.cls == "probed" else None
        identity = op.key or here.identity("act", op.name)
        return beat.act(
            op.name, fn, key=op.key, probe=probe, retry=op.retry, timeout_s=op.timeout_s,
            what=op.name, body=op.body, identity=identity, patience_s=op.patience_s,
        )  # fmt: skip

    def _stage(self, beat: Any, op: Op) -> Any:
        match op:
            case Write():
                return write(self.world.work / op.path, op.text)
            case Remember():
                return beat.remember(op.name, op.uri)
            case Extend():
                return beat.extend(list(op.steps), where=op.where)
            case Finish():
                return beat.finish(op.result)
            case _:
                raise AssertionError(f"not an operation that is staged: {op!r}")


class DrivenAgent:
    """The agent object that `outlast.drive` runs. The first operation of its body is what `reason` asks."""

    def __init__(self, carried: UnderOutlast, run: outlast.Run | outlast.AsyncRun, script: Script) -> None:
        self._carried = carried
        self._run = run
        self._script = script
        self._label = ""
        if script.plan is not None:
            self.plan = carried.planned(script, "")

    def context(self, beat: Any) -> str:
        self.saved()
        here = self._carried.here(beat, "")
        self._label = here.label
        self._carried.world.begin(here.label)
        return str(self._run.context(tokens_max=CONTEXT_TOKENS_MAX))

    def reason(self, beat: Any, context: Any) -> outlast.Answer[str]:
        here, _, first = self._begun(beat)
        self._carried.world.mark("decide.before")
        return self._carried.world.ask_priced(
            here.identity("ask", first.name), first.about, first.size, context
        )

    def act(self, beat: Any, decision: Any) -> Any:
        here, body, first = self._begun(beat)
        here.identity("ask", first.name)
        self._carried.world.mark("decide.after")
        through: Any = self._carried.through_async if self._carried.is_async else self._carried.through
        return through(self._run, beat, here, body, decision)

    def observe(self, beat: Any, outcome: Any) -> Any:
        return outcome

    def learn(self, beat: Any, observation: Any) -> None:
        self._carried.world.mark("save.before")

    def saved(self) -> None:
        """Note that the last beat is saved: only the next beat, or the end, shows it."""
        if self._label:
            self._carried.world.saved(self._label)
        self._label = ""

    def _begun(self, beat: Any) -> tuple[Here, Body, Ask]:
        here = self._carried.here(beat, "")
        body = self._script.body(here)
        first = next(body)
        assert isinstance(first, Ask), f"{self._script.name}: a driven body asks first"
        return here, body, first


def _marks(op: Ask | Do) -> tuple[str, str]:
    return ("decide.before", "decide.after") if isinstance(op, Ask) else ("act.before", "act.after")


DESIGNS: dict[str, Callable[[World, Task], None]] = {
    "prompt": lambda world, task: HandWritten(world, task, None).run(),
    "act-then-save": lambda world, task: HandWritten(world, task, world.folder / "state.json").run(),
    "outlast": lambda world, task: UnderOutlast(world, task).run(),
}
