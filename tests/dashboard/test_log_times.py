"""The lines of a log have moments: of the right day, by the zone of whoever wrote them."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, strategies as some

from outlast.dashboard.overview import log_times
from outlast.supervisor.output import log_reader
from outlast.supervisor.output.log import Log
from outlast.supervisor.output.log_reader import Span

BEGUN = datetime(2026, 3, 28, 22, 0, 3, tzinfo=UTC)


@contextmanager
def in_zone(name: str) -> Iterator[None]:
    """This process has its clock there."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"])
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    with in_zone(request.param):
        yield request.param


def test_what_a_log_of_ours_says_is_known_to_the_moment(tmp_path: Path, zone: str) -> None:
    wanted = [
        BEGUN + timedelta(hours=hours) for hours in (0, 0.5, 3, 3.1, 20, 31)
    ]  # over a change of the clock
    log = Log(tmp_path, 1, BEGUN)
    for at in wanted[1:]:
        log.note("x", at)
    log.close(wanted[-1])
    span = log_reader.span(tmp_path, 1)
    assert span.begun == BEGUN
    written = Span(span.begun, wanted[-1])
    lines = [log_reader.parsed(line) for line in log_reader.tail(tmp_path, 1, 1 << 20)[0]]
    assert log_times.moments([line.at for line in lines], written) == [*wanted, wanted[-1]], (
        "and the end of it"
    )


@given(some.lists(some.integers(0, 86_000), min_size=1, max_size=40), some.integers(-12, 14))
def test_moments_are_in_order_and_say_the_same_time_of_day(gaps: list[int], hours: int) -> None:
    there = timezone(timedelta(hours=hours))
    at, wanted = BEGUN.astimezone(there), list[datetime]()
    for gap in gaps:
        at += timedelta(seconds=gap)
        wanted.append(at)
    span = Span(BEGUN.astimezone(there), wanted[-1] + timedelta(seconds=1))
    found = log_times.moments([f"{each:%H:%M:%S}.0" for each in wanted], span)
    with in_zone("Pacific/Marquesas"):  # half an hour beside all of these
        assert log_times.moments([f"{each:%H:%M:%S}.0" for each in wanted], span) == wanted
    assert [f"{each:%H:%M:%S}" for each in found if each] == [f"{each:%H:%M:%S}" for each in wanted]


@pytest.mark.parametrize("stamp", ["", "99:99:99.9", "noon"])
def test_what_is_no_time_has_no_moment(stamp: str) -> None:
    assert log_times.moments([stamp, "22:00:04.0"], Span(BEGUN, BEGUN + timedelta(seconds=9)))[0] is None


def test_without_the_first_line_nothing_is_said(tmp_path: Path) -> None:
    assert log_reader.span(tmp_path, 1) == Span()
    (tmp_path / "attempt-1.log").write_text("22:00:03.0 out| attempt 1, begun 2026-03-28 22:00:03 +0000\n")
    assert log_reader.span(tmp_path, 1).begun is None, "the agent said that"
    assert log_times.moments(["22:00:03.0"], log_reader.span(tmp_path, 1)) == [None]
