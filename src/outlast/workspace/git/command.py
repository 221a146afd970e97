"""Runs git without locks, hooks, prompts and outside variables, and reports every failure."""

import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from outlast import settings
from outlast.errors import SaveFailed

_QUIET = (
    "core.fsmonitor=false", "core.untrackedCache=false", "core.hooksPath=/dev/null", "core.preloadIndex=true",
    "core.quotePath=false", "gc.auto=0", "maintenance.auto=false", "safe.directory=*", "submodule.recurse=false",
    "core.splitIndex=false",
    "log.showSignature=false", "gpg.program=false", "gpg.ssh.program=false", "gpg.x509.program=false",
    "core.pager=cat", "core.editor=false", "core.sshCommand=false", "core.gitProxy=", "core.askPass=false",
    "core.checkStat=default", "core.trustctime=true", "core.fileMode=true", "core.symlinks=true", "core.ignoreCase=false",
)  # fmt: skip
# What would change bytes on their way. The private info/attributes overrule the worktree's own .gitattributes.
RAW = ("core.autocrlf=false", "core.safecrlf=false", "core.eol=lf", "core.attributesFile=/dev/null")
WORDS = tuple(word for setting in _QUIET for word in ("-c", setting))
JUDGING_WORDS = tuple(
    word for setting in _QUIET if setting != "safe.directory=*" for word in ("-c", setting)
)  # by the user's own safe.directory
RAW_WORDS = tuple(word for setting in RAW for word in ("-c", setting))


_PIECE_BYTES = 1 << 16

HELPER = "OUTLAST_HELPER"  # marks processes that work for us, in contrast to the watched ones


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for git: ours, without the variables that tell git where to work, and without prompts."""
    return settings.environment(
        without="GIT_",
        GIT_OPTIONAL_LOCKS="0", GIT_TERMINAL_PROMPT="0", GIT_NO_LAZY_FETCH="1", GIT_ALLOW_PROTOCOL="none", LC_ALL="C", **{HELPER: "1"},
        **(changes or {}),
    )  # fmt: skip


class _Watch:
    """Kills every git started under it that is not done in time, so that reading from one never waits longer."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._until_s = seconds, time.monotonic() + seconds
        self._mutex = threading.Lock()
        self._started: list[subprocess.Popen[bytes]] = []
        self._timer: threading.Timer | None = None
        self._over = False

    def check(self) -> None:
        """Raise SaveFailed if the time is over."""
        if self._over or time.monotonic() >= self._until_s:
            raise SaveFailed(
                f"git did not finish in {self._seconds:.0f} s", hint="see `git status` in the workspace"
            )

    def take(self, process: subprocess.Popen[bytes]) -> None:
        """Watch one more process."""
        with self._mutex:
            self._started = [each for each in self._started if each.returncode is None] + [process]
            if self._timer is None:
                self._timer = threading.Timer(max(0.0, self._until_s - time.monotonic()), self._end)
                self._timer.daemon = True
                self._timer.start()
            over = self._over
        if over:
            process.kill()

    def _end(self) -> None:
        with self._mutex:
            self._over = True
            for process in self._started:
                process.kill()

    def close(self) -> None:
        """Forget the processes that are done."""
        with self._mutex:
            if self._timer is not None:
                self._timer.cancel()


_watch: ContextVar[_Watch | None] = ContextVar("_watch", default=None)


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Kill any git that this thread starts inside the block and that lives longer. An outer block's limit stays in force.

    An agent can write repository settings that make git wait for ever, and with it everybody who looks at a page.
    """
    if _watch.get() is not None:
        yield
        return
    watch = _Watch(seconds)
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)
        watch.close()


def start(words: Sequence[str], **how: Any) -> "subprocess.Popen[bytes]":
    """Start a git that is killed when the time of `within` is over. Raises SaveFailed if it is over already."""
    watch = _watch.get()
    if watch is not None:
        watch.check()
    process = subprocess.Popen(words, **how)
    if watch is not None:
        watch.take(process)
    return process


def check_time() -> None:
    """Raise SaveFailed if the time of `within` is over."""
    watch = _watch.get()
    if watch is not None:
        watch.check()


@functools.cache
def _program(search_path: str) -> str:
    """The path of git: searching for it at every start costs a failed exec for each earlier folder."""
    return shutil.which("git", path=search_path) or "git"


class Running:
    """A started git; `result` waits for it."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        git_dir: Path | None = None,
        work_tree: Path | None = None,
        cwd: Path | None = None,
        variables: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        ok: tuple[int, ...] = (0,),
        options: Sequence[str] = (),
        before: Sequence[str] = WORDS,
        pass_fds: Sequence[int] = (),
    ) -> None:
        places = [f"--git-dir={git_dir}"] if git_dir is not None else []
        places += [f"--work-tree={work_tree}"] if work_tree is not None else []
        self._words, self._ok, self._stdin = words, ok, stdin
        self.messages = b""
        env = environment(variables)
        try:
            self._process = start(
                [_program(env.get("PATH", "")), *before, *options, *places, *words], cwd=cwd or work_tree or git_dir, env=env,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                pass_fds=tuple(pass_fds),
            )  # fmt: skip
        except FileNotFoundError as error:
            where = cwd or work_tree or git_dir
            if where is not None and not where.is_dir():
                raise SaveFailed(f"{where} is gone", hint="put it back, or name another folder") from error
            raise SaveFailed(
                "git is not installed", hint="install it: `apt install git`, `brew install git`"
            ) from error
        except OSError as error:
            where = cwd or work_tree or git_dir
            raise SaveFailed(f"cannot start git in {where}: {error.strerror}") from error

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.returncode

    def result(self, timeout_s: float | None = None) -> bytes:
        """Its output. Raises SaveFailed with git's own message for an exit code that was not expected."""
        try:
            out, self.messages = self._process.communicate(self._stdin, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise SaveFailed(
                f"`git {self._words[0]}` did not finish in the remaining {timeout_s:.1f} s"
            ) from error
        finally:
            self.stop()
        if self._process.returncode not in self._ok:
            if self._process.returncode == -signal.SIGKILL:
                check_time()
            lines = self.messages.decode(errors="replace").strip().splitlines() or ["no message"]
            raise SaveFailed(f"`git {self._words[0]}` failed with {self._process.returncode}: {lines[-1]}")
        return out

    def beginning(self, bytes_max: int, timeout_s: float) -> tuple[bytes, bool]:
        """The first bytes of its output, and whether that is all. Does not wait for the rest. Fails as `result` does."""
        assert self._process.stdout is not None, "stdout is a pipe"
        fd, until_s = self._process.stdout.fileno(), time.monotonic() + timeout_s
        found = bytearray()
        try:
            while len(found) <= bytes_max:
                left_s = until_s - time.monotonic()
                if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
                    raise SaveFailed(f"`git {self._words[0]}` did not finish in {timeout_s:.0f} s")
                piece = os.read(fd, _PIECE_BYTES)
                if not piece:
                    return bytes(found) + self.result(max(0.1, until_s - time.monotonic())), True
                found += piece
            return bytes(found[:bytes_max]), False
        finally:
            self._drop()

    def _drop(self) -> None:
        """Kill it if it still runs, and stop reading its output, also that of processes it started."""
        if self._process.returncode is None:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def stop(self) -> None:
        """Kill it if it still runs. Nothing of it is left."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def run(
    words: Sequence[str],
    *,
    git_dir: Path | None = None,
    work_tree: Path | None = None,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    ok: tuple[int, ...] = (0,),
    timeout_s: float | None = None,
    options: Sequence[str] = (),
) -> bytes:
    """Run git to its end and return its output."""
    started = Running(
        words,
        git_dir=git_dir,
        work_tree=work_tree,
        cwd=cwd,
        variables=variables,
        stdin=stdin,
        ok=ok,
        options=options,
    )
    return started.result(timeout_s)


def names(listed: bytes) -> list[bytes]:
    """The names in git's -z output."""
    return listed.split(b"\0")[:-1]


def listed(paths: Sequence[bytes]) -> bytes:
    """Names as -z input for git."""
    return b"".join([path + b"\0" for path in paths])
