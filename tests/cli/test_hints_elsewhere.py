"""A hint never tells a person to type what they have just typed: whatever is wrong with the store, and whoever looks at it."""

import os
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command_line import Cli, work
from tests.cli.test_hints import hinted

LOOKS = [
    "doctor", "doctor --all", "doctor --repair", "ls", "ls --all", "show 1411", "saves 1411", "effects 1411", "log 1411",
    "context 1411", "output 1411", "budget 1411", "budget", "report", "top --once", "config", "gc --dry-run", "resume 1411",
    "resume --all", "state 1411", "diff 1411", "service status", "settle 1411 1.1 --happened", "kill 1411", "pause 1411",
    "cancel 1411", "export 1411", "fork 1411 --at 0 --task x --yes",
]  # fmt: skip


def database(root: Path) -> Path:
    return root / "outlast.db"


def a_folder(root: Path) -> None:
    for path in root.glob("outlast.db*"):
        path.unlink()
    database(root).mkdir()


def a_pipe(root: Path) -> None:
    for path in root.glob("outlast.db*"):
        path.unlink()
    os.mkfifo(database(root))


def foreign(root: Path) -> None:
    database(root).write_bytes(b"no database at all, though long enough for a header " * 40)


def truncated(root: Path) -> None:
    for path in root.glob("outlast.db-*"):
        path.unlink()
    database(root).write_bytes(database(root).read_bytes()[:6000])


def damaged(root: Path) -> None:
    change(root, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = database(root).read_bytes()
    database(root).write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


def deleted(root: Path) -> None:
    for path in root.glob("outlast.db*"):
        path.unlink()


def change(root: Path, *statements: str) -> None:
    connection = sqlite3.connect(database(root))
    for each in statements:
        connection.execute(each)
    connection.commit()
    connection.close()


def newer(root: Path) -> None:
    change(root, "PRAGMA user_version = 99")


def unknown_event(root: Path) -> None:
    change(
        root,
        "UPDATE events SET data = CAST(replace(CAST(data AS TEXT), 'attempt_started', 'telepathy_now!!') AS BLOB)",
    )


def no_head_and_no_event(root: Path) -> None:
    change(root, "DELETE FROM heads", "DELETE FROM events")


def lost_events(root: Path) -> None:
    change(root, "DELETE FROM heads", "DELETE FROM events WHERE seq > 1")


def lost_payloads(root: Path) -> None:
    for path in (root / "blobs").rglob("*"):
        if path.is_file():
            path.unlink()


def open_to_others(root: Path) -> None:
    root.chmod(0o755)
    database(root).chmod(0o644)


def no_blobs(root: Path) -> None:
    (root / "blobs").rename(root / "moved")
    (root / "blobs").write_text("a file")


def nothing(_: Path) -> None:
    pass


WRONG: list[Callable[[Path], None]] = [
    nothing, a_folder, a_pipe, foreign, truncated, damaged, deleted, newer, unknown_event, no_head_and_no_event, lost_events, lost_payloads,
    open_to_others, no_blobs,
]  # fmt: skip


# What the whole look at a store has seen, a part of it has nothing to add to.
SAME = {"doctor --all": {"doctor"}, "doctor --repair": {"doctor", "doctor --all"}, "ls --all": {"ls"}}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda each: each.__name__)
def test_no_hint_is_the_command_that_printed_it(cli: Cli, wrong: Callable[[Path], None]) -> None:
    work(beats=3, doubt_at=3)
    wrong(cli.root)
    told = []
    for typed in LOOKS:
        answer = cli.forked(*shlex.split(typed))
        assert answer.code != 70, (typed, answer.err)
        same = {typed, *SAME.get(typed, ())}
        told += [
            f"`outlast {typed}` says: {line}"
            for line in (answer.out + answer.err).splitlines()
            if any(" ".join(shlex.split(hint)[1:]) in same for hint in hinted(line))
        ]
    assert told == []


def test_doctor_names_what_others_can_read_once(cli: Cli) -> None:
    work(beats=1)
    open_to_others(cli.root)
    for typed in ("doctor", "doctor --all"):
        said = cli.forked(*shlex.split(typed)).out
        loose = " ".join(line for line in said.splitlines() if "others can look" in line)
        words = loose.replace(",", " ").replace("`", " ").split()
        named = [word for word in words if word == str(database(cli.root))]
        assert len(named) == (2 if typed == "doctor" else 1), "the quick look names it, and how it is closed"
    assert "others can look" not in cli.forked("doctor", "--repair").out


@pytest.mark.parametrize(("wrong", "what"), [(a_folder, "a folder"), (a_pipe, "a pipe")])
def test_what_is_no_file_in_the_place_of_the_database_is_refused_by_every_command(
    cli: Cli, wrong: Callable[[Path], None], what: str
) -> None:
    """A pipe would be waited for without end."""
    work(beats=1)
    wrong(cli.root)
    for typed in LOOKS:
        if typed not in ("config", "service status"):
            answer = cli.forked(*shlex.split(typed))
            assert answer.code == (3 if typed in ("doctor", "doctor --all") else 2), (typed, answer)
            assert f"it is {what}, not a database file" in answer.out + answer.err, typed


def test_a_run_without_events_is_named_by_doctor_and_hides_no_other(cli: Cli) -> None:
    work(beats=3, doubt_at=3)
    work("gone")
    change(
        cli.root,
        "DELETE FROM events WHERE run = (SELECT id FROM runs WHERE task = 'gone')",
        "DELETE FROM heads WHERE id = (SELECT id FROM runs WHERE task = 'gone')",
    )
    quick = cli.forked("doctor").out
    assert "gone: cannot be read here" in quick
    assert "outlast settle" in quick, "the other one still needs its person"
    shown = cli.forked("show", "gone")
    assert (shown.code, "has no events" in shown.err) == (2, True), shown.err
    assert "its head was made again" not in cli.forked("doctor", "--repair").out
