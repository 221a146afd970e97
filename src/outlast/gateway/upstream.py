"""The way to a model's API: its address, the user's certificates and proxy, and opening a connection."""

import asyncio
import base64
import ipaddress
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from outlast.errors import BadSetting, UsageError
from outlast.gateway import heads
from outlast.gateway.timing import Timing
from outlast.gateway.values import Settings

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS")

P = TypeVar("P", bound=asyncio.Protocol)


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy of the user's. `authorization` holds a password, and is never shown."""

    host: str
    port: int
    authorization: bytes

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"

    @property
    def lines(self) -> list[bytes]:
        return [b"Proxy-Authorization: " + self.authorization] if self.authorization else []


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where a route leads to."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    proxy: Proxy | None

    @property
    def authority(self) -> bytes:
        """The host as a request names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.tls else 80)
        return (host if usual else f"{host}:{self.port}").encode("ascii")

    @property
    def before_target(self) -> bytes:
        """The part of a plain proxied request before its path."""
        return b"http://" + self.authority if self.proxy is not None and self.tls is None else b""

    @property
    def lines(self) -> list[bytes]:
        """Headers for the proxy, where it reads the request itself."""
        return self.proxy.lines if self.proxy is not None and self.tls is None else []


def upstream(base_url: str, settings: Settings) -> tuple[Upstream, str]:
    """Where an API's base URL leads, and its path. Raises UsageError; what may hold a password is not quoted."""
    hint = "give the API's address, such as https://api.anthropic.com"
    try:
        parts = urlsplit(base_url)
        port, host = (
            parts.port,
            (parts.hostname or "").encode("idna" if not parts.netloc.isascii() else "ascii").decode(),
        )
    except (ValueError, UnicodeError) as error:
        raise UsageError("the address of the model's API cannot be read", hint=hint) from error
    if (
        parts.scheme not in ("http", "https")
        or not host
        or any(sign <= " " or sign > "~" for sign in base_url)
    ):
        raise UsageError("the model's API must be an http or https address", hint=hint)
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError("the address of the model's API holds a user name, a query or a fragment", hint=hint)
    tls = _context(settings) if parts.scheme == "https" else None
    port = port or (443 if tls else 80)
    return Upstream(host, port, tls, _proxy(parts.scheme, host, port, settings)), parts.path


def _context(settings: Settings) -> ssl.SSLContext:
    """Normal verification, with the user's own certificates as OpenSSL and node take them."""
    file, folder, more = (settings.environment.get(name, "") for name in CERTIFICATES)
    try:
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
        if more:
            context.load_verify_locations(cafile=more)
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(name for name in CERTIFICATES if settings.environment.get(name))
        raise BadSetting(f"the certificates of {named} cannot be read: {type(error).__name__}") from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def _proxy(scheme: str, host: str, port: int, settings: Settings) -> Proxy | None:
    url = settings.first(f"{scheme}_proxy", "all_proxy")
    if not url or _spared(host, port, settings.first("no_proxy")):
        return None
    name = f"{scheme.upper()}_PROXY"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        proxy_host, proxy_port = parts.hostname, parts.port or 80
    except ValueError as error:
        raise BadSetting(
            f"{name} cannot be read", hint=f"set it to http://host:port, or {host} in NO_PROXY"
        ) from error
    if parts.scheme != "http" or not proxy_host:
        raise BadSetting(
            f"the gateway speaks to plain http proxies only, not to the one of {name}",
            hint=f"run without --gateway, or put {host} into NO_PROXY",
        )
    authorization = b""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        authorization = b"Basic " + base64.b64encode(pair)
    return Proxy(proxy_host, proxy_port, authorization)


def _spared(host: str, port: int, no_proxy: str) -> bool:
    """Whether NO_PROXY names a host. This machine is never reached through a proxy."""
    try:
        if ipaddress.ip_address(host).is_loopback:
            return True
    except ValueError:
        if host == "localhost":
            return True
    for word in no_proxy.replace(" ", ",").split(","):
        name, _, at = word.strip().rpartition(":") if word.count(":") == 1 else (word.strip(), "", "")
        if at and at != str(port):
            continue
        name = name.lower().removeprefix("*").strip(".")
        if word.strip() == "*" or (name and (host.lower() == name or host.lower().endswith("." + name))):
            return True
    return False


# --- opening --------------------------------------------------------------------------------------------------


class Unreachable(Exception):
    """No connection could be made, and nothing was sent. The message holds no more than the host and the reason."""


async def connect(where: Upstream, make: Callable[[], P]) -> P:
    """Open a connection to the API. Raises Unreachable."""
    loop, limit_s = asyncio.get_running_loop(), Timing.current().connect_s
    try:
        async with asyncio.timeout(limit_s):
            if where.proxy is not None:
                return await _through(where, where.proxy, make)
            name = where.host if where.tls else None
            _, protocol = await loop.create_connection(
                make, where.host, where.port, ssl=where.tls, server_hostname=name
            )
            return protocol
    except ssl.SSLCertVerificationError as error:
        raise Unreachable(f"{where.host}: its certificate is not trusted: {error.verify_message}") from error
    except TimeoutError as error:
        raise Unreachable(f"{where.host}: no connection in {limit_s:.0f} s") from error
    except OSError as error:  # also all that TLS has against it
        raise Unreachable(f"{where.host}: {error.strerror or type(error).__name__}") from error


class _Tunnel(asyncio.Protocol):
    """Reads the proxy's answer to CONNECT, and nothing after it."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._read = b""

    def data_received(self, data: bytes) -> None:
        self._read += data
        if not self.answer.done() and (heads.END in self._read or len(self._read) > heads.HEAD_BYTES_MAX):
            self.answer.set_result(self._read)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_result(b"")


async def _through(where: Upstream, proxy: Proxy, make: Callable[[], P]) -> P:
    loop = asyncio.get_running_loop()
    if where.tls is None:
        _, protocol = await loop.create_connection(make, proxy.host, proxy.port)
        return protocol
    transport, tunnel = await loop.create_connection(_Tunnel, proxy.host, proxy.port)
    try:
        host = f"[{where.host}]" if ":" in where.host else where.host
        address = f"{host}:{where.port}".encode("ascii")
        transport.write(
            heads.write(b"CONNECT " + address + b" HTTP/1.1", [b"Host: " + address, *proxy.lines])
        )
        answer = await tunnel.answer
        try:
            status = heads.response_head(answer.partition(heads.END)[0]).status
        except heads.BadHead:
            status = 0
        if not 200 <= status < 300:
            raise Unreachable(
                f"{where.host}: the proxy {proxy.host} answered {status or 'nothing that is HTTP'}"
            )
        protocol = make()
        transport.set_protocol(protocol)
        secured = await loop.start_tls(transport, protocol, where.tls, server_hostname=where.host)
        if secured is None:
            raise Unreachable(f"{where.host}: TLS through the proxy failed")
        protocol.connection_made(secured)
        return protocol
    except BaseException:
        transport.abort()
        raise
