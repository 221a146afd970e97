"""Why an agent ended, where that could be mistaken: its model's words, its own limits, a command line that it does not take."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from outlast.agents import registry
from outlast.agents.common import cli_errors
from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Fault, Script, Step, bash
from tests.supervisor.hook_driver import AttemptDies, minded
from tests.support.processes import wait_for

FAKES = {
    "claude": '{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":3,"result":"no"}',
    "gemini": '{"error":{"type":"Error","message":"You exceeded your current quota","code":429}}',
    "opencode": '{"type":"error","sessionID":"ses_1","error":{"name":"ProviderAuthError","data":{"message":"no"}}}',
}
ASKING = {
    "claude": ("--output-format", "json"),
    "gemini": ("--output-format", "json"),
    "opencode": ("--format", "json"),
}


@pytest.mark.parametrize("name", FAKES)
def test_words_that_look_like_a_result_count_only_where_the_command_asks_for_one(
    name: str, tmp_path: Path
) -> None:
    kind = registry.by_name(name)
    assert kind is not None
    tail = f"Here is what you asked for:\n{FAKES[name]}\n".encode()
    assert kind.transcript.ending(0, tail, b"").ending != "done"
    with minded(tmp_path, name) as there:
        assert there.attempt.judge(0, tail).ending == "done"
        raise AttemptDies
    assert not kind.cli.read((name, "-p", "x")).structured
    assert kind.cli.read(
        (name, *(("run",) if name == "opencode" else ()), *ASKING[name], "-p", "x")
    ).structured


def test_an_error_in_words_stays_one_where_data_is_left_out() -> None:
    said = b'API Error: 401 {"type":"error"}\n{"a":1}\n  "error": {\n'
    assert cli_errors.prose(said) == b'API Error: 401 {"type":"error"}\n'


# --- limits of the agent's own --------------------------------------------------------------------------------------


def test_a_turn_limit_is_not_taken_for_a_spent_budget_of_ours(world: AgentWorld) -> None:
    under = Under(world, "claude", "2.1.325", more=["--max-turns", "2"])
    world.model.script = Script([Step(str(n), (bash(f"echo {n}"),)) for n in range(3)] + [Step("Done.")])
    done = under.run()
    assert done.returncode == 4, done.stderr
    assert "turn limit of the agent's own: " in done.stderr
    assert (
        "`outlast resume t` goes on for as much again; for more, raise the limit in its command"
        in done.stderr
    )
    assert "--budget" not in done.stderr
    shown = under.shown()
    assert (shown["cause"], shown["evidence"][:30]) == ("budget", "turn limit of the agent's own:")
    report = under.call("report").stdout
    assert "turn limit of the agent's own" in report
    assert "--budget" not in report


# --- a command line that it does not take ---------------------------------------------------------------------------

REFUSALS = {
    "error: unknown option '--no-such-flag'\n": "error: unknown option '--no-such-flag'",
    "Error: Invalid session ID. Must be a valid UUID.\n": "Error: Invalid session ID. Must be a valid UUID.",
    "WARNING: x\nerror: unexpected argument '--no' found\n\n  tip: y\n\nUsage: codex exec [OPTIONS] [PROMPT]\n": "error: unexpected argument '--no' found",
    "error: invalid value 'nope' for '--sandbox <SANDBOX_MODE>'\n  [possible values: a]\n": "error: invalid value 'nope' for '--sandbox <SANDBOX_MODE>'",
    "Usage: kimi [OPTIONS]\n╭─ Error ─────╮\n│ No such option '--no'.      │\n╰──╯\n": "No such option '--no'.",
    "Unknown arguments: such-flag, suchFlag\nUsage: gemini [options]\n": "Unknown arguments: such-flag, suchFlag",
    'Invalid values:\n  Argument: approval-mode, Given: "nope"\nUsage: gemini\n': 'Invalid values: Argument: approval-mode, Given: "nope"',
    "usage: aider [FILE ...]\naider: error: unrecognized arguments: --no\n": "aider: error: unrecognized arguments: --no",
    "opencode run [message..]\n\nrun opencode with a message\n": "it printed its help: it does not take these words",
    "Error: 500 from the server, error: unknown option\n": "",
    "": "",
}  # fmt: skip


@pytest.mark.parametrize("printed", REFUSALS)
def test_a_refusal_of_the_command_line_is_known_by_its_words(printed: str) -> None:
    assert cli_errors.refused(printed.encode()) == REFUSALS[printed]


def test_a_command_line_that_is_refused_is_not_tried_again(world: AgentWorld) -> None:
    under = Under(world, "claude", "2.1.325", more=["--no-such-flag"])
    done = under.run()
    assert done.returncode == 1, done.stderr
    assert "failed: error: unknown option '--no-such-flag'" in done.stderr
    assert "fix the command and run it again" in done.stderr
    shown = under.shown()
    assert (shown["cause"], len(shown["attempts"])) == ("crash", 1)


# --- a prompt from standard input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["pipe", pytest.param("file", marks=pytest.mark.campaign)])
def test_a_prompt_that_was_piped_in_survives_a_kill_before_the_session_exists(
    world: AgentWorld, tmp_path: Path, how: str
) -> None:
    under = Under(world, "claude", "2.1.325")
    hangs = Fault(hang_after=0)
    world.model.script = Script([Step("Never.", fault=hangs)])
    words = [word for word in under.words("PROMPT") if word != "PROMPT"]
    command = under.outlast("run", "--task", "t", "--", *words)
    text = tmp_path / "prompt"
    text.write_text("count the sheep\n")
    with text.open("rb") as file:
        process = world.begin(
            command, env=under.environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            stdin=subprocess.PIPE if how == "pipe" else file,
        )  # fmt: skip
    if process.stdin is not None:
        process.stdin.write(text.read_bytes())
        process.stdin.close()
    folder = world.root / "runs"
    wait_for(lambda: list(folder.glob("*/stdin.whole")), what="the prompt on record", limit_s=60)
    under.kill_all(process)
    text.write_text("another thing\n")
    for transcript in (world.home / ".claude").glob(
        "projects/*/*.jsonl"
    ):  # it was killed before it wrote one
        os.unlink(transcript)
    [spool] = folder.glob("*/stdin")
    assert (spool.read_text(), oct(spool.stat().st_mode & 0o777)) == ("count the sheep\n", "0o600")
    world.model.script = Script([Step("Done.")])
    done = under.call("resume", "t")
    assert done.returncode == 0, done.stderr
    asked = [request.history.prompt for request in world.model.requests() if request.step >= 0]
    assert "count the sheep" in asked[-1]


# --- what is said of it ---------------------------------------------------------------------------------------------


def test_settings_that_are_no_file_are_not_found_and_a_byte_order_mark_is_no_fault(world: AgentWorld) -> None:
    path = world.folder / "settings.json"
    under = Under(world, "claude", "2.1.325", more=["--settings", str(path), "--no-session-persistence"])
    world.model.script = Script([Step("Done.")])
    done = under.run()
    assert done.returncode == 2
    assert "is not found" in done.stderr
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"disableAllHooks": True}).encode())
    done = under.run()
    assert done.returncode == 0, done.stderr
    assert "its settings switch hooks off (disableAllHooks)" in done.stderr
    assert "--no-session-persistence keeps no transcript: no tokens are counted" in done.stderr
    assert "calls recorded first, by shims, transcript" in under.call("show", "t").stdout
