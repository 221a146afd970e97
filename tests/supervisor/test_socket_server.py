"""The supervisor's socket: each call gets its own answer, and no caller keeps the others from theirs."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

import outlast
from outlast.runs.run import run_engine
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.socket import connection
from outlast.supervisor.socket.connection import Connection, Gone
from outlast.supervisor.socket.script_calls import ScriptCalls
from outlast.supervisor.socket.server import CONNECTIONS_MAX, Server
from outlast.supervisor.socket.wire import Call, Note, Order, Output, Report, Verdict
from outlast.supervisor.timing import Timing
from tests.support.environment import ROOT, TIMEOUT_S
from tests.support.processes import wait_for

MARK = "run.1"
HELLO = Note(kind="hello", text="", attempt=MARK)


@dataclass
class ServedRun:
    """A server of a real run, and the scripts' side of it."""

    server: Server
    opened: list[Connection] = field(default_factory=list)

    def connected(self) -> Connection:
        self.opened.append(connection.connect(str(self.server.path), TIMEOUT_S))
        return self.opened[-1]

    def call(self, name: str) -> tuple[Connection, Order]:
        """Call a step; the first order."""
        there = self.connected()
        there.send(Call(kind="step", name=name, words=("echo", name), attempt=MARK))
        order = there.receive()
        assert isinstance(order, Order)
        return there, order

    def record(self, name: str) -> None:
        """Have a step recorded that printed its name."""
        there, order = self.call(name)
        assert order.do == "run"
        path = self.server.path.with_name(f"{self.server.path.name}.in-{name}")
        path.write_bytes(msgspec.msgpack.encode(Output(0, name.encode())))
        there.send(Report(exit_code=0, output=str(path), ended_ns=1))
        assert there.receive() == Order(do="done")

    def spooled(self) -> list[str]:
        return [path.name for path in self.server.path.parent.glob("socket.*-*")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sockets").mkdir()
    return tmp_path / "sockets"


@contextlib.contextmanager
def serving(tmp_path: Path, folder: Path, silent_s: float = 10.0) -> Iterator[ServedRun]:
    """One attempt of the same run each time."""
    with outlast.run("t", store=str(tmp_path / "store"), project="p") as run:
        served = ServedRun(
            Server(
                folder / "socket",
                MARK,
                ScriptCalls(BeatInFlight(run_engine(run))),
                timing=Timing(silent_s=silent_s),
            )
        )
        try:
            yield served
        finally:
            served.server.close()
            for there in served.opened:
                there.close()


def read(order: Order) -> bytes:
    return msgspec.msgpack.decode(Path(order.output).read_bytes(), type=Output).out


def test_the_pipe_of_a_shell_stays_as_long_as_a_process_of_it_lives(tmp_path: Path, folder: Path) -> None:
    with serving(tmp_path, folder) as served:
        pipe = served.server.pipe.path
        words = ["sh", "-c", 'exec 9<>"$1"; echo up; exec sleep 600', "sh", str(pipe)]
        shell = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"up\n"
    assert pipe.is_fifo()
    with shell:
        shell.kill()
    with serving(tmp_path, folder):
        assert pipe.is_fifo()
    assert os.listdir(folder) == []


def test_replays_at_once_get_each_its_own_output_and_leave_none_behind(tmp_path: Path, folder: Path) -> None:
    names = [f"s{n}" for n in range(12)]
    with serving(tmp_path, folder) as served:
        for name in names:
            served.record(name)
    with serving(tmp_path, folder) as served:
        calls = {name: served.call(name) for name in names}  # nobody has read yet
        assert {name: read(order) for name, (_, order) in calls.items()} == {
            name: name.encode() for name in names
        }
        for there, _ in calls.values():
            there.close()  # as a client that has read, or that died before it could
        wait_for(lambda: not served.spooled(), what="the outputs to be removed")


def test_what_dead_callers_left_is_removed_by_the_next_server(tmp_path: Path, folder: Path) -> None:
    left = [folder / "socket.in-7-ab", folder / "socket.out-8-1"]
    other = folder / "other.in-7-ab"
    for path in (*left, other):
        path.touch()
    with serving(tmp_path, folder):
        assert [path.exists() for path in left] == [False, False]
        assert other.exists()


def test_connections_that_say_nothing_do_not_keep_others_from_being_served(
    tmp_path: Path, folder: Path
) -> None:
    with serving(tmp_path, folder, silent_s=0.2) as served:
        silent = []
        for _ in range(CONNECTIONS_MAX):
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(str(served.server.path))
            sock.sendall(b"\0")  # a frame that never ends
            silent.append(sock)
        there = served.connected()
        there.send(HELLO)
        assert isinstance(there.receive(), Verdict)
        for sock in silent:
            sock.close()


def test_a_call_may_take_longer_than_its_first_message(tmp_path: Path, folder: Path) -> None:
    with serving(tmp_path, folder, silent_s=0.05) as served:
        there, order = served.call("s")
        assert order.do == "run"
        with pytest.raises(Gone, match="no answer"):
            there.receive(limit_s=0.3)  # the server waits on
        there.send(Report(exit_code=0, ended_ns=1))
        assert there.receive() == Order(do="done")


# Leaves no descriptor for a connection until the accepting thread has met that, and then gives them back.
FEW = r"""
import os, re, resource, sys, threading
import outlast
from outlast.runs.run import run_engine
from outlast.supervisor.socket import connection
from outlast.supervisor.socket.server import Server
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.socket.script_calls import ScriptCalls
from outlast.supervisor.socket.wire import Note
from tests.support.processes import wait_for

def hello(there):
    there.send(Note(kind="hello", text="", attempt="run.1"))
    return type(there.receive()).__name__

with outlast.run("t", store=sys.argv[1], project="p") as run:
    server = Server(run_engine(run).journal.store.local.folder / "socket", "run.1", ScriptCalls(BeatInFlight(run_engine(run))))
    print(hello(connection.connect(str(server.path), 20.0)))
    wait_for(lambda: not server.busy or None, what="its descriptor to be given back")  # else it is free later
    [thread] = [each for each in threading.enumerate() if each.name == "outlast-socket"]
    status = os.open(f"/proc/self/task/{thread.native_id}/status", os.O_RDONLY)
    second, third = (connection.socket.socket(connection.socket.AF_UNIX) for _ in range(2))

    def switches():
        return int(re.search(rb"\nvoluntary_ctxt_switches:\s+(\d+)", os.pread(status, 8192, 0))[1])

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    while os.dup(status) <= highest + 1: pass
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, hard))
    before = switches()
    second.connect(str(server.path))  # some kernels keep a descriptor for it; there is none for the next
    wait_for(lambda: not thread.is_alive() or switches() > before + 3 or None, what="the accepting thread")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    third.settimeout(20.0)
    third.connect(str(server.path))
    print(hello(connection.Connection(third)))
    server.close()
"""


def test_a_connection_that_cannot_be_accepted_does_not_cost_the_next_ones(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW, str(tmp_path / "store")], cwd=ROOT, capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.split() == ["Verdict"] * 2, done.stderr


def test_a_keeper_that_is_gone_is_said_with_what_to_do(tmp_path: Path, folder: Path) -> None:
    with serving(tmp_path, folder) as served:
        there, _ = served.call("s")
        served.server.close()
        with pytest.raises(Gone, match="the supervisor of this run is gone") as caught:
            there.receive()
        assert caught.value.hint.startswith("start the script again")
        with pytest.raises(Gone, match="the supervisor of this run is gone") as caught:
            for _ in range(2):
                there.send(Report(exit_code=0))
        assert caught.value.hint.startswith("start the script again")


def test_a_keeper_that_died_before_it_had_read_all_is_gone(tmp_path: Path) -> None:
    listening = connection.listen(tmp_path / "s")
    there = connection.connect(str(tmp_path / "s"))
    keeper, _ = listening.accept()
    there.send(Report(exit_code=0))
    keeper.close()  # with what was sent unread, so that the kernel answers with a reset
    with pytest.raises(Gone, match="the supervisor of this run is gone") as caught:
        there.receive()
    assert caught.value.hint.startswith("start the script again")
    there.close()
    listening.close()
