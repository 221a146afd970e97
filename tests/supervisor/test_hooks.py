"""What an agent may do, driven with recorded hook inputs: nothing outward unrecorded, nothing twice, the truth when it goes on.

The same with the real programs is in tests/agents; here every part of it is tried without them.
"""

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from outlast import settings as ours
from outlast.agents.outward import rules
from outlast.agents.outward.classify import classify
from outlast.core import events as ev
from outlast.supervisor.agent.calls import outward as calls_outward
from outlast.supervisor.agent.calls.record import call_record_of
from outlast.supervisor.agent.hooks import NOT_UNDERSTOOD
from outlast.supervisor.client import shim
from tests.supervisor.hook_driver import (
    HOOKS,
    LOCAL,
    MARK,
    POST,
    POST_FLAGS,
    POST_OTHERWISE,
    SIGNATURE,
    AttemptDies,
    Minded,
    after,
    before,
    client,
    copy_in,
    cut_off_in_session,
    is_denied,
    minded,
    recorded,
)
from tests.support import sweeps
from tests.support.environment import ROOT, TIMEOUT_S, Isolated

SAMPLES = ROOT / "tests/agents/samples"
each_agent = pytest.mark.parametrize("agent", HOOKS)
OWN = """
[[outward]]
kind = "deploy"
programs = ["ship"]
commands = ["it"]
"""


@contextlib.contextmanager
def answering(path: Path, answer: bytes) -> Iterator[None]:
    """Somebody who takes one connection, says that, and leaves."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen(1)

    def serve() -> None:
        there, _ = listening.accept()
        with there:
            there.recv(1 << 20)
            there.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(TIMEOUT_S)
        listening.close()


# --- the hook's client fails closed ---------------------------------------------------------------------------------


@each_agent
def test_without_a_supervisor_what_reaches_outside_is_denied_and_what_is_local_passes(
    agent: str, tmp_path: Path
) -> None:
    denied = client(tmp_path / "nobody", before(agent, POST), agent)
    assert denied.returncode == 2
    assert SIGNATURE.encode() in denied.stderr
    assert b"did not put the call on record" in denied.stderr
    for data in (before(agent, LOCAL), before(agent, "curl http://127.0.0.1:9/x"), after(agent, POST)):
        assert client(tmp_path / "nobody", data, agent).returncode == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00",
        b"\x00\x00\x00\x01\x01",
        b"\x00\x00\x00\x09\x00half",
        b'\x00\x00\x00\x20{"type":"order","do":"refuse"}..',
    ],
    ids=["none", "torn", "another code", "half an answer", "an order"],
)
def test_a_supervisor_that_gives_no_whole_answer_has_allowed_nothing(tmp_path: Path, answer: bytes) -> None:
    for command, code in ((POST, 2), (LOCAL, 0)):
        path = tmp_path / f"socket-{code}"
        with answering(path, answer):
            assert client(path, before("claude", command)).returncode == code


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b"null", b"\xff" * 100, b'{"tool_name":"Bash","tool_input":']
)
def test_without_a_supervisor_what_cannot_be_understood_is_denied(tmp_path: Path, data: bytes) -> None:
    assert client(tmp_path / "nobody", data).returncode == 2


def test_without_a_supervisor_what_the_user_named_is_denied_as_well(tmp_path: Path, state: Isolated) -> None:
    data = before("claude", "ship it")
    assert client(tmp_path / "nobody", data).returncode == 0
    path = ours.user_folder() / calls_outward.OWN_CLASSES
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(OWN)
    denied = client(tmp_path / "nobody", data)
    assert denied.returncode == 2
    assert b"denied ship it" in denied.stderr
    assert client(tmp_path / "nobody", before("claude", LOCAL)).returncode == 0
    path.write_text("[[outward]")
    assert client(tmp_path / "nobody", data).returncode == 2


def test_a_shim_without_a_supervisor_runs_nothing(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text("#!/bin/sh\ntouch done\n")
    real.chmod(0o755)
    words = [
        sys.executable,
        "-I",
        "-S",
        shim.__file__,
        str(tmp_path / "nobody"),
        MARK,
        "",
        "curl",
        str(real),
        "-d",
        "x",
        "http://host.test/x",
    ]
    env = {"PATH": os.defpath}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == shim.REFUSED
    assert b"was not run" in done.stderr
    assert not (tmp_path / "done").exists()


# --- on record before it is allowed ---------------------------------------------------------------------------------


@each_agent
def test_a_call_is_on_record_when_its_hook_is_answered(agent: str, tmp_path: Path) -> None:
    with minded(tmp_path, agent) as there:
        assert there.allows(before(agent, LOCAL, "call_0"))
        assert there.allows(before(agent, POST))
        assert [policy for _, policy in there.intended()] == ["give_up", "tell"]
        assert there.intended()[1][0] == SIGNATURE
        assert there.ask(after(agent, POST)) == (0, b"")
        raise AttemptDies


def test_through_the_hooks_own_command_it_is_the_same(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        done = client(there.server.path, before("claude", POST))
        assert (done.returncode, done.stdout) == (0, b"")
        assert there.intended() == [(SIGNATURE, "tell")]
        raise AttemptDies


@each_agent
def test_what_cannot_be_put_on_record_does_not_happen_outside(agent: str, tmp_path: Path) -> None:
    with contextlib.suppress(Exception), minded(tmp_path, agent) as there:  # nor can the attempt's end
        there.run.journal.store.close()
        assert not there.allows(before(agent, POST))
        assert there.attempt.failure is not None
        there.attempt.close()  # else the answer is held back: the agent is being stopped
        assert not there.allows(before(agent, LOCAL, "call_2")), "nothing goes on that nobody could record"
        checked = True
        raise AttemptDies
    assert checked


def test_of_another_attempt_nothing_is_allowed(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        words = calls_outward.hook_words(copy_in(tmp_path), str(there.server.path), "run.0", "claude")
        done = subprocess.run(
            words, input=before("claude", POST), capture_output=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 2
        assert there.intended() == []
        raise AttemptDies


def test_the_id_of_a_call_under_way_lets_no_other_one_through(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        assert there.allows(before("claude", LOCAL))
        assert not there.allows(before("claude", POST))
        assert there.attempt.failure is None
        there.ask(after("claude", LOCAL))
        assert there.allows(before("claude", POST)), "its first call has ended: this is another one"
        assert there.intended() == [("Bash", "give_up"), (SIGNATURE, "tell")]
        raise AttemptDies


def test_a_call_made_twice_is_on_record_twice_also_where_an_agent_names_both_alike(tmp_path: Path) -> None:
    with minded(tmp_path, "gemini") as there:
        for _ in range(2):
            assert there.allows(before("gemini", POST))
            there.ask(after("gemini", POST))
        assert there.intended() == [(SIGNATURE, "tell")] * 2
        assert len({intent.key for intent in there.intents()}) == 2
        raise AttemptDies


# --- once ---------------------------------------------------------------------------------------------------------------


def cut_off(folder: Path, agent: str) -> None:
    with minded(folder, agent) as there:
        assert there.allows(before(agent, POST))
        raise AttemptDies


@each_agent
def test_a_call_to_the_address_of_one_in_doubt_is_held_whatever_its_flags_and_words(
    agent: str, tmp_path: Path
) -> None:
    cut_off(tmp_path, agent)
    with minded(tmp_path, agent) as there:
        for number, command in enumerate((POST, POST_FLAGS, f"cd /tmp && {POST_OTHERWISE}")):
            code, out = there.ask(before(agent, command, f"again_{number}"))
            assert is_denied(code, out)
            assert b"outlast holds this call" in out
        assert there.allows(before(agent, "curl -X POST http://127.0.0.1:9/other", "other"))
        raise AttemptDies


@each_agent
def test_what_is_known_of_it_is_answered_once_and_then_it_is_another_call(agent: str, tmp_path: Path) -> None:
    cut_off(tmp_path, agent)
    with minded(tmp_path, agent) as there:
        there.settle("happened")
        code, out = there.ask(before(agent, POST_FLAGS, "second"))
        assert is_denied(code, out)
        assert b"happened before" in out
        assert there.allows(before(agent, POST_FLAGS, "third"))
        raise AttemptDies


def test_that_it_was_answered_is_remembered_by_the_next_attempt(tmp_path: Path) -> None:
    cut_off(tmp_path, "claude")
    with minded(tmp_path) as there:
        there.settle("happened")
        assert not there.allows(before("claude", POST_FLAGS, "second"))
        raise AttemptDies
    with minded(tmp_path) as there:
        assert there.allows(before("claude", POST_FLAGS, "third"))
        raise AttemptDies


@each_agent
def test_what_did_not_happen_may_be_done_and_is_on_record_again(agent: str, tmp_path: Path) -> None:
    cut_off(tmp_path, agent)
    with minded(tmp_path, agent) as there:
        there.settle("did_not")
        assert there.allows(before(agent, POST))
        assert there.intended() == [(SIGNATURE, "tell")] * 2
        raise AttemptDies
    with minded(tmp_path, agent) as there:
        assert not there.allows(before(agent, POST, "third")), "the second one was cut off too"
        raise AttemptDies


# --- going on -----------------------------------------------------------------------------------------------------------


def test_the_transcript_is_mended_with_the_truth_about_the_call_that_was_cut_off(tmp_path: Path) -> None:
    session, path = cut_off_in_session(tmp_path)
    found = path.read_bytes()
    with minded(tmp_path) as there:
        assert there.start().command[1:3] == ("--resume", session)
        raise AttemptDies
    mended = path.read_bytes()
    assert mended.startswith(found)
    result = json.loads(mended.splitlines()[-1])["message"]["content"][0]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "call_1")
    assert "it is not known whether it happened" in json.dumps(result)


@pytest.mark.parametrize("what", ["gone", "torn"])
def test_a_transcript_that_a_kill_took_comes_back_from_our_copy(tmp_path: Path, what: str) -> None:
    _, path = cut_off_in_session(tmp_path)
    found = path.read_bytes()
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes(found[:300])
    with minded(tmp_path) as there:
        there.start()
        assert b"said before" in path.read_bytes()
        assert "made whole from our copy" in there.said[0]
        raise AttemptDies


# --- hostile inputs -------------------------------------------------------------------------------------------------


def kept(there: Minded, data: bytes) -> None:
    """Whatever it is: it is answered, and what reaches outside in it is denied, or on record as under way."""
    code, out = there.ask(data)
    assert code in (0, 2)
    try:
        told = json.loads(data)
        about_to = told["hook_event_name"] in ("PreToolUse", "BeforeTool")
        outward = (
            classify(
                told["tool_name"], told["tool_input"], str(there.work), known=rules.load([rules.LOOPBACK])
            )
            if about_to
            else []
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if outward and not is_denied(code, out):
        wanted = {each.kind for each in outward}
        open_now = [
            call_record_of(there.run.journal, intent) for intent in there.intents() if is_open(there, intent)
        ]
        assert any(wanted <= {each.kind for each in told.outward} for told in open_now if told is not None)


def is_open(there: Minded, intent: ev.EffectIntended) -> bool:
    return any((effect.beat, effect.n) == (intent.beat, intent.n) for effect in there.run.state.effects_open)


def test_an_input_that_cannot_be_read_is_no_leave_to_act(tmp_path: Path) -> None:
    told = recorded("claude", "PreToolUse")
    huge = json.dumps(told | {"tool_input": {"command": POST, "description": "x" * (17 << 20)}}).encode()
    no_id = json.dumps({**told, "tool_use_id": "", "tool_input": {"command": POST}}).encode()
    odd = json.dumps({**told, "tool_name": ["Bash"], "tool_input": {"command": POST}}).encode()
    with minded(tmp_path) as there:
        for data in (b"", b"{", b"null", b"\xff", before("claude", POST)[:-40], huge, no_id, odd):
            code, out = there.ask(data)
            assert is_denied(code, out)
            assert NOT_UNDERSTOOD[:20].encode() in out
        assert there.intended() == []
        assert there.attempt.failure is None
        raise AttemptDies


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=40), st.lists(st.text(max_size=5), max_size=3),
    st.dictionaries(st.sampled_from(["command", "cmd", "x"]), st.text(max_size=20), max_size=3),
)  # fmt: skip
COMMANDS = st.sampled_from(
    [
        POST,
        LOCAL,
        f"true; {POST_OTHERWISE}",
        "git push origin main",
        "$(",
        "curl -d",
        "'",
        "\0",
        "x" * 100_000,
    ]
)


@st.composite
def hostile(draw: st.DrawFn, agent: str) -> bytes:
    """A hook input with another command, with fields gone, odd or strange, cut, or with bytes changed; or any bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = json.loads(
        draw(st.sampled_from([before, after]))(agent, draw(COMMANDS), draw(st.text(min_size=1, max_size=9)))
    )
    for name in draw(st.lists(st.sampled_from(sorted(data)), max_size=2)):
        data[name] = draw(ODD)
    for name in draw(st.lists(st.sampled_from(sorted(data)), max_size=1)):
        del data[name]
    raw = bytearray(json.dumps(data).encode())
    for at in draw(st.lists(st.integers(0, len(raw) - 1), max_size=2)):
        raw[at] = draw(st.integers(0, 255))
    return bytes(raw[: draw(st.integers(0, len(raw)))] if draw(st.booleans()) else raw)


@pytest.mark.sampled(2)
@each_agent
def test_whatever_a_hook_is_told_nothing_crashes_nothing_runs_and_nothing_outward_is_let_through_unrecorded(
    agent: str, tmp_path: Path
) -> None:
    with minded(tmp_path, agent) as there:

        @given(hostile(agent))
        @settings(max_examples=sweeps.examples(120))
        def fuzz(data: bytes) -> None:
            kept(there, data)

        fuzz()
        assert there.attempt.failure is None
        assert list(there.work.iterdir()) == []
        assert there.allows(before(agent, LOCAL, "the last one"))
        raise AttemptDies


SESSIONS = {
    "claude": ("UserPromptSubmit", "claude-2.1.325-transcript.jsonl"),
    "codex": ("UserPromptSubmit", "codex-0.166-rollout.jsonl"),
    "gemini": ("SessionStart", "gemini-0.61.0-chat.jsonl"),
}


def read_by(agent: str, folder: Path, lines: list[bytes]) -> tuple[list[tuple[str, str]], int]:
    """What is on record of a session whose transcript holds these lines: intents, and beats."""
    folder.mkdir()
    path = folder / "session.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    told = {
        "hook_event_name": SESSIONS[agent][0],
        "session_id": "s-1",
        "transcript_path": str(path),
        "cwd": "/",
    }
    with minded(folder, agent) as there:
        there.start()
        assert there.ask(json.dumps(told).encode()) == (0, b"")
        there.attempt.look()
        assert there.attempt.failure is None
        found = there.intended(), there.run.state.beats
        raise AttemptDies
    return found


@pytest.mark.sampled(1)
@pytest.mark.parametrize("agent", SESSIONS)
def test_garbage_in_a_transcript_costs_no_call_and_no_beat(agent: str, tmp_path: Path) -> None:
    lines = (SAMPLES / SESSIONS[agent][1]).read_bytes().splitlines()
    clean = read_by(agent, tmp_path / "clean", lines)
    assert clean[0]
    assert clean[1]
    numbers = itertools.count()
    bytes_of_a_line = st.binary(max_size=80).map(lambda data: data.replace(b"\n", b" "))
    cut = st.tuples(st.sampled_from(lines), st.floats(0, 0.99)).map(
        lambda it: it[0][: int(len(it[0]) * it[1])]
    )
    json_of_any_kind = ODD.map(lambda value: json.dumps(value).encode())
    nested = st.just(b'{"type":' * 20_000)

    @given(
        st.lists(
            st.tuples(st.integers(0, len(lines)), bytes_of_a_line | cut | json_of_any_kind | nested),
            max_size=6,
        )
    )
    @settings(max_examples=sweeps.examples(12))
    def fuzz(garbage: list[tuple[int, bytes]]) -> None:
        dirty = list(lines)
        for at, line in sorted(garbage, reverse=True, key=lambda each: each[0]):
            dirty.insert(at, line)
        assert read_by(agent, tmp_path / f"dirty-{next(numbers)}", dirty) == clean

    fuzz()


def test_a_call_that_our_hook_denied_alone_did_not_happen_and_hooks_are_counted_on(tmp_path: Path) -> None:
    """A supervisor that slept: the hook had nobody to ask, and the agent wrote down what the hook said."""
    lines = (SAMPLES / SESSIONS["claude"][1]).read_bytes().splitlines()
    told = [json.loads(line) for line in lines]
    made = next(
        each for each in told if each["type"] == "assistant" and '"type": "tool_use"' in json.dumps(each)
    )
    [block] = [each for each in made["message"]["content"] if each["type"] == "tool_use"]
    block |= {"id": "call_9", "name": "Bash", "input": {"command": POST}}
    denied = client(tmp_path / "nobody", before("claude", POST, "call_9"))
    error = f"PreToolUse:Bash hook error: [python hookclient.py]: {denied.stderr.decode()}"
    result = {"type": "tool_result", "tool_use_id": "call_9", "content": error, "is_error": True}
    answer = {
        "type": "user",
        "sessionId": "s-1",
        "uuid": "u-9",
        "message": {"role": "user", "content": [result]},
    }
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in (made, answer)))
    known = {
        "hook_event_name": "UserPromptSubmit",
        "session_id": "s-1",
        "transcript_path": str(path),
        "cwd": "/",
    }
    with minded(tmp_path) as there:
        there.start()
        assert there.ask(json.dumps(known).encode()) == (0, b"")
        there.attempt.look()
        assert there.intended() == [(SIGNATURE, "tell")]
        assert there.run.state.effects_open == ()
        [failed] = there.run.journal.events("effect_failed")
        assert isinstance(failed, ev.EffectFailed)
        assert failed.error.startswith("not done: outlast denied POST 127.0.0.1:9/comment")
        assert not [text for text in there.said if "does not run its hooks" in text]
        assert there.allows(before("claude", LOCAL, "call_10"))
        raise AttemptDies
