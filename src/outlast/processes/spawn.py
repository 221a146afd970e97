"""Starts a process: its own session or group, killed when we die, and none of our descriptors open in it but those it is given.

What fails before the new program runs is raised as an error with its number, never returned as an exit code."""

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import threading
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NoReturn

from outlast.processes import libc
from outlast.processes.proc import all_processes
from outlast.processes.programs import CannotStart, find_program, why_not
from outlast.processes.timing import Timing

_FAILED = struct.Struct("=2i")
_IN_PREPARATION, _IN_FOLDER, _IN_EXEC = 0, 1, 2
_TOO_LATE = _FAILED.pack(_IN_PREPARATION, errno.ETIMEDOUT)
_FIRST_OTHER_FD = 3
_NEVER_RAN = 255


@dataclass(frozen=True, slots=True)
class Spec:
    """The process to start. `argv[0]` is looked for on the PATH of `env`.

    The child gets `death_signal` when we die; its own children do not inherit that. `foreground_tty` becomes the child's
    terminal, with the child as foreground group, before the program runs; it needs `own_group`.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    stdin_fd: int = 0
    stdout_fd: int = 1
    stderr_fd: int = 2
    new_session: bool = False
    own_group: bool = False
    umask: int | None = None
    death_signal: int | None = None
    foreground_tty: int | None = None
    inherited: tuple[int, ...] = ()  # further descriptors of ours that it keeps, under their numbers


class Child:
    """A process that we started. Poll `fileno()` for its end; close it when done."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self._status: int | None = None

    def fileno(self) -> int:
        """Readable as soon as the process has ended."""
        return self.pidfd

    def wait_status(self, *, stops: bool = False) -> int | None:
        """Its wait status, the same at every call; None while it runs. Never waits.

        With `stops` also that it was stopped or continued, once each. Raises ChildProcessError if other code waited for
        it.
        """
        if self._status is None:
            flags = os.WNOHANG | (os.WUNTRACED | os.WCONTINUED if stops else 0)
            pid, status = os.waitpid(self.pid, flags)
            if not pid or os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                return status if pid else None
            self._status = status
        return self._status

    def send(self, number: int) -> None:
        """Signal it; nothing happens if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        """Close the descriptor; the process is left alone."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def start(spec: Spec) -> Child:
    """Start a process; returns when the new program runs.

    Its signals have their defaults, none is blocked, and it has no descriptors except the three and `inherited`. Raises ProgramMissing
    or CannotStart with the reason, and then there is no process. Call it in the main thread: the death signal is sent
    when the starting thread ends.
    """
    assert threading.current_thread() is threading.main_thread(), (
        "the end of this thread would kill the child"
    )
    assert spec.foreground_tty is None or spec.own_group, (
        "only a group of its own can be put in the foreground"
    )
    program = find_program(spec.argv[0], spec.env.get("PATH", os.defpath), spec.cwd)
    says, tells = os.pipe()
    try:
        pid = _fork(spec, program, tells)
    except OSError as error:
        os.close(says)
        raise CannotStart(
            f"cannot start {program}: no new process: {error.strerror}",
            path=program,
            number=error.errno or 0,
        ) from error
    finally:
        os.close(tells)
    try:
        return _started(pid, says, spec, program)
    finally:
        os.close(says)


def _fork(spec: Spec, program: str, tells: int) -> int:
    """Fork with all signals blocked: none may reach the child while it still has our handlers."""
    become = _Become(spec, program, os.getpid(), tells, libc.prctl())
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with (
            warnings.catch_warnings()
        ):  # Python warns about threads at a fork; this child only makes system calls
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            become()
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _started(pid: int, says: int, spec: Spec, program: str) -> Child:
    """The child, once the exec closed its pipe; else raises the error that it wrote, with no child left."""
    try:
        has_ended = select.select([says], [], [], Timing.current().start_limit_s)[0]
        message = os.read(says, _FAILED.size) if has_ended else _TOO_LATE
        if not message:
            return Child(pid, os.pidfd_open(pid))
    except BaseException:
        _end(pid)
        raise
    _end(pid)
    stage, number = _FAILED.unpack(message)
    if stage == _IN_EXEC:
        raise why_not(program, number, spec.argv[0])
    what = f"the folder {spec.cwd}" if stage == _IN_FOLDER else "the new process"
    raise CannotStart(f"cannot start {program}: {what}: {os.strerror(number)}", path=program, number=number)


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@dataclass(frozen=True, slots=True)
class _Become:
    """The forked child, until the new program replaces it. It never returns."""

    spec: Spec
    program: str
    parent: int
    tells: int
    prctl: Callable[[int, int], int]

    def __call__(self) -> NoReturn:
        stage, tells = _IN_PREPARATION, self.tells
        try:
            tells = fcntl.fcntl(tells, fcntl.F_DUPFD_CLOEXEC, _FIRST_OTHER_FD)
            self._take_place()
            self._keep_only(tells)
            stage = _IN_FOLDER
            os.chdir(self.spec.cwd)
            stage = _IN_EXEC
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execve(self.program, self.spec.argv, self.spec.env)
        except OSError as error:
            os.write(tells, _FAILED.pack(stage, error.errno or errno.EINVAL))
        except BaseException:
            os.write(tells, _FAILED.pack(stage, errno.EINVAL))
        finally:
            os._exit(_NEVER_RAN)

    def _take_place(self) -> None:
        """Session, group, terminal, umask, the tie to our parent's death, and signals as at a login."""
        spec = self.spec
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        if spec.new_session:
            os.setsid()
        elif spec.own_group:
            os.setpgid(0, 0)
        if spec.foreground_tty is not None:
            os.tcsetpgrp(spec.foreground_tty, os.getpid())
        if spec.umask is not None:
            os.umask(spec.umask)
        if spec.death_signal is not None:
            self.prctl(libc.PR_SET_PDEATHSIG, spec.death_signal)
            if os.getppid() != self.parent:  # the parent died before the tie was made
                os._exit(_NEVER_RAN)

    def _keep_only(self, tells: int) -> None:
        """Put the three descriptors in their places, whatever they were before, and close all others."""
        given = (self.spec.stdin_fd, self.spec.stdout_fd, self.spec.stderr_fd)
        copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_OTHER_FD) for fd in given]
        for place, copy in enumerate(copies):
            os.dup2(copy, place, inheritable=True)
        for fd in self.spec.inherited:
            os.set_inheritable(fd, True)
        for name in os.listdir("/proc/self/fd"):
            if int(name) >= _FIRST_OTHER_FD and int(name) not in (tells, *self.spec.inherited):
                with contextlib.suppress(OSError):
                    os.close(int(name))


def become_subreaper() -> None:
    """From now on every orphan among our descendants becomes our child instead of the first process's."""
    if libc.prctl()(libc.PR_SET_CHILD_SUBREAPER, 1) != 0:
        raise OSError(errno.EINVAL, "this kernel has no subreapers")


def reap_orphans(mine: Collection[int] = ()) -> int:
    """Reap the zombies that we got as a subreaper; return how many. Never waits.

    Leaves children in `mine` and all in our own process group alone: other code of ours started them and awaits them.
    """
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return 0
    except ChildProcessError:
        return 0
    me, group, taken = os.getpid(), os.getpgrp(), 0
    for proc in all_processes().values():
        if proc.ppid == me and proc.is_zombie and proc.pgid != group and proc.pid not in mine:
            with contextlib.suppress(ChildProcessError):
                taken += os.waitpid(proc.pid, os.WNOHANG)[0] != 0
    return taken
