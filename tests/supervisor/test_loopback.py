"""What an agent sends to this machine itself stays here, unless the user says that it goes through a tunnel."""

from pathlib import Path

import pytest

from outlast import settings
from outlast.errors import UsageError
from outlast.supervisor.agent.calls.outward import own_classes
from outlast.supervisor.agent.calls.shims import OWN_CLASSES
from tests.supervisor.hook_driver import POST, SIGNATURE, AttemptDies, before
from tests.supervisor.test_shims import below


@pytest.mark.parametrize("setting", ["local", "outward"])
def test_a_request_to_this_machine_is_local_unless_the_user_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """By hook, and by shim in a cleaned environment."""
    monkeypatch.setenv("OUTLAST_LOOPBACK", setting)
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", POST))
        told = [each for each in here.there.intended() if each[1] == "tell"]
        assert told == ([] if setting == "local" else [(SIGNATURE, "tell")])
        here.run('env -i PATH="$PATH" curl -d y http://localhost:9/other')
        told = [each for each in here.there.intended() if each[1] == "tell"][len(told) :]
        assert told == ([] if setting == "local" else [("POST localhost:9/other", "tell")])
        assert len(here.done) == 1
        raise AttemptDies


def test_a_proxy_of_the_environment_is_seen_below_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_LOOPBACK", "local")
    with below(tmp_path) as here:
        here.run("http_proxy=http://proxy:9 curl -d y http://localhost:9/other")
        told = [each for each in here.there.intended() if each[1] == "tell"]
        assert told == [("POST localhost:9/other", "tell")]
        raise AttemptDies


def test_the_setting_does_not_stand_among_the_users_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = settings.user_folder() / OWN_CLASSES
    assert own.is_relative_to(tmp_path)
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text('loopback = "outward"\n')
    with pytest.raises(UsageError, match="loopback is a setting"):
        own_classes()
