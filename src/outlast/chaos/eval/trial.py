"""One trial: a task under a design, killed as asked, resumed until it ends, and compared with its twin."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from outlast.chaos.eval import person
from outlast.chaos.eval.attempt import Setting, attempt, forked
from outlast.chaos.eval.world import lines
from outlast.chaos.tasks.catalog import NOT_DONE, TASKS
from outlast.chaos.timing import Timing
from outlast.chaos.witness.client import Witness

ATTEMPTS_MAX = 16

ACT_IS_OUT = ("act.sent", "act.replied", "act.performed")

_TAG = re.compile(r"take (\d+)\. ⟨([^⟨⟩#]+)#(\d+)⟩")
_URL = re.compile(r"https://world\.example/[^/\"\\]+/(\d+)")


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one trial, counted outside the design."""

    task: str
    design: str
    kills: tuple[int, ...]
    at: tuple[str, ...] = ()  # the instants it was killed at
    ends: tuple[str, ...] = ()  # how each attempt ended
    wrong: tuple[str, ...] = ()  # what differs from the twin
    duplicates: int = 0
    lost: int = 0
    doubts: int = 0
    unstopped: int = 0  # killed inside an act that nobody can ask about, but did not stop in doubt
    beats_lost: int = 0
    paid_twice: int = 0
    decisions_repeated: int = 0
    instants: tuple[str, ...] = ()  # met by attempts that were not killed

    @property
    def survived(self) -> bool:
        return not self.wrong

    @property
    def replay(self) -> str:
        """The word for `--replay`."""
        return f"{self.task}:{self.design}:{'+'.join(map(str, self.kills)) or 0}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Self:
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
        }
        return cls(**fields)


@dataclass(slots=True)
class Final:
    """The world after a trial, without anything that depends on the trial."""

    state: dict[str, Any]
    effects: Counter[str]
    journal: dict[str, Any] = field(default_factory=dict)


class Bench:
    """A witness and a folder, used for one trial after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._witness = Witness.start(folder / "witness.log")
        self._read_bytes = 0
        self._count = 0

    def close(self) -> None:
        self._witness.stop()

    def reference(self, task: str) -> Final:
        """The twin in a world without faults: a plain loop, never killed."""
        setting = self._set_up(task, "prompt", only_modes=("refuse",))
        end = forked(setting.folder, lambda: attempt(setting))
        assert end == "done", f"the twin of {task} ended: {end}"
        self._quiet(setting)
        final = self._final(setting, self._performed(setting))
        self._clean(setting)
        return final

    def run(
        self,
        task: str,
        design: str,
        kills: tuple[int, ...],
        twin: Final,
        journal: dict[str, Any] | None = None,
    ) -> tuple[Trial, dict[str, Any]]:
        """Run one trial. `journal` is the journal of outlast's own uninterrupted run."""
        setting = self._set_up(task, design)
        ends = self._attempts(setting, kills)
        lines_seen = self._performed(setting)
        final = self._final(setting, lines_seen)
        trial = Trial(
            task, design, kills,
            at=tuple(lines(setting.folder / "kills.jsonl")),
            ends=tuple(ends),
            wrong=tuple(_differences(ends, final, twin, journal)),
            duplicates=sum(times - 1 for times in final.effects.values()),
            lost=len(twin.effects.keys() - final.effects.keys()),
            doubts=ends.count("in doubt"),
            unstopped=int(self._must_stop(setting) and "in doubt" not in ends),
            beats_lost=_beats_lost(lines(setting.folder / "notes.jsonl")),
            instants=tuple(name for met in lines(setting.folder / "instants.jsonl") for name in met),
            **_paid(setting, final.journal),
        )  # fmt: skip
        self._clean(setting)
        return trial, _comparable(final.journal)

    def cold_start(self, task: str, design: str) -> float | None:
        """Milliseconds from the start of a fresh interpreter to its first beat that was not finished before."""
        counted = self._set_up(task, design)
        forked(counted.folder, lambda: attempt(counted))
        met = [name for names in lines(counted.folder / "instants.jsonl") for name in names]
        self._quiet(counted)
        self._clean(counted)
        ends = [number for number, name in enumerate(met, start=1) if name == "save.after"]
        setting = self._set_up(task, design)
        forked(setting.folder, lambda: attempt(setting, ends[(len(ends) - 1) // 2] if ends else None))
        notes = lines(setting.folder / "notes.jsonl")
        finished = {label for what, label in notes if what == "saved"}
        began = time.monotonic()
        _spawn([str(setting.folder), *setting[1:]])
        begins = lines(setting.folder / "begins.jsonl")
        self._quiet(setting)
        self._clean(setting)
        return next((1000 * (at - began) for label, at in begins if label not in finished), None)

    # -- attempts ------------------------------------------------------------------------------------------------

    def _set_up(self, task: str, design: str, only_modes: Iterable[str] | None = None) -> Setting:
        self._count += 1
        trial = f"t{self._count}"
        folder = self._folder / trial
        folder.mkdir()
        for fault in TASKS[task].faults:
            if only_modes is None or fault.mode in only_modes:
                match = f"{trial}.{fault.act}"
                self._witness.fault(fault.mode, times=fault.times, match=match, late_ms=fault.late_ms)
        return Setting(folder, self._witness.url, trial, task, design)

    def _clean(self, setting: Setting) -> None:
        shutil.rmtree(setting.folder)
        self._read_bytes = self._witness.log.stat().st_size

    def _attempts(self, setting: Setting, kills: tuple[int, ...]) -> list[str]:
        """Start, and start again, as a supervisor would; settle a stop in doubt as a person would.

        The count of instants continues after a stop in doubt, so that the attempts after it are killed too.
        """
        ends: list[str] = []
        killed = met = 0
        while len(ends) < ATTEMPTS_MAX:
            kill_at = kills[killed] - met if killed < len(kills) else None
            ends.append(forked(setting.folder, partial(attempt, setting, kill_at)))
            self._quiet(setting)
            if ends[-1] == "killed":
                killed, met = killed + 1, 0
                if _inside_blind_act(setting.folder):
                    (setting.folder / "blind.kill").touch()
            elif ends[-1] == "in doubt":
                met += len(lines(setting.folder / "instants.jsonl")[-1])
                settled = self._settle(setting)
                if settled != "done":
                    return [*ends, f"settling: {settled}"]
            else:
                break
        if setting.design == "outlast" and ends[-1] == "done":
            looked = forked(setting.folder, lambda: person.look(setting.folder, setting.task))
            ends += [] if looked == "done" else [f"looking: {looked}"]
        return ends

    def _must_stop(self, setting: Setting) -> bool:
        """Whether outlast was killed while a blind act was out: only a person can say whether it happened."""
        return setting.design == "outlast" and (setting.folder / "blind.kill").exists()

    def _settle(self, setting: Setting) -> str:
        """Settle what is in doubt with the truth, which only the witness knows."""
        results = {line["identity"]: {"url": line["result"]["url"]} for line in self._performed(setting)}
        return forked(setting.folder, lambda: person.settle(setting.folder, setting.task, results))

    def _quiet(self, setting: Setting) -> None:
        """Wait until every request of a dead attempt has been handled."""
        faults = TASKS[setting.task].faults
        if any(fault.mode.startswith("late") for fault in faults):
            self._witness.release()
        sent = Counter(label for what, label in lines(setting.folder / "notes.jsonl") if what == "sent")
        for fault in faults:
            if fault.mode in NOT_DONE:
                times = sent[fault.act] if fault.times is None else min(fault.times, sent[fault.act])
                sent[fault.act] -= times
                time.sleep(Timing.current().unsure_wait_s)
        deadline = time.monotonic() + Timing.current().quiet_limit_s
        while len(self._log(setting)) < sent.total() and time.monotonic() < deadline:
            time.sleep(Timing.current().quiet_look_s)

    # -- what the world saw --------------------------------------------------------------------------------------

    def _log(self, setting: Setting) -> list[dict[str, Any]]:
        """The witness's lines of this trial, performed and deduped."""
        with self._witness.log.open("rb") as file:
            file.seek(self._read_bytes)
            whole = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
        found = [json.loads(line) for line in whole]
        return [line for line in found if line["name"].startswith(f"{setting.trial}.")]

    def _performed(self, setting: Setting) -> list[dict[str, Any]]:
        return [line for line in self._log(setting) if line["what"] == "performed"]

    def _final(self, setting: Setting, performed: list[dict[str, Any]]) -> Final:
        journal = _read(setting.folder / "journal.json")
        results = journal.get("results", {}) if setting.design == "outlast" else None
        state = {
            "files": {
                str(path.relative_to(setting.folder / "work")): path.read_text()
                for path in sorted((setting.folder / "work").rglob("*"))
                if path.is_file()
            },
            "effects": {line["identity"]: [line["cls"], line["body"]] for line in performed},
            "results": _read(setting.folder / "results.json") if results is None else results,
        }
        whole = {"state": state, "journal": journal}
        plain = _plain(whole, {line["n"]: line["identity"] for line in performed})
        return Final(plain["state"], Counter(line["identity"] for line in performed), plain["journal"])


def _spawn(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "outlast.chaos.eval.attempt", *arguments]
    subprocess.run(command, timeout=Timing.current().cold_start_limit_s, check=False)


# -- comparing -----------------------------------------------------------------------------------------------------


def _plain(value: dict[str, Any], identities: dict[int, str]) -> dict[str, Any]:
    """The value without what depends on the trial: urls by their meaning, tags without numbers if they agree.

    A decision whose wordings differ within one trial keeps its numbers, so that it does not equal the twin.
    """
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    takes: dict[str, set[str]] = {}
    for take, decision, number in _TAG.findall(text):
        takes.setdefault(decision, set()).update((take, number))

    def wording(match: re.Match[str]) -> str:
        return f"⟨{match[2]}⟩" if len(takes[match[2]]) == 1 else match[0]

    text = _TAG.sub(wording, text)
    text = _URL.sub(lambda match: f"world:{identities.get(int(match[1]), 'nowhere')}", text)
    plain: dict[str, Any] = json.loads(text)
    return plain


def _comparable(journal: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in journal.items() if name not in ("decided", "results")}


def _differences(ends: list[str], final: Final, twin: Final, journal: dict[str, Any] | None) -> list[str]:
    found = [] if ends[-1] == "done" else [f"ended: {ends[-1]}"]
    found += [
        f"{part} differ: {_first_difference(final.state[part], twin.state[part])}"
        for part in ("files", "effects", "results")
        if final.state[part] != twin.state[part]
    ]
    repeated = [identity for identity, times in final.effects.items() if times > 1]
    found += [f"{identity} was done {final.effects[identity]} times" for identity in repeated]
    if journal is not None and _comparable(final.journal) != journal:
        found.append(f"journal differs: {_first_difference(_comparable(final.journal), journal)}")
    return found


def _first_difference(got: dict[str, Any], expected: dict[str, Any]) -> str:
    for name in sorted({*got, *expected}):
        if got.get(name) != expected.get(name):
            return f"{name}: {got.get(name)!r:.120} instead of {expected.get(name)!r:.120}"
    return "order"


def _inside_blind_act(folder: Path) -> bool:
    """Whether the last kill was between sending a blind act and its outcome."""
    acts = [what for what, _ in lines(folder / "notes.jsonl") if what in ("blind", "sent")]
    return acts[-2:] == ["blind", "sent"] and lines(folder / "kills.jsonl")[-1] in ACT_IS_OUT


def _beats_lost(notes: list[list[str]]) -> int:
    """Beats that began again although they were saved: work lost beyond the beat in flight."""
    saved: set[str] = set()
    again = 0
    for what, label in notes:
        if what == "saved":
            saved.add(label)
        elif what == "begin" and label in saved:
            again += 1
    return again


def _paid(setting: Setting, journal: dict[str, Any]) -> dict[str, int]:
    """Answers asked for more than once: after they were recorded (paid twice), or never recorded (asked again)."""
    counts = Counter(line[0] for line in lines(setting.folder / "model.jsonl"))
    extra = sum(times - 1 for times in counts.values())
    if setting.design != "outlast":
        unseen = lines(setting.folder / "kills.jsonl").count("model.answered")
        return {"paid_twice": max(0, extra - unseen), "decisions_repeated": min(extra, unseen)}
    recorded = _recorded_answers(setting.folder / "journal.json")
    twice = sum(times - recorded.get(decision, 1) for decision, times in counts.items())
    return {"paid_twice": twice, "decisions_repeated": extra - twice}


def _recorded_answers(path: Path) -> dict[str, int]:
    """With which of its askings each decision was recorded: the answer carries the number."""
    found: dict[str, int] = {}
    for value in _read(path).get("decided", []):
        tags = _TAG.findall(value)
        if tags:
            found[tags[-1][1]] = int(tags[-1][2])
    return found


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}
