"""Everything of an attempt is found and stopped, whatever it does to stay; and nobody else is touched."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outlast.processes import reap
from outlast.processes.cgroups import Group
from outlast.processes.proc import describe
from outlast.processes.timing import Timing
from tests.conftest import Nobody
from tests.processes.attempts import PREAMBLE, Attempt, looked
from tests.support import environment, processes
from tests.support.processes import alive, running, state, wait_for

WAITS = "ready(); signal.pause()"
IGNORES = "signal.signal(signal.SIGTERM, signal.SIG_IGN); ready()\nwhile True: signal.pause()"
DAEMON = """
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
ready()
while True: signal.pause()
"""
# Every runner forks, leaves its session and lets the parent exit, as fast as it can, until the end of its time.
BOMB = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # as fast as one core can: the tests beside this keep the others
end = time.monotonic() + 25
for _ in range(int(sys.argv[1]) - 1):
    if os.fork() == 0:
        break
else:
    ready()
while time.monotonic() < end:
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        continue
    os.setsid()
"""
# Adopts the orphans of what it starts, and takes their zombies at once: a bomb must not fill the table of pids.
KEEPER = """
from outlast.processes import spawn as spawning
spawning.become_subreaper()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    os.execve(sys.executable, [sys.executable, "-c", *sys.argv[2:]], {**os.environ, "OUTLAST_ATTEMPT": sys.argv[1]})
Path("keeper").write_text("here")
while True: signal.pause()
"""


def stopped(attempt: Attempt, *, grace_s: float = 0.2, first: int | None = signal.SIGTERM) -> reap.ReapReport:
    return reap.stop(lambda: reap.search(attempt.run), first=first, grace_s=grace_s)


def test_an_attempt_is_found_by_its_mark_in_any_epoch_or_in_one(attempt: Attempt) -> None:
    mine = attempt.start(WAITS)
    attempt.told()
    assert attempt.pids() == attempt.pids(epoch=3) == {mine}
    assert attempt.pids(epoch=4) == set()
    for other in (attempt.run[:-1], attempt.run + "1", "", f"{attempt.run}.3", "3"):
        assert reap.find(other) == []


def test_a_process_that_ends_when_asked_is_stopped_and_not_killed(attempt: Attempt) -> None:
    pid = attempt.start(WAITS)
    attempt.told()
    before = time.monotonic()
    done = stopped(attempt, grace_s=30)
    assert time.monotonic() - before < 25
    assert attempt.all_gone()
    assert [name.split(" (")[0] for name in done.stopped] == [f"pid {pid}"]
    assert (done.killed, done.escaped) == ((), ())


def test_a_process_that_ignores_the_signal_is_killed_after_the_grace(attempt: Attempt) -> None:
    pid = attempt.start(IGNORES)
    attempt.told()
    done = stopped(attempt)
    assert attempt.all_gone()
    assert done.killed[0].startswith(f"pid {pid} ({describe(os.getpid()).split('(')[1].split(':')[0]}: ")
    assert (done.stopped, done.escaped) == ((), ())


def test_a_hurried_wait_ends_the_grace_at_once(attempt: Attempt) -> None:
    attempt.start(IGNORES)
    attempt.told()
    before = time.monotonic()
    done = reap.stop(attempt.find, grace_s=600, on_wait=lambda: True)
    assert time.monotonic() - before < 30
    assert len(done.killed) == 1
    assert attempt.all_gone()


def test_a_shell_that_is_stopped_does_not_go_on_with_its_next_command(attempt: Attempt) -> None:
    many = 100  # between the signal to the youngest, its command, and one to the shell there would be time
    shell = f"for n in $(seq {many}); do sleep 1000 & done; sleep 1000; : > next"
    attempt.start(f"os.execvp('sh', ['sh', '-c', {shell!r}])")
    wait_for(lambda: len(attempt.pids()) == many + 2 or None, what="the shell's commands")
    stopped(attempt, grace_s=30)
    assert attempt.all_gone()
    assert not (attempt.folder / "next").exists()


def test_what_was_started_for_one_call_is_found_by_its_mark_and_below_its_first_process(
    attempt: Attempt,
) -> None:
    call = f"{attempt.mark}.2"
    variables = {"OUTLAST_ATTEMPT": attempt.mark, "OUTLAST_CALL": call}
    script = f"""
if os.fork() == 0:
    os.setsid()
    os.execve(sys.executable, [sys.executable, "-c", {PREAMBLE + WAITS!r}], {variables})
ready("first")
signal.pause()
"""
    first = attempt.start(script)
    attempt.told("first")
    child = attempt.told()
    assert {proc.pid for proc in reap.search_call(call)} == {child}
    assert {proc.pid for proc in reap.search_call(call, root=looked(first))} == {first, child}
    assert list(reap.search_call(f"{call}1")) == []


def test_a_frozen_process_gets_the_signal_and_a_chance_to_end_well(attempt: Attempt) -> None:
    script = "signal.signal(signal.SIGTERM, lambda *_: (ready('ended'), os._exit(0))); ready()\nwhile True: signal.pause()"
    pid = attempt.start(script)
    attempt.told()
    processes.stop(pid)
    done = stopped(attempt, grace_s=30)
    assert attempt.told("ended") == pid
    assert len(done.stopped) == 1
    assert attempt.all_gone()


def test_a_child_that_is_born_while_its_parent_ends_is_asked_too(attempt: Attempt) -> None:
    script = """
def last_words(*_):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, lambda *_: (ready("asked"), os._exit(0)))
        ready("born")
        while True: signal.pause()
    while not os.path.exists("born"):
        pass
    os._exit(0)
signal.signal(signal.SIGTERM, last_words)
ready()
while True: signal.pause()
"""
    attempt.start(script)
    attempt.told()
    done = stopped(attempt, grace_s=30)
    assert attempt.told("asked") == attempt.told("born")
    assert (len(done.stopped), done.killed) == (2, ())
    assert attempt.all_gone()


def test_an_orphan_in_a_session_of_its_own_is_found_and_killed(attempt: Attempt) -> None:
    attempt.start(DAEMON)
    orphan = attempt.told()
    wait_for(lambda: looked(orphan).ppid != os.getpid(), what="the orphan's adoption")
    assert attempt.pids() == {orphan}
    stopped(attempt, first=None)
    assert attempt.all_gone()


def test_a_process_that_wiped_its_environment_is_found_by_descent(attempt: Attempt) -> None:
    parent = attempt.start("if os.fork() == 0:\n    os.setsid(); forget_mark(); ready()\nsignal.pause()")
    child = attempt.told()
    assert attempt.pids() == {parent, child}
    stopped(attempt, first=None)
    assert attempt.all_gone()


def test_a_wiped_orphan_is_found_by_the_session_that_one_of_us_leads(attempt: Attempt) -> None:
    script = """
if os.fork() == 0:
    os.setpgid(0, 0)
    middle = os.getpid()
    if os.fork():
        os._exit(0)
    forget_mark()
    while os.getppid() == middle: pass
    ready()
signal.pause()
"""
    leader = attempt.start(script)
    orphan = attempt.told()
    assert leader != looked(orphan).ppid
    assert attempt.pids() == {leader, orphan}
    stopped(attempt, first=None)
    assert attempt.all_gone()


def test_a_wiped_orphan_in_a_session_of_its_own_is_found_below_the_guardian(attempt: Attempt) -> None:
    wiped = PREAMBLE + "forget_mark()" + DAEMON.replace("ready()", "forget_mark(); ready()")
    guardian = attempt.start(KEEPER, attempt.mark, wiped, marked=False)
    orphan = attempt.told()
    wait_for(lambda: looked(orphan).ppid == guardian, what="the guardian to adopt it")
    assert attempt.pids() == set()
    assert attempt.pids(roots=[guardian], spare=[guardian]) == {orphan}
    reap.stop(lambda: attempt.find(roots=[guardian], spare=[guardian]), first=signal.SIGTERM, grace_s=1)
    assert not alive(orphan)
    assert alive(guardian)


HELPERS = """
import subprocess
helper = subprocess.Popen(["sleep", "600"], env={})
agent = subprocess.Popen([sys.executable, "-c", sys.argv[2]], env={"OUTLAST_ATTEMPT": sys.argv[1]}, start_new_session=True)
Path("helper").write_text(str(helper.pid))
Path("agent").write_text(str(agent.pid))
ready()
signal.pause()
"""


def test_those_who_are_spared_keep_their_own_helpers(attempt: Attempt) -> None:
    supervisor = attempt.start(HELPERS, attempt.mark, PREAMBLE + "ready('up')\nsignal.pause()", marked=False)
    attempt.told(), attempt.told("up")
    agent, helper = attempt.told("agent"), attempt.told("helper")
    assert attempt.pids(roots=[supervisor], spare=[supervisor]) == {agent}
    assert attempt.pids(roots=[supervisor]) == {agent, supervisor, helper}


def test_one_who_is_inside_an_attempt_finds_neither_itself_nor_its_ancestors(attempt: Attempt) -> None:
    script = """
import subprocess
from outlast.processes import reap as reaping
helper = subprocess.Popen(["sleep", "600"])
found = [proc.pid for proc in reaping.find(sys.argv[1])]
inside = reaping.ancestor_in_run(sys.argv[1])
helper.kill(); helper.wait()
Path("found").write_text(f"{found} {inside and inside.pid == os.getppid()} {reaping.ancestor_in_run('other')}")
ready()
signal.pause()
"""
    attempt.start(
        "import subprocess; subprocess.run([sys.executable, '-c', *sys.argv[1:]], start_new_session=True)",
        PREAMBLE + script,
        attempt.run,
    )
    attempt.told()
    assert (attempt.folder / "found").read_text() == "[] True None"


@pytest.mark.sampled(0)
@pytest.mark.parametrize(("runners", "known"), [(200, "by descent"), (50, "by its mark")])
def test_a_fork_bomb_is_frozen_and_killed(attempt: Attempt, runners: int, known: str) -> None:
    keeper = attempt.start(KEEPER, attempt.mark, PREAMBLE + BOMB, str(runners), marked=False)
    wait_for((attempt.folder / "ready").exists, what="the bomb to go off")
    shape = {"roots": [keeper], "spare": [keeper]} if known == "by descent" else {}
    done = reap.stop(lambda: reap.search(attempt.run, **shape), first=None, grace_s=0)
    os.kill(keeper, signal.SIGKILL)
    assert attempt.all_gone(30.0), "some of the bomb are alive"
    assert done.escaped == ()
    assert runners // 4 < len(done.killed) <= reap.NAMED_MAX + 1


def test_a_single_process_that_only_forks_and_exits_is_caught(attempt: Attempt) -> None:
    keeper = attempt.start(KEEPER, attempt.mark, PREAMBLE + BOMB, "1", marked=False)
    wait_for((attempt.folder / "ready").exists, what="the hopper to start")
    stopped(attempt)
    os.kill(keeper, signal.SIGKILL)
    assert attempt.all_gone(30.0), "the hopper is alive"


def test_a_zombie_is_nobody_to_stop(attempt: Attempt) -> None:
    pid = attempt.start("os._exit(0)")
    wait_for(lambda: state(pid) == "Z", what="a zombie")
    assert attempt.find(roots=[pid]) == []
    before = time.monotonic()
    assert stopped(attempt, grace_s=30) == reap.ReapReport()
    assert time.monotonic() - before < 25


def test_another_users_process_escapes_and_is_named(as_nobody: Nobody) -> None:
    environment.need_root()
    script = """
import sys
from outlast.processes import proc, reap as reaping
found = proc.look(int(sys.argv[1]))
print(reaping.stop(lambda: [found], grace_s=30))
"""
    with running(["sleep", "600"]) as process:
        done = as_nobody.run([sys.executable, "-c", script, str(process.pid)])
        escaped = f"escaped=('pid {process.pid} (root: sleep 600)',)"
        assert done.stdout == f"ReapReport(stopped=(), killed=(), {escaped})\n", done.stderr
        assert alive(process.pid)


def test_a_process_that_does_not_die_escapes_and_is_named_in_bounded_time(attempt: Attempt) -> None:
    """A frozen group of cgroup v1 takes no SIGKILL until it is thawed: the real uninterruptible sleep."""
    environment.need_root()
    mount = Path("/sys/fs/cgroup/freezer")
    if not (mount / "cgroup.procs").exists():
        environment.skip_or_fail("needs the freezer of cgroup v1")
    folder = mount / f"outlast-test-{attempt.run}"
    pid = attempt.start(WAITS)
    attempt.told()
    folder.mkdir()
    try:
        (folder / "cgroup.procs").write_text(str(pid))
        (folder / "freezer.state").write_text("FROZEN")
        wait_for(lambda: (folder / "freezer.state").read_text() == "FROZEN\n", what="the frost")
        before = time.monotonic()
        done = stopped(attempt)
        assert time.monotonic() - before < Timing().kill_limit_s + 10
        assert [name.split(" (")[0] for name in done.escaped] == [f"pid {pid}"]
        assert (done.stopped, done.killed) == ((), ())
    finally:
        (folder / "freezer.state").write_text("THAWED")
        wait_for(lambda: not alive(pid), what="its end")
        wait_for(lambda: not (folder / "cgroup.procs").read_text(), what="an empty group")
        folder.rmdir()


@pytest.fixture
def group(attempt: Attempt) -> Group:
    made = Group.make(f"outlast-test-{attempt.run}")
    if made is None:
        environment.skip_or_fail("needs a cgroup v2 folder to write to")
    return made


def test_what_is_in_a_group_is_known_and_killed_also_without_mark_or_parent(
    attempt: Attempt, group: Group
) -> None:
    try:
        gate = attempt.folder / "gate"
        os.mkfifo(gate)
        pid = attempt.start("open('gate').read()\n" + DAEMON, marked=False)
        assert group.add(pid)
        gate.write_text("the group holds you")
        orphan = attempt.told()
        assert orphan in group.pids()
        assert not group.remove()
        group.kill()
        assert attempt.all_gone()
    finally:
        group.kill()
        wait_for(group.remove, what="an empty group")


def test_a_group_is_killed_one_by_one_where_the_kernel_cannot_do_it_at_once(
    attempt: Attempt, group: Group
) -> None:
    try:
        attempt.start("if os.fork() == 0: ready()\nsignal.pause()")
        child = attempt.told()
        for pid in (child, looked(child).ppid):
            assert group.add(pid)
        group._kill_each()
        assert attempt.all_gone()
    finally:
        group.kill()
        wait_for(group.remove, what="an empty group")


def test_where_no_group_can_be_made_there_is_none_and_no_complaint(as_nobody: Nobody) -> None:
    environment.need_root()
    script = "from outlast.processes.cgroups import Group; print(Group.make('outlast-test-nobody'))"
    done = as_nobody.run([sys.executable, "-c", script])
    assert (done.stdout, done.stderr) == ("None\n", "")


def test_a_gone_pid_cannot_be_put_into_a_group(group: Group) -> None:
    try:
        process = subprocess.Popen(["true"])
        process.wait()
        assert not group.add(process.pid)
    finally:
        wait_for(group.remove, what="an empty group")
