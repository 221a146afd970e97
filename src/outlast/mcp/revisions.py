"""The revisions of the protocol, and by which of them a request is answered.

Up to 2025-11-25 a client opens with `initialize`; from 2026-07-28 on each request names its revision in `_meta`. One process may meet both."""

from collections.abc import Mapping
from typing import Any

import msgspec

from outlast import decoders

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)
UNSUPPORTED_VERSION = -32022
META = "io.modelcontextprotocol/"
_REQUIRED = (f"{META}protocolVersion", f"{META}clientCapabilities")


class ProtocolError(Exception):
    """A request that cannot be answered, as JSON-RPC says so."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Revision(msgspec.Struct, frozen=True):
    """One revision, and what it has that others have not."""

    name: str
    by_request: bool = (
        False  # each request names it; no handshake, no ping, and results say that they are complete
    )
    has_structure: bool = True  # schemas of results, results as JSON, titles
    has_annotations: bool = True
    takes_batches: bool = False


REVISIONS = {
    each.name: each
    for each in (
        Revision("2024-11-05", has_structure=False, has_annotations=False),
        Revision("2025-03-26", has_structure=False, takes_batches=True),
        Revision("2025-06-18"),
        Revision("2025-11-25"),
        Revision("2026-07-28", by_request=True),
    )
}
SHAKEN = tuple(name for name, each in REVISIONS.items() if not each.by_request)  # opened with a handshake
NAMED = tuple(name for name, each in REVISIONS.items() if each.by_request)


def agreed(params: Mapping[str, msgspec.Raw]) -> Revision:
    """What a handshake agrees on: what the client asks for, or the newest that has handshakes. Raises ProtocolError."""
    version = _plain(params.get("protocolVersion"))
    if not isinstance(version, str):
        raise ProtocolError(INVALID_PARAMS, "initialize needs protocolVersion, a text")
    return REVISIONS[version if version in SHAKEN else SHAKEN[-1]]


def of_request(params: Mapping[str, msgspec.Raw], shaken: Revision | None) -> Revision:
    """The revision of one request: the one that it names, or the one of the handshake. Raises ProtocolError."""
    meta = _plain(params.get("_meta"))
    given = meta if isinstance(meta, dict) else {}
    if not any(name in given for name in _REQUIRED):
        if shaken is None:
            raise ProtocolError(
                INVALID_PARAMS,
                f"this request has no revision: begin with initialize, or give {' and '.join(_REQUIRED)} in params._meta",
            )
        return shaken
    missing = [name for name in _REQUIRED if name not in given]
    if missing:
        raise ProtocolError(INVALID_PARAMS, f"params._meta lacks {missing[0]}")
    version, abilities = given[_REQUIRED[0]], given[_REQUIRED[1]]
    if not isinstance(version, str) or not isinstance(abilities, dict):
        raise ProtocolError(INVALID_PARAMS, f"{_REQUIRED[0]} must be a text, {_REQUIRED[1]} an object")
    if version not in NAMED:
        supported: list[str] = [*NAMED, *reversed(SHAKEN)]
        raise ProtocolError(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": supported, "requested": version[:100]},
        )
    return REVISIONS[version]


def _plain(value: msgspec.Raw | None) -> Any:
    return None if value is None else decoders.decode(value, Any)
