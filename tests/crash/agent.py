"""The scripted agent that the crash tests kill. It runs in a process of its own: `zygote` forks it, strace execs it.

It tells what it does in two places that no crash of its own can undo: the witness (effects) and the notes, a file
of lines `pid kind words…` written by single appends (what was asked, entered, performed, acknowledged). A `Spec`
says where everything is, and which signal it sends to itself at which crash point.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

import outlast
from outlast import faults
from outlast.chaos.witness.client import Client, Refused
from outlast.core import questions
from outlast.operations import requests
from outlast.runs.beat import beat_engine
from outlast.runs.engine.questions import AnswerArgs
from outlast.store import open_store
from outlast.store.protocol import RunFilter

LEFT = 10  # exit code of an agent that left its run early, on purpose
BIG = 6_000  # characters; more than fits into an event, so a blob


class Blow(msgspec.Struct, frozen=True):
    """A signal to oneself at the nth crash point, of that name only if there is one."""

    nth: int = 1
    name: str = ""
    signal: str = "KILL"


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """One start of the agent."""

    store: str
    witness: str
    folder: str
    notes: str
    script: str = "full"
    task: str = "1411"
    project: str = "crash"
    blows: tuple[Blow, ...] = ()
    freeze_in: str = ""  # the act that stops its own process before it reaches the witness
    leave_at: str = ""  # the step at which the agent leaves, for no reason
    stop_at_acks: bool = False  # stop after each acknowledgement, until somebody says SIGCONT
    gate: str = ""  # a file: begin when its lock is free
    fault: dict[str, Any] | None = None  # the disk's: fields of `faulty_vfs.Fault`
    check: str = "echo ran >> checks.log"  # of the script "full"
    clock_s: int = 0  # by how much the wall clock is wrong
    lease_s: int = 0  # 0: as usual
    hold: str = ""  # the step at which to wait for SIGTERM, holding the run


class Notes:
    """Lines that survive SIGKILL."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def add(self, kind: str, *words: object) -> None:
        text = " ".join(str(word).replace("\n", " ") for word in words)
        os.write(self._fd, f"{os.getpid()} {kind} {text}\n".encode())

    def count(self, kind: str, *words: object) -> int:
        ending = f" {kind} {' '.join(map(str, words))}\n"
        with open(self._path) as file:
            return sum(line.endswith(ending) for line in file)


class Agent:
    """One attempt."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.notes = Notes(spec.notes)
        self.world = Client(spec.witness)
        self.acts: dict[str, int] = {}  # how often each was called in this attempt

    # -- what it is made of --------------------------------------------------------------------------------------

    def ask(self, beat: int | str, name: str, chars: int = 0) -> dict[str, Any]:
        """The model: words the same thing differently each time it is asked."""
        self.notes.add("ask", beat, name)
        times = self.notes.count("ask", beat, name)
        return {"text": f"{name} of beat {beat} " + "x" * chars, "asked": times}

    def decide(self, beat: outlast.Beat, name: str, *, chars: int = 0, lazy: bool = False) -> Any:
        value = beat.decide(
            name, self.ask, f"{beat_engine(beat).owner.task}/{beat.number}", name, chars, lazy=lazy
        )
        if not lazy:
            self.ack("decided", beat.number, name)
        return value

    def act(self, beat: outlast.Beat, name: str, cls: str, **how: Any) -> Any:
        label, chars, text = f"{name}-{beat.number}", how.pop("chars", 0), how.pop("text", name)
        again = self.acts[label] = self.acts.get(label, 0) + 1
        label += f"-{again}" if again > 1 else ""

        def go(text: Any, idempotency_key: str | None = None) -> Any:
            if self.spec.freeze_in == label:
                os.kill(os.getpid(), signal.SIGSTOP)
            self.notes.add("perform", label)
            body = {"text": text, "pid": os.getpid()}
            marker = label if cls == "probed" else None
            try:
                reply = self.world.act(cls, name, body, idempotency_key, marker=marker, identity=label)
            except Refused as refused:
                raise outlast.DidNotHappen(str(refused)) from refused
            return {**reply, "pad": "x" * chars} if chars else reply

        def look(text: Any) -> Any:
            self.notes.add("look", label)
            found = self.world.find(label)
            return outlast.DidNotHappen() if found is None else outlast.Happened(found)

        if cls == "keyed":
            result = beat.act(name, go, text=text, **how)
        else:
            probe = outlast.Probe(look, settle_s=0) if cls == "probed" else None
            result = beat.act(name, lambda text: go(text), text=text, probe=probe, **how)
        self.ack("acted", beat.number, name)
        return result

    def done(self, beat: outlast.Beat, result: Any = None, **more: Any) -> None:
        beat.done(result, **more)
        self.ack("done", beat.number, beat.step)

    def ack(self, *what: object) -> None:
        self.notes.add("ack", *what)
        if self.spec.stop_at_acks:
            os.kill(os.getpid(), signal.SIGSTOP)

    # -- what it does --------------------------------------------------------------------------------------------

    def work(self) -> int:
        spec = self.spec
        if spec.script == "answer":
            return self.answer()
        plan, bodies = SCRIPTS[spec.script]
        checks = [spec.check] if spec.script == "full" else None
        os.chdir(spec.folder)
        with outlast.run(
            spec.task, goal="post, pay and tell", done=checks, store=spec.store, project=spec.project
        ) as run:
            run.plan(self.plan, plan)
            for beat in run.beats():
                self.notes.add("beat", beat.number, beat.step)
                if beat.step == spec.leave_at:
                    return LEFT
                if beat.step == spec.hold:
                    signal.sigwait({signal.SIGTERM})
                bodies[beat.step](self, beat)
        return 0

    def answer(self) -> int:
        """A person's part: answer all that is open, and reject what would wipe."""
        with contextlib.closing(open_store(self.spec.store)) as store:
            for summary in store.list(RunFilter(task=self.spec.task)):
                for each in questions.open_among(summary.state.questions):
                    self.notes.add("person", each.text.split("(")[0].split()[0])
                    word: Any = (
                        "answered"
                        if each.kind == "question"
                        else "rejected"
                        if each.text.startswith("wipe")
                        else "approved"
                    )
                    text = {"answered": "v2", "rejected": "too dangerous"}.get(word, "")
                    requests.answer(store, summary.run, AnswerArgs(each.id, word, text))
        return 0

    def plan(self, steps: Any) -> Any:
        self.notes.add("ask", "-", "plan")
        return steps


def draft(agent: Agent, beat: outlast.Beat) -> None:
    text = agent.decide(beat, "draft")
    mood = agent.decide(beat, "mood", lazy=True)
    posted = agent.act(beat, "comment", "keyed", text=text)
    again = agent.act(beat, "receipt", "keyed", text=mood, key="own-key")
    beat.remember("notes", "file:notes.md")
    beat.extend(["extra"], where="next")
    agent.done(beat, posted["url"], evidence={"receipt": again["n"]})


def ticket(agent: Agent, beat: outlast.Beat) -> None:
    text = agent.decide(beat, "title", lazy=True)
    agent.done(beat, agent.act(beat, "ticket", "probed", text=text))


def mail(agent: Agent, beat: outlast.Beat) -> None:
    agent.done(beat, agent.act(beat, "mail", "blind", text=agent.decide(beat, "letter")))


def lossy(agent: Agent, beat: outlast.Beat) -> None:
    """Each of these goes wrong at its first try; see `world.FAULTS`."""
    paid = agent.act(beat, "pay", "keyed")
    ordered = agent.act(beat, "order", "probed")
    booked = agent.act(beat, "book", "probed")
    labelled = agent.act(beat, "label", "keyed", retry=1)
    agent.done(beat, [paid, ordered, booked, labelled])


def blob(agent: Agent, beat: outlast.Beat) -> None:
    text = agent.decide(beat, "report", chars=BIG)
    reply = agent.act(beat, "upload", "keyed", text=text, chars=BIG)
    agent.done(beat, {"report": text["text"], "reply": reply})


def part(agent: Agent, beat: outlast.Beat) -> None:
    with beat.run("part", goal="a part") as child:
        child.plan(["one", "two"])
        for inner in child.beats():
            agent.notes.add("child", inner.number)
            sent = agent.act(inner, f"part-{inner.step}", "keyed", text=agent.decide(inner, "part"))
            inner.done(sent["url"])
        child.finish({"parts": 2})
    with beat.run("rest") as other:
        for inner in other.beats():
            inner.finish()
            inner.done(agent.act(inner, "rest", "keyed"))
    agent.done(beat, child.result)


def wrap(agent: Agent, beat: outlast.Beat) -> None:
    beat.remember("page", "https://example.invalid/page")
    agent.done(beat)


def last(agent: Agent, beat: outlast.Beat) -> None:
    """Ends the run with a result, although the plan has another step."""
    beat.finish({"all": "well"})
    agent.done(beat)


def extra(agent: Agent, beat: outlast.Beat) -> None:
    agent.done(beat)


def same(agent: Agent, beat: outlast.Beat) -> None:
    agent.done(beat, [agent.act(beat, "same", "keyed", text="same") for _ in range(2)])


def late(agent: Agent, beat: outlast.Beat) -> None:
    """The world takes longer than the agent waits; see the fault `late`."""
    agent.done(beat, agent.act(beat, "late", "probed", timeout_s=0.2))


def reworded(agent: Agent, beat: outlast.Beat) -> None:
    """A wrong program: the arguments of its act are not recorded first."""
    agent.done(beat, agent.act(beat, "reworded", "keyed", text=agent.ask(beat.number, "unrecorded")))


def plain(agent: Agent, beat: outlast.Beat) -> None:
    agent.done(beat, agent.act(beat, "plain", "keyed", text=agent.decide(beat, "word")))


def pick(agent: Agent, beat: outlast.Beat) -> None:
    answer = beat.ask("which API?", choices=["v1", "v2"])
    agent.notes.add("answer", answer)
    agent.done(beat, {"api": answer})


def person(agent: Agent, beat: outlast.Beat) -> None:
    """Each kind of act, performed only when a person has approved it; the last one is not."""
    agent.act(beat, "deploy", "keyed", approve=True)
    agent.act(beat, "wire", "probed", approve=True)
    agent.act(beat, "send", "blind", approve=True)
    try:
        agent.act(beat, "wipe", "keyed", approve=True)
    except outlast.NotApproved as error:
        agent.notes.add("rejected", error.reason)
    agent.done(beat)


Body = Callable[[Agent, outlast.Beat], None]
SCRIPTS: dict[str, tuple[Any, dict[str, Body]]] = {
    "full": (
        ["draft", {"step": "world", "steps": ["ticket", "mail", "lossy"]}, "blob", "part", "wrap"],
        {
            "draft": draft,
            "extra": extra,
            "ticket": ticket,
            "mail": mail,
            "lossy": lossy,
            "blob": blob,
            "part": part,
            "wrap": wrap,
        },
    ),
    "short": (["ticket", "blob", "plain"], {"ticket": ticket, "blob": blob, "plain": plain}),
    "plain": (["one", "two", "three"], dict.fromkeys(("one", "two", "three"), plain)),
    "ticket": (["ticket", "after"], {"ticket": ticket, "after": extra}),
    "mail": (["mail", "after"], {"mail": mail, "after": extra}),
    "same": (["one", "two"], dict.fromkeys(("one", "two"), same)),
    "late": (["late", "after"], {"late": late, "after": extra}),
    "reworded": (["reworded"], {"reworded": reworded}),
    "person": (["pick", "person"], {"pick": pick, "person": person}),
    "finish": (["one", "last", "never"], {"one": plain, "last": last}),
}


def arm(spec: Spec, notes: Notes) -> None:
    """Note every crash point, and strike at those that the spec names."""
    met: dict[Blow, int] = dict.fromkeys(spec.blows, 0)

    def hook(name: str) -> None:
        assert name in faults.POINTS, f"crash point {name!r} is not listed in POINTS"
        notes.add("point", name)
        for blow in met:
            if blow.name in ("", name):
                met[blow] += 1
                if met[blow] == blow.nth:
                    notes.add("blow", name, blow.signal)
                    os.kill(os.getpid(), getattr(signal, f"SIG{blow.signal}"))

    faults.arm(hook)


def shift_clock(by_s: int) -> None:
    """Let every module of outlast read a wall clock that is wrong."""

    class WrongClock:
        def now(self, tz: Any) -> datetime:
            return datetime.fromtimestamp(time.time() + by_s, tz)

        def __getattr__(self, name: str) -> Any:
            return getattr(datetime, name)

    for name, module in list(sys.modules.items()):
        if name.startswith("outlast.") and getattr(module, "datetime", None) is datetime:
            module.datetime = WrongClock()  # type: ignore[attr-defined]


def break_disk(fault: dict[str, Any], notes: Notes) -> None:
    """Let SQLite's files fail, by a VFS that is the default of this process."""
    import apsw

    from tests.support.faulty_vfs import DiskFault, FaultyVFS, _FaultyFile

    real = apsw.vfs_names()[0]

    class File(_FaultyFile):
        def __init__(self, vfs: FaultyVFS, path: str, name: Any, flags: list[int]) -> None:
            self._vfs, self._path = vfs, path
            apsw.VFSFile.__init__(self, real, name, flags)  # the default is the broken one itself

    class Noting(FaultyVFS):
        def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
            if name is None:
                return apsw.VFSFile(real, name, flags)
            path = name.filename() if isinstance(name, apsw.URIFilename) else name
            if self.strikes("open", path):
                raise self.error("open", path)
            return File(self, path, name, flags)

        def error(self, op: Any, path: str) -> Exception:
            notes.add("fault", op, os.path.basename(path))
            return super().error(op, path)

    global _vfs  # it must live as long as the process
    _vfs = Noting("broken", DiskFault(**fault))
    apsw.set_default_vfs("broken")


_vfs: Any = None


def main(spec: Spec) -> int:
    """Work as the spec says; the exit code is what the command line would give."""
    notes = Notes(spec.notes)
    arm(spec, notes)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    if spec.lease_s:
        os.environ["OUTLAST_LEASE_S"] = str(spec.lease_s)
        os.environ["OUTLAST_TIMING"] = "store.wakeup_grace_s=0.2"  # nobody wakes up by itself here
    if spec.clock_s:
        shift_clock(spec.clock_s)
    if spec.fault:
        break_disk(spec.fault, notes)
    if spec.gate:
        with open(spec.gate) as gate:
            fcntl.flock(gate, fcntl.LOCK_SH)
    try:
        return Agent(spec).work()
    except outlast.OutlastError as error:
        notes.add("error", type(error).__name__, error)
        return error.exit_code
    except Exception as error:
        notes.add("error", type(error).__name__, error)
        return 1


if __name__ == "__main__":
    sys.exit(main(msgspec.json.decode(sys.argv[1].encode(), type=Spec)))
