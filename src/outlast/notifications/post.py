"""One bounded POST: TLS verified, proxies as the environment says, never redirected to another host.

Its errors name the host and no more of the address: a path or a query of a webhook is a password."""

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import urllib.error
    import urllib.request

REPLY_BYTES_MAX = 64 << 10
REDIRECTS_MAX = 3
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SAME_METHOD = (307, 308)


class Unsent(Exception):
    """A notice did not go out, or nobody knows. `again`: it surely did not arrive, and another try may help."""

    def __init__(self, words: str, *, again: bool = False) -> None:
        super().__init__(words)
        self.again = again


@dataclass(frozen=True, slots=True)
class Posted:
    """The answer of the far side."""

    status: int
    body: bytes


def post(url: str, body: bytes, headers: Mapping[str, str], limit_s: float) -> Posted:
    """The answer to a POST, if it is a good one. Raises Unsent, at the latest when the time is over."""
    import http.client
    import urllib.error
    import urllib.request

    host = _host(url)
    request = urllib.request.Request(
        url, data=body, headers={"User-Agent": "outlast", **headers}, method="POST"
    )
    try:
        with _within(limit_s), _opener(url).open(request, timeout=limit_s) as reply:
            return Posted(reply.status, reply.read(REPLY_BYTES_MAX))
    except urllib.error.HTTPError as error:
        raise _refused(host, error, limit_s) from None
    except urllib.error.URLError as error:  # before an answer was waited for: nothing arrived
        raise Unsent(f"{host}: {_reason(error.reason)}", again=not _is_certificate(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        words = (
            f"{host} did not answer ({type(error).__name__}): it may have arrived, so it is not sent again"
        )
        raise Unsent(words) from None
    except ValueError as error:
        raise Unsent(f"{host}: {error}") from None


def _host(url: str) -> str:
    """Host and port for errors. Raises Unsent for what is no address of HTTP."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is no number
    except ValueError:
        raise Unsent("its address is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        raise Unsent("its address is not an http or https URL")
    return parts.netloc.rpartition("@")[2]


def _refused(host: str, error: "urllib.error.HTTPError", limit_s: float) -> Unsent:
    reply = ""
    with contextlib.suppress(OSError, ValueError), _within(limit_s), error:
        reply = error.read(REPLY_BYTES_MAX).decode("utf-8", "replace").strip()
    words = (
        f"{host} refused it: HTTP {error.code}{f', {reply:.120}' if reply.isprintable() and reply else ''}"
    )
    return Unsent(words, again=error.code == 429 or error.code >= 500)


def _reason(reason: object) -> str:
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    return str(getattr(reason, "strerror", None) or reason)


def _is_certificate(reason: object) -> bool:
    import ssl

    return isinstance(reason, ssl.SSLCertVerificationError)


def _opener(url: str) -> "urllib.request.OpenerDirector":
    """Opens with what the environment says of proxies; this machine itself is asked directly."""
    import urllib.error
    import urllib.request
    from email.message import Message

    class SameHost(urllib.request.HTTPRedirectHandler):
        """Follows to the same host and port only, and with the same method: another host would get what is not its own."""

        max_redirections = REDIRECTS_MAX

        def redirect_request(
            self,
            req: urllib.request.Request,
            fp: IO[bytes],
            code: int,
            msg: str,
            headers: Message,
            newurl: str,
        ) -> urllib.request.Request:
            here, there = urlsplit(req.full_url), urlsplit(newurl)
            upgraded = (
                (here.scheme, there.scheme) == ("http", "https") and here.port is None and there.port is None
            )
            same = (there.scheme, there.port) == (here.scheme, here.port) or upgraded
            if there.hostname != here.hostname or not same:
                problem = Unsent(f"{here.netloc} redirects to another host, {there.netloc:.80}")
            elif code not in _SAME_METHOD:
                problem = Unsent(
                    f"{here.netloc} redirects it (HTTP {code}): give the address that it leads to"
                )
            else:
                held = {name: value for name, value in req.header_items() if name.lower() != "host"}
                return urllib.request.Request(newurl, data=req.data, headers=held, method="POST")
            fp.close()
            raise problem

    direct = urlsplit(url).hostname in _LOOPBACK
    return urllib.request.build_opener(SameHost, *([urllib.request.ProxyHandler({})] if direct else []))


@contextlib.contextmanager
def _within(limit_s: float) -> Iterator[None]:
    """Raise TimeoutError in here after so long: a far side that sends a byte now and then keeps no timeout of a socket.

    Only the main thread can be interrupted; others have the socket's timeout alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_: object) -> None:
        raise TimeoutError("no answer in time")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
