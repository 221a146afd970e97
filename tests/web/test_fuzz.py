"""The API against its own description: whatever is sent, each answer is one that the description has, and none is our fault."""

import json
import random
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from outlast.web import openapi
from tests.support import sweeps
from tests.support.journals.night import make_night
from tests.web.server import Served, ui

EXAMPLES = 8
EXAMPLES_LONG = 200
TIMEOUT_S = 90.0


def described(*modes: GenerationMode) -> Any:
    schema = schemathesis.openapi.from_dict(json.loads(openapi.document()))
    schema.config.generation.update(modes=list(modes))
    schema.config.phases.update(phases=["fuzzing"])
    return schema.exclude(path="/api/events")  # has no end; see test_live


SCHEMA = described(GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
SETTINGS = hypothesis.settings(
    max_examples=sweeps.examples(EXAMPLES), deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
LONG = hypothesis.settings(SETTINGS, max_examples=sweeps.examples(EXAMPLES_LONG))


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("fuzz") / "store"
    make_night(root)
    with ui(root) as running:
        yield running


@pytest.fixture(scope="module")
def runs(web: Served) -> list[str]:
    return [row["run"] for row in web.ask("/api/runs?size=500&flat=1").json["rows"]]


def probe(web: Served, runs: list[str], case: Any) -> None:
    """Every second case is about a run that is there. None of them is resumed: that starts programs."""
    chance = random.Random(repr((case.query, case.body, case.path_parameters)))
    if "run" in case.path_parameters and chance.random() < 0.5:
        case.path_parameters["run"] = chance.choice(runs)
        if case.method == "POST" and case.path_parameters["act"] == "resume":
            case.path_parameters["act"] = "pause"
    # Which zones there are is not in the description: there are hundreds.
    unless = [positive_data_acceptance] if "zone" in (case.query or {}) else []
    case.call_and_validate(base_url=f"http://127.0.0.1:{web.port}", timeout=TIMEOUT_S, excluded_checks=unless)


@SCHEMA.parametrize()
@SETTINGS
def test_every_answer_is_one_that_is_described(case: Any, web: Served, runs: list[str]) -> None:
    probe(web, runs, case)


@pytest.mark.campaign
@SCHEMA.parametrize()
@LONG
def test_every_answer_is_one_that_is_described_for_longer(case: Any, web: Served, runs: list[str]) -> None:
    probe(web, runs, case)
