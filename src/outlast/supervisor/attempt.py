"""One attempt of a command: started, watched, served, stopped and reaped; how it ended is raised or returned.

Everything here happens in the supervisor's main thread but for the relay of output and the socket's calls.
"""

import contextlib
import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from outlast.core import events as ev
from outlast.errors import AgentStopped, OutlastError
from outlast.processes import death, proc, programs, reaping, spawning
from outlast.processes.tty import Terminal
from outlast.supervisor import detaching, ending, environment, guarding, seen, statefile
from outlast.supervisor.hearing import Ears, Signalled
from outlast.supervisor.launching import Launch
from outlast.supervisor.link import Told
from outlast.supervisor.serving import Server
from outlast.supervisor.stdio import OnTerminal, Streams
from outlast.supervisor.steps import Desk
from outlast.supervisor.supervised import SupervisedRun
from outlast.workspace import git, saves
from outlast.workspace.seam import raw

GRACE_S = 6.0
LEFT_GRACE_S = 2.0  # for what an agent that ended left running


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
        self._run, self._launch, self._ears, self._say = run, launch, ears, say
        self._variables = variables
        self._mark = environment.attempt_mark(run.id, run.journal.lease.epoch)
        self._place = place_of(run)
        self._point = run.state.save_point
        self._named_idle = False
        self.tail = b""
        self._closed = ""

    # -- the whole of it -------------------------------------------------------------------------------------------

    def carry(self) -> None:
        """Until the command has ended well and its last beat is done. Raises AgentStopped for every other end."""
        desk = Desk(self._run, self._on_beat)
        server = Server(self._place.socket, self._mark, desk)
        try:
            ended = self._run_command(server)
            ending.let_calls_end(server)
            if ended.cause != "done":
                raise self._stopped(ended)
            desk.finish({"exit_code": 0})
        finally:
            server.close()

    def _run_command(self, server: Server) -> death.Death:
        streams = self._streams()
        oom = death.OomMark.take(os.getpid())
        try:
            child = spawning.start(streams.spec(self._spec()))
            streams.started()
            status = self._watch(child, server, streams)
            self._reap(signal.SIGTERM, LEFT_GRACE_S)
        except programs.CannotStart as error:
            return death.of_error(error)
        finally:
            self.tail = streams.finish(self._is_hurried)
            self._closed = streams.closed
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return death.Death("done", "exited with 0", 0, None)
        return death.of_status(status, oom=oom)

    def _streams(self) -> Streams | OnTerminal:
        terminal = Terminal.of(0) if self._launch.interactive else None
        return Streams(self._place.folder, self._place.number) if terminal is None else OnTerminal(terminal)

    def _spec(self) -> spawning.Spec:
        argv = (os.fsdecode(raw(self._launch.program)), *self._launch.words[1:])
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
            argv=argv,
            cwd=os.fsdecode(raw(self._launch.cwd)), env=self._environment(), umask=self._launch.umask,
            death_signal=signal.SIGKILL,
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
            self._take_mail(server)
            self._name_idleness()

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

    def _take_mail(self, server: Server) -> None:
        """Requests: what stops the run stops the command first, and is recorded when nothing of it runs any more."""
        run = self._run
        if not run.journal.lease.mail_waits():
            return
        stop = run.asked_to_stop()
        if stop:
            if stop in ("pause", "handoff") and server.busy:
                return  # they wait for the calls under way
            ending.save_now(run, f"operator: {stop}", self._warn)
            self._reap(signal.SIGTERM, GRACE_S)
            ending.let_calls_end(server)
            run.may_stop = True
        run.drive(run.mail())

    # -- stopping --------------------------------------------------------------------------------------------------

    def _interrupt(self, why: Signalled, server: Server) -> None:
        """Save, stop with grace, reap; the save after is made where the attempt's end is recorded. Always raises."""
        self._say(f"{why.evidence}: saving and stopping")
        ending.save_now(self._run, f"signal: {why.evidence}", self._warn)
        self._reap(signal.SIGTERM, GRACE_S)
        ending.let_calls_end(server)
        raise stopped_by(why, progress=self._has_progress())

    def _reap(self, first: int, grace_s: float) -> None:
        """Stop everything of the attempt. A second signal ends the grace; a third changes nothing."""

        def hurried() -> bool:
            self._ears.listen()
            return len(self._ears.got) > 1

        reaped = reaping.stop(self._found, first=first, grace_s=grace_s, on_wait=hurried)
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
        )
        if self._closed:
            error.exit_code = 128 + signal.SIGPIPE
        elif here and ended.signal is not None:
            error.exit_code = 128 + ended.signal
        return error

    # -- progress --------------------------------------------------------------------------------------------------

    def _has_progress(self) -> bool:
        """Whether the files are as no attempt before left them."""
        kept = self._run.files
        if kept is None:
            return False
        with contextlib.suppress(OutlastError, OSError):
            began = saves.read(kept.saver.reader(), self._point, kept.saver.repo().algo).tree
            return seen.is_new(self._place.folder, kept.saver.peek().tree, began)
        return False

    def _on_beat(self) -> None:
        write_state(self._run, self._launch)

    def _warn(self, level: str, text: str) -> None:
        self._say(text)
        self._run.drive(ending.one(ev.Warned(at=self._run.journal.now(), level=level, text=text)))


def stopped_by(why: Signalled, *, progress: bool) -> AgentStopped:
    """The end of an attempt that a signal wants."""
    cause = "signal" if why.wanted or why.number == signal.SIGHUP else "host"
    error = AgentStopped(why.evidence, cause=cause, wanted=why.wanted, progress=progress)
    error.exit_code = 128 + why.number
    return error


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
