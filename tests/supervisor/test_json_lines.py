"""`--json-lines`: one object per event, whole lines, to a file, a FIFO or a descriptor; no reader ever slows the run."""

import json
import os
import re
import shlex
import stat
import subprocess
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.core.events import QuestionAnswered
from outlast.core.state import RunState
from outlast.core.verdict import EXIT_PERSON
from outlast.errors import UsageError
from outlast.supervisor.chronicle import feed_events, json_lines
from outlast.supervisor.chronicle.feed_events import FeedAnswer, FeedBeat, FeedEvent, FeedWarning
from outlast.supervisor.chronicle.json_lines import LINE_BYTES_MAX, WAITING_LINES_MAX, JsonFeed
from outlast.supervisor.chronicle.sentences import Reader
from tests.supervisor.supervised_command import Night, outlast, supervisor_of
from tests.supervisor.test_beat_lines import said
from tests.supervisor.test_detach import KEY, OWN
from tests.support.environment import TIMEOUT_S
from tests.support.processes import kill_at_once, wait_for

AT = datetime(2026, 11, 2, 14, 2, 11, tzinfo=UTC)
PLACE: dict[str, Any] = {"at": AT, "run": "kx3", "task": "t", "attempt": 1, "seq": 7}
EVERYWHERE = {"event", "at", "run", "task", "attempt", "seq"}
STEPS = (
    "outlast step one -- true; outlast stage review; outlast effect mail -- true; outlast step two -- true"
)
DOCS = Path(__file__).parents[2] / "docs/json.md"


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def kinds(path: Path) -> list[str]:
    return [each["event"] for each in told(path)]


def warning(number: int, text: str = "") -> FeedWarning:
    return FeedWarning(level=str(number), text=text or f"warning {number}", **PLACE)


def every_class() -> list[type[FeedEvent]]:
    return FeedEvent.__subclasses__()


# -- what is written -----------------------------------------------------------------------------------------------------


def test_a_file_gets_every_event_of_interest_in_order_and_is_private(night: Night) -> None:
    path = night.folder / "feed.jsonl"
    done = said(night, "run", "--task", "t", "--json-lines", str(path), "--", "sh", "-c", STEPS)
    assert done.returncode == 0, done.stderr
    assert kinds(path) == [
        "started",
        "beat",
        "stage",
        "effect",
        "effect",
        "beat",
        "beat",
        "attempt_ended",
        "ended",
    ]
    run = night.ask("show", "t")["run"]
    assert {(each["run"], each["task"], each["attempt"]) for each in told(path)} == {(run, "t", 1)}
    assert [each["state"] for each in told(path) if each["event"] == "effect"] == ["intended", "confirmed"]
    seqs = [each["seq"] for each in told(path)]
    assert seqs == sorted(seqs)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_question_is_told(night: Night) -> None:
    path = night.folder / "feed.jsonl"
    line = (
        "run",
        "--task",
        "t",
        "--json-lines",
        str(path),
        "--",
        "sh",
        "-c",
        "outlast ask 'which API?' --choice v1 --choice v2",
    )
    assert said(night, *line).returncode == EXIT_PERSON
    asked = next(each for each in told(path) if each["event"] == "question")
    assert (asked["kind"], asked["text"], asked["choices"]) == ("question", "which API?", ["v1", "v2"])
    assert (told(path)[-1]["event"], told(path)[-1]["needs"]) == ("ended", "person")
    assert said(night, "answer", "t", "v2", "--no-start").returncode == 0
    assert said(night, *line).stdout.strip() == "v2"


def test_an_answer_that_comes_while_the_run_is_held_is_told() -> None:
    answered = QuestionAnswered(at=AT, id="q1", answer="rejected", text="not on a Friday", by="alice")
    _, (fed,) = Reader(lambda _: b"", has_agent=True).read(answered, RunState(run="kx3", task="t"))
    assert isinstance(fed, FeedAnswer)
    assert (fed.id, fed.answer, fed.text, fed.by) == ("q1", "rejected", "not on a Friday", "alice")


def test_every_event_and_field_is_in_the_documentation() -> None:
    section = DOCS.read_text().partition("## outlast run --json-lines")[2].partition("\n## ")[0]
    for each in every_class():
        tag = each.__struct_config__.tag
        [row] = [line for line in section.splitlines() if line.startswith(f"| `{tag}`")]
        for field in set(each.__struct_fields__) - EVERYWHERE:
            assert f"`{field}`" in row, f"{tag}.{field}"
    for field in EVERYWHERE:
        assert f"`{field}`" in section, field


def test_a_line_has_no_secret_steers_no_terminal_and_fits_a_pipe(tmp_path: Path) -> None:
    made = JsonFeed(str(tmp_path / "feed"), lambda: {OWN: "DB_PASSWORD"})
    calls = tuple(f"Bash echo {KEY} \x9b31m {'é' * 200} {number}" for number in range(32))
    made.put(
        FeedBeat(
            beat=1, step="", calls=calls, text=f"{OWN} " + "words " * 2000, exit_code=None, beat_tokens=1, tokens=1, tokens_max=None,
            cost_microusd=0, cost_microusd_max=None, estimated=False, save="a" * 40, **PLACE,
        )
    )  # fmt: skip
    made.push()
    made.close()
    [line] = (tmp_path / "feed").read_bytes().splitlines(keepends=True)
    assert len(line) <= LINE_BYTES_MAX
    assert line.endswith(b"\n")
    assert KEY.encode() not in line
    assert OWN.encode() not in line
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", line.decode())
    assert json.loads(line)["save"] == "a" * 40, "what is no text is never shortened"


def test_after_kill_9_the_next_start_goes_on_below_a_line_that_was_cut_off(night: Night) -> None:
    path = night.folder / "feed.jsonl"
    script = "outlast step one -- true; touch begun; while [ ! -e go ]; do sleep 0.02; done; outlast step two -- true"
    words = ("--task", "t", "--json-lines", str(path), "--", "sh", "-c", script)
    process = night.start(*words)
    wait_for(lambda: (night.work / "begun").exists() or None, what="the script")
    wait_for(lambda: "beat" in kinds(path) or None, what="its first beat")
    kill_at_once([supervisor_of(process.pid), process.pid])
    process.communicate(timeout=TIMEOUT_S)
    with path.open("ab") as file:
        file.write(b'{"event":"beat","at":"20')  # as a full disk leaves it
    (night.work / "go").touch()
    assert said(night, "run", *words).returncode == 0
    whole = [json.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]
    assert [(each["event"], each["attempt"]) for each in whole] == [
        ("started", 1), ("beat", 1), ("attempt_ended", 1), ("resumed", 2), ("beat", 2), ("beat", 2), ("attempt_ended", 2), ("ended", 2),
    ]  # fmt: skip
    assert [each["beat"] for each in whole if each["event"] == "beat"] == [1, 2, 3]
    assert whole[3]["evidence"] == whole[2]["evidence"]


def test_what_waits_for_a_person_or_for_the_next_attempt_says_so(night: Night) -> None:
    path = night.folder / "feed.jsonl"
    done = said(night, "run", "--task", "t", "--json-lines", str(path), "--", "false")
    assert done.returncode == EXIT_PERSON
    waits = [(each["waits_for"], each["next"]) for each in told(path) if each["event"] == "waits"]
    assert waits == [("restart", ""), ("restart", ""), ("person", "outlast resume t")]
    assert told(path)[-1]["event"] == "ended"


def test_the_setting_holds_for_every_run_and_the_flag_goes_before_it(night: Night) -> None:
    folder = night.isolated.config_home / "outlast"
    folder.mkdir()
    (folder / "config.toml").write_text(f'json_lines = "{night.folder}/all"\nquiet = true\n')
    assert said(night, "run", "--task", "t", "--", "true").stderr == ""
    assert said(night, "run", "--task", "u", "--json-lines", "one", "--", "true").returncode == 0
    assert {each["task"] for each in told(night.folder / "all")} == {"t"}
    assert {each["task"] for each in told(night.work / "one")} == {"u"}
    assert said(night, "run", "--task", "v", "--detach", "--", "true").returncode == 0
    wait_for(
        lambda: (
            ("v", "ended") in [(each["task"], each["event"]) for each in told(night.folder / "all")] or None
        ),
        what="v",
    )


# -- a descriptor, a FIFO, a reader ------------------------------------------------------------------------------------


@pytest.mark.parametrize("detached", [False, True])
def test_an_inherited_descriptor_is_written_and_the_command_does_not_get_it(
    night: Night, detached: bool
) -> None:
    flags = ["--detach"] if detached else []
    look = 'ls -l /proc/self/fd > "$PWD/fds"'
    line = (
        shlex.join(outlast("run", "--task", "t", "--json-lines", "7", *flags, "--", "sh", "-c", look))
        + f" 7>{night.folder}/feed"
    )
    subprocess.run(["bash", "-c", line], cwd=night.work, env=night.environ(), check=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, capture_output=True)  # fmt: skip
    wait_for(lambda: "ended" in kinds(night.folder / "feed") or None, what="the end")
    assert kinds(night.folder / "feed") == ["started", "beat", "attempt_ended", "ended"]
    assert "/feed" not in (night.work / "fds").read_text()


def test_a_fifo_that_nobody_reads_holds_nothing_up(night: Night) -> None:
    path = night.folder / "fifo"
    os.mkfifo(path)
    done = said(night, "run", "--task", "t", "--json-lines", str(path), "--", "sh", "-c", STEPS)
    assert (done.returncode, "JSON lines" in done.stderr) == (0, False), done.stderr


def test_a_fifo_gives_its_reader_every_line_and_then_the_end(night: Night) -> None:
    path, got = night.folder / "fifo", list[str]()
    os.mkfifo(path)

    def read() -> None:
        with path.open() as file:
            got.extend(json.loads(line)["event"] for line in file)

    reader = threading.Thread(target=read)
    reader.start()
    assert (
        said(night, "run", "--task", "t", "--json-lines", str(path), "--", "sh", "-c", STEPS).returncode == 0
    )
    reader.join(TIMEOUT_S)
    assert (reader.is_alive(), got[0], got[-1]) == (False, "started", "ended")


@pytest.mark.parametrize("how", ["goes", "hangs"])
def test_a_reader_that_goes_or_hangs_neither_stops_nor_slows_the_run(night: Night, how: str) -> None:
    ours, theirs = os.pipe()
    if how == "goes":
        os.close(ours)
    else:  # not one more byte has room
        os.set_blocking(theirs, False)
        try:
            while os.write(theirs, b"x" * 4096):
                pass
        except BlockingIOError:
            pass
        os.set_blocking(theirs, True)
    process = night.start(
        "--task",
        "t",
        "--json-lines",
        str(theirs),
        "--",
        "sh",
        "-c",
        f"{STEPS}; echo done",
        pass_fds=(theirs,),
    )
    os.close(theirs)
    began_s = time.monotonic()
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (0, b"done\n"), err
    assert time.monotonic() - began_s < TIMEOUT_S / 2
    assert (b"no more JSON lines are written: Broken pipe; the run goes on" in err) == (how == "goes")
    if how == "hangs":
        os.close(ours)


def test_where_nobody_reads_in_time_the_oldest_lines_go_and_one_line_says_how_many(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    made = JsonFeed(str(fifo))
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    many = 3 * WAITING_LINES_MAX
    for number in range(many):
        made.put(warning(number, "x" * 200))
        made.push()
    data = b""
    while made.is_behind or not data.endswith(b"\n"):
        data += os.read(reader, 1 << 16)
        made.push()
    while True:
        try:
            data += os.read(reader, 1 << 16)
        except BlockingIOError:
            break
    made.close()
    os.close(reader)
    lines = [json.loads(line) for line in data.splitlines()]
    [gap] = [each for each in lines if each["event"] == "dropped"]
    assert gap["count"] + len(lines) - 1 == many
    assert lines[-1]["level"] == str(many - 1), "the newest is there"


# -- refused before anything starts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("1", "--json-lines 1: descriptors 0 to 2 are the command's"),
        ("9", "--json-lines 9: that descriptor is not open for writing"),
        ("3", "--json-lines 3: that descriptor is not open for writing"),
        (
            "99999999999999999999",
            "--json-lines 99999999999999999999: that descriptor is not open for writing",
        ),
        (".", "--json-lines '.' is a folder"),
        ("gone/feed", "--json-lines: the folder 'gone' is not there"),
        ("", "--json-lines is empty"),
    ],
)
def test_a_place_that_takes_no_lines_is_refused_in_two_lines_and_nothing_starts(
    night: Night, where: str, says: str
) -> None:
    done = said(night, "run", "--task", "t", "--json-lines", where, "--", "touch", "started")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"error: {says}"), done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert not (night.work / "started").exists()


def test_a_descriptor_of_our_own_is_never_taken_for_one_that_was_given(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "own", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(UsageError, match="not open for writing"):
        json_lines.refuse_unusable(str(fd))
    os.set_inheritable(fd, True)
    json_lines.refuse_unusable(str(fd))
    os.close(fd)


def test_a_relative_path_as_a_setting_is_refused(night: Night) -> None:
    done = said(night, "run", "--task", "t", "--", "true", OUTLAST_JSON_LINES="here")
    assert (done.returncode, "not a whole path" in done.stderr) == (2, True), done.stderr


def test_every_class_has_a_tag_of_its_own() -> None:
    tags = [each.__struct_config__.tag for each in every_class()]
    assert (
        len(set(tags))
        == len(tags)
        == len([name for name in vars(feed_events) if name.startswith("Feed")]) - 2
    )
    assert msgspec.json.decode(msgspec.json.encode(warning(1)))["event"] == "warning"
