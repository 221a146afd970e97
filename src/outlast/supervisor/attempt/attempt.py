"""One attempt of a command, read downward: claimed, leftovers stopped, files saved, started, watched, stopped, ended, judged.

Each phase has its own file beside this one. `supervisor.py` decides what follows an attempt."""

import importlib
import os
import time
from typing import TYPE_CHECKING

import msgspec

from outlast.core import events as ev
from outlast.errors import AgentStopped, RunCancelled
from outlast.processes import cause_of_death, programs, spawn
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.start import arrive, record_start
from outlast.runs.engine.supervision import held
from outlast.supervisor.attempt import finish, leftovers, limits, progress, state_file, verdict
from outlast.supervisor.attempt.command import place_of, spec_of, streams_of
from outlast.supervisor.attempt.processes import AttemptProcesses, BelowUs
from outlast.supervisor.attempt.stop import Stopper
from outlast.supervisor.attempt.verdict import Ended
from outlast.supervisor.attempt.watch import Watch
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.budget.enforce import BudgetWatch
from outlast.supervisor.client import around
from outlast.supervisor.guardian.signals import StopSignals
from outlast.supervisor.guardian.workspace_lock import Occupied
from outlast.supervisor.launch import environment
from outlast.supervisor.launch.background import Announcement
from outlast.supervisor.launch.last_launch import known_agent
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.output.status_line import StatusLine
from outlast.supervisor.person import Person
from outlast.supervisor.socket.script_calls import ScriptCalls
from outlast.supervisor.socket.server import Server

if TYPE_CHECKING:
    from outlast.supervisor.agent.attempt import AgentAttempt
    from outlast.supervisor.agent.guard import Guard
    from outlast.supervisor.budget.gateway import Gate

_LATE = ("outlast.runs.file_changes",)


class Attempt:
    """One attempt. `carry` is the whole of it, in the main thread; only output and the socket's calls have others.

    `wraps_up`: the run has spent all but its reserve and is started once more, only to wrap up.
    """

    def __init__(
        self,
        run: RunEngine,
        launch: Launch,
        variables: dict[str, str],
        signals: StopSignals,
        person: Person,
        *,
        guardian: int,
        announcement: Announcement,
        workspace: Occupied | None = None,
        wraps_up: bool = False,
    ) -> None:
        self._run, self.launch, self._variables = run, launch, variables
        self._signals, self._person = signals, person
        self._guardian, self._announcement, self._workspace = guardian, announcement, workspace
        self._wraps_up = wraps_up
        self._agent: AgentAttempt | None = None
        self._gate: Gate | None = None
        self._guard: Guard | None = None
        self._lifted = False  # whether the account is known to work in this attempt

    def carry(self) -> bool:
        """From the claim to the recorded end. False: the run was done before. Raises what ended the attempt, if not done."""
        run = self._run
        run.supervision.may_stop = False
        run.supervision.launch = msgspec.to_builtins(self.launch)
        with held(run):  # claimed; however this block is left, the attempt's end is recorded
            if run.is_done:
                return False
            self._stop_leftovers()
            lost = self._judge_last_attempt()
            run.supervision.finishes, run.supervision.has_finished = self._had_finished(), False
            run.supervision.guarded, run.supervision.within = self._is_guarded, self.launch.within
            self._save_found_files(lost)
            self._announce()
            try:
                self._run_to_its_end()
                if not run.state.ended_well:
                    self._lift_wall()
                self._finish()
            except RunCancelled:
                self._remove_copy()
                raise
            self._remove_copy()
        return True

    # -- claimed: nothing of an earlier attempt may run on -----------------------------------------------------------

    def _stop_leftovers(self) -> None:
        """Stop the processes of earlier attempts. From then on the guardian looks after this one."""
        leftovers.stop_earlier(self._run, self._person, guardian=self._guardian)
        leftovers.be_guarded(self._run, self._signals)

    def _judge_last_attempt(self) -> ev.AttemptEnded | None:
        """How the last attempt ended, if it recorded no end. Raises BudgetReached, GivenUp or HeldBack: no attempt now."""
        run = self._run
        limits.refuse_spent(run.state, wraps_up=self._wraps_up)
        account = limits.account_of(self.launch, self._variables, run.journal.store.local.run_folder(run.id))
        self.launch = msgspec.structs.replace(self.launch, account=account)
        run.supervision.launch = msgspec.to_builtins(self.launch)
        lost = limits.judge(run, limits.limits_of(self.launch, run.settings["restart_wait_s"]))
        if not self.launch.interactive:  # a person at the terminal sees the wall for themselves
            limits.hold_back(run, lost, account)
        return lost

    def _had_finished(self) -> bool:
        """Whether its agent, the same as now, finished in an earlier attempt: what was in doubt then may be settled since.

        A guarded command starts again only if a call is settled as did-not-happen.
        """
        state, known = self._run.state, known_agent(self.launch)
        if not state.ended_well or self.launch.interactive:
            return False
        if known is None:
            return self.launch.guard and state.session is None
        return state.session is not None and state.session.agent == known.name

    @property
    def _is_guarded(self) -> bool:
        """Whether it is a plain command under guard. A known agent is guarded in any case, and reads outlast's answers."""
        return self.launch.guard and known_agent(self.launch) is None

    # -- files saved: then the start is on record ----------------------------------------------------------------------

    def _save_found_files(self, lost: ev.AttemptEnded | None) -> None:
        """Save the files as they are found, bring them to where this attempt begins, and record its start."""
        found = self._run.drive(arrive(self._run))
        self._run.drive(record_start(self._run, found, lost))

    def _announce(self) -> None:
        """Tell the person, the state file, the parent process and the workspace lock that the run has started."""
        run = self._run
        self.beat_ended()
        leftovers.take_up_note(run)
        leftovers.name_doubts(run, self._person)
        self._announcement.make(run.id, run.task)
        if self._workspace is not None:
            self._workspace.name(run.id)

    # -- started, watched, stopped, ended ------------------------------------------------------------------------------

    def _run_to_its_end(self) -> None:
        """Run the command until it has ended well and its last beat is done. Raises AgentStopped for every other end."""
        run = self._run
        self._began_s, self._point = time.monotonic(), run.state.save_point
        self._mark = environment.attempt_mark(run.id, run.journal.lease.epoch)
        self._place = place_of(run)
        self._line = self._person.line = StatusLine(self)
        self._budget = BudgetWatch(run, self._place.folder, self._person)
        beats = BeatInFlight(run)
        with beats.noting_failure():
            self._guard = self._open_guard(beats)
            self._agent, self._gate = self._open_agent_and_gate(beats)
        scripts = ScriptCalls(beats, self, ends_beats=self._agent is None)
        hooks = self._agent.hooks if self._agent is not None else self._guard
        server = Server(self._place.socket, self._mark, scripts, hooks)
        processes = AttemptProcesses(run, self._person, BelowUs(run.id), self._signals)
        stopper = Stopper(beats, server, processes, self._person)
        try:
            if self._agent is not None and run.state.ended_well:
                run.supervision.has_finished = True
                self._agent.conclude()
                return
            if self._guard is not None and run.state.ended_well:
                run.supervision.has_finished = True
                self._guard.refuse_doubt()
                return
            ended = self._run_command(processes, stopper)
            stopper.let_calls_end()
            stopper.check()
            self._budget.tell_unpriced()
            if self._guard is not None:
                self._guard.ended(by_itself=ended.death.signal is None)
            if not ended.is_done:
                if self._guard is not None and ended.death.exit_code:
                    self._guard.refuse_failed(ended.death.exit_code)
                raise self._stopped(ended)
            if self._agent is not None:
                run.supervision.has_finished = not (self.launch.interactive or self._agent.waits)
                self._agent.finish()
            else:
                scripts.finish({"exit_code": 0})
            if self._guard is not None:
                run.supervision.has_finished = not (self.launch.interactive or self._guard.waits)
                self._guard.refuse_doubt()
        except AgentStopped as error:
            verdict.blame_setup(error, self.launch, run.state)
            raise
        finally:
            self._close(server)

    def _open_guard(self, beats: BeatInFlight) -> "Guard | None":
        """The guard of a plain command, if it is to be guarded. Imported only for this."""
        if not self._is_guarded:
            return None
        from outlast.supervisor.agent.guard import Guard

        folder = self._place.folder / environment.GUARD
        return Guard(self._run, self.launch, folder, beats, self._person, self._variables)

    def _open_agent_and_gate(self, beats: BeatInFlight) -> "tuple[AgentAttempt | None, Gate | None]":
        """The supervision of a known agent, and the metering gateway if there is to be one. Imported only for these."""
        known = known_agent(self.launch)
        pricing = None
        if known is not None:
            from outlast.supervisor.budget.pricing import Pricing

            pricing = self._budget.pricing = Pricing()
        gate = None
        if self.launch.gateway:
            from outlast.supervisor.budget.gateway import Gate

            if known is None:
                self._budget.can_tell = self._budget.by_gateway = True
            gate = Gate(self._run, self._budget, self._variables, pricing)
        if known is None or pricing is None:
            return None, gate
        from outlast.supervisor.agent.agent import Agent
        from outlast.supervisor.agent.attempt import AgentAttempt

        agent = Agent(
            self._run, self.launch, known, self._place.folder / "agent", self._person, self._budget, pricing, gate
        )  # fmt: skip
        try:
            return AgentAttempt(agent, beats, self._variables, self), gate
        except BaseException:
            if gate is not None:
                gate.close()
            raise

    def _run_command(self, processes: AttemptProcesses, stopper: Stopper) -> Ended:
        """Start the command and watch it. Raises AgentStopped, from the watch, where something stops it first."""
        agent, gate = self._agent, self._gate
        watch = Watch(
            self._run, self._place, self._person, self._signals, processes, stopper, self._budget, agent, gate,
            self._guard, point=self._point,
        )  # fmt: skip
        streams = streams_of(self.launch, self._place, self._person, self._line, keeps=agent is not None)
        oom = cause_of_death.OomMark.take(os.getpid())
        tail = b""
        try:
            spec = spec_of(
                self._run, self.launch, self._variables, self._place, self._mark, agent, gate, self._guard
            )
            child = spawn.start(streams.spec(spec, again=agent is not None and agent.begins_anew))
            streams.started()
            if agent is not None:
                agent.started(child.pid)
            _load_rest(agent, gate)
            status = watch.until_ended(child, streams)
            if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
                watch.let_background_end()
            stopper.stop_left()
        except programs.CannotStart as error:
            return Ended(death=cause_of_death.of_error(error))
        finally:
            tail = streams.finish(self._signals)
        if os.WIFSIGNALED(status):
            watch.note_unseen_cost()
        return verdict.ending_of(status, tail, streams.closed, self.launch, oom, agent, gate)

    def _close(self, server: Server) -> None:
        if self._gate is not None:
            self._gate.close()
            self._gate.settle()
        if self._agent is not None:
            self._agent.close()
        server.close()

    # -- judged --------------------------------------------------------------------------------------------------------

    def _stopped(self, ended: Ended) -> AgentStopped:
        if ended.closed:
            self._person.say(f"standard output was closed: {ended.closed}")
        return verdict.stopped(
            ended,
            self.launch,
            self._run.state,
            progress=progress.has_progress(self._run, self._place.folder, self._point),
            faults=self._gate.faults if self._gate is not None else "",
        )

    def _finish(self) -> None:
        """The command ended well: the run is done if its checks pass. Raises what stands in the way."""
        # A plain command behind a gateway may have ended without having been told to wrap up.
        by_itself = self._agent is None and self._gate is not None and not self._gate.keeper.has_sent_wrap_up
        finish.finish(self._run, self.launch, self._signals, by_itself=by_itself)

    def left_undone(self) -> str:
        """The warning about calls that did not happen and that the agent did not make again, though the run is done; else
        empty."""
        calls = self._agent.not_made() if self._agent is not None else []
        return (
            f"the same call was not made again, though it did not happen: effect {', '.join(calls)}"
            if calls
            else ""
        )

    def _remove_copy(self) -> None:
        """Remove the copy that the agent's hooks and shims ran: the run is over. This process still holds the run."""
        for part in (self._agent, self._guard):
            if part is not None:
                part.remove_copy()

    # -- meanwhile -----------------------------------------------------------------------------------------------------

    def beat_ended(self) -> None:
        """The state file, for people and scripts, shows how far the run is. A beat that was paid for lifts a quota wall."""
        state_file.write_of(self._run, issue=self.launch.issue)
        if self.launch.within:
            spent = self._run.state.spent.minus(self.launch.spent_before)
            around.tell_spent(self.launch.within, self._run.id, spent)
        if self._agent is not None and self._agent.paid:
            self._lift_wall()

    def _lift_wall(self) -> None:
        """The account works: a quota wall that it met before this attempt holds no run back any more."""
        attempt = self._run.state.attempt
        if not self._lifted and attempt is not None and self.launch.account:
            self._lifted = True
            limits.lift_wall(self._run.journal.store, self.launch.account, attempt.started_at)

    def status(self) -> str:
        """How far the run is, for the last line of a terminal."""
        state, passed_s = self._run.state, int(time.monotonic() - self._began_s)
        spent = f"  {state.spent.tokens:,} tokens" if state.spent.tokens else ""
        at = f"{passed_s // 3600}:{passed_s // 60 % 60:02}:{passed_s % 60:02}"
        return f"outlast: {state.task}  attempt {state.attempts}  beat {state.beats}{spent}  {at}"


def _load_rest(agent: "AgentAttempt | None", gate: "Gate | None") -> None:
    """Load the files that an attempt needs later, while the command starts: so nothing waits for that.

    From here on outlast may be removed or replaced by another version: this process needs no more of its files.
    """
    for module in _LATE:
        importlib.import_module(module)
    for part in (agent, gate):
        if part is not None:
            part.load_rest()
