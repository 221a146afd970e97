import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Nobody
from tests.support import environment
from tests.support.environment import ROOT, Isolated


def test_nobody_is_an_ordinary_user_who_can_use_outlast(as_nobody: Nobody) -> None:
    done = as_nobody.run([sys.executable, "-c", "import os, outlast; print(os.geteuid(), os.getcwd())"])
    assert done.stderr == ""
    user, folder = done.stdout.split(maxsplit=1)
    assert int(user) == (environment.NOBODY if os.geteuid() == 0 else os.geteuid())
    assert Path(folder.strip()) == as_nobody.folder.resolve()


def test_nobody_cannot_write_where_others_live(as_nobody: Nobody, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
    done = as_nobody.run([sys.executable, "-c", "import sys; open(sys.argv[1], 'w')", tmp_path / "file"])
    assert "PermissionError" in done.stderr


def test_what_is_missing_skips_at_home_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception):
        environment.need_tool("no-such-program")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        environment.need_tool("no-such-program")


def test_a_home_of_its_own_is_where_the_variables_lead(state: Isolated) -> None:
    assert Path.home() == state.home
    assert os.environ["XDG_STATE_HOME"] == str(state.state_home)
    ours = {
        name
        for name in state.environ()
        if name.startswith("OUTLAST_") and not name.startswith("OUTLAST_TEST_")
    }
    assert ours == {"OUTLAST_LOOPBACK"}, (
        "this machine counts as outward in the tests; nothing else of ours is passed on"
    )


def test_a_seed_replays_the_random_choices_of_each_test(
    rng: random.Random, seed: int, request: pytest.FixtureRequest
) -> None:
    assert rng.random() == random.Random(f"{seed}:{request.node.nodeid}").random()


@pytest.mark.parametrize("name", ["HUP", "INT"])
def test_a_signal_that_is_ignored_here_is_heard_by_what_a_test_starts(name: str, tmp_path: Path) -> None:
    """As under `nohup`, or in the background of a script."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_it.py").write_text(
        "import signal, subprocess, sys\n"
        "def test_it():\n"
        f"    ask = 'import signal; print(signal.getsignal(signal.SIG{name}) is signal.SIG_IGN)'\n"
        "    assert subprocess.check_output([sys.executable, '-c', ask]) == b'False\\n'\n"
        f"    signal.raise_signal(signal.SIG{name})\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(tmp_path)]
    deaf = ["sh", "-c", f"trap '' {name}; exec \"$@\"", "sh", *words]
    done = subprocess.run(
        deaf,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
