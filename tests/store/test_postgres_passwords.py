"""The password of a PostgreSQL store opens it, and is seen nowhere else."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.errors import StoreRefused
from outlast.store import credentials, locate
from outlast.store.postgres import address
from tests.support import commands, processes
from tests.support.environment import Isolated
from tests.support.postgres import PostgresServer

SECRET = f"s3c:r/{os.getpid()}et"  # others run these tests at the same time
IN_URL = f"s3c%3Ar%2F{os.getpid()}et"
# Which processes have it in their words or their environment; the pattern is not itself.
PATTERN = f"'s3c(:|%3A)r(/|%2F){os.getpid()}e[t]'"
SEARCH = f"grep -lsaE {PATTERN} /proc/[0-9]*/cmdline /proc/[0-9]*/environ"


@pytest.fixture
def locked(postgres_server: PostgresServer, postgres_url: str) -> Iterator[str]:
    """The URL of a store whose owner has to give a password."""
    rules = postgres_server.folder / "data/pg_hba.conf"
    before = rules.read_text()
    name = postgres_url.rpartition("/")[0] and address.parse(postgres_url).database
    with postgres_server.connect(name) as connection:
        connection.execute(f"CREATE ROLE keyed LOGIN SUPERUSER PASSWORD '{SECRET}'")
        rules.write_text(f"local all keyed scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        yield postgres_server.url(name, user="keyed")
        rules.write_text(before)
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("DROP ROLE keyed")


def outlast(state: Isolated, *words: str, **more: str) -> commands.Answer:
    done = subprocess.run(
        [*commands.ARGV, *words], cwd=state.home, env=state.environ(**more), capture_output=True, text=True, check=False
    )  # fmt: skip
    return commands.Answer(done.returncode, done.stdout, done.stderr)


def with_password(url: str) -> str:
    return url.replace("keyed@", f"keyed:{IN_URL}@")


def unseen(state: Isolated, *answers: commands.Answer) -> bool:
    said = "".join(answer.out + answer.err for answer in answers)
    kept = b"".join(path.read_bytes() for path in state.home.rglob("*") if path.is_file())
    return not any(secret in said or secret.encode() in kept for secret in (SECRET, IN_URL))


@pytest.mark.parametrize("way", ["variable", "option", "PGPASSWORD"])
def test_a_password_is_in_no_process_list_no_file_and_no_command_and_commands_below_ask_the_supervisor(
    way: str, locked: str, state: Isolated
) -> None:
    refused = outlast(state, "ls", OUTLAST_STORE=locked)
    assert (refused.code, "no password supplied" in refused.complaint) == (2, True), refused
    asks = 'for what in show log effects "budget" "show --json"; do outlast $what t >/dev/null || echo "$what: $?"; done'
    search = SEARCH if way != "PGPASSWORD" else f"env | grep -aE {PATTERN}"
    script = f'env; {search}; outlast() {{ {" ".join(commands.ARGV)} "$@"; }}; {asks}; outlast budget --json'
    words = ["run", "--task", "t", "--", "sh", "-c", script]
    match way:
        case "variable":
            ran = outlast(state, *words, OUTLAST_STORE=with_password(locked))
        case "option":
            ran = outlast(state, "--store", with_password(locked), *words)
        case _:
            ran = outlast(state, *words, OUTLAST_STORE=locked, PGPASSWORD=SECRET)
    assert ran.code == 0, ran
    assert f"OUTLAST_STORE={locked}" in ran.out
    assert '"task":"t"' in ran.out.replace(" ", ""), "a command below was answered"
    assert [
        line
        for line in ran.out.splitlines()
        if line.startswith(("/proc/", "show", "log", "effects", "budget"))
    ] == []
    assert unseen(state, ran)
    shown = outlast(state, "config", OUTLAST_STORE=with_password(locked))
    assert shown.code == 0
    assert unseen(state, shown)


def test_a_request_from_below_an_agent_reaches_its_run(locked: str, state: Isolated) -> None:
    call = " ".join(commands.ARGV)
    script = f"{call} gc; {call} pause t; sleep 60"
    paused = outlast(
        state, "run", "--task", "t", "--", "sh", "-c", script, OUTLAST_STORE=with_password(locked)
    )
    assert "no password supplied" in paused.err, "what the supervisor does not run finds no password"
    assert (
        outlast(state, "show", "t", "--json", OUTLAST_STORE=with_password(locked)).json["status"] == "paused"
    ), paused
    assert unseen(state, paused)


def test_another_process_of_outlast_gets_the_password_through_a_pipe(locked: str, state: Isolated) -> None:
    script = f"{SEARCH} > seen; touch done"
    started = outlast(
        state, "run", "--detach", "--task", "t", "--", "sh", "-c", script, OUTLAST_STORE=with_password(locked)
    )
    assert started.code == 0, started
    processes.wait_for(lambda: (Path(state.home) / "done").exists(), what="the command to end")

    def is_done() -> bool:
        shown = outlast(state, "show", "t", "--json", OUTLAST_STORE=with_password(locked))
        return bool(shown.json["status"] == "done")

    processes.wait_for(is_done, what="the run to be done")
    assert (Path(state.home) / "seen").read_text() == ""
    assert unseen(state, started)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cr/et@host/db", "postgresql://me:s3cr?et@host/db",
        "postgresql://me:12?s3cr@host/db", "postgresql://me:s3cr@et@host:s3cr/db", "postgresql://host/db?me:s3cr@x",
    ],
)  # fmt: skip
def test_a_password_that_is_not_escaped_is_not_shown(url: str, state: Isolated) -> None:
    with pytest.raises(StoreRefused, match="not a URL of a PostgreSQL store") as caught:
        locate(url)
    assert "s3cr" not in f"{caught.value} {caught.value.hint}"
    answer = outlast(state, "ls", OUTLAST_STORE=url)
    assert (answer.code, "s3cr" in answer.err) == (2, False), answer


def test_what_a_url_keeps_secret_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    found = address.parse("postgresql://me:p%40w@h/x?sslpassword=k%3Dey&sslmode=require")
    assert found.url == "postgresql://me@h/x?sslmode=require"
    assert credentials.of(found.url) == {"password": "p@w", "sslpassword": "k=ey"}
    assert credentials.without({"PGPASSWORD": "p@w", "A": "b"}) == {"A": "b"}
    assert credentials.without({"PGPASSWORD": "its own"}) == {"PGPASSWORD": "its own"}
    monkeypatch.setenv("OUTLAST_STORE", "postgresql://me:p%40w@h/x")
    assert locate().url == "postgresql://me@h/x"
    assert os.environ["OUTLAST_STORE"] == "postgresql://me@h/x"
