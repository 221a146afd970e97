"""Seeds, and homes of the tests' own. Fixtures that every test may ask for: seed, rng, state, as_nobody."""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import hypothesis
import pytest

from tests.support import environment
from tests.support.environment import Isolated

SEED_MAX = 2**32 - 1

# A failing example is also printed as a blob for @reproduce_failure. No deadline: machines that run tests
# are busy, and a slow example is not a wrong one.
hypothesis.settings.register_profile("outlast", print_blob=True, deadline=None)
hypothesis.settings.load_profile("outlast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="replay the random choices of an earlier run of the tests")


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads its seed, and before xdist copies the options
def pytest_configure(config: pytest.Config) -> None:
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randint(0, SEED_MAX)
    if getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(config.option.seed)
    for name in set(os.environ) - set(environment.without_outlast(os.environ)):
        del os.environ[name]


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        terminalreporter.write_line(f"seed: {config.option.seed}   replay: add --seed {config.option.seed}")


@pytest.fixture(scope="session", autouse=True)
def _never_the_real_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Also a test that asks for no home of its own must not find the developer's."""
    isolated = environment.isolate(tmp_path_factory.mktemp("session"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in isolated.variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Isolated:
    """A home, state folder and configuration folder for this test alone; the variables are set."""
    isolated = environment.isolate(tmp_path_factory.mktemp("state"))
    for name, value in isolated.variables.items():
        monkeypatch.setenv(name, value)
    return isolated


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed printed in the header."""
    chosen: int = request.config.option.seed
    return chosen


@pytest.fixture
def rng(request: pytest.FixtureRequest, seed: int) -> random.Random:
    """Random choices that depend on the seed and this test alone, not on which tests ran before."""
    return random.Random(f"{seed}:{request.node.nodeid}")


@dataclass(frozen=True, slots=True)
class Nobody:
    """An ordinary user with a folder and a home of their own."""

    folder: Path
    isolated: Isolated

    def run(self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> CompletedProcess[str]:
        """Run a command as that user, in their folder, with their home."""
        variables = self.isolated.environ(**(env or {}))
        return environment.run_unprivileged(argv, cwd=self.folder, env=variables)


@pytest.fixture
def as_nobody() -> Iterator[Nobody]:
    """An ordinary user, also when the tests were started as root."""
    base = Path(tempfile.mkdtemp(prefix="outlast-nobody-"))
    try:
        base.chmod(0o755)
        nobody = Nobody(base / "folder", environment.isolate(base))
        nobody.folder.mkdir()
        if os.geteuid() == 0:
            for path in (base, *base.rglob("*")):
                os.chown(path, environment.NOBODY, environment.NOBODY)
        if not environment.nobody_can_import_outlast(nobody.folder):
            environment.skip_or_fail("needs a checkout that an ordinary user can read")
        yield nobody
    finally:
        shutil.rmtree(base)
