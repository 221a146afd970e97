"""A PostgreSQL server of our own in a throw-away folder, with its durable defaults; or the reason why not."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

USERS = ("postgres", "nobody")  # the server refuses to run as root
START_TIMEOUT_S = 60


class NoServer(Exception):
    """There is no server to measure against; the message says why."""


def find(program: str) -> str:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), reverse=True)
    found = shutil.which(program) or next((str(path) for path in installed), None)
    if found is None:
        raise NoServer(f"{program} is not installed")
    return found


def server_user() -> str | None:
    """The user of the server: ourselves, unless we are root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    for user in USERS:
        if user in names:
            return user
    raise NoServer(f"started as root, and none of these users exists: {', '.join(USERS)}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def call(command: list[str], user: str | None, cwd: Path) -> None:
    ids: dict[str, Any] = (
        {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    )
    # Output to a file, not a pipe: the server inherits it from pg_ctl and would keep a pipe open.
    with (cwd / "call.log").open("w+") as log:
        done = subprocess.run(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, **ids
        )
        log.seek(0)
        if done.returncode != 0:
            raise NoServer(
                f"{Path(command[0]).name} failed: {(log.read().splitlines() or ['no output'])[-1]}"
            )


@contextmanager
def server(parent: Path) -> Iterator[str]:
    """The URL of a running server, stopped and removed at the end. Raises NoServer."""
    initdb, pg_ctl, user = find("initdb"), find("pg_ctl"), server_user()
    folder = Path(tempfile.mkdtemp(prefix="outlast-bench-pg-", dir=parent))
    try:
        password = secrets.token_hex(16)
        (folder / "password").write_text(password)
        if user is not None:
            for path in (folder, folder / "password"):
                shutil.chown(path, user)
        data = str(folder / "data")
        call([initdb, "-D", data, "-U", "bench", "-A", "scram-sha-256", "--pwfile=password"], user, folder)
        port = free_port()
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        start = [
            pg_ctl,
            "-D",
            data,
            "-w",
            "-t",
            str(START_TIMEOUT_S),
            "-l",
            "server.log",
            "-o",
            options,
            "start",
        ]
        call(start, user, folder)
        try:
            yield f"postgresql://bench:{password}@127.0.0.1:{port}/postgres"
        finally:
            call([pg_ctl, "-D", data, "-w", "-m", "immediate", "stop"], user, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
