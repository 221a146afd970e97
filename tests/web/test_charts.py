import itertools
from datetime import timedelta
from typing import get_args
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as some

from outlast.core.events import Cause
from outlast.dashboard.documents import MomentKind, Progress
from outlast.web.charts import run_charts
from outlast.web.charts.axis import DEAD_SHARE_MAX, SHAPES, Axis, Mark, Tick, anchor, lane
from tests.web.sample_documents import BERLIN, NOW, ago, attempt, books, moment, timeline

HOSTILE = "</title><script>alert(1)</script>]]>\u202e\x00\x1b[31m" + "w" * 10_000


def drawn(given_: object, **more: object) -> ElementTree.Element:
    """A drawing as XML, which is stricter than a browser."""
    return ElementTree.fromstring(str(given_))


# -- time from left to right -------------------------------------------------------------------------------------------


@given(
    some.lists(some.integers(0, 1_000_000), min_size=2, max_size=24, unique=True),
    some.lists(some.integers(-10, 1_000_010), min_size=2, max_size=20),
)
def test_a_later_moment_is_never_drawn_before_an_earlier_one(borders: list[int], moments: list[int]) -> None:
    borders.sort()
    at = [NOW + timedelta(seconds=each) for each in borders]
    dead = [(at[index], at[index + 1]) for index in range(1, len(at) - 1, 2)]
    axis = Axis(at[0], at[-1], dead)
    places = [axis.pct(NOW + timedelta(seconds=each)) for each in sorted(moments)]
    assert places == sorted(places)
    assert all(0 <= place <= 100.0001 for place in places)
    assert axis.pct(at[0]) == 0
    assert axis.pct(at[-1]) == pytest.approx(100)
    asleep = sum(axis.pct(ends) - axis.pct(begins) for begins, ends in dead)
    assert asleep <= DEAD_SHARE_MAX * 100 + 0.001 or not axis.shortened


def test_ten_minutes_of_work_are_seen_beside_three_days_of_waiting() -> None:
    work, wait = timedelta(minutes=10), timedelta(days=3)
    ends = NOW + work + wait + work
    axis = Axis(NOW, ends, [(NOW + work, NOW + work + wait)])
    assert axis.shortened
    assert axis.pct(NOW + work) == pytest.approx(32.5)
    assert axis.pct(ends) - axis.pct(ends - work) == pytest.approx(32.5)


@given(some.integers(1, 40_000_000), some.integers(0, 86_400))
def test_labels_are_round_times_of_the_readers_zone_and_do_not_touch(seconds: int, start: int) -> None:
    since = NOW + timedelta(seconds=start)
    axis = Axis(since, since + timedelta(seconds=seconds))
    ticks = axis.ticks(BERLIN)
    assert 1 <= len(ticks) <= 12
    assert all(after.pct - before.pct >= 9 for before, after in itertools.pairwise(ticks))
    narrow = [tick for tick in ticks if not tick.wide]
    assert all(after.pct - before.pct >= 25 for before, after in itertools.pairwise(narrow))
    for width_px, shown in ((270.0, narrow), (660.0, ticks), (860.0, ticks)):
        assert all(
            ends_px(before, width_px)[1] <= ends_px(after, width_px)[0]
            for before, after in itertools.pairwise(shown)
        ), "no label lies on another"


def ends_px(tick: Tick, width_px: float) -> tuple[float, float]:
    """From where to where a label is drawn."""
    at_px, long_px = tick.pct * width_px / 100, max(len(tick.time), len(tick.date)) * 6.6
    begins_px = at_px - long_px * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor(tick.pct)]
    return begins_px, begins_px + long_px


def test_midnight_is_that_of_the_reader() -> None:
    ticks = Axis(NOW - timedelta(hours=10), NOW + timedelta(hours=10)).ticks(BERLIN)
    assert [tick.time for tick in ticks] == ["21:00", "00:00", "03:00", "06:00", "09:00", "12:00"]
    assert [tick.date for tick in ticks] == ["15 Nov", "16 Nov", "", "", "", ""]


def test_marks_that_would_lie_on_each_other_stand_together_as_the_gravest_with_their_number() -> None:
    axis = Axis(ago(60), ago(0))
    marks = [Mark(ago(30), "save", "calm", "save", f"save {n}") for n in range(9)]
    marks.append(Mark(ago(30), "doubt", "bad", "in doubt", "effect 4.1"))
    told = "".join(lane(axis, marks, 10, ("doubt", "save")))
    assert told.count("<use") == 1
    assert "#s-doubt" in told
    assert ">10<" in told
    assert "effect 4.1" in told
    assert "10, the last of them" in told


# -- how attempts end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", get_args(Cause))
def test_every_end_has_a_shape_and_a_word(cause: str) -> None:
    shape, _, word = run_charts.ending(cause, "")
    assert shape in SHAPES
    assert word
    assert "_" not in word


@pytest.mark.parametrize("kind", get_args(MomentKind))
def test_every_moment_has_a_shape_and_a_word(kind: str) -> None:
    shape, _, word = run_charts.moment_look(kind)
    assert shape in SHAPES
    assert word
    assert shape != "dot"


@pytest.mark.parametrize(
    ("cause", "evidence", "word"),
    [
        ("signal", "killed (SIGKILL), sender unknown", "kill -9"),
        ("signal", "SIGTERM from systemd (pid 1)", "SIGTERM"),
        ("crash", "pid 7 on owl is gone and recorded no end", "killed without warning (no exit recorded)"),
        ("crash", "EffectInDoubt: nobody knows", "in doubt"),
        ("crash", "ValueError: no", "crashed"),
        ("host", "pid 7 on owl ran before the last boot", "host went down"),
        ("budget", "", "budget"),
        (None, "", "recorded no end"),
    ],
)  # fmt: skip
def test_a_kill_a_signal_and_a_crash_are_told_apart(cause: str | None, evidence: str, word: str) -> None:
    assert run_charts.ending(cause, evidence)[2] == word


def test_an_attempt_that_died_without_a_word_is_drawn_to_the_last_thing_it_did() -> None:
    evidence = "pid 7 on owl is gone and recorded no end"
    given_ = timeline(
        attempts=(attempt(60, 20, "crash", evidence), attempt(20, 5, "done")), attempts_total=2,
        beats=(Progress(at=ago(50), beat=1), Progress(at=ago(10), beat=2)),
    )  # fmt: skip
    first, second = run_charts.lived(given_, "done")
    assert first.until == ago(50)
    assert second.until == ago(5)


def test_an_attempt_that_lives_is_drawn_to_the_end_and_has_none() -> None:
    (only,) = run_charts.lived(timeline(attempts=(attempt(60, None),)), "running")
    assert (only.shape, only.word, only.until) == ("dot", "runs", ago(5))


# -- what happened when ----------------------------------------------------------------------------------------------------


def test_the_time_between_two_attempts_is_hatched_and_told() -> None:
    given_ = timeline(
        attempts=(attempt(60, 50, "signal", "killed (SIGKILL)"), attempt(15, 5, "done")), attempts_total=2
    )
    told = str(run_charts.timeline(given_, "done", BERLIN, None))
    assert "nothing ran for 35 min" in told
    assert told.count('fill="url(#s-hatch)"') == 2
    assert "drawn shorter" in told
    whole = str(run_charts.timeline(timeline(), "interrupted", BERLIN, None))
    assert "nothing ran" not in whole


def test_a_drawing_is_an_image_with_a_name_and_its_words_are_escaped() -> None:
    given_ = timeline(
        attempts=(attempt(60, 5, "crash", HOSTILE),),
        moments=tuple(moment(30, kind, HOSTILE, by=HOSTILE) for kind in get_args(MomentKind)),
    )
    root = drawn(run_charts.timeline(given_, "failed", BERLIN, 8))
    image = root.find("svg")
    assert image is not None
    assert image.get("role") == "img"
    assert image.findtext("title") == "Timeline"
    assert "3 beats" in (image.findtext("desc") or "")
    assert {each.tag for each in root.iter()} <= {
        "figure", "svg", "title", "desc", "defs", "pattern", "path", "line", "rect", "text", "use", "figcaption", "ul", "li",
    }  # fmt: skip
    assert not any(name == "style" or name.startswith("on") for each in root.iter() for name in each.attrib)


def test_each_end_is_told_by_its_word_where_there_is_room() -> None:
    given_ = timeline(
        attempts=(attempt(60, 30, "signal", "killed (SIGKILL)"), attempt(30, 5, "budget")), attempts_total=2
    )
    texts = [each.text for each in drawn(run_charts.timeline(given_, "interrupted", BERLIN, 8)).iter("text")]
    assert "attempt 1: kill -9" in texts
    assert "attempt 2: budget" in texts
    assert "3 beats of 8 planned" in texts


def test_a_run_of_very_many_attempts_is_drawn_in_bounds() -> None:
    many = tuple(attempt(1000 - 5 * n, 996 - 5 * n, "crash", HOSTILE) for n in range(200))
    marks = tuple(moment(1000 - 5 * n, "save", HOSTILE) for n in range(200))
    given_ = timeline(since=ago(1000), until=ago(0), attempts=many, attempts_total=5_000, moments=marks)
    told = str(run_charts.timeline(given_, "failed", BERLIN, None))
    assert len(told) < 90_000
    assert "attempt 5000" in told
    assert "attempt 4801" in told


def test_what_was_before_the_attempts_that_are_known_is_not_called_dead() -> None:
    given_ = timeline(attempts=(attempt(10, 5, "done"),), attempts_total=300)
    assert "nothing ran" not in str(run_charts.timeline(given_, "done", BERLIN, None))


# -- what is left of the budget ----------------------------------------------------------------------------------------------


def test_warnings_the_wrap_up_saves_limits_and_attempts_are_on_the_burn_down() -> None:
    told = str(run_charts.burndown(books(), BERLIN))
    root = drawn(told)
    texts = [each.text for each in root.iter("text")]
    assert {"warning at 50 %", "warning at 90 %", "wrap-up", "100k", "50k", "attempt 1: SIGTERM"} <= set(
        texts
    )
    shapes = {each.get("href") for each in root.iter("use")}
    assert shapes == {"#s-warning", "#s-flag", "#s-pen", "#s-save", "#s-stop"}
    assert "limit: 100k tokens by ada" in told
    assert "limit: 50k" not in told
    assert root.findtext("svg/title") == "Tokens left over time"


def test_the_curve_falls_from_the_limit_to_what_is_left() -> None:
    curve = next(
        each.get("d") or ""
        for each in drawn(run_charts.burndown(books(), BERLIN)).iter("path")
        if each.get("class") == "d-curve"
    )
    heights = [float(point.split()[1]) for point in curve[1:].split("L")]
    assert heights[0] == 0.0
    assert heights[-1] == 55.0
    assert heights == sorted(heights)


def test_without_a_limit_the_drawing_shows_what_was_spent_and_without_spend_there_is_none() -> None:
    given_ = books()
    chart = given_.chart
    points = tuple(type(point)(point.at, point.spent, None) for point in chart.points)
    free = books(chart=type(chart)(unit="tokens", warn_at=(50,), points=points))
    assert run_charts.burndown_title(free) == "Tokens spent over time"
    assert "warning at" not in str(run_charts.burndown(free, BERLIN))
    nothing = tuple(type(point)(point.at, 0, None) for point in chart.points)
    assert (
        run_charts.burndown(books(chart=type(chart)(unit="tokens", warn_at=(), points=nothing)), BERLIN)
        is None
    )
