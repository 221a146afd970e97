"""Lines of hostile files: never a crash, never code run, and a line that can be saved is not lost."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from outlast.agents import reading

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Named(msgspec.Struct):
    name: str = ""
    rest: msgspec.Raw = msgspec.Raw(b"")


def test_a_line_is_an_object_or_nothing() -> None:
    assert reading.record(b'{"a": 1}') == {"a": 1}
    for line in (b"", b"[]", b"1", b'"a"', b"{", b'{"a"', b"\x00", b"\xff\xfe", b"null", b"{'a': 1}"):
        assert reading.record(line) is None


def test_a_line_with_half_a_character_or_bytes_that_are_no_text_still_counts() -> None:
    assert reading.record(rb'{"a": "x\ud83d", "b": 2}') == {"a": "x�", "b": 2}
    assert reading.record(b'{"a": "\xff", "b": 2}') == {"a": "�", "b": 2}
    read = reading.decode(rb'{"name": "x\ud83d", "rest": {"k": "\ud83d"}}', msgspec.json.Decoder(Named))
    assert read is not None
    assert (read.name, bytes(read.rest)) == ("x�", '{"k":"�"}'.encode())


def test_a_line_too_deep_or_too_long_is_nothing() -> None:
    assert reading.record(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}") is None
    assert reading.record(b'{"a":' * 200_000) is None
    assert reading.record(b'{"a": "' + b"x" * reading.LINE_MAX_BYTES + b'"}') is None


def test_values_are_of_the_type_that_is_asked_for_or_empty() -> None:
    value = {"a": {"b": "text", "n": 3, "t": True, "l": [1]}, "f": 2.9, "neg": -4, "huge": 10**40}
    assert reading.text(value, "a", "b") == "text"
    assert (
        reading.text(value, "a", "n") == reading.text(value, "a", "b", "c") == reading.text(None, "a") == ""
    )
    assert [reading.number(value, *path) for path in (("a", "n"), ("f",), ("neg",), ("a", "t"), ("no",))] == [
        3,
        2,
        0,
        0,
        0,
    ]
    assert reading.number(value, "huge") == reading.NUMBER_MAX
    assert reading.flag(value, "a", "t")
    assert not reading.flag(value, "a", "n")
    assert reading.items(value, "a", "l") == [1]
    assert reading.inner(value, "a", "l") == {}


def test_lines_from_either_end() -> None:
    assert list(reading.lines(b"a\nb\n\nc")) == [b"a", b"b", b"", b"c"]
    assert list(reading.backwards(b"a\nb\nc\n", 2)) == [b"c", b"b"]
    assert list(reading.backwards(b"", 2)) == []


def test_json_inside_a_text_is_read_and_a_mere_text_stays_one() -> None:
    assert bytes(reading.parsed('{"cmd": "ls"}')) == b'{"cmd":"ls"}'
    assert bytes(reading.parsed("rm -rf /")) == b'"rm -rf /"'


@given(st.binary(max_size=400))
def test_no_bytes_make_it_fail(line: bytes) -> None:
    assert reading.record(line) is None or isinstance(reading.record(line), dict)
    reading.decode(line, msgspec.json.Decoder(Named))


@given(JSON)
def test_every_object_is_read_as_it_is_and_can_be_written_again(value: object) -> None:
    read = reading.record(json.dumps({"v": value}).encode())
    assert read is not None
    assert reading.record(b'{"v":' + bytes(reading.raw(read["v"])) + b"}") is not None
    for get in (reading.text, reading.number, reading.flag, reading.inner, reading.items):
        get(read, "v", "x")
        get(read, "v")
