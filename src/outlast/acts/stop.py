"""Pause, cancel, hand off, take back: what stops a run, or seals it. To kill is `supervisor.control.kill`."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from outlast.acts.plan import WRITES, ActName, ActOutcome, about_child, name, next_act, root_of, stands
from outlast.core.state import Status
from outlast.errors import OutlastError
from outlast.operations import requests
from outlast.runs.timing import Timing as RunTiming
from outlast.store.protocol import Store, Summary
from outlast.supervisor.guardian import lock
from outlast.supervisor.launch import last_launch

Stop = Literal["pause", "cancel", "handoff", "take_back"]
Kind = Literal["program", "agent", "command"]

_WORD: dict[Stop, str] = {
    "pause": "paused", "cancel": "cancelled", "handoff": "handed off", "take_back": "taken back",
}  # fmt: skip

# When a pause takes hold: an agent that is known rests between two calls, a program between two beats or acts, and of any
# other command nobody knows what it is doing.
_PAUSED: dict[Kind, tuple[str, ...]] = {
    "program": (
        "The program is asked to stop at its next beat or act; until then it works on. It keeps its files.",
    ),
    "agent": (
        "The agent is stopped after the call under way. It keeps its files, and goes on in its session later.",
    ),
    "command": (
        "Its command is stopped at once, in the middle of what it does: only a recorded act under way comes to its end."
        " Its files are saved first, and stay.",
        "When you resume it, the command is started again from its beginning; steps on record are not done again.",
    ),
}
_PAUSED_HOW: dict[Kind, str] = {
    "program": "the running process applies it at its next beat or act",
    "agent": "its supervisor stops the agent after the call under way",
    "command": "its supervisor saves its files and stops the command, in a moment",
}


@dataclass(frozen=True, slots=True)
class StopPlan:
    """A stop worked out."""

    store: Store
    root: Summary
    act: Stop
    sentences: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The words that do the same."""
        if self.act == "take_back":
            return ("handoff", self.root.run, "--take-back")
        return (self.act, self.root.run)

    def apply(self, by: str = "") -> ActOutcome:
        """Stop it, or ask its holder to. What is so already is not changed."""
        root = self.root
        with requests.alone(self.store, root.run, WRITES):
            outcome = requests.ask(self.store, root.run, self.act, self.act, by=by)
        then, hint = _afterwards(self.store, self.act, root.run)
        if outcome.in_inbox:
            how = stopped_how(self.store, root, self.act)
            already = "" if outcome.changed else "already "
            says = f"{name(root)} is {already}asked to be {_WORD[self.act]}: {how}."
        elif outcome.changed:
            says = f"{name(root)} is {_WORD[self.act]} now."
        else:
            says = f"{name(root)} is {_WORD[self.act]} already."
        return ActOutcome(says=says, changed=outcome.changed, hint=hint, link=root.run, next=then)


def _afterwards(store: Store, act: Stop, run: str) -> tuple[ActName | None, str]:
    if act == "pause":
        then, hint = next_act(store, run)
        return (
            (then, hint) if hint else ("resume", f"`outlast resume {run}` lets it go on")
        )  # once it has stopped
    if act == "handoff":
        return None, f"`outlast handoff {run} --take-back` undoes that"
    return None, ""


def plan(store: Store, summary: Summary, act: Stop) -> StopPlan:
    """Work out what stopping a run would do. Raises RunRefused where its status does not allow it."""
    root, status = root_of(store, summary)
    after = requests.allow(root.state, status, act)
    if after == status and status != "running":
        sentences = [f"{name(root)} is {_WORD[act]} already: nothing changes."]
    elif act == "pause":
        sentences = [*_pause(store, root, status)]
    elif act == "cancel":
        sentences = [*_cancel(store, root, status)]
    else:
        sentences = [*_seal(store, root, status, act)]
    return StopPlan(store, root, act, (*about_child(summary, root), *sentences))


def _pause(store: Store, root: Summary, status: Status) -> Iterator[str]:
    if status == "running":
        yield from _PAUSED[kind_of(store, root)]
        yield _holder(store, root)
    else:
        yield f"{name(root)} is {stands(store, root)}. It does not start again until you resume it."
        yield from _waiting(store, root)


def _cancel(store: Store, root: Summary, status: Status) -> Iterator[str]:
    if status == "running":
        yield (
            f"The {kind_of(store, root)} is asked to stop for good. It has {RunTiming.current().cancel_grace_s:.0f} s for the act under way,"
            " which is in doubt if it takes longer."
        )
        yield _holder(store, root)
    else:
        yield f"{name(root)} is {stands(store, root)}. It is stopped for good and cannot be resumed."
    yield "What it did stays recorded, and its files and saves stay where they are."
    if status != "running":
        yield from _waiting(store, root)
    yield "A new run of the task needs `outlast run --again`."


def _seal(store: Store, root: Summary, status: Status, act: Stop) -> Iterator[str]:
    if act == "take_back":
        yield f"{name(root)} goes on here after all. Make sure that it goes on nowhere else."
        return
    if status == "running":
        yield f"The {kind_of(store, root)} is asked to stop after the act under way."
        yield _holder(store, root)
    yield f"{name(root)} is sealed: it is not started here any more, so that it can go on in another store."
    if status != "running":
        yield from _waiting(store, root)


# -- who works on a run ----------------------------------------------------------------------------------------------


def kind_of(store: Store, root: Summary) -> Kind:
    """The kind of process that works on a run: somebody's own program, a known agent, or any other command."""
    if not root.state.supervised:
        return "program"
    with contextlib.suppress(OutlastError, msgspec.MsgspecError):  # only words depend on it
        launch = last_launch.launch_of(store, root)
        if launch is not None and last_launch.known_agent(launch) is not None:
            return "agent"
    return "command"


def stopped_how(store: Store, root: Summary, act: Stop) -> str:
    """How a living run stops, in words."""
    kind = kind_of(store, root)
    if act == "pause" or kind == "program":
        return _PAUSED_HOW[kind]
    return f"its supervisor saves its files and stops the {kind}, in a moment"


def _holder(store: Store, root: Summary) -> str:
    watcher = lock.of(store.local, root.run)
    if watcher is not None and watcher.supervisor:
        return f"1 supervisor, pid {watcher.supervisor}, stays until then."
    if root.holder is not None:
        return (
            f"Its process, pid {root.holder.pid} on {root.holder.host}, applies it at its next beat or act."
        )
    return "The running process applies it at its next beat or act."


def _waiting(store: Store, root: Summary) -> Iterator[str]:
    watcher = lock.of(store.local, root.run)
    if watcher is not None and watcher.supervisor:
        yield f"Its supervisor, pid {watcher.supervisor}, was waiting to start it again, and no longer will."
