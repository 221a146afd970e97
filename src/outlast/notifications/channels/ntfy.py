"""ntfy: a POST to the topic, whose headers are title, priority, tag, link and buttons (docs.ntfy.sh/publish)."""

import base64

import msgspec

from outlast.notifications.channels import address
from outlast.notifications.message import Message
from outlast.notifications.post import post
from outlast.notifications.timing import Timing

BYTES_MAX = 4000  # a longer message becomes an attachment


class Ntfy:
    """A topic on an ntfy server. `token` names a file with an access token, where the topic asks for one."""

    name = "ntfy"

    def __init__(self, topic: str, token: str = "") -> None:
        self._topic, self._token = topic, token

    def send(self, message: Message) -> str:
        """Publish it. Raises Unsent."""
        url = address.url_of(self._topic, "the ntfy topic")
        headers = {
            "Content-Type": "text/plain; charset=utf-8",
            "Title": _header(message.title),
            "Priority": str(message.priority),
            "Tags": message.tag,
        }
        if message.click:
            headers["Click"] = message.click
        if message.buttons:
            actions = [
                {"action": "view", "label": each.label, "url": each.url, "clear": True}
                for each in message.buttons
            ]
            headers["Actions"] = _header(msgspec.json.encode(actions).decode())
        if self._token:
            headers["Authorization"] = f"Bearer {address.held_in(self._token, 'the ntfy token')}"
        body = message.body.encode("utf-8", "replace")[:BYTES_MAX].decode("utf-8", "ignore").encode()
        return f"HTTP {post(url, body, headers, Timing.current().post_s).status}"


def _header(text: str) -> str:
    """A value for a header: what is not ASCII as RFC 2047 has it, which ntfy reads."""
    if text.isascii() and text.isprintable():
        return text
    return f"=?UTF-8?B?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="
