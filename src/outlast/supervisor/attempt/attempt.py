"""One attempt of a command, read downward: opened, started, watched, stopped, ended, judged.

Claimed it is by then, what an earlier one left is stopped and the files are saved (`supervisor.py`). Everything here
happens in the main thread but for the relay of output and the socket's calls.
"""

import importlib
import os
import time
from typing import TYPE_CHECKING

from outlast.processes import cause_of_death, programs, spawn
from outlast.runs.engine.run import RunEngine
from outlast.supervisor.attempt import progress, state_file, verdict
from outlast.supervisor.attempt.command import place_of, spec_of, streams_of
from outlast.supervisor.attempt.processes import AttemptProcesses, below_us
from outlast.supervisor.attempt.stop import Stopper
from outlast.supervisor.attempt.verdict import Ended
from outlast.supervisor.attempt.watch import Watch
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.budget.enforce import BudgetWatch
from outlast.supervisor.guardian.signals import StopSignals
from outlast.supervisor.launch import environment
from outlast.supervisor.launch.last_launch import known_agent
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.output.status_line import StatusLine
from outlast.supervisor.person import Person
from outlast.supervisor.socket.script_calls import ScriptCalls
from outlast.supervisor.socket.server import Server

if TYPE_CHECKING:
    from outlast.supervisor.agent.attempt import AgentAttempt
    from outlast.supervisor.budget.gateway import Gate

_LATE = ("outlast.runs.file_changes",)


class Attempt:
    """One attempt under way. `carry` is the whole of it."""

    def __init__(
        self,
        run: RunEngine,
        launch: Launch,
        variables: dict[str, str],
        signals: StopSignals,
        person: Person,
    ) -> None:
        self._run, self._launch, self._variables = run, launch, variables
        self._signals, self._person = signals, person
        self._began_s = time.monotonic()
        self._mark = environment.attempt_mark(run.id, run.journal.lease.epoch)
        self._place = place_of(run)
        self._point = run.state.save_point
        self._line = person.line = StatusLine(self._status)
        self._agent: AgentAttempt | None = None
        self._gate: Gate | None = None

    def carry(self) -> None:
        """Until the command has ended well and its last beat is done. Raises AgentStopped for every other end."""
        self._budget = BudgetWatch(self._run, self._place.folder, self._person)
        beats = BeatInFlight(self._run)
        self._agent, self._gate = self._open_agent_and_gate(beats)
        scripts = ScriptCalls(beats, self, ends_beats=self._agent is None)
        hooks = self._agent.hooks if self._agent is not None else None
        server = Server(self._place.socket, self._mark, scripts, hooks)
        processes = AttemptProcesses(self._run, self._person, lambda: below_us(self._run), self._signals)
        stopper = Stopper(self._run, server, processes, self._person)
        try:
            ended = self._run_command(processes, stopper)
            stopper.let_calls_end()
            stopper.check()
            self._budget.tell_unpriced()
            if not ended.is_done:
                raise self._stopped(ended)
            if self._agent is not None:
                self._agent.finish()
            else:
                scripts.finish({"exit_code": 0})
        finally:
            self._close(server)

    # -- opened ----------------------------------------------------------------------------------------------------

    def _open_agent_and_gate(self, beats: BeatInFlight) -> "tuple[AgentAttempt | None, Gate | None]":
        """What supervises an agent that is known, and the metering gateway where it is asked for. No other command waits
        for their import."""
        adapter = known_agent(self._launch)
        pricing = None
        if adapter is not None:
            from outlast.supervisor.budget.pricing import Pricing

            pricing = self._budget.pricing = Pricing()
        gate = None
        if self._launch.gateway:
            from outlast.supervisor.budget.gateway import Gate

            if adapter is None:
                self._budget.can_tell = self._budget.by_gateway = True
            gate = Gate(self._run, self._budget, self._variables, pricing)
        if adapter is None or pricing is None:
            return None, gate
        from outlast.supervisor.agent.agent import Agent
        from outlast.supervisor.agent.attempt import AgentAttempt

        agent = Agent(
            self._run, self._launch, adapter, self._place.folder / "agent", self._person, self._budget, pricing, gate
        )  # fmt: skip
        try:
            return AgentAttempt(agent, beats, self._variables, self), gate
        except BaseException:
            if gate is not None:
                gate.close()
            raise

    # -- started, watched, ended -----------------------------------------------------------------------------------

    def _run_command(self, processes: AttemptProcesses, stopper: Stopper) -> Ended:
        agent, gate = self._agent, self._gate
        watch = Watch(
            self._run, self._place, self._person, self._signals, processes, stopper, self._budget, agent, gate,
            point=self._point,
        )  # fmt: skip
        streams = streams_of(self._launch, self._place, self._person, self._line, keeps=agent is not None)
        oom = cause_of_death.OomMark.take(os.getpid())
        tail = b""
        try:
            spec = spec_of(self._run, self._launch, self._variables, self._place, self._mark, agent, gate)
            child = spawn.start(streams.spec(spec, again=agent is not None and agent.begins_anew))
            streams.started()
            _load_rest(agent, gate)
            status = watch.until_ended(child, streams)
            stopper.stop_left()
        except programs.CannotStart as error:
            return Ended(death=cause_of_death.of_error(error))
        finally:
            tail = streams.finish(self._is_hurried)
        if os.WIFSIGNALED(status):
            watch.note_unseen_cost()
        return verdict.ending_of(status, tail, streams.closed, self._launch, oom, agent, gate)

    def _is_hurried(self) -> bool:
        """Whether somebody wants an end: then nobody waits for readers."""
        self._signals.listen()
        return bool(self._signals.got)

    # -- judged ----------------------------------------------------------------------------------------------------

    def _stopped(self, ended: Ended) -> BaseException:
        if ended.closed:
            self._person.say(f"standard output was closed: {ended.closed}")
        return verdict.stopped(
            ended,
            self._launch,
            self._run.state,
            progress=progress.has_progress(self._run.files, self._place.folder, self._point),
            faults=self._gate.faults if self._gate is not None else "",
        )

    @property
    def by_itself(self) -> bool:
        """Whether a plain command ended without having been told to wrap up: that happens on the way to its model only."""
        return self._agent is None and self._gate is not None and not self._gate.keeper.told

    def _close(self, server: Server) -> None:
        if self._gate is not None:
            self._gate.close()
            self._gate.settle()
        if self._agent is not None:
            self._agent.close()
        server.close()

    # -- meanwhile -------------------------------------------------------------------------------------------------

    def beat_ended(self) -> None:
        """A beat is over: the projection for people and scripts shows it."""
        write_state(self._run, self._launch)

    def _status(self) -> str:
        """How far it is, for the last line of a terminal."""
        state, passed_s = self._run.state, int(time.monotonic() - self._began_s)
        spent = f"  {state.spent.tokens:,} tokens" if state.spent.tokens else ""
        at = f"{passed_s // 3600}:{passed_s // 60 % 60:02}:{passed_s % 60:02}"
        return f"outlast: {state.task}  attempt {state.attempts}  beat {state.beats}{spent}  {at}"


def _load_rest(agent: "AgentAttempt | None", gate: "Gate | None") -> None:
    """Load what an attempt needs only later. The command starts meanwhile, so it waits for nothing.

    From here on outlast may be removed or replaced by another version: this process needs no more of its files.
    """
    for module in _LATE:
        importlib.import_module(module)
    for part in (agent, gate):
        if part is not None:
            part.load_rest()


def write_state(run: RunEngine, launch: Launch) -> None:
    """The projection for people and scripts."""
    branch = state_file.branch_in(run.folder) if run.terms.workspace else ""
    active = state_file.of(run.state, run.state.status, issue=launch.issue, branch=branch)
    state_file.write(run.journal.store.local, active)
