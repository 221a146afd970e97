"""What a scripted model says: steps, faults, and how a step is chosen from the conversation alone.

Nothing here knows a wire format (that is `protocols`) or a socket (that is `model`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

STEPS_MAX = 10_000
# What the CLIs themselves, or outlast, say of a call whose outcome nobody recorded.
LOST = re.compile(
    r"abort|interrupt|unknown|in doubt|not (?:been )?recorded|no (?:result|outcome)|reject|cancel|killed",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `bash` and `write` are translated for the CLI that asks; another name goes out as it is."""

    tool: str
    input: Mapping[str, Any]


def bash(command: str) -> Call:
    return Call("bash", {"command": command})


def write(path: str | Path, content: str) -> Call:
    return Call("write", {"path": str(path), "content": content})


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one response. Without `input`, a fourth of the request's bytes."""

    input: int | None = None
    cache_read: int = 22
    cache_write: int = 11
    output: int = 33
    reasoning: int = 4


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with a step, the first `times` times that it is played (None: always).

    `error`: an answer with that error (a name of `protocols.ERRORS`) in place of the response.
    `hang_after`, `cut_after`: so many events are sent, then silence until `release`, or the connection is closed.
    `delay_s`: silence before the first byte; ends early at `release`.
    """

    error: str | None = None
    message: str | None = None
    retry_after_s: int | None = None
    resets_at: int | None = None  # seconds since 1970, where the protocol has a place for it
    hang_after: int | None = None
    cut_after: int | None = None
    delay_s: float | None = None
    times: int | None = 1


@dataclass(frozen=True, slots=True)
class When:
    """Which conversations a step is meant for; everything that is given must hold."""

    last: str | None = None  # a pattern, in the text of the last turn
    result: str | None = None  # a pattern, in some tool result
    lost: bool | None = None  # the last batch of calls has a result missing, or one that speaks of loss
    resumed: bool | None = None  # somebody speaks where the result of a call, or nothing, was to be expected
    again: bool | None = None  # this step was played before: its response was lost, or dropped

    def holds(self, history: History, plays: int) -> bool:
        facts = ((self.lost, history.lost), (self.resumed, history.resumed), (self.again, plays > 0))
        return (
            all(asked in (None, fact) for asked, fact in facts)
            and (self.last is None or re.search(self.last, history.last_text) is not None)
            and (self.result is None or any(re.search(self.result, said.text) for said in history.results))
        )


@dataclass(frozen=True, slots=True)
class Step:
    """One response: text, calls (in parallel), what it costs and what goes wrong with it."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage = field(default_factory=Usage)
    fault: Fault | None = None
    when: When = field(default_factory=When)


@dataclass(frozen=True, slots=True)
class SeenCall:
    id: str
    name: str
    input: str  # as text: JSON, or what a free-form tool takes


@dataclass(frozen=True, slots=True)
class Result:
    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side said, in one go."""

    role: str  # assistant, user, tool
    text: str = ""
    calls: tuple[SeenCall, ...] = ()
    results: tuple[Result, ...] = ()


@dataclass(frozen=True)
class History:
    """A request's conversation, the same for all protocols."""

    turns: tuple[Turn, ...]
    tools: Mapping[str, Any]  # name to JSON schema (None for a free-form tool)
    system: str = ""

    @property
    def last_text(self) -> str:
        if not self.turns:
            return ""
        last = self.turns[-1]
        return "\n".join([last.text, *(result.text for result in last.results)])

    @property
    def prompt(self) -> str:
        """What the user said before the first response, the CLI's own additions included."""
        said = []
        for turn in self.turns:
            if turn.role == "assistant":
                break
            said.append(turn.text)
        return "\n".join(said)

    @property
    def results(self) -> list[Result]:
        return [result for turn in self.turns for result in turn.results]

    @cached_property
    def responses(self) -> int:
        """Responses with calls. Ours are known by their ids, so a CLI that stores one twice does not count it twice."""
        return len(
            {
                response_of(turn.calls[0].id) or f"turn {number}"
                for number, turn in enumerate(self.turns)
                if turn.calls
            }
        )

    @property
    def spoken(self) -> int:
        """Responses with or without calls."""
        return sum(turn.role == "assistant" for turn in self.turns)

    @property
    def lost(self) -> bool:
        calls = next((turn.calls for turn in reversed(self.turns) if turn.calls), ())
        results = {result.call_id: result.text for result in self.results}
        return any(call.id not in results or LOST.search(results[call.id]) for call in calls)

    @property
    def resumed(self) -> bool:
        return self.spoken > 0 and self.turns[-1].role == "user" and not self.turns[-1].results


def response_id(script: str, lane: int, step: int, play: int) -> str:
    """The same for the same script and step; another when it is said again, as with a real model."""
    return f"{script}{lane:02d}s{step:03d}p{play:02d}"


_OURS = re.compile(r"([0-9a-f]{8}\d\ds\d{3,}p\d\d+)c\d+$")


def response_of(call_id: str) -> str | None:
    """The response that a call of ours belongs to."""
    found = _OURS.search(call_id)
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The step to play: its number (-1: an aside, such as a title for the session) and what is said."""

    lane: int
    number: int
    step: Step


Entry = Step | Sequence[Step]  # several: the first whose `when` holds
Chooser = Callable[[History, int], Step]  # a function of the conversation, and of how often it was played
ASIDE = Step("ok")
END = Step("All steps are done.")


@dataclass(frozen=True)
class Lane:
    """The steps for conversations whose prompt matches: a sub-agent's, or one of several agents on one server."""

    match: str
    steps: tuple[Entry, ...]


class Script:
    """What the model says in every conversation.

    The step's number is the count of responses with calls in the conversation, so a resumed session goes on where
    its own history ends. `count="turns"` counts the responses that hold a step's text, for CLIs that offer no tools
    at all (and put words of their own into the model's mouth).
    `finish` is a command added to every step without calls: for CLIs that only end by one.
    """

    def __init__(
        self,
        steps: Sequence[Entry] | Chooser,
        *,
        lanes: Sequence[Lane] = (),
        count: str = "calls",
        finish: str | None = None,
    ) -> None:
        assert count in ("calls", "turns"), f"count is calls or turns, not {count}"
        assert callable(steps) or len(steps) <= STEPS_MAX, "a script has an end"
        self._chooser = steps if callable(steps) else None
        main = Lane("", () if callable(steps) else tuple(steps))
        self._lanes = (main, *lanes)
        self._count = count
        self._finish = finish
        told = repr((self._lanes, count, finish)) if self._chooser is None else self._chooser.__qualname__
        self.digest = hashlib.sha256(told.encode()).hexdigest()[:8]

    def with_options(self, *, count: str | None = None, finish: str | None = None) -> Script:
        """The same steps for another kind of CLI. An empty `finish`: one that ends by itself."""
        steps: Sequence[Entry] | Chooser = self._chooser or self._lanes[0].steps
        return Script(
            steps,
            lanes=self._lanes[1:],
            count=count or self._count,
            finish=self._finish if finish is None else finish or None,
        )

    def choose(self, history: History, plays: Callable[[int, int], int]) -> Chosen:
        """The step for this conversation; `plays(lane, number)` says how often it was chosen before."""
        if self._count == "calls" and not history.tools:
            return Chosen(0, -1, ASIDE)
        number = history.responses if self._count == "calls" else self._spoken(history)
        lane = next(
            (n for n, lane in enumerate(self._lanes) if n and re.search(lane.match, history.prompt)), 0
        )
        played = plays(lane, number)
        if lane == 0 and self._chooser is not None:
            step = self._chooser(history, played)
        else:
            step = _pick(self._lanes[lane].steps, number, history, played)
        return Chosen(lane, number, self._finished(step))

    def _spoken(self, history: History) -> int:
        if self._chooser is not None:
            return history.spoken
        entries = [entry for lane in self._lanes for entry in lane.steps]
        steps = [step for entry in entries for step in ((entry,) if isinstance(entry, Step) else entry)]
        texts = {step.text for step in steps if step.text}
        said = [turn.text for turn in history.turns if turn.role == "assistant"]
        return sum(any(text in words for text in texts) for words in said)

    def _finished(self, step: Step) -> Step:
        if self._finish is None or step.calls:
            return step
        return replace(step, calls=(bash(self._finish),))


def _pick(steps: Sequence[Entry], number: int, history: History, plays: int) -> Step:
    if number >= len(steps):
        last = steps[-1] if steps else END
        return last if isinstance(last, Step) and not last.calls else END
    entry = steps[number]
    cases = (entry,) if isinstance(entry, Step) else entry
    return next((step for step in cases if step.when.holds(history, plays)), END)


def repeating(first: Call, again: Call, *, before: Sequence[Step] = (), end: str = "Done.") -> list[Entry]:
    """A model that, after a kill, makes the lost call `first` again as `again`: verbatim if it is the same,
    else with other flags or other words. Both ways to lose it count: the call is gone from the conversation,
    or it is there and somebody speaks (or a result says) that nobody knows its outcome."""
    repeat = Step("Once more.", (again,))
    return [
        *before,
        [replace(repeat, when=When(again=True)), Step("Now the call.", (first,))],
        [replace(repeat, when=When(lost=True)), replace(repeat, when=When(resumed=True)), Step(end)],
        Step(end),
    ]


# --- JSON ---------------------------------------------------------------------------------------------------


def load(path: Path) -> Script:
    """A script from a file: a list of steps (or of lists of cases), or {"steps", "lanes", "count", "finish"}."""
    value = json.loads(path.read_text())
    if isinstance(value, list):
        value = {"steps": value}
    lanes = [Lane(lane["match"], tuple(map(_entry, lane["steps"]))) for lane in value.get("lanes", [])]
    return Script(
        [_entry(entry) for entry in value["steps"]],
        lanes=lanes,
        count=value.get("count", "calls"),
        finish=value.get("finish"),
    )


def _entry(value: Any) -> Entry:
    return [_step(case) for case in value] if isinstance(value, list) else _step(value)


def _step(value: dict[str, Any]) -> Step:
    unknown = set(value) - {"text", "bash", "write", "calls", "usage", "fault", "when"}
    if unknown:
        raise ValueError(f"a step has no {', '.join(sorted(unknown))}")
    commands = value.get("bash", [])
    calls = [bash(command) for command in ([commands] if isinstance(commands, str) else commands)]
    calls += [write(path, content) for path, content in value.get("write", {}).items()]
    calls += [Call(call["tool"], call["input"]) for call in value.get("calls", [])]
    return Step(
        text=value.get("text", ""),
        calls=tuple(calls),
        usage=Usage(**value.get("usage", {})),
        fault=Fault(**value["fault"]) if "fault" in value else None,
        when=When(**value.get("when", {})),
    )
