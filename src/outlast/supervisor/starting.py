"""From what a person typed, or from what an earlier start recorded, to a supervisor at work. Refused before anything starts."""

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from outlast import settings
from outlast.core import events as ev
from outlast.errors import UsageError, WorkspaceRefused
from outlast.processes.programs import CannotStart, find_program
from outlast.runs import stores
from outlast.runs.opening import terms_of
from outlast.runs.savepoints import workspace_around
from outlast.store.protocol import Summary, Where
from outlast.store.sqlite import SqliteStore
from outlast.supervisor import kept, launching
from outlast.supervisor.launching import Launch
from outlast.supervisor.link import Link
from outlast.supervisor.occupying import occupant, occupied
from outlast.supervisor.supervised import SupervisedRun
from outlast.supervisor.supervising import Supervisor
from outlast.workspace import repo
from outlast.workspace.capture import Saver

NAMED_MAX = 64
_SLUG = re.compile(r"[^A-Za-z0-9._-]+")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asks for; None and empty where nothing was said."""

    words: tuple[str, ...]
    task: str = ""
    issue: str = ""
    goal: str | None = None
    done: tuple[str, ...] | None = None
    invariants: tuple[str, ...] | None = None
    budget: str | None = None
    workspace: str | None = None
    cwd: str = ""
    store: str | None = None
    project: str | None = None
    files: str = "keep"
    rounds: int = 5
    restarts: int = 50
    share: bool = False
    amend: bool = False
    again: bool = False
    moved: bool = False
    headless: bool = False
    setup: str = ""


def start(asked: Asked, link: Link, say: Callable[[str], None]) -> int:
    """Carry a command that a person typed; the exit code. Raises OutlastError where it is refused."""
    if not asked.words:
        raise UsageError("there is no command to run", hint="outlast run --task 1411 -- CMD …")
    cwd = Path(asked.cwd or Path.cwd())
    if not cwd.is_dir():
        raise UsageError(f"the folder {cwd} is not there", hint="make it, or work in another")
    variables = _inherited()
    try:
        program = find_program(asked.words[0], variables.get("PATH", os.defpath), str(cwd))
    except CannotStart as error:
        raise UsageError(str(error), hint=error.hint) from error
    folder = _workspace(asked, cwd, say)
    launch = launching.recorded(
        asked.words, program, cwd, variables, issue=asked.issue, rounds=asked.rounds, restarts=asked.restarts,
        share=asked.share, setup=asked.setup, interactive=not asked.headless and os.isatty(0) and os.isatty(1),
    )  # fmt: skip
    task = asked.task or _task_of(asked.words)
    terms = terms_of(
        task, goal=asked.goal, done=asked.done, invariants=asked.invariants, budget=asked.budget, store=asked.store,
        project=asked.project, workspace=folder, files=asked.files, moved=asked.moved, amend=asked.amend,
        again=asked.again or not asked.task,
    )  # fmt: skip
    return _carry(SupervisedRun(terms), launch, variables, link, say)


def resume(url: str, summary: Summary, launch: Launch, link: Link, say: Callable[[str], None]) -> int:
    """Carry on a run as its last start recorded it; the exit code. The store must not be open here: it has threads."""
    variables, missing = launching.environment_of(launch, _inherited())
    settings.adopt(variables)  # checks and git need its PATH as much as the command does
    if missing:
        path = settings.user_folder() / launching.SECRETS_FILE
        more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
        names = ", ".join(missing[:NAMED_MAX]) + more
        say(f"not set here, but at the first start: {names}; values belong into {path}")
    launch = msgspec.structs.replace(launch, interactive=launch.interactive and os.isatty(0) and os.isatty(1))
    state = summary.state
    terms = terms_of(
        state.task, store=url, project=summary.project, workspace=state.workspace or None, files="keep"
    )
    return _carry(SupervisedRun(terms), launch, variables, link, say)


def launch_of(store: SqliteStore, summary: Summary) -> Launch | None:
    """How a run was last started, if a supervisor started it."""
    page = store.read(summary.run, after=0, limit=1, tags=("attempt_started",), newest=True).events
    event = page[0].event if page else None
    if not isinstance(event, ev.AttemptStarted) or event.launch is None:
        return None
    data = store.blobs.get(event.launch.blob) if event.launch.blob else bytes(event.launch.v)
    return msgspec.json.decode(data, type=Launch)


def _carry(
    run: SupervisedRun, launch: Launch, variables: dict[str, str], link: Link, say: Callable[[str], None]
) -> int:
    supervisor = Supervisor(run, launch, variables, link, say)
    if not run.terms.workspace or launch.share:
        return supervisor.carry()
    store = stores.acquire(run.terms.store or run.settings["store"] or None)
    try:
        private = Saver(run.folder, store.root).private
        known = store.list(Where(task=run.task, project=run.terms.project, parent=""), limit=1)
        kept.wait_until_left(store.root, [*(item.run for item in known), occupant(private)])
        with occupied(private, run.folder, known[0].run if known else "(new)", run.task) as name:
            supervisor.on_run = name
            return supervisor.carry()
    finally:
        stores.give_back(store)


def _workspace(asked: Asked, cwd: Path, say: Callable[[str], None]) -> Path | None:
    """The folder to save: the one given, else the repository around, else this one; none where that is refused."""
    if asked.workspace is not None:
        folder = Path(os.path.expanduser(asked.workspace))
        if folder.is_dir():
            repo.refuse(Path(os.path.realpath(folder)))
        return folder
    folder = workspace_around(cwd)
    try:
        repo.refuse(folder)
    except WorkspaceRefused as error:
        say(f"no files are saved: {error}")
        return None
    return folder


def _task_of(words: Sequence[str]) -> str:
    """A name for a command that was given none: the same words in the same folder are the same task."""
    name = _SLUG.sub("-", Path(words[0]).name).strip("-")[:40] or "command"
    digest = hashlib.blake2b(shlex.join(words).encode("utf-8", "surrogateescape"), digest_size=3).hexdigest()
    return f"{name}-{digest}"


def _inherited() -> dict[str, str]:
    """The environment that a command gets: ours, without what belongs to a run around us."""
    return settings.environment(without=launching.OURS)
