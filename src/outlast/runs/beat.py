"""One beat as users see it: `Beat` in a blocking run, `AsyncBeat` in an async one. Both only hand on to the engine."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from outlast.core.values import Usage
from outlast.runs.engine.beat import BeatEngine
from outlast.runs.types import (
    Actor,
    AsDict,
    AsList,
    AsText,
    AsyncActor,
    AsyncDecider,
    AsyncLook,
    Decider,
    Few,
    GiveUp,
    Look,
    Mixed,
    P,
    PlanSteps,
    S,
    Settled,
)  # fmt: skip

if TYPE_CHECKING:
    from outlast.runs.run import AsyncRun, Run


class Beat:
    """One turn of the loop."""

    __slots__ = ("_engine",)

    def __init__(self, engine: BeatEngine) -> None:
        self._engine = engine

    @property
    def number(self) -> int:
        """1 for the first beat of the run."""
        return self._engine.number

    @property
    def step(self) -> str:
        """The name of the plan's step, or `beat N` in a run without a plan."""
        return self._engine.step

    @property
    def closed(self) -> bool:
        """Whether the beat is done, or was left: nothing can be added to it."""
        return self._engine.closed

    # fmt: off
    @overload
    def decide(self, name: str, fn: Decider[AsText], /, *args: Any, lazy: bool = False, **kwargs: Any) -> Any: ...
    @overload
    def decide(self, name: str, fn: Decider[P], /, *args: Any, lazy: bool = False, **kwargs: Any) -> P: ...
    @overload
    def decide(self, name: str, fn: Decider[Few[S]], /, *args: Any, lazy: bool = False, **kwargs: Any) -> list[S]: ...
    @overload
    def decide(self, name: str, fn: Decider[AsList], /, *args: Any, lazy: bool = False, **kwargs: Any) -> list[Any]: ...
    @overload
    def decide(self, name: str, fn: Decider[AsDict], /, *args: Any, lazy: bool = False, **kwargs: Any) -> dict[str, Any]: ...
    @overload
    def decide(self, name: str, fn: Decider[Mixed], /, *args: Any, lazy: bool = False, **kwargs: Any) -> Any: ...
    # fmt: on
    def decide(
        self, name: str, fn: Callable[..., Any], /, *args: Any, lazy: bool = False, **kwargs: Any
    ) -> Any:
        """The recorded answer of this name, or ask `fn` once and record it, durable when this returns.

        Arguments are not compared on replay. With `lazy=True` the answer rides on the next commit instead of making
        one. `fn` may return `outlast.Answer(value, usage)`. The value returned is plain data, replayed or not.
        """
        return self._engine.decide(name, fn, *args, lazy=lazy, **kwargs)

    # fmt: off
    @overload
    def act(self, name: str, fn: Actor[P], /, *args: Any, unknown: GiveUp, key: str | None = None, probe: Look = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> P | None: ...
    @overload
    def act(self, name: str, fn: Actor[AsList], /, *args: Any, unknown: GiveUp, key: str | None = None, probe: Look = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> list[Any] | None: ...
    @overload
    def act(self, name: str, fn: Actor[AsDict], /, *args: Any, unknown: GiveUp, key: str | None = None, probe: Look = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> dict[str, Any] | None: ...
    @overload
    def act(self, name: str, fn: Actor[Mixed], /, *args: Any, unknown: GiveUp, key: str | None = None, probe: Look = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Any: ...
    @overload
    def act(self, name: str, fn: Actor[AsText], /, *args: Any, unknown: Settled = None, key: str | None = None, probe: Look = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Any: ...
    @overload
    def act(self, name: str, fn: Actor[P], /, *args: Any, unknown: Settled = None, key: str | None = None, probe: Look = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> P: ...
    @overload
    def act(self, name: str, fn: Actor[Few[S]], /, *args: Any, unknown: Settled = None, key: str | None = None, probe: Look = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> list[S]: ...
    @overload
    def act(self, name: str, fn: Actor[AsList], /, *args: Any, unknown: Settled = None, key: str | None = None, probe: Look = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> list[Any]: ...
    @overload
    def act(self, name: str, fn: Actor[AsDict], /, *args: Any, unknown: Settled = None, key: str | None = None, probe: Look = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> dict[str, Any]: ...
    @overload
    def act(self, name: str, fn: Actor[Mixed], /, *args: Any, unknown: Settled = None, key: str | None = None, probe: Look = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Any: ...
    # fmt: on
    def act(
        self, name: str, fn: Callable[..., Any], /, *args: Any, unknown: str | None = None, key: str | None = None,
        probe: Look = None, retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Perform an effect once: intent, act, outcome, each durable before the next.

        A repeated beat gets the recorded outcome; one in doubt is settled by its policy: `reissue` (default for a
        function with an `idempotency_key` parameter), `probe`, `ask`, or `give_up`, which returns None. Where somebody
        else settled the effect, its outcome is what they gave. Raises EffectFailed, EffectInDoubt, ReplayMismatch.

        With `approve=True` a person approves this one call first, and `approve="8h"` says how long that may take. Until then
        it raises WaitsForPerson, which parks the run; NotApproved if the person says no, or nobody answers in time.
        """
        return self._engine.act(
            name,
            fn,
            *args,
            key=key,
            probe=probe,
            unknown=unknown,
            retry=retry,
            timeout_s=timeout_s,
            approve=approve,
            **kwargs,
        )

    def ask(self, text: str, choices: Sequence[str] = (), *, within: str = "") -> str:
        """A person's answer to a question, recorded and replayed; one of the `choices` if there are any.

        Until somebody answers it raises WaitsForPerson, which parks the run. Raises NotAnswered if the person refuses, or
        nobody answers `within` a time like "8h" (default: no limit).
        """
        return self._engine.ask(text, choices, within=within)

    def done(self, result: object = None, *, evidence: object = None) -> None:
        """End the beat: everything in it takes hold in one event, durable when this returns."""
        return self._engine.done(result, evidence=evidence)

    def extend(self, steps: PlanSteps, *, where: Literal["end", "next"] = "end") -> None:
        """Stage more steps: at the plan's `end`, or `next`, right after this one. Takes hold with `done`."""
        return self._engine.extend(steps, where=where)

    def remember(self, name: str, uri: str, *, digest: str = "") -> None:
        """Stage a pointer to what the agent wants back; a `file:` is digested now. Takes hold with `done`."""
        return self._engine.remember(name, uri, digest=digest)

    def spend(self, usage: Usage | Mapping[str, int] | int | None = None, **fields: int) -> None:
        """Stage what the beat cost, where no decision carries it. Takes hold with `done`."""
        return self._engine.spend(usage, **fields)

    def stage(self, name: str) -> None:
        """Stage the user's own word for how far the work is. Takes hold with `done`."""
        return self._engine.stage(name)

    def finish(self, result: object = None) -> None:
        """Stage the end of the run: no beat follows this one. Takes hold with `done`."""
        return self._engine.finish(result)

    def run(
        self, task: str, *, goal: str | None = None, done: Sequence[str] | str | None = None,
        invariants: Sequence[str] | str | None = None,
    ) -> "Run":  # fmt: skip
        """A child run of this beat: found again when the beat is repeated, fenced by the root's lease."""
        from outlast.runs.opening.entry import child

        return child(self._engine, task, goal=goal, done=done, invariants=invariants)


class AsyncBeat:
    """One turn of the loop in an async run: as `Beat`, with `decide`, `act`, `ask` and `done` awaited.

    `extend`, `remember`, `spend`, `stage` and `finish` only stage: they take effect with `done`, awaited or not.
    """

    __slots__ = ("_engine",)

    def __init__(self, engine: BeatEngine) -> None:
        self._engine = engine

    @property
    def number(self) -> int:
        """1 for the first beat of the run."""
        return self._engine.number

    @property
    def step(self) -> str:
        """The name of the plan's step, or `beat N` in a run without a plan."""
        return self._engine.step

    @property
    def closed(self) -> bool:
        """Whether the beat is done, or was left: nothing can be added to it."""
        return self._engine.closed

    # fmt: off
    @overload
    def decide(self, name: str, fn: AsyncDecider[AsText], /, *args: Any, lazy: bool = False, **kwargs: Any) -> Coroutine[Any, Any, Any]: ...
    @overload
    def decide(self, name: str, fn: AsyncDecider[P], /, *args: Any, lazy: bool = False, **kwargs: Any) -> Coroutine[Any, Any, P]: ...
    @overload
    def decide(self, name: str, fn: AsyncDecider[Few[S]], /, *args: Any, lazy: bool = False, **kwargs: Any) -> Coroutine[Any, Any, list[S]]: ...
    @overload
    def decide(self, name: str, fn: AsyncDecider[AsList], /, *args: Any, lazy: bool = False, **kwargs: Any) -> Coroutine[Any, Any, list[Any]]: ...
    @overload
    def decide(self, name: str, fn: AsyncDecider[AsDict], /, *args: Any, lazy: bool = False, **kwargs: Any) -> Coroutine[Any, Any, dict[str, Any]]: ...
    @overload
    def decide(self, name: str, fn: AsyncDecider[Mixed], /, *args: Any, lazy: bool = False, **kwargs: Any) -> Coroutine[Any, Any, Any]: ...
    # fmt: on
    def decide(
        self, name: str, fn: Callable[..., Any], /, *args: Any, lazy: bool = False, **kwargs: Any
    ) -> Any:
        """As `Beat.decide`, awaited; `fn` may be async."""
        return self._engine.decide(name, fn, *args, lazy=lazy, **kwargs)

    # fmt: off
    @overload
    def act(self, name: str, fn: AsyncActor[P], /, *args: Any, unknown: GiveUp, key: str | None = None, probe: AsyncLook = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Coroutine[Any, Any, P | None]: ...
    @overload
    def act(self, name: str, fn: AsyncActor[AsList], /, *args: Any, unknown: GiveUp, key: str | None = None, probe: AsyncLook = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Coroutine[Any, Any, list[Any] | None]: ...
    @overload
    def act(self, name: str, fn: AsyncActor[AsDict], /, *args: Any, unknown: GiveUp, key: str | None = None, probe: AsyncLook = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Coroutine[Any, Any, dict[str, Any] | None]: ...
    @overload
    def act(self, name: str, fn: AsyncActor[Mixed], /, *args: Any, unknown: GiveUp, key: str | None = None, probe: AsyncLook = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Coroutine[Any, Any, Any]: ...
    @overload
    def act(self, name: str, fn: AsyncActor[AsText], /, *args: Any, unknown: Settled = None, key: str | None = None, probe: AsyncLook = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Coroutine[Any, Any, Any]: ...
    @overload
    def act(self, name: str, fn: AsyncActor[P], /, *args: Any, unknown: Settled = None, key: str | None = None, probe: AsyncLook = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Coroutine[Any, Any, P]: ...
    @overload
    def act(self, name: str, fn: AsyncActor[Few[S]], /, *args: Any, unknown: Settled = None, key: str | None = None, probe: AsyncLook = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Coroutine[Any, Any, list[S]]: ...
    @overload
    def act(self, name: str, fn: AsyncActor[AsList], /, *args: Any, unknown: Settled = None, key: str | None = None, probe: AsyncLook = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Coroutine[Any, Any, list[Any]]: ...
    @overload
    def act(self, name: str, fn: AsyncActor[AsDict], /, *args: Any, unknown: Settled = None, key: str | None = None, probe: AsyncLook = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Coroutine[Any, Any, dict[str, Any]]: ...
    @overload
    def act(self, name: str, fn: AsyncActor[Mixed], /, *args: Any, unknown: Settled = None, key: str | None = None, probe: AsyncLook = None,
            retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any) -> Coroutine[Any, Any, Any]: ...
    # fmt: on
    def act(
        self, name: str, fn: Callable[..., Any], /, *args: Any, unknown: str | None = None, key: str | None = None,
        probe: AsyncLook = None, retry: int = 0, timeout_s: float | None = None, approve: bool | str = False, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """As `Beat.act`, awaited; `fn` and the probe may be async."""
        return self._engine.act(
            name,
            fn,
            *args,
            key=key,
            probe=probe,
            unknown=unknown,
            retry=retry,
            timeout_s=timeout_s,
            approve=approve,
            **kwargs,
        )

    def ask(self, text: str, choices: Sequence[str] = (), *, within: str = "") -> Coroutine[Any, Any, str]:
        """As `Beat.ask`, awaited."""
        return self._engine.ask(text, choices, within=within)

    def done(self, result: object = None, *, evidence: object = None) -> Coroutine[Any, Any, None]:
        """As `Beat.done`: durable once it was awaited."""
        return self._engine.done(result, evidence=evidence)

    def extend(self, steps: PlanSteps, *, where: Literal["end", "next"] = "end") -> Awaitable[None]:
        """As `Beat.extend`."""
        return self._engine.extend(steps, where=where)

    def remember(self, name: str, uri: str, *, digest: str = "") -> Awaitable[None]:
        """As `Beat.remember`."""
        return self._engine.remember(name, uri, digest=digest)

    def spend(self, usage: Usage | Mapping[str, int] | int | None = None, **fields: int) -> Awaitable[None]:
        """As `Beat.spend`."""
        return self._engine.spend(usage, **fields)

    def stage(self, name: str) -> Awaitable[None]:
        """As `Beat.stage`."""
        return self._engine.stage(name)

    def finish(self, result: object = None) -> Awaitable[None]:
        """As `Beat.finish`."""
        return self._engine.finish(result)

    def run(
        self, task: str, *, goal: str | None = None, done: Sequence[str] | str | None = None,
        invariants: Sequence[str] | str | None = None,
    ) -> "AsyncRun":  # fmt: skip
        """As `Beat.run`."""
        from outlast.runs.opening.entry import async_child

        return async_child(self._engine, task, goal=goal, done=done, invariants=invariants)


def beat_engine(beat: Beat | AsyncBeat) -> BeatEngine:
    """The engine behind a beat."""
    return beat._engine
