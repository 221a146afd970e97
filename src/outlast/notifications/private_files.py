"""Secrets in files of their own: read only if nobody else can read them, and made so."""

import contextlib
import os
import secrets
import stat
from pathlib import Path

from outlast.errors import UsageError

BYTES_MAX = 4096
SECRET_BYTES = 32


def read(path: Path, what: str) -> str:
    """The one line of a file that is its owner's alone. Raises UsageError."""
    try:
        with open(path, "rb", opener=_plain) as file:
            about = os.fstat(file.fileno())
            text = file.read(BYTES_MAX + 1).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(
            f"cannot read the file of {what}, {path}: {problem}", hint="name a file of mode 600"
        ) from error
    if not stat.S_ISREG(about.st_mode):
        raise UsageError(f"the file of {what} is no plain file: {path}", hint="name a file of mode 600")
    if about.st_uid not in (os.getuid(), 0) or stat.S_IMODE(about.st_mode) & 0o077:
        raise UsageError(f"other users can read the file of {what}, {path}", hint=f"`chmod 600 {path}`")
    if not text or not text.isprintable() or len(text) > BYTES_MAX:
        raise UsageError(f"the file of {what} must have one line: {path}", hint="write it anew, mode 600")
    return text


def secret(path: Path) -> bytes:
    """The random secret in a file of ours, made when it is first asked for: of two processes that make it, one's counts."""
    for _ in range(2):
        with contextlib.suppress(FileNotFoundError):
            return _secret_in(path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, secrets.token_bytes(SECRET_BYTES))
            os.fsync(fd)
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            os.close(fd)
            temporary.unlink(missing_ok=True)
    return _secret_in(path)


def _secret_in(path: Path) -> bytes:
    with open(path, "rb", opener=_plain) as file:
        about, data = os.fstat(file.fileno()), file.read(SECRET_BYTES + 1)
    private = about.st_uid == os.getuid() and not stat.S_IMODE(about.st_mode) & 0o077
    if not private or len(data) != SECRET_BYTES:
        raise UsageError(
            f"the secret of the links is damaged, or not yours alone: {path}",
            hint=f"`rm {path}`: the links that were sent then do nothing any more",
        )
    return data


def _plain(path: str, flags: int) -> int:
    """Open without waiting for a pipe, and without following a link put in the file's place."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
