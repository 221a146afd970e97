"""What a call cost, whatever became of it: exact where the provider said so, else an upper bound that is marked."""

import gzip
import json
import threading
from datetime import UTC, datetime, timedelta

import pytest

from outlast.core.values import Usage, Window
from outlast.gateway import CallUsage, Kind, Refusal, requests
from outlast.gateway.answers import OUTPUT_UNKNOWN
from tests.agents.protocols import Answered, ModelAnswer, wire_for
from tests.agents.script import Usage as Scripted
from tests.gateway.endpoints import (
    ASKED,
    ENDED,
    KEY,
    LIMIT_S,
    SAID,
    STARTED,
    STREAM_HEAD,
    Connection,
    Ledger,
    ReceivedRequest,
    answer,
    answering,
    between,
    chunks,
    dial,
    post,
    sse,
)
from tests.support.processes import wait_for

PATHS: dict[Kind, str] = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
}
SPOKEN = ModelAnswer(
    "1", "fake-1", "some words", (Answered("c", "bash", {"command": "ls"}),), Scripted(50, 20, 10, 33, 4), 50
)
# Anthropic counts apart what came from the cache; the others count it in.
COSTS: dict[Kind, Usage] = {
    "anthropic": Usage(50, 33, 20, 10),
    "responses": Usage(30, 33, 20),
    "chat": Usage(30, 33, 20),
    "gemini": Usage(30, 37, 20),
}


def called(
    path: str, body: object, *answers: bytes, ledger: Ledger | None = None
) -> tuple[CallUsage, ReceivedRequest]:
    """One call through a gateway, to its end: how it was settled, and what came back."""
    ledger = ledger or Ledger()
    serve, _ = answering(*answers)
    with between(serve, ledger) as (gateway, upstream):
        client, base = dial(gateway, upstream.url)
        client.send(post(base + path, body))
        got = client.message()
        client.close()
        spent = ledger.one()
    assert KEY not in repr((ledger.calls, ledger.spent, gateway.faults))
    return spent, got


def streamed(kind: Kind) -> list[bytes]:
    wire = wire_for(PATHS[kind].partition("?")[0])
    assert wire is not None
    return sse(*(event for _, event in wire.events(SPOKEN)))


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("how", ["streamed", "whole", "gzip"])
def test_each_protocol_is_read(kind: Kind, how: str) -> None:
    wire = wire_for(PATHS[kind].partition("?")[0])
    assert wire is not None
    whole = json.dumps(wire.whole(SPOKEN)).encode()
    said = {
        "streamed": STREAM_HEAD + chunks(*streamed(kind)) + b"0\r\n\r\n",
        "whole": answer(whole),
        "gzip": answer(gzip.compress(whole), "Content-Encoding: gzip"),
    }[how]
    spent, _ = called(PATHS[kind], {"model": "m"}, said)
    assert (spent.usage, spent.model, spent.ended) == (COSTS[kind], "fake-1", "complete")
    assert spent.key.endswith("1")
    assert spent.call.kind == kind


@pytest.mark.parametrize("kind", PATHS)
def test_cut_after_any_event_it_costs_at_least_what_the_model_had_said(kind: Kind) -> None:
    """The server goes away in the middle of the stream: marked, and no less than what was there."""
    events = streamed(kind)
    ledger, cut_after = Ledger(), list(range(len(events)))

    def serve(connection: Connection) -> None:
        connection.message()
        connection.send(STREAM_HEAD, chunks(*events[: len(ledger.calls) - 1]))

    with between(serve, ledger) as (gateway, upstream):
        for _ in cut_after:
            client, base = dial(gateway, upstream.url)
            client.send(
                post(base + PATHS[kind], {"model": "m"} | ({} if kind == "gemini" else {"max_tokens": 400}))
            )
            assert not client.to_the_end().endswith(b"0\r\n\r\n")
            client.close()
        settled = ledger.settled()
    assert {spent.ended for spent in settled} == {"upstream"}
    first, last = settled[0].usage, settled[-1].usage
    assert first == Usage(first.input, OUTPUT_UNKNOWN if kind == "gemini" else 400, estimated=True)
    assert all(spent.usage.estimated or spent.usage == COSTS[kind] for spent in settled)
    assert last.output >= 5
    assert last.input > 0


def test_a_client_that_goes_away_in_mid_stream_is_counted_and_its_model_is_stopped() -> None:
    ledger, gone = Ledger(), threading.Event()

    def serve(connection: Connection) -> None:
        connection.message()
        connection.send(STREAM_HEAD, chunks(STARTED, SAID))
        connection.to_the_end()
        gone.set()

    with between(serve, ledger) as (gateway, upstream):
        client, base = dial(gateway, upstream.url)
        client.send(post(f"{base}/v1/messages", ASKED))
        client.until(b"hello there")
        client.close()
        spent = ledger.one()
        assert gone.wait(LIMIT_S), "the connection to the model was kept"
    assert (spent.ended, spent.key) == ("client", "msg_1")
    assert spent.usage == Usage(7, len("hello there") // 2 + 1, 3, 5, estimated=True)


def test_a_client_that_leaves_after_the_last_number_costs_exactly_that() -> None:
    ledger, hung = Ledger(), threading.Event()

    def serve(connection: Connection) -> None:
        connection.message()
        connection.send(STREAM_HEAD, chunks(STARTED, SAID, ENDED))
        hung.wait(LIMIT_S)

    with between(serve, ledger) as (gateway, upstream):
        client, base = dial(gateway, upstream.url)
        client.send(post(f"{base}/v1/messages", ASKED))
        client.until(b"end_turn")
        client.close()
        assert ledger.one().usage == Usage(7, 11, 3, 5)
        hung.set()


def test_a_chat_that_tells_no_usage_is_estimated() -> None:
    events = sse({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": "é" * 10}}]})
    said = STREAM_HEAD + chunks(*events, b"data: [DONE]\n\n") + b"0\r\n\r\n"
    spent, _ = called("/v1/chat/completions", {"model": "m", "x": "y" * 280}, said)
    assert spent.usage == Usage(102, 11, estimated=True)


def test_a_model_that_cannot_be_reached_costs_nothing_and_is_named() -> None:
    ledger = Ledger(pending=["words"])
    with between(lambda connection: None, ledger) as (gateway, upstream):
        upstream.close()
        client, base = dial(gateway, upstream.url)
        client.send(post(f"{base}/v1/messages", ASKED | {"tools": [{}]}))
        got = client.message()
        client.close()
        spent = ledger.one()
    assert got.head.startswith(b"HTTP/1.1 502 ")
    assert json.loads(got.body)["error"]["type"] == "api_error"
    assert b"127.0.0.1" in got.body
    assert (spent.usage, spent.status, spent.ended, spent.message) == (Usage(), 0, "unreached", "")


# --- walls ----------------------------------------------------------------------------------------------------

SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
EPOCH = int(SOON.timestamp())


@pytest.mark.parametrize(
    ("headers", "error", "kind", "reset_s"),
    [
        (["retry-after: 40"], {"type": "rate_limit_error", "message": "slow down"}, "rate_limit", 40),
        ([], {"type": "rate_limit_error", "message": "slow down"}, "rate_limit", None),
        (
            ["retry-after: 9", f"anthropic-ratelimit-unified-reset: {EPOCH}", "anthropic-ratelimit-unified-status: rejected"],
            {"type": "rate_limit_error", "message": "limit"}, "usage_limit", SOON,
        ),
        ([], {"type": "usage_limit_reached", "message": "m", "resets_at": EPOCH}, "usage_limit", SOON),
        ([], {"type": "usage_limit_reached", "message": "m", "resets_in_seconds": 600}, "usage_limit", 600),
        (["x-codex-primary-used-percent: 100", "x-codex-primary-reset-after-seconds: 60"], {"code": "usage_limit_reached"}, "usage_limit", 60),
        (["x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 6m1s"], {"code": "rate_limit_exceeded"}, "rate_limit", 361),
        ([f"retry-after: {SOON:%a, %d %b %Y %H:%M:%S} GMT"], {"code": "insufficient_quota"}, "usage_limit", SOON),
        (
            [], {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m", "details": [
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]}, "rate_limit", 34.5,
        ),
        (["retry-after: 99999999999"], {"message": "nonsense"}, "rate_limit", None),
    ],
)  # fmt: skip
def test_a_wall_is_recognised_with_its_reset(
    headers: list[str], error: object, kind: str, reset_s: float | datetime | None
) -> None:
    said = answer(
        json.dumps({"type": "error", "error": error}).encode(), *headers, status="429 Too Many Requests"
    )
    spent, got = called("/v1/messages", ASKED, said)
    assert said.endswith(got.body)
    assert (spent.usage, spent.status) == (Usage(), 429)
    assert spent.limit is not None
    assert spent.limit.kind == kind
    if reset_s is None or isinstance(reset_s, datetime):
        assert spent.limit.resets_at == reset_s
    else:
        assert spent.limit.resets_at is not None
        assert abs((spent.limit.resets_at - datetime.now(UTC)).total_seconds() - reset_s) < LIMIT_S


@pytest.mark.parametrize(
    ("path", "event"),
    [
        ("/v1/messages", {"type": "error", "error": {"type": "rate_limit_error", "message": "too fast"}}),
        ("/v1/responses", {"type": "response.failed", "response": {"id": "r", "error": {
            "code": "rate_limit_exceeded", "message": "too fast"}}}),
        ("/v1/responses", {"type": "error", "code": "rate_limit_exceeded", "message": "too fast"}),
    ],
)  # fmt: skip
def test_a_wall_in_the_middle_of_a_stream_is_recognised(path: str, event: object) -> None:
    spent, _ = called(path, ASKED, STREAM_HEAD + chunks(*sse(event)) + b"0\r\n\r\n")
    assert spent.limit is not None
    assert (spent.limit.kind, spent.limit.words) == ("rate_limit", "too fast")
    assert spent.usage.estimated


def test_an_overloaded_server_is_no_wall_and_the_windows_of_a_subscription_are_read() -> None:
    headers = [
        "anthropic-ratelimit-unified-5h-utilization: 0.42",
        f"anthropic-ratelimit-unified-5h-reset: {EPOCH}",
    ]
    headers += ["x-codex-secondary-used-percent: 13"]
    said = answer(
        b'{"error":{"type":"overloaded_error","message":"Overloaded"}}', *headers, status="529 Overloaded"
    )
    spent, _ = called("/v1/messages", ASKED, said)
    assert (spent.limit, spent.usage, spent.status) == (None, Usage(), 529)
    assert spent.windows == (Window(42.0, SOON, "5h"), Window(13.0, None, "secondary"))


# --- refusing and telling ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PATHS)
def test_a_refused_call_reads_its_protocols_own_error_and_never_reaches_the_model(kind: Kind) -> None:
    ledger = Ledger(refusal=Refusal("outlast: the budget is reached"))
    with between(lambda connection: None, ledger) as (gateway, upstream):
        client, base = dial(gateway, upstream.url)
        client.send(post(base + PATHS[kind], ASKED))
        got = client.message()
        client.close()
        assert upstream.connections == 0
    assert got.head.startswith(b"HTTP/1.1 400 ")
    error = json.loads(got.body)["error"]
    assert error["message"] == "outlast: the budget is reached"
    assert {"anthropic": "type", "gemini": "status"}.get(kind, "code") in error
    assert ledger.spent == []


WORDS = "75 % of the budget is spent"
TOOLS = {"tools": [{"name": "bash"}]}
TELLING: list[tuple[Kind, dict[str, object], dict[str, object]]] = [
    ("anthropic", {"messages": [{"role": "user", "content": "hi"}]},
     {"messages": [{"role": "user", "content": f"hi\n\n{WORDS}"}]}),
    ("anthropic",
     {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}, {"role": "system", "content": "s"}]},
     {"messages": [{"role": "user", "content": [{"type": "tool_result"}, {"type": "text", "text": WORDS}]},
                   {"role": "system", "content": "s"}]}),
    ("responses", {"input": "hi"}, {"input": f"hi\n\n{WORDS}"}),
    ("responses", {"input": [{"type": "function_call_output"}]},
     {"input": [{"type": "function_call_output"},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": WORDS}]}]}),
    ("chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
     {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": WORDS}]}]}),
    ("chat", {"messages": [{"role": "tool", "content": "1"}]},
     {"messages": [{"role": "tool", "content": "1"}, {"role": "user", "content": WORDS}]}),
    ("gemini", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
     {"contents": [{"role": "user", "parts": [{"text": "hi"}, {"text": WORDS}]}]}),
    ("gemini", {"request": {"contents": [{"role": "user", "parts": [{"functionResponse": {}}]}], **TOOLS}},
     {"request": {"contents": [{"role": "user", "parts": [{"functionResponse": {}}]},
                               {"role": "user", "parts": [{"text": WORDS}]}], **TOOLS}}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "asked", "expected"), TELLING)
def test_words_are_told_once_where_the_newest_user_speaks(
    kind: Kind, asked: dict[str, object], expected: dict[str, object]
) -> None:
    """A call that failed did not deliver them; the next one does; the one after passes as it is."""
    asked, expected = ({"n": 1, **TOOLS, **body, "z": "é\n"} for body in (asked, expected))
    ledger = Ledger(pending=[WORDS])
    serve, seen = answering(answer(b"{}", status="529 Overloaded"), answer(b"{}"), answer(b"{}"))
    with between(serve, ledger) as (gateway, upstream):
        client, base = dial(gateway, upstream.url)
        for _ in range(3):
            client.send(post(base + PATHS[kind], asked))
            client.message()
        client.close()
        told = [spent.message for spent in ledger.settled()]
    assert told == ["", WORDS, ""]
    assert [json.loads(request.body) for request in seen] == [expected, expected, asked]
    assert seen[2].body == json.dumps(asked).encode()


def test_an_aside_without_tools_is_told_nothing() -> None:
    ledger = Ledger(pending=[WORDS])
    serve, seen = answering(*[answer(b"{}")] * 3)
    with between(serve, ledger) as (gateway, upstream):
        client, base = dial(gateway, upstream.url)
        for more in ({}, TOOLS, {}):
            client.send(post(f"{base}/v1/messages", ASKED | more))
            client.message()
        client.close()
    assert [WORDS in request.body.decode() for request in seen] == [False, True, False]


@pytest.mark.parametrize("failing", ["before", "after"])
def test_when_the_ledger_fails_nothing_more_is_forwarded(failing: str) -> None:
    class Failing(Ledger):
        def before(self, call: object) -> None:
            if failing == "before":
                raise OSError(f"disk full {KEY}")

        def after(self, spent: CallUsage) -> None:
            raise OSError(f"disk full {KEY}")

    serve, seen = answering(answer(b"{}"), answer(b"{}"))
    ledger = Failing()
    with between(serve, ledger, faults=True) as (gateway, upstream):
        for _ in range(2):
            client, base = dial(gateway, upstream.url)
            client.send(post(f"{base}/v1/messages", ASKED))
            got = client.message()
            client.close()
            wait_for(lambda: gateway.faults, LIMIT_S, "the fault")
        assert got.head.startswith(b"HTTP/1.1 400 ")
        assert set(gateway.faults) == {f"{failing}: OSError"}
        assert len(seen) == (failing == "after")


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        ({"prompt_tokens": -900, "completion_tokens": 100}, "hi"),
        ({"prompt_tokens": 900, "completion_tokens": -1}, "hi"),
        ({"prompt_tokens": 900, "completion_tokens": 1}, "word " * 4_000),
        ({"prompt_tokens": 10**15, "completion_tokens": 1}, "hi"),
    ],
)
def test_numbers_that_cannot_be_are_not_believed(usage: object, text: str) -> None:
    body = {"id": "c", "choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage}
    asked = {"model": "m", "messages": []}
    spent, _ = called(PATHS["chat"], asked, answer(json.dumps(body).encode()))
    assert spent.usage.estimated
    assert 0 < spent.usage.input < 10_000
    assert spent.usage.output >= len(text) // 4
    event = {"id": "c", "choices": [{"delta": {"content": text}, "finish_reason": "stop"}], "usage": usage}
    spent, _ = called(PATHS["chat"], asked, STREAM_HEAD + chunks(*sse(event)) + b"0\r\n\r\n")
    assert spent.usage.estimated


def test_a_long_answer_that_is_counted_well_is_believed() -> None:
    usage = {"prompt_tokens": 900, "completion_tokens": 4_000}
    body = {"id": "c", "choices": [{"message": {"content": "word " * 4_000}}], "usage": usage}
    spent, _ = called(PATHS["chat"], ASKED, answer(json.dumps(body).encode()))
    assert spent.usage == Usage(900, 4_000)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/Chat/COMPLETIONS", "/v1/chat/completions;x=1", "/v1/chat;v=2/completions;x", "/v1/chat/completions%20",
        "/v1/chat/completions/%20/", "/v1/chat/completions%09;a%20", "/v1beta/models/g:GenerateContent",
    ],
)  # fmt: skip
def test_a_path_that_a_lenient_server_takes_is_a_call(path: str) -> None:
    assert requests.kind_of(b"POST", path.encode()) is not None


def test_when_it_is_closed_nothing_is_posted_at_all() -> None:
    ledger = Ledger(shut=Refusal("nothing is left"))
    serve, seen = answering(answer(b"{}"))
    with between(serve, ledger) as (gateway, upstream):
        client, base = dial(gateway, upstream.url)
        client.send(post(f"{base}/v1/embeddings", ASKED))
        assert b"nothing is left" in client.message().body
        client.close()
    assert not seen
