"""The scripted model: the right step from the conversation alone, each fault as told, a log that misses nothing."""

from __future__ import annotations

import http.client
import json
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import model as models, script as scripts
from tests.agents.model import Model
from tests.agents.protocols import ERRORS, Anthropic, Chat, Gemini, Responses, Wire, wire_for
from tests.agents.script import Fault, Lane, Script, Step, Usage, When, bash, repeating, write
from tests.support.environment import ROOT
from tests.support.processes import wait_for

Body = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
CODEX = {"type": "object", "properties": {"cmd": {"type": "string"}}}
PATHS = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/g:generateContent",
}
WIRES: list[Wire] = [Anthropic(), Responses(), Chat(), Gemini()]
by_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with Model(Script([]), tmp_path / "log") as made:
        yield made


def ask(model: Model, path: str, body: Body | bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(model.url.removeprefix("http://"), timeout=30)
    try:
        connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body))
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def opening(wire: str, prompt: str = "go") -> Body:
    """The first request of a conversation, with a shell on offer."""
    function = {"name": "bash", "parameters": SCHEMA}
    match wire:
        case "anthropic":
            tools: list[Body] = [{"name": "Bash", "input_schema": SCHEMA}]
            return {"model": "m", "tools": tools, "messages": [{"role": "user", "content": prompt}]}
        case "responses":
            tools = [{"type": "function", "name": "exec_command", "parameters": CODEX}]
            return {"model": "m", "tools": tools, "input": [{"role": "user", "content": prompt}]}
        case "chat":
            tools = [{"type": "function", "function": function}]
            return {"model": "m", "tools": tools, "messages": [{"role": "user", "content": prompt}]}
        case _:
            tools = [{"functionDeclarations": [function | {"name": "run_shell_command"}]}]
            return {"tools": tools, "contents": [{"role": "user", "parts": [{"text": prompt}]}]}


def go_on(wire: str, body: Body, reply: Body, result: str | None) -> Body:
    """The next request: the reply taken in, its calls answered with `result` (None: not answered)."""
    match wire:
        case "anthropic":
            said = [{"role": "assistant", "content": reply["content"]}]
            answered = [
                {"type": "tool_result", "tool_use_id": block["id"], "content": result}
                for block in reply["content"]
                if block["type"] == "tool_use"
            ]
            return body | {"messages": [*body["messages"], *said, *_user(answered, result)]}
        case "responses":
            outputs = [
                {"type": "function_call_output", "call_id": item["call_id"], "output": result}
                for item in reply["output"]
                if item["type"] == "function_call" and result is not None
            ]
            return body | {"input": [*body["input"], *reply["output"], *outputs]}
        case "chat":
            message = reply["choices"][0]["message"]
            outputs = [
                {"role": "tool", "tool_call_id": call["id"], "content": result}
                for call in message["tool_calls"]
                if result is not None
            ]
            return body | {"messages": [*body["messages"], message, *outputs]}
        case _:
            content = reply["candidates"][0]["content"]
            parts = [
                {"functionResponse": {"id": part["functionCall"]["id"], "response": {"output": result}}}
                for part in content["parts"]
                if "functionCall" in part and result is not None
            ]
            more = [{"role": "user", "parts": parts}] if parts else []
            return body | {"contents": [*body["contents"], content, *more]}


def _user(blocks: list[Body], result: str | None) -> list[Body]:
    return [{"role": "user", "content": blocks}] if result is not None else []


def calls_of(wire: Wire, reply: Body) -> list[str]:
    """The inputs of a reply's calls, read as the wire itself reads a history."""
    empty: Body = {"tools": [], "messages": [], "input": [], "contents": []}
    history = wire.read(go_on(wire.name, empty, reply, None))
    return [call.input for turn in history.turns for call in turn.calls]


# --- choosing ------------------------------------------------------------------------------------------------


@by_wire
def test_the_step_follows_from_the_conversation_and_parallel_calls_are_one_response(
    model: Model, wire: Wire
) -> None:
    model.script = Script([Step("two", (bash("a"), bash("b"))), Step("one", (bash("c"),)), Step("end")])
    body = opening(wire.name)
    for number, commands in enumerate((["a", "b"], ["c"], [])):
        status, raw = ask(model, PATHS[wire.name], body)
        assert status == 200
        asked = calls_of(wire, json.loads(raw)) if number < 2 else []
        assert len(asked) == len(commands)
        assert all(command in told for command, told in zip(commands, asked, strict=True))
        if number < 2:
            body = go_on(wire.name, body, json.loads(raw), "fine")
    assert [request.step for request in model.requests()] == [0, 1, 2]
    assert model.requests()[-1].history.last_text.strip().endswith(("fine", '"fine"}'))


@by_wire
def test_said_again_it_has_other_ids_and_said_by_another_server_the_same(tmp_path: Path, wire: Wire) -> None:
    script = Script([Step("x", (bash("a"),))])
    said = []
    for name in ("one", "two"):
        with Model(script, tmp_path / name) as model:
            said += [ask(model, PATHS[wire.name], opening(wire.name))[1] for _ in range(2)]
    assert said[:2] == said[2:]
    assert said[0] != said[1]


def test_a_server_started_again_on_its_log_knows_what_it_has_said(tmp_path: Path) -> None:
    script = Script([Step("x", (bash("a"),))])
    for _ in range(2):
        with Model(script, tmp_path / "log") as model:
            ask(model, "/v1/messages", opening("anthropic"))
        with open(tmp_path / "log", "ab") as log:
            log.write(b'{"n":9,"wi')
    assert [(request.n, request.play) for request in models.requests(tmp_path / "log")] == [(1, 0), (2, 1)]


@by_wire
@pytest.mark.parametrize("result", ["aborted by user", "the outcome is unknown", None])
def test_a_lost_call_is_made_again_in_other_words_and_a_known_one_is_not(
    model: Model, wire: Wire, result: str | None
) -> None:
    model.script = Script(repeating(bash("say hello"), bash("say 'hello'")))
    body = opening(wire.name)
    first = json.loads(ask(model, PATHS[wire.name], body)[1])
    assert "say hello" in calls_of(wire, first)[0]
    # Dropped from the conversation.
    assert "say 'hello'" in calls_of(wire, json.loads(ask(model, PATHS[wire.name], body)[1]))[0]
    # There, and lost.
    lost = ask(model, PATHS[wire.name], go_on(wire.name, body, first, result))[1]
    assert "say 'hello'" in calls_of(wire, json.loads(lost))[0]
    # There, and answered.
    known = ask(model, PATHS[wire.name], go_on(wire.name, body, first, "hello"))[1]
    assert b"say 'hello'" not in known
    assert b"Done." in known


def test_lanes_titles_and_functions_of_the_conversation(model: Model) -> None:
    model.script = Script([Step("main")], lanes=[Lane("sub-agent", (Step("lane"),))])
    assert b"main" in ask(model, "/v1/messages", opening("anthropic"))[1]
    assert b"lane" in ask(model, "/v1/messages", opening("anthropic", "you are a sub-agent"))[1]
    assert b'"ok"' in ask(model, "/v1/messages", opening("anthropic") | {"tools": []})[1]
    model.script = Script(lambda history, plays: Step(f"{history.prompt} {plays}"))
    assert b"go 1" in ask(model, "/v1/messages", opening("anthropic"))[1]
    assert [(request.lane, request.step) for request in model.requests()] == [(0, 0), (1, 0), (0, -1), (0, 0)]
    assert len(model.paid()) == 3


def test_a_script_is_read_from_json(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(
        json.dumps(
            [
                {"text": "a", "bash": "ls", "write": {"f": "x"}, "usage": {"output": 7}},
                [{"when": {"last": "abc"}, "text": "b"}, {"text": "c", "fault": {"error": "rate"}}],
            ]
        )
    )
    assert scripts.load(path).digest == (
        Script(
            [
                Step("a", (bash("ls"), write("f", "x")), Usage(output=7)),
                [Step("b", when=When(last="abc")), Step("c", fault=Fault(error="rate"))],
            ]
        ).digest
    )
    path.write_text('[{"txet": "a"}]')
    with pytest.raises(ValueError, match="txet"):
        scripts.load(path)


def test_the_same_script_runs_as_a_process(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('[{"text": "hi there"}]')
    command = [sys.executable, "-m", "tests.agents.model"]
    command += ["--script", str(tmp_path / "script.json"), "--log", str(tmp_path / "log")]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        host = process.stdout.readline().strip().removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request("POST", "/v1/messages", json.dumps(opening("anthropic")))
        assert b"hi there" in connection.getresponse().read()
        connection.close()
        process.stdin.close()
        assert process.wait(30) == 0
    assert len(models.paid(tmp_path / "log")) == 1


# --- faults --------------------------------------------------------------------------------------------------


@by_wire
@pytest.mark.parametrize("error", ERRORS)
def test_an_error_comes_as_often_as_told_and_costs_nothing(model: Model, wire: Wire, error: str) -> None:
    fault = Fault(error=error, retry_after_s=3, resets_at=1_800_000_000, times=2)
    model.script = Script([Step("fine", fault=fault)])
    statuses = [ask(model, PATHS[wire.name], opening(wire.name))[0] for _ in range(3)]
    expected = 503 if wire.name == "gemini" and error == "overloaded" else ERRORS[error][0]
    assert statuses == [expected, expected, 200]
    assert len(model.paid()) == 1


@by_wire
def test_a_stream_hangs_after_so_many_events_until_released(model: Model, wire: Wire) -> None:
    model.script = Script([Step("a text of some length", (bash("a"),), fault=Fault(hang_after=2))])
    path = PATHS[wire.name].replace("generateContent", "streamGenerateContent")
    got: list[bytes] = []
    body = opening(wire.name) | {"stream": True}
    thread = threading.Thread(target=lambda: got.append(ask(model, path, body)[1]))
    thread.start()
    wait_for(lambda: model.hanging == 1, what="the response to hang")
    assert model.requests()[0].ended is None
    model.release()
    thread.join()
    assert got[0] == _streamed(wire, model, body).replace(b"p01", b"p00")
    assert model.requests()[0].ended == "sent"


def _streamed(wire: Wire, model: Model, body: Body) -> bytes:
    path = PATHS[wire.name].replace("generateContent", "streamGenerateContent")
    return ask(model, path, body)[1]


@by_wire
def test_a_cut_stream_ends_after_so_many_events_and_was_paid(model: Model, wire: Wire) -> None:
    model.script = Script([Step("a text of some length", (bash("a"),), fault=Fault(cut_after=2))])
    body = opening(wire.name) | {"stream": True}
    cut, whole = _streamed(wire, model, body), _streamed(wire, model, body)
    assert cut.count(b"\n\n") == 2
    assert whole.replace(b"p01", b"p00").startswith(cut)
    assert [request.ended for request in model.paid()] == ["cut", "sent"]


def test_a_client_that_goes_away_is_logged_and_closing_ends_what_hangs(tmp_path: Path) -> None:
    model = Model(Script([Step("x" * 100, fault=Fault(hang_after=1))]), tmp_path / "log")
    with socket.create_connection(("127.0.0.1", int(model.url.rpartition(":")[2]))) as connection:
        body = json.dumps(opening("anthropic") | {"stream": True}).encode()
        connection.sendall(b"POST /v1/messages HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: model.hanging == 1, what="the response to hang")
    model.close()
    assert model.requests()[0].ended in ("gone", "sent")  # a socket takes what it is given until it is told


# --- garbage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PATHS.values(), "/nowhere", "/control/release"])
def test_garbage_is_refused_and_the_next_request_is_served(
    model: Model, path: str, rng: random.Random
) -> None:
    model.script = Script([Step("still here")])
    bodies = [b"", b"[]", b"null", b"{", b'{"messages": 1, "input": {}, "contents": "x"}', b"[" * 100_000]
    bodies += [b'{"messages":[1,{"role":3}],"tools":[null,{}]}', rng.randbytes(1000)]
    for body in bodies:
        assert ask(model, path, body)[0] in (200, 400, 404)
    for raw in (rng.randbytes(5000), b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", b"\r\n" * 10):
        with socket.create_connection(("127.0.0.1", int(model.url.rpartition(":")[2]))) as connection:
            connection.sendall(raw)
    assert b"still here" in ask(model, "/v1/messages", opening("anthropic"))[1]
    assert wire_for(path) is None or model.requests()
