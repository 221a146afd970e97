"""A world to be killed in: starts of the scripted agent in a workspace, what it noted, and what must be true after.

The oracle for effects is the witness's log. For everything else it is the journal of a twin that nobody killed.
"""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from outlast.chaos.witness.client import Witness
from outlast.core import events as ev
from outlast.core.state import OpenEffect
from outlast.store.protocol import Batch, RunFilter, Summary
from tests.crash.agent import Blow, Spec
from tests.crash.twin import difference, dump
from tests.crash.zygote import Child, Zygote
from tests.support.store_and_witness import StoreAndWitness

STARTS_MAX = 12
# The first call of these goes wrong: nobody hears of it, it is not done, or it is refused for certain.
FAULTS = (("pay", "lose_reply"), ("order", "lose_reply"), ("book", "drop"), ("label", "refuse"))


@dataclass(frozen=True)
class Note:
    """One line of the agent's notes."""

    pid: int
    kind: str
    words: tuple[str, ...]


class CrashWorld(StoreAndWitness):
    """Everything that outlives the agent."""

    task = "1411"

    def __init__(self, folder: Path, zygote: Zygote, *, store: Path | None = None, url: str = "") -> None:
        """`url`: of a store in a database, which is made already."""
        self.folder = folder
        self.zygote = zygote
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        (self.work / "notes.md").write_text("as it was")
        self.root = store or folder / "state"
        self.url = url

    def start_witness(self, log: Path) -> Witness:
        """A new one lets some calls go wrong; one with a log goes on where that ends."""
        is_new = not log.exists()
        witness = super().start_witness(log)
        for name, mode in FAULTS if is_new else ():
            witness.fault(mode, match=name)
        return witness

    def after_cut(self, folder: Path, store: Path) -> CrashWorld:
        """The same world with another disk: what was done outside stays done, under a witness of its own."""
        other = CrashWorld(folder, self.zygote, store=store)
        shutil.copy(self.witness.log, folder / "witness.log")
        shutil.copy(self.notes_path, other.notes_path)
        return other

    # -- starting ------------------------------------------------------------------------------------------------

    @property
    def notes_path(self) -> Path:
        return self.folder / "notes"

    def spec(self, **more: Any) -> Spec:
        places = {"store": self.url or self.root, "folder": self.work, "notes": self.notes_path}
        return Spec(**{name: str(path) for name, path in places.items()}, witness=self.witness.url, **more)

    def start(self, **more: Any) -> Child:
        return self.zygote.start(self.spec(**more))

    def run(self, kill_at: int | None = None, **more: Any) -> int:
        """One attempt to its end; the exit code, -9 when it was killed."""
        if kill_at is not None:
            more["blows"] = (Blow(kill_at),)
        code = self.start(**more).wait()
        assert code != 99, self.output
        return code

    def run_to_end(self, **more: Any) -> None:
        """Start again and again, settling what is in doubt by the truth, until the run is done."""
        for _ in range(STARTS_MAX):
            code = self.run(**more)
            if code == 0:
                return
            assert code == 3, self.story
            assert self.settle_by_the_truth(), self.story
        raise AssertionError(f"not done after {STARTS_MAX} starts: {self.story}")

    def settle_by_the_truth(self) -> int:
        """Do what a person does who looks at the world: say of each doubtful effect what became of it."""
        performed = {item.identity: item.result for item in self.performed()}
        settled = 0
        with self.reading() as store:
            for summary in store.list(RunFilter()):
                findings = [self._finding(effect, performed) for effect in summary.state.in_doubt]
                if findings:
                    lease = store.claim(summary.root)
                    store.append(Batch(lease, summary.run, summary.state.seq, tuple(findings)))
                    store.release(lease)
                settled += len(findings)
        return settled

    def _finding(self, effect: OpenEffect, performed: dict[str, Any]) -> ev.EffectSettled:
        label = f"{effect.name}-{effect.beat}"
        result = ev.Payload(v=msgspec.Raw(msgspec.json.encode(performed.get(label))))
        finding: ev.Finding = "happened" if label in performed else "did_not"
        return ev.EffectSettled(
            at=effect.at, beat=effect.beat, n=effect.n, finding=finding, by="test", result=result
        )

    # -- looking -------------------------------------------------------------------------------------------------

    @property
    def notes(self) -> list[Note]:
        if not self.notes_path.exists():
            return []
        lines = (line.split() for line in self.notes_path.read_text().splitlines())
        return [Note(int(pid), kind, tuple(words)) for pid, kind, *words in lines]

    def noted(self, kind: str, *, after: int = 0) -> list[tuple[str, ...]]:
        """What was noted under a kind, from a position in the notes on."""
        return [note.words for note in self.notes[after:] if note.kind == kind]

    @property
    def blow(self) -> str:
        return " ".join("+".join(words) for words in self.noted("blow"))

    @property
    def output(self) -> str:
        path = self.notes_path.with_suffix(".output")
        return path.read_text() if path.exists() else ""

    @property
    def story(self) -> str:
        lines = [
            f"{note.pid} {note.kind} {' '.join(note.words)}" for note in self.notes if note.kind != "point"
        ]
        return f"blows: {self.blow}\n" + "\n".join(lines[-40:]) + f"\n{self.output[-3000:]}"

    def summary(self, task: str = "") -> Summary:
        """The only run of a task: however often it is started, there is never a second one."""
        (summary,) = self.runs(task)
        return summary

    def journal(self) -> dict[str, Any]:
        """What the store says, without what differs between two worlds: ids, keys, times, attempts."""
        with self.reading() as store:
            return {f"{s.task} of beat {s.parent_beat}": dump(store, s) for s in store.list(RunFilter())}

    def recorded(self) -> Recorded:
        """What is recorded now, to be compared with what is done again later."""
        with self.reading() as store:
            decided: set[tuple[str, str]] = set()
            beats = 0
            for summary in store.list(RunFilter()):
                for item in store.read(summary.run, after=0).events:
                    event = item.event
                    if isinstance(event, ev.Decided):
                        decided.add((f"{summary.task}/{event.beat}", event.name))
                    elif isinstance(event, ev.PlanSet) and not summary.parent:
                        decided.add(("-", "plan"))
                    elif isinstance(event, ev.BeatDone) and not summary.parent:
                        beats = event.beat
        return Recorded(frozenset(decided), beats, len(self.notes))

    # -- judging -------------------------------------------------------------------------------------------------

    def check_nothing_repeated(self, then: Recorded) -> None:
        """Since `then` no recorded decision was asked again, and no completed beat was entered again."""
        asked = {(where, name) for where, name in self.noted("ask", after=then.notes)}
        assert not asked & then.decided, f"asked again: {asked & then.decided}\n{self.story}"
        entered = [int(beat) for beat, _ in self.noted("beat", after=then.notes)]
        assert all(beat > then.beats for beat in entered), f"{then.beats} were done, {entered}\n{self.story}"

    def check_effects(self, expected: list[str] | None = None) -> None:
        """The witness saw each effect once, with the arguments that the journal has."""
        seen = Counter(item.identity for item in self.performed())
        assert set(seen.values()) <= {1}, f"performed twice: {seen}\n{self.story}"
        if expected is not None:
            assert sorted(seen) == sorted(expected), self.story

    def check_equal(self, twin: dict[str, Any]) -> None:
        mine = self.journal()
        assert mine == twin, f"{difference(mine, twin)}\n{self.story}"


@dataclass(frozen=True)
class Recorded:
    """What was durable at an instant."""

    decided: frozenset[tuple[str, str]]
    beats: int
    notes: int


def killed(code: int) -> bool:
    return code == -signal.SIGKILL
