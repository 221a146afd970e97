"""What goes through a gateway comes out as it went in, at once, and is counted once."""

import gzip
import json
import socket
import threading
import zlib

import pytest

from outlast.core.values import Usage
from outlast.gateway import Gateway, Refusal
from outlast.gateway.relay import BODY_HELD_MAX
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
    answer,
    answering,
    between,
    chunks,
    dial,
    post,
)

PIECES = 2000  # 130 MB, of which sockets hold a few
WHOLE = Usage(7, 11, 3, 5)


def test_a_stream_passes_byte_for_byte_and_event_by_event() -> None:
    """Each event is with the client before the server says the next."""
    ledger, arrived = Ledger(), threading.Semaphore(0)

    def serve(connection: Connection) -> None:
        connection.message()
        connection.send(STREAM_HEAD)
        for piece in (STARTED, SAID, ENDED):
            connection.send(chunks(piece))
            assert arrived.acquire(timeout=LIMIT_S), "the event was kept back"
        connection.send(b"0\r\n\r\n")

    with between(serve, ledger) as (gateway, upstream):
        client, path = dial(gateway, upstream.url)
        client.send(post(f"{path}/v1/messages?beta=true", ASKED))
        head = client.until(b"\r\n\r\n")
        for piece in (STARTED, SAID, ENDED):
            assert client.exactly(len(chunks(piece))) == chunks(piece)
            arrived.release()
        assert client.exactly(5) == b"0\r\n\r\n"
        client.close()
        spent = ledger.one()
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK", b"Content-Type: text/event-stream; charset=utf-8", b"request-id: req_1",
        b"Transfer-Encoding: chunked",
    ]  # fmt: skip
    assert (spent.key, spent.model, spent.usage) == ("msg_1", "claude-x-1", WHOLE)
    assert (spent.status, spent.ended, spent.limit, spent.call.model) == (200, "complete", None, "claude-x")


def test_a_request_passes_byte_for_byte_but_for_its_address() -> None:
    ledger = Ledger()
    serve, seen = answering(answer(b"{}"))
    with between(serve, ledger) as (gateway, upstream):
        client, path = dial(gateway, f"{upstream.url}/proxy/v2/")
        body = b'{ "model":"m",  "n": 1.50, "n": 2, "messages": [] }'
        client.send(
            post(
                f"{path}/v1/messages",
                body,
                "Accept-Encoding: gzip",
                "x-Odd:  a  b ",
                "Connection: keep-alive",
            )
        )
        client.message()
        client.close()
    assert seen[0].body == body
    assert seen[0].head.split(b"\r\n") == [
        b"POST /proxy/v2/v1/messages HTTP/1.1", f"Host: 127.0.0.1:{upstream.port}".encode(),
        f"X-Api-Key: {KEY}".encode(), b"Content-Type: application/json", b"Content-Length: %d" % len(body),
        b"Accept-Encoding: gzip", b"x-Odd:  a  b ",
    ]  # fmt: skip


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
def test_a_compressed_answer_passes_unchanged(coding: str) -> None:
    """It is read where we can undo the compression, and estimated where not."""
    plain = STARTED + SAID + ENDED
    packed = {"gzip": gzip.compress(plain), "deflate": zlib.compress(plain), "br": b"\x0b\x02" + bytes(30)}[
        coding
    ]
    ledger = Ledger()
    serve, seen = answering(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s"
        % (coding.encode(), len(packed), packed)
    )
    with between(serve, ledger) as (gateway, upstream):
        client, path = dial(gateway, upstream.url)
        client.send(post(f"{path}/v1/messages", ASKED, "Accept-Encoding: br;q=1.0, gzip;q=0.8, zstd"))
        got = client.message()
        client.close()
        usage = ledger.one().usage
    assert (got.body, got.header("content-encoding")) == (packed, [coding])
    assert seen[0].header("accept-encoding") == ["gzip;q=0.8"]
    if coding == "br":
        assert usage == Usage(len(json.dumps(ASKED)) // 3 + 1, 33, estimated=True)
    else:
        assert usage == WHOLE


def test_one_connection_serves_many_requests_and_survives_the_servers_goodbye() -> None:
    """Also pipelined ones. A server that closes after an answer costs the agent nothing."""
    ledger = Ledger()
    body = b'{"id":"msg_%d","usage":{"input_tokens":1,"output_tokens":2}}'
    serve, _ = answering(
        answer(body % 1),
        answer(body % 2, "Connection: close"),
        answer(body % 3),
        b"HTTP/1.1 204 No Content\r\n\r\n",
    )
    with between(serve, ledger) as (gateway, upstream):
        client, path = dial(gateway, upstream.url)
        asked = post(f"{path}/v1/messages", ASKED)
        client.send(asked)
        assert client.message().body == body % 1
        client.send(asked + asked + f"DELETE {path}/v1/files/1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert [client.message().body for _ in range(3)] == [body % 2, body % 3, b""]
        client.close()
        assert [spent.key for spent in ledger.settled()] == ["msg_1", "msg_2", "msg_3"]
        assert upstream.connections == 2


def test_what_is_no_request_for_an_answer_is_passed_and_not_counted() -> None:
    ledger = Ledger(refusal=Refusal("no more"))
    serve, seen = answering(answer(b'{"input_tokens":4}'), answer(b'{"data":[]}'))
    with between(serve, ledger) as (gateway, upstream):
        client, path = dial(gateway, upstream.url)
        client.send(post(f"{path}/v1/messages/count_tokens", ASKED))
        assert client.message().body == b'{"input_tokens":4}'
        client.send(f"GET {path}/v1/models HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert client.message().body == b'{"data":[]}'
        client.close()
    assert len(seen) == 2
    assert ledger.spent == []


def test_a_large_request_is_passed_on_before_it_is_whole() -> None:
    """Not held in memory; its model is found where models are named."""
    ledger, size = Ledger(), BODY_HELD_MAX + 3_000_000
    got: list[int] = []

    def serve(connection: Connection) -> None:
        connection.until(b"\r\n\r\n")
        count = len(connection.rest)
        while count < size:
            count += len(connection.sock.recv(1 << 20))
        got.append(count)
        connection.send(answer(b'{"id":"x","usage":{"input_tokens":9,"output_tokens":1}}'))

    with between(serve, ledger) as (gateway, upstream):
        client, path = dial(gateway, upstream.url)
        body = b'{"model":"big","pad":"'
        body += b"x" * (size - len(body) - 2) + b'"}'
        client.send(post(f"{path}/v1/messages", body))
        assert client.message().head.startswith(b"HTTP/1.1 200 OK")
        client.close()
        spent = ledger.one()
    assert got == [size]
    assert (spent.call.model, spent.call.request_bytes, spent.usage) == ("big", size, Usage(9, 1))


def test_chunked_requests_and_those_that_wait_for_a_nod_are_understood() -> None:
    ledger = Ledger()
    serve, seen = answering(answer(b"{}"))
    pieces = chunks(b'{"model":', b'"m","max_tokens":5}') + b"0\r\n\r\n"
    with between(serve, ledger) as (gateway, upstream):
        client, path = dial(gateway, upstream.url)
        lines = f"POST {path}/v1/messages HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.send(lines.encode())
        assert client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue"
        client.send(pieces)
        client.message()
        client.close()
    assert seen[0].body == pieces
    assert (ledger.calls[0].model, ledger.calls[0].output_max) == ("m", 5)


@pytest.mark.parametrize(
    "target", ["/v1/messages", "/{wrong}/1/v1/messages", "/{secret}/2/v1/messages", "/{secret}"]
)
def test_without_the_runs_secret_there_is_nothing(target: str) -> None:
    ledger = Ledger()
    with between(lambda connection: None, ledger) as (gateway, upstream):
        client, path = dial(gateway, upstream.url)
        secret = path.split("/")[1]
        client.send(post(target.format(secret=secret, wrong="0" * len(secret)), ASKED))
        assert client.message().head.startswith(b"HTTP/1.1 404 ")
        assert client.to_the_end() == b""
        client.close()
        assert upstream.connections == 0
    assert ledger.calls == []


def test_it_listens_on_loopback_only() -> None:
    with between(lambda connection: None, Ledger()) as (gateway, upstream):
        assert gateway.route(upstream.url).startswith("http://127.0.0.1:")
        port = int(gateway.route(upstream.url).split(":")[2].split("/")[0])
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", port), timeout=5)


def test_an_upgrade_is_refused_in_words_that_make_codex_use_http() -> None:
    with between(lambda connection: None, Ledger()) as (gateway, upstream):
        client, path = dial(gateway, upstream.url)
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA=="
        client.send(f"GET {path}/v1/responses HTTP/1.1\r\nHost: x\r\n{upgrade}\r\n\r\n".encode())
        got = client.message()
        client.close()
        assert got.head.startswith(b"HTTP/1.1 426 ")
        assert b"use HTTP" in got.body
        assert upstream.connections == 0


def test_after_it_is_closed_a_call_is_a_network_error_and_what_was_under_way_is_counted() -> None:
    ledger, hung = Ledger(), threading.Event()

    def serve(connection: Connection) -> None:
        connection.message()
        connection.send(STREAM_HEAD, chunks(STARTED))
        hung.wait(LIMIT_S)

    with between(serve, ledger) as (gateway, upstream):
        client, path = dial(gateway, upstream.url)
        client.send(post(f"{path}/v1/messages", ASKED))
        client.until(b"\r\n\r\n")
        gateway.close()
        hung.set()
        assert [(spent.ended, spent.usage.estimated) for spent in ledger.spent] == [("gateway", True)]
        client.to_the_end()
        client.close()
        with pytest.raises(OSError):
            dial(gateway, upstream.url)


def test_a_slow_reader_slows_the_model_down_and_not_our_memory() -> None:
    """A server that speaks much faster than its client reads is stopped by the sockets between them."""
    ledger, sent, stopped = Ledger(), [0], threading.Event()
    piece = chunks(b"data: " + b"x" * 65_000 + b"\n\n")

    def serve(connection: Connection) -> None:
        connection.message()
        connection.send(STREAM_HEAD)
        connection.sock.settimeout(0.5)  # as long as nobody takes anything
        try:
            while sent[0] < PIECES:
                connection.send(piece)
                sent[0] += 1
        finally:
            stopped.set()

    with between(serve, ledger) as (gateway, upstream):
        client, path = dial(gateway, upstream.url)
        client.send(post(f"{path}/v1/messages", ASKED))
        client.until(b"\r\n\r\n")
        assert stopped.wait(LIMIT_S)
        assert sent[0] < PIECES // 4
        client.close()
        assert ledger.one().usage.estimated


def test_a_gateway_that_was_never_started_gives_no_addresses() -> None:
    with pytest.raises(AssertionError):
        Gateway(Ledger()).route("https://example.org")
