"""Where a command believes it is: PWD and OLDPWD as a shell would have them that went to its folder."""

import json
import os
import sys
from pathlib import Path

from tests.supervisor.host import Host
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

# Many programs believe PWD before they ask the system. It notes where it is, and ends when it is let go.
SAYS = """
import json, os, sys, time
words = [os.environ.get("PWD"), os.environ.get("OLDPWD"), os.getcwd()]
with open(sys.argv[1] + "/said", "a") as file:
    file.write(json.dumps(words) + "\\n")
while not os.path.exists(sys.argv[1] + "/go"):
    time.sleep(0.02)
"""


def saying(host: Host) -> tuple[str, ...]:
    return (sys.executable, "-I", "-c", SAYS, str(host.folder))


def said(host: Host) -> list[str]:
    """The last of it: PWD, OLDPWD, the working folder."""
    words: list[str] = json.loads((host.folder / "said").read_text().splitlines()[-1])
    return words


def test_under_a_worktree_pwd_is_the_worktree_and_oldpwd_where_it_was_started(host: Host) -> None:
    here = host.repository("t")
    host.let_go()
    code = host.start("t", *saying(host), options=("--worktree",), PWD=str(here)).wait(TIMEOUT_S)
    assert code == 0, host.said("t")
    pwd, oldpwd, cwd = said(host)
    assert cwd != str(here)
    assert pwd == cwd
    assert oldpwd == str(here)


def test_resumed_from_another_folder_pwd_is_the_workspace(host: Host) -> None:
    here = host.repository("t")
    process = host.start("t", *saying(host), PWD=str(here))
    wait_for(lambda: (host.folder / "said").exists() or None, what=host.said("t"))
    host.kill_everything()
    process.wait(TIMEOUT_S)
    host.let_go()
    answer = host("resume", host.summary("t").run, cwd=Path("/"), PWD="/", OLDPWD="/tmp")
    assert answer.code == 0, answer.err
    pwd, oldpwd, cwd = said(host)
    assert cwd == str(here)
    assert pwd == cwd
    assert oldpwd == "/"


def test_started_in_its_own_folder_pwd_and_oldpwd_are_those_of_the_shell(host: Host) -> None:
    """Also where the shell came there by another name."""
    here = host.repository("t")
    other = host.folder / "by another name"
    other.symlink_to(here)
    host.let_go()
    code = host.start("t", *saying(host), PWD=str(other), OLDPWD="/tmp").wait(TIMEOUT_S)
    assert code == 0, host.said("t")
    assert said(host) == [str(other), "/tmp", os.path.realpath(here)]
