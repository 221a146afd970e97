"""What the pages load, and how it looks: few small files of ours, words for times and amounts, colours that can be read."""

import re
from datetime import UTC, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import msgspec
import pytest

from outlast.dashboard.timing import Timing
from outlast.web.html import assets, formats, layout
from outlast.web.html.icons import icon, sheet
from tests.web.sample_documents import NOW, SPENT, view

SCRIPT_MAX = 15 * 1024
PAIR = re.compile(r"--([\w-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\);")


# -- files -------------------------------------------------------------------------------------------------------------


def test_only_these_files_are_served_and_a_link_changes_with_its_file() -> None:
    assert {path.name for path in assets.FOLDER.iterdir()} == set(assets.TYPES)
    for name in assets.TYPES:
        assert re.fullmatch(rf"/static/{re.escape(name)}\?v=[0-9a-f]{{12}}", assets.link(name))
    for other in ("../frame.py", "", "app.js/", "/etc/passwd", "APP.JS"):
        with pytest.raises(KeyError):
            assets.read(other)


def test_the_script_is_small_and_builds_nothing_from_texts() -> None:
    script = assets.read("app.js").decode()
    assert len(script.encode()) <= SCRIPT_MAX
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "http:",
        "https:",
    ):
        assert word not in script, word


def test_the_styles_fetch_nothing() -> None:
    for name in ("style.css", "run.css"):
        text = assets.read(name).decode()
        for word in ("url(", "@import", "@font-face", "http"):
            assert word not in text, (name, word)


def test_a_page_carries_the_drawings_that_it_uses_and_no_others() -> None:
    page = icon("done") + icon("in_doubt") + icon("program_missing")
    drawn = sheet(page)
    assert re.findall(r'id="i-([a-z-]+)"', drawn) == ["done", "in-doubt", "search"]
    assert icon("<no such>") == ""
    assert sheet("<p>none</p>") == ""


# -- colours -----------------------------------------------------------------------------------------------------------


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_texts_and_signs_can_be_read_in_both_schemes(dark: bool) -> None:
    colours = {name: pair[dark] for name, *pair in PAIR.findall(assets.read("style.css").decode())}
    texts = ("fg", "dim", "faint", "accent", "good", "go", "warn", "bad", "mute")
    for text, ground in product(texts, ("bg", "panel", "hover", "raised")):
        assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for ground in ("accent", "bad"):
        assert _contrast(colours["on-accent"], colours[ground]) >= 4.5
    for drawn in (*(f"c{number}" for number in range(1, 10)), "field"):
        assert _contrast(colours[drawn], colours["panel"]) >= 3, drawn


# -- words -------------------------------------------------------------------------------------------------------------


def test_counts_are_told_in_three_digits() -> None:
    told = [
        formats.short(count) for count in (0, 999, 1_000, 1_234, 12_345, 124_000, 999_999, 3_050_000, 10**10)
    ]
    assert told == ["0", "999", "1k", "1.23k", "12.3k", "124k", "1M", "3.05M", "10G"]


def test_money_is_never_told_as_nothing_where_it_is_something() -> None:
    assert [formats.dollars(amount) for amount in (0, 1, 9_999, 10_000, 1_234_560_000)] == [
        "$0.00", "< $0.01", "< $0.01", "$0.01", "$1,235",
    ]  # fmt: skip
    free = msgspec.structs.replace(SPENT, cost_microusd=0, subscription=True)
    assert formats.cost(free) == "subscription"
    assert formats.cost(msgspec.structs.replace(free, subscription=False, unpriced=True)) == "unknown price"
    assert formats.cost(msgspec.structs.replace(SPENT, estimated=True)) == "≈ $0.04"


def test_ages_are_rough_and_spans_are_not() -> None:
    ages = [
        formats.age(NOW - timedelta(seconds=age), NOW)
        for age in (0, 9, 10, 59, 60, 3_599, 3_600, 172_799, 172_800)
    ]
    assert ages == [
        "just now",
        "just now",
        "10 s ago",
        "59 s ago",
        "1 min ago",
        "59 min ago",
        "1 h ago",
        "47 h ago",
        "2 d ago",
    ]
    assert formats.age(NOW + timedelta(hours=3), NOW) == "in 3 h"
    assert [formats.span(seconds) for seconds in (0, 59, 60, 3_600, 12_000, 90_000, 1_000_000)] == [
        "0 s", "59 s", "1 min", "1 h", "3 h 20 min", "1 d 1 h", "11 d",
    ]  # fmt: skip


def test_times_are_told_by_the_readers_clock() -> None:
    berlin, summer = ZoneInfo("Europe/Berlin"), datetime(2026, 7, 1, 22, 30, tzinfo=UTC)
    assert formats.clock(NOW, berlin, NOW) == "04:20", "known to the minute"
    assert formats.clock(NOW - timedelta(seconds=7), berlin, NOW) == "04:19:53"
    assert formats.clock(NOW + timedelta(seconds=3607), berlin, NOW) == "05:20", (
        "what is to come needs no seconds"
    )
    assert formats.clock(summer, berlin, NOW) == "2 Jul 00:30"
    assert formats.clock(summer.replace(year=2025), berlin, NOW) == "2 Jul 2025 00:30"
    assert formats.exact(summer, berlin) == "2026-07-02 00:30:00 CEST (UTC+02:00)"
    assert formats.exact(summer, ZoneInfo("Asia/Kolkata")) == "2026-07-02 04:00:00 IST (UTC+05:30)"
    assert layout.when(view(), NOW) == (
        '<time datetime="2026-11-16T03:20:00Z" title="2026-11-16 04:20:00 CET (UTC+01:00)">04:20</time>'
    )


def test_a_clipped_text_is_one_line_and_says_that_it_goes_on() -> None:
    assert formats.clip("one\n two", 20) == "one two"
    assert formats.clip("x" * 30, 10) == "x" * 9 + "…"
    assert formats.clip("x" + " " * 10**6 + "y", 10) == "x…"
    assert len(formats.clip("word " * 10**6, 60)) <= 60


def test_a_page_looks_often_enough_for_a_death_that_nobody_recorded() -> None:
    """It is a file lock that is free again, and no event: what is shown is as old as three waits at most."""
    script = assets.read("app.js").decode()
    look_ms = int(re.findall(r"LOOK_MS = (\d+)", script)[0])
    assert "Date.now() - last > LOOK_MS) want(); }, LOOK_MS / 2);" in script
    assert look_ms * 1.5 / 1000 + Timing.current().look_s <= 4
