"""A run behind `outlast mcp` that is busy, frozen, dead or over: each call has an answer, and nothing hangs."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.client import RawClient
from tests.mcp.conftest import Around, begun
from tests.support.environment import TIMEOUT_S, isolate
from tests.support.processes import kill_at_once, wait_for


@dataclass
class Silent:
    """A run that takes calls and answers none, and a client of `outlast mcp` in it."""

    client: RawClient
    listening: socket.socket

    def accepted(self) -> socket.socket:
        """The connection of the next call, once all that it says has come."""
        there, _ = self.listening.accept()
        there.settimeout(20.0)  # it comes at once, or never
        size = int.from_bytes(there.recv(4, socket.MSG_WAITALL), "big")
        assert b"budget" in there.recv(size, socket.MSG_WAITALL)
        return there

    def wait_for_end(self, there: socket.socket) -> None:
        with there:
            assert there.recv(1) == b""


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Silent]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.settimeout(TIMEOUT_S)
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        inside = {"OUTLAST_SOCKET": str(tmp_path / "socket"), "OUTLAST_ATTEMPT": "r.1", "OUTLAST_RUN": "r"}
        forever = {"OUTLAST_TIMING": "mcp.answer_s=3600"}
        with RawClient.start(isolate(tmp_path).environ(**inside, **forever), tmp_path) as client:
            client.shake()
            yield Silent(client, listening)


QUICK = {"OUTLAST_TIMING": "mcp.answer_s=0.4,mcp.save_s=0.6"}


def test_ten_thousand_requests_at_once_are_each_answered_once(around: Around) -> None:
    with around.client() as client:
        client.shake()

        def send() -> None:
            for number in range(10_000, 20_000):
                method = ("ping", "tools/list", "no/such", "ping")[number % 4]
                if number % 50 == 0:
                    named = {"name": "stage", "arguments": {"name": f"at {number}"}}
                    client.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": named})
                else:
                    client.send({"jsonrpc": "2.0", "id": number, "method": method})

        sending = threading.Thread(target=send)
        sending.start()
        found = sorted(client.receive()["id"] for _ in range(10_000))
        sending.join()
        assert found == list(range(10_000, 20_000))
        assert client.call("budget")["isError"] is False
    # A client's words are on record in the order in which it said them.
    assert [each["stage"] for each in around.events("stage_set")] == [
        f"at {n}" for n in range(10_000, 20_000, 50)
    ]


def test_what_was_asked_before_the_end_of_the_input_is_answered(around: Around) -> None:
    with around.client() as client:
        client.shake()
        client.send(
            *(
                {
                    "jsonrpc": "2.0",
                    "id": n,
                    "method": "tools/call",
                    "params": {"name": "stage", "arguments": {"name": f"s{n}"}},
                }
                for n in range(100, 120)
            )
        )
        assert client.end() == 0
        assert [client.receive()["id"] for _ in range(20)] == list(range(100, 120))
    assert around.events("stage_set")[-1]["stage"] == "s119"


def test_a_frozen_run_is_a_tool_error_within_the_limit(around: Around) -> None:
    with around.client(**QUICK) as client:
        client.shake()
        os.kill(around.supervisor, signal.SIGSTOP)
        try:
            began_s = time.monotonic()
            for tool, given in (("budget", {}), ("stage", {"name": "x"}), ("save", {})):
                assert "the run does not answer" in client.refused(tool, **given)
            assert client.ask("ping")["result"] == {}
            assert time.monotonic() - began_s < 10
        finally:
            os.kill(around.supervisor, signal.SIGCONT)
        assert client.call("budget", limit_s=60)["isError"] is False


def test_a_cancelled_call_is_not_answered_and_keeps_nobody_waiting(silent: Silent) -> None:
    client = silent.client
    for number in (900, 901):  # one under way, one behind it
        client.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "budget"}})
    first = silent.accepted()
    assert client.ask("ping")["result"] == {}
    for number in (901, 900):
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    silent.wait_for_end(first)
    client.send({"jsonrpc": "2.0", "id": 902, "method": "tools/call", "params": {"name": "budget"}})
    silent.accepted().close()  # the one behind it was never made
    assert client.receive()["id"] == 902
    assert not {900, 901} & {each["id"] for each in client.seen}


def test_a_question_stops_the_agent_and_its_answer_is_there_when_it_asks_again(around: Around) -> None:
    question: dict[str, Any] = {"text": "which API?", "choices": ["v1", "v2"]}
    with around.apart() as client:
        client.shake()
        assert "at most" in client.refused("ask", text="x", choices=["a", "a"])
        text = client.refused("ask", **question)
        assert "You are stopped here" in text
        assert "in the same words" in text
        assert around.process.wait(60) == 3
        assert "the run does not answer" in client.refused("stage", limit_s=30, name="x")
    shown = around.night.ask("show", "t")
    assert [each["text"] for each in shown["waits_for"]] == ["which API?"]
    assert around.night("answer", "t", "v2", "--no-start").code == 0
    around.process, around.inside = begun(around.night)
    with around.client() as client:
        client.shake()
        assert client.call("ask", **question)["structuredContent"] == {"answer": "v2"}
    assert around.end() == 0


def test_a_second_request_under_an_id_that_is_under_way_is_refused(around: Around) -> None:
    with around.client() as client:
        client.shake()
        os.kill(around.supervisor, signal.SIGSTOP)
        try:
            for _ in range(2):
                client.send({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "budget"}})
            assert client.receive()["error"]["code"] == -32600
        finally:
            os.kill(around.supervisor, signal.SIGCONT)
        assert client.receive()["result"]["isError"] is False


def test_a_run_that_was_killed_is_a_tool_error_with_what_to_do(around: Around) -> None:
    with around.client() as client:
        client.shake()
        assert client.call("stage", name="before")["isError"] is False
        kill_at_once([around.process.pid, around.supervisor])
        for tool, given in (("budget", {}), ("stage", {"name": "after"}), ("save", {}), ("context", {})):
            text = client.refused(tool, limit_s=10, **given)
            assert "the run does not answer" in text
            assert "hint: " in text
        assert client.ask("ping")["result"] == {}
        assert client.end() == 0
    assert [each["stage"] for each in around.events("stage_set")] == ["before"]


def test_a_process_of_an_attempt_that_is_over_writes_nothing(around: Around) -> None:
    with RawClient.start(around.environ(OUTLAST_ATTEMPT=f"{around.run}.77"), around.night.work) as client:
        client.shake()
        for tool, given in (("stage", {"name": "x"}), ("remember", {"name": "a", "path": "b"}), ("save", {})):
            assert "belongs to an attempt that is over" in client.refused(tool, **given)
        assert "over" in client.refused("budget")
    assert around.events("stage_set") == []
    assert around.events("remembered") == []


def test_a_paused_run_takes_nothing(around: Around) -> None:
    ahead = {name: value for name, value in around.environ().items() if name != "OUTLAST_RUN"}
    with RawClient.start(ahead | {"OUTLAST_ATTEMPT": ""}, around.night.work) as client:
        client.shake()  # so that the run's own reaper does not take our client for one of its processes
        assert client.call("budget")["isError"] is True
    assert around.night("pause", "t").code == 0
    assert around.process.wait(60) != 0
    wait_for(lambda: around.night.ask("show", "t")["status"] == "paused", what="the pause")
    with around.client() as client:
        client.shake()
        for tool, given in (
            ("stage", {"name": "x"}),
            ("save", {}),
            ("settle", {"effect": "1.1", "finding": "happened"}),
        ):
            assert "the run does not answer" in client.refused(tool, **given)
    assert around.events("stage_set") == []


@pytest.mark.parametrize("tool", ["stage", "remember", "save", "settle"])
def test_what_the_run_cannot_record_it_says(around: Around, tool: str) -> None:
    given: dict[str, dict[str, str]] = {
        "stage": {"name": "x" * 201}, "remember": {"name": "n", "path": "data://x"}, "save": {"message": "m" * 201},
        "settle": {"effect": "1.1", "finding": "give_up"},
    }  # fmt: skip
    with around.client() as client:
        client.shake()
        text = client.refused(tool, **given[tool])
    assert "hint: " in text
    assert Path(around.night.folder).exists()
