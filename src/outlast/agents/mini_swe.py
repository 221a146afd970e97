"""mini-swe-agent: no hooks, no sessions, no resume; a trajectory file that it writes again each step. Read from 2.4.6.
It acts on the world through one shell command at a time, which the PATH shims see.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from outlast.agents import KnownAgent
from outlast.agents.common import argv, endings, json_lines, launch as common_launch, litellm, providers
from outlast.agents.common.grammar import Grammar
from outlast.agents.events import AgentEvent, Final, UsageReport
from outlast.agents.release import Caps, Names, Release
from outlast.agents.values import (
    AgentCommand,
    Answer,
    Ask,
    CommandLine,
    Companions,
    Cut,
    Hook,
    Payment,
    Route,
)
from outlast.core import values

NAME = "mini-swe-agent"
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
NAMES = Names(
    frozenset(["mini", "mini-swe-agent"]),
    frozenset(["mini-swe-agent"]),
    frozenset(["minisweagent", "minisweagent.run.mini"]),
    re.compile(r"/minisweagent/(?:__main__|run/mini)\.py$"),
)
GRAMMAR = Grammar(names=NAMES, table=TABLE, elsewhere=ELSEWHERE, shared_name="mini")
RELEASE = Release(
    name=NAME,
    names=NAMES,
    caps=Caps(intent=("shims",), response_ids=True),
    oldest=(2, 0),
    newest=(2, 4),
    distribution=NAME,
    answers_version=False,  # asked, it would begin to set itself up
)
STATUSES: dict[str, Final] = {
    "Submitted": Final("done"),
    "LimitsExceeded": Final("budget", "it reached its limit of steps or cost"),
    "TimeExceeded": Final("budget", "it reached its limit of time"),
    "RepeatedFormatError": Final("refused", "its model answered in no form that it understands"),
    "UserInterruption": Final("crashed", "interrupted"),
}
_STATUS = re.compile(r'"exit_status":\s*"(\w{1,80})"')


class MiniSweCli:
    """After a kill it starts from the beginning with all that is known. It has no hooks."""

    def detect(self, words: Sequence[str], program: str) -> bool:
        return GRAMMAR.opens_session(words, program)

    def read(self, words: Sequence[str]) -> CommandLine:
        parts = GRAMMAR.parts(words)
        needed = ("--yolo", "--exit-immediately", "--task")
        return CommandLine(
            prompt=argv.value(parts, "--task") or "",
            headless=all(argv.has(parts, flag) for flag in needed),
            trusting=argv.has(parts, "--yolo"),
        )

    def launch(self, ask: Ask) -> AgentCommand | None:
        if ask.session is not None:
            return None
        start, parts = GRAMMAR.split(ask.words)
        if ask.interactive:
            parts = argv.without(parts, "--exit-immediately")
        if ask.prompt:
            parts = (
                *argv.without(parts, "--task"),
                argv.with_equals("--task", ask.prompt),
            )
        if not argv.has(parts, "--output"):
            # Its own default is one file for all that run at a time.
            path = str(ask.folder / TRAJECTORY_FILE)
            parts = (*parts, argv.with_word("--output", path))
        return AgentCommand((*ask.words[:start], *argv.joined(_routed(parts, ask))), _variables(parts, ask))

    def headless_words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """Headless it never asks: it has no safer mode."""
        return ("mini", "--yolo", "--exit-immediately", f"--task={prompt}")

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ()

    def hooks_off(self, ask: Ask) -> str:
        return ""

    def hook(self, data: bytes) -> Hook:
        return Hook("other")

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        return b"", 0


class MiniSweTranscript:
    """None: the trajectory is one JSON value, written again each step, and nothing resumes from it."""

    def __init__(self, clock: Callable[[], datetime] = common_launch.now) -> None:
        self._clock = clock

    def find(self, session: str, ask: Ask) -> Path | None:
        return None

    def place(self, session: str, ask: Ask) -> Path | None:
        return None

    def beside(self, transcript: Path) -> Companions:
        return Companions()

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        return ()

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        return transcript

    def ending(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        """It exits 0 also when a limit stopped it. `transcript` may be its trajectory, where somebody has it."""
        words = endings.last_words(tail)
        killed = endings.by_signal(exit_code)
        if killed is not None:
            return killed
        status = _STATUS.findall(transcript[-TRAJECTORY_TAIL_BYTES:].decode("utf-8", "replace"))
        if status and status[-1] in STATUSES:
            return STATUSES[status[-1]]
        named = [name for name in STATUSES if re.search(rf"^\W*{name}\b", words, re.MULTILINE)]
        if named and exit_code == 0:
            return STATUSES[named[-1]]
        return endings.by_exit(exit_code, words, NAME, self._clock())


class MiniSweBilling:
    """Its provider is the one that litellm takes for the model's name. Its trajectory has its usage."""

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        return providers.bare(_model(GRAMMAR.parts(words), environment))

    def payment(self, ask: Ask) -> Payment:
        return "api"

    def account(self, ask: Ask) -> str:
        found = litellm.of(_model(GRAMMAR.parts(ask.words), ask.environment))
        return found.account(_environment(ask.environment)) if found is not None else ""

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        parts = GRAMMAR.parts(ask.words)
        if (argv.value(parts, "--model-class") or "litellm") not in ("litellm", "litellm_model"):
            return "its model class does not take another address"
        settings = _settings(parts)
        files = [ask.cwd / word for word in settings if "=" not in word]
        if any(re.search(r"(?m)^\s*api_base:", providers.text(path)) for path in files):
            return f"its settings name an api_base: give it as `-c {BASE}=…`"
        named = next((word for word in reversed(settings) if word.startswith(f"{BASE}=")), "")
        models = [_model(parts, ask.environment)]
        address = named.partition("=")[2]
        return litellm.gateway(ask, route, models, _environment(ask.environment), address)

    def spent(self, ask: Ask) -> Iterable[UsageReport]:
        """By its trajectory: each response stands there as its provider gave it."""
        named = argv.value(GRAMMAR.parts(ask.words), "--output")
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


def _usage(response: json_lines.Record, cost_usd: object) -> UsageReport:
    used = json_lines.inner(response, "usage")
    cached = json_lines.number(used, "prompt_tokens_details", "cached_tokens")
    written = json_lines.number(used, "cache_creation_input_tokens")
    fresh = max(json_lines.number(used, "prompt_tokens") - cached - written, 0)  # theirs counts all of it
    cost = json_lines.microusd(cost_usd)
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
    pairs = [word.partition("=") for word in _settings(parts)]
    given = [value for key, _, value in pairs if key == "model.model_name"]
    named = argv.value(parts, "--model") or (given[-1] if given else "")
    return named or _environment(environment).get("MSWEA_MODEL_NAME", "")


def _variables(parts: argv.Parts, ask: Ask) -> dict[str, str]:
    if not ask.routes:
        return {}
    found = litellm.variables(ask, [_model(parts, ask.environment)], _environment(ask.environment))
    return {**found, **providers.no_proxy(ask)}


def _routed(parts: argv.Parts, ask: Ask) -> argv.Parts:
    """The command with what stands for the address that it names itself."""
    start = f"{BASE}="
    return tuple(
        argv.Part(("--config", start + providers.local(ask, part.values[-1].removeprefix(start))), part.names)
        if part.values and part.names[-1:] == ("--config",) and part.values[-1].startswith(start)
        else part
        for part in parts
    )


def agent(clock: Callable[[], datetime] = common_launch.now) -> KnownAgent:
    """mini-swe-agent with this clock."""
    return KnownAgent(MiniSweCli(), MiniSweTranscript(clock), MiniSweBilling(), RELEASE)


AGENT = agent()
