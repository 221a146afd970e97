"""The keeper: to a script that was started by itself what the supervisor is to a command.

A process of its own, without a terminal, started by `eval "$(outlast shell-init)"`. It claims the run, stops what an
earlier attempt left, saves what is found, serves the script's calls, and watches the script. When that is gone it
stops what it left, saves, and records how it ended.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from outlast.core import events as ev
from outlast.errors import AgentStopped, OutlastError
from outlast.processes import proc, reaping
from outlast.supervisor import beginning, detaching, ending, environment, statefile, telling
from outlast.supervisor.attempt import Place, place_of
from outlast.supervisor.hearing import Ears, Signalled
from outlast.supervisor.kept import Script
from outlast.supervisor.occupying import occupied
from outlast.supervisor.serving import Server
from outlast.supervisor.steps import Desk
from outlast.supervisor.supervised import SupervisedRun
from outlast.supervisor.wire import Welcome
from outlast.workspace.capture import Saver

TICK_S = 0.5
GRACE_S = 6.0
LEFT_GRACE_S = 2.0

OnReady = Callable[[Welcome, dict[str, str], tuple[str, ...]], None]


class Keeper:
    """One attempt of a script, from its first line to its end."""

    def __init__(self, run: SupervisedRun, script: Script, ears: Ears) -> None:
        self._run, self._script, self._ears = run, script, ears
        self._said: list[str] = []
        self._log: Path | None = None
        self._open = contextlib.ExitStack()
        run.on_claimed = self._prepare

    def carry(self, on_ready: OnReady) -> None:
        """Until the script is gone and that is on record. Raises OutlastError where the run is refused; then nothing began."""
        run = self._run
        is_ready = False
        try:
            with self._open, run:
                beginning.take_up_note(run)
                with self._served() as (desk, server):
                    self._write_state()
                    on_ready(self._welcome(desk, server), self._variables(), tuple(self._said))
                    is_ready, self._log = True, self._place.folder / detaching.LOG
                    self._watch(server)
                    self._after(desk, server)
                run.finish()
        except OutlastError as error:
            if not is_ready:
                raise
            self._say(str(error))
        finally:
            with contextlib.suppress(OutlastError):
                self._write_state()

    # -- before ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """The run is ours: its workspace too, and nothing of an earlier attempt runs on."""
        run = self._run
        if run.terms.workspace:
            private = Saver(run.folder, run.journal.store.root).private
            self._open.enter_context(occupied(private, run.folder, run.id, run.task))
        self._place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._script.record(run.journal.store.root, run.id)
        spare = {self._script.pid, *(there.pid for there in proc.ancestors(self._script.pid))}
        beginning.stop_earlier(run, self._say, spare=spare)

    @property
    def _place(self) -> Place:
        return place_of(self._run)

    @contextlib.contextmanager
    def _served(self) -> Iterator[tuple[Desk, Server]]:
        run = self._run
        desk = Desk(run, self._write_state)
        mark = environment.attempt_mark(run.id, run.journal.lease.epoch)
        server = Server(self._place.socket, mark, desk)
        try:
            yield desk, server
        finally:
            server.close()

    def _welcome(self, desk: Desk, server: Server) -> Welcome:
        return Welcome(str(server.pipe.path), desk.found_names, desk.found_task)

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

    def _watch(self, server: Server) -> None:
        """Until the script is gone. Raises AgentStopped when somebody wants the keeper to stop first."""
        while not self._script.is_gone:
            self._ears.wait(TICK_S, self._script, server.pipe)
            self._hear(server)
            if self._ears.got:
                self._interrupt(self._ears.got[0], server)
            self._take_mail(server)

    def _hear(self, server: Server) -> None:
        """What the script's shell told: names are on record already; an interruption is saved at once."""
        server.hear()
        said, server.said = server.said, []
        for note in said:
            number = self._script.take(note)
            if number:
                ending.save_now(self._run, f"signal: SIG{number} to the script", self._warn)
                self._write_state()

    def _take_mail(self, server: Server) -> None:
        """Requests: what stops the run stops the script first, and is recorded when nothing of it runs any more."""
        run = self._run
        if not run.journal.lease.mail_waits():
            return
        stop = run.asked_to_stop()
        if stop:
            if stop in ("pause", "handoff") and server.busy:
                return  # they wait for the calls under way
            ending.save_now(run, f"operator: {stop}", self._warn)
            self._reap(GRACE_S)
            ending.let_calls_end(server)
            run.may_stop = True
        run.drive(run.mail())

    # -- after -----------------------------------------------------------------------------------------------------

    def _interrupt(self, why: Signalled, server: Server) -> None:
        """A script without its keeper could record nothing: it is stopped too. Always raises."""
        ending.save_now(self._run, f"signal: {why.evidence}", self._warn)
        self._reap(GRACE_S)
        ending.let_calls_end(server)
        cause = "signal" if why.wanted or why.number == signal.SIGHUP else "host"
        raise AgentStopped(f"{why.evidence} to the keeper", cause=cause, wanted=why.wanted)

    def _after(self, desk: Desk, server: Server) -> None:
        """The script is gone: stop what it left, then judge. Raises AgentStopped unless it came to its end."""
        self._reap(LEFT_GRACE_S)
        ending.let_calls_end(server)
        self._hear(server)
        ended = self._script.end()
        if ended is not None:
            raise ended
        desk.finish({"exit_code": 0})

    def _reap(self, grace_s: float) -> None:
        reaped = reaping.stop(self._found, first=signal.SIGTERM, grace_s=grace_s)
        for name in reaped.escaped:
            self._warn(f"escaped {name}"[:100], f"{name} of the attempt could not be stopped")

    def _found(self) -> list[proc.Proc]:
        scripts = telling.holders(telling.path_of(self._place.socket))
        return reaping.find(self._run.id, roots=scripts)

    # -- words -----------------------------------------------------------------------------------------------------

    def _write_state(self) -> None:
        run = self._run
        branch = statefile.branch_in(run.folder) if run.terms.workspace else ""
        statefile.write(run.journal.store.root, statefile.of(run.state, run.state.status, branch=branch))

    def _warn(self, level: str, text: str) -> None:
        self._say(text)
        self._run.drive(ending.one(ev.Warned(at=self._run.journal.now(), level=level, text=text)))

    def _say(self, text: str) -> None:
        """On the script's standard error while that waits for us, later in a file: the terminal is the script's."""
        if self._log is None:
            self._said.append(text)
            return
        with contextlib.suppress(OSError), open(self._log, "a", opener=_private) as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}\n")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
