"""A PostgreSQL of the tests' own: one server for each worker, one database for each test, made from a template.

The programs are Debian's, those of PyPI's `pgserver`, or those in the folder OUTLAST_TEST_POSTGRES."""

import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.support import processes
from tests.support.environment import skip_or_fail

FOLDER = "OUTLAST_TEST_POSTGRES"
USERS = ("postgres", "nobody")  # the server refuses to run as root
TEMPLATE = "outlast_template"
OWNER = "owner"
_PR_SET_PDEATHSIG = 1
# No test cuts the power under it: what a killed server wrote is in the kernel's memory. Vacuum writes, and a subscriber
# must wait for whoever writes.
_SETTINGS = (
    "listen_addresses=", "fsync=off", "autovacuum=off", "max_connections=300", "shared_buffers=32MB", "log_checkpoints=off",
)  # fmt: skip


def programs() -> Path | None:
    """The folder with `initdb` and `postgres`, or None."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = importlib.util.find_spec("pgserver")
    bundled = [Path(package.origin).parent / "pginstall/bin"] if package and package.origin else []
    named = [Path(os.environ[FOLDER])] if FOLDER in os.environ else []
    return next((each for each in (*named, *installed, *bundled) if (each / "initdb").exists()), None)


def server_user() -> pwd.struct_passwd | None:
    """Who runs the server: ourselves, unless we are root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return next((names[user] for user in USERS if user in names), None)


class PostgresServer:
    """A server in a throw-away folder, reached by a socket in it that nobody else may open."""

    def __init__(self, folder: Path, binaries: Path, *, primary: "PostgresServer | None" = None) -> None:
        """`primary`: be its standby."""
        self.folder = folder
        self._binaries = binaries
        self._user = server_user()
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        if self._user is not None:
            shutil.chown(folder, self._user.pw_uid, self._user.pw_gid)
        if primary is None:
            self._run(
                "initdb", "-D", "data", "-U", OWNER, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"
            )
        else:
            self._run(
                "pg_basebackup",
                "-D",
                "data",
                "-R",
                "-c",
                "fast",
                "-N",
                "-h",
                str(primary.folder),
                "-U",
                OWNER,
            )

    def _ids(self) -> dict[str, Any]:
        return (
            {}
            if self._user is None
            else {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        )

    def _run(self, program: str, *words: str) -> None:
        with (self.folder / "call.log").open("w+") as log:
            done = subprocess.run(
                [self._binaries / program, *words], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}, check=False, **self._ids(),
            )  # fmt: skip
            log.seek(0)
            assert done.returncode == 0, f"{program}: {log.read()}"

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The server's main process."""
        assert self._process is not None, "the server was not started"
        return self._process

    def start(self) -> None:
        """Start it and wait until it answers. It dies with us."""
        words = [word for setting in _SETTINGS for word in ("-c", setting)]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", "data", "-k", self.folder, *words], cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
                preexec_fn=_die_with_parent, process_group=0, **self._ids(),
            )  # fmt: skip
        processes.wait_for(self._answers, what="PostgreSQL to answer")

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.folder / "server.log").read_text()
        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _all(self) -> list[int]:
        """The server's main process and its children. Each of these has a process group of its own."""
        pids = [self.process.pid]
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == self.process.pid:
                    pids.append(int(folder.name))
        return pids

    def kill(self) -> None:
        """SIGKILL of every process of the server. It is not started anew while one of them is left."""
        self.process.send_signal(signal.SIGSTOP)  # it makes no more of them
        pids = self._all()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        processes.wait_for(
            lambda: all(processes.state(pid) in (None, "Z", "X") for pid in pids),
            what="the server's processes to be gone",
        )

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Every process of the server is stopped in this block: its connections stay open, and nothing is answered."""
        pids = self._all()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def set(self, name: str, value: str) -> None:
        """Change a setting of the running server."""
        with self.connect("postgres") as connection:
            connection.execute(
                sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
            )
            connection.execute("SELECT pg_reload_conf()")

        def is_set() -> bool:
            with self.connect("postgres") as connection:
                found = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
            return found == (value,)

        processes.wait_for(is_set, what=f"{name} to be {value!r}")

    def promote(self) -> None:
        """Make the standby a primary of its own."""
        with self.connect("postgres") as connection:
            found = connection.execute("SELECT pg_promote()").fetchone()
        assert found == (True,), "it was promoted"

    def stop(self) -> None:
        """Stop it at once, as a crash would."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()

    def connect(self, database: str) -> "psycopg.Connection[Any]":
        """A connection as the owner."""
        return psycopg.connect(host=str(self.folder), dbname=database, user=OWNER, autocommit=True)

    def url(self, database: str, user: str = OWNER, host: str = "") -> str:
        """The URL of a store in a database."""
        return f"postgresql://{user}@/{database}?host={host or self.folder}"

    def empty(self) -> str:
        """A new empty database."""
        return self._made("template0")

    def store(self) -> str:
        """A new database with an initialised store."""
        with self.connect("postgres") as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone()
        if known is None:
            from outlast.store.postgres import schema

            with self.connect("postgres") as connection:
                connection.execute(
                    sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(TEMPLATE))
                )
            schema.init(self.url(TEMPLATE))
        name = self._made(TEMPLATE)
        with self.connect(name) as connection:
            connection.execute("UPDATE outlast.meta SET store = gen_random_uuid()")
        return name

    def _made(self, template: str) -> str:
        self._databases += 1
        name = f"test{self._databases}"
        with self.connect("postgres") as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(name), sql.Identifier(template)
                )
            )
        return name

    def drop(self, database: str) -> None:
        """Remove a database, whoever is connected."""
        with self.connect("postgres") as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database))
            )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


@contextlib.contextmanager
def server(*, primary: PostgresServer | None = None) -> Iterator[PostgresServer]:
    """A running server, or a standby of one, removed at the end. Skips where there can be none."""
    binaries = programs()
    if binaries is None:
        skip_or_fail("needs PostgreSQL (`apt-get install postgresql`, or pgserver from PyPI)")
    if os.geteuid() == 0 and server_user() is None:
        skip_or_fail(f"started as root, PostgreSQL needs one of these users: {', '.join(USERS)}")
    folder = Path(
        tempfile.mkdtemp(prefix="o-pg-", dir="/tmp")
    )  # short: the name of a socket has 107 characters
    try:
        made = PostgresServer(folder, binaries, primary=primary)
        made.start()
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
