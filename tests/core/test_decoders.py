"""Decoding by type from several threads, and around a fork. Each test is a process of its own: what fails there is a crash."""

import subprocess
import sys

import pytest

from tests.support.environment import TIMEOUT_S, Isolated

# Types that nobody has described yet, one after another; each thread waits at the barrier, then decodes at once with
# the others, one of them only a type inside.
THREADS = """
import sys, threading
import msgspec
from outlast import decoders

sys.setswitchinterval(1e-6)
WAYS = {"json": decoders.decode, "msgpack": decoders.unpack, "plain": decoders.convert}
decode = WAYS[sys.argv[1]]
coded = {"json": msgspec.json.encode, "msgpack": msgspec.msgpack.encode, "plain": lambda value: value}[sys.argv[1]]
inner = {f"f{k}": 1 for k in range(3)}
middle = {f"f{k}": inner for k in range(20)}
OUTER, MIDDLE = coded({f"m{k}": middle for k in range(20)}), coded(middle)
failed = []

def fresh(number):
    inner = msgspec.defstruct(f"I{number}", [(f"f{k}", int, 0) for k in range(30)])
    middle = msgspec.defstruct(f"M{number}", [(f"f{k}", inner | None, None) for k in range(20)])
    return middle, msgspec.defstruct(f"O{number}", [(f"m{k}", middle | None, None) for k in range(20)])

def work(barrier, data, wanted):
    barrier.wait()
    try:
        assert isinstance(decode(data, wanted), wanted)
    except BaseException as error:
        failed.append(error)

for number in range(200):
    middle, outer = fresh(number)
    barrier = threading.Barrier(4)
    work_of = [(OUTER, outer), (OUTER, outer), (OUTER, outer), (MIDDLE, middle)]
    threads = [threading.Thread(target=work, args=(barrier, *each)) for each in work_of]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
sys.exit(repr(failed[0]) if failed else 0)
"""

# `Slow` is described while the process forks: the hook that is registered last runs first, and lets the thread go on.
FORK = """
import os, signal, threading
import msgspec
from outlast import decoders

described, forks = threading.Event(), threading.Event()

def slow():
    described.set()
    forks.wait()
    return int

class Slow(msgspec.Struct):
    value: "slow()" = 0

os.register_at_fork(before=forks.set)
thread = threading.Thread(target=decoders.of_json, args=(Slow,))
thread.start()
described.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)  # a lock that nobody gives back is waited for without end
    os._exit(0 if decoders.decode(b'{"value": 7}', Slow).value == 7 else 1)
thread.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child did not decode"
assert decoders.decode(b'{"value": 7}', Slow).value == 7
"""


def _end_of(state: Isolated, program: str, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *words],
        env=state.environ(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("way", ["json", "msgpack", "plain"])
def test_threads_that_first_decode_a_type_at_once_all_get_it(way: str, state: Isolated) -> None:
    assert _end_of(state, THREADS, way) == (0, "")


def test_a_child_forked_while_a_type_is_described_decodes_it(state: Isolated) -> None:
    assert _end_of(state, FORK) == (0, "")
