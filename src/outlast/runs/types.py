"""The types of arguments and results. A result always has the type that JSON gives back, the first time too.

docs/types.md lists each type and what it becomes."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar
from uuid import UUID

from outlast.core.plan import Step
from outlast.core.values import Allowance, Answer
from outlast.probes import Finding, Probe

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


class PlainList(Protocol[V_co]):
    """A list, and no text or tuple. Covariant, so that a list of ints is a list of plain values too."""

    def __iter__(self) -> Iterator[V_co]: ...
    def reverse(self) -> None: ...


class PlainDict(Protocol[V_co]):
    """A dict with texts as keys, covariant too."""

    def __iter__(self) -> Iterator[str]: ...
    def popitem(self) -> tuple[str, V_co]: ...


class Dataclass(Protocol):
    """An instance of any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Struct(Protocol):
    """An instance of any `msgspec.Struct`."""

    __struct_fields__: ClassVar[tuple[str, ...]]


Scalar: TypeAlias = bool | int | float | str | None
Plain: TypeAlias = "Scalar | PlainList[Plain] | PlainDict[Plain]"
AsText: TypeAlias = Enum | bytes | bytearray | date | time | timedelta | Decimal | UUID
AsList: TypeAlias = Sequence[Any] | Set[Any]
AsDict: TypeAlias = Dataclass | Mapping[Any, Any]
# What is left: unions of these. Without dicts and lists, or those of Any would match two overloads and be Any.
Mixed: TypeAlias = Scalar | AsText | Dataclass | Struct | tuple[Any, ...] | Set[Any]

P = TypeVar("P", bound=Plain)
S = TypeVar("S", bound=Scalar)
Few: TypeAlias = tuple[S, ...] | Set[S]

# What `decide` calls, and `act`; and both in an async run, where they may be async.
Decider: TypeAlias = Callable[..., V | Answer[V]]
Actor: TypeAlias = Callable[..., V]
AsyncDecider: TypeAlias = Callable[..., V | Answer[V] | Awaitable[V | Answer[V]]]
AsyncActor: TypeAlias = Callable[..., V | Awaitable[V]]

Settled: TypeAlias = Literal["reissue", "probe", "ask"] | None  # policies after which an act has an outcome
GiveUp: TypeAlias = Literal["give_up"]  # and the one after which it may have none
Look: TypeAlias = Callable[..., Finding] | Probe | None
AsyncLook: TypeAlias = Callable[..., Finding | Awaitable[Finding]] | Probe | None

PlanStep: TypeAlias = str | Step | tuple[str, Any] | PlainList[Any] | Mapping[str, Any]
PlanSteps: TypeAlias = PlainList[PlanStep] | tuple[PlanStep, ...] | Mapping[str, Any]
BudgetLike: TypeAlias = str | int | Allowance | Mapping[str, int | str] | Iterable[str | int] | None
