"""A script joins a run: the one it was started in, or one of its own behind a keeper. It gets the run's variables."""

import os
import re
from pathlib import Path

import msgspec

from outlast import decoders, settings
from outlast.errors import OutlastError, UsageError
from outlast.store.locks import start_ticks
from outlast.supervisor.client import script as client_script
from outlast.supervisor.launch import background, environment
from outlast.supervisor.socket.connection import Gone
from outlast.supervisor.socket.wire import Note, Welcome
from outlast.supervisor.timing import Timing

TASK = "OUTLAST_TASK"
_NAMELESS = re.compile(r"-?(ba|z|da|k)?sh|/dev/.*|/proc/.*|")


class KeeperRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request to a keeper: the script, its task and folder, and two descriptors: the script's process, and a pipe for
    the answer."""

    pid: int
    ticks: int
    task: str
    cwd: str
    store: str | None
    project: str | None
    script_fd: int
    answer_fd: int


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A keeper's answer: words for the person, and either the way into the run or the error."""

    words: tuple[str, ...] = msgspec.field(default=(), name="said")
    variables: dict[str, str] = {}
    welcome: Welcome | None = None
    error: str = ""
    hint: str = ""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a script has joined. `words` are for the person."""

    welcome: Welcome
    variables: dict[str, str]
    words: tuple[str, ...]


def join(pid: int, script: str, *, store: str | None, project: str | None) -> Joined:
    """Join the run around the script, or start one. Raises OutlastError if the keeper refuses it."""
    if settings.variable(environment.SOCKET):
        try:
            body = client_script.ask(Note(kind="hello", text=""), Timing.current().hello_s)
            return Joined(welcome=decoders.decode(body, Welcome), variables={}, words=())
        except (Gone, client_script.NotInARun):
            pass  # the run around is over
    answer = _start_keeper(pid, task_of(script), store, project)
    if answer.welcome is None:
        raise UsageError(answer.error, hint=answer.hint)
    return Joined(welcome=answer.welcome, variables=_with_git(answer.variables), words=answer.words)


def task_of(script: str) -> str:
    """The task of a script that runs by itself: $OUTLAST_TASK, else its file name."""
    task = settings.variable(TASK) if not settings.variable(environment.ATTEMPT) else ""
    if task:
        return task
    if _NAMELESS.fullmatch(script):
        raise UsageError(
            f"a script without a file has no name for its run (it is {script!r})",
            hint=f"say what it is about: `export {TASK}=NAME` before `eval`",
        )
    return Path(script).name


def _start_keeper(pid: int, task: str, store: str | None, project: str | None) -> Answer:
    """Start the keeper, and wait for its answer."""
    script_fd = os.pidfd_open(pid)
    ours, theirs = os.pipe()
    request = KeeperRequest(
        pid=pid, ticks=start_ticks(pid), task=task, cwd=os.getcwd(), store=store, project=project,
        script_fd=script_fd, answer_fd=theirs,
    )  # fmt: skip
    words = background.ourselves("__keep", msgspec.json.encode(request).decode())
    background.spawn(words, Path(os.devnull), cwd=request.cwd, pass_fds=(script_fd, theirs))
    os.close(theirs)
    with open(ours, "rb") as file:
        data = file.read()
    try:
        return decoders.decode(data, Answer)
    except msgspec.MsgspecError as error:
        raise OutlastError(
            "the keeper of the run died before it answered", hint="start the script again"
        ) from error


def _with_git(variables: dict[str, str]) -> dict[str, str]:
    """The variables with git's settings, added to the git settings that the script has already."""
    mine = settings.inherited()
    grown = environment.with_git_settings(mine)
    return variables | {name: value for name, value in grown.items() if mine.get(name) != value}
