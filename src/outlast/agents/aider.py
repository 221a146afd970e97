"""aider: no hooks, no sessions, no ids; a history file in Markdown, and costs in words. Read from 0.86.2.
It acts on the world through git and through commands, which the PATH shims see.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from outlast.agents import KnownAgent
from outlast.agents.common import argv, endings, json_lines, launch as common_launch, litellm, providers
from outlast.agents.common.grammar import Grammar
from outlast.agents.events import AgentEvent, BatchEnd, Final, Response, Text, UsageReport
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

NAME = "aider"
HISTORY_FILE = ".aider.chat.history.md"
HISTORY_VARIABLE = "AIDER_CHAT_HISTORY_FILE"

TABLE = argv.Table(
    valued=frozenset(
        """--message --message-file --chat-history-file --model --config --load --apply --exit-code --weak-model
        --editor-model --openai-api-base --set-env --env-file --openai-api-key --anthropic-api-key --api-key""".split()
    ),
    bare=frozenset(
        """--restore-chat-history --no-restore-chat-history --yes-always --gui --browser --version --help --exit
        --just-check-update --upgrade --install-main-branch --show-repo-map --show-prompts --lint --commit""".split()
    ),
    aliases={
        "-m": "--message", "--msg": "--message", "-f": "--message-file", "-c": "--config", "-h": "--help",
        "--yes": "--yes-always", "--update": "--upgrade",
    },
)  # fmt: skip
ELSEWHERE = (
    "--version", "--help", "--exit", "--just-check-update", "--upgrade", "--install-main-branch", "--show-repo-map",
    "--show-prompts", "--gui", "--browser", "--list-models", "--models",
)  # fmt: skip
NAMES = Names(
    frozenset(["aider"]),
    frozenset(["aider-chat", "aider"]),
    frozenset(["aider"]),
    re.compile(r"/aider/__main__\.py$"),
)
GRAMMAR = Grammar(names=NAMES, table=TABLE, elsewhere=ELSEWHERE)
RELEASE = Release(
    name=NAME,
    names=NAMES,
    caps=Caps(intent=("shims",), resume=True, preassigned_session=True),
    oldest=(0, 80),
    newest=(0, 86),
    upgrade="see `aider --upgrade`",
    distribution="aider-chat",
)
# `> Tokens: 2.1k sent, 33 received. Cost: $0.0012 message, $0.0045 session.`
_TOKENS = re.compile(
    r"> Tokens: ([\d.]{1,12})(k|M)? sent,(?: ([\d.]{1,12})(k|M)? cache write,)?(?: ([\d.]{1,12})(k|M)? cache hit,)?"
    r" ([\d.]{1,12})(k|M)? received\.(?: Cost: \$([\d.]{1,16}) message)?"
)
# `> Main model: openai/gpt-5 with diff edit format`
_MODEL = re.compile(r"> (?:Main model|Model): (\S{1,200}) with ")
# What it takes for a model when none is named, by the first key that it finds; and its short names for models.
DEFAULTS = {
    "OPENROUTER_API_KEY": "openrouter/anthropic/claude-sonnet-4", "ANTHROPIC_API_KEY": "claude-sonnet-4-5",
    "DEEPSEEK_API_KEY": "deepseek/deepseek-chat", "OPENAI_API_KEY": "gpt-4o",
    "GEMINI_API_KEY": "gemini/gemini-2.5-pro-exp-03-25",
}  # fmt: skip
ALIASES = {
    "sonnet": "claude-sonnet-4-5", "haiku": "claude-haiku-4-5", "opus": "claude-opus-4-6", "4o": "gpt-4o",
    "deepseek": "deepseek/deepseek-chat", "r1": "deepseek/deepseek-reasoner", "flash": "gemini/gemini-flash-latest",
    "gemini": "gemini/gemini-3-pro-preview", "gemini-2.5-pro": "gemini/gemini-2.5-pro",
}  # fmt: skip
CONFIG_FILE = ".aider.conf.yml"
OPENAI_BASE = "--openai-api-base"
ENV_FILE = "--env-file"
_SCALE = {"": 1, "k": 1_000, "M": 1_000_000}
_ANSWERED = re.compile(r"^Tokens: [\d.]{1,12}[kM]? sent", re.MULTILINE)
_FAILURE = re.compile(
    r"\blitellm\.\w+(?:Error|Exception)?\b|Model .{1,80} has hit a token limit|^Unknown context window",
    re.MULTILINE,
)


class AiderCli:
    """Its session is named after its history file. It has no hooks."""

    def detect(self, words: Sequence[str], program: str) -> bool:
        return GRAMMAR.opens_session(words, program)

    def read(self, words: Sequence[str]) -> CommandLine:
        parts = GRAMMAR.parts(words)
        return CommandLine(
            prompt=argv.value(parts, "--message") or "",
            headless=argv.has(parts, "--message", "--message-file"),
            trusting=argv.has(parts, "--yes-always"),
        )

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = GRAMMAR.split(ask.words)
        history = str(_history(parts, ask))
        routes: tuple[str, ...] = ()
        if ask.routes:
            parts, routes = _routed(parts, ask)
        if ask.session is not None:
            if not Path(history).is_file():
                return None
            parts = argv.without(
                parts, "--restore-chat-history", "--no-restore-chat-history", "--message", "--message-file"
            )
            added: tuple[str, ...] = ("--restore-chat-history",)
        else:
            added = ()
            if ask.prompt or (ask.interactive and self.read(ask.words).headless):
                parts = argv.without(parts, "--message", "--message-file")
        if ask.prompt and not ask.interactive:
            added += (f"--message={ask.prompt}",)
        command = (*ask.words[:start], *routes, *added, *argv.joined(parts))
        return AgentCommand(command, providers.no_proxy(ask), history)

    def headless_words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """It edits unasked; what else it would ask about is refused where nobody answers."""
        return ("aider", *(("--yes-always",) if trusting else ()), f"--message={prompt}")

    def resume_words(self, session: str) -> tuple[str, ...]:
        given = () if os.path.basename(session) in ("", HISTORY_FILE) else ("--chat-history-file", session)
        return ("aider", "--restore-chat-history", *given)

    def hooks_off(self, ask: Ask) -> str:
        return ""

    def hook(self, data: bytes) -> Hook:
        return Hook("other")

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        return b"", 0


class AiderTranscript:
    """Its history file, from which a resume restores the chat. The clock is an argument."""

    def __init__(self, clock: Callable[[], datetime] = common_launch.now) -> None:
        self._clock = clock
        self._model = ""

    def find(self, session: str, ask: Ask) -> Path | None:
        path = _history(GRAMMAR.parts(ask.words), ask)
        return path if path.is_file() else None

    def place(self, session: str, ask: Ask) -> Path | None:
        return None

    def beside(self, transcript: Path) -> Companions:
        return Companions()

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        """The line with a response's cost, which comes after it, marks a response."""
        stripped = line[: json_lines.TEXT_MAX_CHARS].strip()
        if not stripped or stripped[0] in b"#":
            return ()
        words = stripped.decode("utf-8", "replace")
        if stripped[0] not in b">":
            return (
                () if words.startswith("Cost: $") else (Text(values.scrub(words)),)
            )  # a report's second line
        named = _MODEL.match(words)
        if named is not None:
            self._model = providers.bare(named[1])
        cost = _TOKENS.match(words)
        if cost is None:
            return ()
        # Only its words tell one from another: two that cost the same to the last digit count once.
        return Response(words), UsageReport(_usage(cost), "response", words, self._model), BatchEnd()

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        """Return the history unchanged: it holds only text, no calls that could be cut off."""
        return transcript

    def ending(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        """Judge by its last words: aider exits 0 whatever its model's provider answered."""
        words = endings.last_words(tail)
        killed = endings.by_signal(exit_code)
        if killed is not None:
            return killed
        failure = _FAILURE.search(words)
        if failure is not None and not _ANSWERED.search(words, failure.start()):
            final = endings.match(NAME, words[failure.start() :], self._clock())
            if final is not None:
                return final
            return Final("crashed", endings.short(words[failure.start() :]))
        return endings.by_exit(exit_code, words, NAME, self._clock())


class AiderBilling:
    """Its provider is the one that litellm takes for the model's name."""

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        named = _models(GRAMMAR.parts(words), environment, cwd, defaults=False)
        return providers.bare(named[0]) if named else ""

    def payment(self, ask: Ask) -> Payment:
        return "api"

    def account(self, ask: Ask) -> str:
        parts = GRAMMAR.parts(ask.words)
        found = [litellm.of(one) for one in _models(parts, ask.environment, ask.cwd)[:1]]
        environment = _environment(parts, ask.environment, ask.cwd)
        return found[0].account(environment) if found and found[0] is not None else ""

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        parts = GRAMMAR.parts(ask.words)
        environment = _environment(parts, ask.environment, ask.cwd)
        models = _models(parts, ask.environment, ask.cwd)
        return litellm.gateway(ask, route, models, environment)

    def spent(self, ask: Ask) -> Iterable[UsageReport]:
        return ()


def _history(parts: argv.Parts, ask: Ask) -> Path:
    """Its history file: where the command or the environment says, else at the root of the repository."""
    named = argv.value(parts, "--chat-history-file") or ask.environment.get(HISTORY_VARIABLE, "")
    if named:
        return ask.cwd / named
    for folder in (ask.cwd, *ask.cwd.parents):
        if (folder / ".git").exists():
            return folder / HISTORY_FILE
    return ask.cwd / HISTORY_FILE


def _environment(parts: argv.Parts, environment: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """The variables as it sees them: .env files count more than the environment, and flags more than those."""
    home = environment.get("HOME", "")
    named = argv.value(parts, ENV_FILE)
    root = next((folder for folder in providers.above(cwd) if (folder / ".git").exists()), cwd)
    folders = [*((Path(home) / ".aider/oauth-keys.env", Path(home) / ".env") if home else ())]
    files = [*folders, root / ".env", cwd / ".env", *((cwd / named,) if named else ())]
    found = dict(environment)
    for path in dict.fromkeys(files):
        found |= providers.dotenv(path)
    for part in parts:
        if part.values and part.names[-1:] == ("--set-env",):
            name, _, value = part.values[-1].partition("=")
            found[name.strip()] = value.strip()
    base = argv.value(parts, OPENAI_BASE) or found.get("AIDER_OPENAI_API_BASE")
    base = base or _configured(parts, cwd, home, "openai-api-base")
    return found | ({"OPENAI_API_BASE": base} if base else {})


def _configured(parts: argv.Parts, cwd: Path, home: str, key: str) -> str:
    """A plain setting in its settings file; the nearest file counts."""
    named = argv.value(parts, "--config")
    folders = (*providers.above(cwd), *((Path(home),) if home else ()))
    paths = [cwd / named] if named else [folder / CONFIG_FILE for folder in folders]
    for path in paths:
        found = re.search(rf"(?m)^{key}:[ \t]+[\"']?([^\s\"'#]+)", providers.text(path))
        if found:
            return found[1]
    return ""


def _models(
    parts: argv.Parts, environment: Mapping[str, str], cwd: Path, *, defaults: bool = True
) -> list[str]:
    """The models that it would call: the main one first."""
    heard = _environment(parts, environment, cwd)
    found = []
    for key in ("model", "weak-model", "editor-model"):
        variable = f"AIDER_{key.upper().replace('-', '_')}"
        named = argv.value(parts, f"--{key}") or heard.get(variable, "")
        found.append(named or _configured(parts, cwd, heard.get("HOME", ""), key))
    if not found[0] and defaults:
        found[0] = next((model for key, model in DEFAULTS.items() if heard.get(key)), "")
    return [ALIASES.get(model, model) for model in found if model]


def _routed(parts: argv.Parts, ask: Ask) -> tuple[argv.Parts, tuple[str, ...]]:
    """The command without the addresses that the user gave, and a flag for a file with those that stand for them.

    By a file, which counts more than the environment: its command line it writes into its history.
    """
    environment = _environment(parts, ask.environment, ask.cwd)
    ours = litellm.variables(ask, _models(parts, ask.environment, ask.cwd), environment)
    if "OPENAI_API_BASE" in ours:
        ours["AIDER_OPENAI_API_BASE"] = ours["OPENAI_API_BASE"]
    named = argv.value(parts, ENV_FILE)
    theirs = providers.text(ask.cwd / named) if named else ""
    lines = [theirs, *(f"{name}={url}" for name, url in ours.items()), ""]
    path = common_launch.private(ask.folder / "aider.env", "\n".join(lines).encode("utf-8", "replace"))
    rest = tuple(
        part
        for part in argv.without(parts, OPENAI_BASE, ENV_FILE)
        if part.names[-1:] != ("--set-env",) or part.values[-1].partition("=")[0].strip() not in ours
    )
    return rest, (ENV_FILE, str(path))


def _usage(found: re.Match[str]) -> values.Usage:
    sent, write, hit, received = (_count(found[n], found[n + 1]) for n in (1, 3, 5, 7))
    fresh = max(
        sent - hit - 2 * write, 0
    )  # what it calls sent holds the hits, and twice what it wrote to the cache
    return values.Usage(fresh, received, hit, write, _count(found[9], "M"), estimated=True)


def _count(number: str | None, scale: str | None) -> int:
    try:
        return min(int(float(number) * _SCALE[scale or ""]), json_lines.NUMBER_MAX) if number else 0
    except (ValueError, OverflowError):
        return 0


def agent(clock: Callable[[], datetime] = common_launch.now) -> KnownAgent:
    """aider with this clock."""
    return KnownAgent(AiderCli(), AiderTranscript(clock), AiderBilling(), RELEASE)


AGENT = agent()
