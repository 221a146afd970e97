"""The keeper of a script that has its own run: it does for the script what the supervisor does for a command.

`script/main.py` starts it, in a process without a terminal."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from outlast.errors import OutlastError
from outlast.processes import proc, reap
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.start import arrive, record_start
from outlast.runs.engine.supervision import held
from outlast.store import durable
from outlast.supervisor.attempt import leftovers, state_file, stop
from outlast.supervisor.attempt.command import Place, place_of
from outlast.supervisor.attempt.processes import AttemptProcesses
from outlast.supervisor.attempt.stop import Stopper
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.guardian.signals import Signalled, StopSignals
from outlast.supervisor.guardian.workspace_lock import Occupied
from outlast.supervisor.launch import environment, relayed_commands
from outlast.supervisor.person import Person
from outlast.supervisor.script.pid_watch import Script
from outlast.supervisor.socket import pipe
from outlast.supervisor.socket.script_calls import ScriptCalls
from outlast.supervisor.socket.server import Server
from outlast.supervisor.socket.wire import Welcome
from outlast.supervisor.timing import Timing


class Waiting(Protocol):
    """The start of the script, which waits for the keeper."""

    def ready(self, welcome: Welcome, variables: dict[str, str], words: tuple[str, ...]) -> None:
        """Answer that the run is open: how the script reaches it, its variables, and words for the person."""


class ScriptProcesses:
    """The processes of a script: those with the run's mark, and those that hold its pipe."""

    def __init__(self, run: RunEngine) -> None:
        self._run = run

    def find(self) -> list[proc.Proc]:
        """All of them, as they are now."""
        scripts = pipe.holders(pipe.path_of(place_of(self._run).socket))
        return reap.find(self._run.id, roots=scripts)


class Keeper:
    """One attempt of a script, from its first line to its end. `carry` is the whole of it, in order."""

    def __init__(
        self,
        run: RunEngine,
        script: Script,
        signals: StopSignals,
        workspace: Occupied | None,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self._run, self._script, self._signals, self._workspace = run, script, signals, workspace
        self._early_words: list[str] = []  # for the person, until the script is answered
        self._log: Path | None = None  # takes the words after that
        self._person = Person(self._say)
        self._processes = AttemptProcesses(run, self._person, ScriptProcesses(run))

    def carry(self, start: Waiting) -> None:
        """Keep the run until the script is gone and its end is on record. Raises OutlastError if the run is refused; then
        nothing has begun."""
        run = self._run
        is_ready = False
        try:
            with held(run):  # claimed; however this block is left, the attempt's end is recorded
                if not run.is_done:
                    self._stop_leftovers()
                    found = run.drive(arrive(run))
                    run.drive(record_start(run, found))
                leftovers.take_up_note(run)
                beats = BeatInFlight(run)
                with self._served(beats) as (scripts, server):
                    self.beat_ended()
                    start.ready(self._welcome(scripts, server), self._variables(), tuple(self._early_words))
                    is_ready, self._log = True, run.journal.store.local.supervisor_log(run.id)
                    stopper = Stopper(beats, server, self._processes, self._person)
                    self._watch(server, stopper)
                    self._after(scripts, server, stopper)
                run.finish()
        except OutlastError as error:
            if not is_ready:
                raise
            self._say(str(error))
        finally:
            with contextlib.suppress(OutlastError):
                self.beat_ended()

    # -- before ----------------------------------------------------------------------------------------------------

    def _stop_leftovers(self) -> None:
        """Stop the processes of earlier attempts, but for the script that waits for us."""
        run = self._run
        if self._workspace is not None:
            self._workspace.name(run.id)
        self._place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._script.record(run.journal.store.local, run.id)
        spare = {self._script.pid, *(there.pid for there in proc.ancestors(self._script.pid))}
        leftovers.stop_earlier(run, self._person, spare=spare)

    @property
    def _place(self) -> Place:
        return place_of(self._run)

    @contextlib.contextmanager
    def _served(self, beats: BeatInFlight) -> Iterator[tuple[ScriptCalls, Server]]:
        run, scripts = self._run, ScriptCalls(beats, self)
        mark = environment.attempt_mark(run.id, run.journal.lease.epoch)
        server = Server(self._place.socket, mark, scripts, relay=relayed_commands.carried_out)
        try:
            yield scripts, server
        finally:
            server.close()

    def _welcome(self, scripts: ScriptCalls, server: Server) -> Welcome:
        return Welcome(str(server.pipe.path), scripts.found_names, scripts.found_task)

    def _variables(self) -> dict[str, str]:
        run, place = self._run, self._place
        context = place.folder / "context.md"
        context.write_text(run.context())
        ours = environment.for_agent(
            run=run.id, task=run.task, epoch=run.journal.lease.epoch, socket=str(place.socket),
            store=run.journal.store.url, budget_file=str(place.folder / "budget.json"),
        )  # fmt: skip
        return ours | {environment.CONTEXT_FILE: str(context)}

    # -- meanwhile -------------------------------------------------------------------------------------------------

    def _watch(self, server: Server, stopper: Stopper) -> None:
        """Watch until the script is gone. Raises AgentStopped where a signal stops the keeper first."""
        while not self._script.is_gone:
            self._signals.wait(self._timing.keeper_tick_s, self._script, server.pipe)
            self._hear(server, stopper)
            if self._signals.got:
                self._interrupt(self._signals.got[0], stopper)
            stopper.check()
            stopper.take_requests()

    def _hear(self, server: Server, stopper: Stopper) -> None:
        """Apply the notes of the script's shell. The server has recorded names; an interruption causes a save at once."""
        server.hear()
        notes, server.shell_notes = server.shell_notes, []
        for note in notes:
            number = self._script.take(note)
            if number:
                stopper.save_now(f"signal: SIG{number} to the script")
                self.beat_ended()

    # -- after -----------------------------------------------------------------------------------------------------

    def _interrupt(self, why: Signalled, stopper: Stopper) -> None:
        """Stop the script, which could record nothing without its keeper. Always raises."""
        stopper.stop(f"signal: {why.evidence}")
        raise stop.stopped_by(why, whom=" to the keeper")

    def _after(self, scripts: ScriptCalls, server: Server, stopper: Stopper) -> None:
        """The script is gone: stop its leftovers, then judge. Raises AgentStopped unless it reached its end."""
        stopper.stop_left()
        stopper.let_calls_end()
        stopper.check()
        self._hear(server, stopper)
        ended = self._script.end()
        if ended is not None:
            raise ended
        scripts.finish({"exit_code": 0})

    # -- words -----------------------------------------------------------------------------------------------------

    def beat_ended(self) -> None:
        """The state file, for people and scripts, shows how far the script is."""
        state_file.write_of(self._run)

    def _say(self, text: str) -> None:
        """Tell the person: with the answer while the script waits for it, later in a file, for the terminal is the script's."""
        if self._log is None:
            self._early_words.append(text)
            return
        with contextlib.suppress(OSError), open(self._log, "a", opener=durable.opener) as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}\n")
