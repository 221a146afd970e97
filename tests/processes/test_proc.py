"""What /proc says is read whole or not at all: odd names, vanished processes, other users' environments."""

import os
import subprocess
import sys

from outlast.processes import proc
from tests.conftest import Nobody
from tests.processes.attempts import Attempt, looked
from tests.support.environment import need_root
from tests.support.processes import running, state, wait_for

ODD_NAME = """
Path("/proc/self/comm").write_bytes(b"a) Z 1 (\\n\\xff")
ready()
signal.pause()
"""


def test_a_process_whose_name_looks_like_its_state_is_read_right(attempt: Attempt) -> None:
    pid = attempt.start(ODD_NAME)
    assert attempt.told() == pid
    found = looked(pid)
    assert (found.ppid, found.pgid, found.sid, found.uid) == (os.getpid(), pid, pid, os.geteuid())
    assert found.state in "RS"
    assert not found.is_zombie
    assert found.start_ticks > 0
    assert proc.all_processes()[pid].identity == found.identity


def test_a_zombie_is_seen_and_marked_and_a_gone_process_is_none() -> None:
    process = subprocess.Popen(["true"])
    wait_for(lambda: state(process.pid) == "Z", what="a zombie")
    assert proc.all_processes()[process.pid].is_zombie
    assert proc.describe(process.pid, 12345678) == f"pid {process.pid} (uid 12345678), gone"
    process.wait()
    assert proc.look(process.pid) is None
    assert proc.command(process.pid) == ""
    assert proc.environ_value(process.pid, b"PATH") is None
    assert proc.describe(process.pid) == f"pid {process.pid}, gone"


def test_descendants_are_children_of_children_but_not_strangers(attempt: Attempt) -> None:
    parent = attempt.start("if os.fork() == 0:\n    if os.fork() == 0:\n        ready()\nsignal.pause()")
    grandchild = attempt.told()
    child = looked(grandchild).ppid
    below = proc.descendants(parent, proc.all_processes())
    assert below == {child, grandchild}
    assert {parent, *below} <= proc.descendants(os.getpid(), proc.all_processes())
    assert [found.pid for found in proc.ancestors(grandchild)][:3] == [child, parent, os.getpid()]


def test_those_above_a_process_are_all_found_also_where_one_dies_meanwhile() -> None:
    def one(pid: int, parent: int) -> proc.Proc:
        return proc.Proc(pid, parent, 1, 1, pid, "S", 0)

    looks = {9: [one(9, 8), one(9, 2)], 8: [None], 2: [one(2, 1)], 1: [one(1, 0)]}
    assert [each.pid for each in proc.lineage(9, lambda pid: looks[pid].pop(0))] == [9, 2, 1]


def test_descent_ends_also_where_reused_pids_make_a_circle() -> None:
    one, two = (proc.Proc(pid, 3 - pid, 1, 1, 1, "S", 0) for pid in (1, 2))
    assert proc.descendants(1, {1: one, 2: two}) == {2}


def test_a_variable_is_read_whole_and_never_by_a_part_of_its_name() -> None:
    env = {"XOUTLAST": "no", "A": "b=OUTLAST=no", "OUTLAST": "yes=1", "OUTLAST_MORE": "no"}
    with running(["sleep", "600"], env=env) as process:
        assert wait_for(lambda: proc.environ_value(process.pid, b"OUTLAST"), what="the exec") == b"yes=1"
        assert proc.environ_value(process.pid, b"UTLAST") is None
        assert proc.environ_value(process.pid, b"B") is None


def test_an_environment_that_is_not_ours_to_read_is_none(as_nobody: Nobody) -> None:
    need_root()
    with running(["sleep", "600"], env={"OUTLAST_ATTEMPT": "r.1"}) as process:
        script = (
            "import sys; from outlast.processes import proc; pid = int(sys.argv[1]);"
            "print(proc.environ_value(pid, b'OUTLAST_ATTEMPT'), proc.describe(pid))"
        )
        done = as_nobody.run([sys.executable, "-c", script, str(process.pid)])
        assert done.stdout == f"None pid {process.pid} (root: sleep 600)\n", done.stderr


def test_a_process_whose_first_thread_has_ended_lives_and_shows_its_environment(attempt: Attempt) -> None:
    script = """
import threading
def rest():
    me = Path("/proc/self/stat")
    while b") Z" not in me.read_bytes():
        pass
    ready()
    signal.sigwait([signal.SIGUSR1])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
threading.Thread(target=rest).start()
ctypes.CDLL(None).syscall(int(sys.argv[1]), 0)  # exit of this thread alone
"""
    pid = attempt.start(script, "60" if os.uname().machine == "x86_64" else "93")
    attempt.told()
    found = looked(pid)
    assert (found.state, found.is_zombie) == ("Z", False)
    assert proc.environ_value(pid, b"OUTLAST_ATTEMPT") == attempt.mark.encode()
    assert attempt.pids() == {pid}


def test_a_command_is_one_short_harmless_line_without_secrets() -> None:
    token = "ghp_" + "a" * 36
    url = f"--url=https://me:hunter22@host/{token}"
    words = [url, "\x1b[2J\n\r\u202eodd", os.fsdecode(b"\xff\xfe"), "x" * 3000]
    with running([sys.executable, "-c", "import signal; signal.pause()", *words]) as process:
        said = wait_for(lambda: "url" in (line := proc.command(process.pid)) and line, what="the exec")
        assert len(said) == proc.COMMAND_MAX_CHARS
        assert said.isprintable()
        assert "hunter22" not in said
        assert token not in said
        assert "odd" in said
        assert proc.describe(process.pid).startswith(f"pid {process.pid} ({proc.user_name(os.geteuid())}: ")


def test_a_secret_that_the_read_cuts_off_is_not_shown() -> None:
    before, seen = "odd\0-f\0/dev/null\0", "ghp_12345678"
    room = proc.COMMAND_MAX_BYTES - len(before) - len(seen) - 1
    long = "sk-ant-".ljust(room, "k")  # masked it is short, and gives room to what comes after
    with running(
        ["bash", "-c", 'exec -a odd tail -f /dev/null "$@"', "_", long, seen.ljust(40, "9")]
    ) as process:
        said = wait_for(
            lambda: (line := proc.command(process.pid)).startswith("odd") and line, what="the exec"
        )
        assert said == "odd -f /dev/null [masked:Anthropic key]"
