"""Decides who may ask, and from where: by Host, origin site, the user at the other end, and tokens."""

import hmac
import ipaddress
import os
import secrets
import socket
from collections.abc import Iterable
from urllib.parse import quote, urlencode

from outlast.processes import proc
from outlast.web.http import peers, responses, sessions
from outlast.web.http.requests import Request
from outlast.web.http.responses import Answer, Refused
from outlast.web.http.server import Connection
from outlast.web.http.sessions import Sessions, Wrong
from outlast.web.timing import Timing

TOKEN_CHARS_MIN = 16
LINK = "press"  # the page of one act, from a notice
LOGIN = "login"  # the form before anybody is let in
_OWN_SITE = ("same-origin", "none")
_WITHOUT_TOKEN = (("login",), ("healthz",), ("favicon.ico",))


class Guard:
    """The checks before anything is answered. `token` is empty where none is needed.

    `url` is where a proxy before it is reached: its name and its origin are ours too.

    Every user of the machine and every site that a browser has open can reach a page on loopback; neither may use it. Beyond
    loopback a token is needed. A client on this machine is known by its user, with and without a token.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: str = "",
        read_only: bool = False,
        name: str = "",
        url: str = "",
        timing: Timing | None = None,
    ) -> None:
        assert token or not url, "a proxy lets in everybody who reaches it"
        self.host, self.port, self.token, self.read_only = host, port, token, read_only
        self.url = url.rstrip("/").lower()
        self._proxy = self.url.partition("://")[2]
        self._names = _names(host) | ({name.lower()} if name else set())
        self._any_address = _is_wildcard(host)
        self._secret = secrets.token_bytes(32)
        self._wrong = Wrong(timing)
        self._sessions = Sessions(timing)
        self._cookie = f"outlast-{port}"

    def check(self, request: Request, connection: Connection) -> Answer | None:
        """Raises Refused; an answer where there is nothing more to do than to look elsewhere."""
        self._check_host(request)
        if not self.token:
            self._check_peer(connection)
        self._check_site(request)
        elsewhere = self._check_token(request, connection) if self.token else None
        connection.stranger = connection.stranger and self.is_open(request)
        return elsewhere

    def is_open(self, request: Request) -> bool:
        """Whether this is answered without the token, where one is needed."""
        static = request.segments[:1] == ("static",) and len(request.segments) == 2
        link = request.segments[:1] == (LINK,) and len(request.segments) == 2  # it has a token of its own
        return bool(self.token) and (static or link or request.segments in _WITHOUT_TOKEN)

    # -- who -------------------------------------------------------------------------------------------------------

    def is_stranger(self, connection: Connection) -> bool:
        """Whether a new connection gets one of few places until it has shown that it may look."""
        try:
            return self._uid(connection) not in (0, os.getuid())
        except Refused:
            return True

    def by(self, connection: Connection, owner: str) -> str:
        """The author of an act, for the record: `owner`, in whose name this page runs, and from where; or another user."""
        uid = self._uid(connection)
        if uid == os.getuid():
            return owner
        if uid is None or uid == peers.UNKNOWN:
            return f"{owner} from {connection.peer[0]}"
        return f"{proc.user_name(uid)} via ui"

    def _uid(self, connection: Connection) -> int | None:
        """The user at the other end, asked once for each connection; None where it is another machine. Raises Refused."""
        if not connection.uid_known:
            try:
                connection.uid, connection.uid_known = peers.uid_of(connection.peer, connection.here), True
            except peers.NoRoom as error:
                raise Refused(
                    503, f"outlast cannot see right now which user is asking: {error.strerror}", "close some pages, or ask again in a moment",
                    headers=(("Retry-After", "1"),),
                ) from error  # fmt: skip
        return connection.uid

    def _check_peer(self, connection: Connection) -> None:
        """On loopback: the other end must be of our user, or root's."""
        if self._uid(connection) not in (0, os.getuid()):
            raise Refused(
                403, "another user of this machine started this page, and it answers only that user",
                "they can share it: `outlast ui --with-token` prints an address that lets others in",
            )  # fmt: skip

    # -- where from ------------------------------------------------------------------------------------------------

    def _check_host(self, request: Request) -> None:
        """A name that somebody else's DNS leads here is not ours, and its pages would be let in with it."""
        if not self._is_ours(request.header("host")):
            shown = f"[{self.host}]" if ":" in self.host else self.host
            here = self.url or f"http://{shown}:{self.port}"
            raise Refused(
                421,
                f"this page is not called {request.header('host')!r:.100}",
                f"open {here}/; a forwarded port must have the same number on both sides",
            )

    def _is_ours(self, host: str) -> bool:
        if self._proxy and host.lower() == self._proxy:
            return True
        name, port = _split(host)
        if port != str(self.port) and not (port == "" and self.port == 80):
            return False
        return name in self._names or (self._any_address and _is_address(name))

    def _check_site(self, request: Request) -> None:
        """Other sites may lead here by a link, and no more: what they only load is not even made."""
        posts = request.method not in ("GET", "HEAD")
        closed = posts or request.segments[:1] in (("api",), ("metrics",))
        site = request.header("sec-fetch-site")
        if site and site not in _OWN_SITE and (closed or not _is_link(request)):
            raise Refused(403, "this was asked by another site", "open the page itself and do it there")
        origin = request.headers.get("origin")
        ours = (f"http://{request.header('host')}", *filter(None, [self.url]))
        if closed and origin is not None and origin not in ours:
            raise Refused(403, "this was asked by another site", "open the page itself and do it there")
        if posts and self.read_only and request.segments != ("login",):
            raise Refused(
                403, "this page only shows (--read-only)", "start `outlast ui` without --read-only to act"
            )

    # -- forms -----------------------------------------------------------------------------------------------------

    def csrf(self, form: str) -> str:
        """A token for the forms of a session; another one each time, so that packing a page tells nothing of it."""
        mask = secrets.token_bytes(32)
        return (mask + bytes(a ^ b for a, b in zip(mask, self._form_secret(form), strict=True))).hex()

    def check_csrf(self, given: str, form: str) -> None:
        """Raises Refused unless a page of this very process made the form, for this session."""
        try:
            raw = bytes.fromhex(given)
        except ValueError:
            raw = b""
        unmasked = bytes(a ^ b for a, b in zip(raw[:32], raw[32:], strict=False))
        if len(raw) != 64 or not hmac.compare_digest(unmasked, self._form_secret(form)):
            raise Refused(
                403, "this form is from another page, or from before the page was restarted", "go back, reload, and press again"
            )  # fmt: skip

    def _form_secret(self, form: str) -> bytes:
        return hmac.digest(self._secret, form.encode("utf-8", "replace"), "sha256")

    def session(self, request: Request, connection: Connection) -> str:
        """The value that binds forms to this session."""
        if not self.token:
            return "ours"
        return f"session {self._sessions.found(request.cookies_named(self._cookie), self._uid(connection))}"

    # -- tokens ----------------------------------------------------------------------------------------------------

    def _check_token(self, request: Request, connection: Connection) -> Answer | None:
        offered = [value for name, value in request.fields if name == "token"]
        if offered and request.method in ("GET", "HEAD"):
            return responses.see(without_token(request), (self.let_in(offered[-1], request, connection),))
        if self.is_open(request):
            return None
        if self._sessions.found(request.cookies_named(self._cookie), self._uid(connection)):
            return None
        scheme, _, bearer = request.header("authorization").partition(" ")
        if scheme.lower() == "bearer":
            self._check_offered(bearer.strip(), connection)
            return None
        raise Refused(
            401, "a token is needed", "it is in the address that `outlast ui` printed",
            headers=(("WWW-Authenticate", "Bearer"),),
        )  # fmt: skip

    def _check_offered(self, given: str, connection: Connection) -> None:
        """Raises Refused unless this is the token. An address that is wrong too often must wait; no other address has to."""
        if hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode("utf-8", "replace")):
            return
        place = sessions.place_of(connection.peer[0], self._uid(connection))
        wait_s = self._wrong.wait_s(place)
        if wait_s > 0:
            raise Refused(
                429, "too many wrong tokens came from your address", f"wait {wait_s:.0f} s",
                headers=(("Retry-After", f"{wait_s:.0f}"),),
            )  # fmt: skip
        self._wrong.add(place)
        raise Refused(
            401, "this is not the token", "it is in the address that `outlast ui` printed",
            headers=(("WWW-Authenticate", "Bearer"),),
        )  # fmt: skip

    def code(self) -> str:
        """A word that our own user's browser can give instead of the token, once and soon: others may read its command line."""
        return self._sessions.code()

    def let_in(self, given: str, request: Request, connection: Connection) -> tuple[str, str]:
        """The header that lets a browser in from now on. Raises Refused unless it gave the token."""
        uid = self._uid(connection)
        if not (uid in (0, os.getuid()) and self._sessions.spend(given)):
            self._check_offered(given, connection)
        by_proxy = request.header("host").lower() == self._proxy
        secure = "; Secure" if by_proxy and self.url.startswith("https:") else ""
        rules = f"Path=/; Max-Age={self._sessions.timing.session_s:.0f}; HttpOnly; SameSite=Lax{secure}"
        return "Set-Cookie", f"{self._cookie}={self._sessions.begin(uid)}; {rules}"


def _is_link(request: Request) -> bool:
    """Whether a browser goes there itself: it shows the answer to nobody but the person."""
    mode, there = request.header("sec-fetch-mode"), request.header("sec-fetch-dest")
    return mode == "navigate" and there in ("document", "")


def made_token() -> str:
    """A new token."""
    return secrets.token_urlsafe(24)


def needs_token(host: str) -> bool:
    """Whether a place can be reached from elsewhere."""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def _split(host: str) -> tuple[str, str]:
    """Name and port of a Host header, in lower case, an IPv6 address without its brackets."""
    text = host.strip().lower()
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        return (name, rest[1:]) if rest[:1] in (":", "") else ("", "")
    name, _, port = text.partition(":")
    return name.removesuffix("."), port


def _names(host: str) -> frozenset[str]:
    """The names of a server at this address. Beyond loopback also the machine's own names."""
    names = {"localhost", "127.0.0.1", "::1", host.lower()}
    if needs_token(host):
        own = socket.gethostname().lower()
        names |= {own, f"{own}.local", own.partition(".")[0]}
    return frozenset(names - {""})


def _is_wildcard(host: str) -> bool:
    return _is_address(host) and ipaddress.ip_address(host).is_unspecified


def _is_address(text: str) -> bool:
    """An address, unlike a name, leads where it says."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def without_token(request: Request) -> str:
    """Where a request leads, the token left out."""
    fields = [(name, value) for name, value in request.fields if name != "token"]
    path = "/" + "/".join(quote(segment, safe="") for segment in request.segments)
    return f"{path}?{urlencode(fields)}" if fields else path


def addresses(host: str) -> Iterable[str]:
    """Under which addresses a server at this one is found from elsewhere, the likeliest first. Sends nothing."""
    if not _is_wildcard(host):
        return [host]
    found = []
    probes = [(socket.AF_INET, "192.0.2.1")] + ([(socket.AF_INET6, "2001:db8::1")] if ":" in host else [])
    for family, elsewhere in probes:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((elsewhere, 9))
                found.append(str(probe.getsockname()[0]))
            except OSError:
                pass  # no way leads out of this machine
    return found or ["::1" if ":" in host else "127.0.0.1"]
