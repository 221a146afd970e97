"""`outlast doctor --all` and `--repair` on a PostgreSQL store: whatever one row says wrongly is found, and what events prove is put right."""

import subprocess

import psycopg
import pytest

from outlast.store import locate, open_store
from outlast.store.protocol import RunFilter
from tests.store.journal_batches import appended, stages
from tests.support import commands
from tests.support.environment import Isolated

# What is broken, by which SQL, in which words it is found, and whether it can be put right.
BREAKS = {
    "head gone": ("DELETE FROM heads", "it has no stored head", True),
    "head of another event": ("UPDATE heads SET seq = 0", "its stored head is of event 0", True),
    "head beyond": ("UPDATE heads SET seq = 99", "its stored head is of event 99", True),
    "head changed": ("UPDATE heads SET status = 'done'", "does not equal its events", True),
    "head damaged": ("UPDATE heads SET state = set_byte(state, 9, 65)", "does not equal its events", True),
    "kind": ("UPDATE events SET kind = 'x' WHERE seq = 2", "filed under another kind", True),
    "event gone": ("DELETE FROM events WHERE seq = 2", "events 2 to 2 are missing", False),
    "event damaged": ("UPDATE events SET data = set_byte(data, 20, 65) WHERE seq = 3", "event 3 is damaged", False),
    "row": ("UPDATE runs SET task = 'other'", "does not say what its first event says", False),
    "lease gone": ("DELETE FROM leases", "it has no lease", False),
    "orphan": ("INSERT INTO events(n, run, seq, data) VALUES (1, 77, 1, 'x')", "event 1 belongs to no run", False),
    "taken": (
        "INSERT INTO requests(given, run, at, by, what, args, taken)"
        " SELECT gen_random_uuid(), id, now(), 'a', 'pause', '', true FROM runs", "no event says so", False,
    ),
}  # fmt: skip


def outlast(state: Isolated, url: str, *words: str) -> commands.Answer:
    done = subprocess.run(
        [*commands.ARGV, *words], cwd=state.home, env=state.environ(OUTLAST_STORE=url), capture_output=True, text=True, check=False
    )  # fmt: skip
    return commands.Answer(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("what", BREAKS)
def test_whatever_a_row_says_wrongly_is_found_and_what_events_prove_is_put_right(
    what: str, postgres_url: str
) -> None:
    statement, words, repairable = BREAKS[what]
    store, place = open_store(postgres_url), locate(postgres_url)
    run = appended(store, "t", 4)

    def flaws() -> list[str]:
        of_store, runs = place.examine_all()
        return [flaw.text for flaw in of_store] + [flaw.text for each in runs for flaw in each.flaws]

    assert flaws() == []
    assert place.repair() == [], "nothing is changed where all is right"
    with psycopg.connect(postgres_url, options="-c search_path=outlast") as connection:
        connection.execute(statement)  # type: ignore[call-overload]
    assert [text for text in flaws() if words in text], flaws()
    done = place.repair()
    assert bool(done) == repairable, done
    assert (flaws() == []) == repairable
    if repairable:
        assert stages(store, run) == ["0", "1", "2", "3"]
        assert store.list(RunFilter())[0].state.status == "interrupted"
    store.close()


def test_the_command_looks_at_a_live_store_and_repairs_it(postgres_url: str, state: Isolated) -> None:
    ran = outlast(state, postgres_url, "run", "--task", "t", "--", "true")
    assert ran.code == 0, ran
    store = open_store(postgres_url)
    lease = store.claim(appended(store, "live", 2))
    looked = outlast(state, postgres_url, "doctor", "--all")
    assert looked.code == 0, looked
    with psycopg.connect(postgres_url, options="-c search_path=outlast") as connection:
        connection.execute("UPDATE heads SET status = 'failed'")
    assert "does not equal its events" in outlast(state, postgres_url, "doctor", "--all").out
    mended = outlast(state, postgres_url, "doctor", "--repair")
    assert "its head was made from" in mended.out, mended
    assert outlast(state, postgres_url, "doctor", "--all").code == 0
    store.release(lease)
    store.close()
