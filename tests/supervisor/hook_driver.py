"""An agent that is minded, without the agent: a run, its Minder and the socket, driven with recorded hook inputs."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlast.agents import registry
from outlast.agents.claude.transcript import dashed
from outlast.agents.events import AgentEvent
from outlast.agents.values import AgentCommand
from outlast.core import events as ev
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.runs.opening.entry import terms_of
from outlast.supervisor.agent.agent import Agent
from outlast.supervisor.agent.attempt import AgentAttempt
from outlast.supervisor.agent.calls import outward
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.budget.enforce import BudgetWatch
from outlast.supervisor.budget.gateway import Gate
from outlast.supervisor.budget.pricing import Pricing
from outlast.supervisor.client import copy, hook
from outlast.supervisor.launch import environment
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.launch.run import supervised_run
from outlast.supervisor.person import Person
from outlast.supervisor.socket.script_calls import ScriptCalls
from outlast.supervisor.socket.server import Server
from outlast.supervisor.timing import Timing
from tests.support.environment import ROOT, TIMEOUT_S

MARK = "run.1"
HOOKS = {
    "claude": "claude-2.1.325-hooks.jsonl",
    "codex": "codex-0.166-hooks.jsonl",
    "kimi-code": "kimi-code-2.1.0-hooks.jsonl",
    "kimi-cli": "kimi-cli-1.51.0-hooks.jsonl",
    "gemini": "gemini-0.61.0-hooks.jsonl",
}
SHELLS = ("Bash", "Shell", "run_shell_command")
POST = "curl -sS -X POST -d hello http://127.0.0.1:9/comment"
POST_FLAGS = "curl --retry 2 -v --data hello http://127.0.0.1:9/comment"
POST_OTHERWISE = "curl --retry 2 -v --data 'in other words' http://127.0.0.1:9/comment"
LOCAL = "echo hello > hello.txt"
SIGNATURE = "POST 127.0.0.1:9/comment"


class NoListener:
    """Nobody is to be told when a beat ends."""

    def beat_ended(self) -> None:
        pass


class AttemptDies(Exception):
    """Stands for the death of the attempt."""


def recorded(agent: str, *events: str) -> dict[str, Any]:
    """A hook input of one of these events, of a call of its shell, as the real program wrote it."""
    lines = (ROOT / "tests/agents/samples" / HOOKS[agent]).read_bytes().splitlines()
    told = [json.loads(line) for line in lines]
    return next(each for each in told if each["hook_event_name"] in events and each["tool_name"] in SHELLS)


def before(agent: str, command: str, call: str = "call_1") -> bytes:
    told = recorded(agent, "PreToolUse", "BeforeTool")
    told["tool_input"] |= {"command": command}
    return _with_id(told, call)


def after(agent: str, command: str, call: str = "call_1") -> bytes:
    told = recorded(agent, "PostToolUse", "AfterTool")
    told["tool_input"] |= {"command": command}
    return _with_id(told, call)


def _with_id(told: dict[str, Any], call: str) -> bytes:
    for name in ("tool_use_id", "tool_call_id"):
        if name in told:
            told[name] = call
    return json.dumps(told).encode()


def is_denied(code: int, out: bytes) -> bool:
    return code == hook.DENIED or b'"deny"' in out


@dataclass
class Minded:
    """One attempt of it."""

    run: RunEngine
    attempt: AgentAttempt
    beats: BeatInFlight
    server: Server
    agent: str
    home: Path
    work: Path
    said: list[str] = field(default_factory=list)

    def ask(self, data: bytes) -> tuple[int, bytes]:
        """What a hook with this input is answered, over the socket."""
        there, code, out = hook._ask(str(self.server.path), MARK, self.agent, data)
        there.sendall(hook.TAKEN)
        there.close()
        return code, out

    def take(self, event: AgentEvent) -> None:
        """As if the transcript or a hook told this."""
        self.attempt._observer.take(event)

    def allows(self, data: bytes) -> bool:
        return not is_denied(*self.ask(data))

    def intents(self) -> list[ev.EffectIntended]:
        return [
            event
            for event in self.run.journal.events("effect_intended")
            if isinstance(event, ev.EffectIntended)
        ]

    def intended(self) -> list[tuple[str, str]]:
        return [(event.name, event.policy) for event in self.intents()]

    def settle(self, finding: ev.Finding) -> None:
        """As `outlast settle` writes it."""
        for effect in self.run.state.effects_open:
            event = ev.EffectSettled(
                at=self.run.journal.now(), beat=effect.beat, n=effect.n, finding=finding, by="person"
            )  # fmt: skip
            self.run.drive(append(event))

    def start(self, *words: str) -> AgentCommand:
        variables = {
            environment.SOCKET: str(self.server.path),
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
        }
        return self.attempt.command(words or (self.agent, "-p", "x"), variables, MARK)


@contextlib.contextmanager
def minded(
    folder: Path,
    agent: str = "claude",
    budget: int | None = None,
    *,
    gateway: bool = False,
    timing: Timing | None = None,
    invariant: str | None = None,
    approve: tuple[str, ...] = (),
) -> Iterator[Minded]:
    """One attempt of the same run each time. Killed raised inside is its death. `approve`: classes and patterns of calls that wait."""
    home, work, place = folder / "home", folder / "work", folder / "place"
    for each in (home, work, place):
        each.mkdir(exist_ok=True)
    kind = registry.by_name(agent)
    assert kind is not None
    kinds = tuple(word for word in approve if word.isalpha())
    launch = Launch(
        argv=(agent, "-p", "x"), program=f"/usr/bin/{agent}", cwd=str(work),
        approve_kinds=kinds, approve_targets=tuple(word for word in approve if word not in kinds),
    )  # fmt: skip
    said: list[str] = []
    with contextlib.suppress(AttemptDies), run_in(folder, budget, invariant) as run:
        person, pricing, beats, nobody = Person(said.append), Pricing(), BeatInFlight(run), NoListener()
        budget_watch = BudgetWatch(run, place, person)
        budget_watch.pricing = pricing
        gate = Gate(run, budget_watch, {}, pricing) if gateway else None
        known = Agent(run, launch, kind, place / "agent", person, budget_watch, pricing, gate)
        attempt = AgentAttempt(known, beats, {"HOME": str(home)}, nobody, timing)
        server = Server(place / "socket", MARK, ScriptCalls(beats, nobody, ends_beats=False), attempt.hooks)
        try:
            yield Minded(run, attempt, beats, server, agent, home, work, said)
        finally:
            if gate is not None:
                gate.close()
            attempt.close()
            server.close()


def client(socket: Path, data: bytes, agent: str = "claude") -> "subprocess.CompletedProcess[bytes]":
    """The hook's command itself, as an agent runs it."""
    words = outward.hook_words(copy_in(socket.parent), str(socket), MARK, agent)
    return subprocess.run(words, input=data, capture_output=True, timeout=TIMEOUT_S, check=False)


def hooked(words: list[str], data: bytes = before("claude", LOCAL)) -> "subprocess.CompletedProcess[bytes]":
    """What a CLI gets from the command of a hook or a shim."""
    return subprocess.run(words, input=data, capture_output=True, timeout=TIMEOUT_S, check=False)


def copy_in(folder: Path) -> Path:
    """What the hook's command runs."""
    return copy.place(folder / "client")


def line(session: str, **told: Any) -> bytes:
    known = {"sessionId": session, "uuid": "u", "timestamp": "2026-11-15T06:54:28.652Z"}
    return json.dumps(known | told).encode() + b"\n"


def response(session: str, number: int, command: str) -> bytes:
    call = {"type": "tool_use", "id": f"call_{number}", "name": "Bash", "input": {"command": command}}
    usage = {"input_tokens": 3, "output_tokens": 4}
    said = {"id": f"msg_{number}", "role": "assistant", "content": [call], "usage": usage}
    return line(session, type="assistant", parentUuid="u", message=said)


def write_session(there: Minded) -> None:
    """Claude Code's transcript of this attempt, with which the next one goes on in the same session."""
    known = there.run.state.session
    assert known is not None
    path = there.home / ".claude/projects" / dashed(str(there.work)) / f"{known.session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(line(known.session, type="user", message={"role": "user", "content": "x"}))


def cut_off_in_session(folder: Path) -> tuple[str, Path]:
    """Claude Code did a beat, and was killed in the call of the next one: its session, and its transcript as it lies there."""
    with minded(folder) as there:
        session = there.start().session
        path = there.home / ".claude/projects" / dashed(str(there.work)) / f"{session}.jsonl"
        path.parent.mkdir(parents=True)
        result = {"type": "tool_result", "tool_use_id": "call_0", "content": "said before"}
        path.write_bytes(
            line(session, type="user", message={"role": "user", "content": "x"})
            + response(session, 0, LOCAL)
            + line(session, type="user", message={"role": "user", "content": [result]})
        )
        assert there.allows(before("claude", LOCAL, "call_0"))
        there.ask(after("claude", LOCAL, "call_0"))
        with path.open("ab") as file:
            file.write(response(session, 1, POST))
        there.attempt.look()
        assert there.allows(before("claude", POST, "call_1"))
        raise AttemptDies
    return session, path


def run_in(folder: Path, budget: int | str | None = None, invariant: str | None = None) -> RunEngine:
    """The run of the task `t`, whose store is in this folder."""
    terms = terms_of("t", store=str(folder / "store"), project="p", budget=budget, invariants=invariant)
    return supervised_run(terms)
