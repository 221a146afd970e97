"""Slack: an incoming webhook gets blocks, with the links as buttons (docs.slack.dev, "Sending messages using incoming webhooks").

A run's words are plain text in them: nothing in them mentions a person or a channel, or becomes a link."""

import msgspec

from outlast.notifications.channels import address
from outlast.notifications.message import Message
from outlast.notifications.post import Unsent, post
from outlast.notifications.timing import Timing

HEADER_CHARS_MAX = 150
SECTION_CHARS_MAX = 3000


class Slack:
    """An incoming webhook. Its address is a password, so the setting best names a file."""

    name = "slack"

    def __init__(self, webhook: str) -> None:
        self._webhook = webhook

    def send(self, message: Message) -> str:
        """Post it. Raises Unsent."""
        url = address.url_of(self._webhook, "the Slack webhook")
        body = msgspec.json.encode(document(message))
        headers = {"Content-Type": "application/json; charset=utf-8"}
        reply = post(url, body, headers, Timing.current().post_s).body.decode("utf-8", "replace").strip()
        if reply != "ok":
            raise Unsent(f"Slack answered {reply[:80]!r} instead of ok")
        return reply


def document(message: Message) -> dict[str, object]:
    """The message as Slack takes it. `text` is for its notifications, where blocks are not shown."""
    links = [(each.label, each.url) for each in message.buttons]
    links = links or ([("Open the page", message.click)] if message.click else [])
    blocks: list[dict[str, object]] = [
        {"type": "header", "text": _plain(message.title, HEADER_CHARS_MAX)},
        {"type": "section", "text": _plain(message.body, SECTION_CHARS_MAX)},
    ]
    if links:
        buttons = [
            {"type": "button", "text": _plain(label, 75), "url": url, "action_id": f"outlast-{at}"}
            for at, (label, url) in enumerate(links)
        ]
        blocks.append({"type": "actions", "elements": buttons})
    return {"text": _escaped(f"{message.title}: {message.text}"), "blocks": blocks, "unfurl_links": False}


def _plain(text: str, chars_max: int) -> dict[str, object]:
    cut = text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"
    return {"type": "plain_text", "text": cut, "emoji": False}


def _escaped(text: str) -> str:
    """The three signs with which Slack's own syntax begins."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
