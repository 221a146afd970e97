"""Hooks by HTTP: the hostile cases of the hook's client, once more. Nothing but a judged call is answered with leave."""

import contextlib
import ctypes
import http.client
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from outlast.agents.claude.cli import FILE_TOOLS
from outlast.agents.claude.transcript import dashed
from outlast.agents.events import ToolEnd, ToolStart
from outlast.core import events as ev
from outlast.operations import requests
from outlast.processes import spawn
from outlast.supervisor.agent.hook_input import OURS
from outlast.supervisor.agent.hooks import LEAVING
from outlast.supervisor.socket import http_hooks
from outlast.supervisor.socket.http_hooks import HttpHooks
from outlast.supervisor.socket.wire import REFUSED, Output, Shim
from outlast.supervisor.timing import Timing
from tests.supervisor.hook_driver import (
    LOCAL,
    MARK,
    POST,
    SIGNATURE,
    AttemptDies,
    Minded,
    after,
    before,
    line,
    minded,
    response,
)
from tests.supervisor.test_hooks import hostile
from tests.support import sweeps
from tests.support.environment import NOBODY, TIMEOUT_S, need_root
from tests.support.processes import wait_for


@contextlib.contextmanager
def served(there: Minded, **timing: float) -> Iterator[HttpHooks]:
    """The hooks of this attempt by HTTP."""
    there.attempt.hooks.by_http = True
    hooks = HttpHooks(there.attempt.hooks, Timing(**timing) if timing else None)
    try:
        yield hooks
    finally:
        hooks.close()


def connected(hooks: HttpHooks) -> http.client.HTTPConnection:
    port = int(hooks.url.split(":")[2].split("/")[0])
    return http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)


def posted(
    hooks: HttpHooks, data: bytes, target: str = http_hooks.TARGET, method: str = "POST", **fields: str
) -> tuple[int, bytes]:
    there = connected(hooks)
    with contextlib.closing(there):
        there.request(method, target, data, {http_hooks.SECRET: hooks.secret} | fields)
        answer = there.getresponse()
        return answer.status, answer.read()


def gives_leave(status: int, body: bytes) -> bool:
    """As Claude Code 2.1.325 reads it, where a hook that fails blocks."""
    if status == 204 or (status == 200 and not body):
        return True
    try:
        return status == 200 and b'"deny"' not in body and isinstance(json.loads(body), dict)
    except ValueError:
        return False


def test_an_outward_call_is_on_record_when_its_hook_is_answered_on_a_connection_that_is_kept(
    tmp_path: Path,
) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        kept = connected(hooks)
        for data in (
            before("claude", LOCAL, "call_0"),
            after("claude", LOCAL, "call_0"),
            before("claude", POST),
        ):
            kept.request("POST", http_hooks.TARGET, data, {http_hooks.SECRET: hooks.secret})
            answer = kept.getresponse()
            assert (answer.status, answer.read()) == (200, b"{}")
        assert there.intended()[-1] == (SIGNATURE, "tell")
        kept.close()
        raise AttemptDies


def test_a_call_that_is_held_is_denied_with_words(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        assert there.allows(before("claude", POST))
        raise AttemptDies
    with minded(tmp_path) as there, served(there) as hooks:
        status, body = posted(hooks, before("claude", POST, "call_2"))
        assert status == 200
        assert json.loads(body)["hookSpecificOutput"]["permissionDecision"] == "deny"
        raise AttemptDies


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b"null", b"\xff" * 100, b'{"tool_name":"Bash","tool_input":']
)
def test_an_input_that_cannot_be_read_is_no_leave_to_act(tmp_path: Path, data: bytes) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        assert not gives_leave(*posted(hooks, data))
        assert there.intended() == []
        raise AttemptDies


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({http_hooks.SECRET: "guessed"}, 403),
        ({http_hooks.SECRET: ""}, 403),
        ({"target": "/"}, 404),
        ({"method": "GET"}, 404),
        ({"Content-Length": "x"}, 400),
        ({"Content-Length": str(http_hooks.INPUT_MAX_BYTES + 1)}, 413),
        ({"Content-Length": "9" * 400}, 413),
        ({"Transfer-Encoding": "chunked"}, 400),
        ({"X-Long": "x" * 60_000}, 400),
    ],
    ids=["guessed", "empty", "target", "method", "no length", "huge", "longer", "chunked", "long head"],
)  # fmt: skip
def test_a_request_that_is_no_hook_of_this_run_is_refused(
    tmp_path: Path, fields: dict[str, str], status: int
) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        found = posted(hooks, before("claude", POST), **fields)
        assert found[0] == status
        assert not gives_leave(*found)
        assert there.intended() == []
        assert gives_leave(*posted(hooks, before("claude", POST))), "others are served"
        raise AttemptDies


def test_of_another_attempt_nothing_is_allowed(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks, served(there) as others:
        assert posted(hooks, before("claude", POST), **{http_hooks.SECRET: others.secret})[0] == 403
        assert there.intended() == []
        raise AttemptDies


def test_what_cannot_be_put_on_record_does_not_happen_outside(tmp_path: Path) -> None:
    checked = False
    with contextlib.suppress(Exception), minded(tmp_path) as there, served(there) as hooks:
        there.run.journal.store.close()
        assert not gives_leave(*posted(hooks, before("claude", POST)))
        assert there.attempt.failure is not None
        checked = True
        raise AttemptDies
    assert checked


def test_who_is_slow_or_silent_keeps_nobody_waiting_and_is_sent_away(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there, silent_s=0.3) as hooks:
        slow = []
        for begin in (
            b"",
            b"POST /outlast-hook HT",
            f"POST {http_hooks.TARGET} HTTP/1.1\r\n{http_hooks.SECRET}: {hooks.secret}\r\nContent-Length: 9\r\n\r\n{{".encode(),
        ):
            sock = connected(hooks)
            sock.connect()
            sock.sock.sendall(begin)
            slow.append(sock.sock)
        assert gives_leave(*posted(hooks, before("claude", LOCAL)))
        for each in slow:
            assert each.recv(1) == b"", "it was closed without a word"
            each.close()
        raise AttemptDies


def test_a_crowd_of_connections_is_not_served_without_end(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there, silent_s=0.5) as hooks:
        crowd = [connected(hooks) for _ in range(http_hooks.CONNECTIONS_MAX + 8)]
        for each in crowd:
            each.connect()
        over = select.poll()
        over.register(crowd[-1].sock, select.POLLIN)
        assert over.poll(TIMEOUT_S * 1000)
        assert crowd[-1].sock.recv(1) == b""
        for each in crowd:
            each.close()
        wait_for(lambda: not hooks._open, what="the crowd to be gone")
        assert gives_leave(*posted(hooks, before("claude", LOCAL)))
        raise AttemptDies


def sent_as(hooks: HttpHooks, *bodies: bytes) -> bytes:
    head = f"POST {http_hooks.TARGET} HTTP/1.1\r\n{http_hooks.SECRET}: {hooks.secret}\r\nContent-Length: "
    return b"".join(head.encode() + f"{len(each)}\r\n\r\n".encode() + each for each in bodies)


def test_requests_sent_at_once_are_answered_one_after_the_other(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        kept = connected(hooks)
        kept.connect()
        kept.sock.sendall(
            sent_as(hooks, before("claude", POST), b"nonsense", before("claude", LOCAL, "call_2"))
        )
        answers = b""
        while answers.count(b"HTTP/1.1 ") < 3 or not answers.endswith(b"}"):
            chunk = kept.sock.recv(1 << 16)
            assert chunk, answers
            answers += chunk
        assert [b'"deny"' in each for each in answers.split(b"HTTP/1.1 ")[1:]] == [False, True, False]
        assert there.intended()[0] == (SIGNATURE, "tell")
        kept.close()
        raise AttemptDies


def test_who_stops_sending_before_the_answer_has_given_up_and_gets_no_record(tmp_path: Path) -> None:
    """Nobody can tell it from one that was killed: its call is not let through."""
    with minded(tmp_path) as there, served(there) as hooks:
        asking = connected(hooks)
        asking.connect()
        with there.beats.lock:
            asking.sock.sendall(sent_as(hooks, before("claude", POST)))
            asking.sock.shutdown(socket.SHUT_WR)
            wait_for(lambda: bool(hooks._open), what="the request")
        wait_for(lambda: not hooks._open, what="its end")
        assert there.run.state.effects_open == ()
        assert list(there.run.journal.events("effect_failed"))
        asking.close()
        raise AttemptDies


def test_a_hook_for_which_there_is_no_thread_is_sent_away_and_takes_nobodys_room(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        before_bytes = threading.stack_size(1 << 46)  # no thread of that size can be started
        try:
            for _ in range(http_hooks.CONNECTIONS_MAX + 1):
                asking = connected(hooks)
                asking.timeout = 20
                asking.connect()
                assert asking.sock.recv(1) == b""
                asking.close()
        finally:
            threading.stack_size(before_bytes)
        assert gives_leave(*posted(hooks, before("claude", POST)))
        raise AttemptDies


ASKS = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
there = socket.create_connection((sys.argv[3], int(sys.argv[1])))
there.settimeout(30)
try:
    there.sendall(sys.stdin.buffer.read())
    print(there.recv(100))
except ConnectionError:
    print(b"")
"""


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize(("user", "is_served"), [(NOBODY, False), (0, True)])
def test_another_user_is_not_served_even_with_the_secret(
    tmp_path: Path, user: int, is_served: bool, address: str
) -> None:
    need_root()
    with minded(tmp_path) as there, served(there) as hooks:
        data = before("claude", POST)
        head = f"POST {http_hooks.TARGET} HTTP/1.1\r\n{http_hooks.SECRET}: {hooks.secret}\r\nContent-Length: {len(data)}\r\n\r\n"
        port = hooks.url.split(":")[2].split("/")[0]
        done = subprocess.run(
            [sys.executable, "-IS", "-c", ASKS, port, str(user), address], input=head.encode() + data, capture_output=True, timeout=TIMEOUT_S, check=True
        )  # fmt: skip
        assert (b"200 OK" in done.stdout) == is_served, done.stdout
        assert bool(there.intended()) == is_served
        raise AttemptDies


def test_who_takes_a_connection_of_ours_does_not_keep_us_from_ending(tmp_path: Path) -> None:
    """Whatever the agent starts inherits the socket."""
    with minded(tmp_path) as there:
        for _ in range(10):
            hooks = HttpHooks(there.attempt.hooks)
            take_one_of(hooks)
            ending = threading.Thread(target=hooks.close, daemon=True)
            ending.start()
            ending.join(5)
            assert not ending.is_alive()
        raise AttemptDies


def take_one_of(hooks: HttpHooks) -> None:
    """Make a connection and accept it, after the thread that accepts heard of it and before it goes on."""
    libc, before_s = ctypes.PyDLL(None), sys.getswitchinterval()
    port = int(hooks.url.split(":")[2].split("/")[0])
    address = struct.pack("=H", socket.AF_INET) + struct.pack(">H4s8x", port, b"\x7f\0\0\1")
    wait_for(lambda: thread_waits(hooks._thread), what="the thread that accepts")
    with socket.socket() as asking:
        sys.setswitchinterval(TIMEOUT_S)
        try:
            assert libc.connect(asking.fileno(), address, len(address)) == 0
            taken = libc.accept(hooks.fileno(), None, None)
        finally:
            sys.setswitchinterval(before_s)
    if taken >= 0:
        os.close(taken)


def thread_waits(thread: threading.Thread) -> bool:
    """Whether it sleeps in a call of the kernel."""
    return b") S " in Path(f"/proc/self/task/{thread.native_id}/stat").read_bytes()


def test_the_port_is_the_agent_s_as_long_as_it_lives_and_then_its_hooks_hang(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        spec = spawn.Spec(argv=("sleep", "600"), cwd=str(tmp_path), env={"PATH": os.defpath}, inherited=(hooks.fileno(),), death_signal=signal.SIGKILL)  # fmt: skip
        agent = spawn.start(spec)
        try:
            hooks.close()
            port = int(hooks.url.split(":")[2].split("/")[0])
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", port))
                other.listen()
            asking = connected(hooks)
            asking.timeout = 0.3
            with contextlib.closing(asking), pytest.raises(TimeoutError):
                asking.request(
                    "POST", http_hooks.TARGET, before("claude", POST), {http_hooks.SECRET: hooks.secret}
                )
                asking.getresponse()
        finally:
            agent.send(signal.SIGKILL)
            os.waitpid(agent.pid, 0)
            agent.close()
        assert there.intended() == []
        raise AttemptDies


@pytest.mark.parametrize("command", [POST, LOCAL])
def test_a_call_whose_agent_no_longer_waits_for_the_answer_was_not_made(tmp_path: Path, command: str) -> None:
    """The agent denies by itself what is not answered in time, and writes that down."""
    with minded(tmp_path) as there, served(there) as hooks:
        with there.beats.lock:  # the supervisor is busy
            asking = connected(hooks)
            asking.request(
                "POST", http_hooks.TARGET, before("claude", command), {http_hooks.SECRET: hooks.secret}
            )
            wait_for(lambda: bool(hooks._open), what="the request")
            asking.close()
        text = f'PreToolUse:Bash hook error: [{hooks.url}]: timed out; blocking because onFailure is "block"'
        assert OURS.search(text)
        assert not OURS.search(f"it printed {text}")
        wait_for(lambda: list(there.run.journal.events("effect_failed")), what="the record")
        assert there.run.state.effects_open == ()
        raise AttemptDies


def batch(*names: str) -> bytes:
    calls = [
        {
            "tool_name": name,
            "tool_input": {"file_path": "/x"},
            "tool_use_id": f"call_{at}",
            "tool_response": "ok",
        }
        for at, name in enumerate(names)
    ]
    return json.dumps(
        {"hook_event_name": "PostToolBatch", "session_id": "s", "cwd": "/", "tool_calls": calls}
    ).encode()


def test_calls_of_file_tools_are_on_record_after_their_batch(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        there.attempt._observer.unhooked = frozenset(FILE_TOOLS)
        assert gives_leave(*posted(hooks, batch("Read", "Write", "Bash")))
        assert there.intended() == [("Read", "give_up"), ("Write", "give_up")]
        assert there.attempt.failure is None
        raise AttemptDies


def test_at_the_end_of_a_batch_a_wish_to_pause_takes_hold(tmp_path: Path) -> None:
    """No hook runs before the file tools of the next batch, and its transcript may be late."""
    with minded(tmp_path) as there, served(there) as hooks:
        deferring(there)
        answers: list[tuple[int, bytes]] = []
        requests.pause(there.run.journal.store, there.run.id)
        asking = threading.Thread(target=lambda: answers.append(posted(hooks, batch("Read"))))
        asking.start()
        wait_for(lambda: there.attempt.hooks.keeps_waiting, what="the hold")
        assert answers == []
        assert there.run.state.beats == 1
        there.attempt.hooks.closed.set()
        asking.join(TIMEOUT_S)
        assert len(answers) == 1
        assert LEAVING.encode() not in answers[0][1], "its calls have been made"
        raise AttemptDies


def deferring(there: Minded) -> None:
    """As for an agent whose hooks come by HTTP."""
    there.attempt._observer.unhooked = frozenset(FILE_TOOLS)
    there.attempt.calls.defers = there.attempt.responses.ends_late = True


def test_how_a_file_tool_ended_the_transcript_tells_and_no_hook_waits_for_that(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        session = there.start().session
        deferring(there)
        there.attempt.hooks.by_http = True
        path = there.home / ".claude/projects" / dashed(str(there.work)) / f"{session}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(
            line(session, type="user", message={"role": "user", "content": "x"})
            + response(session, 0, LOCAL).replace(b'"Bash"', b'"Read"')
        )
        assert gives_leave(*posted(hooks, batch("Read")))
        assert there.run.state.beats == 0, "its end is not told yet"
        result = {"type": "tool_result", "tool_use_id": "call_0", "content": "no such file", "is_error": True}
        with path.open("ab") as file:
            file.write(line(session, type="user", message={"role": "user", "content": [result]}))
        there.attempt.look()
        assert there.run.state.beats == 1
        [confirmed] = list(there.run.journal.events("effect_confirmed"))
        assert isinstance(confirmed, ev.EffectConfirmed)
        assert there.run.journal.value(confirmed.result)["ok"] is False
        assert there.attempt.failure is None
        raise AttemptDies


def test_what_stays_inside_waits_for_nothing_and_is_on_record_with_its_outcome(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        deferring(there)
        with there.beats.lock:  # the supervisor is busy
            assert gives_leave(*posted(hooks, before("claude", LOCAL)))
        there.attempt.look()
        assert there.intended() == []
        assert there.attempt.calls.is_busy
        assert not there.attempt.rests()
        posted(hooks, after("claude", LOCAL))

        def recorded() -> list[tuple[str, str]]:
            there.attempt.look()
            return there.intended()

        wait_for(recorded, what="the record")
        assert there.intended() == [("Bash", "give_up")]
        assert list(there.run.journal.events("effect_confirmed"))
        assert there.attempt.failure is None
        raise AttemptDies


def test_the_next_call_on_a_kept_connection_waits_for_nothing_either(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        deferring(there)
        kept = connected(hooks)
        kept.timeout = 20
        with there.beats.lock:  # the supervisor is busy
            for call in ("call_1", "call_2", "call_3"):
                kept.request(
                    "POST",
                    http_hooks.TARGET,
                    before("claude", LOCAL, call),
                    {http_hooks.SECRET: hooks.secret},
                )
                answer = kept.getresponse()
                assert gives_leave(answer.status, answer.read())
        kept.close()
        there.attempt.look()
        assert [there.attempt.calls.knows(call) for call in ("call_1", "call_2", "call_3")] == [True] * 3
        raise AttemptDies


def test_a_call_that_its_agent_denied_meanwhile_is_not_under_way(tmp_path: Path) -> None:
    """As when we were stopped for longer than its agent waits: its transcript has told of the denial already."""
    with minded(tmp_path) as there, served(there) as hooks:
        deferring(there)
        with there.attempt.hooks._outward._refreshing:  # it cannot be answered yet
            asking = connected(hooks)
            asking.request(
                "POST", http_hooks.TARGET, before("claude", LOCAL), {http_hooks.SECRET: hooks.secret}
            )
            wait_for(lambda: bool(hooks._open), what="the request")
            asking.close()
            text = (
                f'PreToolUse:Bash hook error: [{hooks.url}]: timed out; blocking because onFailure is "block"'
            )
            with there.beats.lock:
                there.take(ToolStart("call_1", "Bash", msgspec.Raw(b"{}")))
                there.take(ToolEnd("call_1", False, text))
            assert list(there.run.journal.events("effect_failed"))
        wait_for(lambda: not hooks._open, what="its end")
        there.attempt.look()
        assert there.intended() == [("Bash", "give_up")]
        assert not there.attempt.calls.is_busy
        assert there.attempt.failure is None
        raise AttemptDies


def test_settings_that_keep_its_hooks_from_us_are_named_once(tmp_path: Path) -> None:
    """As of an organisation whose settings came after its start: each of its calls is denied."""
    with minded(tmp_path) as there, served(there) as hooks:
        deferring(there)
        denial = (
            f'PreToolUse:Bash hook error: [{hooks.url}]: failed; blocking because onFailure is "block"\n'
            f"HTTP hook blocked: {hooks.url} does not match any pattern in allowedHttpHookUrls"
        )
        for call in ("call_1", "call_2"):
            there.take(ToolStart(call, "Bash", msgspec.Raw(b"{}")))
            there.take(ToolEnd(call, False, denial))
        assert there.run.state.effects_open == ()
        assert len(list(there.run.journal.events("effect_failed"))) == 2
        assert sum("allowedHttpHookUrls" in each for each in there.said) == 1
        raise AttemptDies


def test_what_may_reach_outside_waits_until_it_is_on_record(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        deferring(there)
        answers: list[tuple[int, bytes]] = []
        asking = threading.Thread(target=lambda: answers.append(posted(hooks, before("claude", POST))))
        with there.beats.lock:
            asking.start()
            wait_for(lambda: bool(hooks._open), what="the request")
            asking.join(0.2)
            assert answers == []
        asking.join(TIMEOUT_S)
        assert there.intended() == [(SIGNATURE, "tell")]
        assert gives_leave(*answers[0])
        raise AttemptDies


def test_a_local_call_is_on_record_before_a_program_below_it_reaches_outside(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        deferring(there)
        assert gives_leave(*posted(hooks, before("claude", "make all")))
        shim = Shim(attempt=MARK, words=["curl", "-d", "x", "http://host.test/x"], cwd="/", variables={})
        performed: list[list[tuple[str, str]]] = []

        def perform() -> Output:
            performed.append(there.intended())
            return Output(0)

        assert there.attempt.hooks.shim(shim, perform).exit_code == 0
        assert performed == [[("Bash", "give_up"), ("POST host.test/x", "tell")]]
        raise AttemptDies


def test_a_local_call_that_cannot_be_put_on_record_ends_the_attempt_with_the_program_below_it(
    tmp_path: Path,
) -> None:
    checked = False
    with contextlib.suppress(Exception), minded(tmp_path) as there, served(there) as hooks:
        deferring(there)
        assert gives_leave(*posted(hooks, before("claude", "make all")))
        there.attempt.look()
        there.run.journal.store.close()
        shim = Shim(attempt=MARK, words=["curl", "-d", "x", "http://host.test/x"], cwd="/", variables={})
        assert there.attempt.hooks.shim(shim, lambda: pytest.fail("it ran")).exit_code == REFUSED
        assert there.attempt.failure is not None
        checked = True
        raise AttemptDies
    assert checked


def test_a_local_call_that_a_kill_cuts_off_is_told_from_the_transcript(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        deferring(there)
        session = there.start().session
        there.attempt.hooks.by_http = there.attempt.calls.defers = True
        path = there.home / ".claude/projects" / dashed(str(there.work)) / f"{session}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(
            line(session, type="user", message={"role": "user", "content": "x"}) + response(session, 1, LOCAL)
        )
        assert gives_leave(*posted(hooks, before("claude", LOCAL)))
        there.attempt.look()
        assert there.intended() == []
        raise AttemptDies
    with minded(tmp_path) as there:
        there.start()
        assert b"was cut off by the interruption, or was not started before it" in path.read_bytes()
        raise AttemptDies


def test_a_local_call_under_way_when_the_agent_is_stopped_is_on_record(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks:
        deferring(there)
        assert gives_leave(*posted(hooks, before("claude", LOCAL)))
        there.attempt.look()
        there.attempt.calls.settle_rest()
        assert there.intended() == [("Bash", "give_up")]
        assert there.run.state.effects_open == ()
        raise AttemptDies


@pytest.mark.sampled(1)
def test_whatever_comes_by_http_nothing_crashes_and_nothing_outward_passes_unrecorded(tmp_path: Path) -> None:
    with minded(tmp_path) as there, served(there) as hooks:

        @given(st.one_of(hostile("claude"), st.binary(max_size=300)))
        @settings(max_examples=sweeps.examples(80))
        def fuzz(data: bytes) -> None:
            known = len(there.intents())
            status, body = posted(hooks, data)
            assert status in http_hooks._REASONS
            assert body
            if gives_leave(status, body) and SIGNATURE in _signatures(data):
                assert len(there.intents()) > known

        fuzz()
        assert there.attempt.failure is None
        raise AttemptDies


def _signatures(data: bytes) -> list[str]:
    from outlast.agents.outward.classify import classify

    try:
        told: Any = json.loads(data)
        if told.get("hook_event_name") != "PreToolUse" or not told.get("tool_use_id"):
            return []
        return [each.signature for each in classify(str(told["tool_name"]), told["tool_input"], "/")]
    except (ValueError, AttributeError, KeyError):
        return []
