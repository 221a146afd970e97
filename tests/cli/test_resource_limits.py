"""A system that gives no more processes, threads or memory: said as what it is, and nobody is told of a bug."""

import sys

import pytest

from tests.cli.command_line import Cli
from tests.conftest import Nobody

FEW = """
import resource, subprocess, sys
subprocess.run(["git", "init", "-q", "w"], check=True)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
from outlast.cli.main import main
sys.exit(main(["save", "--workspace", "w"]))
"""


def test_a_save_without_processes_and_threads_says_what_is_missing(as_nobody: Nobody) -> None:
    done = as_nobody.run([sys.executable, "-P", "-c", FEW])
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: cannot start git in ")
    assert "bug" not in done.stderr


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_what_the_system_does_not_give_is_no_bug(cli: Cli, error: Exception) -> None:
    (cli.folder / "file").write_text("x\n")

    def fail(name: str) -> None:
        raise error

    answer = cli.forked("save", hook=fail)
    assert (answer.code, answer.complaint) == (3, "the system has no more memory or threads for us")
