"""The process behind `outlast __keep`: it opens the script's run, waits for an earlier keeper, and answers once."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from outlast.errors import OutlastError, RunRefused, WorkspaceRefused
from outlast.runs.engine import stores
from outlast.runs.opening import identity
from outlast.runs.opening.entry import terms_of
from outlast.runs.opening.terms import Terms
from outlast.store.protocol import RunFilter, Store
from outlast.supervisor.guardian import workspace_lock
from outlast.supervisor.guardian.link import Link, pair
from outlast.supervisor.guardian.signals import StopSignals
from outlast.supervisor.guardian.workspace_lock import Occupied
from outlast.supervisor.launch.run import supervised_run
from outlast.supervisor.script import pid_watch
from outlast.supervisor.script.attach import Answer, KeeperRequest
from outlast.supervisor.script.keeper import Keeper
from outlast.supervisor.script.pid_watch import Script
from outlast.supervisor.socket.wire import Welcome
from outlast.workspace import repo
from outlast.workspace.capture.saver import Saver
from outlast.workspace.repo import workspace_around

_AGAIN = ("done", "cancelled")


def keep(request: KeeperRequest) -> None:
    """Keep the run of a script until the script is gone. A refusal is answered, not raised."""
    signals, script = StopSignals(_nobody()), Script(request.pid, request.ticks, request.script_fd)
    os.set_inheritable(request.script_fd, False)
    with open(request.answer_fd, "wb", buffering=0) as answer:
        os.set_inheritable(request.answer_fd, False)
        try:
            _keep_run(request, script, signals, answer)
        except OutlastError as error:
            _send(answer, Answer(error=str(error), hint=error.hint))
        except Exception as error:
            _send(answer, Answer(error=f"unexpected {type(error).__name__}: {error}", hint="this is a bug"))
            raise


def _keep_run(request: KeeperRequest, script: Script, signals: StopSignals, answer: BinaryIO) -> None:
    store = stores.acquire(request.store)
    try:
        while True:
            terms = _terms(request, store)
            try:
                with _alone(store, terms) as workspace:
                    keeper = Keeper(supervised_run(terms), script, signals, workspace)
                    return keeper.carry(_Start(answer))
            except RunRefused:
                if not pid_watch.wait_until_left(store.local, _in_the_way(store, terms)):
                    raise
    finally:
        stores.give_back(store)


@contextlib.contextmanager
def _alone(store: Store, terms: Terms) -> Iterator[Occupied | None]:
    """Take the workspace's lock before there is a run, so that a refused start leaves none behind."""
    if not terms.workspace:
        yield None
        return
    known = store.list(RunFilter(task=terms.task, project=terms.project, parent=""), limit=1)
    run = known[0].run if known and not terms.again else "(new)"
    folder = Path(terms.workspace)
    with workspace_lock.occupied(
        Saver(folder, store.local).private, folder, run, terms.task, "script"
    ) as ours:
        yield ours


def _terms(request: KeeperRequest, store: Store) -> Terms:
    """The run that `outlast run` would choose from here; a new one if the last one is over."""
    cwd = Path(request.cwd)
    folder: Path | None = workspace_around(cwd)
    try:
        repo.refuse(folder or cwd)
    except WorkspaceRefused:
        folder = None
    terms = terms_of(
        request.task,
        store=request.store,
        project=request.project,
        workspace=folder,
        files="keep",
        started_in=cwd,
    )
    terms = identity.identified(terms, store)
    known = store.list(RunFilter(task=terms.task, project=terms.project, parent=""), limit=1)
    return msgspec.structs.replace(terms, again=bool(known) and known[0].state.status in _AGAIN)


def _in_the_way(store: Store, terms: Terms) -> list[str]:
    """The runs whose keeper may be in the way: the task's last run, or the last one in the workspace."""
    runs = [
        item.run for item in store.list(RunFilter(task=terms.task, project=terms.project, parent=""), limit=1)
    ]
    if terms.workspace:
        runs.append(workspace_lock.occupant(Saver(Path(terms.workspace), store.local).private))
    return [run for run in runs if run]


def _nobody() -> Link:
    """A link without a guardian behind it."""
    ours, theirs = pair()
    theirs.close()
    return Link(ours)


class _Start:
    """The start of the script, which waits at the other end of a pipe."""

    def __init__(self, answer: BinaryIO) -> None:
        self._answer = answer

    def ready(self, welcome: Welcome, variables: dict[str, str], words: tuple[str, ...]) -> None:
        _send(self._answer, Answer(welcome=welcome, variables=variables, words=words))


def _send(pipe: BinaryIO, answer: Answer) -> None:
    """Send the answer, once: the script reads until the pipe is closed."""
    if not pipe.closed:
        pipe.write(msgspec.json.encode(answer))
        pipe.close()
