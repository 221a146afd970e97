"""Stopping an attempt: save first, stop its processes, let its calls end."""

import signal
import time
from typing import NoReturn, Protocol

from outlast.errors import AgentStopped, SaveError, StoreGone, StoreUnreachable, WaitsForPerson
from outlast.runs import files as run_files, inbox
from outlast.runs.engine.steps import append
from outlast.runs.inbox import WAITING
from outlast.supervisor.attempt.processes import AttemptProcesses
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.guardian.signals import Signalled
from outlast.supervisor.person import Person
from outlast.supervisor.socket.server import Server
from outlast.supervisor.timing import Timing


class Rests(Protocol):
    """An agent that can be stopped between two beats."""

    def rests(self) -> bool:
        """Whether it is between two beats."""


class Stopper:
    """Stops one attempt."""

    def __init__(
        self,
        beats: BeatInFlight,
        server: Server,
        processes: AttemptProcesses,
        person: Person,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self._beats, self._run = beats, beats.run
        self._server, self._processes, self._person = server, processes, person

    def save_now(self, reason: str) -> None:
        """A save before anything is stopped, as far as there is time."""
        run = self._run
        if run.files is None:
            return
        try:
            deadline_s = self._timing.first_save_s
            save = run.files.save("emergency", run.state, reason, if_dirty=True, deadline_s=deadline_s)
            if save is not None:
                run.drive(append(run_files.made(save, run.journal.now(), run.state)))
        except SaveError as error:
            self._person.warn(run, "first save failed", str(error))

    def stop(self, reason: str) -> None:
        """Save, stop with grace, reap; the save after is made where the attempt's end is recorded."""
        self.save_now(reason)
        self._server.stopping()
        self._processes.stop(self._timing.stop_grace_s)
        self.let_calls_end()

    def end_with(self, error: BaseException) -> NoReturn:
        """Save, stop and reap, then raise the error that ends the attempt."""
        self._announce(error)
        cause = error.cause if isinstance(error, AgentStopped) else type(error).__name__
        self.stop(f"{cause}: {error}")
        raise error

    def _announce(self, error: BaseException) -> None:
        """Say why everything is stopped now. A call that waits for a person has said so, and the ending says it again."""
        if not isinstance(error, WaitsForPerson):
            self._person.say(f"{error}: saving and stopping")

    def stop_left(self) -> None:
        """Stop the processes that the ended command left running."""
        self._server.stopping()
        self._processes.stop(self._timing.left_grace_s)

    def let_calls_end(self) -> None:
        """Wait for the calls of scripts that are gone, so that their outcomes are on record as far as they are known."""
        until_s = time.monotonic() + self._timing.calls_end_s
        while self._server.busy and time.monotonic() < until_s:
            time.sleep(self._timing.calls_look_s)

    def check(self) -> None:
        """If nothing can be recorded any more, stop all processes. Raises StoreGone, StoreUnreachable, or the error of a call."""
        try:
            self._run.journal.store.check_exists()
        except (StoreGone, StoreUnreachable) as error:
            self._person.say(f"{error}: stopping")
            self._processes.stop(self._timing.stop_grace_s)
            raise
        failure = self._server.failure
        if failure is not None:
            self._announce(failure)
            self._server.stopping()
            self._processes.stop(self._timing.stop_grace_s)
            self.let_calls_end()
            raise failure

    def take_requests(self, agent: Rests | None = None) -> None:
        """Apply the requests of people. A request to stop the run first stops its processes, then is recorded.

        If the command is a known agent, a request that can wait is applied between two beats of it.
        """
        run = self._run
        if not run.journal.lease.request_waits():
            return
        request = inbox.stop_request(run.journal)
        if request:
            if request in WAITING and not (agent.rests() if agent is not None else not self._server.busy):
                return
            self.stop(f"operator: {request}")
            run.supervision.may_stop = True
        with self._beats.lock:  # else a call is judged between the lowered flag and the requests
            run.drive(run.take_requests())


def stopped_by(why: Signalled, *, progress: bool = False, whom: str = "") -> AgentStopped:
    """The error that ends an attempt after a signal. `whom`: who got the signal, if not the supervisor."""
    cause = "signal" if why.wanted or why.number == signal.SIGHUP else "host"
    error = AgentStopped(f"{why.evidence}{whom}", cause=cause, wanted=why.wanted, progress=progress)
    error.exit_code = 128 + why.number
    return error


class LeftByPerson(AgentStopped):
    """A person has left the agent at the terminal: that is neither done nor a failure."""

    def __init__(self, why_not_done: str = "") -> None:
        more = f"; not done: {why_not_done}" if why_not_done else ""
        super().__init__(
            f"left by the person at the terminal{more}", cause="operator", wanted=True, exit_code=0
        )
