"""What a PostgreSQL store refuses: one line, a hint, exit code 2, and nothing is changed."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from outlast.errors import StoreGone, StoreRefused, StoreRewound, StoreUnreachable
from outlast.store import locate, open_store
from outlast.store.postgres import address
from tests.store.journal_batches import appended, batch, opened, stage, stages
from tests.support import commands
from tests.support.environment import Isolated
from tests.support.postgres import OWNER, PostgresServer


def outlast(state: Isolated, *words: str, **more: str) -> commands.Answer:
    done = subprocess.run(
        [*commands.ARGV, *words],
        cwd=state.home,
        env=state.environ(**more),
        capture_output=True,
        text=True,
        check=False,
    )
    return commands.Answer(done.returncode, done.stdout, done.stderr)


def test_a_store_is_made_once_and_used_by_every_command(
    postgres_server: PostgresServer, state: Isolated
) -> None:
    url = postgres_server.url(postgres_server.empty())
    refused = outlast(state, "ls", OUTLAST_STORE=url)
    assert refused.code == 2
    assert refused.complaint.startswith("there is no store in")
    assert f"outlast store init {url}" in refused.err
    made = outlast(state, "store", "init", url)
    assert (made.code, "made the store" in made.out, f"export OUTLAST_STORE='{url}'" in made.out) == (
        0,
        True,
        True,
    )
    again = outlast(state, "store", "init", url)
    assert (again.code, "nothing changed" in again.out) == (0, True)
    for act in ("migrate", "accept"):
        same = outlast(state, "store", act, url)
        assert (same.code, "nothing changed" in same.out) == (0, True), same
    ran = outlast(state, "run", "--task", "t", "--", "true", OUTLAST_STORE=url)
    assert ran.code == 0, ran
    shown = outlast(state, "show", "t", "--json", OUTLAST_STORE=url)
    assert shown.json["status"] == "done"


def test_a_folder_needs_no_making(state: Isolated) -> None:
    answer = outlast(state, "store", "init", str(state.home))
    assert (answer.code, "when a run is started" in answer.complaint) == (2, True)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://nobody@/x?host=/nowhere", "cannot reach the store postgresql://nobody@/x"),
        ("postgresql://me:s3cret@127.0.0.1:1/x", "cannot reach the store postgresql://me@127.0.0.1:1/x"),
        ("postgresql://me@127.0.0.1", "names no database"),
        ("postgresql://me@h/x?nonsense=1", "not a URL of a PostgreSQL store"),
    ],
)
def test_a_server_that_cannot_be_reached_is_one_line_without_the_password(
    state: Isolated, url: str, words: str
) -> None:
    answer = outlast(state, "ls", OUTLAST_STORE=url)
    assert answer.code == 2
    assert words in answer.complaint
    assert "s3cret" not in answer.err


def test_a_role_that_may_not_is_told_so_and_one_that_may_read_looks(
    postgres_server: PostgresServer, state: Isolated
) -> None:
    name = postgres_server.store()
    store = open_store(postgres_server.url(name))
    run = appended(store, "t", 3)
    with postgres_server.connect(name) as connection:
        connection.execute(
            "CREATE ROLE stranger LOGIN; CREATE ROLE looker LOGIN; GRANT USAGE ON SCHEMA outlast TO looker"
        )
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA outlast TO looker")
    with pytest.raises(StoreRefused, match="may not do this"):
        open_store(postgres_server.url(name, "stranger"))
    looker = open_store(postgres_server.url(name, "looker"), reading=True)
    assert stages(looker, run) == ["0", "1", "2"]
    looker.close()
    writer = open_store(postgres_server.url(name, "looker"))
    with pytest.raises(StoreRefused, match="permission denied"):
        writer.create(opened("new"))
    writer.close()
    answer = outlast(state, "store", "init", postgres_server.url(postgres_server.empty(), "stranger"))
    assert (answer.code, "may not create a schema" in answer.complaint) == (2, True)
    store.close()


def test_each_role_may_do_what_it_is_for_and_no_more(
    postgres_server: PostgresServer, state: Isolated
) -> None:
    name = postgres_server.empty()
    url = postgres_server.url(name)
    printed = outlast(state, "store", "init", url, "--print-roles")
    assert (printed.code, printed.out.count("CREATE ROLE")) == (0, 3), printed
    for _ in range(2):
        made = outlast(state, "store", "init", url, "--roles")
        assert (made.code, "outlast_host: works on runs" in made.out) == (0, True), made
    with postgres_server.connect(name) as connection:
        connection.execute(
            "CREATE ROLE worker LOGIN IN ROLE outlast_host; CREATE ROLE guest LOGIN IN ROLE outlast_reader;"
            "CREATE ROLE ada LOGIN IN ROLE outlast_person; CREATE ROLE plain LOGIN; GRANT CREATE ON DATABASE "
            f'"{name}" TO plain'
        )
    worker, guest, ada = (postgres_server.url(name, user) for user in ("worker", "guest", "ada"))
    begun = outlast(state, "run", "--task", "t", "--", "sh", "-c", "exit 3", OUTLAST_STORE=worker)
    assert begun.code == 3, begun
    for looking in (worker, guest, ada):
        for words in (("ls",), ("show", "t"), ("log", "t"), ("budget",)):
            looked = outlast(state, *words, OUTLAST_STORE=looking)
            assert looked.code == 0, looked
    store, asker = open_store(worker), open_store(ada)
    run = store.create(opened("live"))
    lease = store.claim(run)
    assert asker.inbox.put(run, by="ada", what="pause") == 1
    assert [request.what for request in store.inbox.pending(run)] == ["pause"]
    store.append(batch(lease, run, 1, stage("x"), takes=(1,)))
    assert store.inbox.pending(run) == []
    for other in (asker, open_store(guest)):
        with pytest.raises(StoreRefused, match="may not do this"):
            other.create(opened("new"))
        with pytest.raises(StoreRefused, match="may not do this"):
            other.claim(run)
        other.close()
    looker = open_store(guest)
    with pytest.raises(StoreRefused, match="may not do this"):
        looker.inbox.put(run, by="guest", what="pause")
    looker.close()
    with postgres_server.connect(name) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("SET ROLE worker")
        connection.execute("UPDATE outlast.meta SET base = 0")
    store.close()
    refused = outlast(state, "store", "init", postgres_server.url(name, "plain"), "--roles")
    assert refused.code == 2, refused


@contextlib.contextmanager
def tcp_way(server: Path, change: Callable[[bytes], bytes] = bytes) -> Iterator[int]:
    """A port of this machine that leads to the server's socket; `change` alters what the server says first."""
    listener = socket.create_server(("127.0.0.1", 0))
    links: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            there = socket.socket(socket.AF_UNIX)
            links.extend((client, there))
            there.connect(str(server / ".s.PGSQL.5432"))
            threading.Thread(target=pass_on, args=(client, there, bytes), daemon=True).start()
            threading.Thread(target=pass_on, args=(there, client, change), daemon=True).start()

    def pass_on(source: socket.socket, target: socket.socket, alter: Callable[[bytes], bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(alter(data))
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        for link in (listener, *links):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()


def test_a_server_without_tls_a_pooler_and_a_full_server_are_one_line_and_a_hint(
    postgres_server: PostgresServer, state: Isolated
) -> None:
    name = postgres_server.store()
    with tcp_way(postgres_server.folder) as port:
        url = f"postgresql://{OWNER}@127.0.0.1:{port}/{name}"
        assert outlast(state, "ls", OUTLAST_STORE=url).code == 0
        for words in (
            ("ls",),
            ("store", "init", f"{url}?sslmode=require"),
            ("store", "migrate", f"{url}?sslmode=require"),
        ):
            refused = outlast(state, *words, OUTLAST_STORE=f"{url}?sslmode=require")
            assert (refused.code, "server does not support SSL" in refused.complaint) == (2, True), refused
            assert "hint: check sslmode" in refused.err
    # A pooler gives sessions a number of its own, and not that of the server's process.
    with tcp_way(postgres_server.folder, _other_pid) as port:
        pooled = outlast(state, "ls", OUTLAST_STORE=f"postgresql://{OWNER}@127.0.0.1:{port}/{name}")
        assert (pooled.code, "is a connection pooler" in pooled.complaint) == (2, True), pooled
    with postgres_server.connect(name) as connection:
        connection.execute(
            f'CREATE ROLE crowded LOGIN CONNECTION LIMIT 0; GRANT CONNECT ON DATABASE "{name}" TO crowded'
        )
    full = outlast(state, "ls", OUTLAST_STORE=postgres_server.url(name, "crowded"))
    assert (full.code, "too many connections" in full.complaint, "hint: raise" in full.err) == (
        2,
        True,
        True,
    ), full
    assert len(full.err.splitlines()) == 2


def _other_pid(said: bytes) -> bytes:
    at = said.find(b"K\0\0\0\x0c")
    return said if at < 0 else said[: at + 5] + (1).to_bytes(4) + said[at + 9 :]


def test_a_foreign_schema_another_encoding_and_a_newer_store_are_refused(
    postgres_server: PostgresServer, state: Isolated
) -> None:
    foreign = postgres_server.empty()
    with postgres_server.connect(foreign) as connection:
        connection.execute("CREATE SCHEMA outlast")
    assert (
        "that outlast did not make" in outlast(state, "store", "init", postgres_server.url(foreign)).complaint
    )
    with postgres_server.connect("postgres") as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    assert "needs UTF8" in outlast(state, "store", "init", postgres_server.url("latin")).complaint
    newer = postgres_server.store()
    with postgres_server.connect(newer) as connection:
        connection.execute("UPDATE outlast.meta SET version = 99, min_client = 99")
    assert "has version 99" in outlast(state, "ls", OUTLAST_STORE=postgres_server.url(newer)).complaint
    assert "has version 99" in outlast(state, "store", "migrate", postgres_server.url(newer)).complaint


def test_a_server_below_14_is_refused() -> None:
    from outlast.store.postgres import schema

    with pytest.raises(StoreRefused, match=r"is PostgreSQL 13; outlast needs 14"):
        schema.refuse_old_server("postgresql://h/x", 130_012)


def test_a_store_on_another_server_is_not_written_until_a_person_accepts(
    postgres_server: PostgresServer,
) -> None:
    """A failover or a restored backup: the identity, the timeline or the table is another."""
    name = postgres_server.store()
    store = open_store(postgres_server.url(name))
    appended(store, "t", 3)
    before = store.last_number()
    store.close()
    with postgres_server.connect(name) as connection:
        connection.execute("UPDATE outlast.meta SET timeline = timeline - 1")
    with pytest.raises(StoreRewound, match="another server or timeline"):
        open_store(postgres_server.url(name))
    looked = open_store(postgres_server.url(name), reading=True)
    assert len(looked.subscribe(0, wait_s=0)) == 4
    looked.close()
    assert locate(postgres_server.url(name)).accept()  # type: ignore[attr-defined]
    store = open_store(postgres_server.url(name))
    appended(store, "u", 1)
    assert [item.seq for item in store.subscribe(before, wait_s=0)] == [1, 2]
    store.close()


def test_a_store_that_was_removed_is_gone(postgres_server: PostgresServer) -> None:
    name = postgres_server.store()
    store = open_store(postgres_server.url(name))
    run = store.create(opened())
    lease = store.claim(run)
    with postgres_server.connect(name) as connection:
        connection.execute("DROP SCHEMA outlast CASCADE")
    with pytest.raises(StoreGone):
        store.append(batch(lease, run, 1, stage("x")))
    with pytest.raises(StoreGone):
        store.check_exists()
    store.close()


def test_a_password_is_used_and_not_shown_or_stored(state: Isolated) -> None:
    given = "postgresql://me:s3%3Acret@db:5433,db2/x?sslmode=require&password=other"
    found = address.parse(given)
    assert found.url == "postgresql://me@db:5433,db2/x?sslmode=require"
    place = locate(given)
    assert "cret" not in f"{place.url} {place.name} {place.option} {place!r}"
    with pytest.raises(StoreUnreachable) as caught:
        place.open()
    assert "cret" not in f"{caught.value} {caught.value.hint} {caught.value.__cause__!r}"
    assert not any("cret" in path.read_text() for path in Path(state.home).rglob("*") if path.is_file())


def test_a_run_of_another_host_is_not_gone_on_with_here(
    postgres_url: str, state: Isolated, tmp_path: Path
) -> None:
    """Its files and their saves are there."""
    first = outlast(
        state,
        "run",
        "--task",
        "t",
        "--restarts",
        "1",
        "--",
        "sh",
        "-c",
        "test -e f || { touch f; kill -9 $$; }",
        OUTLAST_STORE=postgres_url,
    )
    assert first.code not in (0, 2), first
    elsewhere = {"OUTLAST_STORE": postgres_url, "XDG_STATE_HOME": str(tmp_path / "other host")}
    refused = outlast(state, "resume", "t", **elsewhere)
    assert refused.code == 2, refused
    assert "its files and their saves are there" in refused.err
    assert outlast(state, "show", "t", **elsewhere).code == 0
    again = outlast(state, "resume", "t", OUTLAST_STORE=postgres_url)
    assert again.code == 0, again


def test_importing_outlast_and_its_version_import_no_driver(state: Isolated) -> None:
    code = "import sys, outlast, outlast.cli.main; assert not {'psycopg', 'apsw'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=state.environ(), check=False)
    assert done.returncode == 0


def test_a_password_in_the_url_is_not_handed_to_the_command(postgres_url: str, state: Isolated) -> None:
    given = postgres_url.replace("owner@", "owner:s3cret@")
    ran = outlast(state, "run", "--task", "t", "--", "env", OUTLAST_STORE=given)
    assert ran.code == 0, ran
    assert f"OUTLAST_STORE={postgres_url}" in ran.out
    assert "s3cret" not in ran.out + ran.err
    files = [path for path in state.home.rglob("*") if path.is_file()]
    assert [path for path in files if b"s3cret" in path.read_bytes()] == []
