"""Seeds, samples, and homes of the tests' own.

Fixtures that every test may ask for: seed, rng, whole, sweep, state, as_nobody, real_disk, postgres_server, postgres_url.
"""

import gc
import math
import os
import random
import shutil
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import hypothesis
import pytest

from tests.support import commands, environment, sweeps, warm
from tests.support.environment import Isolated
from tests.support.sweeps import Sweep

SEED_MAX = 2**32 - 1
EXAMPLES_SAMPLED = 30
THINNED = {"cli", "crash", "dashboard", "runs", "shell", "supervisor", "web", "workspace"}
CASES_SHARE, CASES_MAX = 3, 2
ROTATED = {
    "acts", "chaos", "cli", "dashboard", "docs", "mcp", "notifications", "runs", "shell", "store", "supervisor", "web",
}  # fmt: skip
TESTS_SHARE = 0.5
UNHEARD = pytest.StashKey[list[int]]()

# A failing example is also printed as a blob for @reproduce_failure. No deadline: machines that run tests
# are busy, and a slow example is not a wrong one.
hypothesis.settings.register_profile("outlast", print_blob=True, deadline=None)
hypothesis.settings.register_profile(
    "sample", hypothesis.settings.get_profile("outlast"), max_examples=EXAMPLES_SAMPLED
)
hypothesis.settings.load_profile("outlast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="replay the random choices of an earlier run of the tests")
    parser.addoption(
        "--sample", action="store_true", help="of each exhaustive search do a part, chosen by the seed"
    )
    parser.addoption(
        "--rotate",
        action="store_true",
        help="of each file's tests with files or servers do half, chosen by the seed",
    )


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads its seed
def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {})
    config.stash[UNHEARD] = environment.hear_for_children(given.get("unheard", ()))
    if config.option.seed is None:
        given = given.get("seed")
        config.option.seed = random.SystemRandom().randint(0, SEED_MAX) if given is None else given
    if getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(config.option.seed)
    if config.option.sample:
        hypothesis.settings.load_profile("sample")
        sweeps.sampling = True
    for name in set(os.environ) - set(environment.without_outlast(os.environ)):
        del os.environ[name]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collected tests stay to the end: the garbage collector would look through them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Each worker of xdist has the seed that is printed (of the options it gets only those that were typed)."""
    node.workerinput["seed"] = node.config.option.seed
    node.workerinput["unheard"] = node.config.stash[UNHEARD]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --sample, of a test with the mark `sampled(n)` only n of its cases are kept: others with another seed.

    With `of="file"` they are the tests of the file that has the mark. Of a test without the mark that works on files
    in one of the folders of `THINNED`, a third of the cases is kept, and at most `CASES_MAX`."""
    if config.option.rotate:
        _rotate(config, items)
    if not config.option.sample:
        return
    groups: dict[tuple[str, float | None], list[str]] = {}
    for item in items:
        marks = list(item.iter_markers("sampled"))
        for mark in marks:
            name = item.nodeid.partition("::" if mark.kwargs.get("of") == "file" else "[")[0]
            groups.setdefault((name, *mark.args), []).append(item.nodeid)
        if not marks and item.path.parent.name in THINNED and "tmp_path" in getattr(item, "fixturenames", ()):
            groups.setdefault((item.nodeid.partition("[")[0], None), []).append(item.nodeid)
    dropped: set[str] = set()
    for (name, asked), group in groups.items():
        if asked is None:
            kept = min(math.ceil(len(group) / CASES_SHARE), CASES_MAX)
        else:
            kept = min(math.ceil(asked * len(group)) if isinstance(asked, float) else asked, len(group))
        chosen = random.Random(f"{config.option.seed}:{name}").sample(group, kept)
        dropped |= set(group) - set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in dropped])
    items[:] = [item for item in items if item.nodeid not in dropped]


def _rotate(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --rotate, half of the tests of a file that work on files or with a server are kept: others with another seed."""
    files: dict[Path, list[str]] = {}
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if item.path.relative_to(config.rootpath / "tests").parts[0] in ROTATED and (
            "tmp_path" in fixtures or "postgres_server" in fixtures
        ):
            files.setdefault(item.path, []).append(item.nodeid.partition("[")[0])
    dropped: set[str] = set()
    for path, found in files.items():
        names = sorted(set(found))
        chosen = random.Random(f"{config.option.seed}:{path.name}").sample(
            names, math.ceil(TESTS_SHARE * len(names))
        )
        dropped |= set(names) - set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid.partition("[")[0] in dropped])
    items[:] = [item for item in items if item.nodeid.partition("[")[0] not in dropped]


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed}{'   a sample of each search' if config.option.sample else ''}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        sample = " --sample" if config.option.sample else ""
        sample += " --rotate" if config.option.rotate else ""
        terminalreporter.write_line(
            f"seed: {config.option.seed}   replay: add --seed {config.option.seed}{sample}"
        )


@pytest.fixture(scope="session", autouse=True)
def _never_the_real_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Also a test that asks for no home of its own must not find the developer's."""
    isolated = environment.isolate(tmp_path_factory.mktemp("session"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in isolated.variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session", autouse=True)
def _warm_commands(pytestconfig: pytest.Config, _never_the_real_home: None) -> Iterator[None]:
    """In a sample, commands are forked from one process that has imported everything."""
    if not pytestconfig.option.sample:
        yield
        return
    commands.forks = warm.Warm()
    yield
    commands.forks.close()
    commands.forks = None


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


@pytest.fixture(scope="session")
def whole(request: pytest.FixtureRequest) -> bool:
    """Whether searches are done whole; else a sample of each is enough."""
    return not request.config.option.sample


@pytest.fixture
def sweep(rng: random.Random, whole: bool) -> Sweep:
    """The 1st, 2nd, … until a run meets none: all of them, or with --sample some that the seed decides."""
    return Sweep(rng, whole=whole)


@pytest.fixture
def real_disk() -> Iterator[Path]:
    """A folder on a disk, for what a file system in memory cannot do: `./dev` has the other folders there."""
    folder = Path(tempfile.mkdtemp(prefix="outlast-disk-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[object]:
    """A PostgreSQL of this worker's own. A visible skip where there can be none."""
    from tests.support import postgres

    with postgres.server() as made:
        yield made


@pytest.fixture
def postgres_url(postgres_server: object) -> Iterator[str]:
    """The URL of a new, empty store."""
    from tests.support.postgres import PostgresServer

    assert isinstance(postgres_server, PostgresServer)
    name = postgres_server.store()
    yield postgres_server.url(name)
    postgres_server.drop(name)
