"""outlast makes autonomous coding agents killable: the same run goes on, and no outside act happens twice.

`outlast.run` opens or resumes a run; `outlast.drive` runs an agent object. Names are imported when first used."""

from typing import TYPE_CHECKING

from outlast._version import __version__

if TYPE_CHECKING:
    from outlast.core.budget import Left
    from outlast.core.values import Allowance, Answer, Usage
    from outlast.errors import (
        AmbiguousOccurrence,
        AmbiguousRun,
        AppendUnknown,
        BadSetting,
        BeatClosed,
        BeatError,
        BeatNotDone,
        BudgetReached,
        ChecksFailed,
        ContractChanged,
        ContractError,
        DidNotHappen,
        DiskFull,
        EffectError,
        EffectFailed,
        EffectInDoubt,
        InvariantFailed,
        LeaseLost,
        MemoryFull,
        NestedRun,
        NotAnswered,
        NotApproved,
        NotEncodable,
        OutlastError,
        QuotaReached,
        ReplayMismatch,
        RunCancelled,
        RunExists,
        RunHandedOff,
        RunHeld,
        RunPaused,
        RunRefused,
        SaveDamaged,
        SaveError,
        SaveFailed,
        Stopped,
        StoreBusy,
        StoreCorrupt,
        StoreError,
        StoreGone,
        StoreRefused,
        StoreRewound,
        StoreTooNew,
        StoreUnreachable,
        UnknownRun,
        UnreachedEffect,
        UsageError,
        WaitsForPerson,
        WorkspaceMoved,
        WorkspaceRefused,
    )
    from outlast.probes import CannotTell, Happened, Probe
    from outlast.runs.beat import AsyncBeat, Beat
    from outlast.runs.loop import Agent, AsyncAgent, drive
    from outlast.runs.opening.entry import run
    from outlast.runs.run import AsyncRun, Run

__all__ = [
    "Agent",
    "Allowance",
    "AmbiguousOccurrence",
    "AmbiguousRun",
    "Answer",
    "AppendUnknown",
    "AsyncAgent",
    "AsyncBeat",
    "AsyncRun",
    "BadSetting",
    "Beat",
    "BeatClosed",
    "BeatError",
    "BeatNotDone",
    "BudgetReached",
    "CannotTell",
    "ChecksFailed",
    "ContractChanged",
    "ContractError",
    "DidNotHappen",
    "DiskFull",
    "EffectError",
    "EffectFailed",
    "EffectInDoubt",
    "Happened",
    "InvariantFailed",
    "LeaseLost",
    "Left",
    "MemoryFull",
    "NestedRun",
    "NotAnswered",
    "NotApproved",
    "NotEncodable",
    "OutlastError",
    "Probe",
    "QuotaReached",
    "ReplayMismatch",
    "Run",
    "RunCancelled",
    "RunExists",
    "RunHandedOff",
    "RunHeld",
    "RunPaused",
    "RunRefused",
    "SaveDamaged",
    "SaveError",
    "SaveFailed",
    "Stopped",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreGone",
    "StoreRefused",
    "StoreRewound",
    "StoreTooNew",
    "StoreUnreachable",
    "UnknownRun",
    "UnreachedEffect",
    "Usage",
    "UsageError",
    "WaitsForPerson",
    "WorkspaceMoved",
    "WorkspaceRefused",
    "__version__",
    "drive",
    "run",
]


_HOMES = {
    "Agent": "runs.loop",
    "Allowance": "core.values",
    "Answer": "core.values",
    "AsyncAgent": "runs.loop",
    "AsyncBeat": "runs.beat",
    "AsyncRun": "runs.run",
    "Beat": "runs.beat",
    "CannotTell": "probes",
    "Happened": "probes",
    "Left": "core.budget",
    "Probe": "probes",
    "Run": "runs.run",
    "Usage": "core.values",
    "drive": "runs.loop",
    "run": "runs.opening.entry",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module; a name without a listed module is an error class."""
    if name not in __all__:
        raise AttributeError(f"module 'outlast' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"outlast.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
