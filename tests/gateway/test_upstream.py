"""The way to the model: certificates are verified, the user's proxy is used, bad addresses are refused in one line."""

import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from outlast.core.values import Usage
from outlast.errors import BadSetting, UsageError
from outlast.gateway import Gateway
from outlast.gateway.upstream import upstream
from outlast.gateway.values import Settings
from tests.gateway.endpoints import (
    ASKED,
    Connection,
    Ledger,
    Upstream,
    answer,
    answering,
    between,
    dial,
    post,
)

SAID = answer(b'{"id":"msg_1","usage":{"input_tokens":1,"output_tokens":2}}')
PASSWORD = "hunter2"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate that only its own `cert.pem` vouches for."""
    folder = tmp_path_factory.mktemp("authority")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1,DNS:model.test"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder


def server_context(authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    return context


def once(gateway: Gateway, url: str) -> tuple[bytes, bytes]:
    client, base = dial(gateway, url)
    client.send(post(f"{base}/v1/messages", ASKED))
    got = client.message()
    client.close()
    return got.head.split(b"\r\n")[0], got.body


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"])
def test_the_users_own_authority_is_trusted(authority: Path, name: str) -> None:
    ledger = Ledger()
    serve, _ = answering(SAID)
    environment = {name: str(authority / "cert.pem")}
    with between(serve, ledger, tls=server_context(authority), environment=environment) as (gateway, there):
        assert once(gateway, there.url) == (b"HTTP/1.1 200 OK", SAID.partition(b"\r\n\r\n")[2])
        assert ledger.one().usage == Usage(1, 2)


def test_a_certificate_that_nobody_vouches_for_is_not_spoken_to(authority: Path) -> None:
    ledger = Ledger()
    serve, seen = answering(SAID)
    with between(serve, ledger, tls=server_context(authority)) as (gateway, there):
        line, body = once(gateway, there.url)
        assert line == b"HTTP/1.1 502 Bad Gateway"
        assert b"certificate is not trusted" in body
        assert (ledger.one().ended, seen) == ("unreached", [])


@pytest.mark.parametrize("tls", [True, False], ids=["https", "http"])
def test_the_users_proxy_is_used(authority: Path, tls: bool) -> None:
    """An https API through a tunnel, a plain one by its whole address; both with the proxy's password."""
    ledger, heads = Ledger(), list[bytes]()
    serve, seen = answering(SAID)

    def proxy(connection: Connection) -> None:
        if not tls:
            heads.append(connection.message().head)
            connection.send(SAID)
            return
        heads.append(connection.until(b"\r\n\r\n"))
        connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with socket.create_connection(("127.0.0.1", there.port)) as onward:
            _pump(connection.sock, onward)

    relaying = Upstream(proxy)
    environment = {
        "https_proxy" if tls else "HTTP_PROXY": f"http://me:{PASSWORD}@127.0.0.1:{relaying.port}",
        "SSL_CERT_FILE": str(authority / "cert.pem"),
    }
    context = server_context(authority) if tls else None
    with between(serve, ledger, tls=context, environment=environment) as (gateway, there):
        try:
            url = f"{'https' if tls else 'http'}://model.test:{there.port}"
            assert once(gateway, url)[0] == b"HTTP/1.1 200 OK"
            assert ledger.one().usage == Usage(1, 2)
        finally:
            relaying.close()
    where = f"model.test:{there.port}"
    assert heads[0].split(b"\r\n")[0].decode() in (
        f"CONNECT {where} HTTP/1.1", f"POST http://{where}/v1/messages HTTP/1.1",
    )  # fmt: skip
    assert heads[0].count(b"Proxy-Authorization: Basic bWU6aHVudGVyMg==") == 1
    assert all(b"Proxy-Authorization" not in request.head for request in seen)
    assert PASSWORD not in repr((ledger.spent, gateway.faults))


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Passes bytes both ways until one side ends."""
    import selectors

    with selectors.DefaultSelector() as waiting:
        waiting.register(one, selectors.EVENT_READ, other)
        waiting.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in waiting.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)
                data = source.recv(65536)
                if not data:
                    return
                key.data.sendall(data)


def test_a_proxy_that_refuses_is_named() -> None:
    relaying = Upstream(lambda connection: connection.send(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n"))
    ledger = Ledger()
    with between(lambda connection: None, ledger, environment={"ALL_PROXY": relaying_url(relaying)}) as (
        gateway,
        _,
    ):
        try:
            assert b"the proxy 127.0.0.1 answered 407" in once(gateway, "https://model.test")[1]
        finally:
            relaying.close()


def relaying_url(relaying: Upstream) -> str:
    return f"127.0.0.1:{relaying.port}"


@pytest.mark.parametrize(
    ("spared", "direct"),
    [("", False), ("other.test", False), ("model.test", True), (".test", True), ("*", True), ("a, model.test:443", True),
     ("model.test:80", False), ("odel.test", False)],
)  # fmt: skip
def test_no_proxy_names_the_hosts_that_are_reached_directly(spared: str, direct: bool) -> None:
    settings = Settings({"HTTPS_PROXY": "http://proxy.test:3128", "NO_PROXY": spared})
    assert (upstream("https://model.test", settings)[0].proxy is None) == direct
    assert upstream("http://localhost:1", Settings({"http_proxy": "http://proxy.test"}))[0].proxy is None


def test_an_agent_is_told_not_to_reach_the_gateway_through_the_proxy() -> None:
    assert Gateway(Ledger(), {"no_proxy": "a.test", "HTTP_PROXY": "http://proxy.test"}).variables() == {
        "NO_PROXY": "a.test,127.0.0.1", "no_proxy": "a.test,127.0.0.1",
    }  # fmt: skip
    assert Gateway(Ledger(), {"NO_PROXY": "a.test"}).variables() == {}


@pytest.mark.parametrize(
    ("url", "environment"),
    [
        ("ftp://x.test", {}), ("https://", {}), ("x.test/v1", {}), ("https://x.test:port", {}), ("https://x.test:99999", {}),
        (f"https://me:{PASSWORD}@x.test", {}), (f"https://x.test/?key={PASSWORD}", {}), ("https://x.test/\r\nA: b", {}),
        ("http://x.test/a b", {}), ("https://[::1", {}), ("", {}),
        ("https://x.test", {"https_proxy": f"socks5://me:{PASSWORD}@p.test:1"}),
        ("https://x.test", {"https_proxy": f"http://me:{PASSWORD}@p.test:port"}),
        ("https://x.test", {"SSL_CERT_FILE": "/nowhere/cert.pem"}),
    ],
)  # fmt: skip
def test_a_way_that_cannot_be_gone_is_refused_in_one_line_without_secrets(
    url: str, environment: dict[str, str]
) -> None:
    with pytest.raises(UsageError) as refused:
        upstream(url, Settings(environment))
    said = f"{refused.value} {refused.value.hint}"
    assert "\n" not in said
    assert PASSWORD not in said
    assert not environment or isinstance(refused.value, BadSetting)
