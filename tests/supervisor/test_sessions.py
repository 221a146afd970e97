"""Which session an attempt goes on with, and what it is given where transcript and journal differ about its calls."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from outlast.agents.events import Response, Session
from outlast.errors import AgentStopped
from outlast.supervisor.agent import prompts
from outlast.supervisor.agent.calls import outward
from outlast.supervisor.client import copy as client_copy, hook as client_hook
from tests.supervisor.hook_driver import (
    HOOKS,
    LOCAL,
    MARK,
    POST,
    POST_OTHERWISE,
    SIGNATURE,
    AttemptDies,
    after,
    before,
    client,
    copy_in,
    cut_off_in_session,
    is_denied,
    line,
    minded,
    response,
)
from tests.support.environment import ROOT, TIMEOUT_S
from tests.support.processes import wait_for

SAMPLES = ROOT / "tests/agents/samples"
ERROR = "the CLI could not go on (exit code 1)"


def ended(folder: Path, evidence: str = ERROR, code: int = 1, *, acts: bool = False) -> tuple[str, ...]:
    """An attempt that ended like this: what was started."""
    words: tuple[str, ...] = ()
    with contextlib.suppress(AgentStopped), minded(folder) as there:
        words = there.start().command[1:3]
        if acts:
            there.ask(before("claude", LOCAL, "act"))
        raise AgentStopped(evidence, cause="crash", exit_code=code)
    return words


def started(folder: Path) -> tuple[str, ...]:
    words: tuple[str, ...] = ()
    with minded(folder) as there:
        words = there.start().command[1:3]
        raise AttemptDies
    return words


# --- a session that its CLI does not take ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "evidence",
    [
        "\x1b[91m\x1b[1mError: \x1b[0mSession not found (exit code 1)",
        "\x1b[1mError:\x1b[0m Session\x1b[0m \x1b[1mnot\x1b[0m found",
        "Error resuming session: No previous sessions found for this project. (exit code 42)",
        "rollout at /x/rollout-1.jsonl does not start with session metadata (code -32603)",
        'Session "session_e2a8" not found.',
        "No conversation found with session ID: 1",
    ],
)
def test_a_session_that_its_cli_does_not_know_is_not_tried_again(tmp_path: Path, evidence: str) -> None:
    session, _ = cut_off_in_session(tmp_path)
    assert ended(tmp_path, evidence, acts=True) == ("--resume", session)
    assert session not in started(tmp_path)


def test_after_one_resume_that_came_to_nothing_a_fresh_session_is_started(tmp_path: Path) -> None:
    session, _ = cut_off_in_session(tmp_path)
    assert ended(tmp_path) == ("--resume", session)
    assert session not in started(tmp_path)


def test_a_fresh_session_that_comes_to_nothing_too_clears_the_one_before(tmp_path: Path) -> None:
    session, path = cut_off_in_session(tmp_path)
    assert ended(tmp_path) == ("--resume", session)
    assert session not in ended(tmp_path)
    assert started(tmp_path) == ("--resume", session), "neither the CLI nor its session is at fault"
    assert started(tmp_path) == ("--resume", session)
    assert b"said before" in path.read_bytes()


@pytest.mark.parametrize("how", ["acts", "signal", "killed"])
def test_a_session_whose_resume_did_something_or_was_killed_is_gone_on_with(tmp_path: Path, how: str) -> None:
    session, _ = cut_off_in_session(tmp_path)
    if how == "killed":
        started(tmp_path)
    else:
        ended(tmp_path, code=143 if how == "signal" else 1, acts=how == "acts")
    assert started(tmp_path) == ("--resume", session)


# --- what the transcript lost --------------------------------------------------------------------------------------------


def test_no_beat_of_a_save_point_is_missing_where_the_transcript_was_cut_short_under_a_live_agent(
    tmp_path: Path,
) -> None:
    session, path = cut_off_in_session(tmp_path)
    with minded(tmp_path) as there:
        there.start()
        os.truncate(path, 0)
        with path.open("ab") as file:
            file.write(response(session, 2, "echo on"))
        there.attempt.look()
        raise AttemptDies
    assert started(tmp_path) == ("--resume", session)
    told = path.read_bytes()
    assert b"said before" in told
    assert b"echo on" in told


def test_a_call_that_only_the_journal_knows_of_is_told_from_it(tmp_path: Path) -> None:
    session, path = cut_off_in_session(tmp_path)
    with minded(tmp_path) as there:
        there.start()
        path.unlink()  # what the agent writes from here on is nowhere to be read
        there.ask(before("claude", LOCAL, "call_2"))
        there.ask(after("claude", LOCAL, "call_2"))
        there.attempt.responses.end_now()
        assert there.run.state.session is not None
        raise AttemptDies
    assert started(tmp_path) == ("--resume", session)
    told = [json.loads(each)["message"]["content"] for each in path.read_bytes().splitlines()]
    parts = [part for content in told if isinstance(content, list) for part in content]
    assert [part["type"] for part in parts if "call_2" in json.dumps(part)] == ["tool_use", "tool_result"]
    assert b"said before" in path.read_bytes()
    found = path.read_bytes()
    started(tmp_path)
    assert path.read_bytes() == found, "it is told once"


def test_where_neither_the_copy_nor_the_transcript_can_be_trusted_a_fresh_session_is_told_everything(
    tmp_path: Path,
) -> None:
    session, path = cut_off_in_session(tmp_path)
    copy = next((tmp_path / "place/agent").glob(f"claude-{session}.jsonl"))
    copy.write_bytes(line(session, type="user", message={"role": "user", "content": "x"}))
    path.unlink()
    with minded(tmp_path) as there:
        assert session not in there.start().command
        assert "outlast cannot resume from the agent's transcript" in there.said[0]
        raise AttemptDies


def test_what_a_resume_needs_besides_comes_back_with_the_transcript(tmp_path: Path) -> None:
    sessions = tmp_path / "home/.kimi-code/sessions"
    wire, state = sessions / "wd_x/session_1/agents/main/wire.jsonl", sessions / "wd_x/session_1/state.json"
    with minded(tmp_path, "kimi-code") as there:
        there.start()
        wire.parent.mkdir(parents=True)
        wire.write_bytes((SAMPLES / "kimi-code-2.1.0-wire.jsonl").read_bytes())
        state.write_text('{"title":"x"}')
        there.ask(json.dumps({"hook_event_name": "SessionStart", "session_id": "session_1"}).encode())
        there.ask(before("kimi-code", LOCAL))
        there.ask(after("kimi-code", LOCAL))
        there.attempt.responses.end_now()
        raise AttemptDies
    found = wire.read_bytes()
    shutil.rmtree(sessions / "wd_x")
    with minded(tmp_path, "kimi-code") as there:
        assert "session_1" in " ".join(there.start().command)
        raise AttemptDies
    assert wire.read_bytes().startswith(found)
    assert state.read_text() == '{"title":"x"}'


# --- what nobody recorded ----------------------------------------------------------------------------------------------


def made_unrecorded(folder: Path, command: str) -> Path:
    """Claude Code asked for a call, of which no hook of ours told."""
    with minded(folder) as there:
        session = there.start().session
        path = there.home / ".claude/projects" / f"{there.work}".replace("/", "-") / f"{session}.jsonl"
        path.parent.mkdir(parents=True)
        asked = line(session, type="user", message={"role": "user", "content": "x"})
        path.write_bytes(asked + response(session, 0, command))
        there.attempt.look()
        raise AttemptDies
    return path


def last_result(path: Path) -> str:
    return json.dumps(json.loads(path.read_bytes().splitlines()[-1])["message"]["content"])


@pytest.mark.parametrize("command", [LOCAL, POST])
def test_a_call_that_ended_and_whose_result_the_transcript_lacks_is_told_from_the_journal(
    tmp_path: Path, command: str
) -> None:
    """Claude Code writes its transcript behind its hooks: it may be killed a beat later, the result still unwritten."""
    with minded(tmp_path) as there:
        session = there.start().session
        path = there.home / ".claude/projects" / f"{there.work}".replace("/", "-") / f"{session}.jsonl"
        path.parent.mkdir(parents=True)
        asked = line(session, type="user", message={"role": "user", "content": "x"})
        path.write_bytes(asked + response(session, 0, command))
        there.ask(before("claude", command, "call_0"))
        there.ask(after("claude", command, "call_0"))
        with path.open("ab") as file:
            file.write(response(session, 1, LOCAL))
        there.ask(before("claude", LOCAL, "call_1"))
        raise AttemptDies
    with minded(tmp_path) as there:
        assert there.run.state.beats == 1
        there.start()
        results = {
            block["tool_use_id"]: json.dumps(block["content"])
            for told in map(json.loads, path.read_bytes().splitlines())
            for block in told["message"]["content"]
            if isinstance(block, dict) and block["type"] == "tool_result"
        }
        assert results.keys() == {"call_0", "call_1"}
        assert "outlast" not in results["call_0"], "it is told as it ended"
        assert "cut off" in results["call_1"]
        assert not there.run.state.effects_open or all(
            each.beat == 2 for each in there.run.state.effects_open
        )


def test_a_call_outside_that_nobody_recorded_is_in_doubt_and_held(tmp_path: Path) -> None:
    path = made_unrecorded(tmp_path, POST)
    with minded(tmp_path) as there:
        there.start()
        assert "there is no record of whether this call was made" in last_result(path)
        assert "Make it again" not in last_result(path)
        assert there.intended() == [(SIGNATURE, "tell")]
        assert there.attempt.responses.rests, "it is not under way"
        assert [effect.state for effect in there.run.state.in_doubt] == ["in_doubt"]
        code, out = there.ask(before("claude", POST_OTHERWISE, "again"))
        assert is_denied(code, out)
        assert b"outlast holds this call" in out
        assert there.allows(before("claude", LOCAL, "other"))
        there.ask(after("claude", LOCAL, "other"))
        raise AttemptDies
    with minded(tmp_path) as there:
        there.start()
        assert [intent.key for intent in there.intents()].count("call_0") == 1, "it is put on record once"
        raise AttemptDies


def test_a_local_call_that_nobody_recorded_may_be_made_again(tmp_path: Path) -> None:
    path = made_unrecorded(tmp_path, LOCAL)
    with minded(tmp_path) as there:
        there.start()
        assert "Make it again" in last_result(path)
        assert there.intended() == [("Bash", "give_up")], "it may have been under way"
        assert there.run.state.effects_open == ()
        raise AttemptDies


@pytest.mark.parametrize("agent", HOOKS)
def test_a_hook_that_is_killed_denies_its_call(tmp_path: Path, agent: str) -> None:
    with minded(tmp_path, agent) as there, there.beats.lock:  # the supervisor does not answer
        words = outward.hook_words(copy_in(tmp_path), str(there.server.path), MARK, agent)
        hook = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert hook.stdin is not None
        hook.stdin.write(before(agent, POST))
        hook.stdin.close()
        below = Path(f"/proc/{hook.pid}/task/{hook.pid}/children")
        wait_for(lambda: bool(below.read_text().split()), what="the hook's client")
        os.kill(int(below.read_text().split()[0]), signal.SIGKILL)
        assert hook.wait(TIMEOUT_S) == client_hook.DENIED
        assert hook.stderr is not None
        assert b"did not let this call through" in hook.stderr.read()
        hook.stderr.close()
        raise AttemptDies


def test_a_hook_whose_interpreter_is_gone_denies_its_call(tmp_path: Path) -> None:
    words = list(outward.hook_words(copy_in(tmp_path), str(tmp_path / "nobody"), MARK, "claude"))
    words[words.index(client_copy.interpreter())] = str(tmp_path / "python")
    done = subprocess.run(
        words, input=before("claude", LOCAL), capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == client_hook.DENIED
    assert b"its Python is gone" in done.stderr
    assert client(tmp_path / "nobody", before("claude", LOCAL)).returncode == 0


# --- an agent whose session we cannot read ----------------------------------------------------------------------------


def opencode_cut_off(folder: Path) -> None:
    """It was killed in a call, and its session lies in a database of its own."""
    with minded(folder, "opencode") as there:
        (folder / "place/agent/opencode-journal.jsonl").write_text('{"type":"session","sessionID":"ses_1"}\n')
        for event in (Session("ses_1"), Response("msg_1")):
            there.take(event)
        asked = {"tool_call_id": "c1", "tool_name": "bash", "tool_input": {"command": LOCAL}}
        there.ask(json.dumps({**asked, "hook_event_name": "PreToolUse"}).encode())
        raise AttemptDies


def test_a_session_that_we_cannot_read_is_told_that_calls_that_are_not_named_were_not_made(
    tmp_path: Path,
) -> None:
    """opencode says the same of a call that was cut off before it asked us and of one that was cut off while it ran."""
    opencode_cut_off(tmp_path)
    with minded(tmp_path, "opencode") as there:
        said = " ".join(there.start("opencode", "run", "x").command)
        assert "These calls of yours were under way" in said
        assert prompts.UNNAMED in said
        raise AttemptDies


def test_an_opencode_without_its_plugin_is_not_told_so(tmp_path: Path) -> None:
    opencode_cut_off(tmp_path)
    with minded(tmp_path, "opencode") as there:
        said = " ".join(there.start("opencode", "--pure", "run", "x").command)
        assert "These calls of yours were under way" in said
        assert prompts.UNNAMED not in said
        raise AttemptDies


def test_a_session_whose_calls_are_given_their_results_is_not_told_so(tmp_path: Path) -> None:
    cut_off_in_session(tmp_path)
    with minded(tmp_path) as there:
        said = " ".join(there.start().command)
        assert "These calls of yours were under way" in said
        assert prompts.UNNAMED not in said
        raise AttemptDies
