"""What agents tell of their limits: the shares of a subscription's windows, and when a limit that was met resets."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from outlast.agents import KnownAgent
from outlast.agents.claude.agent import agent as claude
from outlast.agents.codex.agent import agent as codex
from outlast.agents.events import Limit, Window
from outlast.agents.gemini.agent import agent as gemini
from tests.agents.checks import SAMPLES, lines


def told(known: KnownAgent, sample: str) -> list[list[Window]]:
    """The windows that each line of a sample tells of."""
    found = [
        [one for one in known.transcript.parse(line) if isinstance(one, Window)] for line in lines(sample)
    ]
    return [windows for windows in found if windows]


def test_claude_tells_of_its_windows_in_its_output_alone() -> None:
    at = datetime.fromtimestamp(1794783408, UTC)
    five = Window(82.0, at, "five_hour")
    week = Window(31.0, datetime.fromtimestamp(1795076208, UTC), "seven_day")
    assert told(claude(), "claude-windows.jsonl") == [[five, week], [five]], "2.1.325 and 2.1.197"
    assert told(claude(), "claude-2.1.325-transcript.jsonl") == []


def test_codex_tells_of_its_windows_in_its_rollout() -> None:
    ((five, week),) = told(codex(), "codex-0.166-windows.jsonl")
    assert (five.used_pct, five.name, week.used_pct, week.name) == (82.5, "five_hour", 31.0, "seven_day")
    assert five.resets_at is not None
    assert week.resets_at is not None
    assert week.resets_at - five.resets_at == timedelta(seconds=300_000 - 7200)
    later = {"primary": {"used_percent": 7, "window_minutes": 60, "resets_in_seconds": 90}}
    line = {"timestamp": "2026-11-15T12:00:00Z", "type": "event_msg"}
    said = json.dumps({**line, "payload": {"type": "token_count", "rate_limits": later}}).encode()
    assert next(iter(codex().transcript.parse(said))) == Window(
        7.0, datetime(2026, 11, 15, 12, 1, 30, tzinfo=UTC), "60_minutes"
    )


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"rate_limit_event","rate_limit_info":{"utilization":"much","resetsAt":-1}}',
        b'{"type":"rate_limit_event","rate_limit_info":{"unifiedWindows":{"x":{"utilization":1e99},"y":7}}}',
        b'{"type":"rate_limit_event","rate_limit_info":[',
    ],
)
def test_nonsense_about_windows_tells_nothing(line: bytes) -> None:
    assert list(claude().transcript.parse(line)) == []


def limited(agent: str) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (SAMPLES / f"{agent}-endings.jsonl").read_text().splitlines()]
    return [row for row in rows if row["case"] == "limit"]


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_usage_limit_that_the_real_program_met_says_when_it_resets(agent: str) -> None:
    met = limited(agent)
    assert met
    for row in met:
        transcript = [str(line).encode() for line in row["transcript"]]  # type: ignore[attr-defined]
        said_at = datetime.fromisoformat(json.loads(transcript[-1])["timestamp"])
        me = _at(agent, said_at)
        final = me.transcript.ending(int(str(row["exit"])), str(row["tail"]).encode(), b"\n".join(transcript))
        assert final.ending == "usage_limit", row
        assert final.reset_at is not None
        assert abs(final.reset_at - said_at - timedelta(hours=2)) < timedelta(minutes=2), row["version"]
        alone = me.transcript.ending(int(str(row["exit"])), str(row["tail"]).encode(), b"")
        assert (alone.ending, alone.reset_at is None) == ("usage_limit", False), row
        [*_, limit] = [
            one for line in transcript for one in me.transcript.parse(line) if isinstance(one, Limit)
        ]
        assert limit.reset_at is not None


def _at(agent: str, now: datetime) -> KnownAgent:
    return claude(clock=lambda: now) if agent == "claude" else codex(clock=lambda: now)


def test_a_limit_is_told_to_the_second_where_the_transcript_has_it() -> None:
    (row,) = [row for row in limited("claude") if (row["version"], row["format"]) == ("2.1.325", "text")]
    (line,) = row["transcript"]  # type: ignore[misc]
    at = datetime.fromtimestamp(json.loads(line)["quotaLimits"]["resetsAt"], UTC)
    said_at = datetime.fromisoformat(json.loads(line)["timestamp"])
    final = claude(clock=lambda: said_at).transcript.ending(1, b"", str(line).encode())
    assert final.reset_at == at


def test_codex_counts_to_the_second_what_it_says_to_the_minute() -> None:
    for row in limited("codex"):
        transcript = [str(line) for line in row["transcript"]]  # type: ignore[attr-defined]
        (count,) = [json.loads(line)["payload"] for line in transcript if '"token_count"' in line]
        final = codex().transcript.ending(1, b"", "\n".join(transcript).encode())
        assert final.reset_at == datetime.fromtimestamp(count["rate_limits"]["primary"]["resets_at"], UTC)


def test_gemini_says_in_its_log_when_a_quota_of_the_day_is_back() -> None:
    now = datetime(2026, 11, 15, 21, 13, 30, tzinfo=UTC)
    (row,) = [
        one
        for one in map(json.loads, lines("gemini-endings.jsonl"))
        if one["case"] == "usage_limit" and "7200" in one["tail"]
    ]
    final = gemini(clock=lambda: now).transcript.ending(row["exit"], row["tail"].encode(), b"")
    assert (final.ending, final.reset_at) == ("usage_limit", now + timedelta(hours=2))
