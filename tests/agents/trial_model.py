"""The scripted model of a trial: what it says next, as a function of the conversation alone.

It is a sensible one: it asks for what the conversation does not show as done, and believes what it is told of its calls.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field, replace
from typing import Literal

from tests.agents.script import Call, Fault, History, Step, Usage
from tests.agents.trial_calls import Calls
from tests.agents.trial_plan import INPUT_TOKENS, PROMPT, Plan, Task

ASKED_MAX = 6  # so often a sensible model asks for the same thing, whatever it is told
USAGE = Usage(input=INPUT_TOKENS, cache_read=0, cache_write=0, output=7, reasoning=0)
Known = Literal["asked", "started", "lost", "unknown", "undone", "done"]

# What outlast says of a call, or the world, and what it means to a sensible model; the first that is found counts.
_SAID: tuple[tuple[Known, re.Pattern[str]], ...] = (
    ("unknown", re.compile(r"not known whether it happened|outlast holds|given up to find")),
    ("done", re.compile(r"(?:done|started)-x\d+n\d+e|[Tt]ake it as done|it did happen|it happened|\"url\": \"https://world\.example/")),
    ("undone", re.compile(r"not started|nothing tells that this call was started|Nothing (?:of it )?was done|before it did anything|was not (?:made|run|let through)|did not happen")),
    ("lost", re.compile(r"cut off by the interruption")),
)  # fmt: skip
_SETTLE = re.compile(r"`(\S*outlast'? settle \S+ \S+) --happened`")
_ANOTHER = re.compile(
    r"went to the same address before, (.*?); it was cut off.*say so with `([^`]+) --another`", re.DOTALL
)
_IN_BACKGROUND = re.compile(r"in (?:the )?background|to background|task_id:")
_UNNAMED = re.compile(r"Any other call of yours that shows no result .* did not let it through")
_PART = re.compile(r"SUBTASK (x\d+n\d+e):")


@dataclass
class Seen:
    """What a conversation tells of one task."""

    known: Known | None = None
    asked: int = 0
    repeated: bool = False
    settle: str = ""
    another: str = ""  # held because of another call to the same address: how to say so


@dataclass
class Modelled:
    """What the model says, as a function of the conversation. It is asked by one thread at a time.

    In a share of the trials it makes a call of which nobody knows the outcome again, as models do. A careless one hears
    nothing of calls that are not in its own conversation, as when it takes over; of its own it hears everything.
    """

    plan: Plan
    calls: Calls
    served: list[int] = field(default_factory=list)  # the batches that were asked for, in order
    hung: set[int] = field(default_factory=set)
    used: set[str] = field(default_factory=set)  # the tools that were asked for
    lock: threading.Lock = field(default_factory=threading.Lock)

    def choose(self, history: History, plays: int) -> Step:
        """Ask for the first batch that is not done, or say that all is."""
        part = _PART.search(history.prompt)
        if part is not None and PROMPT not in history.prompt:
            return self._as_sub_agent(self.plan.tasks[part[1]], history)
        seen = self.read(history)
        for number, batch in enumerate(self.plan.batches):
            calls = tuple(call for task in batch for call in self._wanted(task, seen[task.name], history))
            if calls:
                with self.lock:
                    self.served.append(number)
                    self.used |= {call.tool for call in calls}
                return Step(f"Batch {number}.", calls, USAGE, self._fault(number))
        return Step("All of it is done.", (), USAGE)

    def _as_sub_agent(self, task: Task, history: History) -> Step:
        """It makes the one call, and tells what it was told."""
        posting = replace(task, kind="post")
        seen = self.read(history)[task.name]
        calls = self._wanted(posting, seen, history)
        if calls:
            return Step("I do it.", tuple(calls), USAGE)
        told = [result.text for result in history.results]
        return Step(
            f"done-{task.name}" if seen.known == "done" else "\n".join(["It stands so:", *told[-1:]]),
            (),
            USAGE,
        )

    def _fault(self, number: int) -> Fault | None:
        targets = {kill.at for kill in self.plan.kills if kill.when == "hang"}
        if str(number) not in targets or number in self.hung:
            return None
        self.hung.add(number)
        return Fault(hang_after=self.plan.hang_after, times=None)

    def _wanted(self, task: Task, seen: Seen, history: History) -> list[Call]:
        if seen.known == "done" or seen.asked >= ASKED_MAX:
            return []
        if seen.known == "started":
            return [self.calls.wait(task)]
        again = ("lost",) if task.kind == "sub" else ()  # its own call is judged when the part makes it
        if not task.outward or seen.known in (None, "undone", *again):
            return [self.calls.call(task, history.tools)]
        if seen.another:
            return [self.calls.another(task, seen.another)]
        # Nobody knows, says outlast, or the CLI says something of its own.
        if self.plan.repeats == "settles" and seen.settle:
            return [self.calls.look(task, seen.settle)]
        if self.plan.repeats in ("verbatim", "flags", "words") and not seen.repeated:
            return [self.calls.call(task, history.tools, self.plan.repeats)]
        return []

    # -- what a conversation tells -----------------------------------------------------------------------------------

    def read(self, history: History) -> dict[str, Seen]:
        """What became of each task, as far as the conversation tells: the last word counts."""
        seen = {name: Seen() for name in self.plan.tasks}
        owner: dict[str, str] = {}
        for turn in history.turns:
            for call in turn.calls:
                name = next((each for each in seen if each in call.input), None)
                if name is not None:
                    owner[call.id] = name
                    each = seen[name]
                    each.repeated = each.repeated or each.known in ("unknown", "lost")
                    each.asked, each.known = each.asked + 1, "asked"
            for result in turn.results:
                if result.call_id in owner:
                    _take(seen[owner[result.call_id]], result.text, self.plan.tasks[owner[result.call_id]])
            if turn.role == "user" and not history.tools:
                self._read_output(turn.text, seen)
            elif turn.role == "user" or not turn.calls:
                heard = {name: each for name, each in seen.items() if each.asked or not self.plan.careless}
                self._read_words(turn.text, heard, owner)
        for each in seen.values():
            if each.known == "asked":
                each.known = "lost"
        return seen

    def _read_words(self, text: str, seen: dict[str, Seen], owner: dict[str, str]) -> None:
        """What is said of calls in a prompt, a line each: by their id, or by where they go."""
        for line in text.splitlines():
            if not line.startswith("- "):
                continue
            named = {owner[call] for call in owner if call and call in line}
            named |= {name for name in seen if name in line}
            for name in named:
                if any(pattern.search(line) for _, pattern in _SAID):
                    _take(seen[name], line, self.plan.tasks[name])
        if _UNNAMED.search(text):
            for name, each in seen.items():
                if each.known in ("asked", "lost") and name not in text:
                    each.known = "undone"

    def _read_output(self, text: str, seen: dict[str, Seen]) -> None:
        """A CLI without tools tells what a command printed in words of its own; there is one command."""
        for name, each in seen.items():
            if (name in text or "outlast" in text) and any(pattern.search(text) for _, pattern in _SAID):
                each.repeated = each.repeated or each.known in ("unknown", "lost")
                _take(each, text, self.plan.tasks[name])


def _take(seen: Seen, text: str, task: Task) -> None:
    known = next((known for known, pattern in _SAID if pattern.search(text)), None)
    if known is None and task.kind == "write" and not re.search(r"interrupt|abort|cancel|reject", text):
        known = "done"  # each CLI has words of its own for a file that was written
    if known is None and task.kind == "task" and _IN_BACKGROUND.search(text):
        known = "started"
    if known is None and f"{task.name} is another one" in text:
        known = "undone"
    seen.known = known or "lost"
    found, other = _SETTLE.search(text), _ANOTHER.search(text)
    seen.settle = found[1] if found else seen.settle
    if other and task.name not in other[1]:
        seen.another = other[2]
    elif seen.known != "lost":  # else the saying so was cut off
        seen.another = ""
