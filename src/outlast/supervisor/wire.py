"""The supervisor's socket: versioned, length-prefixed JSON messages between hooks, shims and the supervisor.

A frame is four bytes of length, big-endian, and that many bytes of JSON. Anything malformed is refused, never guessed.
"""

from typing import Literal

import msgspec

from outlast.core.events import Finding, Policy
from outlast.errors import UsageError

VERSION = 1
FRAME_MAX_BYTES = 1 << 20


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of all messages."""

    version: int = VERSION
    attempt: str = ""


class Intent(Message, frozen=True, tag="intent"):
    """A call is about to happen; answered with a Verdict when that is durable."""

    call: str
    name: str
    signature: str = ""
    input: msgspec.Raw = msgspec.Raw(b"null")
    policy: Policy = "tell"


class Outcome(Message, frozen=True, tag="outcome"):
    """A call ended, or was found out about."""

    call: str
    finding: Finding
    result: msgspec.Raw = msgspec.Raw(b"null")


class Budget(Message, frozen=True, tag="budget"):
    """Ask what is left."""


class Note(Message, frozen=True, tag="note"):
    """Something to put on record: a stage, a memory ref, a text."""

    kind: Literal["stage", "remember", "text"]
    text: str


class Verdict(Message, frozen=True, tag="verdict"):
    """The answer: go on, or denied with the reason the agent is told."""

    allowed: bool
    reason: str = ""
    body: msgspec.Raw = msgspec.Raw(b"null")


AnyMessage = Intent | Outcome | Budget | Note | Verdict


def frame(message: AnyMessage) -> bytes:
    """A message as it goes over the socket."""
    body = msgspec.json.encode(message)
    if len(body) > FRAME_MAX_BYTES:
        raise UsageError(f"a message of {len(body):,} bytes is too large for the supervisor's socket")
    return len(body).to_bytes(4, "big") + body


def unframe(data: bytes) -> tuple[AnyMessage | None, bytes]:
    """The first whole message in the bytes received so far, and the rest; None while it is not whole."""
    if len(data) < 4:
        return None, data
    size = int.from_bytes(data[:4], "big")
    if size > FRAME_MAX_BYTES:
        raise UsageError(f"a frame of {size:,} bytes is too large")
    if len(data) < 4 + size:
        return None, data
    try:
        message: AnyMessage = msgspec.json.decode(data[4 : 4 + size], type=AnyMessage)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise UsageError(f"a message cannot be read: {error}") from error
    if message.version > VERSION:
        raise UsageError(f"a message of version {message.version} is newer than {VERSION}")
    return message, data[4 + size :]
