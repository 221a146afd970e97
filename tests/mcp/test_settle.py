"""What an agent may say of an effect in doubt by `outlast mcp`: what it looked up of its own calls, and nothing that is a person's."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlast
from outlast.core import events as ev
from outlast.operations import requests
from outlast.processes import proc
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.runs.run import run_engine
from outlast.supervisor.agent.calls.record import CallRecord
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.socket.script_calls import ScriptCalls
from outlast.supervisor.socket.server import Server
from tests.mcp.client import RawClient
from tests.support.environment import isolate

MARK = "run.1"


@dataclass
class Asked:
    """A run with effects in doubt, its server, and a client of `outlast mcp`."""

    run: RunEngine
    server: Server
    client: RawClient

    def doubt(self, policy: str = "tell", **record: Any) -> str:
        """An effect that was begun and has no outcome; its id."""
        number = len(self.effects()) + 1
        call = CallRecord(tool="Bash", **record)
        args = self.run.journal.payload(msgspec.to_builtins(call))
        at = self.run.journal.now()
        intended = ev.EffectIntended(
            at=at, beat=1, n=number, name=f"push {number}", occurrence=1, key=f"k{number}", policy=policy, args=args  # type: ignore[arg-type]
        )  # fmt: skip
        doubt = ev.EffectInDoubt(at=at, beat=1, n=number, evidence="cut off")
        self.run.drive(append(intended, doubt, in_beat=True))
        return f"1.{number}"

    def effects(self, **given: Any) -> dict[str, Any]:
        listed = self.client.call("effects", **given)["structuredContent"]["effects"]
        return {each["id"]: each for each in listed}


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    with contextlib.ExitStack() as stack:
        run = run_engine(stack.enter_context(outlast.run("t", store=str(tmp_path / "store"), project="p")))
        server = Server(tmp_path / "socket", MARK, ScriptCalls(BeatInFlight(run)))
        stack.callback(server.close)
        inside = {"OUTLAST_SOCKET": str(server.path), "OUTLAST_ATTEMPT": MARK, "OUTLAST_RUN": run.id}
        client = stack.enter_context(RawClient.start(isolate(tmp_path).environ(**inside), tmp_path))
        client.shake()
        yield Asked(run, server, client)


def test_what_an_agent_looked_up_of_its_own_call_is_on_record_when_it_is_answered(asked: Asked) -> None:
    first, second = asked.doubt(), asked.doubt()
    assert {each["settles"] for each in asked.effects(in_doubt=True).values()} == {"you"}
    found = asked.client.call("settle", effect=first, finding="happened", result={"url": "u"})
    assert found["structuredContent"] == {"effect": first, "state": "confirmed", "settled_by": "agent"}
    found = asked.client.call("settle", effect=second, finding="did_not")
    assert found["structuredContent"]["state"] == "failed"
    assert asked.run.state.in_doubt == ()
    assert asked.effects(in_doubt=True) == {}
    assert {each["settles"] for each in asked.effects().values()} == {"nobody"}


@pytest.mark.parametrize("finding", ["happened", "did_not"])
def test_what_a_person_decides_an_agent_cannot(asked: Asked, finding: str) -> None:
    for effect in (asked.doubt("ask"), asked.doubt("tell", asks="1.9")):
        assert asked.effects()[effect]["settles"] == "person"
        text = asked.client.refused("settle", effect=effect, finding=finding)
        assert "is for a person to settle" in text
        assert f"outlast settle {asked.run.id} {effect}" in text
    assert len(asked.run.state.in_doubt) == 2


def test_that_nobody_can_find_out_only_a_person_says(asked: Asked) -> None:
    effect = asked.doubt()
    for finding in ("give_up", "another", "cannot_tell", "", None):
        assert "do not fit" in asked.client.refused("settle", effect=effect, finding=finding)
    assert len(asked.run.state.in_doubt) == 1


def test_a_person_who_was_first_has_the_say(asked: Asked) -> None:
    effect = asked.doubt()
    store = asked.run.journal.store
    store.inbox.put(
        asked.run.id, by="alice", what="settle", args=msgspec.json.encode({"effect": effect, "finding": "happened"})
    )  # fmt: skip
    text = asked.client.refused("settle", effect=effect, finding="did_not")
    assert "settled already as 'confirmed' by alice" in text
    assert asked.effects()[effect]["settled_by"] == "alice"


def test_nothing_did_not_happen_while_a_process_of_it_may_do_it_yet(asked: Asked) -> None:
    effect = asked.doubt()
    roster = asked.server._roster
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            found = proc.look(process.pid)
            assert found is not None
            roster.name(f"{MARK}.9", "k1")
            roster.enter(f"{MARK}.9", found)
            assert "may still be under way" in asked.client.refused(
                "settle", effect=effect, finding="did_not"
            )
        finally:
            process.kill()
    assert asked.client.call("settle", effect=effect, finding="did_not")["isError"] is False


def test_while_the_attempt_is_stopped_it_looks_and_writes_nothing(asked: Asked) -> None:
    effect = asked.doubt()
    asked.server.stopping()
    writes: dict[str, dict[str, str]] = {
        "stage": {"name": "x"}, "remember": {"name": "a", "path": "b"}, "save": {}, "settle": {"effect": effect, "finding": "happened"},
    }  # fmt: skip
    for tool, given in writes.items():
        assert "is being stopped" in asked.client.refused(tool, **given)
    assert asked.client.call("budget")["isError"] is False
    assert len(asked.run.state.in_doubt) == 1
    assert requests.summary_of(asked.run.journal.store, asked.run.id).state.stage == ""


def test_a_run_without_a_workspace_says_that_it_saves_nothing(asked: Asked) -> None:
    assert "it has no workspace" in asked.client.refused("save")
