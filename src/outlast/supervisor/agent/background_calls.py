"""Calls that returned while what they do outside goes on in the background: without an outcome until its end is told.

Such a call is over for its beat. Killed or left meanwhile, it is in doubt, and the agent is told so when it goes on.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from outlast.agents import Cut, TaskEnd, ToolEnd
from outlast.core import events as ev
from outlast.core.state import OpenEffect
from outlast.core.values import NULL, clip
from outlast.runs.engine.run import RunEngine
from outlast.supervisor.agent.calls import REASON_BYTES_MAX, Calls, _Open
from outlast.supervisor.agent.repeated_calls import told_of


class TaskCalls(Calls):
    """The calls of an agent, some of which run on in the background."""

    def __init__(self, *terms: Any, **more: Any) -> None:
        super().__init__(*terms, **more)
        self._running: dict[str, _Open] = {}  # by the call
        self._call_of: dict[str, str] = {}  # by what the agent calls the task

    def outcome(self, end: ToolEnd) -> None:
        """As of any call; one that reaches outside and runs on has none yet."""
        with self._lock:
            opened = self._open.get(end.id)
            if opened is None or not opened.is_outward or not (end.task or opened.live):
                super().outcome(end)
                return
            self._running[end.id] = msgspec.structs.replace(self._open.pop(end.id), returned=end)
            if end.task:
                self._call_of[end.task] = end.id

    def not_done(self, call: str, reason: str) -> None:
        """A call on record that was not let through after all. One that is not open changes nothing."""
        with self._lock:
            opened = self._open.pop(call, None)
            if opened is not None:
                at, error = self._run.journal.now(), f"not done: {clip(reason, REASON_BYTES_MAX)}"
                self._append(ev.EffectFailed(at=at, beat=opened.beat, n=opened.n, error=error))

    def task_ended(self, end: TaskEnd) -> None:
        """What ran on has ended: that is what came of its call. One that is not known changes nothing."""
        with self._lock:
            call = self._call_of.pop(end.task, "")
            opened = self._running.pop(call, None)
            if opened is not None:
                self._open[call] = opened
                super().outcome(ToolEnd(call, end.ok, end.output, opened.lane))

    def covers(self, signatures: Iterable[str]) -> str:
        """Also a program below one that runs on belongs to that."""
        wanted = tuple(signatures)
        with self._lock:
            found = super().covers(wanted)
            if found or not self._running:
                return found
            with self._as_open():
                return super().covers(wanted)

    def shimmed(self, call: str, code: int, *, sure: bool) -> None:
        with self._lock:
            if call not in self._running:
                super().shimmed(call, code, sure=sure)
                return
            with self._as_open():
                super().shimmed(call, code, sure=sure)
            self._may_be_over(call)

    def shim_gone(self, call: str) -> None:
        with self._lock:
            if call not in self._running:
                super().shim_gone(call)
                return
            with self._as_open():
                super().shim_gone(call)
            self._may_be_over(call)

    def _may_be_over(self, call: str) -> None:
        """When the last program has ended that a call left running, what the agent was told of it is its result."""
        opened = self._running[call]
        if opened.live or opened.returned is None or call in self._call_of.values():
            return
        self._open[call] = self._running.pop(call)
        super().outcome(opened.returned)

    def _settle_open(self) -> None:
        """The agent ended, and with it what it left running, wherever that was."""
        known = {(effect.beat, effect.n) for effect in self._run.state.effects_open}
        self._open |= {
            call: opened for call, opened in self._running.items() if (opened.beat, opened.n) in known
        }
        self._running.clear()
        super()._settle_open()

    @contextlib.contextmanager
    def _as_open(self) -> Iterator[None]:
        """Those that run on in the place of those under way."""
        under_way, self._open = self._open, self._running
        try:
            yield
        finally:
            self._running, self._open = self._open, under_way


def left(run: RunEngine) -> list[OpenEffect]:
    """Those that ran on when the last attempt ended: no other call is open in a beat that is done."""
    return [
        effect
        for effect in run.state.effects_open
        if effect.policy == "tell" and effect.state == "intended" and effect.beat <= run.state.beats
    ]


def cuts(run: RunEngine, were_left: Iterable[OpenEffect], settle: str) -> list[Cut]:
    """What the agent has to be told of them, where nothing was found out."""
    still = {effect.id for effect in run.state.in_doubt}
    found = []
    for effect in were_left:
        intent = next(
            (
                item.event
                for item in run.journal.store.read(run.id, after=0, key=effect.key).events
                if isinstance(item.event, ev.EffectIntended)
            ),
            None,
        )
        told = told_of(run.journal, intent) if intent is not None else None
        if told is not None and effect.id in still:
            text = (
                f"outlast: {told.name} ran in the background and was cut off; it is not known whether it happened. Do not repeat "
                f"it before you have looked. Then say what you found: `{settle} {effect.id} --happened` or `--did-not`."
            )
            found.append(Cut(told.call or effect.key, told.tool, NULL, text, told.lane))
    return found
