"""Who is let in: by name, by site, by user, by token. Each test fails if its guard is taken away."""

import contextlib
import errno
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.web.http import guard, peers, responses, server, sessions
from outlast.web.http.guard import Guard
from outlast.web.http.requests import Request
from outlast.web.http.responses import Answer, Refused
from outlast.web.http.server import Connection, Server
from outlast.web.timing import Timing
from tests.conftest import Nobody
from tests.support.environment import NOBODY, need_root
from tests.web.server import Heard, Served

TOKEN = "a-token-that-nobody-guesses"


@contextlib.contextmanager
def guarded(
    host: str = "127.0.0.1", limits: dict[str, int] | None = None, **options: object
) -> Iterator[Served]:
    """A server that lets in or not, and no more."""
    listening, _ = server.listen(host, 0)
    keeper = Guard(host, listening.getsockname()[1], **options)  # type: ignore[arg-type]

    def handle(request: Request, connection: Connection) -> Answer:
        try:
            return keeper.check(request, connection) or responses.line("let in")
        except Refused as refused:
            return responses.line(f"{refused}; {refused.hint}", refused.status, refused.headers)

    running = Server(listening, handle, is_stranger=keeper.is_stranger, **(limits or {}))
    running.start()
    try:
        yield Served(running, keeper)
    finally:
        running.stop()


@pytest.fixture
def web() -> Iterator[Served]:
    with guarded() as running:
        yield running


@pytest.fixture
def locked() -> Iterator[Served]:
    with guarded(token=TOKEN) as running:
        yield running


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "localhost."])
def test_its_own_names_are_answered(web: Served, name: str) -> None:
    assert web.ask("/", host=f"{name}:{web.port}").status == 200


@pytest.mark.parametrize(
    "name", ["evil.invalid", "127.0.0.1.evil.invalid", "localhost.evil.invalid", "10.0.0.1", "0.0.0.0", "[::1", "@localhost", "x@127.0.0.1"]
)  # fmt: skip
def test_a_name_that_somebody_else_leads_here_is_refused(web: Served, name: str) -> None:
    heard = web.ask("/", host=f"{name}:{web.port}")
    assert heard.status == 421
    assert f"http://127.0.0.1:{web.port}/" in heard.text


def test_the_name_without_our_port_is_refused(web: Served) -> None:
    assert web.ask("/", host="127.0.0.1").status == 421
    assert web.ask("/", host=f"127.0.0.1:{web.port + 1}").status == 421


def test_everywhere_means_by_every_address_but_by_no_foreign_name() -> None:
    with guarded("0.0.0.0", token=TOKEN) as web:
        bearer = f"Bearer {TOKEN}"
        assert web.ask("/", host=f"192.168.7.9:{web.port}", Authorization=bearer).status == 200
        assert web.ask("/", host=f"{socket.gethostname()}:{web.port}", Authorization=bearer).status == 200
        assert web.ask("/", host=f"evil.invalid:{web.port}", Authorization=bearer).status == 421


def test_behind_a_proxy_its_name_and_its_origin_are_ours_and_no_other() -> None:
    with guarded(token=TOKEN, url="https://runs.example.invalid/") as web:
        told = {"host": "Runs.example.invalid", "Authorization": f"Bearer {TOKEN}"}
        assert web.ask("/", **told).status == 200
        assert web.ask("/api/runs", Origin="https://runs.example.invalid", **told).status == 200
        assert web.ask("/api/runs", Origin="https://evil.invalid", **told).status == 403
        assert web.ask("/", **{**told, "host": "runs.example.invalid.evil.invalid"}).status == 421
        assert web.ask("/", host="runs.example.invalid").status == 401
        assert web.ask(f"/?token={TOKEN}", host="runs.example.invalid").cookies[0].endswith("; Secure")


# -- sites -------------------------------------------------------------------------------------------------------------


def post(web: Served, **headers: str) -> int:
    return web.ask("/api/runs/x/acts/pause", method="POST", body="{}", **headers).status


def test_a_post_of_our_own_page_or_of_a_program_is_taken(web: Served) -> None:
    assert post(web) == 200
    assert post(web, Origin=f"http://127.0.0.1:{web.port}", Sec_Fetch_Site="same-origin") == 200


@pytest.mark.parametrize("origin", ["null", "http://evil.invalid", "http://localhost:{port}", "https://127.0.0.1:{port}", "http://127.0.0.1:1", ""])  # fmt: skip
def test_a_post_of_another_origin_is_refused(web: Served, origin: str) -> None:
    assert post(web, Origin=origin.format(port=web.port)) == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_another_site_may_neither_post_nor_read_the_api(web: Served, site: str) -> None:
    assert post(web, Sec_Fetch_Site=site) == 403
    assert web.ask("/api/runs", Sec_Fetch_Site=site).status == 403
    assert web.ask("/metrics", Sec_Fetch_Site=site).status == 403
    link = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert web.ask("/api/runs", Sec_Fetch_Site=site, **link).status == 403, "not even by a link"
    assert web.ask("/api/runs", Origin="http://evil.invalid").status == 403


def test_another_site_may_link_to_a_page_and_not_load_it(web: Served) -> None:
    def asked(mode: str, there: str) -> int:
        told = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": there}
        return web.ask("/runs/abc", **told).status

    assert asked("navigate", "document") == 200
    for mode, there in (
        ("no-cors", "image"),
        ("no-cors", "script"),
        ("cors", "empty"),
        ("navigate", "iframe"),
    ):
        assert asked(mode, there) == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_read_only_takes_nothing_but_looks(method: str) -> None:
    with guarded(read_only=True) as web:
        heard = web.ask("/api/runs/x/acts/pause", method=method, Content_Length="0")
        assert heard.status == 403
        assert "--read-only" in heard.text
        assert web.ask("/api/runs").status == 200


# -- forms -------------------------------------------------------------------------------------------------------------


def test_a_form_is_known_by_its_token_which_is_never_the_same_twice() -> None:
    keeper, other = Guard("127.0.0.1", 1), Guard("127.0.0.1", 1)
    first, second = keeper.csrf("a"), keeper.csrf("a")
    assert first != second
    keeper.check_csrf(first, "a")
    keeper.check_csrf(second, "a")
    changed = ("0" if first[-1] != "0" else "1").join([first[:-1], ""])
    for wrong in ("", "x", first[:-2], first + "00", changed, "00" * 64, other.csrf("a"), keeper.csrf("b")):
        with pytest.raises(Refused) as refused:
            keeper.check_csrf(wrong, "a")
        assert refused.value.status == 403


# -- tokens ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/runs/abc", "/api/runs", "/api/events", "/metrics", "/nothing"])
def test_without_the_token_nothing_is_told(locked: Served, path: str) -> None:
    heard = locked.ask(path)
    assert (heard.status, heard.headers["www-authenticate"]) == (401, "Bearer")


def test_what_the_login_page_needs_is_there_without_the_token(locked: Served) -> None:
    for path in ("/static/style.css", "/login", "/healthz"):
        assert locked.ask(path).status == 200


def test_the_token_in_an_address_becomes_a_cookie_and_leaves_the_address(locked: Served) -> None:
    heard = locked.ask(f"/runs/a%20b?x=1&token={TOKEN}&y=%C3%A4")
    assert (heard.status, heard.headers["location"]) == (303, "/runs/a%20b?x=1&y=%C3%A4")
    cookie, *rules = heard.cookies[0].split("; ")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(rules)
    assert TOKEN not in heard.cookies[0]
    assert locked.ask("/", Cookie=cookie).status == 200
    assert locked.ask("/", Cookie=f"other=1; {cookie}").status == 200
    assert locked.ask("/", Cookie=cookie[:-1] + ("0" if cookie[-1] != "0" else "1")).status == 401


def test_programs_bear_the_token(locked: Served) -> None:
    assert locked.ask("/api/runs", Authorization=f"Bearer {TOKEN}").status == 200
    assert locked.ask("/api/runs", Authorization=f"bearer {TOKEN}").status == 200
    for wrong in (f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \xe4"):
        assert locked.ask("/api/runs", Authorization=wrong).status == 401


def test_a_token_is_not_taken_from_the_address_of_a_post(locked: Served) -> None:
    assert locked.ask(f"/api/runs/x/acts/pause?token={TOKEN}", method="POST", body="{}").status == 401


def offer(web: Served, token: str) -> Heard:
    return web.ask("/", Authorization=f"Bearer {token}")


def test_who_is_wrong_too_often_must_wait_but_the_right_one_is_taken(locked: Served) -> None:
    most = sessions.WRONG_MAX
    assert [offer(locked, f"wrong-{n}").status for n in range(most)] == [401] * most
    heard = offer(locked, "wrong again")
    assert heard.status == 429
    assert 0 < int(heard.headers["retry-after"]) <= 60
    assert locked.ask("/?token=wrong").status == 429
    assert offer(locked, TOKEN).status == 200
    assert locked.ask(f"/?token={TOKEN}").status == 303


def test_a_network_is_one_place_and_all_together_are_limited_too() -> None:
    wrong = sessions.Wrong()
    for n in range(sessions.WRONG_MAX):
        wrong.add(sessions.place_of(f"2001:db8::{n:x}:1", None))
    assert wrong.wait_s(sessions.place_of("2001:db8::ffff:9", None)) > 0
    assert wrong.wait_s(sessions.place_of("2001:db8:0:1::1", None)) == 0
    assert sessions.place_of("::ffff:192.0.2.1", None) == sessions.place_of("192.0.2.1", None)
    assert len({sessions.place_of("127.0.0.1", uid) for uid in (None, 0, 1)}) == 3
    for n in range(sessions.WRONG_MAX_OVERALL):
        wrong.add(f"192.0.2.{n}")
    assert wrong.wait_s("198.51.100.7") > 0


def test_every_login_is_a_session_of_its_own_and_a_restart_ends_them(locked: Served) -> None:
    first, second = (locked.ask(f"/?token={TOKEN}").cookies[0].partition(";")[0] for _ in range(2))
    assert first != second
    assert [locked.ask("/", Cookie=cookie).status for cookie in (first, second)] == [200, 200]
    name = first.partition("=")[0]
    assert locked.ask("/", Cookie=f"{name}=junk; {name}=; {first}; {name}=more").status == 200
    with guarded(token=TOKEN) as another:
        renamed = first.replace(str(locked.port), str(another.port))
        assert another.ask("/", Cookie=renamed).status == 401


def test_a_session_is_of_the_user_it_began_with() -> None:
    held = sessions.Sessions()
    cookie = held.begin(1000)
    assert held.found(["junk", cookie], 1000) == cookie
    for other in (1001, 0, None, peers.UNKNOWN):
        assert held.found([cookie], other) == ""
    far = held.begin(None)
    assert (held.found([far], None), held.found([far], 1000)) == (far, "")


def test_sessions_are_few_and_end() -> None:
    held = sessions.Sessions()
    cookies = [held.begin(None) for _ in range(sessions.SESSIONS_MAX + 5)]
    assert held.found(cookies[:5], None) == ""
    assert held.found(cookies[5:6], None)
    held.timing = Timing(session_s=-1.0)
    assert held.found(cookies, None) == ""


def test_a_code_opens_once_and_soon_and_for_our_user_only(
    locked: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert locked.guard is not None
    code = locked.guard.code()
    assert locked.ask("/", Authorization=f"Bearer {code}").status == 401, "it is for a browser"
    heard = locked.ask(f"/x?token={code}")
    assert (heard.status, heard.headers["location"]) == (303, "/x")
    assert locked.ask("/", Cookie=heard.cookies[0].partition(";")[0]).status == 200
    assert locked.ask(f"/x?token={code}").status == 401
    late = locked.guard.code()
    monkeypatch.setattr(peers, "uid_of", lambda *_: 4_000_000)
    assert locked.ask(f"/?token={late}").status == 401
    monkeypatch.undo()
    locked.guard._sessions.timing = Timing(code_s=-1.0)
    assert locked.ask(f"/?token={locked.guard.code()}").status == 401


def test_who_is_in_already_stays_in(locked: Served) -> None:
    cookie = locked.ask(f"/?token={TOKEN}").cookies[0].partition(";")[0]
    for n in range(sessions.WRONG_MAX + 1):
        offer(locked, f"wrong-{n}")
    assert locked.ask("/", Cookie=cookie).status == 200


def test_only_the_very_paths_of_the_login_page_are_open(locked: Served) -> None:
    for path in ("/login/x", "/healthz/x", "/favicon.ico/x", "/static", "/static/a/b"):
        assert locked.ask(path).status == 401, path


def test_who_acts_is_told_by_user_or_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(socket.create_connection(listening.getsockname()))
        taken = stack.enter_context(listening.accept()[0])
        keeper = Guard("127.0.0.1", 1, token=TOKEN)

        def by(uid: int | None) -> str:
            monkeypatch.setattr(peers, "uid_of", lambda *_: uid)
            return keeper.by(Connection(taken, lambda _: None), "alice via ui")

        assert by(os.getuid()) == "alice via ui"
        assert by(4_000_000) == "uid 4000000 via ui"
        assert by(None) == by(peers.UNKNOWN) == "alice via ui from 127.0.0.1"


def test_wrong_tokens_of_many_addresses_are_forgotten_in_the_end() -> None:
    wrong = sessions.Wrong()
    for n in range(sessions.ADDRESSES_MAX + 50):
        wrong.add(f"10.0.{n // 256}.{n % 256}")
    assert len(wrong._times) == sessions.ADDRESSES_MAX


@pytest.mark.parametrize(
    ("host", "needed"), [("127.0.0.1", False), ("127.9.9.9", False), ("::1", False), ("0.0.0.0", True), ("::", True), ("192.168.1.2", True), ("box", True)]
)  # fmt: skip
def test_a_token_is_needed_wherever_others_reach(host: str, needed: bool) -> None:
    assert guard.needs_token(host) is needed


def test_everywhere_is_printed_as_an_address_that_can_be_opened() -> None:
    assert list(guard.addresses("127.0.0.1")) == ["127.0.0.1"]
    for found in guard.addresses("0.0.0.0"):
        assert found.count(".") == 3
        assert found != "0.0.0.0"


# -- users -------------------------------------------------------------------------------------------------------------

CLIENT = """
import socket, sys
port, how = int(sys.argv[1]), sys.argv[2]
client = socket.create_connection(("127.0.0.1", port), timeout=20)
client.sendall(f"GET / HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nConnection: close\\r\\n\\r\\n".encode())
if how == "halfway":
    client.shutdown(socket.SHUT_WR)
if how == "gone":
    client.close()
else:
    print(client.recv(65536).decode().splitlines()[0])
"""


def test_this_machine_says_which_user_connects() -> None:
    assert peers.can_name_users()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with socket.create_connection(listening.getsockname()) as client:
            ends = client.getsockname(), listening.getsockname()
            assert peers.user_of(*ends) == (os.getuid(), True)
            assert peers.user_of(*reversed(ends)) is None or os.getuid() == 0
        assert not peers.is_ours(*ends)


def test_where_the_kernel_does_not_answer_its_table_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def mute(*_: object) -> None:
        raise OSError

    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.create_connection(listening.getsockname()))
        ends = client.getsockname(), listening.getsockname()
        assert peers._looked_up(*ends) == peers._from_kernel(*ends) == (os.getuid(), True)
        monkeypatch.setattr(peers, "_from_kernel", mute)
        assert peers.user_of(*ends) == (os.getuid(), True)
        monkeypatch.setattr(peers, "_from_kernel", lambda *_: None)
        monkeypatch.setattr(peers, "_ANSWERS", threading.Event())
        assert peers.user_of(*ends) == (os.getuid(), True)
    monkeypatch.undo()
    assert peers.can_name_users()
    assert peers.user_of(("192.0.2.1", 5), ("192.0.2.2", 6)) is None


def test_an_address_of_ipv4_is_one_in_either_spelling() -> None:
    with contextlib.ExitStack() as stack:
        try:
            listening = stack.enter_context(
                socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
            )
        except (OSError, ValueError):
            pytest.skip("there is no IPv6 here")
        client = stack.enter_context(socket.create_connection(("127.0.0.1", listening.getsockname()[1])))
        taken, peer = listening.accept()
        stack.enter_context(taken)
        assert peer[0].startswith("::ffff:")
        assert peers.user_of(peer[:2], taken.getsockname()[:2]) == (os.getuid(), True)
        client.close()


def test_a_program_that_speaks_ipv6_too_is_found_behind_an_address_of_ipv4() -> None:
    """As Java connects. Its connection is in the table of IPv6, with both addresses mapped."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        try:
            client = stack.enter_context(socket.socket(socket.AF_INET6))
            client.connect(("::ffff:127.0.0.1", listening.getsockname()[1]))
        except OSError:
            pytest.skip("there is no IPv6 here")
        taken, peer = listening.accept()
        with taken:
            ends = peer[:2], taken.getsockname()[:2]
            assert os.getpid() in (peers.holders(*ends) or [])
            assert peers._from_kernel(*ends) == peers._looked_up(*ends) == (os.getuid(), True)


def test_who_resets_its_connection_is_not_taken_for_another_machine() -> None:
    """What it had sent is read all the same, and the kernel's table has it no more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        taken, peer = listening.accept()
        with taken:
            here = taken.getsockname()
            client.sendall(b"POST /")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            assert taken.recv(100) == b"POST /"
            assert peers.holders(peer, here) is None
    assert peers.holders(("192.0.2.1", 5), ("192.0.2.2", 6)) == []


def test_who_closes_its_connection_while_the_page_looks_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        taken, peer = listening.accept()
        with taken:
            before = peers._row

            def row(*ends: peers.End) -> list[str] | None:
                found = before(*ends)
                client.close()
                return found

            monkeypatch.setattr(peers, "_row", row)
            assert peers.holders(peer, taken.getsockname()) is None


def test_a_page_without_room_to_look_does_not_know_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> object:
        raise OSError(errno.EMFILE, "Too many open files")

    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.create_connection(listening.getsockname()))
        ends = client.getsockname(), listening.getsockname()
        assert peers.holders(*ends) == [os.getpid()]
        for look in ("iterdir", "open"):
            with monkeypatch.context() as patched:
                patched.setattr(Path, look, full)
                assert peers.holders(*ends) is None


def test_the_other_end_is_found_on_ipv6_too() -> None:
    with contextlib.ExitStack() as stack:
        try:
            listening = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
        except OSError:
            pytest.skip("there is no IPv6 here")
        client = stack.enter_context(socket.create_connection(listening.getsockname()[:2]))
        assert peers.user_of(client.getsockname()[:2], listening.getsockname()[:2]) == (os.getuid(), True)


@pytest.mark.root
@pytest.mark.parametrize("how", ["open", "halfway"])
def test_another_user_of_this_machine_is_refused(web: Served, as_nobody: Nobody, how: str) -> None:
    need_root()
    done = as_nobody.run([sys.executable, "-c", CLIENT, str(web.port), how])
    assert done.stdout.split()[1] == "403", done.stderr


@pytest.mark.root
def test_an_end_that_is_closed_already_is_nobodys_and_not_roots(as_nobody: Nobody) -> None:
    """Some kernels say 0 for it: whoever asks and hangs up would pass for root."""
    need_root()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        done = as_nobody.run([sys.executable, "-c", CLIENT, str(listening.getsockname()[1]), "gone"])
        assert done.returncode == 0, done.stderr
        taken, peer = listening.accept()
        with taken:
            assert peers.user_of(peer, listening.getsockname()) in ((0, False), (NOBODY, False))
            assert not peers.is_ours(peer, listening.getsockname())


@pytest.mark.root
def test_with_a_token_another_user_is_let_in(locked: Served, as_nobody: Nobody) -> None:
    need_root()
    client = CLIENT.replace("Connection: close", f"Authorization: Bearer {TOKEN}\\r\\nConnection: close")
    done = as_nobody.run([sys.executable, "-c", client, str(locked.port), "open"])
    assert done.stdout.split()[1] == "200", done.stderr
