"""The witness counts what was done to the world, forgets nothing, and can go wrong in each way it is told."""

import json
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.chaos.witness.client import (
    Client,
    Refused,
    ServerError,
    Unanswered,
    Witness,
    WitnessError,
    performances,
)
from tests.support import processes


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    with Witness.start(tmp_path / "witness.log") as witness:
        yield witness


def test_keyed_acts_are_deduped_by_key_and_never_by_identity(witness: Witness) -> None:
    first = witness.act("keyed", "pay", {"cents": 5}, key="k1", identity="payment")
    assert witness.act("keyed", "pay", {"cents": 5}, key="k1", identity="payment") == first
    assert witness.act("keyed", "pay", {"cents": 6}, key="k1", identity="payment") == first
    assert witness.act("keyed", "pay", {"cents": 5}, key="k2", identity="payment") != first
    counts = witness.counts()
    assert (counts.performed, counts.duplicates, counts.deduped, counts.reworded) == (2, 1, 2, 1)
    assert counts.repeated() == {("keyed", "pay", "payment"): 2}


@pytest.mark.parametrize("cls", ["probed", "blind"])
def test_the_other_classes_do_it_again_whatever_the_key(witness: Witness, cls: str) -> None:
    for _ in range(2):
        witness.act(cls, "comment", "hello", key="k1", identity="greeting")
    assert witness.counts().duplicates == 1


def test_only_probed_acts_are_found_by_marker(witness: Witness) -> None:
    done = witness.act("probed", "ticket", {}, marker="run-7/é & co")
    witness.act("blind", "ticket", {}, marker="blind")
    assert witness.find("run-7/é & co") == done
    assert witness.find("blind") is None
    assert witness.find("never") is None


@pytest.mark.parametrize(
    ("mode", "error", "performed"),
    [
        ("lose_reply", Unanswered, 1),
        ("drop", Unanswered, 0),
        ("error_after", ServerError, 1),
        ("error_before", ServerError, 0),
        ("refuse", Refused, 0),
    ],
)
def test_a_fault_is_met_as_often_as_told_by_the_acts_it_is_meant_for(
    witness: Witness, mode: str, error: type[WitnessError], performed: int
) -> None:
    witness.fault(mode, match="pay", times=1)
    witness.act("blind", "comment", {})
    with pytest.raises(error):
        witness.act("blind", "pay", {})
    assert witness.counts().performed == 1 + performed
    witness.act("blind", "pay", {})


@pytest.mark.parametrize(("mode", "while_waiting"), [("late", 0), ("late_reply", 1)])
def test_a_late_act_outlives_the_caller_s_patience(witness: Witness, mode: str, while_waiting: int) -> None:
    witness.fault(mode)
    with pytest.raises(Unanswered):
        witness.act("probed", "ticket", {}, marker="m", timeout_s=0.05)
    processes.wait_for(lambda: witness.counts().waiting == 1, what="the late act to wait")
    assert witness.counts().performed == while_waiting
    witness.release()
    processes.wait_for(lambda: witness.find("m"), what="the late act to be done")
    assert witness.counts().performed == 1


def test_killed_and_restarted_it_has_forgotten_nothing(witness: Witness) -> None:
    first = witness.act("keyed", "pay", {}, key="k", identity="a")
    witness.act("probed", "ticket", {}, marker="m")
    url = witness.url
    witness.kill()
    with pytest.raises(Unanswered):
        witness.counts()
    witness.restart()
    assert witness.url == url
    assert witness.act("keyed", "pay", {}, key="k", identity="a") == first
    assert witness.find("m") is not None
    assert witness.act("blind", "comment", {})["n"] == 3
    assert [done.name for done in performances(witness.log)] == ["pay", "ticket", "comment"]


def test_killed_under_load_what_was_answered_is_in_the_log(witness: Witness) -> None:
    answered: list[int] = []
    enough = threading.Event()

    def post() -> None:
        client = Client(witness.url)
        try:
            while True:
                answered.append(client.act("blind", "comment", {"text": "x" * 100})["n"])
                if len(answered) > 50:
                    enough.set()
        except Unanswered:
            return

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert enough.wait(processes.LIMIT_S)
    witness.kill()
    for thread in threads:
        thread.join()
    logged = [done.n for done in performances(witness.log)]
    assert logged == list(range(1, len(logged) + 1))
    assert set(answered) <= set(logged)
    assert len(answered) == len(set(answered))


@pytest.mark.parametrize("tail", ['{"what":"perf', '{"what":"performed","n":2}garbage\n', '{"what":\n'])
def test_a_torn_last_line_was_not_performed(witness: Witness, tail: str) -> None:
    witness.act("blind", "comment", {})
    witness.kill()
    whole = witness.log.read_bytes()
    witness.log.write_bytes(whole + tail.encode())
    assert len(performances(witness.log)) == 1
    witness.restart()
    assert witness.log.read_bytes() == whole
    assert witness.act("blind", "comment", {})["n"] == 2


def test_a_log_damaged_in_the_middle_is_not_believed(witness: Witness) -> None:
    witness.act("blind", "comment", {})
    witness.kill()
    witness.log.write_bytes(b"garbage\n" + witness.log.read_bytes())
    with pytest.raises(ValueError, match="damaged at byte 0"):
        performances(witness.log)


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    starter = """
import os, signal, sys
from pathlib import Path
from outlast.chaos.witness.client import Witness
print(Witness.start(Path(sys.argv[1])).pid, flush=True)
signal.pause()
"""
    output = tmp_path / "output"
    with processes.running(
        processes.python_command(starter, str(tmp_path / "log")), output=output
    ) as process:
        pid = int(processes.wait_for(output.read_text, what="the witness to start"))
        process.send_signal(signal.SIGKILL)
        process.wait()
        processes.wait_for(lambda: not processes.alive(pid), what="the witness to end")


def test_nonsense_is_refused_and_not_performed(witness: Witness) -> None:
    with pytest.raises(Refused):
        witness.act("telepathy", "comment", {})
    with pytest.raises(Refused):
        witness.fault("explode")
    assert witness.counts().performed == 0
    assert witness.log.read_bytes() == b""


@pytest.mark.parametrize("place", ["act/blind/pay", "faults"])
@pytest.mark.parametrize("body", [b"[]", b"5", b"null", b'"pay"', b"{"])
def test_a_body_that_is_not_a_json_object_is_answered_with_400(
    witness: Witness, place: str, body: bytes
) -> None:
    request = urllib.request.Request(f"{witness.url}/{place}", data=body, method="POST")
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(request)
    with answer.value as error:
        assert error.code == 400
    assert witness.counts().performed == 0


def test_the_log_is_plain_json_lines(witness: Witness) -> None:
    witness.act("keyed", "pay", {"cents": 5}, key="k", identity="a")
    witness.act("keyed", "pay", {"cents": 5}, key="k", identity="a")
    lines = [json.loads(line) for line in witness.log.read_text().splitlines()]
    assert [line["what"] for line in lines] == ["performed", "deduped"]
