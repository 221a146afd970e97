"""Where a program is, and why it cannot be started: the same message before and after the attempt."""

import errno
import os
import shlex
import stat

from outlast.errors import OutlastError

SHEBANG_MAX_BYTES = 256


class CannotStart(OutlastError):
    """A process was not started: no program, no folder, no memory. Nothing of it ran."""

    exit_code = 3

    def __init__(self, message: str, *, path: str, number: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.errno = number


class ProgramMissing(CannotStart):
    """The program does not exist or cannot be run; only a person can change that."""


def find_program(word: str, path: str, cwd: str) -> str:
    """The absolute path of the program that `execvp` would run in `cwd` with this PATH.

    Raises ProgramMissing with the reason in one line. Symbolic links are kept: some programs depend on their name.
    """
    if "/" in word:
        return _checked(os.path.join(cwd, word), word)
    refusal: ProgramMissing | None = None
    for folder in path.split(":") if word else ():
        candidate = os.path.join(cwd, folder, word)
        try:
            return _checked(candidate, candidate)
        except ProgramMissing as error:
            if refusal is None and (error.errno != errno.ENOENT or os.path.exists(candidate)):
                refusal = error
    raise refusal or _missing(
        word, word, errno.ENOENT, "not found on PATH", "install it, or give its full path"
    )


def _checked(path: str, shown: str) -> str:
    """The path, if it can be run as far as we can tell. The kernel decides at the exec."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise why_not(path, error.errno or errno.ENOENT, shown) from error
    if not stat.S_ISREG(mode):
        raise why_not(path, errno.EISDIR if stat.S_ISDIR(mode) else errno.EACCES, shown)
    if not os.access(path, os.X_OK, effective_ids=True):
        raise why_not(path, errno.EACCES, shown)
    interpreter = _interpreter(path)
    if os.path.isabs(interpreter) and not os.path.exists(interpreter):
        raise why_not(path, errno.ENOENT, shown)
    return path


def why_not(path: str, number: int, shown: str = "") -> CannotStart:
    """The error for a program that could not be executed, from the kernel's error number."""
    shown = shown or path
    match number:
        case errno.ENOENT | errno.ENOTDIR if interpreter := _interpreter(path):
            problem = f"its interpreter {interpreter} is missing"
            return _missing(shown, path, number, problem, "install it, or fix the first line of the script")
        case errno.ENOENT | errno.ENOTDIR:
            return _missing(shown, path, number, "not found", "install it, or fix its path")
        case errno.EISDIR | errno.EACCES if os.path.isdir(path):
            return _missing(shown, path, errno.EISDIR, "is a folder", "give the program inside it")
        case errno.EACCES | errno.EPERM:
            return _missing(shown, path, number, "is not executable", f"`chmod +x {shlex.quote(path)}`")
        case errno.ENOEXEC:
            hint = "a script begins with a line like #!/bin/sh; a binary must be for this machine"
            return _missing(shown, path, number, "this machine cannot run it", hint)
        case _:
            return CannotStart(f"cannot start {shown}: {os.strerror(number)}", path=path, number=number)


def _missing(shown: str, path: str, number: int, problem: str, hint: str) -> ProgramMissing:
    return ProgramMissing(f"{shown or repr(shown)}: {problem}", path=path, number=number, hint=hint)


def _interpreter(path: str) -> str:
    """The interpreter in a script's first line; "" for anything else."""
    try:
        with open(path, "rb") as script:
            line = script.read(SHEBANG_MAX_BYTES).partition(b"\n")[0]
    except OSError:
        return ""
    words = line[2:].split() if line.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else ""
