"""One attempt of a command: started, watched, served, stopped and reaped; how it ended is raised or returned.

Everything here happens in the supervisor's main thread but for the relay of output and the socket's calls.
"""

import contextlib
import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from outlast.agents import Adapter, registry
from outlast.core import events as ev
from outlast.errors import AgentStopped
from outlast.processes import death, proc, programs, reaping, spawning
from outlast.processes.tty import Terminal
from outlast.supervisor import detaching, ending, environment, guarding, seen, statefile
from outlast.supervisor.hearing import Ears, Signalled
from outlast.supervisor.launching import Launch
from outlast.supervisor.link import Told
from outlast.supervisor.serving import Server
from outlast.supervisor.statusline import StatusLine
from outlast.supervisor.stdio import OnTerminal, Streams
from outlast.supervisor.steps import Desk
from outlast.supervisor.supervised import SupervisedRun
from outlast.workspace import git
from outlast.workspace.seam import raw

if TYPE_CHECKING:
    from outlast.supervisor.minding import Minder


class Place(msgspec.Struct, frozen=True):
    """Where the files of a run's attempts lie."""

    folder: Path
    socket: Path
    number: int


class Attempt:
    """One attempt under way."""

    def __init__(
        self,
        run: SupervisedRun,
        launch: Launch,
        variables: dict[str, str],
        ears: Ears,
        say: Callable[[str], None],
    ) -> None:
        self._run, self._launch, self._ears = run, launch, ears
        self._say_it, self._line = say, StatusLine(self._status)
        self._began_s = time.monotonic()
        self._variables = variables
        self._mark = environment.attempt_mark(run.id, run.journal.lease.epoch)
        self._place = place_of(run)
        self._point = run.state.save_point
        self._named_idle = False
        self.tail = b""
        self._minder: Minder | None = None
        self._reset_at: datetime | None = None
        self._closed = ""

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
        minder = self._minder = self._minding()
        desk = minder.calls if minder is not None else Desk(self._run, self._on_beat)
        server = Server(self._place.socket, self._mark, desk, minder)
        try:
            ended = self._run_command(server)
            ending.let_calls_end(server)
            ending.check_store(self._run, self._reap, self._say)
            ending.check_calls(server, self._reap, self._say)
            if ended.cause != "done":
                raise self._stopped(ended)
            if self._launch.interactive and minder is not None:
                minder.calls.leave()
            else:
                desk.finish({"exit_code": 0})
        finally:
            if minder is not None:
                minder.close()
            server.close()

    def _minding(self) -> "Minder | None":
        """Whoever minds the agent, where the command is one that is known; no other command waits for its import."""
        adapter = known_agent(self._launch)
        if adapter is None:
            return None
        from outlast.supervisor.minding import Minder

        return Minder(
            self._run, self._launch, adapter, self._place.folder, self._variables, self._on_beat, self._say
        )  # fmt: skip

    def _run_command(self, server: Server) -> death.Death:
        streams = self._streams()
        oom = death.OomMark.take(os.getpid())
        try:
            child = spawning.start(streams.spec(self._spec()))
            streams.started()
            status = self._watch(child, server, streams)
            server.stopping()
            self._reap(ending.LEFT_GRACE_S)
        except programs.CannotStart as error:
            return death.of_error(error)
        finally:
            self.tail = streams.finish(self._is_hurried)
            self._closed = streams.closed
        if os.WIFEXITED(status) and self._minder is not None:
            return self._judged(self._minder, os.WEXITSTATUS(status))
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return death.Death("done", "exited with 0", 0, None)
        return death.of_status(status, oom=oom)

    def _judged(self, minder: "Minder", code: int) -> death.Death:
        """An agent's exit code says little: some exit with 0 after a failure."""
        if self._launch.interactive and code == 0:  # whatever its last words were, a person read them
            minder.look()
            return death.Death("done", "left by the person at the terminal", 0, None)
        final = minder.judge(code, self.tail)
        self._reset_at = final.reset_at
        said = final.text or ("exited with 0" if final.ending == "done" else final.ending)
        return death.Death(final.cause, f"{said} (exit code {code})" if code else said, code, None)

    def _streams(self) -> Streams | OnTerminal:
        terminal = Terminal.of(0) if self._launch.interactive else None
        if terminal is not None:
            return OnTerminal(terminal)
        return Streams(self._place.folder, self._place.number, self._say, self._line)

    def _spec(self) -> spawning.Spec:
        argv = (os.fsdecode(raw(self._launch.program)), *self._launch.words[1:])
        cwd, variables = os.fsdecode(raw(self._launch.cwd)), self._environment()
        if self._minder is not None:
            launch = self._minder.start(argv, variables, self._mark, Path(cwd))
            argv, variables = launch.command, {**variables, **launch.environment}
        if self._launch.setup:
            step = [*detaching.ourselves("step", "worktree setup", "--retry-failed", "--"), "/bin/sh", "-c"]
            argv = (
                "/bin/sh",
                "-c",
                f'{shlex.join([*step, self._launch.setup])} 1>&2 && exec "$@"',
                "sh",
                *argv,
            )
        return spawning.Spec(
            argv=argv, cwd=cwd, env=variables, umask=self._launch.umask, death_signal=signal.SIGKILL
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        run, folder = self._run, self._place.folder
        ours = environment.for_agent(
            run=run.id, task=run.task, epoch=run.journal.lease.epoch, socket=str(self._place.socket),
            store=run.journal.store.url, budget_file=str(folder / "budget.json"),
        )  # fmt: skip
        context = folder / "context.md"
        with open(context, "w", opener=_private) as file:
            file.write(run.context())
        return environment.with_git_settings(
            self._variables | ours | {environment.CONTEXT_FILE: str(context)}
        )

    # -- watching --------------------------------------------------------------------------------------------------

    def _watch(self, child: spawning.Child, server: Server, streams: Streams | OnTerminal) -> int:
        """Until the command has ended; its wait status. Raises AgentStopped when somebody wants it to stop first."""
        while True:
            self._ears.wait(streams.tick_s, child)
            for what in self._ears.others():
                self._job(what, child, streams)
            spawning.reap_orphans(mine=(child.pid,))
            status = child.wait_status(stops=True)
            if status is not None and not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
                return status
            if status is not None and os.WIFSTOPPED(status) and isinstance(streams, OnTerminal):
                streams.suspended()
                self._ears.link.say(Told(what="stopped"))
            if self._ears.got:
                self._interrupt(self._ears.got[0], server)
            if self._minder is not None:
                self._mind(self._minder, server)
            ending.check_store(self._run, self._reap, self._say)
            ending.check_calls(server, self._reap, self._say)
            rests = self._minder.rests if self._minder is not None else None
            ending.take_mail(self._run, server, self._reap, self._warn, rests)
            self._name_idleness()

    def _mind(self, minder: "Minder", server: Server) -> None:
        """Read what the agent wrote; what its hooks met that it cannot go on with ends it."""
        minder.look()
        if minder.failure is not None:
            error = minder.failure
            self._say(f"{error}: saving and stopping")
            ending.stop(self._run, server, f"{type(error).__name__}: {error}", self._reap, self._warn)
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

    def _job(self, what: str, child: spawning.Child, streams: Streams | OnTerminal) -> None:
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
        ending.stop(self._run, server, f"signal: {why.evidence}", self._reap, self._warn)
        raise ending.stopped_by(why, progress=self._has_progress())

    def _reap(self, grace_s: float) -> None:
        """Stop everything of the attempt. A second signal ends the grace; a third changes nothing."""

        def hurried() -> bool:
            self._ears.listen()
            return len(self._ears.got) > 1

        reaped = reaping.stop(self._found, first=signal.SIGTERM, grace_s=grace_s, on_wait=hurried)
        for name in reaped.escaped:
            self._warn(f"escaped {name}"[:100], f"{name} of the attempt could not be stopped")

    def _is_hurried(self) -> bool:
        """Whether somebody wants an end: then nobody waits for readers."""
        self._ears.listen()
        return bool(self._ears.got)

    def _found(self) -> Iterator[proc.Proc]:
        """All below us but what works for ourselves, with or without a mark."""
        for there in reaping.search(self._run.id, roots=[os.getpid()], spare={os.getppid()}):
            if proc.environ_value(there.pid, git.HELPER.encode()) is None:
                yield there

    def _stopped(self, ended: death.Death) -> AgentStopped:
        """Not started again is an interactive command, whose end the person saw, and one that nobody listens to."""
        if self._closed:
            self._say(f"standard output was closed: {self._closed}")
        here = self._launch.interactive or bool(self._closed)
        error = AgentStopped(
            ended.evidence,
            cause=ended.cause,
            exit_code=ended.exit_code,
            progress=self._has_progress(),
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
        return seen.has_progress(self._run.files, self._place.folder, self._point)

    def _on_beat(self) -> None:
        write_state(self._run, self._launch)

    def _warn(self, level: str, text: str) -> None:
        self._say(text)
        self._run.drive(ending.one(ev.Warned(at=self._run.journal.now(), level=level, text=text)))


def known_agent(launch: Launch) -> Adapter | None:
    """The adapter of a command that starts an agent we know; None for any other command."""
    if launch.plain:
        return None
    return registry.recognise(launch.words, os.fsdecode(raw(launch.program)))


def place_of(run: SupervisedRun) -> Place:
    """The files of the attempt that a run is in."""
    folder = guarding.folder_of(run.journal.store.root, run.id)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Place(folder, environment.socket_path(folder), run.state.attempts)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def write_state(run: SupervisedRun, launch: Launch) -> None:
    """The projection for people and scripts."""
    branch = statefile.branch_in(run.folder) if run.terms.workspace else ""
    active = statefile.of(run.state, run.state.status, issue=launch.issue, branch=branch)
    statefile.write(run.journal.store.root, active)
