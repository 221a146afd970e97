"""The parser of heads against h11: whatever h11 refuses, we refuse; where we refuse more, it is listed here."""

import contextlib
import socket

import h11
import pytest
from hypothesis import example, given, strategies as st

from outlast.gateway import heads
from outlast.gateway.framing import BadFraming, ChunkedBody
from outlast.web.http.requests import Hung, Malformed, Wire

GET, HOST = b"GET /a HTTP/1.1", b"Host: x"
POST = b"POST /a HTTP/1.1"


def joined(*lines: bytes) -> bytes:
    return b"\r\n".join(lines)


def h11_takes_request(block: bytes) -> bool:
    server = h11.Connection(h11.SERVER)
    server.receive_data(block + heads.END)
    try:
        return isinstance(server.next_event(), h11.Request)
    except h11.RemoteProtocolError:
        return False


def h11_takes_response(block: bytes) -> bool:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(block + heads.END)
    try:
        return isinstance(client.next_event(), (h11.Response, h11.InformationalResponse))
    except h11.RemoteProtocolError:
        return False


def h11_takes_chunks(body: bytes) -> bool:
    server = h11.Connection(h11.SERVER)
    server.receive_data(joined(POST, HOST, b"Transfer-Encoding: chunked") + heads.END + body)
    try:
        while not isinstance(event := server.next_event(), h11.EndOfMessage):
            if event in (h11.NEED_DATA, h11.PAUSED):
                return False
    except h11.RemoteProtocolError:
        return False
    return True


def we_take_request(block: bytes) -> bool:
    try:
        head = heads.request_head(block)
        heads.length_of(head.fields)
        heads.chunked(head.fields)
    except heads.BadHead:
        return False
    return True


def we_take_response(block: bytes) -> bool:
    try:
        head = heads.response_head(block)
        heads.length_of(head.fields)
        heads.chunked(head.fields)
    except heads.BadHead:
        return False
    return True


def we_take_chunks(body: bytes) -> bool:
    following = ChunkedBody()
    try:
        following.feed(body)
    except BadFraming:
        return False
    return following.done


def the_page_takes(block: bytes) -> bool:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(block + heads.END + b"x" * 64)
        theirs.shutdown(socket.SHUT_WR)
        try:
            Wire(ours).next(5.0)
        except (Malformed, Hung):
            return False
        return True


# --- whatever h11 refuses, we refuse ----------------------------------------------------------------------------

REFUSED_BY_BOTH = {
    "vertical tab before chunked": joined(POST, HOST, b"Transfer-Encoding: \x0bchunked"),
    "form feed after chunked": joined(POST, HOST, b"Transfer-Encoding: chunked\x0c"),
    "empty coding": joined(POST, HOST, b"Transfer-Encoding:"),
    "coding of a comma": joined(POST, HOST, b"Transfer-Encoding: ,"),
    "chunked and a comma": joined(POST, HOST, b"Transfer-Encoding: chunked,"),
    "chunked and an empty one": joined(POST, HOST, b"Transfer-Encoding: chunked", b"Transfer-Encoding:"),
    "chunked twice": joined(POST, HOST, b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    "another coding": joined(POST, HOST, b"Transfer-Encoding: gzip, chunked"),
    "two lengths": joined(POST, HOST, b"Content-Length: 5", b"Content-Length: 6"),
    "signed length": joined(POST, HOST, b"Content-Length: +5"),
    "empty length": joined(POST, HOST, b"Content-Length:"),
    "no host": GET,
    "two hosts": joined(GET, HOST, b"Host: y"),
    "no ASCII in the target": joined(b"GET /\xe4 HTTP/1.1", HOST),
    "DEL in the target": joined(b"GET /\x7f HTTP/1.1", HOST),
    "vertical tab in a value": joined(GET, HOST, b"A: b\x0bc"),
    "NUL in a value": joined(GET, HOST, b"A: b\x00c"),
    "space before the colon": joined(GET, HOST, b"A : b"),
    "no name": joined(GET, HOST, b": b"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_BY_BOTH)
def test_what_h11_refuses_gateway_and_page_refuse(name: str) -> None:
    block = REFUSED_BY_BOTH[name]
    assert not h11_takes_request(block), "this row belongs into the other table"
    assert not we_take_request(block)
    assert not the_page_takes(block)


# Where we are stricter than h11, and why. Two readers could disagree about each of them.
STRICTER = {
    "chunked beside a length": joined(POST, HOST, b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "a length as a list": joined(POST, HOST, b"Content-Length: 5, 5"),
    "a length of 16 digits": joined(POST, HOST, b"Content-Length: 1000000000000000"),
    "a folded line": joined(GET, HOST, b"A: b", b" c"),
    "a line that ends with a bare LF": GET + b"\n" + HOST,
    "two headers with a bare LF between": joined(GET, HOST, b"A: b\nC: d"),
    "another version of HTTP": joined(b"GET /a HTTP/2.0", HOST),
    "a version nobody speaks": joined(b"GET /a HTTP/1.9", HOST),
    "a control character in a value": joined(GET, HOST, b"A: b\x01c"),
    "DEL in a value": joined(GET, HOST, b"A: b\x7fc"),
    "a method of 33 letters": joined(b"G" * 33 + b" /a HTTP/1.1", HOST),
    "more than 256 headers": joined(GET, HOST, *[b"A: b"] * 256),
}  # fmt: skip


@pytest.mark.parametrize("name", STRICTER)
def test_where_h11_is_lenient_gateway_and_page_are_not(name: str) -> None:
    block = STRICTER[name]
    assert h11_takes_request(block), "h11 refuses it too: this row belongs into the other table"
    assert not we_take_request(block)
    assert not the_page_takes(block)


FRAMING = (b"content-length", b"transfer-encoding")  # h11 keeps one of two equal lengths, in its own spelling
BYTES = [bytes([byte]) for byte in range(256)]
ODD = st.sampled_from(
    [*BYTES, b"", b"\r\n", b"\r\n ", b"\n\n", b",", b", ", b"chunked", b"5", b"\r\nHost: y"]
)
LINES = st.sampled_from(
    [
        HOST,
        b"host:x",
        b"Content-Length: 5",
        b"Content-Length: 05",
        b"Transfer-Encoding: chunked",
        b"transfer-encoding: Chunked",
        b"Connection: close, te",
        b"A: b",
        b"A:",
        b"A: \xe4 \t",
    ]
)


@st.composite
def odd(draw: st.DrawFn, first: st.SearchStrategy[bytes]) -> bytes:
    """A head of usual lines with odd bytes put in, or in the place of others."""
    block = joined(draw(first), *draw(st.lists(LINES, max_size=4)))
    for _ in range(draw(st.integers(0, 3))):
        at, width = draw(st.integers(0, len(block))), draw(st.integers(0, 2))
        block = block[:at] + draw(ODD) + block[at + width :]
    return block


REQUESTS = odd(st.sampled_from([GET + b"\r\n" + HOST, POST + b"\r\n" + HOST, GET, b"GET /a HTTP/1.0"]))
RESPONSES = odd(st.sampled_from([b"HTTP/1.1 200 OK", b"HTTP/1.0 200", b"HTTP/1.1 103 X", b"HTTP/1.1 404 "]))
CHUNKS = odd(st.sampled_from([b"5\r\nhello\r\n0", b"5;a=b\r\nhello\r\n0", b"0"]))


@given(REQUESTS | st.binary(max_size=60))
@example(joined(POST, HOST, b"Transfer-Encoding: \x0bchunked"))
def test_no_request_that_h11_refuses_is_taken(block: bytes) -> None:
    assert not we_take_request(block) or h11_takes_request(block)


@given(REQUESTS)
def test_no_request_that_h11_refuses_is_taken_by_the_page(block: bytes) -> None:
    # An empty line before a request is skipped, as RFC 9112 (2.2) asks; h11 does not.
    assert not the_page_takes(block) or h11_takes_request(block.lstrip(b"\r\n").partition(heads.END)[0])


@given(RESPONSES | st.binary(max_size=60))
@example(b"HTTP/1.1 200 O\x0bK")
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked,")
def test_no_answer_that_h11_refuses_is_taken(block: bytes) -> None:
    assert not we_take_response(block) or h11_takes_response(block)


@given(CHUNKS)
@example(b"5 ;a\r\nhello\r\n0")
@example(b"0\r\nA : b")
@example(b"0\r\nContent-Length: x")
def test_no_chunks_that_h11_refuses_are_taken(body: bytes) -> None:
    assert not we_take_chunks(body + heads.END) or h11_takes_chunks(body + heads.END)


@given(REQUESTS)
def test_what_both_take_they_read_alike(block: bytes) -> None:
    with contextlib.suppress(heads.BadHead):
        ours = heads.request_head(block)
        server = h11.Connection(h11.SERVER)
        server.receive_data(block + heads.END)
        try:
            theirs = server.next_event()
        except h11.RemoteProtocolError:
            return  # its framing, which is not read with the head
        assert isinstance(theirs, h11.Request)
        assert (ours.method, ours.target) == (theirs.method, theirs.target)
        read = [(line.name, line.value) for line in ours.fields.lines]
        assert [pair for pair in read if pair[0] not in FRAMING] == [
            (name, value) for name, value in theirs.headers if name not in FRAMING
        ]
