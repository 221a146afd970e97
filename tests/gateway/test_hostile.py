"""Whatever a client or a server sends: nothing breaks, no key is seen, and each call is settled exactly once."""

import contextlib
import itertools
import json
import queue
import socket
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings, strategies as st

from outlast.gateway import Kind, requests
from outlast.gateway.answers import TOKENS_MAX, Reading, fault_in
from outlast.gateway.exchange import Answer, Broken
from outlast.gateway.framing import BadFraming, ChunkedBody
from outlast.gateway.heads import HEAD_BYTES_MAX, BadHead, Fields, Line, request_head
from outlast.gateway.relay import INBOX_MAX
from outlast.gateway.streams import Copy, Events
from outlast.gateway.walls import wall, windows
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
    between,
    chunks,
    dial,
    post,
)
from tests.support.environment import NOBODY, need_root
from tests.support.processes import wait_for

KINDS: list[Kind] = ["anthropic", "responses", "chat", "gemini"]
NAMES = (
    "type id model usage message delta text error code input_tokens output_tokens response item choices prompt_tokens "
    "completion_tokens prompt_tokens_details cached_tokens candidates usageMetadata promptTokenCount content resets_at "
    "messages role user input contents parts request tools max_tokens generationConfig maxOutputTokens details"
).split()
# JSON in the shapes of our protocols, with anything in any place.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip
TEXTS = VALUES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=60)
WHOLE = STREAM_HEAD + chunks(STARTED, SAID, ENDED) + b"0\r\n\r\n"
ODD = [
    b"\r\n\r\n",
    b"\x00",
    b"HTTP/1.1 101 X\r\n\r\n",
    b"Content-Length: 5\r\n",
    b"ffffffffffff\r\n",
    b"\r\n 0\r\n",
]


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """A message with pieces taken out, put in and cut off."""
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(whole)))
        put = draw(st.sampled_from(ODD) | st.binary(max_size=8))
        whole = whole[:at] + put + whole[at + draw(st.integers(0, 30)) :]
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


@given(st.sampled_from(KINDS), st.lists(TEXTS, max_size=4), st.booleans(), st.integers(0, 10**6))
def test_any_answer_has_a_usage(kind: Kind, events: list[bytes], complete: bool, size: int) -> None:
    reading = Reading(kind)
    for event in events:
        reading.event(event)
        fault_in(event)
    usage = reading.usage(request_bytes=size, output_max=None, complete=complete)
    assert all(
        0 <= count <= 2 * TOKENS_MAX
        for count in (usage.input, usage.output, usage.cache_read, usage.cache_write)
    )
    assert usage.estimated or reading.reported or reading.final


@given(st.sampled_from(KINDS), TEXTS, st.text("wörds ", min_size=1))
def test_any_request_can_be_asked_about_and_told(kind: Kind, body: bytes, words: str) -> None:
    asked = requests.summary(b"/v1/models/m%3A:generateContent", body)
    assert asked.output_max is None or 0 <= asked.output_max <= TOKENS_MAX
    told = requests.with_words(kind, body, words)
    assert told is None or words in json.dumps(json.loads(told), ensure_ascii=False)


@given(
    st.data(),
    st.binary(max_size=300) | damaged(b"".join((STARTED, SAID, ENDED, b"data: x\r\ndata: y\r\n\r\n"))),
)
def test_events_are_the_same_however_their_bytes_are_cut(data: st.DataObject, stream: bytes) -> None:
    whole, pieces = list[bytes](), list[bytes]()
    for found, cuts in ((whole, []), (pieces, data.draw(st.lists(st.integers(0, len(stream)), max_size=9)))):
        events = Events(found.append)
        edges = [0, *sorted(cuts), len(stream)]
        for start, stop in itertools.pairwise(edges):
            events.feed(stream[start:stop])
        events.end()
    assert pieces == whole


@given(st.data(), damaged(WHOLE) | damaged(answer(b"{}")) | st.binary(max_size=300))
def test_an_answer_is_followed_the_same_however_its_bytes_are_cut(data: st.DataObject, said: bytes) -> None:
    found = []
    for cuts in ([], data.draw(st.lists(st.integers(0, len(said)), max_size=9))):
        following, passed, content = Answer(b"POST", closes=False), b"", b""
        edges = [0, *sorted(cuts), len(said)]
        try:
            for start, stop in itertools.pairwise(edges):
                if not following.done:
                    more, inside = following.feed(said[start:stop])
                    passed, content = passed + more, content + b"".join(inside)
            found.append((passed, content, following.done))
        except Broken:
            found.append((b"", b"", None))
    assert found[0] == found[1]


@given(
    damaged(b"5\r\nhello\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n"),
    st.sampled_from([b"gzip", b"deflate", b"br", b""]),
)
def test_any_body_can_be_followed(body: bytes, coding: bytes) -> None:
    with contextlib.suppress(BadFraming):
        end, content = ChunkedBody().feed(body)
        assert end <= len(body)
        copy = Copy(b"text/event-stream", coding, lambda event: None)
        for piece in content:
            copy.feed(piece)
        copy.end()


NUMBERS = (
    st.integers().map(str)
    | st.floats().map(str)
    | st.sampled_from(["6m0s", "1h", "Tue, 99 Foo", "9" * 30, "-1", "0x1"])
)
HEADERS = [
    b"retry-after", b"retry-after-ms", b"anthropic-ratelimit-unified-reset", b"anthropic-ratelimit-unified-5h-utilization",
    b"x-codex-primary-used-percent", b"x-codex-primary-reset-at", b"x-codex-primary-reset-after-seconds",
    b"x-ratelimit-remaining-tokens", b"x-ratelimit-reset-tokens", b"anthropic-ratelimit-tokens-remaining",
    b"anthropic-ratelimit-tokens-reset", b"anthropic-ratelimit-unified-5h-reset",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(HEADERS), NUMBERS.map(str.encode) | st.binary(max_size=12)), TEXTS)
def test_any_header_may_speak_of_a_wall(told: dict[bytes, bytes], body: bytes) -> None:
    now = datetime.now(UTC)
    fields = Fields(tuple(Line(name, value, b"") for name, value in told.items()))
    found = wall(429, fields, fault_in(body), now)
    assert found is not None
    assert found.resets_at is None or found.resets_at.tzinfo is UTC
    assert all(0 <= window.used_pct <= 1000 for window in windows(fields, now))


@given(damaged(post("/a/b", ASKED).partition(b"\r\n\r\n")[0]))
def test_any_head_is_read_or_refused_without_being_quoted(block: bytes) -> None:
    said = ""
    try:
        passed = b"".join(request_head(block).fields.passed_on())
    except BadHead as error:
        passed, said = b"", str(error)
    assert b"\n" not in passed
    assert KEY not in said


# --- with sockets -----------------------------------------------------------------------------------------------

OUTCOMES = (b"", b"HTTP/1.1 200 OK", b"HTTP/1.1 400 Bad Request", b"HTTP/1.1 404 Not Found", b"HTTP/1.1 426 Upgrade Required",
            b"HTTP/1.1 505 HTTP Version Not Supported", b"HTTP/1.1 100 Continue")  # fmt: skip


def search_clients(examples: int) -> None:
    """Damaged requests. Whoever stops sending is gone; its calls are settled all the same."""
    ledger = Ledger()

    def serve(connection: Connection) -> None:
        while connection.more():
            if b"\r\n\r\n" in connection.rest:
                connection.rest = b""
                connection.send(WHOLE)

    with between(serve, ledger) as (gateway, upstream):
        base = "/" + gateway.route(upstream.url).split("/", 3)[3]
        good = post(f"{base}/v1/messages", ASKED)
        slow = good.replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nX-Length: ")

        @settings(max_examples=examples, deadline=None)
        @given(damaged(good) | damaged(good + good) | damaged(slow) | st.binary(max_size=200))
        def search(sent: bytes) -> None:
            client, _ = dial(gateway, upstream.url)
            with contextlib.suppress(ConnectionError):
                client.send(sent)
                client.sock.shutdown(socket.SHUT_WR)
            got = client.to_the_end()
            client.close()
            assert got.partition(b"\r\n")[0] in OUTCOMES
            assert KEY.encode() not in got

        search()
        ledger.settled()
        assert gateway.alive
        assert KEY not in repr((ledger.calls, ledger.spent, gateway.faults))


def search_servers(examples: int) -> None:
    """Damaged answers, each then cut. The client has what could be passed on, and the end of its connection."""
    ledger, answers = Ledger(), queue.Queue[bytes]()

    def serve(connection: Connection) -> None:
        connection.message()
        connection.send(answers.get(timeout=LIMIT_S))

    with between(serve, ledger) as (gateway, upstream):

        @settings(max_examples=examples, deadline=None)
        @given(
            damaged(WHOLE) | damaged(answer(b'{"usage":{}}')) | st.binary(max_size=200),
            st.sampled_from(KINDS),
        )
        def search(said: bytes, kind: Kind) -> None:
            answers.put(said)
            client, base = dial(gateway, upstream.url)
            paths = {
                "anthropic": "/v1/messages",
                "responses": "/responses",
                "chat": "/x/completions",
                "gemini": "/m:generateContent",
            }
            before = len(ledger.spent)
            client.send(post(base + paths[kind], ASKED))
            wait_for(lambda: len(ledger.spent) > before, LIMIT_S, "the call settled")
            client.close()

        search()
        ledger.settled()
        assert gateway.alive


def test_a_hostile_client_breaks_nothing() -> None:
    search_clients(60)


def test_a_hostile_server_breaks_nothing() -> None:
    search_servers(60)


@pytest.mark.campaign
def test_hostile_clients_and_servers_for_longer() -> None:
    search_clients(3000)
    search_servers(3000)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nA: " + b"x" * HEAD_BYTES_MAX, b"431"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 300 + b"\r\n", b"431"),
        (b"GET /\n\n\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\n", b"400"),  # at once: a client that ends its lines so would wait for ever
        (b"\x16\x03\x01", b"400"),  # TLS
        (b"PRI * HTTP/2.0\r\n\r\n", b"505"),
        (b"GET /" + b"a" * HEAD_BYTES_MAX, b"414"),
        (b"POST {base}/v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", b"400"),
        (b"POST {base}/v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\r\n", b"400"),
        (
            b"POST {base}/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"400",
        ),
        (
            b"POST {base}/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"400",
        ),
        (b"POST {base}/v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", b"400"),
        (b"POST {base}/v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"POST {base}/v1/../messages HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"400"),
        (b"POST {base}/v1/%2e%2E/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"400"),
        (b"POST {base}/v1/messages HTTP/1.0\r\nContent-Length: 0\r\n\r\n", b"505"),
        (b"CONNECT model.test:443 HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(sent: bytes, status: bytes) -> None:
    ledger = Ledger()
    with between(lambda connection: None, ledger) as (gateway, upstream):
        client, base = dial(gateway, upstream.url)
        client.send(sent.replace(b"{base}", base.encode()))
        assert client.until(b"\r\n").split()[1] == status
        client.close()
        assert upstream.connections == 0


def test_an_agent_that_sends_and_sends_is_not_kept_in_memory() -> None:
    """What comes after a request that is under way waits in the sockets."""
    ledger, asked = Ledger(), queue.Queue[bool]()

    def serve(connection: Connection) -> None:
        connection.message()
        asked.put(True)
        connection.to_the_end()

    with between(serve, ledger) as (gateway, upstream):
        client, base = dial(gateway, upstream.url)
        client.send(post(f"{base}/v1/messages", ASKED))
        asked.get(timeout=LIMIT_S)
        client.sock.settimeout(0.5)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 100 * INBOX_MAX * 10:
                sent += client.sock.send(b"x" * INBOX_MAX)
        client.close()


# -- a crowd at the door ----------------------------------------------------------------------------------------------

CROWD = """
import os, resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
if len(sys.argv) > 2: os.setuid(int(sys.argv[2]))
crowd = []
for _ in range(1200):
    crowd.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=10))
print("all there", flush=True)
sys.stdin.read()
"""


def _serving(there: Connection) -> None:
    while True:
        there.message()
        there.send(answer(b"{}"))


@pytest.mark.parametrize("user", [(), (str(NOBODY),)], ids=["our own", "another"])
def test_a_crowd_that_only_connects_does_not_keep_the_agent_out(user: tuple[str, ...]) -> None:
    if user:
        need_root()
    with between(_serving, Ledger()) as (gateway, upstream):
        early, early_path = dial(gateway, upstream.url)
        early.send(post(f"{early_path}/v1/other", {}))
        assert early.message().head.startswith(b"HTTP/1.1 200")
        port = gateway.route(upstream.url).split("/")[2].partition(":")[2]
        words = [sys.executable, "-IS", "-c", CROWD, port, *user]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as crowd:
            assert crowd.stdout is not None
            assert crowd.stdout.readline() == b"all there\n"
            agent, path = dial(gateway, upstream.url)
            agent.send(post(f"{path}/v1/other", {}))
            assert agent.message().head.startswith(b"HTTP/1.1 200")
            early.send(post(f"{early_path}/v1/other", {}))
            assert early.message().head.startswith(b"HTTP/1.1 200"), "who has shown the secret stays"
            crowd.kill()
        for each in (early, agent):
            each.close()


def test_a_connection_that_shows_no_secret_is_closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_TIMING", "gateway.secret_s=0.2,gateway.sweep_s=0.1")
    with between(_serving, Ledger()) as (gateway, upstream):
        stranger, _ = dial(gateway, upstream.url)
        stranger.sock.settimeout(LIMIT_S)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.sock.recv(1) == b"", "closed by the gateway"
        stranger.close()
