"""Endings told apart by what real programs printed, and the times at which limits reset."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from outlast.agents import registry
from outlast.agents.common import endings
from outlast.agents.events import Final

SAMPLES = Path(__file__).parent / "samples"
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
MEANT = {
    "done": "done", "context": "context", "auth": "auth", "forbidden": "auth", "rate": "rate_limit",
    "overloaded": "rate_limit", "server": "network", "credit": "usage_limit", "turns": "turns", "budget": "budget",
    "refused": "refused", "network": "network", "hook": "hook_stopped", "sigint": "crashed", "sigterm": "crashed",
    "kill": "crashed", "cut": "network", "quota": "rate_limit", "limit": "usage_limit",
}  # fmt: skip
CODEX_MEANT = MEANT | {"overloaded": "network"}  # it prints a 503, not a 529


def recorded(agent: str) -> list[dict[str, object]]:
    lines = (SAMPLES / f"{agent}-endings.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_every_recorded_ending_is_told_apart_with_and_without_json(agent: str) -> None:
    known = registry.by_name(agent)
    assert known is not None
    meant = MEANT if agent == "claude" else CODEX_MEANT
    wrong = []
    for one in recorded(agent):
        transcript = "\n".join(one["transcript"]) + "\n"  # type: ignore[arg-type]
        final = known.transcript.ending(int(str(one["exit"])), str(one["tail"]).encode(), transcript.encode())
        if final.ending != meant[str(one["case"])]:
            wrong.append((one["version"], one["case"], one["format"], final))
    assert wrong == []


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_errors_are_told_apart_by_the_output_alone(agent: str) -> None:
    known = registry.by_name(agent)
    assert known is not None
    meant = MEANT if agent == "claude" else CODEX_MEANT
    for one in recorded(agent):
        if one["exit"] == 1 and one["case"] != "sigint":
            final = known.transcript.ending(1, str(one["tail"]).encode(), b"")
            assert final.ending == meant[str(one["case"])], one


def test_each_pattern_has_a_source_matches_its_example_and_tells_what_it_says() -> None:
    for row in endings.patterns():
        assert re.search(row.match, row.example, re.IGNORECASE), row
        assert row.source
        agent = "unheard-of" if row.agent == "*" else row.agent
        told = endings.match(agent, row.example, NOW)
        assert told is not None
        assert told.ending == row.ending, row


def test_a_pattern_that_claims_a_sample_has_one() -> None:
    for row in endings.patterns():
        if row.sample and (SAMPLES / f"{row.agent}-endings.jsonl").exists():
            said = [str(one["tail"]) + str(one.get("transcript")) for one in recorded(row.agent)]
            assert any(re.search(row.match, text, re.IGNORECASE) for text in said), row


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        ("Claude AI usage limit reached|1794765600", datetime(2026, 11, 15, 18, 0, tzinfo=UTC)),
        ("You've hit your session limit · resets 3:50pm (Asia/Tokyo)", datetime(2026, 11, 16, 6, 50, tzinfo=UTC)),
        ("You've hit your limit · resets 3am (Europe/Berlin)", datetime(2026, 11, 16, 2, 0, tzinfo=UTC)),
        ("You've hit your limit · resets Nov 20, 11:30am (Asia/Calcutta)", datetime(2026, 11, 20, 6, 0, tzinfo=UTC)),
        ("Your limit will reset at 3pm (America/Bogota).", datetime(2026, 11, 15, 20, 0, tzinfo=UTC)),
        ("You've hit your usage limit. Try again in 4 days 20 hours 9 minutes.", NOW + timedelta(days=4, hours=20, minutes=9)),
        ("or try again in 3 hours 2 minutes.", NOW + timedelta(hours=3, minutes=2)),
        ("Rate limit is exceeded. Try again in 17 seconds.", NOW + timedelta(seconds=17)),
        ("Please try again in 11.5s.", NOW + timedelta(seconds=11.5)),
        ("retry-after: 30", NOW + timedelta(seconds=30)),
        ('{"retry_after": 30}', NOW + timedelta(seconds=30)),
        ("resets at 2026-11-15T18:00:00Z", datetime(2026, 11, 15, 18, 0, tzinfo=UTC)),
        ("it resets some day", None),
        ("resets 99pm (Mars/Olympus)", None),
        ("Claude AI usage limit reached|9999999999", None),  # in two hundred years: misread
        ("nothing of the kind", None),
    ],
)  # fmt: skip
def test_the_time_of_a_reset_is_read(text: str, reset: datetime | None) -> None:
    assert endings.reset_at(text, NOW) == reset


def test_a_reset_at_a_date_without_a_zone_is_in_this_machines_time() -> None:
    found = endings.reset_at("or try again at Nov 20th, 2026 8:19 PM.", NOW)
    assert found is not None
    assert abs(found - datetime(2026, 11, 20, 20, 19, tzinfo=UTC)) <= timedelta(hours=14)


@given(st.text(max_size=300), st.sampled_from(["claude", "codex", "gemini", "x"]))
def test_no_text_makes_it_fail(text: str, agent: str) -> None:
    told = endings.match(agent, text, NOW)
    assert told is None or isinstance(told, Final)
    found = endings.reset_at(text, NOW)
    assert found is None or found.tzinfo is not None


@given(st.from_regex(endings._AT, fullmatch=True) | st.from_regex(endings._IN, fullmatch=True))
def test_no_time_makes_it_fail(text: str) -> None:
    found = endings.reset_at(text, NOW)
    assert found is None or NOW - timedelta(days=1) <= found <= NOW + endings.RESET_MAX


@given(st.integers(-300, 300), st.binary(max_size=200), st.binary(max_size=200))
def test_any_ending_has_a_name(exit_code: int, tail: bytes, transcript: bytes) -> None:
    for name in ("claude", "codex"):
        known = registry.by_name(name)
        assert known is not None
        assert known.transcript.ending(exit_code, tail, transcript).cause
