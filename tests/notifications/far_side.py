"""Servers on this machine that speak the documented form of ntfy, Slack and a webhook, and refuse what is not so.

ntfy: docs.ntfy.sh/publish. Slack: docs.slack.dev, "Sending messages using incoming webhooks" and the reference of its blocks."""

import base64
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENCODED = re.compile(r"=\?UTF-8\?B\?([A-Za-z0-9+/=]+)\?=")
TOPIC = re.compile(r"/[-_A-Za-z0-9]{1,64}")
PRIORITIES = {"1", "2", "3", "4", "5", "min", "low", "default", "high", "max", "urgent"}
URL = re.compile(r"https?://[!-~]+")


@dataclass
class Came:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answered = tuple[int, str, dict[str, str]]
Speaks = Callable[[Came], Answered]


@dataclass
class ChannelServer:
    """A server that keeps what came. `first` answers before the rest, one after the other."""

    speaks: Speaks
    port: int = 0
    came: list[Came] = field(default_factory=list)
    first: list[Speaks] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, came: Came) -> Answered:
        self.came.append(came)
        return (self.first.pop(0) if self.first else self.speaks)(came)


@contextlib.contextmanager
def far_side(speaks: Speaks) -> Iterator[ChannelServer]:
    made = ChannelServer(speaks)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, text, more = made.answer(Came(self.command, self.path, headers, body))
            with contextlib.suppress(OSError):
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

        do_GET = do_POST  # noqa: N815 (as http.server names it)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


# -- ntfy --------------------------------------------------------------------------------------------------------------


def decoded(value: str) -> str:
    """A header as ntfy reads it: RFC 2047 or plain."""
    return ENCODED.sub(lambda found: base64.b64decode(found[1]).decode(), value)


def ntfy(came: Came) -> Answered:
    """A message is published; a malformed one gets ntfy's error document."""

    def bad(code: int, words: str) -> Answered:
        return 400, json.dumps({"code": code, "http": 400, "error": words}), {}

    if came.method not in ("POST", "PUT") or TOPIC.fullmatch(came.path) is None:
        return 404, json.dumps({"code": 40401, "http": 404, "error": "page not found"}), {}
    headers = came.headers
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        return bad(40000, "invalid request: a header is no plain text")
    if headers.get("priority", "3") not in PRIORITIES:
        return bad(40007, "invalid request: priority invalid")
    if "click" in headers and URL.fullmatch(headers["click"]) is None:
        return bad(40000, "invalid request: click is no URL")
    try:
        actions = json.loads(decoded(headers.get("actions", "[]")))
    except ValueError:
        return bad(40018, "invalid request: actions invalid")
    fine = len(actions) <= 3 and all(
        each["action"] in ("view", "http", "broadcast") and each["label"] and URL.fullmatch(each["url"])
        for each in actions
    )
    if not fine or len(came.body) > 4096:
        return bad(40018, "invalid request: actions invalid, or the message is too long")
    message = {
        "id": "hwQ2YpKdmg",
        "time": 1,
        "event": "message",
        "topic": came.path[1:],
        "message": came.body.decode(),
    }
    return 200, json.dumps(message), {"Content-Type": "application/json"}


# -- Slack -------------------------------------------------------------------------------------------------------------


def slack(came: Came) -> Answered:
    """`ok`, or the word with which Slack refuses it."""
    if re.fullmatch(r"/services/T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]+", came.path) is None:
        return 404, "no_service", {}
    try:
        document = json.loads(came.body)
    except ValueError:
        return 400, "invalid_payload", {}
    if not came.headers.get("content-type", "").startswith("application/json") or not document.get("text"):
        return 400, "no_text", {}
    return (200, "ok", {}) if all(map(_is_block, document["blocks"])) else (400, "invalid_blocks", {})


def _is_block(block: dict[str, Any]) -> bool:
    match block["type"]:
        case "header":
            return _is_text(block["text"], 150)
        case "section":
            return _is_text(block["text"], 3000)
        case "actions":
            elements = block["elements"]
            named = {each["action_id"] for each in elements}
            return 0 < len(elements) <= 25 and len(named) == len(elements) and all(map(_is_button, elements))
        case _:
            return False


def _is_button(element: dict[str, Any]) -> bool:
    fits = URL.fullmatch(element["url"]) is not None and len(element["url"]) <= 3000
    return element["type"] == "button" and _is_text(element["text"], 75) and fits


def _is_text(text: dict[str, Any], chars_max: int) -> bool:
    return text["type"] == "plain_text" and 0 < len(text["text"]) <= chars_max


def anything(came: Came) -> Answered:
    """A webhook that takes all."""
    return 200, "", {}
