"""One attempt of a command: started, watched, served, stopped and reaped; how it ended is raised or returned.

Everything here happens in the supervisor's main thread but for the relay of output and the socket's calls.
"""

import contextlib
import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from outlast.agents import OWN_LIMITS, Adapter, Final, registry
from outlast.core import events as ev, restarts
from outlast.errors import AgentStopped
from outlast.processes import cause_of_death, proc, programs, reap, spawn
from outlast.processes.tty import Terminal
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.store import durable
from outlast.supervisor.attempt import progress as attempt_progress, state_file, stop as attempt_stop
from outlast.supervisor.budget.enforce import BudgetWatch
from outlast.supervisor.guardian import lock
from outlast.supervisor.guardian.link import GuardianMessage
from outlast.supervisor.guardian.signals import Signalled, StopSignals
from outlast.supervisor.launch import background, environment
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.output.status_line import StatusLine
from outlast.supervisor.output.streams import OnTerminal, Streams
from outlast.supervisor.socket.script_calls import ScriptCalls
from outlast.supervisor.socket.server import Server
from outlast.workspace.git import command
from outlast.workspace.types import raw

if TYPE_CHECKING:
    from outlast.supervisor.agent.minder import Minder
    from outlast.supervisor.budget.gateway import Gate


class Place(msgspec.Struct, frozen=True):
    """Where the files of a run's attempts lie."""

    folder: Path
    socket: Path
    number: int


class Attempt:
    """One attempt under way."""

    def __init__(
        self,
        run: RunEngine,
        launch: Launch,
        variables: dict[str, str],
        ears: StopSignals,
        say: Callable[[str], None],
        notify: Callable[[str], None],
    ) -> None:
        self._run, self._launch, self._ears, self._notify = run, launch, ears, notify
        self._say_it, self._line = say, StatusLine(self._status)
        self._began_s = time.monotonic()
        self._variables = variables
        self._mark = environment.attempt_mark(run.id, run.journal.lease.epoch)
        self._place = place_of(run)
        self._point = run.state.save_point
        self._named_idle = False
        self.tail = b""
        self._minder: Minder | None = None
        self._gate: Gate | None = None
        self._reset_at: datetime | None = None
        self._too_fast = False  # it was ended by a rate limit
        self._closed = ""
        self._unusable = False  # the agent does not understand its command

    def _say(self, text: str) -> None:
        self._line.wipe()
        self._say_it(text)

    def _status(self) -> str:
        """How far it is, for the last line of a terminal."""
        state, passed_s = self._run.state, int(time.monotonic() - self._began_s)
        spent = f"  {state.spent.tokens:,} tokens" if state.spent.tokens else ""
        at = f"{passed_s // 3600}:{passed_s // 60 % 60:02}:{passed_s % 60:02}"
        return f"outlast: {state.task}  attempt {state.attempts}  beat {state.beats}{spent}  {at}"

    # -- the whole of it -------------------------------------------------------------------------------------------

    def carry(self) -> None:
        """Until the command has ended well and its last beat is done. Raises AgentStopped for every other end."""
        self._budget = BudgetWatch(self._run, self._place.folder, self._say, self._notify)
        minder = self._minder = self._minding()
        gate = self._gate = self._opened_gate(minder)
        if minder is not None:
            self._run.purse.unsettled = minder.calls.unsettled
            self._budget.meter = minder.meter
        elif gate is not None:
            self._run.purse.unsettled = gate.unsettled
        desk = minder.calls if minder is not None else ScriptCalls(self._run, self._on_beat)
        server = Server(self._place.socket, self._mark, desk, minder)
        try:
            ended = self._run_command(server)
            attempt_stop.let_calls_end(server)
            attempt_stop.check_store(self._run, self._reap, self._say)
            attempt_stop.check_calls(server, self._reap, self._say)
            self._budget.tell_unpriced()
            if ended.cause != "done":
                raise self._stopped(ended)
            if self._launch.interactive and minder is not None:
                minder.calls.leave()
            else:
                desk.finish({"exit_code": 0})
        finally:
            if gate is not None:
                gate.close()
                gate.settle()
            if minder is not None:
                minder.close()
            server.close()

    @property
    def by_itself(self) -> bool:
        """Whether a plain command ended without having been told to wrap up: that happens on the way to its model only."""
        return self._minder is None and self._gate is not None and not self._gate.keeper.told

    def _minding(self) -> "Minder | None":
        """Whoever minds the agent, where the command is one that is known; no other command waits for its import."""
        adapter = known_agent(self._launch)
        if adapter is None:
            return None
        from outlast.supervisor.agent.minder import Minder

        return Minder(
            self._run, self._launch, adapter, self._place.folder, self._variables, self._on_beat, self._say, self._budget
        )  # fmt: skip

    def _opened_gate(self, minder: "Minder | None") -> "Gate | None":
        """The metering gateway, where it is asked for; nobody else waits for its import."""
        if not self._launch.gateway:
            return None
        from outlast.supervisor.budget.gateway import Gate

        if minder is None:
            self._budget.can_tell = self._budget.by_gateway = True
            return Gate(self._run, self._budget, self._variables)
        gate = minder.gate = Gate(self._run, self._budget, self._variables, minder.meter, minder.calls.usage)
        gate.keeper.window = minder.calls.window
        return gate

    def _run_command(self, server: Server) -> cause_of_death.Death:
        streams = self._streams()
        oom = cause_of_death.OomMark.take(os.getpid())
        try:
            spec = self._spec()
            again = self._minder is not None and self._minder.begins_anew
            child = spawn.start(streams.spec(spec, again=again))
            streams.started()
            status = self._watch(child, server, streams)
            server.stopping()
            self._reap(attempt_stop.LEFT_GRACE_S)
        except programs.CannotStart as error:
            return cause_of_death.of_error(error)
        finally:
            self.tail = streams.finish(self._is_hurried)
            self._closed = streams.closed
        if os.WIFSIGNALED(status):
            self._note_cut()
        if os.WIFEXITED(status) and self._minder is not None:
            return self._judged(self._minder, os.WEXITSTATUS(status))
        if os.WIFEXITED(status) and self._gate is not None:
            code = os.WEXITSTATUS(status)
            final = self._gate.judged(Final("done" if code == 0 else "crashed"))
            if final.ending not in ("done", "crashed"):
                return self._death(final, code)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return cause_of_death.Death("done", "exited with 0", 0, None)
        return cause_of_death.of_status(status, oom=oom)

    def _judged(self, minder: "Minder", code: int) -> cause_of_death.Death:
        """An agent's exit code says little: some exit with 0 after a failure."""
        if self._launch.interactive and code == 0:  # whatever its last words were, a person read them
            minder.look()
            return cause_of_death.Death("done", "left by the person at the terminal", 0, None)
        final = minder.judge(code, self.tail)
        minder.meter.settle(final.bill, minder.calls)
        if self._gate is not None:
            final = self._gate.judged(final)
        return self._death(final, code)

    def _death(self, final: Final, code: int) -> cause_of_death.Death:
        self._reset_at, self._too_fast = final.reset_at, final.ending == "rate_limit"
        self._unusable = final.ending == "unusable"
        said = final.text or ("exited with 0" if final.ending == "done" else final.ending)
        if final.ending in OWN_LIMITS:
            said = f"{OWN_LIMITS[final.ending]}: {said}"
        return cause_of_death.Death(final.cause, f"{said} (exit code {code})" if code else said, code, None)

    def _streams(self) -> Streams | OnTerminal:
        terminal = Terminal.of(0) if self._launch.interactive else None
        if terminal is not None:
            return OnTerminal(terminal)
        keeps = self._minder is not None
        return Streams(self._place.folder, self._place.number, self._say, self._line, keeps=keeps)

    def _spec(self) -> spawn.Spec:
        argv = (os.fsdecode(raw(self._launch.program)), *self._launch.words[1:])
        cwd, variables = os.fsdecode(raw(self._launch.cwd)), self._environment()
        if self._minder is not None:
            launch = self._minder.start(argv, variables, self._mark, Path(cwd))
            argv, variables = launch.command, {**variables, **launch.environment}
        elif self._gate is not None:
            variables |= self._gate.routes()
        if self._launch.setup:
            step = [*background.ourselves("step", "worktree setup", "--retry-failed", "--"), "/bin/sh", "-c"]
            argv = (
                "/bin/sh",
                "-c",
                f'{shlex.join([*step, self._launch.setup])} 1>&2 && exec "$@"',
                "sh",
                *argv,
            )
        return spawn.Spec(
            argv=argv, cwd=cwd, env=variables, umask=self._launch.umask, death_signal=signal.SIGKILL
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        run, folder = self._run, self._place.folder
        ours = environment.for_agent(
            run=run.id, task=run.task, epoch=run.journal.lease.epoch, socket=str(self._place.socket),
            store=run.journal.store.url, budget_file=str(folder / "budget.json"),
        )  # fmt: skip
        context = folder / "context.md"
        with open(context, "w", opener=durable.opener) as file:
            file.write(run.context())
        return environment.with_git_settings(
            self._variables | ours | {environment.CONTEXT_FILE: str(context)}
        )

    # -- watching --------------------------------------------------------------------------------------------------

    def _watch(self, child: spawn.Child, server: Server, streams: Streams | OnTerminal) -> int:
        """Until the command has ended; its wait status. Raises AgentStopped when somebody wants it to stop first."""
        while True:
            self._ears.wait(streams.tick_s, child)
            for what in self._ears.others():
                self._job(what, child, streams)
            spawn.reap_orphans(mine=(child.pid,))
            status = child.wait_status(stops=True)
            if status is not None and not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
                return status
            if status is not None and os.WIFSTOPPED(status) and isinstance(streams, OnTerminal):
                streams.suspended()
                self._ears.link.say(GuardianMessage(what="stopped"))
            if self._ears.got:
                self._interrupt(self._ears.got[0], server)
            if self._minder is not None:
                self._mind(self._minder, server)
            attempt_stop.check_store(self._run, self._reap, self._say)
            attempt_stop.check_calls(server, self._reap, self._say)
            rests = self._minder.rests if self._minder is not None else None
            attempt_stop.take_mail(self._run, server, self._reap, self._warn, rests)
            self._keep_budget(server)
            self._name_idleness()

    def _keep_budget(self, server: Server) -> None:
        """What time alone brings, and a beat that costs more than there is, ends the attempt."""
        settled = self._gate is not None and self._gate.settle()
        stop = self._budget.beat_ended() if settled else self._budget.tick()
        if stop is not None:
            self._stop(stop, server)

    def _mind(self, minder: "Minder", server: Server) -> None:
        """Read what the agent wrote; what its hooks met that it cannot go on with ends it."""
        minder.look()
        if minder.failure is not None:
            self._stop(minder.failure, server)

    def _note_cut(self) -> None:
        """Before an agent is stopped, and after it died of a signal: what its model was answering is paid for."""
        if self._minder is not None and self._gate is None:
            self._run.purse.is_cut = self._minder.is_asking()

    def _stop(self, error: BaseException, server: Server) -> None:
        """Save, stop and reap. Always raises."""
        self._say(f"{error}: saving and stopping")
        self._note_cut()
        cause = error.cause if isinstance(error, AgentStopped) else type(error).__name__
        attempt_stop.stop(self._run, server, f"{cause}: {error}", self._reap, self._warn)
        raise error

    def _name_idleness(self) -> None:
        """Say once that a command has printed nothing for long: it may hang, or think."""
        limit_s = self._run.settings["idle_s"]
        if self._named_idle or not limit_s:
            return
        with contextlib.suppress(OSError):
            idle_s = time.time() - (self._place.folder / f"attempt-{self._place.number}.log").stat().st_mtime
            if idle_s > limit_s:
                self._named_idle = True
                self._warn(f"idle {self._place.number}", f"nothing was printed for {idle_s / 60:.0f} min")

    def _job(self, what: str, child: spawn.Child, streams: Streams | OnTerminal) -> None:
        """The job was stopped with Ctrl-Z, or goes on: the command with it, also one that has no terminal."""
        if isinstance(streams, OnTerminal):
            if what == "continue":
                streams.goes_on(child.pid)
            return
        if what in ("freeze", "continue"):
            for there in self._found():
                with contextlib.suppress(OSError):
                    os.kill(there.pid, signal.SIGSTOP if what == "freeze" else signal.SIGCONT)

    # -- stopping --------------------------------------------------------------------------------------------------

    def _interrupt(self, why: Signalled, server: Server) -> None:
        """Somebody wants an end. Always raises."""
        self._say(f"{why.evidence}: saving and stopping")
        self._note_cut()
        attempt_stop.stop(self._run, server, f"signal: {why.evidence}", self._reap, self._warn)
        raise attempt_stop.stopped_by(why, progress=self._has_progress())

    def _reap(self, grace_s: float) -> None:
        """Stop everything of the attempt. A second signal ends the grace; a third changes nothing.

        Never with SIGINT: Claude Code and Gemini exit 0 then and say that the call under way was rejected, Codex writes
        that the user interrupted it on purpose, aider only asks whether to go on.
        """

        def hurried() -> bool:
            self._ears.listen()
            return len(self._ears.got) > 1

        reaped = reap.stop(self._found, first=signal.SIGTERM, grace_s=grace_s, on_wait=hurried)
        for name in reaped.escaped:
            self._warn(f"escaped {name}"[:100], f"{name} of the attempt could not be stopped")

    def _is_hurried(self) -> bool:
        """Whether somebody wants an end: then nobody waits for readers."""
        self._ears.listen()
        return bool(self._ears.got)

    def _found(self) -> Iterator[proc.Proc]:
        """All below us but what works for ourselves, with or without a mark."""
        for there in reap.search(self._run.id, roots=[os.getpid()], spare={os.getppid()}):
            if proc.environ_value(there.pid, command.HELPER.encode()) is None:
                yield there

    def _stopped(self, ended: cause_of_death.Death) -> AgentStopped:
        """Not started again is an interactive command, whose end the person saw, and one that nobody listens to."""
        if self._closed:
            self._say(f"standard output was closed: {self._closed}")
        here = self._launch.interactive or bool(self._closed) or self._unusable
        cause, progress = ended.cause, self._has_progress()
        if self._too_fast:
            state, now = self._run.state, datetime.now(UTC)
            goes_on = progress or (state.attempt is not None and state.beats > state.attempt.beats)
            cause, self._reset_at = restarts.rate_limited(self._reset_at, now, state.past, progress=goes_on)
        faults = self._gate.faults if self._gate is not None else ""
        error = AgentStopped(
            ended.evidence + (f"; the gateway failed: {faults}" if faults else ""),
            cause=cause,
            exit_code=ended.exit_code,
            progress=progress,
            wanted=here,
            reset_at=self._reset_at,
        )
        if self._closed:
            error.exit_code = 128 + signal.SIGPIPE
        elif here and ended.signal is not None:
            error.exit_code = 128 + ended.signal
        return error

    # -- progress --------------------------------------------------------------------------------------------------

    def _has_progress(self) -> bool:
        """Whether the files are as no attempt before left them."""
        return attempt_progress.has_progress(self._run.files, self._place.folder, self._point)

    def _on_beat(self) -> None:
        write_state(self._run, self._launch)

    def _warn(self, level: str, text: str) -> None:
        self._say(text)
        self._run.drive(append(ev.Warned(at=self._run.journal.now(), level=level, text=text)))


def known_agent(launch: Launch) -> Adapter | None:
    """The adapter of a command that starts an agent we know; None for any other command."""
    if launch.plain:
        return None
    return registry.recognise(launch.words, os.fsdecode(raw(launch.program)))


def place_of(run: RunEngine) -> Place:
    """The files of the attempt that a run is in."""
    folder = lock.folder_of(run.journal.store.root, run.id)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Place(folder, environment.socket_path(folder), run.state.attempts)


def write_state(run: RunEngine, launch: Launch) -> None:
    """The projection for people and scripts."""
    branch = state_file.branch_in(run.folder) if run.terms.workspace else ""
    active = state_file.of(run.state, run.state.status, issue=launch.issue, branch=branch)
    state_file.write(run.journal.store.root, active)
