"""Watching a command until it ends, or until something stops it first."""

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, NoReturn

from outlast.processes import proc, spawn
from outlast.runs.engine.run import RunEngine
from outlast.supervisor.attempt import progress
from outlast.supervisor.attempt.command import Place
from outlast.supervisor.attempt.processes import AttemptProcesses, BelowUs
from outlast.supervisor.attempt.stop import Stopper, stopped_by
from outlast.supervisor.budget.enforce import BudgetWatch
from outlast.supervisor.guardian.link import GuardianMessage
from outlast.supervisor.guardian.signals import Signalled, StopSignals
from outlast.supervisor.output.streams import OnTerminal, Streams
from outlast.supervisor.person import Person
from outlast.supervisor.timing import Timing

LEFT_NAMED_MAX = 5  # processes

if TYPE_CHECKING:
    from outlast.supervisor.agent.attempt import AgentAttempt
    from outlast.supervisor.agent.guard import Guard
    from outlast.supervisor.budget.gateway import Gate


class Watch:
    """Checks everything that may end an attempt: at each tick, and at each message of the guardian."""

    def __init__(
        self,
        run: RunEngine,
        place: Place,
        person: Person,
        signals: StopSignals,
        processes: AttemptProcesses,
        stopper: Stopper,
        budget: BudgetWatch,
        agent: "AgentAttempt | None",
        gate: "Gate | None",
        guard: "Guard | None" = None,
        *,
        point: str,
    ) -> None:
        self._run, self._place, self._person = run, place, person
        self._signals, self._processes, self._stopper = signals, processes, stopper
        self._budget, self._agent, self._gate, self._guard = budget, agent, gate, guard
        self._point = point  # the save that the attempt began from
        self._named_idle = False

    def until_ended(self, child: spawn.Child, streams: Streams | OnTerminal) -> int:
        """The command's wait status. Raises AgentStopped, or what could not be recorded, when it is stopped first."""
        while True:
            self._signals.wait(streams.tick_s, child)
            for what in self._signals.others():
                self._pass_on(what, child, streams)
            spawn.reap_orphans(mine=(child.pid,))
            status = child.wait_status(stops=True)
            if status is not None and not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
                return status
            if status is not None and os.WIFSTOPPED(status) and isinstance(streams, OnTerminal):
                streams.suspended()
                self._signals.link.say(GuardianMessage(what="stopped"))
            self._look()

    def let_background_end(self, timing: Timing | None = None) -> None:
        """The command ended well: wait, up to a limit, for processes of its calls that may still reach outside.

        For a guarded command these are all processes that it left. After that outlast stops them, and their calls are in doubt.
        Raises AgentStopped if something stops the attempt first.
        """
        timing = timing or Timing.current()
        ended = self._agent or self._guard
        if ended is None:
            return
        ended.look()  # the end of its last call may be in its transcript alone
        if not (ended.has_left_running() or self._left_by_guarded()):
            return
        self._person.say(f"waiting up to {timing.background_s:.0f} s for what its calls left running")
        until_s = time.monotonic() + timing.background_s
        while (ended.has_left_running() or self._left_by_guarded()) and time.monotonic() < until_s:
            self._signals.wait(timing.background_look_s)
            self._signals.others()
            spawn.reap_orphans()
            self._look()
        if self._guard is not None and (left := self._left_by_guarded()):
            self._guard.note_left([proc.describe(each.pid) for each in left[:LEFT_NAMED_MAX]])

    def _left_by_guarded(self) -> list[proc.Proc]:
        """The processes that a guarded command left running: outlast cannot know what they will do."""
        return list(BelowUs(self._run.id).find()) if self._guard is not None else []

    def _look(self) -> None:
        """Check everything that may end the attempt, the most urgent first."""
        if self._signals.got:
            self._interrupt(self._signals.got[0])
        if self._agent is not None:
            self._agent.look()
            if self._agent.failure is not None:
                self._end(self._agent.failure)
        if self._guard is not None:
            self._guard.look()
        self._stopper.check()
        self._stopper.take_requests(self._agent)
        self._look_at_budget()
        self._name_idleness()

    def _look_at_budget(self) -> None:
        """End the attempt where its time is up, or where the beat in flight costs more than is left."""
        settled = self._gate is not None and self._gate.settle()
        stop = self._budget.beat_ended() if settled else self._budget.tick()
        if stop is not None:
            self._end(stop)

    def _end(self, error: BaseException) -> NoReturn:
        self.note_unseen_cost()
        self._stopper.end_with(error)

    def _interrupt(self, why: Signalled) -> NoReturn:
        """Stop the attempt because of a signal."""
        self._person.say(f"{why.evidence}: saving and stopping")
        self.note_unseen_cost()
        self._stopper.stop(f"signal: {why.evidence}")
        found = progress.has_progress(self._run, self._place.folder, self._point)
        raise stopped_by(why, progress=found)

    def note_unseen_cost(self) -> None:
        """Note whether the model was answering when the agent was stopped or died: that answer is paid for."""
        if self._agent is not None and self._gate is None:
            self._run.meter.is_cut = self._agent.is_asking()

    def _pass_on(self, what: str, child: spawn.Child, streams: Streams | OnTerminal) -> None:
        """Stop the command with its job (Ctrl-Z), or continue it, also where the command has no terminal."""
        if isinstance(streams, OnTerminal):
            if what == "continue":
                streams.goes_on(child.pid)
        elif what in ("freeze", "continue"):
            self._processes.send(signal.SIGSTOP if what == "freeze" else signal.SIGCONT)

    def _name_idleness(self) -> None:
        """Warn once about a command that has printed nothing for long: it may hang, or think."""
        limit_s = self._run.settings["idle_s"]
        if self._named_idle or not limit_s:
            return
        with contextlib.suppress(OSError):
            idle_s = time.time() - self._place.log.stat().st_mtime
            if idle_s > limit_s:
                self._named_idle = True
                text = f"nothing was printed for {idle_s / 60:.0f} min"
                self._person.warn(self._run, f"idle {self._place.number}", text)
