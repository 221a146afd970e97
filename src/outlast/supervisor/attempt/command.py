"""The command of an attempt as the system starts it: words, folder, environment, streams."""

import os
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from outlast import settings
from outlast.processes import spawn
from outlast.processes.tty import Terminal
from outlast.runs.engine.run import RunEngine
from outlast.store import credentials, durable
from outlast.supervisor.launch import background, environment
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.output.status_line import StatusLine
from outlast.supervisor.output.streams import OnTerminal, Streams
from outlast.supervisor.person import Person
from outlast.workspace.types import raw

if TYPE_CHECKING:
    from outlast.supervisor.agent.attempt import AgentAttempt
    from outlast.supervisor.agent.guard import Guard
    from outlast.supervisor.budget.gateway import Gate


class Place(msgspec.Struct, frozen=True):
    """Where the files of a run's attempts lie."""

    folder: Path
    socket: Path
    number: int

    @property
    def log(self) -> Path:
        """The log of the command's output."""
        return self.folder / f"attempt-{self.number}.log"


def place_of(run: RunEngine) -> Place:
    """The files of the attempt that a run is in."""
    local = run.journal.store.local
    folder = local.run_folder(run.id)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Place(folder, local.socket(run.id), run.state.attempts)


def streams_of(
    launch: Launch, place: Place, person: Person, line: StatusLine, *, keeps: bool
) -> Streams | OnTerminal:
    """The terminal itself where the command is interactive and there is one; else pipes, with a copy in the log.

    `keeps`: copy standard input, for an agent that may need its prompt again.
    """
    terminal = Terminal.of(0) if launch.interactive else None
    if terminal is not None:
        return OnTerminal(terminal)
    return Streams(place.folder, place.number, person, line, keeps=keeps)


def spec_of(
    run: RunEngine,
    launch: Launch,
    variables: dict[str, str],
    place: Place,
    mark: str,
    agent: "AgentAttempt | None",
    gate: "Gate | None",
    guard: "Guard | None" = None,
) -> spawn.Spec:
    """The command, with what outlast adds: the agent's hooks and session, the way to the gateway, shims, the setup of a worktree."""
    argv = (os.fsdecode(raw(launch.program)), *launch.words[1:])
    cwd = os.fsdecode(raw(launch.cwd))
    found = settings.went_to(_environment(run, variables, place), cwd)
    if agent is None or run.files is None:  # else each of its calls ends with a save that has its commits
        found = environment.with_git_settings(found)
    if agent is not None:
        command = agent.command(argv, found, mark)
        argv, found = command.command, {**found, **command.environment}
    elif gate is not None:
        found |= gate.routes()
    if guard is not None:
        argv = guard.command(argv, found, mark)
    if launch.setup:
        step = [*background.ourselves("step", "worktree setup", "--retry-failed", "--"), "/bin/sh", "-c"]
        argv = ("/bin/sh", "-c", f'{shlex.join([*step, launch.setup])} 1>&2 && exec "$@"', "sh", *argv)
    return spawn.Spec(
        argv=argv, cwd=cwd, env=found, umask=launch.umask, death_signal=signal.SIGKILL,
        inherited=agent.inherited if agent is not None else (),
    )  # fmt: skip


def _environment(run: RunEngine, variables: dict[str, str], place: Place) -> dict[str, str]:
    ours = environment.for_agent(
        run=run.id, task=run.task, epoch=run.journal.lease.epoch, socket=str(place.socket),
        store=run.journal.store.url, budget_file=str(place.folder / "budget.json"),
    )  # fmt: skip
    context = place.folder / "context.md"
    with open(context, "w", opener=durable.opener) as file:
        file.write(run.context())
    return credentials.without(variables) | ours | {environment.CONTEXT_FILE: str(context)}
