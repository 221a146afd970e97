"""Journals written by hand, event after event with a clock of their own, as a supervisor would have left them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from outlast.core import events as ev
from outlast.core.plan import Step
from outlast.core.values import (
    Allowance,
    Check,
    Contract,
    ForkPoint,
    MemoryRef,
    Parent,
    Payload,
    SessionMark,
    Usage,
    Window,
)

Journal = tuple[ev.RunOpened, Sequence[ev.AnyEvent]]
HOST = "night-owl"
VERSION = "0.1.0"
ID_CHARS = "abcdefghjkmnpqrstuvwxyz23456789"
ID_LENGTH = 12


@dataclass(frozen=True, slots=True)
class AgentCli:
    """An agent CLI: what people type, its model, and micro-dollars for a thousand tokens (0: a subscription pays)."""

    name: str
    program: str
    model: str
    price: int = 0


def new_id(rng: random.Random) -> str:
    return "".join(rng.choices(ID_CHARS, k=ID_LENGTH))


def new_commit(rng: random.Random) -> str:
    return f"{rng.getrandbits(160):040x}"


def payload(value: object) -> Payload:
    return Payload(v=msgspec.Raw(msgspec.json.encode(value)))


@dataclass
class Scribe:
    """Writes one journal. `at` is its clock: `wait` moves it, every event is written at it."""

    rng: random.Random
    at: datetime
    task: str
    project: str
    goal: str
    agent: AgentCli | None = None
    workspace: str = ""
    budget: Allowance | None = None
    checks: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
    parent: Parent | None = None
    fork: ForkPoint | None = None
    run: str = ""
    beats: int = 0
    epoch: int = 0
    events: list[ev.AnyEvent] = field(default_factory=list)
    begun: datetime | None = None
    opened_at: datetime = field(init=False)
    _open: int = 0
    _effects: int = 0
    _cursors: list[ev.Path] = field(default_factory=list)
    _steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run = self.run or new_id(self.rng)
        self.opened_at = self.at

    @property
    def journal(self) -> Journal:
        """The run's first event, and all others."""
        opened = ev.RunOpened(
            at=self.opened_at, run=self.run, task=self.task, project=self.project, budget=self.budget,
            contract=Contract(self.goal, self.checks, self.invariants), parent=self.parent, fork=self.fork,
            files="keep" if self.agent else "", workspace=self.workspace, launch=self._launch(),
        )  # fmt: skip
        return opened, self.events

    def child_of(self, beat: int | None = None) -> Parent:
        """What a child of a beat of this run (the one in flight) is opened with."""
        root = self.parent.root if self.parent else self.run
        return Parent(self.run, self.beats + 1 if beat is None else beat, root)

    def wait(self, seconds: float) -> Scribe:
        self.at += timedelta(seconds=seconds)
        return self

    def say(self, *events: ev.AnyEvent) -> Scribe:
        self.events += events
        return self

    # -- the plan ------------------------------------------------------------------------------------------------

    def plan(self, steps: tuple[Step, ...]) -> Scribe:
        """A plan of one or two levels."""
        for index, step in enumerate(steps):
            leaves: list[ev.Path] = [(index, below) for below in range(len(step.steps))]
            self._cursors += leaves or [(index,)]
            self._steps += [each.name for each in step.steps] or [step.name]
        return self.say(ev.PlanSet(at=self.at, steps=payload(steps), total=len(self._cursors)))

    @property
    def step(self) -> str:
        """The step of the next beat."""
        return self._steps[self.beats] if self.beats < len(self._steps) else ""

    def _next(self) -> ev.Path:
        return self._cursors[self.beats + 1] if self.beats + 1 < len(self._cursors) else ()

    # -- attempts ------------------------------------------------------------------------------------------------

    def _launch(self) -> Payload | None:
        if self.agent is None:
            return None
        words = [self.agent.program, "-p", "carry on"]
        return payload({"argv": words, "program": f"/usr/bin/{words[0]}", "cwd": self.workspace})

    def start(self, boot_id: str = "5f1c2f0a-0000-4000-8000-000000000001") -> Scribe:
        """An attempt begins."""
        self.epoch += 1
        self.begun = self.at
        words = (self.agent.program, "-p", "carry on") if self.agent else ("python", "agent.py")
        started = ev.AttemptStarted(
            at=self.at, epoch=self.epoch, host=HOST, pid=self.rng.randrange(2_000, 60_000), boot_id=boot_id,
            version=VERSION, command=words, launch=self._launch(), uptime_s=90_000,
        )  # fmt: skip
        self.say(started)
        return self.say(ev.SessionKnown(at=self.at, session=self._session())) if self.agent else self

    def _session(self) -> SessionMark:
        assert self.agent is not None, "only an agent CLI has a session"
        return SessionMark(self.agent.name, f"{self.run}-session", model=self.agent.model)

    def end(
        self, status: ev.EndStatus, cause: ev.Cause, evidence: str = "", *, exit_code: int | None = None, wanted: bool = False,
    ) -> Scribe:  # fmt: skip
        """The attempt ends, and tells how long it lived."""
        lived = self.at - (self.begun or self.at)
        spent = Usage(time_ms=int(lived.total_seconds() * 1000))
        return self.say(
            ev.AttemptEnded(
                at=self.at, epoch=self.epoch, status=status, cause=cause, evidence=evidence, exit_code=exit_code,
                wanted=wanted, progress=True, spent=spent,
            )
        )  # fmt: skip

    def done(self, checks: tuple[Check, ...] = ()) -> Scribe:
        """All is done, and the checks passed."""
        checked = checks or tuple(Check(command, 0) for command in self.checks)
        self.say(ev.Finished(at=self.at, checks=checked))
        return self.end("done", "done")

    # -- beats ---------------------------------------------------------------------------------------------------

    def beat(
        self, said: str, calls: tuple[str, ...] = (), *, tokens: int = 0, seconds: float = 60.0, stage: str = "",
        window: Window | None = None, remembered: tuple[MemoryRef, ...] = (),
    ) -> Scribe:  # fmt: skip
        """A whole beat, its calls confirmed one after the other, `seconds` long."""
        self.wait(seconds * 0.2)
        for call in calls:
            self.call(call).wait(seconds * 0.6 / len(calls)).confirm({"exit_code": 0})
        self.wait(seconds * (0.2 if calls else 0.8))
        spent = self.usage(tokens) if tokens else None
        number, step, cursor = self.beats + 1, self.step, self._next()
        over = bool(self._steps) and number >= len(self._steps)
        told = {"calls": list(calls), "said": said} if calls else {"said": said}
        self.say(
            ev.BeatDone(
                at=self.at, beat=number, step=step, cursor=cursor, over=over, result=payload(told), stage=stage,
                spent=spent, session=self._session() if self.agent else None, remembered=remembered, window=window,
                save=new_commit(self.rng) if self.workspace and self.rng.random() < 0.6 else "",
            )
        )  # fmt: skip
        self.beats, self._open, self._effects = number, 0, 0
        return self

    def usage(self, tokens: int) -> Usage:
        """So many tokens as an agent spends them: most of them read from the cache."""
        written, output = tokens // 10, tokens // 20
        price = self.agent.price if self.agent else 0
        return Usage(
            input=tokens - tokens * 7 // 10 - written - output, output=output, cache_read=tokens * 7 // 10,
            cache_write=written, cost_microusd=tokens * price // 1000, subscription=price == 0,
        )  # fmt: skip

    # -- effects -------------------------------------------------------------------------------------------------

    def call(
        self, name: str, policy: ev.Policy = "give_up", *, key: str = "", args: object = None, again: int = 1
    ) -> Scribe:
        """An act is intended in the beat in flight. Of an agent, `Bash git push` is its tool and what it does."""
        if not self._open:
            self._open = self.beats + 1
            self.say(ev.BeatBegun(at=self.at, beat=self._open, step=self.step))
        self._effects += again == 1
        tool, _, rest = name.partition(" ")
        told = {"tool": tool, "input": {"command": rest or tool}} if self.agent else {"args": args}
        return self.say(
            ev.EffectIntended(
                at=self.at, beat=self._open, n=self._effects, name=name, occurrence=1, policy=policy, attempt=again,
                key=key or f"{self.run}/{self._open}.{self._effects}", own_key=bool(key), args=payload(told), uptime_s=90_000,
            )
        )  # fmt: skip

    def confirm(self, result: object) -> Scribe:
        return self.say(
            ev.EffectConfirmed(at=self.at, beat=self._open, n=self._effects, result=payload(result))
        )

    def fail(self, error: str) -> Scribe:
        return self.say(ev.EffectFailed(at=self.at, beat=self._open, n=self._effects, error=error))

    def doubt(self, evidence: str) -> Scribe:
        return self.say(ev.EffectInDoubt(at=self.at, beat=self._open, n=self._effects, evidence=evidence))

    def settle(self, finding: ev.Finding, by: str, evidence: str, result: object = None) -> Scribe:
        return self.say(
            ev.EffectSettled(
                at=self.at, beat=self._open, n=self._effects, finding=finding, by=by, evidence=evidence,
                result=payload(result),
            )
        )  # fmt: skip

    # -- everything else -----------------------------------------------------------------------------------------

    def save(self, kind: ev.SaveKind, reason: str, left_out: tuple[str, ...] = ()) -> Scribe:
        ref = f"refs/outlast/{self.run}/{kind}" + ("" if kind == "beat" else f"/{self.at:%Y%m%dT%H%M%SZ}")
        return self.say(
            ev.SaveMade(
                at=self.at, kind=kind, commit=new_commit(self.rng), ref=ref, beat=self.beats, reason=reason, left_out=left_out
            )
        )  # fmt: skip

    def stop(self, cause: ev.Cause, evidence: str, *, status: ev.EndStatus = "interrupted", wanted: bool = False,
             exit_code: int | None = None) -> Scribe:  # fmt: skip
        """An emergency save, and then the end of the attempt."""
        self.save("emergency", f"{cause}: {evidence}").wait(0.4)
        return self.end(status, cause, evidence, wanted=wanted, exit_code=exit_code)

    def warn(self, level: str, text: str) -> Scribe:
        return self.say(ev.Warned(at=self.at, level=level, text=text))

    def park(self, until: datetime | None, cause: ev.Cause, evidence: str, account: str = "") -> Scribe:
        return self.say(ev.Parked(at=self.at, until=until, cause=cause, evidence=evidence, account=account))

    def ask(self, what: str, by: str, args: object = None) -> Scribe:
        return self.say(ev.Requested(at=self.at, id=len(self.events), by=by, what=what, args=payload(args)))

    def wake(self, by: str) -> Scribe:
        return self.say(ev.Woken(at=self.at, by=by))

    def stage(self, stage: str) -> Scribe:
        return self.say(ev.StageSet(at=self.at, stage=stage))

    def remember(self, name: str, uri: str) -> Scribe:
        return self.say(ev.Remembered(at=self.at, ref=MemoryRef(name, uri)))
