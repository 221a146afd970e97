"""The variable with which tests make outlast wait less."""

import importlib
from pathlib import Path

import pytest

from outlast import settings
from outlast.errors import BadSetting
from outlast.processes.timing import Timing as ProcessTiming
from outlast.supervisor.timing import Timing
from tests.cli.command_line import Cli
from tests.supervisor.host import Host
from tests.support.environment import TIMEOUT_S

PACKAGE = Path(settings.__file__).parent


def test_only_what_the_variable_names_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Timing.current()
    monkeypatch.setenv(settings.TIMING, "supervisor.stop_grace_s=0.25, processes.die_limit_s=3")
    assert Timing.current().stop_grace_s == 0.25
    assert Timing.current().left_grace_s == before.left_grace_s
    assert ProcessTiming.current().die_limit_s == 3
    assert before.stop_grace_s == 6.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("kitchen.grace_s=1", "unknown 'kitchen.grace_s'"),
        ("supervisor.patience_s=1", "unknown 'supervisor.patience_s'"),
        ("supervisor.stop_grace_s", "'supervisor.stop_grace_s' has no number"),
        ("supervisor.stop_grace_s=soon", "'supervisor.stop_grace_s=soon' has no number"),
        ("supervisor.stop_grace_s=-1", "'supervisor.stop_grace_s=-1' has no number"),
        ("supervisor.stop_grace_s=nan", "'supervisor.stop_grace_s=nan' has no number"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line_before_anything_is_done(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, given: str, said: str
) -> None:
    monkeypatch.setenv(settings.TIMING, given)
    with pytest.raises(BadSetting):
        Timing.current()
    for words in (["ls"], ["run", "--task", "t", "--", "true"]):
        done = cli(*words, OUTLAST_TIMING=given)
        assert (done.code, done.complaint) == (2, f"OUTLAST_TIMING: {said}"), words
    assert not cli.root.exists()


def test_every_package_with_durations_can_be_named() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/timing.py")} == set(settings.TIMED)
    assert list(PACKAGE.glob("*/*/timing.py")) == []


@pytest.mark.parametrize("package", settings.TIMED)
def test_durations_have_units_in_their_names(package: str) -> None:
    timing = importlib.import_module(f"outlast.{package}.timing").Timing()
    for name in timing.__annotations__:
        assert name.endswith(("_s", "_ms", "_ns")), name
        assert isinstance(getattr(timing, name), int | float), name


def test_what_is_started_waits_no_longer_than_the_one_that_started_it(host: Host) -> None:
    given = "supervisor.left_open_s=0.5"
    started = host.start("t", "bash", "-c", 'echo "$OUTLAST_TIMING" > ../given', OUTLAST_TIMING=given)
    assert started.wait(TIMEOUT_S) == 0
    assert (host.folder / "given").read_text() == f"{given}\n"
