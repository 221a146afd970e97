"""Links that act by a press: a token for one act on one run, about one question, until a time. It is no login for anything.

A token is signed, not stored. That it works once is the page's part (`dashboard.actions.once`, by `Pressable.nonce`)."""

import base64
import binascii
import hashlib
import hmac
import secrets
from datetime import UTC, datetime, timedelta

import msgspec

from outlast import decoders
from outlast.notifications import private_files
from outlast.notifications.timing import Timing
from outlast.store.local import Local

PATH = "press"
OTHER = "or"  # the field of an address that names the other act, as reject beside approve
TOKEN_CHARS_MAX = 600
_SIGNATURE_BYTES = 32
_FORM = b"outlast link 1\n"  # signed with it: the secret is used for nothing else that looks alike


class Pressable(msgspec.Struct, frozen=True, array_like=True):
    """What a token is good for. `nonce` tells two tokens for the same act apart; `until` is in seconds of the epoch."""

    act: str
    run: str
    subject: str
    until: int
    nonce: str


class BadLink(Exception):
    """No act can be done by this: it is not ours, was changed, or is too old. The words say which, and no more."""


class Links:
    """Makes and reads tokens for one store's runs, as this host's state folder signs them."""

    def __init__(self, local: Local, timing: Timing | None = None) -> None:
        self._local, self._timing = local, timing or Timing.current()

    def token(self, act: str, run: str, subject: str, now: datetime, until: datetime | None = None) -> str:
        """A new token for this one act, good for two days at most. Raises UsageError and OSError where there is no secret."""
        last = now + timedelta(seconds=self._timing.link_s)
        ends = min(last, until) if until is not None else last
        made = Pressable(act, run, subject, int(ends.timestamp()), secrets.token_urlsafe(9))
        body = msgspec.json.encode(made)
        return _text(self._signature(body) + body)

    def read(self, token: str, now: datetime) -> Pressable:
        """What a token is good for. Raises BadLink, and UsageError and OSError where there is no secret."""
        if not 0 < len(token) <= TOKEN_CHARS_MAX:
            raise BadLink("this is not a link of this page")
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise BadLink("this is not a link of this page") from None
        signature, body = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(body)):
            raise BadLink("this is not a link of this page")
        try:
            found = decoders.decode(body, Pressable)
        except msgspec.MsgspecError:
            raise BadLink("this link is of another version of outlast") from None
        if now >= datetime.fromtimestamp(found.until, UTC):
            raise BadLink("this link has expired")
        return found

    def _signature(self, body: bytes) -> bytes:
        return hmac.digest(private_files.secret(self._local.link_secret), _FORM + body, hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
