"""Lines of hostile files: never a crash, never code run, and a line that can be saved is not lost."""

import json

import msgspec
from hypothesis import given, strategies as st

from outlast.agents.common import json_lines

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Named(msgspec.Struct):
    name: str = ""
    rest: msgspec.Raw = msgspec.Raw(b"")


def test_a_line_is_an_object_or_nothing() -> None:
    assert json_lines.record(b'{"a": 1}') == {"a": 1}
    for line in (b"", b"[]", b"1", b'"a"', b"{", b'{"a"', b"\x00", b"\xff\xfe", b"null", b"{'a': 1}"):
        assert json_lines.record(line) is None


def test_a_line_with_half_a_character_or_bytes_that_are_no_text_still_counts() -> None:
    assert json_lines.record(rb'{"a": "x\ud83d", "b": 2}') == {"a": "x�", "b": 2}
    assert json_lines.record(b'{"a": "\xff", "b": 2}') == {"a": "�", "b": 2}
    read = json_lines.decode(rb'{"name": "x\ud83d", "rest": {"k": "\ud83d"}}', msgspec.json.Decoder(Named))
    assert read is not None
    assert (read.name, bytes(read.rest)) == ("x�", '{"k":"�"}'.encode())


def test_a_line_too_deep_or_too_long_is_nothing() -> None:
    assert json_lines.record(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}") is None
    assert json_lines.record(b'{"a":' * 200_000) is None
    assert json_lines.record(b'{"a": "' + b"x" * json_lines.LINE_MAX_BYTES + b'"}') is None


def test_values_are_of_the_type_that_is_asked_for_or_empty() -> None:
    value = {"a": {"b": "text", "n": 3, "t": True, "l": [1]}, "f": 2.9, "neg": -4, "huge": 10**40}
    assert json_lines.text(value, "a", "b") == "text"
    assert (
        json_lines.text(value, "a", "n")
        == json_lines.text(value, "a", "b", "c")
        == json_lines.text(None, "a")
        == ""
    )
    assert [
        json_lines.number(value, *path) for path in (("a", "n"), ("f",), ("neg",), ("a", "t"), ("no",))
    ] == [
        3,
        2,
        0,
        0,
        0,
    ]
    assert json_lines.number(value, "huge") == json_lines.NUMBER_MAX
    assert json_lines.flag(value, "a", "t")
    assert not json_lines.flag(value, "a", "n")
    assert json_lines.items(value, "a", "l") == [1]
    assert json_lines.inner(value, "a", "l") == {}


def test_lines_from_either_end() -> None:
    assert list(json_lines.lines(b"a\nb\n\nc")) == [b"a", b"b", b"", b"c"]
    assert list(json_lines.backwards(b"a\nb\nc\n", 2)) == [b"c", b"b"]
    assert list(json_lines.backwards(b"", 2)) == []


def test_json_inside_a_text_is_read_and_a_mere_text_stays_one() -> None:
    assert bytes(json_lines.raw_from_text('{"cmd": "ls"}')) == b'{"cmd":"ls"}'
    assert bytes(json_lines.raw_from_text("rm -rf /")) == b'"rm -rf /"'


@given(st.binary(max_size=400))
def test_no_bytes_make_it_fail(line: bytes) -> None:
    assert json_lines.record(line) is None or isinstance(json_lines.record(line), dict)
    json_lines.decode(line, msgspec.json.Decoder(Named))


@given(JSON)
def test_every_object_is_read_as_it_is_and_can_be_written_again(value: object) -> None:
    read = json_lines.record(json.dumps({"v": value}).encode())
    assert read is not None
    assert json_lines.record(b'{"v":' + bytes(json_lines.raw(read["v"])) + b"}") is not None
    for get in (json_lines.text, json_lines.number, json_lines.flag, json_lines.inner, json_lines.items):
        get(read, "v", "x")
        get(read, "v")
