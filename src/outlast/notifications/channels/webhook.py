"""A webhook: each notice as one JSON document, signed where a secret is set."""

import hashlib
import hmac
import time

import msgspec

from outlast.notifications.channels import address
from outlast.notifications.message import Message
from outlast.notifications.post import post
from outlast.notifications.timing import Timing

SIGNATURE = "X-Outlast-Signature"
TIMESTAMP = "X-Outlast-Timestamp"


class Webhook:
    """An address that takes JSON. `secret` names a file: with it each request is signed."""

    name = "webhook"

    def __init__(self, url: str, secret: str = "") -> None:
        self._url, self._secret = url, secret

    def send(self, message: Message) -> str:
        """Post it. Raises Unsent."""
        url = address.url_of(self._url, "the webhook")
        body = msgspec.json.encode(message.document)
        headers = {"Content-Type": "application/json; charset=utf-8"}
        if self._secret:
            secret, at = address.held_in(self._secret, "the webhook's secret"), str(int(time.time()))
            headers |= {TIMESTAMP: at, SIGNATURE: f"sha256={signature(secret, at, body)}"}
        return f"HTTP {post(url, body, headers, Timing.current().post_s).status}"


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """HMAC-SHA256 over the time and the body, as the receiver works it out again."""
    return hmac.digest(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hex()
