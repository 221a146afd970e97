"""The part of the conformance suite about the shelf: small documents that are changed by one at a time."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from random import Random

import pytest

from outlast.errors import StoreBusy
from outlast.store.protocol import ShelfKind, Store
from tests.support import processes

KINDS: tuple[ShelfKind, ...] = ("walls", "pools", "pressed")
REPLACED: tuple[ShelfKind, ...] = ("walls", "pools")  # what was pressed is only added to
COUNTS = 40

# Adds one to a number as often as asked, and says each number when it is acknowledged.
COUNTING = """
import json, sys
store = eval(sys.argv[1])
def more(before):
    return json.dumps({"n": (json.loads(before)["n"] if before else 0) + 1, "fill": "x" * 5000}).encode()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[4])):
    print(json.loads(store.shelf.change(sys.argv[2], sys.argv[3], more))["n"], flush=True)
"""

# Holds a document, puts a first line into it, and then does what takes for ever.
HOLDING = """
import sys
store = eval(sys.argv[1])
with store.shelf.hold(sys.argv[2], "one") as held:
    held.put(b'"intent"\\n', room=4096)
    print("ready", flush=True)
    sys.stdin.readline()
"""


@contextlib.contextmanager
def started(text: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has said it is ready; gone at the end of the block."""
    process = subprocess.Popen(
        processes.python_command(text, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=processes.clean_environment(),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def go(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.flush()


def count(data: bytes | None) -> int:
    return 0 if data is None else int(json.loads(data)["n"])


class ShelfConformance:
    """What every backend promises of its shelf; `StoreConformance` has it all."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_document_comes_back_to_everybody_until_it_is_taken_away(
        self, kind: ShelfKind, store: Store, another: Callable[[], Store]
    ) -> None:
        shelf, other = store.shelf, another().shelf
        assert (shelf.get(kind, "one"), list(shelf.every(kind))) == (None, [])
        for name in ("two", "one"):
            assert shelf.change(kind, name, lambda before: b'"%d"\n' % (before is None)) == b'"1"\n'
        assert [(name, data.strip()) for name, data in other.every(kind)] == [
            ("one", b'"1"'),
            ("two", b'"1"'),
        ]
        assert json.loads(other.get_unheld(kind, "one") or b"0") == "1"
        assert other.change(kind, "one", lambda before: None) is None
        assert shelf.get(kind, "one") is None
        assert [name for name, _ in shelf.every(kind)] == ["two"]
        for elsewhere in set(KINDS) - {kind}:
            assert list(shelf.every(elsewhere)) == []

    def test_a_pool_may_have_any_name(self, store: Store) -> None:
        for name in ("", "/home/me/my app/.git", "wörld", "a\nb"):
            store.shelf.change("pools", name, lambda before, name=name: json.dumps(name).encode())
        for name, data in store.shelf.every("pools"):
            assert json.loads(data) == name
            assert store.shelf.get("pools", name) == data

    @pytest.mark.parametrize("kind", REPLACED)
    def test_of_processes_that_change_at_once_none_takes_back_what_another_did(
        self, kind: ShelfKind, store: Store, script: str
    ) -> None:
        with contextlib.ExitStack() as stack:
            each = ["same", "same", "other"]
            words = [(script, kind, name, str(COUNTS)) for name in each]
            counting = [stack.enter_context(started(COUNTING, *word)) for word in words]
            for process in counting:
                go(process)
            said = [process.communicate(timeout=60)[0].split() for process in counting]
            assert [process.returncode for process in counting] == [0, 0, 0]
        assert sorted(map(int, said[0] + said[1])) == list(range(1, 2 * COUNTS + 1)), "each number once"
        assert [count(store.shelf.get(kind, name)) for name in ("same", "other")] == [2 * COUNTS, COUNTS]

    @pytest.mark.parametrize("kind", REPLACED)
    def test_killed_at_any_time_what_was_acknowledged_is_there_whole_and_the_next_goes_on(
        self, kind: ShelfKind, store: Store, script: str, rng: Random
    ) -> None:
        told = 0
        for _ in range(6):
            with started(COUNTING, script, kind, "one", "1000000") as process:
                go(process)
                for _ in range(rng.randrange(1, 30)):
                    assert process.stdout is not None
                    told = int(process.stdout.readline())
                assert processes.kill(process) == -9
                told = int((process.stdout.read().rpartition(b"\n")[0].split() or [b"%d" % told])[-1])
            found = count(store.shelf.get(kind, "one"))
            assert told <= found <= told + 1, "the last one may not have been told of"
            told = count(store.shelf.change(kind, "one", lambda before: b'{"n": %d}' % (count(before) + 1)))

    @pytest.mark.parametrize("kind", REPLACED)
    def test_who_looks_at_all_of_them_sees_whole_documents_only(
        self, kind: ShelfKind, store: Store, script: str
    ) -> None:
        with started(COUNTING, script, kind, "one", "1000000") as process:
            go(process)
            assert process.stdout is not None
            process.stdout.readline()
            seen = [count(data) for _ in range(300) for _, data in store.shelf.every(kind)]
        assert len(seen) == 300, "it is there at every look"
        assert seen == sorted(seen)

    @pytest.mark.parametrize("kind", KINDS)
    def test_what_is_held_is_nobody_elses_and_a_killed_holder_leaves_what_it_put(
        self, kind: ShelfKind, store: Store, script: str
    ) -> None:
        shelf = store.shelf
        with started(HOLDING, script, kind):
            with pytest.raises(StoreBusy), shelf.hold(kind, "one", wait_s=0.0):
                pytest.fail("it is held")
            assert shelf.get_unheld(kind, "one") is None, "it is under way"
            assert json.loads(shelf.get(kind, "one") or b"0") == "intent", "and durable"
        assert json.loads(shelf.get_unheld(kind, "one") or b"0") == "intent"
        with shelf.hold(kind, "one", wait_s=0.0) as held:
            assert json.loads(held.get() or b"0") == "intent"

    def test_lines_are_added_into_the_room_that_was_kept(self, store: Store) -> None:
        with store.shelf.hold("pressed", "one") as held:
            held.put(b"first\n", room=8192)
            assert held.get() == b"first\n", "room is no part of it"
            held.put(b"first\nsecond\n")
            assert held.get() == b"first\nsecond\n"
        assert list(store.shelf.every("pressed")) == [("one", b"first\nsecond\n")]

    @pytest.mark.parametrize("kind", KINDS)
    def test_who_holds_a_document_and_puts_nothing_leaves_nothing(
        self, kind: ShelfKind, store: Store
    ) -> None:
        with store.shelf.hold(kind, "one") as held:
            assert held.get() is None
        with store.shelf.hold(kind, "two") as held:
            held.put(b'"x"\n')
            held.put(None)
        assert list(store.shelf.every(kind)) == []

    def test_a_sweep_keeps_the_newest_and_what_is_held(
        self, store: Store, another: Callable[[], Store]
    ) -> None:
        shelf = store.shelf
        for name in ("a", "b", "c"):
            shelf.change("pressed", name, lambda before: b"x\n")
        assert shelf.sweep("pressed", newest=3, older_than_s=60.0) == 0
        with another().shelf.hold("pressed", "a"):
            assert shelf.sweep("pressed", newest=0, older_than_s=60.0) == 2
            assert [name for name, _ in shelf.every("pressed")] == ["a"]
        assert shelf.sweep("pressed", newest=3, older_than_s=-60.0) == 1

    def test_a_kind_of_act_is_done_by_one_at_a_time(self, store: Store, another: Callable[[], Store]) -> None:
        other = another()
        with store.exclusive("r1", "asking", wait_s=0.0):
            with pytest.raises(StoreBusy), other.exclusive("r1", "asking", wait_s=0.0):
                pytest.fail("somebody is at it")
            with other.exclusive("r1", "saving", wait_s=0.0), other.exclusive("r2", "asking", wait_s=0.0):
                pass
        with other.exclusive("r1", "asking", wait_s=0.0):
            pass
