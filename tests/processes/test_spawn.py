"""A started process has what it was given and nothing else; one that cannot start says why; it dies with its parent."""

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from outlast.processes import spawn
from outlast.processes.programs import CannotStart, ProgramMissing, find_program
from outlast.processes.spawn import Child, Spec, start
from tests.conftest import Nobody
from tests.processes.attempts import PREAMBLE, Attempt, looked
from tests.support.processes import alive, state, wait_for

SHELL = {"PATH": "/usr/bin:/bin"}


def spec_of(*argv: str, cwd: Path, env: Mapping[str, str] = SHELL, **more: Any) -> Spec:
    return Spec(argv, str(cwd), env, **more)


@contextmanager
def child_of(spec: Spec) -> Iterator[Child]:
    child = start(spec)
    try:
        yield child
    finally:
        child.send(signal.SIGKILL)
        ended(child)
        child.close()


def ended(child: Child) -> int:
    """Its status, which may be 0 and so is no condition by itself."""
    wait_for(lambda: child.wait_status() is not None, what="the child's end")
    status = child.wait_status()
    assert status is not None
    return status


def output_of(folder: Path, script: str, *, program: tuple[str, ...] = (), **more: Any) -> str:
    """What a shell script, or another program, printed under `start`."""
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    try:
        with child_of(
            spec_of(*(program or ("sh", "-c", script)), cwd=folder, stdout_fd=output, **more)
        ) as child:
            assert ended(child) == 0
    finally:
        os.close(output)
    return (folder / "output").read_text()


def test_the_status_is_told_again_and_the_descriptor_is_readable_at_the_end(tmp_path: Path) -> None:
    with child_of(
        spec_of("sh", "-c", "read line; exit 3", cwd=tmp_path, stdin_fd=(pipe := os.pipe())[0])
    ) as child:
        assert child.wait_status() is None
        os.close(pipe[0])
        os.close(pipe[1])
        assert ended(child) == child.wait_status() == 3 << 8
        assert child.fileno() == child.pidfd


def test_a_child_has_folder_umask_and_environment_as_given(tmp_path: Path) -> None:
    env = {**SHELL, "ONLY": "this"}
    said = output_of(tmp_path, "pwd; umask; tr '\\0' ' ' </proc/$$/environ", env=env, umask=0o27)
    assert said == f"{tmp_path}\n0027\nPATH=/usr/bin:/bin ONLY=this "


@pytest.mark.parametrize(("new_session", "own_group"), [(True, False), (False, True), (False, False)])
def test_a_child_gets_a_session_or_a_group_of_its_own_before_it_runs(
    tmp_path: Path, new_session: bool, own_group: bool
) -> None:
    spec = spec_of("sleep", "600", cwd=tmp_path, new_session=new_session, own_group=own_group)
    with child_of(spec) as child:
        found = looked(child.pid)
        assert found.sid == (child.pid if new_session else os.getsid(0))
        assert found.pgid == (child.pid if new_session or own_group else os.getpgrp())


def test_signals_are_at_their_defaults_and_none_is_blocked(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
    try:
        said = output_of(tmp_path, "", program=("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGUSR2, before)
    assert [int(line.split()[1], 16) for line in said.splitlines()] == [0, 0]


def test_no_descriptor_of_ours_is_left_open_in_the_child(tmp_path: Path) -> None:
    leaks = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
    for fd in leaks:
        os.set_inheritable(fd, True)
    try:
        said = output_of(tmp_path, "ls /proc/$$/fd")
    finally:
        for fd in leaks:
            os.close(fd)
    assert said.split() == ["0", "1", "2"]


def test_descriptors_that_cross_over_end_in_their_places(tmp_path: Path) -> None:
    script = """
from outlast.processes.spawn import Spec, start
for number, name in enumerate("abc"):
    os.close(number)
    assert os.open(name, os.O_RDWR | os.O_CREAT) == number
child = start(Spec(("sh", "-c", "echo out; echo err >&2; echo in >&0"), ".", {"PATH": "/usr/bin:/bin"}, 2, 0, 1))
os.waitpid(child.pid, 0)
"""
    subprocess.run([sys.executable, "-c", PREAMBLE + script], cwd=tmp_path, check=True, timeout=60)
    assert [(tmp_path / name).read_text() for name in "abc"] == ["out\n", "err\n", "in\n"]


def test_a_stop_is_told_only_when_asked_for(tmp_path: Path) -> None:
    with child_of(spec_of("sleep", "600", cwd=tmp_path)) as child:
        child.send(signal.SIGSTOP)
        wait_for(lambda: state(child.pid) == "T", what="the stop")
        assert child.wait_status() is None
        status = child.wait_status(stops=True)
        assert status is not None
        assert os.WIFSTOPPED(status)
        assert child.wait_status(stops=True) is None
        child.send(signal.SIGKILL)
        assert ended(child) == signal.SIGKILL
        child.send(signal.SIGKILL)


NOT_PROGRAMS = {
    "missing": (errno.ENOENT, "not found", "install it"),
    "plain": (errno.EACCES, "is not executable", "chmod +x"),
    "folder": (errno.EISDIR, "is a folder", "inside it"),
    "headless": (errno.ENOEXEC, "this machine cannot run it", "#!/bin/sh"),
    "orphan": (errno.ENOENT, "its interpreter /no/such/sh is missing", "first line"),
    "plain/below": (errno.ENOTDIR, "not found", "install it"),
}


def _not_programs(folder: Path) -> None:
    (folder / "plain").write_text("#!/bin/sh\n")
    (folder / "folder").mkdir()
    (folder / "headless").write_text("echo hello\n")
    (folder / "orphan").write_text("#!/no/such/sh -e\n")
    for name in ("headless", "orphan"):
        (folder / name).chmod(0o755)


@pytest.mark.parametrize("name", NOT_PROGRAMS)
def test_a_program_that_cannot_run_is_an_error_with_reason_and_hint_and_no_process(
    tmp_path: Path, name: str
) -> None:
    _not_programs(tmp_path)
    number, reason, hint = NOT_PROGRAMS[name]
    descriptors, children = len(os.listdir("/proc/self/fd")), children_now()
    with pytest.raises(ProgramMissing) as raised:
        start(spec_of(f"./{name}", cwd=tmp_path))
    assert str(raised.value) == f"./{name}: {reason}"
    assert hint in raised.value.hint
    assert (raised.value.errno, raised.value.path) == (
        number,
        str(tmp_path / name).replace(name, f"./{name}"),
    )
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert children_now() <= children


def children_now() -> set[str]:
    """Our children, of other tests in this process too."""
    return {
        pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()
    }


def test_what_fails_at_the_exec_itself_is_told_with_its_number(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="Argument list too long") as raised:
        start(spec_of("sh", "-c", "x" * (1 << 18), cwd=tmp_path))
    assert raised.value.errno == errno.E2BIG
    with pytest.raises(CannotStart, match=r"the folder .*: No such file") as raised:
        start(spec_of("/bin/sh", cwd=tmp_path / "gone"))
    assert raised.value.errno == errno.ENOENT
    with pytest.raises(CannotStart, match="the new process: Bad file descriptor"):
        start(spec_of("sh", cwd=tmp_path, stdin_fd=987))
    with pytest.raises(CannotStart, match="Invalid argument"):
        start(spec_of("sh", "a\0b", cwd=tmp_path))


def test_a_program_is_found_as_execvp_would(tmp_path: Path) -> None:
    _not_programs(tmp_path)
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin/plain"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    cwd = str(tmp_path)
    assert find_program("plain", f"{cwd}:{cwd}/bin", "/") == str(tool)
    assert find_program("plain", "bin", cwd) == str(tool)
    assert find_program("plain", "/nowhere::", str(tool.parent)) == str(tool)
    assert find_program("bin/plain", "/nowhere", cwd) == str(tool)
    assert find_program(str(tool), "", "/") == str(tool)
    with pytest.raises(ProgramMissing, match=r"^agent: not found on PATH(?:\n|$)"):
        find_program("agent", f"{cwd}/bin", cwd)
    with pytest.raises(ProgramMissing, match="/plain: is not executable"):
        find_program("plain", cwd, cwd)
    with pytest.raises(ProgramMissing, match="'': not found on PATH"):
        find_program("", cwd, cwd)


def test_a_program_that_others_may_run_is_not_ours(as_nobody: Nobody) -> None:
    private = as_nobody.folder / "private"
    private.write_text("#!/bin/sh\n")
    private.chmod(stat.S_IRWXU)
    os.chown(private, 0, 0) if os.geteuid() == 0 else private.chmod(0o600)
    script = "import sys; from outlast.processes.programs import *\ntry: find_program('./private', '', '.')\nexcept ProgramMissing as e: print(e)"
    assert as_nobody.run([sys.executable, "-c", script]).stdout == "./private: is not executable\n"


PARENT = """
from outlast.processes.spawn import Spec, start
child = start(Spec(("sleep", "600"), "/", dict(os.environ), death_signal=signal.SIGKILL, new_session=True))
Path("child").write_text(str(child.pid))
ready()
signal.pause()
"""


def test_a_child_dies_when_its_parent_is_killed(attempt: Attempt) -> None:
    parent = attempt.start(PARENT)
    attempt.told()
    child = attempt.told("child")
    assert alive(child)
    os.kill(parent, signal.SIGKILL)
    wait_for(lambda: not alive(child), what="the child's end")


# The parent dies after the fork and before its death could be noticed, which is when the child asks for the signal.
TOO_LATE = """
from outlast.processes import libc, spawn as spawning
spec = spawning.Spec(("touch", "ran"), os.getcwd(), dict(os.environ), stdout_fd=int(sys.argv[1]), death_signal=signal.SIGKILL)
parent = os.getpid()
def late(option, value):
    os.kill(parent, signal.SIGKILL)
    while os.getppid() == parent:
        pass
    return libc.prctl()(option, value)
libc.prctl()
if os.fork() == 0:
    spawning._Become(spec, "/usr/bin/touch", parent, os.pipe()[1], late)()
signal.pause()
"""


def test_a_child_whose_parent_died_before_it_could_be_tied_does_not_run(attempt: Attempt) -> None:
    attempt.start(TOO_LATE, str(attempt.witness))
    assert attempt.all_gone()
    assert not (attempt.folder / "ran").exists()


def test_orphans_come_to_a_subreaper_and_are_reaped_but_not_the_children_that_others_await(
    attempt: Attempt,
) -> None:
    script = """
import subprocess
from outlast.processes import spawn as spawning
spawning.become_subreaper()
mine = subprocess.Popen(["sh", "-c", "exit 3"])
while b") Z" not in Path(f"/proc/{mine.pid}/stat").read_bytes():
    pass
kept = subprocess.Popen(["true"], start_new_session=True)
subprocess.run(["sh", "-c", "setsid sh -c 'echo $$ >orphan.new; mv orphan.new orphan' & exit 0"])
while not os.path.exists("orphan"):
    pass
orphan = int(Path("orphan").read_text())
while not os.path.exists(f"/proc/{orphan}") or b") Z" not in Path(f"/proc/{orphan}/stat").read_bytes():
    pass
while spawning.reap_orphans([kept.pid]) == 0:
    pass
Path("said").write_text(f"{os.path.exists(f'/proc/{orphan}')} {mine.wait()} {os.waitpid(kept.pid, 0)[0] == kept.pid}")
ready()
"""
    pid = attempt.start(script)
    attempt.told()
    assert (attempt.folder / "said").read_text() == "False 3 True"
    wait_for(lambda: state(pid) == "Z", what="the end of a child that this test awaits")
    assert spawn.reap_orphans([pid]) == 0


def test_a_death_that_is_not_ours_to_tell_is_refused_outside_of_the_main_thread(tmp_path: Path) -> None:
    script = """
import threading
from outlast.processes.spawn import Spec, start
def try_it():
    try:
        start(Spec(("true",), "/", {}))
    except AssertionError as error:
        print(error)
thread = threading.Thread(target=try_it)
thread.start()
thread.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "the end of this thread would kill the child\n"


def test_processes_start_while_signals_rain_on_us(tmp_path: Path) -> None:
    """In a process of its own: a signal may still be on its way to a thread of it when the sender is dead."""
    script = """
import os, signal, subprocess, sys
from outlast.processes.spawn import Spec, start
met = []
signal.signal(signal.SIGUSR1, lambda number, _: met.append(number))
rain = subprocess.Popen([sys.executable, "-c", f"import os\\nwhile True: os.kill({os.getpid()}, 10)"])
try:
    while not met:
        signal.pause()
    for _ in range(20):
        child = start(Spec(("true",), "/", dict(os.environ)))
        print(os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]))
        child.close()
finally:
    rain.kill()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path
    )
    assert done.stdout.split() == ["0"] * 20
