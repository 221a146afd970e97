"""What Prometheus is told."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.web.metrics import BUCKETS_S, Requests
from tests.support.journals.night import make_night
from tests.web.server import Served, ui

NAMES = (
    "outlast_runs outlast_runs_needing_a_person outlast_runs_stranded outlast_in_doubt_effects outlast_tokens_spent_total outlast_cost_usd_total "
    "outlast_beats_total outlast_event_number outlast_ui_requests_total outlast_ui_request_seconds outlast_ui_live_clients "
    "outlast_build_info"
).split()
SAMPLE = re.compile(r'([a-z_]+)(\{[a-z]+="[^"\\\n]*"(?:,[a-z]+="[^"\\\n]*")*\})? (-?[0-9.]+)')


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root: Path = make_night(tmp_path_factory.mktemp("metrics") / "store")
    with ui(root) as running:
        yield running


def read(text: str) -> dict[str, float]:
    """Every sample, the text being of the format and each family told of before its samples."""
    found, told = {}, set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            told.add(line.split()[2])
        elif not line.startswith("# HELP "):
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            assert re.sub(r"_(bucket|sum|count)$", "", sample[1]) in told, line
            found[sample[1] + (sample[2] or "")] = float(sample[3])
    return found


def test_the_sums_are_those_of_the_overview(web: Served) -> None:
    heard = web.ask("/metrics")
    assert heard.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = read(heard.text)
    overview = web.ask("/api/runs?flat=1&size=500").json
    assert (
        sum(value for name, value in found.items() if name.startswith("outlast_runs{")) == overview["total"]
    )
    assert found["outlast_runs_needing_a_person"] == overview["needs_total"]
    assert found["outlast_runs_stranded"] == overview["stranded"] > 0
    roots = [row for row in overview["rows"] if not row["parent"]]
    assert found["outlast_in_doubt_effects"] == sum(row["in_doubt"] for row in roots)
    assert found["outlast_tokens_spent_total"] == overview["spent"]["tokens"]
    assert found["outlast_tokens_spent_total"] < sum(row["spent"]["tokens"] for row in overview["rows"])
    assert found["outlast_cost_usd_total"] == pytest.approx(overview["spent"]["cost_microusd"] / 1e6)
    assert found["outlast_beats_total"] == sum(row["beats"] for row in overview["rows"])
    assert found["outlast_event_number"] == overview["number"]
    for name in NAMES:
        assert f"# TYPE {name} " in heard.text


def test_no_label_tells_of_a_run(web: Served) -> None:
    text = web.ask("/metrics").text
    for row in web.ask("/api/runs?flat=1&size=500").json["rows"]:
        for word in (row["run"], row["task"], row["project"]):
            assert f'"{word}"' not in text
    assert set(re.findall(r'(\w+)="', text)) == {"status", "what", "version", "code", "le"}


def test_requests_are_counted_by_their_status(web: Served) -> None:
    web.ask("/nothing")
    before = read(web.ask("/metrics").text)
    web.ask("/nothing")
    after = read(web.ask("/metrics").text)
    name = 'outlast_ui_requests_total{code="404"}'
    assert after[name] == before[name] + 1
    assert after["outlast_ui_request_seconds_count"] == before["outlast_ui_request_seconds_count"] + 2


def test_a_histogram_only_rises() -> None:
    requests = Requests()
    for seconds in (0.001, 0.005, 0.02, 0.3, 4.0, 60.0):
        requests.count(200, seconds)
    found = read("\n".join(requests.lines()))
    counts = [found[f'outlast_ui_request_seconds_bucket{{le="{bound}"}}'] for bound in BUCKETS_S]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (2, 5)
    assert found['outlast_ui_request_seconds_bucket{le="+Inf"}'] == 6
    assert found["outlast_ui_request_seconds_sum"] == pytest.approx(64.326)
