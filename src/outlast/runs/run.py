"""A run as users see it: `Run` inside `with`, `AsyncRun` inside `async with`. The engine does the work."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any

from outlast.core.budget import Left
from outlast.core.state import Status
from outlast.core.values import Contract
from outlast.runs.beat import AsyncBeat, Beat
from outlast.runs.engine.drivers import AwaitableText, awaiting
from outlast.runs.engine.run import RunEngine
from outlast.runs.types import PlanSteps


class Run:
    """A run in this process. Use it with `with`; with `async with` you get an `AsyncRun`.

    `outlast.run` returns one object for both. Its calls block inside `with`, and return something to await inside
    `async with`.
    """

    __slots__ = ("_engine",)

    def __init__(self, engine: RunEngine) -> None:
        self._engine = engine

    @property
    def id(self) -> str:
        """The run's id, which every command takes."""
        return self._engine.id

    @property
    def task(self) -> str:
        """The task it was opened for."""
        return self._engine.task

    @property
    def status(self) -> Status:
        """Where the run stands, as `outlast ls` shows it."""
        return self._engine.status

    @property
    def is_done(self) -> bool:
        """Whether the run is finished and its checks passed."""
        return self._engine.is_done

    @property
    def result(self) -> Any:
        """The run's result, None before it is done."""
        return self._engine.result

    @property
    def budget(self) -> Left:
        """The rest of the allowance, which a child shares with its root."""
        return self._engine.budget

    @property
    def contract(self) -> Contract:
        """Goal, checks and invariants in force."""
        return self._engine.contract

    def context(self, tokens_max: int | None = None) -> str:
        """All that the agent must know to go on, rebuilt from the journal; the same for the same journal and files."""
        return self._engine.context(tokens_max)

    def plan(self, steps: PlanSteps | Callable[..., PlanSteps], *args: Any) -> None:
        """Set the plan once: a list or tree, or a callable whose result is recorded. Later calls change nothing."""
        return self._engine.plan(steps, *args)

    def beats(self) -> Iterator[Beat]:
        """The beats from the cursor on, each to be ended with `beat.done()`."""
        return _beats(self._engine)

    def remember(self, name: str, uri: str, *, digest: str = "") -> None:
        """Remember a pointer: with the open beat's end, or at once outside a beat."""
        return self._engine.remember(name, uri, digest=digest)

    def finish(self, result: object = None) -> None:
        """End the run if its checks pass: with the open beat's end, or at once outside a beat."""
        return self._engine.finish(result)

    def __enter__(self) -> "Run":
        self._engine.__enter__()
        return self

    async def __aenter__(self) -> "AsyncRun":
        await self._engine.__aenter__()
        return AsyncRun(self._engine)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.__exit__(kind, error, trace)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._engine.__aexit__(kind, error, trace)


class AsyncRun:
    """A run in this process, inside `async with`: as `Run`, with `plan`, `remember` and `finish` awaited."""

    __slots__ = ("_engine",)

    def __init__(self, engine: RunEngine) -> None:
        self._engine = engine

    @property
    def id(self) -> str:
        """The run's id, which every command takes."""
        return self._engine.id

    @property
    def task(self) -> str:
        """The task it was opened for."""
        return self._engine.task

    @property
    def status(self) -> Status:
        """Where the run stands, as `outlast ls` shows it."""
        return self._engine.status

    @property
    def is_done(self) -> bool:
        """Whether the run is finished and its checks passed."""
        return self._engine.is_done

    @property
    def result(self) -> Any:
        """The run's result, None before it is done."""
        return self._engine.result

    @property
    def budget(self) -> Left:
        """The rest of the allowance, which a child shares with its root."""
        return self._engine.budget

    @property
    def contract(self) -> Contract:
        """Goal, checks and invariants in force."""
        return self._engine.contract

    def context(self, tokens_max: int | None = None) -> AwaitableText:
        """As `Run.context`: a text, which may be awaited too."""
        return self._engine.context(tokens_max)

    def plan(
        self, steps: PlanSteps | Callable[..., PlanSteps | Awaitable[PlanSteps]], *args: Any
    ) -> Coroutine[Any, Any, None]:
        """As `Run.plan`, awaited; the callable may be async."""
        return self._engine.plan(steps, *args)

    def beats(self) -> AsyncIterator[AsyncBeat]:
        """As `Run.beats`, for `async for`."""
        return _beats(self._engine)

    def remember(self, name: str, uri: str, *, digest: str = "") -> Awaitable[None]:
        """As `Run.remember`, awaited."""
        return self._engine.remember(name, uri, digest=digest)

    def finish(self, result: object = None) -> Awaitable[None]:
        """As `Run.finish`, awaited."""
        return self._engine.finish(result)

    def __enter__(self) -> Run:
        self._engine.__enter__()
        return Run(self._engine)

    async def __aenter__(self) -> "AsyncRun":
        await self._engine.__aenter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.__exit__(kind, error, trace)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._engine.__aexit__(kind, error, trace)


def run_engine(run: Run | AsyncRun) -> RunEngine:
    """The engine behind a run."""
    return run._engine


def _beats(engine: RunEngine) -> Any:
    return _async_beats(engine) if engine.is_async else map(Beat, engine.beats())


async def _async_beats(engine: RunEngine) -> AsyncIterator[AsyncBeat]:
    while (beat := engine.beat_at_hand() or await awaiting(engine.journal, engine.next_beat())) is not None:
        yield AsyncBeat(beat)
