"""mini-swe-agent: as far as it allows. No hooks, no sessions, no resume; a trajectory file that it writes anew each step.

Read from 2.4.6. What it does to the world it does through one shell command at a time: those are seen by the PATH
shims. Cut off, it starts anew with all that is known.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from outlast.agents import Common
from outlast.agents.common import (
    argv,
    endings,
    json_lines,
    launch as common_launch,
    litellm,
    providers,
    versions,
)
from outlast.agents.events import AgentEvent, Final, UsageReport
from outlast.agents.values import AgentCommand, Answer, Ask, Caps, Cut, Hook, Route
from outlast.core import values

NAME = "mini-swe-agent"
TRIED = versions.TestedVersions("mini-swe-agent", (2, 0), (2, 4))
TRAJECTORY_FILE = "mini-swe-agent.traj.json"
TRAJECTORY_TAIL_BYTES = 1 << 16
TRAJECTORY_MAX_BYTES = 64 << 20
BASE = "model.model_kwargs.api_base"  # the setting that goes before the variables

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
NAMES = common_launch.Names(
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
    caps = Caps(intent=("shims",), response_ids=True)

    def __init__(self, clock: Callable[[], datetime] = common_launch.now) -> None:
        self._clock = clock

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        start = common_launch.start(words, program, NAMES)
        if start is None:
            return False
        if start == 1 and os.path.basename(words[0]) == "mini" and not common_launch.is_python(program):
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

    def launch(self, ask: Ask) -> AgentCommand | None:
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
        return AgentCommand((*ask.words[:start], *argv.joined(_routed(parts, ask))), _variables(parts, ask))

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ()

    def words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """Headless it never asks: it has no safer mode."""
        return ("mini", "--yolo", "--exit-immediately", f"--task={prompt}")

    def trusting(self, words: Sequence[str]) -> bool:
        return argv.has(_parts(words)[1], "--yolo")

    # --- its provider ---

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        return providers.bare(_model(_parts(words)[1], environment))

    def account(self, ask: Ask) -> str:
        found = litellm.of(_model(_parts(ask.words)[1], ask.environment))
        return found.account(_environment(ask.environment)) if found is not None else ""

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        parts = _parts(ask.words)[1]
        if (argv.value(parts, "--model-class") or "litellm") not in ("litellm", "litellm_model"):
            return "its model class is none that takes another address"
        settings = _settings(parts)
        files = [ask.cwd / word for word in settings if "=" not in word]
        if any(re.search(r"(?m)^\s*api_base:", providers.text(path)) for path in files):
            return f"its settings name an api_base: give it as `-c {BASE}=…`"
        named = next((word for word in reversed(settings) if word.startswith(f"{BASE}=")), "")
        models = [_model(parts, ask.environment)]
        address = named.partition("=")[2]
        return litellm.gateway(ask, route, models, _environment(ask.environment), address)

    # --- its files ---

    def transcript(self, session: str, ask: Ask) -> Path | None:
        """None: the trajectory is one JSON value, written anew each step, and nothing resumes from it."""
        return None

    def spent(self, ask: Ask) -> Iterable[UsageReport]:
        """By its trajectory: each response stands there as its provider gave it."""
        named = argv.value(_parts(ask.words)[1], "--output")
        path = ask.cwd / named if named else ask.folder / TRAJECTORY_FILE
        try:
            with path.open("rb") as file:
                read = json_lines.record(file.read(TRAJECTORY_MAX_BYTES))
        except (OSError, ValueError):
            return
        for message in json_lines.items(read, "messages"):
            response = json_lines.inner(message, "extra", "response")
            if json_lines.text(response, "id"):
                yield _usage(response, json_lines.at(message, "extra", "cost"))

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
    start = common_launch.start(words, "", NAMES) or 1
    return start, argv.split(words[start:], TABLE)


def _usage(response: json_lines.Record, cost_usd: object) -> UsageReport:
    used = json_lines.inner(response, "usage")
    cached = json_lines.number(used, "prompt_tokens_details", "cached_tokens")
    written = json_lines.number(used, "cache_creation_input_tokens")
    fresh = max(json_lines.number(used, "prompt_tokens") - cached - written, 0)  # theirs counts all of it
    cost = json_lines.number({"n": cost_usd * 1e6 if isinstance(cost_usd, int | float) else 0}, "n")
    spent = values.Usage(fresh, json_lines.number(used, "completion_tokens"), cached, written, cost)
    return UsageReport(spent, "response", json_lines.text(response, "id"), json_lines.text(response, "model"))


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables as it sees them: those of its own .env file count less than the environment."""
    named, home = environment.get("MSWEA_GLOBAL_CONFIG_DIR", ""), environment.get("HOME", "")
    config = environment.get("XDG_CONFIG_HOME", "") or (os.path.join(home, ".config") if home else "")
    folder = named or (os.path.join(config, NAME) if config else "")
    return {**(providers.dotenv(Path(folder) / ".env") if folder else {}), **environment}


def _settings(parts: argv.Parts) -> list[str]:
    return [part.values[-1] for part in parts if part.values and part.names[-1:] == ("--config",)]


def _model(parts: argv.Parts, environment: Mapping[str, str]) -> str:
    told = [word.partition("=") for word in _settings(parts)]
    given = [value for key, _, value in told if key == "model.model_name"]
    named = argv.value(parts, "--model") or (given[-1] if given else "")
    return named or _environment(environment).get("MSWEA_MODEL_NAME", "")


def _variables(parts: argv.Parts, ask: Ask) -> dict[str, str]:
    if not ask.routes:
        return {}
    found = litellm.variables(ask, [_model(parts, ask.environment)], _environment(ask.environment))
    return {**found, **providers.reaching(ask)}


def _routed(parts: argv.Parts, ask: Ask) -> argv.Parts:
    """The command with what stands for the address that it names itself."""
    start = f"{BASE}="
    return tuple(
        argv.Part(("--config", start + providers.local(ask, part.values[-1].removeprefix(start))), part.names)
        if part.values and part.names[-1:] == ("--config",) and part.values[-1].startswith(start)
        else part
        for part in parts
    )


ADAPTER = MiniSwe()
