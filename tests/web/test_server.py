"""The server on the wire: what is malformed is refused, what is slow or many keeps nobody else out."""

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as some

from outlast.errors import UsageError
from outlast.web.http import responses, server
from outlast.web.http.requests import Hung, Malformed, Request, Wire, read_target
from outlast.web.http.responses import Answer
from outlast.web.http.server import Connection
from outlast.web.timing import Timing
from tests.support.processes import wait_for
from tests.web.server import Client, Served, served

LONG = b"a" * 300_000


def echo(request: Request, connection: Connection) -> Answer:
    """What was understood of a request."""
    if request.segments == ("long",):
        return Answer(LONG, responses.TEXT)
    if request.segments == ("huge",):
        return Answer(LONG * 100, responses.TEXT)
    return responses.document(
        {"path": request.segments, "fields": request.fields, "body": request.body.decode()}
    )


@pytest.fixture
def web() -> Iterator[Served]:
    with served(echo) as running:
        yield running


def get(target: str = "/", *lines: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"GET {target} HTTP/{version}", "Host: x", *lines, "", ""]).encode()


# -- what is refused ---------------------------------------------------------------------------------------------------

HOSTILE = {
    "both lengths": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunked": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
    "identity": (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n", 411),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "two equal lengths": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
    "listed lengths": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc", 400),
    "signed length": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc", 400),
    "negative length": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -3\r\n\r\nabc", 400),
    "hexadecimal length": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x3\r\n\r\nabc", 400),
    "no length": (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", 411),
    "large body": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n", 413),
    "folded": (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400),
    "folded first": (b"GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400),
    "space before colon": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\n", 400),
    "no colon": (b"GET / HTTP/1.1\r\nHost: x\r\nabc\r\n\r\n", 400),
    "NUL in header": (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n", 400),
    "CR in header": (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rX: c\r\n\r\n", 400),
    "LF in header": (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\nX: c\r\n\r\n", 400),
    "NUL in address": (b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "%00": (b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "absolute": (b"GET http://evil.invalid/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "authority": (b"CONNECT evil.invalid:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "dots": (b"GET /a/../b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "encoded dots": (b"GET /%2e%2e/%2E%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "encoded slash": (b"GET /..%2fetc HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "backslash": (b"GET /..\\etc HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "two slashes": (b"GET //evil.invalid/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "slash at the end": (b"GET /runs/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "overlong UTF-8": (b"GET /%c0%ae%c0%ae/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "no UTF-8": (b"GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "half a percent": (b"GET /%4 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "percent in query": (b"GET /?q=%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "fragment": (b"GET /#a HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "space in address": (b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "bare LF": (b"GET / HTTP/1.1\nHost: x\n\n", 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    "two origins": (b"GET / HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\nOrigin: http://y\r\n\r\n", 400),
    "lower-case method": (b"get / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "no version": (b"GET /\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", 400),
    "long line": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "many headers": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 120 + b"\r\n", 431),
    "long headers": (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 40_000 + b"\r\n\r\n", 431),
    "many fields": (b"GET /?" + b"a=1&" * 80 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "expects more": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 200-ok\r\n\r\na", 417),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_can_be_read_in_two_ways_is_refused_and_ends_the_connection(web: Served, name: str) -> None:
    said, status = HOSTILE[name]
    with web.client() as client:
        client.say(said + get("/smuggled"))
        heard = client.hear()
        assert heard.status == status, heard.text
        assert heard.headers["connection"] == "close"
        assert heard.text.startswith("error: ")
        assert heard.text.count("\n") == 1
        assert client.ended()


@given(data=some.binary(max_size=200))
def test_whatever_comes_is_a_request_or_malformed(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with contextlib.suppress(Malformed, Hung):
            assert Wire(ours).next(1.0, 1.0).target.startswith("/")


@given(target=some.text(some.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=60))
def test_a_path_never_has_dots_slashes_or_controls_in_its_parts(target: str) -> None:
    try:
        segments, _ = read_target("/" + target)
    except Malformed:
        return
    for segment in segments:
        assert segment not in ("", ".", "..")
        assert not set(segment) & set("/\\\0\r\n")


# -- what is answered --------------------------------------------------------------------------------------------------


def test_requests_that_come_together_are_answered_in_their_order(web: Served) -> None:
    with web.client() as client:
        post = b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /"
        client.say(get("/a?x=1") + post + get("/c%20d?x=%C3%A4+b", "Connection: close"))
        first, second, third = client.hear(), client.hear(), client.hear()
        assert first.json == {"path": ["a"], "fields": [["x", "1"]], "body": ""}
        assert second.json == {"path": ["b"], "fields": [], "body": "GET /"}
        assert third.json == {"path": ["c d"], "fields": [["x", "ä b"]], "body": ""}
        assert [first.headers["connection"], third.headers["connection"]] == ["keep-alive", "close"]
        assert client.ended()


def test_a_request_may_come_byte_by_byte(web: Served) -> None:
    with web.client() as client:
        for byte in get("/slow"):
            client.say(bytes([byte]))
        assert client.hear().json["path"] == ["slow"]


def test_head_is_get_without_a_body(web: Served) -> None:
    heard = web.ask("/long", method="HEAD")
    assert (heard.status, heard.headers["content-length"]) == (200, str(len(LONG)))
    with web.client() as client:
        client.say(b"HEAD /long HTTP/1.1\r\nHost: x\r\n\r\n" + get("/next"))
        client.hear(head_only=True)
        assert client.hear().json["path"] == ["next"]


def test_an_old_client_gets_an_end(web: Served) -> None:
    with web.client() as client:
        client.say(get("/", version="1.0"))
        assert client.hear().headers["connection"] == "close"
        assert client.ended()


def test_what_is_expected_is_told_before_the_body_comes(web: Served) -> None:
    with web.client() as client:
        client.say(b"POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert client.hear().status == 100
        assert client.say(b"abc").hear().json["body"] == "abc"


@pytest.mark.parametrize(("accepts", "packed"), [("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("", False)])  # fmt: skip
def test_a_long_answer_is_packed_for_those_who_can_read_it(web: Served, accepts: str, packed: bool) -> None:
    heard = web.ask("/long", Accept_Encoding=accepts)
    assert (heard.headers.get("content-encoding") == "gzip") is packed
    assert (gzip.decompress(heard.body) if packed else heard.body) == LONG
    assert heard.headers["vary"] == "Accept-Encoding"


def test_every_answer_has_the_headers_that_make_it_safe(web: Served) -> None:
    for heard in (web.ask("/"), web.ask("/%2e%2e/")):
        assert "default-src 'none'" in heard.headers["content-security-policy"]
        assert heard.headers["x-content-type-options"] == "nosniff"
        assert heard.headers["cache-control"] == "no-store"
        assert heard.headers["cross-origin-resource-policy"] == "same-origin"


def test_no_value_begins_another_header() -> None:
    head, _ = responses.see("/a\r\nSet-Cookie: x=1\r\n\r\n<script>").parts()
    assert b"\r\nSet-Cookie" not in head
    assert head.count(b"\r\n\r\n") == 1


# -- the slow and the many ---------------------------------------------------------------------------------------------


def test_a_request_that_does_not_come_in_time_is_ended() -> None:
    with served(echo, timing=Timing(receive_s=0.1)) as web, web.client() as silent, web.client() as slow:
        slow.say(b"GET / HTTP/1.1\r\nHo")
        assert slow.hear().status == 408
        assert slow.ended()
        assert silent.ended()


def test_a_body_that_trickles_is_ended_all_the_same() -> None:
    with served(echo, timing=Timing(receive_s=0.2)) as web, web.client() as slow:
        slow.say(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n")

        def cut_off() -> bool:
            try:
                slow.say(b"a")
            except OSError:
                return True
            return False

        wait_for(cut_off, what="the end of the connection")


def test_a_connection_between_requests_is_ended_after_a_while() -> None:
    with served(echo, timing=Timing(idle_s=0.1)) as web, web.client() as client:
        assert client.say(get()).hear().status == 200
        assert client.ended()


def test_slow_clients_that_take_all_places_keep_nobody_out() -> None:
    with served(echo, limit=4) as web:
        slow = [web.client().say(b"GET / HTTP/1.1\r\n") for _ in range(8)]
        for _ in range(3):
            assert web.ask("/").status == 200
        assert web.server.connections <= 4
        for client in slow:
            client.close()


def test_beyond_the_limit_of_those_at_work_a_client_is_turned_away() -> None:
    hold, entered = threading.Event(), threading.Semaphore(0)

    def work(request: Request, connection: Connection) -> Answer:
        entered.release()
        hold.wait(60)
        return responses.line("done")

    with served(work, limit=2) as web:
        busy = [web.client().say(get()) for _ in range(2)]
        for _ in busy:
            assert entered.acquire(timeout=60)
        with web.client() as third:
            heard = third.hear()
            assert (heard.status, heard.headers["connection"]) == (503, "close")
        hold.set()
        assert [client.hear().status for client in busy] == [200, 200]
        for client in busy:
            client.close()


def test_who_has_had_the_answer_and_stays_gives_way_first() -> None:
    with served(echo, limit=3) as web:
        idle = web.client().say(get())
        assert idle.hear().status == 200
        staying = []
        for _ in range(6):
            staying.append(web.client().say(b"X\r\n\r\n"))
            assert staying[-1].hear().status == 400
            wait_for(lambda: any(each.lingers for each in list(web.server._open)), what="one who stays")
        for _ in range(10):
            # One that asked and left is no reason to end another: its place is free when its thread has seen that.
            wait_for(
                lambda: sum(not each.lingers for each in list(web.server._open)) == 1,
                what="the idle one alone",
            )
            assert web.ask("/").status == 200
        assert idle.say(get()).hear().status == 200, "it has waited longer, and is kept all the same"


def test_strangers_share_few_places_and_make_nobody_else_give_way() -> None:
    hold, held = threading.Event(), []

    def work(request: Request, connection: Connection) -> Answer:
        if request.segments == ("hold",):
            held.append(connection)
            hold.wait(60)
        return responses.line("done")

    with served(work, limit=8, is_stranger=lambda connection: connection.peer[0] == "127.0.0.2") as web:
        idle = web.client().say(get())
        assert idle.hear().status == 200
        strangers = [Client(web.port, source="127.0.0.2").say(get("/hold")) for _ in range(2)]
        wait_for(lambda: len(held) == 2, what="the strangers at work")
        with Client(web.port, source="127.0.0.2") as third:
            assert third.hear().status == 503, "all their places are taken"
        for _ in range(10):
            assert web.ask("/").status == 200
        assert idle.say(get()).hear().status == 200
        hold.set()
        for client in strangers:
            assert client.hear().status == 200
            client.close()


def test_a_stranger_who_may_look_is_none_any_more() -> None:
    def know(request: Request, connection: Connection) -> Answer:
        connection.stranger = False
        return responses.line("known")

    with served(know, limit=4, is_stranger=lambda connection: True) as web:
        clients = []
        for _ in range(4):
            clients.append(web.client().say(get()))
            assert clients[-1].hear().status == 200
        assert [client.say(get()).hear().status for client in clients] == [200] * 4


def test_a_client_that_reads_nothing_is_cut_off() -> None:
    with served(echo, timing=Timing(stall_s=0.2)) as web, web.client() as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.say(get("/huge"))
        wait_for(lambda: web.server.connections == 1, what="the connection")
        wait_for(lambda: web.server.connections == 0, what="the end of the connection")


def test_stopping_ends_what_waits_at_once() -> None:
    with served(echo) as web:
        clients = [Client(web.port).say(get()) for _ in range(5)]
        for client in clients:
            assert client.hear().status == 200
        begun_s = time.monotonic()
    assert time.monotonic() - begun_s < Timing().stall_s / 2
    for client in clients:
        assert client.ended()
        client.close()


def test_a_taken_port_is_named_and_the_next_one_used() -> None:
    first, taken = server.listen("127.0.0.1", 0)
    with first:
        port = first.getsockname()[1]
        second, taken = server.listen("127.0.0.1", port)
        with second:
            assert port in taken
            assert second.getsockname()[1] > port
        with pytest.raises(UsageError, match="taken"):
            server.listen("127.0.0.1", port, tries=1)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.9", "a b"])
def test_an_address_of_somebody_else_is_refused_in_one_line(host: str) -> None:
    with pytest.raises(UsageError):
        server.listen(host, 0)
