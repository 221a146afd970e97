"""Decoding by type, from any thread: everything in the package that turns bytes or plain values into a type does it here.
What the types are is not here, nor are encoders: those need no description of a type.
"""

import os
import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

# msgspec describes a Struct at its first use, and other threads find the description half made: two threads that first
# decode a type at once end their process by SIGSEGV. So we describe a type once, under this lock, by making a decoder of
# it: that describes all types inside too. Later uses find the decoder in a dict and take no lock.
# The lock is reentrant because a signal handler may decode in the thread that describes.
_describing = threading.RLock()

_of_json: dict[Any, "msgspec.json.Decoder[Any]"] = {}
_of_msgpack: dict[Any, "msgspec.msgpack.Decoder[Any]"] = {}

# A child forked while another thread describes would have half a description, and a lock that nobody releases.
os.register_at_fork(
    before=_describing.acquire, after_in_parent=_describing.release, after_in_child=_describing.release
)


@overload
def of_json(wanted: type[T]) -> "msgspec.json.Decoder[T]": ...
@overload
def of_json(wanted: Any) -> "msgspec.json.Decoder[Any]": ...
def of_json(wanted: Any) -> "msgspec.json.Decoder[Any]":
    """The decoder of JSON into this type, made once in a process."""
    found = _of_json.get(wanted)
    if found is None:
        with _describing:
            found = _of_json.setdefault(wanted, msgspec.json.Decoder(wanted))
    return found


@overload
def of_msgpack(wanted: type[T]) -> "msgspec.msgpack.Decoder[T]": ...
@overload
def of_msgpack(wanted: Any) -> "msgspec.msgpack.Decoder[Any]": ...
def of_msgpack(wanted: Any) -> "msgspec.msgpack.Decoder[Any]":
    """The decoder of MessagePack into this type, made once in a process."""
    found = _of_msgpack.get(wanted)
    if found is None:
        with _describing:
            found = _of_msgpack.setdefault(wanted, msgspec.msgpack.Decoder(wanted))
    return found


@overload
def decode(data: bytes | bytearray | memoryview | msgspec.Raw | str, wanted: type[T]) -> T: ...
@overload
def decode(data: bytes | bytearray | memoryview | msgspec.Raw | str, wanted: Any) -> Any: ...
def decode(data: bytes | bytearray | memoryview | msgspec.Raw | str, wanted: Any) -> Any:
    """JSON as this type. Raises as `msgspec.json.decode` does."""
    return of_json(wanted).decode(data)


@overload
def unpack(data: bytes, wanted: type[T]) -> T: ...
@overload
def unpack(data: bytes, wanted: Any) -> Any: ...
def unpack(data: bytes, wanted: Any) -> Any:
    """MessagePack as this type. Raises as `msgspec.msgpack.decode` does."""
    return of_msgpack(wanted).decode(data)


@overload
def convert(value: object, wanted: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(value: object, wanted: Any, *, strict: bool = True) -> Any: ...
def convert(value: object, wanted: Any, *, strict: bool = True) -> Any:
    """A value of dicts, lists and scalars as this type. Raises as `msgspec.convert` does."""
    # Of equal generic types each has a description of its own; the decoder knows which of them is described.
    return msgspec.convert(value, of_msgpack(wanted).type, strict=strict)
