"""What scripts ask of a run through its socket: steps recorded once and replayed, effects done once, stages, memory.

A script is read from its first line in every attempt, so its calls are found again by name and occurrence in the whole
run, not only in the beat in flight. A step that ends ends a beat too, unless an effect is still under way or in doubt.
"""

import base64
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from outlast.core import events as ev
from outlast.core.keys import effect_key
from outlast.effects.ops import Append, Steps
from outlast.errors import (
    AmbiguousOccurrence,
    DidNotHappen,
    UnreachedEffect,
)
from outlast.probes import CannotTell, Happened
from outlast.runs.beat import Beat
from outlast.runs.run import Run
from outlast.supervisor.wire import Output

STEP = "step "
DID_NOT = 1  # a probe's exit code
_MISSING = (126, 127)

Perform = Callable[[str], Output]  # given the key of an effect, empty for a step


class CommandFailed(Exception):
    """A command of an effect ended with another code than 0: whether it did its work is not known."""


class Desk:
    """Serves the calls of one attempt's scripts. Its methods may be called from several threads."""

    def __init__(self, run: Run, on_beat: Callable[[], None] = lambda: None) -> None:
        self._run = run
        self._on_beat = on_beat
        self._beats = iter(run.beats())
        self._beat: Beat = next(self._beats)
        self._lock = threading.RLock()
        self._counts: dict[str, int] = {}
        self._busy: set[str] = set()
        self._acting = 0
        self._ended: list[tuple[str, int]] = []  # steps whose beat could not end yet
        self._known = self._read_steps()
        self.found_names, self.found_task = self._found()

    def _found(self) -> tuple[dict[str, str], str]:
        """The names a script had when it was interrupted, and the task that was under way; nothing at the first start."""
        state = self._run.state
        names = dict(state.names)
        if state.stage:
            names.setdefault("PROGRESS_STAGE", state.stage)
        if state.attempts < 2 or "CURRENT_TASK_ID" in names:
            return names, names.get("CURRENT_TASK_ID", "") if state.attempts > 1 else ""
        stages = self._run.journal.events("stage_set")
        has_own = any(isinstance(event, ev.StageSet) and "CURRENT_TASK_ID" in event.names for event in stages)
        return names, "" if has_own else state.task

    def _read_steps(self) -> dict[tuple[str, int], ev.Decided]:
        found = {}
        for event in self._run.journal.events("decided"):
            if isinstance(event, ev.Decided) and event.name.startswith(STEP):
                found[event.name, event.occurrence] = event
        return found

    # -- steps ---------------------------------------------------------------------------------------------------

    def step(self, name: str, perform: Perform, *, retry_failed: bool = False) -> tuple[Output, bool]:
        """The recorded output of this call, or that of performing it now, recorded; and whether it was replayed."""
        named = STEP + name
        with self._turn(named) as occurrence:
            recorded = self._known.get((named, occurrence))
            if recorded is not None:
                output = _output(self._run.journal.value(recorded.value))
                if output.exit_code == 0 or not retry_failed:
                    self._counts[named] = occurrence
                    return output, True
            output = perform("")
            if _was_killed(output.exit_code):
                return output, False
            self._record(named, occurrence, output)
            self._counts[named] = occurrence
            return output, False

    def _record(self, named: str, occurrence: int, output: Output) -> None:
        with self._lock:
            journal = self._run.journal
            value = journal.payload(_plain(output))
            event = ev.Decided(
                at=journal.now(), beat=self._beat.number, name=named, occurrence=occurrence, value=value
            )
            self._ended.append((named.removeprefix(STEP), output.exit_code))
            if self._may_end():
                journal.later(event)
                self._end_beat()
            else:
                self._run.drive(_one(journal.in_beat(event)))
            self._known[named, occurrence] = event

    def _may_end(self) -> bool:
        return not self._acting and not self._run.in_doubt()

    def _end_beat(self) -> None:
        """End the open beat with the steps that ended in it."""
        result = [{"step": name, "exit_code": code} for name, code in self._ended]
        try:
            self._beat.done(result[0] if len(result) == 1 else result)
        except UnreachedEffect:
            return  # it ends with a later step, when what is in doubt is settled
        self._ended.clear()
        self._beat = next(self._beats)
        self._on_beat()

    def finish(self, result: object) -> None:
        """The command ended well: its last beat is done."""
        with self._lock:
            self._ended.clear()
            self._beat.done(result)
            self._on_beat()

    # -- effects -------------------------------------------------------------------------------------------------

    def effect(
        self, name: str, words: tuple[str, ...], perform: Perform, *, key: str = "", unknown: str = "",
        probe: Callable[[str], int] | None = None,
    ) -> Output:  # fmt: skip
        """The recorded outcome of this effect, or that of performing it now: intent first, outcome after.

        Raises EffectInDoubt, EffectFailed, ReplayMismatch: then the command was not performed, or it is not known.
        """
        named = f"effect {name}"
        with self._turn(named) as occurrence:
            own = key or effect_key(self._run.id, 0, name, occurrence)
            with self._lock:
                self._acting += 1
                beat = self._beat
            try:
                result = beat.act(
                    name, _performing(perform, own), list(words), key=own, probe=_probing(probe, own),
                    unknown=unknown.replace("-", "_") or None,
                )  # fmt: skip
            finally:
                with self._lock:
                    self._acting -= 1
                    if self._ended and self._may_end():
                        self._end_beat()
            self._counts[named] = occurrence
        return Output(0) if result is None else _output(result)

    # -- notes ---------------------------------------------------------------------------------------------------

    def stage(self, stage: str | None, names: dict[str, str]) -> None:
        """Put a stage and a script's own names on record, if they are new."""
        with self._lock:
            state, journal = self._run.state, self._run.journal
            known = dict(state.names)
            news = {name: value for name, value in names.items() if known.get(name, "") != value}
            if not news and stage in (None, state.stage):
                return
            said = state.stage if stage is None else stage
            self._run.drive(_one(Append((ev.StageSet(at=journal.now(), stage=said, names=news),))))
        self._on_beat()

    def remember(self, name: str, uri: str) -> None:
        with self._lock:
            self._run.drive(_one(Append((self._remembered(name, uri),))))

    def _remembered(self, name: str, uri: str) -> ev.AnyEvent:
        from outlast.runs.beat import check_memory, make_ref

        ref = make_ref(name, uri, "", self._run.folder)
        check_memory(self._run.state.memory, (ref,))
        return ev.Remembered(at=self._run.journal.now(), ref=ref)

    # -- occurrences ---------------------------------------------------------------------------------------------

    def _turn(self, named: str) -> "_Turn":
        return _Turn(self, named)


class _Turn:
    """One call of a name at a time: two at once could not be told apart after a crash."""

    def __init__(self, desk: Desk, named: str) -> None:
        self._desk, self._named = desk, named

    def __enter__(self) -> int:
        desk, named = self._desk, self._named
        with desk._lock:
            if named in desk._busy:
                raise AmbiguousOccurrence(
                    f"two calls of {named!r} run at once", hint="give each another name"
                )
            desk._busy.add(named)
            return desk._counts.get(named, 0) + 1

    def __exit__(self, *_: object) -> None:
        with self._desk._lock:
            self._desk._busy.discard(self._named)


def _performing(perform: Perform, key: str) -> Callable[[list[str]], Any]:
    def act(words: list[str]) -> Any:
        output = perform(key)
        if output.exit_code in _MISSING and not output.out:
            raise DidNotHappen(f"the command cannot be started: exit code {output.exit_code}")
        if output.exit_code != 0:
            raise CommandFailed(f"the command ended with {output.exit_code}")
        return _plain(output)

    return act


def _probing(probe: Callable[[str], int] | None, key: str) -> Callable[[list[str]], object] | None:
    if probe is None:
        return None

    def look(words: list[str]) -> object:
        code = probe(key)
        if code == 0:
            return Happened(_plain(Output(0)))
        return (
            DidNotHappen("the probe says so")
            if code == DID_NOT
            else CannotTell(f"the probe ended with {code}")
        )

    return look


def _was_killed(exit_code: int) -> bool:
    """Whether a command died of a signal, itself or, as shells say it, a child of it: that is no result."""
    return exit_code < 0 or exit_code > 128


def _plain(output: Output) -> dict[str, Any]:
    """As it is recorded: texts as texts, so that exports mask what is in them; other bytes in base64."""
    told: dict[str, Any] = {"exit_code": output.exit_code}
    for name, data in (("out", output.out), ("err", output.err)):
        try:
            told[name] = data.decode()
        except UnicodeDecodeError:
            told[f"{name}64"] = base64.b64encode(data).decode()
    return told | ({"cut": output.cut} if output.cut else {})


def _output(value: Any) -> Output:
    if not isinstance(value, dict) or not isinstance(value.get("exit_code"), int):
        return Output(0, msgspec.json.encode(value) + b"\n")  # a person settled it with a result of their own
    out, err = (
        base64.b64decode(value[f"{name}64"]) if f"{name}64" in value else str(value.get(name, "")).encode()
        for name in ("out", "err")
    )
    return Output(value["exit_code"], out, err, int(value.get("cut", 0)))


def _one(append: Append) -> Steps:
    yield append
