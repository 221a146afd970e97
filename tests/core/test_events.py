"""What is on disk: every event survives the round trip, and what was written once is read for ever."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from outlast.core import events as ev
from outlast.core.recovery import effect_key
from outlast.core.values import Contract, digest
from outlast.errors import StoreTooNew
from tests.core.samples import ALL, AT, CLASSES, histories
from tests.support import sweeps

GOLDEN = Path(__file__).with_name("golden") / "events.jsonl"


def golden() -> list[bytes]:
    return GOLDEN.read_bytes().splitlines()


def test_there_is_a_sample_of_every_event_with_every_field_set() -> None:
    assert {type(event) for event in ALL} == set(CLASSES)
    for event in ALL:
        plain = msgspec.json.decode(ev.encode(event))
        missing = set(type(event).__struct_encode_fields__) - set(plain)
        assert not missing, f"{type(event).__name__} leaves {missing} at the default"


@pytest.mark.parametrize("event", ALL, ids=ev.tag_of)
def test_every_event_survives_the_round_trip(event: ev.AnyEvent) -> None:
    assert ev.encode(ev.decode(ev.encode(event))) == ev.encode(event)
    assert type(ev.decode(ev.encode(event))) is type(event)


@settings(max_examples=sweeps.examples(50))
@given(journal=histories(5))
def test_any_event_survives_the_round_trip(journal: list[ev.AnyEvent]) -> None:
    for event in journal:
        assert ev.encode(ev.decode(ev.encode(event))) == ev.encode(event)


@pytest.mark.parametrize("event", ALL, ids=ev.tag_of)
def test_the_tag_comes_first_and_defaults_are_not_written(event: ev.AnyEvent) -> None:
    assert ev.encode(event).startswith(b'{"t":"%s",' % ev.tag_of(event).encode())
    least = {"at": AT} | {
        field.name: getattr(event, field.name)
        for field in msgspec.structs.fields(type(event))
        if field.required
    }
    assert set(msgspec.json.decode(ev.encode(type(event)(**least)))) == set(least) | {"t"}


@pytest.mark.parametrize(
    "data",
    [
        b'{"t":"telepathy","at":"2026-11-15T12:00:00Z"}',
        b'{"t":"woken"}',
        b'{"at":"2026-11-15T12:00:00Z"}',
        b"{",
        b"",
        b"[]",
    ],
    ids=["unknown tag", "missing field", "no tag", "cut off", "empty", "no object"],
)
def test_what_cannot_be_read_was_written_by_a_newer_version(data: bytes) -> None:
    with pytest.raises(StoreTooNew) as raised:
        ev.decode(data)
    assert "upgrade" in raised.value.hint


@pytest.mark.parametrize("event", ALL, ids=ev.tag_of)
def test_an_unknown_field_is_skipped(event: ev.AnyEvent) -> None:
    plain: dict[str, Any] = msgspec.json.decode(ev.encode(event))
    newer = msgspec.json.encode({**plain, "since_version_9": {"x": [1]}})
    assert ev.encode(ev.decode(newer)) == ev.encode(event)


def test_a_wider_meaning_of_a_known_field_is_not_guessed_at() -> None:
    with pytest.raises(StoreTooNew):
        ev.decode(b'{"t":"effect_settled","at":"2026-11-15T12:00:00Z","beat":1,"n":1,"finding":"maybe"}')


def test_there_is_a_frozen_line_of_every_tag() -> None:
    """A new event adds its line (`print(ev.encode(sample))`); a line is never changed."""
    tags = [msgspec.json.decode(line)["t"] for line in golden()]
    assert tags == sorted(set(tags), key=tags.index)
    assert set(tags) == {ev.tag_of(event) for event in ALL}


@pytest.mark.parametrize("line", golden(), ids=lambda line: msgspec.json.decode(line)["t"])
def test_frozen_lines_are_read_for_ever_with_every_value(line: bytes) -> None:
    event = ev.decode(line)
    again = msgspec.json.decode(ev.encode(event))
    for name, value in msgspec.json.decode(line).items():
        assert again[name] == value


def test_times_are_utc_aware() -> None:
    for event in ALL:
        back = ev.decode(ev.encode(event))
        assert back.at == AT
        assert back.at.utcoffset() is not None


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        (("abcdefghijkm", 1, "comment", 1), "ol1_x3362jytacrpuxiobafqcyheov5svmju"),
        (("abcdefghijkm", 1, "comment", 2), "ol1_irmanzy2gf44qv5rwrwmlc2jpesdb3rv"),
        (("abcdefghijkm", 140, "git push origin ä", 1), "ol1_qev7jptt74ehkpu4wx5itpgoclitezat"),
    ],
)
def test_keys_are_frozen(parts: tuple[str, int, str, int], key: str) -> None:
    """The far side remembers them: another value for the same act would be a second act."""
    assert effect_key(*parts) == key


def test_keys_differ_wherever_their_parts_differ() -> None:
    parts = [
        ("r", 1, "a", 1),
        ("r", 11, "a", 1),
        ("r", 1, "1a", 1),
        ("r1", 1, "a", 1),
        ("r", 1, "a", 11),
        ("r", 1, "a1", 1),
    ]
    assert len({effect_key(*each) for each in parts}) == len(parts)


def test_digests_are_frozen() -> None:
    assert digest(b"") == "cae66941d9efbd404e4d88758ea67670"
    assert Contract("g", ("c",), ("i",)).digest == "7211d2fbe6380a45dbd83399dcb9aff0"
