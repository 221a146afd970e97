"""Sessions of those who had the token, known by a cookie that means nothing elsewhere; and wrong tokens."""

import hashlib
import ipaddress
import secrets
import threading
import time
from dataclasses import dataclass

from outlast.web.timing import Timing

SESSIONS_MAX = 256
WRONG_MAX = 10
WRONG_MAX_OVERALL = 300
ADDRESSES_MAX = 1024
_OVERALL = "all"


@dataclass(slots=True)
class _Session:
    uid: int | None  # of the browser, where it is on this machine
    used_s: float


class Sessions:
    """The newest sessions, by the sum of their cookie; each ends when it was not used for 30 days.

    A browser sends a cookie to every port of a host, so whatever listens on another port sees it: a session that began on this
    machine is good only for the user it began with. Sessions are kept in memory alone; after a restart the token is asked for again.
    """

    def __init__(self, timing: Timing | None = None) -> None:
        self.timing = timing or Timing.current()
        self._lock = threading.Lock()
        self._known: dict[str, _Session] = {}
        self._codes: dict[str, float] = {}

    def begin(self, uid: int | None) -> str:
        """A new session's cookie."""
        made = secrets.token_urlsafe(32)
        with self._lock:
            self._known[_sum(made)] = _Session(uid, time.monotonic())
            while len(self._known) > SESSIONS_MAX:
                oldest = min(self._known, key=lambda key: self._known[key].used_s)
                del self._known[oldest]
        return made

    def found(self, cookies: list[str], uid: int | None) -> str:
        """The first of these cookies that is of a session of this user; empty where none is."""
        now_s = time.monotonic()
        with self._lock:
            for cookie in cookies:
                session = self._known.get(_sum(cookie))
                if session is None or session.uid != uid:
                    continue
                if now_s - session.used_s > self.timing.session_s:
                    del self._known[_sum(cookie)]
                    continue
                session.used_s = now_s
                return cookie
        return ""

    def code(self) -> str:
        """A word that stands for the token once, within a minute, for a user who is known otherwise."""
        made = secrets.token_urlsafe(24)
        with self._lock:
            self._codes[_sum(made)] = time.monotonic() + self.timing.code_s
        return made

    def spend(self, code: str) -> bool:
        """Whether this is such a word. It works only once."""
        with self._lock:
            until_s = self._codes.pop(_sum(code), 0.0)
        return time.monotonic() < until_s


def _sum(text: str) -> str:
    """A digest to look up, so that the time of the look-up gives nothing of the text away."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class Wrong:
    """Count recent wrong tokens per address and in all; only wrong ones must wait."""

    def __init__(self, timing: Timing | None = None) -> None:
        self._window_s = (timing or Timing.current()).wrong_window_s
        self._lock = threading.Lock()
        self._times: dict[str, list[float]] = {}

    def wait_s(self, place: str) -> float:
        """How long this address must wait before the next offer is looked at."""
        with self._lock:
            return max(self._left_s(place, WRONG_MAX), self._left_s(_OVERALL, WRONG_MAX_OVERALL))

    def add(self, place: str) -> None:
        """Count one more wrong token from this address."""
        with self._lock:
            for name, most in ((place, WRONG_MAX), (_OVERALL, WRONG_MAX_OVERALL)):
                times = [*self._recent(name), time.monotonic()][-most:]
                self._times.pop(name, None)  # so that the one that was wrong last is forgotten last
                self._times[name] = times
            while len(self._times) > ADDRESSES_MAX:
                del self._times[next(iter(self._times))]

    def _left_s(self, place: str, most: int) -> float:
        times = self._recent(place)
        return 0.0 if len(times) < most else max(1.0, times[0] + self._window_s - time.monotonic())

    def _recent(self, place: str) -> list[float]:
        since_s = time.monotonic() - self._window_s
        return [at for at in self._times.get(place, []) if at > since_s]


def place_of(address: str, uid: int | None) -> str:
    """The name under which wrong tokens are counted: a user of this machine, an address, or an IPv6 host's network."""
    if uid is not None:
        return f"user {uid}"
    found = ipaddress.ip_address(address.partition("%")[0])
    if found.version == 4 or getattr(found, "ipv4_mapped", None):
        return str(getattr(found, "ipv4_mapped", None) or found)
    return str(ipaddress.ip_network((found, 64), strict=False))
