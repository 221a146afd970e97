"""A command forked from a warm process is as one that was started anew."""

import concurrent.futures
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.environment import Isolated, skip_or_fail

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def forks() -> Iterator[warm.Warm]:
    made = warm.Warm()
    yield made
    made.close()


def anew(words: list[str], cwd: Path, env: dict[str, str]) -> tuple[int, str, str]:
    argv = [sys.executable, "-P", "-m", "outlast", *words]
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [["--version"], ["--help"], ["ls"], ["ls", "--json"], ["nonsense"], ["show", "nobody"], ["ls", "--no-such"], [],
     ["config"], ["--store", "/nowhere/at/all", "ls"]],
    ids=" ".join,
)  # fmt: skip
def test_it_says_the_same_and_ends_the_same(
    words: list[str], forks: warm.Warm, state: Isolated, tmp_path: Path
) -> None:
    env = state.environ(TZ="Asia/Kolkata", COLUMNS="70")
    done = forks.run(words, cwd=tmp_path, env=env, timeout=LIMIT_S)
    assert (done.returncode, done.stdout, done.stderr) == anew(words, tmp_path, env)


# Runs in the place of the command: a folder of this name comes first in the path of modules.
LOOK = """
import json, os, random, signal, sys
def main():
    fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}"))
    ignored = sorted(int(s) for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_IGN)
    print(json.dumps([os.getcwd(), sys.argv[1:], os.environ.get("A"), fds, ignored, os.getpgid(0), os.getsid(0)]))
    print(os.getpid(), random.random())
    match sys.argv[1:]:
        case ["die"]: os.kill(os.getpid(), signal.SIGKILL)
        case ["raise"]: raise ValueError("here")
        case ["leave", words]: sys.exit(words)
        case ["hang"]: signal.pause()
    return 0
"""


@pytest.fixture
def looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[warm.Warm]:
    """A warm process whose command tells how it finds itself."""
    place = tmp_path / "place/outlast/cli"
    place.mkdir(parents=True)
    (place.parent / "__init__.py").touch()
    (place / "__init__.py").touch()
    (place / "start.py").write_text(LOOK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "place"))
    made = warm.Warm()
    yield made
    made.close()


def run(looking: warm.Warm, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return looking.run(words, cwd=Path("/usr"), env={"A": "b", "PATH": os.defpath} | more, timeout=LIMIT_S)


def test_it_has_its_own_folder_words_and_variables_and_nothing_else(looking: warm.Warm) -> None:
    first, second = (run(looking, "x").stdout.splitlines() for _ in range(2))
    told = eval(first[0])
    assert told[:3] == ["/usr", ["x"], "b"]
    assert told[3] == [0, 1, 2], "no descriptor of anybody else"
    assert told[4] == sorted([signal.SIGPIPE, signal.SIGXFSZ]), "as Python begins"
    assert told[5:] == [os.getpgid(0), os.getsid(0)]
    assert first[1].split()[0] != second[1].split()[0]
    assert first[1].split()[1] != second[1].split()[1], "chance is not the same for all"


def test_its_end_is_the_real_one(looking: warm.Warm) -> None:
    assert run(looking, "die").returncode == -signal.SIGKILL
    failed = run(looking, "raise")
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, "ValueError: here")
    left = run(looking, "leave", "words")
    assert (left.returncode, left.stderr) == (1, "words\n")
    with pytest.raises(subprocess.TimeoutExpired):
        looking.run(["hang"], cwd=Path("/"), env={}, timeout=0.5)
    assert run(looking).returncode == 0, "the next one is not disturbed"


def test_whoever_looks_for_it_finds_its_words_variables_and_session(looking: warm.Warm) -> None:
    if not warm.can_disguise():
        skip_or_fail("needs a kernel with checkpoint and restore")
    with looking.start(["hang"], cwd=Path("/usr"), env={"A": "b"}, start_new_session=True) as process:
        told = [Path(f"/proc/{process.pid}/{what}").read_bytes() for what in ("cmdline", "environ")]
        assert told[0].split(b"\0")[1:] == [b"-P", b"-m", b"outlast", b"hang", b""]
        assert told[1] == b"A=b\0"
        assert os.getsid(process.pid) == process.pid
        assert process.poll() is None
        process.kill()
        assert process.wait(LIMIT_S) == -signal.SIGKILL
    assert process.poll() == -signal.SIGKILL


def test_what_it_says_and_reads_goes_where_it_was_told(looking: warm.Warm, tmp_path: Path) -> None:
    with open(tmp_path / "said", "wb") as said:
        how = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": subprocess.STDOUT}
        with looking.start(["raise"], cwd=Path("/usr"), env={}, **how) as process:
            assert process.wait(LIMIT_S) == 1
    assert "ValueError: here" in (tmp_path / "said").read_text()


def test_many_at_once_get_their_own_answers(looking: warm.Warm) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: run(looking, str(n)).stdout, range(40)))
    assert [eval(answer.splitlines()[0])[1] for answer in answers] == [[str(n)] for n in range(40)]


def test_what_would_make_another_python_of_it_is_started_anew() -> None:
    assert warm.fits(dict(os.environ))
    assert not warm.fits(os.environ | {"PYTHONWARNINGS": "error"})
    assert not warm.fits(os.environ | {"LC_ALL": "C"})
