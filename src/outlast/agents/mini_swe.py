"""mini-swe-agent: as far as it allows. No hooks, no sessions, no resume; a trajectory file that it writes anew each step.

Read from 2.4.6. What it does to the world it does through one shell command at a time: those are seen by the PATH
shims. Cut off, it starts anew with all that is known.
"""

import os
import re
import signal
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

from outlast.agents import (
    AgentEvent,
    Answer,
    Ask,
    Caps,
    Common,
    Cut,
    Final,
    Hook,
    Launch,
    argv,
    endings,
    starting,
    versions,
)

NAME = "mini-swe-agent"
TRIED = versions.Tried("mini-swe-agent", (2, 0), (2, 4))
TRAJECTORY_FILE = "mini-swe-agent.traj.json"
TRAJECTORY_TAIL_BYTES = 1 << 16

TABLE = argv.Table(
    valued=frozenset(
        """--model --task --cost-limit --config --output --model-class --agent-class --environment-class""".split()
    ),
    bare=frozenset("--yolo --exit-immediately --help --install-completion --show-completion".split()),
    aliases={
        "-m": "--model", "-t": "--task", "-y": "--yolo", "-l": "--cost-limit", "-c": "--config", "-o": "--output",
    },
)  # fmt: skip
ELSEWHERE = ("--help", "--install-completion", "--show-completion")
NAMES = starting.Names(
    frozenset(["mini", "mini-swe-agent"]),
    frozenset(["mini-swe-agent"]),
    frozenset(["minisweagent", "minisweagent.run.mini"]),
    re.compile(r"/minisweagent/(?:__main__|run/mini)\.py$"),
)
STATUSES: dict[str, Final] = {
    "Submitted": Final("done"),
    "LimitsExceeded": Final("budget", "it reached its limit of steps or cost"),
    "TimeExceeded": Final("budget", "it reached its limit of time"),
    "RepeatedFormatError": Final("refused", "its model answered in no form that it understands"),
    "UserInterruption": Final("crashed", "interrupted"),
}
_STATUS = re.compile(r'"exit_status":\s*"(\w{1,80})"')


class MiniSwe(Common):
    """The adapter. The clock is an argument."""

    name = NAME
    caps = Caps(intent=("shims",))
    stop_signal = signal.SIGTERM

    def __init__(self, clock: Callable[[], datetime] = starting.now) -> None:
        self._clock = clock

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        start = starting.start(words, program, NAMES)
        if start is None:
            return False
        if start == 1 and os.path.basename(words[0]) == "mini" and not starting.is_python(program):
            return False  # there are other programs of that name
        return not argv.has(argv.split(words[start:], TABLE), *ELSEWHERE)

    def is_headless(self, words: Sequence[str]) -> bool:
        parts = _parts(words)[1]
        return (
            argv.has(parts, "--yolo") and argv.has(parts, "--exit-immediately") and argv.has(parts, "--task")
        )

    def prompt(self, words: Sequence[str]) -> str:
        return argv.value(_parts(words)[1], "--task") or ""

    def version(self, program: str, run: versions.Runner | None = None) -> str:
        return versions.distribution(program, NAME)  # asked, it would begin to set itself up

    def problem(self, version: str) -> str:
        return TRIED.problem(version)

    def untested(self, version: str) -> str:
        return TRIED.untested(version)

    def launch(self, ask: Ask) -> Launch | None:
        if ask.session is not None:
            return None
        start, parts = _parts(ask.words)
        if ask.interactive:
            parts = argv.without(parts, "--exit-immediately")
        if ask.prompt:
            parts = (
                *argv.without(parts, "--task"),
                argv.Part((f"--task={ask.prompt}",), ("--task",), (ask.prompt,)),
            )
        if not argv.has(parts, "--output"):
            # Its own default is one file for all that run at a time.
            path = str(ask.folder / TRAJECTORY_FILE)
            parts = (*parts, argv.Part(("--output", path), ("--output",), (path,)))
        return Launch((*ask.words[:start], *argv.joined(parts)))

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ()

    def words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """Headless it never asks: it has no safer mode."""
        return ("mini", "--yolo", "--exit-immediately", f"--task={prompt}")

    def trusting(self, words: Sequence[str]) -> bool:
        return argv.has(_parts(words)[1], "--yolo")

    # --- its files ---

    def transcript(self, session: str, ask: Ask) -> Path | None:
        """None: the trajectory is one JSON value, written anew each step, and nothing resumes from it."""
        return None

    # --- what it did: nothing tells while it works ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        return ()

    def hook(self, data: bytes) -> Hook:
        return Hook("other")

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        return b"", 0

    # --- how it ended ---

    def classify(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        """It exits 0 also when a limit stopped it. `transcript` may be its trajectory, where somebody has it."""
        words = tail[-endings.TEXT_MAX_CHARS :].decode("utf-8", "replace").strip()
        if exit_code < 0 or exit_code >= 128:
            return Final("crashed", f"ended by signal {-exit_code if exit_code < 0 else exit_code - 128}")
        status = _STATUS.findall(transcript[-TRAJECTORY_TAIL_BYTES:].decode("utf-8", "replace"))
        if status and status[-1] in STATUSES:
            return STATUSES[status[-1]]
        named = [name for name in STATUSES if re.search(rf"^\W*{name}\b", words, re.MULTILINE)]
        if named and exit_code == 0:
            return STATUSES[named[-1]]
        if exit_code == 0:
            return Final("done", endings.said(words))
        told = endings.match(NAME, words, self._clock())
        return told or Final("crashed", endings.said(words) or f"exit code {exit_code}")

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        return transcript


def _parts(words: Sequence[str]) -> tuple[int, argv.Parts]:
    start = starting.start(words, "", NAMES) or 1
    return start, argv.split(words[start:], TABLE)


ADAPTER = MiniSwe()
