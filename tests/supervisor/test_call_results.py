"""What is recorded of a call's end: whether it went well, as far as the CLI and the shims tell, and what follows from that."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.agents.events import Response, ToolEnd
from outlast.core import events as ev
from outlast.runs import files as run_files
from outlast.supervisor.client import shim
from outlast.supervisor.timing import Timing
from tests.supervisor.hook_driver import LOCAL, POST, AttemptDies, Minded, after, before, minded, recorded
from tests.supervisor.test_repeated_calls import FIRST, SAME, attempt, does
from tests.supervisor.test_shims import HELD, below

PUSH = "git push origin main"
FAILED = "<untrusted_context>\nOutput: fatal\nExit Code: 128\nProcess Group PGID: 2\n</untrusted_context>"


def results(there: Minded) -> list[Any]:
    """Of all calls that have one, in this order."""
    confirmed = there.run.journal.events("effect_confirmed")
    return [
        there.run.journal.value(each.result) for each in confirmed if isinstance(each, ev.EffectConfirmed)
    ]


def test_a_push_that_failed_in_gemini_is_on_record_with_its_exit_code_and_not_among_what_is_done(
    tmp_path: Path,
) -> None:
    with minded(tmp_path, "gemini") as there:
        assert there.allows(before("gemini", PUSH))
        told = recorded("gemini", "AfterTool")
        told["tool_input"] |= {"command": PUSH}
        there.ask(json.dumps(told | {"tool_response": {"llmContent": FAILED}}).encode())
        there.take(Response("next"))
        assert [(each["ok"], each["exit_code"]) for each in results(there)] == [(False, 128)]
        assert "Effects done" not in there.run.context()
        raise AttemptDies


def test_a_push_that_went_well_in_gemini_is_among_what_is_done(tmp_path: Path) -> None:
    with minded(tmp_path, "gemini") as there:
        assert there.allows(before("gemini", PUSH))
        there.ask(after("gemini", PUSH))
        assert [(each["ok"], each["exit_code"]) for each in results(there)] == [(True, 0)]
        assert "Effects done" in there.run.context()
        raise AttemptDies


def test_what_nobody_tells_the_result_of_is_not_called_a_success(tmp_path: Path) -> None:
    """Codex's hooks say that a call has ended, and not how."""
    with minded(tmp_path, "codex") as there:
        for number, command in enumerate(("ls", PUSH)):
            assert there.allows(before("codex", command, f"call_{number}"))
            there.ask(after("codex", command, f"call_{number}"))
        there.take(Response("next"))
        assert [each["ok"] for each in results(there)] == [None, None]
        raise AttemptDies


def test_what_its_transcript_tells_later_counts_for_a_call_that_reaches_outside(tmp_path: Path) -> None:
    with minded(tmp_path, "codex") as there:
        assert there.allows(before("codex", PUSH, "call_1"))
        there.ask(after("codex", PUSH, "call_1"))
        there.take(ToolEnd("call_1", False, "Process exited with code 128", code=128))
        there.take(Response("next"))
        assert [(each["ok"], each["exit_code"]) for each in results(there)] == [(False, 128)]
        raise AttemptDies


def test_a_program_that_failed_is_no_success_though_its_call_is_one(tmp_path: Path) -> None:
    with attempt(tmp_path, code=22) as here:
        command = f"{FIRST} || true"
        done = does(here, command, "call_1")
        assert done is not None
        assert done.returncode == 0
        here.there.ask(after("claude", command, "call_1"))
        assert [(each["ok"], each["exit_code"]) for each in results(here.there)] == [(False, 22)]
        raise AttemptDies
    with attempt(tmp_path) as here:
        assert does(here, FIRST, "call_2") is not None, "a fresh session may try again what failed"
        raise AttemptDies


def test_of_a_call_that_failed_what_ended_well_is_not_repeated_in_a_fresh_session(tmp_path: Path) -> None:
    second = FIRST.replace(SAME, "http://192.0.2.1/second")
    text = f"{FIRST} && {second}"
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", text))
        assert here.run(FIRST).returncode == 0
        (here.programs / "curl").write_text("#!/bin/sh\nexit 22\n")
        assert here.run(second).returncode == 22
        here.there.take(ToolEnd("call_1", False, "Exit code 22", code=22))
        here.there.take(Response("next"))
        assert [each["done"] for each in results(here.there)] == [[0]]
        assert "Effects done" in here.there.run.context()
        raise AttemptDies
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", second, "call_2"))
        assert here.run(FIRST).returncode == shim.REFUSED
        raise AttemptDies


def test_of_a_call_that_went_well_what_its_shim_refused_may_be_made_in_a_fresh_session(
    tmp_path: Path,
) -> None:
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", f"{FIRST}; {PUSH}; true"))
        assert here.run(FIRST).returncode == 0
        here.there.take(ToolEnd("call_1", True, "outlast: `git` was not run: it is not on record"))
        [told] = results(here.there)
        assert (told["ok"], told["not_done"]) == (True, ["push origin refs/heads/main"])
        raise AttemptDies
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", PUSH, "call_2"))
        assert here.run(FIRST).returncode == shim.REFUSED
        raise AttemptDies


@pytest.mark.parametrize("code", [137, 143])
def test_a_killed_call_that_no_shim_saw_is_in_doubt_before_the_next_one_is_judged(
    tmp_path: Path, code: int
) -> None:
    with minded(tmp_path) as there:
        absolute = f"/usr/bin/{FIRST}"
        assert there.allows(before("claude", absolute, "call_1"))
        told = recorded("claude", "PostToolUseFailure")
        told |= {"tool_use_id": "call_1", "error": f"Exit code {code}"}
        there.ask(json.dumps(told).encode())
        assert [effect.state for effect in there.run.state.effects_open] == ["in_doubt"]
        _, out = there.ask(before("claude", absolute, "call_2"))
        assert HELD in out.decode()
        there.take(Response("next"))
        assert results(there) == []
        raise AttemptDies


def test_the_outcome_of_a_local_call_waits_for_another_commit_and_that_of_an_outward_one_for_none(
    tmp_path: Path,
) -> None:
    with minded(tmp_path, timing=Timing(outcome_s=0.0)) as there:
        assert there.allows(before("claude", LOCAL, "call_0"))
        there.ask(after("claude", LOCAL, "call_0"))
        assert not there.run.state.effects_open, "it is known here"
        assert results(there) == []
        there.attempt.look()
        assert len(results(there)) == 1, "nothing else came for so long"
        assert there.allows(before("claude", LOCAL, "call_1"))
        there.ask(after("claude", LOCAL, "call_1"))
        assert there.allows(before("claude", POST, "call_2"))
        assert len(results(there)) == 2, "it went along with an intent"
        there.ask(after("claude", POST, "call_2"))
        assert len(results(there)) == 3
        raise AttemptDies


def test_the_outcome_of_a_local_call_is_on_record_with_the_end_of_its_beat(tmp_path: Path) -> None:
    with minded(tmp_path, timing=Timing(outcome_s=60.0)) as there:
        assert there.allows(before("claude", LOCAL, "call_0"))
        there.ask(after("claude", LOCAL, "call_0"))
        there.attempt.look()
        assert [item.event for item in there.run.journal.store.read(there.run.id, after=0).events][
            -1
        ] == there.intents()[0]
        there.attempt.responses.end_now()
        kinds = [type(item.event) for item in there.run.journal.store.read(there.run.id, after=0).events][-2:]
        assert kinds == [ev.EffectConfirmed, ev.BeatDone]
        raise AttemptDies


def test_where_files_go_back_to_the_last_outcome_it_waits_for_nothing(tmp_path: Path) -> None:
    with minded(tmp_path, timing=Timing(outcome_s=60.0)) as there:
        run = there.run
        run.terms = msgspec.structs.replace(run.terms, workspace=str(there.work), files="rewind")
        run.files = run_files.Files(there.work, run.journal.store.local, run.id, run.terms.task, run.settings)
        assert there.allows(before("claude", LOCAL, "call_0"))
        there.ask(after("claude", LOCAL, "call_0"))
        assert len(results(there)) == 1
        raise AttemptDies
