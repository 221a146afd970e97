"""An act whose function started a process is not done twice when its program is killed and the process lives on."""

import ast
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlast
from outlast.core.events import Finding
from outlast.operations import requests
from outlast.processes import reap
from outlast.processes.proc import hides_environ
from outlast.store.locks import boottime_s
from tests.support.environment import NOBODY, need_root
from tests.support.inprocess import at_point, attempt, head_of, reading
from tests.support.processes import alive, clean_environment, gone, kill, spawn, wait_for

# The act starts a process that says that it lives, and posts when it is let; the program waits for it.
PROGRAM = """\
import os, pathlib, subprocess, sys, time
import outlast

world, how = pathlib.Path(sys.argv[1]), sys.argv[2]
TASK = f"echo $$ > {world}/child; while [ ! -e {world}/go ]; do sleep 0.05; done; echo x >> {world}/acts"

def task():
    (world / "child").write_text(str(os.getpid()))
    while not (world / "go").exists():
        time.sleep(0.02)
    with open(world / "acts", "a") as file:
        file.write("x\\n")

def post():
    if how == "run":
        subprocess.run(["bash", "-c", TASK])
    elif how == "setsid":
        subprocess.Popen(["setsid", "bash", "-c", TASK]).wait()
    elif how == "daemon":
        subprocess.run(["bash", "-c", f"(setsid bash -c '{TASK}' &) &"])
        time.sleep(600)
    elif how == "thread":
        import threading
        thread = threading.Thread(target=lambda: subprocess.run(["bash", "-c", TASK]))
        thread.start()
        thread.join()
    elif how == "fork":
        import multiprocessing
        child = multiprocessing.get_context("fork").Process(target=task)
        child.start()
        child.join()
    elif how == "pool":
        pool.submit(task).result()
    elif how == "spawn":
        import multiprocessing
        child = multiprocessing.get_context("spawn").Process(target=task)
        child.start()
        child.join()
    return "posted"

async def posting():
    import asyncio
    child = await asyncio.create_subprocess_exec("bash", "-c", TASK)
    await child.wait()

def look():
    return outlast.Happened() if (world / "acts").exists() else outlast.DidNotHappen()

if __name__ == "__main__":
    probe = outlast.Probe(look, settle_s=0)
    if how == "async":
        import asyncio
        async def main():
            async with outlast.run("t") as run:
                async for beat in run.beats():
                    await beat.act("post", posting, probe=probe)
                    beat.finish()
                    await beat.done()
        asyncio.run(main())
    else:
        with outlast.run("t") as run:
            if how == "pool":
                import concurrent.futures, multiprocessing
                pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
                pool.submit(int).result()
            for beat in run.beats():
                beat.act("post", post, probe=probe)
                beat.finish()
                beat.done()
"""


@pytest.fixture
def world(tmp_path: Path, state: object) -> Path:
    made = tmp_path / "world"
    made.mkdir()
    (tmp_path / "job.py").write_text(PROGRAM)
    return made


def begin(world: Path, how: str, *before: str) -> "subprocess.Popen[bytes]":
    words = [*before, sys.executable, str(world.parent / "job.py"), str(world), how]
    env = clean_environment({"OUTLAST_STORE": str(world.parent / "store")})
    return spawn(words, output=world / "said", cwd=world, env=env)


def child(world: Path, other: int = 0) -> int:
    text = wait_for(
        lambda: (world / "child").exists() and (world / "child").read_text().strip(), what="the act's child"
    )
    pid = int(text)
    return wait_for(lambda: pid if pid != other else None, what="another child")


@pytest.mark.parametrize("how", ["run", "setsid", "daemon", "thread", "async", "fork", "pool", "spawn"])
def test_what_a_killed_programs_act_started_is_stopped_before_the_act_is_done_again(
    world: Path, how: str
) -> None:
    first = begin(world, how)
    left = child(world)
    kill(first)
    assert alive(left)
    (world / "child").unlink()
    second = begin(world, how)
    try:
        child(world, other=left)  # the act is under way again
        assert not alive(left), "the first one would post, too"
        (world / "go").touch()
        if how == "daemon":
            wait_for(lambda: (world / "acts").exists(), what="the act")
            kill(second)
        else:
            assert second.wait(60) == 0, (world / "said").read_text()
    finally:
        kill(second)
        for pid in (left, int((world / "child").read_text())):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
    assert (world / "acts").read_text() == "x\n"


def test_what_was_started_before_the_act_or_by_an_act_of_another_run_is_left_alone(world: Path) -> None:
    """Its mark says which attempt had an act under way, and when it was started says which act."""
    env = {**os.environ, "OUTLAST_ACTS": "aaaaaaaaaaaa.1"}
    other = subprocess.Popen(["setsid", "--fork", "sleep", "600"], env=env)
    other.wait()
    (pid,) = wait_for(lambda: [p.pid for p in reap.search_acts("aaaaaaaaaaaa", 0, world / "no").own] or None)
    try:
        assert not reap.search_acts("bbbbbbbbbbbb", 0, world / "no").own
        later = float(Path("/proc/uptime").read_text().split()[0]) + 60
        assert not reap.search_acts("aaaaaaaaaaaa", later, world / "no").own
        os.kill(pid, 0)
    finally:
        os.kill(pid, signal.SIGKILL)
        gone([pid])


def test_one_that_belongs_to_an_act_of_another_run_too_leaves_the_effect_in_doubt(
    start: Callable[..., outlast.Run], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_TIMING", "runs.leftover_wait_s=0.1")
    acts: list[int] = []

    def body(run: outlast.Run) -> None:
        for beat in run.beats():
            probe = outlast.Probe(lambda: outlast.DidNotHappen(), settle_s=0)
            beat.act("post", lambda: acts.append(1), probe=probe)
            beat.finish()
            beat.done()

    assert not attempt(start(), body, at_point("act.intended"))
    run = head_of(store).run
    env = {**os.environ, "OUTLAST_ACTS": f"{run}.1 bbbbbbbbbbbb.1"}
    subprocess.run(["setsid", "--fork", "sleep", "600"], env=env, check=True)
    (left,) = wait_for(lambda: reap.search_acts(run, 0, store / "no").shared or None)
    try:
        with pytest.raises(outlast.EffectInDoubt, match=f"may still be under way in .*{left.pid}"):
            attempt(start(), body)
        assert not acts
    finally:
        os.kill(left.pid, signal.SIGKILL)
    gone([left.pid])
    assert attempt(start(), body)
    assert acts == [1]


# -- what cannot be seen -----------------------------------------------------------------------------------------------

TITLED = "$0 = 'worker'; sleep 600"  # perl writes it over its environment


def test_without_proc_nobody_knows_that_an_act_of_a_dead_program_is_over(world: Path) -> None:
    need_root()
    first = begin(world, "run")
    left = child(world)
    kill(first)
    hidden = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    second = begin(world, "run", *hidden)
    try:
        assert second.wait(60) == 1
        assert "as there is no /proc" in (world / "said").read_text()
        assert alive(left)
    finally:
        kill(second)
        os.kill(left, signal.SIGKILL)
    assert not (world / "acts").exists()


def _is_roots(pid: int) -> bool:
    """Whether a process of another user may be read by root alone: it is not dumpable."""
    return os.stat(f"/proc/{pid}/environ").st_uid != os.stat(f"/proc/{pid}").st_uid


@contextlib.contextmanager
def hiding(*words: str, **how: Any) -> Iterator[int]:
    """A process that outlives whoever started it and hides its environment."""
    with subprocess.Popen(
        ["setsid", "--fork", "sh", "-c", 'echo $$; exec "$@"', "sh", *words], stdout=subprocess.PIPE, **how
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
    try:
        wait_for(lambda: hides_environ(pid) or _is_roots(pid) or None, what="a hidden process")
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.hides
def test_one_that_hides_its_environment_and_was_started_since_leaves_the_effect_in_doubt(
    start: Callable[..., outlast.Run],
) -> None:
    acts: list[int] = []
    assert not attempt(start(), _probed(acts), at_point("act.intended"))
    with (
        hiding("perl", "-e", TITLED) as pid,
        pytest.raises(outlast.EffectInDoubt, match=f"may still be under way in .*{pid}"),
    ):
        attempt(start(), _probed(acts))
    assert not acts
    assert attempt(start(), _probed(acts))
    assert acts == [1]


NOT_DUMPABLE = """import ctypes, time
ctypes.CDLL(None).prctl(4, 0)
time.sleep(600)
"""


def hidden_from(user: int, since_s: float) -> list[int]:
    """The pids that a user finds. A fork asks: another user may not read this test's files."""
    says, tells = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.write(tells, repr([each.pid for each in reap.search_hidden(since_s)]).encode())
        os._exit(0)
    os.close(tells)
    with open(says, encoding="ascii") as found:
        pids = ast.literal_eval(found.read())
    os.waitpid(child, 0)
    return list(pids)


@pytest.mark.hides
def test_one_that_may_not_be_read_is_hidden_from_its_own_user() -> None:
    need_root()
    since_s = boottime_s() - 0.01
    user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    with hiding(sys.executable, "-IS", "-c", NOT_DUMPABLE, **user) as pid:
        assert pid in hidden_from(NOBODY, since_s)


def test_what_a_living_program_that_is_older_started_is_no_act_of_a_dead_one(tmp_path: Path) -> None:
    """As a browser starts its workers: else no doubt could be looked up beside one."""
    os.mkfifo(tmp_path / "go")
    browser = (
        f'echo $$; read x < {tmp_path}/go; perl -e "{TITLED.replace("$", chr(92) + "$")}" & echo $!; wait'
    )
    shell = f"sh -c '{browser.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}'; exit 0"
    with subprocess.Popen(["setsid", "--fork", "sh", "-c", shell], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        older = int(starter.stdout.readline())
        since_s = boottime_s()
        wait_for(lambda: boottime_s() > since_s + 0.02 or None, what="a later tick")
        (tmp_path / "go").write_text("go\n")
        worker = int(starter.stdout.readline())
        try:
            wait_for(lambda: hides_environ(worker) or None, what="a hidden process")
            assert worker not in [each.pid for each in reap.search_hidden(since_s)]
            os.kill(older, signal.SIGKILL)
            wait_for(lambda: worker in [each.pid for each in reap.search_hidden(since_s)] or None)
        finally:
            for pid in (older, worker):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


# -- a probe's "did not" is not a failure of the act -----------------------------------------------------------------


def _probed(acts: list[int]) -> Callable[[outlast.Run], None]:
    def body(run: outlast.Run) -> None:
        for beat in run.beats():
            probe = outlast.Probe(lambda: outlast.DidNotHappen(), settle_s=0)
            beat.act("post", lambda: acts.append(1), probe=probe)
            beat.finish()
            beat.done()

    return body


def test_killed_ever_so_often_before_the_call_the_act_is_done_in_the_end(
    start: Callable[..., outlast.Run],
) -> None:
    acts: list[int] = []
    for _ in range(6):
        assert not attempt(start(), _probed(acts), at_point("act.intended"))
    assert attempt(start(), _probed(acts))
    assert acts == [1]


@pytest.mark.parametrize("finding", ["happened", "did_not", "give_up"])
def test_a_person_can_settle_what_the_probe_denied_and_what_failed(
    start: Callable[..., outlast.Run], store: Path, finding: str
) -> None:
    acts: list[int] = []

    def broken() -> None:
        acts.append(1)
        raise ConnectionError("down")

    def body(run: outlast.Run) -> None:
        for beat in run.beats():
            probe = outlast.Probe(lambda: outlast.DidNotHappen(), settle_s=0)
            beat.act("post", broken if len(acts) < 3 else lambda: acts.append(1), probe=probe)
            beat.finish()
            beat.done()

    with pytest.raises(outlast.EffectFailed):
        attempt(start(), body)
    assert len(acts) == 3
    with pytest.raises(outlast.EffectFailed):
        attempt(start(), body)
    assert len(acts) == 3, "what the program was told stays true"
    with reading(store) as opened:
        requests.settle(opened, head_of(store).run, "1.1", msgspec.convert(finding, Finding))
    assert attempt(start(), body)
    assert len(acts) == 3 + (finding == "did_not")
