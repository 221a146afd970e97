"""Every error a user of outlast can meet, each with the next command to type.

OutlastError
├── UsageError            bad input: unknown or ambiguous run, invalid settings
│   ├── UnknownRun
│   ├── AmbiguousRun
│   ├── BadSetting
│   └── NotEncodable
├── RunRefused            this run cannot be started or commanded like that now
│   ├── RunHeld
│   ├── ContractChanged
│   └── NestedRun
├── StoreError
│   ├── LeaseLost
│   ├── AppendUnknown
│   ├── StoreBusy
│   ├── StoreCorrupt
│   ├── StoreTooNew
│   ├── StoreRefused
│   ├── StoreGone
│   ├── StoreRewound
│   ├── StoreUnreachable
│   └── RunExists
├── SaveError             the files of a workspace cannot be saved or read back
│   ├── SaveFailed
│   ├── SaveDamaged
│   ├── WorkspaceRefused
│   └── WorkspaceMoved
├── BeatError             the program broke a rule of the open beat
│   ├── BeatClosed
│   ├── BeatNotDone
│   ├── ReplayMismatch
│   ├── UnreachedEffect
│   ├── AmbiguousOccurrence
│   └── MemoryFull
├── EffectError
│   ├── DidNotHappen      raised by an act, or returned by a probe
│   ├── EffectFailed
│   ├── EffectInDoubt
│   └── NotApproved       a person rejected the act, or nobody approved it in time
├── NotAnswered           a person refused to answer a question, or nobody answered it in time
├── ContractError
│   ├── ChecksFailed
│   └── InvariantFailed
└── Stopped               the run ends here on purpose and can go on later
    ├── RunPaused
    ├── RunCancelled
    ├── RunHandedOff
    ├── RunKilled
    ├── BudgetReached
    ├── WaitsForPerson    a person must approve or answer something first
    ├── QuotaReached      raised by a program that met a usage limit of its provider
    ├── DiskFull
    └── AgentStopped      a supervised command ended or was stopped, and why
"""

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


# It is on no package index: this works in the checkout that it was installed from.
UPGRADE = "upgrade outlast: in its checkout `git pull && pipx install --force .`"


class OutlastError(Exception):
    """Base of all our errors. `hint` is the next thing to type; `exit_code` is what the command line returns."""

    exit_code = 2
    _hint = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    @property
    def hint(self) -> str:
        """The next thing to type. It is also a note on the error, so the traceback of an uncaught error shows it."""
        return self._hint

    @hint.setter
    def hint(self, hint: str) -> None:
        if self._hint:
            self.__notes__ = [note for note in getattr(self, "__notes__", ()) if note != _note(self._hint)]
        self._hint = hint
        if hint:
            self.add_note(_note(hint))


def _note(hint: str) -> str:
    return f"hint: {hint}"


class UsageError(OutlastError):
    """The input is invalid or names something that does not exist; nothing was changed."""


class UnknownRun(UsageError):
    """No run has this id, prefix or task."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no such run: {name}", hint="`outlast ls --all` lists all runs")


class AmbiguousRun(UsageError):
    """The name means more than one run, or may mean one that exists or a new one; the message lists them."""

    def __init__(self, name: str, candidates: list[str], *, hint: str = "give the run id") -> None:
        shown = ", ".join(candidates[:8])
        super().__init__(f"{name!r} means {len(candidates)} runs: {shown}", hint=hint)


class BadSetting(UsageError):
    """A setting has an invalid value."""


class NotEncodable(UsageError):
    """An argument or result cannot be written as JSON."""


class RunRefused(OutlastError):
    """The status of the run does not allow this command."""


class RunHeld(RunRefused):
    """A live attempt works on the run."""

    def __init__(self, name: str, *, pid: int, host: str, since: str, why: str = "") -> None:
        super().__init__(
            f"run {name} is held by pid {pid} on {host} since {since}{why}",
            hint=f"wait for it, or ask it to stop with `outlast pause {name}`",
        )
        self.name = name
        self.pid = pid
        self.host = host


class ContractChanged(RunRefused):
    """Goal, checks, invariants or budget differ from those frozen at the first start."""


class NestedRun(RunRefused):
    """`outlast.run` was called inside an open beat."""


class StoreError(OutlastError):
    """The journal cannot be read or written."""

    exit_code = 3


class LeaseLost(StoreError):
    """Another attempt owns the run. Stop at once: do not retry, do not write."""

    def __init__(self, run: str, *, held: int, current: int) -> None:
        if held == current:
            super().__init__(
                f"run {run} cannot be written any more in epoch {held}: its block has ended, or two event loops wrote to it",
                hint="use a run inside its `with` block and in one event loop, then start it again",
            )
            return
        super().__init__(
            f"lost the lease on run {run}: held epoch {held}, store is at {current}",
            hint=f"another attempt resumed it; see `outlast show {run}`",
        )


class AppendUnknown(StoreError):
    """A write failed and may or may not be there after recovery. Write nothing more, act no more."""


class StoreBusy(StoreError):
    """Another process kept the store locked for too long; nothing was written."""


class StoreCorrupt(StoreError):
    """The file is not a whole outlast store. It was not changed."""

    exit_code = 2


class StoreTooNew(StoreError):
    """The store was written by a newer outlast. It was not changed."""

    exit_code = 2


class StoreRefused(StoreError):
    """The store cannot live there: a network file system, or a place we may not write."""

    exit_code = 2


class StoreGone(StoreError):
    """The store was deleted or replaced while this process used it. What it wrote since is lost: write no more."""

    def __init__(self, path: object) -> None:
        super().__init__(
            f"the store {path} was deleted or replaced while this process had it open; what it wrote since is lost",
            hint="find out who removed it and restore it from a backup; see `outlast doctor`",
        )


class StoreRewound(StoreError):
    """The journal has lost committed events: a deleted WAL or a restored backup."""


class StoreUnreachable(StoreError):
    """The server of the store does not let us in or does not answer. Nothing is known to be lost."""

    exit_code = 2


class RunExists(StoreError):
    """The store already holds a run with this id."""

    exit_code = 2


class SaveError(OutlastError):
    """The files of a workspace cannot be saved or read back."""

    exit_code = 3


class SaveFailed(SaveError):
    """No save was made: a disk, a permission or a lock prevents it. Earlier saves and the files are unchanged."""

    def __init__(
        self, message: str, *, hint: str = "correct it and save again; see `outlast doctor`"
    ) -> None:
        super().__init__(message, hint=hint)


class SaveDamaged(SaveError):
    """An object or a ref of a save is missing or is not what its name says. Nothing was changed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"a save is damaged: {what}", hint="see `git fsck`, and use an older save")


class WorkspaceRefused(SaveError):
    """outlast does not save or restore this folder: too large, missing, or not the folder of the save."""

    exit_code = 2


class WorkspaceMoved(SaveError):
    """A person moved HEAD since the last save, or a branch has new commits: a person must decide."""


class BeatError(OutlastError):
    """The program broke a rule of the open beat; the beat stays open and can be repeated."""


class BeatClosed(BeatError):
    """The beat is done or its attempt has ended; nothing can be added to it."""


class BeatNotDone(BeatError):
    """The body of the loop ended without `beat.done()`."""


class ReplayMismatch(BeatError):
    """The same act was called with other arguments than those recorded; nothing was performed."""


class UnreachedEffect(BeatError):
    """`beat.done()` was called while an effect of the beat is open or in doubt."""


class AmbiguousOccurrence(BeatError):
    """Two calls of one name run at once, so their order cannot identify them; give each a `key=`."""


class MemoryFull(BeatError):
    """A run keeps at most 256 memory refs, and they must be small."""


class EffectError(OutlastError):
    """An act on the outside world failed or is in doubt."""

    exit_code = 3


class DidNotHappen(EffectError):
    """Raise it in an act, or return it from a probe, to say for certain that nothing happened outside."""

    def __init__(self, message: str = "it did not happen") -> None:
        super().__init__(message)


class EffectFailed(EffectError):
    """The act said for certain that it did not happen, and its retries are used up."""


class EffectInDoubt(EffectError):
    """Nobody knows whether the act happened, and its policy is to ask. It is not repeated."""


class NotApproved(EffectError):
    """A person rejected the act, or nobody approved it in time. It was not performed. `reason` and `by` say why and who."""

    def __init__(self, message: str, *, reason: str, by: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason, self.by = reason, by


class NotAnswered(OutlastError):
    """A person refused to answer a question, or nobody answered it in time. `reason` and `by` say why and who."""

    exit_code = 1

    def __init__(self, message: str, *, reason: str, by: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason, self.by = reason, by


class ContractError(OutlastError):
    """A check or an invariant of the contract failed."""

    exit_code = 1


class ChecksFailed(ContractError):
    """A check of the contract failed, so the run is not done."""


class InvariantFailed(ContractError):
    """An invariant of the contract failed at a beat's end, so the beat is not done."""


class Stopped(OutlastError):
    """The run stops here on purpose, its work recorded; a later start goes on."""

    exit_code = 3


class RunPaused(Stopped):
    """A person paused the run."""


class RunCancelled(Stopped):
    """A person cancelled the run."""


class RunHandedOff(Stopped):
    """The run was sealed so that another place can take it over."""


class RunKilled(Stopped):
    """A person stopped the attempt with `outlast kill`; `outlast resume` goes on."""


class BudgetReached(Stopped):
    """The budget is spent."""

    exit_code = 4


class WaitsForPerson(Stopped):
    """A person must approve or answer something before the run goes on: it is saved and parked, and costs nothing.

    `questions` are the ids of what is open. Let it end the program; the next start after the answer goes on.
    """

    def __init__(self, message: str, *, questions: tuple[str, ...], what: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.questions, self.what = questions, what or message


class QuotaReached(Stopped):
    """Raise it in a run that met a usage limit of its provider: the run is saved and parked.

    `reset_at` is when it may go on, if known; `account` names whose limit it is (not a secret).
    """

    exit_code = 5

    def __init__(
        self, message: str = "a usage limit was reached", *, reset_at: "datetime | None" = None, account: str = ""
    ) -> None:  # fmt: skip
        super().__init__(
            message, hint="start the program again when the limit is over; `outlast show` says when"
        )
        self.reset_at, self.account = reset_at, account


class DiskFull(Stopped):
    """The disk is full; what was done is recorded, nothing new is begun."""

    @classmethod
    def of(cls, error: OSError) -> "DiskFull | None":
        """The error for a write that found no room; None for any other."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return None
        where = f" under {error.filename}" if isinstance(error.filename, str) else ""
        return cls(f"the disk{where} is full", hint="make room, then start again")


class AgentStopped(Stopped):
    """A supervised command ended or was stopped. `cause` is one of the known causes; the message is the evidence."""

    def __init__(
        self, evidence: str, *, cause: str, status: str = "interrupted", wanted: bool = False,
        exit_code: int | None = None, progress: bool = False, reset_at: "datetime | None" = None,
    ) -> None:  # fmt: skip
        super().__init__(evidence)
        self.reset_at = reset_at  # when the limit is over, if known
        self.cause, self.status, self.wanted = cause, status, wanted
        self.agent_exit_code, self.progress = exit_code, progress
